"""Scale on paper: what a plan needs on many cores, by the adapter's own grid: copies of rows, bytes shuffled, state per worker."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.stem.operator import Brought, work_off
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import Grid, choose_grid, copied
from tests.bench.bench_stem import CHAIN, Flow, request_of
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, Part, Section, Table, line, told
from tests.spark_adapter.cells import SECOND, Memory, drained
from tests.spark_adapter.in_process import Stretch, arrivals, cut

__all__ = ["SECTION", "placed"]

PAYS, EVEN = 0.2, 1.05  # less that a cell takes for twice the cells; copies of a row
NEAR, NEARLY = 1.1, 1.5  # times the share of the rows
HEAVY = 32  # times the rows, each finding as many
CORES = (1, 2, 4, 10, 16, 32, 64, 100, 128, 256, 512, 1000, 1024)
SHOWN = (1, 2, 4, 10, 100, 1000)
STAR = {"hub": Flow(1000, 60, {f"k{i}": 50_000 for i in range(5)})} | {f"s{i}": Flow(300, 60, {f"k{i}": 50_000}) for i in range(5)}
ONE_KEY = {name: Flow(1000, 60, {"k": 100_000}) for name in "abcd"}


def queries() -> dict[str, PlanRequest]:
    return {
        "chain of 4": request_of(CHAIN, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]),
        "star of 6": request_of(STAR, [f"hub.k{i} = s{i}.k{i}" for i in range(5)]),
        "4 on one key": request_of(ONE_KEY, ["a.k = b.k", "b.k = c.k", "c.k = d.k"]),
    }


@dataclass(frozen=True)
class Spread:
    """A plan on a grid of so many cells."""

    cells: int
    grid: str
    copies: float
    """Times that a row that arrives is sent, on average."""
    sent: float
    """Bytes a second over the network, of all streams."""
    state: float
    """Bytes per cell."""
    rows: float
    """Rows a second per cell that arrive and are kept, against all of them in one cell."""


def spread(plan: Plan, cells: int) -> Spread:
    grid = choose_grid(plan.query, cells)
    rates = {stream.name: stream.rate for stream in plan.query.streams}
    sent = {stream.name: stream.rate * stream.tuple_bytes * len(grid.offsets(stream.name)) for stream in plan.query.streams}
    copies = sum(rate * len(grid.offsets(name)) for name, rate in rates.items()) / sum(rates.values())
    cells = max(1, grid.cells)
    return Spread(cells, _said(grid), copies, math.fsum(sent.values()), plan.cost.memory_bytes * copied(plan, grid) / cells, copies / cells)


def _said(grid: Grid) -> str:
    return "×".join(str(dimension.share) for dimension in grid.dimensions) or "1"


def scale(quick: bool) -> Findings:
    tables, claims = [], []
    per_cell: dict[str, list[list[float]]] = {}
    for name, request in queries().items():
        plan = planned(request)
        found = {cores: spread(plan, cores) for cores in CORES}
        rows = [
            [f"{cores:,}", s.grid, f"{s.copies:.1f}", f"{s.sent / 1e6:,.2f}", f"{s.state / 1e6:,.2f}", f"{s.rows:.3f}"]
            for cores in SHOWN
            for s in [found[cores]]
        ]
        tables.append(
            Table(
                f"{name}, {sum(s.rate for s in plan.query.streams):,.0f} rows/s",
                ["cores", "grid", "copies", "MB/s sent", "MB state a cell", "rows a cell"],
                rows,
            )
        )
        per_cell[name] = line((float(s.cells), s.rows) for s in found.values())
        most = found[1000]
        claims.append(
            Claim(
                "(ours) A cell of p cores should take 1/p of the rows; copies take from that.",
                f"{name}: 1,000 cores take {most.rows:.4f} of all rows each, {1000 * most.rows:.0f} times an even share, with "
                f"{most.copies:.0f} copies of a row; {_turn(found)}{_worse(found)}",
                AGREES if most.copies <= EVEN else IN_KIND if most.rows < found[1].rows else DIFFERS,
            )
        )
    return Findings(
        claims,
        [
            "Plans by the default costs, grids by `choose_grid`; 100 bytes a tuple. Rows a cell: rows that arrive in and are kept by a "
            "cell, 1 being all rows in one cell."
        ],
        tables,
        [Figure("rows", "Rows a cell takes (log)", "cells", "share of all rows", per_cell, log=True)],
        [
            "Computed, not run: rows alone. Results that a cell makes fall as 1/p whatever the copies; what each batch costs in each cell without a "
            "row does not fall, and the next part measures it."
        ],
    )


def _turn(found: dict[int, Spread]) -> str:
    """Where more cores stop paying: twice the cells take less than a fifth off a cell's rows."""
    for cores in (cores for cores in CORES if 2 * cores in found):
        if found[2 * cores].rows > (1 - PAYS) * found[cores].rows:
            return f"from {cores} to {2 * cores} cells less than a fifth comes off a cell's rows: from there on more cores pay for results alone."
    return "by rows twice the cells take a fifth or more off a cell's rows throughout; what a batch costs without a row is not in that."


def _worse(found: dict[int, Spread]) -> str:
    """Where more cores have a cell take more rows than fewer do."""
    worse = [(few, many) for few, many in itertools.pairwise(CORES) if found[many].rows > found[few].rows * (1 + 1e-9)]
    return "".join(
        f" At {many:,} cores a cell takes {found[many].rows:.3f} of the rows, more than at {few:,} with {found[few].rows:.3f}: {found[many].grid} "
        f"cells "
        f"against {found[few].grid}, a number of cells that divides worse among the dimensions."
        for few, many in worse
    )


def placed(rows: Mapping[str, pl.DataFrame], grid: Grid) -> list[dict[str, pl.DataFrame]]:
    """The rows of every cell: a row goes to the cell of its own coordinates and is copied along the axes that it is not on."""
    cells: list[dict[str, pl.DataFrame]] = [{} for _ in range(max(1, grid.cells))]
    for name, frame in rows.items():
        own = np.zeros(frame.height, np.int64)
        for d in grid.hashed(name):
            attribute = grid.dimensions[d].attributes[name]
            values = frame["h"] if not attribute else frame[f"{name}.{attribute}"]
            own += (values.hash(seed=d).to_numpy() % grid.dimensions[d].share).astype(np.int64) * grid.strides[d]
        for k, arrived in enumerate(cells):
            mine = np.zeros(frame.height, bool)
            for offset in grid.offsets(name):
                mine |= own + offset == k
            arrived[name] = frame.filter(pl.Series(mine))
    return cells


def heavier(times: int) -> dict[str, Flow]:
    """The chain with so many times the rows and values, so that a row finds as many partners."""
    return {name: Flow(flow.rate * times, flow.window, {key: count * times for key, count in flow.values.items()}) for name, flow in CHAIN.items()}


def measured(quick: bool) -> Findings:
    seconds, batch, warm = (44.0, 4.0, 32.0) if quick else (52.0, 4.0, 32.0)
    loads = {str(times): _cells(heavier(times), seconds, batch, warm) for times in (1, 2 if quick else HEAVY)}
    rate = sum(flow.rate for flow in CHAIN.values())
    return told(measured_told, {"loads": loads, "rate": rate, "batch": batch, "warm": warm, "batches": (seconds - warm) / batch})


def _cells(flows: Mapping[str, Flow], seconds: float, batch: float, warm: float) -> list[dict[str, Any]]:
    """On 1, 2 and 4 cells, one after the other: rows by the grid, CPU seconds and bytes of state of each."""
    plan = planned(request_of(flows, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]))
    program = program_of(plan, dict.fromkeys(flows, 1), run="run")
    batches = cut(arrivals({name: [Stretch(seconds, flow.rate, flow.values)] for name, flow in flows.items()}), batch)
    results, shown = set(), []
    for cells in (1, 2, 4):
        grid = choose_grid(plan.query, cells)
        stores = [Memory() for _ in range(cells)]
        cpu, held, made = [0.0] * cells, [0.0] * cells, 0
        for batch_rows, watermark in batches:
            for k, arrived in enumerate(placed(batch_rows, grid)):
                began = time.process_time()
                found, outcome = drained(work_off(program, grid, k, stores[k], Brought(arrived, watermark)))
                if watermark >= warm * SECOND:
                    cpu[k] += time.process_time() - began
                held[k] = float(sum(held for _, held in outcome.statistics["states"].values()))
                made += sum(frame.height for frame in found)
        results.add(made)
        on_paper = spread(plan, cells)
        shown.append({"cells": cells, "rows": on_paper.rows, "state": on_paper.state, "cpu": cpu, "held": held, "results": made})
        print(f"   {sum(flow.rate for flow in flows.values()):,.0f} rows/s, {cells} cells: {cpu}", flush=True)
    assert len(results) == 1, "grids gave different results"
    return shown


def measured_told(data: Mapping[str, Any]) -> Findings:
    shown, claims, alone = [], [], {}
    for times, listed in data["loads"].items():
        rate = data["rate"] * int(times)
        alone[int(times)] = one = max(listed[0]["cpu"])
        ratios = [max(row["cpu"]) / one / row["rows"] for row in listed]
        for row in listed:
            most, every = max(row["cpu"]) / one, sum(row["cpu"]) / one
            sizes = f"{row['state'] / 1e6:.1f}", f"{max(row['held']) / 1e6:.1f}"
            shown.append([f"{rate:,.0f}", str(row["cells"]), f"{row['rows']:.2f}", f"{most:.2f}", f"{every:.2f}", *sizes])
        last = listed[-1]
        claims.append(
            Claim(
                "(ours) The fullest cell takes what the grid says of the rows.",
                f"{rate:,.0f} rows/s: its CPU against one cell's is {min(ratios):.2f} to {max(ratios):.2f} times that share; at {last['cells']} "
                f"cells "
                f"{max(last['cpu']) / one:.2f} of one cell's CPU for {last['rows']:.2f} of the rows.",
                AGREES if max(ratios) <= NEAR else IN_KIND if max(ratios) <= NEARLY else DIFFERS,
            )
        )
    (light, cpu), (heavy, more) = sorted(alone.items())
    fixed = max(0.0, cpu - (more - cpu) / (heavy - light) * light)
    note = (
        f"One cell takes {cpu:.2f} CPU s over {data['batches']:g} batches with {light * data['rate']:,.0f} rows/s and {more:.2f} with "
        f"{heavy / light:g} times "
        f"the rows, each finding as many. If that is a straight line, {fixed / cpu:.0%} of the lighter load and {fixed / more:.0%} of the heavier "
        f"is what "
        f"batches cost without a row ({1000 * fixed / data['batches']:.0f} ms each), which every cell pays whole: so a grid that pays by its rows "
        f"on paper pays in CPU only "
        "while that is little against a cell's rows. Results fall as one in so many cells, "
        "states and "
        "input by their copies. Bytes measured are columns of numbers, priced are 100 a tuple."
    )
    columns = ["rows/s", "cells", "rows", "CPU, fullest", "CPU, all", "MB, priced", "MB, measured"]
    settings = [
        f"The chain of four, windows of 30 s, batches of {data['batch']:g} s, one process, cell after cell; what comes after {data['warm']:g} s "
        f"counts."
    ]
    return Findings(claims, settings, [Table("Against one cell", columns, shown)], [], [note])


SECTION = Section(
    "scale",
    "Scale on paper: 10, 100 and 1,000 cores",
    "One operator works in a grid of cells; a row goes to all cells whose coordinates it lacks. What that costs is computed by the "
    "adapter's own functions.",
    (Part("grid", "Copies, bytes sent, state", scale), Part("cells", "Measured: 1, 2 and 4 cells", measured, measured_told)),
    f"copies: at most {EVEN:g} agree, in kind while more cores take rows off a cell; twice the cells pay if a cell takes {PAYS:.0%} less; measured "
    f"CPU at "
    f"most {NEAR:g} times the share of the rows, in kind {NEARLY:g}.",
)

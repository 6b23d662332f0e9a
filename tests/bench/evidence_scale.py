"""Scale on paper: what a plan needs on many cores, by the adapter's own grid: copies of rows, bytes shuffled, state per worker."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.stem.operator import work_off
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import Grid, choose_grid, copied
from tests.bench.bench_stem import CHAIN, Flow, request_of
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, Part, Section, Table, line
from tests.spark_adapter.cells import SECOND, Memory, drained
from tests.spark_adapter.in_process import Stretch, arrivals, cut

__all__ = ["SECTION", "placed"]

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
                f"{most.copies:.0f} copies of a row; {_turn(found)}",
                AGREES if most.copies <= 1.05 else IN_KIND,
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
        ["Computed, not run. Results that a cell makes fall as 1/p whatever the copies."],
    )


def _turn(found: dict[int, Spread]) -> str:
    """Where more cores stop paying: twice the cells take less than a fifth off a cell's rows."""
    for cores in (cores for cores in CORES if 2 * cores in found):
        if found[2 * cores].rows > 0.8 * found[cores].rows:
            return f"from {cores} to {2 * cores} cells less than a fifth comes off a cell's rows: from there on more cores pay for results alone."
    return "twice the cells take a fifth or more off a cell's rows throughout."


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


def measured(quick: bool) -> Findings:
    seconds, batch, warm = (44.0, 4.0, 32.0) if quick else (60.0, 4.0, 32.0)
    plan = planned(queries()["chain of 4"])
    program = program_of(plan, dict.fromkeys(CHAIN, 1), run="run")
    rows = arrivals({name: [Stretch(seconds, flow.rate, flow.values)] for name, flow in CHAIN.items()})
    shown, results, ratios = [], set(), []
    alone = 0.0
    for cells in (1, 2, 4):
        grid = choose_grid(plan.query, cells)
        stores = [Memory() for _ in range(cells)]
        cpu, held, made = [0.0] * cells, [0.0] * cells, 0
        for batch_rows, watermark in cut(rows, batch):
            for k, arrived in enumerate(placed(batch_rows, grid)):
                began = time.process_time()
                found, outcome = drained(work_off(program, grid, k, stores[k], arrived, watermark))
                if watermark >= warm * SECOND:
                    cpu[k] += time.process_time() - began
                held[k] = float(sum(held for _, held in outcome.statistics["states"].values()))
                made += sum(frame.height for frame in found)
        results.add(made)
        alone = alone or max(cpu)
        on_paper = spread(plan, cells)
        ratios.append((max(cpu) / alone) / on_paper.rows)
        state = max(held) / 1e6
        shown.append(
            [str(cells), f"{on_paper.rows:.2f}", f"{max(cpu) / alone:.2f}", f"{sum(cpu) / alone:.2f}", f"{on_paper.state / 1e6:.1f}", f"{state:.1f}"]
        )
    assert len(results) == 1, "grids gave different results"
    claim = Claim(
        "(ours) The fullest cell takes what the grid says of the rows.",
        f"its CPU against one cell's is {min(ratios):.2f} to {max(ratios):.2f} times that share.",
        AGREES if max(ratios) <= 1.1 else IN_KIND if max(ratios) <= 1.5 else DIFFERS,
    )
    columns = ["cells", "rows", "CPU, fullest", "CPU, all", "MB, priced", "MB, measured"]
    settings = [
        f"The chain of four, 4,000 rows/s, windows of 30 s, batches of {batch:g} s, one process, cell after cell; what comes after {warm:g} s counts."
    ]
    note = (
        "Results fall as one in so many cells, states and input by their copies; what a batch costs without a row does not fall at all, "
        "and shows at 4 cells of so few rows. Bytes measured are columns of numbers, priced are 100 a tuple."
    )
    return Findings([claim], settings, [Table("Against one cell", columns, shown)], [], [note])


SECTION = Section(
    "scale",
    "Scale on paper: 10, 100 and 1,000 cores",
    "One operator works in a grid of cells; a row goes to all cells whose coordinates it lacks. What that costs is computed by the "
    "adapter's own functions.",
    (Part("grid", "Copies, bytes sent, state", scale), Part("cells", "Measured: 1, 2 and 4 cells", measured)),
)

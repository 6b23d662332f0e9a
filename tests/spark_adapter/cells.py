"""Cells without Spark: random plans over random batches, run in memory, and the answer by the definition."""

from __future__ import annotations

import hashlib
import itertools
import math
import operator
import random
import tempfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st

from models.plan import Plan
from models.request import Query
from spark_adapter.stem.operator import Brought, Outcome, evict, work_off
from spark_adapter.stem.program import Program, Stream, Table
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.relayout import emptied, filled, placed
from spark_adapter.stem.shares import Grid, choose_grid
from spark_adapter.stem.shelf import Shelf
from spark_adapter.stem.silence import Heard
from spark_adapter.stem.tables import VERSION, Ask, Whole
from tests.spark_adapter.plans import Shape, make_plan

__all__ = [
    "SECOND",
    "Batch",
    "Case",
    "Cells",
    "Memory",
    "by_definition",
    "cases",
    "drained",
    "plans",
    "queries",
    "reordered",
    "steady",
    "watermarks",
    "with_caches",
    "with_shares",
]

SECOND = 1_000_000
ATTRIBUTES = ("x", "y")
OPERATORS = {"=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

Arrival = Mapping[str, int]
"""id, ts in microseconds, x, y."""
Batch = Mapping[str, Sequence[Arrival]]
Placed = tuple[int, Arrival]
"""A row with its place in the order of arrival."""
Condition = tuple[Callable[[int, int], bool], int, str, int, str]
"""A comparison, and the place of a stream with an attribute on either side."""


class Memory:
    """A state store in a dictionary, with its shelf in a temporary folder."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="watersmeet-")
        self.shelf = Shelf(Path(self._folder.name) / "cell")

    def get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def put(self, key: str, value: bytes) -> None:
        self.content[key] = value

    def remove(self, key: str) -> None:
        self.content.pop(key, None)


def drained(batch: Generator[pl.DataFrame, None, Outcome]) -> tuple[list[pl.DataFrame], Outcome]:
    """All results of a batch, and what the cell says of it."""
    results: list[pl.DataFrame] = []
    while True:
        try:
            results.append(next(batch))
        except StopIteration as end:
            return results, end.value


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:8], "big", signed=True)


@dataclass
class Cells:
    """All cells of a pipeline. A result is the tuple of its rows' ids, in the order of the query's streams."""

    plan: Plan
    parallelism: int = 1
    delays: Mapping[str, int] | None = None
    """Milliseconds by which watermarks trail the streams, for those who know."""
    idle_after: Mapping[str, int] | None = None
    """Milliseconds after which nobody waits for a silent stream, where there are such streams."""
    runs: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    slices: list[int] = field(default_factory=list)
    """Rows of each frame of results."""
    stores: dict[int, Memory] = field(default_factory=dict)
    adaptive: bool = False
    """Whether cells order their own probes."""
    program: Program = field(init=False)
    """What the run was started with."""
    grid: Grid = field(init=False)
    ask: Ask | None = None
    """Reaches tables that are asked."""
    _told: tuple[Program | Whole, ...] = ()
    _versions: dict[str, pl.DataFrame] = field(default_factory=dict)
    _number: int = 0

    def __post_init__(self) -> None:
        self.grid = choose_grid(self.plan.query, self.parallelism)
        self.use(self.plan)

    def use(self, plan: Plan) -> None:
        """Go on with another plan over the same states, after a restart."""
        self.runs += 1
        self.program = self._programmed(plan, number=0)
        self.change(plan)

    def change(self, plan: Plan) -> None:
        """Go on with another plan from the next batch on, without a restart."""
        self.plan = plan
        self._number += 1
        self._told = (*self._told, self._programmed(plan, self._number))

    def give(self, table: str, rows: Sequence[Mapping[str, Any]], version: int) -> None:
        """Rows of a table's version, with the next batch; those without a value in an attribute are left out, as at the source."""
        found = next(entry for entry in self.program.tables if entry.name == table)
        present = [row for row in rows if all(row[side.split(".")[1]] is not None for side in found.attributes)]
        if present:
            self._versions[f"{table}{VERSION}{version}"] = self._frame(found, [{"ts": 0, **row} for row in present]).drop("ts")

    def declare(self, table: str, version: int) -> None:
        """Say with the next batch that a version is whole."""
        self._told = (*self._told, Whole(table, version))

    def _programmed(self, plan: Plan, number: int) -> Program:
        names = [relation.name for relation in plan.query.relations]
        program = program_of(plan, dict.fromkeys(names, 1), self.delays, f"run {self.runs}", self.idle_after)
        return replace(program, number=number, adaptive=self.adaptive)

    def work_off(self, batch: Batch, watermark: int, now: int = 0) -> Counter[tuple[int, ...]]:
        """The results of a batch; where streams may be idle, `now` is its time in milliseconds."""
        found: Counter[tuple[int, ...]] = Counter()
        frames = {stream.name: self._frame(stream, batch[stream.name]) for stream in self.program.streams if batch.get(stream.name)}
        heard = Heard(now, {name: max(row["ts"] for row in batch[name]) for name in frames}) if self.program.listening else None
        frames |= self._versions
        places = {name: placed(frame, name.split(VERSION)[0], self.grid) for name, frame in frames.items()}
        for cell in range(self.grid.cells):
            arrivals = {}
            for name, frame in frames.items():
                comes = np.isin(cell - places[name], self.grid.offsets(name.split(VERSION)[0]))
                if comes.any():
                    arrivals[name] = frame.filter(pl.Series(comes))
            store = self.stores.setdefault(cell, Memory())
            if not arrivals and not self._told and not (heard and frames):
                self.outcomes.append(evict(self.program, self.grid, cell, store, watermark))
                continue
            worked = work_off(self.program, self.grid, cell, store, Brought(arrivals, watermark, self._told, heard if frames else None), self.ask)
            results, outcome = drained(worked)
            self.outcomes.append(outcome)
            self.slices += [frame.height for frame in results]
            for frame in results:
                found.update(frame.iter_rows())
        self._told, self._versions = (), {}
        return found

    def _frame(self, stream: Stream | Table, rows: Sequence[Arrival]) -> pl.DataFrame:
        columns: dict[str, list[int]] = {"ts": [row["ts"] for row in rows], "h": [_hash(stream.name, sorted(row.items())) for row in rows]}
        columns |= {side: [row[side.split(".")[1]] for row in rows] for side in stream.attributes}
        columns[f"{stream.name}/0"] = [row["id"] for row in rows]
        return pl.DataFrame(columns, schema=dict.fromkeys(columns, pl.Int64))

    def rescale(self, parallelism: int) -> None:
        """Lay the states out for another number of cells, on workers that have no copies; caches and subresults are made anew.

        The run that goes on was started with the same plan as the one before, so nobody is told of any: cells know which is in force.
        """
        old, self.grid = self.grid, choose_grid(self.plan.query, parallelism)
        moved = [
            part
            for cell, store in sorted(self.stores.items())
            for key, value in sorted(store.content.items())
            for part in emptied(cell, key, value, old, self.grid)
        ]
        self.stores = {}
        windows = {stream.name: stream.window for stream in self.program.streams}
        for cell, key, value in filled(sorted(moved, key=lambda part: (part.cell, part.stream, part.death)), windows):
            self.stores.setdefault(cell, Memory()).put(key, value)
        self.runs += 1
        self.program = replace(self.program, run=f"run {self.runs}")


def by_definition(query: Query, batches: Sequence[tuple[Batch, int]]) -> Counter[tuple[int, ...]]:
    """Every combination of rows that came in time: predicates, windows of time, and windows of rows as they stood at the last arrival.

    Rows arrive batch by batch, within a batch by event time, then stream, then hash. Combinations grow stream by stream
    and are dropped at the first predicate that fails or window of time that they leave: the rest is as the definition has it.
    """
    names = [stream.name for stream in query.streams]
    arrived: list[tuple[str, Arrival]] = []
    for batch, watermark in batches:
        now = [(row["ts"], i, _hash(name, sorted(row.items())), name, row) for i, name in enumerate(names) for row in batch.get(name, ())]
        arrived += [(name, row) for ts, _, _, name, row in sorted(now, key=lambda item: item[:3]) if ts >= watermark]
    rows = {name: [(n, row) for n, (whose, row) in enumerate(arrived) if whose == name] for name in names}
    lengths = [math.inf if stream.window.seconds is None else round(stream.window.seconds * SECOND) for stream in query.streams]
    # Rows that go together so far, the latest of their times, and the last moment at which all of them are in their windows.
    combinations: list[tuple[tuple[Placed, ...], float, float]] = [((), -math.inf, math.inf)]
    for j, name in enumerate(names):
        conditions: list[Condition] = []
        for predicate in query.predicates:
            (left, x), (right, y) = predicate.left.split("."), predicate.right.split(".")
            if max(names.index(left), names.index(right)) == j:
                conditions.append((OPERATORS[predicate.op.value], names.index(left), x, names.index(right), y))
        near = _nearby(rows[name], j, conditions)
        combinations = [
            (grown, newest, until)
            for found, latest, end in combinations
            for arrival in near(found)
            if (newest := max(latest, ts := arrival[1]["ts"])) <= (until := min(end, ts + lengths[j]))
            for grown in [(*found, arrival)]
            if all(compare(grown[left][1][x], grown[right][1][y]) for compare, left, x, right, y in conditions)
        ]
    counts = [stream.window.rows for stream in query.streams]
    numbers = [[n for n, _ in rows[name]] for name in names]
    return Counter(tuple(row["id"] for _, row in found) for found, _, _ in combinations if _within_rows(counts, numbers, found))


def _nearby(rows: Sequence[Placed], j: int, conditions: Sequence[Condition]) -> Callable[[Sequence[Placed]], Sequence[Placed]]:
    """Of the rows of stream j those to try with others: where a condition is an equality, those with the value that it asks for; else all."""
    for compare, left, x, right, y in conditions:
        if compare is operator.eq:
            other, given, own = (left, x, y) if right == j else (right, y, x)
            by_value: dict[int, list[Placed]] = {}
            for placed_row in rows:
                by_value.setdefault(placed_row[1][own], []).append(placed_row)
            return lambda found: by_value.get(found[other][1][given], ())
    return lambda _: rows


def _within_rows(counts: Sequence[int | None], numbers: Sequence[Sequence[int]], found: Sequence[Placed]) -> bool:
    """Whether each row is among the newest of its stream when the last one arrives; `numbers` are those of all arrivals, by stream."""
    last = max(n for n, _ in found)
    return all(
        count is None or bisect_right(arrived, last) - bisect_right(arrived, n) < count
        for count, arrived, (n, _) in zip(counts, numbers, found, strict=True)
    )


def steady(query: Query, seconds: int, per_second: int | None, values: int, seed: int = 0, every: float = 1.0) -> list[tuple[Batch, int]]:
    """Rows of every stream at an even rate, its own unless one is given, in batches of `every` seconds.

    The watermark is the end of the batch before.
    """
    rng = random.Random(seed)
    identity = 0
    result: list[tuple[Batch, int]] = []
    for n in range(round(seconds / every)):
        batch: dict[str, list[dict[str, int]]] = {}
        for stream in query.streams:
            batch[stream.name] = []
            count = round((per_second or stream.rate) * every)
            for k in range(count):
                at = round((n + k / count) * every * SECOND)
                batch[stream.name].append({"id": identity, "ts": at, "x": rng.randrange(values), "y": rng.randrange(values)})
                identity += 1
        result.append((batch, round(n * every * SECOND) if n else -1))
    return result


def reordered(plan: Plan, orders: Mapping[tuple[str, str], Sequence[int]]) -> Plan:
    """The plan with the probes of (operator, input) permuted."""
    document = plan.model_dump(mode="json", by_alias=True)
    for entry in document["operators"]:
        for pipeline in entry["pipelines"]:
            order = orders.get((entry["id"], pipeline["input"]))
            if order is not None:
                pipeline["probes"] = [pipeline["probes"][i] for i in order]
    return Plan.model_validate(document)


def with_caches(plan: Plan, places: Sequence[tuple[str, str, int, int, str, float]]) -> Plan:
    """The plan with caches at (operator, input, first, last, kind, bytes)."""
    document = plan.model_dump(mode="json", by_alias=True)
    relations = [relation.name for relation in plan.query.relations]
    below = {name: [name] for name in relations} | {entry.id: list(entry.streams) for entry in plan.operators}
    for n, (operator_id, name, first, last, kind, size) in enumerate(places):
        entry = next(entry for entry in plan.operators if entry.id == operator_id)
        pipeline = next(pipeline for pipeline in entry.pipelines if pipeline.input == name)
        streams = sorted(stream for probe in pipeline.probes[first : last + 1] for stream in below[probe.target])
        document["caches"].append(
            {"id": f"cache-{n + 1}", "operator": operator_id, "input": name, "first": first, "last": last, "streams": streams, "key": []}
            | {"kind": kind, "group": n, "miss_probability": 0.5, "saves": 0.0, "costs": 0.0, "memory_bytes": size}
        )
    return Plan.model_validate(document)


def with_shares(plan: Plan, shares: Mapping[tuple[str, str, int], float], admitted: float = 1.0) -> Plan:
    """The plan with allowances: (operator, input, step) → share."""
    allocation: dict[str, Any] = {
        "throughput": 0.0,
        "saturation_throughput": 0.0,
        "jaqpot_throughput": 0.0,
        "cpu": 0.0,
        "admitted": admitted,
        "freshness_met": True,
        "freshness_cpu": None,
        "allowances": [{"operator": o, "input": i, "step": s, "share": share, "rate": 0.0} for (o, i, s), share in shares.items()],
        "streams": [],
        "renewals": [],
    }
    return Plan.model_validate(plan.model_dump(mode="json", by_alias=True) | {"allocation": allocation})


@dataclass(frozen=True)
class Case:
    """A plan, the batches with the watermark at the start of each, and how many cells to use."""

    plan: Plan
    batches: list[tuple[Batch, int]]
    parallelism: int
    delays: Mapping[str, int]
    """Milliseconds by which Spark's watermark trails each stream, where it is Spark that moves it."""


def watermarks(batches: Sequence[Batch], delays: Mapping[str, int]) -> list[int]:
    """The watermark at the start of each batch as Spark moves it, in microseconds; −1 while there is none.

    It is the earliest over the streams, each by the latest event time of all batches before, in whole milliseconds, less the stream's delay;
    it waits until every stream has had a row, and never goes back.
    """
    found, watermark = [], -1
    latest: dict[str, int] = {}
    for batch in batches:
        found.append(watermark)
        for name, rows in batch.items():
            for row in rows:
                latest[name] = max(latest.get(name, 0), row["ts"] // 1000)
        if len(latest) == len(delays):
            watermark = max(watermark, min(1000 * (latest[name] - delay) for name, delay in delays.items()))
    return found


@st.composite
def cases(draw: st.DrawFn, counted: bool = False, most_streams: int = 4) -> Case:
    query = draw(queries(counted, most_streams))
    delays = {stream.name: draw(st.sampled_from([0, 250, 1000, 2000])) for stream in query.streams}
    return Case(draw(plans(query)), draw(batches(query)), draw(st.sampled_from([1, 2, 4])), delays)


@st.composite
def queries(draw: st.DrawFn, counted: bool, most_streams: int) -> Query:
    n = draw(st.integers(2, most_streams))
    names = [f"s{i}" for i in range(n)]
    streams = []
    for name in names:
        by_rows = counted and draw(st.booleans())
        window = {"rows": draw(st.integers(1, 6))} if by_rows else {"seconds": draw(st.sampled_from([0.5, 1, 2, 5]))}
        streams.append({"name": name, "rate": draw(st.sampled_from([1, 10])), "window": window})
    pairs = [(i, draw(st.integers(0, i - 1))) for i in range(1, n) if draw(st.integers(0, 9))]
    pairs += draw(st.lists(st.sampled_from(list(itertools.combinations(range(n), 2))), max_size=2))
    predicates = [
        {
            "left": f"{names[i]}.{draw(st.sampled_from(ATTRIBUTES))}",
            "op": draw(st.sampled_from(["=", "=", "=", "=", "<", ">=", "!="])),
            "right": f"{names[j]}.{draw(st.sampled_from(ATTRIBUTES))}",
            "selectivity": 0.5,
        }
        for i, j in pairs
    ]
    return Query.model_validate({"streams": streams, "predicates": predicates})


@st.composite
def plans(draw: st.DrawFn, query: Query) -> Plan:
    """Any tree, any probe orders, any caches."""
    nodes: list[Shape] = [stream.name for stream in query.streams]
    while len(nodes) > 1:
        width = draw(st.integers(2, len(nodes)))
        taken = draw(st.permutations(range(len(nodes))))[:width]
        nodes = [node for i, node in enumerate(nodes) if i not in taken] + [[nodes[i] for i in taken]]
    plan = make_plan(query, nodes[0])
    orders = {
        (entry.id, pipeline.input): draw(st.permutations(range(len(pipeline.probes)))) for entry in plan.operators for pipeline in entry.pipelines
    }
    plan = reordered(plan, orders)
    places = []
    for entry in plan.operators:
        for pipeline in entry.pipelines:
            if len(pipeline.probes) > 1 and draw(st.booleans()):
                first = draw(st.integers(0, len(pipeline.probes) - 1))
                last = draw(st.integers(first, len(pipeline.probes) - 1))
                size = draw(st.sampled_from([0.0, 400.0, 1e9]))
                places.append((entry.id, pipeline.input, first, last, draw(st.sampled_from(["prefix", "global"])), size))
    return with_caches(plan, places)


@st.composite
def batches(draw: st.DrawFn, query: Query) -> list[tuple[Batch, int]]:
    """A few batches whose watermarks never go back; some rows are late, some streams silent."""
    result: list[tuple[Batch, int]] = []
    watermark, identity = -1, itertools.count()
    for n in range(draw(st.integers(1, 5))):
        batch = {}
        for stream in query.streams:
            rows = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2), st.integers(0, 2)), max_size=5))
            batch[stream.name] = [{"id": next(identity), "ts": (n * 8 + at) * SECOND // 4, "x": x, "y": y} for at, x, y in rows]
        result.append((batch, watermark))
        watermark = max(watermark, draw(st.integers(0, n * 8 + 6)) * SECOND // 4)
    return result

"""What a change of the plan costs the batches around it.

    python -m tests.bench.bench_change [--rows 10000000] [--window 1000] [--changes 10] [--batches 20] [--longest 2000] [--operator]
                                       [--only orders building]

The chain of three streams, 1,000 rows a second and stream, as many values per attribute as rows in a window, filled first, then batches of 10
seconds of event time (30,000 rows), one after the other.

*orders*: a pipeline with windows of `--window` seconds changes the orders of its probes every few batches. Said is, for the batches that prepare a
change or switch, how long they took against the median of the undisturbed ones of the same run, and the same for the slowest undisturbed batch: what
is noise. Some batches merge pieces, which takes longer than a change: they are compared with those that merge. The graph is a triangle, so that
another order probes by other columns, for which no indexes are there yet.

*building*: two of the streams hold `--rows` together. A plan that keeps nothing changes to one that keeps their join. Said is how long the
batches took while it was built, against the median of `--batches` before and of as many after; `--longest` batches are waited for its end.

Seconds are Spark's for a batch, `cpu` is the operator's own, `spark` that of driver, JVM and workers together, which holds on a machine that others
use too. `--operator` leaves Spark away: one of two cells alone, with its store in memory.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read: a worker has one, too

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from spark_adapter.stem.engine import OBSERVED
from spark_adapter.stem.operator import Brought, work_off
from spark_adapter.stem.program import Program
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import choose_grid
from tests.bench.bench_state import BATCH, RATE, arriving
from tests.bench.bench_stem import DISORDER, Flow, tree_cpu
from tests.spark_adapter.cells import SECOND, Memory, drained, reordered
from tests.spark_adapter.plans import make_plan, make_query

__all__ = ["main"]

ATTRIBUTES = ("x", "y")
FILL = 250.0  # seconds of event time in a batch that fills the windows
WARM_UP = 6  # batches after the filling that are not looked at
MEASURES = ("seconds", "cpu", "spark")
LITTLE = 1.2  # times as long: what a change may cost
APART = 11  # batches from one change of orders to the next: not in step with merging


@dataclass(frozen=True)
class Figure:
    """One batch."""

    seconds: float
    cpu: float
    spark: float
    plan: int
    in_force: int
    """Numbers of the plans: whose way was taken, and the one in force, the furthest of all cells."""
    rows: int
    """Rows held."""
    building: float
    """Counted work that building was, of the cell that did most."""
    merges: bool
    """Whether some cell merged pieces."""


class Alone:
    """One of two cells, without Spark."""

    def __init__(self, plan: Plan, window: float) -> None:
        self.query, self.flow = plan.query, _flow(window)
        self.grid = choose_grid(plan.query, 2)
        self.program, self.number, self.told = self._programmed(plan), 0, list[Program]()
        self.store, self.rng, self.latest = Memory(), np.random.default_rng(1), -1

    def _programmed(self, plan: Plan) -> Program:
        names = [stream.name for stream in plan.query.streams]
        return program_of(plan, dict.fromkeys(names, 2), dict.fromkeys(names, 1000 * DISORDER), "run")

    def change(self, plan: Plan) -> None:
        self.number += 1
        self.told = [replace(self._programmed(plan), number=self.number)]

    def batches(self, spans: Sequence[tuple[float, float]]) -> Iterator[Figure]:
        for start, end in spans:
            arrivals = {stream.name: self._arrived(stream.name, start, end) for stream in self.query.streams}
            watermark = self.latest - DISORDER * SECOND if self.latest >= 0 else -1
            self.latest = min(int(frame["ts"].max()) for frame in arrivals.values())
            began = time.perf_counter()
            _, outcome = drained(work_off(self.program, self.grid, 0, self.store, Brought(arrivals, watermark // 1000 * 1000, self.told)))
            self.told = []
            seconds = time.perf_counter() - began
            yield _figure(seconds, seconds, [outcome.statistics])

    def _arrived(self, name: str, start: float, end: float) -> pl.DataFrame:
        found = arriving(self.flow, start, end, self.rng)
        count = len(found["ts"])
        columns = {"ts": found["ts"], "h": self.rng.integers(-(2**63), 2**63 - 1, count), **{f"{name}.{key}": found[key] for key in ATTRIBUTES}}
        frame = pl.DataFrame(columns | {f"{name}/0": found["ts"], f"{name}/1": np.arange(count)})
        for d in self.grid.hashed(name):
            dimension = self.grid.dimensions[d]
            frame = frame.filter(pl.col(f"{name}.{dimension.attributes[name]}") % dimension.share == 0)
        return frame.select(*(column for column in frame.columns if column in ("ts", "h") or "/" in column or self._compared(column)))

    def _compared(self, column: str) -> bool:
        return any(column in (predicate.left, predicate.right) for predicate in self.query.predicates)

    def close(self) -> None:
        pass


class OnSpark:
    """A pipeline over files, one per stream and batch."""

    def __init__(self, spark: Any, plan: Plan, window: float) -> None:
        self.query, self.flow, self.rng = plan.query, _flow(window), np.random.default_rng(1)
        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name)
        for stream in plan.query.streams:
            (self.folder / stream.name).mkdir()
        self.pipeline = spark_adapter.compile(plan, self._bindings(), spark).start()
        self.written, self.last, self.used = 0, -1, 0.0

    def change(self, plan: Plan) -> None:
        self.pipeline.change(plan)

    def batches(self, spans: Sequence[tuple[float, float]]) -> Iterator[Figure]:
        """Files are some batches ahead, so that batches follow each other and a change comes with rows."""
        waiting = list(spans)
        for _ in range(min(3, len(waiting))):
            self._write(*waiting.pop(0))
        seen = 0
        while seen < len(spans):
            reports = [json.loads(report.json) for report in self.pipeline._running().recentProgress]
            for report in reports:
                notes = [json.loads(note) for note in report.get("observedMetrics", {}).get(OBSERVED, {}).get("notes", ())]
                if int(report["batchId"]) > self.last and notes and any(note.get("streams") for note in notes):
                    self.last = int(report["batchId"])
                    seen += 1
                    if waiting:
                        self._write(*waiting.pop(0))
                    before, self.used = self.used, sum(tree_cpu().values())
                    yield _figure(report["batchDuration"] / 1000, self.used - before, notes)
            time.sleep(0.02)
            assert self.pipeline._running().isActive

    def _write(self, start: float, end: float) -> None:
        for stream in self.query.streams:
            found = arriving(self.flow, start, end, self.rng)
            frame = pl.DataFrame(found | {"id": np.arange(len(found["ts"]))}).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
            draft = self.folder / stream.name / f".{self.written:05}"
            frame.write_parquet(draft)
            os.utime(draft, (1_000_000_000 + self.written, 1_000_000_000 + self.written))
            draft.rename(self.folder / stream.name / f"{self.written:05}.parquet")
        self.written += 1

    def _bindings(self) -> Bindings:
        schema = "ts TIMESTAMP, x BIGINT, y BIGINT, id BIGINT"
        sources = {
            stream.name: {"format": "parquet", "options": {"path": str(self.folder / stream.name), "maxFilesPerTrigger": "1"}, "schema": schema}
            for stream in self.query.streams
        }
        document = {
            "streams": {name: {"source": source, "event_time": "ts", "watermark": f"{DISORDER} seconds"} for name, source in sources.items()},
            "select": [f"{stream.name}.id AS {stream.name}" for stream in self.query.streams],
            "sink": {"format": "noop"},
            "checkpoint": str(self.folder / "checkpoint"),
        }
        return Bindings.model_validate(document)

    def close(self) -> None:
        self.pipeline.stop()
        self._place.cleanup()


def _flow(window: float) -> Flow:
    return Flow(RATE, window, dict.fromkeys(ATTRIBUTES, round(RATE * window)))


def _figure(seconds: float, spark: float, notes: Sequence[Mapping[str, Any]]) -> Figure:
    return Figure(
        seconds,
        sum(sum(note["cpu"].values()) for note in notes if "cpu" in note),
        spark,
        max(note["plan"] for note in notes),
        max(note["in_force"] for note in notes),
        sum(size[0] for note in notes for held in ("states", "building") for size in note[held].values()),
        max(note["work"]["building"] for note in notes if "work" in note),
        any(note["traffic"]["merges"] for note in notes),
    )


def _spans(start: float, count: int) -> list[tuple[float, float]]:
    return [(start + k * BATCH, start + (k + 1) * BATCH) for k in range(count)]


def _filling(window: float) -> list[tuple[float, float]]:
    starts = np.arange(0.0, window, FILL)
    return [(float(start), min(float(start) + FILL, window)) for start in starts]


def _ratios(figures: Sequence[Figure], undisturbed: Sequence[Figure], what: str) -> str:
    """Each batch against those that merge pieces or not, as it does itself; against all where there are none of its kind."""
    values = [getattr(figure, what) for figure in undisturbed]
    usual = {
        merges: statistics.median([getattr(figure, what) for figure in undisturbed if figure.merges == merges] or values) for merges in (False, True)
    }
    found, noise = ([getattr(figure, what) / usual[figure.merges] for figure in listed] for listed in (figures, undisturbed))
    said = [f"{sum(ratio > LITTLE for ratio in ratios)} of {len(ratios)} above {LITTLE}, {max(ratios):.2f} at most" for ratios in (found, noise)]
    usually = f"usually {usual[False]:.3f}, {usual[True]:.3f} where pieces are merged"
    return f"{what}: {usually}; {statistics.median(found):.2f} times that in the median, {said[0]} (undisturbed batches: {said[1]})"


def orders(made: Any, window: float, changes: int) -> None:
    query = make_query(dict.fromkeys("abc", window), ["a.x = b.x", "b.y = c.y", "c.x = a.y"])
    plan = make_plan(query, ["a", "b", "c"])
    other = reordered(plan, {("join-1", name): (1, 0) for name in "abc"})
    run = made(plan, window)
    for _ in run.batches([*_filling(window), *_spans(window, WARM_UP)]):
        pass
    figures: list[Figure] = []
    for n, figure in enumerate(run.batches(_spans(window + WARM_UP * BATCH, APART * (changes + 1)))):
        figures.append(figure)
        if n % APART == APART - 1 and n // APART < changes:
            run.change((other, plan)[n // APART % 2])
    run.close()
    switching = [k for k in range(1, len(figures)) if figures[k].plan != figures[k - 1].plan]
    disturbed = [k for k, figure in enumerate(figures) if k in switching or figure.plan != figure.in_force]
    undisturbed = [figure for k, figure in enumerate(figures) if k not in disturbed]
    print(f"orders: {len(switching)} changes, {len(disturbed)} batches that prepare or switch, with {figures[-1].rows:,} rows held")
    for what in MEASURES:
        print("  " + _ratios([figures[k] for k in disturbed], undisturbed, what), flush=True)


def _chain(window: float) -> Plan:
    """A plan that keeps nothing, every probe of which follows a predicate: c asks b first."""
    query = make_query(dict.fromkeys("abc", window), ["a.x = b.x", "b.y = c.y"])
    return reordered(make_plan(query, ["a", "b", "c"]), {("join-1", "c"): (1, 0)})


def building(made: Any, rows: int, batches: int, longest: int) -> None:
    window = rows / 2 / RATE
    plan = _chain(window)
    run = made(plan, window)
    began = time.monotonic()
    for _ in run.batches([*_filling(window), *_spans(window, WARM_UP)]):
        pass
    filled = time.monotonic() - began
    print(f"building: windows of {window:,.0f} s filled in {filled:.0f} s", flush=True)
    at = window + WARM_UP * BATCH
    before = list(run.batches(_spans(at, batches)))
    at += batches * BATCH
    run.change(make_plan(plan.query, [["a", "b"], "c"]))
    during: list[Figure] = []
    after: list[Figure] = []
    for figure in run.batches(_spans(at, longest)):
        (after if figure.plan == figure.in_force and figure.in_force > before[-1].in_force else during).append(figure)
        if len(after) >= batches:
            break
    run.close()
    end = f"whole after {len(during)} batches" if after else f"not whole after {len(during)} batches"
    print(
        f"building: {before[-1].rows:,} rows held; {end}, {(after or during)[-1].rows:,} rows held then; "
        f"at most {max(figure.building for figure in during):,.0f} rows and pairs a batch and cell"
    )
    for what in MEASURES:
        print(f"  while it was built, {_ratios(during, before, what)}")
        if after:
            print(f"  afterwards, {_ratios(after, before, what)}", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=10_000_000, help="of the two inputs of the subresult that is built")
    parser.add_argument("--window", type=float, default=1000.0, help="seconds, where orders change")
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--longest", type=int, default=2000, help="batches for which building is waited for")
    parser.add_argument("--operator", action="store_true", help="the operator alone, without Spark")
    parser.add_argument("--only", nargs="+", choices=["orders", "building"], default=["orders", "building"])
    given = parser.parse_args(list(arguments))
    if given.operator:
        made: Any = Alone
    else:
        from spark_adapter.session import open_session

        spark = open_session({})

        def made(plan: Plan, window: float) -> OnSpark:
            return OnSpark(spark, plan, window)

        warm = made(_chain(30.0), 30.0)
        for _ in warm.batches(_spans(0.0, 10)):
            pass
        warm.close()
    if "orders" in given.only:
        orders(made, given.window, given.changes)
    if "building" in given.only:
        building(made, given.rows, given.batches, given.longest)
    if not given.operator:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])

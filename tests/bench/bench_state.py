"""State much larger than a batch: what a batch costs as the window behind it grows.

    python -m tests.bench.bench_state [--windows 30 300 1000 3000 10000] [--batches 8] [--fill 250] [--native-minutes 0] [--operator]

The chain of four streams of `bench_stem` with as many values per attribute as rows in a window, 1,000 rows a second and stream: 0.12 to 40
million rows held. The windows are filled first, by batches of `--fill` seconds of event time (10 fills as a pipeline that runs does, a window's
length by one large batch), then come batches of 10 seconds, 40,000 rows, and these are measured: median seconds, CPU of the driver, the JVM and
the workers together, bytes that the store was given and that were fetched from it, private memory of the largest worker while they run (what
is mapped from files is not private), and the bytes of state on disk. Ratios are to the first window, of the same run.

`--operator` leaves Spark away: one of two cells alone, in this process, with its store in memory. `--native-minutes` also runs Spark's own joins in
the plan's order, window by window, for as long as they have filled within so many minutes. `--hot 5000000 50000000` instead measures
one batch in which a fifth of the rows of two streams have one key.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import spark_adapter
from models.bindings import Bindings
from solvers.planner import plan as planned
from spark_adapter.pipeline import Pipeline
from spark_adapter.stem.operator import work_off
from spark_adapter.stem.program import program_of
from spark_adapter.stem.shares import choose_grid
from tests.bench.bench_stem import DISORDER, EPOCH, Flow, request_of, tree_cpu
from tests.spark_adapter.cells import SECOND, Memory, drained

__all__ = ["flows", "main"]

RATE, BATCH = 1000, 10  # rows a second and stream, seconds of event time in a measured batch
PREDICATES = ["a.x = b.x", "b.y = c.y", "c.z = d.z"]
WARM_UP = 2  # batches of 10 seconds after the filling that are not measured


def flows(window: float) -> dict[str, Flow]:
    values = round(RATE * window)
    attributes = {"a": ["x"], "b": ["x", "y"], "c": ["y", "z"], "d": ["z"]}
    return {name: Flow(RATE, window, dict.fromkeys(names, values)) for name, names in attributes.items()}


@dataclass
class Figures:
    """What the measured batches of one window took."""

    seconds: list[float] = field(default_factory=list)
    cpu: float = 0.0
    """A batch."""
    notes: list[Mapping[str, Any]] = field(default_factory=list)
    private: float = 0.0
    filled: float = 0.0

    def line(self, window: float, first: float | None) -> str:
        median = statistics.median(self.seconds)
        ratio = "" if first is None else f" ({median / first:.2f} times the first)"
        found = f"{window:>6,.0f} s: {median:.2f} s a batch{ratio}, {self.cpu:.2f} CPU s, private {self.private / 1e6:,.0f} MB"
        found += f", filled in {self.filled:.0f} s"
        if not self.notes:
            return found
        per_batch = {key: statistics.mean(note["traffic"][key] for note in self.notes) for key in ("added", "merged", "merges", "fetched", "notes")}
        last = self.notes[-1]
        return (
            f"{found}; held {last['rows']:,} rows, {last['bytes'] / 1e6:,.0f} MB in {last['pieces']} pieces; "
            f"a batch adds {per_batch['added'] / 1e6:.2f} MB, merges {per_batch['merged'] / 1e6:.2f} MB in {per_batch['merges']:.1f}, "
            f"notes {per_batch['notes'] / 1e6:.2f} MB, "
            f"fetches {per_batch['fetched'] / 1e6:.2f} MB; operator "
            + ", ".join(f"{part} {statistics.median(note['cpu'][part] for note in self.notes):.3f}" for part in ("load", "probe", "keep"))
        )


def spans(window: float, fill: float, batches: int) -> Iterator[tuple[float, float, bool]]:
    """(from, to, whether it is measured) of every batch, in seconds of event time."""
    start = 0.0
    while start < window:
        yield start, min(start + fill, window), False
        start = min(start + fill, window)
    for k in range(WARM_UP + batches):
        yield start + k * BATCH, start + (k + 1) * BATCH, k >= WARM_UP


def arriving(flow: Flow, start: float, end: float, rng: np.random.Generator) -> dict[str, Any]:
    """The rows of one stream in a span, in order of time."""
    count = round(flow.rate * (end - start))
    found: dict[str, Any] = {"ts": EPOCH + np.sort(rng.integers(round(start * SECOND), round(end * SECOND), count))}
    return found | {attribute: rng.integers(0, distinct, count) for attribute, distinct in flow.values.items()}


def by_operator(window: float, fill: float, batches: int) -> Figures:
    """One of two cells alone, without Spark."""
    given = flows(window)
    plan = planned(request_of(given, PREDICATES))
    grid = choose_grid(plan.query, 2)
    program = program_of(plan, dict.fromkeys(given, 3), dict.fromkeys(given, 1000 * DISORDER), "run")
    store, rng, figures = Memory(), np.random.default_rng(1), Figures()
    latest, began = -1, time.monotonic()
    for start, end, measured in spans(window, fill, batches):
        arrivals = {}
        for name, flow in given.items():
            found = arriving(flow, start, end, rng)
            count = len(found["ts"])
            frame = pl.DataFrame(
                {"ts": found["ts"], "h": rng.integers(-(2**63), 2**63 - 1, count), **{f"{name}.{key}": found[key] for key in flow.values}}
                | {f"{name}/0": found["ts"], f"{name}/1": found[next(iter(flow.values))], f"{name}/2": np.arange(count)}
            )
            for d in grid.hashed(name):
                dimension = grid.dimensions[d]
                frame = frame.filter(pl.col(f"{name}.{dimension.attributes[name]}") % dimension.share == 0)
            arrivals[name] = frame
        watermark = latest - DISORDER * SECOND if latest >= 0 else -1
        latest = min(int(frame["ts"].max()) for frame in arrivals.values())
        if measured and not figures.seconds:
            figures.filled = time.monotonic() - began
        at, used = time.perf_counter(), time.process_time()
        _, outcome = drained(work_off(program, grid, 0, store, arrivals, watermark // 1000 * 1000))
        if measured:
            figures.seconds.append(time.perf_counter() - at)
            figures.cpu += (time.process_time() - used) / batches
            figures.notes.append(_together([outcome.statistics]))
    return figures


def _together(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The notes of all cells in one batch as one."""
    return {
        "traffic": {key: sum(note["traffic"][key] for note in notes) for key in notes[0]["traffic"]},
        "pieces": sum(note["pieces"] for note in notes),
        "rows": sum(size[0] for note in notes for size in note["states"].values()),
        "bytes": sum(size[1] for note in notes for size in note["states"].values()),
        "cpu": {part: sum(note["cpu"][part] for note in notes if "cpu" in note) for part in ("load", "probe", "keep")},
    }


def on_spark(spark: Any, window: float, fill: float, batches: int, engine: str, minutes: float) -> Figures | None:
    """None where it does not fill within so many minutes."""
    given = flows(window)
    plan = planned(request_of(given, PREDICATES, **({"method": "bjtree"} if engine == "native" else {})))
    listed = list(spans(window, fill, batches))
    unmeasured = sum(not measured for _, _, measured in listed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, given, listed)
        pipeline = spark_adapter.compile(plan, _bindings(folder, given), spark, engine).start()
        figures = _watched(pipeline, unmeasured, len(listed), minutes)
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def _watched(pipeline: Pipeline, unmeasured: int, expected: int, minutes: float) -> Figures | None:
    """Follow a run to its end."""
    figures, began, before = Figures(), time.monotonic(), dict[str, float]()
    query = pipeline._query
    assert query is not None
    while not pipeline.await_termination(0.1):
        progress = query.lastProgress
        number = -1 if progress is None else int(progress["batchId"])
        if number >= unmeasured - 1:
            if not before:
                before, figures.filled = tree_cpu(), time.monotonic() - began
            figures.private = max(figures.private, largest_worker())
        elif time.monotonic() - began > 60 * minutes:
            pipeline.stop()
            return None
    reports = [json.loads(report.json) for report in query.recentProgress]
    reports = [report for report in reports if report["numInputRows"] and int(report["batchId"]) >= unmeasured]
    after = tree_cpu()
    figures.cpu = sum(max(0.0, after[kind] - before.get(kind, 0.0)) for kind in after) / (expected - unmeasured)
    figures.seconds = [report["batchDuration"] / 1000 for report in reports]
    for report in reports:
        texts = report.get("observedMetrics", {}).get("watersmeet", {}).get("notes", ())
        notes = [json.loads(text) for text in texts]
        if notes:
            figures.notes.append(_together(notes))
    return figures


def hot(spark: Any, results: int) -> None:
    """A key that a fifth of the rows of two streams have: one batch of about so many results, to nowhere."""
    count = round(5 * results**0.5)
    streams = {name: Flow(count, 60, {"x": 10 * count}) for name in ("a", "b")}
    plan = planned(request_of(streams, ["a.x = b.x"]))
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for stream, flow in streams.items():
            (folder / stream).mkdir()
            found = arriving(flow, 0, 1, rng)
            found["x"][rng.random(count) < 0.2] = 7
            frame = pl.DataFrame(found | {"id": np.arange(count)}).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
            frame.write_parquet(folder / stream / "0.parquet")
        pipeline = spark_adapter.compile(plan, _bindings(folder, streams), spark, "stem").start()
        began, private = time.monotonic(), 0.0
        while not pipeline.await_termination(0.1):
            private = max(private, largest_worker())
        made = pipeline.progress.results or 0
    seconds = time.monotonic() - began
    print(f"hot key: {2 * count:,} rows, {made:,} results in {seconds:.1f} s, private {private / 1e6:,.0f} MB", flush=True)


def largest_worker() -> float:
    """Private bytes of the largest of Spark's Python workers: what no file stands behind."""
    most = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    lines = (entry / "smaps_rollup").read_text().splitlines()
                    most = max(most, *(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Private_Dirty")))
            except OSError:
                continue
    return most


def _write(folder: Path, given: Mapping[str, Flow], listed: Sequence[tuple[float, float, bool]]) -> None:
    """One Parquet file per stream and batch, in the order of their modification times."""
    rng = np.random.default_rng(1)
    for name, flow in given.items():
        (folder / name).mkdir(parents=True)
        for n, (start, end, _) in enumerate(listed):
            found = arriving(flow, start, end, rng)
            path = folder / name / f"{n:05}.parquet"
            frame = pl.DataFrame(found | {"id": np.arange(len(found["ts"]))}).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
            frame.write_parquet(path)
            os.utime(path, (1_000_000_000 + n, 1_000_000_000 + n))


def _bindings(folder: Path, given: Mapping[str, Flow]) -> Bindings:
    document = {
        "streams": {
            name: {
                "source": {
                    "format": "parquet",
                    "options": {"path": str(folder / name), "maxFilesPerTrigger": "1"},
                    "schema": ", ".join(["ts TIMESTAMP", *(f"{attribute} BIGINT" for attribute in flow.values), "id BIGINT"]),
                },
                "event_time": "ts",
                "watermark": f"{DISORDER} seconds",
            }
            for name, flow in given.items()
        },
        "select": [f"{name}.id AS {name}" for name in given],
        "sink": {"format": "noop"},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
    }
    return Bindings.model_validate(document)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=float, nargs="+", default=[30, 300, 1000, 3000, 10000])
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--fill", type=float, default=250, help="seconds of event time in a batch that fills the windows")
    parser.add_argument("--native-minutes", type=float, default=0, help="for which Spark's own joins may fill a window")
    parser.add_argument("--operator", action="store_true", help="the operator alone, without Spark")
    parser.add_argument("--hot", type=int, nargs="+", default=[], help="instead: one batch of a hot key with so many results, for each number")
    given = parser.parse_args(list(arguments))
    if given.hot:
        from spark_adapter.session import open_session

        spark = open_session({})
        for results in given.hot:
            hot(spark, results)
        spark.stop()
        return
    engines = ["stem", "native"] if given.native_minutes else ["stem"]
    spark = None
    if not given.operator:
        from spark_adapter.session import open_session

        spark = open_session({})
        on_spark(spark, 30, 10, 6, "stem", 60.0)  # warms the JVM up
    for engine in engines:
        first: float | None = None
        for window in given.windows:
            if given.operator:
                figures: Figures | None = by_operator(window, given.fill, given.batches)
            else:
                figures = on_spark(spark, window, given.fill, given.batches, engine, given.native_minutes if engine == "native" else 600.0)
            if figures is None:
                print(f"{engine} {window:>6,.0f} s: not filled within {given.native_minutes} minutes", flush=True)
                break
            print(f"{engine} {figures.line(window, first)}", flush=True)
            first = first or statistics.median(figures.seconds)
    if spark is not None:
        spark.stop()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

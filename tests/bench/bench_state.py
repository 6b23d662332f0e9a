"""State much larger than a batch: what a batch costs as the window behind it grows.

    python -m tests.bench.bench_state [--windows 30 300 1000 3000 10000] [--batches 8] [--fills 250] [--native-minutes 0] [--results FILE]

The chain of four streams of `bench_stem` with as many values per attribute as rows in a window, 1,000 rows a second and stream: 0.12 to 40
million rows held. The windows are filled first, by batches of `--fills` seconds of event time (10 fills as a pipeline that runs does, a
window's length by one large batch; several are tried in turn), then come batches of 10 seconds, 40,000 rows, and these are measured: median
seconds, CPU of the driver, the JVM and the workers together, bytes that the store was given, also as a multiple of what is new in them, and
that were fetched from it, private memory of the largest worker while they run (what is mapped from files is not private), the bytes of
state, and what workers have on their disks as a multiple of that. Where windows are filled by batches of 10 seconds the multiple of what is
new is that of the whole filling.

A window of 30 seconds is measured anew before each other one, and ratios are to that. `--native-minutes` also runs Spark's own joins in the
plan's order on each window, up to the first that they have not filled within so many minutes. With `--results`, figures are added to that
file, and what is in it is not measured again: a run that was broken off goes on.

`--operator` leaves Spark away: one of two cells alone, in this process, with its store in memory. `--hot 5000000 50000000` instead measures
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import spark_adapter
from solvers.planner import plan as planned
from spark_adapter.pipeline import STATISTICS, Pipeline
from spark_adapter.stem.operator import Brought, work_off
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import choose_grid
from tests.bench.bench_stem import DISORDER, EPOCH, Flow, bindings_of, request_of, tree_cpu
from tests.spark_adapter.cells import SECOND, Memory, drained

__all__ = ["flows", "main"]

RATE, BATCH = 1000, 10  # rows a second and stream, seconds of event time in a measured batch
PREDICATES = ["a.x = b.x", "b.y = c.y", "c.z = d.z"]
SHORT = 30.0  # seconds: the window that others are compared with
STEM_MINUTES = 600.0  # patience with stem
DISCARD = {"format": "noop"}  # a sink that takes everything and keeps nothing
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
    """Of the measured batches."""
    filling: list[Mapping[str, float]] = field(default_factory=list)
    """What the batches before them gave to the store."""
    private: float = 0.0
    filled: float = 0.0

    def told(self) -> dict[str, float]:
        """The figures by name."""
        found = {"seconds": statistics.median(self.seconds), "cpu": self.cpu, "private": self.private, "filled": self.filled}
        if not self.notes:
            return found
        moved = {key: statistics.mean(note["traffic"][key] for note in self.notes) for key in ("added", "merged", "merges", "fetched", "notes")}
        whole = self.filling or [note["traffic"] for note in self.notes]
        written = sum(traffic[key] for traffic in whole for key in ("added", "merged", "notes"))
        last = self.notes[-1]
        found |= moved | {key: float(last[key]) for key in ("rows", "bytes", "pieces", "disk")}
        found |= {f"cpu {part}": statistics.median(note["cpu"][part] for note in self.notes) for part in ("load", "probe", "keep")}
        return found | {"written": written / sum(traffic["added"] for traffic in whole)}


def line(told: Mapping[str, float], first: float | None) -> str:
    """One window for a person to read; `first` is what a batch of the short window took."""
    ratio = "" if first is None else f" ({told['seconds'] / first:.2f} times that of {SHORT:.0f} s)"
    found = f"{told['seconds']:.2f} s a batch{ratio}, {told['cpu']:.2f} CPU s, private {told['private'] / 1e6:,.0f} MB"
    found += f", filled in {told['filled']:.0f} s"
    if "rows" not in told:
        return found
    return (
        f"{found}; held {told['rows']:,.0f} rows, {told['bytes'] / 1e6:,.0f} MB in {told['pieces']:.0f} pieces, "
        f"{told['disk'] / told['bytes']:.2f} times that on disk; a batch adds {told['added'] / 1e6:.2f} MB, merges {told['merged'] / 1e6:.2f} MB "
        f"in {told['merges']:.1f}, notes {told['notes'] / 1e6:.2f} MB, fetches {told['fetched'] / 1e6:.2f} MB; "
        f"written {told['written']:.2f} times what is new; operator "
        + ", ".join(f"{part} {told[f'cpu {part}']:.3f}" for part in ("load", "probe", "keep"))
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
        _, outcome = drained(work_off(program, grid, 0, store, Brought(arrivals, watermark // 1000 * 1000)))
        if measured:
            figures.seconds.append(time.perf_counter() - at)
            figures.cpu += (time.process_time() - used) / batches
            figures.notes.append(_together([outcome.statistics | {"worker": {"disk": store.shelf.size()}}]))
        elif fill == BATCH:
            figures.filling.append(outcome.statistics["traffic"])
    return figures


def _together(notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The notes of all cells in one batch as one."""
    return {
        "traffic": {key: sum(note["traffic"][key] for note in notes) for key in notes[0]["traffic"]},
        "pieces": sum(note["pieces"] for note in notes),
        "rows": sum(size[0] for note in notes for size in note["states"].values()),
        "bytes": sum(size[1] for note in notes for size in note["states"].values()),
        "disk": sum(note["worker"]["disk"] for note in notes),
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
        pipeline = spark_adapter.compile(plan, bindings_of(folder, given, DISCARD, folder), spark, engine).start()
        figures = _watched(pipeline, unmeasured, len(listed), minutes)
        if figures is not None and fill == BATCH and engine == "stem":
            figures.filling = _written(folder / "checkpoint")[:unmeasured]
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


def _written(checkpoint: Path) -> list[Mapping[str, float]]:
    """What each batch gave to the store, by the pipeline's own statistics: Spark keeps the reports of the last hundred alone."""
    entries = [json.loads(text) for text in (checkpoint / STATISTICS).read_text().splitlines()]
    stores = [entry["store"] for entry in entries if entry["streams"]]
    return [{"added": store["added_bytes"], "merged": store["written_bytes"] - store["added_bytes"], "notes": 0} for store in stores]


def hot(spark: Any, results: int) -> float:
    """A key that a fifth of the rows of two streams have: one batch of about so many results, to nowhere. Private bytes of a worker."""
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
        pipeline = spark_adapter.compile(plan, bindings_of(folder, streams, DISCARD, folder), spark, "stem").start()
        began, private = time.monotonic(), 0.0
        while not pipeline.await_termination(0.1):
            private = max(private, largest_worker())
        made = pipeline.progress.results or 0
    seconds = time.monotonic() - began
    print(f"hot key: {2 * count:,} rows, {made:,} results in {seconds:.1f} s, private {private / 1e6:,.0f} MB", flush=True)
    return private


def largest_worker() -> float:
    """Private bytes of the largest of Spark's Python workers: what no file stands behind."""
    most = 0.0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                    lines = (entry / "smaps_rollup").read_text().splitlines()
                    most = max(most, *(1024.0 * int(line.split()[1]) for line in lines if line.startswith("Anonymous")))
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


Measure = Callable[[float, float, str], Figures | None]


class Results:
    """Figures by what they are of, in a file where one is given."""

    def __init__(self, path: str) -> None:
        self._path = Path(path) if path else None
        known = self._path.read_text().splitlines() if self._path is not None and self._path.exists() else []
        self._known: dict[str, dict[str, float] | None] = {entry["of"]: entry["told"] for entry in map(json.loads, known)}

    def of(self, what: str, measure: Callable[[], Figures | None], first: float | None = None) -> dict[str, float] | None:
        """The figures, measured now unless they are known; None where a window could not be filled."""
        if what not in self._known:
            figures = measure()
            self._known[what] = None if figures is None else figures.told()
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps({"of": what, "told": self._known[what]}) + "\n")
        told = self._known[what]
        print(f"{what}: {'not filled in time' if told is None else line(told, first)}", flush=True)
        return told


def compared(results: Results, windows: Sequence[float], fills: Sequence[float], native: bool, measure: Measure) -> None:
    """Window by window: a short one for comparison, stem filled in each of the ways, then native."""
    for window in windows:
        short = results.of(f"stem {SHORT:,.0f} s, before {window:,.0f} s", partial(measure, SHORT, BATCH, "stem"))
        assert short is not None
        stem: dict[str, float] = {}
        for fill in fills:
            told = results.of(f"stem {window:,.0f} s, filled by {fill:,.0f} s", partial(measure, window, fill, "stem"), short["seconds"])
            assert told is not None
            if stem:
                ratios = {key: told[key] / stem[key] for key in ("bytes", "seconds", "cpu")}
                print("  against the filling before: " + ", ".join(f"{ratio:.2f} times the {key}" for key, ratio in ratios.items()), flush=True)
            stem = told
        peer = results.of(f"native {window:,.0f} s", partial(measure, window, fills[0], "native")) if native else None
        native = peer is not None
        if peer is not None:
            seconds, cpu = peer["seconds"] / stem["seconds"], peer["cpu"] / stem["cpu"]
            print(f"  native takes {seconds:.1f} times the seconds of stem, and {cpu:.1f} times the CPU", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=float, nargs="+", default=[30, 300, 1000, 3000, 10000])
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--fills", type=float, nargs="+", default=[250], help="seconds of event time in a batch that fills the windows")
    parser.add_argument("--native-minutes", type=float, default=0, help="for which Spark's own joins may fill a window")
    parser.add_argument("--results", default="", help="a file of figures: what is in it is not measured again")
    parser.add_argument("--operator", action="store_true", help="the operator alone, without Spark")
    parser.add_argument("--hot", type=int, nargs="+", default=[], help="instead: one batch of a hot key with so many results, for each number")
    given = parser.parse_args(list(arguments))
    if given.operator:
        compared(Results(given.results), given.windows, given.fills, False, lambda window, fill, _: by_operator(window, fill, given.batches))
        return
    from spark_adapter.session import open_session

    spark = open_session({})
    if given.hot:
        private = [hot(spark, results) for results in given.hot]
        print(f"the last takes {private[-1] / private[0]:.2f} times the private memory of the first", flush=True)
    else:
        on_spark(spark, SHORT, BATCH, 6, "stem", STEM_MINUTES)  # warms the JVM up

        def measure(window: float, fill: float, engine: str) -> Figures | None:
            return on_spark(spark, window, fill, given.batches, engine, given.native_minutes if engine == "native" else STEM_MINUTES)

        compared(Results(given.results), given.windows, given.fills, given.native_minutes > 0, measure)
    spark.stop()


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

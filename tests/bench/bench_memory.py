"""What a live pipeline holds, in bytes, against what its plan foresaw: Spark's `rate` source, minute by minute.

    python -m tests.bench.bench_memory [--minutes 10] [--window 180] [--rows-per-second 100] [--cells 2]

Three streams, a tree of two joins by engine stem, so that one subresult is materialized. The plan's `tuple_bytes` are the bytes of
what a row must have: its event time, its keys and the column that the result takes, eight each. Measured are

    store     what Spark's state store holds: RocksDB's memory and its files, old values that it has not yet cleared away included
    disk      the copies of states on workers' disks, by the sizes of their files: indexes included, and rows as often as the grid copies them
    memory    the private memory of the workers' processes, the interpreter included; what that takes is what the first batch shows
    durable   the folder of the checkpoint's state, where Spark keeps the changes of its last hundred batches

each as a ratio to the plan's `memory_bytes`, and the rows of all states to the plan's. A state must hold more rows than its window:
the watermark trails by its delay and a batch. A subresult of two streams has that excess twice. The first window fills the states and
is not judged. Judged is that rows stay within a fifth of the plan's and that the last third of the run has no more bytes on disk than the first.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.pipeline import Progress
from spark_adapter.progress import store_bytes

__all__ = ["WITHIN", "held_rows", "keys_of", "main", "request_of"]

ATTRIBUTES = {"a": ["x"], "b": ["x", "y"], "c": ["y"]}
VALUE_BYTES = 8  # of a time, a key, a number
WITHIN = 0.2


def keys_of(rate: float, window: float) -> dict[str, int]:
    """Values of a join attribute: some matches for every row, and a subresult as large as the streams together."""
    rows = round(rate * window)
    return {"x": rows // 3, "y": rows * 2 // 3}


def request_of(rate: float, window: float) -> PlanRequest:
    """Three streams of this rate and window, a.x = b.x and b.y = c.y, as a tree of binary joins."""
    keys = keys_of(rate, window)
    streams = [
        {
            "name": name,
            "rate": rate,
            "window": {"seconds": window},
            "tuple_bytes": VALUE_BYTES * (2 + len(own)),
            "distinct": {k: keys[k] for k in own},
        }
        for name, own in ATTRIBUTES.items()
    ]
    predicates = [{"left": "a.x", "right": "b.x"}, {"left": "b.y", "right": "c.y"}]
    return PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}, "options": {"method": "bjtree", "caches": "off"}})


def held_rows(states: Sequence[Mapping[str, Any]]) -> int:
    """Of the states of a run's statistics, each row once however many cells have it."""
    return sum(state["rows"] for state in states)


def live(rate: int, window: float, folder: Path, trigger: str) -> Bindings:
    """The rate source for every stream; keys by a hash of the row's number, another for each stream."""
    keys = keys_of(rate, window)
    return Bindings.model_validate(
        {
            "streams": {
                name: {
                    "source": {"format": "rate", "options": {"rowsPerSecond": str(rate)}},
                    "event_time": "timestamp",
                    "watermark": "1 second",
                    "columns": {key: f"pmod(xxhash64(value, {'abc'.index(name)}, {'xy'.index(key)}), {keys[key]})" for key in own},
                }
                for name, own in ATTRIBUTES.items()
            },
            "select": [f"{name}.value AS {name}" for name in ATTRIBUTES],
            "sink": {"format": "noop"},
            "checkpoint": str(folder / "checkpoint"),
            "trigger": {"processing_time": trigger},
        }
    )


@dataclass(frozen=True)
class Sample:
    """After one batch."""

    minutes: float
    rows: int
    store: int
    disk: int
    memory: int
    durable: int


def sampled(minutes: float, progress: Progress, checkpoint: Path) -> Sample:
    workers = progress.statistics["workers"]
    durable = sum(_size(file) for file in (checkpoint / "state").rglob("*"))
    rows = held_rows(progress.statistics["states"])
    return Sample(minutes, rows, store_bytes(progress.spark or {}), workers["disk_bytes"], workers["memory_bytes"], durable)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size if file.is_file() else 0
    except OSError:
        return 0  # Spark clears away while we look


def main(arguments: Sequence[str] = ()) -> None:
    from spark_adapter.session import open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--window", type=float, default=180, help="seconds")
    parser.add_argument("--rows-per-second", type=int, default=100, help="of each stream")
    parser.add_argument("--trigger", default="2 seconds")
    parser.add_argument("--cells", type=int, default=2)
    given = parser.parse_args(list(arguments))
    plan = planned(request_of(given.rows_per_second, given.window))
    spark = open_session({})
    found: list[Sample] = []
    with tempfile.TemporaryDirectory() as name:
        bindings = live(given.rows_per_second, given.window, Path(name), given.trigger)
        pipeline = spark_adapter.compile(plan, bindings, spark, "stem", given.cells).start()
        print(
            f"plan: {plan.cost.memory_bytes:,.0f} bytes, {plan.cost.memory_tuples:,.0f} rows in streams and {len(plan.operators) - 1} subresult; "
            f"{pipeline.cells} cells, whose copies multiply the bytes by {pipeline.copied:.2f}",
            flush=True,
        )
        began: float | None = None
        minute, seen = 1, -1
        while began is None or time.monotonic() - began < given.minutes * 60:
            time.sleep(0.5)
            progress = pipeline.progress
            if not progress.running:
                pipeline.await_termination()  # raises what ended it
            if progress.batches == seen or not progress.rows:
                continue
            began = began or time.monotonic()
            seen = progress.batches
            now = (time.monotonic() - began) / 60
            while now >= minute:
                said(f"minute {minute}", [sample for sample in found if minute - 1 <= sample.minutes < minute], plan)
                minute += 1
            found.append(sampled(now, progress, Path(bindings.checkpoint)))
        pipeline.stop()
        late = pipeline.progress.late
    spark.stop()
    print(f"the workers had {found[0].memory:,} bytes of memory after the first batch; {late} rows were late")
    judge(found, plan, given.window / 60)


def said(when: str, samples: Sequence[Sample], plan: Plan) -> None:
    if not samples:
        print(f"{when}: no batch ended", flush=True)
        return
    rows = statistics.mean(sample.rows for sample in samples) / plan.cost.memory_tuples
    parts = []
    for name in ("store", "disk", "memory", "durable"):
        held = statistics.mean(getattr(sample, name) for sample in samples)
        parts.append(f"{name} {held:,.0f} bytes ({held / plan.cost.memory_bytes:.2f} times the plan's)")
    print(f"{when}: {len(samples)} batches, rows {rows:.2f} times the plan's, {', '.join(parts)}", flush=True)


def judge(found: Sequence[Sample], plan: Plan, window: float) -> None:
    """Prints the verdict over all that came after the first window had filled, with a margin for the watermark."""
    full = [sample for sample in found if sample.minutes >= 1.2 * window]
    third = len(full) // 3
    if not third:
        print("too short a run to judge: no third of it lies beyond the first window")
        return
    said("after the first window", full, plan)
    first, last = (statistics.mean(sample.disk for sample in part) for part in (full[:third], full[-third:]))
    print(f"the last third has {last / first - 1:+.1%} of the first on disk")
    shares = [sample.rows / plan.cost.memory_tuples - 1 for sample in full]
    print(f"rows within {WITHIN:.0%} of the plan's: {'yes' if all(abs(share) <= WITHIN for share in shares) else 'no'}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

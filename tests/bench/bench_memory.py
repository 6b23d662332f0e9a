"""What a live pipeline holds, against what its plan foresaw: ten minutes of Spark's `rate` source, minute by minute.

    python -m tests.bench.bench_memory [--minutes 10] [--window 180] [--rows-per-second 100]

Three streams, a tree of two joins by engine stem, so that one subresult is materialized. Held are tuple bytes: rows of every state times
the plan's bytes of such a row. A state must hold more than its window: the watermark trails by its delay, and rows leave by chunks,
each a thirty-second of a window. A subresult of two streams has that excess twice.
The first window fills the states and is not judged. Judged is that held bytes stay within a fifth of the plan's `memory_bytes`
and that the last minutes hold no more than the first. Spark's own figure, the bytes of RocksDB, is printed beside them: it rises and
falls with RocksDB's own compaction.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.pipeline import Progress

__all__ = ["held_bytes", "main", "request_of"]

KEYS = {"x": 6_000, "y": 12_000}  # values of a join attribute: some matches for every row, and a subresult as large as the streams together
WITHIN = 0.2


def request_of(rate: float, window: float) -> PlanRequest:
    """Three streams of this rate and window, a.x = b.x and b.y = c.y, as a tree of binary joins."""
    streams = {"a": ["x"], "b": ["x", "y"], "c": ["y"]}
    return PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {"name": name, "rate": rate, "window": {"seconds": window}, "distinct": {key: KEYS[key] for key in keys}}
                    for name, keys in streams.items()
                ],
                "predicates": [{"left": "a.x", "right": "b.x"}, {"left": "b.y", "right": "c.y"}],
            },
            "options": {"method": "bjtree", "caches": "off"},
        }
    )


def held_bytes(plan: Plan, states: Sequence[Mapping[str, Any]]) -> float:
    """Tuple bytes of the states of a run's statistics."""
    tuple_bytes = {stream.name: stream.tuple_bytes for stream in plan.query.streams}
    return float(sum(state["rows"] * sum(tuple_bytes[name] for name in state["streams"]) for state in states))


def live(rate: int, folder: Path, trigger: str) -> Bindings:
    """The rate source for every stream; keys by a hash of the row's number, another for each stream."""
    keys = {"a": ["x"], "b": ["x", "y"], "c": ["y"]}
    return Bindings.model_validate(
        {
            "streams": {
                name: {
                    "source": {"format": "rate", "options": {"rowsPerSecond": str(rate)}},
                    "event_time": "timestamp",
                    "watermark": "1 second",
                    "columns": {key: f"pmod(xxhash64(value, {'abc'.index(name)}, {'xy'.index(key)}), {KEYS[key]})" for key in wanted},
                }
                for name, wanted in keys.items()
            },
            "select": [f"{name}.value AS {name}" for name in keys],
            "sink": {"format": "noop"},
            "checkpoint": str(folder / "checkpoint"),
            "trigger": {"processing_time": trigger},
        }
    )


def main(arguments: Sequence[str] = ()) -> None:
    from spark_adapter.session import open_session

    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--window", type=float, default=180, help="seconds")
    parser.add_argument("--rows-per-second", type=int, default=100, help="of each stream")
    parser.add_argument("--trigger", default="2 seconds")
    given = parser.parse_args(list(arguments))
    plan = planned(request_of(given.rows_per_second, given.window))
    foreseen = plan.cost.memory_bytes
    spark = open_session({})
    found: list[tuple[float, float]] = []
    """Minutes since the first rows, and bytes held, batch by batch."""
    with tempfile.TemporaryDirectory() as name:
        pipeline = spark_adapter.compile(plan, live(given.rows_per_second, Path(name), given.trigger), spark, "stem").start()
        began: float | None = None
        minute, seen = 1, -1
        print(f"plan: {foreseen:,.0f} bytes in {len(plan.operators)} joins, states: streams and {len(plan.operators) - 1} subresult", flush=True)
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
                said(minute, [held for at, held in found if minute - 1 <= at < minute], foreseen, progress)
                minute += 1
            found.append((now, held_bytes(plan, progress.statistics["states"])))
        pipeline.stop()
        said(minute, [held for at, held in found if at >= minute - 1], foreseen, pipeline.progress)
    spark.stop()
    judge(found, foreseen, given.window / 60)


def said(minute: int, held: Sequence[float], foreseen: float, progress: Progress) -> None:
    if not held:
        print(f"minute {minute}: no batch ended", flush=True)
        return
    operators = (progress.spark or {}).get("stateOperators", ())
    print(
        f"minute {minute}: {len(held)} batches, held {statistics.mean(held):,.0f} bytes, {statistics.mean(held) / foreseen - 1:+.1%} of the plan's "
        f"(from {min(held) / foreseen - 1:+.1%} to {max(held) / foreseen - 1:+.1%}); RocksDB {sum(o['memoryUsedBytes'] for o in operators):,}; "
        f"{progress.late} late",
        flush=True,
    )


def judge(found: Sequence[tuple[float, float]], foreseen: float, window: float) -> None:
    """Prints the verdict over all that came after the first window had filled, with a margin for the watermark."""
    full = [held for at, held in found if at >= 1.2 * window]
    third = len(full) // 3
    if not third:
        print("too short a run to judge: no third of it lies beyond the first window")
        return
    first, last = statistics.mean(full[:third]), statistics.mean(full[-third:])
    shares = [held / foreseen - 1 for held in full]
    print(f"after the first window: {statistics.mean(shares):+.1%} of the plan's on average, from {min(shares):+.1%} to {max(shares):+.1%}")
    print(f"the last third holds {last / first - 1:+.1%} of the first")
    print(f"within {WITHIN:.0%}: {'yes' if all(abs(share) <= WITHIN for share in shares) else 'no'}")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

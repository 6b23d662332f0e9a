"""What the order of joins means to Spark's own stream-stream joins: the plan's order, the order of the query, the worst order.

Spark never changes the order it is given for streams. The three run over the same rows and give the same results; they take
turns over the rounds, because a JVM gets faster for minutes. Time is wall time; state is the largest number of rows held by all joins.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from models.bindings import Bindings
from models.plan import EstimateRequest, Plan
from models.request import Method, PlanRequest, Query
from solvers.estimate import estimate
from solvers.planner import plan
from spark_adapter import compile
from spark_adapter.progress import tick_of
from spark_adapter.session import open_session
from tests.spark_adapter.plans import bindings_of, moment, write_stream

__all__ = ["Ran", "cheapest_order", "orders", "run_native"]

ROUNDS = 1  # of minutes each
SECONDS, BATCHES = 20, 3
# a and b match often, b and c seldom: joining b and c first leaves little to join with a and d.
KEYS = {"ab": 60, "bc": 2000, "cd": 200}
REQUEST: dict[str, Any] = {
    "query": {
        "streams": [{"name": name, "rate": rate, "window": {"seconds": 10}} for name, rate in (("d", 60), ("c", 60), ("b", 60), ("a", 60))],
        "predicates": [{"left": f"{k[0]}.{k}", "right": f"{k[1]}.{k}", "selectivity": 1 / keys} for k, keys in KEYS.items()],
    }
}


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a pipeline."""

    seconds: float
    results: int
    state_rows: int


def orders(request: PlanRequest) -> dict[str, Plan]:
    """Binary plans of one request: the planner's, left to right as the query names its streams, and the left-deep one of the highest CPU.

    No order with a cross product counts, so the streams must be named such that each joins one before it.
    """
    names = [stream.name for stream in request.query.streams]
    planned = plan(request.model_copy(update={"options": request.options.model_copy(update={"method": Method.BJTREE})}))
    deep = [_left_deep(request, order) for order in itertools.permutations(names) if _connected(request.query, order)]
    worst = max(deep, key=lambda candidate: candidate.cost.cpu)
    return {"planned": planned, "as written": _left_deep(request, names), "worst": worst}


def cheapest_order(request: PlanRequest) -> list[str]:
    """The streams in the left-deep order of the lowest CPU."""
    names = [stream.name for stream in request.query.streams]
    connected = [list(order) for order in itertools.permutations(names) if _connected(request.query, order)]
    return min(connected, key=lambda order: _left_deep(request, order).cost.cpu)


def _left_deep(request: PlanRequest, order: Sequence[str]) -> Plan:
    operators: list[dict[str, Any]] = []
    left = order[0]
    for k, right in enumerate(order[1:], 1):
        operators.append({"id": f"join-{k}", "inputs": [left, right]})
        left = f"join-{k}"
    return estimate(EstimateRequest.model_validate(request.model_dump() | {"operators": operators}))


def _connected(query: Query, order: Sequence[str]) -> bool:
    joined = [{side.split(".")[0] for side in (predicate.left, predicate.right)} for predicate in query.predicates]
    return all(any(ends <= {*order[: k + 1]} and name in ends for ends in joined) for k, name in enumerate(order) if k)


def run_native(candidate: Plan, bindings: Bindings, spark: SparkSession) -> Ran:
    """One run by engine native, to the end of what the sources hold."""
    reports: list[Mapping[str, Any]] = []
    started = time.perf_counter()
    pipeline = compile(candidate, bindings, spark, "native").start()
    while not pipeline.await_termination(0.2):
        latest = pipeline.progress.spark
        if latest is not None and (not reports or reports[-1]["batchId"] != latest["batchId"]):
            reports.append(latest)
    seconds = time.perf_counter() - started
    latest = pipeline.progress.spark
    if latest is not None and (not reports or reports[-1]["batchId"] != latest["batchId"]):
        reports.append(latest)
    ticks = [tick_of(report) for report in reports]
    return Ran(seconds, sum(tick.results for tick in ticks), max(tick.state_rows for tick in ticks))


def main() -> None:
    request = PlanRequest.model_validate(REQUEST)
    candidates = orders(request)
    spark = open_session({})
    times: dict[str, list[Ran]] = {name: [] for name in candidates}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        _write(request.query, data)
        for turn in range(ROUNDS + 1):
            for name, candidate in candidates.items():
                target = Path(folder) / f"{turn} {name}"
                schemas = {stream.name: "ts TIMESTAMP, ab BIGINT, bc BIGINT, cd BIGINT" for stream in request.query.streams}
                bindings = bindings_of(data, schemas, checkpoint=str(target), sink={"format": "noop"})
                ran = run_native(candidate, bindings, spark)
                if turn:  # the first round warms up
                    times[name].append(ran)
    spark.stop()
    print(f"{'order':<12}{'predicted CPU':>14}{'seconds':>9}{'state rows':>12}{'results':>9}")
    for name, runs in times.items():
        seconds = statistics.median(ran.seconds for ran in runs)
        print(f"{name:<12}{candidates[name].cost.cpu:>14.5f}{seconds:>9.1f}{runs[0].state_rows:>12,}{runs[0].results:>9,}")


def _write(query: Query, folder: Path) -> None:
    draw = np.random.default_rng(1)
    for stream in query.streams:
        count = round(stream.rate * SECONDS)
        rows = [{"ts": moment(k / stream.rate), **{key: int(draw.integers(0, keys)) for key, keys in KEYS.items()}} for k in range(count)]
        write_stream(folder / stream.name, rows, BATCHES)


if __name__ == "__main__":
    main()

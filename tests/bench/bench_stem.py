"""Engine stem against Spark's own joins.

    python -m tests.bench.bench_stem [--rows 1600000] [--rounds 2]

The same rows through Spark: stem with the plan's tree, native joins in the plan's order, in the order of the query's streams and in
the worst order. Every engine runs once to warm up, then they take turns; figures are medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import spark_adapter
from models.bindings import Bindings
from models.plan import EstimateRequest, Plan
from models.request import PlanRequest
from solvers.estimate import estimate
from solvers.planner import plan as planned
from tests.spark_adapter.cells import SECOND

__all__ = ["EPOCH", "Flow", "columns", "main", "request_of", "shaped"]

# Event times of these data begin some days after 1970, so that a watermark of 0 means that there is none.
EPOCH = 10**6 * SECOND
DISORDER = 2  # seconds of watermark


@dataclass(frozen=True)
class Flow:
    """A stream of the benchmark: rows per second, window in seconds, and per attribute how many values it takes."""

    rate: float
    window: float
    values: Mapping[str, int]


def request_of(flows: Mapping[str, Flow], predicates: Sequence[str], **options: str) -> PlanRequest:
    """The request that describes the data exactly: every attribute is uniform."""
    document: dict[str, Any] = {
        "query": {
            "streams": [
                {"name": name, "rate": flow.rate, "window": {"seconds": flow.window}, "distinct": dict(flow.values)} for name, flow in flows.items()
            ],
            "predicates": [dict(zip(("left", "right"), text.split(" = "), strict=True)) for text in predicates],
        },
        "options": {"caches": "off", "time_limit": 10.0} | options,
    }
    return PlanRequest.model_validate(document)


def shaped(request: PlanRequest, operators: Sequence[tuple[str, Sequence[str], Mapping[str, Sequence[str]]]]) -> Plan:
    """The plan with these operators: (id, inputs, probe orders)."""
    shapes = [
        {
            "id": name,
            "inputs": list(inputs),
            "pipelines": [{"input": k, "probes": [{"target": target} for target in order]} for k, order in orders.items()],
        }
        for name, inputs, orders in operators
    ]
    return estimate(EstimateRequest.model_validate(request.model_dump(mode="json") | {"operators": shapes}))


def columns(flow: Flow, seconds: float, rng: np.random.Generator) -> dict[str, Any]:
    """The rows of one stream over `seconds`, in order of time."""
    count = round(flow.rate * seconds)
    found: dict[str, Any] = {"ts": EPOCH + np.sort(rng.integers(0, round(seconds * SECOND), count))}
    return found | {attribute: rng.integers(0, distinct, count) for attribute, distinct in flow.values.items()}


def tree_cpu() -> float:
    """CPU seconds of this process and of everything it has started: the JVM and Spark's Python workers."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / tick
    ours = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in ours} - ours
        if not more:
            return sum(used[pid] for pid in ours if pid in used)
        ours |= more


CHAIN = {
    "a": Flow(1000, 30, {"x": 30_000}),
    "b": Flow(1000, 30, {"x": 30_000, "y": 3_000}),
    "c": Flow(1000, 30, {"y": 3_000, "z": 30_000}),
    "d": Flow(1000, 30, {"z": 30_000}),
}


def on_spark(rows: int, batches: int, rounds: int) -> None:
    from spark_adapter.session import open_session

    spark = open_session({})
    seconds = rows / sum(flow.rate for flow in CHAIN.values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, seconds, batches)
        plans = chain_plans()
        runs: dict[str, Callable[[Path], dict[str, float]]] = {
            title: lambda place, plan=plan, engine=engine: one_run(spark, folder, place, plan, engine)  # type: ignore[misc]
            for title, (plan, engine) in plans.items()
        }
        found: dict[str, list[dict[str, float]]] = {title: [] for title in runs}
        for k in range(rounds + 1):
            for title, go in runs.items():
                figures = go(folder / f"run-{k}-{title.replace(' ', '-').replace(',', '')}")
                print(f"  {'warm-up' if not k else f'round {k}'}: {title}: {figures['seconds']:.1f} s, {figures['cpu']:.1f} CPU s", flush=True)
                if k:
                    found[title].append(figures)
        assert len({round(figures["results"]) for listed in found.values() for figures in listed}) == 1, "the engines disagree"
        for title, listed in found.items():
            median = {key: statistics.median(figures[key] for figures in listed) for key in listed[0]}
            print(
                f"{title}: {rows / median['seconds']:,.0f} rows/s, {median['cpu']:.1f} CPU s, "
                f"peak state {median['state'] / 1e6:.1f} MB, {median['results']:,.0f} results",
                flush=True,
            )
    spark.stop()


def chain_plans() -> dict[str, tuple[Plan, str]]:
    """The planner's binary tree for both engines, and for native the order of the streams and the dearest order."""
    request = request_of(CHAIN, ["a.x = b.x", "b.y = c.y", "c.z = d.z"], method="bjtree")
    best = planned(request)
    linear = [plan for order in itertools.permutations(CHAIN) if (plan := left_deep(request, order)) is not None]
    worst = max(linear, key=lambda plan: plan.cost.cpu)
    stem = planned(request_of(CHAIN, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]))
    written = left_deep(request, tuple(CHAIN))
    assert written is not None
    return {
        "stem": (stem, "stem"),
        "native, the plan's order": (best, "native"),
        "native, order of the streams": (written, "native"),
        "native, worst order": (worst, "native"),
    }


def left_deep(request: PlanRequest, order: Sequence[str]) -> Plan | None:
    """The streams joined one after the other; None where that needs a cross product."""
    if any(not any(abs("abcd".index(x) - "abcd".index(y)) == 1 for y in order[:k]) for k, x in enumerate(order) if k):
        return None
    operators: list[tuple[str, Sequence[str], Mapping[str, Sequence[str]]]] = []
    left = order[0]
    for k, name in enumerate(order[1:]):
        operators.append((f"join-{k + 1}", [left, name], {}))
        left = f"join-{k + 1}"
    return shaped(request, operators)


def write(folder: Path, seconds: float, batches: int) -> None:
    """One Parquet file per stream and batch, in the order of their modification times."""
    rng = np.random.default_rng(1)
    for name, flow in CHAIN.items():
        (folder / name).mkdir()
        found = columns(flow, seconds, rng)
        frame = pl.DataFrame(found | {"id": np.arange(len(found["ts"]))}).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
        for n in range(batches):
            path = folder / name / f"{n:05}.parquet"
            start = frame.height * n // batches
            frame[start : frame.height * (n + 1) // batches].write_parquet(path)
            os.utime(path, (1_000_000_000 + n, 1_000_000_000 + n))


def one_run(spark: Any, folder: Path, place: Path, plan: Plan, engine: str) -> dict[str, float]:
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
            for name, flow in CHAIN.items()
        },
        "select": [f"{name}.id AS {name}" for name in CHAIN],
        "sink": {"format": "parquet", "options": {"path": str(place / "out")}},
        "checkpoint": str(place / "checkpoint"),
        "trigger": {"available_now": True},
    }
    pipeline = spark_adapter.compile(plan, Bindings.model_validate(document), spark, engine)
    began, used = time.monotonic(), tree_cpu()
    pipeline.start().await_termination()
    seconds, cpu = time.monotonic() - began, tree_cpu() - used
    reports = pipeline._query.recentProgress if pipeline._query is not None else []
    state = max(sum(operator["memoryUsedBytes"] for operator in report["stateOperators"]) for report in reports)
    results = pl.read_parquet(place / "out" / "*.parquet").height
    return {"seconds": seconds, "cpu": cpu, "state": float(state), "results": float(results)}


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args(list(arguments))
    on_spark(given.rows, given.batches, given.rounds)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

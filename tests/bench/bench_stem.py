"""Engine stem against Spark's own joins.

    python -m tests.bench.bench_stem [--rows 1600000] [--rounds 5] [--minutes 60] [--results table.txt]

The same rows through Spark: stem, native joins in the plan's order, in the order of the query's streams (as one would type it) and in
the worst order without a cross product. All read the same Parquet files in the same batches and write the same results to Parquet. Every
engine runs three batches to warm up, then they take turns; figures are medians. CPU is that of the driver, the JVM and Spark's Python workers
together, and holds on a machine that others use too; rows/s do not. The worst order takes minutes a run: it is left out of rounds that it would
make end after `--minutes`.

The workload is a chain of four streams of equal rates and windows. A row of a finds two partners in b, one of b six in c, one of c not one
in d: the selective join is the last one typed. About as many results as rows. The numbers of values were chosen, before anything was
measured with them, so that the bad orders make some millions of intermediate rows and not some hundred millions: they have to end within minutes.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
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

__all__ = ["CHAIN", "EPOCH", "Flow", "bindings_of", "columns", "main", "one_run", "request_of", "shaped", "write"]

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


def tree_cpu() -> dict[str, float]:
    """CPU seconds of this process and of everything it has started: the JVM, with the processes it has ended, and Spark's Python workers."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    kinds: dict[int, str] = {os.getpid(): "driver"}
    tick = os.sysconf("SC_CLK_TCK")
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name, _, rest = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            except OSError:
                continue
            fields = rest.split()
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = (int(fields[11]) + int(fields[12]) + int(fields[13]) + int(fields[14])) / tick
            kinds.setdefault(int(entry.name), "jvm" if name == "java" else "workers")
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    found = {kind: sum(used[pid] for pid in ours if pid in used and kinds[pid] == kind) for kind in ("driver", "jvm", "workers")}
    for pid in ours:
        if kinds.get(pid) == "jvm":
            for kind, seconds in _of_the_jvm_itself(pid).items():
                found["jvm"] -= seconds
                found[f"jvm's {kind}"] = found.get(f"jvm's {kind}", 0.0) + seconds
    return found


def _of_the_jvm_itself(pid: int) -> dict[str, float]:
    """CPU seconds of the threads of a JVM that compile its code and collect its garbage."""
    found = {"compiler": 0.0, "collector": 0.0}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            name, _, rest = (thread / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        kind = "compiler" if name.startswith(("C1 ", "C2 ")) else "collector" if name.startswith(("GC ", "G1 ")) else None
        if kind is not None:
            found[kind] += sum(map(int, rest.split()[11:13])) / os.sysconf("SC_CLK_TCK")
    return found


STEM, TYPED, WORST = "stem", "native, order of the streams", "native, worst order"
WARM_UP = 3  # batches of the same size: enough for the JVM to have compiled what it will run
CHAIN = {
    "a": Flow(1000, 30, {"x": 30_000}),
    "b": Flow(1000, 30, {"x": 30_000, "y": 10_000}),
    "c": Flow(1000, 30, {"y": 10_000, "z": 100_000}),
    "d": Flow(1000, 30, {"z": 100_000}),
}


def on_spark(rows: int, batches: int, rounds: int, minutes: float, results: str) -> None:
    from spark_adapter.session import open_session

    spark = open_session({})
    seconds = rows / sum(flow.rate for flow in CHAIN.values())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder / "warm-up", seconds / batches * WARM_UP, WARM_UP)
        write(folder / "all", seconds, batches)
        plans = chain_plans()
        found: dict[str, list[dict[str, float]]] = {title: [] for title in plans}
        began = time.monotonic()
        for k in range(rounds + 1):
            for title, (plan, engine) in plans.items():
                if title == WORST and time.monotonic() - began + to_come(found, rounds - k) > 60 * minutes:
                    continue
                # A place of its own: Spark's stores may still upload a snapshot after a run has ended.
                place = folder / f"run {k} {title}"
                figures = one_run(spark, folder / ("all" if k else "warm-up"), place, plan, engine)
                shutil.rmtree(place, ignore_errors=True)
                print(f"  {'warm-up' if not k else f'round {k}'}: {title}: {figures['seconds']:.1f} s, {figures['cpu']:.1f} CPU s", flush=True)
                if k:
                    found[title].append(figures)
                    table = "\n".join(reported(rows, found))
                    if results:
                        Path(results).write_text(table + "\n")
    spark.stop()
    print(table, flush=True)


def to_come(found: Mapping[str, Sequence[Mapping[str, float]]], rounds: int) -> float:
    """Seconds that one more run of the worst order and `rounds` of all others will take, as they did last."""
    last = {title: listed[-1]["seconds"] for title, listed in found.items() if listed}
    return last.get(WORST, 0.0) + rounds * sum(seconds for title, seconds in last.items() if title != WORST)


def reported(rows: int, found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """The medians so far, and where stem's time goes."""
    assert len({figures["results"] for listed in found.values() for figures in listed}) == 1, "the engines disagree"
    medians = {
        title: {key: statistics.median(figures[key] for figures in listed) for key in listed[0]} | {"rounds": len(listed)}
        for title, listed in found.items()
        if listed
    }
    stem = medians[STEM]
    lines = [f"{rows:,} rows, {stem['results']:,.0f} results"]
    for title, median in medians.items():
        ratios = f"; stem is {median['seconds'] / stem['seconds']:.1f} times as fast, on {median['cpu'] / stem['cpu']:.1f} times less CPU"
        lines.append(
            f"{title} ({median['rounds']} rounds): {rows / median['seconds']:,.0f} rows/s, {median['cpu']:.1f} CPU s, "
            f"peak state {median['state'] / 1e6:.1f} MB{'' if title == STEM else ratios}"
        )
    for title, median in medians.items():
        for kind, what in (("wall ", "wall"), ("cpu ", "CPU")):
            parts = {part.removeprefix(kind): seconds for part, seconds in median.items() if part.startswith(kind)}
            lines.append(f"{title}, {what} seconds: " + ", ".join(f"{part} {seconds:.1f}" for part, seconds in parts.items()))
    return lines


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
        STEM: (stem, "stem"),
        "native, the plan's order": (best, "native"),
        TYPED: (written, "native"),
        WORST: (worst, "native"),
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


def write(folder: Path, seconds: float, batches: int, flows: Mapping[str, Flow] = CHAIN) -> None:
    """One Parquet file per stream and batch, in the order of their modification times. Event times are whole milliseconds, as Flink has them."""
    rng = np.random.default_rng(1)
    for name, flow in flows.items():
        (folder / name).mkdir(parents=True)
        found = columns(flow, seconds, rng)
        found["ts"] = found["ts"] // 1000 * 1000
        frame = pl.DataFrame(found | {"id": np.arange(len(found["ts"]))}).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
        for n in range(batches):
            path = folder / name / f"{n:05}.parquet"
            start = frame.height * n // batches
            frame[start : frame.height * (n + 1) // batches].write_parquet(path)
            os.utime(path, (1_000_000_000 + n, 1_000_000_000 + n))


def bindings_of(folder: Path, flows: Mapping[str, Flow], sink: Mapping[str, Any], place: Path) -> Bindings:
    """Files below `folder`, one of each stream a batch; results to the sink, the checkpoint below `place`."""
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
            for name, flow in flows.items()
        },
        "select": [f"{name}.id AS {name}" for name in flows],
        "sink": sink,
        "checkpoint": str(place / "checkpoint"),
        "trigger": {"available_now": True},
    }
    return Bindings.model_validate(document)


def one_run(spark: Any, folder: Path, place: Path, plan: Plan, engine: str, flows: Mapping[str, Flow] = CHAIN) -> dict[str, float]:
    sink = {"format": "parquet", "options": {"path": str(place / "out")}}
    pipeline = spark_adapter.compile(plan, bindings_of(folder, flows, sink, place), spark, engine)
    began, before = time.monotonic(), tree_cpu()
    pipeline.start().await_termination()
    seconds, after = time.monotonic() - began, tree_cpu()
    # Spark ends workers that were idle for a minute, and what they had used is gone with them.
    used = {kind: max(0.0, after[kind] - before[kind]) for kind in after}
    reports = pipeline._query.recentProgress if pipeline._query is not None else []
    figures = {
        "seconds": seconds,
        "cpu": sum(used.values()),
        "state": float(max(sum(operator["memoryUsedBytes"] for operator in report["stateOperators"]) for report in reports)),
        "results": float(pl.scan_parquet(place / "out" / "*.parquet").select(pl.len()).collect().item()),
    }
    figures |= {f"cpu {kind}": spent for kind, spent in used.items()}
    figures |= {f"cpu operator {part}": spent for part, spent in pipeline.progress.statistics.get("cpu_seconds", {}).items()}
    figures["wall first batch"] = reports[0]["durationMs"]["triggerExecution"] / 1000
    for report in reports:
        for phase, milliseconds in report["durationMs"].items():
            figures[f"wall {phase}"] = figures.get(f"wall {phase}", 0.0) + milliseconds / 1000
    return figures


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--batches", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=60, help="after which no run of the worst order shall make it end")
    parser.add_argument("--results", default="", help="a file that is given the table after every run")
    given = parser.parse_args(list(arguments))
    on_spark(given.rows, given.batches, given.rounds, given.minutes, given.results)


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])

"""Do the plan's choices show? Of two plans for one query, does the one that is priced lower use less CPU in the operator?

    python -m tests.bench.bench_choices [--rounds 2] [--workloads 10] [--seed 1] [--joined 1e7 4e7] [--drawn-only]

The constants are calibrated first, in this process: the runs of `watersmeet calibrate` through the operator alone. Measured is the operator's
CPU for all of its work, states included, without Spark around it; polars has one thread, as in Spark's workers.

1. Three workloads of two plans that differ in one choice: probe order, materialize or recompute, cache or not. These were *made to
   show*: the first ones drawn up were too light, their joins were lost among the cost of reading and writing states, and rates and
   numbers of keys were changed until the difference was visible. They say that a choice can matter and in which direction, not how often it does.
2. Workloads drawn by a rule, with nothing changed afterwards: three or four streams in a random tree of predicates, every one with
   a rate of 200 to 2,000 a second and a window of 5, 10 or 20 seconds, keys by the thousand on every predicate; kept when the planner's plan
   joins a number of tuples, intermediate ones included, that lies within `--joined` for the 40 seconds that are run. Each is run with
   the planner's plan, caches included, and with two that are drawn at random (any tree, any probe orders, no cross products, no more than ten times
   the upper bound joined). Of every pair of the three: is the cheaper on paper the cheaper in fact?

What a batch costs before any row, some 30 milliseconds, is no part of a price per tuple: with one to eight million tuples joined, which
was the first rule tried, it is most of what is measured, and plans whose prices are close cannot be told apart: the cheaper one used less CPU in 20
of 28 pairs (seed 0), in 12 of the 14 priced more than 1.5 times apart. With ten to forty million, the default, in 26 of 29 (seed 1) and in all
17 priced more than 1.5 times apart; both on two cores that others were using too.
"""

from __future__ import annotations

import argparse
import itertools
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read

import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from models.plan import Plan
from models.request import Costs, PlanRequest
from solvers.planner import plan as planned
from spark_adapter.calibrate import RUNS, Batches, Observation, Run, calibration_of, observed, plan_of, write
from spark_adapter.stem.operator import Brought, work_off
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.statistics import Measured
from tests.bench.bench_stem import EPOCH, Flow, columns, request_of, shaped
from tests.spark_adapter.cells import SECOND, Memory, drained

__all__ = ["joined_rate", "main", "random_plan"]

SECONDS, BATCH = 40, 2


def calibrated() -> Costs:
    """The constants of the operator in this process."""
    steps: list[Observation] = []
    states: list[Observation] = []
    for run in RUNS:
        found = observed(run, _lines(run))
        steps += found[0]
        states += found[1]
    calibration = calibration_of(steps, states, Batches(BATCH, 10.0))
    shown = ", ".join(f"{name} {value:.1e}" for name, value in calibration.costs.model_dump().items())
    print(f"calibrated: {shown} (errors of the fits {calibration.steps.error:.0%} and {calibration.states.error:.0%})", flush=True)
    return calibration.costs


def _lines(run: Run) -> list[dict[str, Any]]:
    """The statistics of every batch of a calibration run."""
    plan = plan_of(run)
    names = [stream.name for stream in plan.query.streams]
    program = program_of(plan, dict.fromkeys(names, 1))
    measured, store, lines = Measured(plan.query), Memory(), []
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        write(run, Path(folder))
        for batch in range(run.batches):
            arrivals = {}
            for stream in program.streams:
                frame = pl.read_parquet(Path(folder) / stream.name / f"{batch:05}.parquet")
                used = {side: frame[side.split(".")[1]] for side in stream.attributes}
                ts = frame["ts"].dt.timestamp("us")
                hashes = rng.integers(-(2**63), 2**63 - 1, len(frame))
                arrivals[stream.name] = pl.DataFrame({"ts": ts, "h": hashes, **used, f"{stream.name}/0": frame["x"]})
            watermark = 1_000_000_000_000_000 + batch * SECOND if batch else -1
            _, outcome = drained(work_off(program, Grid(()), 0, store, Brought(arrivals, watermark)))
            lines.append(json.loads(json.dumps(measured.add([outcome.statistics]))))
    return lines


def operator_cpu(plan: Plan, flows: Mapping[str, Flow], seconds: float, batches: int) -> tuple[float, int]:
    """CPU seconds of the operator over all batches, and results."""
    rng = np.random.default_rng(0)
    program = program_of(plan, dict.fromkeys(flows, 1))
    store, made, used = Memory(), 0, 0.0
    data = {}
    for name, flow in flows.items():
        found = columns(flow, seconds, rng)
        frame = {"ts": found["ts"], "h": rng.integers(-(2**63), 2**63 - 1, len(found["ts"]))}
        frame |= {f"{name}.{attribute}": found[attribute] for attribute in flow.values}
        data[name] = pl.DataFrame(frame | {f"{name}/0": np.arange(len(found["ts"]))})
    for n in range(batches):
        start, end = (EPOCH + round(k * seconds / batches * SECOND) for k in (n, n + 1))
        arrivals = {name: frame.filter(pl.col("ts").is_between(start, end, closed="left")) for name, frame in data.items()}
        began = time.process_time()
        results, _ = drained(work_off(program, Grid(()), 0, store, Brought(arrivals, start)))
        used += time.process_time() - began
        made += sum(frame.height for frame in results)
    return used, made


def compare(title: str, good: Plan, bad: Plan, flows: Mapping[str, Flow], seconds: float, batches: int, rounds: int) -> None:
    """The two plans in turn, after one round to warm up."""
    used: dict[str, list[float]] = {"good": [], "bad": []}
    made = set()
    for k in range(rounds + 1):
        for name, plan in (("good", good), ("bad", bad)):
            cpu, results = operator_cpu(plan, flows, seconds, batches)
            made.add(results)
            if k:
                used[name].append(cpu)
    assert len(made) == 1, "two plans of one query gave different results"
    measured = {name: statistics.median(found) for name, found in used.items()}
    print(
        f"{title}: {made.pop():,} results; priced {bad.cost.cpu / good.cost.cpu:.2f} times, "
        f"measured {measured['bad'] / measured['good']:.2f} times ({measured['bad']:.2f} s against {measured['good']:.2f} s)",
        flush=True,
    )


def made_to_show(costs: Costs, rounds: int) -> None:
    """Three workloads whose plans differ in one choice."""
    flows = {"h": Flow(2000, 20, {"x": 40_000, "y": 4}), "p": Flow(200, 20, {"x": 40_000}), "q": Flow(5, 200, {"y": 4})}
    request = _priced(request_of(flows, ["h.x = p.x", "h.y = q.y"]), costs)
    fixed = {"p": ["h", "q"], "q": ["h", "p"]}
    good = shaped(request, [("join-1", ["h", "p", "q"], {"h": ["p", "q"], **fixed})])
    bad = shaped(request, [("join-1", ["h", "p", "q"], {"h": ["q", "p"], **fixed})])
    compare("probe order", good, bad, flows, 100, 20, rounds)

    flows = {"t": Flow(2000, 20, {"y": 10}), "s": Flow(100, 20, {"y": 10, "x": 100_000}), "r": Flow(100, 20, {"x": 100_000})}
    predicates = ["t.y = s.y", "s.x = r.x"]
    request = _priced(request_of(flows, predicates), costs)
    recompute = shaped(request, [("join-1", ["t", "s", "r"], {"t": ["s", "r"], "s": ["r", "t"], "r": ["s", "t"]})])
    materialize = shaped(request, [("join-1", ["s", "r"], {}), ("join-2", ["join-1", "t"], {})])
    compare("materialize or recompute", materialize, recompute, flows, 60, 20, rounds)

    cached = planned(_priced(request_of(flows, predicates, method="mjoin", caches="prefix"), costs))
    assert cached.caches, "the planner sees no use for a cache here"
    compare("cache or not", cached, planned(_priced(request_of(flows, predicates, method="mjoin"), costs)), flows, 60, 20, rounds)


def _priced(request: PlanRequest, costs: Costs) -> PlanRequest:
    return request.model_copy(update={"costs": costs})


def drawn(costs: Costs, workloads: int, seed: int, least: float, most: float) -> None:
    """The pairs of all workloads, and how often price and fact agree."""
    rng = random.Random(seed)
    agreed: list[tuple[float, float]] = []
    for n in range(workloads):
        flows, request, best = _workload(rng, costs, least, most)
        plans = [best, *(random_plan(rng, request, 10 * most / SECONDS) for _ in range(2))]
        measured = []
        results = set()
        for plan in plans:
            runs = [operator_cpu(plan, flows, SECONDS, SECONDS // BATCH) for _ in range(2)]
            measured.append(min(cpu for cpu, _ in runs))
            results |= {made for _, made in runs}
        assert len(results) == 1, "two plans of one query gave different results"
        shown = ", ".join(f"{plan.cost.cpu * SECONDS:.2f} → {cpu:.2f} s" for plan, cpu in zip(plans, measured, strict=True))
        print(f"workload {n}: {len(flows)} streams, {results.pop():,} results; priced → measured: {shown}", flush=True)
        for (a, x), (b, y) in itertools.combinations(zip(plans, measured, strict=True), 2):
            priced, fact = a.cost.cpu / b.cost.cpu, x / y
            agreed.append((max(priced, 1 / priced), fact if priced > 1 else 1 / fact))
    for apart in (1.0, 1.1, 1.5, 2.0):
        pairs = [fact for priced, fact in agreed if priced > apart]
        right = sum(1 for fact in pairs if fact > 1)
        print(f"pairs priced more than {apart} times apart: the cheaper used less CPU in {right} of {len(pairs)}", flush=True)


def _workload(rng: random.Random, costs: Costs, least: float, most: float) -> tuple[dict[str, Flow], PlanRequest, Plan]:
    while True:
        names = [f"s{i}" for i in range(rng.choice((3, 4)))]
        values: dict[str, dict[str, int]] = {name: {} for name in names}
        predicates = []
        for i in range(1, len(names)):
            other, attribute, keys = rng.choice(names[:i]), f"k{i}", round(math.exp(rng.uniform(math.log(500), math.log(50_000))))
            values[names[i]][attribute] = values[other][attribute] = keys
            predicates.append(f"{other}.{attribute} = {names[i]}.{attribute}")
        rates = [round(math.exp(rng.uniform(math.log(200), math.log(2000)))) for _ in names]
        flows = {name: Flow(rate, rng.choice((5, 10, 20)), values[name]) for name, rate in zip(names, rates, strict=True)}
        request = _priced(request_of(flows, predicates, caches="auto"), costs)
        best = planned(request)
        if least <= SECONDS * joined_rate(best) <= most:
            return flows, request, best


def joined_rate(plan: Plan) -> float:
    """Tuples that all probes make in a second."""
    return sum(probe.rate_out for operator in plan.operators for pipeline in operator.pipelines for probe in pipeline.probes)


def random_plan(rng: random.Random, request: PlanRequest, most: float, tries: int = 1000) -> Plan:
    """Any tree whose operators are connected, any probe orders that follow predicates; redrawn where it would join more than `most` a second.
    After so many tries the one that joins least. Of a query with one table at most."""
    tables = {table.name for table in request.query.tables}
    edges = [frozenset(side.split(".")[0] for side in (p.left, p.right)) for p in request.query.predicates]
    least: Plan | None = None
    for _ in range(tries):
        blocks: dict[str, frozenset[str]] = {relation.name: frozenset([relation.name]) for relation in request.query.relations}
        operators: list[tuple[str, Sequence[str], Mapping[str, Sequence[str]]]] = []
        while len(blocks) > 1:
            inputs = _walk(rng, blocks, edges, rng.choice(list(blocks)))[: rng.randint(2, len(blocks))]
            chosen = {name: blocks[name] for name in inputs}
            name = f"join-{len(operators) + 1}"
            operators.append((name, inputs, {start: _walk(rng, chosen, edges, start)[1:] for start in inputs if start not in tables}))
            blocks = {key: members for key, members in blocks.items() if key not in chosen} | {name: frozenset().union(*chosen.values())}
        plan = shaped(request, operators)
        if least is None or joined_rate(plan) < joined_rate(least):
            least = plan
        if joined_rate(least) <= most:
            return least
    assert least is not None
    return least


def _walk(rng: random.Random, blocks: Mapping[str, frozenset[str]], edges: Sequence[frozenset[str]], start: str) -> list[str]:
    """All blocks from `start` on, each connected with one before it, otherwise at random."""
    order, visited = [start], blocks[start]
    while len(order) < len(blocks):
        near = [n for n, members in blocks.items() if n not in order and any(edge & visited and edge & members for edge in edges)]
        order.append(rng.choice(near))
        visited |= blocks[order[-1]]
    return order


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--workloads", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--joined", type=float, nargs=2, default=(1e7, 4e7), metavar=("LEAST", "MOST"))
    parser.add_argument("--drawn-only", action="store_true")
    given = parser.parse_args(list(arguments))
    costs = calibrated()
    if not given.drawn_only:
        made_to_show(costs, given.rounds)
    drawn(costs, given.workloads, given.seed, *given.joined)


if __name__ == "__main__":
    main(sys.argv[1:])

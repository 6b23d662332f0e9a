"""How true the cost model is: random queries and plans on the operator, predicted against measured.

    python -m tests.bench.bench_truth [--queries 30] [--rounds 2] [--seed 1]

Queries are drawn by a rule (`RULE` says it in full): 3 to 6 streams, chains, stars, cycles and cliques in turn, kept when the planner's plan joins a
number of tuples in a second, intermediate ones included, that lies within JOINED. The rule is the third that was tried: with windows of 8 to 24 s,
and batches of 4 s and then of 8 s, a few queries were run first, and the price was further off. Batches are short against windows now, which the
contract assumes, and joins heavier, so that less of what is measured is what a batch costs without a row. The rule was not changed after that;
calibration and price were, with what queries of seed 1 took in view: a run of five streams, runs in which joins are kept, the price of a step. So
seed 1 says how well the model was mended, and another seed how well it is.

In every TABLE_EACHth query one of the relations of fewest neighbours does not flow: it is a table of as many rows as its window would hold, read
once and kept. Each query is run with the plan that the planner chooses, caches included, the mjoin, the mjoin with the caches that the default costs
would choose, the best binary tree and random plans (redrawn where they join more than MOST a second): two, or one where there are caches. All go
over the same rows, in batches of 4 s. What counts are the batches after the longest window has filled. The constants are calibrated first, in this
process, for these batches. Measured is CPU time of the operator, its states included, the least of the rounds; polars has one thread.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read

import math
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from models.plan import EstimateRequest, Plan
from models.request import PlanRequest
from solvers.estimate import estimate, with_given_caches
from solvers.planner import plan as planned
from spark_adapter.calibrate import Batches, Calibration
from spark_adapter.stem.program import ENTRY_BYTES
from tests.bench.bench_choices import joined_rate, random_plan
from tests.bench.bench_stem import Flow, request_of
from tests.bench.calibrated import calibrated, said
from tests.graphs import edges_of
from tests.spark_adapter.in_process import Arrivals, InProcess, Stretch, arrivals, content, cut

__all__ = [
    "BATCH",
    "BATCHES",
    "MEASURED",
    "RULE",
    "SHAPES",
    "WINDOWS",
    "ByBatch",
    "ByOperator",
    "Measured",
    "QueryRuns",
    "by_batch",
    "cached_rows",
    "drawn",
    "main",
    "plans_of",
    "query_runs",
    "spearman",
]

SHAPES = ("chain", "star", "cycle", "clique")
WINDOWS = (20, 40, 60)
BATCH = 4.0
MEASURED = 5  # batches
BATCHES = Batches(BATCH, sum(WINDOWS) / len(WINDOWS))
JOINED, MOST = (2e5, 6e5), 1e6  # tuples a second
TABLE_EACH = 5
RATES = (100, 2000)  # a second
KEYS, FEW_KEYS = (1000, 50_000), (2, 20)  # values on an edge of a spanning tree, and on the others
TRIES = 200  # of a random plan that joins less than MOST
RULE = (
    f"How queries are drawn: 3 to 6 relations, {', '.join(SHAPES)} in turn; rates of {RATES[0]:,} to {RATES[1]:,} a second and {KEYS[0]:,} to "
    f"{KEYS[1]:,} keys on each edge of a spanning tree, {FEW_KEYS[0]} to {FEW_KEYS[1]} on the others, all by the logarithm; windows of "
    f"{', '.join(map(str, WINDOWS))} s. A query is kept when the planner's plan joins {JOINED[0]:,.0f} to {JOINED[1]:,.0f} tuples a second, "
    f"intermediate "
    f"ones included; others are drawn again. In every {TABLE_EACH}th a relation of fewest neighbours is a kept table. Which plans: the planner's "
    f"own; the "
    f"mjoin, unless it joins more than {MOST:,.0f} a second; the mjoin with the caches that the default costs would choose, where there is no table "
    f"and "
    f"they choose any; the best binary tree; two random plans, or one where there are caches, drawn up to {TRIES} times until one joins no more than "
    f"{MOST:,.0f} a second, and left out where none does. A plan that is the same by two names is run once."
)


@dataclass(frozen=True)
class ByOperator:
    """One operator of a plan: CPU seconds a second of its probe steps that no cache answers and of keeping what its inputs bring, and rows of what it
    keeps itself, a batch added to windows."""

    streams: int
    predicted: float
    measured: float
    kept_predicted: float = 0.0
    kept_measured: float = 0.0
    """Both 0 where it keeps nothing."""


@dataclass(frozen=True)
class Measured:
    """One plan of one query: CPU seconds a second, rows held, and per probe step (predicted, measured) CPU."""

    kind: str
    fingerprint: str
    predicted: float
    stepping: float
    """Of that, what its probe steps cost without a row."""
    overhead: float
    """What its batches cost without a row, by the calibration, a second, its pieces of state counted and what is the same for all plans added."""
    measured: float
    state_predicted: float
    state_with_batch: float
    """Predicted, with every window longer by a batch."""
    state_measured: float
    steps: Sequence[tuple[float, float]]
    caches: int
    cached_rows: float = 0.0
    """Rows and keys that its caches hold, by the plan."""
    operators: Sequence[ByOperator] = ()


@dataclass(frozen=True)
class QueryRuns:
    """All plans of one query."""

    number: int
    shape: str
    streams: int
    results: int
    plans: Sequence[Measured]
    tables: int = 0
    without_mjoin: bool = False
    """Whether the mjoin was left out, as it joins more than MOST."""

    def loss(self, price: Callable[[Measured], float]) -> float:
        """What the plan priced best takes over the one measured best, as a share of that."""
        return min(self.plans, key=price).measured / min(plan.measured for plan in self.plans) - 1.0


def drawn(rng: random.Random, shape: str, calibration: Calibration, table: bool = False) -> tuple[dict[str, Flow], PlanRequest, Plan]:
    """A query, exactly described, one of its relations a `table` where that is asked for, and the plan for it."""
    while True:
        n = rng.choice((3, 4, 5, 6))
        names = [f"s{i}" for i in range(n)]
        values: dict[str, dict[str, int]] = {name: {} for name in names}
        predicates, reached = [], {0}
        for a, b in edges_of(rng, n, shape):
            tree = b not in reached
            reached.add(b)
            keys = round(math.exp(rng.uniform(*map(math.log, KEYS if tree else FEW_KEYS))))
            values[names[a]][f"k{a}{b}"] = values[names[b]][f"k{a}{b}"] = keys
            predicates.append(f"{names[a]}.k{a}{b} = {names[b]}.k{a}{b}")
        rates = [round(math.exp(rng.uniform(*map(math.log, RATES)))) for _ in names]
        flows = {name: Flow(rate, rng.choice(WINDOWS), values[name]) for name, rate in zip(names, rates, strict=True)}
        request = request_of(flows, predicates, caches="auto").model_copy(update={"costs": calibration.costs})
        if table:
            request = _with_a_table(rng, request, flows)
        best = planned(request)
        if JOINED[0] <= joined_rate(best) <= JOINED[1]:
            return flows, request, best


def _with_a_table(rng: random.Random, request: PlanRequest, flows: Mapping[str, Flow]) -> PlanRequest:
    """The same with a relation of fewest neighbours as a kept table, of as many rows as its window holds."""
    pairs = [{side.split(".")[0] for side in (p.left, p.right)} for p in request.query.predicates]
    near = {name: sum(name in pair for pair in pairs) for name in flows}
    name = rng.choice([name for name in flows if near[name] == min(near.values())])
    rows = round(flows[name].rate * flows[name].window)
    document = request.model_dump(mode="json")
    document["query"]["tables"] = [{"name": name, "rows": rows, "distinct": dict(flows[name].values), "access": [{"kind": "scan"}]}]
    document["query"]["streams"] = [stream for stream in document["query"]["streams"] if stream["name"] != name]
    return PlanRequest.model_validate(document)


def _cached(request: PlanRequest) -> Plan | None:
    """The mjoin with the caches that the default costs would choose, priced as the request says; None where they choose none."""
    options = request.options.model_dump() | {"method": "mjoin", "caches": "auto"}
    made = planned(PlanRequest.model_validate(request.model_dump() | {"options": options, "costs": {}}))
    if not made.caches:
        return None
    asked = EstimateRequest.model_validate(request.model_dump(mode="json") | {"operators": made.model_dump(mode="json")["operators"]})
    return with_given_caches(asked, estimate(asked), made)


def plans_of(rng: random.Random, request: PlanRequest, chosen: Plan) -> dict[str, Plan]:
    """The plans that are run, by name."""

    def by(method: str) -> Plan:
        options = request.options.model_dump() | {"method": method, "caches": "off"}
        return planned(PlanRequest.model_validate(request.model_dump() | {"options": options}))

    made = {"chosen": chosen, "mjoin": by("mjoin"), "binary tree": by("bjtree")}
    if joined_rate(made["mjoin"]) > MOST:
        del made["mjoin"]  # it would not end within minutes; the query keeps its other plans
    elif not request.query.tables and (cached := _cached(request)) is not None:
        made["mjoin, caches"] = cached
    for k in (1,) if "mjoin, caches" in made else (1, 2):
        found = random_plan(rng, request, MOST, tries=TRIES)
        if joined_rate(found) <= MOST:
            made[f"random {k}"] = found
    return made


@dataclass(frozen=True)
class ByBatch:
    """A plan in batches of one length: CPU as priced for these, with windows longer by half of one, and measured; what was done; a second."""

    length: float
    kind: str
    predicted: float
    longer: float
    measured: float
    tried: float
    """Rows that came or probed, and candidates that these looked at."""
    joined: float
    """Rows that steps made."""


def by_batch(lengths: Sequence[float], seed: int, calibration: Calibration, rounds: int = 1) -> Iterator[ByBatch]:
    """One query in batches of several lengths; of several rounds the one that took least."""
    rng = random.Random(f"{seed} batches")
    flows, request, chosen = drawn(rng, "chain", calibration)
    plans = {kind: plan for kind, plan in plans_of(rng, request, chosen).items() if not kind.startswith("random")}
    seconds = MEASURED * BATCH
    rows = arrivals({name: [Stretch(max(WINDOWS) + seconds, flow.rate, flow.values)] for name, flow in flows.items()}, seed=seed)
    for length in lengths:
        batches = cut(rows, length)
        for kind, plan in plans.items():
            runs = []
            for _ in range(rounds):
                one = InProcess(plan)
                one.run(batches)
                runs.append(one.batches[-round(seconds / length) :])
            last = min(runs, key=lambda run: sum(batch.cpu for batch in run))
            priced, longer = (each.cost.cpu + (BATCH / length - 1.0) * _stepping(each) for each in (plan, _longer(request, plan, length / 2.0)))
            joined = sum(step["rows_out"] for batch in last for step in batch.line["steps"])
            cpu, tried = sum(batch.cpu for batch in last), sum(batch.work for batch in last)
            yield ByBatch(length, kind, priced, longer, cpu / seconds, tried / seconds, joined / seconds)


def _longer(request: PlanRequest, plan: Plan, seconds: float) -> Plan:
    """The same plan, priced for windows that are so much longer."""
    document = request.model_dump(mode="json") | {"operators": plan.model_dump(mode="json")["operators"]}
    for stream in document["query"]["streams"]:
        stream["window"]["seconds"] += seconds
    asked = EstimateRequest.model_validate(document)
    return with_given_caches(asked, estimate(asked), plan)


def run(
    kind: str, plan: Plan, batches: Sequence[tuple[Arrivals, int]], tables: Arrivals, rounds: int, calibration: Calibration
) -> tuple[Measured, int]:
    """The plan over all batches; of several rounds the one that took least CPU."""
    best: InProcess | None = None
    for _ in range(rounds):
        one = InProcess(plan, tables=tables)
        one.run(batches)
        if best is None or _cpu(one) < _cpu(best):
            best = one
    assert best is not None
    counted = best.batches[-MEASURED:]
    seconds = MEASURED * BATCH
    probes = {(o.id, p.input, i): probe.cpu for o in plan.operators for p in o.pipelines for i, probe in enumerate(p.probes)}
    cached = {(cache.operator, cache.input, i) for cache in plan.caches for i in range(cache.first, cache.last + 1)}
    spent = dict.fromkeys(probes, 0.0)
    for batch in counted:
        for step in batch.line["steps"]:
            key = (step["operator"], step["input"], step["step"])
            spent[key] = spent.get(key, 0.0) + step["cpu_seconds"] / seconds
    overhead = _overhead(plan, calibration)
    held = sum(state["rows"] for batch in counted for state in batch.line["states"]) / MEASURED
    found = Measured(
        kind,
        plan.fingerprint,
        plan.cost.cpu,
        _stepping(plan),
        overhead,
        sum(batch.cpu for batch in counted) / seconds,
        _state(plan, 0.0),
        _state(plan, BATCH),
        held,
        [(float(f"{probes[key]:.4g}"), float(f"{spent[key]:.4g}")) for key in probes if key not in cached],
        len(plan.caches),
        cached_rows(plan),
        list(_by_operator(plan, {key: (probes[key], spent[key]) for key in probes if key not in cached}, [batch.line for batch in counted])),
    )
    return found, sum(batch.results for batch in best.batches)


def _by_operator(plan: Plan, steps: Mapping[tuple[str, str, int], tuple[float, float]], lines: Sequence[Mapping[str, Any]]) -> Iterator[ByOperator]:
    rows = [{state["state"]: state["rows"] for state in batch["states"]} for batch in lines]
    for operator in plan.operators:
        own = [pair for (name, _, _), pair in steps.items() if name == operator.id]
        kept = (
            (operator.state_tuples + operator.rate * BATCH, sum(held[operator.id] for held in rows) / len(rows)) if operator.materialized else (0, 0)
        )
        keeping = [state["cpu_seconds"] for batch in lines for state in batch["states"] if state["state"] in operator.inputs]
        predicted = sum(p for p, _ in own) + sum(state.cpu for state in operator.states)
        measured = sum(m for _, m in own) + sum(keeping) / (len(lines) * BATCH)
        yield ByOperator(len(operator.streams), predicted, measured, *map(float, kept))


def cached_rows(plan: Plan) -> float:
    """Rows and keys in the caches of a plan; of those that share theirs the first has them."""
    size = {stream.name: stream.tuple_bytes for stream in plan.query.streams}
    held = [cache for cache in plan.caches if cache.memory_bytes > 0.0]
    rows = [max(0.0, cache.memory_bytes - cache.entries * ENTRY_BYTES) / sum(size[name] for name in cache.streams) for cache in held]
    return sum(rows) + sum(cache.entries for cache in held)


def _stepping(plan: Plan) -> float:
    """What the price has for probe steps whatever their rows."""
    return plan.costs.step * sum(len(pipeline.probes) for operator in plan.operators for pipeline in operator.pipelines)


def _overhead(plan: Plan, calibration: Calibration) -> float:
    """What batches cost without a row, a second: by the batch, the probe step, and the piece of state, of which there is one a batch."""
    seconds = {stream.name: stream.window.seconds or 0.0 for stream in plan.query.streams}
    kept = {operator.id: operator.streams for operator in plan.operators}
    targets = [probe.target for operator in plan.operators for pipeline in operator.pipelines for probe in pipeline.probes]
    # A joined row lives as long as the first of its parts. About every second step sees the batch's own piece as well. A table is one piece.
    lives = [[seconds[name] for name in kept.get(target, [target]) if name in seconds] for target in targets]
    pieces = sum(min(those) / BATCH + 0.5 if those else 1.0 for those in lives)
    step = calibration.steps.constants
    return (step["per step"] * len(targets) + step["per piece"] * pieces + calibration.states.constants["per batch"]) / BATCH


def _cpu(one: InProcess) -> float:
    return sum(batch.cpu for batch in one.batches[-MEASURED:])


def _state(plan: Plan, longer: float) -> float:
    """Tuples of all states, without caches, if every window were so many seconds longer."""
    unprobed = {o.inputs[k] for o in plan.operators for k, _ in enumerate(o.inputs)} - {state.input for o in plan.operators for state in o.states}
    rows = {s.name: s.rate * ((s.window.seconds or 0.0) + longer) for s in plan.query.streams if s.name not in unprobed}
    rows |= {table.name: table.rows for table in plan.query.tables}
    seconds = {stream.name: stream.window.seconds or 0.0 for stream in plan.query.streams}
    # A subresult lives as long as its windows: it grows by the batch once, not once for each of its streams.
    kept = [o.state_tuples + o.rate * longer for o in plan.operators if o.materialized]
    assert all(seconds.values())
    return sum(rows.values()) + sum(kept)


def query_runs(queries: int, rounds: int, seed: int, calibration: Calibration) -> Iterator[QueryRuns]:
    """One query after the other, all plans of it over the same rows."""
    for number in range(queries):
        rng = random.Random(f"{seed} {number}")
        shape = SHAPES[number % len(SHAPES)]
        flows, request, chosen = drawn(rng, shape, calibration, number % TABLE_EACH == TABLE_EACH - 1)
        length = max(WINDOWS) + MEASURED * BATCH
        tables = {table.name: content(table.name, round(table.rows), flows[table.name].values, number) for table in request.query.tables}
        flowing = {name: [Stretch(length, flow.rate, flow.values)] for name, flow in flows.items() if name not in tables}
        batches = cut(arrivals(flowing, seed=number), BATCH)
        plans: list[Measured] = []
        results = set()
        made_of = plans_of(rng, request, chosen)
        for kind, plan in made_of.items():
            same = next((other for other in plans if other.fingerprint == plan.fingerprint), None)
            if same is not None:
                continue  # one plan by two names is run once
            found, made = run(kind, plan, batches, tables, rounds, calibration)
            plans.append(found)
            results.add(made)
        assert len(results) == 1, "two plans of one query gave different results"
        yield QueryRuns(number, shape, len(flows), results.pop(), plans, len(tables), "mjoin" not in made_of)


def spearman(pairs: Sequence[tuple[float, float]]) -> float:
    """Rank correlation; equal values have the mean of their ranks."""

    def ranks(values: Sequence[float]) -> list[float]:
        order = sorted(range(len(values)), key=lambda i: values[i])
        found = [0.0] * len(values)
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and values[order[end]] == values[order[start]]:
                end += 1
            for i in order[start:end]:
                found[i] = (start + end - 1) / 2
            start = end
        return found

    first, second = ranks([a for a, _ in pairs]), ranks([b for _, b in pairs])
    middle = (len(pairs) - 1) / 2
    both = sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True))
    return both / math.sqrt(sum((a - middle) ** 2 for a in first) * sum((b - middle) ** 2 for b in second))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--queries", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(list(arguments))
    calibration = calibrated(BATCHES)
    print(said(calibration.costs), flush=True)
    pairs: list[tuple[float, float]] = []
    for found in query_runs(given.queries, given.rounds, given.seed, calibration):
        print(
            f"{found.number}: {found.shape} of {found.streams}, {found.tables} of them tables, {found.results:,} results, "
            f"loss {found.loss(lambda plan: plan.predicted):.1%}, without the price of steps "
            f"{found.loss(lambda plan: plan.predicted - plan.stepping):.1%}, with pieces counted "
            f"{found.loss(lambda plan: plan.predicted - plan.stepping + plan.overhead):.1%}",
            flush=True,
        )
        print("\n".join(f"   {line}" for line in _lines(found.plans)), flush=True)
        pairs += [(plan.predicted, plan.measured) for plan in found.plans]
    print(f"Spearman {spearman(pairs):.3f} over {len(pairs)} plans")


def _lines(plans: Sequence[Measured]) -> Iterator[str]:
    for plan in plans:
        steps: Mapping[str, float] = {"predicted": sum(p for p, _ in plan.steps), "measured": sum(m for _, m in plan.steps)}
        yield (
            f"{plan.kind:13} CPU {plan.predicted:.4f}, {plan.stepping:.4f} of it steps → {plan.measured:.4f} ({plan.measured / plan.predicted:.2f}; "
            f"with pieces counted {plan.measured / (plan.predicted - plan.stepping + plan.overhead):.2f}); "
            f"steps {steps['predicted']:.4f} → {steps['measured']:.4f}; state {plan.state_predicted:,.0f}, {plan.state_with_batch:,.0f} → "
            f"{plan.state_measured:,.0f}; caches {plan.caches}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])

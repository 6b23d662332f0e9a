"""Caches run: the same results with and without, entries as the invariants say, and counts as the figures say."""

from __future__ import annotations

import random

import pytest

from models.plan import Plan
from models.request import PlanRequest
from tests.solvers.caches.interpreter import Arrival, Interpreter, by_definition
from tests.solvers.caches.plans import SHAPES, arrivals, plan_with_caches, query


@pytest.mark.parametrize("kind", ["prefix", "global"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_with_caches_makes_exactly_the_results_of_the_definition(shape: str, kind: str) -> None:
    used = 0
    for seed in range(12):
        generator = random.Random(seed)
        n = generator.choice((3, 4, 5))
        domain = generator.choice((3, 5))
        request = PlanRequest.model_validate({"query": query(generator, n, shape, rate=7.0, domain=domain)})
        plan = plan_with_caches(request, kind, generator, nested=seed % 3 == 2)
        data = arrivals(generator, request, 1.8, domain)
        machine = Interpreter(plan)
        for arrival in data:
            machine.run([arrival])
            if arrival.number % 16 == 0:
                assert machine.consistent()
        assert sorted(machine.results) == sorted(by_definition(plan, data))
        used += sum(machine.counts["hits", cache.id] for cache in plan.caches)
    assert used > 0 or (shape, kind) == ("star", "prefix")


def long_run(seed: int, shape: str, n: int, kind: str, domain: int, seconds: float) -> tuple[Plan, Interpreter, float]:
    """A plan with caches and its machine after `seconds`, counted from when all windows were full."""
    generator = random.Random(seed)
    request = PlanRequest.model_validate({"query": query(generator, n, shape, rate=24.0, domain=domain)})
    plan = plan_with_caches(request, kind, generator)
    data = arrivals(generator, request, seconds + 2.0, domain)
    machine = Interpreter(plan)
    machine.run(arrival for arrival in data if arrival.time < 2.0)
    machine.counts.clear()
    machine.run(arrival for arrival in data if arrival.time >= 2.0)
    return plan, machine, seconds


@pytest.mark.parametrize(
    ("seed", "shape", "n", "kind"), [(1, "chain", 3, "prefix"), (2, "chain", 4, "prefix"), (3, "chain", 4, "global"), (6, "star", 4, "global")]
)
def test_counted_operations_match_the_figures(seed: int, shape: str, n: int, kind: str) -> None:
    domain = 8
    plan, machine, seconds = long_run(seed, shape, n, kind, domain, 30.0)
    operator = plan.operators[-1]
    upkeep = plan.costs.insert + plan.costs.delete
    expected = operator.cpu
    assert plan.caches
    for cache in plan.caches:
        probes = next(pipeline.probes for pipeline in operator.pipelines if pipeline.input == cache.input)[cache.first : cache.last + 1]
        replaced, lookups, results = sum(probe.cpu for probe in probes), probes[0].rate_in, probes[-1].rate_out
        miss = 1.0 - machine.counts["hits", cache.id] / machine.counts["lookups", cache.id]
        assert machine.counts["lookups", cache.id] / seconds == pytest.approx(lookups, rel=0.15)
        assert (machine.counts["hit results", cache.id] + machine.counts["out", operator.id, cache.input, cache.last]) / seconds == pytest.approx(
            results, rel=0.15
        )
        # Values are drawn anew here, so that misses are at most those of the figures.
        assert miss <= cache.miss_probability * 1.05
        proc = lookups * plan.costs.probe + (1 - miss) * plan.costs.join * results + miss * (replaced + results * upkeep)
        expected += proc - replaced + cache.costs
        if cache.costs:
            assert machine.counts["updates", cache.group] / seconds * upkeep == pytest.approx(cache.costs, rel=0.15)
    for pipeline in operator.pipelines:
        for step, probe in enumerate(pipeline.probes):
            if not any(cache.input == pipeline.input and cache.first <= step <= cache.last for cache in plan.caches):
                assert machine.counts["in", operator.id, pipeline.input, step] / seconds == pytest.approx(probe.rate_in, rel=0.15)
                assert machine.counts["out", operator.id, pipeline.input, step] / seconds == pytest.approx(probe.rate_out, rel=0.15)
    assert machine.cpu(seconds) == pytest.approx(expected, rel=0.1)


@pytest.mark.parametrize("multiplicity", [1, 2, 5, 10])
def test_the_miss_probability_is_exact_where_values_come_in_order(multiplicity: int) -> None:
    request = PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {"name": "R", "rate": 10, "window": {"seconds": 2}},
                    {"name": "S", "rate": 10, "window": {"seconds": 2}},
                    {"name": "T", "rate": 50, "window": {"seconds": 2}, "distinct": {"B": 100 / multiplicity}},
                ],
                "predicates": [
                    {"left": "R.A", "right": "S.A", "selectivity": 0.05},
                    {"left": "S.B", "right": "T.B", "selectivity": 0.05},
                ],
            },
        }
    )
    plan = next(
        made
        for seed in range(50)
        if len((made := plan_with_caches(request, "prefix", random.Random(seed))).caches) == 1 and made.caches[0].input == "T"
    )
    (cache,) = plan.caches
    assert cache.streams == ["R", "S"]
    assert (cache.key, cache.lookup) == (["S.B"], ["T.B"])
    generator = random.Random(1)
    data = [(i / 50.0, "T", {"B": i // multiplicity}) for i in range(1500)]
    data += [(generator.uniform(0, 30), name, {"A": generator.randrange(20), "B": generator.randrange(300)}) for name in "RS" for _ in range(300)]
    data.sort(key=lambda entry: entry[0])
    machine = Interpreter(plan)
    machine.run(Arrival(name, time, values, number) for number, (time, name, values) in enumerate(data))
    missed = 1.0 - machine.counts["hits", cache.id] / machine.counts["lookups", cache.id]
    assert missed == pytest.approx(cache.miss_probability, abs=0.01)
    assert abs(len(machine.groups[0].entries) - cache.entries) <= 1

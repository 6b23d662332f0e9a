"""What joins add to paths before their probes are ordered is never above what they add afterwards."""

from __future__ import annotations

import random

import pytest

from solvers.allocation.freshness import joint_shares, most_results
from solvers.allocation.productivity import KnownJoins, PlanPaths, results_of
from solvers.common.tolerances import SUMMED
from solvers.jtree.tables.solver import divisions
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.probe_order import best_join
from tests.graphs import SHAPES, random_costs, random_graph


@pytest.mark.parametrize("seed", range(12))
def test_a_join_costs_at_least_what_is_known_of_it_before_its_probes_are_ordered(seed: int) -> None:
    rng = random.Random(seed)
    query = random_graph(rng, rng.randint(3, 6), rng.choice(SHAPES), windows=(0.1, 1.0), rows=0.3, theta=0.3, observed=rng.choice((0.0, 0.3)))
    model = CostModel(join_graph(query), random_costs(rng))
    known = KnownJoins(model)
    for _, inputs in divisions(model.graph):
        least = known.paths_at_least([inputs])
        assert known.unmet([inputs]) == [inputs]
        known.meet(inputs)
        assert known.unmet([inputs]) == []
        met = known.paths_at_least([inputs])
        assert least.keeping <= met.keeping * SUMMED
        assert all(a <= b * SUMMED for a, b in zip(least.cpu, met.cpu, strict=True))
        assert met.keeping + sum(met.cpu) == pytest.approx(best_join(model, inputs).cpu, rel=1e-12)


@pytest.mark.parametrize("seed", range(12))
def test_the_most_results_are_those_of_the_joint_optimum_without_a_cover(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(1, 9)
    windows, cpu = tuple(rng.uniform(0.1, 9.0) for _ in range(n)), tuple(rng.choice((0.0, rng.uniform(0.1, 4.0))) for _ in range(n))
    plan = PlanPaths(windows, cpu, 0.0, rng.uniform(1.0, 99.0), ())
    for budget in (0.0, rng.uniform(0.0, sum(cpu)), 2.0 * sum(cpu)):
        assert most_results(plan, budget) == pytest.approx(results_of(plan, joint_shares(plan, budget, [0.0] * n)), rel=1e-12)

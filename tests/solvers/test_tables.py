"""Queries with tables: the search against every plan, every order and every access there is, and what is refused."""

from __future__ import annotations

import random

import pytest

from solvers.common.deadline import Deadline
from solvers.jtree.exact import frontier_search
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.tree import joins
from tests.graphs import random_costs, random_graph, with_tables
from tests.solvers.brute_force import every_plan
from tests.solvers.test_exact import LONG, assert_answers_are_brute_forces, below


def table_model(seed: int) -> CostModel:
    """Any graph of 2 to 4 streams and 1 to 3 tables, any accesses, any cost constants."""
    rng = random.Random(seed)
    streams, tables = rng.choice((2, 2, 3, 3, 4)), rng.choice((1, 1, 2, 2, 3))
    n = streams + tables
    shape = rng.choice(("chain", "star", "cycle", "snowflake", "random") if n > 5 else ("chain", "star", "cycle", "snowflake", "random", "clique"))
    query = random_graph(
        rng,
        n,
        shape,
        degree=2.2,
        windows=rng.choice(((1.0,), (0.1, 1.0, 10.0))),
        tuple_bytes=rng.choice(((100.0,), (10.0, 100.0, 1000.0))),
        log_selectivity=rng.choice(((-4.0, -1.0), (-2.0, 0.0))),
        rows=rng.choice((0.0, 0.4)),
        theta=rng.choice((0.0, 0.3)),
        observed=rng.choice((0.0, 0.0, 0.3)),
        parts=rng.choice((1, 1, 1, 1, 1, 2)),
        equalities=rng.choice((0.0, 0.5)),
        shuffled=True,
    )
    return CostModel(join_graph(with_tables(rng, query, tables)), random_costs(rng))


@pytest.mark.parametrize("chunk", range(12))
def test_exact_equals_brute_force_with_tables(chunk: int) -> None:
    for seed in range(25 * chunk, 25 * chunk + 25):
        assert_answers_are_brute_forces(seed, table_model(seed))


def test_accesses_are_those_of_a_plan_that_brute_force_finds_too() -> None:
    for seed in range(300, 340):
        model = table_model(seed)
        plans = every_plan(model)
        for point in frontier_search(Problem(model), Deadline.after(LONG)).points:
            asked = tuple(sorted(one for join in joins(point.tree) for one in join.asked))
            same = [plan for plan in plans if plan.asked == asked and below(plan.cpu, point.cpu) and below(plan.memory_bytes, point.memory_bytes)]
            assert same, f"seed {seed}: no plan with {asked} is as good as {point}"

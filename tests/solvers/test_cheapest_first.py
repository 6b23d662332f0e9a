"""The search by rising cost: never above the best of all join trees, and equal to it where it ends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Proof
from models.request import Costs, Query
from solvers.common.deadline import Deadline
from solvers.jtree.anytime import anytime
from solvers.jtree.cheapest_first import cheapest
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.exact import exact, one_number
from solvers.jtree.search import Problem
from solvers.jtree.shape import draft_of, excess_of
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from tests.graphs import queries, random_graph
from tests.solvers.brute_force import every_plan
from tests.solvers.compiled.cases import any_costs

COSTS = (
    Costs(),
    Costs(probe=1e-6),
    Costs(scan=1e-9, append=1e-8),
    Costs(insert=1e-5, delete=1e-5, append=5e-6),
    Costs(insert=0.0, delete=0.0),
    Costs(step=1e-5),
)
ABOVE = 1.0 + 1e-11  # sums in another order
SAME = 1.0 - 1e-9
SHAPES = ("chain", "star", "cycle", "snowflake", "random", "clique")
ENOUGH = Deadline.after(3600.0)
QUICK = replace(ENOUGH, granted=1.0)


def a_model(rng: random.Random, n: int, shape: str) -> CostModel:
    """Windows of seconds and rows, theta and several predicates: all that this search knows."""
    query = random_graph(
        rng,
        n,
        shape,
        windows=rng.choice([(10.0, 60.0, 300.0), (1.0,), (0.1, 1.0, 10.0)]),
        log_selectivity=rng.choice([(-3.5, -2.0), None, (-4.0, -1.0), (-2.0, 0.0)]),
        rows=rng.choice([0.0, 0.3]),
        theta=rng.choice([0.0, 0.2, 1.0]),
        equalities=0.1,
        degree=rng.choice([2.2, 2.5, 3.5]),
    )
    return CostModel(join_graph(query), rng.choice(COSTS) if rng.random() < 0.5 else any_costs(rng))


def holds(model: CostModel, best: float, factor: float, granted: Deadline = QUICK) -> float:
    """Whether what is said holds for a plan that is known to have `factor` times the least excess. Returns the bound."""
    ledger = Ledger(model)
    found = cheapest(ledger, (best - ledger.common) * factor, granted)
    assert ledger.common + found.bound <= best * ABOVE
    assert all(draft_of(ledger, shape).cpu >= best * SAME for shape in found.shapes)
    return ledger.common + found.bound if found.bound else 0.0


@settings(max_examples=60, deadline=None)
@given(queries(3, 5), st.sampled_from(COSTS), st.sampled_from([1.0, 1.5, 10.0]))
def test_no_plan_of_all_costs_less_than_the_bound(query: Query, costs: Costs, factor: float) -> None:
    model = CostModel(join_graph(query), costs)
    holds(model, min(plan.cpu for plan in every_plan(model)), factor)


@pytest.mark.parametrize("seed", range(120))
def test_the_bound_is_the_best_of_all_join_trees_where_there_is_time(seed: int) -> None:
    rng = random.Random(seed)
    model = a_model(rng, rng.choice((3, 4, 5, 6, 7, 8, 9, 10)), rng.choice(SHAPES))
    best = exact(Problem(model), Deadline.after(60.0))
    assert best.proof is Proof.OPTIMAL
    for factor in (1.0, 3.0):
        bound = holds(model, best.best.cpu, factor)
        assert bound == 0.0 or bound >= best.best.cpu * SAME


@pytest.mark.parametrize("n", [12, 14, 16])
@pytest.mark.parametrize("shape", ["chain", "star", "cycle", "snowflake", "random"])
def test_the_bound_is_never_above_where_work_is_short(n: int, shape: str) -> None:
    for seed in range(3):
        rng = random.Random(f"{n}{shape}{seed}")
        streams = min(n, 13) if shape == "star" else n  # exact search of larger stars takes seconds
        query = random_graph(rng, streams, shape, windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0), rows=0.2, theta=rng.choice([0.0, 0.2]))
        model = CostModel(join_graph(query), rng.choice(COSTS))
        best = exact(Problem(model), Deadline.after(60.0))
        assert best.proof is Proof.OPTIMAL
        for granted in (1e-4, 1e-3, 1e-2):
            holds(model, best.best.cpu, rng.choice((1.0, 1.2, 5.0)), replace(ENOUGH, granted=granted))


def test_a_better_plan_is_found_from_a_bad_one() -> None:
    query = random_graph(random.Random(7), 20, "random", windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    model = CostModel(join_graph(query), Costs())
    ledger = Ledger(model)
    best = exact(Problem(model), Deadline.after(60.0))
    least = best.best.cpu - ledger.common
    found = cheapest(ledger, 1.5 * least, replace(ENOUGH, granted=5.0))
    assert min(excess_of(ledger, shape) for shape in found.shapes) == pytest.approx(least, rel=1e-9)
    assert found.bound == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", [100, 101, 103])
def test_random_graphs_of_24_streams_are_proven_the_same_each_time(seed: int) -> None:
    query = random_graph(random.Random(seed), 24, "random", windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    problem = Problem(CostModel(join_graph(query), Costs()))
    assert one_number(problem)
    first, second = (anytime(problem, replace(ENOUGH, granted=2.0)) for _ in range(2))
    assert first.proof is Proof.OPTIMAL
    assert first.bound == first.best.cpu
    assert first == second


def test_a_plan_that_breaks_the_memory_cap_is_a_bound_and_no_answer() -> None:
    query = random_graph(random.Random(3), 22, "random", windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    model = CostModel(join_graph(query), Costs())
    free = anytime(Problem(model), replace(ENOUGH, granted=2.0))
    cap = model.leaves_bytes() + 0.5 * (free.best.memory_bytes - model.leaves_bytes())
    capped = anytime(Problem(model, Caps(memory_bytes=cap)), replace(ENOUGH, granted=2.0))
    assert capped.best.memory_bytes <= cap
    assert capped.bound is not None
    assert capped.bound <= capped.best.cpu
    assert capped.bound == pytest.approx(free.best.cpu, rel=1e-6)


def test_nothing_is_said_of_graphs_that_the_search_does_not_know() -> None:
    observed = random_graph(random.Random(1), 6, "random", observed=0.5)
    parts = random_graph(random.Random(1), 6, "random", parts=2)
    for query in (observed, parts):
        ledger = Ledger(CostModel(join_graph(query), Costs()))
        assert cheapest(ledger, 1.0, QUICK).bound == 0.0

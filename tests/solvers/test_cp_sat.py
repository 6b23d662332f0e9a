"""The integer program is a second opinion: it agrees with brute force and with the exact search, or says it cannot tell."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Proof
from models.request import Costs, Objective, Options, Query
from solvers.common.deadline import Deadline
from solvers.common.errors import MethodError
from solvers.jtree import cp_sat as program
from solvers.jtree.choice import objective_value
from solvers.jtree.compiled import ledger
from solvers.jtree.cp_sat import cp_sat
from solvers.jtree.exact import exact
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from tests.graphs import SHAPES, queries, random_costs, random_graph
from tests.solvers.brute_force import best_within, every_plan
from tests.solvers.search_models import keyed_model, mixed_model

ROUNDED = 1.0 + 1e-9
OBJECTIVES = (Objective.MIN_CPU, Objective.MIN_MEMORY)


def soon() -> Deadline:
    return Deadline.after(60.0)


@settings(max_examples=40, deadline=None)
@given(
    queries(1, 5),
    st.sampled_from([Costs(), Costs(probe=1e-6), Costs(join=0.0), Costs(scan=1e-9, append=1e-8), Costs(step=1e-4)]),
    st.sampled_from(OBJECTIVES),
    st.integers(0, 10**6),
)
def test_it_finds_the_optimum_that_brute_force_finds(query: Query, costs: Costs, objective: Objective, pick: int) -> None:
    model = CostModel(join_graph(query), costs)
    if len(model.graph) == 1:
        assert cp_sat(Problem(model), soon()).best.tree == 0
        return
    plans = every_plan(model)
    some = plans[pick % len(plans)]
    for caps in (Caps(), Caps(memory_bytes=some.memory_bytes * ROUNDED), Caps(some.cpu * ROUNDED, some.memory_bytes * ROUNDED)):
        problem = Problem(model, caps, objective)
        found = cp_sat(problem, soon())
        least = min(plan.cpu if objective is Objective.MIN_CPU else plan.memory_bytes for plan in best_within(plans, caps.cpu, caps.memory_bytes))
        assert found.proof is Proof.OPTIMAL
        assert caps.admit(found.best)
        assert objective_value(problem, found.best) == pytest.approx(least, rel=1e-8)


@settings(max_examples=25, deadline=None)
@given(queries(2, 5), st.sampled_from(OBJECTIVES))
def test_it_proves_that_nothing_fits(query: Query, objective: Objective) -> None:
    model = CostModel(join_graph(query), Costs())
    plans = every_plan(model)
    caps = Caps(min(plan.cpu for plan in plans) * 0.999, min(plan.memory_bytes for plan in plans) * 2)
    found = cp_sat(Problem(model, caps, objective), soon())
    assert not caps.admit(found.best)
    assert found.proof is Proof.OPTIMAL


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_it_agrees_with_the_exact_search(shape: str, objective: Objective) -> None:
    for seed in range(3):
        model = mixed_model(seed, 7, shape)
        cheapest = exact(Problem(model), soon()).best
        for caps in (Caps(), Caps(cheapest.cpu * 1.2, model.leaves_bytes() + (cheapest.memory_bytes - model.leaves_bytes()) * 0.7)):
            problem = Problem(model, caps, objective)
            one, other = cp_sat(problem, soon()), exact(problem, soon())
            assert one.proof is other.proof is Proof.OPTIMAL
            assert caps.admit(one.best) == caps.admit(other.best)
            if caps.admit(one.best):
                assert objective_value(problem, one.best) == pytest.approx(objective_value(problem, other.best), rel=1e-8)


def test_measured_joins_across_components_are_counted_at_the_root() -> None:
    for seed in range(30):
        rng = random.Random(seed)
        query = random_graph(rng, rng.randint(3, 6), rng.choice(SHAPES), parts=3, across=0.5, shuffled=True)
        model = CostModel(join_graph(query), random_costs(rng))
        found = cp_sat(Problem(model), soon())
        assert found.proof is Proof.OPTIMAL
        assert found.best.cpu == pytest.approx(min(plan.cpu for plan in every_plan(model)), rel=1e-8)


def test_joins_too_wide_for_the_ledger_have_their_best_orders_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As chains of 13 streams have them."""
    monkeypatch.setattr(ledger, "MAX_EXACT_INPUTS", 3)
    for seed in range(40):
        rng = random.Random(seed)
        query = random_graph(rng, rng.randint(4, 6), rng.choice(("chain", "cycle", "random")), windows=(1.0, 10.0), theta=0.3)
        # Dear states: then the best plans are wide.
        model = CostModel(join_graph(query), Costs(insert=1e-4, delete=1e-4, append=1e-4))
        found = cp_sat(Problem(model), soon())
        assert found.proof is Proof.OPTIMAL
        assert found.best.cpu == pytest.approx(min(plan.cpu for plan in every_plan(model)), rel=1e-8)


def test_a_program_too_large_is_not_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "MAX_SPLITS", 10)
    found = cp_sat(Problem(keyed_model(1, 8)), soon())
    assert found.proof is Proof.BOUNDED
    assert found.bound is not None
    assert found.bound <= found.best.cpu


@pytest.mark.parametrize("n", [8, 30])
def test_ten_milliseconds_yield_a_plan(n: int) -> None:
    found = cp_sat(Problem(keyed_model(2, n)), Deadline.after(0.01))
    assert found.proof in (Proof.BOUNDED, Proof.OPTIMAL)
    assert found.bound is not None
    assert found.bound <= found.best.cpu


def test_headroom_is_refused_with_a_method_that_would_do() -> None:
    with pytest.raises(MethodError, match="use exact or anytime"):
        cp_sat(Problem(keyed_model(1, 4), objective=Objective.MAX_HEADROOM), soon())


def test_the_same_problem_and_seed_have_the_same_plan() -> None:
    model = keyed_model(9, 9)
    caps = Caps(memory_bytes=model.leaves_bytes() * 1.5)
    assert cp_sat(Problem(model, caps, options=Options(seed=1)), soon()) == cp_sat(Problem(model, caps, options=Options(seed=1)), soon())

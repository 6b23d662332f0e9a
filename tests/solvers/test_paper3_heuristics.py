"""Paper 3's algorithms under their names: what they visit, where they stop, and what they do not claim."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Proof
from models.request import Costs, Objective, Query
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.mjoin import mjoin
from solvers.jtree.search import Found, Problem, Search
from solvers.jtree.shape import Draft, draft_of, mjoin_shape
from solvers.jtree.state_removal import binary_shape, remove_states, state_removal
from solvers.jtree.state_selection import select_states, state_selection
from solvers.jtree.two_layer import two_layer
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from solvers.model.tree import Join, joins
from tests.graphs import SHAPES, queries, random_graph
from tests.solvers.brute_force import every_plan
from tests.solvers.search_models import keyed_model, mixed_model

HEURISTICS: tuple[Search, ...] = (two_layer, state_selection, state_removal)
ROUNDED = 1.0 + 1e-9


def soon() -> Deadline:
    return Deadline.after(30.0)


def until() -> Callable[[Draft], Deadline]:
    end = soon()
    return lambda _: end


@settings(max_examples=50, deadline=None)
@given(queries(1, 5), st.sampled_from(HEURISTICS), st.sampled_from(list(Objective)), st.sampled_from([(math.inf, math.inf), (1e-2, 1e7)]))
def test_every_heuristic_returns_a_plan_that_brute_force_knows(query: Query, search: Search, objective: Objective, caps: tuple[float, float]) -> None:
    model = CostModel(join_graph(query), Costs())
    found = search(Problem(model, Caps(*caps), objective), soon())
    if len(model.graph) == 1:
        assert found.best.tree == 0
        return
    plans = {tuple(sorted(plan.joins)): plan for plan in every_plan(model)}
    for point in found.points:
        shape = tuple(sorted(tuple(1 << part if isinstance(part, int) else part.mask for part in node.inputs) for node in joins(point.tree)))
        assert point.cpu == pytest.approx(plans[shape].cpu, rel=1e-9)
        assert point.memory_bytes == pytest.approx(plans[shape].memory_bytes, rel=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
def test_state_selection_only_ever_lowers_cpu(shape: str) -> None:
    for seed in range(10):
        ledger = Ledger(mixed_model(seed, 8, shape))
        passed = list(select_states(ledger, until()))
        assert passed[0].cpu == draft_of(ledger, mjoin_shape(ledger)).cpu
        assert all(later.cpu < earlier.cpu for earlier, later in itertools.pairwise(passed))


@pytest.mark.parametrize("shape", SHAPES)
def test_state_removal_only_ever_lowers_memory_and_ends_at_the_mjoin(shape: str) -> None:
    for seed in range(10):
        ledger = Ledger(mixed_model(seed, 8, shape))
        passed = list(remove_states(ledger, binary_shape(ledger, soon()), soon()))
        assert all(later.memory_bytes <= earlier.memory_bytes * ROUNDED for earlier, later in itertools.pairwise(passed))
        assert passed[-1].shape == mjoin_shape(ledger)
        assert len(passed) == 8 - len(ledger.model.graph.components)


def test_state_removal_takes_the_state_with_the_smallest_quality_ratio() -> None:
    ledger = Ledger(keyed_model(4, 7))
    before, after = list(remove_states(ledger, binary_shape(ledger, soon()), soon()))[:2]
    (removed,) = before.shape.keys() - after.shape.keys()

    def ratio(state: int) -> float:
        user = next(mask for mask, inputs in before.shape.items() if state in inputs)
        merged = tuple(sorted([part for part in before.shape[user] if part != state] + list(before.shape[state]), key=lambda m: m & -m))
        shape = {mask: inputs for mask, inputs in before.shape.items() if mask != state} | {user: merged}
        return (draft_of(ledger, shape).cpu - before.cpu) / ledger.size(state)

    states = [mask for mask in before.shape if mask != ledger.model.graph.all]
    assert min(states, key=ratio) == removed


def test_state_selection_joins_the_edge_with_the_largest_frequency_over_weight_that_saves_cpu() -> None:
    # A chain whose middle edge is tiny: every pipeline runs over it, and its join is all but free to keep.
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": 50, "window": {"seconds": 20}} for name in "abcd"],
            "predicates": [
                {"left": "a.x", "right": "b.x", "selectivity": 0.01},
                {"left": "b.x", "right": "c.x", "selectivity": 1e-6},
                {"left": "c.x", "right": "d.x", "selectivity": 0.01},
            ],
        }
    )
    first = list(select_states(Ledger(CostModel(join_graph(query), Costs())), until()))[1]
    assert 0b0110 in first.shape


def test_optimize_dissolves_a_join_where_that_saves_cpu() -> None:
    """Some plan on some walk holds an mjoin below the root: only Optimize makes those."""
    for seed in range(60):
        model = CostModel(join_graph(random_graph(random.Random(seed), 7, "star")), Costs(insert=5e-6, delete=5e-6, append=1e-5))
        for draft in select_states(Ledger(model), until()):
            if any(len(inputs) > 2 and mask != model.graph.all for mask, inputs in draft.shape.items()):
                return
    raise AssertionError("no walk passed such a plan")


def _between_mjoin_and_bjtree(model: CostModel) -> Caps:
    """Caps that neither the mjoin nor the binary tree meets, and some plan on the walk between them does, if there is one."""
    ledger = Ledger(model)
    passed = list(remove_states(ledger, binary_shape(ledger, soon()), soon()))
    middle = passed[len(passed) // 2]
    return Caps(middle.cpu * ROUNDED, middle.memory_bytes * ROUNDED)


@pytest.mark.parametrize("seed", range(8))
def test_two_layer_finds_what_its_walks_find(seed: int) -> None:
    model = keyed_model(seed, 9)
    caps = _between_mjoin_and_bjtree(model)
    found = two_layer(Problem(model, caps), soon())
    assert caps.admit(found.best)


def test_two_layer_stops_at_the_mjoin_when_it_qualifies() -> None:
    model = keyed_model(2, 8)
    plain = mjoin(Problem(model), soon()).best
    found = two_layer(Problem(model, Caps(plain.cpu * 2, plain.memory_bytes * 2)), soon())
    assert isinstance(found.best.tree, Join)
    assert len(found.best.tree.inputs) == 8


def test_without_caps_two_layer_is_never_above_its_parts() -> None:
    for seed in range(8):
        problem = Problem(keyed_model(seed, 9))
        parts = [search(problem, soon()).best.cpu for search in (mjoin, state_selection, state_removal)]
        assert two_layer(problem, soon()).best.cpu <= min(parts) * ROUNDED


def test_windows_over_the_memory_cap_are_proof_that_nothing_fits() -> None:
    model = keyed_model(1, 6)
    found = two_layer(Problem(model, Caps(1e9, model.leaves_bytes() * 0.99)), soon())
    assert found.proof is Proof.OPTIMAL
    assert not Caps(1e9, model.leaves_bytes() * 0.99).admit(found.best)


def unsound_exits() -> list[tuple[Problem, Found]]:
    """Stars where some jtree needs less CPU than every binary tree, with the CPU cap between the two."""
    cases = []
    for seed in range(40):
        query = random_graph(random.Random(seed), 5, "star", log_selectivity=(-2.0, 0.0), windows=(0.1, 1.0, 10.0))
        model = CostModel(join_graph(query), Costs())
        plans = every_plan(model)
        least = min(plan.cpu for plan in plans)
        binary = min(plan.cpu for plan in plans if all(len(blocks) == 2 for blocks in plan.joins))
        if least < binary * 0.999:
            problem = Problem(model, Caps((least + binary) / 2, 1e18))
            cases.append((problem, two_layer(problem, soon())))
    return cases


def test_a_bjtree_over_the_cpu_cap_is_not_taken_for_a_proof() -> None:
    cases = unsound_exits()
    assert len(cases) >= 5
    assert all(problem.caps.admit(found.best) or found.proof is Proof.NONE for problem, found in cases)
    assert any(problem.caps.admit(found.best) for problem, found in cases)


@pytest.mark.parametrize("search", HEURISTICS)
def test_the_same_problem_has_the_same_answer(search: Search) -> None:
    one, other = (search(Problem(keyed_model(6, 16)), soon()) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("search", HEURISTICS)
def test_a_deadline_that_has_passed_still_yields_a_plan(search: Search) -> None:
    found = search(Problem(keyed_model(3, 40)), Deadline(0.0))
    assert math.isfinite(found.best.cpu)
    assert found.proof is Proof.NONE

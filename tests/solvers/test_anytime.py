"""Anytime search: optimal where one region holds the graph, never below its starts, honest about the rest."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Proof, Termination
from models.request import Costs, Objective, Options, Query
from solvers.common import deadline as deadlines
from solvers.common.deadline import Deadline
from solvers.jtree import anytime as anytime_module
from solvers.jtree import shape as shapes
from solvers.jtree.anytime import WHOLE, anytime
from solvers.jtree.choice import objective_value
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.regions import solve_region
from solvers.jtree.search import Problem, Search
from solvers.jtree.shape import draft_of, tree_of
from solvers.jtree.state_removal import state_removal
from solvers.jtree.state_selection import state_selection
from solvers.jtree.two_layer import two_layer
from solvers.model.cost import CostModel
from solvers.model.graph import bits, join_graph
from solvers.model.point import Caps, point_of
from solvers.model.tree import joins, leaf_mask
from tests.graphs import SHAPES, queries
from tests.solvers.brute_force import best_within, every_plan, frontier
from tests.solvers.clocks import Looks
from tests.solvers.search_models import keyed_model, mixed_model, paper3_model

ROUNDED = 1.0 + 1e-9
COSTS = (Costs(), Costs(probe=1e-6), Costs(join=0.0), Costs(scan=1e-9, append=1e-8), Costs(insert=1e-5, delete=1e-5), Costs(step=1e-5))


def soon() -> Deadline:
    """Budgets of a second, and a minute to spend them in."""
    return replace(Deadline.after(60.0), granted=1.0)


@settings(max_examples=60, deadline=None)
@given(queries(2, 5), st.sampled_from(COSTS))
def test_a_region_has_the_frontier_of_all_its_trees(query: Query, costs: Costs) -> None:
    model = CostModel(join_graph(query), costs)
    ledger = Ledger(model)
    if len(model.graph.components) > 1:
        return
    solutions, whole = solve_region(ledger, [1 << i for i in range(len(model.graph))])
    assert whole
    plans = every_plan(model)
    expected = frontier(plans)
    drafts = [draft_of(ledger, {sum(inputs): inputs for inputs in way.joins}) for way in solutions]
    assert min(draft.cpu for draft in drafts) == pytest.approx(expected[0].cpu, rel=1e-9)
    assert min(draft.memory_bytes for draft in drafts) == pytest.approx(expected[-1].memory_bytes, rel=1e-9)
    for plan in expected:
        assert any(draft.cpu <= plan.cpu * ROUNDED and draft.memory_bytes <= plan.memory_bytes * ROUNDED for draft in drafts)


@settings(max_examples=40, deadline=None)
@given(queries(2, 6), st.sampled_from(COSTS))
def test_a_ledgers_figures_are_the_prices(query: Query, costs: Costs) -> None:
    model = CostModel(join_graph(query), costs)
    ledger = Ledger(model)
    for point in anytime(Problem(model), soon()).points:
        shape = {node.mask: tuple(leaf_mask(part) for part in node.inputs) for node in joins(point.tree)}
        draft = draft_of(ledger, shape)
        assert draft.cpu == pytest.approx(point.cpu, rel=1e-9)
        assert draft.memory_bytes == pytest.approx(point.memory_bytes, rel=1e-9)
        assert point_of(model, tree_of(ledger, shape)).cpu == pytest.approx(point.cpu, rel=1e-9)


@settings(max_examples=80, deadline=None)
@given(queries(1, 5), st.sampled_from(COSTS), st.sampled_from([Objective.MIN_CPU, Objective.MIN_MEMORY]), st.integers(0, 10**6))
def test_small_graphs_are_solved_to_the_optimum(query: Query, costs: Costs, objective: Objective, pick: int) -> None:
    model = CostModel(join_graph(query), costs)
    if len(model.graph) == 1:
        assert anytime(Problem(model), soon()).best.tree == 0
        return
    plans = every_plan(model)
    some = plans[pick % len(plans)]
    caps = (
        Caps(),
        Caps(cpu=some.cpu * ROUNDED),
        Caps(memory_bytes=some.memory_bytes * ROUNDED),
        Caps(some.cpu * ROUNDED, some.memory_bytes * ROUNDED),
    )
    for cap in caps:
        problem = Problem(model, cap, objective)
        found = anytime(problem, soon())
        fitting = best_within(plans, cap.cpu, cap.memory_bytes)
        least = min(plan.cpu if objective is Objective.MIN_CPU else plan.memory_bytes for plan in fitting)
        assert cap.admit(found.best) or len(model.graph.components) > 1
        if found.proof is Proof.OPTIMAL:
            assert objective_value(problem, found.best) == pytest.approx(least, rel=1e-8)
        else:
            assert found.bound is not None
            assert found.bound <= least * ROUNDED
        assert found.proof is Proof.OPTIMAL or len(model.graph.components) > 1 or len(model.graph) < 3


@settings(max_examples=40, deadline=None)
@given(queries(2, 5), st.sampled_from(list(Objective)))
def test_caps_that_nothing_meets_are_never_called_met(query: Query, objective: Objective) -> None:
    model = CostModel(join_graph(query), Costs())
    plans = every_plan(model)
    caps = Caps(min(plan.cpu for plan in plans) * 0.999, min(plan.memory_bytes for plan in plans) * 2)
    assert not caps.admit(anytime(Problem(model, caps, objective), soon()).best)


def _optimum(model: CostModel) -> float:
    """The least CPU of a graph that is solved as one region, however long that takes."""
    ledger = Ledger(model)
    solutions, _ = solve_region(ledger, [1 << i for i in range(len(model.graph))], in_memory=False)
    return ledger.common + solutions[0].excess


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "clique"])
def test_the_neighbourhoods_find_the_optimum_of_nearly_every_graph_beyond_a_region(shape: str) -> None:
    """11 streams: two more than one region holds."""
    hits = 0
    for seed in range(6):
        model = mixed_model(seed, WHOLE + 2, shape)
        found, least = anytime(Problem(model), soon()).best.cpu, _optimum(model)
        assert found >= least * (1 - 1e-9)
        hits += found <= least * (1 + 1e-6)
    assert hits >= 5


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tight", [False, True])
def test_anytime_is_never_worse_than_two_layer(shape: str, tight: bool) -> None:
    for seed in range(3):
        model = mixed_model(seed, 12 if shape == "clique" else 14, shape)
        caps = Caps(memory_bytes=model.leaves_bytes() * 1.2) if tight else Caps()
        problem = Problem(model, caps)
        found, start = anytime(problem, soon()).best, two_layer(problem, soon()).best
        assert caps.admit(found) >= caps.admit(start)
        if caps.admit(start):
            assert found.cpu <= start.cpu * ROUNDED


@pytest.mark.parametrize("n", [100, 200])
@pytest.mark.parametrize("shape", ["chain", "random", "star"])
def test_large_graphs_have_a_plan_and_a_bound_below_it(n: int, shape: str) -> None:
    model = keyed_model(n, n, shape)
    found = anytime(Problem(model), Deadline.after(1.0))
    assert found.proof in (Proof.BOUNDED, Proof.OPTIMAL)
    assert found.bound is not None
    assert 0.0 < found.bound <= found.best.cpu
    assert set(bits(model.graph.all)) == set(range(n))
    assert all(len(node.inputs) >= 2 and model.graph.connected(node.mask) for node in joins(found.best.tree))


@pytest.mark.parametrize("n", [30, 60])
def test_large_graphs_come_to_an_end_and_are_not_worse_than_two_layer(n: int) -> None:
    """With time enough, so that a busy machine does not decide; how well time limits are kept is for `tests.bench.bench_deadlines` to say."""
    problem = Problem(keyed_model(7, n))
    found, other = anytime(problem, replace(Deadline.after(300.0), granted=1.0)), two_layer(problem, Deadline.after(300.0))
    assert found.termination is other.termination is Termination.COMPLETE
    assert found.best.cpu <= other.best.cpu * ROUNDED


@pytest.mark.parametrize("looks", [60, 100, 300, 1000])
@pytest.mark.parametrize(("n", "shape"), [(60, "random"), (100, "random"), (60, "star"), (60, "chain")])
def test_a_search_that_is_cut_is_not_worse_than_two_layer_in_the_same_time(n: int, shape: str, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(keyed_model(7, n, shape))
    monkeypatch.setattr(deadlines, "time", Looks())
    monkeypatch.setattr(shapes, "time", Looks())
    found = anytime(problem, replace(Deadline.after(looks), granted=1.0))
    assert found.best.cpu <= two_layer(problem, Deadline.after(looks)).best.cpu * ROUNDED


def test_what_was_improved_until_the_time_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan with one probe more than its start is not given up because the time that was kept for writing is that of the start."""
    problem = Problem(keyed_model(7, 60))
    monkeypatch.setattr(deadlines, "time", Looks())
    monkeypatch.setattr(shapes, "time", Looks())
    found, start = anytime(problem, Deadline.after(300)), two_layer(problem, Deadline.after(300))
    assert found.termination is Termination.TIME_LIMIT
    assert found.best.cpu < start.best.cpu * 0.99


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("seed", range(3))
def test_under_both_caps_it_is_not_worse_than_any_walk(objective: Objective, seed: int) -> None:
    """A walk ends at its first plan within both caps; its later ones are better starts."""
    model = keyed_model(seed, 24)
    caps = Caps(two_layer(Problem(model), soon()).best.cpu * 3, model.leaves_bytes() * 3)
    problem = Problem(model, caps, objective)
    searches: tuple[Search, ...] = (anytime, two_layer, state_selection, state_removal)
    found, *starts = (objective_value(problem, walked(problem, soon()).best) for walked in searches)
    for start in starts:
        assert found >= start / ROUNDED if objective is Objective.MAX_HEADROOM else found <= start * ROUNDED


def test_the_starts_under_loose_caps_are_those_without_caps(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in ("improved", "persisted"):
        monkeypatch.setattr(anytime_module._Search, steps, lambda _, shape, *__: shape)
    model = keyed_model(7, 60)
    free = anytime(Problem(model), soon()).best
    loose = anytime(Problem(model, Caps(free.cpu * 100, free.memory_bytes * 100)), soon()).best
    assert loose.cpu <= free.cpu * ROUNDED


def test_a_hundred_streams_in_papers_setting_are_within_a_per_cent_of_the_bound() -> None:
    model = paper3_model(2, 100)
    found = anytime(Problem(model), Deadline.after(1.0))
    assert found.bound is not None
    assert found.bound <= found.best.cpu <= found.bound * 1.01


@pytest.mark.parametrize("n", [2, 12, 40, 200])
@pytest.mark.parametrize("objective", list(Objective))
def test_ten_milliseconds_yield_a_plan_and_an_honest_proof(n: int, objective: Objective) -> None:
    model = keyed_model(5, n)
    caps = Caps(1e3, model.leaves_bytes() * 3)
    problem = Problem(model, caps, objective)
    found = anytime(problem, Deadline.after(0.01))
    value = objective_value(problem, found.best)
    assert math.isfinite(value)
    if found.proof is Proof.BOUNDED:
        assert found.bound is not None
        assert value <= found.bound if objective is Objective.MAX_HEADROOM else found.bound <= value * ROUNDED


def test_the_same_problem_and_seed_have_the_same_plan() -> None:
    one, other = (anytime(Problem(keyed_model(6, 24), options=Options(seed=3)), soon()) for _ in range(2))
    assert one == other
    assert one.termination is Termination.COMPLETE


def test_a_cut_search_says_so() -> None:
    found = anytime(Problem(keyed_model(6, 60)), Deadline.after(0.01))
    assert found.termination is Termination.TIME_LIMIT


@pytest.mark.parametrize("seed", range(4))
def test_the_most_headroom_found_is_below_its_bound_and_not_below_the_cheapest_plans(seed: int) -> None:
    model = keyed_model(seed, 12)
    cheapest = anytime(Problem(model), soon()).best
    caps = Caps(cheapest.cpu * 3, model.leaves_bytes() * 4)
    problem = Problem(model, caps, Objective.MAX_HEADROOM)
    found = anytime(problem, soon())
    assert found.bound is not None
    assert 1.0 <= objective_value(problem, found.best) <= found.bound


def test_components_are_planned_each_on_its_own() -> None:
    for seed in range(6):
        model = mixed_model(seed, 13, parts=3)
        tree = anytime(Problem(model), soon()).best.tree
        masks = {node.mask for node in joins(tree)} | {1 << i for i in range(13)}
        assert set(model.graph.components) <= masks


def test_a_longer_time_limit_pays_for_more_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []

    def counted(*given: Any, **named: Any) -> Any:
        solved[-1] += 1
        return solve_region(*given, **named)

    monkeypatch.setattr(anytime_module, "solve_region", counted)
    model = mixed_model(7, 40)  # sub-joins are observed, so that no proof ends it
    costs = []
    for granted in (0.25, 1.0):
        solved.append(0)
        costs.append(anytime(Problem(model), Deadline(math.inf, granted=granted)).best.cpu)
    assert solved[0] < solved[1]
    assert costs[1] <= costs[0] * ROUNDED

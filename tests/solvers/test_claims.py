"""Claims of plans and frontiers that nothing may contradict; `tests.bench.random_claims` draws a thousand requests."""

from __future__ import annotations

import math
import random

import pytest

from models.jtree import JtreeRequest
from models.plan import Proof, Termination
from models.request import CacheMode, Method, Objective, Options, PlanRequest, Resources
from solvers.common.deadline import Deadline
from solvers.frontier import frontier
from solvers.join_tree import solve_jtree
from solvers.jtree.compiled.questions import Limits
from solvers.jtree.exact import exact
from solvers.jtree.partials import least_cpu_of_all
from solvers.jtree.search import Problem
from solvers.model.attributes import Attributes
from solvers.model.point import Caps
from solvers.planner import plan, problem_of
from tests.graphs import random_graph
from tests.solvers.brute_force import every_plan
from tests.solvers.caches.test_in_plans import fast_probe
from tests.solvers.claims import contradictions, random_request


@pytest.mark.parametrize("seed", range(40))
def test_nothing_contradicts_a_plan_or_its_frontier(seed: int) -> None:
    assert contradictions(random_request(seed)) == []


@pytest.mark.parametrize("seconds", [1e-4, 0.02, 10.0])
@pytest.mark.parametrize("method", [method for method in Method if method is not Method.MJOIN])
def test_a_bound_that_leaves_nothing_is_a_proof_whoever_found_it(method: Method, seconds: float) -> None:
    """Chains whose streams keep nothing but their windows at best, so that the quick bound of the memory is reached."""
    for n in (3, 30):
        query = random_graph(random.Random(n), n, "chain", log_selectivity=(-4.0, -1.0))
        for caches in (CacheMode.OFF, CacheMode.AUTO):
            options = Options(method=method, caches=caches, time_limit=seconds)
            made = plan(PlanRequest(query=query, objective=Objective.MIN_MEMORY, options=options))
            assert (made.gap is not None and made.gap < 1e-9) == (made.proof is Proof.OPTIMAL)
            if made.bound is not None and caches is CacheMode.OFF:
                assert (made.tree_proof, made.tree_bound) == (made.proof, made.bound)
        alone = solve_jtree(JtreeRequest(query=query, objective=Objective.MIN_MEMORY, method=method, time_limit=seconds))
        assert (alone.gap is not None and alone.gap < 1e-9) == (alone.proof is Proof.OPTIMAL)


def test_the_headroom_of_a_plan_at_its_bound_but_for_rounding_is_proven() -> None:
    """What limits is the memory of the windows, which every plan keeps; the bound of it is found by halving, and is a little above."""
    query = random_graph(random.Random(5), 9, "star", log_selectivity=(-4.0, -1.0))
    windows = problem_of(PlanRequest(query=query)).model.leaves_bytes()
    asked = {"query": query, "objective": Objective.MAX_HEADROOM, "resources": Resources(memory_bytes=2.5 * windows)}
    made = plan(PlanRequest(options=Options(method=Method.ANYTIME, caches=CacheMode.OFF), **asked))
    assert (made.proof, made.gap, made.bound) == (Proof.OPTIMAL, 0.0, made.headroom)


def _with_caches_that_pay() -> PlanRequest:
    """Paper 1's fast probe with too little memory for the best tree: a cache is smaller, and nearly as good."""
    return PlanRequest.model_validate({"query": fast_probe(), "resources": {"memory_bytes": 1.7e6}})


def test_a_plan_of_plans_beats_no_point_of_the_frontier() -> None:
    request = _with_caches_that_pay()
    best, along = plan(request), frontier(request)
    assert best.caches
    assert any(point.plan.caches for point in along.points)
    assert not any(best.cost.cpu < point.cpu and best.cost.memory_bytes < point.memory_bytes for point in along.points)


def test_a_frontier_with_caches_is_bounded_and_says_what_was_left_out() -> None:
    request = _with_caches_that_pay()
    along = frontier(request)
    assert (along.proof, along.tree_proof) == (Proof.BOUNDED, Proof.OPTIMAL)
    assert any("caches" in sentence for sentence in along.warnings)
    without = frontier(request.model_copy(update={"options": Options(caches=CacheMode.OFF)}))
    assert (without.proof, without.tree_proof, without.warnings) == (Proof.OPTIMAL, Proof.OPTIMAL, [])


def test_where_no_cache_can_pay_the_best_tree_is_proven_the_best_plan() -> None:
    """Every value comes once in its window, so a cache never hits."""
    streams = [{"name": name, "rate": 100.0, "window": {"seconds": 10}, "distinct": {"k": 1000, "l": 1000}} for name in "ABCD"]
    predicates = [{"left": f"{a}.k", "right": f"{b}.l", "selectivity": 0.001} for a, b in ("AB", "BC", "CD")]
    made = plan(PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}}))
    assert (made.proof, made.gap) == (Proof.OPTIMAL, 0.0)
    assert made.bound == made.tree_bound == made.cost.cpu


def test_what_is_proven_of_the_tree_is_kept_beside_a_plan_with_caches() -> None:
    made = plan(_with_caches_that_pay())
    without = plan(_with_caches_that_pay().model_copy(update={"options": Options(caches=CacheMode.OFF)}))
    assert made.caches and made.tree_proof is Proof.OPTIMAL
    assert made.tree_bound == without.bound == without.tree_bound
    assert made.bound is not None and made.bound <= made.cost.cpu < without.cost.cpu
    assert (without.proof, without.bound) == (without.tree_proof, without.tree_bound)


@pytest.mark.parametrize("method", [Method.MJOIN, Method.BJTREE])
def test_the_best_of_a_smaller_space_is_not_called_optimal(method: Method) -> None:
    """A star whose best plan is neither an mjoin nor a binary tree."""
    for seed in range(20):
        request = PlanRequest(
            query=random_graph(random.Random(seed), 5, "star", windows=(10.0, 60.0)), options=Options(method=method, caches=CacheMode.OFF)
        )
        best = plan(request.model_copy(update={"options": Options(caches=CacheMode.OFF)}))
        made = plan(request)
        if made.cost.cpu > best.cost.cpu * (1 + 1e-6):
            assert made.proof is not Proof.OPTIMAL and made.tree_proof is not Proof.OPTIMAL
            return
    raise AssertionError("no graph told the spaces apart")


@pytest.mark.parametrize("seed", range(30))
def test_the_floor_with_caches_is_never_above_the_best_tree(seed: int) -> None:
    rng = random.Random(seed)
    query = random_graph(rng, rng.choice((3, 4, 5)), rng.choice(("chain", "star", "cycle", "clique")), theta=rng.choice((0.0, 0.3)))
    request = PlanRequest(query=query)
    model = problem_of(request).model
    least = min(tree.cpu for tree in every_plan(model))
    floor = least_cpu_of_all(model, Attributes.of(query, model.graph), math.inf, Deadline.after(60))
    assert floor is not None and floor <= least * (1 + 1e-9)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("cut", range(1, 12, 2))
def test_a_search_that_is_cut_while_it_says_what_is_lacking_claims_no_bound_above_the_least(
    objective: Objective, cut: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing fits, and time is over after some of the searches that say what it would take."""
    from solvers.jtree import component as module

    model = problem_of(PlanRequest(query=random_graph(random.Random(3), 9, "random"))).model
    within = exact(Problem(model), Deadline.after(60))
    caps = Caps(within.best.cpu * 0.9, model.leaves_bytes() * 1.01)
    asked = 0
    searched = module.Component.search

    def cut_search(self: module.Component, limits: Limits, deadline: Deadline) -> module.Answer:
        nonlocal asked
        asked += 1
        answer = searched(self, limits, deadline)
        if asked <= cut:
            return answer
        return replace_answer(answer)

    def replace_answer(answer: module.Answer) -> module.Answer:
        """Its dearest plan alone, as of a search that ended early."""
        return answer._replace(complete=False, rows=answer.rows[-1:])

    monkeypatch.setattr(module.Component, "search", cut_search)
    found = exact(Problem(model, caps, objective), Deadline.after(60))
    monkeypatch.undo()
    least = {
        Objective.MIN_CPU: within.best.cpu,
        Objective.MIN_MEMORY: model.leaves_bytes(),
    }
    if objective is Objective.MAX_HEADROOM:
        whole = exact(Problem(model, caps, objective), Deadline.after(60))
        assert found.bound is None or (whole.bound is not None and found.bound >= whole.bound * (1 - 1e-9))
    else:
        assert found.bound is not None and found.bound <= least[objective] * (1 + 1e-9)


def test_a_cut_search_says_why_it_ended_and_a_whole_one_that_it_is_complete() -> None:
    query = random_graph(random.Random(5), 14, "clique", log_selectivity=(-0.5, 0.0))
    options = Options(method=Method.EXACT, time_limit=0.05)
    made = plan(PlanRequest(query=query, options=options))
    assert made.termination is Termination.TIME_LIMIT
    assert "The search ended at its time limit." in made.explanation
    small = plan(PlanRequest(query=random_graph(random.Random(5), 5, "chain"), options=replace_time(options, 30.0)))
    assert small.termination is Termination.COMPLETE


def replace_time(options: Options, seconds: float) -> Options:
    return options.model_copy(update={"time_limit": seconds})


def test_a_frontier_of_plans_with_caches_alone_claims_nothing_wrong() -> None:
    request = random_request(2_000_804)  # no tree fits its caps, and with caches two plans do
    assert all(point.plan.caches for point in frontier(request).points)
    assert contradictions(request) == []

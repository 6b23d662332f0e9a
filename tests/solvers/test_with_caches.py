"""The bound of all plans with caches by rising cost: never above the best plan of all, and no looser than other bounds."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from models.plan import Proof
from models.request import CacheMode, Options, PlanRequest
from solvers.common.deadline import Deadline
from solvers.jtree.partials import least_cpu_of_all
from solvers.jtree.search import Problem
from solvers.jtree.with_caches import key_classes, least_with_caches
from solvers.planner import plan, problem_of
from tests.graphs import random_graph
from tests.solvers.caches.test_together import least_of_every_plan, request_of
from tests.solvers.compiled.test_cached_families import with_shared_attributes

ABOVE = 1.0 + 1e-9
ENOUGH = Deadline.after(3600.0)
QUICK = replace(ENOUGH, granted=1.0)


def bound_of(problem: Problem, known: float, granted: Deadline = QUICK) -> float:
    return least_with_caches(problem.model, problem.attributes, known, granted).cpu


@pytest.mark.parametrize("seed", range(1000, 1080))
def test_no_plan_with_caches_of_all_trees_and_orders_is_below_the_bound(seed: int) -> None:
    request = request_of(seed)
    if seed % 2:
        request = request.model_copy(update={"query": with_shared_attributes(random.Random(seed), request.query)})
    problem = problem_of(request)
    best = least_of_every_plan(problem)
    for factor in (1.0, 1.5):
        assert bound_of(problem, best * factor) <= best * ABOVE


def test_most_of_these_bounds_are_the_best_plan() -> None:
    close = [bound_of(problem := problem_of(request_of(seed)), 2.0 * (best := least_of_every_plan(problem))) / best for seed in range(40)]
    assert sum(share > 1.0 - 1e-8 for share in close) >= 30


@pytest.mark.parametrize("seed", range(30))
def test_the_bound_is_not_above_plans_chosen_together_and_seldom_below_that_of_all_sets(seed: int) -> None:
    problem = problem_of(request_of(seed + 200, (5, 6)))
    made = plan(request_of(seed + 200, (5, 6)))
    other = least_cpu_of_all(problem.model, problem.attributes, math.inf, Deadline.after(60.0))
    bound = bound_of(problem, made.cost.cpu * 1.5)
    assert made.proof is Proof.OPTIMAL and other is not None
    assert other * (1.0 - 1e-3) <= bound <= made.cost.cpu * ABOVE


@pytest.mark.parametrize("granted", [1e-4, 1e-3, 1e-2])
def test_the_bound_holds_where_work_is_short(granted: float) -> None:
    for seed in range(12):
        request = request_of(seed + 400, (5, 6))
        made = plan(request)
        assert bound_of(problem_of(request), made.cost.cpu * 1.2, replace(ENOUGH, granted=granted)) <= made.cost.cpu * ABOVE


@pytest.mark.parametrize("seed", range(24))
def test_the_bound_is_not_above_plans_with_caches_of_up_to_16_streams(seed: int) -> None:
    request = request_of(seed + 700, (8, 10, 12, 14, 16))
    request = request.model_copy(update={"options": Options(time_limit=1.0)})
    made = plan(request)
    for factor in (1.0, 1.3):
        assert bound_of(problem_of(request), made.cost.cpu * factor) <= made.cost.cpu * ABOVE


def large(seed: int, n: int) -> PlanRequest:
    query = random_graph(random.Random(seed), n, "random", windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    return PlanRequest(query=query, options=Options(time_limit=100.0))


def test_plans_of_24_streams_are_proven_with_caches_allowed_and_their_bound_is_no_higher_than_without() -> None:
    proven = 0
    for seed in (100, 101, 104):
        request = large(seed, 24)
        problem = problem_of(request)
        made = plan(request.model_copy(update={"options": Options(time_limit=100.0, caches=CacheMode.OFF)}))
        assert made.proof is Proof.OPTIMAL
        first, second = (least_with_caches(problem.model, problem.attributes, made.cost.cpu, QUICK) for _ in range(2))
        assert first == second
        assert 0.99 * made.cost.cpu <= first.cpu <= made.cost.cpu * ABOVE
        proven += first.cpu >= made.cost.cpu / ABOVE
    assert proven >= 2


@pytest.mark.parametrize(("shape", "n", "searched"), [("chain", 12, False), ("chain", 16, False), ("cycle", 14, False), ("random", 16, True)])
def test_chains_and_cycles_are_searched_only_where_more_than_a_second_is_granted(shape: str, n: int, searched: bool) -> None:
    query = random_graph(random.Random(n), n, shape, windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    problem = problem_of(PlanRequest(query=query))
    known = plan(PlanRequest(query=query)).cost.cpu
    soon, patient = (least_with_caches(problem.model, problem.attributes, known, replace(ENOUGH, granted=s), 0.99 * known).cpu for s in (1.0, 2.0))
    assert (soon > 0.0) is searched and patient > 0.0


def test_cycles_of_a_wide_gap_are_searched_soon() -> None:
    query = random_graph(random.Random(12), 12, "cycle", windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    problem = problem_of(PlanRequest(query=query))
    known = plan(PlanRequest(query=query)).cost.cpu
    assert bound_of(problem, known) > 0.0


def test_key_classes_count_a_predicate_that_is_said_twice_once() -> None:
    query = random_graph(random.Random(3), 3, "chain", windows=(10.0,))
    query = query.model_copy(update={"predicates": [query.predicates[0], *query.predicates]})
    keys = key_classes(problem_of(PlanRequest(query=query)).attributes, 1.0)
    assert sorted(keys.predicate_class.tolist()) == [0, 0, 0, 0, 1, 1]
    assert [value > 0.0 for value, k in zip(keys.values, keys.predicate_class, strict=True)] == [k == 1 for k in keys.predicate_class]


def test_nothing_is_said_of_graphs_that_the_search_does_not_know() -> None:
    for query in (random_graph(random.Random(1), 8, "random", observed=0.5), random_graph(random.Random(1), 8, "random", parts=2)):
        assert bound_of(problem_of(PlanRequest(query=query)), 1.0) == 0.0

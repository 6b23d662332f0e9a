"""Whether a cache could pay in a join, against the best caches and orders that exact choice finds for it."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.request import PlanRequest
from solvers.caches.join_choice import best_choice
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.paying import cache_could_pay, partial_results, unions_of
from solvers.jtree.partials import JoinCosts, join_costs, key_predicates
from solvers.jtree.search import Problem
from solvers.model.connected import partitions
from solvers.planner import problem_of
from tests.graphs import SHAPES, random_graph

SEEDS = range(60)


def posed(seed: int) -> tuple[Problem, JoinCosts]:
    """A graph of all kinds: rows, several predicates a pair, measured sets; selectivities of about a match a window, where caches may pay or not."""
    rng = random.Random(seed)
    query = random_graph(
        rng,
        rng.choice((3, 4, 5)),
        rng.choice(SHAPES),
        windows=(1.0, 10.0, 60.0),
        log_selectivity=rng.choice(((-2.5, -0.5), (-4.0, -2.0))),
        rows=rng.choice((0.0, 0.5)),
        theta=rng.choice((0.0, 0.0, 0.2)),
        observed=rng.choice((0.0, 0.2)),
        equalities=0.3,
        shuffled=True,
    )
    problem = problem_of(PlanRequest(query=query))
    costs = join_costs(problem.model, problem.attributes)
    assert costs is not None
    return problem, costs


def test_cache_could_pay_says_no_only_where_the_best_caches_save_nothing() -> None:
    said = {True: 0, False: 0}
    for seed in SEEDS:
        problem, costs = posed(seed)
        graph = problem.model.graph
        for blocks in partitions(graph.neighbours, graph.all):
            if len(blocks) < 3:
                continue
            could = costs.cache_could_pay(blocks)
            said[could] += 1
            if not could:
                choice = best_choice(problem.model, problem.attributes, blocks, False, Deadline.after(60.0))
                assert choice is not None and not choice.uses and choice.saves <= 1e-12 * problem.model.rate(graph.all)
    assert min(said.values()) > 30, said


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_unions_of_and_partial_results_are_those_of_all_orders(seed: int) -> None:
    _, costs = posed(seed)
    sets = costs._part.sets
    inputs = np.arange(sets.n)
    places = unions_of(sets, inputs)
    masks = sets.mask.tolist()
    assert [masks[place] if place >= 0 else None for place in places[1:]] == [union if union in masks else None for union in range(1, 1 << sets.n)]
    for visited in range(1, 1 << sets.n):
        if places[visited] < 0:
            continue
        least = np.empty(places.size)
        partial_results(sets.size, places, visited, least)
        for union in range(1, 1 << sets.n):
            assert least[union] == pytest.approx(_fewest(sets.size, places, visited, union)), (visited, union)


def _fewest(sizes: np.ndarray, places: np.ndarray, visited: int, union: int) -> float:
    """By trying every input as the next one."""
    if visited == union:
        return 0.0
    found = float("inf")
    for x in range(int(places.size).bit_length() - 1):
        after = visited | 1 << x
        if after != visited and after & ~union == 0 and places[after] >= 0:
            rest = _fewest(sizes, places, after, union)
            found = min(found, rest + (0.0 if after == union else float(sizes[places[after]])))
    return found


def test_cache_could_pay_is_the_same_in_plain_python() -> None:
    for seed in SEEDS[:15]:
        problem, costs = posed(seed)
        part = costs._part
        keys = key_predicates(part, problem.attributes)
        inputs = np.arange(part.sets.n)
        assert cache_could_pay(part.sets, part.prices, keys, inputs) == cache_could_pay.py_func(part.sets, part.prices, keys, inputs)  # type: ignore[attr-defined]

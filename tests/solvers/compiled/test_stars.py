"""The best plan of a star over few sets of leaves, against exact search over all connected sets."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from models.request import Comparison, PlanRequest
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.stars import best_chain, join_of_leaves
from solvers.jtree.exact import exact
from solvers.jtree.star import best_of_star
from solvers.model.probe_order import best_join
from solvers.planner import problem_of
from tests.graphs import random_graph


@pytest.mark.parametrize("seed", range(32))
def test_best_chain_of_a_star_is_the_best_of_all_join_trees(seed: int) -> None:
    rng = random.Random(seed)
    query = random_graph(
        rng,
        14 if seed >= 30 else rng.choice((4, 5, 6, 7, 8)),
        "star",
        windows=(10.0, 60.0, 300.0),
        log_selectivity=rng.choice(((-3.0, -1.0), (-2.5, -2.0))),
    )
    equal = [predicate.model_copy(update={"op": Comparison.EQ}) for predicate in query.predicates]
    problem = problem_of(PlanRequest(query=query.model_copy(update={"predicates": equal})))
    found = best_of_star(problem.model, Deadline.after(60))
    if found is not None:
        assert found.cpu == pytest.approx(exact(problem, Deadline.after(60)).best.cpu, rel=1e-9)


def test_best_chain_is_used_for_most_of_these_stars_and_has_joins_of_several_leaves() -> None:
    widths = []
    for seed in range(30):
        rng = random.Random(seed)
        query = random_graph(rng, 7, "star", windows=(10.0, 60.0), log_selectivity=(-3.0, -1.0))
        equal = [predicate.model_copy(update={"op": Comparison.EQ}) for predicate in query.predicates]
        model = problem_of(PlanRequest(query=query.model_copy(update={"predicates": equal}))).model
        if (found := best_of_star(model, Deadline.after(60))) is not None:
            widths.append(max(len(node.inputs) for node in model.price(found.tree).nodes))
    assert len(widths) > 10 and max(widths) > 2


def test_best_chain_told_to_stop_ends() -> None:
    hub, ones = np.array([10.0, 1.0]), np.ones(3)
    least, before = best_chain(hub, ones, ones, np.zeros(3, np.int64), np.array([3], np.int64), np.ones(2), np.ones(1, np.int64))
    assert math.isinf(least) and before.tolist() == [-1] * 4


@pytest.mark.parametrize("seed", range(10))
def test_join_of_leaves_is_the_price_of_the_partial_results(seed: int) -> None:
    query = random_graph(random.Random(seed), 5, "star", windows=(10.0, 60.0))
    equal = [predicate.model_copy(update={"op": Comparison.EQ}) for predicate in query.predicates]
    model = problem_of(PlanRequest(query=query.model_copy(update={"predicates": equal}))).model
    graph, costs = model.graph, model.costs
    growth = {i: model.size(1 | 1 << i) / graph.window_tuples[0] for i in range(1, 5)}
    leaves = sorted(growth, key=lambda i: growth[i])
    seconds = np.array([1.0 / graph.window_seconds[i] for i in leaves])
    found = join_of_leaves(graph.window_tuples[0], 1.0 / graph.window_seconds[0], np.array([growth[i] for i in leaves]), seconds, 4)
    join = best_join(model, [1 << i for i in range(5)])
    partial = math.fsum(term.value for term in join.terms if term.made not in (graph.all, term.arriving))
    assert costs.join * found == pytest.approx(partial, rel=1e-9)

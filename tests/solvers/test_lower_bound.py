"""The bounds are never above what they bound, and not empty."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import Costs, Query
from solvers.common.deadline import Deadline
from solvers.jtree.greedy_tree import greedy_tree
from solvers.jtree.lower_bound import (
    FRACTION,
    cpu_lower_bound,
    exp2_floor,
    headroom_upper_bound,
    huffman,
    log2_floor,
    memory_lower_bound,
    smallest_joins,
)
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps, point_of
from solvers.model.probe_order import best_orders
from solvers.model.sensitivity import headroom
from solvers.model.tree import Tree
from tests.graphs import queries
from tests.solvers.brute_force import every_plan
from tests.solvers.compiled.cases import a_query, any_costs
from tests.solvers.reference import Reference
from tests.solvers.search_models import keyed_model, paper3_model

COSTS = (
    Costs(),
    Costs(probe=1e-6),
    Costs(join=0.0),
    Costs(scan=1e-9, append=1e-8),
    Costs(insert=1e-5, delete=1e-5, append=5e-6),
    Costs(insert=0.0, delete=0.0),
    Costs(step=1e-4),
)
ROUNDED = 1.0 + 1e-12


@settings(max_examples=120, deadline=None)
@given(queries(2, 5), st.sampled_from(COSTS))
def test_no_plan_uses_less_than_the_bounds(query: Query, costs: Costs) -> None:
    model = CostModel(join_graph(query), costs)
    plans = every_plan(model)
    assert cpu_lower_bound(model) <= min(plan.cpu for plan in plans) * ROUNDED
    assert memory_lower_bound(model) == pytest.approx(min(plan.memory_bytes for plan in plans), rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(queries(2, 6))
def test_no_connected_set_is_smaller_than_said(query: Query) -> None:
    graph = join_graph(query)
    model = CostModel(graph, Costs())
    for component in graph.components:
        streams = [i for i in range(len(graph)) if component >> i & 1]
        if len(streams) == 1:
            continue
        for i, said in zip(streams, smallest_joins(model, component), strict=True):
            sets = [sum(1 << k for k in chosen) for m in range(2, len(streams) + 1) for chosen in itertools.combinations(streams, m) if i in chosen]
            assert said <= min(model.size(mask) for mask in sets if graph.connected(mask)) * ROUNDED


@settings(max_examples=60, deadline=None)
@given(queries(3, 6))
def test_a_deadline_that_has_passed_only_lowers_the_bound(query: Query) -> None:
    model = CostModel(join_graph(query), Costs())
    assert cpu_lower_bound(model, Deadline(0.0)) <= cpu_lower_bound(model) * ROUNDED


def test_the_smallest_joins_are_exact_on_connected_shrinking_graphs() -> None:
    # Every join of this chain shrinks the one before: the smallest set around any stream is the whole chain.
    model = CostModel(
        join_graph(
            Query.model_validate(
                {
                    "streams": [{"name": f"s{i}", "rate": 10.0, "window": {"seconds": 10}} for i in range(5)],
                    "predicates": [{"left": f"s{i}.a", "right": f"s{i + 1}.a", "selectivity": 0.002} for i in range(4)],
                }
            )
        ),
        Costs(),
    )
    assert smallest_joins(model, model.graph.all) == pytest.approx([model.size(model.graph.all)] * 5, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(queries(2, 4), st.sampled_from([0.5, 1.01, 3.0, 1e3]))
def test_no_plan_bears_more_than_the_headroom_bound(query: Query, room: float) -> None:
    model = CostModel(join_graph(query), Costs())
    least = min(every_plan(model), key=lambda plan: plan.cpu)
    caps = Caps(cpu=least.cpu * room) if room != 3.0 else Caps(least.cpu * room, model.leaves_bytes() * room)
    bound = headroom_upper_bound(model, caps)
    for plan in every_plan(model):
        trees: dict[int, Tree] = {1 << i: i for i in range(len(model.graph))}
        for blocks in plan.joins:
            trees[sum(blocks)] = make_join([trees[block] for block in blocks], best_orders(model, blocks)[0])
        factor = headroom(model.price(trees[model.graph.all]), model, caps)
        assert factor is not None
        assert factor <= bound * (1.0 + 1e-9)


def test_without_caps_headroom_has_no_bound() -> None:
    assert math.isinf(headroom_upper_bound(keyed_model(1, 5), Caps()))


@pytest.mark.parametrize("n", [100, 200])
@pytest.mark.parametrize("shape", ["chain", "random", "star"])
def test_large_graphs_have_a_bound_above_zero(n: int, shape: str) -> None:
    assert cpu_lower_bound(keyed_model(3, n, shape)) > 0.0


@pytest.mark.parametrize("n", [20, 100])
def test_in_papers_setting_a_plan_costs_hardly_more_than_the_bound(n: int) -> None:
    """There the output is nearly all that any plan costs, so a bound and a plan that are a thousandth apart show that both are right."""
    for seed in range(3):
        model = paper3_model(seed, n)
        bound = cpu_lower_bound(model)
        found = point_of(model, greedy_tree(model, model.graph.all)).cpu
        assert bound <= found <= bound * 1.001
        assert bound == pytest.approx(model.costs.join * model.rate(model.graph.all), rel=1e-6)


@pytest.mark.parametrize(("shape", "n"), [("chain", 11), ("cycle", 9), ("star", 9), ("snowflake", 10), ("random", 8), ("clique", 7)])
def test_no_plan_of_a_larger_graph_uses_less_than_the_bound(shape: str, n: int) -> None:
    for seed in range(4):
        rng = random.Random(seed)
        query, costs = a_query(rng, n, shape), any_costs(rng)
        reference = Reference(query, costs)
        least = reference.staircase([1 << i for i in range(n)])[0][0]
        assert 0.0 <= cpu_lower_bound(CostModel(join_graph(query), costs)) <= least * ROUNDED


@given(st.floats(min_value=5e-324, max_value=1.7e308))
def test_logarithms_round_down_and_come_back(value: float) -> None:
    (logarithm,) = log2_floor([value]).tolist()
    exact = math.log2(value)
    assert exact - 1e-6 <= logarithm / (1 << FRACTION) <= exact + 1e-9
    if 1e-300 < value < 1e300:
        assert value * (1 - 1e-6) <= exp2_floor(logarithm) <= value * (1 + 1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6))
def test_huffman_is_the_least_weighted_depth_of_all_binary_trees(weights: list[float]) -> None:
    def least(leaves: list[tuple[float, float]]) -> float:
        """(weight, weighted depth inside) per subtree: the least total over all ways to merge two at a time."""
        if len(leaves) == 1:
            return leaves[0][1]
        best = math.inf
        for a, b in itertools.combinations(range(len(leaves)), 2):
            weight = leaves[a][0] + leaves[b][0]
            merged = (weight, leaves[a][1] + leaves[b][1] + weight)
            best = min(best, least([leaf for k, leaf in enumerate(leaves) if k not in (a, b)] + [merged]))
        return best

    some = weights[:5]
    assert huffman(some) == pytest.approx(least([(weight, 0.0) for weight in some]), rel=1e-9)


def test_the_bound_is_the_same_in_any_order_of_the_predicates() -> None:
    model = keyed_model(5, 12)
    graph = model.graph
    shuffled = list(graph.edges)
    random.Random(1).shuffle(shuffled)
    other = CostModel(type(graph)(**{**{f: getattr(graph, f) for f in _FIELDS}, "edges": tuple(shuffled)}), Costs())
    assert cpu_lower_bound(other) == pytest.approx(cpu_lower_bound(model), rel=1e-12)


_FIELDS = ("names", "rates", "window_seconds", "window_tuples", "row_windows", "tuple_bytes", "edges", "observed")

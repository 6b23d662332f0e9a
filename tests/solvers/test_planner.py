"""Plans end to end: mjoin and bjtree against brute force, determinism, real join graphs, honest proofs."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from models.plan import Plan, Proof, Termination
from models.request import CacheMode, Method, Objective, Options, PlanRequest
from solvers.common import deadline
from solvers.common.deadline import Deadline
from solvers.frontier import frontier
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel
from solvers.model.graph import bits, join_graph
from solvers.model.point import Caps, point_of
from solvers.model.probe_order import best_orders
from solvers.model.tree import Tree, leaf_mask
from solvers.planner import plan, problem_of
from tests.graphs import edges_of, plan_requests, random_graph
from tests.solvers.clocks import Looks
from tests.solvers.test_cost import assert_priced_alike

EXAMPLES = Path(__file__).parents[2] / "openapi" / "examples"

BEST_BINARY = "Proven: of all binary join trees none uses less CPU."
JOB = Path(__file__).parents[1] / "data" / "job"


def binary_trees(model: CostModel, component: int) -> Iterator[Tree]:
    """Every binary tree of a component without cross products."""
    graph = model.graph

    @cache
    def trees(mask: int) -> tuple[Tree, ...]:
        if mask & (mask - 1) == 0:
            return (mask.bit_length() - 1,)
        found: list[Tree] = []
        left = (mask - 1) & mask
        while left:
            right = mask & ~left
            if left > right and graph.connected(left) and graph.connected(right) and graph.between(left, right):
                found += [make_join((a, b), ((1,), (0,))) for a in trees(left) for b in trees(right)]
            left = (left - 1) & mask
        return tuple(found)

    yield from trees(component)


def root_orders(model: CostModel, parts: list[Tree]) -> Iterator[Tree]:
    """Every join of the components by one root: all orders of all inputs, the best picked input by input."""
    if len(parts) == 1:
        yield parts[0]
        return
    masks = [leaf_mask(part) for part in parts]
    yield make_join(parts, brute_orders(model, masks))


def brute_orders(model: CostModel, masks: list[int]) -> list[tuple[int, ...]]:
    """The cheapest order of each input, by trying every permutation in which each step follows a predicate where one can."""
    graph, orders = model.graph, []
    for start in range(len(masks)):
        best: tuple[float, tuple[int, ...]] | None = None
        for order in itertools.permutations([k for k in range(len(masks)) if k != start]):
            visited, allowed = masks[start], True
            left = list(order)
            for target in order:
                led_to = [k for k in left if graph.between(visited, masks[k])]
                allowed &= not led_to or target in led_to
                left.remove(target)
                visited |= masks[target]
            if allowed:
                full = [order if k == start else tuple(j for j in range(len(masks)) if j != k) for k in range(len(masks))]
                cost = sum(probe.cpu for probe in model.price_join(masks, full).pipelines[start].probes)
                if best is None or cost < best[0]:
                    best = (cost, order)
        assert best is not None
        orders.append(best[1])
    return orders


@settings(max_examples=100, deadline=None)
@given(plan_requests(least=2, most=6, methods=("mjoin",)))
def test_mjoin_equals_brute_force_over_all_probe_orders(request: PlanRequest) -> None:
    model = problem_of(request).model
    parts: list[Tree] = []
    for component in model.graph.components:
        streams = list(bits(component))
        orders = brute_orders(model, [1 << i for i in streams])
        parts.append(make_join(streams, orders) if len(streams) > 1 else streams[0])
    best = next(root_orders(model, parts))
    assert plan(request).cost.cpu == pytest.approx(model.price(best).cpu, rel=1e-9, abs=1e-300)


@settings(max_examples=100, deadline=None)
@given(plan_requests(least=2, most=6, methods=("bjtree",)))
def test_bjtree_equals_brute_force_over_all_binary_trees(request: PlanRequest) -> None:
    problem = problem_of(request)
    model = problem.model
    choices = [list(binary_trees(model, component)) for component in model.graph.components]
    points = [point_of(model, next(root_orders(model, list(parts)))) for parts in itertools.product(*choices)]
    made = plan(request)
    fitting = [point for point in points if problem.caps.admit(point)]
    assert made.qualified == bool(fitting)
    if request.objective is Objective.MIN_CPU:
        least = min((point.cpu for point in fitting), default=None)
        value = made.cost.cpu
    elif request.objective is Objective.MIN_MEMORY:
        least = min((point.memory_bytes for point in fitting), default=None)
        value = made.cost.memory_bytes
    else:
        return
    if least is not None:
        assert value == pytest.approx(least, rel=1e-9, abs=1e-300)
        less = "memory" if request.objective is Objective.MIN_MEMORY else "CPU"
        assert made.proof is Proof.OPTIMAL or f"Proven: of all binary join trees none uses less {less}." in made.explanation


@settings(max_examples=60, deadline=None)
@given(plan_requests(least=2, most=6, methods=("auto",)))
def test_auto_is_never_worse_than_mjoin_and_bjtree(request: PlanRequest) -> None:
    made = plan(request)
    for method in (Method.MJOIN, Method.BJTREE):
        other = plan(request.model_copy(update={"options": request.options.model_copy(update={"method": method})}))
        assert made.qualified >= other.qualified
        if made.qualified and other.qualified and request.objective is not Objective.MAX_HEADROOM:
            field = "cpu" if request.objective is Objective.MIN_CPU else "memory_bytes"
            assert getattr(made.cost, field) <= getattr(other.cost, field) * (1 + 1e-12)


def test_probe_orders_by_rank_equal_the_backward_pass_on_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        model = CostModel(join_graph(random_graph(random.Random(seed), 10, "random", degree=0)), PlanRequest.model_validate(example(2)).costs)
        masks = [1 << i for i in range(10)]
        exact, proven = best_orders(model, masks)
        with monkeypatch.context() as patch:
            patch.setattr("solvers.model.probe_order.MAX_UNIONS", 0)
            ranked, also_proven = best_orders(model, masks)
        assert proven
        assert also_proven
        assert model.price_join(masks, ranked).cpu == pytest.approx(model.price_join(masks, exact).cpu, rel=1e-12)


def example(n: int) -> dict[str, Any]:
    return {"query": random_graph(random.Random(n), n, "chain").model_dump(mode="json")}


@pytest.mark.parametrize(
    ("n", "shape"), [*itertools.product((1, 2, 30), ("chain", "star", "clique", "random")), (200, "star"), (200, "random"), (80, "clique")]
)
def test_any_size_and_shape_gets_a_plan_without_cross_products(n: int, shape: str) -> None:
    rng = random.Random(n)
    edges = edges_of(rng, n, shape)
    document = {
        "streams": [{"name": f"s{i}", "rate": rng.uniform(1, 100), "window": {"seconds": 10}} for i in range(n)],
        # Such selectivities keep sizes near those of the windows however many streams join.
        "predicates": [{"left": f"s{a}.x", "right": f"s{b}.x", "selectivity": 0.0015 if shape != "clique" else 0.97} for a, b in edges],
    }
    if shape == "clique":
        for stream in document["streams"]:
            stream["rate"], stream["window"] = 0.1, {"seconds": 10 ** rng.uniform(0.9, 1.1)}
    for method in ("mjoin", "bjtree"):
        made = plan(PlanRequest.model_validate({"query": document, "options": {"method": method, "caches": "off"}}))
        assert not made.operators or made.operators[-1].streams == sorted(f"s{i}" for i in range(n))
        assert all(probe.predicates for operator in made.operators for pipeline in operator.pipelines for probe in pipeline.probes)
        if n <= 30:  # beyond, the naive pricer's own products leave the range of a double
            assert_priced_alike(made)


@pytest.mark.parametrize("name", sorted(path.name for path in JOB.glob("*.json")))
def test_real_join_graphs_get_the_best_binary_tree(name: str) -> None:
    document = json.loads((JOB / name).read_text())
    made = plan(PlanRequest.model_validate({**document, "options": {"method": "bjtree", "caches": "off", "time_limit": 30}}))
    assert BEST_BINARY in made.explanation
    assert_priced_alike(made)


def test_a_clique_of_18_streams_gets_its_best_binary_tree() -> None:
    query = random_graph(random.Random(18), 18, "clique", log_selectivity=(-0.5, 0.0))
    made = plan(
        PlanRequest.model_validate({"query": query.model_dump(mode="json"), "options": {"method": "bjtree", "caches": "off", "time_limit": 60}})
    )
    assert BEST_BINARY in made.explanation
    assert_priced_alike(made)


def test_there_are_28_real_join_graphs() -> None:
    assert len(list(JOB.glob("*.json"))) == 28


def test_a_fingerprint_depends_on_structure_alone() -> None:
    request = example(5)
    first = plan(PlanRequest.model_validate(request))
    shuffled = json.loads(json.dumps(request))
    shuffled["query"]["streams"].reverse()
    for stream in shuffled["query"]["streams"]:
        stream["tuple_bytes"] = 77
    same = plan(PlanRequest.model_validate(shuffled))
    other = plan(PlanRequest.model_validate({**request, "options": {"method": "mjoin"}}))
    assert same.fingerprint == first.fingerprint
    assert other.fingerprint != first.fingerprint


def test_a_plan_echoes_its_request_with_every_default_filled_in() -> None:
    document = example(3)
    document["query"]["predicates"][0]["selectivity"] = None
    document["query"]["streams"][0]["distinct"] = {"x1": 50}
    document["query"]["streams"][1]["distinct"] = {"x0": 80}
    made = plan(PlanRequest.model_validate(document))
    assert made.query.predicates[0].selectivity == 1 / 80
    again = plan(PlanRequest(query=made.query, resources=made.resources, costs=made.costs, objective=made.objective))
    assert again == made


def test_what_does_not_fit_gets_the_least_bad_plan_and_says_what_it_would_take() -> None:
    request = PlanRequest.model_validate({**example(4), "resources": {"cpu": 1e-9, "memory_bytes": 10}})
    made = plan(request)
    assert not made.qualified
    assert made.shortfall is not None
    assert made.shortfall.min_cpu is not None
    assert made.shortfall.min_cpu <= made.cost.cpu
    assert made.shortfall.cpu_at_memory_cap is None
    assert made.shortfall.rate_scale is not None
    assert 0 < made.shortfall.rate_scale < 1
    shrunk = request.model_dump(mode="json")
    for stream in shrunk["query"]["streams"]:
        stream["rate"] *= made.shortfall.rate_scale * (1 - 1e-9)
    assert plan(PlanRequest.model_validate(shrunk)).qualified


def test_a_graph_that_is_not_connected_is_joined_by_the_root_and_said() -> None:
    query: dict[str, Any] = {"streams": [{"name": name, "rate": 1, "window": {"seconds": 5}} for name in "abcd"]}
    query["predicates"] = [{"left": "a.k", "right": "b.k", "selectivity": 0.1}]
    made = plan(PlanRequest.model_validate({"query": query}))
    assert [operator.inputs for operator in made.operators] == [["a", "b"], ["join-1", "c", "d"]]
    assert {probe.algorithm for pipeline in made.operators[-1].pipelines for probe in pipeline.probes} == {"nested_loop"}
    assert any("not connected" in warning for warning in made.warnings)


def test_one_stream_is_a_plan_without_joins() -> None:
    made = plan(PlanRequest.model_validate({"query": {"streams": [{"name": "a", "rate": 3, "window": {"seconds": 2}}]}}))
    assert made.operators == []
    assert (made.cost.cpu, made.cost.memory_bytes, made.cost.output_rate) == (0.0, 600.0, 3.0)


@pytest.mark.parametrize("method", ["mjoin", "bjtree", "auto"])
def test_a_deadline_that_is_over_at_once_still_yields_a_plan(method: str) -> None:
    query = random_graph(random.Random(7), 16, "clique", log_selectivity=(-1.3, 0.0))
    made = plan(PlanRequest.model_validate({"query": query.model_dump(mode="json"), "options": {"method": method, "time_limit": 1e-6}}))
    assert isinstance(made, Plan)
    assert_priced_alike(made)


def test_caps_admit_what_is_exactly_at_them() -> None:
    point = point_of(problem_of(PlanRequest.model_validate(example(3))).model, make_join((0, 1, 2), ((1, 2), (0, 2), (1, 0))))
    assert Caps(point.cpu, point.memory_bytes).admit(point)
    assert Deadline.after(1000).remaining() > 900


def test_a_frontier_keeps_to_its_time_limit_and_says_what_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    query = random_graph(random.Random(1), 12, "chain", windows=(10.0,))
    whole = frontier(PlanRequest(query=query, options=Options(time_limit=60.0, caches=CacheMode.OFF)))
    assert whole.proof is Proof.OPTIMAL and len(whole.points) > 100
    # A clock that counts looks: enough of them for the search, not for writing every point.
    monkeypatch.setattr(deadline, "time", Looks())
    part = frontier(PlanRequest(query=query, options=Options(time_limit=60.0, caches=CacheMode.OFF)))
    assert 1 <= len(part.points) < len(whole.points)
    assert part.proof is not Proof.OPTIMAL
    assert [point.cpu for point in part.points] == sorted(point.cpu for point in part.points)
    assert any("trade-offs are listed" in warning for warning in part.warnings)
    assert (whole.termination, part.termination) == (Termination.COMPLETE, Termination.TIME_LIMIT)


def test_the_frontier_of_a_large_graph_is_of_the_plans_that_were_found() -> None:
    query = random_graph(random.Random(2), 60, "random", log_selectivity=(-3.0, -1.0))
    answer = frontier(PlanRequest(query=query, options=Options(time_limit=0.5)))
    assert answer.points and answer.proof is not Proof.OPTIMAL


@pytest.mark.parametrize("method", ["exact", "mjoin"])
def test_equal_probe_orders_do_not_take_turns_as_rates_move(method: str) -> None:
    """Joins on keys neither grow nor thin a result, so many orders cost the same but for the last bit."""
    document = json.loads((EXAMPLES / "star.json").read_text())
    document["options"] = {**document.get("options", {}), "method": method}
    stream = next(stream for stream in document["query"]["streams"] if stream["name"] == "shipments")
    rate, orders = stream["rate"], set()
    for step in range(30):
        stream["rate"] = rate * (1.0 + 0.001 * step)
        found = plan(PlanRequest.model_validate(document))
        orders.add(str([[[probe.target for probe in pipeline.probes] for pipeline in operator.pipelines] for operator in found.operators]))
    assert len(orders) == 1

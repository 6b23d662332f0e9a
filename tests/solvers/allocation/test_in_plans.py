"""Requests that no plan satisfies still get the best answer that their resources allow."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from models.plan import EstimateRequest, Plan
from models.request import PlanRequest, Query
from solvers.allocation import in_plans
from solvers.allocation.in_plans import given_shares, share_out, thinning
from solvers.allocation.neighbours import built, neighbours
from solvers.common.deadline import Deadline
from solvers.estimate import estimate
from solvers.jtree.search import Problem, Shape, shape_of, structure_key
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.tree import Tree, joins, leaf_mask
from solvers.planner import plan, problem_of, search
from tests.graphs import SHAPES, random_graph
from tests.solvers.allocation.plans import random_tree


def _query(seed: int, low: int = 2, high: int = 6, freshness: bool = False) -> dict[str, Any]:
    """Graphs whose results, not whose windows, take the CPU."""
    rng = random.Random(seed)
    query = random_graph(
        rng, rng.randint(low, high), rng.choice(SHAPES), windows=(5.0, 20.0), rates=(10.0, 200.0), log_selectivity=(-2.5, -1.0), rows=0.2
    ).model_dump(mode="json")
    if freshness:
        for stream in query["streams"]:
            kind, length = next(iter(stream["window"].items()))
            if rng.random() < 0.6:
                stream["freshness"] = {kind: math.ceil(length * rng.uniform(1, 5))}
    return query


def _plan(query: dict[str, Any], **resources: float) -> Plan:
    return plan(PlanRequest.model_validate({"query": query, "resources": resources, "options": {"time_limit": 10}}))


@cache
def _enough(query: str) -> float:
    """The CPU of the cheapest plan."""
    return _plan(json.loads(query)).cost.cpu


def _starved(query: dict[str, Any], cpu: float | None = None, memory: float | None = None) -> tuple[Plan, dict[str, float]]:
    """A plan with these shares of what the cheapest one needs."""
    resources = {}
    if cpu is not None:
        resources["cpu"] = _enough(json.dumps(query)) * cpu
    if memory is not None:
        windows = sum(stream["rate"] * stream["window"].get("seconds", 0) or stream["window"].get("rows", 0) for stream in query["streams"])
        resources["memory_bytes"] = windows * 100 * memory
    return _plan(query, **resources), resources


@pytest.mark.parametrize("freshness", [False, True])
@pytest.mark.parametrize("part", [0.9, 0.5, 0.1, 0.001, 1e-9])
def test_a_short_cpu_is_kept_to_and_the_loss_is_stated(part: float, freshness: bool) -> None:
    for seed in range(4):
        answer, resources = _starved(_query(seed, freshness=freshness), cpu=part)
        assert not answer.qualified and answer.shortfall is not None
        allocation = answer.allocation
        assert allocation is not None
        assert allocation.cpu <= resources["cpu"] * (1 + 1e-9)
        assert 0.0 <= allocation.throughput <= allocation.saturation_throughput * (1 + 1e-9)
        assert allocation.saturation_throughput == pytest.approx(answer.cost.output_rate)
        assert any("within the CPU cap" in sentence for sentence in answer.explanation)
        Plan.model_validate_json(answer.model_dump_json())


@pytest.mark.parametrize(("cpu", "memory"), [(None, 0.5), (None, 1e-6), (0.001, 0.001), (0.3, 0.9), (1e-9, 1e-9)])
def test_a_short_memory_gets_windows_that_fit(cpu: float | None, memory: float) -> None:
    for seed in range(5):
        query = _query(seed)
        answer, resources = _starved(query, cpu, memory)
        assert not answer.qualified and answer.shortfall is not None
        assert (answer.allocation is not None) == (cpu is not None)
        suggested = {entry.stream: entry for entry in answer.shortfall.windows}
        assert set(suggested) == {stream["name"] for stream in query["streams"]}
        held = sum(suggested[stream["name"]].seconds * stream["rate"] * stream["tuple_bytes"] for stream in query["streams"])
        assert held <= resources["memory_bytes"] * (1 + 1e-6)
        assert answer.shortfall.output_rate is not None
        assert 0.0 <= answer.shortfall.output_rate <= answer.cost.output_rate


def test_suggested_windows_keep_the_stated_output_rate_and_fit_a_plan() -> None:
    for seed in range(15):
        query = _query(seed)
        for stream in query["streams"]:
            stream["window"] = {"seconds": 20.0}
        answer, resources = _starved(query, memory=0.6)
        assert answer.shortfall is not None
        windows = {entry.stream: entry.seconds for entry in answer.shortfall.windows}
        if min(windows.values()) <= 0.0:
            continue
        shortened = {**query, "streams": [{**stream, "window": {"seconds": windows[stream["name"]]}} for stream in query["streams"]]}
        again = _plan(shortened, memory_bytes=resources["memory_bytes"] * (1 + 1e-6))
        assert again.qualified
        assert again.cost.output_rate == pytest.approx(answer.shortfall.output_rate, rel=1e-6)


def test_two_streams_short_of_memory_get_the_papers_closed_form() -> None:
    streams = [{"name": name, "rate": rate, "window": {"seconds": 100}, "tuple_bytes": 1} for name, rate in (("a", 10), ("b", 50))]
    query = {"streams": streams, "predicates": [{"left": "a.x", "right": "b.x", "selectivity": 0.005}]}
    answer = _plan(query, memory_bytes=1000)
    assert answer.shortfall is not None
    assert [entry.seconds for entry in answer.shortfall.windows] == [100.0, 0.0]
    assert answer.shortfall.output_rate == pytest.approx(250.0)


def test_a_single_join_short_of_cpu_gives_all_to_the_more_productive_direction() -> None:
    """Paper 2 §2: λ 500/700, states of 5000 and 500 tuples, productivities 2.5 and 5, µ 300 probes: 1500 results."""
    streams = [{"name": "A", "rate": 500, "window": {"rows": 5000}}, {"name": "B", "rate": 700, "window": {"rows": 500}}]
    query = {"streams": streams, "predicates": [{"left": "A.x", "right": "B.x", "selectivity": 0.001}]}
    costs = {"join": 0, "insert": 0, "delete": 0, "append": 0, "probe": 1, "scan": 1}
    answer = plan(PlanRequest.model_validate({"query": query, "resources": {"cpu": 300}, "costs": costs}))
    assert answer.allocation is not None
    assert answer.allocation.throughput == pytest.approx(1500)
    assert [entry.share for entry in answer.allocation.streams] == pytest.approx([0.0, 300 / 700])


def test_uneven_shares_are_never_worse_than_even_ones() -> None:
    compared = 0
    for seed in range(60):
        rng = random.Random(seed)
        model = CostModel(join_graph(Query.model_validate(_query(seed))), PlanRequest.model_fields["costs"].default)
        priced = model.price(random_tree(model, rng))
        shared = share_out(model, priced, 0.6 * priced.cpu, [math.inf] * len(model.graph))
        even = (0.6 * priced.cpu - shared.plan.keeping) / (priced.cpu - shared.plan.keeping)
        if even >= 0.2:
            assert shared.throughput >= even * priced.output_rate * (1 - 1e-9)
            assert shared.throughput >= shared.jaqpot_throughput * (1 - 1e-9)
            compared += 1
    assert compared >= 30


def _answers(problem: Problem, query: Query, trees: Iterable[Tree]) -> tuple[int, float]:
    """The best of these plans: predicates met, results per second."""
    stated = [
        math.inf if stream.freshness is None else stream.freshness.seconds or (stream.freshness.rows or 0) / stream.rate for stream in query.streams
    ]
    best, cap = (0, 0.0), problem.caps.cpu
    for tree in trees:
        priced = problem.model.price(tree)
        factor = thinning(problem.model, priced, cap)
        thinned = None if factor is None else given_shares(problem.model, priced, cap, stated, (1.0,) * len(problem.model.graph), factor)
        for shared in (share_out(problem.model, priced, cap, stated), thinned):
            if shared is not None and shared.cpu <= cap * (1 + 1e-9):
                best = max(best, (sum(shared.fresh), shared.throughput))
    return best


def test_no_plan_of_four_streams_yields_more_fresh_results() -> None:
    """Against a sample that holds nearly every tree there is, and every plan that the search kept."""
    changed = 0
    for seed in range(15):
        query = _query(seed, 3, 4, freshness=seed % 2 == 0)
        part = (0.5, 0.3, 0.1)[seed % 3]
        request = PlanRequest.model_validate({"query": query, "resources": {"cpu": _plan(query).cost.cpu * part}})
        problem = problem_of(request)
        found = search(problem, Deadline.after(10))
        answer = plan(request)
        assert answer.allocation is not None
        rng = random.Random(seed)
        sample = {structure_key(tree): tree for tree in (random_tree(problem.model, rng) for _ in range(80))}
        fresh, most = _answers(problem, request.query, [*sample.values(), *(point.tree for point in found.points)])
        assert sum(entry.fresh for entry in answer.allocation.streams) >= fresh
        # Thinning is tried only where it can gain more than a twentieth.
        assert answer.allocation.throughput >= most * (1 - 0.05)
        changed += answer.cost.cpu > found.points[0].cpu * (1 + 1e-9)
    assert changed > 0  # not always the plan with the least CPU at full load


def test_a_shape_or_a_kind_of_plan_that_was_asked_for_is_kept() -> None:
    for seed in range(6):
        query = _query(seed, 4, 4)
        enough = _plan(query)
        document = {"query": query, "resources": {"cpu": 0.3 * enough.cost.cpu}}
        shape = [operator.model_dump(mode="json") for operator in enough.operators]
        priced = estimate(EstimateRequest.model_validate({**document, "operators": shape}))
        assert priced.fingerprint == enough.fingerprint and priced.allocation is not None
        for method in ("mjoin", "bjtree"):
            made = plan(PlanRequest.model_validate({**document, "options": {"method": method}}))
            assert made.allocation is not None
            if len(join_graph(made.query).components) == 1:
                assert all((operator.kind == "mjoin") == (method == "mjoin") for operator in made.operators)


def test_neighbours_reach_every_tree_there_is() -> None:
    for shape, count in (("chain", 11), ("star", 13), ("clique", 26)):
        model = CostModel(join_graph(random_graph(random.Random(4), 4, shape)), PlanRequest.model_fields["costs"].default)
        reached: dict[object, Tree] = {}
        waiting = [random_tree(model, random.Random(0))]
        while waiting:
            tree = waiting.pop()
            key = tuple(sorted(leaf_mask(node) for node in joins(tree)))
            if key not in reached:
                reached[key] = tree
                waiting += (built(model, shape) for shape in neighbours(model, shape_of(tree)))
        assert len(reached) == count, shape


def test_a_neighbour_that_is_not_built_would_not_have_won(monkeypatch: pytest.MonkeyPatch) -> None:
    skipped = []

    def remembered(contest: in_plans._Contest, shape: Shape, may_win: Callable[..., bool] = in_plans._Contest.may_win) -> bool:
        skipped.append(not may_win(contest, shape))
        return True

    for seed in range(12):
        query = _query(seed, 3 + seed % 4, freshness=seed % 3 == 0)
        for cpu in (0.7, 0.1):
            quick, _ = _starved(query, cpu=cpu)
            with monkeypatch.context() as patch:
                patch.setattr(in_plans._Contest, "may_win", remembered)
                thorough, _ = _starved(query, cpu=cpu)
            assert quick == thorough
    assert len(skipped) > sum(skipped) > 300


def test_freshness_is_met_or_said_not_to_be() -> None:
    met = 0
    for seed in range(24):
        query = _query(seed, 3, freshness=True)
        answer, _ = _starved(query, cpu=0.5)
        assert answer.allocation is not None
        for stream, entry in zip(query["streams"], answer.allocation.streams, strict=True):
            freshness = stream.get("freshness")
            if freshness is None:
                assert entry.fresh
                continue
            limit = freshness.get("seconds") or freshness["rows"] / (stream["rate"] * answer.allocation.admitted)
            assert entry.fresh == (entry.oldest_seconds is not None and entry.oldest_seconds <= limit * (1 + 1e-6))
            met += entry.fresh
        for renewal in answer.allocation.renewals:
            assert not answer.allocation.freshness_met or renewal.rate >= renewal.required * (1 - 1e-6)
    assert met > 12


def test_the_cpu_that_freshness_takes_is_enough_and_less_is_not() -> None:
    checked = 0
    for seed in range(30):
        rng = random.Random(seed)
        query = Query.model_validate(_query(seed, 3, freshness=True))
        model = CostModel(join_graph(query), PlanRequest.model_fields["costs"].default)
        priced = model.price(random_tree(model, rng))
        stated = [5.0 * window for window in model.graph.window_seconds]
        first = share_out(model, priced, 1e-3 * priced.cpu, stated)
        if first.freshness_cpu is None or not first.plan.subresults:
            continue
        assert all(share_out(model, priced, first.freshness_cpu, stated).fresh)
        less = first.plan.keeping + (first.freshness_cpu - first.plan.keeping) * 0.99
        assert not all(share_out(model, priced, less, stated).fresh)
        checked += 1
    assert checked >= 10


def test_allowances_cost_what_the_allocation_says() -> None:
    for seed in range(16):
        query = _query(seed, 3)
        answer, _ = _starved(query, cpu=0.6)
        assert answer.allocation is not None
        if answer.allocation.admitted < 1.0:
            continue
        given = {(entry.operator, entry.input, entry.step): entry for entry in answer.allocation.allowances}
        names = {stream["name"] for stream in query["streams"]}
        shares = []
        total = 0.0
        for operator in answer.operators:
            for state in operator.states:
                full = next(pipeline.probes[0].rate_in for pipeline in operator.pipelines if pipeline.input == state.input)
                part = 1.0 if state.input in names else given[operator.id, state.input, 0].rate / full
                total += state.cpu * part
            for pipeline in operator.pipelines:
                for step, probe in enumerate(pipeline.probes):
                    entry = given[operator.id, pipeline.input, step]
                    total += probe.cpu * entry.rate / probe.rate_in
                    if step == 0 and pipeline.input in names:
                        shares.append(entry.share)
                        assert entry.rate == pytest.approx(entry.share * probe.rate_in)
                    else:
                        assert entry.share == 1.0
        assert total == pytest.approx(answer.allocation.cpu, rel=1e-9)
        assert sorted(shares) == sorted(entry.share for entry in answer.allocation.streams)


def test_one_stream_that_does_not_fit_is_planned_and_said_not_to() -> None:
    for resources in ({"cpu": 1e-9}, {"memory_bytes": 1.0}, {"cpu": 1e-9, "memory_bytes": 1.0}):
        made = plan(
            PlanRequest.model_validate({"query": {"streams": [{"name": "a", "rate": 1e6, "window": {"seconds": 60}}]}, "resources": resources})
        )
        assert made.qualified == (made.cost.cpu <= resources.get("cpu", math.inf) and "memory_bytes" not in resources)


def test_the_same_request_gives_the_same_bytes() -> None:
    query = _query(5, 5, freshness=True)
    assert _starved(query, 0.4, 2.0)[0].model_dump_json() == _starved(query, 0.4, 2.0)[0].model_dump_json()


def test_requests_that_fit_load_nothing_of_this() -> None:
    code = (
        "import sys; from models.request import PlanRequest; from solvers.planner import plan;"
        "streams = [{'name': n, 'rate': 1, 'window': {'seconds': 1}} for n in 'ab'];"
        "predicates = [{'left': 'a.x', 'right': 'b.x', 'selectivity': 0.5}];"
        "answer = plan(PlanRequest.model_validate({'query': {'streams': streams, 'predicates': predicates}, 'resources': {'cpu': 1}}));"
        "assert answer.qualified and answer.allocation is None;"
        "assert not [name for name in sys.modules if name.startswith('solvers.allocation')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

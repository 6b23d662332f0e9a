"""Candidate caches: by definition on the paper's example, by brute force on random pipelines, and their figures as printed."""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import PlanRequest
from solvers.caches.candidates import Pipelines, prefix_candidates, prefix_sets, program_of, streams_of
from solvers.caches.global_caches import global_candidates
from solvers.caches.select.program import cheapest_cover
from solvers.caches.select.tree import overlap_forest
from solvers.jtree.search import Problem, make_join
from solvers.model.attributes import Attributes
from solvers.model.graph import bits
from solvers.planner import problem_of
from tests.solvers.caches.plans import SHAPES, any_tree, candidates_of, query


def six_way(distinct: float = 50.0) -> tuple[Problem, PlanRequest, Pipelines]:
    """A six-way join on one attribute with pipelines that have the prefix sets and candidates of paper 1's Examples 4.1 and 4.2."""
    names = [f"R{i}" for i in range(1, 7)]
    request = PlanRequest.model_validate(
        {
            "query": {
                "streams": [{"name": name, "rate": 100, "window": {"seconds": 10}, "distinct": {"A": distinct}} for name in names],
                "predicates": [{"left": f"{a}.A", "right": f"{b}.A"} for a, b in itertools.combinations(names, 2)],
            }
        }
    )
    orders = {1: (2, 3, 4, 5, 6), 2: (1, 3, 5, 4, 6), 3: (2, 1, 4, 5, 6), 4: (5, 1, 2, 3, 6), 5: (4, 2, 3, 1, 6), 6: (2, 1, 4, 5, 3)}
    tree = make_join(range(6), [[target - 1 for target in orders[k]] for k in range(1, 7)])
    problem = problem_of(request)
    return problem, request, Pipelines.of(problem.model.price(tree).joins[0])


def as_set(positions: int) -> set[int]:
    return {k + 1 for k in bits(positions)}


def test_the_six_way_example_has_the_prefix_sets_the_paper_names() -> None:
    *_, pipelines = six_way()
    named = [as_set(positions) for positions in prefix_sets(pipelines)]
    assert named == [{1, 2}, {4, 5}, {1, 2, 3}, {1, 2, 3, 4, 5}, {1, 2, 3, 4, 5, 6}]


def test_the_six_way_example_has_the_candidates_and_the_sharing_the_paper_names() -> None:
    problem, request, pipelines = six_way()
    attributes = Attributes.of(request.query, problem.model.graph)
    found = prefix_candidates(problem.model, attributes, pipelines)
    by_pipeline = {k + 1: [as_set(c.segment) for c in found if c.pipeline == k] for k in range(6)}
    assert sorted(by_pipeline[4], key=len) == [{1, 2}, {1, 2, 3}]
    assert sorted(by_pipeline[6], key=lambda s: (len(s), min(s))) == [{1, 2}, {4, 5}, {1, 2, 3, 4, 5}]
    sharing = {frozenset(as_set(c.segment)): sorted(d.pipeline + 1 for d in found if d.group == c.group) for c in found}
    assert sharing[frozenset({1, 2})] == [3, 4, 6]
    assert sharing[frozenset({1, 2, 3})] == [4, 5]
    assert {attributes.name(part) for c in found for part in c.key.parts} == {"R1.A", "R4.A"}
    program, _ = program_of(pipelines, found, math.inf)
    (root,) = overlap_forest(program, 5)
    assert as_set(found[root.candidate].segment) == {1, 2, 3, 4, 5}
    assert [as_set(found[child.candidate].segment) for child in root.children] == [{1, 2}, {4, 5}]


def test_example_6_1_caches_r2_r3_for_r6_through_a_semijoin_with_r1() -> None:
    problem, request, pipelines = six_way(distinct=2.0)  # so few values that the join of three has fewer new tuples than that of all
    orders = [list(order) for order in pipelines.join.orders]
    orders[5] = [1, 2, 3, 4, 0]
    changed = Pipelines.of(problem.model.price(make_join(range(6), orders)).joins[0])
    attributes = Attributes.of(request.query, problem.model.graph)
    found = [c for c in global_candidates(problem.model, attributes, changed, quota=1000) if c.pipeline == 5 and as_set(c.segment) == {2, 3}]
    assert [as_set(c.kept) for c in found] == [{1, 2, 3}]
    assert not any(c.pipeline == 5 and as_set(c.segment) == {2, 3} for c in prefix_candidates(problem.model, attributes, changed))


PAPERS_QUOTA = 6  # m of §7.3


def test_the_quota_takes_prefix_caches_first_and_then_the_longest_segments() -> None:
    problem, request, pipelines = six_way()
    attributes = Attributes.of(request.query, problem.model.graph)
    prefix = prefix_candidates(problem.model, attributes, pipelines)
    assert global_candidates(problem.model, attributes, pipelines, quota=PAPERS_QUOTA) == prefix
    some = global_candidates(problem.model, attributes, pipelines, quota=len(prefix) + 4)
    added = [c for c in some if c not in prefix]
    assert [c.last - c.first + 1 for c in added] == [5, 5, 5, 5]


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.integers(3, 6))
def test_prefix_candidates_are_exactly_those_of_the_definition(seed: int, shape: str, n: int) -> None:
    generator = random.Random(seed)
    request = PlanRequest.model_validate({"query": query(generator, n, shape)})
    problem = problem_of(request)
    pipelines, found = candidates_of(problem, any_tree(problem, generator), "prefix")
    orders = pipelines.join.orders
    predicates = [(p.left.split("."), p.right.split(".")) for p in request.query.predicates]
    expected = []
    for k, order in enumerate(orders):
        for first in range(len(order)):
            for last in range(first + 1, len(order)):
                segment = set(order[first : last + 1])
                prefix = all(set(orders[member][: len(segment) - 1]) == segment - {member} for member in segment)
                if prefix and can_be_looked_up(predicates, {k, *order[:first]}, segment):
                    expected.append((k, first, last))
    assert [(c.pipeline, c.first, c.last) for c in found] == expected


def can_be_looked_up(predicates: list[Any], visited: set[int], segment: set[int]) -> bool:
    """Whether all visited attributes that one value of the segment must equal are equal to each other among the visited."""

    def inside(streams: set[int]) -> dict[tuple[int, str], int]:
        names = sorted({(int(s[1:]), a) for sides in predicates for s, a in sides if int(s[1:]) in streams})
        label = {name: i for i, name in enumerate(names)}
        for _ in names:
            for (ls, la), (rs, ra) in predicates:
                left, right = (int(ls[1:]), la), (int(rs[1:]), ra)
                if left in label and right in label:
                    label[left] = label[right] = min(label[left], label[right])
        return label

    mine, theirs = inside(segment), inside(visited)
    readings: dict[int, set[int]] = {}
    for (ls, la), (rs, ra) in predicates:
        for (a, x), (b, y) in (((int(ls[1:]), la), (int(rs[1:]), ra)), ((int(rs[1:]), ra), (int(ls[1:]), la))):
            if a in visited and b in segment:
                readings.setdefault(mine[b, y], set()).add(theirs[a, x])
    return bool(readings) and all(len(labels) == 1 for labels in readings.values())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.integers(3, 6))
def test_prefix_candidates_of_a_pipeline_nest(seed: int, shape: str, n: int) -> None:
    generator = random.Random(seed)
    request = PlanRequest.model_validate({"query": query(generator, n, shape)})
    problem = problem_of(request)
    _, found = candidates_of(problem, any_tree(problem, generator), "prefix")
    for a, b in itertools.combinations(found, 2):
        if a.pipeline == b.pipeline and a.segment & b.segment:
            assert a.segment & ~b.segment == 0 or b.segment & ~a.segment == 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.integers(3, 5))
def test_global_candidates_lie_in_a_set_that_obeys_the_prefix_invariant(seed: int, shape: str, n: int) -> None:
    generator = random.Random(seed)
    request = PlanRequest.model_validate({"query": query(generator, n, shape)})
    problem = problem_of(request)
    pipelines, found = candidates_of(problem, any_tree(problem, generator), "global")
    closed = {streams_of(pipelines.join, positions) for positions in prefix_sets(pipelines)}
    for c in found:
        assert c.kept in closed
        assert c.segment & ~c.kept == 0
        assert c.is_prefix == (c.segment in closed)


def three_way(rate_t: float = 50.0, distinct: float = 20.0, probe: float = 1e-6) -> tuple[Problem, PlanRequest, Pipelines]:
    request = PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {"name": "R", "rate": 10, "window": {"seconds": 2}},
                    {"name": "S", "rate": 10, "window": {"seconds": 2}},
                    {"name": "T", "rate": rate_t, "window": {"seconds": 2}, "distinct": {"B": distinct}},
                ],
                "predicates": [{"left": "R.A", "right": "S.A", "selectivity": 0.1}, {"left": "S.B", "right": "T.B", "selectivity": 0.05}],
            },
            "costs": {"probe": probe},
        }
    )
    problem = problem_of(request)
    return problem, request, Pipelines.of(problem.model.price(make_join(range(3), ((1, 2), (0, 2), (1, 0)))).joins[0])


def test_benefit_cost_and_proc_are_as_printed() -> None:
    problem, request, pipelines = three_way()
    (cache,) = prefix_candidates(problem.model, Attributes.of(request.query, problem.model.graph), pipelines)
    costs = problem.model.costs
    # ΔT: 50 a second; each finds 20·0.05 = 1 tuple of S and that 20·0.1 = 2 of R. 20 distinct keys among 100 in the window.
    d = [50.0, 50.0, 100.0]
    work = d[0] * costs.probe + d[1] * costs.join + d[1] * costs.probe + d[2] * costs.join
    miss, update = 0.2, costs.insert + costs.delete
    probe_cost = costs.probe + (1 - miss) * costs.join * d[2] / d[0]
    proc = d[0] * probe_cost + miss * (work + d[2] * update)
    figures = cache.figures
    assert figures.miss_probability == pytest.approx(miss)
    assert figures.proc == pytest.approx(proc)
    assert figures.benefit == pytest.approx(work - proc)
    assert figures.update == pytest.approx(update * (10 * 2 + 10 * 2))
    assert figures.entries == pytest.approx(20.0)
    assert figures.memory_bytes == pytest.approx(20 * 32 + 40 * 200)


def test_without_distinct_the_selectivity_says_how_many_values_there_are() -> None:
    problem, request, _ = three_way()
    attributes = Attributes.of(request.query, problem.model.graph)
    assert attributes.distinct[2, "B"] == 20.0
    assert attributes.distinct[1, "B"] == pytest.approx(20.0)
    assert attributes.distinct[0, "A"] == pytest.approx(10.0)


@given(st.integers(2, 200), st.integers(1, 400))
def test_misses_of_equal_draws_are_never_more_than_the_figure_says(values: int, window: int) -> None:
    expected_distinct = values * (1 - (1 - 1 / values) ** window)
    assert (1 - 1 / values) ** window <= expected_distinct / window + 1e-12


def test_a_predicate_without_equality_across_the_edge_rules_a_cache_out() -> None:
    _, request, pipelines = three_way()
    body = request.model_dump()
    body["query"]["predicates"][1]["op"] = "<"
    changed = PlanRequest.model_validate(body)
    problem = problem_of(changed)
    assert prefix_candidates(problem.model, Attributes.of(changed.query, problem.model.graph), pipelines) == []


def test_equal_values_make_one_key_and_different_ones_do_not() -> None:
    problem, request, _ = six_way()
    attributes = Attributes.of(request.query, problem.model.graph)
    key, other = attributes.key(0b100, 0b11), attributes.key(0b1000, 0b11)
    assert key is not None
    assert other is not None
    assert key.parts == other.parts == ((0, "A"),)
    body = request.model_dump()
    body["query"]["predicates"] = [
        {"left": "R1.X", "right": "R2.X", "selectivity": 0.1},
        {"left": "R1.A", "right": "R3.A", "selectivity": 0.1},
        {"left": "R2.A", "right": "R3.A", "selectivity": 0.1},
        {"left": "R2.A", "right": "R4.A", "selectivity": 0.1},
        {"left": "R4.B", "right": "R5.B", "selectivity": 0.1},
        {"left": "R5.B", "right": "R6.B", "selectivity": 0.1},
    ]
    changed = PlanRequest.model_validate(body)
    attributes = Attributes.of(changed.query, problem_of(changed).model.graph)
    both, one = attributes.key(0b100, 0b11), attributes.key(0b1000, 0b11)
    assert both is not None
    assert one is not None
    assert both.parts == ((0, "A"), (1, "A"))
    assert one.parts == ((1, "A"),)
    # R3 and R4 need not agree on the value of R2.A, so it cannot be looked up after both.
    assert attributes.key(0b1100, 0b11) is None


def test_the_program_of_a_join_costs_what_its_pipelines_cost() -> None:
    problem, request, pipelines = six_way()
    found = prefix_candidates(problem.model, Attributes.of(request.query, problem.model.graph), pipelines)
    program, _ = program_of(pipelines, found, math.inf)
    states = math.fsum(state.cpu for state in pipelines.join.states)
    assert program.cost_without_caches + states == pytest.approx(pipelines.join.cpu)
    assert [cheapest_cover(program, p, [math.inf] * len(found))[0] for p in range(6)] == [
        pytest.approx(math.fsum(probe.cpu for probe in pipeline.probes)) for pipeline in pipelines.join.pipelines
    ]

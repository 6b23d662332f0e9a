"""Cache selection: every method against enumeration, and each other."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models.caches import CacheMethod, CacheSelectionRequest
from models.faults import errors_of
from models.plan import Proof
from solvers.caches.select.branch_and_bound import branch_and_bound
from solvers.caches.select.exact import cp_sat, exact
from solvers.caches.select.exhaustive import exhaustive
from solvers.caches.select.greedy import greedy
from solvers.caches.select.lp_rounding import lp_rounding, rounds
from solvers.caches.select.memory import priority_allocation
from solvers.caches.select.program import Candidate, Program, cheapest_cover
from solvers.caches.select.relaxation import relaxation
from solvers.caches.select.tree import overlap_forest, tree
from solvers.caches.solve import solve_caches
from solvers.common.deadline import Deadline
from solvers.common.errors import MethodError
from tests.solvers.caches.programs import random_program, wide_program

INSTANCES = 300


def soon() -> Deadline:
    return Deadline.after(60.0)


def features(seed: int) -> dict[str, bool]:
    return {"nested": seed % 2 == 0, "capped": seed % 3 == 0, "excluding": seed % 5 == 0}


def test_branch_and_bound_equals_enumeration() -> None:
    for seed in range(INSTANCES):
        program = random_program(seed, **features(seed))
        best, found = exhaustive(program, soon()), branch_and_bound(program, soon())
        assert found.optimal
        assert program.feasible(found.choice)
        assert found.cost == pytest.approx(best.cost, rel=1e-9)


def test_branch_and_bound_told_what_is_of_no_use_finds_the_optimum_below_and_claims_nothing_above() -> None:
    for seed in range(INSTANCES):
        program = random_program(seed, **features(seed))
        best = exhaustive(program, soon()).cost
        loose, tight = (branch_and_bound(program, soon(), below=best * factor) for factor in (1.001, 0.99))
        assert loose.optimal and loose.cost == pytest.approx(best, rel=1e-9)
        assert tight.bound is not None and (not tight.optimal or tight.choice == ())
        assert tight.bound <= best * (1 + 1e-9) and program.feasible(tight.choice)


def test_cp_sat_equals_enumeration() -> None:
    for seed in range(INSTANCES):
        program = random_program(seed, **features(seed))
        best, found = exhaustive(program, soon()), cp_sat(program, soon())
        assert found.optimal
        assert program.feasible(found.choice)
        assert found.cost == pytest.approx(best.cost, rel=1e-9)


def test_greedy_is_feasible_never_below_the_optimum_and_within_its_ratio() -> None:
    for seed in range(INSTANCES):
        program = random_program(seed, **features(seed))
        best, found = exhaustive(program, soon()), greedy(program)
        assert program.feasible(found.choice)
        assert found.cost >= best.cost * (1 - 1e-12)
        if features(seed) == {"nested": True, "capped": False, "excluding": False}:
            ratio = math.fsum(1.0 / k for k in range(1, program.operators + 1))
            assert found.cost <= best.cost * ratio * (1 + 1e-12)


def test_rounding_is_feasible_and_within_its_ratio_and_the_lp_bound_is_below_the_optimum() -> None:
    for seed in range(0, INSTANCES, 5):
        program = random_program(seed, nested=seed % 2 == 0, capped=seed % 3 == 0)
        best, relaxed = exhaustive(program, soon()), relaxation(program)
        assert relaxed.bound <= best.cost
        found = lp_rounding(program, relaxed, seed)
        assert program.feasible(found.choice)
        assert found.cost >= best.cost * (1 - 1e-12)
        if seed % 2 == 0 and seed % 3:
            assert found.cost <= relaxed.bound * rounds(program.operators) * (1 + 1e-12)


def test_the_lp_bound_is_the_optimum_where_nothing_is_shared() -> None:
    for seed in range(20):
        program = random_program(seed, shared=False)
        assert relaxation(program).bound == pytest.approx(exhaustive(program, soon()).cost, rel=1e-6)


def test_the_same_seed_rounds_to_the_same_choice() -> None:
    program = random_program(7)
    relaxed = relaxation(program)
    assert lp_rounding(program, relaxed, 3) == lp_rounding(program, relaxed, 3)


def test_tree_equals_enumeration_where_nothing_is_shared() -> None:
    for seed in range(INSTANCES):
        program = random_program(seed, shared=False)
        assert tree(program).cost == pytest.approx(exhaustive(program, soon()).cost, rel=1e-12)


def test_tree_refuses_what_it_cannot_answer() -> None:
    costs = ((1.0, 1.0, 1.0),)
    shared = Program(costs * 2, (Candidate(0, 0, 1, 0, 0.5), Candidate(1, 0, 1, 0, 0.5)), (0.1,))
    with pytest.raises(MethodError, match="share a group"):
        tree(shared)
    crossing = Program(costs, (Candidate(0, 0, 1, 0, 0.5), Candidate(0, 1, 2, 1, 0.5)), (0.1, 0.1))
    with pytest.raises(MethodError, match="cross"):
        tree(crossing)
    full = Program(costs, (Candidate(0, 0, 1, 0, 0.5, 10.0),), (0.1,), 5.0)
    with pytest.raises(MethodError, match="memory cap"):
        tree(full)


def test_the_overlap_forest_puts_each_candidate_under_the_smallest_that_contains_it() -> None:
    program = Program(((1.0,) * 6,), tuple(Candidate(0, a, b, g, 0.1) for g, (a, b) in enumerate([(0, 4), (0, 2), (0, 1), (3, 4)])), (0.1,) * 4)
    (root,) = overlap_forest(program, 0)
    assert (root.candidate, [child.candidate for child in root.children]) == (0, [1, 3])
    assert [child.candidate for child in root.children[0].children] == [2]


def test_a_cover_is_a_path_also_where_segments_cross() -> None:
    program = Program(((1.0, 1.0, 1.0),), (Candidate(0, 0, 1, 0, 0.5), Candidate(0, 1, 2, 1, 0.4)), (0.0, 0.0))
    assert cheapest_cover(program, 0, [0.5, 0.4]) == (1.4, (1,))


def test_a_tighter_memory_cap_never_lowers_the_cost() -> None:
    for seed in range(0, 60, 3):
        program = random_program(seed, capped=True)
        loose = exact(program.without_cap(), soon())
        assert exact(program, soon()).cost >= loose.cost * (1 - 1e-12)


def test_cp_sat_fills_the_memory_to_the_last_byte() -> None:
    """A third of the cap is no whole number of the steps that bytes are counted in."""
    program = Program(((4.0,), (4.0,), (4.0,)), tuple(Candidate(p, 0, 0, p, 1.0, 1.0) for p in range(3)), (0.5,) * 3, 3.0)
    found = cp_sat(program, soon())
    assert (found.choice, found.optimal) == ((0, 1, 2), True)


def test_cp_sat_does_not_overfill_the_memory_by_rounding() -> None:
    """Each is over its third of the cap by less than a step."""
    over = 1.0 + 1e-14
    program = Program(((4.0,), (4.0,), (4.0,)), tuple(Candidate(p, 0, 0, p, 1.0, over) for p in range(3)), (0.5,) * 3, 3.0)
    found, best = cp_sat(program, soon()), exhaustive(program, soon())
    assert program.feasible(found.choice) and found.optimal
    assert found.cost == best.cost == pytest.approx(7.0)


def test_priority_serves_the_highest_net_benefit_per_byte_first_and_the_last_in_part() -> None:
    costs = ((4.0, 4.0), (4.0, 4.0))
    program = Program(costs, (Candidate(0, 0, 1, 0, 2.0, 10.0), Candidate(1, 0, 1, 1, 1.0, 40.0)), (0.5, 0.5), 30.0)
    allotted = priority_allocation(program, (0, 1))
    assert allotted.shares == {0: 1.0, 1: 0.5}
    assert allotted.cost == pytest.approx(16.0 - (6.0 - 0.5) - (0.5 * 7.0 - 0.5))


def test_priority_is_never_better_than_all_the_memory_and_never_worse_than_none() -> None:
    for seed in range(0, 90, 3):
        program = random_program(seed, capped=True)
        unconstrained = exact(program.without_cap(), soon())
        allotted = priority_allocation(program, unconstrained.choice)
        assert unconstrained.cost * (1 - 1e-12) <= allotted.cost <= program.cost_without_caches * (1 + 1e-12)


@pytest.mark.parametrize(("streams", "candidates", "seconds"), [(15, 172, 0.1), (28, 687, 0.25)])
def test_large_programs_are_solved_to_optimality_in_time(streams: int, candidates: int, seconds: float) -> None:
    cp_sat(random_program(1), soon())  # the import is not what is measured
    used = []
    for seed in range(3):
        program = wide_program(seed, streams, candidates)
        before = time.process_time()
        assert exact(program, soon()).optimal
        used.append(time.process_time() - before)
    assert max(used) < seconds


def test_wide_programs_have_one_optimum_whoever_finds_it() -> None:
    for seed in range(2):
        program = wide_program(seed, 9, 50)
        found, other = branch_and_bound(program, soon()), cp_sat(program, soon())
        assert found.optimal
        assert found.cost == pytest.approx(other.cost, rel=1e-9)


def example(**changes: Any) -> dict[str, Any]:
    request = {
        "pipelines": [{"name": "R", "operator_costs": [4.0, 3.0]}, {"name": "T", "operator_costs": [5.0, 5.0]}],
        "candidates": [
            {"id": "ST", "pipeline": "R", "first": 0, "last": 1, "group": "st", "proc": 1.0, "memory_bytes": 10},
            {"id": "RS", "pipeline": "T", "first": 0, "last": 1, "group": "rs", "proc": 2.0, "memory_bytes": 20},
        ],
        "groups": [{"id": "st", "update_cost": 7.0}, {"id": "rs", "update_cost": 1.0}],
    }
    return {**request, **changes}


@pytest.mark.parametrize("method", list(CacheMethod))
def test_every_method_answers_the_example(method: CacheMethod) -> None:
    answer = solve_caches(CacheSelectionRequest.model_validate(example(method=method.value)))
    assert answer.chosen == ["RS"]
    assert answer.total_cost == 10.0
    assert answer.cost_without_caches == 17.0
    assert answer.memory == {"RS": 20.0}
    assert answer.proof is Proof.OPTIMAL  # the relaxation's bound says so, whoever found the choice
    if method in (CacheMethod.GREEDY, CacheMethod.LP_ROUNDING, CacheMethod.TREE):
        assert answer.ratio == pytest.approx(1.0, rel=1e-6)


def test_memory_by_priority_gives_what_there_is() -> None:
    answer = solve_caches(CacheSelectionRequest.model_validate(example(memory_bytes=15, allocation="priority")))
    assert answer.memory == {"RS": 15.0}
    assert answer.total_cost == pytest.approx(17.0 - 0.75 * 8.0 + 1.0)
    within = solve_caches(CacheSelectionRequest.model_validate(example(memory_bytes=15)))
    assert within.chosen == []
    assert within.proof is Proof.OPTIMAL


def test_all_faults_of_a_request_are_reported_at_once() -> None:
    request = example(
        candidates=[
            {"id": "a", "pipeline": "Q", "first": 0, "last": 1, "group": "st", "proc": -1},
            {"id": "a", "pipeline": "R", "first": 1, "last": 0, "group": "no", "proc": 1},
            {"id": "b", "pipeline": "R", "first": 0, "last": 2, "group": "st", "proc": 1, "excludes": ["st"]},
        ]
    )
    with pytest.raises(ValidationError) as failure:
        CacheSelectionRequest.model_validate(request)
    pointers = [where for where, _ in errors_of(failure.value, CacheSelectionRequest)]
    assert pointers == [
        "/candidates/0/proc",
        "/candidates/1/id",
        "/candidates/0/pipeline",
        "/candidates/1/group",
        "/candidates/1/last",
        "/candidates/2/excludes/0",
        "/candidates/2/last",
    ]


def test_figures_beyond_a_double_are_refused_by_name() -> None:
    with pytest.raises(Exception, match="more than a double"):
        solve_caches(CacheSelectionRequest.model_validate(example(groups=[{"id": "st", "update_cost": 1e308}, {"id": "rs", "update_cost": 1e308}])))
    assert math.isfinite(solve_caches(CacheSelectionRequest.model_validate(example())).total_cost)


AMOUNT = st.one_of(st.floats(0, 10), st.sampled_from([0.0, 1e-320, 1e-300, 1e-9, 1e9, 1e300]))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_figures_get_a_finite_answer_from_every_method(data: st.DataObject) -> None:
    pipelines = [
        {"name": f"p{i}", "operator_costs": data.draw(st.lists(AMOUNT, min_size=1, max_size=4))} for i in range(data.draw(st.integers(1, 3)))
    ]
    groups = [{"id": f"g{i}", "update_cost": data.draw(AMOUNT)} for i in range(data.draw(st.integers(1, 3)))]
    candidates = []
    for i in range(data.draw(st.integers(0, 6))):
        pipeline = data.draw(st.sampled_from(pipelines))
        first = data.draw(st.integers(0, len(pipeline["operator_costs"]) - 1))
        candidates.append(
            {
                "id": f"c{i}",
                "pipeline": pipeline["name"],
                "first": first,
                "last": data.draw(st.integers(first, len(pipeline["operator_costs"]) - 1)),
                "group": data.draw(st.sampled_from(groups))["id"],
                "proc": data.draw(AMOUNT),
                "memory_bytes": data.draw(AMOUNT),
            }
        )
    body: dict[str, Any] = {"pipelines": pipelines, "groups": groups, "candidates": candidates}
    if data.draw(st.booleans()):
        body["memory_bytes"] = data.draw(AMOUNT)
    costs, proven = {}, {}
    for method in CacheMethod:
        for allocation in ("program", "priority"):
            try:
                answer = solve_caches(CacheSelectionRequest.model_validate({**body, "method": method.value, "allocation": allocation}))
            except MethodError:
                assert method is CacheMethod.TREE
                continue
            assert all(math.isfinite(value) for value in (answer.total_cost, answer.memory_bytes))
            assert answer.bound is None or answer.bound <= answer.total_cost
            if allocation == "program":
                costs[method], proven[method] = answer.total_cost, answer
    least = costs[CacheMethod.EXHAUSTIVE]
    for method, answer in proven.items():
        assert answer.proof is not Proof.OPTIMAL or answer.total_cost == pytest.approx(least, rel=1e-9), method
        assert answer.bound is None or answer.bound <= least * (1 + 1e-9), method
    assert min(costs.values()) >= costs[CacheMethod.EXHAUSTIVE] * (1 - 1e-9)

"""Verdicts on approved plans: like compared with like, and nothing that could not be compared passes as clean."""

from __future__ import annotations

import json
import random
from importlib.metadata import version as version_of
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.check import Aspect, Bar, CaseResult, CheckCase, CheckRequest, CheckStatus, Tolerance, Verdict
from models.plan import Plan, Proof
from models.request import PlanRequest
from solvers import check as module
from solvers.check import check, price_again
from solvers.planner import plan
from tests.graphs import plan_requests
from tests.solvers.caches.plans import plan_with_caches, query

STAR: dict[str, Any] = {
    "query": {
        "streams": [
            {"name": "orders", "rate": 40, "window": {"seconds": 60}},
            {"name": "customers", "rate": 80, "window": {"seconds": 180}},
            {"name": "products", "rate": 300, "window": {"seconds": 36}},
            {"name": "stores", "rate": 100, "window": {"seconds": 36}},
        ],
        "predicates": [
            {"left": "orders.customer", "right": "customers.id", "selectivity": 2e-4},
            {"left": "orders.product", "right": "products.id", "selectivity": 3e-4},
            {"left": "orders.store", "right": "stores.id", "selectivity": 5e-4},
        ],
    }
}


def star(**fields: Any) -> PlanRequest:
    return PlanRequest.model_validate({**STAR, **fields})


def checked(request: PlanRequest, approved: Plan, version: str | None = None, bar: str = "regressed", **tolerance: float) -> CaseResult:
    case = CheckCase(name="case", request=request, plan=approved, version=version)
    (result,) = check(CheckRequest(cases=[case], tolerance=Tolerance(**tolerance), fail_on=Bar(bar))).cases
    return result


@settings(max_examples=60, deadline=None)
@given(request=plan_requests())
def test_a_plan_made_now_is_identical_to_itself(request: PlanRequest) -> None:
    made = plan(request)
    result = checked(request, Plan.model_validate_json(made.model_dump_json()))
    assert (result.verdict, result.notes, result.reasons, result.fails) == (Verdict.IDENTICAL, [], [], False)


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(3, 5),
    shape=st.sampled_from(["chain", "star", "one key", "cycle"]),
    kind=st.sampled_from(["prefix", "global"]),
    nested=st.booleans(),
)
def test_caches_are_priced_again_as_they_were_priced(seed: int, n: int, shape: str, kind: str, nested: bool) -> None:
    generator = random.Random(seed)
    request = PlanRequest.model_validate({"query": query(generator, n, shape)})
    made = plan_with_caches(request, kind, generator, nested)
    again = price_again(CheckCase(name="case", request=request, plan=made))
    assert again.fingerprint == made.fingerprint
    for figure in ("cpu", "memory_bytes", "memory_tuples", "output_rate"):
        assert getattr(again.cost, figure) == pytest.approx(getattr(made.cost, figure), rel=1e-9)


def test_a_worse_search_is_a_regression_in_what_got_worse() -> None:
    approved = plan(star())
    result = checked(star(options={"method": "mjoin", "caches": "off"}), approved)
    assert result.verdict is Verdict.REGRESSED and result.fails
    assert Aspect.CPU in result.regressions and Aspect.MEMORY not in result.regressions
    assert result.reasons[0].startswith("CPU 0.00912 → 0.0103 (+13")
    assert result.diff is not None and "customers⋈orders is no longer kept" in result.diff.structure


def test_within_the_tolerance_it_is_a_change_and_no_regression() -> None:
    wide = star(options={"method": "mjoin", "caches": "off"})
    approved = plan(star()).model_copy(update={"proof": plan(wide).proof, "tree_proof": plan(wide).tree_proof})
    assert checked(wide, approved, cpu=0.1, memory=1.0).regressions == [Aspect.CPU]
    result = checked(wide, approved, cpu=0.2, memory=1.0)
    assert (result.verdict, result.reasons) == (Verdict.CHANGED, ["another structure, its cost within the tolerance"])


def test_a_better_plan_is_an_improvement() -> None:
    approved = plan(star(options={"method": "mjoin", "caches": "off"}))
    result = checked(star(objective="min_cpu"), approved, memory=100.0)
    assert (result.verdict, result.fails) == (Verdict.IMPROVED, False)
    assert checked(star(), approved, bar="improved", memory=100.0).fails


def test_new_cost_constants_are_said_first_and_are_no_regression() -> None:
    approved = plan(star())
    dearer = star(costs={"join": 4.4e-6, "insert": 4e-7, "delete": 4e-7, "append": 2e-7, "scan": 3.4e-6})
    assert plan(dearer).cost.cpu > approved.cost.cpu * 1.9
    result = checked(dearer, approved)
    assert result.verdict is Verdict.CHANGED and result.regressions == []
    assert result.notes[0].startswith("costs.") and result.diff is not None and result.diff.same_structure
    assert result.approved is not None and result.plan is not None and result.approved.cost.cpu == result.plan.cost.cpu


def test_another_version_is_said_before_anything_else_and_alone_changes_nothing() -> None:
    result = checked(star(), plan(star()), version="0.0.1")
    assert result.notes == [f"approved by watersmeet 0.0.1, planned by {version_of('watersmeet')}"]
    assert result.verdict is Verdict.IDENTICAL


def test_figures_of_another_cost_model_are_priced_again_and_said() -> None:
    approved = plan(star())
    doctored = approved.model_copy(update={"cost": approved.cost.model_copy(update={"cpu": approved.cost.cpu / 2})})
    result = checked(star(), doctored)
    assert result.verdict is Verdict.CHANGED
    assert "the cost model of today prices the approved plan differently: CPU 0.00456 → 0.00912" in result.notes


def test_a_plan_that_no_longer_qualifies_or_lost_its_proof_is_a_regression() -> None:
    approved = plan(star(resources={"memory_bytes": 1e7}))
    result = checked(star(resources={"memory_bytes": 1e6}), approved)
    assert result.verdict is Verdict.REGRESSED and Aspect.QUALIFIED in result.regressions
    assert result.reasons[0] == "no longer qualified: no plan fits the caps"
    heuristic = star(options={"method": "two_layer", "caches": "off"})
    unproven = checked(heuristic, plan(heuristic).model_copy(update={"proof": Proof.OPTIMAL}))
    assert unproven.regressions == [Aspect.PROOF]


def test_fewer_results_are_a_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(star())
    fewer = made.model_copy(update={"cost": made.cost.model_copy(update={"output_rate": made.cost.output_rate * 0.9})})
    monkeypatch.setattr(module, "plan", lambda *_: fewer)
    assert checked(star(), made).regressions == [Aspect.OUTPUT_RATE]
    assert checked(star(), made, output_rate=0.11).regressions == []


def test_another_structure_at_the_same_cost_is_equivalent() -> None:
    """Two streams with the same figures may swap places."""
    request = PlanRequest.model_validate(
        {
            "query": {
                "streams": [{"name": name, "rate": 10, "window": {"seconds": 10}} for name in "abc"],
                "predicates": [
                    {"left": "a.k", "right": "b.k", "selectivity": 0.01},
                    {"left": "b.k", "right": "c.k", "selectivity": 0.01},
                ],
            },
            "options": {"method": "bjtree", "caches": "off"},
        }
    )
    made = plan(request)
    swapped = json.loads(made.model_dump_json().replace('"a"', '"#"').replace('"c"', '"a"').replace('"#"', '"c"'))
    swapped["query"] = json.loads(made.query.model_dump_json())
    for operator in swapped["operators"]:
        operator["streams"].sort()
    approved = price_again(CheckCase(name="case", request=request, plan=Plan.model_validate(swapped)))
    assert approved.fingerprint != made.fingerprint
    result = checked(request, approved.model_copy(update={"proof": made.proof, "bound": made.bound, "gap": made.gap}))
    assert (result.verdict, result.fails) == (Verdict.EQUIVALENT, False)
    assert checked(request, approved.model_copy(update={"proof": made.proof}), bar="equivalent").fails


def test_a_plan_for_other_streams_cannot_be_compared_and_is_not_clean() -> None:
    three = star()
    approved = plan(three.model_copy(update={"query": three.query.model_copy(update={"streams": three.query.streams[:1], "predicates": []})}))
    case = CheckCase(name="case", request=three, plan=approved)
    report = check(CheckRequest(cases=[case]))
    assert report.status is CheckStatus.BROKEN and report.counts.failed == 1
    assert report.cases[0].fails and "does not fit the request" in report.cases[0].reasons[0]


def test_what_a_solver_refuses_is_a_failed_case_and_the_others_are_checked() -> None:
    huge = json.loads(json.dumps(STAR))
    for stream in huge["query"]["streams"]:
        stream["rate"] = 1e300
    cases = [CheckCase(name=name, request=request, plan=plan(star())) for name, request in (("b", PlanRequest.model_validate(huge)), ("a", star()))]
    report = check(CheckRequest(cases=cases))
    assert [(result.name, result.verdict) for result in report.cases] == [("b", Verdict.FAILED), ("a", Verdict.IDENTICAL)]
    assert report.status is CheckStatus.BROKEN


def test_the_worst_comes_first() -> None:
    approved = plan(star())
    requests = {
        "fine": star(),
        "dearer": star(costs={"join": 3e-6}),
        "worse": star(options={"method": "mjoin", "caches": "off"}),
        "lost": star(resources={"memory_bytes": 1e6}),
    }
    report = check(CheckRequest(cases=[CheckCase(name=name, request=request, plan=approved) for name, request in requests.items()]))
    assert [result.name for result in report.cases] == ["lost", "worse", "dearer", "fine"]
    assert report.status is CheckStatus.FINDINGS and report.counts.regressed == 2


def test_a_case_without_time_left_fails_instead_of_passing() -> None:
    case = CheckCase(name="case", request=star(), plan=plan(star()))
    report = check(CheckRequest(cases=[case] * 3, time_limit=1e-9))
    assert report.status is CheckStatus.BROKEN and "no time was left" in report.cases[-1].reasons[0]

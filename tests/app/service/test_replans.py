"""Replans over HTTP: what differs from the running plan is named by its place, and an answer that is cut off keeps the plan."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from models.plan import Plan, Termination
from models.replan import Replan, ReplanRequest
from models.request import PlanRequest
from solvers.planner import plan
from solvers.so_far import replan_so_far
from tests.app.serving import check_problem, example, post


def asked(name: str = "auction", **more: Any) -> dict[str, Any]:
    made = plan(PlanRequest.model_validate(example(name)))
    return {"plan": json.loads(made.model_dump_json()), "request": example(name), **more}


def test_a_running_plan_is_kept_or_changed_over_http(service: httpx.Client) -> None:
    body = asked()
    kept = Replan.model_validate_json(post(service, "/v1/replans", body).content)
    running = Plan.model_validate(body["plan"])
    assert kept.decision == "keep"
    assert kept.plan == running.model_copy(update={key: getattr(kept.plan, key) for key in PROVEN})
    body["request"]["query"]["streams"][0]["rate"] *= 30
    changed = Replan.model_validate_json(post(service, "/v1/replans", body).content)
    assert (changed.decision, changed.kind) == ("change", "tree")
    assert [entry.operator for entry in changed.rebuild] == ["join-1"]


PROVEN = ("termination", "proof", "bound", "gap", "tree_proof", "tree_bound", "explanation")
"""What depends on the search, and a plan that is kept without a look has none."""


@pytest.mark.parametrize(
    ("pointer", "value", "where"),
    [
        (("query", "streams", 0, "window"), {"seconds": 1}, "/request/query/streams/0/window"),
        (("query", "streams", 0, "window"), {"rows": 600}, "/request/query/streams/0/window"),
        (("query", "predicates", 0, "op"), "<", "/request/query/predicates/0"),
        (("query", "streams", 0, "rate"), 0, "/request/query/streams/0/rate"),
    ],
)
def test_what_is_not_the_same_query_is_refused_with_its_place(service: httpx.Client, pointer: tuple[Any, ...], value: Any, where: str) -> None:
    body = asked()
    holder = body["request"]
    for part in pointer[:-1]:
        holder = holder[part]
    holder[pointer[-1]] = value
    problem = check_problem(post(service, "/v1/replans", body), 422)
    assert where in [error["pointer"] for error in problem["errors"]]


@pytest.mark.parametrize("value", [1, 0.0, "yes", "true"])
def test_a_flag_of_the_plan_is_true_or_false_and_nothing_like_it(service: httpx.Client, value: Any) -> None:
    body = asked()
    body["plan"]["qualified"] = value
    (error,) = check_problem(post(service, "/v1/replans", body), 422)["errors"]
    assert (error["pointer"], error["detail"]) == ("/plan/qualified", f"qualified must be true or false, got {value!r}")


def test_figures_beyond_a_double_are_refused_with_their_place(service: httpx.Client) -> None:
    body = asked()
    body["request"]["query"]["streams"][1]["rate"] = 1e291
    assert [error["pointer"] for error in check_problem(post(service, "/v1/replans", body), 422)["errors"]] == ["/request/query/streams/1"]
    body = asked()
    body["plan"]["caches"] = [
        {"id": "c", "operator": "join-9", "input": "bids", "first": 0, "last": 1, "streams": ["bids"], "key": [], "kind": "prefix"}
        | {"group": 0, "miss_probability": 0.5, "saves": 0, "costs": 0, "memory_bytes": 0}
    ]
    assert [error["pointer"] for error in check_problem(post(service, "/v1/replans", body), 422)["errors"]] == ["/plan/caches"]


def test_a_replan_that_is_cut_off_keeps_the_plan() -> None:
    body = asked()
    body["request"]["query"]["streams"][0]["rate"] *= 30
    answer = replan_so_far(ReplanRequest.model_validate(body))
    assert (answer.decision, answer.termination) == ("keep", Termination.TIME_LIMIT)
    assert answer.plan.fingerprint == body["plan"]["fingerprint"]
    assert answer.reasons == ["The time limit came before another plan could be compared with the running one."]

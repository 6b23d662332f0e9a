"""From bytes to bytes, as a worker does it, without the process."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from app.service.endpoints import ENDPOINTS
from app.service.worker import respond
from models.base import Model
from models.plan import Termination
from models.replan import ReplanRequest
from models.request import PlanRequest
from models.service import Health
from solvers.common.errors import RangeError, WrongBoundError
from solvers.planner import plan
from tests.app.serving import ROOT, example

PLANS = ENDPOINTS[0]


def body(time_limit: float | None = None) -> bytes:
    request = example()
    return json.dumps(request if time_limit is None else {**request, "options": {"time_limit": time_limit}}).encode()


@pytest.mark.parametrize(("given", "longest", "expected"), [(2.0, 10.0, 2.0), (20.0, 10.0, 10.0), (None, 10.0, 1.0), (None, 0.5, 0.5)])
def test_solver_and_deadline_get_the_same_limit(given: float | None, longest: float, expected: float) -> None:
    seen: list[float] = []

    def solver(request: Model) -> Model:
        assert isinstance(request, PlanRequest)
        seen.append(request.options.time_limit)
        return Health(status="ok")

    reply = respond(PLANS, solver, body(given), longest, lambda _, limit: seen.append(limit))
    assert seen == [expected, expected]
    assert (reply.status, reply.body, reply.complete) == (200, b'{"status":"ok"}', True) and reply.seconds >= 0.0


class OwnLimit(Model):
    """A request to a solver on its own: the limit is not among options."""

    time_limit: float


def test_a_solver_on_its_own_has_its_limit_cut_too() -> None:
    endpoint = replace(PLANS, request=OwnLimit)
    seen: list[float] = []

    def solver(request: Model) -> Model:
        assert isinstance(request, OwnLimit)
        seen.append(request.time_limit)
        return Health(status="ok")

    respond(endpoint, solver, b'{"time_limit": 300}', 3.0, lambda _, limit: seen.append(limit))
    assert seen == [3.0, 3.0]


def test_a_replan_has_the_limit_of_the_request_within_it_cut_too() -> None:
    endpoint = next(endpoint for endpoint in ENDPOINTS if endpoint.path == "/v1/replans")
    seen: list[float] = []

    def solver(request: Model) -> Model:
        assert isinstance(request, ReplanRequest)
        seen.append(request.request.options.time_limit)
        return Health(status="ok")

    asked = {"plan": json.loads(plan(PlanRequest.model_validate(example())).model_dump_json()), "request": json.loads(body(300.0))}
    respond(endpoint, solver, json.dumps(asked).encode(), 3.0, lambda _, limit: seen.append(limit))
    assert seen == [3.0, 3.0]
    refused = respond(endpoint, solver, json.dumps(asked).encode(), 3.0, lambda *_: None, streams=2)
    assert [error["pointer"] for error in json.loads(refused.body)["errors"]] == ["/request/query/streams"]


def test_the_first_deadline_comes_only_after_the_body_was_good() -> None:
    def never(*_: object) -> Model:
        raise AssertionError

    reply = respond(PLANS, never, b"{}", 1.0, never)
    assert reply.status == 422 and json.loads(reply.body)["errors"] == [{"pointer": "/query", "detail": "query is required"}]


def test_what_a_solver_refuses_is_a_problem_with_its_pointer() -> None:
    def refuse(_: Model) -> Model:
        raise RangeError("too many tuples", "/query")

    reply = respond(PLANS, refuse, body(), 1.0, lambda *_: None)
    assert reply.status == 422 and json.loads(reply.body)["errors"] == [{"pointer": "/query", "detail": "too many tuples"}]


@pytest.mark.parametrize("termination", Termination)
def test_an_answer_is_complete_where_its_search_was_not_cut_off(termination: Termination) -> None:
    def solver(request: Model) -> Model:
        assert isinstance(request, PlanRequest)
        return plan(request).model_copy(update={"termination": termination})

    assert respond(PLANS, solver, body(), 10.0, lambda *_: None).complete is (termination is Termination.COMPLETE)


def test_a_wrong_bound_is_our_fault_and_not_the_callers() -> None:
    """What `respond` does not catch is logged with all its details and answered with a 500, as test_http sees."""

    def claims_too_much(_: Model) -> Model:
        raise WrongBoundError(1.0, 2.0, maximise=False)

    with pytest.raises(WrongBoundError, match=r"2\.0 is a lower bound above the value it bounds, 1\.0"):
        respond(PLANS, claims_too_much, body(), 1.0, lambda *_: None)


def test_the_process_with_the_event_loop_loads_no_solver() -> None:
    heavy = ("numba", "ortools", "networkx", "pulp", "numpy", "solvers.planner")
    script = f"import sys, app.service.serve; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

"""Requests made from the document itself: what it promises is what the service does, by every check schemathesis has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import ValidationError
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from app.service.endpoints import ENDPOINTS
from app.service.openapi_document import document
from app.service.settings import Settings
from app.service.worker import respond
from models.base import Model
from solvers.common.errors import WatersmeetError, in_range
from tests.app.serving import example, running

TIME_LIMIT = 2.0

# A request can obey its schema and still name streams that it does not have (422, see `faults_that_no_schema_can_say`), or be too large (413).
CONFIG = SchemathesisConfig.from_dict(
    {
        "checks": {
            "positive_data_acceptance": {"expected-statuses": ["2xx", "413", "422"]},
            "negative_data_rejection": {"expected-statuses": ["413", "415", "422"]},
        }
    }
)
schema = schemathesis.openapi.from_dict(document(), config=CONFIG)


@pytest.fixture(scope="module")
def frugal() -> Iterator[httpx.Client]:
    """A service that refuses the megabytes of garbage that would take up the time of this test."""
    with running(Settings(workers=1, body_bytes=100_000)) as (client, _):
        yield client


def faults_that_no_schema_can_say(_: Any, response: Any, case: schemathesis.Case[Any]) -> None:
    """A body that obeys its schema is refused for what spans its fields alone, or by a solver: never for a field that the schema describes."""
    generated = case.meta.generation.mode.is_positive if case.meta else False
    endpoint = next((endpoint for endpoint in ENDPOINTS if endpoint.path == case.path), None)
    if endpoint is None or not generated or response.status_code != 422:
        return
    try:
        endpoint.request.model_validate(case.body)
    except ValidationError as refused:
        # "fault": what spans fields. "tiny": figures are 0 or at least 1e-12, which a schema could say only as a union, and generated clients would
        # choke on that.
        assert {error["type"] for error in refused.errors()} <= {"fault", "tiny"}, f"the schema of {case.path} does not say: {refused}"
        return
    solve, refusals = endpoint.load(), list[WatersmeetError]()

    def solved(request: Model) -> Model:
        try:
            with in_range():
                return solve(request)
        except WatersmeetError as refusal:
            refusals.append(refusal)
            raise

    respond(endpoint, solved, json.dumps(case.body).encode(), TIME_LIMIT, lambda *_: None)
    assert refusals, f"a body that the schema of {case.path} allows is refused before a solver sees it: {response.content!r}"


def case_of(path: str, body: Any) -> Any:
    return SimpleNamespace(path=path, body=body, meta=SimpleNamespace(generation=SimpleNamespace(mode=GenerationMode.POSITIVE)))


def test_a_refusal_without_a_reason_would_be_noticed() -> None:
    refused = SimpleNamespace(status_code=422, content=b"refused")
    query = {"streams": [{"name": name, "rate": 1e200, "window": {"seconds": 1}} for name in "ab"], "predicates": []}
    with pytest.raises(AssertionError, match="before a solver sees it"):
        faults_that_no_schema_can_say(None, refused, case_of("/v1/plans", example()))
    with pytest.raises(AssertionError, match="does not say"):
        faults_that_no_schema_can_say(None, refused, case_of("/v1/plans", {**example(), "objective": "none such"}))
    faults_that_no_schema_can_say(None, refused, case_of("/v1/plans", {"query": query}))
    unknown = {**query, "predicates": [{"left": "a.k", "right": "nobody.k", "selectivity": 0.5}]}
    faults_that_no_schema_can_say(None, refused, case_of("/v1/plans", {"query": unknown}))


@schema.parametrize()
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_service_does_what_the_document_says(case: schemathesis.Case[Any], frugal: httpx.Client) -> None:
    case.call_and_validate(base_url=str(frugal.base_url), additional_checks=[faults_that_no_schema_can_say])

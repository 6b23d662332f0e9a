"""Requests made from the document itself: what it promises is what the service does, by every check schemathesis has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from pydantic import ValidationError
from schemathesis.config import SchemathesisConfig

from app.service.endpoints import ENDPOINTS
from app.service.openapi_document import document
from app.service.settings import Settings
from tests.app.serving import running

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
        # "tiny": figures are 0 or at least 1e-12, which a schema could say only as a union, and generated clients would choke on that.
        assert {error["type"] for error in refused.errors()} <= {"fault", "tiny"}, f"the schema of {case.path} does not say: {refused}"


@schema.parametrize()
@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_the_service_does_what_the_document_says(case: schemathesis.Case[Any], frugal: httpx.Client) -> None:
    case.call_and_validate(base_url=str(frugal.base_url), additional_checks=[faults_that_no_schema_can_say])

"""The document: up to date, complete, and made for generated clients."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from app.service.api import create_app
from app.service.endpoints import ENDPOINTS, Endpoint
from app.service.openapi_document import document
from models.replan import ChangeKind, Decision, ReplanRequest
from solvers.common.deadline import Progress
from solvers.replan import replan
from tests.app.serving import EXAMPLES, ROOT


def nodes(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        yield item
        waiting.extend(item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())


def operations() -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for operation in methods.values():
            yield path, operation


def test_the_file_in_the_repository_is_up_to_date() -> None:
    written = json.loads((ROOT / "openapi" / "openapi.json").read_text("utf-8"))
    assert written == document(), "make it anew: watersmeet openapi --output openapi/openapi.json"


def test_the_document_is_the_same_in_every_process() -> None:
    texts = {
        subprocess.run(
            [sys.executable, "-m", "app", "openapi"], cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "2")
    }
    assert len(texts) == 1 and json.loads(texts.pop()) == document()


def test_every_reference_leads_somewhere_and_no_schema_is_unused() -> None:
    described = document()
    references = {item["$ref"] for item in nodes(described) if isinstance(item, dict) and "$ref" in item}
    assert references == {f"#/components/schemas/{name}" for name in described["components"]["schemas"]}


def test_every_operation_has_a_name_of_its_own_a_summary_a_tag_and_one_kind_of_error() -> None:
    names = [operation["operationId"] for _, operation in operations()]
    assert len(names) == len(set(names)) and all(name.isidentifier() for name in names)
    for path, operation in operations():
        assert operation["summary"] and operation["description"] and operation["tags"]
        for status, response in operation["responses"].items():
            if status != "200":
                assert response["content"] == {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}, (path, status)
        assert {"200", "default"} <= set(operation["responses"])


def test_clients_see_one_schema_per_model() -> None:
    names = set(document()["components"]["schemas"])
    assert not {"HTTPValidationError", "ValidationError"} & names
    assert not [name for name in names if name.endswith(("-Input", "-Output"))]


def test_numbers_have_their_size_and_their_limits_in_json_schemas_words() -> None:
    schemas = document()["components"]["schemas"]
    assert schemas["Stream"]["properties"]["rate"]["exclusiveMinimum"] == 0
    assert schemas["Observed"]["properties"]["selectivity"]["maximum"] == 1
    for item in nodes(schemas):
        if isinstance(item, dict) and item.get("type") in ("number", "integer"):
            assert not {"gt", "ge", "lt", "le"} & set(item), item
    assert schemas["Stream"]["properties"]["rate"]["format"] == "double"


def test_every_endpoint_is_documented_with_its_models() -> None:
    paths = document()["paths"]
    for endpoint in ENDPOINTS:
        operation = paths[endpoint.path]["post"]
        body = operation["requestBody"]
        assert body["required"] and list(body["content"]) == ["application/json"]
        assert body["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{endpoint.request.__name__}"}
        assert operation["responses"]["200"]["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{endpoint.answer.__name__}"}


def test_streams_are_documented_beside_json_where_there_are_any() -> None:
    paths = document()["paths"]
    for endpoint in ENDPOINTS:
        content = paths[endpoint.path]["post"]["responses"]["200"]["content"]
        assert list(content) == ["application/json", "text/event-stream"][: 1 + endpoint.streams]
        if endpoint.streams:
            events = content["text/event-stream"]["x-events"]
            assert [events[name]["$ref"].rpartition("/")[2] for name in ("incumbent", "answer", "problem")] == [
                "Incumbent",
                endpoint.answer.__name__,
                "Problem",
            ]


def test_every_example_file_is_a_named_example_of_a_plan_request() -> None:
    examples = document()["paths"]["/v1/plans"]["post"]["requestBody"]["content"]["application/json"]["examples"]
    assert {name: entry["value"] for name, entry in examples.items()} == {file.stem: json.loads(file.read_text("utf-8")) for file in EXAMPLES}


def test_examples_of_other_questions_are_bodies_that_are_answered() -> None:
    for endpoint in ENDPOINTS:
        files = sorted((ROOT / "openapi" / "examples" / endpoint.operation_id).glob("*.json"))
        content = document()["paths"][endpoint.path]["post"]["requestBody"]["content"]["application/json"]
        if endpoint.operation_id not in ("plan", "request_from_sql"):
            assert {name: entry["value"] for name, entry in content.get("examples", {}).items()} == {
                file.stem: json.loads(file.read_text("utf-8")) for file in files
            }
        for file in files:
            assert isinstance(endpoint.load()(endpoint.request.model_validate_json(file.read_text("utf-8"))), endpoint.answer)
    replans = ROOT / "openapi" / "examples" / "replan"
    answers = {file.stem: replan(ReplanRequest.model_validate_json(file.read_text("utf-8"))) for file in replans.glob("*.json")}
    assert {name: (answer.decision, answer.kind) for name, answer in answers.items()} == {
        "fewer_bids": (Decision.CHANGE, ChangeKind.TREE),
        "noise": (Decision.KEEP, ChangeKind.NONE),
    }


def test_every_route_but_the_pages_is_in_the_document() -> None:
    routed = {getattr(route, "path", "") for route in create_app().routes}
    assert routed - set(document()["paths"]) == {"/", "/docs", "/openapi.json", "/static", "/static/page"}


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation_id)
def test_the_function_of_every_endpoint_takes_and_gives_what_the_registry_says(endpoint: Endpoint) -> None:
    hints = get_type_hints(endpoint.load())
    progress = hints.pop("progress", None)
    assert list(hints.values()) == [endpoint.request, endpoint.answer]
    assert progress is Progress or not endpoint.streams

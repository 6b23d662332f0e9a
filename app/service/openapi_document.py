"""The OpenAPI document, made for generated clients: one schema per model, one name per operation, one kind of error.

Bodies are read by workers, not by FastAPI, so FastAPI does not see the request models; `describe` adds them, and
`Problem`, to what it generates from the routes.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from app.files import EXAMPLES
from app.service.body import decode_yaml
from app.service.endpoints import ENDPOINTS, Endpoint
from app.service.problems import PROBLEM_MEDIA_TYPE, TITLES
from app.service.stream import EVENT_STREAM
from models.problem import Problem
from models.progress import Incumbent

__all__ = ["SERVICE_PROBLEMS", "SOLVE_PROBLEMS", "describe", "description", "document", "request_body", "solve_responses"]

REFERENCE = "#/components/schemas/{model}"

INFO = """A plan server for n-way joins over windows of streams.

Give it the streams (rate, window), the predicates between them (selectivity) and what a plan may use (CPU, memory);
it answers with a join tree, its probe orders, what they cost, and what is proven of them.

Units: seconds, tuples, bytes; CPU in CPU-seconds per second. The same request gives the same bytes."""

TAGS = [
    {"name": "plans", "description": "Plans, and what is made of them."},
    {"name": "solvers", "description": "The solvers on their own, for callers that have their own model."},
    {"name": "service", "description": "Is it up, is it ready, how is it doing."},
]


def _problem(description: str) -> dict[str, Any]:
    return {"description": description, "content": {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": REFERENCE.format(model="Problem")}}}}


_RETRY_AFTER = {"Retry-After": {"description": "Seconds to wait before asking again.", "schema": {"type": "integer", "minimum": 1}}}
_DEFAULT = _problem("Any other error.")

_KEPT = {
    "ETag": {"description": "Names these bytes: the same plan has the same.", "schema": {"type": "string"}},
    "X-Cache": {
        "description": "`hit`: solved before. `shared`: solved with a request that was in flight. `miss`: solved for this request.",
        "schema": {"type": "string", "enum": ["hit", "shared", "miss"]},
    },
    "Server-Timing": {
        "description": "Milliseconds spent waiting for a worker (`queue`) and solving (`solve`); not there for a `hit`.",
        "schema": {"type": "string"},
    },
}

SOLVE_PROBLEMS: dict[int | str, dict[str, Any]] = {
    200: {"headers": _KEPT},
    401: _problem(f"{TITLES[401]}: the service asks for a key in X-API-Key."),
    408: _problem(f"{TITLES[408]}: the body took too long to arrive."),
    413: _problem(f"{TITLES[413]}: the body is larger than the service takes."),
    415: _problem(f"{TITLES[415]}: the body is not application/json."),
    422: _problem(f"{TITLES[422]}: every fault of the request, each with a JSON pointer."),
    429: {**_problem(f"{TITLES[429]}: past the rate limit."), "headers": _RETRY_AFTER},
    503: {**_problem(f"{TITLES[503]}: every worker is busy and the queue is full."), "headers": _RETRY_AFTER},
    "default": _DEFAULT,
}
STREAMING = """

With `Accept: text/event-stream` the answer comes as server-sent events. `incumbent`: the best plan so far and what is proven of it, whenever one
of them got better, at most ten times a second. Then `answer`, whose data are the bytes that a plain request gets, or `problem` where it fails after
the stream began. To close the connection stops the search."""
SERVICE_PROBLEMS: dict[int | str, dict[str, Any]] = {"default": _DEFAULT}


def solve_responses(endpoint: Endpoint) -> dict[int | str, dict[str, Any]]:
    """What an endpoint may answer."""
    if not endpoint.streams:
        return SOLVE_PROBLEMS
    answer, incumbent, problem = ({"$ref": REFERENCE.format(model=model)} for model in (endpoint.answer.__name__, "Incumbent", "Problem"))
    # The schema is that of what a client is after, the last event's data: clients generated for JSON keep their one type of answer.
    stream = {"schema": answer, "x-events": {"incumbent": incumbent, "answer": answer, "problem": problem}}
    return {**SOLVE_PROBLEMS, 200: {**SOLVE_PROBLEMS[200], "content": {EVENT_STREAM: stream}}}


def description(endpoint: Endpoint) -> str:
    """What an endpoint does."""
    return (endpoint.request.__doc__ or "") + (STREAMING if endpoint.streams else "")


def request_body(endpoint: Endpoint) -> dict[str, Any]:
    """The request body of an endpoint."""
    content: dict[str, Any] = {"schema": {"$ref": REFERENCE.format(model=endpoint.request.__name__)}}
    # Without a key or with one: whether it is asked for is the service's setting.
    return {"requestBody": {"required": True, "content": {"application/json": content}}, "security": [{}, {"ApiKey": []}]}


def _examples(endpoint: Endpoint) -> dict[str, Any]:
    """By their names, the files of openapi/examples: plan requests and SQL queries in the folder itself, others in one of the operation's name."""
    if endpoint.operation_id == "request_from_sql":
        return {
            file.stem: {"value": {"sql": file.read_text("utf-8"), "statistics": decode_yaml(file.with_suffix(".stats.yaml").read_bytes())}}
            for file in sorted(EXAMPLES.glob("*.sql"))
        }
    folder = EXAMPLES if endpoint.operation_id == "plan" else EXAMPLES / endpoint.operation_id
    return {file.stem: {"value": json.loads(file.read_text("utf-8"))} for file in sorted(folder.glob("*.json"))}


def describe(app: FastAPI) -> dict[str, Any]:
    """The document of the app's routes."""
    described = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=app.openapi_tags,
        servers=[{"url": "/", "description": "The server that this document comes from."}],
        separate_input_output_schemas=False,
    )
    models = [endpoint.request for endpoint in ENDPOINTS] + [endpoint.answer for endpoint in ENDPOINTS] + [Problem, Incumbent]
    _, schemas = models_json_schema([(model, "validation") for model in dict.fromkeys(models)], ref_template=REFERENCE)
    components = {**described["components"]["schemas"], **schemas["$defs"]}
    for endpoint in ENDPOINTS:  # here, because FastAPI leaves out what is null, and a plan says null where there is nothing
        if (examples := _examples(endpoint)) and endpoint.path in described["paths"]:
            described["paths"][endpoint.path]["post"]["requestBody"]["content"]["application/json"]["examples"] = examples
    described["components"]["securitySchemes"] = {"ApiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}
    described["components"]["schemas"] = {name: _with_limits(components[name]) for name in sorted(components)}
    return described


# pydantic writes its own words for limits on types that have a validator in front of them, as all our numbers have.
_LIMITS = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}


def _with_limits(schema: Any) -> Any:
    """The schema with all its limits in JSON Schema's words."""
    if isinstance(schema, list):
        return [_with_limits(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if list(schema.get("patternProperties", ())) and "additionalProperties" not in schema:
        # As pydantic writes it, keys that do not match may have any value; here none may, and clients get a map of numbers.
        ((pattern, value),) = schema["patternProperties"].items()
        names = {**schema.get("propertyNames", {}), "pattern": pattern}
        schema = {key: part for key, part in schema.items() if key != "patternProperties"} | {"additionalProperties": value, "propertyNames": names}
    is_number = schema.get("type") in ("number", "integer")
    return {_LIMITS.get(key, key) if is_number else key: _with_limits(value) for key, value in schema.items()}


def document() -> dict[str, Any]:
    """The service's document, the same on every machine."""
    from app.service.api import create_app  # here because app.service.api describes its routes with this module

    return create_app().openapi()

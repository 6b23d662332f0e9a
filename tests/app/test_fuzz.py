"""Bytes and documents that nobody would send on purpose: always an answer or every fault with its place, never a crash."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.body import BodyError, decode_json, decode_yaml, read
from app.endpoints import ENDPOINTS, Endpoint
from app.worker import respond
from models.request import PlanRequest
from solvers.planner import plan
from tests.app.serving import EXAMPLES, example

FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
BY_NAME = {endpoint.operation_id: endpoint for endpoint in ENDPOINTS}
TEXTS = [file.read_bytes() for file in EXAMPLES]
# What trips parsers: quotes, brackets, escapes, half a surrogate, huge and strange numbers, YAML's own signs.
TOKENS = [
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b":",
    b",",
    b"\\",
    b"\\ud800",
    b"1e999",
    b"-0",
    b"NaN",
    b"9" * 5000,
    b"\x00",
    b"\xff",
    b"\xef\xbb\xbf",
    b"&a",
    b"*a",
    b"<<",
]


def check_errors(bad: BodyError) -> None:
    assert bad.errors
    for where, what in bad.errors:
        assert what and (where == "" or where.startswith("/"))


@st.composite
def spliced(draw: st.DrawFn) -> bytes:
    """An example with pieces cut out, doubled, or replaced by what trips parsers."""
    data = draw(st.sampled_from(TEXTS))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        piece = draw(st.one_of(st.just(b""), st.sampled_from(TOKENS), st.binary(max_size=8), st.just(data[start:end] * 2)))
        data = data[:start] + piece + data[end:]
    return data


@FUZZ
@given(st.one_of(st.binary(max_size=200), spliced()))
def test_any_bytes_are_a_value_or_faults(data: bytes) -> None:
    for decode in (decode_json, decode_yaml):
        try:
            decode(data)
        except BodyError as bad:
            check_errors(bad)


@FUZZ
@given(spliced())
def test_what_is_taken_for_json_is_json(data: bytes) -> None:
    try:
        value = decode_json(data)
    except BodyError:
        return
    assert json.loads(data) == value
    json.dumps(value, allow_nan=False)


@FUZZ
@given(spliced(), st.sampled_from(ENDPOINTS))
def test_any_body_is_a_request_or_faults(data: bytes, endpoint: Endpoint) -> None:
    try:
        read(endpoint.request, data)
    except BodyError as bad:
        check_errors(bad)


@cache
def made(name: str) -> str:
    return plan(PlanRequest.model_validate(example(name))).model_dump_json()


def bodies(name: str, other: str) -> dict[str, Any]:
    """A right request for each endpoint that takes plans or their parts."""
    request, mine, theirs = example(name), json.loads(made(name)), json.loads(made(other))
    return {
        "plan": request,
        "jtree": {key: request[key] for key in ("query", "resources") if key in request},
        "estimate": {**request, "operators": mine["operators"]},
        "diff": {"before": mine, "after": theirs},
        "check": {"cases": [{"name": "case", "request": request, "plan": mine}]},
    }


def doctored(generator: random.Random, document: Any, edits: int) -> Any:
    """The document with parts of it removed, moved, doubled or replaced by other parts."""
    for _ in range(edits):
        places: list[tuple[Any, Any]] = []
        waiting = [document]
        while waiting:
            item = waiting.pop()
            inside = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
            for key, value in inside:
                places.append((item, key))
                waiting.append(value)
        if not places:
            return document
        (holder, key), (donor, other) = generator.choice(places), generator.choice(places)
        deed = generator.choice(["remove", "other", "number", "name", "null", "swap", "double"])
        if deed == "remove":
            del holder[key]
        elif deed == "other":
            holder[key] = json.loads(json.dumps(donor[other]))
        elif deed == "number":
            holder[key] = generator.choice([0, -1, 1e-300, 1e300, 5e-324, 2**31, 0.5, 10**400])
        elif deed == "name":
            holder[key] = generator.choice(["orders", "bids", "join-1", "join-2", "", "a.b", "☃"])
        elif deed == "null":
            holder[key] = None
        elif deed == "swap" and isinstance(holder, list):
            generator.shuffle(holder)
        elif deed == "double" and isinstance(holder, list):
            holder.append(json.loads(json.dumps(holder[key])))
    return document


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plan", "jtree", "estimate", "diff", "check"]),
    st.sampled_from([("auction", "auction"), ("star", "star"), ("fraud", "auction"), ("cycle", "cycle")]),
    st.integers(1, 3),
)
def test_doctored_documents_are_answered_or_refused(seed: int, name: str, examples: tuple[str, str], edits: int) -> None:
    body = doctored(random.Random(seed), bodies(*examples)[name], edits)
    endpoint = BY_NAME[name]
    reply = respond(endpoint, endpoint.load(), json.dumps(body).encode(), 2.0, lambda *_: None)
    status, answer = reply.status, reply.body
    assert status in (200, 422)
    problem = json.loads(answer)
    if status == 422:
        assert problem["errors"] and all(error["detail"] for error in problem["errors"])
    else:
        endpoint.answer.model_validate_json(answer)

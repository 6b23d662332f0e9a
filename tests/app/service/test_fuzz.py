"""Bytes and documents that nobody would send on purpose: always an answer or every fault with its place, never a crash."""

from __future__ import annotations

import json
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.service.body import BodyError, decode_json, decode_yaml, read
from app.service.endpoints import ENDPOINTS, Endpoint
from tests.app import mutation
from tests.app.mutation import BY_NAME, bodies, check_reply, doctored, reply_to
from tests.app.serving import EXAMPLES

FUZZ = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
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


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(BY_NAME)), st.sampled_from(mutation.EXAMPLES), st.integers(1, 3))
def test_doctored_documents_are_answered_or_refused(seed: int, name: str, examples: tuple[str, str], edits: int) -> None:
    body = doctored(random.Random(seed), bodies(*examples)[name], edits)
    check_reply(BY_NAME[name], reply_to(BY_NAME[name], body))

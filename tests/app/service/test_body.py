"""Bytes to values: nothing doubtful is taken, and every refusal says where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.service.body import BodyError, decode_json, decode_yaml, read
from models.request import PlanRequest

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def refusals(decode: Any, data: bytes) -> list[tuple[str, str]]:
    with pytest.raises(BodyError) as caught:
        decode(data)
    return caught.value.errors


@given(VALUES)
def test_every_json_value_is_read_as_it_was_written(value: Any) -> None:
    assert decode_json(json.dumps(value).encode()) == value
    assert decode_json(json.dumps(value, ensure_ascii=False).encode()) == value


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        (b'{"a": 1, "a": 2}', "/a"),
        (b'{"a": [{"b": 1}, {"b": 1, "c": 0, "b": 1}]}', "/a/1/b"),
        (b'{"a/b": {"~": 1, "~": 2}}', "/a~1b/~0"),
        (b'[{"a": NaN}]', "/0/a"),
        (b'{"rate": -Infinity}', "/rate"),
        (b'{"a": [1, ' + b"9" * 5000 + b"]}", "/a/1"),
        (b'{"a": [1e308, -1e309]}', "/a/1"),
        (b'{"a": 1' + b"0" * 210 + b"e+99}", "/a"),
        (b'{"a": 0.1e+0310}', "/a"),
        (b'{"a": "\\ud800"}', "/a"),
        (b'{"a": {"\\uDFFF": 1}}', "/a"),
    ],
)
def test_what_json_has_no_place_for_is_refused_where_it_is(body: bytes, pointer: str) -> None:
    ((where, what),) = refusals(decode_json, body)
    assert where == pointer and what


def test_every_doubtful_place_is_named_in_the_order_of_the_text() -> None:
    errors = refusals(decode_json, b'{"a": NaN, "b": {"c": 1, "c": Infinity}, "d": 1, "d": 2}')
    assert [where for where, _ in errors] == ["/d", "/a", "/b/c", "/b/c"]


def test_a_whole_surrogate_pair_is_text() -> None:
    assert decode_json(b'"\\ud83c\\udf0a"') == "\N{WATER WAVE}"


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe{\x00}\x00", "UTF-8; byte 0"),
        ('{"a": "\u00fc"}'.encode("latin-1"), "UTF-8; byte 7"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        (b'{"a": 1,}', "line 1 column 9"),
        (b'{"a": 1} {}', "line 1 column 10"),
        (b"{'a': 1}", "line 1 column 2"),
        (b'{"a": "\n"}', "line 1 column 8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_json_is_refused_as_a_whole(body: bytes, says: str) -> None:
    ((where, what),) = refusals(decode_json, body)
    assert where == "" and says in what


def test_a_hundred_places_are_enough() -> None:
    assert len(refusals(decode_json, b"[" + b"NaN," * 5000 + b"NaN]")) == 100


def test_faults_of_the_model_come_with_their_pointers() -> None:
    with pytest.raises(BodyError) as caught:
        read(PlanRequest, b'{"query": {"streams": [{"name": "a", "rate": true, "window": {"seconds": 1}}]}, "objetive": 1}')
    assert [where for where, _ in caught.value.errors] == ["/query/streams/0/rate", "/objetive"]


@given(VALUES.filter(lambda value: value is not None))
def test_yaml_reads_json_alike(value: Any) -> None:
    # PyYAML does not take every character that JSON does; escaped, all are taken.
    text = json.dumps(value)
    if "\\ud8" in text or "\\ud9" in text or "\\uda" in text or "\\udb" in text:
        return  # JSON writes characters past U+FFFF as two escapes, which YAML reads as two characters
    assert decode_yaml(text.encode()) == value


def test_yaml_numbers_and_words_are_those_of_the_core_schema() -> None:
    text = b"{a: 1e-6, b: 2.2e-6, c: 1e6, d: 010, e: no, f: =, g: 2026-11-16, h: 1:30, i: true, j: ~, k: .5, l: '1', m: 1_000, n: -3}"
    numbers = {"a": 1e-6, "b": 2.2e-6, "c": 1e6, "d": 10, "k": 0.5, "n": -3}
    words = {"e": "no", "f": "=", "g": "2026-11-16", "h": "1:30", "l": "1", "m": "1_000"}
    assert decode_yaml(text) == numbers | words | {"i": True, "j": None}


def test_yaml_numbers_must_be_finite_too() -> None:
    ((where, what),) = refusals(decode_yaml, b"streams:\n- rate: 1e999\n")
    assert where == "/streams/0/rate" and "1e308" in what


def test_yaml_anchors_and_merges_work() -> None:
    text = b"base: &base {rate: 1, window: {seconds: 60}}\nstreams:\n- {<<: *base, name: a}\n- {<<: *base, name: b, rate: 2}\n"
    assert decode_yaml(text)["streams"] == [
        {"name": "a", "rate": 1, "window": {"seconds": 60}},
        {"name": "b", "rate": 2, "window": {"seconds": 60}},
    ]


@pytest.mark.parametrize(
    ("body", "pointer", "says"),
    [
        (b"a: 1\nb: 2\na: 3\n", "/a", "more than once"),
        (b"s:\n- {n: 1}\n- {n: 1, 'n': 2}\n", "/s/1/n", "more than once"),
        (b"a: {1: 2}\n", "/a", "quote"),
        (b"? [a]\n: 1\n", "", "quote"),
        (b"a: [1\n", "", "line 2"),
        (b"a: !!python/object/apply:os.abort []\n", "", "not YAML"),
        (b"--- 1\n--- 2\n", "", "not YAML"),
        (b"# nothing\n", "", "empty"),
        (b"a: &a [*a]\n", "", "nested too deeply"),
        (b"a: " + b"9" * 5000, "", "cannot be read"),
        (b"a: " + b"[" * 5000, "", "nested too deeply"),
        (b'a: "\\ud800"\n', "/a", "surrogate"),
        (b"a: \x00", "", "not YAML"),
    ],
)
def test_doubtful_yaml_is_refused_where_it_is(body: bytes, pointer: str, says: str) -> None:
    ((where, what),) = refusals(decode_yaml, body)
    assert where == pointer and says in what


def test_yaml_aliases_cannot_multiply_without_end() -> None:
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"] + [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 12)]
    assert refusals(decode_yaml, "\n".join(lines).encode()) == [("", "the file's aliases stand for too much; write it out")]

"""Hundreds of bodies that are wrong in every way we can think of: each gets a 4xx problem with a pointer, never a 500."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from app.service.endpoints import ENDPOINTS
from tests.app.serving import check_problem, example, post

Path = tuple[str | int, ...]

WRONG: tuple[Any, ...] = (None, True, -1, 0, 1.5, 1e308, -1e308, 10**400, "", "x", "\u0000", "a.b.c", [], [[]], {}, {"x": 1}, [None], "9" * 5000)


def places(value: Any) -> list[Path]:
    """Where everything is, in the order of the text."""
    found: list[Path] = []
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        found.append(path)
        children = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
        waiting.extend(reversed([((*path, key), child) for key, child in children]))
    return found


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def with_wrong_value(body: Any, random_: random.Random) -> Any:
    path = random_.choice(places(body)[1:])
    at(body, path[:-1])[path[-1]] = random_.choice(WRONG)
    return body


def with_missing_part(body: Any, random_: random.Random) -> Any:
    path = random_.choice([path for path in places(body) if path and isinstance(at(body, path[:-1]), dict)])
    del at(body, path[:-1])[path[-1]]
    return body


def with_unknown_field(body: Any, random_: random.Random) -> Any:
    path = random_.choice([path for path in places(body) if isinstance(at(body, path), dict)])
    at(body, path)[random_.choice(["colour", "rates", "", "a/b~c", "\u2028", "x" * 3000])] = 1
    return body


def with_swapped_parts(body: Any, random_: random.Random) -> Any:
    one, other = random_.sample(places(body)[1:], 2)
    if one == other[: len(one)] or other == one[: len(other)]:
        return body
    a, b = copy.deepcopy(at(body, one)), copy.deepcopy(at(body, other))
    at(body, one[:-1])[one[-1]], at(body, other[:-1])[other[-1]] = b, a
    return body


MUTATIONS: tuple[Callable[[Any, random.Random], Any], ...] = (with_wrong_value, with_missing_part, with_unknown_field, with_swapped_parts)


def broken_texts(text: bytes, random_: random.Random) -> Iterator[bytes]:
    """The text, no longer JSON, or no longer what we take for JSON."""
    for _ in range(25):
        cut = random_.randrange(1, len(text))
        yield text[:cut]
        yield text[:cut] + bytes([random_.choice([0x00, 0x80, 0xC0, 0xFF])]) + text[cut:]
    for marker in (b'"rate"', b'"streams"', b'"name"', b'"query"', b'"seconds"'):
        yield text.replace(marker, marker + b": 1, " + marker, 1)
    yield from (b"", b" ", b"null", b"true", b"7", b'"text"', b"[]", b"{}", b"NaN", b"[{}]", b"{]", b"\xef\xbb\xbf" + text, b"'" + text + b"'")
    yield from (text + text, text.replace(b":", b"=", 1), text.replace(b'"', b"'"), b"// so\n" + text)
    yield from (json.dumps(json.loads(text)).encode(code) for code in ("utf-16", "utf-32", "utf-16-le"))
    for opening, closing in ((b"[", b"]"), (b'{"query":', b"}")):
        for depth in (100, 990, 100_000):
            yield opening * depth + closing * depth
    for figure in (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 400, b"9" * 100_000, b"--1", b"01", b"1.", b".5", b"0x10"):
        yield text.replace(b'"rate":', b'"rate":' + figure + b', "was":', 1)
    yield b'{"query": "' + b"x" * 10_000_000 + b'"}'
    yield b"[" + b"1," * 1_900_000 + b"1]"


def request_for(client: httpx.Client, path: str) -> dict[str, Any]:
    """A good body for the path."""
    request = example()
    plan = post(client, "/v1/plans", request).json()
    return {"/v1/plans": request, "/v1/estimates": {**request, "operators": plan["operators"]}, "/v1/diffs": {"before": plan, "after": plan}}[path]


def is_still_good(path: str, text: bytes) -> bool:
    """Whether a mutation left a body that the model takes: some leave out what has a default, or swap equals."""
    model = next(endpoint.request for endpoint in ENDPOINTS if endpoint.path == path)
    try:
        model.model_validate(json.loads(text))
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/estimates", "/v1/diffs"])
def test_every_malformed_body_gets_a_4xx_problem_with_a_pointer(service: httpx.Client, path: str) -> None:
    good = json.loads(json.dumps(request_for(service, path)))  # what stands in two places is changed in one of them
    assert post(service, path, good).status_code == 200
    random_ = random.Random(path)
    refused = 0
    for round_ in range(300):
        body = copy.deepcopy(good)
        for _ in range(1 + round_ % 3):
            body = random_.choice(MUTATIONS)(body, random_)
        response = post(service, path, body)
        if response.status_code == 200:
            assert is_still_good(path, json.dumps(body).encode())
            continue
        refused += 1
        assert check_problem(response, 422)["errors"], body
    assert refused >= 200
    text = json.dumps(good).encode()
    for broken in broken_texts(text, random_):
        response = post(service, path, broken)
        assert response.status_code in (413, 422), broken[:200]
        assert check_problem(response)["errors"]
    assert post(service, path, good).status_code == 200

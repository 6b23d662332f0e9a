"""Keys, rates and clients that mean no good: who may ask is answered, and the service stays healthy."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import httpx
import pytest

from app.service import protocol
from app.service.access import Access, BadKeyError, TooFastError
from app.service.pool import Pool
from app.service.settings import Settings
from tests.app.serving import check_problem, example, post, running, until


def resident(pid: int) -> int:
    """Bytes of memory that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


@pytest.fixture(scope="module")
def guarded() -> Iterator[httpx.Client]:
    with running(Settings(workers=1, api_keys="first-key,second-key", rate_limit=3.0, streams=4)) as (client, _):
        yield client


def test_without_a_key_nothing_is_solved_but_health_is_told(guarded: httpx.Client) -> None:
    for headers in ({}, {"X-API-Key": "wrong"}, {"X-API-Key": "first-key,second-key"}):
        response = post(guarded, "/v1/plans", example(), **headers)
        check_problem(response, 401)
        assert response.headers["www-authenticate"] == "ApiKey"
    assert guarded.get("/healthz").status_code == 200


def test_each_key_has_a_rate_of_its_own(guarded: httpx.Client) -> None:
    answers = [post(guarded, "/v1/plans", example(), **{"X-API-Key": "first-key"}) for _ in range(8)]
    assert [answer.status_code for answer in answers[:3]] == [200] * 3
    late = [answer for answer in answers if answer.status_code == 429]
    assert late
    check_problem(late[0], 429)
    assert int(late[0].headers["retry-after"]) >= 1
    assert post(guarded, "/v1/plans", example(), **{"X-API-Key": "second-key"}).status_code == 200


def test_a_query_of_more_streams_than_the_service_takes_is_a_422(guarded: httpx.Client) -> None:
    asked: list[httpx.Response] = []

    def admitted() -> bool:
        asked.append(post(guarded, "/v1/plans", example("star"), **{"X-API-Key": "second-key"}))
        return asked[-1].status_code != 429

    until(admitted, "the key was below its rate")
    problem = check_problem(asked[-1], 422)
    assert problem["errors"] == [{"pointer": "/query/streams", "detail": "streams: this service takes at most 4 of them, got 6"}]


def test_a_bucket_fills_at_its_rate_and_never_past_a_second() -> None:
    now = 0.0
    access = Access(("k",), 2.0, lambda: now)
    for _ in range(2):
        access.admit("k", "")
    with pytest.raises(TooFastError) as late:
        access.admit("k", "")
    assert late.value.seconds == 1
    now = 0.5
    access.admit("k", "")
    now = 1000.0
    access.admit("k", "")
    access.admit("k", "")
    with pytest.raises(TooFastError):
        access.admit("k", "")
    with pytest.raises(BadKeyError):
        access.admit("another", "")


def test_wrong_keys_from_one_address_have_a_rate_and_hold_up_no_right_one() -> None:
    now = 0.0
    access = Access(("k",), 0.0, lambda: now)
    for _ in range(10):
        with pytest.raises(BadKeyError):
            access.admit("wrong", "here")
    with pytest.raises(TooFastError) as late:
        access.admit("wrong", "here")
    assert late.value.seconds == 1
    access.admit("k", "here")
    with pytest.raises(BadKeyError):
        access.admit("wrong", "there")
    now = 0.1
    with pytest.raises(BadKeyError):
        access.admit("wrong", "here")
    with pytest.raises(TooFastError):
        access.admit("wrong", "here")


def test_guessing_keys_is_answered_with_401_and_then_429() -> None:
    with running(Settings(workers=1, api_keys="key"), "tests.app.unruly_worker") as (client, _):
        statuses = [post(client, "/v1/plans", example(), **{"X-API-Key": f"guess {i}"}) for i in range(30)]
        assert statuses[0].status_code == 401 and {response.status_code for response in statuses} == {401, 429}
        late = next(response for response in statuses if response.status_code == 429)
        check_problem(late, 429)
        assert int(late.headers["retry-after"]) >= 1


@pytest.fixture(scope="module")
def target() -> Iterator[tuple[httpx.Client, Pool]]:
    with running(Settings(workers=1, queue=8)) as service:
        assert post(service[0], "/v1/plans", example()).status_code == 200
        yield service


def connect(client: httpx.Client) -> socket.socket:
    return socket.create_connection((client.base_url.host, client.base_url.port or 80))


def is_healthy(client: httpx.Client, pool: Pool) -> bool:
    return pool.ready and pool.busy == 0 and pool.waiting == 0 and post(client, "/v1/plans", example()).status_code == 200


def test_a_head_that_comes_byte_by_byte_is_a_408(target: tuple[httpx.Client, Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    client, pool = target
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 2.0)  # a slow machine has sent all of them by then
    loris = [connect(client) for _ in range(50)]
    silent = [connect(client) for _ in range(50)]
    for connection in loris:
        connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\n")
    assert post(client, "/v1/plans", example()).status_code == 200
    for _ in range(3):
        time.sleep(0.1)
        for connection in loris:
            connection.sendall(b"X-More: 1\r\n")
    for connection in loris + silent:
        connection.settimeout(30)
        assert connection.recv(100).startswith(b"HTTP/1.1 408")
        connection.close()
    assert is_healthy(client, pool)


def test_what_is_not_http_is_a_problem(target: tuple[httpx.Client, Pool]) -> None:
    client, pool = target
    with connect(client) as connection:
        connection.sendall(b"\x16\x03\x01 hello\r\n\r\n")
        answer = connection.recv(1000)
    assert answer.startswith(b"HTTP/1.1 400") and b"application/problem+json" in answer
    assert is_healthy(client, pool)


@pytest.mark.parametrize("framing", ["length", "chunked", "packets"])
def test_an_offer_to_upgrade_is_ignored_and_the_connection_goes_on(target: tuple[httpx.Client, Pool], framing: str) -> None:
    client, _ = target
    content = httpx.Request("POST", "http://x/", json=example()).content
    head = b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    body = content if framing != "chunked" else b"%x\r\n%s\r\n0\r\n\r\n" % (len(content), content)
    head += b"Transfer-Encoding: chunked\r\n\r\n" if framing == "chunked" else b"Content-Length: %d\r\n\r\n" % len(content)
    with connect(client) as connection:
        connection.settimeout(30)
        for _ in range(2):
            if framing == "packets":
                for part in (head, body[:10], body[10:]):
                    connection.sendall(part)
                    time.sleep(0.05)
            else:
                connection.sendall(head + body)
            answer = b""
            while b"\r\n\r\n" not in answer or not answer.endswith(b"}"):
                answer += connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200") and b"watersmeet.plan/1" in answer


@pytest.mark.parametrize(
    "framing", [b"Transfer-Encoding: gzip", b"Transfer-Encoding: gzip\r\nContent-Length: 2", b"Transfer-Encoding: chunked, gzip"]
)
def test_an_offer_to_upgrade_with_a_body_of_no_known_length_is_a_problem(target: tuple[httpx.Client, Pool], framing: bytes) -> None:
    client, pool = target
    head = b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n%s\r\n\r\n{}"
    with connect(client) as connection:
        connection.settimeout(30)
        connection.sendall(head % framing)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 400") and b"application/problem+json" in answer
    assert is_healthy(client, pool)


def test_twenty_megabytes_are_a_413_and_are_not_kept(target: tuple[httpx.Client, Pool]) -> None:
    client, pool = target
    for _ in range(3):
        check_problem(post(client, "/v1/plans", b" " * 20_000_000), 413)
    assert is_healthy(client, pool)


def test_a_thousand_connections_at_once_are_all_answered(target: tuple[httpx.Client, Pool]) -> None:
    client, pool = target

    async def ask(i: int) -> tuple[int, bool]:
        """A request that nobody else sends, and whether its refusal says when to come again."""
        reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
        await everybody_is_here.wait()
        request = example()
        request["query"]["streams"][0]["rate"] = 100.0 + i
        content = httpx.Request("POST", "http://x/", json=request).content
        head = b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(
            content
        )
        writer.write(head + content)
        answer = await reader.read()
        writer.close()
        return int(answer[9:12]), b"retry-after: 1" in answer.lower()

    async def all_of_them() -> list[tuple[int, bool]]:
        asking = [asyncio.create_task(ask(i)) for i in range(1000)]
        await asyncio.sleep(2.0)
        everybody_is_here.set()
        return await asyncio.gather(*asking)

    everybody_is_here = asyncio.Event()
    answers = asyncio.run(all_of_them())
    assert {status for status, _ in answers} <= {200, 503}
    assert all(says_when for status, says_when in answers if status == 503)
    assert sum(status == 200 for status, _ in answers) >= 9
    until(lambda: is_healthy(client, pool), "the service was healthy")


def test_clients_that_leave_at_once_cost_nothing(target: tuple[httpx.Client, Pool]) -> None:
    client, pool = target
    replaced = pool.replaced
    for i in range(200):
        with connect(client) as connection:
            if i % 2:
                connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
    until(lambda: is_healthy(client, pool), "the service was healthy")
    assert pool.replaced == replaced


def test_memory_stays_flat_over_a_thousand_requests(target: tuple[httpx.Client, Pool]) -> None:
    client, pool = target
    (worker,) = pool._workers
    numbers = count()

    def distinct(requests: int) -> int:
        """Bytes that the worker holds after so many requests that nobody has sent before."""
        for i in islice(numbers, requests):
            request = example()
            request["query"]["streams"][0]["rate"] = 5000.0 + i
            assert post(client, "/v1/plans", request).status_code == 200
        return resident(worker.process.pid)

    before = distinct(300)
    assert distinct(1000) - before < 1000 * 500, "a plan has 5 kB: a tenth of that is no leak of plans, nor of requests"

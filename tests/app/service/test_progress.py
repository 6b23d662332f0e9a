"""Answers as they come, and solves that nobody waits for: real sockets, real workers."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

import app.service.api
import app.service.stream
from app.service.pool import Pool
from app.service.settings import Settings
from app.service.stream import wants_stream
from models.plan import Plan
from models.progress import Incumbent
from models.request import Options, PlanRequest
from tests.app.service.test_access import resident
from tests.app.service.test_pool import UNRULY, ask_in_background, deed
from tests.app.serving import check_problem, example, post, running, until
from tests.app.unruly_worker import FLOOD
from tests.graphs import random_graph, with_a_measured_pair

STREAM = {"Content-Type": "application/json", "Accept": "text/event-stream"}
Event = tuple[str, str]


def request(n: int, shape: str = "random", seed: int = 1, **options: Any) -> dict[str, Any]:
    asked = PlanRequest(query=random_graph(random.Random(seed), n, shape), options=Options(**{"time_limit": 300.0, **options}))
    body: dict[str, Any] = asked.model_dump(mode="json", exclude_none=True)
    return body


def long_request(n: int) -> dict[str, Any]:
    """A clique that no search proves within minutes."""
    query = with_a_measured_pair(random_graph(random.Random(1), n, "clique"))
    body: dict[str, Any] = PlanRequest(query=query, options=Options(time_limit=300.0)).model_dump(mode="json", exclude_none=True)
    return body


def events(response: httpx.Response) -> Iterator[Event]:
    """The events of a stream as they come; comments are events named ":"."""
    name = data = ""
    for line in response.iter_lines():
        field, _, value = line.partition(": ")
        if line.startswith(":"):
            yield ":", line
        elif field == "event":
            name = value
        elif field == "data":
            assert not data
            data = value
        elif not line and name:
            yield name, data
            name = data = ""
    assert not name, "the last event was not ended"


@contextmanager
def streaming(client: httpx.Client, body: dict[str, Any], path: str = "/v1/plans", **headers: str) -> Iterator[httpx.Response]:
    with client.stream("POST", path, content=json.dumps(body).encode(), headers={**STREAM, **headers}) as response:
        yield response


def streamed(client: httpx.Client, body: dict[str, Any], path: str = "/v1/plans", **headers: str) -> tuple[httpx.Headers, list[Event]]:
    with streaming(client, body, path, **headers) as response:
        assert response.status_code == 200, response.read()
        return response.headers, list(events(response))


@pytest.fixture(scope="module")
def keeping() -> Iterator[tuple[httpx.Client, Pool]]:
    """A service with the real solvers that keeps its answers, and has the patience of a busy machine: what is asked is whether a solve stops."""
    with running(Settings(workers=2, grace=30.0)) as service:
        yield service


@pytest.fixture(scope="module")
def unruly() -> Iterator[tuple[httpx.Client, Pool]]:
    with running(Settings(workers=2, queue=100, cache_bytes=0, grace=1.0), UNRULY) as service:
        yield service


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/frontiers"])
@pytest.mark.parametrize("body", [example(), request(11, "clique")], ids=["auction", "clique"])
def test_a_stream_ends_with_the_bytes_of_the_plain_answer(service: httpx.Client, path: str, body: dict[str, Any]) -> None:
    headers, told = streamed(service, body, path)
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-store" and headers["x-accel-buffering"] == "no" and "content-length" not in headers
    *before, (last, answer) = told
    assert before and {name for name, _ in before} == {"incumbent"} and last == "answer"
    plain = post(service, path, body)
    assert answer.encode() == plain.content
    assert plain.headers["vary"] == headers["vary"] == "Accept"
    incumbents = [Incumbent.model_validate_json(data) for _, data in before]
    best = plain.json() if path == "/v1/plans" else plain.json()["points"][0]["plan"]
    assert (incumbents[-1].cpu, incumbents[-1].memory_bytes) == (best["cost"]["cpu"], best["cost"]["memory_bytes"])


def test_incumbents_come_while_the_search_goes_on(service: httpx.Client) -> None:
    with streaming(service, long_request(20)) as response:
        told = (Incumbent.model_validate_json(data) for name, data in events(response) if name == "incumbent")
        first, second = next(told), next(told)
        assert second.seconds > first.seconds
        while "proving" not in second.step:
            second = next(told)
        assert second.bound is not None and second.gap is not None and second.cpu <= first.cpu


def test_a_kept_answer_is_a_stream_of_just_that_and_streams_fill_what_is_kept(keeping: tuple[httpx.Client, Pool]) -> None:
    client, _ = keeping
    body = request(7, seed=77)
    headers, told = streamed(client, body)
    assert headers["x-cache"] == "miss" and len(told) > 1
    plain = post(client, "/v1/plans", body)
    assert plain.headers["x-cache"] == "hit"
    headers, again = streamed(client, body)
    assert headers["x-cache"] == "hit" and again == [("answer", plain.text)] == told[-1:]


@pytest.mark.parametrize(
    ("accept", "stream"),
    [
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/event-stream", True),
        ("TEXT/Event-Stream", True),
        ("text/event-stream;q=0.5", True),
        ("text/event-stream;q=0", False),
        ("text/event-stream, application/json", False),
        ("text/event-stream, application/json;q=0.9", True),
        ("application/json;q=0.2, text/event-stream;q=0.1", False),
        ("text/event-stream, */*", False),
        ("text/event-stream, */*;q=0.1", True),
        ("text/event-stream;q=0.1, */*;q=0.5", False),
        ("text/*", True),
        ("text/html", False),
        ("text/event-stream;q=many", False),
        (";;,,q=1", False),
    ],
)
def test_a_stream_is_for_who_prefers_it(accept: str, stream: bool) -> None:
    assert wants_stream(accept) is stream


def test_what_was_asked_for_is_what_comes(service: httpx.Client) -> None:
    for accept, expected in [("*/*", "application/json"), ("text/html", "application/json"), ("text/event-stream, */*;q=0.1", "text/event-stream")]:
        assert post(service, "/v1/plans", example(), Accept=accept).headers["content-type"] == expected
    with_diff = {"before": post(service, "/v1/plans", example()).json(), "after": post(service, "/v1/plans", example()).json()}
    assert post(service, "/v1/diffs", with_diff, Accept="text/event-stream").headers["content-type"] == "application/json", "it has no stream"


def test_what_fails_before_the_stream_is_an_ordinary_problem(service: httpx.Client) -> None:
    check_problem(post(service, "/v1/plans", {}, Accept="text/event-stream"), 422)
    huge = {"query": {"streams": [{"name": name, "rate": 1e300, "window": {"seconds": 1}} for name in "ab"]}}
    huge["query"]["predicates"] = [{"left": "a.k", "right": "b.k", "selectivity": 1}]
    check_problem(post(service, "/v1/plans", huge, Accept="text/event-stream"), 422)
    check_problem(service.post("/v1/plans", content=b"{}", headers={"Accept": "text/event-stream", "Content-Type": "text/plain"}), 415)


def test_keys_and_rates_hold_for_streams() -> None:
    with running(Settings(workers=1, api_keys="key", rate_limit=1.0), UNRULY) as (client, _):
        check_problem(post(client, "/v1/plans", deed("ok"), Accept="text/event-stream"), 401)
        assert streamed(client, deed("ok"), **{"X-API-Key": "key"})[1] == [("answer", '{"status":"ok"}')]
        check_problem(post(client, "/v1/plans", deed("ok"), Accept="text/event-stream", **{"X-API-Key": "key"}), 429)


@pytest.mark.parametrize(("name", "status"), [("tell_die", 500), ("tell_fail", 500), ("tell_say_limit", 422)])
def test_what_fails_once_the_stream_has_begun_is_a_problem_at_its_end(unruly: tuple[httpx.Client, Pool], name: str, status: int) -> None:
    client, pool = unruly
    told = streamed(client, deed(name))[1]
    assert [event for event, _ in told] == ["incumbent", "problem"]
    problem = json.loads(told[-1][1])
    assert problem["status"] == status and "secret" not in told[-1][1]
    until(lambda: pool.ready, "every worker was there again")


def test_a_quiet_stream_has_comments(unruly: tuple[httpx.Client, Pool], monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (app.service.api, app.service.stream):
        monkeypatch.setattr(module, "QUIET", 0.1)
    told = streamed(unruly[0], deed("nap"))[1]
    assert told[0] == (":", ": still working") and told[-1] == ("answer", '{"status":"ok"}')


def test_overload_is_refused_before_a_stream_begins() -> None:
    with running(Settings(workers=1, queue=0, cache_bytes=0), UNRULY) as (client, pool):
        busy = ask_in_background(client, deed("wait"))
        until(lambda: pool.busy == 1, "the worker was busy")
        response = post(client, "/v1/plans", deed("ok"), Accept="text/event-stream")
        check_problem(response, 503)
        assert "retry-after" in response.headers
        busy.close()


def test_of_many_incumbents_a_reader_gets_ten_a_second_and_the_newest(unruly: tuple[httpx.Client, Pool]) -> None:
    began = time.monotonic()
    told = streamed(unruly[0], deed("tell_flood"))[1]
    incumbents = [json.loads(data) for name, data in told if name == "incumbent"]
    assert told[-1][0] == "answer"
    assert 2 <= len(incumbents) <= (time.monotonic() - began) / app.service.stream.EVERY + 2
    costs = [incumbent["cpu"] for incumbent in incumbents]
    assert costs == sorted(costs, reverse=True) and costs[-1] == 1.0 / (1 + FLOOD)


def ask_for_stream(client: httpx.Client, body: dict[str, Any]) -> socket.socket:
    """A connection that has asked for a stream and reads nothing of it."""
    content = json.dumps(body).encode()
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 80))
    head = b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAccept: text/event-stream\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % len(content) + content)
    return connection


def test_readers_that_do_not_read_hold_neither_memory_nor_workers(unruly: tuple[httpx.Client, Pool]) -> None:
    client, pool = unruly
    before = resident(os.getpid())  # the service runs in this process
    connections = [ask_for_stream(client, deed("tell_flood")) for _ in range(6)]  # 75 MB of incumbents
    until(lambda: pool.busy == 2, "the workers were busy")
    until(lambda: pool.busy == 0 and not pool.waiting, "all were solved")
    assert resident(os.getpid()) - before < 20e6
    for connection in connections:
        connection.close()


def pids(pool: Pool) -> set[int]:
    return {worker.process.pid for worker in pool._workers}


def knapsack() -> dict[str, Any]:
    """Units that differ by little and do not add up to the capacity: minutes of search."""
    rng = random.Random(3)
    takes = [rng.randrange(10**6, 2 * 10**6) for _ in range(60)]
    paths = [{"name": f"p{i}", "resources": amount, "output": amount + rng.randrange(1, 100), "max_units": 1} for i, amount in enumerate(takes)]
    return {"capacity": sum(takes) // 2, "model": "discrete", "paths": paths, "time_limit": 300.0}


def cover() -> dict[str, Any]:
    rng = random.Random(5)
    paths = [
        {"name": f"p{j}", "cost": rng.randrange(50, 150), "covers": {f"s{i}": rng.randrange(1, 9) for i in rng.sample(range(40), 8)}}
        for j in range(120)
    ]
    return {
        "states": [{"name": f"s{i}", "required": rng.randrange(20, 60)} for i in range(40)],
        "paths": paths,
        "model": "discrete",
        "time_limit": 300.0,
    }


def islands(count: int) -> dict[str, Any]:
    """Many components that a cap would tie together: seconds of listing splits, and no more of them than cp_sat takes on."""
    streams, predicates = [], []
    for k in range(count):
        island = random_graph(random.Random(k), 6, "clique").model_dump(mode="json", exclude_none=True)
        streams += [{**stream, "name": f"i{k}_{stream['name']}"} for stream in island["streams"]]
        predicates += [
            {**predicate, "left": f"i{k}_{predicate['left']}", "right": f"i{k}_{predicate['right']}"} for predicate in island["predicates"]
        ]
    return {"query": {"streams": streams, "predicates": predicates}, "options": {"method": "cp_sat", "time_limit": 300.0}}


# What the real solvers are in when their client leaves: a kernel of the exact search, anytime search, integer programs, a frontier.
LONG = [
    pytest.param("/v1/plans", long_request(20), id="exact"),
    pytest.param("/v1/plans", request(200), id="anytime"),
    pytest.param("/v1/plans", islands(30), id="cp_sat"),
    pytest.param("/v1/frontiers", long_request(18), id="frontier"),
    pytest.param("/v1/solvers/jtree", {"query": long_request(18)["query"], "time_limit": 300.0}, id="jtree"),
    pytest.param("/v1/solvers/allocation", knapsack(), id="knapsack"),
    pytest.param("/v1/solvers/cover", cover(), id="cover"),
]


@pytest.mark.parametrize(("path", "body"), LONG)
def test_who_leaves_a_long_solve_frees_its_worker_which_stays(keeping: tuple[httpx.Client, Pool], path: str, body: dict[str, Any]) -> None:
    client, pool = keeping
    workers, replaced, stopped = pids(pool), pool.replaced, pool.stopped
    content = json.dumps(body).encode()
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 80))
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    connection.sendall(head % (path.encode(), len(content)) + content)
    until(lambda: pool.busy == 1, "the worker was busy")
    time.sleep(0.3)
    assert pool.busy == 1, "it ended by itself: not a long solve"
    connection.close()
    until(lambda: pool.busy == 0, "the worker was free")
    assert pids(pool) == workers and pool.replaced == replaced and pool.stopped == stopped + 1
    assert post(client, "/v1/plans", example()).status_code == 200


def test_who_leaves_a_stream_stops_its_solve_and_is_counted_as_gone(unruly: tuple[httpx.Client, Pool]) -> None:
    client, pool = unruly
    workers = pids(pool)
    with streaming(client, deed("tell_wait")) as response:
        told = events(response)
        assert next(told)[0] == "incumbent"
        until(lambda: pool.busy == 1, "the worker was busy")
    until(lambda: pool.busy == 0, "the worker was free")
    assert pids(pool) == workers
    figures = client.get("/metrics").text
    assert 'watersmeet_http_requests_total{route="/v1/plans",status="499"}' in figures
    assert 'watersmeet_streams_total{route="/v1/plans"}' in figures and 'watersmeet_incumbents_total{route="/v1/plans"}' in figures


def test_a_solve_that_does_not_stop_is_ended_with_its_worker(unruly: tuple[httpx.Client, Pool]) -> None:
    client, pool = unruly
    replaced = pool.replaced
    with streaming(client, deed("tell_hang")) as response:
        next(events(response))
    until(lambda: pool.replaced == replaced + 1 and pool.ready and pool.busy == 0, "the worker was replaced")
    assert post(client, "/v1/plans", deed("ok")).status_code == 200


def test_thirty_that_leave_every_second_leave_no_queue_and_warm_workers() -> None:
    bodies = [request(60, seed=seed) for seed in range(8)]
    with running(Settings(workers=2, queue=32)) as (client, pool):
        workers = pids(pool)
        leaving: list[socket.socket] = []
        for number in range(120):
            leaving.append((ask_for_stream if number % 2 else ask_in_background)(client, bodies[number % len(bodies)]))
            if len(leaving) > 3:
                leaving.pop(0).close()
            time.sleep(1 / 30)
        assert pool.stopped > 0
        for connection in leaving:
            connection.close()
        until(lambda: pool.busy == 0 and pool.waiting == 0, "every worker was free")
        assert pool.ready and pids(pool) == workers and pool.replaced == 0
        assert post(client, "/v1/plans", example()).status_code == 200


def test_streams_of_one_request_share_a_solve_and_do_not_break_each_other() -> None:
    with running(Settings(workers=2), UNRULY) as (client, pool), ThreadPoolExecutor(1) as threads:
        with streaming(client, deed("tell_doze")) as first:
            leaving = events(first)  # kept: httpx closes a stream when its iterator goes
            assert next(leaving)[0] == "incumbent"
            with streaming(client, deed("tell_doze")) as staying:
                told = events(staying)
                assert next(told)[0] == "incumbent", "it hears what was told before it came"
                first.close()
                plain = threads.submit(post, client, "/v1/plans", deed("tell_doze"))
                assert list(told) == [("answer", '{"status":"ok"}')] and staying.headers["x-cache"] == "shared"
        assert plain.result().headers["x-cache"] in ("shared", "hit") and plain.result().json() == {"status": "ok"}
        assert pool.stopped == 0


def test_who_joins_a_solve_that_nobody_listened_to_gets_its_answer() -> None:
    with running(Settings(workers=1), UNRULY) as (client, pool), ThreadPoolExecutor(1) as threads:
        plain = threads.submit(post, client, "/v1/plans", deed("tell_doze"))
        until(lambda: pool.busy == 1, "the worker was busy")
        headers, told = streamed(client, deed("tell_doze"))
        assert headers["x-cache"] == "shared" and [event for event in told if event[0] != ":"] == [("answer", plain.result().text)]


def test_the_answer_of_a_stream_is_a_plan(service: httpx.Client) -> None:
    assert Plan.model_validate_json(streamed(service, example())[1][-1][1]).qualified

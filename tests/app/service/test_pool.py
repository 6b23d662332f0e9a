"""Workers under stress: nothing blocks the loop, nothing waits without bound, every worker comes back."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.service.endpoints import ENDPOINTS
from app.service.pool import Pool
from app.service.settings import Settings
from models.plan import EstimateRequest, Plan
from models.request import PlanRequest
from solvers.estimate import estimate
from tests.app.serving import ROOT, answers, check_problem, free_port, post, running, until

UNRULY = "tests.app.unruly_worker"


def deed(name: str, time_limit: float = 300.0) -> dict[str, Any]:
    return {"query": {"streams": [{"name": name, "rate": 1, "window": {"seconds": 1}}]}, "options": {"time_limit": time_limit}}


@contextmanager
def unruly(**settings: Any) -> Iterator[tuple[httpx.Client, Pool]]:
    with running(Settings(**{"workers": 1, "queue": 1, "cache_bytes": 0, **settings}), UNRULY) as service:
        yield service


@pytest.fixture(scope="module")
def service() -> Iterator[tuple[httpx.Client, Pool]]:
    with unruly(workers=2, queue=4, grace=0.3) as service:
        yield service


def children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet still has its place, but no command line."""
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


def ask_in_background(client: httpx.Client, body: dict[str, Any]) -> socket.socket:
    """A connection that has asked and not read its answer."""
    content = httpx.Request("POST", "http://x/", json=body).content
    connection = socket.create_connection((client.base_url.host, client.base_url.port or 80))
    connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content) + content)
    return connection


def test_health_answers_while_every_worker_is_busy(service: tuple[httpx.Client, Pool]) -> None:
    client, pool = service
    connections = [ask_in_background(client, deed("hang")) for _ in range(2)]
    until(lambda: pool.busy == 2, "both workers were busy")
    for _ in range(20):
        assert client.get("/healthz").json() == {"status": "ok"}
    assert pool.busy == 2, "health did not wait for a worker"
    for connection in connections:
        connection.close()
    until(lambda: pool.ready and pool.busy == 0, "both workers were free again")


def test_a_client_that_leaves_frees_its_worker(service: tuple[httpx.Client, Pool]) -> None:
    client, pool = service
    replaced = pool.replaced
    connection = ask_in_background(client, deed("hang"))
    until(lambda: pool.busy == 1, "the worker was busy")
    connection.close()
    until(lambda: pool.replaced == replaced + 1 and pool.ready and pool.busy == 0, "the worker was replaced")
    assert post(client, "/v1/plans", deed("ok")).status_code == 200


def test_a_client_that_leaves_a_short_solve_costs_no_worker() -> None:
    def seen() -> int:
        """Requests to the solver that are over: answered, or their clients were gone."""
        return sum(int(float(count)) for count in re.findall(r'requests_total\{route="/v1/plans",status="\d+"\} (\S+)', client.get("/metrics").text))

    with unruly(queue=8) as (client, pool):
        for _ in range(5):
            ask_in_background(client, deed("ok")).close()
        until(lambda: seen() == 5 and pool.busy == 0, "the solves were over")
        assert pool.replaced == 0 and pool.ready


def test_a_client_that_leaves_the_queue_takes_no_worker() -> None:
    with unruly() as (client, pool):
        busy = ask_in_background(client, deed("hang"))
        until(lambda: pool.busy == 1, "the worker was busy")
        waiting = ask_in_background(client, deed("ok"))
        until(lambda: pool.waiting == 1, "one waited")
        waiting.close()
        until(lambda: pool.waiting == 0, "none waited")
        assert pool.busy == 1 and pool.replaced == 0
        busy.close()


@pytest.mark.parametrize("path", [endpoint.path for endpoint in ENDPOINTS if endpoint.request is PlanRequest])
@pytest.mark.parametrize(
    ("name", "stays"),
    [("wait", True), ("hang", False), ("spin", False), ("hang_in_native_code_beside_other_threads", False), ("hang_in_native_code", False)],
)
def test_a_solve_past_its_time_is_answered_with_what_there_is_and_frees_its_worker(
    service: tuple[httpx.Client, Pool], name: str, stays: bool, path: str
) -> None:
    client, pool = service
    until(lambda: pool.ready and pool.busy == 0, "every worker was free")
    workers = {worker.process.pid for worker in pool._workers}
    response = post(client, path, deed(name, time_limit=0.2))
    assert response.status_code == 200 and response.json()["termination"] == "time_limit", response.text
    endpoint = next(endpoint for endpoint in ENDPOINTS if endpoint.path == path)
    endpoint.answer.model_validate_json(response.content)
    until(lambda: pool.ready and pool.busy == 0, "every worker was free again")
    assert ({worker.process.pid for worker in pool._workers} == workers) is stays
    assert post(client, path, deed("ok")).status_code == 200


def test_what_a_search_has_told_of_is_the_answer_when_its_time_is_over(service: tuple[httpx.Client, Pool]) -> None:
    client, _ = service
    names = ("hang_with_an_mjoin", "b", "c")
    streams = [{"name": name, "rate": 1, "window": {"seconds": 1}} for name in names]
    predicates = [{"left": f"{left}.k", "right": f"{right}.k", "selectivity": 0.1} for left, right in pairwise(names)]
    body = {"query": {"streams": streams, "predicates": predicates}, "options": {"time_limit": 0.2, "caches": "off"}}
    made = Plan.model_validate_json(post(client, "/v1/plans", body).content)
    assert [operator.kind for operator in made.operators] == ["mjoin"], "a greedy plan has binary joins"
    assert (made.termination, made.proof, made.bound) == ("time_limit", "bounded", 1e-12) and made.cost.cpu > 1e-12
    assert made.cost == estimate(EstimateRequest.model_validate({**body, "operators": made.model_dump()["operators"]})).cost


def test_a_plan_so_far_that_does_not_fit_says_what_it_would_take(service: tuple[httpx.Client, Pool]) -> None:
    client, _ = service
    made = Plan.model_validate_json(post(client, "/v1/plans", {**deed("hang", 0.2), "resources": {"memory_bytes": 1}}).content)
    assert not made.qualified and made.shortfall is not None and made.shortfall.min_memory_bytes == 100.0
    assert "no time" in made.warnings[0] and not made.validity


def test_what_needs_no_search_has_no_answer_so_far() -> None:
    assert {endpoint.path for endpoint in ENDPOINTS if not endpoint.so_far} == {
        "/v1/requests",
        "/v1/estimates",
        "/v1/diffs",
        "/v1/solvers/window-join",
    }


@pytest.mark.parametrize("leaves", [True, False], ids=["client_leaves", "time_is_up"])
def test_a_stopped_solve_takes_its_child_processes_with_it(leaves: bool) -> None:
    with unruly(grace=0.3) as (client, pool):
        (worker,) = pool._workers
        connection = ask_in_background(client, deed("hang_in_child_process", 300.0 if leaves else 1.0))
        until(lambda: bool(children_of(worker.process.pid)), "the solver had a child process")
        (child,) = children_of(worker.process.pid)
        if leaves:
            connection.close()
        until(lambda: is_gone(child), "the child process was gone")
        connection.close()
        until(lambda: pool.ready, "the worker was replaced")


def test_a_longer_time_limit_than_the_service_allows_is_cut() -> None:
    with unruly(time_limit=2.5) as (client, _):
        assert check_problem(post(client, "/v1/plans", deed("say_limit", 100.0)), 422)["detail"] == "limit 2.5"
        assert check_problem(post(client, "/v1/plans", deed("say_limit", 1.5)), 422)["detail"] == "limit 1.5"


def test_a_worker_that_dies_is_replaced_and_its_request_answered(service: tuple[httpx.Client, Pool]) -> None:
    client, pool = service
    problem = check_problem(post(client, "/v1/plans", deed("die")), 500)
    assert problem["detail"] == "The server failed on this request."
    until(lambda: pool.ready, "the worker was replaced")
    assert post(client, "/v1/plans", deed("ok")).status_code == 200


def test_an_idle_worker_that_dies_is_replaced_before_anyone_asks() -> None:
    with unruly() as (client, pool):
        (worker,) = pool._workers
        os.kill(worker.process.pid, signal.SIGKILL)
        until(lambda: pool.replaced == 1 and pool.ready, "the worker was replaced")
        assert post(client, "/v1/plans", deed("ok")).status_code == 200


def test_a_solver_that_fails_says_nothing_of_the_inside(service: tuple[httpx.Client, Pool]) -> None:
    client, pool = service
    replaced = pool.replaced
    response = post(client, "/v1/plans", deed("fail"))
    check_problem(response, 500)
    assert "secret" not in response.text and "Traceback" not in response.text and "RuntimeError" not in response.text
    assert pool.replaced == replaced


def test_what_a_solver_prints_does_not_reach_the_answer(service: tuple[httpx.Client, Pool]) -> None:
    client, _ = service
    for _ in range(3):
        assert post(client, "/v1/plans", deed("print")).json() == {"status": "ok"}


def test_overload_is_503_with_retry_after_and_the_queue_stays_bounded() -> None:
    with unruly(workers=1, queue=2, grace=0.3) as (client, pool), ThreadPoolExecutor(12) as threads:
        busy = ask_in_background(client, deed("hang"))
        until(lambda: pool.busy == 1, "the worker was busy")
        placed = [threads.submit(post, client, "/v1/plans", deed("ok")) for _ in range(2)]
        until(lambda: pool.waiting == 2, "the queue was full")
        for response in threads.map(lambda _: post(client, "/v1/plans", deed("ok")), range(10)):
            check_problem(response, 503)
            assert int(response.headers["retry-after"]) >= 1
        assert pool.waiting == 2
        busy.close()
        assert [response.result().status_code for response in placed] == [200, 200]


def test_every_client_gets_its_own_answer_while_others_leave() -> None:
    def own(i: int) -> bool:
        return bool(check_problem(post(client, "/v1/plans", deed("say_limit", 1.0 + i)), 422)["detail"] == f"limit {1.0 + i}")

    with unruly(workers=2, queue=100) as (client, pool), ThreadPoolExecutor(6) as threads:
        asked = [threads.submit(own, i) for i in range(200)]
        for i in range(40):
            ask_in_background(client, deed("nap" if i % 20 == 0 else "say_limit")).close()
        assert all(answer.result() for answer in asked)
        until(lambda: pool.ready and pool.busy == 0, "every worker was free again")


def test_nobody_waits_for_a_worker_longer_than_the_setting_says() -> None:
    with unruly(queue=5, queue_seconds=0.3) as (client, pool):
        busy = ask_in_background(client, deed("hang"))
        until(lambda: pool.busy == 1, "the worker was busy")
        response = post(client, "/v1/plans", deed("ok"))
        check_problem(response, 503)
        assert "retry-after" in response.headers and pool.waiting == 0
        busy.close()


def test_not_ready_until_every_worker_is_warm() -> None:
    with unruly(workers=2) as (client, pool):
        assert client.get("/readyz").json()["workers"] == 2
        refused: list[httpx.Response] = []

        def caught() -> bool:
            """Whether the service was asked before the next worker was warm."""
            post(client, "/v1/plans", deed("die"))
            refused.append(client.get("/readyz"))
            return refused[-1].status_code == 503

        until(caught, "it was not ready")
        check_problem(refused[-1], 503)
        assert "retry-after" in refused[-1].headers
        until(lambda: client.get("/readyz").status_code == 200, "the service was ready again")
        assert pool.warm == 2


def test_stopping_the_service_ends_its_workers() -> None:
    with unruly(workers=2) as (client, pool):
        pids = [worker.process.pid for worker in pool._workers]
        assert post(client, "/v1/plans", deed("ok")).status_code == 200
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


SERVICE = """
import uvicorn
from app.service.api import create_app
from app.service.endpoints import ENDPOINTS
from app.service.pool import Pool
from app.service.settings import Settings
from models.plan import EstimateRequest, Plan
from models.request import PlanRequest
from solvers.estimate import estimate
settings = Settings(workers=1)
app = create_app(settings, Pool(settings, "tests.app.unruly_worker"))
uvicorn.run(app, port={port}, log_config=None, timeout_graceful_shutdown=10)
"""


@contextmanager
def process() -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    """An unruly service as a process of its own, ready."""
    port = free_port()
    service = subprocess.Popen([sys.executable, "-c", SERVICE.format(port=port)], cwd=ROOT)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: answers(client), "the service was ready")
            yield service, client
    finally:
        service.kill()
        service.wait()


def test_a_service_that_is_asked_to_stop_ends_its_solves_first() -> None:
    with process() as (service, client), ThreadPoolExecutor(1) as thread:
        asked = thread.submit(post, client, "/v1/plans", deed("doze"))
        until(lambda: "watersmeet_busy_workers 1.0" in httpx.get(f"{client.base_url}/metrics").text, "the worker was busy")
        service.terminate()
        assert asked.result().json() == {"status": "ok"}
        service.wait(timeout=30)


def test_workers_do_not_outlive_a_service_that_is_killed() -> None:
    with process() as (service, _):
        workers = children_of(service.pid)
        assert workers
        service.kill()
        service.wait()
        until(lambda: all(map(is_gone, workers)), "the workers were gone")

"""What a client sees besides plans: problems, limits, ids, metrics, the docs page, logs."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest

from app.service.settings import Settings
from tests.app.serving import PATIENCE, ROOT, check_problem, example, post, running


@pytest.fixture(scope="module")
def small() -> Iterator[httpx.Client]:
    """A service that takes little."""
    settings = Settings(workers=1, body_bytes=2000, cache_bytes=0)
    with running(settings, "tests.app.unruly_worker") as (client, _):
        yield client


def test_an_unknown_path_is_a_404_that_helps(small: httpx.Client) -> None:
    assert "did you mean /v1/plans?" in check_problem(small.get("/v1/plan"), 404)["detail"]
    check_problem(small.get("/static/../api.py"), 404)
    check_problem(small.get("/static/%2e%2e/api.py"), 404)
    check_problem(small.post("/v1/plans/"), 404)


@pytest.mark.parametrize(("method", "path", "allow"), [("GET", "/v1/plans", "POST"), ("DELETE", "/v1/diffs", "POST"), ("POST", "/healthz", "GET")])
def test_a_wrong_method_is_a_405_that_says_which_is_right(small: httpx.Client, method: str, path: str, allow: str) -> None:
    response = small.request(method, path)
    assert f"takes {allow}, not {method}" in check_problem(response, 405)["detail"]
    assert response.headers["allow"] == allow


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/json", "Content-Encoding": "gzip"},
        {},
    ],
)
def test_another_media_type_is_a_415(small: httpx.Client, headers: dict[str, str]) -> None:
    problem = check_problem(small.post("/v1/plans", content=b"{}", headers=headers), 415)
    assert [error["pointer"] for error in problem["errors"]] == [""]


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=UTF-8", 'application/json;charset="utf-8"'])
def test_json_may_say_that_it_is_utf_8(small: httpx.Client, media_type: str) -> None:
    assert small.post("/v1/plans", content=b"{}", headers={"Content-Type": media_type}).status_code == 422


def test_a_body_at_the_limit_is_read_and_one_byte_more_is_a_413(small: httpx.Client) -> None:
    check_problem(post(small, "/v1/plans", b" " * 2000), 422)
    problem = check_problem(post(small, "/v1/plans", b" " * 2001), 413)
    assert [error["pointer"] for error in problem["errors"]] == [""]
    assert "2000 bytes" in problem["detail"]


def test_a_body_that_does_not_say_its_length_is_cut_off_at_the_limit(small: httpx.Client) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 10_000_000:
            sent += 1000
            yield b" " * 1000

    check_problem(small.post("/v1/plans", content=endless(), headers={"Content-Type": "application/json"}), 413)
    with socket.create_connection((small.base_url.host, small.base_url.port or 80)) as connection:
        connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"3e8\r\n" + b" " * 1000 + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413")  # answered before the body ended


def test_a_body_that_does_not_come_is_a_408() -> None:
    with (
        running(Settings(workers=1, body_seconds=0.5), "tests.app.unruly_worker") as (client, _),
        socket.create_connection((client.base_url.host, client.base_url.port or 80), PATIENCE) as connection,
    ):
        connection.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{")
        assert connection.recv(100).startswith(b"HTTP/1.1 408")


def test_a_sane_request_id_comes_back_and_another_is_replaced(small: httpx.Client) -> None:
    assert small.get("/healthz", headers={"X-Request-ID": "trace-7.a_B"}).headers["x-request-id"] == "trace-7.a_B"
    for insane in ("a b", "x" * 65, "<script>", ""):
        given = small.get("/healthz", headers={"X-Request-ID": insane}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", given)
    assert re.fullmatch("[0-9a-f]{32}", small.get("/nothing").headers["x-request-id"])


def test_metrics_count_requests_by_route_and_status(small: httpx.Client) -> None:
    def figure(name: str) -> float:
        found = re.search(rf"^{re.escape(name)} (\S+)$", small.get("/metrics").text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    refused = 'watersmeet_http_requests_total{route="/v1/plans",status="422"}'
    before = figure(refused)
    post(small, "/v1/plans", b"{}")
    assert figure(refused) == before + 1
    solved = 'watersmeet_solve_seconds_count{route="/v1/plans"}'
    before = figure(solved)
    request = {"query": {"streams": [{"name": "ok", "rate": 1, "window": {"seconds": 1}}]}}
    assert post(small, "/v1/plans", request).status_code == 200
    assert figure(solved) == before + 1
    assert figure("watersmeet_warm_workers") == 1
    assert figure("watersmeet_busy_workers") == 0
    assert figure("watersmeet_queue_length") == 0
    for i in range(50):
        small.get(f"/nothing/{i}")
    text = small.get("/metrics").text
    assert "/nothing" not in text and 'route="other",status="404"' in text


def test_the_docs_page_and_all_it_loads_come_from_the_service(small: httpx.Client) -> None:
    page = small.get("/docs")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert not re.search(r"https?:|//", page.text)
    loaded = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text)
    assert len(loaded) == 3
    for path in loaded:
        assert small.get(f"/{path}").status_code == 200
    assert not re.search(r"https?:", small.get("/static/docs.js").text)
    assert small.get("/static/swagger-ui/LICENSE").text.lstrip().startswith("Apache License")


def test_the_document_is_served(small: httpx.Client) -> None:
    assert small.get("/openapi.json").json()["info"]["title"] == "Watersmeet"


def test_logs_are_json_lines_with_the_request_id() -> None:
    script = """
import httpx
from tests.app.serving import running, post
from app.service.logs import set_up_logging
from app.service.settings import Settings
set_up_logging()
with running(Settings(workers=1), "tests.app.unruly_worker") as (client, _):
    body = {"query": {"streams": [{"name": "fail", "rate": 1, "window": {"seconds": 1}}]}}
    assert post(client, "/v1/plans", body, **{"X-Request-ID": "find-me"}).status_code == 500
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    mine = [line for line in lines if line.get("request_id") == "find-me"]
    assert [line["event"] for line in mine] == ["solve failed", "request"]
    assert "secret of the inside" in mine[0]["exception"]
    assert mine[1]["status"] == 500 and mine[1]["path"] == "/v1/plans" and mine[1]["method"] == "POST"


def test_plans_of_the_examples_are_answered(service: httpx.Client) -> None:
    for name in ("auction", "star"):
        plan = post(service, "/v1/plans", example(name)).json()
        assert plan["format"] == "watersmeet.plan/1"
        estimate = post(service, "/v1/estimates", {**example(name), "operators": plan["operators"]}).json()
        assert estimate["cost"] == plan["cost"] and estimate["fingerprint"] == plan["fingerprint"]
        assert post(service, "/v1/diffs", {"before": plan, "after": estimate}).json()["same_structure"] is True


def test_a_request_that_only_a_solver_can_refuse_is_a_422_with_its_pointer(service: httpx.Client) -> None:
    streams = [{"name": f"s{i}", "rate": 1e200, "window": {"seconds": 1e5}} for i in range(3)]
    predicates = [{"left": f"s{i}.a", "right": f"s{i + 1}.a", "selectivity": 1.0} for i in range(2)]
    problem = check_problem(post(service, "/v1/plans", {"query": {"streams": streams, "predicates": predicates}}), 422)
    assert [error["pointer"] for error in problem["errors"]] == ["/query"]

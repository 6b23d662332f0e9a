"""Spans of a running service: a child of the caller's, with its queue, its solve and the search's steps; and nothing where nobody asks for them."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from app.service.traces import trace_id, traces_from
from tests.app.serving import ROOT, answers, free_port, served, until

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CARRIED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
LONG = {**json.loads((ROOT / "openapi" / "examples" / "star.json").read_text("utf-8"))}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]]]]:
    """The spans and the lines of the log of a service that was asked for a plan and for nothing that there is."""
    out = tmp_path_factory.mktemp("traced")
    port = free_port()
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "console", "WATERSMEET_WORKERS": "1"}
    with (out / "spans").open("w") as spans, (out / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-m", "app", "serve", "--port", str(port)], cwd=ROOT, env=environment, stdout=spans, stderr=log)
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                until(lambda: answers(client), "the service was ready")
                assert client.post("/v1/plans", json=LONG, headers=CARRIED).status_code == 200
                assert client.get("/nothing/here", headers=CARRIED).status_code == 404
        finally:
            process.terminate()
            process.wait(timeout=60)
    yield lines(out / "spans"), lines(out / "log")


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("{")]


def test_a_request_is_the_callers_child_with_queue_solve_and_steps(told: Any) -> None:
    spans = [span for span in told[0] if span["context"]["trace_id"] == f"0x{TRACE}"]
    request = next(span for span in spans if span["name"] == "POST /v1/plans")
    assert request["parent_id"] == f"0x{PARENT}" and request["attributes"]["http.response.status_code"] == 200
    below = {span["name"]: span for span in spans if span["parent_id"] == request["context"]["span_id"]}
    assert set(below) == {"queue", "solve"}
    assert request["start_time"] <= below["queue"]["start_time"] <= below["queue"]["end_time"] == below["solve"]["start_time"]
    assert below["solve"]["end_time"] <= request["end_time"]
    steps = [span for span in spans if span["parent_id"] == below["solve"]["context"]["span_id"]]
    assert steps and all(below["solve"]["start_time"] <= step["start_time"] <= step["end_time"] <= below["solve"]["end_time"] for step in steps)
    assert {span["name"] for span in spans} >= {"GET other"}, "a path that nobody routes does not name a span"


@contextmanager
def collector() -> Iterator[tuple[str, list[Any]]]:
    """An OTLP receiver over HTTP, and the requests it was sent, parsed by OpenTelemetry's own messages; anything else it refuses."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

    received: list[Any] = []

    class Receiving(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            if (self.path, self.headers["Content-Type"]) != ("/v1/traces", "application/x-protobuf"):
                self.send_error(415)
                return
            received.append(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *arguments: Any) -> None:
            """Tests say what went wrong."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Receiving) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_a_collector_is_sent_the_spans_over_otlp(compression: str) -> None:
    with collector() as (url, received):
        environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_COMPRESSION": compression, "WATERSMEET_WORKERS": "1"}
        with served(**environment) as client:
            assert client.post("/v1/plans", json=LONG, headers=CARRIED).status_code == 200
        # The service has ended by now: what it had not sent yet it sends before it ends.
        resources = [resource for request in received for resource in request.resource_spans]
    named = {(attribute.key, attribute.value.string_value) for one in resources for attribute in one.resource.attributes}
    assert ("service.name", "watersmeet") in named
    spans = [span for one in resources for scope in one.scope_spans for span in scope.spans if span.trace_id.hex() == TRACE]
    (request,) = (span for span in spans if span.name == "POST /v1/plans")
    assert request.parent_span_id.hex() == PARENT and request.kind == request.SPAN_KIND_SERVER
    assert {attribute.key: attribute.value for attribute in request.attributes}["http.response.status_code"].int_value == 200
    below = {span.name: span for span in spans if span.parent_span_id == request.span_id}
    assert set(below) == {"queue", "solve"} and below["queue"].end_time_unix_nano == below["solve"].start_time_unix_nano
    assert [span for span in spans if span.parent_span_id == below["solve"].span_id], "the search's steps"


def test_a_collector_that_is_away_costs_no_answer() -> None:
    with served(OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{free_port()}", WATERSMEET_WORKERS="1") as client:
        assert client.post("/v1/plans", json=LONG, headers=CARRIED).status_code == 200


def test_the_log_says_which_trace_a_request_is_part_of(told: Any) -> None:
    requests = [line for line in told[1] if line.get("event") == "request" and line.get("path") == "/v1/plans"]
    assert [line["trace_id"] for line in requests] == [TRACE]


def test_the_command_line_passes_its_trace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    from app.commands.main import main

    seen: list[str | None] = []

    class Listening(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append(self.headers["traceparent"])
            self.send_error(503)

    monkeypatch.setenv("TRACEPARENT", CARRIED["traceparent"])
    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        Thread(target=server.handle_request).start()
        example = str(ROOT / "openapi" / "examples" / "auction.json")
        assert main(["plan", example, "--url", f"http://127.0.0.1:{server.server_port}"]) == 2
    assert seen == [CARRIED["traceparent"]]


def test_without_settings_nothing_of_it_is_loaded() -> None:
    code = "import sys; from app.service.traces import traces_from; print(traces_from({}), 'opentelemetry.sdk' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert said.split() == ["None", "False"]
    assert traces_from({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:4318"}) is None


@pytest.mark.parametrize("header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}", f"00-{TRACE.upper()}-{PARENT}-01"])
def test_what_is_no_traceparent_is_none(header: str) -> None:
    assert trace_id({b"traceparent": header.encode()}) == ""
    assert trace_id({b"traceparent": CARRIED["traceparent"].encode()}) == TRACE


def test_the_dashboard_shows_figures_that_the_service_has() -> None:
    from app.service.answers import Answers
    from app.service.metrics import Metrics
    from app.service.pool import Pool
    from app.service.settings import Settings

    metrics = Metrics(Pool(Settings(workers=1)), Answers(0))
    metrics.answered("/v1/plans", 200, 0.1)
    metrics.solved("/v1/plans", 0.1)
    metrics.came_from("miss")
    metrics.streamed("/v1/plans", 1)
    known = {line.split("{")[0].split(" ")[0] for line in metrics.render().decode().splitlines() if not line.startswith("#")}
    dashboard = json.loads((ROOT / "deploy" / "grafana.json").read_text(encoding="utf-8"))
    import re

    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked = {name for expression in expressions for name in re.findall(r"watersmeet_\w+", expression)}
    assert len(dashboard["panels"]) >= 6 and asked and asked <= known

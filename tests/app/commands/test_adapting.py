"""`run --adapt --url`: a server's answers are carried out; one that is stopped, hangs or talks nonsense changes nothing."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.commands.main import main
from app.commands.replanning import asking
from app.service.settings import Settings
from models.replan import Thresholds
from solvers.planner import plan as planned
from spark_adapter.adapt import Adapting
from tests.app.serving import running
from tests.spark_adapter.drift import Drift
from tests.spark_adapter.in_process import Arrivals, InProcess

DRIFT = Drift(rate=40, window=4, half=12, batch=2, partners=(0.1, 1, 8))
PATIENT = 60.0  # seconds, for an answer that must come


def pipeline() -> InProcess:
    """One that has seen a window."""
    run = InProcess(planned(DRIFT.request(False)))
    run.run(DRIFT.batches(DRIFT.rows())[:2])
    return run


def coming() -> list[tuple[Arrivals, int]]:
    return [*DRIFT.batches(DRIFT.rows())[2:]]


def test_a_servers_answers_are_carried_out_and_when_it_is_stopped_the_plan_goes_on() -> None:
    run, lines = pipeline(), list[str]()
    batches = coming()
    with running(Settings(workers=1)) as (client, _):
        url = str(client.base_url)
        loop = Adapting(run, asking(url, Thresholds(), PATIENT), patience=PATIENT, say=lines.append)
        run.run(batches[:8], loop.look)
    assert len(run.changes) >= 1
    assert not any("no answer" in line for line in lines)
    in_force = run.plan
    run.run(batches[8:], loop.look)
    assert len(lines) == len(batches)
    assert all(line.startswith(f"plan kept: no answer: {url}: ") for line in lines[8:])
    assert run.plan is in_force
    assert run.batches[-1].results > 0


@contextmanager
def answering(text: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("text", [b"<html>welcome</html>", b'{"decision": "change"}', b""])
def test_a_server_that_talks_nonsense_is_not_believed(text: bytes) -> None:
    run, lines = pipeline(), list[str]()
    with answering(text) as url:
        run.run(coming()[:1], Adapting(run, asking(url, Thresholds(), PATIENT), patience=PATIENT, say=lines.append).look)
    assert lines == [f"plan kept: no answer: {url}: the answer is no replan: is this a watersmeet server, of this version?"]


def test_a_server_that_hangs_is_not_waited_for() -> None:
    """It takes the connection and says nothing."""
    run, lines = pipeline(), list[str]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        run.run(coming()[:1], Adapting(run, asking(url, Thresholds(), 0.1), patience=PATIENT, say=lines.append).look)
    assert lines == [f"plan kept: no answer: {url}: no answer within 0.1 seconds"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "5"], "--every goes with --adapt, which is missing"),
        (["--adapt", "--every", "0"], "argument --every: must be a number of seconds above 0, got '0'"),
        (["--adapt", "--gain", "lots"], "argument --gain: must be a share of at least 0, such as 0.05, got 'lots'"),
        (["--adapt", "--url", "localhost:8080"], "--url must start with http:// or https://, got 'localhost:8080'"),
        (["--adapt", "--engine", "native"], "only engine stem can change its plan while it runs, not native"),
    ],
)
def test_options_that_make_no_sense_are_refused_before_spark_starts(
    options: list[str], said: str, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path_factory.mktemp("refused")
    (folder / "plan.json").write_text(planned(DRIFT.request(False)).model_dump_json(by_alias=True))
    (folder / "bindings.json").write_text(DRIFT.bindings(folder, folder).model_dump_json(by_alias=True))
    assert main(["run", str(folder / "plan.json"), str(folder / "bindings.json"), "--master", "nowhere", *options]) == 2
    assert said in capsys.readouterr().err

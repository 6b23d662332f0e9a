"""The command line beyond what it prints (see tests/golden): servers, standard input, exit codes, what it imports."""

from __future__ import annotations

import io
import json
import math
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from app.commands import planning
from app.commands.main import main
from app.service.endpoints import ENDPOINTS
from app.service.settings import Settings
from app.service.worker import respond
from models.plan import Frontier, Plan
from tests.app.serving import EXAMPLES, ROOT, running

AUCTION = ROOT / "openapi" / "examples" / "auction.json"


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_planned_and_qualifies(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = output(capsys, "plan", "--strict", str(path))
    assert code == 0
    assert Plan.model_validate_json(out).qualified


def test_a_server_gives_the_plan_that_is_made_here(service: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    _, here, _ = output(capsys, "plan", str(AUCTION))
    _, there, _ = output(capsys, "plan", str(AUCTION), "--url", str(service.base_url))
    assert here == there


def test_a_server_gives_the_frontier_that_is_made_here(service: httpx.Client, capsys: pytest.CaptureFixture[str]) -> None:
    _, here, _ = output(capsys, "frontier", str(AUCTION), "--format", "json")
    _, there, _ = output(capsys, "frontier", str(AUCTION), "--format", "json", "--url", str(service.base_url))
    assert here == there
    assert len(Frontier.model_validate_json(here).points) > 1


def test_what_a_server_refuses_is_said_with_its_pointers(service: httpx.Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    huge = {
        "query": {
            "streams": [{"name": name, "rate": 1e200, "window": {"seconds": 1}} for name in "ab"],
            "predicates": [{"left": "a.k", "right": "b.k", "selectivity": 1}],
        }
    }
    request = tmp_path / "huge.json"
    request.write_text(json.dumps(huge))
    for more in ([], ["--url", str(service.base_url)]):
        code, out, err = output(capsys, "plan", str(request), *more)
        assert (code, out) == (2, "")
        assert "/query: the join of a, b has more tuples than a double can count" in err


def test_numbers_that_leave_the_range_where_nobody_looked_are_refused_as_a_server_refuses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def too_much(*_: object, **__: object) -> float:
        return math.fsum([1.7e308, 1.7e308])

    case = tmp_path / "cases" / "one"
    case.mkdir(parents=True)
    (case / "request.json").write_text(AUCTION.read_text())
    monkeypatch.setattr("solvers.planner.search", too_much)
    for arguments in (["plan", str(AUCTION)], ["explain", str(AUCTION)]):
        code, out, err = output(capsys, *arguments)
        assert (code, out) == (2, "")
        assert err == "the numbers of the request multiply or add up to more than a double can hold: lower them\n"
    plans = next(endpoint for endpoint in ENDPOINTS if endpoint.path == "/v1/plans")
    reply = respond(plans, plans.load(), AUCTION.read_bytes(), 10.0, lambda *_: None)
    assert reply.status == 422 and err.strip() in reply.body.decode()
    code, _, err = output(capsys, "check", "--update", str(case.parent))
    assert code == 2 and "more than a double can hold" in err


def test_a_cost_beyond_the_range_is_one_line_of_refusal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = tmp_path / "dear.json"
    request.write_text(json.dumps({**json.loads(AUCTION.read_text()), "costs": {"probe": 1e307}}))
    code, out, err = output(capsys, "plan", str(request))
    assert (code, out) == (2, "")
    assert err == "/costs/probe: the cost probe, 1e+307, comes to more CPU than a double can hold: lower it\n"


def test_no_server_is_bad_input_not_a_crash(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = output(capsys, "plan", str(AUCTION), "--url", "http://127.0.0.1:9")
    assert code == 2
    assert "127.0.0.1:9" in err
    assert output(capsys, "plan", str(AUCTION), "--url", "file:///etc/passwd")[0] == 2


def test_standard_input_may_be_json_or_yaml(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    yaml = b"query:\n  streams:\n  - {name: a, rate: 1, window: {seconds: 1}}\n"
    as_json = b'{"query": {"streams": [{"name": "a", "rate": 1, "window": {"seconds": 1}}]}}'
    plans = []
    for text in (yaml, as_json):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        plans.append(output(capsys, "plan", "-")[1])
    assert plans[0] == plans[1]


def test_a_plan_can_be_made_again_from_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, first, _ = output(capsys, "plan", str(AUCTION))
    (tmp_path / "plan.json").write_text(first)
    _, again, _ = output(capsys, "plan", str(tmp_path / "plan.json"))
    assert again == first


def test_strict_turns_no_plan_into_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = json.loads(AUCTION.read_text())
    request["resources"] = {"memory_bytes": 1}
    (tmp_path / "tight.json").write_text(json.dumps(request))
    assert output(capsys, "plan", str(tmp_path / "tight.json"))[0] == 0
    assert output(capsys, "plan", "--strict", str(tmp_path / "tight.json"))[0] == 1
    assert output(capsys, "frontier", "--strict", str(tmp_path / "tight.json"))[:2] == (1, "No plan fits the caps.\n")


def test_unknown_commands_and_arguments_are_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "plot")[0] == 2
    assert output(capsys, "plan")[0] == 2
    assert output(capsys, "plan", "--method", "magic", str(AUCTION))[0] == 2


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], ["pydantic", "numba", "numpy", "ortools", "pulp", "networkx", "fastapi", "pyspark", "yaml"]),
        (["plan", "--method", "bjtree", str(AUCTION)], ["numba", "ortools", "pulp", "networkx", "fastapi", "pyspark", "polars"]),
        (["plan", str(AUCTION)], ["ortools.sat", "pulp", "networkx", "fastapi", "pyspark", "polars"]),
    ],
    ids=["help", "bjtree", "auto"],
)
def test_no_library_is_imported_before_it_is_needed(arguments: list[str], unwanted: list[str]) -> None:
    code = f"import sys; from app.commands.main import main; main({arguments!r}); sys.stderr.write(' '.join(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint(unwanted), loaded & set(unwanted)


def test_the_readme_shows_both_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme


def test_the_figures_in_the_readme_are_those_of_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    plan = Plan.model_validate_json(output(capsys, "plan", str(AUCTION))[1])
    bids = next(entry for entry in plan.validity if entry.statistic == "bids.rate")
    for figure in (plan.cost.cpu, plan.cost.memory_bytes, plan.cost.output_rate, plan.headroom, bids.high, *plan.explanation[:3]):
        assert str(figure) in readme
    drawing = output(capsys, "explain", str(AUCTION))[1].split("\n\n")[0]
    assert drawing in readme


@pytest.mark.parametrize("command", ["run", "export"])
def test_spark_that_is_missing_is_not_installed_unasked(
    command: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """None in `sys.modules` is a module that cannot be found. pip itself runs, and finds here that everything is there already."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    document = tmp_path / "document.json"
    document.write_text("{}")
    code, _, err = output(capfd, command, str(document), str(document))
    assert code == 2
    assert f"Install it with: {sys.executable} -m pip install 'pyspark[sql]" in err
    assert "--install" in err
    assert "is this file a plan" not in err
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    code, _, err = output(capfd, command, str(document), str(document), "--install")
    assert (code, "is this file a plan" in err) == (2, True), err


def test_a_server_that_asks_for_a_key_gets_it(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Settings(workers=1, api_keys="secret")) as (client, _):
        code, out, err = output(capsys, "plan", str(AUCTION), "--url", str(client.base_url))
        assert (code, out) == (2, "") and "X-API-Key" in err
        monkeypatch.setenv("WATERSMEET_API_KEY", "secret")
        assert output(capsys, "plan", str(AUCTION), "--url", str(client.base_url))[0] == 0


@pytest.mark.parametrize("says", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"], ids=["nothing", "half"])
def test_a_server_that_falls_silent_is_not_waited_for(says: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "ANSWER_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:

        def answer() -> None:
            connection, _ = silent.accept()
            connections.append(connection)
            connection.sendall(says)

        connections: list[socket.socket] = []
        thread = threading.Thread(target=answer)
        thread.start()
        port = silent.getsockname()[1]
        code, out, err = output(capsys, "plan", str(AUCTION), "--time-limit", "0.3", "--url", f"http://127.0.0.1:{port}")
        thread.join()
        connections[0].close()
    assert (code, out, err) == (2, "", f"http://127.0.0.1:{port}: no answer within 0.5 seconds\n")


@pytest.mark.parametrize("wrong", ["99999", "-1", "http", ""])
def test_a_port_that_cannot_be_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = output(capsys, "serve", "--port", wrong)
    assert code == 2 and f"must be a whole number from 0 to 65535, got {wrong!r}" in err


def test_an_address_that_is_taken_is_one_line_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = taken.getsockname()[1]
        with pytest.raises(SystemExit, match="2"):
            main(["serve", "--port", str(address)])
    assert capsys.readouterr().err == f"cannot listen on 127.0.0.1:{address}: Address already in use\n"


def test_a_profile_of_tables_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = {
        "streams": [{"name": "bids", "window": {"seconds": 60}}],
        "tables": [{"name": "products", "rows": 100}],
        "predicates": [{"left": "bids.product", "right": "products.id"}],
    }
    (tmp_path / "request.json").write_text(json.dumps({"query": query}))
    (tmp_path / "sources.json").write_text("{}")
    assert main(["profile", str(tmp_path / "sources.json"), str(tmp_path / "request.json")]) == 2
    assert "tables are not profiled" in capsys.readouterr().err

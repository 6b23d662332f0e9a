"""SQL on the command line and over HTTP: every command that takes a request takes the query that means it, and faults have their places."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import httpx
import pytest
import yaml

from app.commands.main import main
from tests.app.serving import ROOT, check_problem, post

EXAMPLE = ROOT / "openapi" / "examples" / "auction.sql"
STATS = ROOT / "openapi" / "examples" / "auction.stats.yaml"
WITH_STATS = ("--stats", str(STATS))
WRONG = "SELECT a.id\nFROM orders a\nLEFT JOIN payments b ON a.id = b.order_id"


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


@pytest.fixture
def request_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The request that the example means, as a file."""
    file = tmp_path / "request.json"
    file.write_text(printed(capsys, "request", str(EXAMPLE), *WITH_STATS))
    return str(file)


@pytest.mark.parametrize("command", ["plan", "explain", "frontier"])
def test_a_query_gives_what_its_request_gives(command: str, request_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, command, str(EXAMPLE), *WITH_STATS) == printed(capsys, command, request_file)


def test_a_case_may_be_a_query_and_notices_other_statistics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "plans" / "auction"
    case.mkdir(parents=True)
    shutil.copy(EXAMPLE, case / "request.sql")
    shutil.copy(STATS, case / "stats.yaml")
    folder = str(tmp_path / "plans")
    assert main(["check", folder, "--update"]) == 0
    assert main(["check", folder]) == 0
    statistics = yaml.safe_load(STATS.read_text("utf-8"))
    statistics["streams"]["a"]["rate"] *= 3
    (case / "stats.yaml").write_text(yaml.safe_dump(statistics))
    capsys.readouterr()
    assert "a.rate: 60.0 → 180.0" in printed(capsys, "check", folder)
    (case / "request.sql").write_text(WRONG)
    assert main(["check", folder]) == 2
    assert "request.sql: line 3, column 1:" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("command", ["request", "plan", "explain", "frontier"])
def test_what_a_query_cannot_mean_is_said_with_its_place(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "wrong.sql"
    file.write_text(WRONG)
    assert main([command, str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == "" and f"{file}: line 3, column 1:" in said.err


def test_the_service_means_what_the_command_means(service: httpx.Client, request_file: str) -> None:
    body = {"sql": EXAMPLE.read_text("utf-8"), "dialect": "spark", "statistics": yaml.safe_load(STATS.read_text("utf-8"))}
    answer = post(service, "/v1/requests", body)
    assert answer.status_code == 200 and set(answer.json()) == {"request", "bindings", "warnings"}
    assert answer.json()["request"] == json.loads(Path(request_file).read_text())
    assert answer.json()["bindings"]["streams"]["b"]["where"] == "price > 0"
    problem = check_problem(post(service, "/v1/requests", {"sql": WRONG}), 422)
    assert [error["pointer"] for error in problem["errors"]] == ["/sql"] and problem["errors"][0]["detail"].startswith("line 3, column 1:")

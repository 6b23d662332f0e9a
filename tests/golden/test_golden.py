"""Golden tests: what the command line says and what the solvers answer, case by case.

A file `*.test` holds cases separated by lines of `====`. A case is a comment that says why it exists, a command, its
input, a line `----`, and what the command prints. `pytest tests/golden --rewrite` approves what is printed now.

A command `watersmeet …` is the command line. Its input files stand each under a line `-- name --`; for every request NAME.yaml
there is its plan, NAME.plan.json. Lines of standard error are marked `! `, and an exit code that is not 0 is the last line.
Any other command is a solver's name in `answers.ANSWERS`, and its input is one request.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from app.commands.main import main
from models.request import CacheMode, Method, Objective, PlanRequest
from solvers.planner import plan
from tests.golden.answers import ANSWERS, answer

HERE = Path(__file__).parent
REQUEST = ""  # the name of an input that has none


@dataclass
class Case:
    why: list[str]
    command: str
    files: dict[str, str]
    files_text: str
    expected: str


def parse(text: str) -> Case:
    every = text.strip("\n").split("\n")
    end = every.index("----")
    lines, expected = every[:end], "\n".join(every[end + 1 :])
    why = [line for line in lines if line.startswith("#")]
    body = lines[len(why) :]
    files: dict[str, str] = {}
    name = REQUEST
    for line in body[1:]:
        if line.startswith("-- ") and line.endswith(" --"):
            name = line[3:-3]
            files[name] = ""
        else:
            files[name] = files.get(name, "") + line + "\n"
    return Case(why, body[0], files, "\n".join(body[1:]), expected)


def read(path: Path) -> list[Case]:
    return [parse(text) for text in path.read_text(encoding="utf-8").split("\n====\n")]


CASES = [(path, number) for path in sorted(HERE.glob("*.test")) for number in range(len(read(path)))]


@pytest.mark.parametrize(("path", "number"), CASES, ids=[f"{path.stem}-{number}" for path, number in CASES])
def test_golden(path: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rewrite: bool) -> None:
    cases = read(path)
    case = cases[number]
    assert case.why, "a case says why it exists"
    if case.command in ANSWERS:
        actual = answer(case.command, case.files[REQUEST])
    else:
        monkeypatch.chdir(tmp_path)
        actual = printed(case, capsys)
    if rewrite:
        case.expected = actual
        texts = ["\n".join([*one.why, one.command, *([one.files_text] if one.files_text else []), "----", one.expected]) for one in cases]
        path.write_text("\n====\n".join(texts) + "\n", encoding="utf-8")
        return
    assert actual == case.expected


def printed(case: Case, capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line prints when it runs here."""
    for name, text in case.files.items():
        Path(name).write_text(text, encoding="utf-8")
        if name.endswith(".yaml") and f"{Path(name).stem}.plan.json" in case.command:
            made = plan(PlanRequest.model_validate(yaml.safe_load(text)))
            Path(f"{Path(name).stem}.plan.json").write_text(made.model_dump_json(), encoding="utf-8")
    program, *arguments = shlex.split(case.command)
    assert program == "watersmeet"
    code = main(arguments)
    said = capsys.readouterr()
    assert all(len(line) <= 100 for line in said.out.splitlines() if "explain" in case.command)
    lines = [line.rstrip() for line in said.out.splitlines()] + [f"! {line}".rstrip() for line in said.err.splitlines()]
    return "\n".join([*lines, *([f"exit {code}"] if code else [])])


def test_every_solver_and_every_search_has_a_golden_case() -> None:
    cases = [case for path in sorted(HERE.glob("*.test")) for case in read(path) if case.command in ANSWERS]
    assert {case.command for case in cases} == set(ANSWERS)
    requests = [yaml.safe_load(case.files[REQUEST]) for case in cases if case.command == "plan"]
    assert {request.get("options", {}).get("method", "auto") for request in requests} == set(Method)
    assert {request.get("options", {}).get("caches", "auto") for request in requests} == set(CacheMode)
    assert {request.get("objective", "min_cpu") for request in requests} == set(Objective)

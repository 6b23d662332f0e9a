"""Golden tests: what the command line says, case by case.

A file `*.test` holds cases separated by lines of `====`. A case is a comment that says why it exists, a command, its
input files (each under a line `-- name --`), a line `----`, and what the command prints, standard error lines marked `! `,
and its exit code where it is not 0. For every request NAME.yaml there is its plan, NAME.plan.json.
`pytest tests/golden --rewrite` approves what is printed now.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from app.commands.main import main
from models.request import PlanRequest
from solvers.planner import plan

HERE = Path(__file__).parent


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
    name = ""
    for line in body[1:]:
        if line.startswith("-- ") and line.endswith(" --"):
            name = line[3:-3]
            files[name] = ""
        else:
            files[name] += line + "\n"
    return Case(why, body[0], files, "\n".join(body[1:]), expected)


def read(path: Path) -> list[Case]:
    return [parse(text) for text in path.read_text(encoding="utf-8").split("\n====\n")]


CASES = [(path, number) for path in sorted(HERE.glob("*.test")) for number in range(len(read(path)))]


@pytest.mark.parametrize(("path", "number"), CASES, ids=[f"{path.stem}-{number}" for path, number in CASES])
def test_golden(path: Path, number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], rewrite: bool) -> None:
    cases = read(path)
    case = cases[number]
    assert case.why, "a case says why it exists"
    for name, text in case.files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        if name.endswith(".yaml") and f"{Path(name).stem}.plan.json" in case.command:
            made = plan(PlanRequest.model_validate(yaml.safe_load(text)))
            (tmp_path / f"{Path(name).stem}.plan.json").write_text(made.model_dump_json(), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(case.command)
    assert program == "watersmeet"
    code = main(arguments)
    printed = capsys.readouterr()
    lines = [line.rstrip() for line in printed.out.splitlines()] + [f"! {line}".rstrip() for line in printed.err.splitlines()]
    actual = "\n".join([*lines, *([f"exit {code}"] if code else [])])
    assert all(len(line) <= 100 for line in printed.out.splitlines() if "explain" in case.command)
    if rewrite:
        case.expected = actual
        texts = ["\n".join([*one.why, one.command, *([one.files_text] if one.files_text else []), "----", one.expected]) for one in cases]
        path.write_text("\n====\n".join(texts) + "\n", encoding="utf-8")
        return
    assert actual == case.expected

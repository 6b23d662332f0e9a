"""`watersmeet check` as a CI job sees it: a repository with cases, the real commands, their exit codes and what they print."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.commands.check_cases import CheckInputError, parse_tolerance
from app.commands.main import main
from app.service.body import decode_yaml
from models.check import CheckReport
from tests.app.serving import EXAMPLES, ROOT, check_problem, example, post
from tests.app.tools import python_tool

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def watersmeet(folder: Path, *arguments: str, **environment: str) -> Done:
    """The command in a folder, outside of CI unless told. In this process, because starting one takes longer than the check."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        for name in ("CI", "GITHUB_STEP_SUMMARY"):
            patch.delenv(name, raising=False)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(folder)
        code = main(list(arguments))
    return Done(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def approved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose plans are approved: one case per example, one of them in YAML."""
    repository = tmp_path_factory.mktemp("repository")
    for file in EXAMPLES:
        case = repository / "plans" / file.stem
        case.mkdir(parents=True)
        shutil.copy(file, case / "request.json")
    (repository / "plans" / "star" / "request.json").unlink()
    (repository / "plans" / "star" / "request.yaml").write_text(yaml.safe_dump(example("star")))
    done = watersmeet(repository, "check", "plans", "--update")
    assert done.returncode == 0 and done.stdout == "" and f"{len(EXAMPLES)} of {len(EXAMPLES)} cases are approved" in done.stderr
    return repository


@pytest.fixture
def repository(approved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(approved, tmp_path / "repository"))


def edit(repository: Path, name: str, **fields: Any) -> None:
    file = repository / "plans" / name / ("request.yaml" if name == "star" else "request.json")
    request = {**decode_yaml(file.read_bytes()), **fields}
    file.write_text(json.dumps(request) if file.suffix == ".json" else yaml.safe_dump(request))


def make_regression(repository: Path) -> None:
    """Somebody pins a method that cannot keep subresults."""
    edit(repository, "star", options={"method": "mjoin", "caches": "off"})


def test_a_clean_run_is_0_in_every_form(repository: Path) -> None:
    text = watersmeet(repository, "check", "plans")
    assert (text.returncode, text.stdout) == (0, f"clean: {len(EXAMPLES)} cases: {len(EXAMPLES)} identical\n")
    suites = ET.fromstring(watersmeet(repository, "check", "plans", "--format", "junit").stdout)
    assert (suites.get("tests"), suites.get("failures"), suites.get("errors")) == (str(len(EXAMPLES)), "0", "0")
    assert "::" not in watersmeet(repository, "check", "plans", "--format", "github").stdout


def test_a_regression_is_1_and_every_form_names_the_case(repository: Path, tmp_path: Path) -> None:
    make_regression(repository)
    text = watersmeet(repository, "check", "plans")
    assert text.returncode == 1
    assert text.stdout.startswith("REGRESSED  star\n  CPU 0.00685 → 0.00721 (+5.27 %)\n")
    assert "\n  - │  ├─ orders  1.2k/s × 60 s, 10.8 MB\n" in text.stdout and "\n  + ├─ orders  1.2k/s" in text.stdout
    assert "\n    ├─ customers" in text.stdout, "what stayed is not marked"
    assert max(map(len, text.stdout.splitlines())) <= 102

    junit = watersmeet(repository, "check", "plans", "--format", "junit")
    assert junit.returncode == 1
    failing = [case.get("name") for case in ET.fromstring(junit.stdout).iter("testcase") if case.find("failure") is not None]
    assert failing == ["star"]

    summary = tmp_path / "summary.md"
    github = watersmeet(repository, "check", "plans", "--format", "github", GITHUB_STEP_SUMMARY=str(summary))
    assert github.returncode == 1
    (annotation,) = re.findall(r"^::error (.*)$", github.stdout, re.MULTILINE)
    assert annotation.startswith("file=plans/star/request.yaml,title=star%3A regressed::CPU 0.00685 → 0.00721 (+5.27 %25)%0A")
    assert "| star | ❌ regressed |" in summary.read_text() and "| auction | identical |" in summary.read_text()

    report = CheckReport.model_validate_json(watersmeet(repository, "check", "plans", "--format", "json").stdout)
    assert report.cases[0].name == "star" and report.counts.regressed == 1

    tolerant = watersmeet(repository, "check", "plans", "--tolerance", "cpu=6%")
    assert tolerant.stdout.startswith("REGRESSED  star\n  proof optimal → none\n"), "no tolerance covers a proof that is lost"
    assert "CPU 0.00685" not in tolerant.stdout


def test_a_broken_request_is_2_and_the_others_are_still_checked(repository: Path) -> None:
    make_regression(repository)
    edit(repository, "auction", objective="min_cost")
    for form in ("text", "json", "junit", "github"):
        done = watersmeet(repository, "check", "plans", "--format", form)
        assert done.returncode == 2 and "clean" not in done.stdout
        assert "auction" in done.stdout and "objective must be one of" in done.stdout and "star" in done.stdout
    assert watersmeet(repository, "check", "plans").stdout.startswith("FAILED  auction\n  plans/auction/request.json: /objective: ")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (
            lambda plans: (plans / "fraud" / "plan.json").unlink(),
            "plans/fraud/plan.json: there is no approved plan yet; approve today's with --update",
        ),
        (lambda plans: (plans / "fraud" / "plan.json").write_text("{"), "plans/fraud/plan.json: the body is not JSON"),
        (lambda plans: (plans / "fraud" / "request.json").unlink(), "plans/fraud: there is a plan but no request"),
        (lambda plans: (plans / "fraud" / "request.yml").write_text("{}"), "plans/fraud: has request.json and request.yml; keep one"),
        (lambda plans: shutil.copy(plans / "auction" / "plan.json", plans / "fraud"), "the approved plan does not fit the request"),
    ],
)
def test_what_cannot_be_compared_is_2_and_says_what_to_do(repository: Path, harm: Any, said: str) -> None:
    harm(repository / "plans")
    done = watersmeet(repository, "check", "plans")
    assert done.returncode == 2
    assert said in re.sub(r"\n +", " ", done.stdout)


@pytest.mark.parametrize(
    "arguments", [("nowhere",), (".",), ("plans", "--tolerance", "cpu=lots"), ("plans", "--tolerance", "disk=1%"), ("plans", "--fail-on", "never")]
)
def test_a_check_that_cannot_start_is_2(approved: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]) -> None:
    monkeypatch.chdir(approved)
    assert main(["check", *arguments]) == 2


def test_approving_is_refused_in_ci_unless_told(repository: Path) -> None:
    make_regression(repository)
    before = (repository / "plans" / "star" / "plan.json").read_bytes()
    refused = watersmeet(repository, "check", "plans", "--update", CI="true")
    assert refused.returncode == 2 and "CI is set" in refused.stderr
    assert (repository / "plans" / "star" / "plan.json").read_bytes() == before
    told = watersmeet(repository, "check", "plans", "--update", "--force", CI="true")
    assert told.returncode == 0 and told.stderr.splitlines()[0] == "approved plans/star/plan.json"
    assert watersmeet(repository, "check", "plans", CI="true").returncode == 0


def test_a_plan_of_another_version_is_said_first(repository: Path) -> None:
    make_regression(repository)
    (repository / "plans" / "approved.json").write_text('{"version": "0.0.9"}')
    assert watersmeet(repository, "check", "plans").stdout.splitlines()[1].startswith("  note: approved by watersmeet 0.0.9, planned by ")


def test_names_cannot_break_out_of_the_forms(repository: Path) -> None:
    name = "a,b: 100%<&|\x07"
    (repository / "plans" / "star").rename(repository / "plans" / name)
    file = repository / "plans" / name / "request.yaml"
    file.write_text(yaml.safe_dump({**example("star"), "options": {"method": "mjoin"}}))
    github = watersmeet(repository, "check", "plans", "--format", "github").stdout
    assert "title=a%2Cb%3A 100%25<&|\x07%3A regressed::" in github
    junit = ET.fromstring(watersmeet(repository, "check", "plans", "--format", "junit").stdout)
    assert next(case.get("name") for case in junit.iter("testcase")) == "a,b: 100%<&|�"


@pytest.mark.parametrize(("text", "cpu"), [("cpu=5%", 0.05), ("cpu=0.05", 0.05), (" cpu = 5% , memory=10% ", 0.05), ("", 0.0)])
def test_a_tolerance_is_a_share_or_a_percentage(text: str, cpu: float) -> None:
    assert parse_tolerance(text).cpu == cpu


@pytest.mark.parametrize("text", ["cpu", "cpu=", "cpu=-1%", "cpu=nan", "cpu=1%,cpu=2%", "speed=1%"])
def test_another_tolerance_is_refused(text: str) -> None:
    with pytest.raises(CheckInputError, match="--tolerance"):
        parse_tolerance(text)


def test_the_action_runs_the_installed_command_and_its_exit_code_is_the_jobs(repository: Path, tmp_path: Path) -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    step = action["runs"]["steps"][-1]
    inputs = {name: entry["default"] for name, entry in action["inputs"].items()}
    variables = {name: re.sub(r"\$\{\{ inputs\.([a-z-]+) \}\}", lambda found: inputs[found[1]], text) for name, text in step["env"].items()}
    summary = tmp_path / "summary.md"
    environment = {**os.environ, **variables, "PATH": f"{BIN}:{os.environ['PATH']}", "CI": "true", "GITHUB_STEP_SUMMARY": str(summary)}

    def job() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"]], cwd=repository, env=environment, capture_output=True, text=True, check=False
        )

    assert job().returncode == 0
    make_regression(repository)
    failing = job()
    assert failing.returncode == 1 and "::error file=plans/star/request.yaml" in failing.stdout and "❌" in summary.read_text()
    edit(repository, "auction", objective="min_cost")
    assert job().returncode == 2


def test_the_hook_stops_a_commit_that_makes_a_plan_worse(repository: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    # As pre-commit would run it once it has built the hook's environment: ours has the same package in it.
    config = {"repos": [{"repo": "local", "hooks": [{**hook, "language": "system"}]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "PRE_COMMIT_HOME": str(repository.parent / "pre-commit")}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)

    pre_commit = python_tool("pre-commit")
    run("git", "init", "--quiet")
    run("git", "add", ".")
    clean = run(pre_commit, "run")
    assert clean.returncode == 0 and "Passed" in clean.stdout, clean.stdout + clean.stderr
    make_regression(repository)
    run("git", "add", ".")
    stopped = run(pre_commit, "run")
    assert stopped.returncode == 1 and "REGRESSED  star" in stopped.stdout


def test_checks_over_http_say_the_same(service: httpx.Client, repository: Path) -> None:
    make_regression(repository)
    here = CheckReport.model_validate_json(watersmeet(repository, "check", "plans", "--format", "json").stdout)
    cases = []
    for folder in sorted((repository / "plans").iterdir()):
        if folder.is_dir():
            (request,) = folder.glob("request.*")
            cases.append(
                {
                    "name": folder.name,
                    "request": decode_yaml(request.read_bytes()),
                    "plan": json.loads((folder / "plan.json").read_text()),
                    "version": here.version,
                }
            )
    there = post(service, "/v1/checks", {"cases": cases})
    assert there.status_code == 200, there.text
    assert CheckReport.model_validate_json(there.content) == here
    cases[0]["request"]["objective"] = "min_cost"
    problem = check_problem(post(service, "/v1/checks", {"cases": cases}), 422)
    assert problem["errors"][0]["pointer"] == "/cases/0/request/objective"

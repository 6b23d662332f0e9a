"""`watersmeet check DIR`: cases on disk, and one report in four forms: text, JSON, JUnit, GitHub annotations.

A case is `DIR/NAME/request.json` (or `.yaml`, or `.sql` with its statistics in `DIR/NAME/stats.json` or `.yaml`) with its approved
`DIR/NAME/plan.json`. `DIR/approved.json` says which version
approved them. Whatever keeps a case from being compared is a failed case, with the others still checked.
"""

from __future__ import annotations

import json
import math
import os
import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from app.commands.draw import WIDTH, draw_both, draw_diff_table
from app.commands.queries import meaning_of, read_sql
from app.commands.terminal import RefusedError
from app.service.body import BodyError, decode_json, decode_yaml, read
from models.base import Model
from models.check import Bar, CaseResult, CheckCase, CheckReport, CheckStatus, Tolerance, Verdict
from models.plan import Change, Plan
from models.request import PlanRequest
from solvers.check import check_case, failed, report
from solvers.common.deadline import Deadline
from solvers.common.errors import WatersmeetError, in_range
from solvers.common.tolerances import ROUNDING

__all__ = ["FORMATS", "Cases", "CheckInputError", "approve", "check_cases", "parse_tolerance", "read_cases", "step_summary"]

REQUESTS = ("request.json", "request.yaml", "request.yml", "request.sql")
STATISTICS = ("stats.json", "stats.yaml", "stats.yml")
APPROVED = "approved.json"
ANNOTATIONS = 10  # GitHub shows about ten of a step; the step summary has all

M = TypeVar("M", bound=Model)


class CheckInputError(ValueError):
    """A folder or an option that cannot be used; the message says what would be right."""


@dataclass(frozen=True)
class Cases:
    """The cases of a folder: requests by name, approved plans by name, and what is wrong with the rest."""

    folder: Path
    requests: dict[str, PlanRequest] = field(default_factory=dict)
    plans: dict[str, Plan] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)
    """The request's file, by name."""
    broken: dict[str, list[str]] = field(default_factory=dict)
    """What keeps a case from being planned."""
    unapproved: dict[str, list[str]] = field(default_factory=dict)
    """What keeps a case from being compared; approving mends it."""
    version: str | None = None


def read_cases(folder: Path, dialect: str = "spark") -> Cases:
    """Every case of the folder, in order of name; SQL is read in this dialect. Raises CheckInputError where there is none."""
    if not folder.is_dir():
        raise CheckInputError(f"{folder}: this is not a folder; check takes a folder of cases NAME/request.json with NAME/plan.json")
    cases = Cases(folder, version=_approving_version(folder))
    for case in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        requests = [case / name for name in REQUESTS if (case / name).exists()]
        if requests:
            _read_case(cases, case, requests, dialect)
        elif (case / "plan.json").exists():
            cases.files[case.name] = case / "plan.json"
            cases.broken[case.name] = [f"{case}: there is a plan but no request; add request.json, .yaml or .sql, or remove the folder"]
    if not cases.files:
        raise CheckInputError(f"{folder}: no cases found; a case is a folder with request.json, .yaml or .sql in it, and its approved plan.json")
    return cases


def _read_case(cases: Cases, case: Path, requests: list[Path], dialect: str) -> None:
    name, file = case.name, requests[0]
    cases.files[name] = file
    if len(requests) > 1:
        cases.broken[name] = [f"{case}: has {' and '.join(path.name for path in requests)}; keep one"]
        return
    try:
        cases.requests[name] = _read_sql(file, dialect) if file.suffix == ".sql" else _read(PlanRequest, file)
    except CheckInputError as bad:
        cases.broken[name] = str(bad).splitlines()
        return
    approved = case / "plan.json"
    try:
        cases.plans[name] = _read(Plan, approved)
    except FileNotFoundError:
        cases.unapproved[name] = [f"{approved}: there is no approved plan yet; approve today's with --update"]
    except CheckInputError as bad:
        cases.unapproved[name] = [*str(bad).splitlines(), "approve today's plan with --update"]


def _read_sql(file: Path, dialect: str) -> PlanRequest:
    """The request that a query means, with the statistics beside it."""
    stats = [file.with_name(name) for name in STATISTICS if file.with_name(name).exists()]
    if len(stats) > 1:
        raise CheckInputError(f"{file.parent}: has {' and '.join(path.name for path in stats)}; keep one")
    try:
        return meaning_of(read_sql(str(file)), str(file), str(stats[0]) if stats else None, dialect).request.to_plan()
    except RefusedError as refused:
        raise CheckInputError(str(refused)) from None


def _read(model: type[M], file: Path) -> M:
    try:
        return read(model, file.read_bytes(), decode_json if file.suffix == ".json" else decode_yaml)
    except FileNotFoundError:
        raise
    except OSError as failure:
        raise CheckInputError(f"{file}: {failure.strerror or failure}") from None
    except BodyError as bad:
        raise CheckInputError("\n".join(f"{file}{': ' + where if where else ''}: {what}" for where, what in bad.errors)) from None


def _approving_version(folder: Path) -> str | None:
    try:
        value: Any = decode_json((folder / APPROVED).read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, BodyError) as bad:
        raise CheckInputError(f"{folder / APPROVED}: {bad}") from None
    if not isinstance(value, dict) or not isinstance(value.get("version"), str):
        raise CheckInputError(f"{folder / APPROVED}: version must be text; write the file anew with --update")
    return str(value["version"])


def parse_tolerance(text: str) -> Tolerance:
    """
    >>> parse_tolerance("cpu=5%,memory=0.1")
    Tolerance(cpu=0.05, memory=0.1, output_rate=0.0)
    """
    values: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, amount = (piece.strip() for piece in part.partition("="))
        if name not in Tolerance.model_fields or name in values:
            raise CheckInputError(f"--tolerance takes each of {', '.join(Tolerance.model_fields)} once, as in cpu=5%,memory=10%; got {part!r}")
        try:
            values[name] = float(amount[:-1]) / 100.0 if amount.endswith("%") else float(amount)
        except ValueError:
            values[name] = -1.0
        if not 0.0 <= values[name] <= 100.0:
            raise CheckInputError(f"--tolerance {name} must be a share such as 5% or 0.05, got {amount!r}")
    return Tolerance(**values)


def check_cases(cases: Cases, tolerance: Tolerance, bar: Bar) -> CheckReport:
    """Every case, planned anew and compared."""
    results = []
    for name in cases.files:
        reasons = cases.broken.get(name) or cases.unapproved.get(name)
        if reasons:
            results.append(failed(name, *reasons))
            continue
        case = CheckCase(name=name, request=cases.requests[name], plan=cases.plans[name], version=cases.version)
        try:
            results.append(check_case(case, tolerance, Deadline.after(case.request.options.time_limit)))
        except Exception as fault:  # ours; the other cases are still worth checking, and a fault must not read as a finding
            results.append(failed(name, f"{cases.files[name]}: watersmeet failed on this case: {type(fault).__name__}: {fault}"))
    return report(results, bar)


def approve(cases: Cases, make: Callable[[PlanRequest], Plan]) -> list[str]:
    """Make today's plan of every case that can be planned the approved one; a line for each that is written.

    A case that is refused joins the broken ones.
    """
    lines = []
    for name, request in cases.requests.items():
        file = cases.folder / name / "plan.json"
        try:
            with in_range():
                plan = make(request)
        except WatersmeetError as refused:
            cases.broken[name] = [f"{cases.files[name]}: {refused.pointer}: {refused.detail}"]
            continue
        if _write(file, plan.model_dump_json(indent=2) + "\n"):
            lines.append(f"approved {file}")
    _write(cases.folder / APPROVED, json.dumps({"version": version("watersmeet")}, indent=2) + "\n")
    return lines


def _write(file: Path, text: str) -> bool:
    """Whether the file held something else before; it holds the old text or the new one, never a part."""
    if file.exists() and file.read_text(encoding="utf-8", errors="replace") == text:
        return False
    partial = file.with_name(f".{file.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)
    return True


def _count_words(answer: CheckReport) -> str:
    counts = answer.counts.model_dump()
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _verdict_line(answer: CheckReport) -> str:
    meaning = {CheckStatus.CLEAN: "clean", CheckStatus.FINDINGS: "findings", CheckStatus.BROKEN: "could not check every case"}
    total = len(answer.cases)
    return f"{meaning[answer.status]}: {total} case{'s' if total != 1 else ''}: {_count_words(answer)}"


def _about(result: CaseResult) -> list[str]:
    """Everything a person needs to know of one case: what changed around it, why the verdict, both trees, the figures."""
    lines = [f"note: {note}" for note in result.notes] + list(result.reasons)
    if result.diff is not None and result.approved is not None and result.plan is not None and result.verdict is not Verdict.IDENTICAL:
        lines += result.diff.structure
        if not result.diff.same_structure:
            lines += ["", *draw_both(result.approved, result.plan)]
        totals = [change for change in result.diff.cost if change.figure.startswith("cost.") and _worth_showing(change)]
        if totals:
            lines += ["", *draw_diff_table([(change.figure, change.before, change.after, change.ratio) for change in totals])]
    return lines


def _worth_showing(change: Change) -> bool:
    return change.ratio is None or not math.isclose(change.ratio, 1.0, rel_tol=ROUNDING)


def as_text(answer: CheckReport, _: Cases) -> str:
    """Worst first, each case with both trees; identical cases are only counted."""
    lines: list[str] = []
    for result in answer.cases:
        if result.verdict is Verdict.IDENTICAL:
            continue
        lines.append(f"{result.verdict.value.upper()}  {result.name}")
        for line in _about(result):
            drawn = not line or line[0] in " -+" or line in ("approved:", "now:")
            lines += [f"  {line}"] if drawn else textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        lines.append("")
    return "\n".join([line.rstrip() for line in lines] + [_verdict_line(answer)])


def as_json(answer: CheckReport, _: Cases) -> str:
    return answer.model_dump_json(indent=2)


_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(answer: CheckReport, cases: Cases) -> str:
    """One test case each: a failure at or past the bar, an error where it could not be checked."""
    failures = sum(result.fails and result.verdict is not Verdict.FAILED for result in answer.cases)
    figures = {"tests": str(len(answer.cases)), "failures": str(failures), "errors": str(answer.counts.failed)}
    suites = ET.Element("testsuites", figures)
    suite = ET.SubElement(suites, "testsuite", {"name": _xml(f"watersmeet check {cases.folder.name}"), **figures})
    for result in answer.cases:
        case = ET.SubElement(suite, "testcase", {"classname": _xml(cases.folder.name), "name": _xml(result.name)})
        text = _xml("\n".join(_about(result)))
        if result.fails:
            kind = "error" if result.verdict is Verdict.FAILED else "failure"
            message = _xml("; ".join([*result.reasons, *result.notes]) or result.verdict.value)
            ET.SubElement(case, kind, {"type": result.verdict.value, "message": message}).text = text
        elif text:
            ET.SubElement(case, "system-out").text = f"{result.verdict.value}\n{text}"
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)


def as_github(answer: CheckReport, cases: Cases) -> str:
    """Annotations of the worst cases on their request files; the step summary has all."""
    lines = []
    told = [result for result in answer.cases if result.verdict is not Verdict.IDENTICAL]
    for result in told[:ANNOTATIONS]:
        level = "error" if result.fails else "notice"
        title = _property(f"{result.name}: {result.verdict.value}")
        lines.append(f"::{level} file={_property(cases.files[result.name].as_posix())},title={title}::{_data(chr(10).join(_about(result)))}")
    return "\n".join([*lines, _data(_verdict_line(answer))])


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def step_summary(answer: CheckReport, environment: Mapping[str, str] | None = None) -> None:
    """Append the whole report to the step summary of a GitHub job, where there is one."""
    file = (os.environ if environment is None else environment).get("GITHUB_STEP_SUMMARY")
    if not file:
        return
    lines = [f"### watersmeet check: {_verdict_line(answer)}", "", "| case | verdict | why |", "|---|---|---|"]
    for result in answer.cases:
        why = "; ".join([*(f"note: {note}" for note in result.notes), *result.reasons])
        lines.append(f"| {_cell(result.name)} | {'❌ ' if result.fails else ''}{result.verdict.value} | {_cell(why)} |")
    for result in answer.cases:
        if result.verdict is not Verdict.IDENTICAL:
            about = "\n".join(f"    {line}" for line in _about(result))
            lines += ["", f"<details><summary>{_cell(result.name)}</summary>", "", about, "", "</details>"]
    with Path(file).open("a", encoding="utf-8") as summary:
        summary.write("\n".join(lines) + "\n")


def _cell(text: str) -> str:
    for sign, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("\n", " "), ("\r", " ")):
        text = text.replace(sign, shown)
    return text


FORMATS: dict[str, Callable[[CheckReport, Cases], str]] = {"text": as_text, "json": as_json, "junit": as_junit, "github": as_github}

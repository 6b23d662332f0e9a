"""`watersmeet check DIR`: whether today's plans are still as good as the approved ones."""

from __future__ import annotations

import argparse
from pathlib import Path

from app.commands.terminal import BAD_INPUT, DONE, NO, RefusedError, put, say

__all__ = ["HELP", "add_arguments", "run"]

HELP = "plan every case of a folder anew and compare with what was approved"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="a folder of cases NAME/request.json (or .yaml, .sql) with their approved NAME/plan.json")
    parser.add_argument("--format", choices=["text", "json", "junit", "github"], default="text")
    parser.add_argument(
        "--fail-on",
        choices=["equivalent", "improved", "changed", "regressed"],
        default="regressed",
        help="exit 1 from this verdict on (default: regressed); equivalent is another structure at equal cost",
    )
    parser.add_argument("--tolerance", default="", metavar="cpu=5%,memory=10%", help="how far cpu, memory and output_rate may move")
    parser.add_argument("--dialect", default="spark", help="of cases in SQL: spark (default), flink, postgres, or another of sqlglot's")
    parser.add_argument("--update", action="store_true", help="approve what is planned now; refused where CI is set")
    parser.add_argument("--force", action="store_true", help="approve even where CI is set")


def run(arguments: argparse.Namespace) -> int:
    import os

    from app.commands.check_cases import FORMATS, CheckInputError, approve, check_cases, parse_tolerance, read_cases, step_summary
    from models.check import Bar, CheckStatus
    from solvers.jtree.warm import warm
    from solvers.planner import plan

    if arguments.update and not arguments.force and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise RefusedError(
            "--update approves whatever is planned now, and CI is set: a job must not approve its own plans (--force to do it all the same)"
        )
    try:
        tolerance, cases = parse_tolerance(arguments.tolerance), read_cases(Path(arguments.dir), arguments.dialect)
    except CheckInputError as bad:
        raise RefusedError(str(bad)) from None
    warm()
    if arguments.update:
        say(*approve(cases, plan), f"{len(cases.files) - len(cases.broken)} of {len(cases.files)} cases are approved")
        for reasons in cases.broken.values():
            say(*reasons)
        return BAD_INPUT if cases.broken else DONE
    answer = check_cases(cases, tolerance, Bar(arguments.fail_on))
    put(FORMATS[arguments.format](answer, cases))
    if arguments.format == "github":
        step_summary(answer)
    return {CheckStatus.CLEAN: DONE, CheckStatus.FINDINGS: NO, CheckStatus.BROKEN: BAD_INPUT}[answer.status]

"""The command line (contract §6): `watersmeet plan FILE` and its siblings.

Plans and documents go to standard output, everything else to standard error. Exit 0: done; 1: the answer is "no";
2: bad input. Each command imports what it needs when it runs, so that the program starts fast.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

    from models.bindings import Bindings
    from models.plan import Plan
    from models.progress import Incumbent
    from models.request import PlanRequest
    from solvers.common.deadline import Progress

__all__ = ["main"]

DONE, NO, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
ANSWER_SECONDS = 30.0  # past the request's time limit: a server has its queue, ten seconds by default, and a way to go

M = TypeVar("M", bound="BaseModel")


class RefusedError(Exception):
    """Bad input: the lines say what is wrong."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def say(*lines: str) -> None:
    """To a person: standard error."""
    sys.stderr.write("\n".join(lines) + "\n")


def put(text: str) -> None:
    """The answer: standard output."""
    sys.stdout.write(text + "\n")


def read_value(name: str) -> Any:
    """The JSON or YAML value of a file; `-` is standard input."""
    from app.body import BodyError, decode_json, decode_yaml

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as failure:
        raise RefusedError(f"{name}: {failure.strerror or failure}") from None
    as_yaml = name.endswith((".yaml", ".yml")) or (name == "-" and not data.lstrip().startswith(b"{"))
    try:
        return decode_yaml(data) if as_yaml else decode_json(data)
    except BodyError as bad:
        raise RefusedError(f"{name}:", *(_fault(where, what) for where, what in bad.errors)) from None


def _fault(where: str, what: str) -> str:
    return f"  {where}: {what}" if where else f"  {what}"


def validate(model: type[M], value: Any, name: str) -> M:
    """The value as a model, or every fault of it."""
    from pydantic import ValidationError

    from models.faults import errors_of

    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise RefusedError(f"{name}:", *(_fault(where, what) for where, what in errors_of(failure, model))) from None


def read_request(arguments: argparse.Namespace) -> PlanRequest:
    from models.request import PlanRequest

    value = read_value(arguments.file)
    if isinstance(value, dict) and value.get("format") is not None:
        # A plan stands on its own: its request can be planned again.
        value = {key: value[key] for key in ("query", "resources", "costs", "objective") if key in value}
    options = {key: getattr(arguments, key) for key in ("method", "time_limit") if getattr(arguments, key, None) is not None}
    if options and isinstance(value, dict):
        given = value.get("options")
        value = {**value, "options": {**(given if isinstance(given, dict) else {}), **options}}
    return validate(PlanRequest, value, arguments.file)


def read_plan(name: str) -> Plan:
    from models.plan import Plan

    value = read_value(name)
    if not isinstance(value, dict) or "format" not in value:
        raise RefusedError(f"{name}: this is not a plan (it has no format); make one with: watersmeet plan {name}")
    return validate(Plan, value, name)


def ask(url: str, path: str, body: BaseModel, answer: type[M], seconds: float, hear: Callable[[Incumbent], None] | None = None) -> M:
    """Ask a server instead of planning here. `hear` is called with every better plan on the way; the server may be silent for so many seconds."""
    import http.client
    import os
    import urllib.error
    import urllib.request

    if not url.startswith(("http://", "https://")):
        raise RefusedError(f"--url must start with http:// or https://, got {url!r}")
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream" if hear else "application/json"}
    if key := os.environ.get("WATERSMEET_API_KEY", "").strip():
        headers["X-API-Key"] = key
    request = urllib.request.Request(url.rstrip("/") + path, data=body.model_dump_json().encode(), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=seconds) as response:
            streamed = response.headers.get_content_type() == "text/event-stream" and hear
            return answer.model_validate_json(_last_event(url, response, hear) if streamed and hear else response.read())
    except urllib.error.HTTPError as failure:
        raise _refused_there(url, failure.code, failure.read()) from None
    except (OSError, http.client.HTTPException) as failure:  # URLError and TimeoutError are OSErrors
        reason = getattr(failure, "reason", failure)
        said = f"no answer within {seconds:g} seconds" if isinstance(reason, TimeoutError) else str(reason) or type(reason).__name__
        raise RefusedError(f"{url}: {said}") from None


def _last_event(url: str, lines: Iterable[bytes], hear: Callable[[Incumbent], None]) -> bytes:
    """The answer at the end of a stream of events."""
    from models.progress import Incumbent

    event = b""
    for line in lines:
        name, _, value = line.strip().partition(b": ")
        if name == b"event":
            event = value
        elif name == b"data" and event == b"incumbent":
            hear(Incumbent.model_validate_json(value))
        elif name == b"data" and event == b"answer":
            return value
        elif name == b"data" and event == b"problem":
            raise _refused_there(url, 500, value)
    raise RefusedError(f"{url}: the server closed the connection before it answered")


def _refused_there(url: str, status: int, body: bytes) -> RefusedError:
    """What a server said instead of an answer."""
    try:
        problem = json.loads(body.decode(errors="replace"))
        faults = [_fault(error["pointer"], error["detail"]) for error in problem.get("errors", [])]
        return RefusedError(f"{url}: {problem.get('title')}: {problem.get('detail')}", *faults)
    except (ValueError, KeyError, AttributeError, TypeError):
        return RefusedError(f"{url}: HTTP {status}")


def solved(arguments: argparse.Namespace, request: PlanRequest, path: str, answer: type[M], solve: Callable[[PlanRequest, Progress], M]) -> M:
    """The answer of a server, or of `solve` here; with a bar for who watches, and the best so far for who presses Ctrl-C."""
    from app.progress_bar import interruptible, shown

    limit = request.options.time_limit
    if arguments.url:
        with shown(limit, arguments.quiet) as hear:
            return ask(arguments.url, path, request, answer, limit + ANSWER_SECONDS, hear)
    from solvers.jtree.progress import Waiting

    load_kernels(request)
    with interruptible() as stop, shown(limit, arguments.quiet) as hear:
        progress = Waiting(hear, stop)
        made = solve(request, progress)
        stopped = progress.stopped()
    if stopped:
        say("stopped: this is the best so far, and its proof says what is known of it")
    return made


def make_plan(arguments: argparse.Namespace) -> Plan:
    from models.plan import Plan

    def solve(request: PlanRequest, progress: Progress) -> Plan:
        from solvers.planner import plan

        return plan(request, progress)

    return solved(arguments, read_request(arguments), "/v1/plans", Plan, solve)


def load_kernels(request: PlanRequest) -> None:
    """Load what was compiled at installation before the request's time limit starts to run."""
    from models.request import Method

    if request.options.method not in (Method.MJOIN, Method.BJTREE):
        from solvers.jtree.warm import SMALL, warm

        warm(large=len(request.query.streams) > SMALL or request.options.method not in (Method.AUTO, Method.EXACT))


def plan_command(arguments: argparse.Namespace) -> int:
    plan = make_plan(arguments)
    put(plan.model_dump_json(indent=2))
    for warning in plan.warnings:
        say(f"warning: {warning}")
    if not plan.qualified:
        say("not qualified: no plan found fits the caps; `shortfall` says what it would take")
    return NO if arguments.strict and not plan.qualified else DONE


def explain_command(arguments: argparse.Namespace) -> int:
    from app.draw import draw_plan
    from app.explain import compared

    plan = make_plan(arguments)
    put(draw_plan(plan))
    put("")
    for sentence in (*plan.explanation[1:], *compared(plan)):
        put(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))
    for warning in plan.warnings:
        put(textwrap.fill(f"warning: {warning}", 100, subsequent_indent="  ", break_on_hyphens=False))
    return NO if arguments.strict and not plan.qualified else DONE


def frontier_command(arguments: argparse.Namespace) -> int:
    from app.draw import draw_frontier
    from models.plan import Frontier
    from solvers.common import words

    def solve(request: PlanRequest, progress: Progress) -> Frontier:
        from solvers.frontier import frontier

        return frontier(request, progress)

    request = read_request(arguments)
    answer = solved(arguments, request, "/v1/frontiers", Frontier, solve)
    if arguments.format == "json":
        put(answer.model_dump_json(indent=2))
    elif not answer.points:
        put("No plan fits the caps.")
    else:
        caps = request.resources
        if len(answer.points) > 1:
            put("\n".join(draw_frontier([(point.cpu, point.memory_bytes) for point in answer.points], caps.cpu, caps.memory_bytes)))
        alone = f"; without caches: {answer.tree_proof.value}" if answer.tree_proof is not answer.proof else ""
        put(f"{len(answer.points)} plan{'s' if len(answer.points) > 1 else ''} worth having, proof: {answer.proof.value}{alone}")
        put(f"{'CPU':>10} {'memory':>10}  kept")
        for point in answer.points:
            kept = ", ".join("⋈".join(operator.streams) for operator in point.plan.operators if operator.materialized)
            line = f"{words.cpu(point.cpu):>10} {words.bytes_(point.memory_bytes):>10}  {kept or 'nothing'}"
            put(line if len(line) <= 100 else line[:99] + "…")
    return NO if arguments.strict and not answer.points else DONE


def diff_command(arguments: argparse.Namespace) -> int:
    from app.draw import draw_diff_table
    from models.plan import DiffRequest
    from solvers.diff import diff

    before, after = read_plan(arguments.before), read_plan(arguments.after)
    answer = diff(DiffRequest(before=before, after=after))
    if arguments.format == "json":
        put(answer.model_dump_json(indent=2))
    else:
        put("same structure" if answer.same_structure else "structure:")
        for sentence in answer.structure:
            put(f"  {sentence}")
        if answer.request:
            put("request:")
            for sentence in answer.request:
                put(f"  {sentence}")
        put("cost:" if answer.cost else "same cost")
        for line in draw_diff_table([(change.figure, change.before, change.after, change.ratio) for change in answer.cost]):
            put(line)
    worse = after.cost.cpu > before.cost.cpu or after.cost.memory_bytes > before.cost.memory_bytes or (before.qualified and not after.qualified)
    return NO if arguments.strict and worse else DONE


def check_command(arguments: argparse.Namespace) -> int:
    import os

    from app.check import FORMATS, CheckInputError, approve, check_cases, parse_tolerance, read_cases, step_summary
    from models.check import Bar, CheckStatus
    from solvers.jtree.warm import warm
    from solvers.planner import plan

    if arguments.update and not arguments.force and os.environ.get("CI", "").lower() not in ("", "0", "false"):
        raise RefusedError(
            "--update approves whatever is planned now, and CI is set: a job must not approve its own plans (--force to do it all the same)"
        )
    try:
        tolerance, cases = parse_tolerance(arguments.tolerance), read_cases(Path(arguments.dir))
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


def need_spark(install: bool) -> None:
    """Planning does without Spark, so it is not installed with the rest: where it is missing, say how, and do it where that was asked for."""
    import importlib.util
    import shlex
    import subprocess
    from importlib.metadata import requires

    if all(importlib.util.find_spec(name) for name in ("pyspark", "pandas", "polars", "pyarrow")):
        return
    packages = [line.split(";")[0].strip() for line in requires("watersmeet") or [] if 'extra == "spark"' in line]
    command = [sys.executable, "-m", "pip", "install", *packages]
    if not install:
        raise RefusedError(f"Spark is not installed. Install it with: {shlex.join(command)} (or give --install, which does just that)")
    say(f"installing Spark, which takes a few minutes: {shlex.join(command)}")
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise RefusedError("Spark could not be installed; what pip said is above")


def _plan_and_bindings(arguments: argparse.Namespace) -> tuple[Plan, Bindings]:
    need_spark(arguments.install)
    from spark_adapter.documents import read_bindings
    from spark_adapter.documents import read_plan as check_plan

    return check_plan(read_value(arguments.plan)), read_bindings(read_value(arguments.bindings))


def run_command(arguments: argparse.Namespace) -> int:
    plan, bindings = _plan_and_bindings(arguments)
    from spark_adapter.run import run

    return run(plan, bindings, arguments.engine, sys.stderr, arguments.master, arguments.shed)


def export_command(arguments: argparse.Namespace) -> int:
    plan, bindings = _plan_and_bindings(arguments)
    from spark_adapter.export import export

    sys.stdout.write(export(plan, bindings))
    return DONE


def stats_command(arguments: argparse.Namespace) -> int:
    from spark_adapter.stats import stats

    put(stats(Path(arguments.dir)).model_dump_json(indent=2))
    return DONE


def calibrate_command(arguments: argparse.Namespace) -> int:
    need_spark(arguments.install)
    from spark_adapter.calibrate import calibrate

    costs = calibrate(sys.stderr, arguments.master)
    put(json.dumps({"costs": costs.model_dump()}, indent=2))
    return DONE


def serve_command(arguments: argparse.Namespace) -> int:
    from app.serve import serve

    serve(arguments.host, arguments.port)
    return DONE


def openapi_command(arguments: argparse.Namespace) -> int:
    from app.openapi_document import document

    text = json.dumps(document(), indent=2, ensure_ascii=False)
    if arguments.output:
        Path(arguments.output).write_text(text + "\n", encoding="utf-8")
        say(f"wrote {arguments.output}")
    else:
        put(text)
    return DONE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        say(f"watersmeet: {message}")
        raise SystemExit(BAD_INPUT)


def _command(
    commands: argparse._SubParsersAction[_Parser], name: str, run: Callable[[argparse.Namespace], int], help_: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=help_, description=help_)
    parser.set_defaults(run=run)
    return parser


def _request_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a request, or a plan to make again, as JSON or YAML; - is standard input")
    parser.add_argument("--url", help="ask this server instead of planning here; its key, if it asks for one, is WATERSMEET_API_KEY")
    parser.add_argument("--method", help="overrides the request's options.method")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="overrides the request's options.time_limit")
    parser.add_argument("--strict", action="store_true", help="exit 1 when nothing fits the caps")
    parser.add_argument("--quiet", action="store_true", help="show no progress; there is none either where standard error is no terminal")
    parser.epilog = (
        "Ctrl-C stops a search that runs here as its time limit would: the best found so far is printed, its proof says what is known of it, "
        "and the exit code is that of any answer. Pressed again, or with --url, it ends the command with exit code 130 and no answer."
    )


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = _Parser(prog="watersmeet", description="Plans for n-way joins over windows of streams.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    _request_arguments(_command(commands, "plan", plan_command, "print the plan for a request, as JSON"))
    _request_arguments(_command(commands, "explain", explain_command, "draw the plan as a tree and say why it is this one"))
    frontier = _command(commands, "frontier", frontier_command, "draw every trade-off between CPU and memory worth having")
    _request_arguments(frontier)
    frontier.add_argument("--format", choices=["text", "json"], default="text")
    differ = _command(commands, "diff", diff_command, "what changed between two plans")
    differ.add_argument("before", metavar="A", help="a plan")
    differ.add_argument("after", metavar="B", help="another plan")
    differ.add_argument("--format", choices=["text", "json"], default="text")
    differ.add_argument("--strict", action="store_true", help="exit 1 when B costs more than A")
    checking = _command(commands, "check", check_command, "plan every case of a folder anew and compare with what was approved")
    checking.add_argument("dir", metavar="DIR", help="a folder of cases NAME/request.json (or .yaml) with their approved NAME/plan.json")
    checking.add_argument("--format", choices=["text", "json", "junit", "github"], default="text")
    checking.add_argument(
        "--fail-on",
        choices=["equivalent", "improved", "changed", "regressed"],
        default="regressed",
        help="exit 1 from this verdict on (default: regressed); equivalent is another structure at equal cost",
    )
    checking.add_argument("--tolerance", default="", metavar="cpu=5%,memory=10%", help="how far cpu, memory and output_rate may move")
    checking.add_argument("--update", action="store_true", help="approve what is planned now; refused where CI is set")
    checking.add_argument("--force", action="store_true", help="approve even where CI is set")
    running = _command(commands, "run", run_command, "run a plan on Spark")
    exporting = _command(commands, "export", export_command, "print a plan of binary joins as a PySpark script that needs nothing of ours")
    for spark in (running, exporting):
        spark.add_argument("plan", metavar="PLAN", help="a plan, as JSON or YAML")
        spark.add_argument("bindings", metavar="BINDINGS", help="sources, columns and sink, as JSON or YAML")
    running.add_argument("--engine", choices=["stem", "native"], default="stem", help="state modules (default), or Spark's own joins")
    running.add_argument("--shed", action="store_true", help="run a plan that sheds load or does not fit its caps; what is shed is counted")
    measuring = _command(commands, "stats", stats_command, "print a request with the rates and selectivities that a run measured")
    measuring.add_argument("dir", metavar="DIR", help="the run's checkpoint folder")
    calibrating = _command(commands, "calibrate", calibrate_command, "measure the cost constants on this machine's Spark")
    for spark in (running, calibrating):
        spark.add_argument("--master", help="Spark master (default: local[2])")
    for spark in (running, exporting, calibrating):
        spark.add_argument("--install", action="store_true", help="install Spark with pip where it is missing")
    serving = _command(commands, "serve", serve_command, "answer requests over HTTP")
    serving.add_argument("--host", default="127.0.0.1")
    serving.add_argument("--port", type=int, default=8080)
    documenting = _command(commands, "openapi", openapi_command, "print the OpenAPI document")
    documenting.add_argument("--output", metavar="FILE", help="write it there instead")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of one command."""
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    try:
        run: Callable[[argparse.Namespace], int] = arguments.run
        return run(arguments)
    except RefusedError as refused:
        say(*refused.lines)
        return BAD_INPUT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()  # the reader left; Python would complain while flushing
        return DONE
    except Exception as failure:
        lines = _refusal(failure)
        if lines is None:
            raise
        say(*lines)
        return BAD_INPUT


def _refusal(failure: Exception) -> list[str] | None:
    """What a solver or the Spark adapter says of bad input; None for what is our fault."""
    from solvers.common.errors import WatersmeetError

    if isinstance(failure, WatersmeetError):
        return [_fault(failure.pointer, failure.detail).strip()]
    adapter = sys.modules.get("spark_adapter.errors")
    if adapter is not None and isinstance(failure, adapter.AdapterError):
        return str(failure).splitlines()
    return None


if __name__ == "__main__":
    sys.exit(main())

"""What `plan`, `explain` and `frontier` share: a request from a file, solved here or by a server, with a bar for who watches."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from app.commands.documents import read_request
from app.commands.queries import add_sql_arguments
from app.commands.terminal import say
from models.method import Method

if TYPE_CHECKING:
    from pydantic import BaseModel

    from models.plan import Plan
    from models.request import PlanRequest
    from solvers.common.deadline import Progress

__all__ = ["add_request_arguments", "make_plan", "solved"]

ANSWER_SECONDS = 30.0  # past the request's time limit: a server has its queue, ten seconds by default, and a way to go

M = TypeVar("M", bound="BaseModel")


def add_request_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that plans."""
    parser.add_argument(
        "file", metavar="FILE", help="a request, or a plan to make again, as JSON or YAML, or a SQL query (.sql); - is standard input"
    )
    add_sql_arguments(parser)
    parser.add_argument("--url", help="ask this server instead of planning here; its key, if it asks for one, is WATERSMEET_API_KEY")
    parser.add_argument("--method", help=f"overrides the request's options.method: {', '.join(Method)}")
    parser.add_argument("--time-limit", type=float, metavar="SECONDS", help="overrides the request's options.time_limit")
    parser.add_argument("--strict", action="store_true", help="exit 1 when nothing fits the caps")
    parser.add_argument("--quiet", action="store_true", help="show no progress; there is none either where standard error is no terminal")
    parser.epilog = (
        "Ctrl-C stops a search that runs here as its time limit would: the best found so far is printed, its proof says what is known of it, "
        "and the exit code is that of any answer. Pressed again, or with --url, it ends the command with exit code 130 and no answer."
    )


def solved(arguments: argparse.Namespace, request: PlanRequest, path: str, answer: type[M], solve: Callable[[PlanRequest, Progress], M]) -> M:
    """The answer of a server, or of `solve` here; with a bar for who watches, and the best so far for who presses Ctrl-C."""
    from app.commands.progress_bar import interruptible, shown

    limit = request.options.time_limit
    if arguments.url:
        # Before there is a bar to press Ctrl-C at: an import may swallow the KeyboardInterrupt, in the callback of one of its locks.
        from app.commands.remote import ask

        with shown(limit, arguments.quiet) as hear:
            return ask(arguments.url, path, request, answer, limit + ANSWER_SECONDS, hear)
    from solvers.jtree.progress import Waiting

    _load_kernels(request)
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


def _load_kernels(request: PlanRequest) -> None:
    """Load what was compiled at installation before the request's time limit starts to run."""
    from models.method import Compiled

    needed = request.options.method.can.compiled
    if needed is not Compiled.NONE:
        from solvers.jtree.warm import SMALL, warm

        warm(large=needed is Compiled.ALL or len(request.query.streams) > SMALL)

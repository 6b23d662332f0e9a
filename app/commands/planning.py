"""What `plan`, `explain` and `frontier` share: a request from a file, solved here or by a server, with a bar for who watches."""

from __future__ import annotations

import argparse
import threading
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
LOOK_EVERY = 0.05  # seconds between two looks whether Ctrl-C was pressed

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
        from app.commands.remote import ask

        with interruptible() as pressed, shown(limit, arguments.quiet) as hear:
            return _unless(pressed, lambda: ask(arguments.url, path, request, answer, limit + ANSWER_SECONDS, hear))
    from solvers.jtree.progress import Waiting

    _load_kernels(request)
    with interruptible() as stop, shown(limit, arguments.quiet) as hear:
        progress = Waiting(hear, stop)
        made = solve(request, progress)
        stopped = progress.stopped()
    if stopped:
        say("stopped: this is the best so far, and its proof says what is known of it")
    return made


def _unless(pressed: Callable[[], bool], wait: Callable[[], M]) -> M:
    """What `wait` brings; KeyboardInterrupt as soon as Ctrl-C was pressed.

    Python raises a KeyboardInterrupt wherever the main thread happens to be, and drops it where that is the callback of an object that is let go. So
    the waiting is done by another thread, and the main one looks whether Ctrl-C was pressed.
    """
    brought: list[M] = []
    failed: list[BaseException] = []

    def waiting() -> None:
        try:
            brought.append(wait())
        except BaseException as failure:
            failed.append(failure)

    thread = threading.Thread(target=waiting, daemon=True)
    thread.start()
    while thread.is_alive():
        if pressed():
            raise KeyboardInterrupt
        thread.join(LOOK_EVERY)
    if failed:
        raise failed[0]
    return brought[0]


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

"""The command line (contract §6): `watersmeet plan FILE` and its siblings.

Plans and documents go to standard output, everything else to standard error. Exit 0: done; 1: the answer is "no";
2: bad input. A command is a module of this package that says what it is for, which arguments it takes and what it does: to add one, write
the module and name it in `COMMANDS`. Each imports what it needs when it runs, so that the program starts fast.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from app.commands import calibrate, check, demo, diff, explain, export, frontier, openapi, plan, profile, replan, request, run, serve, stats
from app.commands.terminal import BAD_INPUT, DONE, INTERRUPTED, RefusedError, fault, say

__all__ = ["main"]

COMMANDS = (plan, explain, frontier, request, profile, diff, replan, check, run, export, stats, calibrate, serve, openapi, demo)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        say(f"watersmeet: {message}")
        raise SystemExit(BAD_INPUT)


def build_parser() -> argparse.ArgumentParser:
    """All commands and their arguments."""
    parser = _Parser(prog="watersmeet", description="Plans for n-way joins over windows of streams.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=_Parser)
    for command in COMMANDS:
        one = commands.add_parser(command.__name__.rsplit(".", 1)[1], help=command.HELP, description=command.HELP)
        command.add_arguments(one)
        one.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code of one command."""
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as stop:
        return int(stop.code or 0)
    from solvers.common.errors import in_range

    try:
        run: Callable[[argparse.Namespace], int] = arguments.run
        with in_range():
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
        return [fault(failure.pointer, failure.detail).strip()]
    adapter = sys.modules.get("spark_adapter.errors")
    if adapter is not None and isinstance(failure, adapter.AdapterError):
        return str(failure).splitlines()
    return None

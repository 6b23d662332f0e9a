"""`watersmeet diff A B`: what changed between two plans."""

from __future__ import annotations

import argparse

from app.commands.documents import read_plan
from app.commands.terminal import DONE, NO, put

__all__ = ["HELP", "add_arguments", "run"]

HELP = "what changed between two plans"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("before", metavar="A", help="a plan")
    parser.add_argument("after", metavar="B", help="another plan")
    parser.add_argument("--format", choices=["text", "json"], default="text")
    parser.add_argument("--strict", action="store_true", help="exit 1 when B costs more than A")


def run(arguments: argparse.Namespace) -> int:
    from app.commands.draw import draw_diff_table
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

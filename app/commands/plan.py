"""`watersmeet plan FILE`: the plan for a request."""

from __future__ import annotations

import argparse

from app.commands.planning import add_request_arguments, make_plan
from app.commands.terminal import DONE, NO, put, say

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print the plan for a request, as JSON"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    plan = make_plan(arguments)
    put(plan.model_dump_json(indent=2))
    for warning in plan.warnings:
        say(f"warning: {warning}")
    if not plan.qualified:
        say("not qualified: no plan found fits the caps; `shortfall` says what it would take")
    return NO if arguments.strict and not plan.qualified else DONE

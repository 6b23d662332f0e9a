"""`watersmeet explain FILE`: the plan as a tree, and why it is this one and not the plain mjoin or the best binary tree."""

from __future__ import annotations

import argparse
import textwrap
from typing import TYPE_CHECKING

from app.commands.planning import add_request_arguments, make_plan
from app.commands.terminal import DONE, NO, put
from models.method import Method

if TYPE_CHECKING:
    from models.plan import Plan

__all__ = ["HELP", "add_arguments", "compared", "run"]

HELP = "draw the plan as a tree and say why it is this one"

_OTHERS = ((Method.MJOIN, "The plain mjoin"), (Method.BJTREE, "The best binary tree"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    from app.commands.draw import draw_plan

    plan = make_plan(arguments)
    put(draw_plan(plan))
    put("")
    for sentence in (*plan.explanation[1:], *compared(plan)):
        put(textwrap.fill(sentence, 100, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False))
    for warning in plan.warnings:
        put(textwrap.fill(f"warning: {warning}", 100, subsequent_indent="  ", break_on_hyphens=False))
    return NO if arguments.strict and not plan.qualified else DONE


def compared(plan: Plan) -> list[str]:
    """A sentence for each of the two usual plans that this one is not."""
    from models.request import CacheMode, Options, PlanRequest
    from solvers.common import words
    from solvers.common.errors import MethodError
    from solvers.planner import plan as make

    sentences = []
    for method, name in _OTHERS:
        request = PlanRequest(
            query=plan.query,
            resources=plan.resources,
            costs=plan.costs,
            objective=plan.objective,
            options=Options(method=method, caches=CacheMode.OFF),
        )
        try:
            other = make(request)
        except MethodError:
            sentences.append(f"{name} cannot bind every index.")
            continue
        if other.fingerprint == plan.fingerprint:
            sentences.append(f"{name} is this plan.")
            continue
        verdict = "fits as well" if other.qualified else "does not fit"
        cpu = _against(other.cost.cpu, plan.cost.cpu)
        memory = _against(other.cost.memory_bytes, plan.cost.memory_bytes)
        sentences.append(f"{name} {verdict}: {words.cpu(other.cost.cpu)} CPU ({cpu}) and {words.bytes_(other.cost.memory_bytes)} memory ({memory}).")
    return sentences


def _against(other: float, this: float) -> str:
    return f"{other / this:.3g} times this plan's" if this > 0.0 else "this plan uses none"

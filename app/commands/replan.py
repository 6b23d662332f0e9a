"""`watersmeet replan PLAN REQUEST`: keep the plan that runs, or change it, and to what."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from app.commands.documents import read_plan, read_value, validate
from app.commands.numbers import positive, share
from app.commands.planning import ANSWER_SECONDS
from app.commands.terminal import DONE, NO, put

if TYPE_CHECKING:
    from models.replan import Replan

__all__ = ["HELP", "add_arguments", "run"]

HELP = "whether to keep a plan that runs, or to change it, and to what"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="the plan that runs")
    parser.add_argument(
        "request", metavar="REQUEST", help="what would be asked for now, such as `watersmeet stats` prints; JSON or YAML, - is standard input"
    )
    parser.add_argument("--error", type=share, metavar="SHARE", help="how far a figure may be off before anything is looked at (0.05)")
    parser.add_argument("--gain", type=share, metavar="SHARE", help="what a change must bring (0.05)")
    parser.add_argument(
        "--horizon", type=positive, metavar="SECONDS", help="within which a change must have saved what it costs (the longest window)"
    )
    parser.add_argument("--url", help="ask this server instead of planning here; its key, if it asks for one, is WATERSMEET_API_KEY")
    parser.add_argument("--format", choices=["text", "json"], default="text", help="the decision and its reasons, or the whole answer with its plan")
    parser.add_argument("--strict", action="store_true", help="exit 1 when the plan should be changed")


def run(arguments: argparse.Namespace) -> int:
    from solvers.common.words import amount

    answer = _answer(arguments)
    if arguments.format == "json":
        put(answer.model_dump_json(indent=2))
    else:
        put("keep" if answer.decision == "keep" else f"change: {answer.kind.value}, gain {100.0 * answer.gain:.3g} %")
        for line in (*answer.reasons, *(f"{state.operator} has to be built: {amount(state.tuples)} tuples" for state in answer.rebuild)):
            put(f"  {line}")
    return NO if arguments.strict and answer.decision == "change" else DONE


def _answer(arguments: argparse.Namespace) -> Replan:
    from models.replan import Replan, ReplanRequest

    thresholds = {name: value for name in ("error", "gain") if (value := getattr(arguments, name)) is not None}
    body: dict[str, Any] = {
        "plan": read_plan(arguments.plan).model_dump(mode="json"),
        "request": read_value(arguments.request),
        "thresholds": thresholds,
    }
    if arguments.horizon is not None:
        body["horizon"] = arguments.horizon
    asked = validate(ReplanRequest, body, f"{arguments.plan}, {arguments.request}")
    if arguments.url:
        from app.commands.remote import ask

        return ask(arguments.url, "/v1/replans", asked, Replan, asked.request.options.time_limit + ANSWER_SECONDS)
    from solvers.replan import replan

    return replan(asked)

"""`watersmeet frontier FILE`: every trade-off between CPU and memory worth having."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from app.commands.documents import read_request
from app.commands.planning import add_request_arguments, solved
from app.commands.terminal import DONE, NO, put

if TYPE_CHECKING:
    from models.request import PlanRequest
    from solvers.common.deadline import Progress

__all__ = ["HELP", "add_arguments", "run"]

HELP = "draw every trade-off between CPU and memory worth having"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_request_arguments(parser)
    parser.add_argument("--format", choices=["text", "json"], default="text")


def run(arguments: argparse.Namespace) -> int:
    from app.commands.draw import draw_frontier
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

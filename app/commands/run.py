"""`watersmeet run PLAN BINDINGS`: a plan on Spark."""

from __future__ import annotations

import argparse
import sys

from app.commands.spark import add_install_argument, add_master_argument, add_plan_arguments, plan_and_bindings

__all__ = ["HELP", "add_arguments", "run"]

HELP = "run a plan on Spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_arguments(parser)
    parser.add_argument("--engine", choices=["stem", "native"], default="stem", help="state modules (default), or Spark's own joins")
    parser.add_argument(
        "--cells",
        type=int,
        metavar="N",
        help="how many cells the states are spread over (default: those of the checkpoint, or what the cluster runs at once); "
        "another number than the checkpoint has lays its states out anew",
    )
    parser.add_argument("--shed", action="store_true", help="run a plan that sheds load or does not fit its caps; what is shed is counted")
    add_master_argument(parser)
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    plan, bindings = plan_and_bindings(arguments)
    from spark_adapter.run import run as run_plan

    return run_plan(plan, bindings, arguments.engine, sys.stderr, arguments.master, arguments.shed, arguments.cells)

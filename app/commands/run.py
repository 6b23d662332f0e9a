"""`watersmeet run PLAN BINDINGS`: a plan on Spark, and with `--adapt` whichever plan is best for what it measures."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from app.commands.numbers import positive, share
from app.commands.spark import add_install_argument, add_master_argument, add_plan_arguments, plan_and_bindings
from app.commands.terminal import RefusedError

if TYPE_CHECKING:
    from spark_adapter.run import Adaptation

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
    parser.add_argument(
        "--shed",
        action="store_true",
        help="run a plan that sheds load or does not fit its caps; with --adapt: shed when batches take too long",
    )
    parser.add_argument("--adapt", action="store_true", help="measure while it runs, and change to a better plan when there is one")
    parser.add_argument("--every", type=positive, metavar="SECONDS", help="with --adapt: how often to look (30)")
    parser.add_argument("--error", type=share, metavar="SHARE", help="with --adapt: how far a figure may be off before anything is looked at (0.05)")
    parser.add_argument("--gain", type=share, metavar="SHARE", help="with --adapt: what a change must bring (0.05)")
    parser.add_argument("--url", help="with --adapt: ask this server instead of planning here; its key, if it asks for one, is WATERSMEET_API_KEY")
    add_master_argument(parser)
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    plan, bindings = plan_and_bindings(arguments)
    from spark_adapter.run import Options
    from spark_adapter.run import run as run_plan

    options = Options(arguments.engine, arguments.master, arguments.shed, arguments.cells, _adaptation(arguments))
    return run_plan(plan, bindings, sys.stderr, options)


def _adaptation(arguments: argparse.Namespace) -> Adaptation | None:
    """What `--adapt` and its companions ask for."""
    from app.commands.replanning import asking
    from models.replan import Thresholds
    from spark_adapter.adapt import EVERY
    from spark_adapter.run import Adaptation

    given = {name: getattr(arguments, name) for name in ("every", "error", "gain", "url") if getattr(arguments, name) is not None}
    if not arguments.adapt:
        if given:
            raise RefusedError(f"--{next(iter(given))} goes with --adapt, which is missing")
        return None
    url = given.pop("url", None)
    if url is not None and not url.startswith(("http://", "https://")):
        raise RefusedError(f"--url must start with http:// or https://, got {url!r}")
    every = given.pop("every", EVERY)
    return Adaptation(asking(url, Thresholds(**given), every), every)

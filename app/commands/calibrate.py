"""`watersmeet calibrate`: the cost constants of this machine's Spark."""

from __future__ import annotations

import argparse
import json
import sys

from app.commands.durations import duration
from app.commands.spark import add_install_argument, add_master_argument, need_spark
from app.commands.terminal import DONE, put

__all__ = ["HELP", "add_arguments", "run"]

HELP = "measure the cost constants on this machine's Spark"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_master_argument(parser)
    add_install_argument(parser)
    parser.add_argument("--batch", type=duration, default=1.0, metavar="TIME", help="the pipeline's micro-batches: steps are priced for them (1s)")
    parser.add_argument("--window", type=duration, default=60.0, metavar="TIME", help="a typical window of its streams, for the same (1m)")


def run(arguments: argparse.Namespace) -> int:
    need_spark(arguments.install)
    from spark_adapter.calibrate import Batches, calibrate

    costs = calibrate(sys.stderr, arguments.master, Batches(arguments.batch, arguments.window))
    put(json.dumps({"costs": costs.model_dump()}, indent=2))
    return DONE

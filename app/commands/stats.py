"""`watersmeet stats DIR`: a request with the rates and selectivities that a run measured."""

from __future__ import annotations

import argparse

from app.commands.durations import duration
from app.commands.terminal import DONE, put

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print a request with the rates and selectivities that a run measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the run's checkpoint folder")
    parser.add_argument(
        "--last", type=duration, metavar="TIME", help="how much event time to look at, such as 90s, 10m or 2h (default: the query's longest window)"
    )


def run(arguments: argparse.Namespace) -> int:
    from spark_adapter.stats import stats

    put(stats(arguments.dir, arguments.last).model_dump_json(indent=2))
    return DONE

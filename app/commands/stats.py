"""`watersmeet stats DIR`: a request with the rates and selectivities that a run measured."""

from __future__ import annotations

import argparse

from app.commands.terminal import DONE, put

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print a request with the rates and selectivities that a run measured"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("dir", metavar="DIR", help="the run's checkpoint folder")


def run(arguments: argparse.Namespace) -> int:
    from spark_adapter.stats import stats

    put(stats(arguments.dir).model_dump_json(indent=2))
    return DONE

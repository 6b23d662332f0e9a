"""`watersmeet demo`: an auction site, planned, run and checked."""

from __future__ import annotations

import argparse

from app.commands.spark import add_install_argument, need_spark

__all__ = ["HELP", "add_arguments", "run"]

HELP = "plan an auction site, run the plan on local Spark, and check every row"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    need_spark(arguments.install)
    from app.demo import main

    return main()

"""`watersmeet export PLAN BINDINGS`: a plan as a PySpark script."""

from __future__ import annotations

import argparse
import sys

from app.commands.spark import add_install_argument, add_plan_arguments, plan_and_bindings
from app.commands.terminal import DONE

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print a plan of binary joins as a PySpark script that needs nothing of ours"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_plan_arguments(parser)
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    plan, bindings = plan_and_bindings(arguments)
    from spark_adapter.export import export

    sys.stdout.write(export(plan, bindings))
    return DONE

"""What the commands that use Spark share: Spark itself, a plan, and its bindings."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from app.commands.documents import read_value
from app.commands.terminal import RefusedError, say

if TYPE_CHECKING:
    from models.bindings import Bindings
    from models.plan import Plan

__all__ = ["add_install_argument", "add_master_argument", "add_plan_arguments", "need_spark", "plan_and_bindings"]


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a plan, as JSON or YAML")
    parser.add_argument("bindings", metavar="BINDINGS", help="sources, columns and sink, as JSON or YAML")


def add_master_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark master (default: local[2])")


def add_install_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--install", action="store_true", help="install Spark with pip where it is missing")


def need_spark(install: bool) -> None:
    """Planning does without Spark, so it is not installed with the rest: where it is missing, say how, and do it where that was asked for."""
    import importlib.util
    import shlex
    import subprocess
    from importlib.metadata import requires

    if all(importlib.util.find_spec(name) for name in ("pyspark", "pandas", "polars", "pyarrow")):
        return
    packages = [line.split(";")[0].strip() for line in requires("watersmeet") or [] if 'extra == "spark"' in line]
    command = [sys.executable, "-m", "pip", "install", *packages]
    if not install:
        raise RefusedError(f"Spark is not installed. Install it with: {shlex.join(command)} (or give --install, which does just that)")
    say(f"installing Spark, which takes a few minutes: {shlex.join(command)}")
    if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
        raise RefusedError("Spark could not be installed; what pip said is above")


def plan_and_bindings(arguments: argparse.Namespace) -> tuple[Plan, Bindings]:
    """What `run` and `export` are given, checked."""
    need_spark(arguments.install)
    from spark_adapter.documents import read_bindings
    from spark_adapter.documents import read_plan as check_plan

    return check_plan(read_value(arguments.plan)), read_bindings(read_value(arguments.bindings))

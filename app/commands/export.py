"""`watersmeet export PLAN BINDINGS`: a plan as a PySpark script, or as one SQL query."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from app.commands.documents import read_plan, read_value, validate
from app.commands.queries import add_sql_arguments, meaning_of, read_sql
from app.commands.spark import add_install_argument, plan_and_bindings
from app.commands.terminal import DONE, RefusedError

if TYPE_CHECKING:
    from models.bindings import BindingsDraft

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print a plan of binary joins as a PySpark script that needs nothing of ours, or as one SQL query"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN", help="a plan, as JSON or YAML")
    parser.add_argument(
        "bindings", metavar="BINDINGS", help="sources, columns and sink, as JSON or YAML; with --sql also the query (.sql) that was planned"
    )
    parser.add_argument(
        "--sql", action="store_true", help="one query with the joins nested in the plan's order, for engines that join in the order typed"
    )
    parser.add_argument("--for", dest="engine", choices=["spark", "flink"], default="spark", help="whose SQL (default: spark)")
    add_sql_arguments(parser)
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.sql:
        from solvers.to_sql import to_sql

        sys.stdout.write(to_sql(read_plan(arguments.plan), _draft(arguments), arguments.engine))
        return DONE
    if arguments.engine != "spark":
        raise RefusedError(f"only SQL is exported for {arguments.engine}: add --sql")
    plan, bindings = plan_and_bindings(arguments)
    from spark_adapter.export import export

    sys.stdout.write(export(plan, bindings))
    return DONE


def _draft(arguments: argparse.Namespace) -> BindingsDraft:
    """What SQL needs of bindings: those of a query, of complete bindings, or of a draft."""
    from models.bindings import Bindings, BindingsDraft, StreamDraft, TableDraft

    name = arguments.bindings
    if name.endswith(".sql"):
        return meaning_of(read_sql(name), name, arguments.stats, arguments.dialect).bindings
    value = read_value(name)
    if not isinstance(value, dict) or "checkpoint" not in value:
        return validate(BindingsDraft, value, name)
    complete = validate(Bindings, value, name)
    streams = {stream: StreamDraft(**one.model_dump(include=set(StreamDraft.model_fields))) for stream, one in complete.streams.items()}
    tables = {table: TableDraft(columns=one.columns, where=one.where) for table, one in complete.tables.items()}
    return BindingsDraft(streams=streams, tables=tables, select=complete.select)

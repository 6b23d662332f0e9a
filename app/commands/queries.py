"""SQL from files, with the statistics that stand beside it: what `request`, `plan`, `explain`, `frontier` and `check` take."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from app.commands.documents import read_value, validate
from app.commands.terminal import RefusedError, fault, say

if TYPE_CHECKING:
    from models.sql import SqlMeaning

__all__ = ["add_sql_arguments", "meaning_of", "read_meaning", "read_sql"]

STATISTICS = "/statistics"


def add_sql_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stats", metavar="STATS", help="rates, selectivities and caps for a SQL query, as JSON or YAML")
    parser.add_argument("--dialect", default="spark", help="the SQL's dialect: spark (default), flink, postgres, or another of sqlglot's")


def read_meaning(arguments: argparse.Namespace) -> SqlMeaning:
    """What the command's SQL file means; its warnings are said."""
    meaning = meaning_of(read_sql(arguments.file), arguments.file, arguments.stats, arguments.dialect)
    for warning in meaning.warnings:
        say(f"warning: {warning}")
    return meaning


def read_sql(name: str) -> str:
    """The text of a file; `-` is standard input."""
    try:
        return (sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()).decode()
    except OSError as failure:
        raise RefusedError(f"{name}: {failure.strerror or failure}") from None
    except UnicodeDecodeError as failure:
        raise RefusedError(f"{name}: this is not UTF-8 (byte {failure.start})") from None


def meaning_of(sql: str, file: str, stats: str | None, dialect: str) -> SqlMeaning:
    """What a query means. Raises RefusedError with every fault, each with its file and its place there."""
    from models.sql import SqlRequest, Statistics
    from solvers.common.errors import SqlError
    from solvers.from_sql import from_sql

    given = Statistics() if stats is None else validate(Statistics, read_value(stats), stats)
    try:
        return from_sql(validate(SqlRequest, {"sql": sql, "dialect": dialect, "statistics": given}, file))
    except SqlError as refused:
        lines = []
        for pointer, sentence in refused.errors:
            of_statistics = pointer.startswith(STATISTICS)
            name = stats if of_statistics and stats is not None else file
            lines.append(f"{name}:{fault(pointer.removeprefix(STATISTICS) if of_statistics else '', sentence)[1:]}")
        raise RefusedError(*lines) from None

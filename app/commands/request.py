"""`watersmeet request FILE.sql`: the request that a SQL query means, or its bindings."""

from __future__ import annotations

import argparse
import json

from app.commands.documents import read_value, validate
from app.commands.queries import add_sql_arguments, read_meaning
from app.commands.terminal import DONE, RefusedError, put

__all__ = ["HELP", "add_arguments", "run"]

HELP = "print the request that a SQL query means"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a query of inner joins with bounds on event times, as SQL; - is standard input")
    add_sql_arguments(parser)
    parser.add_argument(
        "--bindings",
        metavar="SOURCES",
        help="print the query's bindings instead: those of SOURCES, whose streams may be named like the query's aliases or like its tables, "
        "with the columns, conditions and result columns that the query says",
    )


def run(arguments: argparse.Namespace) -> int:
    meaning = read_meaning(arguments)
    if arguments.bindings is None:
        put(meaning.request.model_dump_json(indent=2))
        return DONE
    from models.bindings import Bindings
    from solvers.sql.bindings import completed

    sources = read_value(arguments.bindings)
    if not isinstance(sources, dict):
        raise RefusedError(f"{arguments.bindings}: bindings are an object with streams and checkpoint")
    document = completed(meaning.bindings, sources)
    validate(Bindings, document, arguments.bindings)
    put(json.dumps(document, indent=2, ensure_ascii=False))
    return DONE

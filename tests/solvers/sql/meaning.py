"""A request and its bindings as one query over tables, straight from the definition: every pair of streams within both windows, every
predicate, every condition. What the query itself answers must be what this does."""

from __future__ import annotations

from collections import Counter
from typing import Any

import duckdb
import sqlglot

from models.sql import SqlMeaning
from tests.sql_cases import plain

__all__ = ["rows_by_definition"]


def rows_by_definition(connection: duckdb.DuckDBPyConnection, meaning: SqlMeaning) -> Counter[tuple[Any, ...]]:
    query, bindings = meaning.request.query, meaning.bindings
    flowing = [stream.name for stream in query.streams]
    names = [relation.name for relation in query.relations]
    attributes: dict[str, dict[str, None]] = {name: {} for name in names}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            owner, attribute = side.split(".", 1)
            attributes[owner][attribute] = None
    sources = []
    for name in names:
        bound = bindings.streams[name] if name in flowing else bindings.tables[name]
        computed = [f"{bound.columns.get(attribute, attribute)} AS `a {attribute}`" for attribute in attributes[name]]
        columns = ", ".join(["*", f"{bindings.streams[name].event_time if name in flowing else 'NULL'} AS `event time`", *computed])
        sources.append(f"(SELECT {columns} FROM {bound.table}{f' WHERE {bound.where}' if bound.where else ''}) AS {name}")
    conditions = [f"{_quoted(p.left)} {p.op.value} {_quoted(p.right)}" for p in query.predicates]
    for stream in query.streams:
        window = f"INTERVAL '{round((stream.window.seconds or 0) * 1_000_000)}' MICROSECONDS"
        conditions += [f"{other}.`event time` <= {stream.name}.`event time` + {window}" for other in flowing if other != stream.name]
    hidden = {name: ", ".join(["`event time`", *(f"`a {attribute}`" for attribute in attributes[name])]) for name in names}
    whole = {name: f"{name}.* EXCEPT ({hidden[name]})" for name in names}
    select = [whole[text[:-2]] if text.endswith(".*") else text for text in bindings.select] or [whole[name] for name in names]
    sql = f"SELECT {', '.join(select)} FROM {' CROSS JOIN '.join(sources)} WHERE {' AND '.join(conditions)}"
    found = connection.execute(sqlglot.transpile(sql, read="databricks", write="duckdb")[0]).fetchall()
    return Counter(tuple(plain(value) for value in row) for row in found)


def _quoted(side: str) -> str:
    stream, attribute = side.split(".", 1)
    return f"{stream}.`a {attribute}`"

"""The golden SQL queries over one set of rows: what DuckDB answers to them, and what they are made of on Spark.

Rows are few and their keys fewer, so that every query has results, and event times lie on a grid of half a second, so that many fall on the
very ends of windows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import sqlglot
import yaml

from models.sql import SqlMeaning, SqlRequest
from solvers.common.errors import SqlError
from solvers.from_sql import from_sql
from tests.spark_adapter.plans import moment

__all__ = ["SCHEMAS", "Query", "columns_of", "database", "duckdb_rows", "plain", "queries", "rows_of"]

GOLDEN = Path(__file__).parent / "golden" / "sql.test"
ROWS = 60
SECONDS = 40

# As DDL that Spark and DuckDB both read; a struct is written as each of them has it.
SCHEMAS = {
    "orders": "id BIGINT, customer BIGINT, amount DOUBLE, note STRING, email STRING, `gift note` STRING, abs_id BIGINT, ts TIMESTAMP",
    "payments": "order_id BIGINT, customer BIGINT, amount DOUBLE, method STRING, paid_at STRING, `gift note` STRING, ts TIMESTAMP",
    "shipments": "order_id BIGINT, carrier STRING, weight DOUBLE, ts TIMESTAMP",
    "refunds": "order_id BIGINT, amount DOUBLE, ts TIMESTAMP",
    "customers": "id BIGINT, email STRING, ts TIMESTAMP",
    "discounts": "customer BIGINT, lowest DOUBLE, highest DOUBLE, ts TIMESTAMP",
    "events": "payload STRUCT<customer: BIGINT, kind: STRING>, ts TIMESTAMP",
    "bid": "auction BIGINT, bidder BIGINT, price DOUBLE, channel STRING, dateTime TIMESTAMP",
    "auction": "id BIGINT, seller BIGINT, category BIGINT, reserve DOUBLE, itemName STRING, dateTime TIMESTAMP, expires TIMESTAMP",
    "person": "id BIGINT, name STRING, city STRING, state STRING, dateTime TIMESTAMP",
}
TEXTS: dict[str, list[str | None]] = {
    "note": ["gift", None, "late"],
    "gift note": ["for you", "for me", None],
    "email": ["a@x", " A@x ", "b@x", "B@X", None],
    "method": ["card", "cash", "bank"],
    "carrier": ["dhl", "ups"],
    "channel": ["web", "app"],
    "state": ["OR", "ID", "CA", "NY"],
    "city": ["Boise", "Salem"],
}
NUMBERS = {"id": 12, "order_id": 12, "auction": 12, "abs_id": 5, "customer": 5, "seller": 5, "bidder": 5, "category": 3}


# What neither DuckDB reads nor sqlglot translates.
NOT_DUCKDBS = {
    "INTERVAL '0:05' MINUTE TO SECOND": "INTERVAL 5 SECONDS",
    "INTERVAL 0 MINUTES 7 SECONDS": "INTERVAL 7 SECONDS",
    "SECOND(3)": "SECOND",
    "TIMESTAMPADD(SECOND, 6, o.ts)": "o.ts + INTERVAL 6 SECONDS",
}


@dataclass(frozen=True)
class Query:
    """A golden case."""

    name: str
    why: str
    request: SqlRequest

    def meaning(self) -> SqlMeaning:
        return from_sql(self.request)


@cache
def queries(taken: bool = True) -> tuple[Query, ...]:
    """The golden cases that are taken, or those that are refused."""
    found = []
    for number, text in enumerate(GOLDEN.read_text(encoding="utf-8").split("\n====\n")):
        why, _, rest = text.strip("\n").partition("\nsql\n")
        request = SqlRequest.model_validate(yaml.safe_load(rest.partition("\n----\n")[0]))
        try:
            from_sql(request)
            refused = False
        except SqlError:
            refused = True
        if refused is not taken:
            found.append(Query(f"{number:03}", why.lstrip("# "), request))
    return tuple(found)


def columns_of(table: str) -> list[tuple[str, str]]:
    """Names and types."""
    fields = [field.strip() for field in SCHEMAS[table].replace("<customer: BIGINT, kind: STRING>", "").split(", ")]
    return [(name.strip("` "), kind) for name, _, kind in (field.rpartition(" ") for field in fields)]


@cache
def rows_of(table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of their times."""
    rng = random.Random(table)
    rows = []
    for tick in sorted(rng.randrange(2 * SECONDS) for _ in range(ROWS)):
        row = {name: _value(rng, name, kind, tick / 2) for name, kind in columns_of(table)}
        rows.append(row)
    return rows


def _value(rng: random.Random, name: str, kind: str, seconds: float) -> Any:
    if name == "payload":
        return {"customer": rng.randrange(5), "kind": rng.choice(["view", "click"])}
    if name == "paid_at":
        return moment(seconds).strftime("%Y-%m-%d %H:%M:%S.%f")
    if name == "expires":
        return moment(seconds + rng.randrange(40))
    if kind == "TIMESTAMP":
        return moment(seconds)
    if name in TEXTS:
        return rng.choice(TEXTS[name])
    if name in NUMBERS:
        return rng.randrange(NUMBERS[name])
    return float(rng.randrange(100)) if kind == "DOUBLE" else f"{name} {rng.randrange(5)}"


def database() -> duckdb.DuckDBPyConnection:
    """All tables, in DuckDB."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE SCHEMA shop")
    for table, schema in SCHEMAS.items():
        ddl = schema.replace("<customer: BIGINT, kind: STRING>", "(customer BIGINT, kind VARCHAR)").replace("`", '"')
        connection.execute(f"CREATE TABLE {table} ({ddl})")
        names = [name for name, _ in columns_of(table)]
        values = [row[name].replace(tzinfo=None) if isinstance(row[name], datetime) else row[name] for row in rows_of(table) for name in names]
        line = f"({', '.join('?' * len(names))})"
        connection.execute(f"INSERT INTO {table} VALUES {', '.join([line] * len(rows_of(table)))}", values)
        connection.execute(f"CREATE VIEW shop.{table} AS SELECT * FROM main.{table}")
    return connection


def duckdb_rows(connection: duckdb.DuckDBPyConnection, sql: str, dialect: str) -> Counter[tuple[Any, ...]]:
    """DuckDB's answer to the query as it is written; where that is no SQL of DuckDB's, as sqlglot translates it."""
    for theirs, ours in NOT_DUCKDBS.items():
        sql = sql.replace(theirs, ours)
    try:
        found = connection.execute(sql).fetchall()
    except duckdb.Error:
        found = connection.execute(sqlglot.transpile(sql, read="spark" if dialect == "flink" else dialect, write="duckdb")[0]).fetchall()
    return Counter(tuple(plain(value) for value in row) for row in found)


def plain(value: Any) -> Any:
    """A value as both sides can be compared by: times in text, structs in order."""
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, Mapping):
        return tuple(plain(part) for part in value.values())
    return value

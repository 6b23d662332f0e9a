"""SQL in, rows out: what a query means runs on Spark and gives DuckDB's rows, and so does the query that a plan is exported as.

A few queries stand for the rest; `python -m tests.bench.sql_rows` runs all of them on either engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.spark_adapter.sql_runs import exported_rows, spark_rows, write_tables
from tests.sql_cases import Query, database, duckdb_rows, queries

pytestmark = pytest.mark.spark

# By what they are for: the first words of their golden cases.
ON_STEM = (
    "A chain in which only neighbours are bounded",
    "Event times at a fixed distance",
    "Conditions on one stream",
    "A self-join",
    "Names in quotes, as Spark",
    "A table does not flow",
)
ON_NATIVE = ("A bound of its own", "A strict comparison", "Result columns")
AS_SQL = (
    "Equal event times",
    "Result columns",
    "A chain in which only neighbours are bounded",
    "No key at all",
    "Keys that are expressions",
    "A table does not flow",
    "One stream with tables",
)


def chosen(beginnings: tuple[str, ...]) -> list[Query]:
    found = [query for beginning in beginnings for query in queries() if query.why.startswith(beginning)]
    assert len(found) == len(beginnings)
    return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_tables(folder)
    return folder


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as opened:
        yield opened


@pytest.mark.parametrize(("engine", "which"), [("stem", ON_STEM), ("native", ON_NATIVE)])
def test_a_query_gives_duckdbs_rows(
    spark: SparkSession, tables: Path, connection: duckdb.DuckDBPyConnection, engine: str, which: tuple[str, ...]
) -> None:
    found = spark_rows(spark, tables, chosen(which), engine)
    for query in chosen(which):
        expected = duckdb_rows(connection, query.request.sql, query.request.dialect)
        assert expected, "a query without results shows nothing"
        assert found[query.name] == expected, query.why


def test_an_exported_query_gives_duckdbs_rows(spark: SparkSession, tables: Path, connection: duckdb.DuckDBPyConnection) -> None:
    for query in chosen(AS_SQL):
        assert exported_rows(spark, tables, query) == duckdb_rows(connection, query.request.sql, query.request.dialect), query.why

"""A query means what DuckDB answers to it: the request and the bindings together give the same rows, no more and no fewer."""

from __future__ import annotations

import random
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.sql import SqlRequest
from solvers.common.errors import SqlError
from solvers.from_sql import from_sql
from tests.solvers.sql.meaning import rows_by_definition
from tests.sql_cases import Query, database, duckdb_rows, queries


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with database() as opened:
        yield opened


def test_sixty_queries_of_which_twenty_are_refused() -> None:
    assert len(queries(taken=True)) >= 40
    assert len(queries(taken=False)) >= 20


@pytest.mark.parametrize("query", queries(), ids=lambda query: query.name)
def test_the_request_gives_the_rows_of_the_query(query: Query, connection: duckdb.DuckDBPyConnection) -> None:
    expected = duckdb_rows(connection, query.request.sql, query.request.dialect)
    assert expected, "a query without results shows nothing"
    assert rows_by_definition(connection, query.meaning()) == expected


SHAPES = (
    "{j} <= {i} + {d}",
    "{i} + {d} >= {j}",
    "{j} - {d} <= {i}",
    "{i} >= {j} - {d}",
    "{j} - {i} <= {d}",
    "{d} >= {j} - {i}",
    "NOT {j} > {i} + {d}",
)
TABLES = ("orders", "payments", "shipments", "refunds")


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_random_bounds_give_the_rows_of_the_query(connection: duckdb.DuckDBPyConnection, seed: int) -> None:
    """Chains, stars and cycles of bounds in every way of writing them, strict ones among them, redundant, negative and contradictory."""
    rng = random.Random(seed)
    names = list("abcd")[: rng.randint(2, 4)]
    conditions = []
    for k, name in enumerate(names[1:], 1):
        other = rng.choice(names[:k])
        pairs = [(name, other), (other, name)] + [tuple(rng.sample(names, 2)) for _ in range(rng.randrange(2))]
        for i, j in pairs:
            length = rng.choice([-1, 0, 1, 2, 2.5, 4, 7])
            text = rng.choice(SHAPES).format(i=f"{i}.ts", j=f"{j}.ts", d=f"INTERVAL '{length}' SECOND")
            conditions.append(text.replace("<=", "<").replace(">=", ">") if rng.random() < 0.2 and "NOT" not in text else text)
    keys = {"a": "a.id", "b": "b.order_id", "c": "c.order_id", "d": "d.order_id"}
    conditions += [f"{keys[names[0]]} = {keys[name]}" for name in names[1:]]
    rng.shuffle(conditions)
    sources = ", ".join(f"{table} {name}" for table, name in zip(TABLES, names, strict=False))
    sql = f"SELECT {', '.join(f'{keys[name]} AS k{name}, {name}.ts AS t{name}' for name in names)} FROM {sources} WHERE {' AND '.join(conditions)}"
    expected = duckdb_rows(connection, sql, "postgres")
    try:
        meaning = from_sql(SqlRequest(sql=sql, dialect="postgres"))
    except SqlError as refused:
        assert "no rows satisfy these bounds" in refused.detail and not expected
        return
    assert rows_by_definition(connection, meaning) == expected

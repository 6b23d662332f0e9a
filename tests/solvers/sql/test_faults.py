"""Whatever is sent as SQL: what it means, or every fault with its place; never a crash, and never for long."""

from __future__ import annotations

import itertools
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.faults import MAX_FAULTS, MAX_STREAMS
from models.sql import MAX_SQL, SqlRequest
from solvers.common.errors import SqlError
from solvers.from_sql import from_sql
from tests.sql_cases import queries

JOINED = "SELECT o.id FROM orders o JOIN payments p ON o.id = p.order_id AND p.ts BETWEEN o.ts AND o.ts + INTERVAL 9 SECONDS"
# What trips parsers, and words that change what a query is.
PIECES = [
    "'",
    '"',
    "`",
    "(",
    ")",
    "((",
    "/*",
    "--",
    ";",
    ",",
    ".",
    "*",
    "=",
    "<",
    "\x00",
    "☃",
    "1e999",
    "INTERVAL",
    "INTERVAL '1",
    "LEFT",
    "USING (",
    "OR",
]
PIECES += [
    "NOT",
    "SELECT",
    "(SELECT 1)",
    "COUNT(*)",
    "o.",
    "p.ts",
    "AND",
    "BETWEEN",
    "CASE WHEN",
    "END",
    "[",
    "{",
    "::",
    ":x",
    "?",
    "@",
    "\n",
    "\r",
    "\t",
    "\u2028",
]


def faults(sql: str, dialect: str = "spark") -> list[str]:
    with pytest.raises(SqlError) as refused:
        from_sql(SqlRequest(sql=sql, dialect=dialect))
    return [sentence for _, sentence in refused.value.errors]


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 2**32 - 1))
def test_spoilt_queries_are_understood_or_refused_in_place(seed: int) -> None:
    rng = random.Random(seed)
    request = rng.choice(queries()).request
    sql = request.sql
    for _ in range(rng.randint(1, 3)):
        start = rng.randrange(len(sql) + 1)
        end = min(len(sql), start + rng.choice([0, 0, 1, 3, 12]))
        sql = sql[:start] + rng.choice(["", f" {rng.choice(PIECES)} ", sql[start:end] * 2]) + sql[end:]
    try:
        meaning = from_sql(SqlRequest(sql=sql or " ", dialect=rng.choice(["spark", "flink", "postgres", "duckdb", "mysql", "tsql", "bigquery"])))
        assert {stream.name for stream in meaning.request.query.streams} == set(meaning.bindings.streams)
    except SqlError as refused:
        lines = sql.count("\n") + 1
        for pointer, sentence in refused.errors:
            place = re.match(r"line (\d+), column (\d+): .", sentence)
            assert pointer == "/sql" and (place is None or int(place[1]) <= lines)


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        (f"{JOINED} AND {'(' * 1000}o.x = 1{')' * 1000}", "nested too deeply"),
        (f"{JOINED} AND o.x = {'f(' * 1000}1{')' * 1000}", "nested too deeply"),
        (f"{JOINED} AND o.x = {' + '.join(['o.y'] * 3000)}", "nested too deeply"),
        (f"SELECT {'a.' * 3000}b FROM a JOIN b ON a.x = b.x", "nested too deeply"),
        (f"SELECT * FROM {', '.join(f's{i}' for i in range(MAX_STREAMS + 1))}", f"a query joins at most {MAX_STREAMS} streams"),
        (f"{JOINED} AND o.x IN ({', '.join(map(str, range(12_000)))})", "where takes at most"),
        (f"{JOINED} AND lower(o.x) = concat(p.y, '{'x' * 5000}')", "takes at most 4096 characters"),
        ("/*" * 2000, "cannot be read as SQL"),
        ("SELECT 1", "there is no FROM"),
        ("SELECT a.x FROM a", "there is one stream and nothing to join it with"),
    ],
)
def test_what_is_too_much_is_refused(sql: str, says: str) -> None:
    assert len(sql) <= MAX_SQL
    assert says in faults(sql)[0]


def test_faults_are_as_many_as_anybody_mends_at_a_time() -> None:
    assert len(faults(f"{JOINED} AND {' AND '.join(f'c{i} = 1' for i in range(300))}")) == MAX_FAULTS


def test_two_hundred_streams_are_joined() -> None:
    names = [f"s{i}" for i in range(MAX_STREAMS)]
    bounds = [f"{a}.k = {b}.k AND {b}.ts BETWEEN {a}.ts AND {a}.ts + INTERVAL 5 SECONDS" for a, b in itertools.pairwise(names)]
    meaning = from_sql(SqlRequest(sql=f"SELECT * FROM {', '.join(names)} WHERE {' AND '.join(bounds)}"))
    assert meaning.request.query.streams[0].window.seconds == 5.0 * (MAX_STREAMS - 1)


def test_the_same_query_is_the_same_bytes() -> None:
    for query in queries():
        assert query.meaning().model_dump_json() == query.meaning().model_dump_json()

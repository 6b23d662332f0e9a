"""What rows may hold: keys of every type, nulls, duplicates, equal times, ends of windows, empty streams, columns of any name.

Every scenario runs on both engines and is held against the nested loop. A null joins nothing, as in SQL.
"""

from __future__ import annotations

import base64
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from models.request import Query
from spark_adapter.errors import BindingError
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import Shape, make_plan, make_query, moment, write_stream
from tests.spark_adapter.runs import NO_LAST_BATCH, Job, run_all, written

pytestmark = pytest.mark.spark

ENGINES = ("stem", "native")
Line = tuple[Any, ...]


@dataclass(frozen=True)
class Scenario:
    """Streams of given columns, a query over them, and the lines that the sink must have."""

    query: Query
    schemas: Mapping[str, str]
    rows: Mapping[str, Sequence[Row]]
    columns: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Per stream, plan attribute → column or expression."""
    event_time: str = "ts"
    select: Sequence[str] = ()
    shown: Callable[[tuple[Row, ...]], Line] | None = None
    """A result as its line's values; by default the ids of its rows."""
    files: int = 1
    cells: int = 4
    spark: Mapping[str, str] = field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """Left-deep, in the order of the streams: a tree that both engines run."""
        names = [stream.name for stream in self.query.streams]
        found: Shape = names[0]
        for name in names[1:]:
            found = [found, name]
        return found

    def expected(self) -> Counter[str]:
        found = nested_loop(self.query, {name: [row for row in map(self._seen, rows) if self._joins(name, row)] for name, rows in self.rows.items()})
        shown = self.shown or (lambda result: tuple(row["id"] for row in result))
        return Counter(repr(shown(result)) for result in found)

    def _joins(self, name: str, row: Row) -> bool:
        used = [side.split(".") for predicate in self.query.predicates for side in (predicate.left, predicate.right)]
        return row["ts"] is not None and all(row[attribute] is not None for stream, attribute in used if stream == name)

    @staticmethod
    def _seen(row: Row) -> Row:
        """Spark's NaN equals itself and is above all numbers: here infinity, which no scenario uses, plays its part."""
        return {key: math.inf if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}


def plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return str(value) if isinstance(value, (Decimal, date)) and not isinstance(value, datetime) else value


def drawn(streams: Mapping[str, Mapping[str, Sequence[Any]]], rows: int, seed: int) -> dict[str, list[Row]]:
    """Rows a third of a second apart on average, each attribute drawn from its values."""
    rng = random.Random(seed)
    return {
        name: [
            {"id": k, "ts": moment(at / 1000), **{attribute: rng.choice(values) for attribute, values in attributes.items()}}
            for k, at in enumerate(sorted(rng.choices(range(rows * 333), k=rows)))
        ]
        for name, attributes in streams.items()
    }


def chain(windows: Sequence[float], links: Sequence[str]) -> Query:
    """Streams s0, s1, …; link i is "attribute op" or "attribute" between s_i and the next."""
    parts = [[*link.split(), "="][:2] for link in links]
    return make_query(
        {f"s{i}": seconds for i, seconds in enumerate(windows)}, [f"s{i}.{name} {op} s{i + 1}.{name}" for i, (name, op) in enumerate(parts)]
    )


TEXT: list[Any] = ["é", "e", "", " e", "E", "日本", None]
DECIMALS: list[Any] = [Decimal("1.10"), Decimal("-0.50"), Decimal("123456789.25"), None]
DAYS: list[Any] = [date(2026, 1, 1), date(1969, 12, 31), date(2024, 2, 29), None]
TIMES: list[Any] = [moment(0), moment(0.000001), moment(-1e9), None]
WHOLE: list[Any] = [0, -1, 2**31 - 1, None]
FLOATS: list[Any] = [0.0, -0.0, 1.5, math.nan, None]
RAW: list[Any] = [b"", b"\x00", b"\xff\x00", b"a", None]


def typed() -> Scenario:
    query = chain([9, 7, 8, 9, 10], ["k", "d", "day", "at"])
    schemas = {
        "s0": "id BIGINT, ts TIMESTAMP, k STRING",
        "s1": "id BIGINT, ts TIMESTAMP, k STRING, d DECIMAL(12, 3)",
        "s2": "id BIGINT, ts TIMESTAMP, d DECIMAL(20, 2), day DATE",
        "s3": "id BIGINT, ts TIMESTAMP, day DATE, at TIMESTAMP",
        "s4": "id BIGINT, ts TIMESTAMP, at TIMESTAMP",
    }
    values: dict[str, list[Any]] = {"k": TEXT, "d": DECIMALS, "day": DAYS, "at": TIMES}
    return Scenario(query, schemas, drawn({name: {a: values[a] for a in values if f" {a} " in schema} for name, schema in schemas.items()}, 24, 1))


def typed_more() -> Scenario:
    query = chain([9, 7, 8, 9, 10], ["flag", "f", "raw", "n"])
    schemas = {
        "s0": "id BIGINT, ts TIMESTAMP, flag BOOLEAN",
        "s1": "id BIGINT, ts TIMESTAMP, flag BOOLEAN, f DOUBLE",
        "s2": "id BIGINT, ts TIMESTAMP, f FLOAT, raw BINARY",
        "s3": "id BIGINT, ts TIMESTAMP, raw BINARY, n INT",
        "s4": "id BIGINT, ts TIMESTAMP, n BIGINT",
    }
    values: dict[str, list[Any]] = {"flag": [True, False, None], "f": FLOATS, "raw": RAW, "n": WHOLE}
    return Scenario(query, schemas, drawn({name: {a: values[a] for a in values if f" {a} " in schema} for name, schema in schemas.items()}, 18, 2))


def ordered() -> Scenario:
    """Comparisons other than equality, on text, floats with NaN, and days; the first two streams also share a number."""
    query = make_query({"a": 5, "b": 4, "c": 6}, ["a.n = b.n", "a.k < b.k", "b.f >= c.f", "c.day != b.day"])
    schemas = {
        "a": "id BIGINT, ts TIMESTAMP, n BIGINT, k STRING",
        "b": "id BIGINT, ts TIMESTAMP, n DECIMAL(5, 0), k STRING, f DOUBLE, day DATE",
        "c": "id BIGINT, ts TIMESTAMP, f DOUBLE, day DATE",
    }
    streams: dict[str, dict[str, list[Any]]] = {
        "a": {"n": [1, 2], "k": TEXT},
        "b": {"n": [1, 2], "k": TEXT, "f": FLOATS, "day": DAYS},
        "c": {"f": FLOATS, "day": DAYS},
    }
    return Scenario(query, schemas, drawn(streams, 40, 3))


def doubled() -> Scenario:
    """Rows that are alike in everything, all at one time: each counts."""
    query = make_query({"a": 5, "b": 5, "c": 5}, ["a.x = b.x", "b.x = c.x"])
    rows: list[Row] = [{"id": 7, "ts": moment(1), "x": x} for x in (1, 1, 1, 2, None, None)]
    return Scenario(query, dict.fromkeys("abc", "id BIGINT, ts TIMESTAMP, x BIGINT"), dict.fromkeys("abc", rows))


def boundaries() -> Scenario:
    """Rows at the very ends of windows, and a microsecond beyond, on either side."""
    query = make_query({"a": 2, "b": 0.5, "c": 1}, ["a.x = b.x", "b.x = c.x"])
    at = [0.0, 0.5, 0.500001, 1.0, 1.000001, 1.5, 2.0, 2.000001, 2.5]
    rows: list[Row] = [{"id": k, "ts": moment(10 + seconds), "x": 0} for k, seconds in enumerate(at)]
    return Scenario(query, dict.fromkeys("abc", "id BIGINT, ts TIMESTAMP, x BIGINT"), dict.fromkeys("abc", rows))


def empty() -> Scenario:
    query = make_query({"a": 5, "b": 5, "c": 5}, ["a.x = b.x", "b.x = c.x"])
    rows: list[Row] = [{"id": k, "ts": moment(k), "x": 0} for k in range(5)]
    return Scenario(query, dict.fromkeys("abc", "id BIGINT, ts TIMESTAMP, x BIGINT"), {"a": rows, "b": rows, "c": []})


def silent_at_first() -> Scenario:
    """A stream whose first file is empty, and one whose last is."""
    query = make_query({"a": 50, "b": 50}, ["a.x = b.x"])
    rows: list[Row] = [{"id": k, "ts": moment(k), "x": k % 2} for k in range(6)]
    hollow: list[Row] = [{"id": k, "ts": None, "x": 0} for k in range(6)]
    return Scenario(query, dict.fromkeys("ab", "id BIGINT, ts TIMESTAMP, x BIGINT"), {"a": [*hollow, *rows], "b": [*rows, *hollow]}, files=2, cells=2)


def odd_names() -> Scenario:
    """Columns called like anything, among them what the engines call their own."""
    query = make_query({"a": 5, "B": 4, "row": 6}, ["a.x = B.x", "B.hi = row.hi"])
    schema = (
        "`I d` BIGINT, `e.t` TIMESTAMP, `we ird` BIGINT, `a.b` STRING, `tick``ed` BIGINT, "
        "hi BIGINT, mx BIGINT, h STRING, ts STRING, a_x STRING, row STRING, rows STRING, note STRING, cell STRING, stream STRING, d0 STRING, base INT"
    )
    rows = drawn({name: {"x": [1, 2, 3], "hi": [1, 2], "text": ["u", "v"]} for name in ("a", "B", "row")}, 25, 4)

    def shown(result: tuple[Row, ...]) -> Line:
        a, b, r = result
        return a["x"] + b["id"], f"{r['text']}!".upper(), a["id"], b["id"], r["id"], "h", {"rows": "r", "cell": None}

    return Scenario(
        query,
        dict.fromkeys(rows, schema),
        rows,
        columns={"a": {"x": "we ird"}, "B": {"x": "`we ird` + 0"}},
        event_time="e.t",
        select=[
            "a.`we ird` + B.`tick``ed` AS `sum of.all`",
            "upper(concat(row.`a.b`, '!')) AS `a``b`",
            "a.`I d` AS a",
            "B.`i D` AS b",
            "row.`I d` AS c",
            "A.h AS h",
            "named_struct('rows', row.rows, 'cell', a.cell) AS s",
        ],
        shown=shown,
    )


def expressions() -> Scenario:
    """Keys and results that are computed: fields of structs, of maps, of arrays, of JSON; CASE, casts, a whole stream."""
    query = make_query({"a": 5, "b": 4}, ["a.x = b.x", "a.month <= b.month"])
    rows = drawn({name: {"x": [1, 2, None], "month": [1, 2]} for name in "ab"}, 30, 5)
    schema = "id BIGINT, ts TIMESTAMP_NTZ, s STRUCT<`In`: STRUCT<x: BIGINT>>, m MAP<STRING, BIGINT>, js STRING, l ARRAY<BIGINT>"

    def shown(result: tuple[Row, ...]) -> Line:
        a, b = result
        return "one" if a["x"] == 1 else "more", a["id"] * 100 + b["id"], {"x": b["x"]}, a["id"]

    return Scenario(
        query,
        dict.fromkeys("ab", schema),
        rows,
        columns={"a": {"x": "s.In.x", "month": "l[0]"}, "b": {"x": "CAST(get_json_object(js, '$.x') AS INT)", "month": "m['month']"}},
        select=[
            "CASE WHEN a.s.In.x = 1 THEN 'one' ELSE 'more' END AS c",
            "a.id * 100 + b.id AS n",
            "b.s.In",
            "element_at(array(a.id, b.id), 1) AS f",
        ],
        shown=shown,
    )


def cases() -> Scenario:
    """Streams and attributes that differ in case alone, where the bindings say that case counts."""
    query = make_query({"a": 5, "A": 4}, ["a.k = A.K", "a.K <= A.k"])
    return Scenario(
        query,
        dict.fromkeys("aA", "id BIGINT, ts TIMESTAMP, low BIGINT, high INT"),
        drawn({name: {"k": [1, 2, 3], "K": [1, 2, 3]} for name in "aA"}, 30, 8),
        columns={name: {"k": "low", "K": "high"} for name in "aA"},
        select=["a.id AS first", "A.id AS second"],
        cells=2,
        spark={"spark.sql.caseSensitive": "true"},
    )


def at_the_same_moment() -> Scenario:
    """The event time is the key."""
    query = make_query({"a": 1, "b": 2, "c": 3}, ["a.ts = b.ts", "b.ts = c.ts"])
    rows: list[Row] = [{"id": k, "ts": moment(k // 2)} for k in range(10)]
    return Scenario(query, dict.fromkeys("abc", "id BIGINT, ts TIMESTAMP"), dict.fromkeys("abc", rows))


def alone() -> Scenario:
    query = make_query({"only": 5}, [])
    return Scenario(query, {"only": "id BIGINT, ts TIMESTAMP"}, drawn({"only": {}}, 20, 6))


def unconnected() -> Scenario:
    """Two streams that share a key and one that shares nothing: every pair with every row in its window."""
    query = make_query({"a": 2, "b": 2, "c": 1}, ["a.Key = b.KEY"])
    rows = drawn({name: {"Key": [1, 2, 3], "KEY": [1, 2, 3]} for name in "ab"} | {"c": {}}, 20, 7)
    for name in "ab":
        rows[name] = [{**row, "KEY": row["Key"]} for row in rows[name]]
    return Scenario(query, {"a": "id BIGINT, ts TIMESTAMP, key INT", "b": "id BIGINT, ts TIMESTAMP, key INT", "c": "id BIGINT, ts TIMESTAMP"}, rows)


SCENARIOS = {
    found.__name__: found
    for found in (
        typed,
        typed_more,
        ordered,
        doubled,
        boundaries,
        empty,
        silent_at_first,
        odd_names,
        expressions,
        cases,
        at_the_same_moment,
        alone,
        unconnected,
    )
}


def source_rows(name: str, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows as the scenario's source has them."""
    if name == "odd_names":
        own = {"h": "h", "rows": "r"}
        return [
            {"I d": row["id"], "e.t": row["ts"], "we ird": row["x"], "a.b": row["text"], "tick`ed": row["id"], "hi": row["hi"], **own} for row in rows
        ]
    if name == "expressions":
        return [
            {"id": row["id"], "ts": row["ts"].replace(tzinfo=None), "s": {"In": {"x": row["x"]}}, "m": {"month": row["month"]}}
            | {"js": '{"x": ' + ("null" if row["x"] is None else str(row["x"])) + "}", "l": [row["month"]]}
            for row in rows
        ]
    if name == "cases":
        return [{"id": row["id"], "ts": row["ts"], "low": row["k"], "high": row["K"]} for row in rows]
    if name == "unconnected":
        return [{"id": row["id"], "ts": row["ts"]} | ({"key": row["Key"]} if "Key" in row else {}) for row in rows]
    return [{key: plain(value) for key, value in row.items()} for row in rows]


def bindings(scenario: Scenario, folder: Path, out: Path) -> Bindings:
    document = {
        "streams": {
            name: {
                "source": {"format": "json", "options": {"path": str(folder / name), "maxFilesPerTrigger": "1"}, "schema": schema},
                "event_time": scenario.event_time,
                "watermark": "10 seconds",
                "columns": dict(scenario.columns.get(name, {})),
            }
            for name, schema in scenario.schemas.items()
        },
        "select": list(scenario.select),
        "sink": {"format": "json", "options": {"path": str(out / "out"), "ignoreNullFields": "false"}},
        "checkpoint": str(out / "checkpoint"),
        "trigger": {"available_now": True},
        "spark": NO_LAST_BATCH | dict(scenario.spark),
    }
    return Bindings.model_validate(document)


@pytest.fixture(scope="module")
def lines(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """What every scenario wrote, by scenario and engine."""
    folders: dict[tuple[str, str], Path] = {}
    waiting = []
    for name, make in SCENARIOS.items():
        scenario, folder = make(), tmp_path_factory.mktemp(name)
        for stream, rows in scenario.rows.items():
            write_stream(folder / stream, source_rows(name, rows), scenario.files if rows else 0)
        waiting += [(name, engine, scenario, folder) for engine in ENGINES]
    jobs = []
    for name, engine, scenario, folder in waiting:
        folders[name, engine] = folder / engine
        bound = bindings(scenario, folder, folder / engine)
        jobs.append(Job(make_plan(scenario.query, scenario.shape), folder, scenario.cells if engine == "stem" else None, engine, bindings=bound))
    run_all(spark, jobs)
    return {key: written(folder) for key, folder in folders.items()}


@pytest.mark.parametrize(("name", "engine"), list(itertools.product(SCENARIOS, ENGINES)))
def test_the_rows_are_those_of_the_definition(lines: dict[tuple[str, str], list[dict[str, Any]]], name: str, engine: str) -> None:
    scenario = SCENARIOS[name]()
    expected = scenario.expected()
    assert bool(expected) == (name != "empty")
    names = [stream.name for stream in scenario.query.streams]
    found = [tuple(line.values()) if scenario.select else tuple(line[stream]["id"] for stream in names) for line in lines[name, engine]]
    assert Counter(map(repr, found)) == expected


def test_the_end_of_a_window_belongs_to_it() -> None:
    """What the boundaries above rest on, by hand: b was there half a second when a came; a microsecond more is too late."""
    found = boundaries().expected()
    assert "(1, 0, 0)" in found and "(2, 0, 0)" not in found


def test_what_no_key_can_be_is_refused_with_one_message(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
    for name in "ab":
        (tmp_path / name).mkdir()
    for kind in ("ARRAY<INT>", "STRUCT<y: INT>", "MAP<STRING, INT>"):
        scenario = Scenario(query, dict.fromkeys("ab", f"id BIGINT, ts TIMESTAMP, x {kind}"), {})
        with pytest.raises(
            BindingError, match=r"predicate 0, a.x = b.x, compares .*, which has no such comparison; name a part of it under columns"
        ) as raised:
            spark_adapter.compile(make_plan(query, ["a", "b"]), bindings(scenario, tmp_path, tmp_path), spark)
        assert len(raised.value.faults) == 1

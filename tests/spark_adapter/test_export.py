"""The exported script runs by itself and gives the rows of the definition."""

from __future__ import annotations

import ast
import json
import runpy
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from models.bindings import Bindings
from spark_adapter.errors import BindingError, EngineError
from spark_adapter.export import export
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream

QUERY = make_query({"a": 6, "b": 4, "c": 3}, ["a.k = b.k", "b.n < c.n"])
PLAN = make_plan(QUERY, [["a", "b"], "c"])
HOSTILE = '\'""" + __import__(\'os\').abort() + "\\\n'


@pytest.mark.spark
def test_the_script_gives_the_rows_of_a_nested_loop(spark: SparkSession, tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {
        name: [{"id": k, "ts": moment(k * step), "k": k % 3, "n": k % 5} for k in range(30)] for name, step in [("a", 0.7), ("b", 0.9), ("c", 1.1)]
    }
    for name, listed in rows.items():
        write_stream(tmp_path / name, [{"we ird": row["k"], **row} for row in listed], 2)
    schema = "id BIGINT, ts TIMESTAMP, `we ird` BIGINT, k BIGINT, n BIGINT"
    document = bindings_of(tmp_path, dict.fromkeys(rows, schema)).model_dump(mode="json", by_alias=True)
    document["streams"]["a"]["columns"] = {"k": "we ird"}
    document["streams"]["b"]["columns"] = {"k": "k + 0"}
    document["select"] = ["a.id AS a", "b.id AS b", "c.id AS c"]
    script = tmp_path / "pipeline.py"
    script.write_text(export(PLAN, type(bindings_of(tmp_path, {"a": ""})).model_validate(document)))
    runpy.run_path(str(script))
    lines = [line for path in (tmp_path / "out").glob("*.json") for line in path.read_text().splitlines()]
    found = Counter((result["a"], result["b"], result["c"]) for result in map(json.loads, lines))
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, rows))
    assert expected
    assert found == expected


def test_the_script_needs_pyspark_alone(tmp_path: Path) -> None:
    tree = ast.parse(export(PLAN, bindings_of(tmp_path, dict.fromkeys("abc", "ts TIMESTAMP"))))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"pyspark.sql"}
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))


def test_no_text_of_a_binding_becomes_code(tmp_path: Path) -> None:
    document = bindings_of(tmp_path, dict.fromkeys("abc", HOSTILE), watermark=HOSTILE).model_dump(mode="json", by_alias=True)
    for binding in document["streams"].values():
        binding["event_time"] = HOSTILE
        binding["source"] = {"format": HOSTILE, "options": {HOSTILE: HOSTILE}, "schema": HOSTILE}
    document["streams"]["a"]["columns"] = {"k": HOSTILE}
    document |= {"select": [HOSTILE], "sink": {"format": HOSTILE, "options": {HOSTILE: HOSTILE}}, "checkpoint": HOSTILE, "spark": {HOSTILE: HOSTILE}}
    document["trigger"] = {"processing_time": HOSTILE}
    plan = PLAN.model_dump(mode="json")
    plan["operators"][0]["id"] = plan["operators"][1]["inputs"][0] = HOSTILE
    script = export(type(PLAN).model_validate(plan), type(bindings_of(tmp_path, {"a": ""})).model_validate(document))
    assert "abort" in script
    nodes = list(ast.walk(ast.parse(script)))
    assert "__import__" not in {node.id for node in nodes if isinstance(node, ast.Name)}
    assert "abort" not in {node.attr for node in nodes if isinstance(node, ast.Attribute)}


def test_a_multi_way_join_is_not_exported(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="join-1 is an mjoin of a, b, c"):
        export(make_plan(QUERY, ["a", "b", "c"]), bindings_of(tmp_path, dict.fromkeys("abc", "ts TIMESTAMP")))


def test_a_stream_without_a_binding_is_named(tmp_path: Path) -> None:
    with pytest.raises(BindingError, match="there is no binding for b, c"):
        export(PLAN, bindings_of(tmp_path, {"a": "ts TIMESTAMP"}))


def test_topics_that_we_decode_are_not_exported(tmp_path: Path) -> None:
    document = bindings_of(tmp_path, dict.fromkeys("abc", "ts TIMESTAMP")).model_dump(mode="json", by_alias=True)
    value = {"format": "json", "schema": "k BIGINT, n BIGINT"}
    document["streams"]["a"]["source"] = {"format": "kafka", "topic": "a", "servers": "localhost:9092", "value": value}
    with pytest.raises(BindingError, match=r"^/streams/a/source/value: a script has no records decoded or made for it"):
        export(PLAN, Bindings.model_validate(document))
    del document["streams"]["a"]["source"]["value"]
    document["streams"]["a"]["event_time"] = None
    script = export(PLAN, Bindings.model_validate(document))
    assert "options(**{'subscribe': 'a', 'kafka.bootstrap.servers': 'localhost:9092'})" in script
    assert "column(a_stream, 'timestamp')" in script

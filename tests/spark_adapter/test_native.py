"""Engine native gives the rows of the definition, each once, whatever the shape of graph and tree."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from models.plan import Plan
from models.request import Query
from spark_adapter.errors import EngineError
from spark_adapter.native import check_native, native
from spark_adapter.sources import read_streams
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import Shape, bindings_of, make_plan, make_query, moment, write_stream
from tests.spark_adapter.runs import SCHEMA, generated, true_ids

pytestmark = pytest.mark.spark


def run(spark: SparkSession, plan: Plan, folder: Path, rows: Mapping[str, Sequence[Row]], files: int = 2, **more: Any) -> list[dict[str, Any]]:
    """What the pipeline writes, over files that become one batch each."""
    for name, listed in rows.items():
        write_stream(folder / name, listed, files)
    bindings = bindings_of(folder, dict.fromkeys(rows, SCHEMA), **more)
    results = native(plan, bindings, read_streams(plan, bindings, spark))
    query = results.writeStream.format("json").option("path", str(folder / "out")).option("checkpointLocation", bindings.checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()
    return [json.loads(line) for path in sorted((folder / "out").glob("*.json")) for line in path.read_text().splitlines()]


def ids(query: Query, results: Sequence[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    return Counter(tuple(result[stream.name]["id"] for stream in query.streams) for result in results)


@pytest.mark.parametrize(
    ("query", "shape"),
    [
        pytest.param(
            make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]),
            [["a", "b"], ["c", "d"]],
            id="chain of 4, bushy",
        ),
        pytest.param(
            make_query({"hub": 4, "p": 9, "q": 2, "r": 6}, ["hub.x = p.x", "hub.y = q.y", "r.z = hub.z"]),
            ["r", [["p", "hub"], "q"]],
            id="star of 4, right-deep",
        ),
        pytest.param(
            make_query({"a": 6, "b": 4, "c": 10}, ["a.x = b.x", "b.y = c.y", "c.z = a.z"]),
            [["a", "c"], "b"],
            id="cycle of 3",
        ),
        pytest.param(
            make_query({"a": 6, "b": 2, "c": 3}, ["a.x = b.x", "b.y < c.y", "a.z != c.z"]),
            [["a", "b"], "c"],
            id="theta: the second join has no equality",
        ),
        pytest.param(make_query({"a": 1, "b": 2}, []), ["a", "b"], id="cross product"),
        pytest.param(make_query({"a": 1}, []), "a", id="one stream"),
    ],
)
def test_rows_are_those_of_a_nested_loop(spark: SparkSession, tmp_path: Path, query: Query, shape: Shape) -> None:
    rows = generated(query, 60, seed=1)
    expected = true_ids(query, rows)
    assert expected, "the case must have results, or it shows nothing"
    assert ids(query, run(spark, make_plan(query, shape), tmp_path, rows)) == expected


def test_rows_out_of_order_within_the_watermark_are_all_joined(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"a": 6, "b": 4, "c": 10}, ["a.x = b.x", "b.y = c.y"])
    rows = generated(query, 80, seed=2, disorder=5.0)
    assert ids(query, run(spark, make_plan(query, [["a", "b"], "c"]), tmp_path, rows, files=3, watermark="5 seconds")) == true_ids(query, rows)


def test_a_self_join_is_the_same_source_under_two_names(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"first": 5, "second": 5}, ["first.x = second.x", "first.id < second.id"])
    listed = generated(query, 80, seed=3)["first"]
    rows = {"first": listed, "second": listed}
    write_stream(tmp_path / "shared", listed, 3)
    bindings = bindings_of(tmp_path, dict.fromkeys(rows, SCHEMA))
    document = bindings.model_dump(mode="json", by_alias=True)
    for binding in document["streams"].values():
        binding["source"]["options"]["path"] = str(tmp_path / "shared")
    bindings = type(bindings).model_validate(document)
    plan = make_plan(query, ["first", "second"])
    results = native(plan, bindings, read_streams(plan, bindings, spark))
    started = results.writeStream.format("memory").queryName("self_join").option("checkpointLocation", bindings.checkpoint)
    started.trigger(availableNow=True).start().awaitTermination()
    found = [result.asDict(recursive=True) for result in spark.table("self_join").collect()]
    assert ids(query, found) == true_ids(query, rows)


def test_window_ends_belong_to_the_window(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"a": 0.5, "b": 0.25}, ["a.x = b.x"])
    at = [0.0, 0.25, 0.250001, 0.5, 0.500001]
    rows: dict[str, list[Row]] = {
        "a": [{"id": k, "ts": moment(10 + t), "x": 0, "y": 0, "z": 0} for k, t in enumerate(at)],
        "b": [{"id": 0, "ts": moment(10), "x": 0, "y": 0, "z": 0}, {"id": 1, "ts": moment(10.5), "x": 0, "y": 0, "z": 0}],
    }
    # b was there 0.25 s when a came, or a 0.5 s when b came; a microsecond more is too late.
    expected = Counter({(0, 0): 1, (1, 0): 1, (0, 1): 1, (1, 1): 1, (2, 1): 1, (3, 1): 1, (4, 1): 1})
    assert true_ids(query, rows) == expected
    assert ids(query, run(spark, make_plan(query, ["a", "b"]), tmp_path, rows, files=1)) == expected


def test_state_is_evicted_when_the_watermark_passes(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"a": 2, "b": 1, "c": 3}, ["a.x = b.x", "b.y = c.y"])
    rows = generated(query, 300, seed=4)
    plan = make_plan(query, [["a", "b"], "c"])
    for name, listed in rows.items():
        write_stream(tmp_path / name, listed, 3)
    bindings = bindings_of(tmp_path, dict.fromkeys(rows, SCHEMA))
    results = native(plan, bindings, read_streams(plan, bindings, spark))
    writer = results.writeStream.format("memory").queryName("evicted").option("checkpointLocation", bindings.checkpoint)
    started = writer.trigger(availableNow=True).start()
    started.awaitTermination()
    last = started.lastProgress
    assert last is not None
    kept = sum(operator.numRowsTotal for operator in last.stateOperators)
    first_join = make_query({"a": 2, "b": 1}, ["a.x = b.x"])
    everything = 900 + len(nested_loop(first_join, rows))
    assert 0 < kept < everything / 4


def test_a_multi_way_join_is_refused_by_name() -> None:
    query = make_query({"a": 1, "b": 1, "c": 1}, ["a.x = b.x", "b.x = c.x"])
    with pytest.raises(EngineError, match=r"/operators/0: join-1 is an mjoin of a, b, c; engine native joins two inputs at a time"):
        check_native(make_plan(query, ["a", "b", "c"]))


def test_a_row_window_is_refused_by_name() -> None:
    query = make_query({"a": 1, "b": 1}, ["a.x = b.x"])
    document = query.model_dump(mode="json")
    document["streams"][1]["window"] = {"rows": 100}
    with pytest.raises(EngineError, match=r"/query/streams/1/window: b has a window of 100 rows"):
        check_native(make_plan(Query.model_validate(document), ["a", "b"]))

"""Engine native gives the rows of the definition, each once, whatever the shape of graph and tree."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from models.request import Query
from spark_adapter.errors import EngineError
from spark_adapter.native import check_native, native
from spark_adapter.sources import read_inputs
from tests.spark_adapter.nested_loop import nested_loop
from tests.spark_adapter.plans import Shape, bindings_of, make_plan, make_query, write_stream
from tests.spark_adapter.runs import NO_LAST_BATCH, SCHEMA, Job, generated, ids, run_all, true_ids, write

pytestmark = pytest.mark.spark


SHAPES: dict[str, tuple[Query, Shape]] = {
    "bushy": (make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]), [["a", "b"], ["c", "d"]]),
    "right-deep": (make_query({"hub": 4, "p": 9, "q": 2, "r": 6}, ["hub.x = p.x", "hub.y = q.y", "r.z = hub.z"]), ["r", [["p", "hub"], "q"]]),
    "no equality": (make_query({"a": 6, "b": 2, "c": 3}, ["a.x = b.x", "b.y < c.y", "a.z != c.z"]), [["a", "b"], "c"]),
}


def test_trees_of_every_shape_give_the_rows_of_a_nested_loop(spark: SparkSession, tmp_path: Path) -> None:
    """Out of order, within the watermark. Graphs, keys and windows of all kinds are tried on both engines elsewhere."""
    jobs, expected = {}, {}
    for title, (query, shape) in SHAPES.items():
        rows = generated(query, 60, seed=1, disorder=3.0)
        write(tmp_path / title, rows)
        expected[title] = true_ids(query, rows)
        jobs[title] = Job(make_plan(query, shape), tmp_path / title, engine="native", more={"watermark": "4 seconds", "spark": NO_LAST_BATCH})
    run_all(spark, list(jobs.values()))
    for title, (query, _) in SHAPES.items():
        assert expected[title], "the case must have results, or it shows nothing"
        assert ids(query, tmp_path / title) == expected[title], title


def test_state_is_evicted_when_the_watermark_passes(spark: SparkSession, tmp_path: Path) -> None:
    query = make_query({"a": 2, "b": 1, "c": 3}, ["a.x = b.x", "b.y = c.y"])
    rows = generated(query, 300, seed=4)
    plan = make_plan(query, [["a", "b"], "c"])
    for name, listed in rows.items():
        write_stream(tmp_path / name, listed, 3)
    bindings = bindings_of(tmp_path, dict.fromkeys(rows, SCHEMA))
    results = native(plan, bindings, read_inputs(plan, bindings, spark).streams)
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
        check_native(make_plan(query, ["a", "b", "c"]), bindings_of(Path("nowhere"), dict.fromkeys("abc", SCHEMA)))


def test_a_row_window_is_refused_by_name() -> None:
    query = make_query({"a": 1, "b": 1}, ["a.x = b.x"])
    document = query.model_dump(mode="json")
    document["streams"][1]["window"] = {"rows": 100}
    with pytest.raises(EngineError, match=r"/query/streams/1/window: b has a window of 100 rows"):
        check_native(make_plan(Query.model_validate(document), ["a", "b"]), bindings_of(Path("nowhere"), dict.fromkeys("ab", SCHEMA)))

"""A running pipeline changes its plan on Spark: between two batches, without a restart, and its decisions say what is in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Routing
from models.plan import Plan
from spark_adapter.control import CONTROL, Control, kind_of, without_control
from spark_adapter.decisions import DECISIONS, Decision, read_decisions
from spark_adapter.errors import AdapterError, BindingError, ChangeError, PlanError, SheddingError
from spark_adapter.pipeline import PLAN_FILE, Pipeline
from spark_adapter.stem.programming import program_of
from tests.spark_adapter.cells import reordered, with_caches, with_shares
from tests.spark_adapter.plans import bindings_of, make_plan, make_query
from tests.spark_adapter.runs import NO_LAST_BATCH, SCHEMA, generated, ids, true_ids, write_batch

QUERY = make_query({"a": 8, "b": 6, "c": 9}, ["a.x = b.x", "b.y = c.y"])
FLAT = make_plan(QUERY, ["a", "b", "c"])
LEFT = make_plan(QUERY, [["a", "b"], "c"])
RIGHT = make_plan(QUERY, ["a", ["b", "c"]])
ORDERS = reordered(FLAT, {("join-1", "b"): (1, 0)}).model_copy(update={"fingerprint": "orders"})
CACHED = with_caches(FLAT, [("join-1", "c", 0, 1, "prefix", 1e6)]).model_copy(update={"fingerprint": "cached"})


def started(spark: SparkSession, folder: Path, plan: Plan, **more: Any) -> Pipeline:
    schemas = {stream.name: SCHEMA for stream in plan.query.streams}
    bindings = bindings_of(folder, schemas, **{"watermark": "3 seconds", "trigger": {}, "spark": NO_LAST_BATCH} | more)
    return spark_adapter.compile(plan, bindings, spark, cells=2).start()


def worked_off(pipeline: Pipeline) -> None:
    pipeline._running().processAllAvailable()


def decisions(folder: Path) -> list[Decision]:
    return read_decisions((folder / "checkpoint" / DECISIONS).read_text())


@pytest.mark.spark
def test_a_running_pipeline_changes_its_plan_and_goes_on_with_it_after_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    rows = generated(QUERY, 60, seed=5, values=4)
    write_batch(tmp_path, rows, 0, 6)
    pipeline = started(spark, tmp_path, FLAT)
    worked_off(pipeline)
    assert pipeline.plan == FLAT
    with pytest.raises(PlanError, match="format"):
        pipeline.change({"format": "something"})
    assert pipeline.change(LEFT, gain=0.25, reasons=["It is cheaper."]) == 2
    assert pipeline.changing
    write_batch(tmp_path, rows, 1, 6)
    worked_off(pipeline)
    pipeline.keep(gain=0.0, reasons=["Nothing moved."])
    pipeline.change(CACHED.model_dump(mode="json", by_alias=True), kind="caches")
    write_batch(tmp_path, rows, 2, 6)
    worked_off(pipeline)
    assert pipeline.progress.rows == 90, "plans are no rows"
    assert pipeline.plan == CACHED and not pipeline.changing
    assert json.loads((tmp_path / "checkpoint" / PLAN_FILE).read_text())["fingerprint"] == "cached"
    pipeline.stop()
    found = decisions(tmp_path)
    assert [(line.decision, line.kind, line.gain, line.number) for line in found] == [
        ("start", "none", None, 1),
        ("change", "tree", 0.25, 2),
        ("keep", "none", 0.0, 2),
        ("change", "caches", None, 3),
    ]
    assert [line.fingerprint for line in found] == [FLAT.fingerprint, LEFT.fingerprint, LEFT.fingerprint, "cached"]
    assert [line.batch for line in found] == sorted(line.batch for line in found)
    assert found[1].reasons == ("It is cheaper.",)
    assert found[1].plan is not None and Plan.model_validate(found[1].plan) == LEFT

    # The same start again: what is in force goes on. A line that a crash has kept from being written is written now.
    path = tmp_path / "checkpoint" / DECISIONS
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:3]) + '{"batch": 3, "times')
    pipeline = started(spark, tmp_path, FLAT)
    assert pipeline.plan == CACHED
    assert decisions(tmp_path) == found
    write_batch(tmp_path, rows, 3, 6)
    worked_off(pipeline)
    pipeline.stop()
    assert decisions(tmp_path) == found

    # A start with another plan takes over.
    pipeline = started(spark, tmp_path, RIGHT, routing="adaptive")
    write_batch(tmp_path, rows, 4, 6)
    worked_off(pipeline)
    pipeline.change(ORDERS)
    write_batch(tmp_path, rows, 5, 6)
    worked_off(pipeline)
    pipeline.stop()
    assert [(line.decision, line.kind, line.fingerprint, line.number) for line in decisions(tmp_path)[4:]] == [
        ("change", "tree", RIGHT.fingerprint, 4),
        ("change", "tree", "orders", 5),
    ]
    assert ids(QUERY, tmp_path) == true_ids(QUERY, rows)
    figures = [json.loads(line) for line in (tmp_path / "checkpoint" / "statistics.jsonl").read_text().splitlines()]
    # Whose way was taken: that of the plan before, for as long as a subresult was built.
    ways = [line["fingerprint"] for line in figures]
    assert (ways[0], ways[-1]) == (FLAT.fingerprint, "orders")
    assert "cached" in ways


@pytest.mark.spark
def test_a_change_that_is_refused_leaves_nothing_behind(spark: SparkSession, tmp_path: Path) -> None:
    rows = generated(QUERY, 12, seed=5)
    write_batch(tmp_path, rows, 0, 1)
    longer = make_plan(make_query({"a": 8, "b": 60, "c": 9}, ["a.x = b.x", "b.y = c.y"]), ["a", "b", "c"])
    other = make_plan(make_query({"a": 8, "b": 6, "c": 9}, ["a.x = b.x", "b.y < c.y"]), ["a", "b", "c"])
    fewer = make_plan(make_query({"a": 8, "b": 6}, ["a.x = b.x"]), ["a", "b"])
    broken = FLAT.model_copy(update={"operators": [FLAT.operators[0].model_copy(update={"inputs": ["a", "b", "b"]})]})
    pipeline = started(spark, tmp_path, FLAT)
    for plan, error, reason in [
        (longer, ChangeError, "the window of b was 6.0 seconds, now 60.0 seconds"),
        (other, ChangeError, "its predicates were .*b.y = c.y, now .*b.y < c.y"),
        (fewer, ChangeError, "the pipeline joins a, b, c, this plan a, b"),
        (broken, PlanError, "joins 'b'.*already"),
        (with_shares(FLAT, {("join-1", "a", 0): 0.5}), SheddingError, "would shed load"),
    ]:
        with pytest.raises(error, match=reason):
            pipeline.change(plan)
    worked_off(pipeline)
    pipeline.stop()
    with pytest.raises(ChangeError, match="has ended"):
        pipeline.change(LEFT)
    with pytest.raises(ChangeError, match="available_now"):
        started(spark, tmp_path, FLAT, trigger={"available_now": True}).change(LEFT)
    schemas = dict.fromkeys("abc", SCHEMA)
    with pytest.raises(AdapterError, match="was not started"):
        spark_adapter.compile(FLAT, bindings_of(tmp_path, schemas, trigger={}), spark, cells=2).change(LEFT)
    own = bindings_of(tmp_path, schemas, checkpoint=str(tmp_path / "native"), sink={"format": "noop"}, trigger={})
    with pytest.raises(ChangeError, match="engine native cannot"):
        spark_adapter.compile(LEFT, own, spark, "native").change(FLAT)
    with pytest.raises(BindingError, match="for routing: adaptive use engine stem"):
        spark_adapter.compile(LEFT, own.model_copy(update={"routing": Routing.ADAPTIVE}), spark, "native")
    assert [path.name for path in sorted((tmp_path / "checkpoint" / CONTROL).iterdir()) if not path.name.startswith(".")] == ["00000001.json"]
    assert [(line.decision, line.batch) for line in decisions(tmp_path)] == [("start", 0)]


@pytest.mark.spark
def test_spark_s_logs_say_which_batch_reads_which_change(spark: SparkSession, tmp_path: Path) -> None:
    """Logs as Spark writes them, compacted ones too: change 3 was found together with 4, and 5 is in no batch yet."""
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "sources" / "0").mkdir(parents=True)
    (checkpoint / "offsets").mkdir()

    def entry(number: int, place: int) -> str:
        return json.dumps({"path": f"file:///here/control/{number:08}.json", "timestamp": 1, "batchId": place})

    (checkpoint / "sources" / "0" / "1.compact").write_text("\n".join(["v1", entry(1, 0), entry(2, 1)]))
    (checkpoint / "sources" / "0" / "2").write_text("\n".join(["v1", entry(3, 2), entry(4, 2)]))
    (checkpoint / "sources" / "0" / "3").write_text("\n".join(["v1", entry(5, 3)]))
    for batch, place in enumerate([0, 0, 1, 1, 2]):
        (checkpoint / "offsets" / str(batch)).write_text("\n".join(["v1", "{}", json.dumps({"logOffset": place}), "-"]))
    control = Control(spark, str(checkpoint))
    assert control.batches(0) == {1: 0, 2: 2, 3: 4, 4: 4}
    assert control.batches(2) == {3: 4, 4: 4}
    assert control.batches(4) == {}


def test_the_kind_of_a_change_is_the_largest_thing_that_differs() -> None:
    def kind(before: Plan, after: Plan) -> str:
        programs = [program_of(plan, dict.fromkeys("abc", 1)) for plan in (before, after)]
        return kind_of(*programs)

    shed = with_shares(CACHED, {("join-1", "a", 0): 0.5})
    assert kind(FLAT, FLAT.model_copy(update={"explanation": ["dearer"]})) == "none"
    assert kind(FLAT, ORDERS) == "orders"
    assert kind(ORDERS, CACHED) == "caches"
    assert kind(CACHED, with_caches(FLAT, [("join-1", "c", 0, 1, "prefix", 2e6)])) == "caches"
    assert kind(ORDERS, shed) == "allocation"
    assert kind(shed, LEFT) == "tree"
    assert kind(LEFT, RIGHT) == "tree"


def test_a_report_without_the_control_stream_counts_rows_alone() -> None:
    report = {"numInputRows": 12, "sources": [{"numInputRows": 2}, {"numInputRows": 7}, {"numInputRows": 3}], "batchId": 4}
    assert without_control(report) == {"numInputRows": 10, "sources": [{"numInputRows": 7}, {"numInputRows": 3}], "batchId": 4}

"""Engine stem on Spark gives the rows of the definition, each once."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark import SparkFiles
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from models.request import Query
from spark_adapter.errors import AdapterError, CheckpointError, EngineError, PlanError
from spark_adapter.pipeline import Pipeline
from tests.spark_adapter import runs
from tests.spark_adapter.cells import SECOND, Case, cases, with_caches
from tests.spark_adapter.nested_loop import Row
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment
from tests.spark_adapter.runs import SCHEMA, Job, generated, ids, tried, true_ids, write, written

pytestmark = pytest.mark.spark

CHAIN = make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"])
QUICK = make_query({"s0": 1, "s1": 2, "s2": 1}, ["s0.x = s1.x", "s1.y = s2.y"])
CYCLE = make_query({"a": 6, "b": 4, "c": 10}, ["a.x = b.x", "b.y = c.y", "c.z = a.z"])


def run(spark: SparkSession, plan: Plan, folder: Path, cells: int | None = None, **more: Any) -> Pipeline:
    return runs.run(spark, Job(plan, folder, cells, more=more))


def test_the_result_has_the_columns_of_select_and_late_rows_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    """The same source twice under two names: pairs of rows with the same x, within 5 seconds."""
    query = make_query({"one": 5, "two": 5}, ["one.x = two.x", "one.id < two.id"])
    rows: list[Row] = [{"id": k, "ts": moment(k), "x": k % 2, "y": 0, "z": 0} for k in range(20)]
    late: list[Row] = [{"id": 99, "ts": moment(1), "x": 0, "y": 0, "z": 0}]
    write(tmp_path, {"both": [*rows, *late, {"id": 100, "ts": moment(100), "x": 5, "y": 0, "z": 0}]}, files=2)
    source = {"format": "json", "options": {"path": str(tmp_path / "both"), "maxFilesPerTrigger": "1"}, "schema": SCHEMA}
    stream = {"source": source, "event_time": "ts"}
    more = {"streams": {"one": stream, "two": stream}, "select": ["one.id AS first", "two.id - one.id AS apart"]}
    pipeline = run(spark, make_plan(query, ["one", "two"]), tmp_path, cells=2, **more)
    expected = Counter((k, k + d) for k in range(20) for d in (2, 4) if k + d < 20)
    assert Counter((line["first"], line["first"] + line["apart"]) for line in written(tmp_path)) == expected
    assert all(list(line) == ["first", "apart"] for line in written(tmp_path))
    progress = pipeline.progress
    assert (progress.running, progress.late, progress.results) == (False, 2, expected.total())
    figures = [json.loads(line) for line in (tmp_path / "checkpoint" / "statistics.jsonl").read_text().splitlines()]
    assert sum(stream["rows"] for line in figures for stream in line["streams"]) == 42
    assert sum(line["results"] for line in figures) == expected.total()


def test_idle_cells_let_go_of_dead_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Many keys first, then time goes on with a single key: the cells that it does not reach are emptied by their timers."""
    query = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
    early: list[Row] = [{"id": k, "ts": moment(k / 10), "x": k, "y": 0, "z": 0} for k in range(40)]
    lone: list[Row] = [{"id": 40 + k, "ts": moment(1000 + k * 100), "x": 1, "y": 0, "z": 0} for k in range(80)]
    write(tmp_path, {"a": early + lone, "b": early + lone}, files=3)
    pipeline = run(spark, make_plan(query, ["a", "b"]), tmp_path, cells=4)
    assert ids(query, tmp_path) == Counter((k, k) for k in range(120))
    states = {state["state"]: state["rows"] for state in pipeline.progress.statistics["states"]}
    assert states == {"a": 1, "b": 1}


def test_copies_of_states_may_vanish_at_any_time_and_are_gone_at_the_end(spark: SparkSession, tmp_path: Path) -> None:
    """Batch by batch: where workers do not find what they have put aside, Spark's own store has it."""
    rows = generated(CHAIN, 60, seed=3)
    write(tmp_path, rows, files=6)
    root = Path(SparkFiles.getRootDirectory())
    before = set(root.glob("watersmeet-*"))
    pipeline = runs.started(spark, Job(make_plan(CHAIN, [["a", "b"], "c", "d"]), tmp_path, 2, more={"watermark": "3 seconds"}))
    found: set[str] = set()
    while not pipeline.await_termination(0.1):
        for copies in root.glob("watersmeet-*/*/*"):
            found.add(copies.name)
            if len(found) % 2:
                copies.unlink(missing_ok=True)
    assert ids(CHAIN, tmp_path) == true_ids(CHAIN, rows)
    assert found
    assert pipeline.progress.statistics["workers"]["restored"] > 0
    assert set(root.glob("watersmeet-*")) <= before


def test_states_are_read_from_copies_as_long_as_these_are_there(spark: SparkSession, tmp_path: Path) -> None:
    rows = generated(CHAIN, 60, seed=3)
    write(tmp_path, rows, files=6)
    pipeline = run(spark, make_plan(CHAIN, [["a", "b"], "c", "d"]), tmp_path, 2, watermark="3 seconds")
    assert ids(CHAIN, tmp_path) == true_ids(CHAIN, rows)
    workers = pipeline.progress.statistics["workers"]
    assert workers["restored"] == 0
    assert 1 <= workers["processes"] <= 2
    assert workers["memory_bytes"] > 20_000_000, "an interpreter with polars in it"


@settings(
    max_examples=2,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large, HealthCheck.too_slow],
)
@given(several=st.lists(st.booleans().flatmap(lambda counted: cases(counted)), min_size=8, max_size=8))
def test_random_plans_over_random_data_give_the_rows_of_the_definition(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, several: list[Case]
) -> None:
    """Eight plans an example: side by side they take less time than one after the other."""
    trials = tried(spark, tmp_path_factory.mktemp("random"), several)
    assert [str(trial) for trial in trials if not trial.right] == []


LATE = Case(
    make_plan(QUICK, [["s0", "s1"], "s2"]),
    [
        (
            {
                name: [{"id": 10 * n + k, "ts": (8 * n + 24 - 6 * k) * SECOND // 4, "x": k % 2, "y": 0} for k in range(5)]
                for name in ("s0", "s1", "s2")
            },
            -1,
        )
        for n in range(1, 6)
    ],
    2,
    {"s0": 0, "s1": 250, "s2": 1000},
)


def test_the_trials_of_random_plans_see_late_rows_and_states_that_let_go(spark: SparkSession, tmp_path: Path) -> None:
    """Every batch reaches six seconds back behind a watermark of a second: what a random case does by chance."""
    (trial,) = tried(spark, tmp_path, [LATE])
    assert trial.right, str(trial)
    assert trial.found
    assert trial.expected_late > 10
    assert trial.held < trial.arrived - trial.late - 10


def test_another_plan_goes_on_with_a_checkpoint_and_another_query_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = generated(CHAIN, 60, seed=7)
    half = {name: listed[:30] for name, listed in rows.items()}
    write(tmp_path, half, files=2)
    run(spark, make_plan(CHAIN, ["a", "b", "c", "d"]), tmp_path, cells=2, watermark="3 seconds")
    for name, listed in rows.items():
        path = tmp_path / name / "later.json"
        lines = [json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n" for row in listed[30:]]
        path.write_text("".join(lines))
    cached = with_caches(make_plan(CHAIN, [["a", "b"], "c", "d"]), [("join-2", "c", 0, 0, "prefix", 1e6)])
    run(spark, cached, tmp_path, cells=4, watermark="3 seconds")
    assert ids(CHAIN, tmp_path) == true_ids(CHAIN, rows)

    def compiled(query: Query, engine: str = "stem") -> None:
        schemas = {stream.name: SCHEMA for stream in query.streams}
        spark_adapter.compile(make_plan(query, [[["a", "b"], "c"], "d"]), bindings_of(tmp_path, schemas), spark, engine)

    longer = make_query({"a": 9, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"])
    with pytest.raises(CheckpointError, match=r"the window of a was 8.0 seconds, now 9.0 seconds"):
        compiled(longer)
    other = make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z < d.z"])
    with pytest.raises(CheckpointError, match=r"its predicates were .*c.z = d.z, now .*c.z < d.z"):
        compiled(other)
    with pytest.raises(CheckpointError, match="made by engine stem, not native"):
        compiled(CHAIN, "native")
    manifest = tmp_path / "checkpoint" / "watersmeet.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"format": "watersmeet.checkpoint/5"}))
    with pytest.raises(CheckpointError, match=r"another version of watersmeet: its format is watersmeet.checkpoint/5, .* a new folder"):
        compiled(CHAIN)


def test_a_checkpoint_is_refused_where_its_rows_would_mean_something_else(spark: SparkSession, tmp_path: Path) -> None:
    """Everything that decides what is in a state: changed in turn, each is named with what it was and is."""
    query = make_query({"a": 5, "b": 5}, ["a.k = b.k"])
    plan = make_plan(query, ["a", "b"])
    schema = "id BIGINT, ts TIMESTAMP, other TIMESTAMP, x STRING"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text(json.dumps({"id": 1, "ts": "2026-01-01T00:00:01Z", "x": "K"}) + "\n")
    same = bindings_of(tmp_path, dict.fromkeys("ab", schema), select=["a.id AS first", "b.id AS second"]).model_dump(mode="json", by_alias=True)
    for stream in same["streams"].values():
        stream["columns"] = {"k": "lower(x)"}

    def changed(**parts: Any) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(json.dumps(same))
        source = document["streams"]["a"]["source"]
        source["options"] |= parts.pop("options", {})
        source |= parts.pop("source", {})
        document |= parts.pop("top", {})
        document["streams"]["a"] |= parts
        return document

    differing = {
        r"the expression of k of a was lower\(x\), now upper\(x\)": changed(columns={"k": "upper(x)"}),
        "the event time of a was ts, now other": changed(event_time="other"),
        "the option timestampFormat of a was none, now yyyy": changed(options={"timestampFormat": "yyyy"}),
        "the source of a was json, now csv": changed(source={"format": "csv"}),
        "the source columns of a were .*x:string>, now .*x:bigint>": changed(source={"schema": schema.replace("x STRING", "x BIGINT")}),
        "the columns of a were .*, now .*row:struct<id:bigint,x:string>": changed(top={"select": ["a.id", "a.x", "b.id AS second"]}),
        "its time zone was UTC, now Asia/Tokyo": changed(top={"spark": {"spark.sql.session.timeZone": "Asia/Tokyo"}}),
    }
    harmless = [
        same,
        changed(watermark="7 seconds"),
        changed(options={"maxFilesPerTrigger": "9"}),
        changed(top={"select": ["b.id AS second", "a.id + 1 AS first"]}),
        changed(top={"sink": {"format": "noop"}}),
    ]
    for engine in ("stem", "native"):
        own = {"checkpoint": str(tmp_path / engine), "sink": {"format": "noop"}}
        spark_adapter.compile(plan, same | own, spark, engine).start().await_termination()
        for reason, document in differing.items():
            with pytest.raises(CheckpointError, match=f"another query: {reason}"):
                spark_adapter.compile(plan, document | own, spark, engine)
        for document in harmless:
            spark_adapter.compile(plan, document | own, spark, engine)


def test_what_is_wrong_is_said_before_anything_starts(spark: SparkSession, tmp_path: Path) -> None:
    write(tmp_path, generated(CYCLE, 3, seed=1), files=1)
    bindings = bindings_of(tmp_path, {stream.name: SCHEMA for stream in CYCLE.streams})
    plan = make_plan(CYCLE, ["a", "b", "c"])
    with pytest.raises(EngineError, match="engine must be one of stem, native, got 'flink'"):
        spark_adapter.compile(plan, bindings, spark, "flink")
    with pytest.raises(PlanError, match=r"watersmeet.plan/2"):
        spark_adapter.compile(plan.model_dump(mode="json") | {"format": "watersmeet.plan/2"}, bindings, spark)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(CheckpointError, match="made by another program"):
        spark_adapter.compile(plan, bindings, spark)


def test_a_pipeline_runs_until_it_is_stopped_and_only_once(spark: SparkSession, tmp_path: Path) -> None:
    """The rate source into memory; the session's settings are as they were before."""
    query = make_query({"a": 5, "b": 5}, ["a.value = b.value"])
    rate = {"source": {"format": "rate", "options": {"rowsPerSecond": "50"}}, "event_time": "timestamp"}
    document = {
        "streams": {"a": rate, "b": rate},
        "select": ["a.value AS value"],
        "sink": {"format": "memory", "options": {"queryName": "met"}},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    before = spark.conf.get("spark.sql.shuffle.partitions")
    pipeline = spark_adapter.compile(make_plan(query, ["a", "b"]), Bindings.model_validate(document), spark).start()
    assert spark.conf.get("spark.sql.shuffle.partitions") == before
    deadline = time.monotonic() + 300
    while not pipeline.progress.results and time.monotonic() < deadline:
        assert not pipeline.await_termination(0.5)
    assert pipeline.progress.running
    pipeline.stop()

    async def waited() -> None:
        await pipeline

    asyncio.run(waited())
    assert not pipeline.progress.running
    values = [row["value"] for row in spark.table("met").collect()]
    assert sorted(values) == list(range(len(values)))
    assert len(values) > 0
    with pytest.raises(AdapterError, match="started already"):
        pipeline.start()


def test_values_of_every_type_come_through_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    schema = (
        "id BIGINT, ts TIMESTAMP, k STRING, d DECIMAL(20, 3), m MAP<STRING, INT>, l ARRAY<STRING>, s STRUCT<a: INT, b: STRING>, "
        "day DATE, local TIMESTAMP_NTZ, f FLOAT, e DOUBLE, flag BOOLEAN, t TINYINT, raw BINARY"
    )
    full = {"id": 2**62 + 1, "ts": "2026-01-01T00:00:01.000001Z", "k": "é", "d": 12345.678, "m": {"a": 1}, "l": ["x", None], "s": {"a": 1, "b": None}}
    full |= {"day": "2026-02-03", "local": "2026-01-01T01:02:03", "f": 0.1, "e": 1e300, "flag": True, "t": 7, "raw": "AQI="}
    empty = {"id": 1, "ts": "2026-01-01T00:00:02Z", "k": "é"}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.json").write_text("".join(json.dumps(row) + "\n" for row in (full, empty)))
    query = make_query({"a": 5, "b": 5}, ["a.k = b.k"])
    sink = {"format": "memory", "options": {"queryName": "typed"}}
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        bindings = bindings_of(tmp_path, dict.fromkeys("ab", schema), sink=sink)
        spark_adapter.compile(make_plan(query, ["a", "b"]), bindings, spark).start().await_termination()
        source = [row.asDict(True) for row in spark.read.schema(schema).json(str(tmp_path / "a")).collect()]
        found = [(row["a"].asDict(True), row["b"].asDict(True)) for row in spark.table("typed").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert sorted(found, key=str) == sorted(((x, y) for x in source for y in source), key=str)

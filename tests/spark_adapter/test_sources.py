"""Everything wrong with sources and plans is said before anything starts, all at once, and what is right gets one shape."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from models.bindings import Bindings
from models.request import Query
from spark_adapter.documents import check_tree, read_bindings, read_plan
from spark_adapter.errors import BindingError, PlanError
from spark_adapter.sources import read_inputs
from tests.spark_adapter.plans import make_plan, make_query

QUERY = make_query({"a": 6, "b": 4}, ["a.k = b.k", "a.t < b.t"])
PLAN = make_plan(QUERY, ["a", "b"])
SCHEMA = "k BIGINT, t TIMESTAMP, `we ird` STRING, ts TIMESTAMP"


@pytest.fixture
def document(tmp_path: Path) -> dict[str, Any]:
    """Bindings without a fault, to be spoilt."""
    streams = {}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        source = {"format": "json", "options": {"path": str(tmp_path / name)}, "schema": SCHEMA}
        streams[name] = {"source": source, "event_time": "ts", "watermark": "1 second"}
    return {"streams": streams, "checkpoint": str(tmp_path / "checkpoint")}


def faults(document: dict[str, Any], spark: SparkSession) -> dict[str, str]:
    with pytest.raises(BindingError) as raised:
        read_inputs(PLAN, Bindings.model_validate(document), spark)
    return dict(raised.value.faults)


@pytest.mark.spark
def test_a_stream_has_time_attributes_and_row(document: dict[str, Any], spark: SparkSession) -> None:
    streams = read_inputs(PLAN, Bindings.model_validate(document), spark).streams
    assert list(streams) == ["a", "b"]
    assert [(field.name, field.dataType.simpleString()) for field in streams["a"].schema] == [
        ("ts", "timestamp"),
        ("a_k", "bigint"),
        ("a_t", "timestamp"),
        ("row", "struct<k:bigint,t:timestamp,we ird:string,ts:timestamp>"),
    ]
    assert all(frame.isStreaming for frame in streams.values())


@pytest.mark.spark
def test_a_row_holds_only_what_the_result_mentions(document: dict[str, Any], spark: SparkSession) -> None:
    document["select"] = ["upper(A.`we ird`) AS shout", "a.K + 1 AS next"]
    streams = read_inputs(PLAN, Bindings.model_validate(document), spark).streams
    assert streams["a"].schema["row"].dataType.simpleString() == "struct<k:bigint,we ird:string>"
    assert len(streams["b"].schema["row"].dataType.fieldNames()) == 1
    for whole in ("a.*", "a", "to_json(a) AS j", "a['k'] AS k", "*"):
        document["select"] = [whole]
        assert len(read_inputs(PLAN, Bindings.model_validate(document), spark).streams["a"].schema["row"].dataType.fieldNames()) == 4


@pytest.mark.spark
def test_linked_attributes_get_one_type(document: dict[str, Any], spark: SparkSession) -> None:
    document["streams"]["a"]["columns"] = {"k": "CAST(k AS INT)", "t": "CAST(t AS DATE)"}
    document["streams"]["b"]["columns"] = {"k": "CAST(k AS DECIMAL(10, 2))"}
    streams = read_inputs(PLAN, Bindings.model_validate(document), spark).streams
    for frame in streams.values():
        assert frame.schema["a_k"].dataType.simpleString() == "decimal(21,2)"
        assert frame.schema["a_t"].dataType.simpleString() == "timestamp"


@pytest.mark.spark
def test_a_column_may_have_any_name(document: dict[str, Any], spark: SparkSession) -> None:
    schema = "`we``ird.k` BIGINT, t TIMESTAMP, `select` TIMESTAMP"
    document["streams"]["a"]["source"]["schema"] = schema
    document["streams"]["a"] |= {"event_time": "select", "columns": {"k": "we`ird.k"}}
    assert read_inputs(PLAN, Bindings.model_validate(document), spark).streams["a"].columns == ["ts", "a_k", "a_t", "row"]


@pytest.mark.spark
def test_all_faults_come_together(document: dict[str, Any], spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
    document["streams"]["a"]["event_time"] = "k"
    document["streams"]["a"]["watermark"] = "soon"
    document["streams"]["b"]["columns"] = {"k": "`we ird`", "t": "nowhere"}
    document["streams"]["c"] = document["streams"]["a"]
    document["select"] = ["a.k", "b.nothing AS n"]
    found = faults(document, spark)
    assert set(found) == {"/streams/a/event_time", "/streams/b/columns/t", "/streams", "/streams/c", "/select/1"}
    assert "is BIGINT; it must be a TIMESTAMP" in found["/streams/a/event_time"]
    assert "'nowhere' cannot be resolved" in found["/streams/b/columns/t"]
    assert found["/streams"] == "predicate 0, a.k = b.k, compares BIGINT with STRING; cast one of them under columns"
    assert "'c' is no stream of the plan; its streams are a, b" in found["/streams/c"]
    assert "nothing" in found["/select/1"]
    assert "Exception" not in capfd.readouterr().err


@pytest.mark.spark
@pytest.mark.parametrize(
    ("change", "pointer", "says"),
    [
        ({"watermark": "soon"}, "/streams/a/watermark", "must be an interval like '10 seconds', got 'soon'"),
        ({"event_time": "ts; DROP TABLE x"}, "/streams/a/event_time", "is not a SQL expression"),
        ({"event_time": "missing"}, "/streams/a/event_time", "cannot be resolved"),
        ({"columns": {"k": "k, t"}}, "/streams/a/columns/k", "is not a SQL expression"),
        ({"columns": {"k": "(SELECT max(id) FROM range(3))"}}, "/streams/a/columns/k", "uses a subquery"),
        ({"columns": {"k": "k IN (SELECT id FROM range(3))"}}, "/streams/a/columns/k", "uses a subquery"),
        ({"columns": {"k": "sum(k) OVER (ORDER BY ts)"}}, "/streams/a/columns/k", "uses a window function"),
        ({"columns": {"k": "max(k)"}}, "/streams/a/columns/k", "is an aggregate"),
        ({"columns": {"k": "explode(array(k))"}}, "/streams/a/columns/k", "makes many rows of one"),
        ({"columns": {"k": "reflect('java.lang.Math', 'abs', 1)"}}, "/streams/a/columns/k", "runs Java code"),
        ({"columns": {"k": "1 + length(JAVA_METHOD('java.util.UUID', 'randomUUID'))"}}, "/streams/a/columns/k", "runs Java code"),
        ({"columns": {"k": "identifier('re' || 'flect')('java.util.UUID', 'randomUUID')"}}, "/streams/a/columns/k", "uses identifier()"),
        ({"columns": {"k": "k + CAST(rand() * 2 AS INT)"}}, "/streams/a/columns/k", "is not the same every time it is computed"),
        ({"where": "k"}, "/streams/a/where", "the condition on a, 'k', is BIGINT; it must be true or false, for example k > 0"),
        ({"where": "missing > 0"}, "/streams/a/where", "cannot be resolved"),
        ({"where": "k IN (SELECT id FROM range(3))"}, "/streams/a/where", "uses a subquery"),
        ({"where": "rand() < 0.5"}, "/streams/a/where", "is not the same every time it is computed"),
        ({"columns": {"q": "k"}}, "/streams/a/columns/q", "no predicate of the plan uses a.q; those it uses are k, t"),
    ],
)
def test_each_fault_has_one_clear_message(document: dict[str, Any], spark: SparkSession, change: dict[str, Any], pointer: str, says: str) -> None:
    document["streams"]["a"] |= change
    found = faults(document, spark)
    assert list(found) == [pointer]
    assert says in found[pointer]


@pytest.mark.spark
def test_a_source_that_spark_cannot_open_is_named(document: dict[str, Any], spark: SparkSession) -> None:
    document["streams"]["a"]["source"]["format"] = "carrier_pigeon"
    document["streams"]["b"]["source"]["schema"] = "k NUMBERISH"
    found = faults(document, spark)
    assert set(found) == {"/streams/a/source", "/streams/b/source"}
    assert "carrier_pigeon" in found["/streams/a/source"]


@pytest.mark.spark
def test_a_missing_binding_and_a_missing_column_are_named(document: dict[str, Any], spark: SparkSession) -> None:
    del document["streams"]["b"]
    document["streams"]["a"]["source"]["schema"] = "t TIMESTAMP, ts TIMESTAMP"
    found = faults(document, spark)
    assert found["/streams"] == "there is no binding for b; every stream of the plan needs one"
    assert "say under columns what k is, among t, ts" in found["/streams/a/columns/k"]


@pytest.mark.spark
def test_rows_that_can_be_in_no_result_are_left_out(document: dict[str, Any], spark: SparkSession, tmp_path: Path) -> None:
    good = '{"k": 1, "t": "2026-01-01T00:00:00Z", "ts": "2026-01-01T00:00:00Z"}'
    not_let_in = [good.replace("1", number, 1) for number in ("-1", "0", "null")]
    document["streams"]["a"]["where"] = "k > 0"
    (tmp_path / "a" / "0.json").write_text("\n".join([good, *not_let_in, '{"k": 1, "t": "2026-01-01T00:00:00Z"}', '{"ts": "2026-01-01T00:00:00Z"}']))
    frame = read_inputs(PLAN, Bindings.model_validate(document), spark).streams["a"]
    writer = frame.writeStream.format("memory").queryName("present").option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [row.a_k for row in spark.table("present").collect()] == [1]


@pytest.mark.spark
def test_names_that_spark_cannot_tell_apart_are_refused(document: dict[str, Any], spark: SparkSession) -> None:
    query = make_query({"a": 1, "A": 1}, ["a.k = A.k"])
    document["streams"]["A"] = document["streams"].pop("b")
    with pytest.raises(BindingError, match="Spark cannot tell the streams a and A apart"):
        read_inputs(make_plan(query, ["a", "A"]), Bindings.model_validate(document), spark)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"format": "watersmeet.plan/2"}, "/format: this plan is 'watersmeet.plan/2', of another version; this program reads 'watersmeet.plan/1'"),
        ({"format": "other"}, "/format: a plan has format 'watersmeet.plan/1', got 'other': is this file a plan?"),
        ({"query": {}}, "/format: a plan has format 'watersmeet.plan/1', there is none: is this file a plan?"),
        ([], "a plan is an object with format 'watersmeet.plan/1', got an array"),
    ],
)
def test_an_unknown_format_is_refused(value: object, says: str) -> None:
    with pytest.raises(PlanError) as raised:
        read_plan(value)
    assert str(raised.value) == says


def test_tables_of_a_plan_are_reached_as_they_can_be() -> None:
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": 1, "window": {"seconds": 5}} for name in "ab"],
            "tables": [{"name": "t", "rows": 10, "access": [{"kind": "index", "bound": ["k"], "cpu": 1e-5}]}],
            "predicates": [{"left": "a.k", "right": "b.k", "selectivity": 0.1}, {"left": "b.k", "right": "t.k", "selectivity": 0.1}],
        }
    )
    read_plan(make_plan(query, ["a", "b", "t"], {"t": ["k"]}).model_dump(mode="json"))

    def refused(document: dict[str, Any]) -> str:
        with pytest.raises(PlanError) as raised:
            read_plan(document)
        return str(raised.value)

    late = make_plan(query, ["a", "t", "b"], {"t": ["k"]}).model_dump(mode="json")
    assert refused(late) == "/operators/0/pipelines/0/probes/0: join-1 asks t before anything has a value for its k"
    assert refused(make_plan(query, ["a", "b", "t"]).model_dump(mode="json")) == "/query/tables/0/access: t offers no scan"
    unsaid = make_plan(query, ["a", "b", "t"], {"t": ["k"]}).model_dump(mode="json") | {"tables": []}
    assert refused(unsaid) == "/tables: the plan does not say whether t is kept or asked"


def test_a_plan_survives_being_written_and_read() -> None:
    assert read_plan(PLAN.model_dump(mode="json")) == PLAN


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (
            lambda operators: operators[0]["inputs"].__setitem__(0, "nobody"),
            "joins 'nobody', which is neither a stream, a table nor an operator before it",
        ),
        (lambda operators: operators[1]["inputs"].__setitem__(1, "a"), "joins 'a', which join-1 joins already"),
        (lambda operators: operators.pop(), "nothing joins c: the last operator must join all streams"),
        (lambda operators: operators.clear(), "nothing joins b, c"),
        (lambda operators: operators[0]["streams"].pop(), "join-1 joins a, b, but says a"),
        (lambda operators: operators[1].__setitem__("id", "join-1"), "'join-1' is taken"),
    ],
)
def test_operators_that_are_no_join_tree_are_refused(spoil: Any, says: str) -> None:
    document = make_plan(make_query({"a": 1, "b": 1, "c": 1}, ["a.k = b.k", "b.k = c.k"]), [["a", "b"], "c"]).model_dump(mode="json")
    check_tree(read_plan(document))
    spoil(document["operators"])
    with pytest.raises(PlanError) as raised:
        read_plan(document)
    assert says in str(raised.value)


def test_every_fault_of_bindings_is_said() -> None:
    with pytest.raises(BindingError) as raised:
        read_bindings({"streams": {"a": {"source": {"format": "json"}}}, "chekpoint": "x"})
    assert dict(raised.value.faults).keys() == {"/streams/a/event_time", "/checkpoint", "/chekpoint"}

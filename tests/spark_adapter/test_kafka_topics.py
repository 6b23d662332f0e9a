"""What Spark's connector is told of topics, and the records that a sink gets, without a broker."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

from models.bindings import Bindings
from spark_adapter.kafka.topics import ID_HEADER, letters_options, reading_options, records, writing_options

ACCESS = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.jaas.config": "secret", "kafka.ssl.truststore.location": "store.jks"}
PACE = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000", "kafka.fetch.max.bytes": "1"}


def bound(sink: dict[str, Any], **sources: Any) -> Bindings:
    value = {"format": "json", "schema": "x BIGINT"}
    usual = {"format": "kafka", "servers": "here:1", "value": value, "options": ACCESS | PACE}
    streams = {name: {"source": usual | {"topic": name} | sources.get(name, {})} for name in ("b", "a")}
    return Bindings.model_validate({"streams": streams, "sink": {"format": "kafka", "topic": "out"} | sink, "checkpoint": "c"})


def test_options_reach_the_connector_as_they_are() -> None:
    source = bound({}).streams["a"].source
    assert reading_options(source) == {"subscribe": "a", "kafka.bootstrap.servers": "here:1"} | ACCESS | PACE


def test_a_sink_at_the_streams_brokers_is_let_in_as_the_streams_are_and_one_elsewhere_is_not() -> None:
    """What lets clients in is for the brokers it was given for: it must not be sent to others."""
    there = {"topic": "out", "kafka.bootstrap.servers": "here:1"}
    assert writing_options(bound({})) == there | ACCESS
    assert writing_options(bound({"options": {"kafka.security.protocol": "SSL"}})) == there | ACCESS | {"kafka.security.protocol": "SSL"}
    assert writing_options(bound({"servers": "there:1"})) == there | {"kafka.bootstrap.servers": "there:1"}


def test_bad_records_go_to_the_brokers_that_they_came_from() -> None:
    source = bound({}, a={"on_bad": {"topic": "bad"}}).streams["a"].source
    assert letters_options(source) == {"topic": "bad", "kafka.bootstrap.servers": "here:1"} | ACCESS


@pytest.mark.spark
def test_results_are_records_of_every_format_with_the_id_that_tells_them_apart(spark: SparkSession, connector: str) -> None:
    if "spark-avro" not in connector:
        pytest.skip("no jars of spark-avro to test with")
    from pyspark.sql.avro.functions import from_avro

    rows = spark.sql("SELECT struct(1L AS x, 7L AS record_id) AS a, struct('é' AS x, 8L AS record_id) AS b")
    columns = [F.expr("a.x AS n"), F.expr("b.x AS word"), F.expr("cast(null AS INT) AS nothing")]

    def record(**sink: Any) -> Any:
        return rows.select(*records(columns, bound(sink))).first()

    found = record()
    assert json.loads(found["value"]) == {"n": 1, "word": "é", "nothing": None}
    assert (bytes(found["key"]), found["headers"][0]["key"], bytes(found["headers"][0]["value"])) == (b"7-8", ID_HEADER, b"7-8")
    assert bytes(record(value="csv")["value"]).decode() == "1,é,"
    keyed = record(value="avro", key="b.x")
    assert (bytes(keyed["key"]).decode(), bytes(keyed["headers"][0]["value"])) == ("é", b"7-8")
    fields = [{"name": name, "type": kind} for name, kind in (("n", "long"), ("word", "string"), ("nothing", ["int", "null"]))]
    schema = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
    decoded = spark.createDataFrame([(bytes(keyed["value"]),)], "value BINARY").select(from_avro("value", schema).alias("v")).first()
    assert decoded is not None and tuple(decoded["v"]) == (1, "é", None)

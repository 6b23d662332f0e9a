"""Streams from Kafka: every message comes through, options reach the source as they were written, a missing package is named."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from spark_adapter.errors import BindingError
from tests.spark_adapter import kafka
from tests.spark_adapter.nested_loop import Row
from tests.spark_adapter.plans import Shape, make_plan, make_query
from tests.spark_adapter.runs import Job, generated, run_all, true_ids, written

pytestmark = pytest.mark.spark

QUERY = make_query({"a": 6, "b": 4, "c": 5}, ["a.x = b.x", "b.y = c.y"])


def field(name: str, kind: str, stream: str = "") -> str:
    return f"CAST(get_json_object(CAST({stream}value AS STRING), '$.{name}') AS {kind})"


def bindings_of(folder: Path, address: str, source: str = "kafka_in_python") -> dict[str, Any]:
    """What a user would write for Spark's connector."""
    streams = {}
    for stream in QUERY.streams:
        options = {"kafka.bootstrap.servers": address, "subscribe": f"topic-{stream.name}", "startingOffsets": "earliest"}
        streams[stream.name] = {
            "source": {"format": source, "options": options | {"maxOffsetsPerTrigger": "60"}},
            "event_time": field("ts", "TIMESTAMP"),
            "watermark": "20 seconds",
            "columns": {name: field(name, "BIGINT") for name in "xy" if f"{stream.name}.{name}" in "a.x b.x b.y c.y"},
        }
    return {
        "streams": streams,
        "select": [f"{field('id', 'BIGINT', stream.name + '.')} AS {stream.name}" for stream in QUERY.streams],
        "sink": {"format": "json", "options": {"path": str(folder / "out")}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
    }


def send(broker: kafka.Broker, rows: Mapping[str, Sequence[Row]]) -> None:
    for name, listed in rows.items():
        broker.send(f"topic-{name}", [json.dumps({**row, "ts": row["ts"].isoformat()}).encode() for row in listed])


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The session with the source registered, which it takes once."""
    cloudpickle.register_pickle_by_value(kafka)
    spark.dataSource.register(kafka.KafkaSource)
    return spark


def test_every_message_arrives_and_the_rows_are_those_of_the_definition(session: SparkSession, tmp_path: Path) -> None:
    """Two engines over the same topics; then more messages, and the pipeline goes on where it was."""
    rows = generated(QUERY, 150, seed=11, disorder=3.0)
    first = {name: listed[:100] for name, listed in rows.items()}
    broker = kafka.Broker(partitions=2)
    send(broker, first)

    shapes: dict[str, Shape] = {"native": [["a", "b"], "c"], "stem": ["a", "b", "c"]}

    def found(*engines: str) -> dict[str, tuple[int, Counter[tuple[int, ...]]]]:
        """By engine, rows read now, and the results so far."""
        jobs = []
        for engine in engines:
            bindings = Bindings.model_validate(bindings_of(tmp_path / engine, broker.address))
            jobs.append(Job(make_plan(QUERY, shapes[engine]), tmp_path / engine, engine=engine, bindings=bindings))
        result = {}
        for engine, pipeline in zip(engines, run_all(session, jobs), strict=True):
            assert pipeline.progress.batches > 1
            lines = written(tmp_path / engine)
            result[engine] = pipeline.progress.rows, Counter(tuple(line[stream.name] for stream in QUERY.streams) for line in lines)
        return result

    expected = true_ids(QUERY, first)
    assert expected
    assert found("native", "stem") == dict.fromkeys(("native", "stem"), (300, expected))
    send(broker, {name: listed[100:] for name, listed in rows.items()})
    assert found("stem") == {"stem": (150, true_ids(QUERY, rows))}


def test_options_reach_the_source_as_they_were_written(session: SparkSession, tmp_path: Path) -> None:
    document = bindings_of(tmp_path, "nowhere:1")
    options = document["streams"]["a"]["source"]["options"]
    options |= {"kafka.ssl.truststore.password": "p w;`'\"$\\", "failOnDataLoss": "false", "includeHeaders": "true", "é.Ü": " x "}
    document["streams"]["a"]["source"]["format"] = "listening"

    class Listening(kafka.KafkaSource):
        @classmethod
        def name(cls) -> str:
            return "listening"

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            raise ValueError(f"options {json.dumps(dict(self.options)).encode().hex()}.")

    session.dataSource.register(Listening)
    bindings = Bindings.model_validate(document)
    pipeline = spark_adapter.compile(make_plan(QUERY, ["a", "b", "c"]), bindings, session).start()
    with pytest.raises(Exception, match="options ") as raised:
        pipeline.await_termination()
    said = re.search(r"options ([0-9a-f]+)\.", str(raised.value))
    assert said is not None
    received = json.loads(bytes.fromhex(said[1]))
    # Spark's own readers look options up in any case; a Python source gets them in lower case.
    assert received == {key.lower(): value for key, value in options.items()}


def test_a_missing_package_is_named(spark: SparkSession, tmp_path: Path) -> None:
    document = bindings_of(tmp_path, "nowhere:1", "kafka")
    with pytest.raises(BindingError) as raised:
        spark_adapter.compile(make_plan(QUERY, ["a", "b", "c"]), Bindings.model_validate(document), spark)
    assert [pointer for pointer, _ in raised.value.faults] == [f"/streams/{name}/source" for name in "abc"]
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{spark.version}"
    for _, detail in raised.value.faults:
        assert detail.endswith(f'; its package is not there: add spark.jars.packages: "{package}" under spark in the bindings')

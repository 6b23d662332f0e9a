"""Streams from topics of a real broker, by Spark's own connector, and results into one."""

from __future__ import annotations

import io
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

import spark_adapter
from app.commands.main import main
from models.bindings import Bindings
from models.request import PlanRequest
from spark_adapter.errors import BindingError
from spark_adapter.kafka import brokers
from spark_adapter.kafka.topics import ID_HEADER
from spark_adapter.profile import read_stretch
from spark_adapter.run import Options, run
from spark_adapter.sources import read_batches, read_inputs
from spark_adapter.stem.engine import UNBOUNDED, settings
from tests.spark_adapter.kafka import Topics, as_json, headers
from tests.spark_adapter.nested_loop import Row
from tests.spark_adapter.plans import Shape, make_plan, make_query, moment
from tests.spark_adapter.runs import Ids, Job, generated, run_all, true_ids, written

pytestmark = pytest.mark.spark

QUERY = make_query({"a": 6, "b": 4, "c": 5}, ["a.x = b.x", "b.y = c.y"])
NAMES = [stream.name for stream in QUERY.streams]
SHAPES: dict[str, Shape] = {"native": [["a", "b"], "c"], "stem": ["a", "b", "c"]}
NATIVE = Options(engine="native")
DDL = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT, z BIGINT"
TIME = {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}
AVRO = {"type": "record", "name": "row", "fields": [TIME, *({"name": name, "type": "long"} for name in ("id", "x", "y"))]}
VALUES = {
    "a": {"format": "json", "schema": DDL},
    "b": {"format": "avro", "schema": json.dumps(AVRO), "skip_bytes": 5},
    "c": {"format": "csv", "schema": "id BIGINT, y BIGINT", "options": {"sep": ";"}},
}
# Of each kind one that is no such value at all, one whose columns have other types, one that is empty and one that is null.
BAD = {
    "a": [b"{", b'{"id": "one", "ts": "2026-01-01T00:00:00Z", "x": 1, "y": 1}', b"", None, b'[{"id": 1}]', b"\xff{}"],
    "b": [b"\0\0\0\0\1\x80", b"", None],
    "c": [b"1;2;3", b"one;2", b"", None],
}


def long(number: int) -> bytes:
    """A whole number in Avro: the sign last, seven bits a byte."""
    number, found = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def values(name: str, rows: Sequence[Row]) -> list[bytes | None]:
    if name == "a":
        return [*as_json(rows)]
    if name == "b":
        return [b"\0\0\0\0\1" + long(round(row["ts"].timestamp() * 1e6)) + long(row["id"]) + long(row["x"]) + long(row["y"]) for row in rows]
    return [f"{row['id']};{row['y']}".encode() for row in rows]


def send(topics: Topics, prefix: str, rows: Mapping[str, Sequence[Row]], partitions: Mapping[str, Sequence[int]]) -> None:
    for name, listed in rows.items():
        topics.send(f"{prefix}-{name}", values(name, listed), partitions[name], [row["ts"] for row in listed])


def document(topics: Topics, prefix: str, folder: Path, **more: Any) -> dict[str, Any]:
    """What a user would write. Of c the event time is that of its records."""
    streams: dict[str, Any] = {}
    for name in NAMES:
        source = {"format": "kafka", "topic": f"{prefix}-{name}", "servers": topics.address, "value": VALUES[name]}
        source["options"] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "60"}
        streams[name] = {"source": source, "watermark": "20 seconds"} | ({} if name == "c" else {"event_time": "ts"})
    return {
        "streams": streams,
        "select": [f"{name}.id AS {name}" for name in NAMES],
        "sink": {"format": "json", "options": {"path": str(folder / "out")}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
    } | more


def in_files(folder: Path) -> Ids:
    return Counter(tuple(line[name] for name in NAMES) for line in written(folder))


def in_topic(topics: Topics, name: str) -> tuple[Ids, Ids]:
    """The results in a topic: all of them, and those that a consumer keeps that remembers ids."""
    everything, kept, seen = Counter[tuple[int, ...]](), Counter[tuple[int, ...]](), set()
    for message in topics.read(name):
        value: Any = message.value()
        row = tuple(json.loads(value)[name] for name in NAMES)
        key = headers(message)[ID_HEADER]
        assert message.key() == key
        everything[row] += 1
        kept[row] += key not in seen
        seen.add(key)
    return everything, kept


def test_results_are_those_of_the_definition_into_files_once_and_into_topics_at_least_once(
    topics: Topics, spark: SparkSession, tmp_path: Path
) -> None:
    """Values in JSON, Avro and CSV, bad ones among them, a partition that stays empty. Then a batch is run again, after partitions were added."""
    topics.make("first-a", "first-b", "first-c", "first-out", partitions=3)
    rows = generated(QUERY, 150, seed=11, disorder=3.0)
    early, late = ({name: listed[part] for name, listed in rows.items()} for part in (slice(100), slice(100, None)))
    two = dict.fromkeys(NAMES, (0, 1))
    send(topics, "first", early, two)
    for name in NAMES:
        topics.send(f"first-{name}", BAD[name], (0,), [moment(0)] * len(BAD[name]))
    sinks = {"stem": {"format": "kafka", "topic": "first-out", "value": "json"}, "native": document(topics, "first", tmp_path / "native")["sink"]}

    def through(*engines: str) -> list[spark_adapter.pipeline.Pipeline]:
        bound = [Bindings.model_validate(document(topics, "first", tmp_path / engine, sink=sinks[engine])) for engine in engines]
        jobs = [Job(make_plan(QUERY, SHAPES[e]), tmp_path / e, engine=e, bindings=b) for e, b in zip(engines, bound, strict=True)]
        return run_all(spark, jobs)

    expected = true_ids(QUERY, early)
    for pipeline in through("native", "stem"):
        assert pipeline.progress.batches > 1
        assert pipeline.progress.bad == {name: len(found) for name, found in BAD.items()}
        assert pipeline.progress.rows == 300 + sum(map(len, BAD.values()))
    assert in_files(tmp_path / "native") == expected
    assert in_topic(topics, "first-out") == (expected, expected)

    commits = tmp_path / "stem" / "checkpoint" / "commits"
    (commits / str(max(int(path.name) for path in commits.glob("[0-9]*")))).unlink()
    topics.widen("first-b", 5)
    send(topics, "first", late, two | {"b": (4, 0)})
    through("stem")
    everything, kept = in_topic(topics, "first-out")
    assert kept == true_ids(QUERY, rows)
    assert set(everything) == set(kept) and everything.total() >= kept.total()


def pair(topics: Topics, prefix: str, folder: Path, **sources: Any) -> dict[str, Any]:
    """Bindings of two streams of JSON, by the fields of their sources that are not as usual."""
    value = {"format": "json", "schema": "id BIGINT, x BIGINT"}
    usual = {"format": "kafka", "servers": topics.address, "value": value, "options": {"startingOffsets": "earliest"}}
    return {
        "streams": {name: {"source": usual | {"topic": f"{prefix}-{name}"} | sources.get(name, {})} for name in ("a", "b")},
        "select": ["a.id AS a", "b.id AS b"],
        "sink": {"format": "json", "options": {"path": str(folder / "out")}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
    }


PAIR = make_plan(make_query({"a": 60, "b": 60}, ["a.x = b.x"]), ["a", "b"])


def numbered(*ids: int) -> list[bytes]:
    return [json.dumps({"id": k, "x": 0}).encode() for k in ids]


def test_a_bad_record_ends_the_pipeline_or_goes_to_a_topic_if_that_is_asked_for(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topics.make("bad-a", "bad-b", "bad-letters", partitions=1)
    topics.send("bad-a", [*numbered(1), b"{", *numbered(2), b"null"], (0,))
    topics.send("bad-b", numbered(7), (0,))
    out = io.StringIO()
    bindings = pair(topics, "bad", tmp_path / "topic", a={"on_bad": {"topic": "bad-letters"}})
    assert run(PAIR, Bindings.model_validate(bindings), out, NATIVE) == 0
    assert sorted((line["a"], line["b"]) for line in written(tmp_path / "topic")) == [(1, 7), (2, 7)]
    assert "; 2 records did not decode" in out.getvalue()
    found = [(message.value(), headers(message)) for message in topics.read("bad-letters")]
    where = {"watersmeet-topic": b"bad-a", "watersmeet-partition": b"0"}
    assert found == [(b"{", where | {"watersmeet-offset": b"1"}), (b"null", where | {"watersmeet-offset": b"3"})]

    out = io.StringIO()
    assert run(PAIR, Bindings.model_validate(pair(topics, "bad", tmp_path / "fail", a={"on_bad": "fail"})), out, NATIVE) == 1
    told = [line for line in out.getvalue().splitlines() if line.startswith("the pipeline failed")]
    what = "partition 0 offset 1, does not decode: the value is not json of the schema that a is bound with (on_bad: fail)"
    assert told == [f"the pipeline failed: a record of topic bad-a, {what}"]


def test_what_retention_has_deleted_is_said_before_the_start_with_the_choices(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topics.make("old-a", "old-b", partitions=1)
    for name in ("old-a", "old-b"):
        topics.send(name, numbered(1, 2), (0,))
    bindings = pair(topics, "old", tmp_path)
    assert run(PAIR, Bindings.model_validate(bindings), io.StringIO(), NATIVE) == 0
    topics.send("old-a", numbered(3, 4), (0,))
    topics.forget("old-a", 0, 3)
    with pytest.raises(BindingError) as raised:
        run(PAIR, Bindings.model_validate(bindings), io.StringIO(), NATIVE)
    ((pointer, sentence),) = raised.value.faults
    assert pointer == "/streams/a/source"
    assert sentence.startswith("the checkpoint goes on at offset 2 of partition 0 of topic old-a, but its records before 3 have been deleted")
    assert 'failOnDataLoss: "false"' in sentence
    bindings["streams"]["a"]["source"]["options"]["failOnDataLoss"] = "false"
    assert run(PAIR, Bindings.model_validate(bindings), io.StringIO(), NATIVE) == 0
    assert {line["a"] for line in written(tmp_path)} == {1, 2, 4}


def test_a_topic_that_comes_later_a_broker_that_goes_away_and_a_clock_that_is_ahead(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topics.make("life-a", partitions=2)
    options = {"startingOffsets": "earliest", "subscribePattern": "life-b.*", "kafka.metadata.max.age.ms": "1000"}
    bindings = pair(topics, "life", tmp_path, b={"topic": None, "options": options})
    bindings["sink"] = {"format": "json", "options": {"path": str(tmp_path / "out")}}
    bindings["trigger"] = {"processing_time": "200 milliseconds"}
    now = datetime.now(UTC)
    # A producer whose clock is an hour ahead: its record has no partner, and makes nobody late, for the other stream's clock holds the watermark.
    topics.send("life-a", numbered(100), (1,), [now + timedelta(minutes=59)])
    topics.send("life-a", numbered(1), (0,), [now])
    pipeline = spark_adapter.compile(PAIR, bindings, spark).start()

    def wait_for(*found: tuple[int, int]) -> None:
        deadline = time.monotonic() + 120
        while sorted((line["a"], line["b"]) for line in written(tmp_path)) != sorted(found):
            assert time.monotonic() < deadline, f"found {written(tmp_path)}"
            assert not pipeline.await_termination(0.2)

    try:
        while pipeline.progress.rows < 2:
            assert not pipeline.await_termination(0.2)
        topics.make("life-b1", partitions=1)
        topics.send("life-b1", numbered(7), (0,), [now + timedelta(seconds=1)])
        wait_for((1, 7))
        with topics.away():
            assert not pipeline.await_termination(3)
        topics.send("life-a", numbered(2), (0,), [now + timedelta(seconds=1.5)])
        topics.send("life-b1", numbered(8), (0,), [now + timedelta(seconds=2)])
        wait_for((1, 7), (2, 7), (1, 8), (2, 8))
        assert pipeline.progress.late == 0
    finally:
        pipeline.stop()


def test_profile_reads_a_stretch_of_topics_by_offsets_or_by_time(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topics.make("span-a", "span-b", partitions=1)
    for name in ("span-a", "span-b"):
        topics.send(name, numbered(*range(60)), (0,), [moment(k) for k in range(60)])
    request = PlanRequest.model_validate({"query": PAIR.query.model_dump(mode="json")})

    def rows(**options: str) -> dict[str, int]:
        bindings = Bindings.model_validate(pair(topics, "span", tmp_path, a={"options": options}) | {"sink": {"format": "kafka", "topic": "nowhere"}})
        return read_stretch(request, bindings, spark, 600, lambda step, share: None).in_stretch

    assert rows(startingOffsets="latest", maxOffsetsPerTrigger="10") == {"a": 60, "b": 60}
    assert rows(startingOffsets=json.dumps({"span-a": {"0": 20}}), endingOffsets=json.dumps({"span-a": {"0": 50}})) == {"a": 30, "b": 30}
    assert rows(startingTimestamp=str(round(moment(45).timestamp() * 1000))) == {"a": 15, "b": 15}


def test_of_a_record_only_what_is_named_is_sent_and_held_with_its_row(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    """Key and topic of a record are text: rows that carry them are larger, and Spark adds up the size of every packet row by row."""
    topics.make("part-a", "part-b", partitions=1)
    topics.send("part-a", numbered(1), (0,), [moment(5)])
    bindings = pair(topics, "part", tmp_path)

    def opened(*select: str) -> tuple[str, bool]:
        """The type of a's rows, and whether packets need no limit."""
        streams = read_inputs(PAIR, Bindings.model_validate(bindings | {"select": [*select]}), spark).streams
        return streams["a"].schema["row"].dataType.simpleString(), settings(streams, 2).get("spark.sql.execution.arrow.maxBytesPerBatch") == UNBOUNDED

    part = "a.Record.timestamp AS at"
    assert opened(part, "a.record.offset + b.id AS n") == ("struct<record:struct<offset:bigint,timestamp:timestamp>>", True)
    whole = "struct<record:struct<key:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp>>"
    assert opened(part, "a.record") == opened(part, "a.record.*") == opened("a.record['offset'] AS n") == (whole, False)
    request = PlanRequest.model_validate({"query": PAIR.query.model_dump(mode="json")})
    rows = read_batches(request, Bindings.model_validate(bindings | {"select": [part]}), spark)["a"]
    assert [row["at"] for row in rows.select(F.unix_millis("row.record.timestamp").alias("at")).collect()] == [round(moment(5).timestamp() * 1000)]


def refused(bindings: dict[str, Any], spark: SparkSession) -> dict[str, str]:
    with pytest.raises(BindingError) as raised:
        spark_adapter.compile(PAIR, bindings, spark)
    return dict(raised.value.faults)


def test_wrong_servers_topics_schemas_and_keys_are_each_a_sentence_before_anything_starts(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.make("right-a", "right-b", "right-out", partitions=1)
    to_topic = {"format": "kafka", "topic": "right-out"}

    def changed(sink: Any = None, **sources: Any) -> dict[str, str]:
        return refused(pair(topics, "right", tmp_path, **sources) | ({} if sink is None else {"sink": sink}), spark)

    assert changed(a={"topic": "rigth-a"}) == {"/streams/a/source/topic": f"there is no topic 'rigth-a' at {topics.address}; did you mean 'right-a'?"}
    assert list(changed(a={"on_bad": {"topic": "nowhere"}})) == ["/streams/a/source/on_bad/topic"]
    assert list(changed(to_topic | {"topic": "nowhere"})) == ["/sink/topic"]
    found = changed(a={"servers": "no-such-host.invalid:1"})
    assert found["/streams/a/source/servers"].startswith("no Kafka broker answers at 'no-such-host.invalid:1': No resolvable bootstrap urls")
    monkeypatch.setattr(brokers, "SECONDS", 1)
    found = changed(a={"servers": "127.0.0.1:1"})
    assert found["/streams/a/source/servers"].startswith("no Kafka broker answers at '127.0.0.1:1': Timed out")
    found = changed(a={"value": {"format": "json", "schema": "id NUMBERISH"}})
    assert "NUMBERISH" in found["/streams/a/source/value/schema"]
    found = changed(a={"value": {"format": "json", "schema": "id BIGINT, x BIGINT, Record INT"}})
    assert found["/streams/a/source/value/schema"].startswith("Record is a column of every topic's records")
    found = changed(to_topic | {"key": "a.nothing"})
    assert found["/sink/key"].startswith("the key 'a.nothing' cannot be resolved")
    found = changed(to_topic, a={"servers": topics.address.replace("127.0.0.1", "localhost")})
    assert found == {"/sink/servers": "servers is required: the streams have no brokers, or not all the same, that could be the sink's"}
    assert not (tmp_path / "checkpoint").exists()


def test_the_command_line_says_a_wrong_topic_or_wrong_servers_in_one_line_and_ends_with_2(
    topics: Topics, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    topics.make("said-a", "said-b", partitions=1)
    monkeypatch.setattr(brokers, "SECONDS", 1)
    (tmp_path / "plan.json").write_text(PAIR.model_dump_json())

    def told(**source: Any) -> str:
        (tmp_path / "bindings.json").write_text(json.dumps(pair(topics, "said", tmp_path, a=source)))
        assert main(["run", str(tmp_path / "plan.json"), str(tmp_path / "bindings.json")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert told(topic="side-a").startswith(f"/streams/a/source/topic: there is no topic 'side-a' at {topics.address}; did you mean 'said-")
    assert told(servers="127.0.0.1:1").startswith("/streams/a/source/servers: no Kafka broker answers at '127.0.0.1:1': ")
    assert not (tmp_path / "checkpoint").exists()

"""Bindings say what is wrong with them field by field."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from models.bindings import BadTopic, Bindings
from spark_adapter.documents import read_bindings
from spark_adapter.errors import BindingError

TOPIC: dict[str, Any] = {"format": "kafka", "topic": "bids", "servers": "localhost:9092", "value": {"format": "json", "schema": "x BIGINT"}}
ROOT = Path(__file__).parents[2]
FILES: dict[str, Any] = {"format": "json", "options": {"path": "bids"}}


def document(source: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"streams": {"bids": {"source": source}}, "checkpoint": "checkpoint"} | more


def faults(bindings: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(BindingError) as raised:
        read_bindings(bindings)
    return dict(raised.value.faults)


def test_a_topic_takes_five_lines_and_comes_back_as_it_was_written() -> None:
    bindings = read_bindings(document(TOPIC | {"on_bad": {"topic": "bids-bad"}}, sink={"format": "kafka", "topic": "results"}))
    source = bindings.streams["bids"].source
    assert source.on_bad == BadTopic(topic="bids-bad")
    assert bindings.streams["bids"].event_time is None
    for written in (bindings.model_dump(mode="json", by_alias=True), bindings.model_dump(by_alias=True)):
        assert Bindings.model_validate(written) == bindings
    files = read_bindings({"streams": {"bids": {"source": FILES, "event_time": "ts"}}, "checkpoint": "checkpoint"})
    assert Bindings.model_validate(files.model_dump(mode="json", by_alias=True)) == files


@pytest.mark.parametrize(
    ("source", "pointer", "says"),
    [
        (TOPIC | {"on_bad": "explode"}, "on_bad", "on_bad must be drop, fail or {topic: NAME}, got 'explode'"),
        (TOPIC | {"on_bad": {"topic": ""}}, "on_bad", "on_bad must be drop, fail or {topic: NAME}, got {'topic': ''}"),
        (TOPIC | {"schema": "x BIGINT"}, "schema", "the schema of a topic's values belongs under value, as value: {format: json, schema: …}"),
        (TOPIC | {"topic": None}, "topic", "topic is required: the topic to read (or an option subscribe, subscribePattern or assign)"),
        (TOPIC | {"options": {"subscribePattern": "b.*"}}, "topic", "topic and the option subscribepattern both say what to read: leave one out"),
        (TOPIC | {"servers": None}, "servers", "servers is required: HOST:PORT of one or more brokers"),
        (
            TOPIC | {"options": {"kafka.bootstrap.servers": "x:1"}},
            "servers",
            "servers and the option kafka.bootstrap.servers both say where the brokers are: leave one out",
        ),
        (
            TOPIC | {"value": None, "on_bad": "fail"},
            "on_bad",
            "on_bad says what becomes of values that do not decode: it needs value, which says how they are written",
        ),
        (TOPIC | {"value": {"format": "yaml", "schema": "x BIGINT"}}, "value/format", "format must be one of 'json', 'avro' or 'csv', got 'yaml'"),
        (TOPIC | {"value": {"format": "json"}}, "value/schema", "schema is required"),
    ],
)
def test_what_is_wrong_with_a_topic_is_said_at_its_field(source: dict[str, Any], pointer: str, says: str) -> None:
    assert faults(document(source)) == {f"/streams/bids/source/{pointer}": says}


def test_only_topics_have_topics_and_a_time_of_their_own() -> None:
    found = faults(document(FILES | {"topic": "bids", "on_bad": "fail"}, sink={"format": "parquet", "topic": "results"}))
    assert found == {
        "/streams/bids/source/topic": "topic goes with format kafka, not with 'json'",
        "/streams/bids/source/on_bad": "on_bad goes with format kafka, not with 'json'",
        "/streams/bids/event_time": "event_time is required",
        "/sink/topic": "topic goes with format kafka, not with 'parquet'",
    }


def test_a_sink_without_a_topic_is_untouched() -> None:
    found = faults(document(TOPIC, sink={"format": "kafka", "key": "bids.x", "options": {"topic": "results"}}))
    assert found == {"/sink/key": "key needs topic: without it the result's columns are taken for the record's own, untouched"}
    found = faults(document(TOPIC, sink={"format": "kafka", "topic": "results", "options": {"topic": "results"}}))
    assert found == {"/sink/topic": "topic and the option topic both say where to write: leave one out"}


@pytest.mark.parametrize("document", ["README.md", "docs/spark.md"])
def test_the_bindings_that_documents_show_are_right(document: str) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for text in shown:
        read_bindings(yaml.safe_load(text))

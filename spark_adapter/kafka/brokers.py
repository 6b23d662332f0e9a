"""Asked of the brokers before a pipeline starts: do they answer, are the topics there, have they still what the checkpoint wants next.

Spark asks the same later, in the first batch, after minutes of trying and in the words of its stack.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.java_gateway import JavaPackage
from pyspark.sql import SparkSession

from models.bindings import KAFKA, SERVERS, BadTopic, Bindings
from spark_adapter.checkpoint import Folder
from spark_adapter.errors import Fault
from spark_adapter.expressions import SPARK_ERRORS
from spark_adapter.kafka.topics import letters_options, reading_options, writing_options

__all__ = ["absent", "lost"]

SECONDS = 15  # for a broker to answer; one that is there does so within one
SHOWN = 8  # topics in a message
LOSS = "failOnDataLoss"

Offsets = dict[str, dict[str, int]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True)
class _Use:
    """One place of the bindings that names a topic."""

    servers_at: str
    topic_at: str
    options: Mapping[str, str]
    """As the connector gets them."""
    topics: tuple[str, ...]
    """Those named one by one; a pattern may match what comes later."""


def absent(bindings: Bindings, spark: SparkSession) -> Iterator[Fault]:
    """Brokers that do not answer, topics that are not there."""
    found: dict[tuple[tuple[str, str], ...], list[_Use]] = {}
    for use in _uses(bindings):
        found.setdefault(tuple(sorted(_client(use.options).items())), []).append(use)
    for client, uses in found.items():
        servers = dict(client).get("bootstrap.servers", "")
        try:
            with _admin(spark, dict(client)) as admin:
                if admin is None:
                    return
                names = [str(name) for name in admin.listTopics().names().get(SECONDS, _seconds(spark))]
        except SPARK_ERRORS as error:
            yield uses[0].servers_at, f"no Kafka broker answers at {servers!r}: {_cause(error)}; servers are HOST:PORT, with commas between them"
            continue
        for use in uses:
            for topic in use.topics:
                if topic not in names:
                    yield use.topic_at, f"there is no topic {topic!r} at {servers}{_near(topic, names)}"


def lost(bindings: Bindings, spark: SparkSession, folder: Folder) -> Iterator[Fault]:
    """Topics of which the checkpoint wants records that the brokers no longer have."""
    wanted = _wanted(folder)
    for name, binding in bindings.streams.items():
        source = binding.source
        options = {key.lower(): value for key, value in source.options.items()}
        topics = [topic for topic in wanted if topic in _topics(reading_options(source))]
        if source.format.lower() != KAFKA or not topics or options.get(LOSS.lower(), "true").lower() == "false":
            continue
        with _admin(spark, _client(reading_options(source))) as admin:
            if admin is None:
                return
            for topic in topics:
                for sentence in _gone(admin, spark, topic, wanted[topic]):
                    yield f"/streams/{name}/source", sentence


def _uses(bindings: Bindings) -> Iterator[_Use]:
    for name, binding in bindings.streams.items():
        source, at = binding.source, f"/streams/{name}/source"
        if source.format.lower() != KAFKA:
            continue
        servers_at = f"{at}/servers" if source.servers is not None else f"{at}/options/{SERVERS}"
        options = reading_options(source)
        yield _Use(servers_at, f"{at}/topic" if source.topic is not None else f"{at}/options/subscribe", options, _topics(options))
        if isinstance(source.on_bad, BadTopic):
            yield _Use(servers_at, f"{at}/on_bad/topic", letters_options(source), (source.on_bad.topic,))
    if bindings.sink.format.lower() == KAFKA:
        options = writing_options(bindings)
        given = {key.lower(): value for key, value in options.items()}
        topics = (given["topic"],) if "topic" in given else ()
        yield _Use("/sink/servers", "/sink/topic", options, topics)


def _topics(options: Mapping[str, str]) -> tuple[str, ...]:
    """The topics that a reader's options name one by one."""
    given = {key.lower(): value for key, value in options.items()}
    return tuple(name.strip() for name in given.get("subscribe", "").split(",") if name.strip())


def _client(options: Mapping[str, str]) -> dict[str, str]:
    """What Kafka's own client is told: options that begin with kafka., without that."""
    prefix = "kafka."
    return {key[len(prefix) :]: value for key, value in options.items() if key.lower().startswith(prefix)}


@contextmanager
def _admin(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[Any]:
    """Kafka's admin client in Spark's JVM; None where the connector is not there, which is said elsewhere."""
    jvm: Any = spark._jvm
    kind = jvm.org.apache.kafka.clients.admin.AdminClient
    if isinstance(kind, JavaPackage):
        yield None
        return
    properties = jvm.java.util.Properties()
    for key, value in {**settings, "default.api.timeout.ms": str(SECONDS * 1000), "request.timeout.ms": str(SECONDS * 500)}.items():
        properties.setProperty(key, value)
    admin = kind.create(properties)
    try:
        yield admin
    finally:
        admin.close()


def _seconds(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.java.util.concurrent.TimeUnit.SECONDS


def _cause(error: BaseException) -> str:
    """The innermost reason, in Kafka's words."""
    java = getattr(error, "java_exception", None)
    if java is None:
        return str(error)
    while java.getCause() is not None:
        java = java.getCause()
    return str(java.getMessage() or java.getClass().getSimpleName()).rstrip(".")


def _near(topic: str, names: Sequence[str]) -> str:
    shown = sorted(name for name in names if not name.startswith("__"))
    near = difflib.get_close_matches(topic, shown, 1)
    if near:
        return f"; did you mean {near[0]!r}?"
    there = f"; there are {', '.join(shown[:SHOWN])}{', …' if len(shown) > SHOWN else ''}" if shown else ", and no other"
    return f"{there}: create it first"


def _wanted(folder: Folder) -> Offsets:
    """Where the checkpoint goes on: of every topic and partition the offset that its next new batch begins with, or the batch that was not ended."""
    batch = folder.latest("commits")
    if batch is None or not folder.has(f"offsets/{batch}"):
        return {}
    found: Offsets = {}
    for line in folder.read(f"offsets/{batch}").splitlines():
        try:
            document = json.loads(line)
        except ValueError:
            continue
        if not isinstance(document, dict):
            continue
        for topic, partitions in document.items():
            if isinstance(partitions, dict) and partitions and all(isinstance(offset, int) for offset in partitions.values()):
                # Streams may share a topic: what the slowest of them wants must be there.
                kept = found.setdefault(topic, {})
                for partition, offset in partitions.items():
                    kept[partition] = min(offset, kept.get(partition, offset))
    return found


def _gone(admin: Any, spark: SparkSession, topic: str, wanted: Mapping[str, int]) -> Iterator[str]:
    first, last = (_offsets(admin, spark, topic, wanted, spec) for spec in ("earliest", "latest"))
    choices = (
        f'Choose: go on with what is left (option {LOSS}: "false" of this source), or start anew with another checkpoint '
        "(and startingOffsets); the results in between are lost either way"
    )
    for partition, offset in sorted(wanted.items(), key=lambda item: int(item[0])):
        if first.get(partition, offset) > offset:
            yield (
                f"the checkpoint goes on at offset {offset} of partition {partition} of topic {topic}, but its records before "
                f"{first[partition]} have been deleted (retention). {choices}"
            )
            return
        if last.get(partition, offset) < offset:
            yield (
                f"the checkpoint goes on at offset {offset} of partition {partition} of topic {topic}, which ends at "
                f"{last[partition]}: it is another topic of the same name. {choices}"
            )
            return


def _offsets(admin: Any, spark: SparkSession, topic: str, wanted: Mapping[str, int], spec: str) -> dict[str, int]:
    jvm: Any = spark._jvm
    asked = jvm.java.util.HashMap()
    place = jvm.org.apache.kafka.common.TopicPartition
    of = getattr(jvm.org.apache.kafka.clients.admin.OffsetSpec, spec)
    places = {partition: place(topic, int(partition)) for partition in wanted}
    for partition in places.values():
        asked.put(partition, of())
    answer = admin.listOffsets(asked)
    found: dict[str, int] = {}
    for partition, at in places.items():
        try:
            found[partition] = int(answer.partitionResult(at).get(SECONDS, _seconds(spark)).offset())
        except SPARK_ERRORS:
            continue  # a partition that is not there any more: Spark says so
    return found

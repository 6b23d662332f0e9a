"""A Kafka broker inside the test's process, and a source that reads it as Spark's own `kafka` format does.

The broker is librdkafka's mock cluster: real sockets, real clients, no server to install. Spark's connector is a jar that no
Python registry has, so a Python data source stands in for it, with the same options and the same columns. Its name alone differs: Spark
keeps `kafka` for its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

__all__ = ["Broker", "KafkaSource"]

SECONDS = 120.0  # patience with a broker in the same process
QUIET = {"log_level": 0}


class Broker:
    """A cluster of one broker, as long as the object lives. Topics come into being when something is sent to them."""

    def __init__(self, partitions: int) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, **QUIET})
        self._partitions = partitions
        (found,) = self._producer.list_topics(timeout=SECONDS).brokers.values()
        self.address = f"{found.host}:{found.port}"

    def send(self, topic: str, values: Sequence[bytes]) -> None:
        """One after the other, to the partitions in turn."""
        for k, value in enumerate(values):
            self._producer.produce(topic, value=value, partition=k % self._partitions)
        assert self._producer.flush(SECONDS) == 0


@dataclass
class Part(InputPartition):  # type: ignore[misc]  # PySpark is not typed here
    """Messages first..last−1 of one partition."""

    topic: str
    partition: int
    first: int
    last: int


class KafkaSource(DataSource):  # type: ignore[misc]
    """The columns and the options of Spark's connector, as far as the tests use them."""

    @classmethod
    def name(cls) -> str:
        return "kafka_in_python"

    def schema(self) -> str:
        return "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return KafkaReader(dict(self.options))


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Sent to workers by value, so it imports the client where it is used: its classes are not to be copied."""

    def __init__(self, options: Mapping[str, str]) -> None:
        given = {key.lower(): value for key, value in options.items()}
        assert given["startingoffsets"] == "earliest"
        self.topic = given["subscribe"]
        self.limit = int(given.get("maxoffsetspertrigger", "0"))
        self.settings = {"bootstrap.servers": given["kafka.bootstrap.servers"], "group.id": "spark", "enable.auto.commit": False, **QUIET}
        self.target: dict[str, int] | None = None

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self.limit) if self.limit else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self.target = self._ends()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        ends = self._ends() if self.target is None else self.target
        if not isinstance(limit, ReadMaxRows):
            return ends
        each = max(1, limit.max_rows // max(1, len(ends)))
        return {partition: min(end, start.get(partition, 0) + each) for partition, end in ends.items()}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Part]:
        found = [Part(self.topic, int(partition), start.get(partition, 0), last) for partition, last in sorted(end.items())]
        return [part for part in found if part.last > part.first]

    def read(self, partition: Part) -> Iterator[tuple[Any, ...]]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self.settings)
        consumer.assign([TopicPartition(partition.topic, partition.partition, partition.first)])
        expected, deadline = partition.first, time.monotonic() + SECONDS
        while expected < partition.last:
            for message in consumer.consume(partition.last - expected, timeout=1.0):
                assert message.offset() == expected, f"offset {message.offset()} came instead of {expected}"
                yield message.key(), message.value(), message.topic(), message.partition(), message.offset()
                expected += 1
            assert time.monotonic() < deadline, f"the broker is silent at offset {expected}"
        consumer.close()

    def _ends(self) -> dict[str, int]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer(self.settings)
        found = consumer.list_topics(self.topic, timeout=SECONDS).topics[self.topic].partitions
        ends = {str(p): consumer.get_watermark_offsets(TopicPartition(self.topic, p), timeout=SECONDS)[1] for p in sorted(found)}
        consumer.close()
        return ends

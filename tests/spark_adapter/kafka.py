"""Topics of a broker, as tests use them: made, sent to, read to their end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from spark_adapter.kafka.local import Broker
from tests.spark_adapter.nested_loop import Row

__all__ = ["Topics", "as_json", "headers"]

SECONDS = 180.0  # patience with a broker on this machine, which may be away for a minute
QUIET = {"log_level": 0}


class Topics:
    """The topics of a broker."""

    def __init__(self, address: str, broker: Broker | None = None) -> None:
        self.address = address
        self._broker = broker
        self._admin = AdminClient({"bootstrap.servers": address, **QUIET})
        self._producer = self._new_producer()

    def make(self, *names: str, partitions: int = 2, config: Mapping[str, str] | None = None) -> None:
        for made in self._admin.create_topics([NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]).values():
            made.result(SECONDS)

    def widen(self, name: str, partitions: int) -> None:
        """More partitions."""
        for made in self._admin.create_partitions([NewPartitions(name, partitions)]).values():
            made.result(SECONDS)
        while len(self._admin.list_topics(name, timeout=SECONDS).topics[name].partitions) < partitions:
            time.sleep(0.05)
        # One that has sent to the topic before remembers for minutes how many it had.
        self._producer = self._new_producer()

    def forget(self, name: str, partition: int, before: int) -> None:
        """What retention does: the records before an offset are deleted."""
        for deleted in self._admin.delete_records([TopicPartition(name, partition, before)]).values():
            deleted.result(SECONDS)

    def send(self, name: str, values: Iterable[bytes | None], partitions: Sequence[int] = (0, 1), times: Sequence[datetime] | None = None) -> None:
        """One after the other, to the partitions in turn; `times` are the records' own, now by default."""
        producer = self._producer
        for k, value in enumerate(values):
            stamp = 0 if times is None else round(times[k].timestamp() * 1000)  # 0: now
            producer.produce(name, value=value, partition=partitions[k % len(partitions)], timestamp=stamp)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0

    @contextmanager
    def away(self) -> Iterator[None]:
        """The broker is down for as long as the block runs."""
        assert self._broker is not None
        self._broker.stop()
        try:
            yield
        finally:
            self._broker.start()

    def ends(self, name: str) -> list[int]:
        """Of every partition how many records it has had."""
        consumer = self._consumer()
        try:
            return [high for _, high in _bounds(consumer, name).values()]
        finally:
            consumer.close()

    def read(self, name: str) -> list[Message]:
        """All records that the topic has now."""
        consumer = self._consumer()
        try:
            bounds = _bounds(consumer, name)
            left = sum(high - low for low, high in bounds.values())
            consumer.assign([TopicPartition(name, p, low) for p, (low, _) in bounds.items()])
            messages: list[Message] = []
            while len(messages) < left:
                more = consumer.consume(left - len(messages), timeout=SECONDS)
                assert more, f"the broker is silent after {len(messages)} of {left} records"
                messages += more
            return messages
        finally:
            consumer.close()

    def _new_producer(self) -> Producer:
        # Without idempotence a record that is sent again may come after later ones.
        return Producer({"bootstrap.servers": self.address, "linger.ms": 5, "enable.idempotence": True, **QUIET})

    def _consumer(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.address, "group.id": "reader", "enable.auto.commit": False, **QUIET})


def _bounds(consumer: Consumer, name: str) -> dict[int, tuple[int, int]]:
    """Of every partition the first offset it has, and the next that it will get."""
    found = sorted(consumer.list_topics(name, timeout=SECONDS).topics[name].partitions)
    return {p: consumer.get_watermark_offsets(TopicPartition(name, p), timeout=SECONDS) for p in found}


def as_json(rows: Iterable[Row]) -> list[bytes]:
    return [json.dumps({**row, "ts": row["ts"].isoformat()}).encode() for row in rows]


def headers(message: Message) -> Mapping[str, bytes]:
    found: Any = message.headers()
    return dict(found or ())

"""`make demo-kafka`: three topics joined into a fourth, from a broker of its own to results on the screen, in a minute or two.

It starts a broker from Kafka's jars and three producers, plans the join, runs the plan on local Spark from topics to a topic, prints results as
a consumer reads them, and holds all of them against the definition. It ends by itself; whatever it makes lies in one folder for temporary files
and is removed. Exit code 1 where anything is not as it should be, 2 where something is missing.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from app.commands.draw import draw_plan
from app.demo import say, step
from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as make_plan
from spark_adapter.errors import AdapterError, ConnectorError

__all__ = ["main"]

SECONDS = 15.0  # that producers send for
SHOWN = 5  # results on the screen
PERSONS, AUCTIONS = 40, 60
RATES = {"persons": 5, "auctions": 15, "bids": 100}
WINDOWS = {"persons": 60, "auctions": 30, "bids": 10}
SCHEMAS = {"persons": "id BIGINT, name STRING", "auctions": "id BIGINT, seller BIGINT, item STRING", "bids": "auction BIGINT, price DOUBLE"}
RESULTS = "results"
PATIENCE = 120.0  # seconds for all results to have come


def main(arguments: Sequence[str]) -> int:
    """Everything in order; 0 where all of it is as it should be."""
    if arguments:
        produce(*arguments)
        return 0
    try:
        with tempfile.TemporaryDirectory(prefix="watersmeet-demo-") as folder:
            good = demonstrate(Path(folder))
    except AdapterError as error:
        say(str(error))
        return 2 if isinstance(error, ConnectorError) else 1
    say("", "All as it should be." if good else "Something is not as it should be: see above.")
    return 0 if good else 1


def demonstrate(folder: Path) -> bool:
    from spark_adapter.kafka.connector import AVRO, CONNECTOR, fetched
    from spark_adapter.kafka.local import running_broker

    step("broker: one node of Kafka from its own jars (Maven copies them the first time)")
    for jars in (CONNECTOR, AVRO):
        fetched(jars)
    with running_broker(folder / "broker") as broker:
        make_topics(broker.address)
        say(f"listens on {broker.address}; topics {', '.join(RATES)} and {RESULTS}")
        plan = planned()
        bindings = bound(broker.address, folder)
        return run(plan, bindings, broker.address, folder / "spark.log")


def make_topics(address: str) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    for made in admin.create_topics([NewTopic(name, 2, 1) for name in (*RATES, RESULTS)]).values():
        made.result(60)


def planned() -> Plan:
    step("plan: who sells what is bid for")
    distinct = {"persons": {"id": PERSONS}, "auctions": {"id": AUCTIONS, "seller": PERSONS}, "bids": {"auction": AUCTIONS}}
    streams = [{"name": name, "rate": rate, "window": {"seconds": WINDOWS[name]}, "distinct": distinct[name]} for name, rate in RATES.items()]
    predicates = [{"left": "persons.id", "right": "auctions.seller"}, {"left": "auctions.id", "right": "bids.auction"}]
    plan = make_plan(PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}}))
    say(draw_plan(plan))
    return plan


def bound(address: str, folder: Path) -> Bindings:
    """The times are those of the records, since nothing else is said."""
    step("bindings: topics in, a topic out")
    document = {
        "streams": {
            name: {"source": {"format": "kafka", "topic": name, "servers": address, "value": {"format": "json", "schema": schema}}}
            for name, schema in SCHEMAS.items()
        },
        "select": ["persons.name AS seller", "auctions.item AS item", "bids.price AS price"],
        "sink": {"format": "kafka", "topic": RESULTS, "value": "json"},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"processing_time": "1 second"},
    }
    for stream in document["streams"].values():  # type: ignore[attr-defined]
        stream["source"]["options"] = {"startingOffsets": "earliest"}
        stream["watermark"] = "10 seconds"
    say(yaml.safe_dump(document, sort_keys=False, width=140).rstrip())
    return Bindings.model_validate(document)


def run(plan: Plan, bindings: Bindings, address: str, log: Path) -> bool:
    import spark_adapter
    from spark_adapter.kafka.connector import connected
    from spark_adapter.session import open_session

    step(f"run: three producers for {SECONDS:.0f} seconds, the plan on local Spark, a consumer")
    spark = open_session(connected(bindings), log=log)
    try:
        pipeline = spark_adapter.compile(plan, bindings, spark).start()
        command = [sys.executable, "-m", "app.demo_kafka"]
        producers = [subprocess.Popen([*command, name, address]) for name in RATES]
        consumer = Consuming(address)
        consumer.start()
        try:
            for producer in producers:
                producer.wait()
            expected = by_definition(address)
            deadline = time.monotonic() + PATIENCE
            while consumer.found.total() < expected.total() and time.monotonic() < deadline:
                if pipeline.await_termination(0.2):
                    break
        finally:
            for producer in producers:
                producer.terminate()
            consumer.end()
            pipeline.stop()
        progress = pipeline.progress
    finally:
        spark.stop()
    step("check: every result against the definition")
    same = consumer.found == expected
    say(
        f"{progress.rows:,} records read in {progress.batches} batches, {consumer.found.total():,} results in the topic, "
        f"{expected.total():,} by the definition: {'the same' if same else 'they differ'}"
    )
    return same and bool(expected)


def produce(name: str, address: str) -> None:
    """One producer, a process of its own."""
    from confluent_kafka import Producer

    rng = random.Random(name)
    rows: dict[str, Any] = {
        "persons": lambda k: {"id": k % PERSONS, "name": f"person-{k % PERSONS}"},
        "auctions": lambda k: {"id": k % AUCTIONS, "seller": rng.randrange(PERSONS), "item": f"item-{k % AUCTIONS}"},
        "bids": lambda k: {"auction": rng.randrange(AUCTIONS), "price": round(rng.uniform(1, 500), 2)},
    }
    producer, started, sent = Producer({"bootstrap.servers": address, "linger.ms": 5}), time.monotonic(), 0
    while (passed := time.monotonic() - started) < SECONDS:
        while sent < passed * RATES[name]:
            producer.produce(name, json.dumps(rows[name](sent)).encode())
            sent += 1
        producer.poll(0.02)
    producer.flush(60)


class Consuming(threading.Thread):
    """A consumer of the results: prints the first of them, keeps all, each id once."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.found: Counter[str] = Counter()
        self._address, self._ended = address, threading.Event()
        self._seen: set[bytes] = set()

    def run(self) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer({"bootstrap.servers": self._address, "group.id": "demo", "auto.offset.reset": "earliest"})
        consumer.subscribe([RESULTS])
        while not self._ended.is_set():
            for message in consumer.consume(1000, timeout=0.2):
                key, value = message.key(), message.value()
                if message.error() is not None or key is None or value is None or key in self._seen:
                    continue
                self._seen.add(key)
                row = json.loads(value)
                if self.found.total() < SHOWN:
                    say(f"{row['seller']:<14}{row['item']:<10}{row['price']:>8.2f}    result {key.decode()}")
                self.found[json.dumps(row, sort_keys=True)] += 1
        consumer.close()

    def end(self) -> None:
        self._ended.set()
        self.join(30)


def by_definition(address: str) -> Counter[str]:
    """The results that the records in the topics have: every pair of rows compared."""
    persons, auctions, bids = (everything(address, name) for name in RATES)

    def within(one: str, a: int, other: str, b: int) -> bool:
        return b - a <= WINDOWS[one] * 1000 and a - b <= WINDOWS[other] * 1000

    found: Counter[str] = Counter()
    for auction_time, auction in auctions:
        sellers = [(t, p) for t, p in persons if p["id"] == auction["seller"] and within("persons", t, "auctions", auction_time)]
        offers = [(t, b) for t, b in bids if b["auction"] == auction["id"] and within("bids", t, "auctions", auction_time)]
        for person_time, person in sellers:
            for bid_time, bid in offers:
                if within("persons", person_time, "bids", bid_time):
                    found[json.dumps({"seller": person["name"], "item": auction["item"], "price": bid["price"]}, sort_keys=True)] += 1
    return found


def everything(address: str, topic: str) -> list[tuple[int, dict[str, Any]]]:
    """All records of a topic: their times in milliseconds, and what they hold."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "check", "enable.auto.commit": False})
    places = [TopicPartition(topic, p, 0) for p in consumer.list_topics(topic, timeout=60).topics[topic].partitions]
    left = sum(consumer.get_watermark_offsets(place, timeout=60)[1] for place in places)
    consumer.assign(places)
    found: list[tuple[int, dict[str, Any]]] = []
    while len(found) < left:
        found += [(message.timestamp()[1], json.loads(message.value() or b"")) for message in consumer.consume(left - len(found), timeout=60)]
    consumer.close()
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Four topics, 200,000 records a second offered: what each engine keeps up with; and how long a result takes.

    python -m tests.bench.bench_kafka [--rate 200000] [--seconds 60] [--latency-seconds 40] [--engines stem native]

Throughput: a producer sends a chain of four streams at the rate, all of it JSON, for as long as a pipeline runs that writes its results to a topic.
Broker, producer and Spark share the machine; their CPU is told apart. Figures are of the last two thirds of the time: rows a second that the
pipeline has read, and how far it is behind in the end.

Latency: the same pipeline at 1,000 records a second, without a trigger, with one of 1 s and one of 5 s: from the producer's send of a result's last
record to the moment when the broker has written the result. Then Spark's real-time trigger is asked for, and what it says is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from solvers.planner import plan as planned
from spark_adapter.expressions import said
from spark_adapter.kafka.connector import connected
from spark_adapter.kafka.local import Broker, running_broker
from spark_adapter.session import open_session
from tests.bench.bench_stem import Flow, request_of, tree_cpu
from tests.spark_adapter.kafka import Topics

__all__ = ["main"]

NAMES = ("a", "b", "c", "d")
WINDOW = 5.0  # seconds
PARTITIONS = 2
LATENCY_RATE = 1000
CHUNK = 0.05  # seconds between two sends of the producer
HEAP = ("-Xmx1g",)
WARM_UP_SECONDS = 20.0


def chain(rate: float) -> tuple[dict[str, Flow], list[str]]:
    """A chain in which a row has half a partner on either side, whatever the rate: about a tenth as many results as rows."""
    each = rate / len(NAMES)
    values = max(1, round(2 * 2 * each * WINDOW))
    keys = {"a": ["x"], "b": ["x", "y"], "c": ["y", "z"], "d": ["z"]}
    return {name: Flow(each, WINDOW, dict.fromkeys(keys[name], values)) for name in NAMES}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"]


def produce(address: str, rate: float, prefix: str) -> None:
    """The producer, a process of its own: sends until it is ended. Says on a line how many records a second it has sent."""
    flows, _ = chain(rate)
    producer = Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 20,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 2_000_000,
            "compression.type": "lz4",
        }
    )
    rng, started, sent = np.random.default_rng(0), time.monotonic(), 0
    pool = {name: _values(flow, rng) for name, flow in flows.items()}
    at = dict.fromkeys(NAMES, 0)
    told = started
    while True:
        due = round((time.monotonic() - started) * rate / len(NAMES))
        for name in NAMES:
            while at[name] < due:
                first = at[name] % len(pool[name])
                part = pool[name][first : first + due - at[name]]
                producer.produce_batch(f"{prefix}-{name}", part)
                at[name] += len(part)
        producer.poll(0)
        if time.monotonic() - told > 1:
            told = time.monotonic()
            sent = sum(at.values()) - len(producer)
            print(json.dumps({"seconds": told - started, "sent": sent, "cpu": time.process_time()}), flush=True)
        time.sleep(CHUNK)


def _values(flow: Flow, rng: np.random.Generator) -> list[dict[str, bytes]]:
    """Some seconds of records, which are sent again and again."""
    count = max(1000, round(flow.rate * 10))
    columns = {name: rng.integers(0, distinct, count) for name, distinct in flow.values.items()}
    return [{"value": ("{" + ",".join(f'"{name}":{column[k]}' for name, column in columns.items()) + "}").encode()} for k in range(count)]


@contextmanager
def producing(address: str, rate: float, prefix: str) -> Iterator[list[dict[str, float]]]:
    """A producer for as long as the block runs; the list has what it says of itself."""
    command = [sys.executable, "-m", "tests.bench.bench_kafka", "--produce", address, "--rate", str(rate), "--prefix", prefix]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
    said_so_far: list[dict[str, float]] = []
    out = process.stdout
    assert out is not None
    reader = threading.Thread(target=lambda: said_so_far.extend(map(json.loads, out)), daemon=True)
    reader.start()
    try:
        yield said_so_far
    finally:
        process.terminate()
        process.wait(30)


def plans(rate: float) -> dict[str, Plan]:
    flows, predicates = chain(rate)
    return {"stem": planned(request_of(flows, predicates)), "native": planned(request_of(flows, predicates, method="bjtree"))}


def bindings(folder: Path, address: str, prefix: str, rate: float, trigger: dict[str, Any]) -> Bindings:
    flows, _ = chain(rate)
    streams = {}
    for name, flow in flows.items():
        value = {"format": "json", "schema": ", ".join(f"{attribute} BIGINT" for attribute in flow.values)}
        source = {"format": "kafka", "topic": f"{prefix}-{name}", "servers": address, "value": value}
        streams[name] = {"source": source | {"options": {"startingOffsets": "latest"}}, "watermark": "1 second"}
    sent = ", ".join(f"{name}.record.timestamp" for name in NAMES)
    return Bindings.model_validate(
        {
            "streams": streams,
            "select": [f"unix_millis(greatest({sent})) AS sent"],
            "sink": {"format": "kafka", "topic": f"{prefix}-out"},
            "checkpoint": str(folder),
            "trigger": trigger,
        }
    )


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def throughput(spark: SparkSession, broker: Broker, topics: Topics, folder: Path, engine: str, rate: float, seconds: float) -> None:
    prefix = f"fast-{engine}"
    topics.make(*(f"{prefix}-{name}" for name in (*NAMES, "out")), partitions=PARTITIONS)
    bound = bindings(folder / prefix, broker.address, prefix, rate, {})
    pipeline = spark_adapter.compile(plans(rate)[engine], bound, spark, engine).start()
    with producing(broker.address, rate, prefix) as sender:
        pipeline.await_termination(seconds / 3)
        began, rows, ours, theirs = time.monotonic(), pipeline.progress.rows, spark_cpu(), cpu_of(broker.pid)
        sent, made = dict(sender[-1]), sum(topics.ends(f"{prefix}-out"))
        pipeline.await_termination(seconds * 2 / 3)
        passed, read = time.monotonic() - began, pipeline.progress.rows - rows
        cpu, broker_cpu = spark_cpu() - ours, cpu_of(broker.pid) - theirs
        offered = sender[-1]["sent"] - sent["sent"]
        producer_cpu = sender[-1]["cpu"] - sent["cpu"]
        behind = sender[-1]["sent"] - pipeline.progress.rows
        made = sum(topics.ends(f"{prefix}-out")) - made
    pipeline.stop()
    print(
        f"{engine:<8}{offered / passed:>10,.0f} offered/s{read / passed:>10,.0f} read/s{made / passed:>9,.0f} results/s{behind:>12,.0f} behind"
        f"   CPU: Spark {cpu / passed:.2f}, broker {broker_cpu / passed:.2f}, producer {producer_cpu / passed:.2f}",
        flush=True,
    )


def spark_cpu() -> float:
    return sum(seconds for kind, seconds in tree_cpu().items())


def latency(spark: SparkSession, broker: Broker, topics: Topics, folder: Path, engine: str, trigger: str, seconds: float) -> None:
    prefix = f"slow-{engine}-{trigger.split()[0]}"
    topics.make(*(f"{prefix}-{name}" for name in NAMES), partitions=PARTITIONS)
    topics.make(f"{prefix}-out", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
    bound = bindings(folder / prefix, broker.address, prefix, LATENCY_RATE, {} if trigger == "0" else {"processing_time": trigger})
    pipeline = spark_adapter.compile(plans(LATENCY_RATE)[engine], bound, spark, engine).start()
    with producing(broker.address, LATENCY_RATE, prefix):
        pipeline.await_termination(WARM_UP_SECONDS)
        since = time.time()
        pipeline.await_termination(seconds)
    pipeline.stop()
    waits = []
    for message in topics.read(f"{prefix}-out"):
        value: Any = message.value()
        if message.timestamp()[1] > since * 1000:
            waits.append(message.timestamp()[1] - json.loads(value)["sent"])
    print(
        f"{engine:<8}trigger {trigger:<10}{len(waits):>8,} results  median {statistics.median(waits):>7,.0f} ms  99 % {_at(waits, 0.99):>7,.0f} ms",
        flush=True,
    )


def _at(waits: Sequence[float], share: float) -> float:
    return sorted(waits)[min(len(waits) - 1, int(share * len(waits)))]


def real_time(spark: SparkSession, broker: Broker, topics: Topics, folder: Path, engine: str) -> None:
    """What becomes of a pipeline under Spark's real-time trigger."""
    prefix = f"real-{engine}"
    topics.make(*(f"{prefix}-{name}" for name in (*NAMES, "out")), partitions=PARTITIONS)
    pipeline = spark_adapter.compile(plans(LATENCY_RATE)[engine], bindings(folder / prefix, broker.address, prefix, LATENCY_RATE, {}), spark, engine)
    options = {"kafka.bootstrap.servers": broker.address, "topic": f"{prefix}-out", "checkpointLocation": str(folder / f"{prefix}-own")}
    for mode in ("append", "update"):
        try:
            query = pipeline.results.writeStream.format("kafka").options(**options).outputMode(mode).trigger(realTime="5 seconds").start()
            query.awaitTermination(15)
            query.stop()
            answer = "it runs"
        except PySparkException as error:
            answer = said(error)
        print(f"{engine:<8}real-time trigger, output mode {mode}: {answer}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=200_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--latency-seconds", type=float, default=40)
    parser.add_argument("--engines", nargs="+", choices=["stem", "native"], default=["stem", "native"])
    parser.add_argument("--produce", default="")
    parser.add_argument("--prefix", default="")
    arguments = parser.parse_args()
    if arguments.produce:
        produce(arguments.produce, arguments.rate, arguments.prefix)
        return
    with tempfile.TemporaryDirectory() as name, running_broker(Path(name) / "broker", HEAP) as broker:
        folder, topics = Path(name), Topics(broker.address, broker)
        spark = open_session(connected(bindings(folder, broker.address, "any", 1, {})))
        for engine in arguments.engines:
            throughput(spark, broker, topics, folder, engine, arguments.rate, arguments.seconds)
        for engine in arguments.engines:
            for trigger in ("0", "1 second", "5 seconds"):
                latency(spark, broker, topics, folder, engine, trigger, arguments.latency_seconds)
        for engine in arguments.engines:
            real_time(spark, broker, topics, folder, engine)
        spark.stop()


if __name__ == "__main__":
    main()

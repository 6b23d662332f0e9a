"""Four topics, 200,000 records a second offered: what each engine keeps up with; and how long a result takes.

    python -m tests.bench.bench_kafka [--rate 200000] [--warm-up 60] [--seconds 60] [--engines stem native] [--only throughput latency]
                                      [--batch-seconds 2] [--latency-seconds 40]

Throughput: a producer sends a chain of four streams at the rate, all of it JSON, while a pipeline reads them and writes its results to a topic. Three
stretches, each of whole batches: `--warm-up` seconds, in which the JVM compiles and Python's workers start, said apart; `--seconds` with the producer
at work; and, if the pipeline is behind then, as long again without it, which is what Spark does where others produce. Said are rows a second,
and the CPU of Spark (driver, JVM and Python's workers), broker, producer and all else on the machine, each by itself, in cores. A batch takes what
`--batch-seconds` offer at the most: who falls behind would else take ever larger batches, and end none of them in the time.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from spark_adapter.kafka.connector import CONNECTOR, connected, fetched
from spark_adapter.kafka.local import Broker, running_broker
from spark_adapter.pipeline import Pipeline
from spark_adapter.session import open_session
from tests.bench.bench_stem import Flow, request_of, tree_cpu
from tests.spark_adapter.kafka import Topics

__all__ = ["main"]

NAMES = ("a", "b", "c", "d")
WINDOW = 5.0  # seconds
PARTITIONS = 2
LATENCY_RATE = 1000
CHUNK = 0.05  # seconds between two sends of the producer
TOLD_SECONDS = 0.2  # between two lines of the producer
FEWEST = 2  # batches in a stretch
PATIENCE = 4  # times a stretch's length, if it has not so many batches then
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
    rng = np.random.default_rng(0)
    pool = {name: _values(flow, rng) for name, flow in flows.items()}
    at = dict.fromkeys(NAMES, 0)
    started = told = time.monotonic()
    print(json.dumps({"sent": 0}), flush=True)
    while True:
        due = round((time.monotonic() - started) * rate / len(NAMES))
        for name in NAMES:
            taken = -1
            while at[name] < due and taken:  # none are taken while the broker is too slow and the queue is full
                first = at[name] % len(pool[name])
                taken = producer.produce_batch(f"{prefix}-{name}", pool[name][first : first + due - at[name]])
                at[name] += taken
        producer.poll(0)
        if time.monotonic() - told > TOLD_SECONDS:
            told = time.monotonic()
            print(json.dumps({"sent": sum(at.values()) - len(producer)}), flush=True)
        time.sleep(CHUNK)


def _values(flow: Flow, rng: np.random.Generator) -> list[dict[str, bytes]]:
    """Some seconds of records, which are sent again and again."""
    count = max(1000, round(flow.rate * 10))
    columns = {name: rng.integers(0, distinct, count) for name, distinct in flow.values.items()}
    return [{"value": ("{" + ",".join(f'"{name}":{column[k]}' for name, column in columns.items()) + "}").encode()} for k in range(count)]


class Sender:
    """A producer at work."""

    def __init__(self, address: str, rate: float, prefix: str) -> None:
        """Returns when it begins to send: its records are made then."""
        command = [sys.executable, "-m", "tests.bench.bench_kafka", "--produce", address, "--rate", str(rate), "--prefix", prefix]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])
        assert self._process.stdout is not None
        self.sent: int = json.loads(self._process.stdout.readline())["sent"]
        self._cpu = 0.0
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.sent = json.loads(line)["sent"]

    @property
    def cpu(self) -> float:
        """CPU seconds so far; none are added once it has ended."""
        if self._process.poll() is None:
            self._cpu = cpu_of(self._process.pid)
        return self._cpu

    def end(self) -> None:
        if self._process.poll() is None:
            _ = self.cpu
            self._process.terminate()
            self._process.wait(30)


@contextmanager
def producing(address: str, rate: float, prefix: str) -> Iterator[Sender]:
    """A producer for as long as the block runs, or until it is ended."""
    sender = Sender(address, rate, prefix)
    try:
        yield sender
    finally:
        sender.end()


def plans(rate: float) -> dict[str, Plan]:
    flows, predicates = chain(rate)
    return {"stem": planned(request_of(flows, predicates)), "native": planned(request_of(flows, predicates, method="bjtree"))}


def bindings(folder: Path, address: str, prefix: str, rate: float, trigger: dict[str, Any], at_most: float = 0.0) -> Bindings:
    """Of topics that are read from now on; `at_most`: seconds of records in a batch, unless 0."""
    flows, _ = chain(rate)
    streams = {}
    for name, flow in flows.items():
        value = {"format": "json", "schema": ", ".join(f"{attribute} BIGINT" for attribute in flow.values)}
        source = {"format": "kafka", "topic": f"{prefix}-{name}", "servers": address, "value": value}
        options = {"startingOffsets": "latest"} | ({"maxOffsetsPerTrigger": str(round(flow.rate * at_most))} if at_most else {})
        streams[name] = {"source": source | {"options": options}, "watermark": "1 second"}
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


@dataclass(frozen=True)
class Mark:
    """What there was when a batch had ended."""

    at: float
    batches: int
    read: int
    sent: int
    made: int
    spark: float
    broker: float
    producer: float
    busy: float
    """CPU seconds of all processes of the machine."""


class Watch:
    """A pipeline, its producer and the broker, looked at when a batch ends."""

    def __init__(self, pipeline: Pipeline, sender: Sender, broker: Broker, made: Callable[[], int]) -> None:
        self._pipeline, self._sender, self._broker, self._made = pipeline, sender, broker, made

    def mark(self) -> Mark:
        progress, producer, broker = self._pipeline.progress, self._sender.cpu, cpu_of(self._broker.pid)
        # Broker and producer are children of this process, as Spark is. What a child used that has ended counts as its parent's.
        spark = sum(tree_cpu().values()) - broker - producer
        return Mark(time.monotonic(), progress.batches, progress.rows, self._sender.sent, self._made(), spark, broker, producer, busy())

    def ended(self) -> Mark:
        """The mark of the next batch that ends."""
        before = self._pipeline.progress.batches
        while self._pipeline.progress.batches == before:
            assert not self._pipeline.await_termination(0.05), "the pipeline has ended"
        return self.mark()

    def stretch(self, first: Mark, seconds: float) -> Mark:
        """The mark of the last batch that ends within so many seconds, and of the `FEWEST`th at the earliest unless that takes far too long."""
        last = first
        while (passed := last.at - first.at) < seconds or (last.batches < first.batches + FEWEST and passed < PATIENCE * seconds):
            last = self.ended()
        return last


def busy() -> float:
    user, nice, system, *_ = map(int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def throughput(spark: SparkSession, broker: Broker, topics: Topics, folder: Path, engine: str, given: argparse.Namespace) -> None:
    prefix, rate = f"fast-{engine}", given.rate
    topics.make(*(f"{prefix}-{name}" for name in (*NAMES, "out")), partitions=PARTITIONS)
    bound = bindings(folder / prefix, broker.address, prefix, rate, {}, given.batch_seconds)
    pipeline = spark_adapter.compile(plans(rate)[engine], bound, spark, engine)
    with producing(broker.address, rate, prefix) as sender:
        pipeline.start()
        watch = Watch(pipeline, sender, broker, lambda: sum(topics.ends(f"{prefix}-out")))
        started = watch.mark()
        warm = watch.stretch(started, given.warm_up)
        report(engine, "warm-up", started, warm)
        last = watch.stretch(warm, given.seconds)
        report(engine, "producing", warm, last)
        sender.end()
        # What lies there for longer than the stretch is read in batches as full as before.
        if sender.sent - last.read > given.seconds * (last.read - warm.read) / (last.at - warm.at):
            first = watch.ended()
            report(engine, "alone", first, watch.stretch(first, given.seconds / 2))
    pipeline.stop()


def report(engine: str, stretch: str, first: Mark, last: Mark) -> None:
    passed = last.at - first.at
    names = ("sent", "read", "made", "spark", "broker", "producer", "busy")
    per_second = {what: (getattr(last, what) - getattr(first, what)) / passed for what in names}
    others = per_second["busy"] - sum(per_second[what] for what in ("spark", "broker", "producer"))
    print(
        f"{engine:<8}{stretch:<11}{passed:>5.0f} s{last.batches - first.batches:>4} batches{per_second['sent']:>10,.0f} offered/s"
        f"{per_second['read']:>10,.0f} read/s{per_second['made']:>8,.0f} results/s{last.sent - last.read:>12,.0f} behind   cores: "
        f"Spark {per_second['spark']:.2f}, broker {per_second['broker']:.2f}, producer {per_second['producer']:.2f}, others {max(0.0, others):.2f}; "
        f"{1e6 * (last.spark - first.spark) / max(1, last.read - first.read):.1f} CPU s of Spark a million rows",
        flush=True,
    )


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
    parser.add_argument("--warm-up", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--batch-seconds", type=float, default=2.0, help="of what is offered, in one batch")
    parser.add_argument("--latency-seconds", type=float, default=40)
    parser.add_argument("--engines", nargs="+", choices=["stem", "native"], default=["stem", "native"])
    parser.add_argument("--only", nargs="+", choices=["throughput", "latency"], default=["throughput", "latency"])
    parser.add_argument("--produce", default="")
    parser.add_argument("--prefix", default="")
    arguments = parser.parse_args()
    if arguments.produce:
        produce(arguments.produce, arguments.rate, arguments.prefix)
        return
    fetched(CONNECTOR)
    with tempfile.TemporaryDirectory() as name, running_broker(Path(name) / "broker", HEAP) as broker:
        folder, topics = Path(name), Topics(broker.address, broker)
        spark = open_session(connected(bindings(folder, broker.address, "any", 1, {})))
        for engine in arguments.engines if "throughput" in arguments.only else ():
            throughput(spark, broker, topics, folder, engine, arguments)
        for engine in arguments.engines if "latency" in arguments.only else ():
            for trigger in ("0", "1 second", "5 seconds"):
                latency(spark, broker, topics, folder, engine, trigger, arguments.latency_seconds)
        for engine in arguments.engines if "latency" in arguments.only else ():
            real_time(spark, broker, topics, folder, engine)
        spark.stop()


if __name__ == "__main__":
    main()

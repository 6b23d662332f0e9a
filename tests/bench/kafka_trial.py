"""Topics through everything that happens to them: every result is there, in files once, in a topic at least once with ids that remove the rest.

    python -m tests.bench.kafka_trial [--engine stem] [--away 60] [--seed 0]

A real broker, three topics, a producer that sends all the time. One process runs two pipelines over the topics, into files and into
a topic. While they run: the process is restarted three times in due order and killed twice with -9, JVM and all, in mid-batch; the broker goes away
for a minute and comes back; a topic gets more partitions. In the end both sinks are held against a nested loop. Exit code 1 where anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spark_adapter
from models.bindings import Bindings
from spark_adapter.kafka.connector import connected
from spark_adapter.kafka.local import running_broker
from spark_adapter.kafka.topics import ID_HEADER
from spark_adapter.session import open_session
from tests.bench.kill_trials import written
from tests.spark_adapter.kafka import Topics, as_json, headers
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import make_plan, make_query, moment

__all__ = ["main"]

QUERY = make_query({"a": 40, "b": 20, "c": 30}, ["a.x = b.x", "b.y = c.y"])
NAMES = [stream.name for stream in QUERY.streams]
PLANS = {"stem": make_plan(QUERY, ["a", "b", "c"]), "native": make_plan(QUERY, [["a", "b"], "c"])}
SINKS = ("files", "topic")
ROOT = Path(__file__).parents[2]
VALUES = 40
STEP = 0.2  # seconds of event time between two rows of a stream
PER_SECOND = 8  # rows of each stream that are sent in a second
LAST_LINES, LINE = 6, 400  # of the driver's log, where it has failed
UNPLANNED = 10  # times that it may fail by itself: a worker that a busy machine lets start too slowly ends a batch, and a start goes on from there
PATIENCE = 900.0  # seconds, on a machine that others use too, for the pipelines to reach what is waited for


def bindings(folder: Path, address: str, sink: str) -> Bindings:
    value = {"format": "json", "schema": "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT"}
    source = {"format": "kafka", "servers": address, "value": value, "options": {"startingOffsets": "earliest"}}
    place = {"format": "json", "options": {"path": str(folder / "out")}} if sink == "files" else {"format": "kafka", "topic": "out"}
    document: dict[str, Any] = {
        # Rows are sent in order; what one batch reads of several partitions need not be.
        "streams": {name: {"source": source | {"topic": name}, "event_time": "ts", "watermark": "60 seconds"} for name in NAMES},
        "sink": place,
        "checkpoint": str(folder / sink),
        "trigger": {"processing_time": "500 milliseconds"},
    }
    return Bindings.model_validate(document)


def work(folder: Path, address: str, engine: str) -> None:
    """The process that is restarted and killed: both pipelines, until a line comes or whoever started it is gone."""
    bound = [bindings(folder, address, sink) for sink in SINKS]
    spark = open_session(connected(bound[0]) | {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    pipelines = [spark_adapter.compile(PLANS[engine], each, spark, engine).start() for each in bound]
    told = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        told.set()

    threading.Thread(target=listen, daemon=True).start()
    while not told.wait(0.2):
        for pipeline in pipelines:
            assert not pipeline.await_termination(0.01)
    for pipeline in pipelines:
        pipeline.stop()


class Driver:
    """The process with the two pipelines, started as often as it ends."""

    def __init__(self, folder: Path, address: str, engine: str) -> None:
        self._folder = folder
        self._command = [sys.executable, "-m", "tests.bench.kafka_trial", "--work", str(folder), "--address", address, "--engine", engine]
        self._process: subprocess.Popen[str] | None = None
        self.unplanned = 0

    def start(self) -> None:
        log = (self._folder / "driver.log").open("a")
        self._process = subprocess.Popen(self._command, cwd=ROOT, start_new_session=True, stdin=subprocess.PIPE, stdout=log, stderr=log, text=True)

    def stop(self) -> None:
        """In due order."""
        assert self._process is not None
        self._process.communicate("stop\n", timeout=PATIENCE)
        assert self._process.returncode == 0, f"the driver failed: {self._said()}"

    def kill(self) -> None:
        """At once, with its JVM and workers."""
        assert self._process is not None
        assert self._process.poll() is None, f"the driver has ended: {self._said()}"
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def wait_for_batches(self, more: int) -> None:
        """Until both pipelines have committed so many more."""
        goal = {sink: self._committed(sink) + more for sink in SINKS}
        self.wait_until(lambda: all(self._committed(sink) >= goal[sink] for sink in SINKS), "batches")

    def wait_until(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert self._process is not None
            if self._process.poll() is not None:
                self.unplanned += 1
                print(f"the driver has failed by itself and is started again: {self._said()}", flush=True)
                assert self.unplanned <= UNPLANNED
                self.start()
            assert time.monotonic() < deadline, f"no {what} within {PATIENCE:.0f} seconds"
            time.sleep(0.2)

    def _said(self) -> str:
        """Why it ended, as its log has it."""
        lines = (self._folder / "driver.log").read_text(errors="replace").splitlines()
        return "\n".join([line[:LINE] for line in lines if "Error" in line or "Exception" in line][-LAST_LINES:])

    def _committed(self, sink: str) -> int:
        """The number of the last batch that was committed: Spark keeps the last hundred."""
        return max((int(path.name) for path in (self._folder / sink / "commits").glob("[0-9]*")), default=-1)


class Sending(threading.Thread):
    """Sends rows all the time, to all partitions in turn, until it is told to end."""

    def __init__(self, topics: Topics, seed: int) -> None:
        super().__init__(daemon=True)
        self.topics, self._rng = topics, random.Random(seed)
        self.rows: dict[str, list[Row]] = {name: [] for name in NAMES}
        self.partitions = dict.fromkeys(NAMES, 2)
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.wait(1.0):
            for name in NAMES:
                made: list[Row] = []
                for k in range(len(self.rows[name]), len(self.rows[name]) + PER_SECOND):
                    made.append({"id": k, "ts": moment(k * STEP), "x": self._rng.randrange(VALUES), "y": self._rng.randrange(VALUES)})
                self.topics.send(name, as_json(made), range(self.partitions[name]))
                self.rows[name] += made

    def end(self) -> None:
        self._end.set()
        self.join()


def in_topic(topics: Topics) -> tuple[Counter[tuple[int, ...]], int]:
    """The results that a consumer keeps that remembers ids, and how many records it has dropped."""
    kept, seen, dropped = Counter[tuple[int, ...]](), set[bytes](), 0
    for message in topics.read("out"):
        key, value = headers(message)[ID_HEADER], message.value()
        assert value is not None
        if key in seen:
            dropped += 1
            continue
        seen.add(key)
        row = json.loads(value)
        kept[tuple(row[name]["id"] for name in NAMES)] += 1
    return kept, dropped


def trial(folder: Path, engine: str, away: float, seed: int) -> list[str]:
    """What went wrong: a line each; none where all is as it should be."""
    rng = random.Random(seed)
    with running_broker(folder / "broker") as broker:
        topics = Topics(broker.address, broker)
        topics.make(*NAMES, "out", partitions=2)
        sending = Sending(topics, seed)
        driver = Driver(folder, broker.address, engine)
        sending.start()
        driver.start()

        def restart() -> None:
            driver.wait_for_batches(3)
            driver.stop()
            driver.start()

        def kill() -> None:
            driver.wait_for_batches(3)
            time.sleep(rng.random())
            driver.kill()
            driver.start()

        def widen() -> None:
            driver.wait_for_batches(1)
            topics.widen("b", 4)
            sending.partitions["b"] = 4

        def lose_the_broker() -> None:
            driver.wait_for_batches(2)
            with topics.away():
                time.sleep(away)

        for event in (restart, kill, widen, lose_the_broker, restart, kill, restart):
            print(f"{event.__name__} after {len(sending.rows['a'])} rows a stream", flush=True)
            event()
        driver.wait_for_batches(3)
        sending.end()
        expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, sending.rows))
        driver.wait_until(lambda: written(folder).total() >= expected.total(), "end of the files")
        driver.wait_until(lambda: in_topic(topics)[0].total() >= expected.total(), "end of the topic")
        driver.stop()
        files, (kept, dropped) = written(folder), in_topic(topics)
    rows = sum(map(len, sending.rows.values()))
    print(f"{expected.total()} results of {rows} rows; {files.total()} in files; {kept.total()} in the topic, and {dropped} duplicates of them")
    wrong = {name: (found - expected).total() + (expected - found).total() for name, found in (("files", files), ("topic", kept))}
    return [f"{number} results missing or doubled in the {name}" for name, number in wrong.items() if number] + ([] if expected else ["no results"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["stem", "native"], default="stem")
    parser.add_argument("--away", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--address", default="")
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.address, arguments.engine)
        return
    with tempfile.TemporaryDirectory() as name:
        wrong = trial(Path(name), arguments.engine, arguments.away, arguments.seed)
    print("\n".join(wrong) or "all as it should be")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

"""Executors of a cluster killed and halted under a running pipeline: every result is there in the end, each once.

    python -m tests.bench.executor_kills [--batches 24] [--blows 10] [--seed 0]

A cluster of Spark's own kind on this machine, a master and two workers with one executor each, works through files, one per batch, with tasks
retried and speculation on. The workers have addresses of their own, because Spark runs no second attempt of a task on the host of the first.
In mid-batch one executor is struck: halted for some seconds, so that its tasks are run a second time beside it, and the first attempts go on
when the second may have committed; or killed with -9, so that its tasks are run again and its part of the state comes from the checkpoint.
Spark's own log of events says how many attempts were in vain and how many tasks were run a second time beside the first.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

import spark_adapter
from spark_adapter.java import java_home
from spark_adapter.session import open_session
from tests.bench.kill_trials import PATIENCE, PLANS, QUERY, ROOT, SCHEMA, committed, rows, written
from tests.spark_adapter.nested_loop import nested_loop
from tests.spark_adapter.plans import bindings_of, write_stream

__all__ = ["Outcome", "main", "struck"]

PLAN = PLANS[1]  # a materialized pair: state that is made of state
LAST_WORDS = 20.0  # seconds that workers have to clean up after an application has ended
HALT = 4.0  # seconds: longer than a task takes, far shorter than what Spark takes for dead
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
SETTINGS = {
    "spark.driver.extraJavaOptions": QUICK,
    "spark.executor.extraJavaOptions": QUICK,
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "1g",
    "spark.executor.cores": "1",
    # Both executors are there before the first batch.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.cores.max": "2",
    "spark.task.maxFailures": "8",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.multiplier": "1.5",
    "spark.speculation.quantile": "0.5",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@dataclass(frozen=True)
class Outcome:
    """What came of one run."""

    killed: int
    halted: int
    batches: int
    expected: int
    wrong: int
    """Results missing or doubled in the sink."""
    counted: int
    """Results as the pipeline itself counted them."""
    shipped: bool
    """Whether executors ran the code that was sent to them."""
    executors_lost: int
    speculated: int
    """Tasks of which a second attempt was started beside the first."""
    failed: int
    """Attempts that did not end well: lost with their executor, or overtaken."""
    copied: int
    """Folders of copies of states that were seen on the workers' disks while it ran."""
    left: int
    """Of them, those that were there after it."""

    @property
    def right(self) -> bool:
        return not self.wrong and self.counted == self.expected and self.shipped and self.copied > 0 and not self.left


def work(folder: Path, master: str) -> None:
    """The driver's process."""
    (folder / "events").mkdir()
    spark = open_session(SETTINGS | {"spark.eventLog.dir": (folder / "events").as_uri()}, master)
    bindings = bindings_of(folder, {stream.name: SCHEMA for stream in QUERY.streams}, watermark="1 second")
    pipeline = spark_adapter.compile(PLAN, bindings, spark, cells=2).start()
    pipeline.await_termination()

    def where(_: int) -> str:
        import spark_adapter.stem.operator

        return str(spark_adapter.stem.operator.__file__)

    places = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
    progress = pipeline.progress
    sys.stdout.write(
        json.dumps({"counted": progress.results, "batches": progress.batches, "shipped": all("watersmeet.zip" in place for place in places)}) + "\n"
    )
    spark.stop()


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers: the master's URL, and the processes below which executors run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spark_home = Path(pyspark.__file__).parent
    environment = os.environ | {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home), "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_DAEMON_JAVA_OPTS": QUICK, "PYSPARK_PYTHON": sys.executable}
    url = f"spark://127.0.0.1:{port}"
    master = ["master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
    workers = [
        ["worker.Worker", "--host", f"127.0.0.{n}", "--webui-port", "0", "-c", "1", "-m", "1g", "-d", str(folder / f"worker {n}"), url]
        for n in (2, 3)
    ]
    running: list[subprocess.Popen[bytes]] = []
    try:
        with (folder / "cluster").open("w") as log:
            for name, *arguments in (master, *workers):
                command = [str(spark_home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments]
                own = {"SPARK_LOCAL_DIRS": str(folder / "disks" / str(len(running)))}
                running.append(subprocess.Popen(command, env=environment | own, stdout=log, stderr=log))
        yield url, [process.pid for process in running[1:]]
    finally:
        for process in reversed(running):
            process.terminate()
        for process in running:
            process.wait()


def executors(above: Sequence[int]) -> list[int]:
    """The processes of the executors below these."""
    parents: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has ended
    found = []
    for pid in parents:
        ancestor = pid
        while ancestor in parents and ancestor not in above:
            ancestor = parents[ancestor]
        try:
            if ancestor in above and b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


def strike(pid: int, kill: bool) -> bool:
    """Whether the process was still there to be killed or halted."""
    try:
        os.kill(pid, signal.SIGKILL if kill else signal.SIGSTOP)
        if not kill:
            time.sleep(HALT)
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


def struck(folder: Path, batches: int, blows: int, seed: int = 0) -> Outcome:
    """Run the pipeline and strike its executors so often, halting first, in turn with killing."""
    rng = random.Random(seed)
    data = rows(batches, seed)
    for name, listed in data.items():
        write_stream(folder / name, listed, batches)
    made = {True: 0, False: 0}
    with cluster(folder) as (master, workers), (folder / "errors").open("w") as errors:
        command = [sys.executable, "-m", "tests.bench.executor_kills", "--work", str(folder), "--master", master]
        environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            seen, deadline, copied = 0, time.monotonic() + PATIENCE, set[Path]()
            while sum(made.values()) < blows and driver.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
                copied.update(copies(folder))
                if committed(folder) <= seen or not in_mid_batch(folder):
                    continue
                time.sleep(rng.random() / 2)
                alive = executors(workers)
                kill = made[False] > made[True]
                if alive and strike(rng.choice(alive), kill):
                    made[kill] += 1
                    seen, deadline = committed(folder), time.monotonic() + PATIENCE
            said, _ = driver.communicate(timeout=PATIENCE)
            gone_by = time.monotonic() + LAST_WORDS
            while copies(folder) and time.monotonic() < gone_by:
                time.sleep(0.1)
        finally:
            driver.kill()
    if driver.returncode:
        raise RuntimeError(f"the pipeline failed: {(folder / 'errors').read_text()[-4000:]}")
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, data))
    found = written(folder)
    events = list(logged(folder))
    ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return Outcome(
        killed=made[True],
        halted=made[False],
        expected=expected.total(),
        wrong=((expected - found) + (found - expected)).total(),
        executors_lost=sum(1 for event in events if event["Event"] == "SparkListenerExecutorRemoved"),
        speculated=sum(1 for event in events if event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]),
        copied=len(copied),
        left=len(copies(folder)),
        failed=sum(1 for event in ends if event["Task End Reason"]["Reason"] != "Success"),
        **json.loads(said.splitlines()[-1]),
    )


def copies(folder: Path) -> list[Path]:
    """What workers hold of states on their disks."""
    return list((folder / "disks").glob("*/*/*/*/watersmeet-*"))


def in_mid_batch(folder: Path) -> bool:
    """Spark writes down what a batch will read before it starts it."""
    return sum(1 for _ in (folder / "checkpoint" / "offsets").glob("[0-9]*")) > committed(folder)


def logged(folder: Path) -> Iterator[Mapping[str, Any]]:
    for file in (folder / "events").iterdir():
        for line in file.read_text().splitlines():
            yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--blows", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--master", default="")
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.master)
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = struck(Path(folder), arguments.batches, arguments.blows, arguments.seed)
    print(
        f"{outcome.killed} kills and {outcome.halted} halts of executors in {outcome.batches} batches: {outcome.executors_lost} executors lost, "
        f"{outcome.failed} attempts of tasks in vain, {outcome.speculated} run a second time beside the first; "
        f"{outcome.expected} results, {outcome.wrong} missing or doubled; {outcome.left} of {outcome.copied} folders of copies left behind"
    )
    sys.exit(0 if outcome.right and outcome.killed else 1)


if __name__ == "__main__":
    main()

"""Executors and drivers of a cluster killed and halted under a running pipeline: every result is there in the end, each once.

    python -m tests.bench.executor_kills [--batches 24] [--blows 10] [--kinds halt kill driver] [--seed 0] [--patience 300]

A cluster of Spark's own kind on this machine, a master and two workers with one executor each, works through files, one per batch, with tasks
retried and speculation on. The workers have addresses of their own, because Spark runs no second attempt of a task on the host of the first.
In mid-batch one executor is struck: halted for some seconds, so that its tasks are run a second time beside it, and the first attempts go on
when the second may have committed; or killed with -9, so that its tasks are run again and its part of the state comes from the checkpoint. Or
the driver is killed with -9, and another one takes over its checkpoint with another plan. No two blows fall on one batch.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

import pyspark

import spark_adapter
from spark_adapter.java import java_home
from spark_adapter.session import open_session
from tests.bench.kill_trials import PATIENCE, PLANS, QUERY, ROOT, SCHEMA, committed, merges, rows, written
from tests.spark_adapter.nested_loop import nested_loop
from tests.spark_adapter.plans import bindings_of, write_stream
from tests.spark_adapter.runs import TOO_SLOW

__all__ = ["Outcome", "causes", "cluster", "main", "struck"]

FIRST_PLAN = 1  # a materialized pair: state that is made of state
KINDS = ("halt", "kill")
LAST_WORDS = 20.0  # seconds that workers have to clean up after an application has ended
MOST_SLOW = 5  # drivers that may end because a worker was not heard in time
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

    blows: Mapping[str, int]
    """By kind."""
    batches: int
    """That were committed."""
    merges: int
    """Of pieces of state."""
    expected: int
    wrong: int
    """Results missing or doubled in the sink."""
    counted: int
    """Results as the pipeline itself counted them, since its last driver started."""
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
    slow: int
    """Drivers that ended because Spark did not hear a Python worker in time, on a machine that is busy with other things."""

    @property
    def right(self) -> bool:
        counts = self.counted == self.expected or bool(self.blows.get("driver")) or self.slow > 0
        return not self.wrong and counts and self.shipped and self.copied > 0 and not self.left


def work(folder: Path, master: str, start: int) -> None:
    """The driver's process, the first or one that takes over."""
    (folder / "events").mkdir(exist_ok=True)
    spark = open_session(SETTINGS | {"spark.eventLog.dir": (folder / "events").as_uri()}, master)
    bindings = bindings_of(folder, {stream.name: SCHEMA for stream in QUERY.streams}, watermark="1 second")
    pipeline = spark_adapter.compile(PLANS[(FIRST_PLAN + start) % len(PLANS)], bindings, spark, cells=2).start()
    pipeline.await_termination()

    def where(_: int) -> str:
        import spark_adapter.stem.operator

        return str(spark_adapter.stem.operator.__file__)

    places = spark.sparkContext.parallelize(range(4), 4).map(where).collect()
    progress = pipeline.progress
    sys.stdout.write(json.dumps({"counted": progress.results, "shipped": all("watersmeet.zip" in place for place in places)}) + "\n")
    spark.stop()


@contextmanager
def cluster(folder: Path, python: str = sys.executable) -> Iterator[tuple[str, list[int]]]:
    """A master and two workers, whose executors run this Python: the master's URL, and the processes below which executors run."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spark_home = Path(pyspark.__file__).parent
    environment = os.environ | {"JAVA_HOME": str(java_home()), "SPARK_HOME": str(spark_home), "SPARK_DAEMON_MEMORY": "256m"}
    environment |= {"SPARK_DAEMON_JAVA_OPTS": QUICK, "PYSPARK_PYTHON": python}
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


def strike(pid: int, kind: str) -> bool:
    """Whether the process was still there to be killed or halted."""
    try:
        os.kill(pid, signal.SIGSTOP if kind == "halt" else signal.SIGKILL)
        if kind == "halt":
            time.sleep(HALT)
            os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return False
    return True


@contextmanager
def driven(folder: Path, master: str, start: int) -> Iterator[subprocess.Popen[str]]:
    """A driver, with its JVM, in a group of processes of its own."""
    command = [sys.executable, "-m", "tests.bench.executor_kills", "--work", str(folder), "--master", master, "--start", str(start)]
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with (folder / "errors").open("w") as errors:
        driver = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            yield driver
        finally:
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
            driver.communicate()


def causes(text: str) -> list[str]:
    """Of what a failed run has written, the lines that name an error."""
    found = dict.fromkeys(line.strip() for line in text.splitlines() if not line.startswith("\t") and ("Error" in line or "Exception" in line))
    return [line[:300] for line in found][-8:]


def struck(folder: Path, batches: int, blows: int, seed: int = 0, kinds: Sequence[str] = KINDS, patience: float = PATIENCE) -> Outcome:
    """Run the pipeline and strike it so often, by these kinds of blows in turn; `patience` is for every batch, in seconds."""
    rng = random.Random(seed)
    data = rows(batches, seed)
    for name, listed in data.items():
        write_stream(folder / name, listed, batches)
    made: Counter[str] = Counter()
    copied: set[Path] = set()
    said = ""
    slow = 0
    with cluster(folder) as (master, workers):
        seen = 0
        while not said:
            with driven(folder, master, made["driver"] + slow) as driver:
                deadline = time.monotonic() + patience
                while made.total() < blows and driver.poll() is None:
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"after {dict(made)} and {committed(folder)} batches: no other batch in {patience:.0f} s")
                    time.sleep(0.02)
                    copied.update(copies(folder))
                    if committed(folder) <= seen or not in_mid_batch(folder):
                        continue
                    time.sleep(rng.random() / 2)
                    kind = kinds[made.total() % len(kinds)]
                    if kind == "driver":
                        made[kind] += 1
                        seen = committed(folder)
                        break
                    alive = executors(workers)
                    if alive and strike(rng.choice(alive), kind):
                        made[kind] += 1
                        seen, deadline = committed(folder), time.monotonic() + patience
                else:
                    said, _ = driver.communicate(timeout=patience * (1 + batches - seen))
                    if driver.returncode:
                        errors = (folder / "errors").read_text()
                        if not any(reason in errors for reason in TOO_SLOW) or slow == MOST_SLOW:
                            raise RuntimeError("\n".join([f"the pipeline failed after {dict(made)}", *causes(errors)]))
                        said, slow = "", slow + 1
        gone_by = time.monotonic() + LAST_WORDS
        while copies(folder) and time.monotonic() < gone_by:
            time.sleep(0.1)
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, data))
    found = written(folder)
    events = list(logged(folder))
    ends = [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    return Outcome(
        blows=made,
        batches=committed(folder),
        merges=merges(folder),
        expected=expected.total(),
        wrong=((expected - found) + (found - expected)).total(),
        executors_lost=sum(1 for event in events if event["Event"] == "SparkListenerExecutorRemoved"),
        speculated=sum(1 for event in events if event["Event"] == "SparkListenerTaskStart" and event["Task Info"]["Speculative"]),
        copied=len(copied),
        left=len(copies(folder)),
        slow=slow,
        failed=sum(1 for event in ends if event["Task End Reason"]["Reason"] != "Success"),
        **json.loads(said.splitlines()[-1]),
    )


def copies(folder: Path) -> list[Path]:
    """What workers hold of states on their disks."""
    return list(map(Path, glob(str(folder / "disks/*/*/*/*/watersmeet-*"))))  # noqa: PTH207  Path.glob fails where a folder vanishes under it


def in_mid_batch(folder: Path) -> bool:
    """Spark writes down what a batch will read before it starts it."""
    return sum(1 for _ in (folder / "checkpoint" / "offsets").glob("[0-9]*")) > committed(folder)


def logged(folder: Path) -> Iterator[Mapping[str, Any]]:
    for file in sorted((folder / "events").iterdir()):
        for line in file.read_text().splitlines():
            with suppress(ValueError):  # a driver that was killed may leave half a line
                yield json.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=24)
    parser.add_argument("--blows", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=["halt", "kill", "driver"], default=list(KINDS), help="of blows, in turn")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds that a batch may take, the driver's start included")
    parser.add_argument("--work", type=Path)
    parser.add_argument("--master", default="")
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.master, arguments.start)
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = struck(Path(folder), arguments.batches, arguments.blows, arguments.seed, arguments.kinds, arguments.patience)
    dealt = ", ".join(f"{count} of kind {kind}" for kind, count in outcome.blows.items())
    print(
        f"{sum(outcome.blows.values())} blows in {outcome.batches} batches ({dealt}), {outcome.merges} merges of state: "
        f"{outcome.executors_lost} executors lost, {outcome.failed} attempts of tasks in vain, {outcome.speculated} run twice at a time; "
        f"{outcome.expected} results, {outcome.wrong} missing or doubled; {outcome.left} of {outcome.copied} folders of copies left behind; "
        f"{outcome.slow} drivers gave up on a worker that was slow to start"
    )
    sys.exit(0 if outcome.right and sum(outcome.blows.values()) == arguments.blows else 1)


if __name__ == "__main__":
    main()

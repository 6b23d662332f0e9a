"""Kill -9 in mid-batch, again and again: every result is there in the end, each once.

    python -m tests.bench.kill_trials [--kills 20] [--seed 0]

One pipeline works through files, one per batch. It is killed, with its JVM, at a random moment after at least one more batch
was committed, and started again on the same checkpoint, every time with another plan for the same query: other probe orders,
other materialized states, caches or none. The process that takes over opens its Spark session while the one before still runs.
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
import time
from collections import Counter
from pathlib import Path
from urllib.parse import unquote, urlparse

import spark_adapter
from models.request import Query
from spark_adapter.pipeline import STATISTICS
from spark_adapter.session import open_session
from tests.spark_adapter.cells import with_caches
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream

__all__ = ["main", "trials"]

# A batch is 2.5 seconds: windows of so many batches that pieces of state are merged on the way.
QUERY = make_query({"a": 120, "b": 60, "c": 90}, ["a.x = b.x", "b.y = c.y"])
FLAT = make_plan(QUERY, ["a", "b", "c"])
# What a plan may keep besides the streams: nothing, a materialized pair, another one, caches with room for all and for little.
PLANS = [
    FLAT,
    make_plan(QUERY, [["a", "b"], "c"]),
    with_caches(FLAT, [("join-1", "c", 0, 1, "prefix", 1e6)]),
    make_plan(QUERY, [["c", "b"], "a"]),
    with_caches(FLAT, [("join-1", "c", 0, 1, "global", 3e3), ("join-1", "b", 1, 1, "prefix", 1e6)]),
]
SCHEMA = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT"
ROOT = Path(__file__).parents[2]
VALUES = 60
FILES = 3  # per start: one that is committed, one in which it is killed, one to spare
PATIENCE = 300.0  # seconds for one start to reach its next commit


def rows(files: int, seed: int) -> dict[str, list[Row]]:
    rng = random.Random(seed)
    return {
        stream.name: [{"id": k, "ts": moment(k / 10), "x": rng.randrange(VALUES), "y": rng.randrange(VALUES)} for k in range(files * 25)]
        for stream in QUERY.streams
    }


def work(folder: Path, start: int) -> None:
    """The process that is killed: wait for the word to begin, then run the pipeline to its end."""
    spark = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    if not sys.stdin.readline():
        return  # whoever started it is gone
    bindings = bindings_of(folder, {stream.name: SCHEMA for stream in QUERY.streams}, watermark="1 second")
    spark_adapter.compile(PLANS[start % len(PLANS)], bindings, spark).start().await_termination()


def committed(folder: Path) -> int:
    commits = folder / "checkpoint" / "commits"
    return sum(1 for path in commits.glob("[0-9]*")) if commits.exists() else 0


def written(folder: Path, query: Query = QUERY) -> Counter[tuple[int, ...]]:
    """The rows of the files that the sink's own log says are there."""
    entries: dict[str, None] = {}
    for log in sorted((folder / "out" / "_spark_metadata").glob("[0-9]*")):
        for line in log.read_text().splitlines()[1:]:
            entries[json.loads(line)["path"]] = None
    found: Counter[tuple[int, ...]] = Counter()
    for path in entries:
        for line in Path(unquote(urlparse(path).path)).read_text().splitlines():
            row = json.loads(line)
            found[tuple(row[stream.name]["id"] for stream in query.streams)] += 1
    return found


def merges(folder: Path) -> int:
    """Of pieces of state, in all runs."""
    lines = (folder / "checkpoint" / STATISTICS).read_text().splitlines()
    return sum(json.loads(line)["store"]["merges"] for line in lines if line.endswith("}"))


def waiting(folder: Path, start: int) -> subprocess.Popen[str]:
    """A process that opens its session and then waits for a line."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.kill_trials", "--work", str(folder), "--start", str(start)],
        cwd=ROOT,
        start_new_session=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def begin(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("begin\n")
    process.stdin.flush()


def kill(process: subprocess.Popen[str]) -> None:
    """With its JVM and its workers."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def trials(folder: Path, kills: int, seed: int = 0) -> tuple[int, int, int]:
    """(kills that hit a running pipeline, results expected, results missing or doubled)."""
    rng = random.Random(seed)
    files = FILES * (kills + 1)
    data = rows(files, seed)
    for name, listed in data.items():
        write_stream(folder / name, listed, files)
    hits = 0
    process = waiting(folder, 0)
    for start in range(kills):
        goal, deadline = committed(folder) + 1, time.monotonic() + PATIENCE
        begin(process)
        following = waiting(folder, start + 1)
        while committed(folder) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.random() / 2)
        hits += process.poll() is None
        kill(process)
        process = following
    begin(process)
    assert process.wait() == 0, "the last run failed"
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(QUERY, data))
    found = written(folder)
    return hits, expected.total(), ((expected - found) + (found - expected)).total()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--start", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.start)
        return
    with tempfile.TemporaryDirectory() as folder:
        hits, expected, wrong = trials(Path(folder), arguments.kills, arguments.seed)
        merged = merges(Path(folder))
    print(f"{hits} of {arguments.kills} kills hit a running pipeline, {merged} merges of state; {expected} results, {wrong} missing or doubled")
    sys.exit(1 if wrong or not hits else 0)


if __name__ == "__main__":
    main()

"""Kill -9 in mid-batch, again and again: every result is there in the end, each once.

    python -m tests.bench.kill_trials [--kills 20] [--seed 0] [--tables]

One pipeline works through files, one per batch. It is killed, with its JVM, at a random moment after at least one more batch
was committed, and started again on the same checkpoint, every time with another plan for the same query: other probe orders,
other materialized states, caches or none. The process that takes over opens its Spark session while the one before still runs.
With `--tables` two streams are joined with two tables, which one plan keeps and the next one asks a database for.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

import spark_adapter
from models.request import Predicate, Query
from spark_adapter.pipeline import STATISTICS
from spark_adapter.session import open_session
from tests.spark_adapter.cells import with_caches
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream
from tests.spark_adapter.tables import fill

__all__ = ["main", "trials"]

VALUES = 60
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
TABLES = {"c": ["x"], "p": ["y"]}  # and what they can be asked by
WITH_TABLES = Query.model_validate(
    {
        "streams": [{"name": name, "rate": 10, "window": {"seconds": seconds}} for name, seconds in (("a", 120), ("b", 60))],
        "tables": [
            {"name": name, "rows": VALUES, "access": [{"kind": "scan"}, {"kind": "index", "bound": bound, "cpu": 1e-5, "keys": 10}]}
            for name, bound in TABLES.items()
        ],
        "predicates": [
            {"left": left, "right": right, "selectivity": 0.1} for left, right in (("a.x", "b.x"), ("b.y", "c.x"), ("c.y", "p.y"), ("a.y", "p.x"))
        ],
    }
)
ASKING = make_plan(WITH_TABLES, ["a", "b", "c", "p"], TABLES)
# What was asked for is kept by the plan that takes over and the other way round; kept answers come and go; the other way asks for one alone.
PLANS_WITH_TABLES = [
    ASKING,
    make_plan(WITH_TABLES, ["a", "b", "c", "p"]),
    with_caches(ASKING, [("join-1", "a", 1, 1, "prefix", 1e6), ("join-1", "b", 2, 2, "prefix", 1e3)]),
    make_plan(WITH_TABLES, [[["a", "b"], "c"], "p"], {"p": ["y"]}),
]
SCHEMA = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT"
ROOT = Path(__file__).parents[2]
FILES = 3  # per start: one that is committed, one in which it is killed, one to spare
PATIENCE = 300.0  # seconds for one start to reach its next commit


def rows(files: int, seed: int, query: Query = QUERY) -> dict[str, list[Row]]:
    """As many rows of every stream, in the order of time; what tables hold is the same in every trial."""
    rng = random.Random(seed)
    made: dict[str, list[Row]] = {
        stream.name: [{"id": k, "ts": moment(k / 10), "x": rng.randrange(VALUES), "y": rng.randrange(VALUES)} for k in range(files * 25)]
        for stream in query.streams
    }
    return made | {
        table.name: [{"id": k, "x": None if k == 7 else k % VALUES, "y": (7 * k + t) % VALUES} for k in range(2 * VALUES)]
        for t, table in enumerate(query.tables)
    }


def offered(folder: Path, data: Mapping[str, Sequence[Row]], files: int, query: Query) -> None:
    """The streams as files; the tables as files and in a database."""
    tables = {table.name: data[table.name] for table in query.tables}
    for stream in query.streams:
        write_stream(folder / stream.name, data[stream.name], files)
    for name, listed in tables.items():
        (folder / f"table-{name}.json").write_text("".join(json.dumps(row) + "\n" for row in listed))
    fill(f"sqlite:///{folder / 'tables.db'}", tables)


def work(folder: Path, start: int, with_tables: bool) -> None:
    """The process that is killed: wait for the word to begin, then run the pipeline to its end."""
    spark = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    if not sys.stdin.readline():
        return  # whoever started it is gone
    query, plans = (WITH_TABLES, PLANS_WITH_TABLES) if with_tables else (QUERY, PLANS)
    tables = {
        table.name: {
            "scan": {"format": "json", "options": {"path": str(folder / f"table-{table.name}.json")}, "schema": "id BIGINT, x BIGINT, y BIGINT"},
            "index": {"url": f"sqlite:///{folder / 'tables.db'}", "table": table.name},
        }
        for table in query.tables
    }
    bindings = bindings_of(folder, {stream.name: SCHEMA for stream in query.streams}, watermark="1 second", **({"tables": tables} if tables else {}))
    spark_adapter.compile(plans[start % len(plans)], bindings, spark).start().await_termination()


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
            found[tuple(row[relation.name]["id"] for relation in query.relations)] += 1
    return found


def merges(folder: Path) -> int:
    """Of pieces of state, in all runs."""
    lines = (folder / "checkpoint" / STATISTICS).read_text().splitlines()
    return sum(json.loads(line)["store"]["merges"] for line in lines if line.endswith("}"))


def waiting(folder: Path, start: int, with_tables: bool) -> subprocess.Popen[str]:
    """A process that opens its session and then waits for a line."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.bench.kill_trials", "--work", str(folder), "--start", str(start), *(["--tables"] if with_tables else [])],
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


def trials(folder: Path, kills: int, seed: int = 0, with_tables: bool = False) -> tuple[int, int, int]:
    """(kills that hit a running pipeline, results expected, results missing or doubled)."""
    rng, query = random.Random(seed), WITH_TABLES if with_tables else QUERY
    files = FILES * (kills + 1)
    data = rows(files, seed, query)
    offered(folder, data, files, query)
    hits = 0
    process = waiting(folder, 0, with_tables)
    for start in range(kills):
        goal, deadline = committed(folder) + 1, time.monotonic() + PATIENCE
        begin(process)
        following = waiting(folder, start + 1, with_tables)
        while committed(folder) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.random() / 2)
        hits += process.poll() is None
        kill(process)
        process = following
    begin(process)
    assert process.wait() == 0, "the last run failed"
    expected, found = by_definition(query, data), written(folder, query)
    return hits, expected.total(), ((expected - found) + (found - expected)).total()


def by_definition(query: Query, data: Mapping[str, Sequence[Row]]) -> Counter[tuple[int, ...]]:
    """Every combination of rows for which all predicates hold; of the streams' those that meet."""
    names, tables = [stream.name for stream in query.streams], [table.name for table in query.tables]
    among = [predicate for predicate in query.predicates if not {side.split(".")[0] for side in (predicate.left, predicate.right)} & set(tables)]
    found: Counter[tuple[int, ...]] = Counter()
    for result in nested_loop(query.model_copy(update={"tables": [], "predicates": among}), data):
        partial = [dict(zip(names, result, strict=True))]
        for table in tables:
            wider = ({**rows, table: row} for rows in partial for row in data[table])
            partial = [rows for rows in wider if all(_holds(predicate, rows) for predicate in query.predicates)]
        found.update(tuple(rows[name]["id"] for name in (*names, *tables)) for rows in partial)
    return found


def _holds(predicate: Predicate, rows: Mapping[str, Row]) -> bool:
    """Whether an equality holds, or says nothing of these rows yet."""
    (left, x), (right, y) = predicate.left.split("."), predicate.right.split(".")
    return left not in rows or right not in rows or (rows[left][x] is not None and rows[left][x] == rows[right][y])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--tables", action="store_true", help="kept and asked in turn")
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.work, arguments.start, arguments.tables)
        return
    with tempfile.TemporaryDirectory() as folder:
        hits, expected, wrong = trials(Path(folder), arguments.kills, arguments.seed, arguments.tables)
        merged = merges(Path(folder))
    print(f"{hits} of {arguments.kills} kills hit a running pipeline, {merged} merges of state; {expected} results, {wrong} missing or doubled")
    sys.exit(1 if wrong or not hits or not expected else 0)


if __name__ == "__main__":
    main()

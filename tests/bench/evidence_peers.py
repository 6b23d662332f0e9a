"""Peers on the same rows: Spark's own joins in three orders, Flink, and DuckDB's batch answer that all rows are checked against.

Three queries: the chain of `bench_stem`, persons–auctions–bids after NEXMark, a star of six. Spark runs here; Flink in an environment of its own,
whose interpreter WATERSMEET_FLINK_PYTHON names (apache-flink pins other versions than ours).
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from tests.bench.bench_stem import CHAIN, Flow, one_run, request_of, write
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Findings, NotAtHandError, Part, Section, Table, judged

__all__ = ["SECTION"]

SITE = {
    "bids": Flow(3000, 30, {"lot": 18_000}),
    "auctions": Flow(300, 60, {"lot": 18_000, "seller": 6000}),
    "persons": Flow(100, 60, {"account": 6000}),
}
STAR = {"hub": Flow(1000, 20, {f"k{i}": 20_000 * (i + 1) for i in range(5)})} | {
    f"s{i}": Flow(1000, 20, {f"k{i}": 20_000 * (i + 1)}) for i in range(5)
}
BATCHES = 8
PLANS_ORDER = "native, plan's order"


@dataclass(frozen=True)
class Query:
    """A query and how long its rows flow, whole and quick."""

    flows: Mapping[str, Flow]
    predicates: Sequence[str]
    seconds: float
    quick_seconds: float

    def request(self, **options: str) -> PlanRequest:
        return request_of(self.flows, self.predicates, **options)


QUERIES = {
    "chain of 4": Query(CHAIN, ["a.x = b.x", "b.y = c.y", "c.z = d.z"], 400, 40),
    "persons, auctions, bids": Query(SITE, ["bids.lot = auctions.lot", "auctions.seller = persons.account"], 300, 60),
    "star of 6": Query(STAR, [f"hub.k{i} = s{i}.k{i}" for i in range(5)], 200, 30),
}


def answer(folder: Path, query: Query) -> tuple[int, int]:
    """Number and checksum of the results by the definition, from DuckDB."""
    tables = ", ".join(f"read_parquet('{folder / name}/*.parquet') AS {name}" for name in query.flows)
    windows = [
        f"epoch_us({b}.ts) - epoch_us({a}.ts) <= {round(query.flows[a].window * 1_000_000)}" for a, b in itertools.permutations(query.flows, 2)
    ]
    ids = ", ".join(f"{name}.id AS {name}_" for name in query.flows)
    return _summed(f"SELECT {ids} FROM {tables} WHERE {' AND '.join([*query.predicates, *windows])}", [f"{name}_" for name in query.flows])


def _summed(source: str, columns: Sequence[str]) -> tuple[int, int]:
    text = f"SELECT count(*), coalesce(sum(hash({', '.join(columns)})::HUGEINT), 0) FROM ({source})"
    ((number, checksum),) = duckdb.sql(text).fetchall()
    return int(number), int(checksum)


def orders(query: Query) -> dict[str, tuple[Plan, str]]:
    """The planner's plan for our operator, and for Spark's own joins its best binary tree, the order typed and the dearest left-deep one."""
    from tests.bench.bench_native import orders as native_orders

    found = native_orders(query.request())
    return {
        "stem": (planned(query.request()), "stem"),
        PLANS_ORDER: (found["planned"], "native"),
        "native, typed order": (found["as written"], "native"),
        "native, worst order": (found["worst"], "native"),
    }


def on_spark(name: str) -> Callable[[bool], Findings]:
    """One query in all orders; a part of its own, so that a run that is broken off keeps the others."""
    return lambda quick: spark(name, quick)


def spark(name: str, quick: bool) -> Findings:
    from spark_adapter.session import open_session

    query = QUERIES[name]
    seconds = query.quick_seconds if quick else query.seconds
    session = open_session({})
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write(folder / "warm", seconds / 4, 2, query.flows)
        write(folder / "all", seconds, BATCHES, query.flows)
        right = answer(folder / "all", query)
        for k, (title, (plan, engine)) in enumerate(orders(query).items()):
            if quick and title == "native, worst order":
                continue
            one_run(session, folder / "warm", folder / f"warm-up-{k}", plan, engine, query.flows)
            place = folder / f"run-{k}"
            found[title] = one_run(session, folder / "all", place, plan, engine, query.flows)
            listed = [f'"{stream}"' for stream in query.flows]
            same = _summed(f"SELECT {', '.join(listed)} FROM read_parquet('{place}/out/*.parquet')", listed) == right
            assert same, f"{title} gave other rows than DuckDB"
            print(f"   {name}, {title}: {found[title]['seconds']:.1f} s, {found[title]['cpu']:.1f} CPU s", flush=True)
    session.stop()
    arrived = sum(flow.rate for flow in query.flows.values()) * seconds
    rows = [
        [title, f"{arrived / figures['seconds']:,.0f}", f"{figures['cpu']:.0f}", f"{figures['state'] / 1e6:,.0f}", f"{right[0]:,}"]
        for title, figures in found.items()
    ]
    times = {title: figures["cpu"] / found["stem"]["cpu"] for title, figures in found.items() if title != "stem"}
    said = ", ".join(f"{title.removeprefix('native, ')} {ratio:.1f}" for title, ratio in times.items())
    claim = Claim(
        "(aim) Spark's own joins take ten times the CPU in the plan's order.",
        f"{said} times; all rows are DuckDB's.",
        AGREES if times[PLANS_ORDER] >= 10 else IN_KIND if times[PLANS_ORDER] > 1 else DIFFERS,
    )
    settings = f"{arrived:,.0f} rows, one run each after a warm-up run, {BATCHES} batches, the same files; CPU of driver, JVM and workers together."
    columns = ["engine", "rows/s", "CPU s", "MB state", "results"]
    quoted = {name.split()[0].strip(","): f"{times[PLANS_ORDER]:.1f}"}
    return Findings([claim], [settings], [Table("", columns, rows)], quoted=quoted)


# What runs in Flink's environment: argv has a task and where results go. Prints seconds and CPU seconds.
ON_FLINK = """
import json, os, sys, tempfile, time
from pyflink.table import EnvironmentSettings, TableEnvironment
task = json.load(open(sys.argv[1]))
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
for key, value in task["settings"].items():
    env.get_config().set(key, value)
env.get_config().set("execution.checkpointing.dir", "file://" + tempfile.mkdtemp())
for ddl in task["tables"]:
    env.execute_sql(ddl)
def cpu():
    parents, used = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = open(f"/proc/{entry}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry)], used[int(entry)] = int(fields[1]), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used[pid] for pid in ours)
before, began = cpu(), time.time()
env.execute_sql(task["query"]).wait()
print(json.dumps({"seconds": time.time() - began, "cpu": cpu() - before}))
"""


def flink_task(folder: Path, query: Query, order: Sequence[str], backend: str) -> dict[str, Any]:
    """Interval joins in this order: each has one bound on event times, all other pairs are compared as numbers, so that Flink lets go of state."""
    tables = []
    for name, flow in query.flows.items():
        attributes = ", ".join(f"{attribute} BIGINT" for attribute in flow.values)
        tables.append(
            f"CREATE TABLE {name} (tsm BIGINT, {attributes}, rid BIGINT, ts AS TO_TIMESTAMP_LTZ(tsm, 3), WATERMARK FOR ts AS ts - "
            "INTERVAL '2' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{folder / 'csv' / name}.csv', 'format' = 'csv')"
        )
    ids = ", ".join(f"{name}_ BIGINT" for name in query.flows)
    tables.append(f"CREATE TABLE o ({ids}) WITH ('connector' = 'filesystem', 'path' = '{folder / 'flink'}', 'format' = 'csv')")
    edges = {frozenset(side.split(".")[0] for side in text.split(" = ")): text for text in query.predicates}
    joined = order[0]
    for k, name in enumerate(order[1:], 1):
        near = next(other for other in order[:k] if frozenset((other, name)) in edges)
        conditions = [edges[frozenset((near, name))]]
        for other in order[:k]:
            after, before = query.flows[other].window, query.flows[name].window
            if other == near:
                conditions.append(f"{name}.ts BETWEEN {near}.ts - INTERVAL '{before:g}' SECOND(3) AND {near}.ts + INTERVAL '{after:g}' SECOND(3)")
            else:
                conditions.append(f"{name}.tsm - {other}.tsm BETWEEN {round(-1000 * before)} AND {round(1000 * after)}")
        joined += f" JOIN {name} ON {' AND '.join(conditions)}"
    chosen = ", ".join(f"{name}.rid" for name in query.flows)
    settings = {"parallelism.default": "2", "state.backend.type": backend, "execution.checkpointing.interval": "10 s"}
    return {"settings": settings, "tables": tables, "query": f"INSERT INTO o SELECT {chosen} FROM {joined}"}


def _left_deep_orders(query: Query) -> Iterator[tuple[str, list[str]]]:
    """The order typed, and the plan's as far as a left-deep chain can follow it: the cheapest left-deep order."""
    from tests.bench.bench_native import cheapest_order

    yield "typed order", list(query.flows)
    yield "best order", cheapest_order(query.request())


def flink(quick: bool) -> Findings:
    python = os.environ.get("WATERSMEET_FLINK_PYTHON")
    if not python:
        raise NotAtHandError("no environment with apache-flink is named by WATERSMEET_FLINK_PYTHON")
    rows, same = [], True
    for name, query in QUERIES.items():
        if quick and name == "star of 6":
            continue
        seconds = query.quick_seconds if quick else query.seconds
        for (title, order), backend in itertools.product(_left_deep_orders(query), ("hashmap",) if quick else ("hashmap", "rocksdb")):
            with tempfile.TemporaryDirectory() as made:
                folder = Path(made)
                write(folder / "all", seconds, BATCHES, query.flows)
                right = answer(folder / "all", query)
                (folder / "csv").mkdir()
                for stream, flow in query.flows.items():
                    frame = pl.read_parquet(folder / "all" / stream / "*.parquet").sort("ts")
                    frame.select(pl.col("ts").dt.epoch("ms"), *flow.values, pl.col("id").alias("rid")).write_csv(
                        folder / "csv" / f"{stream}.csv", include_header=False
                    )
                task = folder / "task.json"
                task.write_text(json.dumps(flink_task(folder, query, order, backend)))
                ran = subprocess.run([python, "-c", ON_FLINK, str(task)], capture_output=True, text=True, check=False)
                if ran.returncode:
                    raise RuntimeError(ran.stderr[-2000:])
                figures = json.loads(ran.stdout.splitlines()[-1])
                listed = [f"column{k}" for k in range(len(query.flows))]
                names = ", ".join(f"'{column}': 'BIGINT'" for column in listed)
                files = f"read_csv('{folder}/flink/*', header = false, columns = {{{names}}})"
                same &= _summed(f"SELECT {', '.join(listed)} FROM {files}", listed) == right
            arrived = sum(flow.rate for flow in query.flows.values()) * seconds
            state = "RocksDB" if backend == "rocksdb" else "heap"
            rows.append([f"{name}, {title}, {state}", f"{arrived / figures['seconds']:,.0f}", f"{figures['cpu']:.0f}", f"{right[0]:,}"])
            print(f"   {rows[-1]}", flush=True)
    claim = judged("Flink's interval joins give the same rows.", "as DuckDB's." if same else "other rows than DuckDB's.", same)
    settings = ["Parallelism 2, checkpoints every 10 s, CSV files in and out, one run each in a JVM of its own, which is not warm."]
    return Findings([claim], settings, [Table("", ["query, order, state", "rows/s", "CPU s", "results"], rows)])


SECTION = Section(
    "peers",
    "Peers on the same rows",
    "Our operator on Spark, Spark's own stream-stream joins in the plan's, the typed and the worst order, and Flink's interval joins; "
    "DuckDB has the right rows.",
    (
        Part("chain", "Spark's own joins: the chain of four", on_spark("chain of 4")),
        Part("site", "Spark's own joins: persons, auctions, bids", on_spark("persons, auctions, bids")),
        Part("star", "Spark's own joins: a star of six", on_spark("star of 6")),
        Part("flink", "Flink", flink),
    ),
)

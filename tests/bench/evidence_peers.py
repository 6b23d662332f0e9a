"""Peers on the same rows: Spark's own joins in three orders, Flink in two with two kinds of state, and DuckDB, whose rows all are checked against.

Three queries: the chain of `bench_stem`, persons–auctions–bids after NEXMark, a star of six. Every engine has a process of its own, warms up on an
eighth of the rows, and is watched from outside in the same way; after LIMIT it is ended, and the page says "more than". Flink runs in an
environment of its own, since apache-flink pins other versions than ours: the one whose interpreter WATERSMEET_FLINK_PYTHON names, else
one below build/, which is made where it is missing.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from tests.bench.bench_native import cheapest_order, orders
from tests.bench.bench_stem import CHAIN, Flow, request_of, write
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, Part, Section, Table, judged, line, this_commit, told
from tests.bench.watched import FailedError, Watched, watched

__all__ = ["SECTION"]

ROOT = Path(__file__).parent.parent.parent
SITE = {
    "bids": Flow(3000, 30, {"lot": 18_000}),
    "auctions": Flow(300, 60, {"lot": 18_000, "seller": 6000}),
    "persons": Flow(100, 60, {"account": 6000}),
}
STAR = {"hub": Flow(1000, 20, {f"k{i}": 20_000 * (i + 1) for i in range(5)})} | {
    f"s{i}": Flow(1000, 20, {f"k{i}": 20_000 * (i + 1)}) for i in range(5)
}
BATCHES = 8
NO_DIFFERENCE = 1.3  # times the CPU: less is what runs of one engine may be apart
ROUNDS = 3  # of those in turns; the others are run once
LIMIT, QUICK_LIMIT = 150.0, 45.0  # seconds of a run after it has warmed up
HEAP = "2g"  # of every JVM, which is what our sessions ask of Spark
FLINK = "apache-flink==2.3.0"
STEM, PLANS_ORDER, FLINKS_BEST = "stem", "Spark, plan's order", "Flink, best order, heap"
IN_TURNS = (STEM, FLINKS_BEST)


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
    "persons, auctions, bids": Query(SITE, ["bids.lot = auctions.lot", "auctions.seller = persons.account"], 240, 60),
    "star of 6": Query(STAR, [f"hub.k{i} = s{i}.k{i}" for i in range(5)], 160, 20),
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


def spark_plans(query: Query) -> dict[str, tuple[Plan, str]]:
    """The planner's plan for our operator, and for Spark's own joins its best binary tree, the order typed and the dearest left-deep one."""
    found = orders(query.request())
    plans = {STEM: (planned(query.request()), "stem"), PLANS_ORDER: (found["planned"], "native")}
    if found["as written"].fingerprint == found["worst"].fingerprint:
        return plans | {"Spark, typed order, the worst": (found["worst"], "native")}
    return plans | {"Spark, typed order": (found["as written"], "native"), "Spark, worst order": (found["worst"], "native")}


def flink_orders(query: Query) -> dict[str, tuple[list[str], str]]:
    """Order and kind of state: the cheapest left-deep order, which is what Flink can be told of a plan, and the order typed."""
    found = {"best order": cheapest_order(query.request()), "typed order": list(query.flows)}
    kinds = {"heap": "hashmap", "RocksDB": "rocksdb"}
    return {f"Flink, {order}, {kind}": (found[order], backend) for kind, backend in kinds.items() for order in found}


@dataclass(frozen=True)
class Ran:
    """One engine's run: its figures, and number and checksum of its rows, where it ended."""

    figures: Watched
    rows: tuple[int, int] | None


def run_spark(folder: Path, query: Query, plan: Plan, engine: str, limit: float) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        place, work = Path(made) / "run", Path(made) / "work"
        task = {"plan": plan.model_dump(mode="json"), "engine": engine, "flows": {name: asdict(flow) for name, flow in query.flows.items()}}
        task |= {"warm": str(folder / "warm"), "rows": str(folder / "all"), "place": str(place), "work": str(work)}
        file = Path(made) / "task.json"
        file.write_text(json.dumps(task), encoding="utf-8")
        command = [sys.executable, "-m", "tests.bench.peer_spark", str(file)]
        found = watched(command, limit, place / "checkpoint", folder / "log", {"POLARS_MAX_THREADS": "1"})
        listed = [f'"{name}"' for name in query.flows]
        return Ran(found, _summed(f"SELECT {', '.join(listed)} FROM read_parquet('{place}/out/*.parquet')", listed) if found.ended else None)


def flink_python() -> str:
    """The interpreter of an environment with Flink; made below build/ where none is named or there."""
    named = os.environ.get("WATERSMEET_FLINK_PYTHON")
    if named:
        return named
    folder = ROOT / "build" / "flink"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if not ready.exists():
        print(f"   an environment with {FLINK}, below build/", flush=True)
        commands = ([sys.executable, "-m", "venv", str(folder)], [str(python), "-m", "pip", "install", "--quiet", FLINK])
        for command in commands:
            if subprocess.run(command, check=False).returncode:
                raise FailedError(f"{FLINK} cannot be installed")
        ready.touch()
    return str(python)


def run_flink(folder: Path, query: Query, order: Sequence[str], backend: str, limit: float) -> Ran:
    with tempfile.TemporaryDirectory(dir=folder) as made:
        place = Path(made)
        settings = {
            "parallelism.default": "2",
            "state.backend.type": backend,
            "execution.checkpointing.interval": "5 s",
            "execution.checkpointing.dir": f"file://{place}/checkpoint",
            "io.tmp.dirs": f"{place}",
            "taskmanager.memory.managed.size": "1g",  # RocksDB's; the default in one process is an eighth of that
        }
        jobs = {name: flink_job(folder / f"{name}-csv", place / f"{name}-out", query, order) for name in ("warm", "all")}
        file = place / "task.json"
        file.write_text(json.dumps({"settings": settings, "warm": jobs["warm"], "rows": jobs["all"]}), encoding="utf-8")
        command = [flink_python(), str(Path(__file__).with_name("peer_flink.py")), str(file)]
        found = watched(command, limit, place / "checkpoint", folder / "log", {"JVM_ARGS": f"-Xmx{HEAP}"})
        columns = {f"column{k}": "BIGINT" for k in range(len(query.flows))}
        source = f"SELECT {', '.join(columns)} FROM read_csv('{place}/all-out/*', header = false, columns = {columns})"
        return Ran(found, _summed(source, list(columns)) if found.ended else None)


def flink_job(rows: Path, out: Path, query: Query, order: Sequence[str]) -> dict[str, Any]:
    """Interval joins in this order: each has one bound on event times, all other pairs are compared as numbers, so that Flink lets go of state."""
    tables = []
    for name, flow in query.flows.items():
        attributes = ", ".join(f"{attribute} BIGINT" for attribute in flow.values)
        tables.append(
            f"CREATE TABLE {name} (tsm BIGINT, {attributes}, rid BIGINT, ts AS TO_TIMESTAMP_LTZ(tsm, 3), WATERMARK FOR ts AS ts - "
            "INTERVAL '2' SECOND) "
            f"WITH ('connector' = 'filesystem', 'path' = '{rows / name}.csv', 'format' = 'csv')"
        )
    ids = ", ".join(f"{name}_ BIGINT" for name in query.flows)
    tables.append(f"CREATE TABLE o ({ids}) WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = 'csv')")
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
    return {"tables": tables, "query": f"INSERT INTO o SELECT {chosen} FROM {joined}"}


def written(folder: Path, query: Query, seconds: float) -> None:
    """The rows, and an eighth of them to warm up on: Parquet for Spark and DuckDB, CSV for Flink, which has no other format at hand."""
    for name, length, batches in (("warm", seconds / 8, 2), ("all", seconds, BATCHES)):
        write(folder / name, length, batches, query.flows)
        (folder / f"{name}-csv").mkdir()
        for stream, flow in query.flows.items():
            frame = pl.read_parquet(folder / name / stream / "*.parquet").sort("ts")
            columns = (pl.col("ts").dt.epoch("ms"), *flow.values, pl.col("id").alias("rid"))
            frame.select(*columns).write_csv(folder / f"{name}-csv" / f"{stream}.csv", include_header=False)


def runs(folder: Path, query: Query, quick: bool) -> Iterator[tuple[str, Callable[[], Ran]]]:
    """All engines by name; a quick run has the best of each alone."""
    limit = QUICK_LIMIT if quick else LIMIT
    for title, (plan, engine) in spark_plans(query).items():
        if not quick or title in (STEM, PLANS_ORDER):
            yield title, partial(run_spark, folder, query, plan, engine, limit)
    for title, (order, backend) in flink_orders(query).items():
        if not quick or title == FLINKS_BEST:
            yield title, partial(run_flink, folder, query, order, backend, limit)


def once(file: Path, title: str, run: Callable[[], Ran]) -> Ran:
    """The run, or what is kept of it in the file: a part that was broken off goes on with the engines that are left."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if title in known:
        figures, rows = known[title]
        return Ran(Watched(**figures), tuple(rows) if rows else None)
    ran = run()
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(json.dumps(known | {title: [asdict(ran.figures), ran.rows]}), encoding="utf-8")
    draft.rename(file)
    return ran


def compared(name: str, quick: bool) -> Findings:
    query = QUERIES[name]
    seconds = query.quick_seconds if quick else query.seconds
    arrived = sum(flow.rate for flow in query.flows.values()) * seconds
    rounds = 1 if quick else ROUNDS
    found: dict[str, list[Ran]] = {}
    failed: dict[str, str] = {}
    # By the commit: what another version of the code measured is not taken for this one's.
    begun = ROOT / "build" / "report" / f"peers-{name.split()[0].strip(',')}-{seconds:g}-{this_commit().replace(' ', '-')}.json"
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        written(folder, query, seconds)
        began, used = time.monotonic(), time.process_time()
        right = answer(folder / "all", query)
        batch = [time.monotonic() - began, time.process_time() - used]
        for number in range(rounds):
            listed = [(title, run) for title, run in runs(folder, query, quick) if number == 0 or title in IN_TURNS]
            for title, run in listed if number % 2 == 0 else listed[::-1]:
                if title in failed:
                    continue
                try:
                    found.setdefault(title, []).append(once(begun, f"{title} {number}", run))
                except FailedError as error:
                    failed[title] = str(error)
                    found.pop(title, None)
                print(f"   {name}, round {number + 1}, {title}: {found.get(title, [failed.get(title)])[-1]}", flush=True)
    begun.unlink(missing_ok=True)
    data = {
        "name": name,
        "arrived": arrived,
        "rounds": rounds,
        "limit": QUICK_LIMIT if quick else LIMIT,
        "batch_seconds": seconds / BATCHES,
        "load": os.getloadavg()[0],
        "flink": FLINK.replace("==", " "),
        "right": [right[0], str(right[1])],
        "duckdb": batch,
        "runs": {title: [[asdict(ran.figures), ran.rows and [ran.rows[0], str(ran.rows[1])]] for ran in listed] for title, listed in found.items()},
        "failed": sorted(failed),
    }
    return told(peers_told, data)


@dataclass(frozen=True)
class Seen:
    """One engine's rounds: the figures of the one in the middle by CPU, and how far their CPU was apart."""

    figures: Watched
    cpu: Sequence[float]
    right: bool | None
    """None where none ended."""


def _seen(runs: Sequence[Any], right: Any) -> Seen:
    ran = sorted((Watched(**figures) for figures, _ in runs), key=lambda one: one.cpu)
    rows = [rows for figures, rows in runs if figures["ended"]]
    return Seen(ran[len(ran) // 2], [one.cpu for one in ran], all(one == right for one in rows) if rows else None)


def peers_told(data: Mapping[str, Any]) -> Findings:
    arrived, right = data["arrived"], data["right"]
    seen = {title: _seen(runs, right) for title, runs in data["runs"].items()}
    figures = {title: one.figures for title, one in seen.items()}
    stem = figures[STEM].cpu
    rows = [_row(title, one, arrived, stem) for title, one in figures.items()]
    rows += [[title, "failed", "", "", "", ""] for title in data["failed"]]
    seconds, cpu = data["duckdb"]
    rows.append(["DuckDB, batch", f"{arrived / seconds:,.0f}", f"{cpu:.1f}", "", "", ""])
    wrong = [title for title, one in seen.items() if one.right is False]
    ended = sum(1 for one in seen.values() if one.right is not None)
    same = f"{ended} of {len(seen) + len(data['failed'])} engines ended, each with DuckDB's {right[0]:,} rows." if not wrong else f"not of {wrong}."
    claims = [judged("All engines give the same rows, by number and checksum.", same, not wrong)]
    claims += [
        _times("(aim) Spark's own joins take ten times the CPU in the plan's order.", 10.0, PLANS_ORDER, figures),
        _times("(aim) Flink at its best takes more CPU.", NO_DIFFERENCE, FLINKS_BEST, figures),
    ]
    settings = [
        f"{arrived:,.0f} rows, a process of its own for each run, warmed up on an eighth of them and ended after {data['limit']:g} s. "
        f"{_rounds_said(data['rounds'], seen)} Spark: {BATCHES} batches of {data['batch_seconds']:g} s of event time each, RocksDB. {data['flink']}: "
        "parallelism 2, checkpoints every 5 s, CSV in and out. Heaps of 2 GB, Flink's RocksDB has 1 GB beside. "
        f"Load {data['load']:.1f} at the end: rows/s are by the clock."
    ]
    notes = [
        "CPU, memory and disk are those of all processes of an engine. × is CPU against stem. Disk is the checkpoint folder at its largest: "
        "Flink keeps one checkpoint there, Spark what changed in each of the batches.",
        _losses(figures, arrived),
        "Not known is what of Flink's CPU is reading and writing CSV, which it has no other format at hand for, while Spark reads Parquet; nor how "
        "all "
        f"would do with shorter batches: at {data['batch_seconds']:g} s of event time each, a batch's own cost weighs little for Spark and for stem.",
    ]
    short = data["name"].split()[0].strip(",")
    quoted = {f"{short}_{engine}": _ratio(figures[title], stem).replace(" ", "") for engine, title in QUOTED.items() if title in figures}
    quoted |= {f"{short}_{engine}_seconds": _seconds(figures[title]) for engine, title in TIMED.items() if title in figures}
    quoted |= {"no_difference": f"{NO_DIFFERENCE:g}", f"{short}_rows": f"{arrived:,.0f}"}
    bars = {title: line([(0.0, one.cpu)]) for title, one in figures.items()}
    picture = Figure(f"{short}-cpu", "CPU seconds; of those broken off, so far", "CPU seconds", "", bars, bars=True)
    return Findings(claims, settings, [Table("", ["engine", "rows/s", "CPU s", "×", "MB memory", "MB disk"], rows)], [picture], notes, quoted)


QUOTED = {"spark": PLANS_ORDER, "flink": FLINKS_BEST}
TIMED = {"stem": STEM, "plan": PLANS_ORDER, "typed": "Spark, typed order", "worst": "Spark, worst order"}


def _rounds_said(rounds: int, seen: Mapping[str, Seen]) -> str:
    often = [title for title, one in seen.items() if len(one.cpu) > 1]
    if not often:
        return "One run each."
    apart = "; ".join(f"{title} {seen[title].cpu[0]:.1f} to {seen[title].cpu[-1]:.1f} CPU s" for title in often)
    return f"{rounds} alternating rounds of those whose figures may be close, of which the middle one is shown ({apart}); one run of the others."


def _losses(figures: Mapping[str, Watched], arrived: float) -> str:
    """Where others do better than our operator, by what was measured."""
    ours = figures[STEM]
    done = {title: one for title, one in figures.items() if one.ended and title != STEM}
    faster = [f"{title} ({ours.seconds / one.seconds:.2f} times)" for title, one in done.items() if one.seconds < ours.seconds]
    leaner = [f"{title} ({one.memory / ours.memory:.2f} times)" for title, one in done.items() if one.memory < ours.memory]
    smaller = [f"{title} ({one.disk / ours.disk:.2f} times)" for title, one in done.items() if one.disk < ours.disk]
    cheaper = [f"{title} ({one.cpu / ours.cpu:.2f} times)" for title, one in done.items() if one.cpu < ours.cpu]
    parts = {"more rows/s": faster, "less CPU": cheaper, "less memory": leaner, "less disk": smaller}
    said_of = "; ".join(f"{what}: {', '.join(listed)}" for what, listed in parts.items() if listed)
    return f"Where others do better than stem: {said_of}." if said_of else "Of those that ended none does better than stem in any column."


def _seconds(figures: Watched) -> str:
    return f"{'' if figures.ended else '>'}{figures.seconds:.0f}"


def _ratio(figures: Watched, stem: float) -> str:
    return f"{'' if figures.ended else '> '}{figures.cpu / stem:.1f}"


def _row(title: str, figures: Watched, arrived: float, stem: float) -> list[str]:
    less, more = ("", "") if figures.ended else ("< ", "> ")
    return [
        title,
        f"{less}{arrived / figures.seconds:,.0f}",
        f"{more}{figures.cpu:.0f}",
        "" if title == STEM else _ratio(figures, stem),
        f"{more}{figures.memory / 1e6:,.0f}",
        f"{more}{figures.disk / 1e6:,.0f}",
    ]


def _times(says: str, aim: float, title: str, figures: Mapping[str, Watched]) -> Claim:
    """What the peer takes of our CPU, against what we aim at; what may be the difference between two runs of one engine is none."""
    if title not in figures:
        return Claim(says, "it failed.", DIFFERS)
    peer, ours = figures[title], figures[STEM]
    times = peer.cpu / ours.cpu
    close = peer.ended and 1 / NO_DIFFERENCE < times < NO_DIFFERENCE
    found = f"{_ratio(peer, ours.cpu)} times the CPU of stem" + (", which is no difference." if close else ".")
    return Claim(says, found, AGREES if times >= aim else IN_KIND if times >= NO_DIFFERENCE else DIFFERS)


def part(name: str) -> Callable[[bool], Findings]:
    """One query on all engines; a part of its own, so that a run that is broken off keeps the others."""
    return lambda quick: compared(name, quick)


SECTION = Section(
    "peers",
    "Peers on the same rows",
    "Our operator on Spark, Spark's own stream-stream joins in the plan's, the typed and the worst order, and Flink's interval joins; "
    "DuckDB has the right rows.",
    (
        Part("chain", "The chain of four", part("chain of 4"), peers_told),
        Part("site", "Persons, auctions, bids", part("persons, auctions, bids"), peers_told),
        Part("star", "A star of six", part("star of 6"), peers_told),
    ),
    f"a ratio of CPU below {NO_DIFFERENCE:g} is no difference, and an aim that it was to reach is not reached; above that, but below the aim, in "
    f"kind.",
)

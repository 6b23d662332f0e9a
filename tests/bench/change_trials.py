"""Plans changed while they run, and the pipeline killed around it: every result once, and the plan in force as `decisions.jsonl` says.

    python -m tests.bench.change_trials [--changes 50] [--queries 5] [--seed 0]

Random queries of three or four streams, each with a pipeline of its own and random plans for it: any tree, any orders, caches of both kinds with room
and without. Between two batches it is told to change to the next plan, and killed with -9, JVM and all: before the control file is written; when its
draft is written and not yet renamed; after that, at any moment of the batches that follow; or not at all. It is started again on the same
checkpoint with the plan of its first start. Every batch says which plan is in force in each of its cells: that is held against what
`decisions.jsonl` says in the end. A plan whose control file was there is never lost, and one whose file was not is never in force.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import spark_adapter
from models.plan import Plan
from models.request import Query
from spark_adapter.checkpoint import Folder
from spark_adapter.control import CONTROL
from spark_adapter.decisions import DECISIONS, Decision, read_decisions
from spark_adapter.documents import read_plan
from spark_adapter.pipeline import Pipeline
from spark_adapter.session import open_session
from spark_adapter.stem.engine import OBSERVED
from tests.bench.kill_trials import PATIENCE, ROOT, committed, kill, written
from tests.spark_adapter.cells import reordered, with_caches
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import Shape, bindings_of, make_plan, make_query, moment
from tests.spark_adapter.runs import NO_LAST_BATCH, write_batch

__all__ = ["Outcome", "main", "trials"]

SCHEMA = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT"
MOMENTS = ("before", "during", "after", "never")
ROWS = 24  # a stream and batch, over
SECONDS = 3.0  # of event time
VALUES = 24
MOST_FILES = 4  # per change: one that is committed before, one or two after


def random_query(rng: random.Random) -> Query:
    """A tree of equalities, now and then with another predicate that closes a circle."""
    names = "abcd"[: rng.choice([3, 3, 4])]
    predicates = [f"{names[rng.randrange(i)]}.{rng.choice('xy')} = {name}.{rng.choice('xy')}" for i, name in enumerate(names) if i]
    if rng.random() < 0.3:
        left, right = rng.sample(names, 2)
        predicates.append(f"{left}.x {rng.choice(['<', '!=', '='])} {right}.y")
    return make_query({name: rng.choice([4.0, 9.0, 15.0]) for name in names}, predicates)


def random_plan(rng: random.Random, query: Query, name: str) -> Plan:
    nodes: list[Shape] = [stream.name for stream in query.streams]
    while len(nodes) > 1:
        taken = rng.sample(range(len(nodes)), rng.randint(2, len(nodes)))
        nodes = [node for i, node in enumerate(nodes) if i not in taken] + [[nodes[i] for i in taken]]
    plan = make_plan(query, nodes[0])
    orders = {(o.id, p.input): rng.sample(range(len(p.probes)), len(p.probes)) for o in plan.operators for p in o.pipelines}
    places = []
    for (operator, name), order in orders.items():
        if len(order) > 1 and rng.random() < 0.4:
            first = rng.randrange(len(order))
            last = rng.randrange(first, len(order))
            places.append((operator, name, first, last, rng.choice(["prefix", "global"]), rng.choice([3e3, 1e6])))
    return with_caches(reordered(plan, orders), places).model_copy(update={"fingerprint": name})


def random_rows(rng: random.Random, query: Query, files: int) -> dict[str, list[Row]]:
    def row(k: int) -> Row:
        ts = max(0.0, (k + rng.random()) * SECONDS / ROWS - rng.choice([0.0, 0.0, 1.0]))
        return {"id": k, "ts": moment(ts), "x": rng.randrange(VALUES), "y": rng.randrange(VALUES)}

    return {stream.name: [row(k) for k in range(files * ROWS)] for stream in query.streams}


# The process that is killed.


def work() -> None:
    """Opens its session, then does what it is told, line by line: a word and its arguments. Says what it has done in lines of JSON."""
    spark = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    pipeline: Pipeline | None = None
    for line in sys.stdin:
        word, *given = line.split()
        plans = [read_plan(json.loads(Path(path).read_text())) for path in given[1:]]
        if word == "begin":
            folder = Path(given[0])
            schemas = {stream.name: SCHEMA for stream in plans[0].query.streams}
            bindings = bindings_of(folder, schemas, watermark="2 seconds", trigger={}, spark=NO_LAST_BATCH)
            pipeline = spark_adapter.compile(plans[0], bindings, spark, cells=2).start()
            threading.Thread(target=report, args=(pipeline,), daemon=True).start()
            continue
        assert pipeline is not None
        if word == "stall":
            Folder.write = stalled  # type: ignore[method-assign, assignment]
        if word in ("change", "stall"):
            pipeline.change(plans[0], reasons=["for a trial"])
        if word == "finish":
            pipeline._running().processAllAvailable()
            pipeline.stop()
            say(decided=[pipeline.plan.fingerprint])
            time.sleep(1.0)  # for the last reports
            return


def stalled(folder: Folder, name: str, text: str) -> None:
    folder.draft(name, text)
    if folder.path.endswith(f"/{CONTROL}"):
        time.sleep(PATIENCE)


def report(pipeline: Pipeline) -> None:
    """Of every batch the numbers of the plans that are in force in its cells."""
    last = -1
    while True:
        for progress in pipeline._running().recentProgress:
            document = json.loads(progress.json)
            notes = document.get("observedMetrics", {}).get(OBSERVED, {}).get("notes", ())
            if document["batchId"] > last and notes:
                last = document["batchId"]
                say(batch=last, in_force=sorted({json.loads(note)["in_force"] for note in notes}), cells=len(notes))
        time.sleep(0.1)


def say(**what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


# Whoever kills it.


@dataclass
class Outcome:
    """What came of some changes."""

    moments: Counter[str] = field(default_factory=Counter)
    hit: int = 0
    """Kills that hit a running pipeline."""
    expected: int = 0
    wrong: int = 0
    """Results missing or doubled."""
    decided: int = 0
    """Lines of decisions."""
    batches: int = 0
    """Reports of batches, those that were run again included."""
    switched: int = 0
    """Of these, with another plan in force than the first."""
    faults: list[str] = field(default_factory=list)

    @property
    def right(self) -> bool:
        return not self.wrong and not self.faults


class _Child:
    """A process with a session, told what to do."""

    def __init__(self, out: Path) -> None:
        self.out = out
        with out.open("w") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.change_trials", "--work"],
                cwd=ROOT,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.DEVNULL,
                text=True,
            )

    def tell(self, *words: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def kill(self) -> bool:
        """Whether it was still alive."""
        alive = self.process.poll() is None
        kill(self.process)
        return alive


def _until(reached: Callable[[], object], child: _Child) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached() and child.process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)


class _Trial:
    """One query, its plans and its pipeline."""

    def __init__(self, folder: Path, number: int, changes: int, rng: random.Random) -> None:
        self.folder, self.rng, self.changes = folder, rng, changes
        self.query = random_query(rng)
        self.files = MOST_FILES * (changes + 1)
        self.rows = random_rows(rng, self.query, self.files)
        self.written = 0
        self.plans = []
        folder.mkdir()
        for k in range(changes + 1):
            path = folder / f"plan-{k}.json"
            path.write_text(random_plan(rng, self.query, f"query {number} plan {k}").model_dump_json(by_alias=True))
            self.plans.append(path)
        self.moments = list(itertools.islice(itertools.cycle(MOMENTS), changes))
        rng.shuffle(self.moments)

    def feed(self, files: int = 1) -> None:
        for _ in range(files):
            if self.written < self.files:
                write_batch(self.folder, self.rows, self.written, self.files)
                self.written += 1

    @property
    def control(self) -> Path:
        return self.folder / "checkpoint" / CONTROL

    def numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in self.control.glob("[0-9]*.json"))

    def strike(self, child: _Child, k: int) -> bool:
        """Tell it to change to plan k, and kill it in time; whether it lives on."""
        when, before, goal = self.moments[k - 1], self.numbers(), committed(self.folder) + 1
        new = self.control / f"{before[-1] + 1:08}.json"
        if when == "during":
            child.tell("stall", self.folder, self.plans[k])
            _until(lambda: (self.control / f".{new.name}.new").exists() and (self.control / f".{new.name}.new").stat().st_size, child)
        else:
            child.tell("change", self.folder, self.plans[k])
        if when in ("after", "never"):
            _until(new.exists, child)
            self.feed()
        if when == "after":
            time.sleep(self.rng.random() * 1.5)
        if when == "never":
            _until(lambda: committed(self.folder) >= goal, child)
        return when == "never"


def trial(folder: Path, number: int, changes: int, rng: random.Random, outcome: Outcome) -> None:
    given = _Trial(folder, number, changes, rng)
    outs = [folder / f"out-{k}.jsonl" for k in range(changes + 1)]
    waiting = iter(outs)
    child, following = _Child(next(waiting)), None
    for k in range(1, changes + 1):
        if following is None:
            _begin(given, child)
            # The process that takes over opens its session while this one still runs.
            following = _Child(next(waiting))
        before = given.numbers()
        outcome.moments[given.moments[k - 1]] += 1
        if given.strike(child, k):
            continue
        outcome.hit += child.kill()
        if given.moments[k - 1] == "during" and given.numbers() != before:
            outcome.faults.append(f"query {number}: a draft of change {k} became a file")
        child, following = following, None
    if following is None:
        _begin(given, child)
    else:
        following.kill()
    given.feed(given.files)
    child.tell("finish")
    assert child.process.wait(PATIENCE) == 0, "the last run failed"
    _judge(given, [out for out in outs if out.exists()], outcome)


def _begin(given: _Trial, child: _Child) -> None:
    """Start a pipeline, and wait until it has committed another batch."""
    given.feed()
    goal = committed(given.folder) + 1
    child.tell("begin", given.folder, given.plans[0])
    _until(lambda: committed(given.folder) >= goal, child)


def _judge(given: _Trial, outs: Sequence[Path], outcome: Outcome) -> None:
    """Rows against the definition, and every batch of every run against the decisions."""
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(given.query, given.rows))
    found = written(given.folder, given.query)
    outcome.expected += expected.total()
    outcome.wrong += ((expected - found) + (found - expected)).total()
    lines = read_decisions((given.folder / "checkpoint" / DECISIONS).read_text())
    outcome.decided += len(lines)
    for out in outs:
        for said in (json.loads(line) for line in out.read_text().splitlines() if line.endswith("}")):
            if "batch" in said:
                outcome.batches += 1
                number = _in_force(lines, said["batch"])
                outcome.switched += number > 1
                if said["in_force"] != [number]:
                    outcome.faults.append(f"{given.folder.name}: batch {said['batch']} ran under {said['in_force']}, decisions say {number}")
            elif said["decided"] != [lines[-1].fingerprint]:
                outcome.faults.append(f"{given.folder.name}: the pipeline ended with {said['decided']}, decisions say {lines[-1].fingerprint}")
    if [line.number for line in lines] != sorted({line.number for line in lines}) or lines[-1].number != given.numbers()[-1]:
        outcome.faults.append(f"{given.folder.name}: decisions are {[line.number for line in lines]}, files {given.numbers()}")


def _in_force(lines: Sequence[Decision], batch: int) -> int:
    return max((line.number for line in lines if line.batch <= batch), default=0)


def trials(folder: Path, changes: int, queries: int, seed: int = 0) -> Outcome:
    rng, outcome = random.Random(seed), Outcome()
    for number in range(queries):
        share = changes // queries + (number < changes % queries)
        trial(folder / f"query-{number}", number, share, rng, outcome)
        print(f"query {number}: {outcome.wrong} rows wrong, faults {outcome.faults}", file=sys.stderr, flush=True)
    return outcome


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=50)
    parser.add_argument("--queries", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", action="store_true")
    chosen = parser.parse_args(list(arguments))
    if chosen.work:
        work()
        return
    with tempfile.TemporaryDirectory() as folder:
        outcome = trials(Path(folder), chosen.changes, chosen.queries, chosen.seed)
    told = ", ".join(f"{count} {moment}" for moment, count in sorted(outcome.moments.items()))
    print(
        f"{chosen.changes} changes of {chosen.queries} queries, killed {told}; {outcome.hit} kills hit a running pipeline; "
        f"{outcome.expected} results, {outcome.wrong} missing or doubled; {outcome.batches} batches reported, {outcome.switched} of them "
        f"under a changed plan; {outcome.decided} decisions, {len(outcome.faults)} contradictions"
    )
    for fault in outcome.faults:
        print(fault)
    sys.exit(0 if outcome.right and outcome.hit else 1)


if __name__ == "__main__":
    main(sys.argv[1:])

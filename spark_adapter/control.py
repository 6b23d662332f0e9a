"""The control stream: every plan that a checkpoint was given is a file in its folder `control`, which Spark reads as the first source.

A file is written under a hidden name and then renamed, so Spark sees all of it or nothing. The batch that reads it hands it to every cell
before its rows. Which batch that is, Spark writes into its own logs before the batch begins, and a batch that is run again reads the same files:
so a change is in force from one batch on, in all cells, whatever is killed when. Before the rename nothing has happened; after it the next
batch that is planned will read the file, in this run or the next.

Words on tables lie in the same folder: that a version of a kept table is whole, or that answers are to be forgotten (see `tables.versions`).

Files have numbers that count up. `batches` says by Spark's logs which batch read which: the log of the source has the names of its files
in the order in which it found them, and the log of offsets how far each batch came in that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from models.plan import Plan
from spark_adapter.checkpoint import Folder
from spark_adapter.stem.program import Program
from spark_adapter.stem.text import CHANGE_FORMAT, TABLE_FORMAT, program_from, text_of

__all__ = ["CONTROL", "Change", "Control", "Word", "kind_of", "without_control"]

CONTROL = "control"
NAME = re.compile(r"(\d{8})\.json")
WORD = re.compile(r"table-\d+\.json")
LOGGED = re.compile(r"(\d+)(\.compact)?")


@dataclass(frozen=True, slots=True)
class Change:
    """One file: a plan, and why it was given."""

    number: int
    decision: str
    """`start` for a checkpoint's first plan, `change` for every other."""
    timestamp: str
    kind: str
    gain: float | None
    reasons: Sequence[str]
    plan: Plan
    program: Program

    def document(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("number", "decision", "timestamp", "kind", "gain")}
        plan = self.plan.model_dump(mode="json", by_alias=True)
        return {"format": CHANGE_FORMAT, **found, "reasons": list(self.reasons), "plan": plan, "program": text_of(self.program)}


@dataclass(frozen=True, slots=True)
class Word:
    """That a version of a table is whole; of a table that is asked, that answers are to be forgotten."""

    table: str
    version: int
    """The time at which it was read, in milliseconds: later ones have higher numbers."""
    after: int
    """The number of the last plan before it."""
    files: tuple[str, ...] = ()
    """Those that hold its rows."""

    def document(self) -> dict[str, Any]:
        found = {"table": self.table, "version": self.version, "after": self.after}
        return {"format": TABLE_FORMAT, **found, "files": list(self.files)}


class Control:
    """The folder of one checkpoint."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self.path = f"{checkpoint.rstrip('/')}/{CONTROL}"
        self._checkpoint, self._folder = Folder(spark, checkpoint), Folder(spark, self.path)

    def make(self) -> None:
        """Spark wants to see the folder before it reads from it."""
        self._folder.make()

    def numbers(self) -> list[int]:
        found = (NAME.fullmatch(name) for name in self._folder.names())
        return sorted(int(match.group(1)) for match in found if match)

    def write(self, change: Change) -> None:
        self._folder.write(f"{change.number:08}.json", json.dumps(change.document()))

    def read(self, number: int) -> Change:
        found = json.loads(self._folder.read(f"{number:08}.json"))
        told = {name: found[name] for name in ("number", "decision", "timestamp", "kind", "gain")}
        return Change(**told, reasons=tuple(found["reasons"]), plan=Plan.model_validate(found["plan"]), program=program_from(found["program"]))

    def say(self, word: Word) -> None:
        self._folder.write(f"table-{word.version}.json", json.dumps(word.document()))

    def words(self) -> list[Word]:
        """In the order in which they were said."""
        found = []
        for name in self._folder.names():
            if WORD.fullmatch(name):
                word = json.loads(self._folder.read(name))
                found.append(Word(word["table"], word["version"], word["after"], tuple(word["files"])))
        return sorted(found, key=lambda word: word.version)

    def has_read(self, source: int, files: Collection[str]) -> bool:
        """Whether some batch has read these files of a source, or is going to: it is planned."""
        places = dict(self._logged(source))
        planned = [int(name) for name in self._checkpoint.names("offsets") if name.isdecimal()]
        reached = self._reached(max(planned), source) if planned else -1
        return all(name in places and places[name] <= reached for name in files)

    def batches(self, beyond: int) -> dict[int, int]:
        """Number → the batch that reads it, by Spark's logs; of those above `beyond` that some batch reads."""
        places = {number: place for number, place in self._places().items() if number > beyond}
        found: dict[int, int] = {}
        planned = sorted((int(name) for name in self._checkpoint.names("offsets") if name.isdecimal()), reverse=True)
        for batch in planned if places else ():
            reached = self._reached(batch)
            found |= {number: batch for number, place in places.items() if place <= reached}
            if all(place > reached for place in places.values()):
                break
        return found

    def _places(self) -> dict[int, int]:
        """Number → where the source's log has it."""
        matched = ((NAME.fullmatch(name), place) for name, place in self._logged(0))
        return {int(match.group(1)): place for match, place in matched if match}

    def _logged(self, source: int) -> Iterator[tuple[str, int]]:
        """The names of a source's files, and where its own log has them."""
        log = f"sources/{source}"
        for name in self._checkpoint.names(log):
            if LOGGED.fullmatch(name):
                for line in self._checkpoint.read(f"{log}/{name}").splitlines()[1:]:
                    entry = json.loads(line)
                    yield entry["path"].rsplit("/", 1)[-1], int(entry["batchId"])

    def _reached(self, batch: int, source: int = 0) -> int:
        """How far a batch comes in a source's log: −1 where it has nothing of it. The lines are a version, settings, then one per source."""
        line = self._checkpoint.read(f"offsets/{batch}").splitlines()[2 + source]
        return -1 if line == "-" else int(json.loads(line)["logOffset"])


def without_control(report: Mapping[str, Any], tables: int = 0) -> dict[str, Any]:
    """Spark's report of a batch, of the streams alone: the first source has plans, not rows, and so many after it have tables."""
    own, streams = report["sources"][: 1 + tables], report["sources"][1 + tables :]
    return {**report, "sources": streams, "numInputRows": report["numInputRows"] - sum(source["numInputRows"] for source in own)}


def kind_of(before: Program, after: Program) -> str:
    """The largest thing in which two plans differ, in the words of a replan: tree, allocation, caches, orders, none."""
    for kind, part in (("tree", _tree), ("allocation", _allocation), ("caches", _caches), ("orders", _orders)):
        if part(before) != part(after):
            return kind
    return "none"


def _tree(program: Program) -> object:
    return sorted((join.output, sorted(join.inputs)) for join in program.joins)


def _allocation(program: Program) -> object:
    steps = ((join.output, route.input, step.target, step.share) for join in program.joins for route in join.routes for step in route.steps)
    return program.admitted, sorted(step for step in steps if step[3] < 1.0)


def _caches(program: Program) -> object:
    outputs = {join.name: join.output for join in program.joins}
    held = sorted((outputs[cache.join], sorted(cache.inputs), cache.columns, cache.capacity) for cache in program.caches)
    used = sorted((join.output, route.input, s.first, s.last) for join in program.joins for route in join.routes for s in route.segments)
    return held, used


def _orders(program: Program) -> object:
    return sorted((join.output, join.inputs, route.input, route.steps) for join in program.joins for route in join.routes)

"""A pipeline without Spark: the operator itself, in this process, in one cell. What watches a pipeline can watch this one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import polars as pl

from models.plan import Plan
from spark_adapter.overload import BatchTime
from spark_adapter.stem.operator import Brought, work_off
from spark_adapter.stem.program import Program
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.statistics import Measured
from spark_adapter.stem.tables import VERSION, Whole
from tests.spark_adapter.cells import SECOND, Memory, drained

__all__ = ["Arrivals", "InProcess", "Stretch", "Worked", "arrivals", "content", "cut"]

Arrivals = Mapping[str, pl.DataFrame]


@dataclass(frozen=True)
class Stretch:
    """A length of time in which a stream has so many rows per second, and per attribute so many values."""

    seconds: float
    rate: float
    values: Mapping[str, int]
    times: int = 0
    """Values come in order, over and over, each so many times in a row; 0: they are drawn at random."""

    def drawn(self, values: int, count: int, rng: np.random.Generator) -> np.ndarray[Any, Any]:
        return np.arange(count) // self.times % values if self.times else rng.integers(0, values, count)


def arrivals(stretches: Mapping[str, Sequence[Stretch]], seed: int = 0, start: int = 0) -> dict[str, pl.DataFrame]:
    """Per stream its rows in order of time, about evenly spaced: ts, h, the attributes, and the row's number as `name/0`."""
    found = {}
    for k, (name, parts) in enumerate(sorted(stretches.items())):
        rng = np.random.default_rng([seed, k])
        begin, frames = start, []
        for part in parts:
            count = round(part.rate * part.seconds)
            ts = begin + np.round((np.arange(count) + rng.random(count)) * (SECOND * part.seconds / max(1, count))).astype(np.int64)
            columns = {f"{name}.{attribute}": part.drawn(values, count, rng) for attribute, values in part.values.items()}
            frames.append(pl.DataFrame({"ts": ts, "h": rng.integers(-(2**63), 2**63 - 1, count), **columns}))
            begin += round(part.seconds * SECOND)
        found[name] = pl.concat(frames).with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(f"{name}/0"))
    return found


def content(name: str, rows: int, values: Mapping[str, int], seed: int = 0) -> pl.DataFrame:
    """The rows of a table: h, the attributes, each drawn at random, and the row's number as `name/0`."""
    rng = np.random.default_rng(seed)
    columns = {f"{name}.{attribute}": rng.integers(0, count, rows) for attribute, count in values.items()}
    return pl.DataFrame({"h": rng.integers(-(2**63), 2**63 - 1, rows), **columns, f"{name}/0": np.arange(rows)})


def cut(rows: Arrivals, seconds: float, start: int = 0) -> list[tuple[dict[str, pl.DataFrame], int]]:
    """In batches of so many seconds, each with its watermark: the beginning of the batch."""
    end = max(int(frame["ts"].max()) for frame in rows.values())
    length = round(seconds * SECOND)
    return [
        ({name: frame.filter(pl.col("ts").is_between(at, at + length, closed="left")) for name, frame in rows.items()}, at if at > start else -1)
        for at in range(start, end + 1, length)
    ]


@dataclass
class Worked:
    """One batch."""

    cpu: float
    """CPU seconds of the operator."""
    work: float
    """What the operator counted of its work: rows that came or probed, and candidates they looked at. The same in every run."""
    results: int
    line: Mapping[str, Any]


class Door(Protocol):
    """Who turns rows away before the operator sees them."""

    def __call__(self, batch: Arrivals) -> Arrivals:
        """The rows that are let in."""

    def took(self, cpu: float) -> None:
        """Hear what they cost."""


@dataclass
class InProcess:
    """Works off batches, and changes its plan between two of them."""

    plan: Plan
    interval: float | None = None
    speed: float | None = None
    """Work that a CPU second is taken to be worth: then nothing depends on the clock. By default CPU seconds are measured."""
    spark: float = 0.0
    """Seconds that every batch takes besides."""
    batches: list[Worked] = field(default_factory=list)
    decisions: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    """Kind and reasons; `keep` for those to keep the plan."""
    found: list[pl.DataFrame] = field(default_factory=list)
    """Results, where `keep_results` is set."""
    keep_results: bool = False
    door: Door | None = None
    tables: Arrivals = field(default_factory=dict)
    """The rows of each table that the plan keeps, as `content` makes them: read with the first batch."""

    def __post_init__(self) -> None:
        self._store = Memory()
        self._measured = Measured(self.plan.query)
        self._times: list[BatchTime] = []
        self._reached: int | None = None
        self._program = self._programmed(self.plan, 1)
        self._told: tuple[Program, ...] = ()
        self._number = 1

    def _programmed(self, plan: Plan, number: int) -> Program:
        return replace(program_of(plan, {relation.name: 1 for relation in plan.query.relations}, run="run"), number=number)

    def work_off(self, batch: Arrivals, watermark: int) -> None:
        let_in = batch if self.door is None else self.door(batch)
        read_now: Arrivals = {} if self.batches else self.tables
        read = {f"{name}{VERSION}1": rows for name, rows in read_now.items()}
        told: list[Program | Whole] = [*self._told, *(Whole(name, 1) for name in read_now)]
        began = time.process_time()
        results, outcome = drained(work_off(self._program, Grid(()), 0, self._store, Brought({**let_in, **read}, watermark, told)))
        cpu = time.process_time() - began
        self._told = ()
        if self.door is not None:
            self.door.took(cpu)
            for name, seen in outcome.statistics["streams"].items():
                for what in ("rows", "shed"):
                    seen[what] += batch[name].height - let_in[name].height
        if self.keep_results:
            self.found += results
        work = sum(outcome.statistics["work"].values())
        if self.speed is not None:
            cpu = work / self.speed
            outcome.statistics["cpu"] = {"probe": cpu}
        line = self._measured.add([outcome.statistics])
        self.batches.append(Worked(cpu, work, sum(frame.height for frame in results), line))
        reached = max(int(frame["ts"].max()) for frame in batch.values() if frame.height)
        begun = self._reached if self._reached is not None else min(int(frame["ts"].min()) for frame in batch.values() if frame.height)
        self._times.append(BatchTime(len(self.batches) - 1, self.spark + cpu, cpu, 1, (reached - begun) / SECOND, work))
        self._reached = reached

    def run(self, batches: Iterable[tuple[Arrivals, int]], look: Callable[[], None] | None = None, every: int = 1) -> None:
        """All batches, with a look after every so many."""
        for n, (batch, watermark) in enumerate(batches, 1):
            self.work_off(batch, watermark)
            if look is not None and n % every == 0:
                look()

    # What a watcher asks for.

    @property
    def measured(self) -> Mapping[str, Any]:
        return self._measured.measured(self.plan.query)

    @property
    def changing(self) -> bool:
        return bool(self._told)

    def times(self, since: int) -> list[BatchTime]:
        return [batch for batch in self._times if batch.batch > since]

    def change(self, plan: Plan, kind: str | None = None, gain: float | None = None, reasons: Sequence[str] = ()) -> int:
        self._number += 1
        self.plan = plan
        self._told = (self._programmed(plan, self._number),)
        self.decisions.append((kind or "", list(reasons)))
        return self._number

    def keep(self, gain: float | None = None, reasons: Sequence[str] = ()) -> None:
        self.decisions.append(("keep", list(reasons)))

    @property
    def changes(self) -> list[str]:
        return [kind for kind, _ in self.decisions if kind != "keep"]

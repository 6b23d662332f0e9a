"""Tables in a cell: kept ones are state like a stream's rows, asked ones answer by key.

The problem: a kept table has to be the same in every cell and after every restart, and another version of it has to take over between two
batches, in all cells at once. The method: rows of a version come as a stream's rows do, in one batch or several, and are put aside in the
cell's store; a word in the control stream says that the version is whole (see `spark_adapter.tables.versions`). The batch with that word
drops the version before and sees the new one from its first row on. Since batches are run again with the same input, so does a replay.

A table that is asked, or that is kept and not whole yet while it has an index, gives parts by key: every key of a batch is asked for once,
and what came back is joined like rows that are held. A batch sees the answers or the kept rows of a table, never both, so none come twice.

The guarantee: a probe sees the whole of one version, or the answers of its own batch. Where a plan keeps a join of streams and tables, its rows
keep the table's rows that they were made with.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import polars as pl

from spark_adapter.stem.frames import decode, encode
from spark_adapter.stem.hashes import xxhash64
from spark_adapter.stem.pieces import bounds_of, new_name
from spark_adapter.stem.program import ROWS, Program, Step, Table
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.state import Part, State, compressed, expanded
from spark_adapter.stem.windows import Windows

__all__ = ["VERSION", "Ask", "Asked", "Tables", "Whole"]

VERSION = "@"  # between a table's name and the number of its version, in place of a stream: names have no such sign


@dataclass(frozen=True, slots=True)
class Whole:
    """That all rows of a version have come; of a table that is asked, that kept answers are to be forgotten."""

    table: str
    version: int


@dataclass(slots=True)
class Calls:
    """What asking came to in one batch."""

    keys: int = 0
    calls: int = 0
    rows: int = 0
    seconds: float = 0.0
    """From the first call to the last answer, most of it waiting."""


class Ask(Protocol):
    """Whoever reaches the databases."""

    def __call__(self, table: Table, keys: pl.DataFrame, calls: Calls) -> pl.DataFrame:
        """The rows with these keys, a column for each attribute they are bound by: attributes and payload. Adds what it did to `calls`."""


@dataclass
class Asked:
    """A table that gives parts by key, in one batch."""

    offers: tuple[Table, ...]
    """As the plan whose way is taken reaches it, then as the plan in force does: what is built for that one may bind it by other keys."""
    ask: Ask
    state: State
    grid: Grid
    cell: int
    calls: Calls = field(default_factory=Calls)
    _known: dict[tuple[str, ...], pl.DataFrame] = field(default_factory=dict)
    _parts: dict[tuple[str, ...], list[Part]] = field(default_factory=dict)

    @property
    def table(self) -> Table:
        return self.offers[0]

    @property
    def rows(self) -> float:
        """How many rows of it this cell stands for."""
        return self.table.size / math.prod(self.grid.dimensions[d].share for d in self.grid.hashed(self.table.name))

    def answers(self, left: pl.DataFrame, step: Step) -> Sequence[Part]:
        """Parts with all partners of these rows, and with those of rows that asked before."""
        given = {comparison.right: comparison.left for comparison in reversed(step.equal)}
        table = next(offer for offer in self.offers if given.keys() >= set(offer.bound))
        wanted = left.select(pl.col(given[side]).alias(side) for side in table.bound).drop_nulls().unique(maintain_order=True)
        known, parts = self._known.get(table.bound), self._parts.setdefault(table.bound, [])
        missing = wanted if known is None else wanted.join(known, on=list(table.bound), how="anti", maintain_order="left")
        if missing.height:
            began = time.monotonic()
            rows = self._here(self.ask(table, missing, self.calls), table.bound)
            self.calls.seconds += time.monotonic() - began
            self.calls.keys += missing.height
            self.calls.rows += rows.height
            self._known[table.bound] = missing if known is None else pl.concat([known, missing])
            if rows.height:
                parts.append(Part(self.state, "", bounds_of(rows, ()), rows.height, True, rows))
        return parts

    def _here(self, rows: pl.DataFrame, bound: tuple[str, ...]) -> pl.DataFrame:
        """Those that would lie in this cell if the table were kept: where it has a coordinate of its own, other cells have the others."""
        rows = rows.drop_nulls(list(self.table.attributes)).with_columns(*self.state.windows.neutral())
        for d in self.grid.hashed(self.table.name):
            side = f"{self.table.name}.{self.grid.dimensions[d].attributes[self.table.name]}"
            share, stride = self.grid.dimensions[d].share, self.grid.strides[d]
            if side not in bound and rows.height:
                rows = rows.filter(pl.Series(xxhash64(rows[side]) % share == self.cell // stride % share))
        return rows


def with_windows(rows: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """Rows of a version as a state holds them: they fit every window, and keep the hash that they came with."""
    return rows.with_columns(*(column for column in windows.neutral() if column.meta.output_name() != "h"))


class Tables:
    """The tables of one cell in one batch."""

    def __init__(self, taken: Program, in_force: Program, grid: Grid, cell: int, ask: Ask | None) -> None:
        later = {table.name: table for table in in_force.tables}
        self._tables = {table.name: (table, later[table.name]) for table in taken.tables}
        self._grid, self._cell, self._ask = grid, cell, ask

    def take(self, state: State, arrivals: Mapping[str, pl.DataFrame], told: Iterable[Whole]) -> None:
        """Take in what came of versions, before the batch's own rows; after that the state knows where probes find each table."""
        notes = state.notes
        fresh: dict[tuple[str, int], list[pl.DataFrame]] = {}
        for name, rows in arrivals.items():
            table, _, version = name.partition(VERSION)
            if version and rows.height:
                fresh.setdefault((table, int(version)), []).append(rows)
        for whole in sorted(told, key=lambda whole: whole.version):
            if whole.version > notes.tables.get(whole.table, 0):
                self._take_over(state, whole, fresh)
        for (table, number), frames in fresh.items():
            if self._awaited(state, table, number):
                for rows in frames:
                    key = f"{ROWS}{table} {number} {new_name()}"
                    state.store.put(key, compressed(encode(rows)))
                    notes.aside.append(key)
        for key in [key for key in notes.aside if not self._awaited(state, *_version_of(key))]:
            state.store.remove(key)
            notes.aside.remove(key)
        notes.tables = {name: version for name, version in notes.tables.items() if name in state.modules}
        state.asked = {name: self._asked(offers, state) for name, offers in self._tables.items() if name not in notes.tables}

    def noted(self, state: State) -> dict[str, list[float]]:
        """Per table that was asked: keys, calls, rows and seconds."""
        found = {name: asked.calls for name, asked in state.asked.items() if isinstance(asked, Asked) and asked.calls.keys}
        return {name: [calls.keys, calls.calls, calls.rows, calls.seconds] for name, calls in found.items()}

    def _awaited(self, state: State, table: str, version: int) -> bool:
        return table in state.modules and version > state.notes.tables.get(table, 0)

    def _take_over(self, state: State, whole: Whole, fresh: dict[tuple[str, int], list[pl.DataFrame]]) -> None:
        notes = state.notes
        notes.caches = {key: names for key, names in notes.caches.items() if whole.table not in _cached(key)}
        if whole.table not in state.modules:
            return
        state.drop(whole.table)
        waiting = [key for key in notes.aside if _version_of(key) == (whole.table, whole.version)]
        for key in waiting:
            value = state.store.get(key)
            assert value is not None, f"the state store has lost {key}"
            state.add(whole.table, with_windows(decode(expanded(value)), state.windows))
        for rows in fresh.pop((whole.table, whole.version), ()):
            state.add(whole.table, with_windows(rows, state.windows))
        state.age(whole.table)
        notes.tables[whole.table] = whole.version

    def _asked(self, offers: Sequence[Table], state: State) -> Asked:
        able = tuple(table for table in offers if table.bound)
        # A plan is checked before it comes here: a kept table without an index is whole before the first batch.
        assert able and self._ask is not None, f"the rows of table {offers[0].name} are missing"
        return Asked(able, self._ask, state, self._grid, self._cell)


def _version_of(key: str) -> tuple[str, int]:
    table, version, _ = key.removeprefix(ROWS).split(" ")
    return table, int(version)


def _cached(key: str) -> list[str]:
    """The relations whose join a cache holds; its key is made in `programming`."""
    return [name for target in key.split(":")[1].split(",") for name in target.split("+")]

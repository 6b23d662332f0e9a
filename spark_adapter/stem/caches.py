"""Caches (paper 1): the answer to a segment of a route, by key.

They are worked like the paper's: an entry is made on a miss, from all rows of that key, and each arrival's new joined rows are added to the
entries there are. Since inputs are worked off one after the other, an entry is always what the states are at that moment. Beyond its
capacity, which is the memory that the plan gives it, a cache drops the entries made longest ago. How it holds them: `entries`.

A cache is no state: what it holds follows from the modules. It lies on the worker's shelf only, under names in the cell's notes, and starts
empty where the shelf has lost it, after a restart or a move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import polars as pl

from spark_adapter.stem.entries import NUMBER, Entries
from spark_adapter.stem.probes import joined
from spark_adapter.stem.program import ENTRY_BYTES, Cached, Comparison, Program, Segment, Step
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.state import Answering, Part, State

__all__ = ["Caches"]


class Caches:
    """All caches of a cell in one batch."""

    def __init__(self, program: Program, state: State, watermark: int) -> None:
        self.program, self.state = program, state
        self._cached = {cache.key: cache for cache in program.caches}
        self._entries = {key: Entries(cache, state, watermark) for key, cache in self._cached.items()}

    def waiting(self, join: str, name: str) -> list[Cached]:
        """The caches of a join that new rows of this input change."""
        return [cache for cache in self.program.caches if cache.join == join and name in cache.inputs]

    def answer(self, segment: Segment, partial: pl.DataFrame, visible: Iterable[list[Part] | Answering]) -> Iterator[pl.DataFrame]:
        """Partial rows through a cached segment; `visible` are the parts that each step which makes missing entries may see."""
        cache, entries = self._cached[segment.cache], self._entries[segment.cache]
        lookup = zip(segment.lookup, cache.columns, strict=True)
        wanted = partial.select(pl.col(column).alias(key) for column, key in lookup).unique(maintain_order=True).drop_nulls()
        missing = entries.without(wanted)
        entries.misses += missing.height
        entries.hits += partial.height - missing.height
        if missing.height:
            self._make(segment, cache, entries.enter(missing), visible)
        equal = tuple(Comparison(column, "=", key) for column, key in zip(segment.lookup, cache.columns, strict=True))
        step = Step(segment.cache, equal, (), False)
        for found in joined(self.state.windows, [partial], entries.parts(), step, segment.residual, entries.counts):
            yield found.drop(NUMBER)

    def _make(self, segment: Segment, cache: Cached, missing: pl.DataFrame, visible: Iterable[list[Part] | Answering]) -> None:
        windows = self.state.windows
        keys = [pl.col(column).alias(f"key{i}") for i, column in enumerate(cache.columns)]
        frames: Iterator[pl.DataFrame] = iter([missing.select(*keys, NUMBER, *windows.neutral())])
        for step, parts in zip(segment.steps, visible, strict=True):
            frames = joined(windows, frames, parts, step)
        for made in frames:
            self._entries[cache.key].grow(made.drop([f"key{i}" for i in range(len(cache.columns))]))

    def of_entries(self, cache: Cached, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with some entry in those columns of the key that they have by now: no others need to be joined further."""
        return self._entries[cache.key].with_entry(rows)

    def add(self, cache: Cached, rows: pl.DataFrame) -> None:
        """New rows of the cached join, to the entries of their keys where there are any."""
        self._entries[cache.key].add(rows)

    def keep(self, grid: Grid, cell: int, watermark: int) -> dict[str, dict[str, Any]]:
        """Put the caches aside; per cache its names in the plan, what it was asked and what it holds."""
        sizes: dict[str, dict[str, Any]] = {}
        notes = self.state.notes
        notes.cached = {key: held for key, held in notes.cached.items() if key in self._cached}
        for cache in self.program.caches:
            entries = self._entries[cache.key]
            keys, rows = entries.keep(cache.capacity * grid.copies(cache.streams) / grid.cells, watermark)
            names = [s.name for join in self.program.joins for route in join.routes for s in route.segments if s.cache == cache.key]
            # Counted in one cell of those that hold copies.
            here = {"hits": entries.hits, "misses": entries.misses, "rows": rows, "bytes": rows * cache.tuple_bytes + keys * ENTRY_BYTES}
            sizes[cache.key] = {"names": names} | (here if grid.home(cell, cache.streams) else dict.fromkeys(here, 0))
        return sizes

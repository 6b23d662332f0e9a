"""Caches (paper 1): the answer to a segment of a route, by key.

They are worked like the paper's: an entry is made on a miss, from all rows of that key, and each arrival's new joined rows are added to the
entries there are. Since inputs are worked off one after the other, an entry is always what the states are at that moment. Beyond its
capacity, which is the memory that the plan gives it, a cache drops the keys not used longest.

A cache is no state: what it holds follows from the modules. It lies on the worker's shelf only, under names in the cell's notes, and starts
empty where the shelf has lost it, after a restart or a move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from spark_adapter.stem.frames import stacked
from spark_adapter.stem.pieces import bounds_of, new_name
from spark_adapter.stem.probes import joined
from spark_adapter.stem.program import ENTRY_BYTES, Cached, Comparison, Program, Segment, Step
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.shelf import as_file
from spark_adapter.stem.state import Answering, Part, State

__all__ = ["Caches"]


@dataclass(slots=True)
class _Entries:
    """A cache while a batch is worked off."""

    keys: pl.DataFrame | None = None
    """The key's columns, and `used`, the batch that looked last."""
    rows: pl.DataFrame | None = None
    hits: int = 0
    misses: int = 0
    changed: bool = False

    def grow(self, rows: pl.DataFrame) -> None:
        self.rows = stacked([self.rows, rows if self.rows is None else rows.select(self.rows.columns)])
        self.changed = True


class Caches:
    """All caches of a cell in one batch."""

    def __init__(self, program: Program, state: State, watermark: int) -> None:
        self.program, self.state, self.watermark = program, state, watermark
        self._cached = {cache.key: cache for cache in program.caches}
        self._entries: dict[str, _Entries] = {key: self._found(key) for key in self._cached}

    def _found(self, key: str) -> _Entries:
        names = self.state.notes.caches.get(key)
        if names is None:
            return _Entries()
        keys, rows = (self.state.store.shelf.known(name) if name else None for name in names)
        if keys is None or (rows is None and names[1]):
            return _Entries()
        if rows is not None:
            rows = rows.filter(pl.col("hi") >= self.watermark)
        return _Entries(keys, rows)

    def start(self) -> None:
        """Number the rows of entries that were there before anew, once the batch's own rows have their numbers."""
        for entries in self._entries.values():
            if entries.rows is not None:
                entries.rows = self.state.windows.with_deaths(entries.rows)

    def waiting(self, join: str, name: str) -> list[Cached]:
        """The caches of a join that new rows of this input change."""
        return [cache for cache in self.program.caches if cache.join == join and name in cache.inputs]

    def answer(self, segment: Segment, partial: pl.DataFrame, visible: Iterable[list[Part] | Answering]) -> Iterator[pl.DataFrame]:
        """Partial rows through a cached segment; `visible` are the parts that each step which makes missing entries may see."""
        cache, entries = self._cached[segment.cache], self._entries[segment.cache]
        lookup = zip(segment.lookup, cache.columns, strict=True)
        wanted = partial.select(pl.col(column).alias(key) for column, key in lookup).unique(maintain_order=True)
        missing = wanted if entries.keys is None else wanted.join(entries.keys, on=cache.columns, how="anti")
        entries.misses += missing.height
        entries.hits += partial.height - missing.height
        entries.changed = True
        used = pl.lit(self.state.notes.batch, dtype=pl.Int64).alias("used")
        others = None if entries.keys is None else entries.keys.join(wanted, on=cache.columns, how="anti")
        entries.keys = stacked([others, wanted.with_columns(used)])
        if missing.height:
            self._make(segment, cache, missing, visible)
        if entries.rows is None:
            return
        equal = tuple(Comparison(column, "=", key) for column, key in zip(segment.lookup, cache.columns, strict=True))
        rows = entries.rows.join(wanted, on=cache.columns, how="semi")
        if rows.height:
            found = Part(self.state, "", bounds_of(rows, ()), rows.height, True, rows)
            yield from joined(self.state.windows, [partial], [found], Step(segment.cache, equal, (), False), segment.residual)

    def _make(self, segment: Segment, cache: Cached, missing: pl.DataFrame, visible: Iterable[list[Part] | Answering]) -> None:
        windows = self.state.windows
        keys = [pl.col(column).alias(f"key{i}") for i, column in enumerate(cache.columns)]
        frames: Iterator[pl.DataFrame] = iter([missing.select(*keys, *windows.neutral())])
        for step, parts in zip(segment.steps, visible, strict=True):
            frames = joined(windows, frames, parts, step)
        for made in frames:
            self._entries[cache.key].grow(made.drop([f"key{i}" for i in range(len(cache.columns))]))

    def of_entries(self, cache: Cached, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with some entry in those columns of the key that they have by now: no others need to be joined further."""
        keys = self._entries[cache.key].keys
        if keys is None:
            return rows.clear()
        known = [column for column in cache.columns if column in rows.columns]
        return rows.join(keys, on=known, how="semi") if known else rows

    def add(self, cache: Cached, rows: pl.DataFrame) -> None:
        """New rows of the cached join, to the entries of their keys where there are any."""
        fitting = self.of_entries(cache, rows)
        if fitting.height:
            self._entries[cache.key].grow(fitting)

    def keep(self, grid: Grid, cell: int) -> dict[str, dict[str, Any]]:
        """Put the caches aside; per cache its names in the plan, what it was asked and what it holds."""
        sizes: dict[str, dict[str, Any]] = {}
        named: dict[str, list[str]] = {}
        for cache in self.program.caches:
            entries = self._entries[cache.key]
            rows = entries.rows
            if rows is not None and self.program.counted:
                rows = rows.drop("die", "sq").filter(self.state.windows.alive(cache.counted, self.watermark))
            capacity = cache.capacity * grid.copies(cache.streams) / grid.cells
            rows, keys = self._within_capacity(cache, rows, capacity)
            named[cache.key] = self._aside(cache.key, keys, rows)
            held = 0 if rows is None else rows.height
            size = held * cache.tuple_bytes + (0 if keys is None else keys.height) * ENTRY_BYTES
            names = [s.name for join in self.program.joins for route in join.routes for s in route.segments if s.cache == cache.key]
            # Counted in one cell of those that hold copies.
            here = {"hits": entries.hits, "misses": entries.misses, "rows": held, "bytes": size}
            sizes[cache.key] = {"names": names} | (here if grid.home(cell, cache.streams) else dict.fromkeys(here, 0))
        self.state.notes.caches = named
        return sizes

    def _aside(self, key: str, keys: pl.DataFrame | None, rows: pl.DataFrame | None) -> list[str]:
        """The names of the files; those of the batch before where nothing has changed."""
        before = self.state.notes.caches.get(key)
        if before is not None and not self._entries[key].changed:
            return before
        names = []
        for frame in (keys, rows):
            names.append(new_name() if frame is not None and frame.height else "")
            if frame is not None and frame.height:
                self.state.store.shelf.put(names[-1], as_file(frame))
        return names

    def _within_capacity(self, cache: Cached, rows: pl.DataFrame | None, capacity: float) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """What stays once a cache has outgrown its capacity: the keys that were used last. A key without rows takes room too."""
        keys = self._entries[cache.key].keys
        held = 0 if rows is None else rows.height
        if keys is None or held * cache.tuple_bytes + keys.height * ENTRY_BYTES <= capacity:
            return rows, keys
        ranked = keys.with_columns(held=pl.lit(0, dtype=pl.Int64))
        if rows is not None:
            per_key = rows.group_by(cache.columns).agg(pl.len().cast(pl.Int64).alias("held"))
            ranked = keys.join(per_key, on=cache.columns, how="left").with_columns(pl.col("held").fill_null(0))
        ranked = ranked.sort(["used", *cache.columns], descending=[True, *(False for _ in cache.columns)])
        size = (pl.col("held") * cache.tuple_bytes + ENTRY_BYTES).cum_sum()
        kept = ranked.filter(size <= capacity).drop("held")
        self._entries[cache.key].changed = True
        return None if rows is None else rows.join(kept, on=cache.columns, how="semi"), kept

"""What one cache holds: the keys that have an entry, and the rows of these keys, both as pieces on the worker's shelf.

The problem: a batch looks up some hundred keys in a cache that holds thousands, and adds a few; what that costs should follow the batch, not
what is held. The method is that of the state (`pieces`): what a batch adds is a piece of its own, found through an index that is made once, and a
piece is never changed. FAN pieces of one level are merged into one of the next.

Entries are numbered as they are made, and every row bears the number of its entry. A cache that has outgrown its capacity drops the entries made
longest ago: it notes the least number that counts. Rows and keys with lower numbers are passed over from then on, and left out when their
pieces are merged. A key that comes back has a new number, so no old row is taken for one of the new entry.

Nothing here is in the store: the cell's notes name the pieces, and where the shelf has lost one of them the cache starts empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from spark_adapter.stem.frames import stacked
from spark_adapter.stem.index import Numbers, entries_of
from spark_adapter.stem.pieces import Bounds, Held, Piece, bounds_of, new_name
from spark_adapter.stem.probes import BLOCK
from spark_adapter.stem.program import ENTRY_BYTES, Cached
from spark_adapter.stem.shelf import as_file
from spark_adapter.stem.state import Part, State

__all__ = ["NUMBER", "Entries"]

FAN = 8  # pieces of a level that become one of the next: a lookup asks each of them
KEYS, ROWS = "keys", "rows"
NUMBER = "entry"  # column: the number of a key's, or a row's, entry; attributes have a dot in their names
NONE = -1


class Entries:
    """A cache while a batch is worked off."""

    def __init__(self, cache: Cached, state: State, watermark: int) -> None:
        self.cache, self._state = cache, state
        self.hits = self.misses = 0
        self._held = self._found(watermark)
        self._keys, self._rows = ([Part(state, p.name, p.bounds, p.rows) for p in self._of(kind)] for kind in (KEYS, ROWS))
        self._old = len(self._keys), len(self._rows)
        self._pending: list[pl.DataFrame] = []

    def _found(self, watermark: int) -> Held:
        held = self._state.notes.cached.get(self.cache.key, Held())
        if any(self._state.store.shelf.known(piece.name) is None for piece in held.pieces):
            return Held()
        return Held([piece for piece in held.pieces if not self._useless(piece, held.least, watermark)], held.least, held.next)

    def _useless(self, piece: Piece, least: int, watermark: int) -> bool:
        return piece.bounds.mx[1] < least if piece.module == KEYS else self._state.windows.dead(piece, watermark)

    def _of(self, kind: str) -> list[Piece]:
        return [piece for piece in self._held.pieces if piece.module == kind]

    # While the batch is worked off.

    @property
    def counts(self) -> pl.Expr:
        """Whether a key's, or a row's, entry has not been dropped."""
        return pl.col(NUMBER) >= self._held.least

    def without(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Those of these keys that have no entry."""
        return wanted.filter(pl.Series(self._numbers(wanted) == NONE))

    def with_entry(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with some entry in those columns of the key that they have by now."""
        known = [column for column in self.cache.columns if column in rows.columns]
        if not self._keys:
            return rows.clear()
        if len(known) == len(self.cache.columns):
            return rows.filter(pl.Series(self._numbers(rows) != NONE))
        # Many keys may have the same values in part of their columns, and an index would go through all of them.
        keys = pl.concat([part.frame.filter(self.counts).select(known) for part in self._keys])
        return rows.join(keys, on=known, how="semi") if known else rows

    def enter(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Keys that had no entry have one from now on; the keys with their numbers. `grow` it by all rows there are of them."""
        first, self._held.next = self._held.next, self._held.next + keys.height
        entered = keys.with_columns(pl.int_range(first, self._held.next, dtype=pl.Int64, eager=True).alias(NUMBER))
        self._keys.append(Part(self._state, new_name(), _numbered(entered), keys.height, True, entered))
        return entered

    def grow(self, rows: pl.DataFrame) -> None:
        """Take rows that bear the numbers of their entries."""
        self._pending.append(rows)

    def add(self, rows: pl.DataFrame) -> None:
        """Take those of these rows whose keys have entries."""
        numbers = self._numbers(rows)
        fitting = numbers != NONE
        if fitting.any():
            self.grow(rows.filter(pl.Series(fitting)).with_columns(pl.Series(NUMBER, numbers[fitting])))

    def parts(self) -> list[Part]:
        """All rows there are by now, those of entries that were dropped among them (`counts`)."""
        added = self._together(self._pending)
        self._pending = []
        if added is not None:
            self._rows.append(Part(self._state, new_name(), bounds_of(added, self.cache.counted), added.height, True, added))
        return list(self._rows)

    def _together(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Rows come by several routes, each with the same columns in an order of its own."""
        return stacked([frame.select(frames[0].columns) for frame in frames])

    def _numbers(self, rows: pl.DataFrame) -> Numbers:
        """Of each row the number of its key's entry; NONE where there is none."""
        columns = self.cache.columns
        found = np.full(rows.height, NONE, dtype=np.int64)
        asking = entries_of(rows, columns)
        for part in self._keys:
            for mine, theirs in part.index(columns).pairs(asking, BLOCK):
                left, right = rows[pl.Series(mine)], part.frame[pl.Series(theirs)]
                numbers = right[NUMBER].to_numpy()
                same = np.logical_and.reduce([(left[column] == right[column]).to_numpy() for column in columns]) & (numbers >= self._held.least)
                found[mine[same]] = numbers[same]
        return found

    # The end of a batch.

    def keep(self, capacity: float, watermark: int) -> tuple[int, int]:
        """Put the pieces aside, those that the watermark has passed left out; how many keys and rows are held."""
        self.parts()
        held = self._held
        self._aside(KEYS, 0, stacked([part.frame for part in self._keys[self._old[0] :]]))
        self._aside(ROWS, 0, self._worth_keeping([part.frame for part in self._rows[self._old[1] :]], watermark))
        rows = self._rows_by_entry(watermark)
        if rows.sum() * self.cache.tuple_bytes + len(rows) * ENTRY_BYTES > capacity:
            # A key without rows takes room too.
            newest_first = np.cumsum(rows[::-1] * self.cache.tuple_bytes + ENTRY_BYTES)
            left = int(np.searchsorted(newest_first, capacity, side="right"))
            held.least, rows = held.next - left, rows[len(rows) - left :]
        held.pieces = [piece for piece in held.pieces if not self._useless(piece, held.least, watermark)]
        self._merge(watermark)
        self._state.notes.cached[self.cache.key] = held
        return len(rows), int(rows.sum())

    def _rows_by_entry(self, watermark: int) -> Numbers:
        """Of every entry how many of its rows a later row may still need, the oldest first."""
        least = self._held.least
        counted = np.zeros(self._held.next - least, dtype=np.int64)
        for piece in self._of(ROWS):
            rows = self._state.fetched(piece.name)
            if self.cache.counted:
                numbers = rows.filter(self._state.windows.alive(self.cache.counted, watermark))[NUMBER].to_numpy()
            else:
                numbers = rows[NUMBER].to_numpy()[int(np.searchsorted(rows["hi"].to_numpy(), watermark)) :]
            counted += np.bincount(numbers[numbers >= least] - least, minlength=len(counted))
        return counted

    def _worth_keeping(self, frames: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame | None:
        """In the order of their deaths, without the dead and the rows of entries that were dropped."""
        rows = self._together(frames)
        if rows is None:
            return None
        alive = self._state.windows.alive(self.cache.counted, watermark)
        return rows.drop("die", "sq", strict=False).filter(alive & self.counts).sort("hi")

    def _aside(self, kind: str, level: int, frame: pl.DataFrame | None, at: int | None = None) -> None:
        """Put rows on the shelf as a piece, if there are any, in this place among the others."""
        if frame is None or not frame.height:
            return
        name, data = new_name(), as_file(frame)
        self._state.store.shelf.put(name, data)
        bounds = _numbered(frame) if kind == KEYS else bounds_of(frame, self.cache.counted)
        pieces = self._held.pieces
        pieces.insert(len(pieces) if at is None else at, Piece(name, kind, level, 0, frame.height, len(data), 0, bounds))

    def _merge(self, watermark: int) -> None:
        """The pieces of every level that has enough of them, from the lowest up. They stay in the order of their age."""
        for kind in (KEYS, ROWS):
            level = 0
            while len(run := [piece for piece in self._of(kind) if piece.level == level]) >= FAN:
                frames = [self._state.fetched(piece.name) for piece in run]
                kept = stacked([frame.filter(self.counts) for frame in frames]) if kind == KEYS else self._worth_keeping(frames, watermark)
                at = self._held.pieces.index(run[0])
                self._held.pieces = [piece for piece in self._held.pieces if piece not in run]
                self._aside(kind, level + 1, kept, at)
                level += 1


def _numbered(keys: pl.DataFrame) -> Bounds:
    """Keys have no event times; their first and last numbers stand in the place of the least and greatest `mx`."""
    return Bounds((int(keys[NUMBER][0]), int(keys[NUMBER][-1])), (0, 0), {})

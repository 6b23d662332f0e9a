"""What one cache holds: the keys that have an entry, and the rows of these keys, both as pieces on the worker's shelf.

The problem: a batch looks up some hundred keys in a cache that holds thousands, and adds a few; what that costs should follow the batch, not
what is held. The method is that of the state (`pieces`): what a batch adds is a piece of its own, found through an index that is made once, and a
piece is never changed. FAN pieces of one level are merged into one of the next. Of the keys no two pieces have the same one; a row of any
piece belongs to a key of some piece.

Only a cache that has outgrown its capacity is written anew as a whole: the entries made longest ago are dropped until a SLACK of the capacity is
free, so that it does not happen again in the next batch.

Nothing here is in the store: the cell's notes name the pieces, and where the shelf has lost one of them the cache starts empty.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from spark_adapter.stem.frames import stacked
from spark_adapter.stem.index import entries_of
from spark_adapter.stem.pieces import Bounds, Piece, bounds_of, new_name
from spark_adapter.stem.probes import BLOCK
from spark_adapter.stem.program import ENTRY_BYTES, Cached
from spark_adapter.stem.shelf import as_file
from spark_adapter.stem.state import Part, State

__all__ = ["Entries"]

FAN = 8  # pieces of a level that become one of the next: a lookup asks each of them
SLACK = 1 / 16  # of the capacity is free after entries were dropped: what is dropped early will be missed
KEYS, ROWS = "keys", "rows"
TIMELESS = Bounds((0, 0), (0, 0), {})  # of keys, which have no event times


class Entries:
    """A cache while a batch is worked off."""

    def __init__(self, cache: Cached, state: State, watermark: int) -> None:
        self.cache, self._state = cache, state
        self.hits = self.misses = 0
        self._pieces = self._found(watermark)
        self._keys, self._rows = ([Part(state, p.name, p.bounds, p.rows) for p in self._pieces if p.module == kind] for kind in (KEYS, ROWS))
        self._old = len(self._keys), len(self._rows)
        self._pending: list[pl.DataFrame] = []

    def _found(self, watermark: int) -> list[Piece]:
        pieces = self._state.notes.cached.get(self.cache.key, [])
        if any(self._state.store.shelf.known(piece.name) is None for piece in pieces):
            return []
        return [piece for piece in pieces if piece.module == KEYS or not self._state.windows.dead(piece, watermark)]

    # While the batch is worked off.

    def without(self, wanted: pl.DataFrame) -> pl.DataFrame:
        """Those of these keys that have no entry."""
        return wanted.filter(pl.Series(~self._among_keys(wanted)))

    def with_entry(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows that agree with some entry in those columns of the key that they have by now."""
        known = [column for column in self.cache.columns if column in rows.columns]
        if not self._keys:
            return rows.clear()
        if len(known) == len(self.cache.columns):
            return rows.filter(pl.Series(self._among_keys(rows)))
        # Many keys may have the same values in part of their columns, and an index would go through all of them.
        return rows.join(pl.concat([part.frame.select(known) for part in self._keys]), on=known, how="semi") if known else rows

    def enter(self, keys: pl.DataFrame) -> None:
        """Keys that had no entry have one from now on; `grow` it by all rows there are of them."""
        self._keys.append(Part(self._state, new_name(), TIMELESS, keys.height, True, keys))

    def grow(self, rows: pl.DataFrame) -> None:
        self._pending.append(rows)

    def parts(self) -> list[Part]:
        """All rows there are by now."""
        added = self._together(self._pending)
        self._pending = []
        if added is not None:
            self._rows.append(Part(self._state, new_name(), bounds_of(added, self.cache.counted), added.height, True, added))
        return list(self._rows)

    def _together(self, frames: Sequence[pl.DataFrame]) -> pl.DataFrame | None:
        """Rows come by several routes, each with the same columns in an order of its own."""
        return stacked([frame.select(frames[0].columns) for frame in frames])

    def _among_keys(self, rows: pl.DataFrame) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Of each row whether its key has an entry."""
        columns = self.cache.columns
        found = np.zeros(rows.height, dtype=np.bool_)
        asking = entries_of(rows, columns)
        for part in self._keys:
            for mine, theirs in part.index(columns).pairs(asking, BLOCK):
                left, right = rows[pl.Series(mine)], part.frame[pl.Series(theirs)]
                same = np.logical_and.reduce([(left[column] == right[column]).to_numpy() for column in columns])
                found[mine[same]] = True
        return found

    # The end of a batch.

    def keep(self, capacity: float, watermark: int) -> tuple[int, int]:
        """Put the pieces aside, those that the watermark has passed left out; how many keys and rows are held."""
        self.parts()
        self._pieces = [piece for piece in self._pieces if piece.module == KEYS or not self._state.windows.dead(piece, watermark)]
        entered = stacked([part.frame for part in self._keys[self._old[0] :]])
        grown = self._alive([part.frame for part in self._rows[self._old[1] :]], watermark)
        keys = sum(piece.rows for piece in self._of(KEYS)) + (0 if entered is None else entered.height)
        rows = sum(self._held(piece, watermark) for piece in self._of(ROWS)) + (0 if grown is None else grown.height)
        if self._size(keys, rows) > capacity:
            keys, rows = self._drop(entered, grown, capacity * (1.0 - SLACK), watermark)
        else:
            self._pieces += self._aside(KEYS, 0, entered) + self._aside(ROWS, 0, grown)
            self._merge(watermark)
        self._state.notes.cached[self.cache.key] = self._pieces
        return keys, rows

    def _size(self, keys: int, rows: int) -> float:
        """In the plan's measure. A key without rows takes room too."""
        return rows * self.cache.tuple_bytes + keys * ENTRY_BYTES

    def _of(self, kind: str) -> list[Piece]:
        return [piece for piece in self._pieces if piece.module == kind]

    def _alive(self, frames: Sequence[pl.DataFrame], watermark: int) -> pl.DataFrame | None:
        """In the order of their deaths, the dead left out."""
        rows = self._together(frames)
        if rows is None:
            return None
        return rows.drop("die", "sq", strict=False).filter(self._state.windows.alive(self.cache.counted, watermark)).sort("hi")

    def _held(self, piece: Piece, watermark: int) -> int:
        rows = self._state.fetched(piece.name)
        if self.cache.counted:
            return int(rows.select(self._state.windows.alive(self.cache.counted, watermark).sum()).item())
        return piece.rows - int(np.searchsorted(rows["hi"].to_numpy(), watermark))

    def _aside(self, kind: str, level: int, frame: pl.DataFrame | None) -> list[Piece]:
        """The rows as a piece on the shelf; none where there are no rows."""
        if frame is None or not frame.height:
            return []
        name, data = new_name(), as_file(frame)
        self._state.store.shelf.put(name, data)
        bounds = TIMELESS if kind == KEYS else bounds_of(frame, self.cache.counted)
        return [Piece(name, kind, level, 0, frame.height, len(data), 0, bounds)]

    def _merge(self, watermark: int) -> None:
        """The pieces of every level that has enough of them, from the lowest up. They stay in the order of their age."""
        for kind in (KEYS, ROWS):
            level = 0
            while len(run := [piece for piece in self._of(kind) if piece.level == level]) >= FAN:
                frames = [self._state.fetched(piece.name) for piece in run]
                merged = self._aside(kind, level + 1, stacked(frames) if kind == KEYS else self._alive(frames, watermark))
                at = self._pieces.index(run[0])
                self._pieces = [*self._pieces[:at], *merged, *(piece for piece in self._pieces[at:] if piece not in run)]
                level += 1

    def _drop(self, entered: pl.DataFrame | None, grown: pl.DataFrame | None, capacity: float, watermark: int) -> tuple[int, int]:
        """Let go of the entries made longest ago, beyond this capacity, and write the others anew, with what the batch has added; how many keys and
        rows these are."""
        columns, level = self.cache.columns, max((1, *(piece.level for piece in self._pieces)))
        held = {kind: [self._state.fetched(piece.name) for piece in self._of(kind)] for kind in (KEYS, ROWS)}
        keys = stacked([*held[KEYS], entered])
        assert keys is not None, "rows have keys"
        rows = self._together([frame for frame in (self._alive(held[ROWS], watermark), grown) if frame is not None])
        ranked = keys.with_columns(held=pl.lit(0, dtype=pl.Int64))
        if rows is not None:
            per_key = rows.group_by(columns).agg(pl.len().cast(pl.Int64).alias("held"))
            ranked = keys.join(per_key, on=columns, how="left", maintain_order="left").with_columns(pl.col("held").fill_null(0))
        size = pl.col("held") * self.cache.tuple_bytes + ENTRY_BYTES
        kept = ranked.filter(size.cum_sum(reverse=True) <= capacity).drop("held")
        left = None if rows is None else rows.join(kept, on=columns, how="semi", maintain_order="left").sort("hi")
        self._pieces = self._aside(KEYS, level, kept) + self._aside(ROWS, level, left)
        return kept.height, 0 if left is None else left.height

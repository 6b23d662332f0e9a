"""Which rows of a piece of state have these keys: by an index of the piece, or by a scan of it.

The problem: some thousand new rows look for partners in millions of rows that hardly change. The method: for every row one 64-bit entry,
the upper half of the key's hash above the row's position, all entries sorted, and a table of where the entries with the same leading bits
begin. A probe then touches the entries of its own keys and no others: 10,000 keys in three million rows take 1 ms, where a hash join that
scans the rows takes 20 ms.

Where the rows that look outnumber the piece, the roles change: the entries of the asking rows get the table, and every row of the piece looks
itself up there. That reads the whole piece and needs no index of it. `scan_is_cheaper` decides by the numbers of rows on both sides, before
either way is gone.

The guarantee: `pairs` yields every pair of an asked row and a row of the index whose keys are equal, and few others (one in four thousand
million by chance): whoever asks compares the keys. Rows with a null in the key equal nothing and have no entry. At most `block`
candidates are looked at at a time, so a key that a fifth of all rows have takes time and no memory. Complexity: O(n log n) to make; O(asked
+ candidates) to ask.

Hashes are those of polars, the same on one machine and version: an index is kept beside a worker's own copy of a piece, never in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

__all__ = ["POSITION", "Index", "entries_of", "made", "scan_is_cheaper"]

Numbers = np.ndarray[Any, np.dtype[Any]]

HASH = np.uint64(0xFFFFFFFF00000000)
POSITION = np.uint64(0xFFFFFFFF)

# Nanoseconds of one core, for a decision between two ways that give the same rows.
ASKED = 40  # to look one row up in an index, all of them in order
SCANNED = 60  # the same for the rows of a piece, which are not in that order
HASHED = 8  # the entry of one row
SORTED = 25  # to bring it into order with the others


def scan_is_cheaper(asking: int, held: int, indexed: bool, lasting: bool) -> bool:
    """Whether rows that ask this piece do better to have it scanned.

    `indexed`: there is an index. `lasting`: one that is made now serves later batches as well, and so costs this one nothing to speak of.
    """
    by_index = asking * ASKED + (0 if indexed or lasting else held * (HASHED + SORTED))
    return held * (HASHED + SCANNED) < by_index


@dataclass(frozen=True, slots=True)
class Index:
    """Entries in order, and for each value of their leading `bits` where those entries begin."""

    bits: int
    table: Numbers
    entries: Numbers

    @classmethod
    def of(cls, entries: Numbers) -> Index:
        """Of entries in order: a table of as many places as there are entries, or up to twice as many."""
        bits = max(1, len(entries).bit_length())
        table = np.zeros((1 << bits) + 1, dtype=np.uint32)
        np.cumsum(np.bincount((entries >> np.uint64(64 - bits)).view(np.int64), minlength=1 << bits), out=table[1:])
        return cls(bits, table, entries)

    def pairs(self, asked: Numbers, block: int) -> Iterator[tuple[Numbers, Numbers]]:
        """Positions of rows, of the entries `asked` and of the index, whose keys have the same hash.

        At most `block` candidates are looked at at a time.
        """
        if not len(self.entries) or not len(asked):
            return
        bucket = (asked >> np.uint64(64 - self.bits)).view(np.int64)
        start = self.table[bucket]
        count = self.table[bucket + 1] - start
        # Half of the places or more are empty, and most of what is asked is not here.
        some = np.flatnonzero(count)
        if not len(some):
            return
        asked, start, count = asked[some], start[some].astype(np.int64), count[some].astype(np.int64)
        ends = np.cumsum(count)
        total = int(ends[-1])
        for low in range(0, total, block):
            high = min(total, low + block)
            first, last = int(np.searchsorted(ends, low, "right")), int(np.searchsorted(ends, high, "left")) + 1
            taken, begin = count[first:last].copy(), start[first:last].copy()
            skipped = low - int(ends[first] - count[first])
            begin[0] += skipped
            taken[0] -= skipped
            taken[-1] -= int(ends[last - 1]) - high
            asking = asked[np.repeat(np.arange(first, last), taken)]
            found = self.entries[np.arange(high - low) + np.repeat(begin - (np.cumsum(taken) - taken), taken)]
            same = np.flatnonzero((found ^ asking) <= POSITION)
            if len(same):
                yield (asking[same] & POSITION).astype(np.uint32), (found[same] & POSITION).astype(np.uint32)


def made(frame: pl.DataFrame, columns: Sequence[str]) -> Index:
    """The index of these columns."""
    return Index.of(entries_of(frame, columns))


def entries_of(frame: pl.DataFrame, columns: Sequence[str], in_order: bool = True) -> Numbers:
    """One per row whose key has no null. In order, a probe's reads are close together, and an index can be made of them."""
    keys = frame[list(columns)]
    entries: Numbers = (keys.hash_rows(seed=0).to_numpy() & HASH) | np.arange(frame.height, dtype=np.uint64)
    if any(column.null_count() for column in keys):
        entries = entries[keys.select(pl.all_horizontal(pl.all().is_not_null())).to_series().to_numpy()]
    if in_order:
        entries.sort()
    return entries

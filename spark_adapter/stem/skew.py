"""How often the most frequent value of an attribute occurs: a cell cannot be smaller than that value's rows.

Every cell says of each batch which value most of its rows have, by a hash, and how many. Added up over cells and the batches of the last
windows, a value that is frequent throughout stands out; of those that were ahead by chance each adds up to little. At most KEPT values are
remembered per attribute, the most frequent ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Frequent", "most_frequent"]

SAMPLED = 10_000  # rows of a stream in a batch that are looked at, evenly spaced: a millisecond
KEPT = 256

Count = tuple[int, int]
"""The hash of a value, and how many rows have it."""


def most_frequent(rows: pl.DataFrame, attributes: Sequence[str]) -> dict[str, Count]:
    """Per attribute the value that most rows have, of several the first that came; nulls are no values."""
    import numpy as np

    from spark_adapter.stem.hashes import xxhash64
    from spark_adapter.stem.index import POSITION, entries_of

    every = max(1, -(-rows.height // SAMPLED))
    sample = rows[list(attributes)] if every == 1 else rows[list(attributes)].gather_every(every)
    found = {}
    for attribute in attributes:
        entries = entries_of(sample, [attribute])
        if len(entries):
            # Equal values have equal hashes and so stand together, in the order in which they came.
            hashes = entries >> np.uint64(32)
            starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
            lengths = np.diff(starts, append=len(entries))
            most = int(lengths.max())
            first = int((entries[starts[lengths == most]] & POSITION).min())
            found[attribute] = (int(xxhash64(sample[attribute][first : first + 1])[0]), most * every)
    return found


class Frequent:
    """The most frequent values of all attributes, of some batches."""

    def __init__(self, said: Mapping[str, Sequence[Count]] | None = None) -> None:
        """With what another has said of itself."""
        self._counts: dict[str, dict[int, int]] = {}
        for attribute, counts in (said or {}).items():
            self._add(attribute, counts)

    def add(self, most: Mapping[str, Count]) -> None:
        """What a cell says of a batch."""
        for attribute, count in most.items():
            self._add(attribute, [count])

    def add_all(self, other: Frequent) -> None:
        for attribute, counts in other._counts.items():
            self._add(attribute, list(counts.items()))

    def _add(self, attribute: str, added: Sequence[Count]) -> None:
        counts = self._counts.setdefault(attribute, {})
        for value, rows in added:
            counts[value] = counts.get(value, 0) + rows
        if len(counts) > 2 * KEPT:
            self._counts[attribute] = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:KEPT])

    def said(self) -> dict[str, list[Count]]:
        """In a form that can be written down."""
        return {attribute: sorted(counts.items()) for attribute, counts in sorted(self._counts.items())}

    def shares(self, rows: Mapping[str, int]) -> dict[str, float]:
        """Per attribute the share of its most frequent value; `rows` is how many each stream had."""
        found = {}
        for attribute, counts in sorted(self._counts.items()):
            total = rows.get(attribute.split(".")[0], 0)
            if total:
                found[attribute] = min(1.0, max(counts.values()) / total)
        return found

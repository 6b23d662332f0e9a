"""How often the most frequent value of an attribute occurs: a cell cannot be smaller than that value's rows.

Every cell says of each batch which value most of its rows have, by a hash, and how many. Added up over cells and batches, a value that is
frequent throughout stands out; of those that were ahead by chance each adds up to little. At most KEPT values are remembered per attribute,
the most frequent ones.
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
    """Per attribute the value that most rows have; of several the least."""
    from spark_adapter.stem.hashes import xxhash64

    every = max(1, -(-rows.height // SAMPLED))
    found = {}
    for attribute in attributes:
        counts = rows[attribute].gather_every(every).value_counts(name="rows")
        most = counts["rows"].max()
        first = counts.filter(counts["rows"] == most)[attribute].sort()[:1]
        assert isinstance(most, int)
        found[attribute] = (int(xxhash64(first)[0]), most * every)
    return found


class Frequent:
    """The most frequent values of all attributes so far."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[int, int]] = {}

    def add(self, seen: Mapping[str, Sequence[int]]) -> None:
        for attribute, (value, rows) in seen.items():
            counts = self._counts.setdefault(attribute, {})
            counts[value] = counts.get(value, 0) + rows
            if len(counts) > 2 * KEPT:
                self._counts[attribute] = dict(sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))[:KEPT])

    def shares(self, rows: Mapping[str, int]) -> dict[str, float]:
        """Per attribute the share of its most frequent value; `rows` is how many each stream had."""
        found = {}
        for attribute, counts in sorted(self._counts.items()):
            total = rows.get(attribute.split(".")[0], 0)
            if total:
                found[attribute] = min(1.0, max(counts.values()) / total)
        return found

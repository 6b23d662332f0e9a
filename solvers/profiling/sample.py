"""Rows of a stretch of all streams, as columns of numbers: what statistics are counted from.

A sample holds every row, or of some streams only those whose key is among a share of all values (`Sampled`). Rows are chosen by their key and
not one by one, so that a row that is in the sample has its partners in it too: a share of the keys keeps that share of the joins, where
the same share of the rows would keep its square.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["SECOND", "Columns", "Rows", "Sample", "Sampled"]

SECOND = 1_000_000  # microseconds
Columns = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rows:
    """Rows of one stream, in the order of their event times; those before the stretch are there for the windows that reach back to them."""

    ts: Columns
    """Event times, in microseconds."""
    codes: Mapping[str, Columns]
    """By attribute: 64-bit numbers that are equal where the values are."""
    values: Mapping[str, Columns]
    """By attribute that is compared by order: the values themselves."""
    in_stretch: int
    """Rows of the stretch, in the sample or not."""
    share: float
    """How much of the stream's rows the sample holds."""
    tuple_bytes: float


@dataclass(frozen=True)
class Sampled:
    """Of these attributes, one per stream at most, only a share of the values is in the sample."""

    attributes: Mapping[str, str]
    share: float


@dataclass(frozen=True)
class Sample:
    """All streams over one stretch of event time."""

    streams: Mapping[str, Rows]
    start: int
    end: int
    """Microseconds; the end is not in it."""
    by: Sampled | None = None

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / SECOND

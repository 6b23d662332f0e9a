"""Pieces: what a module of state is made of, and when which of them are merged.

A piece is some rows of one module that were written together: a value of the store under a name of its own, never changed. What a batch
adds is a piece per module, or a few where it is large or its rows die at very different times. Rows of a piece are in the order of their
deaths (`hi`, or the row's number where the window is counted in rows), so that the dead ones are a prefix that nobody looks at; a piece
goes when its last row is dead.

Many small pieces cost every probe a fixed time each. So pieces that die at about the same time, within an eighth of the window, are merged:
FAN pieces of one level become one piece of the next level. Pieces of the first level are merged earlier, when there are LEAST of them and
newer ones die later than that eighth. A row is rewritten once for windows of up to some 8,000 batches and twice for up to
260,000: O(log) times, so a batch writes twice or three times what it adds, on average. Merging drops dead rows, and puts rows that die early
and rows that die late into separate pieces.

A batch merges at most MERGED_BYTES; what is due beyond that waits for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
import polars as pl

from spark_adapter.stem.program import Module

__all__ = ["FAN", "LEAST", "MERGED_BYTES", "NEAR", "PIECE_BYTES", "Bounds", "Piece", "bounds_of", "cut", "due", "new_name"]

FAN = 32  # pieces of a level that become one of the next
LEAST = 4  # pieces of the first level that are worth merging
NEAR = 8  # of a window: pieces that die within this fraction of it are merged; dead rows are kept for half of that on average
MERGED_BYTES = 32 << 20  # a second of a batch; takes four times as much memory
PIECE_BYTES = 32 << 20  # at most, so that fetching one takes some hundred megabytes
LARGE_BYTES = PIECE_BYTES // 2  # from which on a piece is not merged again
SPREAD = 4  # a window's fraction: rows that die further apart than this are parted into two pieces…
WORTH_PARTING = 32_768  # … where there are so many rows: every piece costs each probe a fixed time

Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of a piece's rows without looking at them: the least and greatest `mx` and `hi`, and per stream whose window is counted
    in rows the newest number."""

    mx: Interval
    hi: Interval
    numbers: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """An entry of a cell's notes."""

    name: str
    module: str
    level: int
    """How often its rows were merged."""
    part: int
    """0 for the rows of a batch that die last, 1 for those before: such pieces are merged with their like."""
    rows: int
    size: int
    """Bytes as they lie on a worker's disk."""
    stored: int
    """Bytes in the store, where they are compressed."""
    bounds: Bounds

    def noted(self) -> list[Any]:
        """In the form of the notes."""
        bounds = self.bounds
        return [self.name, self.module, self.level, self.part, self.rows, self.size, self.stored, *bounds.mx, *bounds.hi, dict(bounds.numbers)]

    @classmethod
    def read(cls, noted: Sequence[Any]) -> Piece:
        name, module, level, part, rows, size, stored, first, last, early, late, numbers = noted
        return cls(name, module, level, part, rows, size, stored, Bounds((first, last), (early, late), numbers))


def new_name() -> str:
    """A name that was never given before."""
    return uuid4().hex


def bounds_of(frame: pl.DataFrame, counted: Sequence[str]) -> Bounds:
    mx, hi = frame["mx"], frame["hi"]
    return Bounds((int(mx.min()), int(mx.max())), (int(hi.min()), int(hi.max())), {name: int(frame[f"{name}#"].max()) for name in counted})


def cut(rows: pl.DataFrame, module: Module) -> Iterator[tuple[int, pl.DataFrame]]:
    """The rows as pieces are to hold them, in the order of their deaths, each with its `part`."""
    rows = rows.sort(module.death)
    deaths = rows[module.death]
    spread = int(deaths[-1]) - int(deaths[0])
    wanted = 1
    if rows.height >= WORTH_PARTING and spread > module.reach // SPREAD:
        wanted = 2
    wanted = max(wanted, -(-int(rows.estimated_size()) // PIECE_BYTES))
    if wanted == 2:
        # Where they die over a long time, parted in the middle of that time: the first part then lives half as long.
        middle = int(np.searchsorted(deaths.to_numpy(), int(deaths[0]) + spread // 2))
        starts = [0, middle] if 0 < middle < rows.height else [0]
    else:
        starts = [rows.height * k // wanted for k in range(wanted)]
    ends = [*starts[1:], rows.height]
    for k, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end > start:
            yield len(starts) - 1 - k, rows[start:end]


def due(pieces: Sequence[Piece], module: Module, budget: int = MERGED_BYTES) -> list[Piece]:
    """The pieces of a module that are to be merged now: those that die first among all that are due; empty where none are."""
    families: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        if piece.size < LARGE_BYTES:
            families.setdefault((piece.level, piece.part if piece.level == 0 else 0), []).append(piece)
    for (level, _), family in sorted(families.items()):
        family.sort(key=lambda piece: (module.last_death(piece), piece.name))
        start = 0
        while start < len(family):
            limit = module.last_death(family[start]) + module.reach // NEAR
            end = next((k for k in range(start, len(family)) if module.last_death(family[k]) > limit), len(family))
            run = family[start:end]
            closed = end < len(family)
            if len(run) >= FAN or (level == 0 and closed and len(run) >= LEAST):
                taken = _within(run[:FAN], budget)
                if taken:
                    return taken
            start = end
    return []


def _within(run: Sequence[Piece], budget: int) -> list[Piece]:
    """As many of them, from the first on, as the budget has room for; none where that is hardly any."""
    taken: list[Piece] = []
    for piece in run:
        budget -= piece.size
        if budget < 0:
            break
        taken.append(piece)
    return taken if len(taken) >= min(LEAST, len(run)) else []

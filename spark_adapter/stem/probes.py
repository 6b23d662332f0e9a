"""Probes: partial rows look for their partners in the parts of a module.

The problem: all pairs of a partial row and a row of the module that satisfy the step's predicates and all windows, without reading what
cannot be among them, and without ever holding more than a bounded block of pairs. The method: a part whose time bounds no partial row can
reach is passed over; the others answer where the step has an equality by their index, which is made once for the life of a part, or are
scanned, where the partial rows outnumber them (see `index`). Without an equality, and where a plan asks for a nested loop over few pairs,
pairs are compared one by one.

The guarantee: exactly those pairs. Candidates are taken in blocks of at most BLOCK, so a key that a fifth of all rows have costs time in
proportion to the pairs with that key and parts within reach, and memory for one block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import polars as pl

from spark_adapter.stem.index import Index, Numbers, entries_of, scan_is_cheaper
from spark_adapter.stem.program import Comparison, Step
from spark_adapter.stem.state import Answering, Part
from spark_adapter.stem.windows import Windows

__all__ = ["Effort", "joined", "key_of", "pairs_within"]

BLOCK = 250_000  # candidates at a time: some ten megabytes of positions, fifty of rows
SCAN_PAIRS = 1_000_000  # pairs compared at a time in a nested loop: some hundred megabytes
LOOP_PAIRS = 2_000_000  # where a plan asks for a nested loop on an equality: beyond this the index finds the same for less
SAMPLE_LEFT = 64  # partial rows by which the share of pairs within their windows is estimated

SCANNED_PER_FOUND = 16  # pairs that a nested loop compares in the time in which an index finds one and its rows are put together

OPERATORS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


@dataclass(slots=True)
class Effort:
    """What probes had to do, counted: the same in every run, which the clock is not."""

    rows_in: int = 0
    pairs: float = 0.0
    """Candidates that were looked at; those of a nested loop count for less."""
    rows_out: int = 0
    indexed: int = 0
    """Rows that indexes were made of."""

    @property
    def work(self) -> float:
        return self.rows_in + self.pairs


def joined(
    windows: Windows,
    lefts: Iterator[pl.DataFrame] | Sequence[pl.DataFrame],
    parts: Sequence[Part] | Answering,
    step: Step,
    residual: Sequence[Comparison] = (),
    only: pl.Expr | None = None,
    effort: Effort | None = None,
) -> Iterator[pl.DataFrame]:
    """The rows of `lefts` with their partners: frame by frame as they are made, none of them empty.

    `only` is a condition on a partner's own columns, those of the windows with a '; `effort` is added to.
    """
    comparisons = (*step.equal, *step.other, *residual)
    conditions = [*windows.conditions(), *map(_holds, comparisons), *([] if only is None else [only])]
    effort = effort or Effort()
    for left in lefts:
        effort.rows_in += left.height
        if not left.height:
            continue
        sought = parts if isinstance(parts, Sequence) else parts.answers(left, step)
        for found in _partners(windows, left, sought, step, reduce(lambda a, b: a & b, conditions), effort):
            effort.rows_out += found.height
            yield found


def _partners(windows: Windows, left: pl.DataFrame, parts: Sequence[Part], step: Step, condition: pl.Expr, effort: Effort) -> Iterator[pl.DataFrame]:
    reached = _reached(left, parts)
    if not reached:
        return
    held = sum(part.rows for part in reached)
    if step.scan and (not step.equal or left.height * held <= LOOP_PAIRS):
        effort.pairs += left.height * held / SCANNED_PER_FOUND
        yield from _by_loop(windows, left, reached, condition)
    else:
        yield from _by_key(windows, left, reached, step, condition, effort)


def _reached(left: pl.DataFrame, parts: Sequence[Part]) -> list[Part]:
    """The parts of which some row may be within the windows of some row."""
    if not left.height:
        return []
    first, last = int(left["mx"].min()), int(left["hi"].max())
    return [part for part in parts if part.rows and first <= part.bounds.hi[1] and part.bounds.mx[0] <= last]


def key_of(step: Step) -> dict[str, str]:
    """The columns that a step's partial rows ask by, each with the column of the target that it equals.

    A column counts once in a key; a second comparison of it is checked with the rest.
    """
    keys: dict[str, str] = {}
    for comparison in step.equal:
        if comparison.left not in keys and comparison.right not in keys.values():
            keys[comparison.left] = comparison.right
    return keys


def _by_key(windows: Windows, left: pl.DataFrame, parts: Sequence[Part], step: Step, condition: pl.Expr, effort: Effort) -> Iterator[pl.DataFrame]:
    keys = key_of(step)
    asking = _Asking(left, list(keys), tuple(keys.values()))
    rows: list[Numbers] = []
    partners: list[pl.DataFrame] = []
    held = 0
    for part in parts:
        for mine, theirs in asking.pairs(part, effort):
            found = part.frame[pl.Series(theirs)]
            partners.append(found if part.new else windows.with_deaths(found))
            rows.append(mine)
            held += len(mine)
            effort.pairs += len(mine)
            if held >= BLOCK:
                yield from _checked(windows, left[pl.Series(np.concatenate(rows))], _stacked(partners), condition)
                rows, partners, held = [], [], 0
    if held:
        yield from _checked(windows, left[pl.Series(np.concatenate(rows))], _stacked(partners), condition)


class _Asking:
    """Partial rows that look for rows with their keys."""

    def __init__(self, rows: pl.DataFrame, own: Sequence[str], theirs: tuple[str, ...]) -> None:
        self._columns = theirs
        self._entries = entries_of(rows, own)
        self._index: Index | None = None

    def pairs(self, part: Part, effort: Effort) -> Iterator[tuple[Numbers, Numbers]]:
        """Positions of partial rows and of rows of the part, by the way that is cheaper."""
        indexed = part.has_index(self._columns)
        if not scan_is_cheaper(len(self._entries), part.rows, indexed, not part.new):
            effort.indexed += 0 if indexed else part.rows
            yield from part.index(self._columns).pairs(self._entries, BLOCK)
            return
        if self._index is None:
            self._index = Index.of(self._entries)
        for theirs, mine in self._index.pairs(entries_of(part.frame, self._columns, in_order=False), BLOCK):
            yield mine, theirs


def _stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """The columns of new rows and of old ones may stand in different orders."""
    if len(frames) == 1:
        return frames[0]
    columns = frames[0].columns
    return pl.concat([frame if frame.columns == columns else frame.select(columns) for frame in frames], rechunk=True)


def _checked(windows: Windows, left: pl.DataFrame, right: pl.DataFrame, condition: pl.Expr) -> Iterator[pl.DataFrame]:
    """Row by row the pairs that satisfy the condition, as joined rows."""
    right.columns = [f"{name}'" if name in windows.controls else name for name in right.columns]
    pairs = left.hstack(right)
    yield from _merged(windows, pairs.lazy(), condition)


def _by_loop(windows: Windows, left: pl.DataFrame, parts: Sequence[Part], condition: pl.Expr) -> Iterator[pl.DataFrame]:
    first = int(left["mx"].min())
    for part in parts:
        right = part.frame if part.new else windows.with_deaths(part.frame)
        if not windows.counted:
            # In the order of their deaths: those before are dead for all partial rows.
            right = right[int(np.searchsorted(right["hi"].to_numpy(), first)) :]
        for start in range(0, right.height, SCAN_PAIRS):
            some = right[start : start + SCAN_PAIRS].rename({name: f"{name}'" for name in windows.controls}).lazy()
            block = max(1, SCAN_PAIRS // min(SCAN_PAIRS, right.height))
            for begin in range(0, left.height, block):
                yield from _merged(windows, left[begin : begin + block].lazy().join(some, how="cross"), condition)


def _merged(windows: Windows, pairs: pl.LazyFrame, condition: pl.Expr) -> Iterator[pl.DataFrame]:
    together = windows.together()
    found = pairs.filter(condition).with_columns(**together).drop([f"{name}'" for name in together]).collect()
    if found.height:
        yield found


def _holds(comparison: Comparison) -> pl.Expr:
    holds: pl.Expr = getattr(pl.col(comparison.left), OPERATORS[comparison.op])(pl.col(comparison.right))
    return holds


def pairs_within(left: pl.DataFrame, parts: Sequence[Part] | Answering, counted: bool) -> float:
    """About how many pairs are within their windows, by a sample of evenly spaced rows; a table that is asked has all its rows in them."""
    if not isinstance(parts, Sequence):
        return float(left.height * parts.rows)
    parts = _reached(left, parts)
    if not parts:
        return 0.0
    every = -(-left.height // SAMPLE_LEFT)
    samples = [part.sample() for part in parts]
    weights = np.concatenate([np.full(len(sample[0]), part.rows / len(sample[0])) for part, sample in zip(parts, samples, strict=True)])
    columns = [np.concatenate(column) for column in zip(*samples, strict=True)]
    mx, hi = (left[name].to_numpy()[::every, None] for name in ("mx", "hi"))
    within = (mx <= columns[1]) & (columns[0] <= hi)
    if counted:
        sq, die = (left[name].to_numpy()[::every, None] for name in ("sq", "die"))
        within &= (sq < columns[3]) & (columns[2] < die)
    return float((within @ weights).mean() * left.height)

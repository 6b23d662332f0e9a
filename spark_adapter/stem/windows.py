"""Windows: which rows go together, and which are dead.

Windows of time: see `program`; a row carries `hi` and `mx`, and two partial rows go together when each one's mx is at most the other's hi.

With windows counted in rows, "the stream's newest N rows when the last partner arrives" needs an order of arrival: batch by batch, within a
batch by event time, then stream, then the row's hash. Rows of a batch get the numbers 1, 2, … in that order and old rows 0 (`sq`, the
largest of a row's components), and `die` is the number of the arrival that pushes a component out of its window, the smallest of a row's.
Two partial rows go together when each one's sq is below the other's die. Neither is kept: they follow from the rows' numbers in their
streams (`bids#`), which are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from spark_adapter.stem.pieces import Piece
from spark_adapter.stem.program import FOREVER, Module, Program

__all__ = ["Windows", "least_watermark"]


def least_watermark(program: Program, latest: Mapping[str, int], watermark: int) -> int:
    """What the next watermark is at least: Spark takes the earliest over the streams, each by the latest row of all cells, in milliseconds."""
    if any(stream.delay is None or stream.name not in latest for stream in program.streams):
        return watermark
    return max(watermark, min((int(latest[stream.name]) // 1000 - (stream.delay or 0)) * 1000 for stream in program.streams))


class Windows:
    """The windows of one batch in one cell. `counts`, rows per stream so far where that is its window's measure, goes on with the batch's rows."""

    def __init__(self, program: Program, counts: dict[str, int]) -> None:
        self.counted = program.counted
        self.counts = counts
        self.lengths = {stream.name: stream.rows for stream in program.streams if stream.rows is not None}
        self.controls = ("hi", "mx", "h", "die", "sq") if self.counted else ("hi", "mx", "h")
        self._before = {name: counts.get(name, 0) for name in self.lengths}
        self._pushing: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
        """Per stream of a row window: the arrival numbers of its new rows."""

    def numbered(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """New rows in their order of arrival, with their numbers in it, and in their streams where windows are counted in rows."""
        if not self.counted or not frames:
            return dict(frames)
        ordered = {name: frame.sort("ts", "h") for name, frame in frames.items()}
        arrived = [
            frame.select("ts", pl.lit(i).alias("stream"), "h", pl.int_range(pl.len()).alias("row"), pl.lit(name).alias("name"))
            for i, (name, frame) in enumerate(ordered.items())
        ]
        order = pl.concat(arrived).sort("ts", "stream", "h", "row").with_row_index("sq", offset=1)
        for name, frame in ordered.items():
            numbers = order.filter(pl.col("name") == name).sort("row")["sq"].cast(pl.Int64)
            ordered[name] = frame.with_columns(sq=numbers)
            if name in self.lengths:
                before = self._before[name]
                ordered[name] = ordered[name].with_columns((pl.int_range(pl.len(), dtype=pl.Int64) + before + 1).alias(f"{name}#"))
                self._pushing[name] = numbers.to_numpy()
                self.counts[name] = before + frame.height
        return ordered

    def with_deaths(self, frame: pl.DataFrame, new: bool = False) -> pl.DataFrame:
        """With `die`, and for old rows `sq` = 0; nothing to do where all windows are of time."""
        if not self.counted:
            return frame
        die = np.full(frame.height, FOREVER, dtype=np.int64)
        for name, length in self.lengths.items():
            if f"{name}#" in frame.columns:
                pushing = np.append(self._pushing.get(name, np.empty(0, dtype=np.int64)), FOREVER)
                at = frame[f"{name}#"].to_numpy() + length - self._before[name] - 1
                die = np.minimum(die, np.where(at < 0, 0, pushing[np.clip(at, 0, len(pushing) - 1)]))
        frame = frame.with_columns(die=pl.Series(die))
        return frame if new else frame.with_columns(sq=pl.lit(0, dtype=pl.Int64))

    def conditions(self) -> list[pl.Expr]:
        """That two partial rows go together; the columns of the second have a '."""
        found = [pl.col("mx") <= pl.col("hi'"), pl.col("mx'") <= pl.col("hi")]
        if self.counted:
            found += [pl.col("sq") < pl.col("die'"), pl.col("sq'") < pl.col("die")]
        return found

    def together(self) -> dict[str, pl.Expr]:
        """The window columns of two partial rows that have been joined."""
        found = {"hi": pl.min_horizontal("hi", "hi'"), "mx": pl.max_horizontal("mx", "mx'"), "h": pl.col("h") + pl.col("h'")}
        if self.counted:
            found |= {"die": pl.min_horizontal("die", "die'"), "sq": pl.max_horizontal("sq", "sq'")}
        return found

    def neutral(self) -> list[pl.Expr]:
        """The window columns of a row that fits every window: what a cache's key is before it has found rows."""
        values = {"hi": FOREVER, "mx": -FOREVER, "h": 0} | ({"die": FOREVER, "sq": 0} if self.counted else {})
        return [pl.lit(value, dtype=pl.Int64).alias(name) for name, value in values.items()]

    def dead(self, piece: Piece, watermark: int) -> bool:
        """Whether no later row can need any of a piece's rows."""
        pushed_out = any(
            number + self.lengths[name] <= self.counts.get(name, 0) for name, number in piece.bounds.numbers.items() if name in self.lengths
        )
        return pushed_out or piece.bounds.hi[1] < watermark

    def first_alive(self, module: Module, rows: pl.DataFrame, watermark: int) -> int:
        """How many rows of a piece, which are in the order of their deaths, are dead."""
        if module.death == "hi":
            return int(np.searchsorted(rows["hi"].to_numpy(), watermark))
        name = module.death[:-1]
        return int(np.searchsorted(rows[module.death].to_numpy(), self.counts.get(name, 0) - self.lengths[name] + 1))

    def alive(self, counted: Sequence[str], watermark: int) -> pl.Expr:
        """Rows that a later row may still need."""
        conditions = [pl.col("hi") >= watermark]
        conditions += [pl.col(f"{name}#") + self.lengths[name] > self.counts.get(name, 0) for name in counted]
        return pl.all_horizontal(conditions)

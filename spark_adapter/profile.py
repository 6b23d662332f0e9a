"""A stretch of the sources, read once as a batch: the columns that statistics are counted from.

Of every row there is its event time, a 64-bit hash of each attribute that predicates compare, and the values of those that are compared by
order. Where a stretch has more rows than the driver should hold, the rows of the streams that share the most frequent join key are those
of a share of its values: what joins by that key stays together. Where even that is too much, the stretch is made shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import Bindings
from models.request import Comparison, PlanRequest, Query
from spark_adapter.errors import StatisticsError
from spark_adapter.expressions import quoted
from spark_adapter.sources import attributes, read_batches, read_frames

__all__ = ["Stretch", "read_stretch", "stretch_of"]

MOST_ROWS = 3_000_000  # of all streams, in the driver: some hundred megabytes
SECOND = 1_000_000  # microseconds
BUCKETS = 1 << 20  # of hashes, a share of which is read
TEXT_BYTES = 16  # of a text in a state, and its length where it is longer than twelve
HASH_BYTES = 8  # a state keeps one of every row

Tell = Callable[[str, float], None]


@dataclass
class Stretch:
    """What was read, stream by stream."""

    start: int
    end: int
    """Microseconds; the end is not in it."""
    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By stream: `ts`, the hashes `h_<attribute>` and the values `v_<attribute>`, in the order of time."""
    in_stretch: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    """How much of each stream's rows was read."""
    tuple_bytes: dict[str, float] = field(default_factory=dict)
    sampled: dict[str, str] = field(default_factory=dict)
    """By stream the attribute of whose values only a share was read."""
    share: float = 1.0
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    rows: int
    first: int
    last: int
    tuple_bytes: float


def read_stretch(asked: PlanRequest, bindings: Bindings, spark: SparkSession, seconds: float, tell: Tell, most_rows: int = MOST_ROWS) -> Stretch:
    """The last `seconds` that all sources hold, and before them what the windows reach back to.

    Raises BindingError where a source cannot be read, StatisticsError where sources have no time in common.
    """
    return _kept(asked.query, read_batches(asked, bindings, spark), seconds, tell, most_rows)


def stretch_of(asked: PlanRequest, bindings: Bindings, batches: Mapping[str, DataFrame], seconds: float) -> Stretch:
    """The same of batch DataFrames that somebody made."""
    return _kept(asked.query, read_frames(asked, bindings, batches), seconds, lambda step, share: None, MOST_ROWS)


def _kept(query: Query, shaped: Mapping[str, DataFrame], seconds: float, tell: Tell, most_rows: int) -> Stretch:
    """Sources are read once: what is counted of them is kept until the end."""
    frames = {name: _counted(frame, query, name).persist() for name, frame in shaped.items()}
    try:
        return _read(query, frames, seconds, tell, most_rows)
    finally:
        for frame in frames.values():
            frame.unpersist()


def _read(query: Query, frames: Mapping[str, DataFrame], seconds: float, tell: Tell, most_rows: int) -> Stretch:
    seen = {}
    for k, (name, frame) in enumerate(frames.items()):
        tell(f"reading {name}", k / (2 * len(frames)))
        seen[name] = _seen(frame)
    stretch = _common(seen, seconds)
    reach = round(max(stream.window.seconds or 0.0 for stream in query.streams) * SECOND)
    rows = _rows(frames, stretch.start - reach, stretch.end)
    linked = _linked(query, rows)
    while sum(rows.values()) > most_rows and sum(rows[name] for name in rows if name not in linked) > most_rows / 2:
        # Streams that the sampled key does not reach are read whole, so there is less of them only in less time.
        stretch.start = stretch.end - (stretch.end - stretch.start) // 2
        rows = _rows(frames, stretch.start - reach, stretch.end)
        if stretch.end - stretch.start < SECOND:
            raise StatisticsError(f"the windows alone hold {sum(rows.values()):,} rows, more than the {most_rows:,} that are looked at")
    if stretch.end - stretch.start < round(seconds * SECOND):
        stretch.notes.append(f"{(stretch.end - stretch.start) / SECOND:g} s were read, not {seconds:g}")
    if sum(rows.values()) > most_rows:
        others = sum(rows[name] for name in rows if name not in linked)
        stretch.share = round(BUCKETS * (most_rows - others) / sum(rows[name] for name in linked)) / BUCKETS
        stretch.sampled = linked
        keys = ", ".join(f"{name}.{attribute}" for name, attribute in linked.items())
        stretch.notes.append(f"of {keys} a share of {stretch.share:.3g} of the values was read")
    stretch.in_stretch = _rows(frames, stretch.start, stretch.end)
    for k, (name, frame) in enumerate(frames.items()):
        tell(f"counting {name}", (k + len(frames)) / (2 * len(frames)))
        stretch.columns[name] = _columns(frame, stretch, name, reach)
        stretch.shares[name] = len(stretch.columns[name]["ts"]) / max(1, rows[name]) if name in stretch.sampled else 1.0
        stretch.tuple_bytes[name] = seen[name].tuple_bytes
    return stretch


def _counted(frame: DataFrame, query: Query, name: str) -> DataFrame:
    """Event time, hashes, values and the bytes of a row."""
    ordered = {
        side.split(".", 1)[1]
        for predicate in query.predicates
        if predicate.op not in (Comparison.EQ, Comparison.NE)
        for side in (predicate.left, predicate.right)
        if side.split(".", 1)[0] == name
    }
    columns = [F.unix_micros(F.col("ts")).alias("ts")]
    size = F.lit(HASH_BYTES)
    for attribute in attributes(query)[name]:
        column, kind = F.col(quoted(f"a_{attribute}")), frame.schema[f"a_{attribute}"].dataType
        # −0.0 equals 0.0 but has another hash; the sum is 0.0 for both.
        columns.append(F.xxhash64(column + F.lit(0.0) if isinstance(kind, T.DoubleType) else column).alias(f"h_{attribute}"))
        if attribute in ordered:
            columns.append(_comparable(column, kind).alias(f"v_{attribute}"))
        size = size + _bytes(column, kind)
    row = frame.schema["row"].dataType
    assert isinstance(row, T.StructType)
    for one in row.fields:
        size = size + _bytes(F.col(f"row.{quoted(one.name)}"), one.dataType)
    return frame.select(*columns, size.alias("bytes"))


def _comparable(column: Column, kind: T.DataType) -> Column:
    """As numpy orders it: numbers, times as numbers, texts as they are."""
    if isinstance(kind, T.TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, T.DateType):
        return F.unix_date(column)
    return column.cast("double") if isinstance(kind, T.NumericType) else column


WIDTHS: Sequence[tuple[type[T.DataType], int]] = (
    (T.BooleanType, 1),
    (T.ByteType, 1),
    (T.ShortType, 2),
    (T.IntegerType, 4),
    (T.FloatType, 4),
    (T.DateType, 4),
)


def _bytes(column: Column, kind: T.DataType) -> Column:
    """What a value takes in a state, about."""
    if isinstance(kind, (T.StringType, T.BinaryType, T.CharType, T.VarcharType)):
        length = F.coalesce(F.octet_length(column), F.lit(0))
        return F.lit(TEXT_BYTES) + F.when(length > F.lit(12), length).otherwise(F.lit(0))
    if isinstance(kind, (T.StructType, T.ArrayType, T.MapType)):
        return F.coalesce(F.octet_length(F.to_json(F.struct(column))), F.lit(0))
    return F.lit(next((width for one, width in WIDTHS if isinstance(kind, one)), 16 if isinstance(kind, T.DecimalType) else 8))


def _seen(frame: DataFrame) -> _Seen:
    found = frame.agg(F.count("*"), F.min("ts"), F.max("ts"), F.avg("bytes")).first()
    assert found is not None
    return _Seen(int(found[0]), int(found[1] or 0), int(found[2] or 0), float(found[3] or 100.0))


def _common(seen: Mapping[str, _Seen], seconds: float) -> Stretch:
    """The last so many seconds that all streams have rows of; streams without any do not count."""
    known = {name: one for name, one in seen.items() if one.rows}
    if not known:
        raise StatisticsError("the sources hold no rows that take part: nothing can be measured")
    first, last = max(one.first for one in known.values()), min(one.last for one in known.values())
    if first >= last:
        spans = "; ".join(f"{name} from {_moment(one.first)} to {_moment(one.last)}" for name, one in known.items())
        raise StatisticsError(f"the sources have no event times in common: {spans}")
    return Stretch(max(first, last + 1 - round(seconds * SECOND)), last + 1)


def _moment(micros: int) -> str:
    return datetime.fromtimestamp(micros / SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _rows(frames: Mapping[str, DataFrame], start: int, end: int) -> dict[str, int]:
    return {name: frame.where(F.col("ts").between(start, end - 1)).count() for name, frame in frames.items()}


def _linked(query: Query, rows: Mapping[str, int]) -> dict[str, str]:
    """One attribute of each stream, all equal in a result, such that the streams have the most rows."""
    classes: dict[str, frozenset[str]] = {}
    for predicate in query.predicates:
        if predicate.op is Comparison.EQ:
            joined = classes.get(predicate.left, frozenset([predicate.left])) | classes.get(predicate.right, frozenset([predicate.right]))
            classes |= dict.fromkeys(joined, joined)
    candidates = []
    for group in sorted({tuple(sorted(group)) for group in classes.values()}):
        linked: dict[str, str] = {}
        for side in group:
            stream, attribute = side.split(".", 1)
            linked.setdefault(stream, attribute)
        candidates.append(linked)
    return max(candidates, key=lambda linked: sum(rows[name] for name in linked), default={})


def _columns(frame: DataFrame, stretch: Stretch, name: str, reach: int) -> dict[str, Any]:
    """The stream's columns as arrays, in the order of time; rows of one time in the order of their hashes, so that runs are alike."""
    chosen = frame.where(F.col("ts").between(stretch.start - reach, stretch.end - 1)).drop("bytes")
    if name in stretch.sampled:
        chosen = chosen.where(F.pmod(F.col(f"h_{stretch.sampled[name]}"), F.lit(BUCKETS)) < F.lit(round(stretch.share * BUCKETS)))
    table = chosen.toArrow()
    columns = {column: table.column(column).to_numpy(zero_copy_only=False) for column in table.column_names}
    order = np.lexsort([columns[column] for column in sorted(columns, reverse=True) if column.startswith("h_")] + [columns["ts"]])
    return {column: values[order].astype(str) if values.dtype == object else values[order] for column, values in columns.items()}

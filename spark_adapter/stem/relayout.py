"""A state laid out for another grid: every row of every stream goes to the cells where the new grid looks for it.

The problem: a checkpoint holds the states of some cells; the pipeline is to go on with more of them, or fewer, or cut along other attributes.
The method: in every old cell each piece of a stream's state is read once, in the one cell of its copies that counts it (`Grid.home`), its rows
are parted by their coordinates in the new grid, and each part goes to all cells of its copies. There the parts are put together again, in the
order of their deaths, to pieces as merging makes them, and named in the new cell's notes. Subresults are not moved: their rows no longer have
all attributes by which they were spread. Notes that name none have the first batch make those of the plan in force from the streams' states
(`building.make_missing`). Its program is taken along; what was built for it so far is not, and caches are empty.

The guarantee: every row that was held is held again, in exactly the cells in which rows of its coordinates arrive. Complexity: one pass over
the states; memory for a few pieces.

`emptied` and `filled` know keys and values of cells. `Emptying` and `Filling` wrap them for Spark, whose state store is rows of bytes in
Spark's own format (`UnsafeRow`: a word of null bits, a word per field, then what has no fixed length).
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from spark_adapter.stem.frames import decode, encode, stacked
from spark_adapter.stem.hashes import xxhash64
from spark_adapter.stem.pieces import NEAR, PIECE_BYTES, Piece, bounds_of, new_name
from spark_adapter.stem.program import FOREVER, META, MODULES, PLAN, ROWS
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.shelf import as_file, from_file
from spark_adapter.stem.state import Notes, compressed, expanded, first_death

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MOVED", "Emptying", "Filling", "Moved", "emptied", "filled", "placed"]

MOVED = "partition_key STRUCT<cell: INT>, stream STRING, death BIGINT, rows BINARY"
NO_STREAM = ""  # of what is no row of a stream: what all cells know; it comes first. Plans go by their keys
TIMERS = ("$eventTimers_keyToTimestamp", "$eventTimers_timestampToKey")  # Spark's names


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows of one stream on their way to a cell."""

    cell: int
    stream: str
    death: int
    """When the last of them dies."""
    data: bytes


def placed(rows: pl.DataFrame, stream: str, grid: Grid) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The cell of each row's own coordinates: the first of its copies."""
    cells = np.zeros(rows.height, dtype=np.int64)
    for d in grid.hashed(stream):
        attribute = grid.dimensions[d].attributes[stream]
        hashed = xxhash64(rows[f"{stream}.{attribute}"]) if attribute else rows["h"].to_numpy()
        cells += hashed % grid.dimensions[d].share * grid.strides[d]
    return cells


def emptied(cell: int, key: str, value: bytes, old: Grid, new: Grid) -> Iterator[Moved]:
    """What a value of an old cell is in the new ones."""
    if key == META:
        shared = json.dumps(Notes.read(value).shared()).encode()
        yield from (Moved(other, NO_STREAM, 0, shared) for other in range(new.cells))
        return
    if key.startswith(PLAN):
        if old.home(cell, ()):  # all cells have the same
            yield from (Moved(other, key, 0, value) for other in range(new.cells))
        return
    if key.startswith(ROWS):
        yield from _moved_aside(cell, key, value, old, new)
        return
    rows = from_file(expanded(value))
    streams = sorted({re.split("[./#]", name)[0] for name in rows.columns if name not in ("hi", "mx", "h")})
    if len(streams) > 1 or not old.home(cell, streams):
        return
    (stream,) = streams
    cells = placed(rows, stream, new)
    for first in np.unique(cells):
        part = rows.filter(pl.Series(cells == first))
        data, death = encode(part), int(part["hi"][-1])
        yield from (Moved(int(first) + offset, stream, death, data) for offset in new.offsets(stream))


def _moved_aside(cell: int, key: str, value: bytes, old: Grid, new: Grid) -> Iterator[Moved]:
    """Rows of a table's version that is not whole yet, under their key without its last word: every cell gives them one of its own."""
    *known, _ = key.split(" ")
    table = known[1]
    if not old.home(cell, (table,)):
        return
    rows = decode(expanded(value))
    cells = placed(rows, table, new)
    for first in np.unique(cells):
        data = compressed(encode(rows.filter(pl.Series(cells == first))))
        yield from (Moved(int(first) + offset, " ".join(known), 0, data) for offset in new.offsets(table))


def filled(moved: Iterable[Moved], windows: Mapping[str, int]) -> Iterator[tuple[int, str, bytes]]:
    """(cell, key, value) of the new cells; `moved` in the order of cells, streams and deaths, `windows` in microseconds: tables have none.

    The notes of a cell come after its pieces.
    """
    for cell, of_cell in groupby(moved, key=lambda part: part.cell):
        notes = Notes()
        for stream, of_stream in groupby(of_cell, key=lambda part: part.stream):
            if stream == NO_STREAM:
                for part in of_stream:
                    notes.share(json.loads(part.data))
                continue
            if stream.startswith(PLAN):
                # That of the plan before the one in force is not needed: there is nothing to go on with until another is built.
                if int(stream.removeprefix(PLAN)) in notes.plans:
                    yield from ((cell, stream, part.data) for part in of_stream)
                continue
            if stream.startswith(ROWS):
                for part in of_stream:
                    notes.aside.append(f"{stream} {new_name()}")
                    yield cell, notes.aside[-1], part.data
                continue
            for rows in _together(of_stream, windows.get(stream, FOREVER) // NEAR):
                data = as_file(rows)
                value = compressed(data)
                notes.pieces.append(Piece(new_name(), stream, 1, 0, rows.height, len(data), len(value), bounds_of(rows, ())))
                yield cell, notes.pieces[-1].name, value
        yield cell, META, notes.written()


def _together(parts: Iterable[Moved], span: int) -> Iterator[pl.DataFrame]:
    """Parts that die within this span as one frame, as long as that is not too large."""
    waiting: list[pl.DataFrame] = []
    size, first = 0, 0
    for part in parts:
        rows = decode(part.data)
        if waiting and (part.death > first + span or size + rows.estimated_size() > PIECE_BYTES):
            yield pl.concat(waiting, rechunk=True).sort("hi")
            waiting, size = [], 0
        first = first if waiting else part.death
        waiting.append(rows)
        size += int(rows.estimated_size())
    rest = stacked(waiting)
    if rest is not None:
        yield rest.sort("hi")


@dataclass(frozen=True, slots=True)
class Emptying:
    """Rows of Spark's store into parts for the new cells (`MOVED`)."""

    cells: Mapping[int, int]
    """Grouping key → cell, of the old grid."""
    old: Grid
    new: Grid
    keys: tuple[int, ...]
    """The grouping key of each new cell."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            owners, keys, values, families = (batch.column(k) for k in range(4))
            for owner, key, value, family in zip(owners, keys, values, families, strict=True):
                if family.as_py() == MODULES:
                    name = _key_of(key.as_buffer().to_pybytes())
                    held = _field(value.as_buffer().to_pybytes(), 0)
                    for part in emptied(self.cells[owner.as_py()["cell"]], name, held, self.old, self.new):
                        yield self._sent(part)

    def _sent(self, part: Moved) -> pa.RecordBatch:
        import pyarrow as pa

        key = pa.array([{"cell": self.keys[part.cell]}], pa.struct([pa.field("cell", pa.int32())]))
        columns = [key, pa.array([part.stream]), pa.array([part.death]), pa.array([part.data], pa.binary())]
        return pa.RecordBatch.from_arrays(columns, names=["partition_key", "stream", "death", "rows"])


@dataclass(frozen=True, slots=True)
class Filling:
    """Parts for the new cells, in order, into rows of Spark's store; every cell gets the timer of its first death as well."""

    keys: tuple[int, ...]
    windows: Mapping[str, int]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cells = {key: cell for cell, key in enumerate(self.keys)}
        moved = (
            Moved(cells[key.as_py()["cell"]], stream.as_py(), death.as_py(), rows.as_buffer().to_pybytes())
            for batch in batches
            for key, stream, death, rows in zip(*(batch.column(k) for k in range(4)), strict=True)
        )
        for cell, key, value in filled(moved, self.windows):
            owner = _row(self.keys[cell])
            yield self._stored(cell, MODULES, _row(owner, _row(key.encode())), _row(value))
            if key == META:
                yield from self._timers(cell, owner, Notes.read(value))

    def _timers(self, cell: int, owner: bytes, notes: Notes) -> Iterator[pa.RecordBatch]:
        """That of a cell's first death, once by the cell and once by the time."""
        death = first_death(notes.pieces)
        if death is not None:
            milliseconds = -(-death // 1000)
            for family, key in zip(TIMERS, (_row(owner, milliseconds), _row(milliseconds, owner)), strict=True):
                yield self._stored(cell, family, key, _row(None))

    def _stored(self, cell: int, family: str, key: bytes, value: bytes) -> pa.RecordBatch:
        import pyarrow as pa

        owner = pa.array([{"cell": self.keys[cell]}], pa.struct([pa.field("cell", pa.int32())]))
        columns = [owner, pa.array([key], pa.binary()), pa.array([value], pa.binary()), pa.array([family])]
        return pa.RecordBatch.from_arrays(columns, names=["partition_key", "key_bytes", "value_bytes", "column_family_name"])


WORD = 8


def _row(*fields: int | bytes | None) -> bytes:
    """An UnsafeRow of up to 64 fields: numbers, nulls, and texts or rows as bytes.

    >>> _row(2).hex()
    '00000000000000000200000000000000'
    """
    nulls = sum(1 << i for i, field in enumerate(fields) if field is None)
    fixed, rest = [struct.pack("<Q", nulls)], b""
    for field in fields:
        if isinstance(field, bytes):
            fixed.append(struct.pack("<II", len(field), WORD * (1 + len(fields)) + len(rest)))
            rest += field + bytes(-len(field) % WORD)
        else:
            fixed.append(struct.pack("<q", field or 0))
    return b"".join(fixed) + rest


def _field(row: bytes, i: int) -> bytes:
    """A field of an UnsafeRow that has no fixed length.

    >>> _field(_row(7, b"some bytes"), 1)
    b'some bytes'
    """
    size, offset = struct.unpack_from("<II", row, WORD * (1 + i))
    return row[offset : offset + size]


def _key_of(row: bytes) -> str:
    """Of a map: the row of its grouping key, then that of its own key, which is one text."""
    return _field(_field(row, 1), 0).decode()

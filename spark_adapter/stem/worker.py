"""What runs in Spark's Python workers: rows into packets, packets through a cell, results out of packets.

A packet is a frame of columns as one binary value. Rows are packed before the shuffle, so that Spark moves and counts a
few values instead of millions of rows, every stream keeps its own columns and types, and nothing passes through pandas.

Imports stay inside: a worker must be made ready (see `_ready`) before polars is read, and the driver's own polars is not ours to bound.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import SparkFiles
from pyspark.sql import Row
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_adapter.stem.program import META, Program
from spark_adapter.stem.shares import Grid

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, MapState, StatefulProcessorHandle, TimerValues

    from spark_adapter.stem.operator import Outcome

__all__ = ["OUTPUT", "PACKETS", "CellProcessor", "Packer", "Unpacker"]

PACKETS = "cell INT, stream STRING, rows BINARY"
OUTPUT = "rows BINARY, note STRING"
RESULT_ROWS = 100_000  # rows of one packet of results: some ten megabytes
COPIES = "copies"  # the store's key for the names of a cell's copies
BEFORE_ALL = -(1 << 62)  # the watermark while there is none


@cache
def _ready() -> None:
    """Make this process a good worker, once: it serves many tasks.

    Spark runs a task per core already, so polars gets one thread. And Spark's worker collects garbage after every task, which walks
    through all that was ever imported: 40 ms, more than the task itself takes. What is there now will stay, so it need not be looked at again.
    """
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    from spark_adapter.stem import operator  # noqa: F401 - read for what it imports

    gc.collect()
    gc.freeze()


@dataclass(frozen=True, slots=True)
class Packer:
    """Rows of one stream into packets, one per cell that they go to. Columns d0, d1, … are a row's coordinates."""

    stream: str
    grid: Grid
    keys: tuple[int, ...]
    """The grouping key of each cell."""
    columns: tuple[str, ...]
    """What the columns are called from here on: Spark itself stumbles over names with a dot."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ready()
        import polars as pl
        import pyarrow as pa

        from spark_adapter.stem.operator import encode

        coordinates = {f"d{d}": self.grid.strides[d] for d in self.grid.hashed(self.stream)}
        offsets = self.grid.offsets(self.stream)
        for batch in batches:
            if not batch.num_rows:
                continue
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            frame.columns = list(self.columns)
            if coordinates:
                base = pl.sum_horizontal([pl.col(name).cast(pl.Int32) * stride for name, stride in coordinates.items()])
                parts = frame.with_columns(base.alias("base")).drop(*coordinates).partition_by("base", as_dict=True, include_key=False)
            else:
                parts = {(0,): frame}
            cells: list[int] = []
            packets: list[bytes] = []
            for (first,), part in parts.items():
                packet = encode(part)
                cells += [self.keys[int(first) + offset] for offset in offsets]
                packets += [packet] * len(offsets)
            columns = [pa.array(cells, pa.int32()), pa.array([self.stream] * len(cells), pa.string()), pa.array(packets, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["cell", "stream", "rows"])


@dataclass(frozen=True, slots=True)
class Unpacker:
    """Packets of results into rows of this schema."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ready()
        from spark_adapter.stem.operator import decode

        for batch in batches:
            for packet in batch.column(0):
                yield from decode(packet.as_buffer().to_pybytes()).to_arrow().cast(self.schema).combine_chunks().to_batches()


class _Store:
    """A cell's part of the state store, with a copy of every value on the worker's own disk.

    Spark's store is the truth, but a value takes long from the JVM to Python: Spark pickles bytes as a string of single characters. So a
    value is written to both places and read from the copy where that is still there. The store knows each copy by a random name that is
    given once and never again: a copy of that name is that value, whichever attempt of whichever batch wrote it. Copies may vanish at any time.
    """

    restored = 0
    """How many values came from Spark's store because a copy was not there."""

    def __init__(self, state: MapState, folder: Path) -> None:
        self.state, self.folder = state, folder
        found = self.get(COPIES)
        self.copies: dict[str, str] = json.loads(found) if found else {}
        """What each copy is called."""

    def load(self) -> dict[str, bytes]:
        try:
            return {key: (self.folder / copy).read_bytes() for key, copy in self.copies.items()}
        except OSError:
            found = {key[0]: bytes(value[0]) for key, value in self.state.iterator() if key[0] not in (COPIES, META)}
            for key, value in found.items():
                self._copy(key, value)
            self.restored += len(found)
            return found

    def get(self, key: str) -> bytes | None:
        found = self.state.getValue((key,))
        return None if found is None else bytes(found[0])

    def put(self, key: str, value: bytes) -> None:
        self.state.updateValue((key,), (value,))
        if key != META:
            self._copy(key, value)

    def remove(self, key: str) -> None:
        self.state.removeKey((key,))
        self._forget(key)

    def close(self) -> None:
        """After the last change."""
        self.state.updateValue((COPIES,), (json.dumps(self.copies).encode(),))

    def disk(self) -> int:
        """Bytes of this cell's copies, as they lie on the disk."""
        return sum(_size(self.folder / copy) for copy in self.copies.values())

    def _copy(self, key: str, value: bytes) -> None:
        self._forget(key)
        self.copies[key] = copy = uuid4().hex
        draft = self.folder / f"{copy}.draft"
        try:
            self.folder.mkdir(exist_ok=True)
            draft.write_bytes(value)
            draft.rename(self.folder / copy)
        except OSError:
            draft.unlink(missing_ok=True)  # a full disk, say: then the next batch asks the store

    def _forget(self, key: str) -> None:
        if key in self.copies:
            (self.folder / self.copies.pop(key)).unlink(missing_ok=True)


class CellProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark is not typed here
    """The cells of one partition."""

    def __init__(self, program: Program, grid: Grid, keys: tuple[int, ...], folder: str) -> None:
        self.program, self.grid, self.folder = program, grid, folder
        self.cells = {key: cell for cell, key in enumerate(keys)}

    def init(self, handle: StatefulProcessorHandle) -> None:
        _ready()
        self.handle = handle
        self.state = handle.getMapState("modules", "key STRING", "value BINARY")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: TimerValues) -> Iterator[Row]:  # noqa: N802, N803 - Spark's names
        import polars as pl

        from spark_adapter.stem.operator import decode, work_off

        packets: dict[str, list[pl.DataFrame]] = {}
        for row in rows:
            packets.setdefault(row["stream"], []).append(decode(bytes(row["rows"])))
        arrivals = {stream: pl.concat(frames) for stream, frames in packets.items()}
        store = self._store()
        return self._said(store, work_off(self.program, self.grid, self.cells[key[0]], store, arrivals, _watermark(timerValues)))

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[Row]:
        """A cell that no row comes to still lets go of what is dead."""
        from spark_adapter.stem.operator import evict

        store = self._store()
        return self._said(store, evict(self.program, self.grid, self.cells[key[0]], store, _watermark(timerValues)))

    def close(self) -> None:
        """Nothing is held between batches."""

    def _store(self) -> _Store:
        """That of the cell at hand: Spark's state is the one of the key that it has just set."""
        return _Store(self.state, Path(SparkFiles.getRootDirectory()) / self.folder)

    def _said(self, store: _Store, outcome: Outcome) -> Iterator[Row]:
        """All state is written before anything is handed out: Spark may move on to the next cell in between."""
        from spark_adapter.stem.operator import encode

        store.close()
        wanted = None if outcome.expires is None else -(-outcome.expires // 1000)
        registered = list(self.handle.listTimers())
        for timer in registered:
            if timer != wanted:
                self.handle.deleteTimer(timer)
        if wanted is not None and wanted not in registered:
            self.handle.registerTimer(wanted)
        worker = {"name": f"{gethostname()}/{os.getpid()}", "resident": _resident(), "disk": store.disk(), "restored": store.restored}
        said = [Row(rows=None, note=json.dumps(outcome.statistics | {"worker": worker}))]
        for frame in outcome.results:
            said += [Row(rows=encode(part), note=None) for part in frame.iter_slices(RESULT_ROWS)]
        return iter(said)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # copies may vanish


def _resident() -> int:
    """Bytes of memory that this process has now; where the system does not say, what it had at most."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _watermark(timer_values: TimerValues) -> int:
    """In microseconds. Spark says 0 before the first watermark."""
    milliseconds = timer_values.getCurrentWatermarkInMs()
    return milliseconds * 1000 if milliseconds > 0 else BEFORE_ALL

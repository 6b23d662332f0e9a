"""What runs in Spark's Python workers: rows into packets, packets through a cell, results out of packets.

A packet is a frame of columns as one binary value. Rows are packed before the shuffle, so that Spark moves and counts a
few values instead of millions of rows, every stream keeps its own columns and types, and pandas sees packets, never rows.

Imports stay inside: a worker must be made ready (see `_ready`) before polars is read, and the driver's own polars is not ours to bound.
"""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from spark_adapter.stem.program import META, MODULES, PLAN, Program
from spark_adapter.stem.shares import Grid

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, MapState, StatefulProcessorHandle, TimerValues

    from spark_adapter.stem.lookup import Reach
    from spark_adapter.stem.operator import Outcome
    from spark_adapter.stem.shelf import Shelf
    from spark_adapter.stem.silence import Heard
    from spark_adapter.stem.tables import Ask, Whole

__all__ = ["CHANGED", "NOW", "NUMBER", "OUTPUT", "PACKETS", "CellProcessor", "Packer", "Unpacker", "local_folders"]

PACKETS = "cell INT, stream STRING, rows BINARY"
OUTPUT = "rows BINARY, file STRING, note STRING"
NUMBER = "version"  # the column of a version's number, in rows of a kept table
NOW = "now"  # the column of the batch's time, in milliseconds, where streams may be idle
TOLD = ""  # in place of a stream: a packet without rows that tells a cell what the batch has (see `silence`)
CHANGED = "/plan"  # in place of a stream: a packet that is a change of the plan (see `switching`), or a word on a table (see `tables`)
RESULT_ROWS = 100_000  # rows of one packet of results: some ten megabytes
AGREEMENT = "agreement"  # the store's key for what the states of a cell are of, where cells keep that themselves
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


def local_folders() -> list[Path]:
    """Where this worker may put what can be lost, a folder per disk: Spark removes them with the executor, or with the application."""
    return [Path(folder) for folder in os.environ["SPARK_LOCAL_DIRS"].split(",")]


@dataclass(frozen=True, slots=True)
class Packer:
    """Rows of one stream or kept table into packets, one per cell that they go to. Columns d0, d1, … are a row's coordinates."""

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

        for batch in batches:
            if not batch.num_rows:
                continue
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            frame.columns = list(self.columns)
            told = None
            if NOW in frame.columns:
                told = json.dumps({"stream": self.stream, "latest": frame["ts"].max(), "now": frame[NOW][0]}).encode()
                frame = frame.drop(NOW)
            cells: list[int] = []
            streams: list[str] = []
            packets: list[bytes] = []
            for name, rows in self._named(frame):
                for cell, packet in self._packets(rows):
                    cells.append(cell)
                    streams.append(name)
                    packets.append(packet)
            if told is not None:
                cells += self.keys
                packets += [told] * len(self.keys)
                streams += [TOLD] * len(self.keys)
            columns = [pa.array(cells, pa.int32()), pa.array(streams, pa.string()), pa.array(packets, pa.binary())]
            yield pa.RecordBatch.from_arrays(columns, names=["cell", "stream", "rows"])

    def _named(self, frame: pl.DataFrame) -> Iterator[tuple[str, pl.DataFrame]]:
        """The rows under the name of their stream, those of a table under its name and their version's number."""
        from spark_adapter.stem.tables import VERSION

        if NUMBER not in frame.columns:
            yield self.stream, frame
            return
        for (number,), rows in frame.partition_by(NUMBER, as_dict=True, include_key=False).items():
            yield f"{self.stream}{VERSION}{number}", rows

    def _packets(self, rows: pl.DataFrame) -> Iterator[tuple[int, bytes]]:
        """Each packet with the grouping key of a cell that it goes to."""
        import polars as pl

        from spark_adapter.stem.frames import encode

        coordinates = {f"d{d}": self.grid.strides[d] for d in self.grid.hashed(self.stream)}
        parts: Mapping[Any, pl.DataFrame] = {(0,): rows}
        if coordinates:
            base = pl.sum_horizontal([pl.col(name).cast(pl.Int32) * stride for name, stride in coordinates.items()])
            parts = rows.with_columns(base.alias("base")).drop(*coordinates).partition_by("base", as_dict=True, include_key=False)
        for (first,), part in parts.items():
            packet = encode(part)
            yield from ((self.keys[int(first) + offset], packet) for offset in self.grid.offsets(self.stream))


@dataclass(frozen=True, slots=True)
class Unpacker:
    """Packets of results into rows of this schema.

    It runs in the same task as the cell whose packets it gets, and so on the same machine: large packets lie in files there. Spark gathers
    all packets of a task before it hands on the first, so results that came as values would all be in memory at once.
    """

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        _ready()
        from spark_adapter.stem.frames import decode

        for batch in batches:
            for packet, file in zip(batch.column(0), batch.column(1), strict=True):
                if file.is_valid:
                    path = Path(file.as_py())
                    data = path.read_bytes()
                    path.unlink(missing_ok=True)
                else:
                    data = packet.as_buffer().to_pybytes()
                yield from decode(data).to_arrow().cast(self.schema).combine_chunks().to_batches()


class _Store:
    """A cell's part of Spark's state store, with the cell's shelf on this worker's disk."""

    def __init__(self, state: MapState, shelf: Shelf) -> None:
        self.state, self.shelf = state, shelf
        self.restored = 0
        """How many pieces came from Spark's store because the shelf had no copy."""

    def get(self, key: str) -> bytes | None:
        found = self.state.getValue((key,))
        self.restored += found is not None and key != META and not key.startswith(PLAN)
        return None if found is None else bytes(found[0])

    def put(self, key: str, value: bytes) -> None:
        self.state.updateValue((key,), (value,))

    def remove(self, key: str) -> None:
        self.state.removeKey((key,))


class CellProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark is not typed here
    """The cells of one partition.

    Spark asks for the next frame when it has passed on the one before, and goes on to the next cell when there are no more: state is written
    after the last results have left, and results need no more memory than a slice of them.
    """

    def __init__(self, program: Program, grid: Grid, keys: tuple[int, ...], agreement: str = "", reaches: Mapping[str, Reach] | None = None) -> None:
        """`agreement` is what the states must be of, where no manifest beside the checkpoint says it: cells keep it themselves; `reaches` says
        where tables are asked."""
        self.reaches = reaches or {}
        self.program, self.grid, self.agreement = program, grid, agreement
        self.cells = {key: cell for cell, key in enumerate(keys)}

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Spark calls this in a process of its own, too, when a query starts, only to be told which states there are: what cells work with
        is read when the first of them comes, or every start would wait for it once more."""
        if self.agreement:
            # Whoever starts the query is not us, and may start it again: each start is a run of its own.
            self.program = replace(self.program, run=f"{self.program.run}-{_run_id()}")
        self.handle = handle
        self.state = handle.getMapState(MODULES, "key STRING", "value BINARY")
        self.ask: Ask | None = None

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues) -> Iterator[pd.DataFrame]:  # noqa: N802, N803 - Spark's names
        _ready()
        import polars as pl

        from spark_adapter.stem.frames import decode
        from spark_adapter.stem.operator import Brought, work_off
        from spark_adapter.stem.text import told as told_by

        if self.reaches and self.ask is None:
            from spark_adapter.stem.lookup import Lookups

            self.ask = Lookups(self.reaches, self.grid.cells)
        packets: dict[str, list[pl.DataFrame]] = {}
        changed: list[Program | Whole] = []
        told: list[dict[str, Any]] = []
        for some in rows:
            for stream, packet in zip(some["stream"], some["rows"], strict=True):
                if stream == TOLD:
                    told.append(json.loads(bytes(packet)))
                elif stream != CHANGED:
                    packets.setdefault(stream, []).append(decode(bytes(packet)))
                elif (word := told_by(bytes(packet))) is not None:
                    changed.append(word)
        arrivals = {stream: pl.concat(frames) for stream, frames in packets.items()}
        del packets
        cell = self.cells[int(key[0])]
        store = self._store(cell)
        if self.agreement:
            _agree(store, self.agreement)
        brought = Brought(arrivals, _watermark(timerValues), changed, _heard(told))
        batch = work_off(self.program, self.grid, cell, store, brought, self.ask)
        outcome = yield from _handed_out(batch, store.shelf)
        yield self._noted(store, outcome)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self,
        key: Any,
        timerValues: TimerValues,  # noqa: N803 - Spark's name
        expiredTimerInfo: ExpiredTimerInfo,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        """A cell that no row comes to still lets go of what is dead."""
        _ready()
        from spark_adapter.stem.operator import evict

        cell = self.cells[int(key[0])]
        store = self._store(cell)
        yield self._noted(store, evict(self.program, self.grid, cell, store, _watermark(timerValues)))

    def close(self) -> None:
        """Nothing is held between batches."""

    def _store(self, cell: int) -> _Store:
        """That of the cell at hand: Spark's state is the one of the key that it has just set."""
        from spark_adapter.stem.shelf import Shelf

        disks = local_folders()
        return _Store(self.state, Shelf(disks[cell % len(disks)] / self.program.run / str(cell)))

    def _noted(self, store: _Store, outcome: Outcome) -> pd.DataFrame:
        """The cell's note, after its timer is set to when the next of its state dies."""
        wanted = None if outcome.expires is None else -(-outcome.expires // 1000)
        registered = list(self.handle.listTimers())
        for timer in registered:
            if timer != wanted:
                self.handle.deleteTimer(timer)
        if wanted is not None and wanted not in registered:
            self.handle.registerTimer(wanted)
        worker = {"name": f"{gethostname()}/{os.getpid()}", "private": _private(), "disk": store.shelf.size(), "restored": store.restored}
        return _said(note=json.dumps(outcome.statistics | {"worker": worker}))


def _run_id() -> str:
    """Spark's id of the run that this task belongs to: it names the group of the run's jobs."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return (context.getLocalProperty("spark.jobGroup.id") if context is not None else None) or ""


def _agree(store: _Store, wanted: str) -> None:
    """Write down what the states are of, or refuse to go on with the states of another query."""
    known = store.state.getValue((AGREEMENT,))
    if known is None:
        store.put(AGREEMENT, wanted.encode())
    elif bytes(known[0]) != wanted.encode():
        from spark_adapter.checkpoint import differences, of_another_query

        raise of_another_query(differences(json.loads(bytes(known[0])), json.loads(wanted)), "join")


def _heard(told: Sequence[Mapping[str, Any]]) -> Heard | None:
    """What the packers of all streams tell, together; None where they tell nothing."""
    from spark_adapter.stem.silence import Heard

    if not told:
        return None
    latest: dict[str, int] = {}
    for said in told:
        latest[said["stream"]] = max(said["latest"], latest.get(said["stream"], said["latest"]))
    return Heard(told[0]["now"], latest)


def _handed_out(batch: Generator[pl.DataFrame, None, Outcome], shelf: Shelf) -> Generator[pd.DataFrame, None, Outcome]:
    """Results as packets: a slice of a large frame at a time in a file, the small rest as it is."""
    from spark_adapter.stem.frames import encode, stacked

    waiting: list[pl.DataFrame] = []
    held = 0
    while True:
        try:
            frame = next(batch)
        except StopIteration as end:
            outcome: Outcome = end.value
            break
        waiting.append(frame)
        held += frame.height
        if held >= RESULT_ROWS:
            together = stacked(waiting)
            assert together is not None
            for part in together.iter_slices(RESULT_ROWS):
                yield _said(file=str(shelf.aside(encode(part))))
            waiting, held = [], 0
    rest = stacked(waiting)
    if rest is not None:
        yield _said(rows=encode(rest))
    return outcome


def _said(rows: bytes | None = None, file: str | None = None, note: str | None = None) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame({name: pd.Series([value], dtype=object) for name, value in (("rows", rows), ("file", file), ("note", note))})


def _private() -> int:
    """Bytes of memory that this process has for itself; where the system does not say, all that it had at most.

    What is mapped from files, its libraries and the pieces of state, is the system's to take back at any time.
    """
    try:
        _, resident, shared, *_ = (int(pages) for pages in Path("/proc/self/statm").read_text().split())
        return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource
        import sys

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024


def _watermark(timer_values: TimerValues) -> int:
    """In microseconds. Spark says 0 before the first watermark."""
    milliseconds = timer_values.getCurrentWatermarkInMs()
    return milliseconds * 1000 if milliseconds > 0 else BEFORE_ALL

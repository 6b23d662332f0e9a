"""What a running pipeline is doing, batch by batch, in figures and in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, TextIO

from spark_adapter.kafka.topics import bad_counts

__all__ = ["RESULTS", "Measured", "Reporter", "Tick", "held_by", "line", "size", "store_bytes", "summary", "tick_of"]

FILES = "rocksdbSstFileSize"
# Figures of a whole run; others are as of now.
SUMMED = ("results", "late", "idle_late", "shed_rows", "shed_probes", "written_bytes", "read_bytes", "merges")
STALLED = 60.0  # seconds of event time by which the other streams are ahead, from which on a stream is named as the one that holds the watermark
RESULTS = "results"  # name under which a pipeline observes its result rows: file sinks do not count them


@dataclass(frozen=True, slots=True)
class Measured:
    """What an engine made and holds."""

    results: int
    late: int
    """Rows that came after the watermark had passed them; they were dropped."""
    state_rows: int
    shed_rows: int = 0
    """Rows not let in, because the plan sheds load."""
    shed_probes: int = 0
    """Probes not made, because the plan sheds load."""
    disk_bytes: int = 0
    """What the engine's workers hold on their disks besides the store."""
    memory_bytes: int = 0
    """What the processes of the engine's workers have of memory to themselves."""
    written_bytes: int = 0
    """What the engine gave to the state store: what is new, and what it merged."""
    read_bytes: int = 0
    """What it fetched from the store because a worker had no copy."""
    merges: int = 0
    held_by: str = ""
    """The stream that holds the watermark back, and for how long; empty where none does so for long."""
    idle_late: int = 0
    """Rows that came after the watermark had gone on without their stream, which was silent; they were dropped."""
    idle: tuple[str, ...] = ()
    """Streams that have been silent for longer than their `idle_after`."""
    watermark: int | None = None
    """In microseconds, where it may be ahead of Spark's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick(Measured):
    """One micro-batch: what was made in it, and what was held at its end."""

    batch: int
    rows_in: int
    state_bytes: int
    """What Spark's state store holds, in memory and in files."""
    lag: float | None
    """Seconds of event time from the newest row of the batch back to the watermark; None where no row came."""
    seconds: float
    """How long the batch took."""
    planned_rows: int = 0
    """What the plan foresaw for the states."""
    bad: int = 0
    """Records of topics whose value did not decode."""


def tick_of(report: Mapping[str, Any], before: Measured | None = None, now: Measured | None = None) -> Tick:
    """The figures of one batch from Spark's report of it, as parsed JSON.

    An engine that measures itself knows better than Spark what its states hold and what it made: `before` and `now` are
    its own figures of the whole run, before and after the batch.
    """
    operators = report.get("stateOperators", [])
    own = Measured(
        results=report.get("observedMetrics", {}).get(RESULTS, {}).get("rows", max(0, report["sink"].get("numOutputRows", 0))),
        late=sum(operator["numRowsDroppedByWatermark"] for operator in operators),
        state_rows=sum(operator["numRowsTotal"] for operator in operators),
    )
    if before is not None and now is not None:
        since = {name: getattr(now, name) - getattr(before, name) for name in SUMMED}
        own = replace(now, **since)
    return Tick(
        **asdict(own),
        batch=report["batchId"],
        rows_in=report["numInputRows"],
        state_bytes=store_bytes(report),
        lag=_lag(report.get("eventTime", {}), own.watermark),
        seconds=report["batchDuration"] / 1000,
        bad=sum(bad_counts(report.get("observedMetrics", {})).values()),
    )


def held_by(holder: Mapping[str, Any] | None) -> str:
    """Which stream holds the watermark back, in words; empty where none does so for long.

    >>> held_by({"stream": "persons", "seconds": 240.0}), held_by({"stream": "bids", "seconds": 3.0})
    ('persons, 4 min', '')
    """
    if holder is None:
        return ""
    if holder["seconds"] is None:
        return f"{holder['stream']}, no row yet"
    return f"{holder['stream']}, {holder['seconds'] / 60:,.0f} min" if holder["seconds"] >= STALLED else ""


def store_bytes(report: Mapping[str, Any]) -> int:
    """What Spark's state store holds at the end of a batch: in memory, and in the files of RocksDB where it is that."""
    return sum(operator["memoryUsedBytes"] + operator.get("customMetrics", {}).get(FILES, 0) for operator in report.get("stateOperators", []))


def _lag(times: Mapping[str, str], own: int | None) -> float | None:
    """From the newest row back to the watermark: Spark's, or the engine's own, in microseconds, where that is ahead."""
    if "max" not in times or "watermark" not in times:
        return None
    # Before the first watermark Spark reports the start of 1970.
    watermark = max(datetime.fromisoformat(times["watermark"]).timestamp(), (own or 0) / 1e6)
    return datetime.fromisoformat(times["max"]).timestamp() - watermark if watermark > 0 else None


def line(tick: Tick) -> str:
    """One batch for a person to read."""
    seconds = max(tick.seconds, 0.001)
    behind = "" if tick.lag is None else f" | watermark {tick.lag:,.1f} s behind"
    if tick.held_by:
        behind = f"{behind}, held by {tick.held_by}" if behind else f" | watermark held by {tick.held_by}"
    if tick.idle:
        behind += f" | not waiting for {', '.join(tick.idle)}"
    late = f" | {tick.late:,} late" if tick.late else ""
    late += f" | {tick.idle_late:,} late after silence" if tick.idle_late else ""
    late += f" | {tick.bad:,} bad" if tick.bad else ""
    shed = f" | shed {tick.shed_rows:,} rows, {tick.shed_probes:,} probes" if tick.shed_rows or tick.shed_probes else ""
    planned = f" of {tick.planned_rows:,} planned" if tick.planned_rows else ""
    moved = ""
    if tick.written_bytes:
        moved = f" | wrote {size(tick.written_bytes)}, read {size(tick.read_bytes)}"
        moved += "" if not tick.merges else f", {tick.merges} merge{'s' if tick.merges > 1 else ''}"
    return (
        f"batch {tick.batch} | {tick.rows_in / seconds:,.0f} rows/s in, {tick.results / seconds:,.0f} out"
        f" | state {tick.state_rows:,}{planned} rows, {_held(tick.state_bytes, tick.disk_bytes, tick.memory_bytes)}{moved}{behind}"
        f" | {tick.seconds:.1f} s{late}{shed}"
    )


def _held(store: int, disk: int, memory: int) -> str:
    workers = f", workers {size(disk)} on disk, {size(memory)} in memory" if disk or memory else ""
    return f"store {size(store)}{workers}"


def summary(ticks: Sequence[Tick], seconds: float, planned: float, shed: bool = False) -> list[str]:
    """The whole run, for a person to read; `planned` are the bytes that the plan foresaw, `shed` whether it may shed load."""
    rows_in, results, late, idle_late, shed_rows, shed_probes = (
        sum(getattr(tick, name) for tick in ticks) for name in ("rows_in", "results", "late", "idle_late", "shed_rows", "shed_probes")
    )
    bad = sum(tick.bad for tick in ticks)
    state_rows, store, disk, memory = (
        max((getattr(tick, name) for tick in ticks), default=0) for name in ("state_rows", "state_bytes", "disk_bytes", "memory_bytes")
    )
    return [
        f"{len(ticks)} batches in {seconds:.1f} s",
        f"in     {rows_in:,} rows, {rows_in / max(seconds, 0.001):,.0f} a second; {late:,} late and dropped"
        + (f", {idle_late:,} more because their stream had been silent" if idle_late else "")
        + (f"; {bad:,} records did not decode" if bad else ""),
        *([f"shed   {shed_rows:,} rows not let in, {shed_probes:,} probes not made: results are missing"] if shed else []),
        f"out    {results:,} rows, {results / max(seconds, 0.001):,.0f} a second",
        f"state  {state_rows:,} rows, {_held(store, disk, memory)}, each at most; the plan foresaw {size(planned)}",
    ]


def size(number: float) -> str:
    """Bytes in the unit that leaves the fewest digits.

    >>> size(1536), size(12)
    ('1.5 KiB', '12 B')
    """
    units = ["B", "KiB", "MiB", "GiB", "TiB"]
    while number >= 1024 and len(units) > 1:
        number /= 1024
        units.pop(0)
    return f"{number:.0f} B" if units[0] == "B" else f"{number:.1f} {units[0]}"


class Reporter:
    """Writes a line per batch; on a terminal each line takes the place of the one before."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._width = 0
        self.ticks: list[Tick] = []

    def add(self, tick: Tick) -> None:
        self.ticks.append(tick)
        text = line(tick)
        if self._out.isatty():
            self._out.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._out.write(text + "\n")
        self._out.flush()

    def say(self, text: str) -> None:
        """A line of its own, which stays."""
        if self._width:
            self._out.write("\n")
            self._width = 0
        self._out.write(text + "\n")
        self._out.flush()

    def finish(self, seconds: float, planned: float, shed: bool = False) -> None:
        if self._width:
            self._out.write("\n")
        self._out.write("\n".join(summary(self.ticks, seconds, planned, shed)) + "\n")
        self._out.flush()

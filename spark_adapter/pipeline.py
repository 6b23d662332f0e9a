"""A plan bound to Spark: compiled, checked, ready to start. The same object for both engines."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from models.bindings import Bindings
from models.plan import Plan
from models.request import Query
from spark_adapter.changes import Changes
from spark_adapter.checkpoint import Folder, Log
from spark_adapter.control import without_control
from spark_adapter.documents import read_plan
from spark_adapter.errors import AdapterError, BindingError, ChangeError
from spark_adapter.expressions import milliseconds, said
from spark_adapter.kafka.letters import Letters
from spark_adapter.kafka.topics import bad_counts, writing_options
from spark_adapter.metrics import METRICS, metrics_text
from spark_adapter.overload import BatchTime

__all__ = ["Built", "Measuring", "Pipeline", "Progress", "applied", "changeable"]

POLL_SECONDS = 0.5  # between two looks at Spark's reports, of which it keeps the last hundred: no hundred batches take less than this
STATISTICS = "statistics.jsonl"
PLAN_FILE = "plan.json"  # the plan in force, beside its statistics
LAST_TIMES = 1000  # batches of which it is remembered how long they took
LAST_LINES = 100  # of the statistics, where a file cannot be added to


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a pipeline is."""

    running: bool
    batches: int
    """Batches that had rows or let go of state."""
    rows: int
    """Rows read from all sources."""
    results: int | None
    """Rows made; None where the engine does not count them."""
    late: int
    """Rows dropped because they came past the watermark."""
    bad: Mapping[str, int] = field(default_factory=dict)
    """By stream, for those that are topics: records whose value did not decode."""
    idle_late: int = 0
    """Rows dropped because their stream had been silent for longer than its `idle_after`, and the watermark had gone on without it."""
    shed_rows: int = 0
    """Rows that were not let in, as the plan's allocation says."""
    shed_probes: int = 0
    """Probes that were not made, as the plan's allocation says."""
    statistics: Mapping[str, Any] = field(default_factory=dict)
    """What the run measured, in the plan's terms; empty where the engine does not measure."""
    spark: Mapping[str, Any] | None = None
    """Spark's own progress of the last batch."""


@dataclass(frozen=True, slots=True)
class Measuring:
    """What an engine that measures itself adds to every batch."""

    observed: str
    """The observation under which Spark reports the notes of a batch."""
    add: Callable[[Sequence[Mapping[str, Any]]], Mapping[str, Any]]
    """Takes the notes of one batch; returns its figures."""
    summary: Callable[[], Mapping[str, Any]]
    """The figures of the run so far."""
    measured: Callable[[Query], Mapping[str, Any]]
    """What the last windows say of a query: that of the plan in force, which may list its predicates in an order of its own."""


class Beside(Protocol):
    """Works beside a query."""

    def start(self) -> None: ...

    def stop(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Built:
    """What an engine has made of a plan."""

    results: DataFrame
    remember: Callable[[], None]
    """Makes the checkpoint ready, writes its manifest and gives the first batch its plan; called when the query starts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark that the query needs."""
    measuring: Measuring | None = None
    """None where the engine measures nothing."""
    changes: Changes | None = None
    """None where the engine cannot change its plan while it runs."""
    tidy: Callable[[], None] = lambda: None
    """Called once the query has ended."""
    beside: Beside | None = None
    """What runs beside the query, as long as that does."""
    tables: int = 0
    """How many of its sources are tables'."""
    cells: int = 1
    """How many cells the states are spread over."""
    cells_before: int = 1
    """How many they were spread over until now."""
    copied: float = 1.0
    """The factor by which copies of rows multiply the plan's bytes."""


class Pipeline:
    """One run of a plan. `start()` it, `await_termination()` or `await` it, `stop()` it; `progress` at any time."""

    def __init__(self, plan: Plan, bindings: Bindings, spark: SparkSession, built: Built) -> None:
        self.bindings, self.spark, self.results = bindings, spark, built.results
        self._plan, self._changes = plan, built.changes
        self.cells, self.cells_before, self.copied = built.cells, built.cells_before, built.copied
        self._built, self._measuring = built, built.measuring
        self._query: StreamingQuery | None = None
        self._watcher: threading.Thread | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._seen: tuple[int, str] = (-1, "")
        self._batches = self._rows = self._late = 0
        self._bad: Counter[str] = Counter()
        self._letters = Letters(bindings, spark)
        self._last: Mapping[str, Any] | None = None
        self._times: deque[BatchTime] = deque(maxlen=LAST_TIMES)
        self._reached: int | None = None
        """The latest event time of all batches, in microseconds."""
        self._folder = Folder(spark, bindings.checkpoint)
        self._lines = Log(self._folder, STATISTICS, LAST_LINES)

    def of_streams(self, report: Mapping[str, Any]) -> dict[str, Any]:
        """Spark's report of a batch without the sources that are the engine's own."""
        return without_control(report, self._built.tables)

    @property
    def plan(self) -> Plan:
        """The one in force."""
        return self._plan if self._changes is None else self._changes.plan

    @property
    def changing(self) -> bool:
        """Whether a change was asked for that no batch has taken up yet."""
        return self._changes is not None and self._changes.changing

    def start(self) -> Pipeline:
        """Start the query. Raises BindingError where Spark refuses the sink, the trigger or a setting."""
        if self._query is not None:
            raise AdapterError("this pipeline was started already; compile the plan again to run it again")
        try:
            with applied(self.spark, {**self._built.settings, **changeable(self.bindings, self.spark)}):
                self._built.remember()
                self._folder.write(PLAN_FILE, self.plan.model_dump_json(indent=1))
                self._letters.start()
                self._query = self._writer().start()
        except PySparkException as error:
            self._letters.stop()
            raise BindingError([("/sink", f"Spark does not start the pipeline: {said(error)}")]) from error
        self._watcher = threading.Thread(target=self._watch, name="watersmeet progress", daemon=True)
        self._watcher.start()
        if self._built.beside is not None:
            self._built.beside.start()
        return self

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end, or for `timeout` seconds; whether it has ended. Raises what ended it, if that was a fault."""
        query = self._running()
        try:
            ended = query.awaitTermination(timeout) if timeout is not None else query.awaitTermination() or True
            if ended and self.bindings.trigger.available_now:
                self._letters.finish()
            failure = self._letters.failure()
            if failure is not None:
                query.stop()
                raise failure
        except StreamingQueryException:
            self._close()
            raise
        finally:
            self._collect()
        if ended:
            self._close()
        return bool(ended)

    def work_through(self) -> None:
        """Wait until all that the sources hold now has been worked off. Raises what ended the query, if that was a fault."""
        self._running().processAllAvailable()
        self._letters.work_through()

    def __await__(self) -> Generator[Any, None, None]:
        yield from asyncio.to_thread(self.await_termination).__await__()

    def stop(self) -> None:
        """Stop after the batch at hand. A later run with the same checkpoint goes on from there."""
        query = self._running()
        query.stop()
        self._close()

    @property
    def progress(self) -> Progress:
        if self._query is None:
            return Progress(False, 0, 0, 0, 0)
        self._collect()
        with self._lock:
            statistics = self._measuring.summary() if self._measuring else {}
            results = statistics.get("results")
            shed = statistics.get("shed", {"rows": 0, "probes": 0})
            idle_late = sum(stream["idle_late"] for stream in statistics.get("streams", ()))
            return Progress(
                self._query.isActive,
                self._batches,
                self._rows,
                results,
                self._late,
                dict(self._bad),
                idle_late,
                shed["rows"],
                shed["probes"],
                statistics,
                self._last,
            )

    def change(self, plan: Plan | Mapping[str, Any], kind: str | None = None, gain: float | None = None, reasons: Sequence[str] = ()) -> int:
        """Let another plan for the same query take over between two batches, in all cells at once; returns the number of the change.

        The next batch that begins reads it; from then on the plan is in force, `self.plan` is it, and `decisions.jsonl` has the line, with
        `kind` (by default what differs most: orders, caches, allocation or tree), `gain` and `reasons`.

        Raises, before anything is written, PlanError, SheddingError, or ChangeError where the plan is for another query, the engine cannot
        change its plan, or the trigger is `available_now`, which fixes at the start what will be read.
        """
        if self._changes is None:
            raise ChangeError("engine native cannot change its plan while it runs: Spark lays its states out by the plan; use engine stem")
        if self.bindings.trigger.available_now:
            raise ChangeError(
                [
                    (
                        "/trigger",
                        "with available_now it is fixed at the start what is read, so no change is heard of; use processing_time, or start anew",
                    )
                ]
            )
        if not self._running().isActive:
            raise ChangeError("this pipeline has ended; start another one with the plan")
        return self._changes.change(plan if isinstance(plan, Plan) else read_plan(plan), kind, gain, reasons)

    def keep(self, gain: float | None = None, reasons: Sequence[str] = ()) -> None:
        """Write down that the plan in force was looked at and stays: a line of `decisions.jsonl`."""
        if self._changes is not None:
            self._collect()
            self._changes.keep(self._seen[0] + 1, gain, reasons)

    def _running(self) -> StreamingQuery:
        if self._query is None:
            raise AdapterError("this pipeline was not started; call start() first")
        return self._query

    def _writer(self) -> DataStreamWriter:
        sink = self.bindings.sink
        options = writing_options(self.bindings)
        writer = self.results.writeStream.format(sink.format).outputMode("append")
        name = options.pop("queryName", "")
        if name:
            writer = writer.queryName(name)
        trigger = self.bindings.trigger
        if trigger.available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger.processing_time is not None:
            writer = writer.trigger(processingTime=trigger.processing_time)
        return writer.options(**options).option("checkpointLocation", self.bindings.checkpoint)

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            query = self._running()
            active = query.isActive
            self._collect()
            if not active:
                return

    def _close(self) -> None:
        self._ended.set()
        if self._built.beside is not None:
            self._built.beside.stop()
        if self._watcher is not None and self._watcher is not threading.current_thread():
            self._watcher.join()
        self._letters.stop()
        self._collect()
        self._built.tidy()

    def _collect(self) -> None:
        """Take in the progress of batches since the last call."""
        with self._lock:
            if self._changes is not None and self._changes.notice():
                self._folder.write(PLAN_FILE, self.plan.model_dump_json(indent=1))
            for report in self._unread():
                self._take(report)

    def _unread(self) -> list[Mapping[str, Any]]:
        """Reports that were not read before, the oldest first. Read from the newest backwards, because every report is fetched from the JVM."""
        reports = self._running()._jsq.recentProgress()
        found: list[Mapping[str, Any]] = []
        for i in range(len(reports) - 1, -1, -1):
            mark = (int(reports[i].batchId()), str(reports[i].timestamp()))
            if mark <= self._seen:
                break
            found.append(json.loads(reports[i].json()))
        if found:
            self._seen = (int(found[0]["batchId"]), str(found[0]["timestamp"]))
        return found[::-1]

    def _take(self, report: Mapping[str, Any]) -> None:
        report = report if self._changes is None else self.of_streams(report)
        self._last = report
        rows = sum(max(0, source.get("numInputRows", 0)) for source in report.get("sources", ()))
        self._rows += rows
        bad = bad_counts(report.get("observedMetrics", {}))
        self._bad.update(bad)
        if self._measuring is None:
            self._late += sum(operator.get("numRowsDroppedByWatermark", 0) for operator in report.get("stateOperators", ()))
            self._batches += 1 if rows else 0
            return
        notes = [json.loads(text) for text in report.get("observedMetrics", {}).get(self._measuring.observed, {}).get("notes", ())]
        if not notes:
            return
        self._batches += 1
        figures = self._measuring.add(notes)
        self._note_time(report, figures)
        self._late += sum(stream["late"] for stream in figures["streams"])
        assert self._changes is not None
        fingerprint = self._changes.fingerprint(max(note["plan"] for note in notes))
        line = {"batch": report["batchId"], "timestamp": report["timestamp"], "fingerprint": fingerprint, **figures}
        line |= {"bad": bad} if bad else {}
        self._log(line, report["batchDuration"] / 1000)

    def _note_time(self, report: Mapping[str, Any], figures: Mapping[str, Any]) -> None:
        reached = max((stream["last"] for stream in figures["streams"] if stream["last"] is not None), default=self._reached)
        begun = min((stream["first"] for stream in figures["streams"] if stream["first"] is not None), default=reached)
        before = begun if self._reached is None else self._reached
        if reached is not None and before is not None:
            cpu, processes = sum(figures["cpu_seconds"].values()), figures["workers"]["processes"]
            seconds, passed = report["batchDuration"] / 1000, max(0.0, reached - before) / 1e6
            self._times.append(BatchTime(report["batchId"], seconds, cpu, processes, passed, figures["work"]))
            self._reached = max(reached, before)

    def times(self, since: int) -> list[BatchTime]:
        """How long the batches after batch `since` took, of the last LAST_TIMES that had rows."""
        self._collect()
        with self._lock:
            return [time for time in self._times if time.batch > since]

    @property
    def measured(self) -> Mapping[str, Any]:
        """What the last windows say of the query; empty where the engine does not measure."""
        if self._measuring is None:
            return {}
        self._collect()
        with self._lock:
            return self._measuring.measured(self.plan.query)

    @property
    def interval(self) -> float | None:
        """The trigger's, in seconds; None where there is none."""
        given = self.bindings.trigger.processing_time
        return None if given is None else milliseconds(self.spark, given) / 1000

    def _log(self, line: Mapping[str, Any], seconds: float) -> None:
        """A line per batch, and metrics, beside the checkpoint, on whatever file system that is."""
        assert self._measuring is not None
        summary = self._measuring.summary()
        self._lines.add(json.dumps({**line, "measured": summary.get("measured")}))
        self._folder.write(METRICS, metrics_text(summary, seconds, self.plan.cost, self._bad))


def changeable(bindings: Bindings, spark: SparkSession) -> dict[str, str]:
    """Those of the bindings' settings that can still be changed in a session that is open."""
    return {key: value for key, value in bindings.spark.items() if spark.conf.isModifiable(key)}


@contextmanager
def applied(spark: SparkSession, wanted: Mapping[str, str]) -> Iterator[None]:
    """The session has these settings inside the block. A query keeps the settings it was started with, so they are undone afterwards."""
    before = {key: spark.conf.get(key, None) for key in wanted}
    try:
        for key, value in wanted.items():
            spark.conf.set(key, value)
        yield
    finally:
        for key, value in before.items():
            if value is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value)

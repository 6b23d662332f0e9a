"""Run a plan on Spark and tell a person how it goes: a line per batch, a summary at the end."""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TextIO

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from models.bindings import Bindings, Trigger
from models.plan import Plan
from spark_adapter import compile
from spark_adapter.adapt import EVERY, Adapting, Ask
from spark_adapter.errors import BindingError, ConnectorError, EngineError
from spark_adapter.expressions import SPARK_ERRORS
from spark_adapter.kafka.connector import PACKAGES, connected, unfetched
from spark_adapter.kafka.failures import explained
from spark_adapter.pipeline import Pipeline
from spark_adapter.progress import Measured, Reporter, held_by, size, tick_of
from spark_adapter.session import open_session
from spark_adapter.shedding import check_shed, shed_by
from spark_adapter.tables.databases import check_tables

__all__ = ["Adaptation", "follow", "run"]

DONE, FAILED = 0, 1
POLL_SECONDS = 0.2  # between two looks for reports: a line appears as soon as a person would notice
LAST_REPORTS = 10.0  # seconds to wait for Spark's reports of batches that have ended


@dataclass(frozen=True, slots=True)
class Adaptation:
    """That a run looks for better plans, whom it asks, and how often, in seconds."""

    ask: Ask
    every: float = EVERY


@dataclass(frozen=True, slots=True)
class Options:
    """How a plan is run, as the command line says it."""

    engine: str = "stem"
    master: str | None = None
    shed: bool = False
    cells: int | None = None
    adaptation: Adaptation | None = None


AS_USUAL = Options()


def run(plan: Plan, bindings: Bindings, out: TextIO = sys.stderr, options: Options = AS_USUAL) -> int:
    """Run until the sources are worked through (`available_now`), the pipeline fails, or the user interrupts; 0 unless it failed.

    With an adaptation, a run over what the sources hold (`available_now`) goes through it batch after batch and then stops: under Spark's own such
    trigger it is fixed at the start what each source will read, and no change of the plan would be heard of.

    Raises AdapterError for everything that can be seen to be wrong before it starts.
    """
    engine, shed, adaptation = options.engine, options.shed, options.adaptation
    if adaptation is not None and engine != "stem":
        raise EngineError(f"only engine stem can change its plan while it runs, not {engine}")
    to_the_end = adaptation is not None and bindings.trigger.available_now
    if to_the_end:
        bindings = bindings.model_copy(update={"trigger": Trigger()})
    log = Path(tempfile.gettempdir()) / f"watersmeet-spark-{os.getpid()}.log"
    code = DONE
    check_shed(plan, shed)  # before Spark is started, which takes a while
    check_tables(plan, bindings)
    try:
        spark = _session(bindings, options.master, log)
        pipeline = compile(plan, bindings, spark, engine, cells=options.cells, shed=shed)
        out.write("".join(line + "\n" for line in opening(pipeline, engine)))
        code = follow(pipeline, out, adaptation, to_the_end, shed)
        if code == FAILED and log.exists():
            out.write(f"Spark's own log is {log}\n")
    finally:
        if code == DONE:
            log.unlink(missing_ok=True)
    return code


def _session(bindings: Bindings, master: str | None, log: Path) -> SparkSession:
    """A session with what the bindings' topics need. What Spark cannot fetch ends its JVM before it has begun, in the words of a stack."""
    settings = connected(bindings)
    try:
        return open_session(settings, master, log)
    except BindingError:
        wanted = settings.get(PACKAGES, "")
        if wanted == bindings.spark.get(PACKAGES, ""):
            raise
        raise ConnectorError(unfetched(wanted)) from None


def opening(pipeline: Pipeline, engine: str) -> Iterator[str]:
    """What a user should know before it starts."""
    plan = pipeline.plan
    lost = shed_by(plan)
    if lost and engine == "stem":
        yield f"shedding load: {lost}; results will be missing"
    elif lost:
        yield "engine native makes every probe: nothing is shed, whatever the plan's allocation says"
    elif not plan.qualified:
        yield "this plan does not fit the caps that it was made for; nothing is shed"
    if engine == "stem":
        held = size(plan.cost.memory_bytes * pipeline.copied)
        if pipeline.cells_before != pipeline.cells:
            yield f"the states lie in {pipeline.cells_before} cells; they are laid out anew for {pipeline.cells} before the first batch"
        yield (
            f"{pipeline.cells} cells; copies multiply what the plan keeps by {pipeline.copied:.2f}: "
            f"{size(plan.cost.memory_bytes)} by the plan's own measure are {held}"
        )


def follow(pipeline: Pipeline, out: TextIO, adaptation: Adaptation | None = None, to_the_end: bool = False, shed: bool = False) -> int:
    """Start a pipeline and report on it until it ends; `to_the_end`: which it does when it has worked through what its sources hold."""
    listener = _Reports()
    pipeline.spark.streams.addListener(listener)
    reporter = Reporter(out)
    watch = _Watch(pipeline, reporter, listener)
    adapting = None if adaptation is None else Adapting(pipeline, adaptation.ask, adaptation.every, shed=shed, say=watch.decided.put)
    started = time.monotonic()
    code = DONE
    try:
        with _told_to_stop() as told:
            pipeline.start()
            if adapting is not None:
                adapting.start()
            if to_the_end:
                _when_worked_through(pipeline, told)
            while not pipeline.await_termination(POLL_SECONDS):
                watch.report()
                if told.is_set():
                    pipeline.stop()
                    break
    except StreamingQueryException as error:
        watch.failure = explained(error)
        code = FAILED
    finally:
        if adapting is not None:
            adapting.stop()
        listener.wait()
        pipeline.spark.streams.removeListener(listener)
    watch.report()
    reporter.finish(time.monotonic() - started, pipeline.plan.cost.memory_bytes, bool(pipeline.progress.statistics and shed_by(pipeline.plan)))
    if watch.failure:
        out.write(f"the pipeline failed: {watch.failure}\n")
    return code


def _when_worked_through(pipeline: Pipeline, told: threading.Event) -> None:
    """Have it stopped when it has worked through what its sources hold. Where it fails instead, who waits for its end hears of it."""

    def wait() -> None:
        with suppress(*SPARK_ERRORS):
            pipeline.work_through()
            told.set()

    threading.Thread(target=wait, name="watersmeet back-fill", daemon=True).start()


@contextmanager
def _told_to_stop() -> Iterator[threading.Event]:
    """An event that is set on Ctrl-C or SIGTERM. PySpark's own handler would break off a call to the JVM half-way."""
    told = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield told
        return
    before = {number: signal.signal(number, lambda *_: told.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watch:
    """Turns reports that have come in into lines."""

    def __init__(self, pipeline: Pipeline, reporter: Reporter, listener: _Reports) -> None:
        self.pipeline, self.reporter, self.listener = pipeline, reporter, listener
        self.before: Measured | None = None
        self.failure = ""
        self.decided: queue.SimpleQueue[str] = queue.SimpleQueue()
        """What was decided of the plan, from the thread that does so."""

    def report(self) -> None:
        while (report := self.listener.next()) is not None:
            now = _measured(self.pipeline)
            report = report if now is None else self.pipeline.of_streams(report)
            before = self.before or Measured(0, 0, 0)
            tick = tick_of(report, before, now) if now is not None else tick_of(report)
            self.reporter.add(replace(tick, planned_rows=round(self.pipeline.plan.cost.memory_tuples)))
            self.before = now
        while not self.decided.empty():
            self.reporter.say(self.decided.get())


def _measured(pipeline: Pipeline) -> Measured | None:
    """The engine's own figures; None where it leaves them to Spark."""
    progress = pipeline.progress
    if not progress.statistics:
        return None
    held = [*progress.statistics["states"], *progress.statistics["caches"]]
    workers = progress.statistics["workers"]
    store = progress.statistics["store"]
    return Measured(
        progress.results or 0,
        progress.late,
        sum(state["rows"] for state in held),
        progress.shed_rows,
        progress.shed_probes,
        workers["disk_bytes"],
        workers["memory_bytes"],
        store["written_bytes"],
        store["read_bytes"],
        store["merges"],
        held_by(progress.statistics["watermark_held_by"]),
        progress.idle_late,
        tuple(progress.statistics["idle"]),
        progress.statistics["watermark"],
    )


class _Reports(StreamingQueryListener):  # type: ignore[misc]  # PySpark is not typed here
    """Spark's reports, handed from its thread to ours."""

    def __init__(self) -> None:
        self._reports: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._waiting: list[dict[str, Any]] = []

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        self._reports.put(json.loads(event.progress.json))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        self._reports.put(None)

    def next(self) -> dict[str, Any] | None:
        """The oldest report not yet taken; None where there is none."""
        if self._waiting:
            return self._waiting.pop(0)
        try:
            return self._reports.get_nowait()
        except queue.Empty:
            return None

    def wait(self) -> None:
        """Take in all reports up to the query's end: they come a moment after it."""
        deadline = time.monotonic() + LAST_REPORTS
        while (left := deadline - time.monotonic()) > 0:
            try:
                report = self._reports.get(timeout=left)
            except queue.Empty:
                return
            if report is None:
                return
            self._waiting.append(report)

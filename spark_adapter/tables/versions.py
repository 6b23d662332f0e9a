"""The versions of kept tables: read by Spark, handed to the cells as a stream of files, and said to be whole when all rows are on their way.

The problem: a kept table is state, so that a restart sees the same rows, and another version of it must take over in all cells between two
batches. The method: a version is read by a job of Spark's own and lies as files in the checkpoint's folder `tables`, which the pipeline reads
like a stream's, so that Spark's logs say which batch has which file. A word in the control stream (see `control`) then says that it is whole.
Before the query has started, files and word are there for its first batch. While it runs, the word is said once the logs have a batch with all of
the files: cells have put the rows aside by then, or do so in the batch in which they hear the word.

When a table is read: before the first batch; again when `refresh` has passed, at a start or while it runs; and when a plan takes over that
keeps it and the one before did not. A large table that can be asked meanwhile is read beside the batches (paper 5's competing accesses).

A version that cannot be read while the pipeline runs leaves the one before in force, is logged, and is tried again. Files of versions before the
last two are removed: no batch that could be run again reads them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import Bindings
from models.plan import Plan
from spark_adapter.checkpoint import Folder
from spark_adapter.control import Control, Word
from spark_adapter.errors import BindingError, ChangeError
from spark_adapter.expressions import SPARK_ERRORS, milliseconds, said
from spark_adapter.sources import TableRows
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.worker import NUMBER

__all__ = ["LARGE", "Versions", "check_kept"]

TABLES = "tables"
LARGE = 100_000  # rows from which on a table that can be asked meanwhile is read beside the batches
POLL_SECONDS = 0.2
STOP_SECONDS = 5.0
PAUSE_SECONDS = 10.0  # before a version that could not be read is tried again
KEPT_VERSIONS = 2  # whose files stay

log = logging.getLogger("watersmeet.tables")


def check_kept(before: Plan, after: Plan, bindings: Bindings) -> None:
    """Refuse a change to a plan that keeps a table which was not kept, unless it can be asked until its rows are there."""
    new = [name for name in _kept(after) if name not in _kept(before) and not _can_wait(after, bindings, name)]
    if new:
        names = ", ".join(new)
        raise ChangeError(
            [("/tables", f"this plan keeps {names}, which is not read yet and could not be asked meanwhile: start anew with this plan")]
        )


def _can_wait(plan: Plan, bindings: Bindings, name: str) -> bool:
    """Whether a table that the plan keeps can be asked by every probe until its rows are there."""
    binding = bindings.tables[name]
    widths = {relation.name: 0 for relation in plan.query.relations}
    table = next(table for table in program_of(plan, widths).tables if table.name == name)
    return binding.index is not None and bool(table.bound)


@dataclass
class Versions:
    """Of one pipeline's tables."""

    spark: SparkSession
    bindings: Bindings
    tables: Mapping[str, TableRows]
    control: Control
    latest: Callable[[], Plan]
    """The plan that was asked for last."""
    _loaded: dict[str, int] = field(default_factory=dict)
    """Per kept table the version that is whole, as its cells know it."""
    _forgotten: dict[str, int] = field(default_factory=dict)
    """Per asked table when answers were last forgotten."""
    _tried: dict[str, float] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None
    _newest: int = 0

    def __post_init__(self) -> None:
        given = {name: self.bindings.tables[name].refresh for name in self.tables}
        self._refresh = {name: milliseconds(self.spark, text) for name, text in given.items() if text is not None}

    @property
    def read(self) -> list[str]:
        """Tables that have a scan, in the order of their sources: the plan that keeps one may come later."""
        return sorted(name for name in self.tables if self.bindings.tables[name].scan is not None)

    def sources(self) -> dict[str, DataFrame]:
        """Per table that has a scan a stream of its versions' rows."""
        found = {}
        for name in self.read:
            self._folder(name).make()
            schema = T.StructType([*self.tables[name].frame.schema.fields, T.StructField(NUMBER, T.LongType())])
            found[name] = self.spark.readStream.schema(schema).parquet(self._place(name))
        return found

    def begin(self) -> None:
        """Before the query starts: what the first batch needs is read, unless the table can be asked until then."""
        self._loaded = self._as_cells_know()
        self._newest = max((word.version for word in self.control.words()), default=0)
        now = _now()
        self._forgotten = dict.fromkeys(self.tables, now)
        plan = self.latest()
        for name in _kept(plan):
            rows = next(table.rows for table in plan.query.tables if table.name == name)
            # Under such a trigger it is fixed at the start what each source will read.
            waits = rows >= LARGE and not self.bindings.trigger.available_now and _can_wait(plan, self.bindings, name)
            if self._due(name, now) and not (waits and name not in self._loaded):
                try:
                    self._load(name, running=False)
                except SPARK_ERRORS as error:
                    raise BindingError([(f"/tables/{name}/scan", f"Spark cannot read {name}: {said(error)}")]) from error

    def start(self) -> None:
        """Read beside the batches from now on, where there is anything to read."""
        if self.tables:
            self._thread = threading.Thread(target=self._watch, name="watersmeet tables", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            # A version that is being read is left unfinished: no word was said of it.
            self._thread.join(STOP_SECONDS)

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            plan = self.latest()
            kept = _kept(plan)
            self._loaded = {name: version for name, version in self._loaded.items() if name in kept}
            for name in self.tables:
                if name in kept and self._due(name, _now()) and time.monotonic() >= self._tried.get(name, 0.0):
                    try:
                        self._load(name, running=True)
                    except SPARK_ERRORS as error:
                        if not self._ended.is_set():
                            log.warning("table %s cannot be read, the rows before stay in force: %s", name, said(error))
                        self._tried[name] = time.monotonic() + PAUSE_SECONDS
                elif name not in kept and self._age(self._forgotten[name], _now(), name):
                    self._forgotten[name] = self._number()
                    self.control.say(Word(name, self._forgotten[name], self._last_plan()))

    def _due(self, name: str, now: int) -> bool:
        return name not in self._loaded or self._age(self._loaded[name], now, name)

    def _age(self, since: int, now: int, name: str) -> bool:
        return name in self._refresh and now - since >= self._refresh[name]

    def _load(self, name: str, running: bool) -> None:
        version = self._number()
        folder = self._folder(name)
        before = set(folder.names())
        rows = self.tables[name].frame.withColumn(NUMBER, F.lit(version).cast("long"))
        rows.write.mode("append").parquet(self._place(name))
        files = tuple(sorted(set(folder.names()) - before))
        source = 1 + self.read.index(name)
        while running and not self.control.has_read(source, files):
            if self._ended.wait(POLL_SECONDS):
                return
        self.control.say(Word(name, version, self._last_plan(), files))
        self._loaded[name] = version
        words = [word for word in self.control.words() if word.table == name and word.files]
        for word in words[:-KEPT_VERSIONS]:
            for file in word.files:
                folder.remove(file)

    def _number(self) -> int:
        self._newest = max(_now(), self._newest + 1)
        return self._newest

    def _last_plan(self) -> int:
        return max(self.control.numbers(), default=0)

    def _as_cells_know(self) -> dict[str, int]:
        """What is whole: a plan that does not keep a table lets go of it, and a word on one that is not kept means nothing."""
        words = self.control.words()
        loaded: dict[str, int] = {}
        kept: list[str] = []
        for number in (0, *self.control.numbers()):
            if number:
                kept = _kept(self.control.read(number).plan)
                loaded = {name: version for name, version in loaded.items() if name in kept}
            loaded |= {word.table: word.version for word in words if word.after == number and word.table in kept}
        return loaded

    def _place(self, name: str) -> str:
        return f"{self.bindings.checkpoint.rstrip('/')}/{TABLES}/{name}"

    def _folder(self, name: str) -> Folder:
        return Folder(self.spark, self._place(name))


def _kept(plan: Plan) -> list[str]:
    return [table.name for table in plan.tables if not table.bound]


def _now() -> int:
    return time.time_ns() // 1_000_000

"""A checkpoint taken to another number of cells, between two runs.

The problem: Spark fixes the number of partitions of a checkpoint's states, and our rows lie in the cells of the grid that they came in under.
The method, with the pipeline at rest:

1. a batch that was begun and not committed is worked off as it was begun, under the old grid;
2. the manifest says what is going to be: the new grid, and the number of the batch after which it holds;
3. Spark's own tool (`StreamingCheckpointManager.repartition`) moves the old cells over the new number of partitions, as a batch without rows;
4. one more batch without rows writes every cell's state anew (`stem.relayout`), through the same rewriter of Spark's that its tool uses. These
   batches are noted in the log of a sink of files, which must have every number: Spark's tool leaves that out, and the sink fails later;
5. the manifest says that the new grid is the one.

The guarantee: whoever reads the manifest knows which grid the last committed batch left. A crash before that batch's commit leaves the old
grid in force and the change begun: the next start ends it first, whatever number of cells that start asks for, because files of a state
that was written half must not be taken for a batch of rows. A crash after the commit leaves the new grid in force.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession

from models.bindings import Bindings, Sink
from spark_adapter.checkpoint import Folder
from spark_adapter.errors import CheckpointError
from spark_adapter.expressions import SPARK_ERRORS, said
from spark_adapter.pipeline import applied
from spark_adapter.session import PARTITIONS
from spark_adapter.stem.relayout import MOVED, Emptying, Filling
from spark_adapter.stem.shares import Dimension, Grid, spread_keys

__all__ = ["Cells", "Change", "Held", "worked_off"]

Written = dict[str, Any]
"""Part of a manifest."""

# Values of the store are up to some thirty megabytes: few at a time.
FEW = {"spark.sql.execution.arrow.maxRecordsPerBatch": "16", "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20)}


@dataclass(frozen=True, slots=True)
class Cells:
    """Where the rows of a checkpoint lie."""

    grid: Grid
    partitions: int

    @property
    def keys(self) -> tuple[int, ...]:
        """The grouping key of each cell."""
        return tuple(spread_keys(self.grid.cells, self.partitions))

    def written(self) -> dict[str, Any]:
        """In a form that can be written down and compared."""
        dimensions = [{"share": d.share, "attributes": dict(sorted(d.attributes.items()))} for d in self.grid.dimensions]
        return {"grid": dimensions, "partitions": self.partitions}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Cells:
        return cls(Grid(tuple(Dimension(entry["share"], entry["attributes"]) for entry in written["grid"])), written["partitions"])


@dataclass(frozen=True, slots=True)
class Change:
    """A change of cells that a manifest speaks of."""

    cells: Cells
    batch: int
    """From the commit of this batch on they hold."""

    def written(self) -> dict[str, Any]:
        return self.cells.written() | {"batch": self.batch}

    @classmethod
    def read(cls, written: Mapping[str, Any]) -> Change:
        return cls(Cells.read(written), written["batch"])


class Held:
    """The cells of a checkpoint, as its manifest and its batches say.

    `write` puts into the manifest the cells that hold, and those that are going to from some batch on.
    """

    def __init__(self, folder: Folder, write: Callable[[Written, Written | None], None], manifest: Mapping[str, Any] | None) -> None:
        self._folder, self._write = folder, write
        self.cells = None if manifest is None else Cells.read(manifest["layout"])
        self.change = None if manifest is None or "rescaling" not in manifest else Change.read(manifest["rescaling"])
        if self.change is not None and (folder.latest("commits") or 0) >= self.change.batch:
            self.cells, self.change = self.change.cells, None

    @property
    def target(self) -> Cells | None:
        """What it will be at the next start, where no other number of cells is asked for; None where there is no checkpoint yet."""
        return self.cells if self.change is None else self.change.cells

    def take_to(self, wanted: Cells, bindings: Bindings, spark: SparkSession, windows: Mapping[str, int], work_off: Callable[[Cells], None]) -> None:
        """Steps 1 to 5; `windows` of the streams in microseconds, `work_off` runs the batch that was begun and not committed."""
        while self.cells is not None and (self.change is not None or self.cells != wanted) and self._folder.latest("offsets") is not None:
            if self.change is None:
                if not worked_off(self._folder):
                    work_off(self.cells)
                self.change = _begun(self._folder, wanted)
                self._write(self.cells.written(), self.change.written())
            with applied(spark, FEW):
                _rescale(spark, self._folder, self.cells, self.change, windows, bindings.sink)
            self.cells, self.change = self.change.cells, None
        self.cells = wanted
        self._write(wanted.written(), None)


def worked_off(folder: Folder) -> bool:
    """Whether every batch that was begun has been committed."""
    return folder.latest("offsets") == folder.latest("commits")


def _begun(folder: Folder, cells: Cells) -> Change:
    """The change to these cells, of a checkpoint whose batches are worked off."""
    last = folder.latest("commits")
    assert last is not None
    return Change(cells, last + (1 if _partitions(folder, last) == cells.partitions else 2))


def _rescale(spark: SparkSession, folder: Folder, old: Cells, change: Change, windows: Mapping[str, int], sink: Sink) -> None:
    """Steps 3 and 4. Where it was done in part before, what is left."""
    try:
        last = folder.latest("commits")
        assert last is not None and last < change.batch
        if _partitions(folder, last) != change.cells.partitions:
            spark._streamingCheckpointManager.repartition(folder.path, change.cells.partitions)
        before = change.batch - 1
        if folder.latest("offsets") != change.batch:
            folder.write(f"offsets/{change.batch}", folder.read(f"offsets/{before}"))
        _rewrite(spark, folder, change.batch, _laid_out(old, change.cells, windows))
        _pass_over(spark, sink, change.batch)
        folder.write(f"commits/{change.batch}", folder.read(f"commits/{before}"))
    except SPARK_ERRORS as error:
        wanted = f"the states could not be laid out for {change.cells.grid.cells} cells"
        raise CheckpointError([("/checkpoint", f"{wanted}: {said(error)}. Nothing is lost; the next start goes on with it")]) from error


def _pass_over(spark: SparkSession, sink: Sink, batch: int) -> None:
    """Note in the log of a sink of files that the batches up to this one made no file."""
    path = next((value for name, value in sink.options.items() if name.lower() == "path"), None)
    jvm: Any = spark._jvm
    sinks = jvm.org.apache.spark.sql.execution.streaming.sinks
    if path is None or not Folder(spark, path).has(sinks.FileStreamSink.metadataDir()):
        return
    log = sinks.FileStreamSinkLog(
        sinks.FileStreamSinkLog.VERSION(), spark._jsparkSession, f"{path}/{sinks.FileStreamSink.metadataDir()}", jvm.scala.Option.empty()
    )
    last = log.getLatestBatchId()
    nothing = spark.sparkContext._gateway.new_array(sinks.SinkFileStatus, 0)
    for number in range(int(last.get()) + 1 if last.isDefined() else batch, batch + 1):
        log.add(number, nothing)


def _partitions(folder: Folder, batch: int) -> int:
    """Into how many partitions Spark had parted the states of a batch."""
    settings = json.loads(folder.read(f"offsets/{batch}").splitlines()[1])["conf"]
    return int(settings[PARTITIONS])


def _laid_out(old: Cells, new: Cells, windows: Mapping[str, int]) -> Callable[[DataFrame], DataFrame]:
    emptying = Emptying({key: cell for cell, key in enumerate(old.keys)}, old.grid, new.grid, new.keys)

    def laid_out(states: DataFrame) -> DataFrame:
        """The rows of all stores of the old cells as those of the new ones."""
        moved = states.mapInArrow(emptying, MOVED).repartition(new.partitions, "partition_key")
        ordered = moved.sortWithinPartitions("partition_key", "stream", "death")
        return ordered.mapInArrow(Filling(new.keys, windows), states.schema)

    return laid_out


class _Function:
    """A function of Python's as one of Scala's, on data frames."""

    def __init__(self, spark: SparkSession, function: Callable[[DataFrame], DataFrame]) -> None:
        self._spark, self._function = spark, function

    def apply(self, frame: Any) -> Any:
        return self._function(DataFrame(frame, self._spark))._jdf

    class Java:
        implements = ["scala.Function1"]  # noqa: RUF012 - py4j's form


def _rewrite(spark: SparkSession, folder: Folder, batch: int, function: Callable[[DataFrame], DataFrame]) -> None:
    """The states of the batch before, changed by the function, as those of this batch."""
    context = spark.sparkContext
    ensure_callback_server_started(context._gateway)
    jvm: Any = spark._jvm
    streaming = jvm.org.apache.spark.sql.execution.streaming
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    path = streaming.utils.StreamingUtils.resolvedCheckpointLocation(hadoop, folder.path)
    none, some = jvm.scala.Option.empty(), jvm.scala.Option.apply(_Function(spark, function))
    streaming.state.StateRewriter(spark._jsparkSession, batch - 1, batch, path, hadoop, none, some, none).run()

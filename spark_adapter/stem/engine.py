"""Engine `stem` on Spark: the whole plan as one stateful operator.

The streams' rows are packed and sent to cells (see `shares`), a `transformWithStateInPandas` operator works them off (see `operator`),
and results are unpacked into the columns of the streams' rows. Checkpoints, retries and exactly-once are Spark's own;
state modules lie in its state store as pieces of columns. Statistics leave the operator beside the results, one
note per cell and batch, and are taken out by `observe` before the sink.

The first source is the control stream (see `spark_adapter.control`), whose files go to every cell as they are: plans that take over. After
it come the versions of kept tables (see `spark_adapter.tables.versions`), then the streams.

What is state, and so must stay when another plan takes over a checkpoint: what `spark_adapter.layout` says of the streams and
predicates, and the grid. Probe orders, algorithms, caches and allowances are not; materialized states are made
from the streams' states where the plan before did not keep them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it
from pyspark.sql.pandas.types import to_arrow_schema

from models.bindings import Bindings, Routing
from models.plan import Plan
from spark_adapter.expressions import milliseconds, quoted
from spark_adapter.session import PARTITIONS
from spark_adapter.sources import Inputs, attributes, result_columns
from spark_adapter.stem.program import Program
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.worker import CHANGED, NOW, NUMBER, OUTPUT, PACKETS, CellProcessor, Packer, Unpacker

if TYPE_CHECKING:
    from spark_adapter.rescaling import Cells
    from spark_adapter.stem.lookup import Reach

__all__ = ["OBSERVED", "Side", "parallelism", "programmed", "settings", "stem"]

OBSERVED = "watersmeet"
"""The name under which the notes are in Spark's progress."""

EXECUTORS_SECONDS = 30.0  # to wait for executors to register
PACKET_ROWS = 1_000_000
NARROW = 50  # columns of at most sixteen bytes: 800 MB of PACKET_ROWS, and a packet holds two gigabytes
FIXED = (T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)

SETTINGS = {
    # transformWithState needs it.
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    # A batch then writes what changed instead of a snapshot of everything.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # One packet per cell and task where possible; the default of 10,000 rows cuts a batch to pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(PACKET_ROWS),
}
UNBOUNDED = str(2**31 - 1)  # Spark's word for it


def settings(streams: Mapping[str, DataFrame], partitions: int) -> dict[str, str]:
    """What a query of this engine is started with."""
    found = SETTINGS | {PARTITIONS: str(partitions)}
    if all(_narrow(frame) for frame in streams.values()):
        # Spark adds up the size of a packet anew for every row, which takes as long as packing. Rows like these need no such limit.
        found["spark.sql.execution.arrow.maxBytesPerBatch"] = UNBOUNDED
    return found


def _narrow(frame: DataFrame) -> bool:
    """Whether the rows have few columns, all of fixed width: then PACKET_ROWS of them are well below what a packet can hold."""
    found: list[T.DataType] = []
    waiting: list[T.DataType] = [frame.schema]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, T.StructType):
            waiting += [field.dataType for field in kind.fields]
        else:
            found.append(kind)
    return len(found) <= NARROW and all(isinstance(kind, FIXED) for kind in found)


@dataclass(frozen=True, slots=True)
class Side:
    """What a query reads beside its streams: the control stream's folder, and where tables are kept and asked."""

    control: str
    versions: Mapping[str, DataFrame] = field(default_factory=dict)
    """Per table that may be kept the stream of its versions (see `tables.versions`)."""
    reaches: Mapping[str, Reach] = field(default_factory=dict)


def programmed(plan: Plan, bindings: Bindings, inputs: Inputs, folder: str) -> Program:
    """The program of a plan over these streams and tables, as `read_inputs` gives them.

    `folder` is this run's own, in which workers keep copies of their states: a path, or a name below what `worker.local_folders` has.
    """
    streams = inputs.streams
    widths = {name: len(_row(frame).fields) for name, frame in inputs.frames.items()}
    delays = {name: milliseconds(frame.sparkSession, bindings.streams[name].watermark) for name, frame in streams.items()}
    silences = {name: bindings.streams[name].idle_after for name in streams}
    idle_after = {name: milliseconds(streams[name].sparkSession, text) for name, text in silences.items() if text is not None}
    return replace(program_of(plan, widths, delays, folder, idle_after), adaptive=bindings.routing is Routing.ADAPTIVE)


def stem(program: Program, plan: Plan, bindings: Bindings, inputs: Inputs, cells: Cells, side: Side | None, agreement: str = "") -> DataFrame:
    """The results of the plan as one streaming DataFrame. `side` is there where plans may change while it runs, or tables are joined;
    `agreement` is what the states must be of, where no manifest beside the checkpoint says it."""
    grid, keys = cells.grid, cells.keys
    fields = {name: _row(frame).fields for name, frame in inputs.frames.items()}
    wanted = attributes(plan.query)
    packets = _told(next(iter(inputs.streams.values())).sparkSession, side.control, keys) if side is not None else None
    # Spark knows a checkpoint's sources by their order, so that must not depend on the plan.
    versions = side.versions if side is not None else {}
    for name in (*sorted(versions), *sorted(inputs.streams)):
        source = inputs.streams[name] if name in inputs.streams else versions[name]
        frame, columns = _coordinated(source, name, wanted[name], grid, program.listening and name in inputs.streams)
        packed = frame.mapInArrow(Packer(name, grid, keys, columns), PACKETS)
        packets = packed if packets is None else packets.unionByName(packed)
    assert packets is not None
    processor = CellProcessor(program, grid, keys, agreement, side.reaches if side is not None else {})
    worked = packets.groupBy("cell").transformWithStateInPandas(processor, OUTPUT, "Append", "EventTime")
    noted = worked.observe(OBSERVED, F.collect_list("note").alias("notes"))
    schema = T.StructType(
        [
            T.StructField(column, field.dataType)
            for stream in program.relations
            for column, field in zip(stream.payload, fields[stream.name], strict=True)
        ]
    )
    arrow = to_arrow_schema(schema, timezone="UTC")
    rows = noted.where(F.col("note").isNull()).select("rows", "file").mapInArrow(Unpacker(arrow), schema)
    structs = [
        F.struct(*(F.col(quoted(column)).alias(field.name) for column, field in zip(stream.payload, fields[stream.name], strict=True))).alias(
            stream.name
        )
        for stream in program.relations
    ]
    return rows.select(*structs).select(*result_columns(plan, bindings))


def _told(spark: SparkSession, control: str, keys: Sequence[int]) -> DataFrame:
    """The files of the control stream, each as a packet for every cell. A path is a pattern to Spark."""
    files = spark.readStream.format("text").option("wholetext", "true").load(re.sub(r"([\[\]{}*?\\])", r"\\\1", control))
    cells = F.explode(F.array(*(F.lit(key) for key in keys)))
    return files.select(cells.alias("cell"), F.lit(CHANGED).alias("stream"), F.col("value").cast("binary").alias("rows"))


def _row(frame: DataFrame) -> T.StructType:
    row = frame.schema["row"].dataType
    assert isinstance(row, T.StructType)
    return row


def _coordinated(frame: DataFrame, name: str, wanted: Sequence[str], grid: Grid, timed: bool) -> tuple[DataFrame, tuple[str, ...]]:
    """What a packet carries, with the row's coordinates and, if `timed`, the batch's time, and what its columns are called in the cell."""
    fields = _row(frame).fields
    values = [F.col(quoted(f"a_{attribute}")) for attribute in wanted]
    payload = [F.col(f"row.{quoted(field.name)}") for field in fields]
    hashable = [column for column, field in zip(payload, fields, strict=True) if not _has_map(field.dataType)]
    # A table has no time; its rows have the number of their version.
    flowing = "ts" in frame.columns
    whole = F.xxhash64(*([F.col("ts")] if flowing else []), *values, *hashable)
    columns = {"ts": F.unix_micros(F.col("ts")), "h": whole} if flowing else {NUMBER: F.col(NUMBER), "h": whole}
    columns |= {f"{name}.{attribute}": column for attribute, column in zip(wanted, values, strict=True)}
    columns |= {f"{name}/{i}": column for i, column in enumerate(payload)}
    for d in grid.hashed(name):
        attribute = grid.dimensions[d].attributes[name]
        coordinate = _coordinate(frame, attribute) if attribute else whole
        columns[f"d{d}"] = F.pmod(coordinate, F.lit(grid.dimensions[d].share)).cast("int")
    if timed:
        # In a streaming query this is the time that Spark has written down for the batch, the same when it is run again.
        columns[NOW] = F.unix_millis(F.current_timestamp())
    return frame.select(*(column.alias(f"c{i}") for i, column in enumerate(columns.values()))), tuple(columns)


def _coordinate(frame: DataFrame, attribute: str) -> Column:
    column = F.col(quoted(f"a_{attribute}"))
    # −0.0 equals 0.0 but has another hash; the sum is 0.0 for both.
    return F.xxhash64(column + F.lit(0.0)) if isinstance(frame.schema[f"a_{attribute}"].dataType, T.DoubleType) else F.xxhash64(column)


def _has_map(kind: T.DataType) -> bool:
    """Spark has no hash for maps."""
    waiting = [kind]
    while waiting:
        current = waiting.pop()
        if isinstance(current, T.MapType):
            return True
        if isinstance(current, T.ArrayType):
            waiting.append(current.elementType)
        elif isinstance(current, T.StructType):
            waiting += [field.dataType for field in current.fields]
    return False


def parallelism(spark: SparkSession) -> int:
    """How many tasks the cluster runs at once, as a power of two: those divide best over the dimensions of a grid.

    The grid is fixed with the first batch, so this waits, for a while, for the executors that the settings ask for: they register after the
    session has opened.
    """
    context = spark.sparkContext
    deadline = time.monotonic() + EXECUTORS_SECONDS
    while _executors(context) < _asked_for(context) and time.monotonic() < deadline:
        time.sleep(0.1)
    tasks = int(context.defaultParallelism)
    return 1 << (max(1, tasks).bit_length() - 1)


def _executors(context: SparkContext) -> int:
    """Those that have registered; the driver is in Spark's list too."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def _asked_for(context: SparkContext) -> int:
    """How many executors the settings ask for; 0 where they do not say."""
    cluster = re.match(r"local-cluster\[\s*(\d+)", context.master)
    return int(cluster.group(1) if cluster else context.getConf().get("spark.executor.instances", "0") or "0")

"""The streams and tables of a plan as Spark reads them: checked against the plan before anything starts, then given one shape.

Each stream becomes a streaming DataFrame with

    ts              the event time, TIMESTAMP, with its watermark
    a_<attribute>   one column per attribute that a predicate names, in the type that the predicates compare in
    row             a struct of the source columns that the result needs

A table becomes a DataFrame of the same shape without `ts`, read as a batch.

Rows that the binding's condition does not let in, rows without an event time, and rows without a value in an attribute can be in no result
and are left out here.
Everything found wrong is reported together; nothing runs until a pipeline is started.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import KAFKA, Bindings, Sink, StreamBinding, TableBinding
from models.plan import Plan
from models.request import PlanRequest, Query
from spark_adapter.comparing import Attribute, comparison_types
from spark_adapter.documents import check_tree
from spark_adapter.errors import BindingError, Fault
from spark_adapter.expressions import SPARK_ERRORS, ExpressionError, analyzed, column_or_expression, milliseconds, quietly, quoted, references, said
from spark_adapter.kafka import brokers, topics
from spark_adapter.kafka.connector import missing
from spark_adapter.tables.databases import described, unaskable, unbound, unmatched

__all__ = ["Inputs", "Opener", "TableRows", "attributes", "read_batches", "read_frames", "read_inputs", "result_columns"]

Opener = Callable[[str, StreamBinding], DataFrame]
"""The rows of a stream as its source has them."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A source that Spark has opened, with its columns found."""

    frame: DataFrame
    event_time: Column | None
    """None of a table."""
    columns: dict[str, tuple[Column, T.DataType]]
    own: tuple[str, ...]
    """The columns of a whole row. A topic's frame has more, which are there for expressions that name them."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """A table as Spark reads it."""

    frame: DataFrame
    """In the shape above, without `ts`; without rows where the table is asked only."""
    columns: T.StructType
    """All that it has."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a plan joins."""

    streams: dict[str, DataFrame]
    tables: dict[str, TableRows]

    @property
    def frames(self) -> dict[str, DataFrame]:
        """Of streams and tables."""
        return {**self.streams, **{name: table.frame for name, table in self.tables.items()}}


def attributes(query: Query) -> dict[str, list[str]]:
    """Per stream and table the attributes that predicates name, each once, in the order of the predicates."""
    found: dict[str, dict[str, None]] = {relation.name: {} for relation in query.relations}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            stream, attribute = side.split(".", 1)
            found[stream][attribute] = None
    return {stream: list(names) for stream, names in found.items()}


def result_columns(plan: Plan | PlanRequest, bindings: Bindings) -> list[Column]:
    """The result's columns, over a DataFrame that has the `row` of each stream as a column named like the stream."""
    columns = [F.expr(text) for text in bindings.select] or [_whole(relation.name, bindings) for relation in plan.query.relations]
    return columns if bindings.sink.topic is None else topics.records(columns, bindings)


def _whole(name: str, bindings: Bindings) -> Column:
    """A stream's row. Besides its own columns it holds what else expressions name, such as the ids of records: that is no part of the result."""
    row = F.col(quoted(name))
    binding = bindings.streams.get(name)
    added = binding is not None and binding.source.value is not None and bindings.sink.topic is not None
    return row.dropFields(topics.RECORD, topics.RECORD_ID).alias(name) if added else row


def read_inputs(plan: Plan, bindings: Bindings, spark: SparkSession) -> Inputs:
    """The plan's streams and tables, in the shape above. Raises PlanError or BindingError with all faults found."""
    check_tree(plan)

    def opened(_: str, binding: StreamBinding) -> DataFrame:
        reader = spark.readStream.format(binding.source.format).options(**topics.reading_options(binding.source))
        return (reader.schema(binding.source.schema_) if binding.source.schema_ else reader).load()

    with quietly():
        return _read(plan, bindings, spark, opened)


def read_batches(asked: PlanRequest, bindings: Bindings, spark: SparkSession) -> dict[str, DataFrame]:
    """What the sources of a request's streams hold now, in the same shape. Raises BindingError with all faults found."""

    def opened(_: str, binding: StreamBinding) -> DataFrame:
        reader = spark.read.format(binding.source.format).options(**topics.batch_options(binding.source))
        return (reader.schema(binding.source.schema_) if binding.source.schema_ else reader).load()

    with quietly():
        # Nothing is written, so it does not matter whether a sink is there.
        return _read(asked, bindings.model_copy(update={"sink": Sink()}), spark, opened).streams


def read_frames(plan: Plan | PlanRequest, bindings: Bindings, frames: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Frames that somebody made, in the same shape, with the watermarks that they have. Raises BindingError with all faults found."""
    with quietly():
        return _read(plan, bindings, next(iter(frames.values())).sparkSession, lambda name, _: frames[name], watermarks=False).streams


def _read(plan: Plan | PlanRequest, bindings: Bindings, spark: SparkSession, opener: Opener, watermarks: bool = True) -> Inputs:
    faults = list(_names(plan, bindings, spark))
    opened: dict[str, _Opened] = {}
    wanted = attributes(plan.query)
    for stream in plan.query.streams:
        binding = bindings.streams.get(stream.name)
        if binding is not None:
            source = _open(stream.name, binding, wanted[stream.name], spark, faults, opener)
            if source is not None:
                opened[stream.name] = source
    for table in plan.query.tables:
        found = bindings.tables.get(table.name)
        if found is not None:
            source = _open_table(table.name, found, wanted[table.name], spark, faults)
            if source is not None:
                opened[table.name] = source
    own = {(name, attribute): kind for name, source in opened.items() for attribute, (_, kind) in source.columns.items()}
    types = comparison_types(plan.query, own, faults)
    needed = _needed_columns(plan, bindings, opened, spark, faults) if len(opened) == len(wanted) else {}
    if not faults:
        faults += brokers.absent(bindings, spark)
    if faults:
        raise BindingError(faults)
    delays = {name: bindings.streams[name].watermark if watermarks else None for name in bindings.streams}
    shaped = {name: _shaped(source, delays.get(name), name, types, needed[name]) for name, source in opened.items()}
    tables = {table.name: TableRows(shaped[table.name], opened[table.name].frame.schema) for table in plan.query.tables}
    return Inputs({name: frame for name, frame in shaped.items() if name not in tables}, tables)


def _names(plan: Plan | PlanRequest, bindings: Bindings, spark: SparkSession) -> Iterator[Fault]:
    """Streams without a binding, bindings without a stream, names that Spark cannot tell apart."""
    yield from unmatched("stream", [stream.name for stream in plan.query.streams], bindings.streams)
    yield from unbound(plan, bindings)
    wanted = attributes(plan.query)
    bound: list[tuple[str, str, Mapping[str, str]]] = [("streams", name, binding.columns) for name, binding in bindings.streams.items()]
    for kind, name, columns in [*bound, *(("tables", name, binding.columns) for name, binding in bindings.tables.items())]:
        for attribute in columns:
            if name in wanted and attribute not in wanted[name]:
                known = ", ".join(wanted[name]) or "none"
                yield f"/{kind}/{name}/columns/{attribute}", f"no predicate of the plan uses {name}.{attribute}; those it uses are {known}"
    if spark.conf.get("spark.sql.caseSensitive") != "true":
        for names, what in [
            (list(wanted), "streams and tables" if plan.query.tables else "streams"),
            *((found, f"attributes of {name}") for name, found in wanted.items()),
        ]:
            first: dict[str, str] = {}
            for name in names:
                other = first.setdefault(name.lower(), name)
                if other != name:
                    yield "/streams", f"Spark cannot tell the {what} {other} and {name} apart; rename one, or set spark.sql.caseSensitive to true"


def _open(name: str, binding: StreamBinding, wanted: Sequence[str], spark: SparkSession, faults: list[Fault], opener: Opener) -> _Opened | None:
    """The source with its event time and attributes found; None where it cannot be opened at all."""
    at = f"/streams/{name}"
    try:
        frame = opener(name, binding)
    except SPARK_ERRORS as error:
        faults.append((f"{at}/source", f"Spark cannot open the source of {name}: {said(error)}{_package(binding.source.format, error)}"))
        return None
    if binding.source.value is not None:
        decoded = _decoded(name, frame, binding, faults)
        if decoded is None:
            return None
        frame = decoded
    if binding.where:
        try:
            frame = frame.where(_condition(name, binding.where, frame, spark))
        except ExpressionError as error:
            faults.append((f"{at}/where", f"the condition on {name}, {error}"))
    event_time = F.lit(None).cast("timestamp")
    time_text = topics.event_time_of(binding)
    try:
        event_time = column_or_expression(spark, frame, time_text)
        kind = frame.select(event_time).schema[0].dataType
        if not isinstance(kind, (T.TimestampType, T.TimestampNTZType)):
            faults.append((f"{at}/event_time", _not_a_time(name, time_text, kind)))
        else:
            if isinstance(kind, T.TimestampNTZType):
                event_time = event_time.cast("timestamp")  # any other column keeps the watermark that it may have
            frame.select(event_time.alias("ts")).withWatermark("ts", binding.watermark)
    except ExpressionError as error:
        faults.append((f"{at}/event_time", f"the event time of {name}, {error}"))
    except SPARK_ERRORS as error:
        faults.append((f"{at}/watermark", f"the watermark of {name} must be an interval like '10 seconds', got {binding.watermark!r}: {said(error)}"))
    if binding.idle_after is not None:
        faults += _wrong_silence(name, binding.idle_after, spark)
    columns = _columns(at, binding.columns, wanted, frame, faults)
    hidden = (topics.RECORD, topics.RECORD_ID) if binding.source.value is not None else ()
    return _Opened(frame, event_time, columns, tuple(column for column in frame.columns if column not in hidden))


def _columns(at: str, given: Mapping[str, str], wanted: Sequence[str], frame: DataFrame, faults: list[Fault]) -> dict[str, tuple[Column, T.DataType]]:
    """What each attribute is."""
    columns: dict[str, tuple[Column, T.DataType]] = {}
    for attribute in wanted:
        text = given.get(attribute, quoted(attribute))
        try:
            column = column_or_expression(frame.sparkSession, frame, text)
            columns[attribute] = (column, frame.select(column).schema[0].dataType)
        except ExpressionError as error:
            hint = "" if attribute in given else f"; say under columns what {attribute} is, among {', '.join(frame.columns)}"
            faults.append((f"{at}/columns/{attribute}", f"{at.rsplit('/', 1)[-1]}.{attribute}, {error}{hint}"))
    return columns


def _open_table(name: str, binding: TableBinding, wanted: Sequence[str], spark: SparkSession, faults: list[Fault]) -> _Opened | None:
    """The table as a whole, or what its database says of its columns; None where it cannot be opened at all."""
    at = f"/tables/{name}"
    try:
        if binding.scan is None:
            assert binding.index is not None
            frame = spark.createDataFrame([], described(binding.index))
        else:
            reader = spark.read.format(binding.scan.format).options(**binding.scan.options)
            frame = (reader.schema(binding.scan.schema_) if binding.scan.schema_ else reader).load()
    except SPARK_ERRORS as error:
        faults.append(
            (f"{at}/scan", f"Spark cannot open the source of {name}: {said(error)}{_package(binding.scan.format, error) if binding.scan else ''}")
        )
        return None
    if binding.where:
        try:
            frame = frame.where(_condition(name, binding.where, frame, spark))
        except ExpressionError as error:
            faults.append((f"{at}/where", f"the condition on {name}, {error}"))
    for what, text in (("refresh", binding.refresh), ("index/retry_for", binding.index.retry_for if binding.index else None)):
        faults += [] if text is None else _wrong_interval(at, what, name, text, spark)
    columns = _columns(at, binding.columns, wanted, frame, faults)
    if binding.index is not None:
        faults += unaskable(name, binding, frame.schema, wanted)
    return _Opened(frame, None, columns, tuple(frame.columns))


def _wrong_interval(at: str, what: str, name: str, text: str, spark: SparkSession) -> Iterator[Fault]:
    example = f"the {what.rsplit('/', 1)[-1]} of {name} must be an interval like '1 hour', got {text!r}"
    try:
        if milliseconds(spark, text) < (1 if what == "refresh" else 0):
            yield f"{at}/{what}", example
    except SPARK_ERRORS as error:
        yield f"{at}/{what}", f"{example}: {said(error)}"


def _decoded(name: str, frame: DataFrame, binding: StreamBinding, faults: list[Fault]) -> DataFrame | None:
    """The rows of a topic; None where its values cannot be decoded as the binding says."""
    value = binding.source.value
    assert value is not None
    at = f"/streams/{name}/source/value"
    try:
        kind = topics.value_type(value)
    except (*SPARK_ERRORS, ValueError) as error:
        faults.append((f"{at}/schema", f"the schema of {name}'s values must be columns like 'auction BIGINT, ts TIMESTAMP': {said(error)}"))
        return None
    except TypeError:
        # PySpark takes a class that is not there for a package.
        faults.append((f"{at}/format", f"Spark cannot read avro: {missing(PACKAGES['avro'])}"))
        return None
    taken = [field.name for field in kind.fields if field.name.lower() in (topics.RECORD, topics.RECORD_ID)]
    if taken:
        faults.append((f"{at}/schema", f"{taken[0]} is a column of every topic's records; the values of {name} cannot have one of that name"))
        return None
    try:
        return topics.good_rows(topics.judged(frame, binding.source), name, binding.source)
    except SPARK_ERRORS as error:
        faults.append((at, f"Spark cannot decode the values of {name}: {said(error)}"))
    except TypeError:
        faults.append((f"{at}/format", f"Spark cannot read avro: {missing(PACKAGES['avro'])}"))
    return None


def _condition(name: str, text: str, frame: DataFrame, spark: SparkSession) -> Column:
    """Which rows take part. A row for which that is null does not."""
    condition = column_or_expression(spark, frame, text)
    kind = frame.select(condition).schema[0].dataType
    if not isinstance(kind, T.BooleanType):
        raise ExpressionError(f"{text!r}, is {kind.simpleString().upper()}; it must be true or false, for example {text} > 0")
    return condition


def _wrong_silence(name: str, text: str, spark: SparkSession) -> Iterator[Fault]:
    example = f"the idle_after of {name} must be an interval above 0, like '60 seconds', got {text!r}"
    try:
        if milliseconds(spark, text) <= 0:
            yield f"/streams/{name}/idle_after", example
    except SPARK_ERRORS as error:
        yield f"/streams/{name}/idle_after", f"{example}: {said(error)}"


# Formats that are Spark's own but come in packages of their own.
PACKAGES = {"kafka": "spark-sql-kafka-0-10", "avro": "spark-avro", "protobuf": "spark-protobuf"}


def _package(name: str, error: BaseException) -> str:
    """What to add where a format of Spark's is not found."""
    if name.lower() not in PACKAGES or "Failed to find" not in str(error):
        return ""
    return f"; {missing(PACKAGES[name.lower()])}"


def _not_a_time(name: str, text: str, kind: T.DataType) -> str:
    return f"the event time of {name}, {text!r}, is {kind.simpleString().upper()}; it must be a TIMESTAMP, for example CAST({text} AS TIMESTAMP)"


def _needed_columns(
    plan: Plan | PlanRequest, bindings: Bindings, opened: dict[str, _Opened], spark: SparkSession, faults: list[Fault]
) -> dict[str, list[Column]]:
    """Per stream and table the source columns that the result mentions; all of them where it is taken whole."""
    streams = [relation.name for relation in plan.query.relations]
    everything = {name: list(opened[name].own) for name in streams}
    fold = str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower
    canonical = {fold(name): name for name in streams}
    schema = T.StructType([T.StructField(name, opened[name].frame.schema) for name in streams])
    joined = spark.createDataFrame([], schema)
    mentioned: dict[str, set[str]] = {name: set() if bindings.select else set(map(fold, everything[name])) for name in streams}
    if bindings.sink.topic is not None and topics.identified(bindings):
        for name in bindings.streams:
            mentioned[name].add(topics.RECORD_ID)
    parts: dict[str, set[str]] = {name: set() for name in streams}  # columns and their fields, as COLUMN or COLUMN.FIELD
    texts = [(f"/select/{i}", "the result column", text) for i, text in enumerate(bindings.select)]
    texts += [] if bindings.sink.key is None else [("/sink/key", "the key", bindings.sink.key)]
    for at, what, text in texts:
        try:
            names = references(spark, text)
            analyzed(joined, text)
        except ExpressionError as error:
            faults.append((at, f"{what} {error}"))
            continue
        for reference in names:
            if not reference:
                for name in streams:
                    mentioned[name].update(map(fold, everything[name]))
            elif fold(reference[0]) in canonical:
                name = canonical[fold(reference[0])]
                mentioned[name].update(map(fold, everything[name] if len(reference) == 1 else reference[1:2]))
                parts[name].add(fold(".".join(reference[1:3])))
    if not faults:
        faults += _unwritable(plan, bindings, joined)
    # A struct needs a field, so a stream of which the result needs no column gets its first one.
    chosen = {name: [column for column in opened[name].frame.columns if fold(column) in mentioned[name]] or everything[name][:1] for name in streams}
    return {name: [_taken(opened[name], column, parts[name], fold) for column in columns] for name, columns in chosen.items()}


def _taken(source: _Opened, column: str, mentioned: Container[str], fold: Callable[[str], str]) -> Column:
    """A column; of a topic's record only the fields that are mentioned, for all that is taken is sent and held with every row."""
    if column != topics.RECORD or column in source.own or column in mentioned:
        return F.col(quoted(column))
    kind = source.frame.schema[column].dataType
    assert isinstance(kind, T.StructType)
    names = [f"{column}.{name}" for name in kind.names]
    return F.struct(*(F.col(name) for name in names if fold(name) in mentioned)).alias(column)


def _unwritable(plan: Plan | PlanRequest, bindings: Bindings, joined: DataFrame) -> Iterator[Fault]:
    """A sink of Kafka's that nobody can reach, or whose records cannot be made of the result's columns."""
    if bindings.sink.format.lower() == KAFKA and topics.servers_of_sink(bindings) is None:
        yield "/sink/servers", "servers is required: the streams have no brokers, or not all the same, that could be the sink's"
    if bindings.sink.topic is not None:
        try:
            joined.select(*result_columns(plan, bindings))
        except SPARK_ERRORS as error:
            yield "/sink/value", f"the result cannot be written as {bindings.sink.value or 'json'}: {said(error)}"
        except TypeError:
            yield "/sink/value", f"Spark cannot write avro: {missing(PACKAGES['avro'])}"


def _shaped(source: _Opened, watermark: str | None, name: str, types: dict[Attribute, T.DataType], needed: Sequence[Column]) -> DataFrame:
    times = [] if source.event_time is None else [source.event_time.alias("ts")]
    shaped = source.frame.select(
        *times,
        *(column.cast(types[name, attribute]).alias(f"a_{attribute}") for attribute, (column, _) in source.columns.items()),
        F.struct(*needed).alias("row"),
    )
    present = F.lit(True) if source.event_time is None else F.col("ts").isNotNull()
    for attribute in source.columns:
        present &= F.col(f"a_{attribute}").isNotNull()
    # Rows that can be in no result move the watermark too.
    return (shaped if watermark is None else shaped.withWatermark("ts", watermark)).where(present)

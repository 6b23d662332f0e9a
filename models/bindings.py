"""Bindings: what joins a plan to Spark (contract §7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from models.base import Flag, Identifier, Model, is_empty
from models.faults import Fault, with_faults

__all__ = [
    "KAFKA",
    "SERVERS",
    "BadTopic",
    "Bindings",
    "BindingsDraft",
    "Expression",
    "OnBad",
    "Routing",
    "Sink",
    "Source",
    "StreamBinding",
    "StreamDraft",
    "TableBinding",
    "TableIndex",
    "TableScan",
    "Trigger",
    "Value",
    "ValueFormat",
]

Expression = Annotated[str, Field(min_length=1, max_length=4096)]
MAX_WHERE = 65_536  # a list of a few thousand values is a condition like any other
Topic = Annotated[str, Field(min_length=1, max_length=249)]

KAFKA = "kafka"
SERVERS = "kafka.bootstrap.servers"
# Each of these options of Spark's connector says which topics are read.
SUBSCRIBING = ("subscribe", "subscribepattern", "assign")


def _of(data: Any, name: str) -> Any:
    """A field of raw input or of a model."""
    return data.get(name) if isinstance(data, Mapping) else getattr(data, name, None)


def _is_kafka(data: Any) -> bool:
    return str(_of(data, "format")).lower() == KAFKA


def _options(data: Any) -> set[str]:
    """The names of its options, as Spark compares them."""
    given = _of(data, "options")
    return {str(name).lower() for name in given} if isinstance(given, Mapping) else set()


class ValueFormat(StrEnum):
    """How the value of a Kafka record is written."""

    JSON = "json"
    AVRO = "avro"
    CSV = "csv"


class Value(Model):
    """What the values of a topic's records are."""

    format: Annotated[ValueFormat, Field(examples=["json"])]
    """How they are written."""
    schema_: Annotated[str, Field(alias="schema", min_length=1, examples=["auction BIGINT, price DOUBLE, ts TIMESTAMP"])]
    """Their columns as Spark DDL; for avro also the writer's schema as JSON."""
    options: Annotated[dict[str, str], Field(examples=[{"timestampFormat": "yyyy-MM-dd HH:mm:ss"}])] = {}
    """Options of Spark's reader of this format, passed on untouched."""
    skip_bytes: Annotated[int, Field(ge=0, le=1024, examples=[5])] = 0
    """Bytes before the value itself: 5 where a schema registry's serializer has written it."""


class BadTopic(Model):
    """Records that do not decode go to a topic of the same servers."""

    topic: Topic
    """The topic, which must be there."""


def _drop_fail_or_topic(value: Any) -> Any:
    if value in ("drop", "fail") or isinstance(value, BadTopic):
        return value
    if isinstance(value, Mapping) and set(value) == {"topic"} and isinstance(value["topic"], str) and value["topic"]:
        return BadTopic(topic=value["topic"])
    raise PydanticCustomError("fault", "{message}", {"message": f"on_bad must be drop, fail or {{topic: NAME}}, got {value!r}"})


OnBad = Annotated[Literal["drop", "fail"] | BadTopic, BeforeValidator(_drop_fail_or_topic)]


class Source(Model):
    """Where a stream's rows come from: any Spark streaming source; for topics of Kafka with the values decoded, if `value` says how."""

    format: Annotated[str, Field(min_length=1, examples=["json"])]
    """Name of the Spark source: json, parquet, kafka, rate, …"""
    options: Annotated[dict[str, str], Field(examples=[{"path": "data/bids"}])] = {}
    """Options of the source, passed on untouched."""
    schema_: Annotated[str, Field(alias="schema", examples=["auction BIGINT, price DOUBLE, ts TIMESTAMP"])] = ""
    """Columns of the source as Spark DDL; empty where the source knows its own."""
    topic: Annotated[Topic | None, Field(examples=["bids"])] = None
    """Kafka: the topic. Several are an option of the connector's, `subscribe` or `subscribePattern`."""
    servers: Annotated[str | None, Field(min_length=1, examples=["localhost:9092"])] = None
    """Kafka: HOST:PORT of one or more brokers, with commas between them."""
    value: Value | None = None
    """Kafka: what the records' values are. Left out, the source has the connector's own columns, bytes and all."""
    on_bad: OnBad = "drop"
    """Kafka: what becomes of a record whose value does not decode: dropped and counted, the end of the pipeline, or written to a topic."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_kafka(cls, data: Any, handler: Callable[[Any], Source]) -> Source:
        return with_faults(cls.__name__, data, handler, _check_source)


def _check_source(data: Any) -> Iterator[Fault]:
    """What topics need, and what only topics have."""
    options = _options(data)
    if not _is_kafka(data):
        for name in ("topic", "servers", "value", "on_bad"):
            if _of(data, name) not in (None, "drop"):
                yield (name,), f"{name} goes with format kafka, not with {_of(data, 'format')!r}"
        return
    if _of(data, "schema"):
        yield ("schema",), "the schema of a topic's values belongs under value, as value: {format: json, schema: …}"
    if _of(data, "on_bad") not in (None, "drop") and _of(data, "value") is None:
        yield ("on_bad",), "on_bad says what becomes of values that do not decode: it needs value, which says how they are written"
    yield from _reached(data, options)
    named = [name for name in SUBSCRIBING if name in options]
    if _of(data, "topic") is None and not named:
        yield ("topic",), "topic is required: the topic to read (or an option subscribe, subscribePattern or assign)"
    elif _of(data, "topic") is not None and named:
        yield ("topic",), f"topic and the option {named[0]} both say what to read: leave one out"


def _reached(data: Any, options: set[str]) -> Iterator[Fault]:
    """That exactly one place says where the brokers are."""
    if _of(data, "servers") is None and SERVERS not in options:
        yield ("servers",), "servers is required: HOST:PORT of one or more brokers"
    elif _of(data, "servers") is not None and SERVERS in options:
        yield ("servers",), f"servers and the option {SERVERS} both say where the brokers are: leave one out"


class StreamDraft(Model):
    """What a query says of a stream: its columns, not where they are read from."""

    table: Annotated[str, Field(max_length=4096, examples=["bids"])] = ""
    """The table that SQL reads the stream from; by default one named like the stream. Spark's sources do not need it."""
    event_time: Annotated[Expression, Field(examples=["ts"])]
    """The column, or SQL expression, of a row's time."""
    columns: Annotated[dict[Identifier, Expression], Field(examples=[{"auction": "auction"}])] = {}
    """Plan attribute → column or SQL expression; by default the column of the same name."""
    where: Annotated[str, Field(max_length=MAX_WHERE, examples=["price > 0"])] = ""
    """Which rows take part, as a SQL condition over the stream's columns; by default all."""


class StreamBinding(StreamDraft):
    """One stream of the plan, as Spark sees it."""

    source: Source
    """Where its rows come from."""
    event_time: Annotated[Expression | None, Field(examples=["ts"])] = None  # type: ignore[assignment]  # a query says it always, a topic may leave it out
    """The column, or SQL expression, of a row's time; of a topic's records by default the timestamp that Kafka has for them."""
    watermark: Annotated[str, Field(examples=["10 seconds"])] = "0 seconds"
    """How late a row may come, as a Spark interval."""
    idle_after: Annotated[str | None, Field(examples=["60 seconds"])] = None
    """A stream without a row for so long, as a Spark interval, holds no watermark back; its rows that are late because of that are dropped."""

    @model_validator(mode="wrap")
    @classmethod
    def _timed(cls, data: Any, handler: Callable[[Any], StreamBinding]) -> StreamBinding:
        return with_faults(cls.__name__, data, handler, _check_time)


def _check_time(data: Any) -> Iterator[Fault]:
    source = _of(data, "source")
    # What is no object has its own fault.
    if isinstance(data, Mapping) and data.get("event_time") is None and isinstance(source, (Mapping, BaseModel)) and not _is_kafka(source):
        yield ("event_time",), "event_time is required"


class Sink(Model):
    """Where results go: any Spark streaming sink; for a topic of Kafka as records that this makes of the results, if `topic` is given."""

    format: Annotated[str, Field(min_length=1, examples=["parquet"])] = "console"
    """Name of the Spark sink."""
    options: Annotated[dict[str, str], Field(examples=[{"path": "out"}])] = {}
    """Options of the sink, passed on untouched."""
    topic: Annotated[Topic | None, Field(examples=["results"])] = None
    """Kafka: the topic, which must be there."""
    servers: Annotated[str | None, Field(min_length=1, examples=["localhost:9092"])] = None
    """Kafka: HOST:PORT of one or more brokers; by default those of the streams."""
    value: Annotated[ValueFormat | None, Field(examples=["json"])] = None
    """Kafka: how the result's columns are written; json by default."""
    key: Annotated[Expression | None, Field(examples=["bids.auction"])] = None
    """Kafka: the records' key, as a SQL expression over the streams; by default what tells one result from all others."""

    @model_validator(mode="wrap")
    @classmethod
    def _of_kafka(cls, data: Any, handler: Callable[[Any], Sink]) -> Sink:
        return with_faults(cls.__name__, data, handler, _check_sink)


def _check_sink(data: Any) -> Iterator[Fault]:
    kafka, options = _is_kafka(data), _options(data)
    for name in ("topic", "servers", "value", "key"):
        if _of(data, name) is not None and not kafka:
            yield (name,), f"{name} goes with format kafka, not with {_of(data, 'format') or 'console'!r}"
        elif _of(data, name) is not None and name in ("value", "key") and _of(data, "topic") is None:
            yield (name,), f"{name} needs topic: without it the result's columns are taken for the record's own, untouched"
    if not kafka:
        return
    if _of(data, "topic") is not None and "topic" in options:
        yield ("topic",), "topic and the option topic both say where to write: leave one out"
    if _of(data, "servers") is not None and SERVERS in options:
        yield ("servers",), f"servers and the option {SERVERS} both say where the brokers are: leave one out"


class Trigger(Model):
    """When micro-batches run. Exactly one of the two, or neither for as fast as possible."""

    processing_time: Annotated[str | None, Field(examples=["1 second"])] = None
    """Start a batch this often."""
    available_now: Annotated[Flag, Field(examples=[False])] = False
    """Work through what the sources hold, in micro-batches, and end."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Trigger:
        if self.available_now and self.processing_time is not None:
            raise ValueError("trigger takes processing_time or available_now, not both")
        return self


class Routing(StrEnum):
    """Who orders probes: the plan, for all cells; or each cell of engine stem for itself, by what it measures."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


class TableDraft(Model):
    """What a query says of a table: its columns, not where they are read from."""

    table: Annotated[str, Field(max_length=4096, examples=["products"])] = ""
    """The table's name in the query."""
    columns: Annotated[dict[Identifier, Expression], Field(examples=[{"id": "product_id"}])] = {}
    """Plan attribute → column or SQL expression; by default the column of the same name."""
    where: Annotated[str, Field(max_length=MAX_WHERE, examples=["active"])] = ""
    """Which rows take part, as a SQL condition over the table's columns; by default all."""


class BindingsDraft(Model):
    """What a query says of bindings. To run it they still need a source for each stream and table, a sink and a checkpoint."""

    streams: Annotated[dict[Identifier, StreamDraft], Field(min_length=1)]
    """One per stream of the query."""
    tables: Annotated[dict[Identifier, TableDraft], Field(exclude_if=is_empty)] = {}
    """One per table of the query."""
    select: Annotated[list[Expression], Field(examples=[["bids.price AS price"]])] = []
    """Result columns as SQL expressions over the streams; by default one struct column per stream."""


class TableScan(Model):
    """Where a table is read as a whole: any batch source of Spark."""

    format: Annotated[str, Field(min_length=1, examples=["parquet"])]
    """Name of the Spark source: parquet, csv, jdbc, …"""
    options: Annotated[dict[str, str], Field(examples=[{"path": "data/products"}])] = {}
    """Options of the source, passed on untouched."""
    schema_: Annotated[str, Field(alias="schema", examples=["id BIGINT, name STRING"])] = ""
    """Columns of the source as Spark DDL; empty where the source knows its own."""


class TableIndex(Model):
    """Where a table is asked by key: a table or view of any database that SQLAlchemy speaks to."""

    url: Annotated[str, Field(min_length=1, max_length=4096, examples=["postgresql+psycopg://reader@db.example/shop"])]
    """SQLAlchemy's URL of the database. Workers use it as well as the driver; it is written down nowhere."""
    table: Annotated[str, Field(min_length=1, max_length=255, examples=["products"])]
    """The table or view."""
    schema_: Annotated[str | None, Field(alias="schema", min_length=1, max_length=255, examples=["public"])] = None
    """The database's schema that it is in; by default the one that the user sees first."""
    side_by_side: Annotated[int | None, Field(ge=1, le=256, examples=[8])] = None
    """Calls at a time, in each cell; by default what the plan says, spread over the cells."""
    retry_for: Annotated[str, Field(examples=["60 seconds"])] = "60 seconds"
    """For how long a call that fails is tried again before the batch fails, as a Spark interval."""


class TableBinding(Model):
    """One table of the plan: how it is read, how it is asked, or both."""

    scan: TableScan | None = None
    """Where it is read as a whole: needed where the plan keeps it."""
    index: TableIndex | None = None
    """Where it is asked by key: needed where the plan asks it."""
    refresh: Annotated[str | None, Field(examples=["1 hour"])] = None
    """Read it again so often, as a Spark interval; of a table that is asked, forget the answers that were kept."""
    columns: Annotated[dict[Identifier, Expression], Field(examples=[{"id": "product_id"}])] = {}
    """Plan attribute → column, or SQL expression where the table has no index; by default the column of the same name."""
    where: Annotated[str, Field(max_length=MAX_WHERE, examples=["active"])] = ""
    """Which rows take part, as a SQL condition over the table's columns; not where the table has an index: a view can do that for both."""

    @model_validator(mode="wrap")
    @classmethod
    def _reached(cls, data: Any, handler: Callable[[Any], TableBinding]) -> TableBinding:
        return with_faults(cls.__name__, data, handler, _check_table)


def _check_table(data: Any) -> Iterator[Fault]:
    if not isinstance(data, (Mapping, BaseModel)):
        return
    if _of(data, "scan") is None and _of(data, "index") is None:
        yield (), "a table needs scan, where it is read, or index, where it is asked by key"
    if _of(data, "index") is not None and _of(data, "where"):
        yield ("where",), "a table that has an index is asked by key alone: make a view with this condition, and name the view under index and scan"


class Bindings(Model):
    """Sources, columns, sink and settings of one pipeline."""

    streams: Annotated[dict[Identifier, StreamBinding], Field(min_length=1)]
    """One binding per stream of the plan."""
    tables: dict[Identifier, TableBinding] = {}
    """One binding per table of the plan."""
    select: Annotated[list[Expression], Field(examples=[["bids.price AS price"]])] = []
    """Result columns as SQL expressions over the streams and tables; by default one struct column for each."""
    sink: Sink = Sink()
    """Where results go; the console by default."""
    checkpoint: Annotated[str, Field(min_length=1, examples=["checkpoints/bids"])]
    """Folder of the pipeline's checkpoint."""
    trigger: Trigger = Trigger()
    """When micro-batches run."""
    routing: Annotated[Routing, Field(examples=["adaptive"])] = Routing.FIXED
    """Whether each cell orders its probes itself; worth it where cells see different data."""
    spark: Annotated[dict[str, str], Field(examples=[{"spark.sql.shuffle.partitions": "2"}])] = {}
    """Spark settings."""

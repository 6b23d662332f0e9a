"""A topic's records as rows, and results as records.

A topic that is bound with `value` has the columns of its values, and two more that are kept only where an expression names them:

    record       a struct of the record's own key, topic, partition, offset, timestamp, and headers with the option includeHeaders
    record_id    what tells the record from all others of its topic: its partition and offset in one number

A value that does not decode never becomes a row of nulls. It is counted under an observation of its stream, and then dropped, or it fails
the batch, or another query writes it to a topic (see `letters`).

Into Kafka, Spark writes at least once: a batch that is run again writes again. So every result carries what tells it from all others,
the ids of its rows: as the header `watersmeet-id`, and as the record's key unless the sink has a key of its own. The ids do not depend on plan,
batch or engine, and records of one key lie in one partition: a consumer that remembers ids drops every duplicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import KAFKA, SERVERS, BadTopic, Bindings, Source, StreamBinding, Value, ValueFormat
from spark_adapter.errors import MARK
from spark_adapter.expressions import quoted

__all__ = [
    "ID_HEADER",
    "RECORD",
    "RECORD_ID",
    "bad_counts",
    "bad_records",
    "batch_options",
    "event_time_of",
    "good_rows",
    "identified",
    "judged",
    "reading_options",
    "records",
    "servers_of_sink",
    "value_type",
    "writing_options",
]

RECORD, RECORD_ID = "record", "record_id"
ID_HEADER = "watersmeet-id"
OBSERVED = "bad records of "  # and the stream's name: the observation that counts them
DECODED, BAD, CORRUPT = "decoded", "bad", "_watersmeet_corrupt"
OFFSET_BITS = 44  # of a record's id; an offset stays below this for centuries, and half a million partitions go above it


def reading_options(source: Source) -> dict[str, str]:
    """What Spark's reader is told: the source's options as they are, and where topic and servers are given, those in the connector's words."""
    own = {"subscribe": source.topic, SERVERS: source.servers}
    return {key: value for key, value in own.items() if value is not None} | source.options


def batch_options(source: Source) -> dict[str, str]:
    """What Spark's reader is told for a stretch that is read once: by default all that the topic holds, or from and up to the offsets (as JSON) or
    times that the options say. Where a stream begins does not concern a batch, and "latest" is refused there."""
    whole = ("earliest", "latest")
    return {key: value for key, value in reading_options(source).items() if not (key.lower() == "startingoffsets" and value.lower() in whole)}


def event_time_of(binding: StreamBinding) -> str:
    """The expression of a row's time: the binding's, or the time that Kafka has for the record."""
    if binding.event_time is not None:
        return binding.event_time
    return f"{RECORD}.timestamp" if binding.source.value is not None else "timestamp"


def value_type(value: Value) -> T.StructType:
    """The columns of a topic's values. Raises what Spark raises where the schema is none."""
    if _is_json(value):
        from pyspark.sql.avro.functions import from_avro

        spark = SparkSession.active()
        kind = spark.range(0).select(from_avro(F.lit(b""), value.schema_).alias("v")).schema["v"].dataType
    else:
        kind = T.StructType.fromDDL(value.schema_)
    if not isinstance(kind, T.StructType):
        raise ValueError(f"it must have columns, got {kind.simpleString()}")
    return kind


def judged(frame: DataFrame, source: Source) -> DataFrame:
    """The connector's columns, with the value decoded and whether it is bad. Of a stream or of a stretch that is read as a batch."""
    assert source.value is not None
    kind = value_type(source.value)
    content = F.col("value") if not source.value.skip_bytes else F.expr(f"substring(value, {source.value.skip_bytes + 1})")
    decoded, bad = (_avro if source.value.format is ValueFormat.AVRO else _text)(content, source.value, kind, frame.sparkSession)
    return frame.withColumn(DECODED, decoded).withColumn(BAD, bad)


def good_rows(frame: DataFrame, name: str, source: Source) -> DataFrame:
    """The rows of a topic, of `judged` records; bad ones are counted and left out, or fail the batch."""
    assert source.value is not None
    bad = F.col(BAD)
    if source.on_bad == "fail":
        place = F.concat_ws(" ", F.lit("partition"), F.col("partition"), F.lit("offset"), F.col("offset"))
        what = f"the value is not {source.value.format.value} of the schema that {name} is bound with (on_bad: fail)"
        says = F.concat(F.lit(f"{MARK}a record of topic "), F.col("topic"), F.lit(", "), place, F.lit(f", does not decode: {what}"))
        bad = F.when(bad, F.raise_error(says)).otherwise(F.lit(False)).cast("boolean")
    counted = frame.observe(OBSERVED + name, F.count_if(F.col(BAD)).alias("rows"))
    own = ["key", "topic", "partition", "offset", "timestamp", *(["headers"] if "headers" in frame.columns else [])]
    columns = [F.col(f"{DECODED}.{quoted(field.name)}").alias(field.name) for field in value_type(source.value).fields]
    return counted.where(~bad).select(*columns, F.struct(*own).alias(RECORD), _record_id(source).alias(RECORD_ID))


def bad_records(frame: DataFrame) -> DataFrame:
    """The bad ones of `judged` records as they came, with where they came from as headers."""
    headers = [
        F.struct(F.lit(f"watersmeet-{name}").alias("key"), F.col(name).cast("string").cast("binary").alias("value"))
        for name in ("topic", "partition", "offset")
    ]
    return frame.where(F.col(BAD)).select("key", "value", F.array(*headers).alias("headers"))


def bad_counts(observed: Mapping[str, Any]) -> dict[str, int]:
    """Per stream how many records of a batch did not decode, from what Spark has observed in it."""
    return {name.removeprefix(OBSERVED): int(figures["rows"]) for name, figures in observed.items() if name.startswith(OBSERVED)}


def identified(bindings: Bindings) -> bool:
    """Whether results can be told apart by the records they are made of: all streams must be topics with decoded values."""
    return all(binding.source.value is not None for binding in bindings.streams.values())


def records(columns: Sequence[Column], bindings: Bindings) -> list[Column]:
    """Key, value and headers of the records that a sink gets: `columns` are the result's, over the streams' rows."""
    form = bindings.sink.value or ValueFormat.JSON
    row = F.struct(*columns)
    if form is ValueFormat.JSON:
        value = F.to_json(row, {"ignoreNullFields": "false"})
    elif form is ValueFormat.CSV:
        value = F.to_csv(row)
    else:
        from pyspark.sql.avro.functions import to_avro

        value = to_avro(row)
    found = [value.cast("binary").alias("value")]
    key = None if bindings.sink.key is None else F.expr(bindings.sink.key).cast("string")
    if identified(bindings):
        # In an order that is not the plan's: another plan gives the same result the same id.
        whole = F.concat_ws("-", *(F.col(f"{quoted(name)}.{RECORD_ID}").cast("string") for name in sorted(bindings.streams)))
        key = whole if key is None else key
        found.append(F.array(F.struct(F.lit(ID_HEADER).alias("key"), whole.cast("binary").alias("value"))).alias("headers"))
    if key is not None:
        found.append(key.cast("binary").alias("key"))
    return found


def servers_of_sink(bindings: Bindings) -> str | None:
    """Where the sink's brokers are: where it says, or where all topics of the streams are; None where these say nothing or differ."""
    options = {key.lower(): value for key, value in bindings.sink.options.items()}
    if bindings.sink.servers is not None or SERVERS in options:
        return bindings.sink.servers or options[SERVERS]
    places = {_servers(binding.source) for binding in bindings.streams.values() if binding.source.format.lower() == KAFKA}
    return next(iter(places)) if len(places) == 1 else None


def writing_options(bindings: Bindings) -> dict[str, str]:
    """What Spark's writer is told: the sink's options as they are, and where a topic is given, that and its servers in the connector's words."""
    sink = bindings.sink
    if sink.format.lower() != KAFKA:
        return dict(sink.options)
    own = {"topic": sink.topic, SERVERS: servers_of_sink(bindings)}
    return {key: value for key, value in own.items() if value is not None} | _security(bindings) | sink.options


def letters_options(source: Source) -> dict[str, str]:
    """What Spark's writer of bad records is told: to the brokers that they came from, with the same credentials."""
    assert isinstance(source.on_bad, BadTopic)
    return {SERVERS: _servers(source) or "", "topic": source.on_bad.topic} | _access(source.options)


def _servers(source: Source) -> str | None:
    given = {key.lower(): value for key, value in source.options.items()}
    return source.servers or given.get(SERVERS)


def _access(options: Mapping[str, str]) -> dict[str, str]:
    """Those options that let a client in."""
    kinds = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")
    return {key: value for key, value in options.items() if key.lower().startswith(kinds)}


def _security(bindings: Bindings) -> dict[str, str]:
    """A sink that takes its servers from the streams takes what lets them in as well."""
    if bindings.sink.servers is not None or SERVERS in {key.lower() for key in bindings.sink.options}:
        return {}
    topics = (binding.source for binding in bindings.streams.values() if binding.source.format.lower() == KAFKA)
    return _access(next((source.options for source in topics), {}))


def _is_json(value: Value) -> bool:
    """Whether the schema is Avro's own, in JSON."""
    return value.format is ValueFormat.AVRO and value.schema_.lstrip().startswith("{")


def _text(content: Column, value: Value, kind: T.StructType, spark: SparkSession) -> tuple[Column, Column]:
    """JSON or CSV: Spark notes what it could not read of a value in a column of its own."""
    jvm: Any = spark._jvm
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(T.StructType([*kind.fields, T.StructField(CORRUPT, T.StringType())]).json()).toDDL()
    options = value.options | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    text = content.cast("string")
    decoded = F.from_json(text, schema, options) if value.format is ValueFormat.JSON else F.from_csv(text, schema, options)
    # Empty text is a row of nulls to the reader of CSV; bytes that are no text would be taken for some.
    unreadable = text.isNull() | (F.trim(text) == "") | ~F.is_valid_utf8(text)
    return decoded, unreadable | F.col(DECODED).isNull() | F.col(f"{DECODED}.{CORRUPT}").isNotNull()


def _avro(content: Column, value: Value, kind: T.StructType, spark: SparkSession) -> tuple[Column, Column]:
    """Avro: of a value that it cannot read Spark makes a row of nulls, and of no other unless all of it is null."""
    from pyspark.sql.avro.functions import from_avro

    if _is_json(value):
        schema = value.schema_
    else:
        jvm: Any = spark._jvm
        java = jvm.org.apache.spark.sql.types.DataType.fromJson(kind.json())
        schema = str(jvm.org.apache.spark.sql.avro.SchemaConverters.toAvroType(java, False, "topLevelRecord", "").toString())
    decoded = from_avro(content, schema, value.options | {"mode": "PERMISSIVE"})
    return decoded, _all_null(f"{DECODED}.{quoted(field.name)}" for field in kind.fields)


def _all_null(names: Iterable[str]) -> Column:
    found = F.lit(True)
    for name in names:
        found &= F.col(name).isNull()
    return found


def _record_id(source: Source) -> Column:
    if source.topic is not None:
        return F.shiftleft(F.col("partition").cast("bigint"), OFFSET_BITS).bitwiseOR(F.col("offset"))
    return F.concat_ws("/", "topic", "partition", "offset")

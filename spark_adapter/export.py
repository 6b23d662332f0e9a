"""A plan and its bindings as a PySpark script that stands alone: what engine `native` runs, written down for people to keep.

Text from plan and bindings enters the script only as quoted literals, so none of it can become code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from models.bindings import Bindings, StreamBinding
from models.plan import Plan
from spark_adapter.documents import check_tree
from spark_adapter.errors import BindingError
from spark_adapter.expressions import quoted
from spark_adapter.kafka.topics import event_time_of, reading_options
from spark_adapter.native import NativeJoin, check_native, constant_key, native_joins, plain_time
from spark_adapter.session import JOINS
from spark_adapter.sources import attributes
from spark_adapter.tables.databases import unbound

__all__ = ["export"]

HEAD = '''
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F


def column(frame: DataFrame, text: str) -> Column:
    """The column of that name where there is one, else the text as a SQL expression."""
    return F.col("`" + text.replace("`", "``") + "`") if text in frame.columns else F.expr(text)


builder = SparkSession.builder.appName("watersmeet")'''


def export(plan: Plan, bindings: Bindings) -> str:
    """The script. Raises EngineError for a plan that Spark's own joins cannot run, BindingError where a stream has no binding."""
    check_tree(plan)
    check_native(plan, bindings)
    missing = [stream.name for stream in plan.query.streams if stream.name not in bindings.streams]
    faults = [("/streams", f"there is no binding for {', '.join(missing)}; every stream of the plan needs one")] if missing else []
    faults += unbound(plan, bindings)
    if faults:
        raise BindingError(faults)
    decoded = [f"/streams/{name}/source/value" for name, binding in bindings.streams.items() if binding.source.value is not None]
    decoded += ["/sink/topic"] if bindings.sink.topic is not None else []
    if decoded:
        raise BindingError([(at, "a script has no records decoded or made for it; bind the topic by options and expressions") for at in decoded])
    joins = list(native_joins(plan))
    variables = {stream.name: f"{stream.name}_stream" for stream in plan.query.streams}
    variables |= {table.name: f"{table.name}_table" for table in plan.query.tables}
    # A stream may be called join_1; its variable is join_1_stream.
    variables |= {join.id: f"join_{k}" for k, join in enumerate(joins, 1)}
    result = variables[joins[-1].id if joins else plan.query.streams[0].name]
    lines = [
        *_opening(plan),
        HEAD,
        *(f"builder = builder.config({key!r}, {value!r})" for key, value in (JOINS | bindings.spark).items()),
        "spark = builder.getOrCreate()",
        *_streams(plan, bindings, variables),
        *_tables(plan, bindings, variables),
        *(line for join in joins for line in _join(join, variables)),
        *_sink(plan, bindings, result),
    ]
    return "\n".join(lines) + "\n"


def _opening(plan: Plan) -> Iterator[str]:
    names = ", ".join(stream.name for stream in plan.query.streams)
    names += " with the tables " + ", ".join(table.name for table in plan.query.tables) if plan.query.tables else ""
    yield f'"""Joins the streams {names}, two at a time, as planned by Watersmeet. Needs PySpark 4 and nothing else.'
    yield ""
    yield "Of every result all predicates hold, and each row was still in its stream's window when the last one arrived:"
    yield "ts_j − ts_i is at most the window of i, for all streams i and j."
    yield ""
    yield "While the joins run, a stream's columns are named after it: `bids` is its row, `bids@ts` its event time,"
    yield "`bids.auction` an attribute that a predicate uses."
    yield '"""'


def _streams(plan: Plan, bindings: Bindings, variables: dict[str, str]) -> Iterator[str]:
    for stream in plan.query.streams:
        name, variable, binding = stream.name, variables[stream.name], bindings.streams[stream.name]
        names = attributes(plan.query)[name]
        yield ""
        yield f"# {name}: a window of {stream.window.seconds} seconds."
        yield f"{variable} = {_source(binding)}"
        if binding.where:
            yield f"{variable} = {variable}.where(column({variable}, {binding.where!r}))"
        yield f"{variable} = ("
        yield f"    {variable}.select("
        yield f'        F.struct("*").alias({name!r}),'
        yield f'        column({variable}, {event_time_of(binding)!r}).cast("timestamp").alias({f"{name}@ts"!r}),'
        for attribute in names:
            yield f"        column({variable}, {binding.columns.get(attribute, attribute)!r}).alias({f'{name}.{attribute}'!r}),"
        yield "    )"
        yield f"    .withWatermark({quoted(f'{name}@ts')!r}, {binding.watermark!r})"
        present = [f"{quoted(column)} IS NOT NULL" for column in (f"{name}@ts", *(f"{name}.{attribute}" for attribute in names))]
        yield f"    .where({' AND '.join(present)!r})"
        yield ")"


def _tables(plan: Plan, bindings: Bindings, variables: dict[str, str]) -> Iterator[str]:
    for table in plan.query.tables:
        name, variable, binding = table.name, variables[table.name], bindings.tables[table.name]
        assert binding.scan is not None
        names = attributes(plan.query)[name]
        schema = f".schema({binding.scan.schema_!r})" if binding.scan.schema_ else ""
        yield ""
        yield f"# {name}: a table, which Spark reads in every batch."
        yield f"{variable} = spark.read.format({binding.scan.format!r}).options(**{binding.scan.options!r}){schema}.load()"
        if binding.where:
            yield f"{variable} = {variable}.where(column({variable}, {binding.where!r}))"
        yield f"{variable} = {variable}.select("
        yield f'    F.struct("*").alias({name!r}),'
        for attribute in names:
            yield f"    column({variable}, {binding.columns.get(attribute, attribute)!r}).alias({f'{name}.{attribute}'!r}),"
        yield ")"


def _source(binding: StreamBinding) -> str:
    schema = f".schema({binding.source.schema_!r})" if binding.source.schema_ else ""
    return f"spark.readStream.format({binding.source.format!r}).options(**{reading_options(binding.source)!r}){schema}.load()"


def _join(join: NativeJoin, variables: dict[str, str]) -> Iterator[str]:
    left, right, variable = variables[join.left], variables[join.right], variables[join.id]
    conditions = list(join.conditions)
    yield ""
    if join.constant_key:
        yield "# Spark joins streams only on a key, and no predicate here is one: every row gets the same, in a form that is not optimized away."
        yield f'{left} = {left}.withColumn("left key", F.expr({constant_key(join.timed[0])!r}))'
        yield f'{right} = {right}.withColumn("right key", F.expr({constant_key(join.timed[1])!r}))'
        conditions.insert(0, "`left key` = `right key`")
    yield f"{variable} = {left}.join("
    yield f"    {right},"
    yield "    F.expr("
    yield '        " AND ".join('
    yield "            ["
    yield from (f"                {condition!r}," for condition in conditions or ["true"])
    yield "            ]"
    yield "        )"
    yield "    ),"
    yield ")" + (".drop('left key', 'right key')" if join.constant_key else "")
    if join.stripped:
        yield "# Only one event time may leave a join that feeds another: the others become plain timestamps."
    for name in join.stripped:
        yield f"{variable} = {variable}.withColumn({f'{name}@ts'!r}, F.expr({plain_time(name)!r}))"


def _sink(plan: Plan, bindings: Bindings, result: str) -> Iterator[str]:
    columns: Iterable[str]
    if bindings.select:
        columns = (f"F.expr({text!r})" for text in bindings.select)
    else:
        columns = (f"F.col({quoted(stream.name)!r})" for stream in plan.query.relations)
    yield ""
    yield f"results = {result}.select("
    yield from (f"    {column}," for column in columns)
    yield ")"
    yield f"writer = results.writeStream.format({bindings.sink.format!r}).options(**{bindings.sink.options!r})"
    yield f'writer = writer.outputMode("append").option("checkpointLocation", {bindings.checkpoint!r})'
    if bindings.trigger.available_now:
        yield "writer = writer.trigger(availableNow=True)"
    elif bindings.trigger.processing_time is not None:
        yield f"writer = writer.trigger(processingTime={bindings.trigger.processing_time!r})"
    yield "writer.start().awaitTermination()"

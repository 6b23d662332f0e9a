"""All that decides what is in a state, in a form that can be written down and compared.

A row of a state is what a source's row became: by the source's columns and how they are read, by the expressions of event time and
attributes, in the types that predicates compare in, for as long as its window lasts. If any of it changes, old rows and new ones do not
belong together. Watermarks may change: they only decide when rows leave, and a state from which some have left is right under any watermark.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import Bindings, StreamBinding, TableBinding
from models.plan import Plan
from spark_adapter.kafka.topics import event_time_of
from spark_adapter.sources import Inputs, TableRows, attributes
from spark_adapter.stem.programming import kept_streams

__all__ = ["layout_of"]

# Of a binding: where rows come from, by either name, and how late they may be. All its other fields are written down, those of later versions too.
NOT_STATE = {"source", "table", "columns", "watermark", "idle_after"}

# Options of Spark's own sources that decide which values are read of the same bytes. Others say where to read, how much, and how fast.
READING_OPTIONS = """
    allowBackslashEscapingAnyCharacter allowComments allowNonNumericNumbers allowNumericLeadingZeros allowSingleQuotes allowUnquotedControlChars
    allowUnquotedFieldNames attributePrefix charset charToEscapeQuoteEscaping columnNameOfCorruptRecord comment dateFormat delimiter
    emptyValue enableDateTimeParsingFallback encoding escape excludeAttribute header ignoreLeadingWhiteSpace ignoreSurroundingSpaces
    ignoreTrailingWhiteSpace includeHeaders includeTimestamp lineSep locale mode multiLine nanValue negativeInf nullValue positiveInf
    prefersDecimal primitivesAsString quote rowTag sep timestampFormat timestampNTZFormat timeZone unescapedQuoteHandling valueTag wholetext
"""


def layout_of(plan: Plan, bindings: Bindings, inputs: Inputs, spark: SparkSession) -> dict[str, Any]:
    """What the states of both engines depend on; `inputs` as `read_inputs` gives them."""
    wanted = attributes(plan.query)
    streams, kept = inputs.streams, kept_streams(plan)
    found = {
        "streams": {
            stream.name: {"window": stream.window.model_dump(mode="json"), "columns": streams[stream.name].schema.simpleString()}
            | _bound(bindings.streams[stream.name], wanted[stream.name])
            | ({"state": "kept" if stream.name in kept else "not kept, since only tables are joined with it"} if inputs.tables else {})
            for stream in sorted(plan.query.streams, key=lambda stream: stream.name)
        },
        "predicates": sorted(f"{p.left} {p.op.value} {p.right}" for p in plan.query.predicates),
        # Texts become times by it.
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
    }
    return found | {f"table {name}": _of_table(bindings.tables[name], rows, wanted[name]) for name, rows in sorted(inputs.tables.items())}


def _of_table(binding: TableBinding, rows: TableRows, wanted: list[str]) -> str:
    """What rows of a kept table are made by, and whether Spark has a source of its versions; where it is read and asked may change."""
    columns = [f"{attribute} is {binding.columns.get(attribute, attribute)}" for attribute in wanted]
    condition = [f"where {binding.where}"] if binding.where else []
    return "; ".join([rows.frame.schema.simpleString(), *columns, *condition, "scan" if binding.scan is not None else "no scan"])


def _bound(binding: StreamBinding, wanted: list[str]) -> dict[str, Any]:
    """A stream's binding, each part by its name."""
    source = binding.source
    # What is left at its default is what versions did that did not know the field.
    stated = binding.model_dump(mode="json", exclude=NOT_STATE, exclude_defaults=True)
    found: dict[str, Any] = {name.replace("_", " "): value for name, value in stated.items()}
    found["event time"] = event_time_of(binding)
    found["source"] = source.format.lower()
    if source.value is not None:
        found["values"] = f"{source.value.format.value} of {source.value.schema_}, {source.value.skip_bytes} bytes skipped"
        found |= {f"option {name} of values": value for name, value in sorted(source.value.options.items())}
    if source.schema_:
        found["source columns"] = T.StructType.fromDDL(source.schema_).simpleString()
    found |= {f"expression of {attribute}": binding.columns.get(attribute, attribute) for attribute in wanted}
    reading = READING_OPTIONS.lower().split()
    found |= {f"option {name}": value for name, value in sorted(source.options.items()) if name.lower() in reading}
    return found

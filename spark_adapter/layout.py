"""All that decides what is in a state, in a form that can be written down and compared.

A row of a state is what a source's row became: by the source's columns and how they are read, by the expressions of event time and
attributes, in the types that predicates compare in, for as long as its window lasts. If any of it changes, old rows and new ones do not
belong together. Watermarks may change: they only decide when rows leave, and a state from which some have left is right under any watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import Bindings, StreamBinding
from models.plan import Plan
from spark_adapter.kafka.topics import event_time_of
from spark_adapter.sources import attributes

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


def layout_of(plan: Plan, bindings: Bindings, streams: Mapping[str, DataFrame], spark: SparkSession) -> dict[str, Any]:
    """What the states of both engines depend on; `streams` as `read_streams` gives them."""
    wanted = attributes(plan.query)
    return {
        "streams": {
            stream.name: {"window": stream.window.model_dump(mode="json"), "columns": streams[stream.name].schema.simpleString()}
            | _bound(bindings.streams[stream.name], wanted[stream.name])
            for stream in sorted(plan.query.streams, key=lambda stream: stream.name)
        },
        "predicates": sorted(f"{p.left} {p.op.value} {p.right}" for p in plan.query.predicates),
        # Texts become times by it.
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
    }


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

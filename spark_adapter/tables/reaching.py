"""How workers get at tables that are asked: the columns they read, in the types that rows have on Spark."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import types as T  # noqa: N812 - everyone's name for it
from pyspark.sql.pandas.types import to_arrow_schema

from models.bindings import Bindings
from models.plan import Plan
from spark_adapter.expressions import milliseconds
from spark_adapter.sources import TableRows, attributes
from spark_adapter.stem.lookup import Reach

__all__ = ["reaches"]


def reaches(plan: Plan, bindings: Bindings, tables: Mapping[str, TableRows], spark: SparkSession) -> dict[str, Reach]:
    """Per table that has an index; a table that the plan keeps may be asked until it is read, or by another plan."""
    found = {}
    wanted = attributes(plan.query)
    zone = spark.conf.get("spark.sql.session.timeZone")
    for name, rows in tables.items():
        binding = bindings.tables[name]
        if binding.index is None:
            continue
        row = rows.frame.schema["row"].dataType
        assert isinstance(row, T.StructType)
        columns = {attribute: binding.columns.get(attribute, attribute) for attribute in wanted[name]}
        read = sorted({*row.names, *columns.values()})
        compared = {attribute: rows.frame.schema[f"a_{attribute}"].dataType for attribute in wanted[name]}
        index = binding.index
        found[name] = Reach(
            index.url,
            index.table,
            index.schema_,
            _arrow({column: rows.columns[column].dataType for column in read}, zone),
            {f"{name}.{attribute}": (columns[attribute], _arrow({"": kind}, zone).field(0).type) for attribute, kind in compared.items()},
            tuple(row.names),
            index.side_by_side,
            milliseconds(spark, index.retry_for) / 1000,
        )
    return found


def _arrow(kinds: Mapping[str, T.DataType], zone: str | None) -> pa.Schema:
    """As Spark hands columns to Python."""
    return to_arrow_schema(T.StructType([T.StructField(name, kind) for name, kind in kinds.items()]), timezone=zone)

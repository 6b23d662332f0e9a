"""SQL queries planned and run on Spark, over the rows of `tests.sql_cases`: one folder of files per table, one run per query."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from models.sql import SqlMeaning
from solvers.planner import plan
from solvers.sql.bindings import completed
from solvers.to_sql import to_sql
from tests.spark_adapter.plans import write_stream
from tests.spark_adapter.runs import NO_LAST_BATCH, Job, run_all
from tests.sql_cases import SCHEMAS, Query, plain, rows_of

__all__ = ["exported_rows", "spark_rows", "write_tables"]

FILES = 2  # of a table: each is a batch
Rows = Counter[tuple[Any, ...]]


def write_tables(folder: Path) -> None:
    for table in SCHEMAS:
        write_stream(folder / table, rows_of(table), FILES)


def spark_rows(spark: SparkSession, folder: Path, queries: Sequence[Query], engine: str) -> dict[str, Rows]:
    """The rows of each query, by its name; all are started on one session."""
    jobs = {query.name: _job(folder, query, engine) for query in queries}
    run_all(spark, list(jobs.values()))
    return {name: _written(job.out / "out") for name, job in jobs.items()}


def exported_rows(spark: SparkSession, folder: Path, query: Query) -> Rows:
    """The rows of the query that its plan of binary joins is exported as, run by Spark over streams with watermarks."""
    meaning = query.meaning()
    text = to_sql(_planned(meaning, "native"), meaning.bindings)
    for stream in meaning.bindings.streams.values():
        table = stream.table.strip("`").lower()  # to Spark as to us, case does not matter
        reader = spark.readStream.format("json").schema(SCHEMAS[table]).option("maxFilesPerTrigger", 1)
        reader.load(str(folder / table)).withWatermark(stream.event_time.strip("`"), "0 seconds").createOrReplaceTempView(table)
    for kept in meaning.bindings.tables.values():
        table = kept.table.strip("`").lower()
        spark.read.format("json").schema(SCHEMAS[table]).load(str(folder / table)).createOrReplaceTempView(table)
    place = folder / f"exported {query.name}"
    writer = spark.sql(text).writeStream.format("parquet").option("path", str(place / "out"))
    writer.option("checkpointLocation", str(place / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    return _written(place / "out")


def _planned(meaning: SqlMeaning, engine: str) -> Plan:
    request = meaning.request.model_dump(mode="json")
    if engine == "native":
        request["options"]["method"] = "bjtree"
        for table in request["query"].get("tables", ()):
            table["access"] = [{"kind": "scan"}]  # Spark's own joins ask nobody by key
    return plan(PlanRequest.model_validate(request))


def _job(folder: Path, query: Query, engine: str) -> Job:
    meaning = query.meaning()
    place = folder / f"{engine} {query.name}"
    return Job(_planned(meaning, engine), folder, cells=1, engine=engine, place=place, bindings=_bindings(folder, place, meaning))


def _bindings(folder: Path, place: Path, meaning: SqlMeaning) -> Bindings:
    """As a user would have them: sources by the names of their tables, joined to what the query says."""
    sources: Mapping[str, Any] = {
        "streams": {
            table: {"source": {"format": "json", "options": {"path": str(folder / table), "maxFilesPerTrigger": "1"}, "schema": schema}}
            for table, schema in SCHEMAS.items()
        },
        "tables": {
            table: {"scan": {"format": "json", "options": {"path": str(folder / table)}, "schema": schema}} for table, schema in SCHEMAS.items()
        },
        "sink": {"format": "parquet", "options": {"path": str(place / "out")}},
        "checkpoint": str(place / "checkpoint"),
        "trigger": {"available_now": True},
        "spark": NO_LAST_BATCH,
    }
    return Bindings.model_validate(completed(meaning.bindings, sources))


def _written(folder: Path) -> Rows:
    """The results, structs taken apart: SQL's star has columns side by side."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        found = connection.execute(f"SELECT * FROM read_parquet('{folder}/*.parquet')").fetchall()
    return Counter(
        tuple(part for value in row for part in (map(plain, value.values()) if isinstance(value, dict) else [plain(value)])) for row in found
    )

"""Orders against a table of customers: kept, asked with and without kept answers, and Spark's own stream-static join, over the same rows.

    python -m tests.bench.bench_tables [--rate 200000] [--seconds 20] [--customers 1000000] [--values 100000]

Orders come as files of one second of event time each, so a run that takes less wall time than event time keeps up with the rate. Each run takes its
files in batches of five, after one that warms the JVM up and is not counted. The database is PostgreSQL where it can be had, else SQLite. CPU is that
of the driver, the JVM and Spark's Python workers, without the database; the operator's own is what the plan predicts, by the default costs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from pyspark.sql import SparkSession
from sqlalchemy import create_engine, text

from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan
from spark_adapter import compile
from spark_adapter.session import open_session
from tests.app.tools import NoDatabaseError
from tests.bench.bench_stem import tree_cpu
from tests.spark_adapter.postgres import running_postgres

__all__ = ["main"]

INDEX = {"kind": "index", "bound": ["id"], "cpu": 2e-5, "seconds": 0.002, "keys": 5000}
WAYS: dict[str, tuple[str, list[dict[str, Any]], str]] = {
    "kept": ("stem", [{"kind": "scan"}], "off"),
    "asked": ("stem", [INDEX], "off"),
    "asked, answers kept": ("stem", [INDEX], "auto"),
    "Spark's stream-static join": ("native", [{"kind": "scan"}], "off"),
}
FILES_A_BATCH = 5


@dataclass(frozen=True)
class Size:
    """What is joined."""

    rate: int
    seconds: int
    customers: int
    values: int
    """Customers that order at all."""


def planned(size: Size, access: list[dict[str, Any]], caches: str) -> Plan:
    request = {
        "query": {
            "streams": [{"name": "orders", "rate": size.rate, "window": {"seconds": 60}, "distinct": {"customer": size.values}}],
            "tables": [{"name": "customers", "rows": size.customers, "distinct": {"id": size.customers}, "access": access}],
            "predicates": [{"left": "orders.customer", "right": "customers.id"}],
        },
        "options": {"caches": caches},
    }
    return plan(PlanRequest.model_validate(request))


def written(folder: Path, size: Size) -> pl.DataFrame:
    """Orders in files, and the customers."""
    rng = np.random.default_rng(0)
    (folder / "orders").mkdir()
    for second in range(size.seconds):
        ts = 1_700_000_000_000_000 + second * 1_000_000 + np.arange(size.rate) * 1_000_000 // size.rate
        orders = pl.DataFrame({"id": np.arange(size.rate) + second * size.rate, "customer": rng.integers(0, size.values, size.rate), "ts": ts})
        path = folder / "orders" / f"{second:05}.parquet"
        orders.with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC"))).write_parquet(path)
        os.utime(path, (1_000_000_000 + second, 1_000_000_000 + second))
    customers = pl.DataFrame({"id": np.arange(size.customers), "region": rng.integers(0, 50, size.customers)})
    (folder / "customers").mkdir()
    customers.write_parquet(folder / "customers" / "rows.parquet")
    return customers


@contextmanager
def database(folder: Path, customers: pl.DataFrame) -> Iterator[str]:
    """The URL of a database that has the customers, by key."""
    try:
        with running_postgres() as server:
            engine = create_engine(server.url())
            with engine.begin() as connection:
                connection.execute(text("CREATE TABLE customers (id BIGINT PRIMARY KEY, region BIGINT)"))
                driver = connection.connection.driver_connection
                assert driver is not None
                with driver.cursor() as cursor, cursor.copy("COPY customers FROM STDIN") as copy:
                    for row in customers.iter_rows():
                        copy.write_row(row)
            print("  database: PostgreSQL", flush=True)
            yield server.url()
    except NoDatabaseError as none:
        url = f"sqlite:///{folder / 'customers.db'}"
        with create_engine(url).begin() as connection:
            connection.execute(text("CREATE TABLE customers (id BIGINT PRIMARY KEY, region BIGINT)"))
            connection.execute(text("INSERT INTO customers VALUES (:id, :region)"), customers.to_dicts())
        print(f"  database: SQLite ({none})", flush=True)
        yield url


def run(spark: SparkSession, folder: Path, way: str, size: Size, url: str) -> dict[str, float]:
    engine, access, caches = WAYS[way]
    chosen = planned(size, access, caches)
    out = Path(tempfile.mkdtemp(dir=folder))
    table: dict[str, Any] = {"scan": {"format": "parquet", "options": {"path": str(folder / "customers")}}}
    if access == [INDEX]:
        table = {"index": {"url": url, "table": "customers", "side_by_side": 2}}
    source = {"path": str(folder / "orders"), "maxFilesPerTrigger": str(FILES_A_BATCH)}
    document = {
        "streams": {
            "orders": {"source": {"format": "parquet", "options": source, "schema": "id BIGINT, customer BIGINT, ts TIMESTAMP"}, "event_time": "ts"}
        },
        "tables": {"customers": table},
        "select": ["orders.id AS id", "customers.region AS region"],
        "sink": {"format": "parquet", "options": {"path": str(out / "out")}},
        "checkpoint": str(out / "checkpoint"),
        "trigger": {"available_now": True},
        "spark": {"spark.sql.streaming.noDataMicroBatches.enabled": "false"},
    }
    began, before = time.monotonic(), sum(tree_cpu().values())
    pipeline = compile(chosen, Bindings.model_validate(document), spark, engine).start()
    pipeline.await_termination()
    seconds, cpu = time.monotonic() - began, sum(tree_cpu().values()) - before
    made = int(spark.read.parquet(str(out / "out")).count())
    rows = size.rate * size.seconds
    assert made == rows, f"{way}: {made} results of {rows}"
    operator = sum(pipeline.progress.statistics.get("cpu_seconds", {}).values())
    asked = pipeline.progress.statistics.get("asked") or [{"keys": 0, "calls": 0, "seconds": 0.0}]
    event_seconds = size.seconds
    return {
        "rows_per_second": rows / seconds,
        "cpu": cpu / event_seconds,
        "operator": operator / event_seconds,
        "predicted": chosen.cost.cpu,
        "keys": asked[0]["keys"],
        "calls": asked[0]["calls"],
        "predicted_calls": chosen.tables[0].calls_per_second * event_seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    for name, default in (("rate", 200_000), ("seconds", 20), ("customers", 1_000_000), ("values", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given, _ = parser.parse_known_args()
    size = Size(given.rate, given.seconds, given.customers, given.values)
    spark = open_session({})
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with database(folder, written(folder, size)) as url:
            run(spark, folder, "kept", size, url)  # warms the JVM up
            for way in WAYS:
                figures = run(spark, folder, way, size, url)
                print(
                    f"  {way}: {figures['rows_per_second']:,.0f} rows/s, {figures['cpu']:.2f} CPU s a second of orders, of which the operator "
                    f"{figures['operator']:.3f}; predicted {figures['predicted']:.3f}; {figures['keys']:,} keys in {figures['calls']:,} calls, "
                    f"predicted {figures['predicted_calls']:,.0f} calls",
                    flush=True,
                )
                print(json.dumps({"way": way} | figures), file=sys.stderr)
    spark.stop()


if __name__ == "__main__":
    main()

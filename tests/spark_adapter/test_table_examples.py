"""The bindings of the examples with tables, as they are committed, over rows in a folder: only the places of files and databases are others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession
from sqlalchemy import BigInteger, Column, Integer, MetaData, String, Table, create_engine

import spark_adapter
from models.bindings import Bindings
from models.request import PlanRequest
from solvers.planner import plan
from tests.app.serving import example
from tests.spark_adapter.plans import moment, write_stream

EXAMPLES = Path(__file__).parents[2] / "openapi" / "examples"
Rows = list[dict[str, Any]]


def bindings_of(name: str, folder: Path, url: str) -> Bindings:
    """The committed document; `data` and `out` lie in the folder, and it ends when it has read what is there."""
    document = yaml.safe_load((EXAMPLES / "bindings" / f"{name}.yaml").read_text())
    for entry in (*(stream["source"] for stream in document["streams"].values()), *(t["scan"] for t in document["tables"].values() if "scan" in t)):
        entry["options"]["path"] = str(folder / entry["options"]["path"])
    for entry in document["tables"].values():
        if "index" in entry:
            entry["index"]["url"] = url
    document["sink"]["options"]["path"], document["checkpoint"] = str(folder / "out"), str(folder / "checkpoint")
    return Bindings.model_validate(document | {"trigger": {"available_now": True}})


def flowing(folder: Path, name: str, rows: Rows) -> Rows:
    """A stream's rows, one every second, as files."""
    timed = [{**row, "ts": moment(k)} for k, row in enumerate(rows)]
    write_stream(folder / "data" / name, timed, 2)
    return timed


def asked_for(url: str, name: str, columns: Sequence[Column[Any]], rows: Rows) -> None:
    table = Table(name, MetaData(), *columns)
    engine = create_engine(url)
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), rows)
    engine.dispose()


def results(spark: SparkSession, name: str, folder: Path, url: str) -> list[tuple[Any, ...]]:
    bindings = bindings_of(name, folder, url)
    made = plan(PlanRequest.model_validate(example(name)))
    assert spark_adapter.compile(made, bindings, spark).start().await_termination()
    return sorted(tuple(row.values()) for row in pq.read_table(folder / "out").to_pylist())


@pytest.mark.spark
def test_the_bindings_of_orders_give_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    rng, url = random.Random(1), f"sqlite:///{tmp_path / 'shop.db'}"
    orders = flowing(tmp_path, "orders", [{"id": k, "customer": rng.randrange(12), "product": rng.randrange(8), "amount": 1.5} for k in range(40)])
    payments = flowing(tmp_path, "payments", [{"order": rng.randrange(40), "method": rng.choice(("card", "cash"))} for _ in range(40)])
    customers = [{"id": k, "name": f"customer {k}"} for k in range(10)]
    products = [{"id": k, "category": k % 3} for k in range(7)]
    categories = [{"id": k, "name": f"category {k}"} for k in range(2)]
    for name, rows in (("customers", customers), ("products", products)):
        (tmp_path / "data" / name).mkdir()
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "data" / name / "rows.parquet")
    (tmp_path / "data" / "categories.csv").write_text("id,name\n" + "".join(f"{row['id']},{row['name']}\n" for row in categories))
    asked_for(url, "customers", [Column("id", BigInteger), Column("name", String)], customers)
    expected = sorted(
        (order["id"], payment["method"], customer["name"], category["name"])
        for order in orders
        for payment in payments
        if payment["order"] == order["id"]  # all within the window of 300 s
        for customer in customers
        if customer["id"] == order["customer"]
        for product in products
        if product["id"] == order["product"]
        for category in categories
        if category["id"] == product["category"]
    )
    assert len(expected) > 8
    assert results(spark, "orders", tmp_path, url) == expected


@pytest.mark.spark
def test_the_bindings_of_scoring_give_their_rows(spark: SparkSession, tmp_path: Path) -> None:
    rng, url = random.Random(2), f"sqlite:///{tmp_path / 'bank.db'}"
    payments = flowing(tmp_path, "payments", [{"id": k, "account": rng.randrange(10), "amount": float(k)} for k in range(60)])
    logins = flowing(tmp_path, "logins", [{"account": rng.randrange(10), "device": f"d{k}"} for k in range(60)])
    accounts = [{"id": k, "country": ("de", "fr", "xx")[k % 3], "opened": 2000 + k} for k in range(8)]
    risks = {"de": 0.5, "fr": 2.0}
    (tmp_path / "data" / "countries.csv").write_text("code,risk\n" + "".join(f"{code},{risk}\n" for code, risk in risks.items()))
    asked_for(url, "accounts", [Column("id", BigInteger), Column("country", String), Column("opened", Integer)], accounts)
    expected = sorted(
        (payment["id"], login["device"], account["opened"], payment["amount"] * risks[account["country"]])
        for payment in payments
        for login in logins
        if payment["account"] == login["account"]  # a minute of rows, windows of 120 and 600 s
        for account in accounts
        if account["id"] == payment["account"] and account["country"] in risks
    )
    assert len(expected) > 100
    assert results(spark, "scoring", tmp_path, url) == expected

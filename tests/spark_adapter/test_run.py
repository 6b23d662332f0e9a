"""A run tells how it goes, ends with 0 or 1, and leaves its plan where `stats` finds it."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from models.bindings import Bindings
from spark_adapter.documents import read_plan
from spark_adapter.run import run
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream

pytestmark = pytest.mark.spark

QUERY = make_query({"a": 4, "b": 4}, ["a.x = b.x"])
PLAN = make_plan(QUERY, ["a", "b"])
ROWS: dict[str, list[Row]] = {name: [{"ts": moment(k * step), "x": k % 5} for k in range(40)] for name, step in [("a", 0.3), ("b", 0.4)]}


def bound(folder: Path) -> Bindings:
    for name, listed in ROWS.items():
        write_stream(folder / name, listed, 2)
    return bindings_of(folder, dict.fromkeys(ROWS, "ts TIMESTAMP, x BIGINT"))


def test_a_native_run_counts_its_rows_and_remembers_its_plan(spark: SparkSession, tmp_path: Path) -> None:
    out = io.StringIO()
    assert run(PLAN, bound(tmp_path), "native", out) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("batch 0 | ")
    assert lines[-3].startswith("in     80 rows")
    assert lines[-2].startswith(f"out    {len(nested_loop(QUERY, ROWS))} rows")
    assert read_plan(json.loads((tmp_path / "checkpoint" / "plan.json").read_text())) == PLAN


def test_a_run_that_fails_says_why_and_ends_with_1(spark: SparkSession, tmp_path: Path) -> None:
    document = bound(tmp_path).model_dump(mode="json", by_alias=True)
    document["streams"]["a"]["columns"] = {"x": "CAST(concat('x', x) AS BIGINT)"}
    out = io.StringIO()
    assert run(PLAN, Bindings.model_validate(document), "native", out) == 1
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("the pipeline failed: ") and "x0" in last

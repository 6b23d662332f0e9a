"""A run tells how it goes, ends with 0 or 1, and leaves its plan where `stats` finds it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from models.bindings import Bindings
from spark_adapter.documents import read_plan
from spark_adapter.run import Options, run
from tests.spark_adapter.cells import with_shares
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
    assert run(PLAN, bound(tmp_path), out, Options(engine="native")) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("batch 0 | ")
    assert lines[-3].startswith("in     80 rows")
    assert lines[-2].startswith(f"out    {len(nested_loop(QUERY, ROWS))} rows")
    assert read_plan(json.loads((tmp_path / "checkpoint" / "plan.json").read_text())) == PLAN


def test_a_run_that_sheds_says_what_it_sheds_before_it_starts_batch_by_batch_and_in_the_end(spark: SparkSession, tmp_path: Path) -> None:
    rows = {"a": [{"ts": moment(2), "x": k} for k in range(200)], "b": [{"ts": moment(1), "x": k} for k in range(200)]}
    for name, listed in rows.items():
        write_stream(tmp_path / name, listed, 1)
    plan = with_shares(PLAN, {("join-1", "a", 0): 0.5, ("join-1", "b", 0): 0.5}, admitted=0.8)
    bindings = bindings_of(tmp_path, dict.fromkeys(ROWS, "ts TIMESTAMP, x BIGINT"))
    out = io.StringIO()
    assert run(plan, bindings, out, Options(shed=True)) == 0
    lines = out.getvalue().splitlines()
    assert lines[0].startswith("shedding load: 20 % of every stream's rows are not let in, 50 % of the probes of a into b (join-1) are not made")
    assert lines[1].startswith("2 cells; copies multiply what the plan keeps by 1.00:")
    (told,) = [line for line in lines if line.startswith("shed   ")]
    shed_rows, shed_probes = (int(number) for number in re.findall(r"[\d,]+(?= rows| probes)", told))
    assert f"shed {shed_rows} rows, {shed_probes} probes" in next(line for line in lines if line.startswith("batch 0"))
    statistics = json.loads((tmp_path / "checkpoint" / "statistics.jsonl").read_text().splitlines()[0])
    assert statistics["shed"] == {"rows": shed_rows, "probes": shed_probes}
    let_in = 400 - shed_rows
    assert sum(state["rows"] for state in statistics["states"]) == let_in
    # Every row that was let in came to its first probe.
    assert [step["rows_in"] for step in statistics["steps"]] == [stream["rows"] - stream["shed"] for stream in statistics["streams"]]


def test_a_run_that_fails_says_why_and_ends_with_1(spark: SparkSession, tmp_path: Path) -> None:
    document = bound(tmp_path).model_dump(mode="json", by_alias=True)
    document["streams"]["a"]["columns"] = {"x": "CAST(concat('x', x) AS BIGINT)"}
    out = io.StringIO()
    assert run(PLAN, Bindings.model_validate(document), out, Options(engine="native")) == 1
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("the pipeline failed: ") and "x0" in last

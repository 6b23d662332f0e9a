"""What a run measured becomes a request: what is measured replaces what was estimated, and nothing else changes."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark_adapter import compile
from spark_adapter.checkpoint import Folder
from spark_adapter.errors import StatisticsError
from spark_adapter.metrics import METRICS
from spark_adapter.run import follow
from spark_adapter.stats import PLAN_FILE, measured_request, stats
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream

QUERY = make_query({"a": 4, "b": 4, "c": 4}, ["a.x = b.x", "b.y = c.y"])
PLAN = make_plan(QUERY, ["a", "b", "c"])
MEASURED = {
    "rates": {"a.rate": 12.5},
    "selectivities": {"predicates[1].selectivity": 0.25},
    "observed": [{"streams": ["b", "c"], "selectivity": 0.25}, {"streams": ["c", "a", "b"], "selectivity": 0.01}],
}


def line(**more: Any) -> str:
    return json.dumps({"batch": 0, "fingerprint": PLAN.fingerprint, "measured": MEASURED} | more)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / PLAN_FILE).write_text(PLAN.model_dump_json())
    (tmp_path / "statistics.jsonl").write_text(line(measured={"rates": {"a.rate": 1.0}}) + "\n" + line() + "\n" + '{"batch": 2, "fing')
    return tmp_path


def test_the_last_whole_line_of_this_plan_counts(folder: Path) -> None:
    request = stats(folder)
    assert {stream.name: stream.rate for stream in request.query.streams} == {"a": 12.5, "b": 1.0, "c": 1.0}
    with (folder / "statistics.jsonl").open("a") as file:
        file.write("\n" + line(fingerprint="another plan", measured={"rates": {"a.rate": 99.0}}) + "\n")
    assert stats(folder) == request


def test_what_was_not_measured_stays() -> None:
    request = measured_request(PLAN, MEASURED)
    assert [predicate.selectivity for predicate in request.query.predicates] == [0.1, 0.25]
    assert (request.resources, request.costs, request.objective) == (PLAN.resources, PLAN.costs, PLAN.objective)


def test_measured_skew_is_the_streams_own() -> None:
    request = measured_request(PLAN, MEASURED | {"skew": {"a.x": 0.25, "b.y": 0.5}})
    assert {stream.name: stream.skew for stream in request.query.streams} == {"a": {"x": 0.25}, "b": {"y": 0.5}, "c": {}}
    assert "skew" not in request.model_dump(mode="json")["query"]["streams"][2]


def test_only_sets_that_more_than_one_predicate_decides_are_observed() -> None:
    observed = measured_request(PLAN, MEASURED).query.observed
    assert [(entry.streams, entry.selectivity) for entry in observed] == [(["a", "b", "c"], 0.01)]


def test_a_selectivity_of_nothing_stays_above_zero() -> None:
    request = measured_request(PLAN, MEASURED | {"selectivities": {"predicates[0].selectivity": 0.0}})
    assert 0 < (request.query.predicates[0].selectivity or 0) < 1e-12


def test_a_folder_without_statistics_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(StatisticsError, match=r"there is no .*plan\.json: give the checkpoint folder of a run with engine stem"):
        stats(tmp_path / "nowhere")
    (folder / "statistics.jsonl").write_text("")
    with pytest.raises(StatisticsError, match="has no measured rates of this plan yet"):
        stats(folder)


@pytest.mark.spark
def test_a_run_measures_rates_and_selectivities_and_says_how_it_goes(spark: SparkSession, tmp_path: Path) -> None:
    rows: dict[str, list[Row]] = {
        name: [{"id": k, "ts": moment(k * 0.1), "x": k * factor % 5, "y": k * factor % 7} for k in range(200)]
        for name, factor in [("a", 1), ("b", 3), ("c", 11)]
    }
    for name, listed in rows.items():
        write_stream(tmp_path / name, listed, 2)
    bindings = bindings_of(tmp_path, dict.fromkeys(rows, "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT"))
    out = io.StringIO()
    assert follow(compile(PLAN, bindings, spark), out) == 0
    (tmp_path / "checkpoint" / PLAN_FILE).write_text(PLAN.model_dump_json())
    request = stats(tmp_path / "checkpoint")
    assert [stream.rate for stream in request.query.streams] == pytest.approx([10.0] * 3)
    expected = nested_loop(QUERY, rows)
    pair = nested_loop(make_query({"a": 4, "b": 4}, ["a.x = b.x"]), rows)
    within = nested_loop(make_query({"a": 4, "b": 4}, []), rows)
    # Pairs within their windows are counted by a sample, hence the tolerance.
    assert request.query.predicates[0].selectivity == pytest.approx(len(pair) / len(within), rel=0.2)
    said = out.getvalue()
    assert "600 rows" in said.splitlines()[-3]
    assert f"out    {len(expected):,} rows" in said
    assert said.startswith("batch 0 | ")


@pytest.mark.spark
def test_a_checkpoint_on_another_file_system_has_its_statistics_and_metrics_there(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's view of file systems stands for any that is not this machine's own."""
    rows: list[Row] = [{"id": k, "ts": moment(k / 10), "x": k % 3, "y": k % 2} for k in range(100)]
    for name in ("a", "b", "c"):
        write_stream(tmp_path / name, rows, 2)
    (tmp_path / "far").mkdir()
    link = "fs.viewfs.mounttable.away.link./far"
    spark.conf.set(link, (tmp_path / "far").as_uri())
    try:
        schemas = dict.fromkeys(("a", "b", "c"), "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT")
        bindings = bindings_of(tmp_path, schemas, checkpoint="viewfs://away/far/checkpoint", sink={"format": "noop"})
        pipeline = compile(PLAN, bindings, spark)
        Folder(spark, bindings.checkpoint).write(PLAN_FILE, PLAN.model_dump_json())
        pipeline.start().await_termination()
        request = stats(bindings.checkpoint)
    finally:
        spark.conf.unset(link)
    assert {stream.name: stream.rate for stream in request.query.streams} == {name: pytest.approx(10.0) for name in ("a", "b", "c")}
    assert "watersmeet_results_total" in (tmp_path / "far" / "checkpoint" / METRICS).read_text()

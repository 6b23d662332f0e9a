"""What a run measured of late becomes a request: what is measured replaces what was estimated, and nothing else changes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from app.commands.main import main
from models.request import Observed, PlanRequest
from spark_adapter import compile
from spark_adapter.errors import StatisticsError
from spark_adapter.metrics import METRICS
from spark_adapter.pipeline import PLAN_FILE
from spark_adapter.run import follow
from spark_adapter.stats import measured_request, stats
from tests.spark_adapter.cells import SECOND
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment, write_stream

QUERY = make_query({"a": 4, "b": 4, "c": 4}, ["a.x = b.x", "b.y = c.y"])
PLAN = make_plan(QUERY, ["a", "b", "c"])
MEASURED = {
    "rates": {"a.rate": 12.5},
    "tuple_bytes": {"b.tuple_bytes": 48.0},
    "distinct": {"a.x": 9.0, "c.z": 4.0},
    "selectivities": {"predicates[1].selectivity": 0.25},
    "observed": [{"streams": ["b", "c"], "selectivity": 0.25}, {"streams": ["c", "a", "b"], "selectivity": 0.01}],
}


def line(batch: int, rows: int, fingerprint: str = PLAN.fingerprint) -> str:
    """A batch of a second in which every stream had so many rows, and every tenth pair matched."""
    first = batch * SECOND
    streams = [
        {"stream": name, "rows": rows, "late": 0, "shed": 0, "bytes": 50 * rows, "first": first, "last": first + SECOND * (rows - 1) // rows}
        for name in "abc"
    ]
    step = {"operator": "join-1", "input": "a", "step": 0, "target": "b", "arriving": ["a"], "joined": ["b"], "sampled": False}
    met = {"pairs": 10.0 * rows * batch, "looked": 10.0 * rows * batch, "matched": rows * batch, "variance": rows * batch}
    steps = [step | met]
    figures = {"streams": streams, "steps": steps, "states": [], "caches": [], "results": rows, "cpu_seconds": {"probe": 0.1}, "distinct": {}}
    return json.dumps({"batch": batch, "fingerprint": fingerprint, "plan": 0, "building": False} | figures)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Ten batches at 5 rows a second, then ten at 20, and one that was broken off."""
    (tmp_path / PLAN_FILE).write_text(PLAN.model_dump_json())
    lines = [line(batch, 5 if batch < 10 else 20) for batch in range(20)]
    (tmp_path / "statistics.jsonl").write_text("\n".join(lines) + "\n" + '{"batch": 20, "fing')
    return tmp_path


def rates(request: PlanRequest) -> list[float]:
    return [stream.rate for stream in request.query.streams]


def test_the_last_windows_count_or_as_much_as_is_asked_for(folder: Path) -> None:
    assert rates(stats(folder)) == pytest.approx([20.0] * 3)
    assert rates(stats(folder, last=1000)) == pytest.approx([249 / 19.95] * 3)
    assert stats(folder).query.predicates[0].selectivity == pytest.approx(0.1)


def test_batches_under_another_plan_count_and_a_batch_that_was_run_again_counts_once(folder: Path) -> None:
    with (folder / "statistics.jsonl").open("a") as file:
        file.write("\n" + line(19, 40) + "\n" + line(20, 40, fingerprint="another plan") + "\n")
    # Of the last four seconds, 17 and 18 have 20 rows each, 19 and 20 have 40.
    assert rates(stats(folder, last=4)) == pytest.approx([(2 * 20 + 2 * 40 - 1) / 3.975] * 3)


def test_the_command_takes_times_as_they_are_typed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stats", str(folder), "--last", "2s"]) == 0
    assert [stream["rate"] for stream in json.loads(capsys.readouterr().out)["query"]["streams"]] == pytest.approx([20.0] * 3)
    assert main(["stats", str(folder), "--last", "5 weeks"]) == 2
    assert "argument --last: must be a time above 0 such as 90s, 10m, 2h or 1d, got '5 weeks'" in capsys.readouterr().err


def test_what_was_not_measured_stays() -> None:
    request = measured_request(PLAN, MEASURED)
    assert [predicate.selectivity for predicate in request.query.predicates] == [0.1, 0.25]
    assert rates(request) == [12.5, 1.0, 1.0]
    assert [stream.tuple_bytes for stream in request.query.streams] == [100.0, 48.0, 100.0]
    assert [stream.distinct for stream in request.query.streams] == [{"x": 9.0}, {}, {}]
    assert (request.resources, request.costs, request.objective) == (PLAN.resources, PLAN.costs, PLAN.objective)


def test_measured_skew_is_the_streams_own() -> None:
    request = measured_request(PLAN, MEASURED | {"skew": {"a.x": 0.25, "b.y": 0.5}})
    assert {stream.name: stream.skew for stream in request.query.streams} == {"a": {"x": 0.25}, "b": {"y": 0.5}, "c": {}}
    assert "skew" not in request.model_dump(mode="json")["query"]["streams"][2]


def test_only_sets_that_more_than_one_predicate_decides_are_observed() -> None:
    observed = measured_request(PLAN, MEASURED).query.observed
    assert [(entry.streams, entry.selectivity) for entry in observed] == [(["a", "b", "c"], 0.01)]


@pytest.mark.parametrize(("selectivity", "matched", "kept"), [(0.026, 1e6, False), (0.03, 1e6, True), (0.03, 100, False)])
def test_a_set_is_observed_where_it_differs_from_its_predicates_by_more_than_chance(selectivity: float, matched: float, kept: bool) -> None:
    """Its predicates alone say 0.025."""
    entry = {"streams": ["a", "b", "c"], "selectivity": selectivity, "matched": matched}
    observed = measured_request(PLAN, MEASURED | {"observed": [entry]}).query.observed
    assert [found.selectivity for found in observed] == ([selectivity] if kept else [])


def test_a_set_that_was_given_and_not_measured_moves_with_its_predicates() -> None:
    """It was a fifth of the product of its predicates, one of which is two and a half times as large by now."""
    given = QUERY.model_copy(update={"observed": [Observed(streams=["a", "b", "c"], selectivity=0.002)]})
    (found,) = measured_request(PLAN.model_copy(update={"query": given}), MEASURED | {"observed": []}).query.observed
    assert found.selectivity == pytest.approx(0.005)


def test_a_folder_without_statistics_is_refused(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(StatisticsError, match=r"there is no .*plan\.json: give the checkpoint folder of a run with engine stem"):
        stats(tmp_path / "nowhere")
    (folder / "statistics.jsonl").write_text("")
    with pytest.raises(StatisticsError, match="has no measured rates yet"):
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
        compile(PLAN, bindings, spark).start().await_termination()
        request = stats(bindings.checkpoint)
    finally:
        spark.conf.unset(link)
    assert {stream.name: stream.rate for stream in request.query.streams} == {name: pytest.approx(10.0) for name in ("a", "b", "c")}
    assert "watersmeet_results_total" in (tmp_path / "far" / "checkpoint" / METRICS).read_text()

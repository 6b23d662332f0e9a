"""A pipeline on Spark follows a drift, through the Python API and on the command line; what cannot be asked or carried out changes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest
from pyspark.sql import SparkSession

from app.commands.main import main
from app.commands.replanning import asking
from models.plan import Plan
from models.replan import Thresholds
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter import compile
from spark_adapter.adapt import Adapting, Answer
from spark_adapter.decisions import DECISIONS, read_decisions
from spark_adapter.pipeline import PLAN_FILE, STATISTICS
from tests.app.serving import free_port
from tests.spark_adapter.drift import Drift
from tests.spark_adapter.in_process import InProcess
from tests.spark_adapter.plans import make_plan, make_query
from tests.spark_adapter.runs import NO_LAST_BATCH

pytestmark = pytest.mark.spark

DRIFT = Drift(rate=40, window=4, half=20, batch=2, partners=(0.1, 1, 8))
OTHER = make_plan(make_query({"a": 4, "b": 4}, ["a.x = b.x"]), ["a", "b"])


def rows_in(folder: Path) -> pl.DataFrame:
    return pl.concat([pl.read_parquet(path) for path in (folder / "out").glob("*.parquet")]).sort("a", "b", "c", "d")


def test_a_pipeline_follows_a_drift_and_refuses_a_plan_for_another_query(spark: SparkSession, tmp_path: Path) -> None:
    batches = DRIFT.batches(DRIFT.rows())[7:]  # the last three of the first half, and the second
    rows = {name: pl.concat([batch[name] for batch, _ in batches]) for name in "abcd"}
    first = planned(DRIFT.request(False))
    here = asking(None, Thresholds(), 1.0)
    lines: list[str] = []

    def ask(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        """Nonsense once: a change to a plan for another query."""
        if not lines:
            return SimpleNamespace(decision="change", kind="tree", gain=1.0, reasons=["why not"], plan=OTHER)
        return here(plan, request, measured)

    DRIFT.write_batch(tmp_path, 0, batches[0][0])  # Spark wants the folders to be there
    pipeline = compile(first, DRIFT.bindings(tmp_path, tmp_path, trigger={}, spark=NO_LAST_BATCH), spark, cells=1).start()
    loop = Adapting(pipeline, ask, say=lines.append)
    for n, (batch, _) in enumerate(batches):
        if n:
            DRIFT.write_batch(tmp_path, n, batch)
        pipeline.work_through()
        loop.look()
    pipeline.work_through()
    pipeline.stop()
    assert lines[0].startswith("plan kept: the answer cannot be carried out: ")
    assert rows_in(tmp_path).equals(DRIFT.answer(rows))
    decisions = read_decisions((tmp_path / "checkpoint" / DECISIONS).read_text())
    changes = [decision for decision in decisions if decision.decision == "change"]
    assert 1 <= len(changes) == loop.changes <= 3
    assert len(changes) + sum(decision.decision == "keep" for decision in decisions) == len(lines)
    in_force = Plan.model_validate_json((tmp_path / "checkpoint" / PLAN_FILE).read_text())
    assert decisions[-1].fingerprint == in_force.fingerprint == pipeline.plan.fingerprint != first.fingerprint
    stayed = InProcess(first)
    stayed.run(batches)
    statistics = [json.loads(line) for line in (tmp_path / "checkpoint" / STATISTICS).read_text().splitlines()]
    assert 2 * sum(line["work"] for line in statistics if DRIFT.second_half(line)) <= sum(
        batch.work for batch in stayed.batches if DRIFT.second_half(batch.line)
    )


def test_a_back_fill_adapts_to_the_end_and_goes_on_while_nobody_answers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same rows in four batches, by the command line, with a server that is not there."""
    short = Drift(rate=20, window=4, half=4, batch=2, partners=(0.5, 1, 4))
    rows = short.rows()
    short.write(tmp_path, rows)
    (tmp_path / "plan.json").write_text(planned(short.request(False)).model_dump_json(by_alias=True))
    (tmp_path / "bindings.json").write_text(short.bindings(tmp_path, tmp_path).model_dump_json(by_alias=True))
    files = [str(tmp_path / name) for name in ("plan.json", "bindings.json")]
    url = f"http://127.0.0.1:{free_port()}"
    assert main(["run", *files, "--adapt", "--every", "0.05", "--url", url]) == 0
    said = capsys.readouterr().err
    assert f"plan kept: no answer: {url}: " in said
    assert f"in     {sum(frame.height for frame in rows.values())} rows" in said
    assert rows_in(tmp_path).equals(short.answer(rows))
    decisions = read_decisions((tmp_path / "checkpoint" / DECISIONS).read_text())
    assert {decision.decision for decision in decisions} == {"start", "keep"}

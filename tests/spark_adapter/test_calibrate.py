"""The fit is the optimum, constants that made the observations are found again, and runs count what they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from spark_adapter.calibrate import Batches, Observation, Run, calibration_of, measure, non_negative_least_squares, observed, plan_of, write
from tests.bench.bench_stem import Flow, request_of, shaped
from tests.bench.calibrated import worked
from tests.spark_adapter.in_process import InProcess, Stretch, arrivals, cut


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 12))
def test_the_fit_meets_the_conditions_of_an_optimum(seed: int, columns: int, rows: int) -> None:
    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(rows, columns)), draw.normal(size=rows)
    x = non_negative_least_squares(a, b)
    gradient = a.T @ (a @ x - b)
    assert (x >= 0).all()
    # Karush-Kuhn-Tucker: no direction that stays non-negative leads down.
    assert (gradient >= -1e-7).all()
    assert np.abs(gradient[x > 0]).max(initial=0.0) <= 1e-7


def test_constants_that_made_the_observations_are_found_again() -> None:
    draw = np.random.default_rng(7)
    step = {"probe": 3e-8, "join": 9e-8, "index": 2e-8, "scan": 2e-9, "per step": 2e-3, "per piece": 4e-4}
    state = {"keep": 3e-7, "keep joined": 5e-7, "drop": 1e-8, "per batch": 1e-2}
    observations = []
    for constants in (step, state):
        counts = [{name: 1.0 if name in ("per step", "per batch") else float(draw.integers(1, 100_000)) for name in constants} for _ in range(20)]
        observations.append([Observation(c, sum(c[name] * constants[name] for name in c)) for c in counts])
    calibration = calibration_of(observations[0], observations[1], Batches(2.0, 20.0))
    assert calibration.steps.error < 1e-9 and calibration.states.error < 1e-9
    expected = {"join": 9e-8, "insert": 5.2e-7, "delete": 1e-8, "append": 5e-7, "probe": 3e-8, "scan": 2e-9}
    expected["step"] = (2e-3 + 10.5 * 4e-4) / 2.0
    assert calibration.costs.model_dump() == pytest.approx(expected, rel=1e-3)


@pytest.mark.spark
def test_a_run_counts_what_it_was_made_of(spark: SparkSession, tmp_path: Path) -> None:
    run = Run("small", (100, 40), keys=20, window=2, batches=3)
    steps, states = measure(spark, run)
    write(run, tmp_path)
    ts, keys = [], []
    for s, column in enumerate(("y", "x")):
        tables = [pq.read_table(file) for file in sorted((tmp_path / f"s{s}").glob("*.parquet"))]
        ts.append(np.concatenate([table["ts"].cast("int64").to_numpy() for table in tables]))
        keys.append(np.concatenate([table[column].to_numpy() for table in tables]))
    apart = ts[0][:, None] - ts[1][None, :]
    matches = (keys[0][:, None] == keys[1][None, :]) & (np.abs(apart) <= 2_000_000)
    first = (np.arange(300)[:, None] < 100) & (np.arange(120)[None, :] < 40)
    # The first batch is not observed; of the later ones every match is made by one of two steps.
    assert sum(step.counts["join"] for step in steps) == (matches & ~first).sum() > 0
    assert [step.counts["probe"] for step in steps] == [100, 40, 100, 40]
    # One piece of every batch within the window; the second stream sees the first one's new rows as well.
    assert [step.counts["per piece"] for step in steps] == [1, 2, 2, 3]
    assert [state.counts["keep"] for state in states] == [140, 140]
    # What the next watermark will have passed has been let go.
    watermark = min(int(column.max()) for column in ts) // 1000 * 1000
    assert [state.counts["drop"] for state in states] == [0, sum(int((column + 2_000_000 < watermark).sum()) for column in ts)]
    # A hundred rows have the forty of a piece scanned; forty rows use the index of a hundred: those of the batch before and of their own.
    assert [step.counts["index"] for step in steps] == [0, 200, 0, 200]
    assert all(step.seconds > 0 for step in (*steps, *states))


@pytest.mark.spark
def test_a_run_with_kept_joins_runs_on_spark(spark: SparkSession) -> None:
    steps, states = measure(spark, Run("small", (60, 50, 40), keys=20, window=2, batches=3, kept=True))
    assert len(steps) == 2 * 4 and len(states) == 2
    assert all(state.counts["keep joined"] > 0 for state in states) and all(step.seconds > 0 for step in (*steps, *states))


def test_a_run_with_kept_joins_counts_their_rows() -> None:
    """By the operator alone, in this process."""
    run = Run("kept", (60, 50, 40), keys=20, window=2, batches=4, kept=True)
    plan = plan_of(run)
    assert [(operator.inputs, operator.materialized) for operator in plan.operators] == [(["s0", "s1"], True), (["join-1", "s2"], False)]
    one = worked(run)
    _, states = observed(run, [batch.line for batch in one.batches])
    made = [sum(step["rows_out"] for step in batch.line["steps"] if step["operator"] == "join-1") for batch in one.batches]
    assert [state.counts["keep joined"] for state in states] == made[1:] and min(made) > 0
    assert [state.counts["keep"] for state in states] == [150] * 3
    held = [sum(state["rows"] for state in batch.line["states"]) for batch in one.batches]
    assert [state.counts["drop"] for state in states] == [a + 150 + new - b for a, b, new in zip(held, held[1:], made[1:], strict=False)]


@pytest.mark.parametrize("window", [8.0, 40.0])
def test_a_state_has_as_many_pieces_as_steps_are_priced_for(window: float) -> None:
    flows = {name: Flow(20.0, window, {"k": 100}) for name in ("a", "b")}
    plan = shaped(request_of(flows, ["a.k = b.k"]), [("join-1", ["a", "b"], {})])
    one = InProcess(plan)
    one.run(cut(arrivals({name: [Stretch(2.0 * window, flow.rate, flow.values)] for name, flow in flows.items()}), 1.0))
    counted = [batch.line["pieces"] / 2 for batch in one.batches[-round(window / 2) :]]
    # The batch's own piece is counted here, and seen by half of the probes.
    assert Batches(1.0, window).pieces == pytest.approx(sum(counted) / len(counted) - 0.5, rel=0.15)

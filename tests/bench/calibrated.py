"""Cost constants of the operator alone, in this process: the runs and fits of `watersmeet calibrate` without Spark."""

from __future__ import annotations

import numpy as np
import polars as pl

from models.request import Costs
from spark_adapter.calibrate import RUNS, USUAL, Batches, Calibration, Run, calibration_of, observed, plan_of
from tests.spark_adapter.cells import SECOND
from tests.spark_adapter.in_process import InProcess

__all__ = ["calibrated", "said", "worked"]


def calibrated(batches: Batches = USUAL) -> Calibration:
    """Measured and fitted anew, for such batches; some ten seconds."""
    found = [observed(run, [batch.line for batch in worked(run).batches]) for run in RUNS]
    return calibration_of([step for steps, _ in found for step in steps], [state for _, states in found for state in states], batches)


def said(costs: Costs) -> str:
    return "costs calibrated here: " + ", ".join(f"{name} {getattr(costs, name):.3g}" for name in Costs.model_fields)


def worked(run: Run) -> InProcess:
    """A run of the calibration, all its batches."""
    one = InProcess(plan_of(run))
    draws = [np.random.default_rng([run.seed, s]) for s in range(len(run.rows))]
    for n in range(run.batches):
        batch = {f"s{s}": _frame(run, s, n, draws[s]) for s in range(len(run.rows))}
        one.work_off(batch, n * SECOND if n else -1)
    return one


def _frame(run: Run, s: int, n: int, draw: np.random.Generator) -> pl.DataFrame:
    """As `calibrate` writes them: for "<" the left values are nearly all above the right ones."""
    rows = run.rows[s]
    offset = run.keys - run.keys // 1000 if run.op == "<" and s == 0 else 0
    ts = n * SECOND + (np.arange(rows) * 2 + 1) * 500_000 // rows
    compared = {side for predicate in plan_of(run).query.predicates for side in (predicate.left, predicate.right)}
    values = {f"s{s}.{name}": draw.integers(0, run.keys, rows) + offset for name in ("x", "y")}
    columns = {"ts": ts, "h": draw.integers(-(2**63), 2**63 - 1, rows), **{side: column for side, column in values.items() if side in compared}}
    return pl.DataFrame(columns | {f"s{s}/0": np.arange(rows)})

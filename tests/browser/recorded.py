"""The files that a run leaves, for the page to show: made by the operator and the loop themselves, in this process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from app.commands.replanning import asking
from models.replan import Thresholds
from solvers.planner import plan as planned
from spark_adapter.adapt import Adapting
from spark_adapter.decisions import DECISIONS, Decision, now
from spark_adapter.pipeline import STATISTICS
from tests.spark_adapter.drift import Drift
from tests.spark_adapter.in_process import InProcess

__all__ = ["record"]

DRIFT = Drift(rate=50, window=4, half=40, batch=2, partners=(0.2, 1, 5))


def record(folder: Path) -> list[Decision]:
    """A chain whose selective end moves to the other end at half-time: writes what a checkpoint folder would hold; returns the decisions."""
    run = InProcess(planned(DRIFT.request(False)))
    decisions = [_decision(run, "start", "none", ["The pipeline was started with this plan."])]

    def look() -> None:
        before = len(run.decisions)
        loop.look()
        decisions.extend(_decision(run, "keep" if kind == "keep" else "change", kind, reasons) for kind, reasons in run.decisions[before:])

    loop = Adapting(run, asking(None, Thresholds(), 1.0))
    run.run(DRIFT.batches(DRIFT.rows()), look)
    lines = [{"batch": n, "fingerprint": "", **batch.line} for n, batch in enumerate(run.batches)]
    (folder / STATISTICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / DECISIONS).write_text("".join(decision.line() + "\n" for decision in decisions))
    return decisions


def _decision(run: InProcess, decision: str, kind: str, reasons: Sequence[str]) -> Decision:
    document = None if decision == "keep" else run.plan.model_dump(mode="json", by_alias=True)
    kind = "none" if decision == "keep" else kind
    return Decision(len(run.batches), now(), decision, kind, None, run.plan.fingerprint, tuple(reasons), len(run.changes) + 1, document)

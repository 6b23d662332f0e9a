"""What the CPU of a probe step is made of: that of the operator, explained by more and more terms, those that the price has and others.

The problem: prices per tuple are off the measured CPU, and several things could be why: a constant per step and batch, which the price has
(`costs.step`), a price per piece of the state that a step looks into (a state has about one piece per batch of its window), the width of joined
rows, or mere noise. The method: plans of random queries of `bench_truth` are run, and for each probe step the median CPU of its batches is
explained by non-negative least squares of relative errors, as calibration does it, with several sets of terms. Noise is how far equal batches of
one step are apart. Guarantee: each fit is the
exact optimum on these very steps, so that a larger set is never worse by its squares; nothing is predicted here that was not fitted.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from models.plan import Plan
from spark_adapter.calibrate import Calibration, Observation, fit
from tests.bench.bench_truth import BATCH, BATCHES, MEASURED, SHAPES, WINDOWS, drawn, plans_of
from tests.bench.calibrated import calibrated, said
from tests.bench.evidence import AGREES, DIFFERS, Claim, Findings, Table, judged
from tests.spark_adapter.in_process import InProcess, Stretch, arrivals, cut

__all__ = ["EQUAL", "MATTERS", "SETS", "StepSeen", "steps_seen", "terms"]

QUERIES, QUICK_QUERIES = 8, 2
MATTERS, EQUAL = 0.02, 0.1  # of the error of a step; of its CPU
CONTRACT = ("probe", "join", "index")
SETS = {
    "the contract's: rows in, out, indexed": CONTRACT,
    "+ width of joined rows": (*CONTRACT, "width"),
    "+ a constant per step": (*CONTRACT, "step"),
    "+ a price per piece": (*CONTRACT, "piece"),
    "+ both": (*CONTRACT, "step", "piece"),
    "+ all": (*CONTRACT, "width", "step", "piece"),
}


@dataclass(frozen=True)
class StepSeen:
    """One probe step of one plan: the medians of its batches, and how far apart equal batches were."""

    counts: dict[str, float]
    seconds: float
    spread: float


def steps_seen(plan: Plan, one: InProcess) -> Iterator[StepSeen]:
    """The steps of the plan in the last batches."""
    windows = {stream.name: stream.window.seconds or 0.0 for stream in plan.query.streams}
    listed = [batch.line["steps"] for batch in one.batches[-MEASURED:]]
    for same in zip(*listed, strict=True):
        middle = {name: statistics.median(step[name] for step in same) for name in ("rows_in", "rows_out", "indexed", "cpu_seconds")}
        if middle["cpu_seconds"] <= 0.0:
            continue
        streams = same[0]["arriving"] + same[0]["joined"]
        # One piece a batch, as long as its oldest stream's window has not passed, and the batch's own.
        pieces = min(windows[name] for name in same[0]["joined"]) / BATCH + 1
        counts = {"probe": middle["rows_in"], "join": middle["rows_out"], "index": middle["indexed"]}
        counts |= {"width": middle["rows_out"] * len(streams), "step": 1.0, "piece": pieces}
        seconds = [step["cpu_seconds"] for step in same]
        yield StepSeen(counts, middle["cpu_seconds"], (max(seconds) - min(seconds)) / middle["cpu_seconds"])


def _seen(queries: int, calibration: Calibration) -> list[StepSeen]:
    found: list[StepSeen] = []
    for number in range(queries):
        rng = random.Random(f"1 {number}")
        flows, request, chosen = drawn(rng, SHAPES[number % len(SHAPES)], calibration)
        rows = arrivals({n: [Stretch(max(WINDOWS) + MEASURED * BATCH, flow.rate, flow.values)] for n, flow in flows.items()}, seed=number)
        batches = cut(rows, BATCH)
        for kind, plan in plans_of(rng, request, chosen).items():
            if kind in ("mjoin", "binary tree"):
                one = InProcess(plan)
                one.run(batches)
                found += steps_seen(plan, one)
        print(f"   {number + 1} of {queries} queries", flush=True)
    return found


def _errors(found: Sequence[StepSeen], names: Sequence[str]) -> tuple[dict[str, float], list[float]]:
    """The constants of the best fit, and the relative errors by size."""
    fitted = fit([Observation(step.counts, step.seconds) for step in found], names).constants
    return dict(fitted), sorted(abs(sum(fitted[name] * step.counts[name] for name in names) / step.seconds - 1.0) for step in found)


def _apart(medians: dict[str, float]) -> str:
    """Whether a constant a step and one a piece can be told from each other."""
    difference = abs(medians["+ a constant per step"] - medians["+ a price per piece"])
    if difference <= MATTERS:
        return f"Alone the two leave errors that are {difference:.1%} apart, and over these queries, with windows much alike, cannot be told apart."
    return f"Alone the two leave errors that are {difference:.1%} apart."


def terms(quick: bool) -> Findings:
    calibration = calibrated(BATCHES)
    found = _seen(QUICK_QUERIES if quick else QUERIES, calibration)
    rows, medians = [], {}
    constants: dict[str, dict[str, float]] = {}
    for title, names in SETS.items():
        constants[title], errors = _errors(found, names)
        medians[title] = statistics.median(errors)
        rows.append([title, f"{medians[title]:.0%}", f"{float(np.quantile(errors, 0.9)):.0%}"])
    contract, both = next(iter(SETS)), "+ both"
    fitted = constants[both]
    without = sum(fitted[name] * step.counts[name] for step in found for name in ("step", "piece")) / sum(step.seconds for step in found)
    spread = statistics.median(step.spread for step in found)
    gains = {title: medians[contract] - medians[title] for title in ("+ width of joined rows", "+ a constant per step", "+ a price per piece")}
    most = max(gains, key=lambda title: gains[title])
    return Findings(
        [
            Claim(
                "(ours) Prices per tuple alone explain what a step takes.",
                f"of one term alone {most.removeprefix('+ ')} takes most off the median error of a step: from {medians[contract]:.0%} to "
                f"{medians[most]:.0%}; both constants together to {medians[both]:.0%}, and they explain {without:.0%} of the CPU of these steps.",
                DIFFERS if medians[contract] - medians[most] > MATTERS else AGREES,
            ),
            judged(
                "(ours) Equal batches of a step take the same CPU.",
                f"the dearest and the cheapest of {MEASURED} are {spread:.0%} of the median apart, in the median.",
                spread <= EQUAL,
            ),
        ],
        [
            f"{len(found)} probe steps of the mjoin and the best binary tree of {QUICK_QUERIES if quick else QUERIES} of the queries above; "
            f"the median of {MEASURED} batches of {BATCH:g} s each. {said(calibration.costs)}."
        ],
        [Table("Error of a step's CPU, fitted with these terms", ["terms", "median", "90 %"], rows)],
        [],
        [
            f"Fitted with both: {fitted['step'] * 1e3:.2f} ms a step and {fitted['piece'] * 1e3:.3f} ms a piece, in every batch, whatever the "
            f"rows. Pieces are counted as a window's batches and one; the operator merges few here. {_apart(medians)} The price has both as one "
            f"constant, "
            f"{calibration.costs.step * BATCH * 1e3:.2f} ms a step in batches of {BATCH:g} s: that of {BATCHES.pieces:.3g} pieces in a state. What "
            "it leaves out is that states of longer windows have more of them. Plans with many steps (an mjoin of n streams has n·(n − 1)) would be "
            "priced too low without it."
        ],
        {"step_error_contract": f"{100 * medians[contract]:.0f}", "step_error_constants": f"{100 * medians[both]:.0f}"},
    )

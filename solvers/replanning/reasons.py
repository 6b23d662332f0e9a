"""Why a plan is kept or changed, in sentences for people."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.replan import ChangeKind
from models.request import CacheMode, Objective
from solvers.common import words
from solvers.replanning.judgement import Judged, Verdict
from solvers.replanning.question import Question
from solvers.replanning.statistics import is_off, measured_off, terms_off
from solvers.replanning.ways import Priced

__all__ = ["NOTHING_OFF", "off", "why_changed", "why_kept"]

NOTHING_OFF = "Nothing is off by more than {:.3g} % from what the plan was made for, so nothing was looked at."
SHOWN = 4  # statistics that are named: the ones furthest off

_KINDS = {
    ChangeKind.NONE: "",
    ChangeKind.ORDERS: "Other probe orders",
    ChangeKind.CACHES: "Other caches",
    ChangeKind.ALLOCATION: "Other allowances",
    ChangeKind.TREE: "Another join tree",
}
_BETTER = {Objective.MIN_CPU: "less CPU", Objective.MIN_MEMORY: "less memory", Objective.MAX_HEADROOM: "more headroom"}


def off(asked: Question) -> list[str]:
    """What is off by more than the error, the statistics furthest off first; empty where nothing is."""
    error, plan, measured = asked.thresholds.error, asked.asked.plan, asked.asked.measured
    statistics = asked.drift.off(error)
    said = terms_off(plan, asked.made_for, asked.asked.request, error)
    said += [statistic.sentence() for statistic in statistics[:SHOWN]]
    if len(statistics) > SHOWN:
        said.append(f"{len(statistics) - SHOWN} more statistics are off by more than {_percent(error)}.")
    said += [figure.sentence() for figure in measured_off(plan, measured, error)]
    said += _overload(asked)
    if said and measured.output_rate is not None and is_off(asked.priced.output_rate, measured.output_rate, error):
        expected, seen = words.amount(asked.priced.output_rate), words.amount(measured.output_rate)
        said.append(f"The statistics would have {expected} results/s, and {seen} are measured: some selectivity is not what they say.")
    if said and asked.factor != 1.0:
        said.append(f"The measured CPU is {asked.factor:.3g} times what the cost constants say, so what fits is judged with them scaled.")
    return said


def _overload(asked: Question) -> list[str]:
    """Where the running plan is over a cap by more than the error."""
    running, caps, more = asked.running, asked.now.caps, 1.0 + asked.thresholds.error
    said = []
    if running.cpu > caps.cpu * more:
        said.append(f"The running plan takes {words.cpu(running.cpu)} of {words.cpu(caps.cpu)} CPU.")
    if running.memory_bytes > caps.memory_bytes * more:
        said.append(f"The running plan takes {words.bytes_(running.memory_bytes)} of {words.bytes_(caps.memory_bytes)} memory.")
    return said


def why_changed(asked: Question, judged: Judged) -> list[str]:
    """What the change brings."""
    what, running, now = _KINDS[judged.kind], asked.running, judged.now
    said = {
        Verdict.FITS: f"The running plan does not fit: {_use(running)}. {what} fit{'s' if judged.kind is ChangeKind.TREE else ''}: {_use(now)}.",
        Verdict.KEEPS_UP: f"The running plan does not keep up: {_use(running)}, and no plan fits. {_keeps_up(asked, judged)}",
        Verdict.FRESHER: f"A freshness predicate is broken that can be kept. {_keeps_up(asked, judged)}",
        Verdict.NO_SHEDDING: f"Nothing has to be shed any more: {_use(now)}.",
        Verdict.DROPS: _dropped(asked, judged),
        Verdict.WORTH_IT: f"{what} bring{'s' if judged.kind is ChangeKind.TREE else ''} {_gain(asked, judged)}.",
    }[judged.verdict]
    return [said, *_building(asked, judged)]


def _dropped(asked: Question, judged: Judged) -> str:
    kept = {place.name for place in judged.now.way.places}
    names = " and ".join(place.name for place in asked.way.places if place.name not in kept)
    if asked.now.options.caches is CacheMode.OFF:
        return f"The request allows no caches: without {names}."
    return f"By now more goes into keeping {names} than is saved."


def why_kept(asked: Question, tried: Sequence[Judged]) -> list[str]:
    """Why nothing that was tried is worth it."""
    judged = [one for one in tried if one.verdict is not Verdict.SAME]
    if not asked.running.fits and asked.running.shared is None and not any(one.now.fits for one in judged):
        return ["No other plan was found that fits the caps."]
    if not judged:
        return ["The running plan is still the best that was found."]
    best = max(judged, key=lambda one: one.gain)
    least = _percent(asked.thresholds.gain)
    if best.gain <= 0.0:
        return ["The running plan is still the best that was found."]
    brings = f"{_KINDS[best.kind]} would bring {_gain(asked, best)}"
    return {
        Verdict.TOO_LITTLE: [f"{brings}; a change must bring {least}."],
        Verdict.NOISE: [
            f"{brings}, but only {_percent(max(0.0, best.eased_gain))} if the statistics are off by {_percent(asked.thresholds.error)}; "
            f"a change must bring {least} even then."
        ],
        Verdict.TOO_DEAR: [f"{brings}.", *_building(asked, best)],
        Verdict.DOES_NOT_FIT: [f"{brings}, but would not fit the caps if the statistics are off by {_percent(asked.thresholds.error)}."],
    }.get(best.verdict, [f"{brings}."])


def _gain(asked: Question, judged: Judged) -> str:
    what = "more results" if asked.running.shared or judged.now.shared else _BETTER[asked.now.objective]
    return f"{_percent(judged.gain)} {what}"


def _keeps_up(asked: Question, judged: Judged) -> str:
    results = words.amount(judged.now.load.kept_up(asked.now.caps.cpu))
    return f"{_KINDS[judged.kind]} keep{'s' if judged.kind is ChangeKind.TREE else ''} up, with {results} results/s."


def _building(asked: Question, judged: Judged) -> list[str]:
    """What building the new states takes, and what it is weighed against."""
    work, graph = judged.building, asked.now.model.graph
    if not work.states:
        return []
    names = [graph.label(mask) for mask in work.states[:SHOWN]] + ["…"] * (len(work.states) > SHOWN)
    said = f"Building {', '.join(names)} takes {words.amount(work.cpu_seconds)} CPU-seconds"
    saved = asked.running.cpu - judged.now.cpu
    if asked.now.objective is Objective.MIN_CPU and not judged.now.shared and not asked.running.shared and saved > 0.0:
        return [f"{said}; within {words.amount(asked.horizon)} s the change saves {words.amount(saved * asked.horizon)}."]
    return [f"{said}."]


def _use(priced: Priced) -> str:
    caps = priced.problem.caps
    cpu = f"{words.cpu(priced.cpu)} of {words.cpu(caps.cpu)} CPU" if math.isfinite(caps.cpu) else f"{words.cpu(priced.cpu)} CPU"
    held = words.bytes_(priced.memory_bytes)
    return f"{cpu}, {held} of {words.bytes_(caps.memory_bytes)}" if math.isfinite(caps.memory_bytes) else f"{cpu}, {held}"


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g} %" if share < 1e6 else "far"

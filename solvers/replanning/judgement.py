"""Whether a change is worth it: what it brings under today's statistics and under eased ones, and what it costs to make.

Rules, the first that applies:
  * where what runs sheds load or would have to, results per second decide (`allocation.adaptation`); shedding ends where everything fits with room;
  * a plan that is over a cap gives way to any that is not; where noise may have brought it there by no more than the error, to one that has room;
  * a plan within the caps gives way to one that is within them too and better by the objective by the gain threshold, under both sets of
    statistics, if that saves more within the horizon than building its new states costs.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from enum import Enum

from models.replan import ChangeKind
from models.request import Objective
from solvers.allocation.adaptation import Why, adapt
from solvers.common.deadline import Deadline
from solvers.model.point import Point, point_of
from solvers.model.sensitivity import headroom
from solvers.plan.outcome import allocated, of_shape
from solvers.replanning.question import Question
from solvers.replanning.rebuilding import Building, building
from solvers.replanning.ways import Priced, Way, kind_of, price, way_of_outcome

__all__ = ["Judged", "Verdict", "judge"]


class Verdict(Enum):
    """What becomes of a proposed change, and why."""

    FITS = "the running plan does not fit, this one does"
    KEEPS_UP = "the running plan does not keep up, this one does"
    FRESHER = "freshness that the running plan breaks is kept"
    NO_SHEDDING = "nothing has to be shed any more"
    DROPS = "a cache costs more than it saves"
    WORTH_IT = "it brings the gain"

    SAME = "it is what runs"
    DOES_NOT_FIT = "it does not fit either"
    TOO_LITTLE = "it brings too little"
    NOISE = "it brings too little if the statistics are off by the error"
    TOO_DEAR = "building its states costs more than it saves"

    @property
    def accepts(self) -> bool:
        return self in _ACCEPTING


_ACCEPTING = {Verdict.FITS, Verdict.KEEPS_UP, Verdict.FRESHER, Verdict.NO_SHEDDING, Verdict.DROPS, Verdict.WORTH_IT}


@dataclass(frozen=True)
class Judged:
    """A proposed change with its figures and its verdict."""

    verdict: Verdict
    kind: ChangeKind
    gain: float
    """Under today's statistics."""
    eased_gain: float
    """Under eased ones."""
    now: Priced
    building: Building
    roomy: bool
    """Whether it is within the caps even if its figures are off by the error."""


def judge(question: Question, way: Way, deadline: Deadline, drops: bool = False) -> Judged:
    """Whether to change to this way. `drops`: it is what runs, less caches that cost more than they save."""
    now = question.running if _runs(question, way) else price(question.now, way)
    kind, work = kind_of(question.running, now), building(now, question.running.kept)
    if kind is ChangeKind.NONE:
        return Judged(Verdict.SAME, kind, 0.0, 0.0, now, work, roomy(now, question.thresholds.error))
    eased = price(question.eased, _for_eased(question, way, deadline))
    gains = gain(question.running, now), gain(question.running_eased, eased)
    room = roomy(now, question.thresholds.error)
    if now.shared or question.running.shared:
        verdict = _by_results(question, now, eased, gains, work)
    elif not question.running.fits:
        clearly = not question.running_eased.fits or question.running.over(question.thresholds.error)
        verdict = Verdict.FITS if now.fits and (clearly or room) else Verdict.DOES_NOT_FIT
    elif not now.fits or not eased.fits:
        verdict = Verdict.DOES_NOT_FIT
    else:
        verdict = Verdict.DROPS if drops else _by_gain(question, now, gains, work)
    return Judged(verdict, kind, gains[0], gains[1], now, work, room)


def _runs(question: Question, way: Way) -> bool:
    """Whether the way is the one that runs, with the algorithms that it would be given now: it is priced already."""
    return way == question.running.way and question.running.problem is question.now


def _for_eased(question: Question, way: Way, deadline: Deadline) -> Way:
    """The same way, its allowances those that its tree would have there: shares that are right for one load are not for another."""
    if way.shares is None:
        return way
    problem = replace(question.eased, shape_given=True)
    return way_of_outcome(problem, allocated(problem, of_shape(point_of(problem.model, way.tree)), deadline))


def roomy(priced: Priced, error: float) -> bool:
    """Whether the plan is within the caps even if its figures are off by the error."""
    return priced.problem.caps.admit(Point(priced.point.cpu * (1.0 + error), priced.point.memory_bytes * (1.0 + error), priced.way.tree))


def gain(running: Priced, other: Priced) -> float:
    """How much better the other is, as a share of what the running one has: by results where load is shed, else by the objective."""
    objective, caps = running.problem.objective, running.problem.caps
    if running.shared or other.shared:
        return _more(running.load.kept_up(caps.cpu), other.load.kept_up(caps.cpu))
    if objective is Objective.MIN_CPU:
        return _less(running.cpu, other.cpu)
    if objective is Objective.MIN_MEMORY:
        return _less(running.memory_bytes, other.memory_bytes)
    factors = [headroom(priced.total, priced.problem.model, caps) for priced in (running, other)]
    before, after = (math.inf if factor is None else factor for factor in factors)
    return _more(before, after)


def _less(before: float, after: float) -> float:
    return max(-sys.float_info.max, (before - after) / before) if before > 0.0 else 0.0


def _more(before: float, after: float) -> float:
    if before == after:
        return 0.0
    return min(sys.float_info.max, (after - before) / before) if before > 0.0 and math.isfinite(before) else sys.float_info.max


def _by_gain(question: Question, now: Priced, gains: tuple[float, float], work: Building) -> Verdict:
    if gains[0] < question.thresholds.gain or not gains[0] > 0.0:
        return Verdict.TOO_LITTLE
    if gains[1] < question.thresholds.gain or not gains[1] > 0.0:
        return Verdict.NOISE
    return Verdict.WORTH_IT if _pays(question, now, work) else Verdict.TOO_DEAR


def _by_results(question: Question, now: Priced, eased: Priced, gains: tuple[float, float], work: Building) -> Verdict:
    """Where load is shed, or would be."""
    thresholds, cap = question.thresholds, question.now.caps.cpu
    if not now.shared:
        if not now.fits or not eased.fits:
            return Verdict.DOES_NOT_FIT
        if roomy(now, thresholds.error):
            return Verdict.NO_SHEDDING
        return _by_gain(question, now, gains, work)
    whys = {adapt(running.load, other.load, cap, thresholds) for running, other in ((question.running, now), (question.running_eased, eased))}
    if whys == {Why.OVER}:
        return Verdict.KEEPS_UP
    if whys <= {Why.OVER, Why.STALE} and None not in whys:
        return Verdict.FRESHER
    return _by_gain(question, now, gains, work)


def _pays(question: Question, now: Priced, work: Building) -> bool:
    """Whether the change brings more within the horizon than building its states costs."""
    running, caps = question.running, question.now.caps
    if not work.cpu_seconds:
        return True
    if running.shared or now.shared:
        before, after = running.load.kept_up(caps.cpu), now.load.kept_up(caps.cpu)
        return (after - before) * question.horizon >= after * work.cpu_seconds / caps.cpu
    if running.problem.objective is Objective.MIN_CPU:
        return (running.cpu - now.cpu) * question.horizon >= work.cpu_seconds
    # Memory and headroom cannot be weighed against CPU: it only has to be there.
    return now.cpu + work.cpu_seconds / question.horizon <= caps.cpu

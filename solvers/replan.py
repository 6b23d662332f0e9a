"""Is the plan that runs still the one to run? Keep or change, and to what (contract §3, POST /v1/replans).

Problem: statistics drift under a plan that runs; a change costs something, and noise is no drift. Method: where nothing is off by more than the error
threshold ε, nothing is looked at. Else attempts are made from the smallest kind of change to the largest (`replanning.attempts`), and the first
that is worth it (`replanning.judgement`) is the answer: it has to bring the gain threshold p under today's statistics and under ones eased by ε
towards those that the running plan was made for, and more within the horizon than building its states costs. A plan that does not fit its
caps is changed whatever the gain, if another one fits.

Guarantee: pure, and the same request gives the same answer as long as the search ends within its time; `kind` is the smallest kind of change of which
the best plan found is worth it. Complexity: that of one plan, beside a few pricings. Papers: 1 §4.5, 2 §4.4.
"""

from __future__ import annotations

from dataclasses import replace

from models.plan import Plan
from models.replan import ChangeKind, Decision, Replan, ReplanRequest, Running
from solvers.allocation.in_plans import Relief, allocation_of, share_out
from solvers.caches.in_plans import Known
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.model.point import point_of
from solvers.plan.builder import build_plan
from solvers.plan.outcome import of_shape, proven
from solvers.planner import begin
from solvers.replanning.attempts import Attempt, attempts
from solvers.replanning.judgement import Judged, Verdict, judge
from solvers.replanning.question import Question, pointing, question
from solvers.replanning.reasons import NOTHING_OFF, off, why_changed, why_kept
from solvers.replanning.rebuilding import rebuilt

__all__ = ["keep", "replan"]


def replan(request: ReplanRequest, progress: Progress = NOBODY) -> Replan:
    """Keep the running plan, or change it by as little as brings the gain."""
    deadline = Deadline.after(request.request.options.time_limit, progress)
    asked = question(request)
    with pointing("/request"):
        begin(asked.now, progress)
        reasons = off(asked)
        if not reasons:
            return keep(asked, [NOTHING_OFF.format(100.0 * request.thresholds.error)], deadline)
        tried: list[tuple[Attempt, Judged]] = []
        known = Known()
        for attempt in attempts(asked, known, deadline):
            # The best of all is often the best of the running tree, which was judged before.
            before = (judged for other, judged in tried if (other.way, other.drops) == (attempt.way, attempt.drops))
            tried.append((attempt, next(before, None) or judge(asked, attempt.way, deadline, attempt.drops)))
            if _settles(tried[-1][1]):
                return _change(asked, *tried[-1], reasons, known, deadline)
        for attempt, judged in tried:  # none fits with room: the smallest change that just fits
            if judged.verdict.accepts:
                return _change(asked, attempt, judged, reasons, known, deadline)
        # Else it is of today's problem at other costs, or of plans within a memory cap that the running one is over.
        least = known.least if asked.factor == 1.0 and asked.priced.fits else None
        return keep(asked, [*reasons, *why_kept(asked, [judged for _, judged in tried])], deadline, least=least)


def _settles(judged: Judged) -> bool:
    """Whether no larger change is looked at: it is worth it, and where it is made because the running plan does not fit, it fits with room."""
    return judged.verdict.accepts and (judged.verdict is not Verdict.FITS or judged.roomy)


def _change(asked: Question, attempt: Attempt, judged: Judged, reasons: list[str], known: Known, deadline: Deadline) -> Replan:
    written = attempt.outcome or replace(of_shape(point_of(asked.now.model, attempt.way.tree), judged.now.cached), least=known.least)
    termination = deadline.termination(written.termination)
    outcome = proven(asked.now, replace(written, termination=termination), deadline)
    plan = build_plan(asked.now, outcome)
    return Replan(
        decision=Decision.CHANGE,
        kind=judged.kind,
        reasons=[*reasons, *why_changed(asked, judged)],
        gain=judged.gain,
        running=_running(asked),
        plan=plan,
        rebuild=rebuilt(judged.building, plan.operators, asked.now.model.graph),
        termination=termination,
    )


def keep(asked: Question, reasons: list[str], deadline: Deadline, brief: bool = False, least: float | None = None) -> Replan:
    """The running plan goes on. `brief`: what takes long is left out of it. `least`: a lower bound of the CPU of all plans, if one is known."""
    return Replan(
        decision=Decision.KEEP,
        kind=ChangeKind.NONE,
        reasons=reasons,
        gain=0.0,
        running=_running(asked),
        plan=_as_it_runs(asked, deadline, brief, least),
        rebuild=[],
        termination=deadline.termination(),
    )


def _running(asked: Question) -> Running:
    priced = asked.priced
    return Running(cpu=priced.cpu, memory_bytes=priced.memory_bytes, output_rate=priced.output_rate, qualified=priced.fits)


def _as_it_runs(asked: Question, deadline: Deadline, brief: bool, least: float | None) -> Plan:
    """The running plan with its figures of today, and the statistics that it was made for where they are others."""
    priced = asked.priced
    problem, outcome = priced.problem, of_shape(replace(priced.point, cpu=priced.tree.cpu, memory_bytes=priced.tree.memory_bytes), priced.cached)
    if priced.shared is not None or not priced.fits:
        allocation = None
        if priced.shared is not None:
            enough = share_out(problem.model, priced.tree, problem.caps.cpu, problem.freshness).freshness_cpu
            allocation = allocation_of(problem.model, replace(priced.shared, freshness_cpu=enough))
        outcome = replace(outcome, relief=Relief(outcome.found, allocation, (), None))
    plan = build_plan(problem, proven(problem, replace(outcome, brief=brief, least=least), deadline))
    return plan if asked.made_for == plan.query else plan.model_copy(update={"made_for": asked.made_for})

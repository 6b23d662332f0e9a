"""Whether today's plans are still as good as the approved ones (contract §6).

Problem: a stored plan's figures come from the request, the cost constants and the cost model of its day; compared with a plan
of today they differ for reasons that are not the plan's. Method: the approved structure is priced again under today's request
and cost model (`estimate`; its caches one by one), so that CPU, memory and output rate compare like with like. Whether it
qualified and what was proven are taken as approved: those are promises to whoever relies on them.

Verdicts, the first that applies:
  failed      no plan, or the approved plan does not fit the request
  regressed   CPU, memory or output rate worse by more than the tolerance; a proof lost; no longer qualified
  improved    one of these better by more than the tolerance
  identical   the same structure, and nothing around it differs
  equivalent  another structure, the same cost, and nothing around it differs
  changed     the rest

Guarantee: a comparison that could not be made is `failed`, never clean. Complexity: that of planning, case by case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from pydantic import ValidationError

from models.check import (
    Aspect,
    Bar,
    CaseResult,
    CheckCase,
    CheckReport,
    CheckRequest,
    CheckStatus,
    Tolerance,
    Verdict,
    VerdictCounts,
)
from models.faults import errors_of
from models.plan import DiffRequest, EstimateRequest, Plan, Proof, Termination
from solvers.common import words
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.errors import ShapeError, WatersmeetError, in_range
from solvers.common.tolerances import ROUNDING
from solvers.diff import diff
from solvers.estimate import estimate, with_given_caches
from solvers.planner import plan

__all__ = ["check", "check_case", "failed", "price_again", "report"]

SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}
PROOFS = {Proof.NONE: 0, Proof.BOUNDED: 1, Proof.OPTIMAL: 2}


def check(request: CheckRequest, progress: Progress = NOBODY) -> CheckReport:
    """Plan every case anew and compare it with what was approved."""
    deadline = Deadline.after(request.time_limit, progress)
    results = [check_case(case, request.tolerance, deadline) for case in request.cases]
    plans = [result.plan for result in results if result.plan is not None]
    cut_off = (plan.termination for plan in plans if plan.termination is not Termination.COMPLETE)
    return report(results, request.fail_on).model_copy(update={"termination": next(cut_off, deadline.termination())})


def report(results: Iterable[CaseResult], bar: Bar) -> CheckReport:
    """All results, the worst first, against the bar."""
    least = SEVERITY[Verdict(bar.value)]
    judged = [result.model_copy(update={"fails": SEVERITY[result.verdict] >= least}) for result in results]
    judged.sort(key=lambda result: (-SEVERITY[result.verdict], -_badness(result), result.name))
    counts = {verdict.value: sum(result.verdict is verdict for result in judged) for verdict in Verdict}
    if counts[Verdict.FAILED.value]:
        status = CheckStatus.BROKEN
    else:
        status = CheckStatus.FINDINGS if any(result.fails for result in judged) else CheckStatus.CLEAN
    return CheckReport(version=version("watersmeet"), status=status, counts=VerdictCounts(**counts), cases=judged)


def failed(name: str, *reasons: str) -> CaseResult:
    """A case that could not be planned or compared, and why."""
    return _result(name, Verdict.FAILED, reasons=list(reasons))


def check_case(case: CheckCase, tolerance: Tolerance, deadline: Deadline) -> CaseResult:
    """One case, planned anew within its own time limit and the deadline."""
    options, versions = case.request.options, list(_version_note(case))
    left = deadline.remaining()
    if left <= 0.0:
        return failed(case.name, "no time was left to plan it; raise time_limit or check fewer cases at a time")
    if left < options.time_limit:
        options = options.model_copy(update={"time_limit": left})
    try:
        with in_range():
            now = plan(case.request.model_copy(update={"options": options}), deadline.progress)
    except WatersmeetError as refused:
        return _result(case.name, Verdict.FAILED, notes=versions, reasons=[_pointed(refused.pointer, refused.detail)])
    # Every figure depends on the cost constants, so a change of them is said first.
    around = sorted(diff(DiffRequest(before=case.plan, after=now)).request, key=lambda sentence: not sentence.startswith("costs."))
    try:
        with in_range():
            approved = price_again(case)
    except WatersmeetError as refused:
        reasons = [f"the approved plan does not fit the request: {refused.detail}", "look at the new plan, then approve it with --update"]
        return _result(case.name, Verdict.FAILED, notes=[*versions, *around], reasons=reasons, plan=now)
    around = around or _model_notes(case.plan, approved)
    return _compare(case, approved, now, tolerance, [*versions, *around], changed_around=bool(around))


def price_again(case: CheckCase) -> Plan:
    """The approved structure, caches included, under the request and the cost model of today. Raises ShapeError where it does not fit."""
    shape = {
        **case.request.model_dump(),
        "operators": [operator.model_dump() for operator in case.plan.operators],
        "tables": [table.model_dump() for table in case.plan.tables],
    }
    try:
        request = EstimateRequest.model_validate(shape)
    except ValidationError as failure:
        raise ShapeError("; ".join(sentence for _, sentence in errors_of(failure, EstimateRequest)), "/operators") from None
    return with_given_caches(request, estimate(request), case.plan)


def _compare(case: CheckCase, approved: Plan, now: Plan, tolerance: Tolerance, notes: list[str], changed_around: bool) -> CaseResult:
    losses = dict(_losses(case.plan, approved, now, tolerance))
    gains = list(_gains(case.plan, approved, now, tolerance))
    difference = diff(DiffRequest(before=approved, after=now))
    same_cost = all(math.isclose(a, b, rel_tol=ROUNDING) for a, b in _figures(approved, now))
    if losses:
        verdict, reasons = Verdict.REGRESSED, [*losses.values(), *gains]
    elif gains:
        verdict, reasons = Verdict.IMPROVED, gains
    elif changed_around:
        verdict, reasons = Verdict.CHANGED, [] if difference.same_structure else ["another structure"]
    elif difference.same_structure:
        verdict, reasons = Verdict.IDENTICAL, []
    elif same_cost:
        verdict, reasons = Verdict.EQUIVALENT, ["another structure at the same cost"]
    else:
        verdict, reasons = Verdict.CHANGED, ["another structure, its cost within the tolerance"]
    return CaseResult(
        name=case.name,
        verdict=verdict,
        fails=False,
        regressions=list(losses),
        notes=notes,
        reasons=reasons,
        approved=approved,
        plan=now,
        diff=difference,
    )


def _result(name: str, verdict: Verdict, notes: list[str] | None = None, reasons: list[str] | None = None, plan: Plan | None = None) -> CaseResult:
    return CaseResult(
        name=name, verdict=verdict, fails=False, regressions=[], notes=notes or [], reasons=reasons or [], approved=None, plan=plan, diff=None
    )


def _figures(approved: Plan, now: Plan) -> list[tuple[float, float]]:
    return [(approved.cost.cpu, now.cost.cpu), (approved.cost.memory_bytes, now.cost.memory_bytes), (_yields(approved), _yields(now))]


def _yields(plan: Plan) -> float:
    """Results per second; where the CPU is short, those that the allocation leaves."""
    return plan.allocation.throughput if plan.allocation else plan.cost.output_rate


def _losses(recorded: Plan, approved: Plan, now: Plan, tolerance: Tolerance) -> Iterator[tuple[Aspect, str]]:
    if recorded.qualified and not now.qualified:
        yield Aspect.QUALIFIED, "no longer qualified: no plan fits the caps"
    (cpu, cpu_now), (memory, memory_now), (rate, rate_now) = _figures(approved, now)
    if _above(cpu_now, cpu, tolerance.cpu):
        yield Aspect.CPU, f"CPU {words.cpu(cpu)} → {words.cpu(cpu_now)}{_share(cpu, cpu_now, tolerance.cpu)}"
    if _above(memory_now, memory, tolerance.memory):
        yield Aspect.MEMORY, f"memory {words.bytes_(memory)} → {words.bytes_(memory_now)}{_share(memory, memory_now, tolerance.memory)}"
    if _below(rate_now, rate, tolerance.output_rate):
        yield Aspect.OUTPUT_RATE, f"results/s {words.amount(rate)} → {words.amount(rate_now)}{_share(rate, rate_now, tolerance.output_rate)}"
    # What was proven of plans without caches is still proven where `tree_proof` says so.
    if max(PROOFS[now.proof], PROOFS[now.tree_proof]) < max(PROOFS[recorded.proof], PROOFS[recorded.tree_proof]):
        yield Aspect.PROOF, f"proof {recorded.proof.value} → {now.proof.value}"


def _gains(recorded: Plan, approved: Plan, now: Plan, tolerance: Tolerance) -> Iterator[str]:
    if now.qualified and not recorded.qualified:
        yield "now qualified"
    (cpu, cpu_now), (memory, memory_now), (rate, rate_now) = _figures(approved, now)
    if _below(cpu_now, cpu, tolerance.cpu):
        yield f"CPU {words.cpu(cpu)} → {words.cpu(cpu_now)}{_share(cpu, cpu_now, tolerance.cpu)}"
    if _below(memory_now, memory, tolerance.memory):
        yield f"memory {words.bytes_(memory)} → {words.bytes_(memory_now)}{_share(memory, memory_now, tolerance.memory)}"
    if _above(rate_now, rate, tolerance.output_rate):
        yield f"results/s {words.amount(rate)} → {words.amount(rate_now)}{_share(rate, rate_now, tolerance.output_rate)}"
    if PROOFS[now.proof] > PROOFS[recorded.proof]:
        yield f"proof {recorded.proof.value} → {now.proof.value}"


def _above(value: float, reference: float, tolerance: float) -> bool:
    return value > reference * (1.0 + max(tolerance, ROUNDING))


def _below(value: float, reference: float, tolerance: float) -> bool:
    return value < reference * (1.0 - max(tolerance, ROUNDING))


def _share(before: float, after: float, tolerance: float) -> str:
    moved = f"{100.0 * (after / before - 1.0):+.3g} %" if before > 0.0 else "from nothing"
    return f" ({moved}" + (f", tolerance {100.0 * tolerance:.3g} %)" if tolerance else ")")


def _badness(result: CaseResult) -> float:
    """How far the worst figure moved; a plan that no longer qualifies is worst of all."""
    if Aspect.QUALIFIED in result.regressions:
        return math.inf
    if result.approved is None or result.plan is None:
        return 0.0
    ratios = [(after, before) for before, after in _figures(result.approved, result.plan)[:2]]
    ratios.append(_figures(result.approved, result.plan)[2])  # fewer results are worse
    return max(top / bottom if bottom > 0.0 else (math.inf if top > 0.0 else 1.0) for top, bottom in ratios)


def _version_note(case: CheckCase) -> Iterator[str]:
    today = version("watersmeet")
    if case.version is not None and case.version != today:
        yield f"approved by watersmeet {case.version}, planned by {today}"


def _model_notes(recorded: Plan, approved: Plan) -> list[str]:
    """What the cost model prices otherwise today than when the plan was approved, although the request is the same."""
    figures = (
        ("CPU", recorded.cost.cpu, approved.cost.cpu, words.cpu),
        ("memory", recorded.cost.memory_bytes, approved.cost.memory_bytes, words.bytes_),
        ("results/s", recorded.cost.output_rate, approved.cost.output_rate, words.amount),
    )
    moved = [f"{name} {shown(was)} → {shown(now)}" for name, was, now, shown in figures if not math.isclose(was, now, rel_tol=ROUNDING)]
    return [f"the cost model of today prices the approved plan differently: {', '.join(moved)}"] if moved else []


def _pointed(pointer: str, sentence: str) -> str:
    return f"{pointer}: {sentence}" if pointer else sentence

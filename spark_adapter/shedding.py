"""What a plan sheds, in words. A plan that sheds load, or does not fit its caps, runs only if its user has said that it may."""

from __future__ import annotations

from models.plan import Plan
from spark_adapter.errors import SheddingError
from spark_adapter.progress import size

__all__ = ["check_shed", "shed_by"]

SHOWN = 3  # probes named one by one; a plan may have hundreds


def check_shed(plan: Plan, shed: bool) -> None:
    """Raises SheddingError, unless the user said that the plan may shed."""
    if shed:
        return
    option = "to run it all the same give --shed (shed=True in Python)"
    lost = shed_by(plan)
    if lost:
        raise SheddingError([("/allocation", f"this plan would shed load: {lost}; {option}")])
    if not plan.qualified:
        raise SheddingError([("/qualified", f"this plan does not fit the caps that it was made for: {_excess(plan)}; {option}")])


def shed_by(plan: Plan) -> str:
    """What the plan's allocation keeps out; empty where it lets everything through."""
    if plan.allocation is None:
        return ""
    parts = []
    if plan.allocation.admitted < 1.0:
        parts.append(f"{_percent(1 - plan.allocation.admitted)} of every stream's rows are not let in")
    targets = {
        (operator.id, pipeline.input, i): probe.target
        for operator in plan.operators
        for pipeline in operator.pipelines
        for i, probe in enumerate(pipeline.probes)
    }
    short = [allowance for allowance in plan.allocation.allowances if allowance.share < 1.0]
    for allowance in sorted(short, key=lambda allowance: allowance.share)[:SHOWN]:
        target = targets.get((allowance.operator, allowance.input, allowance.step), f"step {allowance.step}")
        parts.append(f"{_percent(1 - allowance.share)} of the probes of {allowance.input} into {target} ({allowance.operator}) are not made")
    if len(short) > SHOWN:
        parts.append(f"and there are {len(short) - SHOWN} more probes of which only a share is made")
    return ", ".join(parts)


def _excess(plan: Plan) -> str:
    caps, parts = plan.resources, []
    if caps.cpu is not None and plan.cost.cpu > caps.cpu:
        parts.append(f"it takes {plan.cost.cpu:.3g} CPU of {caps.cpu:.3g}")
    if caps.memory_bytes is not None and plan.cost.memory_bytes > caps.memory_bytes:
        parts.append(f"it takes {size(plan.cost.memory_bytes)} of memory of {size(caps.memory_bytes)}")
    return ", ".join(parts) or "it says so itself (qualified: false)"


def _percent(share: float) -> str:
    """A percentage with few digits, which says 0 or 100 only where it is exactly that.

    >>> _percent(0.25), _percent(0.99999)
    ('25 %', '99.999 %')
    """
    return f"{100 * share:.5g} %"

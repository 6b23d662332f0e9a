"""Why this plan and not another: the plan beside the plain mjoin and the best binary tree of the same request."""

from __future__ import annotations

from models.plan import Plan
from models.request import CacheMode, Method, Options, PlanRequest
from solvers.common import words

__all__ = ["compared"]

_OTHERS = ((Method.MJOIN, "The plain mjoin"), (Method.BJTREE, "The best binary tree"))


def compared(plan: Plan) -> list[str]:
    """A sentence for each of the two usual plans that this one is not."""
    from solvers.planner import plan as make

    sentences = []
    for method, name in _OTHERS:
        request = PlanRequest(
            query=plan.query,
            resources=plan.resources,
            costs=plan.costs,
            objective=plan.objective,
            options=Options(method=method, caches=CacheMode.OFF),
        )
        other = make(request)
        if other.fingerprint == plan.fingerprint:
            sentences.append(f"{name} is this plan.")
            continue
        verdict = "fits as well" if other.qualified else "does not fit"
        cpu = _against(other.cost.cpu, plan.cost.cpu)
        memory = _against(other.cost.memory_bytes, plan.cost.memory_bytes)
        sentences.append(f"{name} {verdict}: {words.cpu(other.cost.cpu)} CPU ({cpu}) and {words.bytes_(other.cost.memory_bytes)} memory ({memory}).")
    return sentences


def _against(other: float, this: float) -> str:
    return f"{other / this:.3g} times this plan's" if this > 0.0 else "this plan uses none"

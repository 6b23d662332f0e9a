"""When to share out anew while a plan runs (paper 2 §4.4).

Problem: rates and selectivities drift, and an allocation that was best no longer is; changing it for every flicker is no use.
Method: monitoring, analysis, actuation. Analysis runs when the measured throughput is off the expected one by more than the
error threshold ε. Its allocation is put to work when it is predicted to yield more than the present one by the performance
threshold p, or when the present one leaves the CPU cap or breaks a freshness predicate that the new one keeps.
Guarantee: none of the drift; the new allocation is the best for the statistics it was given. Complexity: one allocation.
Departs from paper 2 in the last clause: an allocation that cannot be kept up is replaced whatever it promises.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.allocation.freshness import ages, cpu_of
from solvers.allocation.in_plans import Shared, share_out
from solvers.allocation.productivity import paths_of_plan, results_of
from solvers.model.cost import CostModel, PricedTree

__all__ = ["Thresholds", "adapt"]


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The paper's settings for its real data; for synthetic data it used 5–8 % and 3–7 %."""

    error: float = 0.05
    """ε: how far the throughput may be off before anything is looked at."""
    gain: float = 0.05
    """p: how much more a new allocation must yield."""


def adapt(
    now: CostModel,
    priced: PricedTree,
    cap: float,
    stated: Sequence[float],
    present: Shared,
    measured: float,
    thresholds: Thresholds | None = None,
) -> Shared | None:
    """The allocation to change to, or None to stay. `now` has the statistics of the last windows, `measured` their throughput."""
    limits = thresholds or Thresholds()
    if abs(measured - present.throughput) <= limits.error * present.throughput:
        return None
    proposed = share_out(now, priced, cap, stated)
    plan = paths_of_plan(now.graph, now.costs, priced)
    reached = ages(plan, present.shares)
    over = plan.keeping + cpu_of(plan, present.shares) > cap
    stale = any(age > limit and fresh for age, limit, fresh in zip(reached, stated, proposed.fresh, strict=True))
    better = proposed.throughput > (1.0 + limits.gain) * results_of(plan, present.shares)
    return proposed if over or stale or better else None

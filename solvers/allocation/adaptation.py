"""When to share out anew while a plan runs (paper 2 §4.4).

Problem: rates and selectivities drift, and an allocation that was best no longer is; changing it for every flicker is no use.
Method: monitoring, analysis, actuation. The pipeline monitors; analysis is run when something is off by more than the error threshold ε
(`solvers.replan`, which asks here); what it proposes is put to work when it is predicted to yield more than what runs by the performance
threshold p, or when what runs leaves the CPU cap by more than ε or breaks a freshness predicate that the proposal keeps.
Guarantee: none of the drift; a proposal is judged by the statistics that both are priced for. Complexity: constant.
Departs from paper 2: an allocation that cannot be kept up is replaced whatever it promises, and what a plan that is over the cap yields is as
much of its results as the CPU suffices for: it falls behind, and a second of input takes longer than a second.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from models.replan import Thresholds

__all__ = ["Load", "Why", "adapt"]


class Load(NamedTuple):
    """What a plan uses and yields."""

    cpu: float
    results: float
    """Per second, as long as the CPU suffices."""
    fresh: tuple[bool, ...] = ()
    """For each stream whether its freshness predicate holds; empty where nothing is shed."""

    def kept_up(self, cap: float) -> float:
        """Results per second within the cap."""
        return self.results if self.cpu <= cap else self.results * (cap / self.cpu)

    def over(self, cap: float, error: float) -> bool:
        """Whether it is over the cap by more than the error."""
        return self.cpu > cap * (1.0 + error)


class Why(Enum):
    """Why another allocation is put to work."""

    OVER = "over the cap"
    STALE = "stale"
    BETTER = "better"


def adapt(present: Load, proposed: Load, cap: float, thresholds: Thresholds) -> Why | None:
    """Why to change from the present allocation to the proposed one; None to stay."""
    if present.over(cap, thresholds.error) and not proposed.over(cap, thresholds.error):
        return Why.OVER
    if any(kept and not keeps for keeps, kept in zip(present.fresh, proposed.fresh, strict=False)):
        return Why.STALE
    return Why.BETTER if proposed.kept_up(cap) > (1.0 + thresholds.gain) * present.kept_up(cap) else None

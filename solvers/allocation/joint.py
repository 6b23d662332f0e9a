"""Freshness and throughput decided together, as one linear program.

Problem: share a capacity out over paths so that every state is refreshed and the most results come out.
Method: maximise Σ output·units with Σ resources·units ≤ capacity, every state's refresh rate, and the paths' limits.
Guarantee: exact, so never worse than JAQPOT, with a proven bound. Where the capacity cannot pay the least cover, that cover is cut
down to it; where the program fails, it is the cover alone: then nothing is proven here.
Complexity: polynomial; one simplex run. In plans `solvers.allocation.freshness.joint_shares` finds the same without one.
Departs from paper 2, which decides the one before the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solvers.allocation.productivity import Path
from solvers.common.linear_program import Outcome, Row, linear_program
from solvers.common.tolerances import ROUNDED
from solvers.cover.exact import continuous_cover
from solvers.cover.greedy import CoverPath

__all__ = ["Joint", "joint"]


@dataclass(frozen=True, slots=True)
class Joint:
    """Units per path, and an upper bound of what any could yield (infinity: none is known)."""

    units: list[float]
    bound: float


def joint(capacity: float, paths: Sequence[Path], required: Mapping[str, float]) -> Joint:
    """The most results with every state refreshed; the least cover, as far as the capacity goes, where that is too dear or the program fails."""
    found = continuous_cover(required, [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths])
    cover, cost = found.units, found.cost
    if cost > capacity * ROUNDED:
        return Joint([amount * (capacity / cost) for amount in cover], math.inf)
    # Units of what the whole capacity would buy, so that the simplex's absolute tolerances mean the same for every unit of measure.
    sizes = [_most_units(capacity, path, required) or 1.0 for path in paths]
    largest = max((path.output * size for path, size in zip(paths, sizes, strict=True)), default=0.0) or 1.0
    # The cover itself must stay feasible, whatever the rounding.
    scale = capacity or 1.0
    rows = [Row({i: path.resources * sizes[i] / scale for i, path in enumerate(paths)}, high=max(capacity, cost) / scale)]
    for state, amount in required.items():
        if amount > 0.0:
            brought = math.fsum(path.covers[state] * cover[i] for i, path in enumerate(paths) if state in path.covers) / amount
            rows.append(
                Row({i: path.covers[state] * sizes[i] / amount for i, path in enumerate(paths) if state in path.covers}, low=min(1.0, brought))
            )
    values = [path.output * size / largest for path, size in zip(paths, sizes, strict=True)]
    limits = [max(_most_units(capacity, path, required), amount) / size for path, amount, size in zip(paths, cover, sizes, strict=True)]
    solved = linear_program(values, limits, rows, maximise=True)
    if solved.outcome is not Outcome.OPTIMAL:
        return Joint(cover, math.inf)
    return Joint([share * size for share, size in zip(solved.units, sizes, strict=True)], solved.bound * largest)


def _most_units(capacity: float, path: Path, required: Mapping[str, float]) -> float:
    """The most units of a path that can be of use: what the capacity pays for; where it takes and yields nothing, what its states need."""
    if path.resources > 0.0:
        return min(path.limit, capacity / path.resources)
    if path.output > 0.0:
        return path.limit
    return min(path.limit, max((required[state] / amount for state, amount in path.covers.items() if required.get(state)), default=0.0))

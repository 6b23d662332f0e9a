"""Freshness and throughput decided together, as one linear program.

Problem: share a capacity out over paths so that every state is refreshed and the most results come out.
Method: maximise Σ output·units with Σ resources·units ≤ capacity, every state's refresh rate, and the paths' limits.
Guarantee: exact, so never worse than JAQPOT. Where the capacity cannot pay the least cover, that cover is cut down to it.
Complexity: polynomial; one simplex run. In plans `solvers.allocation.freshness.joint_shares` finds the same without one.
Departs from paper 2, which decides the one before the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from solvers.allocation.productivity import Path
from solvers.cover.exact import continuous_cover
from solvers.cover.greedy import CoverPath
from solvers.linear_program import Row, linear_program

__all__ = ["joint"]


def joint(capacity: float, paths: Sequence[Path], required: Mapping[str, float]) -> tuple[list[float], float]:
    """Units per path, and what the least cover alone takes."""
    cover = continuous_cover(required, [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths])
    cost = math.fsum(path.resources * amount for path, amount in zip(paths, cover, strict=True) if amount)
    if cost > 0.0 and cost >= capacity:
        return [amount * (capacity / cost) for amount in cover], cost
    # Units of what the whole capacity would buy, so that the simplex's absolute tolerances mean the same for every unit of measure.
    sizes = [min(path.limit, capacity / path.resources if path.resources > 0.0 else path.limit) or 1.0 for path in paths]
    largest = max((path.output * size for path, size in zip(paths, sizes, strict=True)), default=0.0) or 1.0
    rows = [Row({i: path.resources * sizes[i] / (capacity or 1.0) for i, path in enumerate(paths)}, high=1.0)]
    for state, amount in required.items():
        if amount > 0.0:
            rows.append(Row({i: path.covers[state] * sizes[i] / amount for i, path in enumerate(paths) if state in path.covers}, low=1.0))
    values = [path.output * size / largest for path, size in zip(paths, sizes, strict=True)]
    shares = linear_program(values, [path.limit / size for path, size in zip(paths, sizes, strict=True)], rows, maximise=True)
    if shares is None:
        return cover, cost
    return [share * size for share, size in zip(shares, sizes, strict=True)], cost

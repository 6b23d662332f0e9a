"""GrePP: the most productive path first (paper 2 §4.1).

Problem: share a capacity out over paths that take `resources` and yield `output` per unit, each up to its limit.
Method: by falling path productivity ρ_p, each path as much as it can take, what it cannot use to the next.
Guarantee: exact for any amounts of units (the fractional knapsack). With whole units it is the paper's policy in the
discrete model, which wastes what is left over: no guarantee.
Complexity: O(k log k).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.allocation.productivity import Path
from solvers.common.scaling import decimal

__all__ = ["grepp", "grepp_in_whole_units"]


def _by_productivity(paths: Sequence[Path]) -> list[int]:
    """Most productive first; of equals the first. Paths that yield nothing are left out."""
    return sorted((i for i, path in enumerate(paths) if path.output > 0.0), key=lambda i: (-paths[i].productivity, i))


def grepp(capacity: float, paths: Sequence[Path]) -> list[float]:
    """Units per path.

    >>> grepp(30, [Path("A", 15, 4), Path("B", 16, 5), Path("C", 10, 1)])
    [0.0, 1.875, 0.0]
    """
    units, left = [0.0] * len(paths), capacity
    for i in _by_productivity(paths):
        path = paths[i]
        if path.resources <= 0.0:
            units[i] = path.limit
        elif path.limit * path.resources <= left:
            units[i] = path.limit
            left -= path.limit * path.resources
        else:
            units[i] = left / path.resources
            break
    return units


def grepp_in_whole_units(capacity: float, paths: Sequence[Path]) -> list[float]:
    """Whole units per path.

    >>> grepp_in_whole_units(30, [Path("A", 15, 4), Path("B", 16, 5), Path("C", 10, 1)])
    [0.0, 1.0, 1.0]
    """
    units, left = [0.0] * len(paths), decimal(capacity)
    for i in _by_productivity(paths):
        path = paths[i]
        most = math.floor(path.limit) if math.isfinite(path.limit) else None
        fit = math.floor(left / decimal(path.resources)) if path.resources > 0.0 else most
        count = min(n for n in (most, fit) if n is not None)
        units[i] = float(count)
        left -= count * decimal(path.resources)
    return units

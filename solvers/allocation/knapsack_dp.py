"""The discrete knapsack by dynamic programming over whole capacities (paper 2 §4.1).

Problem: whole units of paths, each up to its limit, within a whole capacity µ; resources are whole numbers.
Method: best[w] = the most results within w. A path of up to u units is cut into bundles of 1, 2, 4, … units that are
taken or not, so that one pass per bundle over the whole table will do.
Guarantee: exact. Complexity: O(k·µ·log u) steps, vectorised, and as many bytes; the paper's O(k·µ) has no limits on units.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.allocation.productivity import Path
from solvers.common.errors import MethodError

__all__ = ["knapsack_dp"]

MAX_CELLS = 100_000_000  # one byte each: which bundles were taken


def _bundles(count: int) -> list[int]:
    """Amounts whose sums are exactly 0 … count.

    >>> _bundles(10)
    [1, 2, 4, 3]
    """
    sizes, size = [], 1
    while count > 0:
        sizes.append(min(size, count))
        count -= sizes[-1]
        size *= 2
    return sizes


def knapsack_dp(capacity: int, paths: Sequence[Path]) -> list[float]:
    """Whole units per path.

    >>> knapsack_dp(30, [Path("A", 15, 4), Path("B", 16, 5), Path("C", 10, 1)])
    [2.0, 0.0, 0.0]
    """
    import numpy as np  # on the first call only: the service starts without it

    units = [0.0] * len(paths)
    items: list[tuple[int, int, int, float]] = []
    for i, path in enumerate(paths):
        if path.output <= 0.0:
            continue
        most = math.floor(path.limit) if math.isfinite(path.limit) else None
        resources = int(path.resources)
        if resources == 0:
            units[i] = float(most or 0)
            continue
        fit = capacity // resources
        for size in _bundles(fit if most is None else min(most, fit)):
            items.append((i, size, size * resources, size * path.output))
    if not items:
        return units
    if len(items) * (capacity + 1) > MAX_CELLS:
        raise MethodError(f"the table of dp would have {len(items)} × {capacity + 1} cells, more than {MAX_CELLS}: use exact", "/method")
    best = np.zeros(capacity + 1)
    taken = np.zeros((len(items), capacity + 1), dtype=bool)
    for row, (_, _, weight, value) in enumerate(items):
        with_it = best[: capacity + 1 - weight] + value
        better = with_it > best[weight:]
        taken[row, weight:] = better
        best[weight:] = np.where(better, with_it, best[weight:])
    left = capacity
    for row in range(len(items) - 1, -1, -1):
        if taken[row, left]:
            i, size, weight, _ = items[row]
            units[i] += size
            left -= weight
    return units

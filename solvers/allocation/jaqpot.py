"""JAQPOT as printed: cover the states first, spend the rest on throughput (paper 2, Alg. 1).

Problem: share a capacity out over paths so that every state is refreshed and the most results come out.
Method: GH-WMSCP for the cover, then GrePP with what is left of the capacity and of the paths.
Guarantee: none beyond that of its parts: the cover is greedy, and knows nothing of what its paths yield.
Complexity: quadratic in the number of paths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from solvers.allocation.grepp import grepp
from solvers.allocation.productivity import Path
from solvers.cover.greedy import CoverPath, greedy_cover

__all__ = ["jaqpot"]


def jaqpot(capacity: float, paths: Sequence[Path], required: Mapping[str, float]) -> list[float]:
    """Units per path. Where the cover alone takes more than there is, it is cut down to the capacity."""
    cover = greedy_cover(required, [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths])
    cost = math.fsum(path.resources * amount for path, amount in zip(paths, cover, strict=True) if amount)
    if cost > capacity:
        return [amount * (capacity / cost) for amount in cover]
    rest = [Path(path.name, path.resources, path.output, path.limit - amount) for path, amount in zip(paths, cover, strict=True)]
    return [amount + more for amount, more in zip(cover, grepp(capacity - cost, rest), strict=True)]

"""GH-WMSCP, the greedy heuristic for the weighted multiple set cover (paper 2 §4.2).

Problem: units of paths, each up to its limit, so that every state gets what it requires, at the least cost.
Method: the path with the least cost per tuple that states still lack, until one of them lacks nothing or the path is
used up; again, until no state lacks anything that a path could give.
Guarantee: feasible whenever a cover exists. Within ln(m)+1 of the least cost for m states where every unit brings 1 to
each state it covers, which is so in every plan (see `solvers.allocation.freshness`); for other amounts a heuristic.
Complexity: O((m + k)·k) where amounts are whole numbers, as in every plan; else O((m + k)·m·k).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solvers.common.scaling import decimal

__all__ = ["CoverPath", "greedy_cover"]


@dataclass(frozen=True, slots=True)
class CoverPath:
    """What a unit costs and brings, and how many there are."""

    name: str
    cost: float
    covers: Mapping[str, float]
    limit: float = math.inf


def greedy_cover(required: Mapping[str, float], paths: Sequence[CoverPath], whole: bool = False) -> list[float]:
    """Units per path. States that no path covers are left as they are."""
    units = [0.0] * len(paths)
    lacking = {state: amount for state, amount in required.items() if amount > 0.0}

    def gain_of(path: CoverPath) -> float:
        return math.fsum(min(amount, lacking[state]) if whole else amount for state, amount in path.covers.items() if state in lacking)

    holding: dict[str, list[int]] = {state: [] for state in lacking}
    for i, path in enumerate(paths):
        for state in path.covers:
            if state in lacking:
                holding[state].append(i)
    gains = [gain_of(path) for path in paths]
    exact = [all(amount.is_integer() for amount in path.covers.values()) for path in paths]
    while lacking:
        best: tuple[float, int] | None = None
        for i, path in enumerate(paths):
            free = path.limit - units[i]
            if not (free >= 1.0 if whole else free > 0.0):
                continue
            gain = gain_of(path) if whole else gains[i]
            if gain > 0.0 and (best is None or path.cost / gain < best[0]):
                best = (path.cost / gain, i)
        if best is None:
            break
        i = best[1]
        path = paths[i]
        reached = {state: lacking[state] / amount for state, amount in path.covers.items() if state in lacking}
        free = path.limit - units[i]
        count = float(_whole_count(path, lacking, free)) if whole else min(*reached.values(), free)
        units[i] += count
        covered: list[str] = []
        for state, amount in path.covers.items():
            if state in lacking:
                rest = lacking[state] - count * amount
                if rest <= 0.0 or reached[state] <= count or (whole and decimal(lacking[state]) <= decimal(amount) * int(count)):
                    del lacking[state]
                    covered.append(state)
                else:
                    lacking[state] = rest
        for state in covered if not whole else ():
            for other in holding[state]:
                # Of whole numbers a difference is exact; of others the sum is taken anew.
                gains[other] = gains[other] - paths[other].covers[state] if exact[other] else gain_of(paths[other])
    return units


def _whole_count(path: CoverPath, lacking: Mapping[str, float], free: float) -> int:
    """As many whole units as bring their full amounts; one where not even one does."""
    full = min(math.floor(decimal(lacking[state]) / decimal(amount)) for state, amount in path.covers.items() if state in lacking)
    return max(1, full if math.isinf(free) else min(full, math.floor(free)))

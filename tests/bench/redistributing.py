"""Paper 2's four heuristics, with what one half-way join cannot use given to the others by the same rule, until all is used or nothing more can be.

The paper does not say whether its heuristics do so. `solvers/allocation/heuristics.py` reads it as they do not.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from models.allocation import AllocationMethod
from solvers.allocation.heuristics import Flow, HalfWay, Heuristic, flow, half_ways
from solvers.allocation.productivity import Path

__all__ = ["REDISTRIBUTING", "filled"]

K = TypeVar("K", bound=Hashable)


def filled(capacity: float, limits: Mapping[K, float], weights: Mapping[K, float]) -> dict[K, float]:
    """The capacity by weight, nobody above its limit: whoever would be is given its limit, and the rest is shared out among the others."""
    given = dict.fromkeys(limits, 0.0)
    open_ones = {key for key in limits if weights[key] > 0.0}
    while open_ones:
        total = sum(weights[key] for key in limits if key in open_ones)
        full = {key for key in open_ones if capacity * weights[key] / total >= limits[key]}
        if not full:
            return given | {key: capacity * weights[key] / total for key in open_ones}
        for key in limits:
            if key in full:
                given[key] = limits[key]
                capacity -= limits[key]
        open_ones -= full
    return given


def _over_half_ways(weight: Callable[[HalfWay], float]) -> Heuristic:
    def shared(capacity: float, paths: Sequence[Path]) -> Flow:
        ways = half_ways(paths)
        return flow(paths, filled(capacity, {key: way.limit for key, way in ways.items()}, {key: weight(way) for key, way in ways.items()}))

    return shared


def _over_operators(weight: Callable[[HalfWay], float]) -> Heuristic:
    def shared(capacity: float, paths: Sequence[Path]) -> Flow:
        ways = half_ways(paths)
        limits: dict[str, float] = {}
        weights: dict[str, float] = {}
        for way in ways.values():
            limits[way.operator] = limits.get(way.operator, 0.0) + way.limit
            weights.setdefault(way.operator, weight(way))
        left, allowed = filled(capacity, limits, weights), {}
        for key in sorted(ways, key=lambda key: -ways[key].per_resource):
            allowed[key] = min(ways[key].limit, left[ways[key].operator])
            left[ways[key].operator] -= allowed[key]
        return flow(paths, allowed)

    return shared


REDISTRIBUTING: dict[AllocationMethod, Heuristic] = {
    AllocationMethod.EQUAL: _over_half_ways(lambda way: 1.0),
    AllocationMethod.GLOBAL_RATIO: _over_half_ways(lambda way: way.per_resource),
    AllocationMethod.EQUAL_BEST: _over_operators(lambda way: 1.0),
    AllocationMethod.SELECTIVITY_BEST: _over_operators(lambda way: way.selectivity),
}

"""The four heuristics by half-way productivity ρ_h (paper 2 App. B).

Problem: share a capacity out over half-way joins, each looked at on its own.
Method: equal            the same to every half-way join                                  (EqualHJ)
        global_ratio     in the ratio of their productivities                             (GlobalHJPR)
        equal_best       the same to every operator, there the most productive first      (EBestHJP)
        selectivity_best by selectivity to operators, there the most productive first     (SBestHJP)
Guarantee: none. What an operator makes and what the next may take do not match: the surplus of either is lost.
Complexity: O(h log h) for h half-way joins.
Departs from paper 2: "most productive first" gives a half-way join no more than arrives at it at full load, and
productivity is per unit of resource where units differ. Its table gives SBestHJP 150 tuples for 50 probes at
productivity 5; by its own definition they are 250.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from models.allocation import AllocationMethod
from solvers.allocation.productivity import Path

__all__ = ["HEURISTICS", "Flow", "HalfWay", "Heuristic", "flow", "half_ways"]

Key = tuple[str, str, int]
"""(operator, where its tuples come from, position in the operator's pipeline)."""


@dataclass(frozen=True, slots=True)
class HalfWay:
    """One half-way join, which the paths that meet at it share."""

    operator: str
    productivity: float
    unit_cost: float
    selectivity: float
    arriving: float
    """At full load."""

    @property
    def limit(self) -> float:
        """Resources it can use."""
        return self.arriving * self.unit_cost

    @property
    def per_resource(self) -> float:
        return self.productivity / self.unit_cost


@dataclass(frozen=True, slots=True)
class Flow:
    """What comes of an allocation: tuples per second at each step of each path, and results per path."""

    steps: list[list[float]]
    output: list[float]


def _keys(path: Path) -> list[Key]:
    keys: list[Key] = []
    entry, last, index = f"path {path.name}", "", 0
    for step in path.steps:
        if last and step.operator != last:
            entry, index = f"operator {last}", 0
        keys.append((step.operator, entry, index))
        last, index = step.operator, index + 1
    return keys


def half_ways(paths: Sequence[Path]) -> dict[Key, HalfWay]:
    arriving: dict[Key, list[float]] = {}
    found: dict[Key, HalfWay] = {}
    for path in paths:
        for key, step, amount in zip(_keys(path), path.steps, path.arriving, strict=True):
            arriving.setdefault(key, []).append(path.limit * amount)
            found[key] = HalfWay(step.operator, step.productivity, step.unit_cost, step.selectivity, math.fsum(arriving[key]))
    return found


def _over_half_ways(capacity: float, ways: dict[Key, HalfWay], weight: Callable[[HalfWay], float]) -> dict[Key, float]:
    total = math.fsum(weight(way) for way in ways.values())
    return {key: capacity * weight(way) / total if total > 0.0 else 0.0 for key, way in ways.items()}


def _over_operators(capacity: float, ways: dict[Key, HalfWay], weight: Callable[[HalfWay], float]) -> dict[Key, float]:
    weights: dict[str, float] = {}
    for way in ways.values():
        weights.setdefault(way.operator, weight(way))
    total = math.fsum(weights.values())
    left = {operator: capacity * value / total if total > 0.0 else 0.0 for operator, value in weights.items()}
    allowed = {}
    for key in sorted(ways, key=lambda key: -ways[key].per_resource):
        allowed[key] = min(ways[key].limit, left[ways[key].operator])
        left[ways[key].operator] -= allowed[key]
    return allowed


Heuristic = Callable[[float, Sequence[Path]], Flow]
"""From a capacity and the paths to what goes through."""
Weight = Callable[[HalfWay], float]
ShareOut = Callable[[float, dict[Key, HalfWay], Weight], dict[Key, float]]


def _heuristic(share_out: ShareOut, weight: Weight) -> Heuristic:
    """Shares the capacity out over half-way joins, or over operators, in the ratio of their weights."""
    return lambda capacity, paths: flow(paths, share_out(capacity, half_ways(paths), weight))


HEURISTICS: dict[AllocationMethod, Heuristic] = {
    AllocationMethod.EQUAL: _heuristic(_over_half_ways, lambda way: 1.0),
    AllocationMethod.GLOBAL_RATIO: _heuristic(_over_half_ways, lambda way: way.per_resource),
    AllocationMethod.EQUAL_BEST: _heuristic(_over_operators, lambda way: 1.0),
    AllocationMethod.SELECTIVITY_BEST: _heuristic(_over_operators, lambda way: way.selectivity),
}


def flow(paths: Sequence[Path], allowed: dict[Key, float]) -> Flow:
    """What goes through when each half-way join may use `allowed` resources: the rest of what arrives is dropped there.

    Paths that meet at a half-way join are dropped alike. A join's inputs are known before it: longer paths come first.
    """
    keys = [_keys(path) for path in paths]
    offered = [path.limit for path in paths]
    steps: list[list[float]] = [[] for _ in paths]
    waiting = [list(zip(key, path.steps, strict=True)) for key, path in zip(keys, paths, strict=True)]
    while any(waiting):
        # A half-way join is ready when every path that still has to pass it stands before it.
        ahead = {key for rest in waiting for key, _ in rest[1:]}
        ready = [i for i, rest in enumerate(waiting) if rest and rest[0][0] not in ahead]
        groups: dict[Key, list[int]] = {}
        for i in ready:
            groups.setdefault(waiting[i][0][0], []).append(i)
        for key, members in groups.items():
            arriving = math.fsum(offered[i] for i in members)
            may = allowed[key] / waiting[members[0]][0][1].unit_cost
            share = 1.0 if arriving <= may else may / arriving
            for i in members:
                steps[i].append(offered[i] * share)
                offered[i] *= share * waiting[i].pop(0)[1].productivity
    return Flow(steps, offered)

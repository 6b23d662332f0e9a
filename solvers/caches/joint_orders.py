"""Probe orders chosen for the caches they allow (paper 1 leaves ordering and caching together as future work).

Problem: the prefix invariant depends on the orders, so the best orders without caches may rule out the best caches.
Method: say first which joins are cached, each kept up to date from itself (then its members must visit each other first) or
from the results (then any order will do). Every pipeline is then a shortest path over the sets of inputs it has visited,
with an edge for every probe and an edge for every cache, and paths that avoid what the invariant forbids: orders and
uses come out together, exactly. Which joins are cached is found by adding and removing one at a time while that
lowers the total.

Guarantee: orders and uses are the best for the joins that are cached. Which joins are cached is a local optimum, never worse than no
caches at all. Complexity: O(2^m · m) per path, so up to MAX_INPUTS inputs; O(2^m) paths per step of the search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from solvers.caches.figures import Figures, Traffic, figures, update_cost
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED_DOWN
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.operations import going_on, probing
from solvers.model.probe_order import Orders

__all__ = ["MAX_INPUTS", "CacheableJoin", "joint_orders"]

MAX_INPUTS = 5  # a few milliseconds; six take ten times as long

_Element = tuple[int, int]
"""(segment, Z), as sets of input positions; Z is the segment itself, or all inputs."""
_Path = tuple[float, tuple[int, ...], tuple[tuple[_Element, object], ...]]
"""(cost, order, caches used, each with its key)."""


@dataclass
class CacheableJoin:
    """One join, its inputs as bits, with what the paths ask again and again."""

    model: CostModel
    attributes: Attributes
    blocks: tuple[int, ...]

    def __post_init__(self) -> None:
        m = len(self.blocks)
        self.every = (1 << m) - 1
        self.streams = [0] * (1 << m)
        for union in range(1, 1 << m):
            low = union & -union
            self.streams[union] = self.streams[union ^ low] | self.blocks[low.bit_length() - 1]
        self.per_second = [self.model.per_second(block) for block in self.blocks]
        self._runs: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
        self._figures: dict[tuple[int, int, _Element], tuple[Figures, object] | None] = {}
        graph = self.model.graph
        self.next: list[int] = [0] * (1 << m)
        for union in range(1, 1 << m):
            around = graph.around(self.streams[union])
            adjacent = sum(1 << k for k in range(m) if not union >> k & 1 and self.blocks[k] & around)
            self.next[union] = adjacent or self.every & ~union
        self.steps = [[(target, union | 1 << target, self.step(union, target)) for target in bits(self.next[union])] for union in range(1 << m)]

    def step(self, visited: int, target: int) -> float:
        """What going on to `target` costs per 1/T of the arriving input, making the results included."""
        model, costs = self.model, self.model.costs
        size, block = model.size(self.streams[visited]), self.blocks[target]
        hashed = model.graph.hashable(self.streams[visited], block)
        return going_on(probing(costs, hashed, model.size(block)), size, costs.join, model.size(self.streams[visited | 1 << target]))

    def run(self, visited: int, segment: int) -> tuple[float, tuple[int, ...]]:
        """The cheapest order of the probes of a segment after `visited`; infinity where it takes a cross product."""
        if not segment:
            return 0.0, ()
        if (visited, segment) not in self._runs:
            best: tuple[float, tuple[int, ...]] = (math.inf, ())
            for last in bits(segment):
                before = visited | segment & ~(1 << last)
                if self.next[before] >> last & 1:
                    cost, order = self.run(visited, segment & ~(1 << last))
                    if cost < math.inf:
                        best = min(best, (cost + self.step(before, last), (*order, last)))
            self._runs[visited, segment] = best
        return self._runs[visited, segment]

    def cache(self, k: int, visited: int, element: _Element) -> tuple[Figures, object] | None:
        """The figures of a cache that pipeline k looks up after `visited`, and its key."""
        name = (k, visited, element)
        if name not in self._figures:
            self._figures[name] = self._cache(k, visited, element)
        return self._figures[name]

    def _cache(self, k: int, visited: int, element: _Element) -> tuple[Figures, object] | None:
        segment, kept = element
        key = self.attributes.key(self.streams[visited], self.streams[segment])
        cost, _ = self.run(visited, segment)
        if key is None or not cost < math.inf:
            return None
        arriving = self.blocks[k] if kept >> k & 1 else 0
        if arriving and (key := self.attributes.read_from(key, arriving, self.streams[kept] & ~arriving)) is None:
            return None
        rate = self.per_second[k]
        lookups, results = self.model.size(self.streams[visited]) * rate, self.model.size(self.streams[visited | segment]) * rate
        if not lookups > 0.0:
            return None
        found = figures(self.model, self.attributes, key, Traffic(lookups, results, cost * rate), self.streams[segment], self.streams[kept])
        return (found, (key.parts, arriving)) if found.benefit > 0.0 else None

    def path(self, k: int, elements: frozenset[_Element], free: bool = False) -> _Path:
        """The cheapest way of pipeline k through all inputs, with the caches there are and, unless `free`, the invariants they ask for."""
        fixed = [] if free else [kept for segment, kept in elements if kept != self.every and kept >> k & 1]
        usable = sorted(element for element in elements if not element[0] >> k & 1)
        start = 1 << k
        best: dict[int, _Path] = {start: (0.0, (), ())}
        for visited in range(start, self.every):
            if visited not in best:
                continue
            cost, order, used = best[visited]
            for target, union, step in self.steps[visited]:
                if not fixed or all(union & ~kept == 0 or kept & ~union == 0 for kept in fixed):
                    self._offer(best, union, (cost + step * self.per_second[k], (*order, target), used))
            for element in usable:
                segment = element[0]
                union = visited | segment
                if segment & visited or any(union & ~kept and kept & ~visited for kept in fixed):
                    continue
                priced = self.cache(k, visited, element)
                if priced is not None:
                    found, key = priced
                    self._offer(best, union, (cost + found.proc, order + self.run(visited, segment)[1], (*used, (element, key))))
        return best.get(self.every, (math.inf, (), ()))

    @staticmethod
    def _offer(best: dict[int, _Path], union: int, path: _Path) -> None:
        if union not in best or path[:2] < best[union][:2]:
            best[union] = path

    def could_pay(self, element: _Element, update: float) -> bool:
        """Whether its uses, each where it saves the most, are worth more than keeping it: no plan saves more by it."""
        segment, kept = element
        upkeep = update * self.model.rate(self.streams[kept])
        if not math.isfinite(upkeep):
            return False
        saved = 0.0
        for k in bits(self.every & ~segment):
            others = self.every & ~segment & ~(1 << k)
            part, most = others, 0.0
            while True:
                priced = self.cache(k, part | 1 << k, element)
                if priced is not None:
                    most = max(most, priced[0].benefit)
                if not part:
                    break
                part = (part - 1) & others
            saved += most
        return saved > upkeep

    def elements(self) -> Iterator[_Element]:
        for segment in range(1, self.every):
            if segment.bit_count() > 1 and self.model.graph.connected(self.streams[segment]):
                yield segment, segment
                yield segment, self.every


def joint_orders(model: CostModel, attributes: Attributes, blocks: tuple[int, ...], deadline: Deadline, limit: float = math.inf) -> Orders | None:
    """The orders of the best plan with caches that the search finds for one join.

    None where the join has too many inputs, no cache is useful, or the pipelines cannot cost less than `limit` whatever is cached.
    """
    if not 3 <= len(blocks) <= MAX_INPUTS:
        return None
    join = CacheableJoin(model, attributes, blocks)
    update = update_cost(model)
    every = [element for element in join.elements() if join.could_pay(element, update)]
    if not every or math.fsum(join.path(k, frozenset(every), free=True)[0] for k in range(len(blocks))) >= limit:
        return None
    chosen: frozenset[_Element] = frozenset()
    paths = [join.path(k, chosen) for k in range(len(blocks))]
    best = _total(join, paths, update)
    while not deadline.expired():
        better: tuple[float, frozenset[_Element], list[_Path]] | None = None
        for element in every:
            changed = chosen ^ {element}
            touched = join.every if element[1] != join.every else join.every & ~element[0]
            tried = [join.path(k, changed) if touched >> k & 1 else paths[k] for k in range(len(blocks))]
            total = _total(join, tried, update)
            if total < (better[0] if better else best * ROUNDED_DOWN):
                better = (total, changed, tried)
        if better is None:
            break
        best, chosen, paths = better
    return tuple(path[1] for path in paths) if chosen and math.isfinite(best) else None


def _total(join: CacheableJoin, paths: list[_Path], update: float) -> float:
    groups = {use for path in paths for use in path[2]}
    return math.fsum([*(path[0] for path in paths), *(update * join.model.rate(join.streams[element[1]]) for element, _ in groups)])

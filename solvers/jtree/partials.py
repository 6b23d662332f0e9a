"""A lower bound of the CPU of all plans, those with caches included, for graphs with few connected sets.

Problem: a lower bound of the CPU of every plan within a memory cap: every join tree, every probe order, every choice of caches.
Method: exact search over join trees whose partial results count for less wherever a cache could answer for them (`compiled.cached` says for how
much, and why that is a bound). A cache only adds to the memory of its tree, so the memory cap holds for the trees.
Guarantee: never above the CPU of any plan; it is that of the best tree where no cache can pay. Complexity: that of one exact search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP, SUMMED
from solvers.jtree.compiled.cached import KeyPredicates, cached_partials
from solvers.jtree.compiled.compiling import Floats, Ints
from solvers.jtree.compiled.cost import kept_excess
from solvers.jtree.compiled.orders import join_excess, scratch_for
from solvers.jtree.compiled.paying import cache_could_pay
from solvers.jtree.compiled.questions import LEAST_CPU, Limits
from solvers.jtree.compiled.sets import Sets, place_of
from solvers.jtree.component import Component, component_of
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.probe_order import Orders

__all__ = ["JoinCosts", "join_costs", "key_predicates", "least_cpu_of_all"]

MAX_SETS = 4_200  # connected sets: a star of 13 streams
MAX_WORK = 100_000_000  # pairs of sets times predicates: a tenth of a second
MAX_STREAMS = 12  # a chain of 12 takes two milliseconds, one of 16 fifteen times as long
MAX_INPUTS = 8  # of a join of which it is asked whether a cache could pay: some 0.2 ms
AT_ONCE_SETS = 200  # up to which it takes less time than to start a timer


def key_predicates(part: Component, attributes: Attributes) -> KeyPredicates:
    """The predicates and their attributes, with the streams numbered as the part has them."""
    graph = attributes.graph
    place = {stream: k for k, stream in enumerate(part.streams)}
    number = {a: k for k, a in enumerate(sorted({a for left, right, _ in attributes.sides for a in (left, right)}))}
    distinct = [attributes.distinct.get(a, math.inf) for a in number]
    sides = attributes.sides
    return KeyPredicates(
        np.array([place[left[0]] for left, _, _ in sides], np.int64),
        np.array([place[right[0]] for _, right, _ in sides], np.int64),
        np.array([number[left] for left, _, _ in sides], np.int64),
        np.array([number[right] for _, right, _ in sides], np.int64),
        np.array([equality for _, _, equality in sides], np.int64),
        np.array([count / graph.window_seconds[a[0]] for count, a in zip(distinct, number, strict=True)]),
        np.array([min(1.0, count) for count in distinct]),
    )


def _partials(part: Component, attributes: Attributes, stop: Ints) -> Floats:
    """For every set of the part what it counts for as a partial result where caches are allowed."""
    costs = part.model.costs
    scans = _scans(part.model)
    return cached_partials(part.sets, key_predicates(part, attributes), part.prices.made, costs.insert + costs.delete, scans, stop)


def _scans(model: CostModel) -> bool:
    """Whether some probe may have to scan: one between streams that no equality joins."""
    return bool(model.costs.scan) and model.graph.equal_neighbours != model.graph.neighbours


def least_cpu_of_all(model: CostModel, attributes: Attributes, enough: float, deadline: Deadline, memory_bytes: float = math.inf) -> float | None:
    """A lower bound of the CPU of every plan within the memory cap; None where the graph is too large or time is over.

    A bound above `enough` would be of no more use, so plans above it are not looked for.
    """
    graph = model.graph
    if len(graph.components) > 1 or len(graph) > MAX_STREAMS or deadline.expired():
        return None
    part = component_of(model, graph.all, MAX_SETS)
    if part is None or part.sets.mask.size**2 * len(graph.edges) > MAX_WORK:
        return None
    stop = np.zeros(2, np.int64)
    if part.sets.mask.size <= AT_ONCE_SETS:
        least = _least_excess(part, attributes, enough, memory_bytes, stop)
    else:
        with deadline.watched(lambda: stop.put(0, 1)):
            least = _least_excess(part, attributes, enough, memory_bytes, stop)
    return min(part.base + least, enough) / SUMMED


def _least_excess(part: Component, attributes: Attributes, enough: float, memory_bytes: float, stop: Ints) -> float:
    """The same bound, but only of what plans cost above what every plan pays. Where the search was told to stop it is 0, which is a bound too."""
    partial = _partials(part, attributes, stop)
    kept = part.model.leaves_bytes()
    cap_m = memory_bytes * (1.0 + AT_A_CAP) - kept
    limits = Limits(LEAST_CPU, enough * (1.0 + AT_A_CAP) - part.base, cap_m, math.inf, cap_m, math.inf, math.inf, part.base, kept)
    return part.least_with_partials(partial, limits, stop)


def join_costs(model: CostModel, attributes: Attributes) -> JoinCosts | None:
    """What single joins cost; None where the graph is too large, or not connected."""
    graph = model.graph
    if graph.tables or len(graph.components) > 1 or len(graph) > MAX_STREAMS:
        return None
    part = component_of(model, graph.all, MAX_SETS)
    return None if part is None else JoinCosts(part, attributes)


class JoinCosts:
    """What single joins of a small connected graph cost above what every plan pays: with the best probe orders, and at least with any caches."""

    def __init__(self, part: Component, attributes: Attributes) -> None:
        self._part, self._attributes = part, attributes
        self.base = part.base
        """The CPU that every plan pays."""
        self._place = {stream: k for k, stream in enumerate(part.streams)}
        self._scratch = scratch_for(len(part.streams))

    @cached_property
    def _with_caches(self) -> Sets:
        return self._part.sets._replace(partial=_partials(self._part, self._attributes, np.zeros(2, np.int64)))

    @cached_property
    def _keys(self) -> KeyPredicates:
        return key_predicates(self._part, self._attributes)

    def _local(self, mask: int) -> int:
        return sum(1 << self._place[i] for i in bits(mask))

    def _places(self, blocks: Sequence[int]) -> Ints:
        return np.array([place_of(self._part.sets, self._local(block)) for block in blocks], np.int64)

    def excess(self, blocks: Sequence[int], with_caches: bool = False) -> float:
        """Of a join of these sets; with caches at least so much."""
        part = self._part
        sets = self._with_caches if with_caches else part.sets
        return float(join_excess(sets, part.prices, self._places(blocks), len(blocks), self._local(sum(blocks)), self._scratch))

    def cache_could_pay(self, blocks: Sequence[int]) -> bool:
        """Whether a join of these sets could cost less with caches, in any probe orders, than it costs without in the best ones."""
        if len(blocks) <= 2:
            return False
        if len(blocks) > MAX_INPUTS or _scans(self._part.model):
            return True
        return bool(cache_could_pay(self._part.sets, self._part.prices, self._keys, self._places(blocks)))

    def kept(self, mask: int) -> float:
        """Of keeping a join's output."""
        return float(kept_excess(self._part.sets, self._part.prices, place_of(self._part.sets, self._local(mask))))

    def orders(self, blocks: Sequence[int]) -> Orders:
        """The best probe orders without caches, in the order of the blocks."""
        local = [self._local(block) for block in blocks]
        ranked = sorted(range(len(blocks)), key=lambda k: local[k] & -local[k])
        found = self._part.orders(tuple(local[k] for k in ranked))
        orders = {ranked[k]: tuple(ranked[target] for target in order) for k, order in enumerate(found)}
        return tuple(orders[k] for k in range(len(blocks)))

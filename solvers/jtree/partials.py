"""A lower bound of the CPU of all plans, those with caches included, for graphs with few connected sets.

Problem: a lower bound of the CPU of every plan within a memory cap: every join tree, every probe order, every choice of caches.
Method: exact search over join trees whose partial results count for less wherever a cache could answer for them (`compiled.cached` says for how
much, and why that is a bound). A cache only adds to the memory of its tree, so the memory cap holds for the trees.
Guarantee: never above the CPU of any plan; it is that of the best tree where no cache can pay. Complexity: that of one exact search.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP, SUMMED
from solvers.jtree.compiled.cached import KeyPredicates, cached_partials
from solvers.jtree.compiled.compiling import Floats, Ints
from solvers.jtree.compiled.cost import kept_excess
from solvers.jtree.compiled.orders import join_excess, scratch_for
from solvers.jtree.compiled.questions import LEAST_CPU, Limits
from solvers.jtree.compiled.sets import place_of
from solvers.jtree.component import Component, component_of
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.probe_order import Orders

__all__ = ["JoinCosts", "key_predicates", "least_cpu_of_all"]

MAX_SETS = 4_200  # connected sets: a star of 13 streams
MAX_WORK = 100_000_000  # pairs of sets times predicates: a tenth of a second
MAX_STREAMS = 12  # a chain of 12 takes two milliseconds, one of 16 fifteen times as long
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
    scans = bool(costs.scan) and not all(equality for _, _, equality in attributes.sides)
    return cached_partials(part.sets, key_predicates(part, attributes), part.prices.made, costs.insert + costs.delete, scans, stop)


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
    """The same above what every plan pays; 0, a bound as well, where it was told to stop."""
    partial = _partials(part, attributes, stop)
    kept = part.model.leaves_bytes()
    cap_m = memory_bytes * (1.0 + AT_A_CAP) - kept
    limits = Limits(LEAST_CPU, enough * (1.0 + AT_A_CAP) - part.base, cap_m, math.inf, cap_m, math.inf, math.inf, part.base, kept)
    return part.least_with_partials(partial, limits, stop)


class JoinCosts:
    """What single joins of a small connected graph cost above what every plan pays: with the best probe orders, and at least with any caches."""

    def __init__(self, model: CostModel, attributes: Attributes) -> None:
        part = component_of(model, model.graph.all, MAX_SETS)
        assert part is not None, "a small graph"
        self._part = part
        self.base = part.base
        """The CPU that every plan pays."""
        self._place = {stream: k for k, stream in enumerate(part.streams)}
        self._with_caches = part.sets._replace(partial=_partials(part, attributes, np.zeros(2, np.int64)))
        self._scratch = scratch_for(len(part.streams))

    def _local(self, mask: int) -> int:
        return sum(1 << self._place[i] for i in bits(mask))

    def excess(self, blocks: Sequence[int], with_caches: bool = False) -> float:
        """Of a join of these sets; with caches at least so much."""
        part = self._part
        sets = self._with_caches if with_caches else part.sets
        places = np.array([place_of(sets, self._local(block)) for block in blocks], np.int64)
        return float(join_excess(sets, part.prices, places, len(blocks), self._local(sum(blocks)), self._scratch))

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

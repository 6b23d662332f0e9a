"""Sizes, rates and join costs of one model, remembered by set, for searches that look at the same joins again and again.

Costs are *excess*: what a plan pays beyond what every plan pays. With base = min(insert + delete, append), every plan pays
base · rate for each stream, join · rate for the output and step · the least steps of any plan. A plan's excess, none of whose parts is
negative, is

    Σ joins  ( step · its steps beyond those of binary joins, + all probes but for what makes the join's own output,
               + keeping each input's state beyond base · rate )
  + Σ inner joins other than the root  ( join + base ) · rate

so that plans whose totals agree in most digits are still told apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints
from solvers.jtree.compiled.cost import weights_of
from solvers.jtree.compiled.unions import Between, Unions, between, greedy, join_of_unions, order_scratch, size_of, unions_of
from solvers.jtree.orders import best_orders
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.operations import least_keeping, probe_steps, stepping
from solvers.model.probe_order import Orders

__all__ = ["MAX_EXACT_INPUTS", "Ledger", "Orders"]

MANY_BLOCKS = 60  # of a join, from which its pairs are not counted one by one
MAX_EXACT_INPUTS = 12  # a backward pass over 4096 unions; wider joins are ordered greedily


class Ledger:
    """Sizes, rates and join costs of one model, kept as arrays for the kernels and remembered by set."""

    def __init__(self, model: CostModel) -> None:
        graph, costs = model.graph, model.costs
        self.model = model
        self.base = least_keeping(costs)
        weights = weights_of(costs)
        self.weights = weights._replace(indexed=weights.indexed - self.base, append=weights.append - self.base)
        """Of what is above the base."""
        self.common = math.fsum(model.paid_by_all())
        self._windows = np.array(graph.window_tuples, np.float64)
        columns = graph.columns
        self._left, self._right, self._selectivity = columns.left, columns.right, columns.selectivity
        self._equality = columns.equality.astype(np.int64)
        self._streams: dict[int, Ints] = {}
        self._sizes: dict[int, float] = {}
        self._kept: dict[int, float] = {}
        self._bytes: dict[int, float] = {}
        self._joins: dict[tuple[int, ...], tuple[float, Orders]] = {}

    def size(self, mask: int) -> float:
        size = self._sizes.get(mask)
        if size is None:
            size = self._sizes[mask] = self._size(mask)
        return size

    def _size(self, mask: int) -> float:
        graph = self.model.graph
        if mask & (mask - 1) == 0:
            return graph.window_tuples[mask.bit_length() - 1]
        if any(subset & ~mask == 0 for subset, _ in graph.observed):
            return graph.size(mask)
        streams = self._streams_of(mask)
        inside = np.zeros(len(graph), np.bool_)
        inside[streams] = True
        return float(size_of(streams, inside, self._windows, self._left, self._right, self._selectivity))

    def _streams_of(self, mask: int) -> Ints:
        streams = self._streams.get(mask)
        if streams is None:
            streams = self._streams[mask] = np.fromiter(bits(mask), np.int64)
        return streams

    def kept(self, mask: int) -> float:
        """What keeping the subresult of an inner join adds to the excess: making it and the least of keeping it."""
        kept = self._kept.get(mask)
        if kept is None:
            weight = self.model.costs.join + self.base
            kept = self._kept[mask] = weight * self.size(mask) * self.model.per_second(mask) if weight else 0.0
        return kept

    def state_bytes(self, mask: int) -> float:
        held = self._bytes.get(mask)
        if held is None:
            held = self._bytes[mask] = self.size(mask) * self.model.tuple_bytes(mask)
        return held

    def _between(self, masks: Sequence[int]) -> Between:
        owner = np.full(len(self.model.graph), -1, np.int64)
        for k, mask in enumerate(masks):
            owner[self._streams_of(mask)] = k
        return between(owner, self._left, self._right, self._selectivity, self._equality, len(masks))

    def pairs(self, masks: Sequence[int]) -> list[tuple[float, int, int]]:
        """(size of their join, a, b) for all places a < b of two blocks that a predicate joins. Of many blocks, whose pairs are thousands, sizes
        are products of the blocks' own."""
        found = self._between(masks)
        first, second = np.triu(found.joined, 1).nonzero()
        places = list(zip(first.tolist(), second.tolist(), strict=True))
        if len(masks) <= MANY_BLOCKS or not self._independent(masks):
            return [(self.size(masks[a] | masks[b]), a, b) for a, b in places]
        sizes = np.array([self.size(mask) for mask in masks])
        joined = sizes[first] * found.product[first, second] * sizes[second]
        return [(size, a, b) for size, (a, b) in zip(joined.tolist(), places, strict=True)]

    def _arrays(self, masks: Sequence[int]) -> tuple[Floats, Floats]:
        return np.array([self.size(mask) for mask in masks]), np.array([self.model.per_second(mask) for mask in masks])

    def _independent(self, masks: Sequence[int]) -> bool:
        """Whether sizes of unions are products: no observed set spans two of the blocks."""
        every = 0
        for mask in masks:
            every |= mask
        return all(subset & ~every or any(subset & ~mask == 0 for mask in masks) for subset, _ in self.model.graph.observed)

    def unions(self, masks: Sequence[int]) -> Unions:
        """The figures of every union of the blocks."""
        unions = unions_of(*self._arrays(masks), self._between(masks))
        if not self._independent(masks):
            for union in range(1, len(unions.sizes)):
                if unions.connected[union]:
                    unions.sizes[union] = self.model.size(_mask_of(masks, union))
        return unions

    def join(self, masks: Sequence[int]) -> tuple[float, Orders]:
        """The excess of one join over these blocks, and its probe orders: the best where it has few inputs, else greedy ones.

        Greedy ones take sizes to be products of the blocks' own: where a wide join's observed sets span blocks, its excess is an estimate.
        """
        key = tuple(masks)
        known = self._joins.get(key)
        if known is None:
            known = self._joins[key] = self._join(key)
        return known

    def _join(self, masks: tuple[int, ...]) -> tuple[float, Orders]:
        m = len(masks)
        if m <= MAX_EXACT_INPUTS:
            unions = self.unions(masks)
            if unions.connected[-1]:
                scratch = order_scratch(m)
                excess = float(join_of_unions(np.array([1 << k for k in range(m)], np.int64), m, unions, self.weights, scratch))
                return excess, _orders(scratch.following, m)
            if not self._independent(masks):
                return self._by_price(masks)  # components, with measured joins across them
        return self._greedily(masks)

    def greedy_orders(self, masks: Sequence[int]) -> Orders:
        """Orders in which the cheapest step is always next: milliseconds for 200 inputs."""
        return self._greedily(masks)[1]

    def _greedily(self, masks: Sequence[int]) -> tuple[float, Orders]:
        excess, orders = greedy(*self._arrays(masks), self._between(masks), self.weights)
        return float(excess), tuple(tuple(order) for order in orders.tolist())

    def exact_join(self, masks: Sequence[int]) -> tuple[float, bool]:
        """The excess with the best orders, of however many inputs, and whether they are proven best. `join` gives these orders from now on."""
        key, proven = tuple(masks), True
        if len(key) > MAX_EXACT_INPUTS:
            orders, proven = best_orders(self.model, key)
            self._joins[key] = self._along(key, orders), orders
        return self.join(key)[0], proven

    def _by_price(self, masks: tuple[int, ...]) -> tuple[float, Orders]:
        orders, _ = best_orders(self.model, masks)
        return self._along(masks, orders), orders

    def _along(self, masks: tuple[int, ...], orders: Orders) -> float:
        """The excess of a join with these orders: its price but for making its output, the least of keeping its inputs, steps of binary joins."""
        model, whole = self.model, sum(masks)
        parts = [term.value for term in model.price_join(masks, orders).terms if term.made != whole]
        parts += [-self.base * model.rate(mask) for mask in masks if self.base]
        parts.append(-stepping(model.costs, (len(masks) - 1) * probe_steps(2)))
        return max(0.0, math.fsum(parts)) if all(map(math.isfinite, parts)) else math.inf


def _orders(following: Ints, m: int) -> Orders:
    orders = []
    for start in range(m):
        visited = 1 << start
        order: list[int] = []
        while len(order) < m - 1:
            # Where every way overflows no step is best; any order will do, since no such plan is chosen.
            target = int(following[visited]) if following[visited] >= 0 else next(k for k in range(m) if not visited >> k & 1)
            order.append(target)
            visited |= 1 << target
        orders.append(tuple(order))
    return tuple(orders)


def _mask_of(masks: Sequence[int], union: int) -> int:
    mask = 0
    for k in bits(union):
        mask |= masks[k]
    return mask

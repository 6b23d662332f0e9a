"""The best probe order of every input of one join (papers 1 §3, 3 §2.2).

A new tuple of input k visits the states of the others one by one. With visited set U the step to block t costs,
per arriving tuple of k,

    size(U) · (probe + scan·size(t) if t can only be scanned) + size(U∪t) · join        (times Σ_{i∈B_k} 1/T_i)

so the cost to go from U is the same function for every input, up to that factor: one backward pass over the
reachable unions gives the best orders of all inputs at once.

Guarantee: exact while the reachable unions number at most MAX_UNIONS, and for any number of blocks where the
blocks form a tree and no sub-join is observed (IKKBZ, by ranks); otherwise greedy, and the flag says so.
Complexity: O(unions · m), or O(m² log m) per input by ranks, O(m²) per input greedily.
Departs from paper 3, which orders greedily throughout.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solvers.common.deadline import NEVER, Deadline
from solvers.common.tolerances import TIED
from solvers.model.cost import CostModel, PricedJoin
from solvers.model.graph import DENSE, SMALL, Edge, JoinGraph, bits
from solvers.model.operations import going_on, probing

__all__ = ["Orders", "best_join", "best_orders", "orders_by_rank", "orders_by_unions"]

Orders = tuple[tuple[int, ...], ...]

FEW_BLOCKS = 4  # whose predicates are looked up pair by pair, as pricing the join does, too
MAX_UNIONS = 20_000  # about a tenth of a second of Python; beyond that ranks or greedy take over
_HUGE = 1e300  # stands in for infinity where a difference of two of them must not be NaN


class _Blocks(NamedTuple):
    """One join, for ordering its probes: a set of inputs is an integer with a bit for each position."""

    model: CostModel
    masks: tuple[int, ...]
    sizes: tuple[float, ...]
    adjacent: tuple[int, ...]
    hashable: tuple[int, ...]
    selectivity: tuple[dict[int, float], ...]
    """Product of the predicates between two blocks, by position."""
    by_hash: float
    """What a tuple's probe costs that finds its partners by hash."""
    by_scan: tuple[float, ...]
    """By block what a tuple's probe costs that scans its state."""

    def made(self, size: float, visited: int, target: int) -> float:
        """The size after the step to `target` from what is visited."""
        growth = self.sizes[target]
        for other, selectivity in self.selectivity[target].items():
            if visited >> other & 1:
                growth *= selectivity
        return size * growth

    def step(self, size: float, visited: int, target: int, made: float) -> float:
        """What it costs per 1/T to go on to `target`, from `size` tuples to as many as are `made`."""
        return going_on(self.by_hash if self.hashable[target] & visited else self.by_scan[target], size, self.model.costs.join, made)

    def candidates(self, visited: int, reached: int) -> int:
        """The blocks that may come next: those a predicate leads to, or all where none does. `reached` are all that are next to a visited one."""
        every = (1 << len(self.masks)) - 1
        return (reached & ~visited) or (every & ~visited)


def _blocks(model: CostModel, masks: Sequence[int]) -> _Blocks:
    graph, m = model.graph, len(masks)
    adjacent, hashable = [0] * m, [0] * m
    selectivity: list[dict[int, float]] = [{} for _ in range(m)]
    for a, b, edge in _crossing(graph, masks):
        for here, there in ((a, b), (b, a)):
            adjacent[here] |= 1 << there
            hashable[here] |= edge.equality << there
            selectivity[here][there] = selectivity[here].get(there, 1.0) * edge.selectivity
    sizes = tuple(graph.size(mask) for mask in masks)
    by_scan = tuple(probing(model.costs, False, size) for size in sizes)
    return _Blocks(model, tuple(masks), sizes, tuple(adjacent), tuple(hashable), tuple(selectivity), probing(model.costs, True, 0.0), by_scan)


def _crossing(graph: JoinGraph, masks: Sequence[int]) -> Iterator[tuple[int, int, Edge]]:
    """The predicates between two blocks with the positions of these; of the same two in the order of the query."""
    if len(masks) <= FEW_BLOCKS and len(graph) <= SMALL:
        for b, right in enumerate(masks):
            for a, left in enumerate(masks[:b]):
                for p in graph.between(left, right):
                    yield a, b, graph.edges[p]
        return
    owner = {i: k for k, mask in enumerate(masks) for i in bits(mask)}
    for edge in _across(graph, owner) if len(graph.edges) > DENSE else graph.edges:
        first, second = owner.get(edge.left), owner.get(edge.right)
        if first is not None and second is not None and first != second:
            yield first, second, edge


def _across(graph: JoinGraph, owner: dict[int, int]) -> list[Edge]:
    """The predicates between two blocks, of a graph with many others."""
    import numpy as np  # only in large graphs

    place = np.full(len(graph), -1, np.int64)
    place[list(owner)] = list(owner.values())
    left, right = place[graph.columns.left], place[graph.columns.right]
    return [graph.edges[p] for p in ((left != right) & (left >= 0) & (right >= 0)).nonzero()[0].tolist()]


def best_orders(model: CostModel, masks: Sequence[int]) -> tuple[Orders, bool]:
    """The cheapest probe order of every input, and whether they are proven to be the cheapest.

    Of equal orders the one that visits lower positions first. `solvers.jtree.orders` is the same for wide joins, with compiled code.
    """
    if (found := orders_by_unions(model, masks)) is not None:
        return found, True
    if (ranked := orders_by_rank(model, masks)) is not None:
        return tuple(ranked), True
    blocks = _blocks(model, masks)
    return tuple(_greedy(blocks, start) for start in range(len(masks))), False


def orders_by_unions(model: CostModel, masks: Sequence[int], deadline: Deadline = NEVER) -> Orders | None:
    """The cheapest orders by one backward pass over the reachable unions; None where those are too many for Python, or for the time there is."""
    if len(masks) == 2:
        return (1,), (0,)
    if 1 << len(masks) > MAX_UNIONS and _least_unions(_degrees(model.graph, masks)) > MAX_UNIONS:
        return None
    blocks = _blocks(model, masks)
    layers = _unions(blocks, deadline)
    return None if layers is None else _by_backward_pass(blocks, layers)


def orders_by_rank(model: CostModel, masks: Sequence[int]) -> Iterator[tuple[int, ...]] | None:
    """The cheapest orders, one input after the other, where the blocks form a tree and no sub-join is observed (IKKBZ); else None."""
    if sum(_degrees(model.graph, masks)) != 2 * (len(masks) - 1) or model.graph.observed:
        return None
    blocks = _blocks(model, masks)
    return (_by_rank(blocks, start) for start in range(len(masks)))


def best_join(model: CostModel, masks: Sequence[int]) -> PricedJoin:
    """One join with its cheapest probe orders, priced. Remembered, because the plans of a frontier ask for the same joins."""
    key = tuple(masks)
    found = model.best_joins.get(key)
    if found is None:
        found = model.best_joins[key] = model.known_join(key, best_orders(model, key)[0])
    return found


_Layer = dict[int, tuple[float, int]]
"""Unions of as many blocks, each with its size and the blocks next to one of its own."""


def _degrees(graph: JoinGraph, masks: Sequence[int]) -> list[int]:
    """By block with how many others a predicate joins it: known before 20,000 predicates are multiplied out between 200 blocks."""
    every = sum(masks)
    if every.bit_count() == len(masks):  # single streams
        return [(graph.neighbours[mask.bit_length() - 1] & every & ~mask).bit_count() for mask in masks]
    degrees = []
    for mask in masks:
        around = graph.around(mask)
        degrees.append(sum([1 for other in masks if other & around]))
    return degrees


def _least_unions(degrees: Sequence[int]) -> int:
    """At least so many unions are reachable.

    One per interval where the blocks form a chain, and more in any other connected graph; those of a block with any of its neighbours; and all
    without any of the blocks that have one neighbour alone. All joined pairs.
    """
    m = len(degrees)
    return max(m * (m + 1) // 2 if sum(degrees) >= 2 * (m - 1) else 0, 1 << max(degrees), 1 << degrees.count(1), m + sum(degrees) // 2)


def _unions(blocks: _Blocks, deadline: Deadline) -> list[_Layer] | None:
    """The reachable unions of blocks, by number of blocks; None where there are too many."""
    graph = blocks.model.graph
    layers: list[_Layer] = [{1 << k: (size, blocks.adjacent[k]) for k, size in enumerate(blocks.sizes)}]
    count = len(blocks.masks)
    while len(layers) < len(blocks.masks):
        grown: _Layer = {}
        for visited, (size, reached) in layers[-1].items():
            for target in bits(blocks.candidates(visited, reached)):
                union = visited | 1 << target
                if union not in grown:
                    made = blocks.made(size, visited, target) if not graph.observed else graph.size(_mask(blocks, union))
                    grown[union] = made, reached | blocks.adjacent[target]
                    if count + len(grown) > MAX_UNIONS:
                        return None
        if deadline.expired():
            return None
        count += len(grown)
        layers.append(grown)
    return layers


def _mask(blocks: _Blocks, union: int) -> int:
    mask = 0
    for k in bits(union):
        mask |= blocks.masks[k]
    return mask


def _by_backward_pass(blocks: _Blocks, layers: list[_Layer]) -> Orders:
    to_go: dict[int, float] = dict.fromkeys(layers[-1], 0.0)
    following: dict[int, int] = {}
    for layer, above in zip(reversed(layers[:-1]), reversed(layers[1:]), strict=True):
        for visited, (size, reached) in layer.items():
            best, choice = math.inf, -1
            for target in bits(blocks.candidates(visited, reached)):
                union = visited | 1 << target
                cost = blocks.step(size, visited, target, above[union][0]) + to_go[union]
                if cost < best * TIED or choice < 0:
                    choice = target
                best = min(best, cost)
            to_go[visited], following[visited] = best, choice
    every = (1 << len(blocks.masks)) - 1
    orders = []
    for start in range(len(blocks.masks)):
        visited, order = 1 << start, []
        while visited != every:
            target = following[visited]
            order.append(target)
            visited |= 1 << target
        orders.append(tuple(order))
    return tuple(orders)


def _greedy(blocks: _Blocks, start: int) -> tuple[int, ...]:
    """Next is the block whose step is cheapest, its results included."""
    order: list[int] = []
    visited, reached, size = 1 << start, blocks.adjacent[start], blocks.sizes[start]
    growth = list(blocks.sizes)
    last = start
    while len(order) < len(blocks.masks) - 1:
        for other, selectivity in blocks.selectivity[last].items():
            growth[other] *= selectivity
        best = (math.inf, math.inf, -1)
        for target in bits(blocks.candidates(visited, reached)):
            made = size * growth[target]
            cost = blocks.step(size, visited, target, made)
            if (cost, made) < best[:2] or best[2] < 0:
                best = (cost, made, target)
        _, size, last = best
        visited, reached = visited | 1 << last, reached | blocks.adjacent[last]
        order.append(last)
    return tuple(order)


@dataclass(frozen=True, slots=True)
class _Run:
    """Blocks that are visited one right after the other: cost per tuple that enters, tuples that leave per one that enters."""

    blocks: tuple[int, ...]
    cost: float
    growth: float

    @property
    def rank(self) -> float:
        if self.cost == 0.0:
            return -math.inf if self.growth < 1.0 else math.inf
        return (self.growth - 1.0) / self.cost

    def then(self, other: _Run) -> _Run:
        return _Run(self.blocks + other.blocks, min(_HUGE, self.cost + self.growth * other.cost), min(_HUGE, self.growth * other.growth))


def _by_rank(blocks: _Blocks, start: int) -> tuple[int, ...]:
    """IKKBZ (Ibaraki and Kameda; Krishnamurthy, Boral and Zaniolo): on a tree the order by rank is the best order."""
    parent, preorder = {start: start}, [start]
    for node in preorder:
        for child in bits(blocks.adjacent[node]):
            if child not in parent:
                parent[child] = node
                preorder.append(child)
    children: dict[int, list[list[_Run]]] = {node: [] for node in preorder}
    for node in reversed(preorder):
        chain = list(heapq.merge(*children[node], key=lambda run: (run.rank, run.blocks)))
        if node == start:
            return tuple(k for run in chain for k in run.blocks)
        growth = min(_HUGE, blocks.sizes[node] * blocks.selectivity[node][parent[node]])
        probe = blocks.by_hash if blocks.hashable[node] >> parent[node] & 1 else blocks.by_scan[node]
        run = _Run((node,), min(_HUGE, going_on(probe, 1.0, blocks.model.costs.join, growth)), growth)
        # A parent must come before its children. Where the ranks would put a child first, the two are visited as one block.
        while chain and chain[0].rank < run.rank:
            run = run.then(chain.pop(0))
        children[parent[node]].append([run, *chain])
    raise AssertionError("the start is the last node of the reversed preorder")

"""Binary trees over one linear order of the streams, by dynamic programming over its intervals.

Problem: a good binary tree where there are too many connected sets to look at all of them. Method: fix an order of the
streams in which every prefix is connected, and take the best tree whose every join covers an interval of it (Neumann and
Radke's linearised DP, with this project's cost model). Guarantee: the best tree over that order, never worse than the
left-deep one; nothing is proven of other orders. Complexity: O(n³) per order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Flags, Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, side, weighted, weights_of
from solvers.jtree.search import Shape, both, tree_of_joins
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph
from solvers.model.tree import Tree

__all__ = ["linearised"]


class Intervals(NamedTuple):
    """Of every interval [i, j] of the order: size, rate, bytes of its state; whether a predicate, and an equality, leads from j back to i."""

    size: Floats
    rate: Floats
    state_bytes: Floats
    joined: Flags
    hashed: Flags


@making
def sums_of(flags: Flags) -> Ints:
    """[i, j]: how many flags stand in the first i rows and j columns."""
    n = flags.shape[0]
    sums = np.zeros((n + 1, n + 1), np.int64)
    for i in range(n):
        for j in range(n):
            sums[i + 1, j + 1] = sums[i, j + 1] + sums[i + 1, j] - sums[i, j] + flags[i, j]
    return sums


@compiled
def from_to(sums: Ints, i: int, k: int, j: int) -> int:
    """How many flags lead from [k + 1, j] back to [i, k]."""
    return int(sums[k + 1, j + 1] - sums[i, j + 1] - sums[k + 1, k + 1] + sums[i, k + 1])


@making
def best_intervals(intervals: Intervals, weights: Weights, cpu_weight: float, memory_weight: float) -> Ints:
    """The best split of every interval, −1 where none is connected."""
    size, rate, state_bytes, joined, hashed = intervals
    n = size.shape[0]
    best = np.full((n, n), np.inf)
    split = np.full((n, n), -1, np.int64)
    edges, equal = sums_of(joined), sums_of(hashed)
    for i in range(n):
        best[i, i] = 0.0
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            output = cpu_weight * rate[i, j] * weights.join + (memory_weight * state_bytes[i, j] if length < n else 0.0)
            for k in range(i, j):
                if best[i, k] == np.inf or best[k + 1, j] == np.inf or from_to(edges, i, k, j) == 0:
                    continue
                hashable = from_to(equal, i, k, j) > 0
                a, b = rate[i, k], rate[k + 1, j]
                cost = side(a, b, size[i, k], hashable, weights) + side(b, a, size[k + 1, j], hashable, weights) + weighted(weights.probe, a + b)
                total = best[i, k] + best[k + 1, j] + cpu_weight * cost + output
                if total < best[i, j]:
                    best[i, j] = total
                    split[i, j] = k
    return split


def _measured(graph: JoinGraph, order: Sequence[int]) -> list[float]:
    """The sizes of all beginnings of an order, where sub-joins are observed."""
    sizes, mask = [], 0
    for stream in order:
        mask |= 1 << stream
        sizes.append(graph.size(mask))
    return sizes


def linearised(model: CostModel, order: Sequence[int], cpu_weight: float = 1.0, memory_weight: float = 0.0) -> Tree | None:
    """The best binary tree over the intervals of `order`, a permutation of a connected set; None where every tree overflows."""
    graph, n = model.graph, len(order)
    place = np.full(len(graph), -1, np.int64)
    place[list(order)] = range(n)
    joined, hashed = np.zeros((n, n), np.bool_), np.zeros((n, n), np.bool_)
    selectivity = np.ones((n, n))
    left, right = place[graph.columns.left], place[graph.columns.right]
    inside = (left >= 0) & (right >= 0)
    pairs = np.minimum(left, right)[inside], np.maximum(left, right)[inside]
    joined[pairs] = True
    np.logical_or.at(hashed, pairs, graph.columns.equality[inside])
    np.multiply.at(selectivity, pairs, graph.columns.selectivity[inside])
    size, rate, state_bytes = (np.full((n, n), np.inf) for _ in range(3))
    windows = np.array([graph.window_tuples[stream] for stream in order])
    per_second = 1.0 / np.array([graph.window_seconds[stream] for stream in order])
    tuple_bytes = np.array([graph.tuple_bytes[stream] for stream in order])
    # [i, j]: what stream j multiplies the size of the interval i … j − 1 by: its window, and its predicates with that interval.
    grows_by = windows * np.cumprod(selectivity[::-1], axis=0)[::-1]
    for i in range(n):
        with np.errstate(over="ignore", invalid="ignore"):
            size[i, i:] = _measured(graph, order[i:]) if graph.observed else np.cumprod(grows_by[i, i:])
            rate[i, i:] = size[i, i:] * np.cumsum(per_second[i:])
            state_bytes[i, i:] = size[i, i:] * np.cumsum(tuple_bytes[i:])
    with np.errstate(invalid="ignore"):
        split = best_intervals(Intervals(size, rate, state_bytes, joined, hashed), weights_of(model.costs), cpu_weight, memory_weight)
    if n == 1:
        return order[0]
    if split[0, n - 1] < 0:
        return None
    before = [0]  # the sets of all beginnings: an interval is the difference of two
    for stream in order:
        before.append(before[-1] | 1 << stream)
    shape: Shape = {}
    waiting = [(0, n - 1)]
    while waiting:
        i, j = waiting.pop()
        k = int(split[i, j])
        halves = ((i, k), (k + 1, j))
        shape[before[j + 1] ^ before[i]] = tuple(before[last + 1] ^ before[first] for first, last in halves)
        waiting += [(first, last) for first, last in halves if first < last]
    return tree_of_joins(shape, both)

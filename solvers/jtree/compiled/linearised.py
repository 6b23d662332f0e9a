"""Binary trees over one linear order of the streams, by dynamic programming over its intervals.

Problem: a good binary tree where there are too many connected sets to look at all of them. Method: fix an order of the
streams in which every prefix is connected, and take the best tree whose every join covers an interval of it (Neumann and
Radke's linearised DP, with this project's cost model). Guarantee: the best tree over that order, never worse than the
left-deep one; nothing is proven of other orders. Complexity: O(n³) per order.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.compiling import njit
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph
from solvers.model.tree import Tree

__all__ = ["linearised"]


@njit
def _intervals(
    size: NDArray[np.float64],
    rate: NDArray[np.float64],
    state_bytes: NDArray[np.float64],
    joined: NDArray[np.bool_],
    hashed: NDArray[np.bool_],
    costs: NDArray[np.float64],
    cpu_weight: float,
    memory_weight: float,
) -> NDArray[np.int64]:
    """The best split of every interval [i, j], −1 where none is connected. joined/hashed[i, j]: a predicate leads from j back to i."""
    n = size.shape[0]
    join, keep, append, probe, scan = costs
    best = np.full((n, n), np.inf)
    split = np.full((n, n), -1, np.int64)
    # reach[i, j]: how many predicates join [i, j] to the rest is found from prefix sums over the adjacency.
    edges = np.zeros((n + 1, n + 1), np.int64)
    equal = np.zeros((n + 1, n + 1), np.int64)
    for i in range(n):
        for j in range(n):
            edges[i + 1, j + 1] = edges[i, j + 1] + edges[i + 1, j] - edges[i, j] + joined[i, j]
            equal[i + 1, j + 1] = equal[i, j + 1] + equal[i + 1, j] - equal[i, j] + hashed[i, j]
    for i in range(n):
        best[i, i] = 0.0
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            output = cpu_weight * rate[i, j] * join + (memory_weight * state_bytes[i, j] if length < n else 0.0)
            for k in range(i, j):
                if best[i, k] == np.inf or best[k + 1, j] == np.inf:
                    continue
                if edges[k + 1, j + 1] - edges[i, j + 1] - edges[k + 1, k + 1] + edges[i, k + 1] == 0:
                    continue
                can_hash = equal[k + 1, j + 1] - equal[i, j + 1] - equal[k + 1, k + 1] + equal[i, k + 1] > 0
                cost = 0.0
                for side in range(2):
                    if side == 0:
                        kept, kept_size, arriving = rate[i, k], size[i, k], rate[k + 1, j]
                    else:
                        kept, kept_size, arriving = rate[k + 1, j], size[k + 1, j], rate[i, k]
                    plain = kept * append + arriving * (probe + scan * kept_size)
                    cost += min(plain, kept * keep + arriving * probe) if can_hash else plain
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
    place = {stream: position for position, stream in enumerate(order)}
    joined, hashed = np.zeros((n, n), np.bool_), np.zeros((n, n), np.bool_)
    selectivity = np.ones((n, n))
    for edge in graph.edges:
        if edge.left in place and edge.right in place:
            low, high = sorted((place[edge.left], place[edge.right]))
            joined[low, high] = True
            hashed[low, high] |= edge.equality
            selectivity[low, high] *= edge.selectivity
    size, rate, state_bytes = (np.full((n, n), np.inf) for _ in range(3))
    windows = np.array([graph.window_tuples[stream] for stream in order])
    per_second = 1.0 / np.array([graph.window_seconds[stream] for stream in order])
    tuple_bytes = np.array([graph.tuple_bytes[stream] for stream in order])
    # What stream j multiplies the interval from i to before it by: its window and its predicates with them.
    grows_by = windows * np.cumprod(selectivity[::-1], axis=0)[::-1]
    for i in range(n):
        with np.errstate(over="ignore", invalid="ignore"):
            size[i, i:] = _measured(graph, order[i:]) if graph.observed else np.cumprod(grows_by[i, i:])
            rate[i, i:] = size[i, i:] * np.cumsum(per_second[i:])
            state_bytes[i, i:] = size[i, i:] * np.cumsum(tuple_bytes[i:])
    weights = model.costs
    costs = np.array([weights.join, weights.insert + weights.delete, weights.append, weights.probe, weights.scan])
    with np.errstate(invalid="ignore"):
        split = _intervals(size, rate, state_bytes, joined, hashed, costs, cpu_weight, memory_weight)
    if n > 1 and split[0, n - 1] < 0:
        return None
    trees: dict[tuple[int, int], Tree] = {(i, i): order[i] for i in range(n)}
    waiting = [(0, n - 1)] if n > 1 else []
    while waiting:
        i, j = waiting[-1]
        k = int(split[i, j])
        missing = [part for part in ((i, k), (k + 1, j)) if part not in trees]
        if missing:
            waiting.extend(missing)
        else:
            trees[i, j] = make_join((trees[i, k], trees[k + 1, j]), ((1,), (0,)))
            waiting.pop()
    return trees[0, n - 1]

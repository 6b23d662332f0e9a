"""A binary join tree by always making the smallest join next (greedy operator ordering, Fegaras 1998).

Problem: some good tree at once, whatever the size of the graph. Method: of all pairs of blocks that a predicate joins, join the one
with the fewest results, until one block is left. Guarantee: a tree without cross products, nothing more. Complexity: O(n² log n).
Sizes are products over predicates; a set that was observed as a whole is looked up.
"""

from __future__ import annotations

import heapq

from solvers.jtree.components import join_components
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel
from solvers.model.graph import DENSE, JoinGraph, bits
from solvers.model.tree import Tree

__all__ = ["greedy_plan", "greedy_tree"]

MANY = 60  # neighbours of one stream, from which a table of all pairs is quicker than a heap


def greedy_plan(model: CostModel) -> Tree:
    """The greedy trees of all components under one root."""
    return join_components(model, [greedy_tree(model, component) for component in model.graph.components])


def greedy_tree(model: CostModel, component: int) -> Tree:
    """The greedy tree of one component."""
    graph = model.graph
    crowded = len(graph.edges) > DENSE or max(near.bit_count() for near in graph.neighbours) > MANY
    if crowded and not graph.observed:
        return _in_a_dense_graph(graph, component)
    trees: dict[int, Tree] = {i: i for i in bits(component)}
    masks = {i: 1 << i for i in trees}
    sizes = {i: graph.window_tuples[i] for i in trees}
    selectivity: dict[int, dict[int, float]] = {i: {} for i in trees}
    for edge in graph.edges:
        if edge.mask & ~component == 0:
            for a, b in ((edge.left, edge.right), (edge.right, edge.left)):
                selectivity[a][b] = selectivity[a].get(b, 1.0) * edge.selectivity

    def joined(a: int, b: int) -> float:
        if graph.observed:
            return model.size(masks[a] | masks[b])
        return sizes[a] * selectivity[a][b] * sizes[b]

    ranked = {(a, b): joined(a, b) for a in trees for b in selectivity[a] if a < b}
    heap = [(size, pair) for pair, size in ranked.items()]
    heapq.heapify(heap)
    while ranked:
        size, (a, b) = heapq.heappop(heap)
        if ranked.get((a, b)) != size:
            continue  # one of the two has been joined since
        sizes[a] = size
        masks[a] |= masks.pop(b)
        trees[a] = make_join((trees[a], trees.pop(b)), ((1,), (0,)))
        for c, value in selectivity.pop(b).items():
            del ranked[min(b, c), max(b, c)]
            del selectivity[c][b]
            if c != a:
                selectivity[a][c] = selectivity[c][a] = selectivity[a].get(c, 1.0) * value
        for c in selectivity[a]:
            pair = (min(a, c), max(a, c))
            ranked[pair] = joined(a, c)
            heapq.heappush(heap, (ranked[pair], pair))
    (tree,) = trees.values()
    return tree


def _in_a_dense_graph(graph: JoinGraph, component: int) -> Tree:
    """The same over a table of all pairs, for graphs in which a join changes the sizes of many others: O(n³) with numpy, 10 ms for 200 streams."""
    import numpy as np  # only in large graphs

    streams = list(bits(component))
    n = len(streams)
    place = np.full(len(graph), -1, np.int64)
    place[streams] = range(n)
    columns = graph.columns
    left, right = place[columns.left], place[columns.right]
    inside = (left >= 0) & (right >= 0)
    first, second = np.minimum(left, right)[inside], np.maximum(left, right)[inside]
    selectivity, joined = np.ones((n, n)), np.zeros((n, n), np.bool_)
    np.multiply.at(selectivity, (first, second), columns.selectivity[inside])
    joined[first, second] = True
    selectivity, joined = selectivity * selectivity.T, joined | joined.T
    sizes = np.array([graph.window_tuples[i] for i in streams])
    trees: list[Tree] = list(streams)
    with np.errstate(over="ignore", invalid="ignore"):
        ranked = np.where(np.triu(joined), sizes[:, None] * selectivity * sizes, np.inf)
        for _ in range(n - 1):
            a, b = divmod(int(ranked.argmin()), n)
            if not joined[a, b]:  # all that is left overflows
                a, b = (int(found[0]) for found in joined.nonzero())
            sizes[a] = sizes[a] * selectivity[a, b] * sizes[b]
            trees[a] = make_join((trees[a], trees[b]), ((1,), (0,)))
            selectivity[a] *= selectivity[b]
            joined[a] |= joined[b]
            joined[a, a] = False
            joined[:, b] = joined[b] = False
            ranked[:, b] = ranked[b] = np.inf
            selectivity[:, a], joined[:, a] = selectivity[a], joined[a]
            near = np.where(joined[a], sizes[a] * selectivity[a] * sizes, np.inf)
            ranked[a, a:], ranked[:a, a] = near[a:], near[:a]
    return trees[0]

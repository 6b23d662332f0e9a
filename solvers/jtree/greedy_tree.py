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
from solvers.model.graph import bits
from solvers.model.tree import Tree

__all__ = ["greedy_plan", "greedy_tree"]


def greedy_plan(model: CostModel) -> Tree:
    """The greedy trees of all components under one root."""
    return join_components(model, [greedy_tree(model, component) for component in model.graph.components])


def greedy_tree(model: CostModel, component: int) -> Tree:
    """The greedy tree of one component."""
    graph = model.graph
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

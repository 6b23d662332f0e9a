"""A good binary tree of a graph too large for the best one: over linear orders, and greedy.

Problem: a binary join tree of one connected component with little CPU, or little memory. Method: the best tree over the intervals of each of a
few linear orders (`linearised`), those in which the pipelines of the component's mjoin visit its streams, from the smallest windows on; the greedy
tree beside them. Guarantee: none; of a chain in its own order it is the best. Complexity: O(n³) an order, as many orders as are quick.
"""

from __future__ import annotations

import math

from solvers.common.deadline import Deadline
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.linearised import linearised
from solvers.jtree.greedy_tree import greedy_tree
from solvers.jtree.shape import excess_of, shape_of
from solvers.model.graph import bits
from solvers.model.tree import Tree

__all__ = ["best_over_linear_orders"]

MAX_ORDERS = 8  # linear orders that are tried at most
MAX_INTERVALS = 40_000  # intervals of all orders together: a fifth of a second


def best_over_linear_orders(ledger: Ledger, component: int, deadline: Deadline, by_memory: bool = False) -> Tree:
    """The best of the trees that are made before the deadline; the greedy one is always made."""
    model, streams = ledger.model, list(bits(component))
    trees = [greedy_tree(model, component)]
    if not deadline.expired():
        orders = ledger.join([1 << i for i in streams])[1]
        starts = sorted(range(len(streams)), key=lambda k: (model.graph.window_tuples[streams[k]], k))
        for start in starts[: max(1, min(MAX_ORDERS, MAX_INTERVALS // len(streams) ** 2))]:
            if deadline.expired():
                break
            linear = linearised(model, [streams[start], *(streams[k] for k in orders[start])], float(not by_memory), float(by_memory))
            if linear is not None:
                trees.append(linear)

    def cost(tree: Tree) -> float:
        shape = shape_of(tree)
        return math.fsum(map(ledger.state_bytes, shape)) if by_memory else excess_of(ledger, shape)

    return min(trees, key=cost) if len(trees) > 1 else trees[0]

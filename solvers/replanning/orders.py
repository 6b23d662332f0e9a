"""The running tree with the best probe orders of today."""

from __future__ import annotations

import math
from collections.abc import Collection

from solvers.common.deadline import Deadline
from solvers.common.tolerances import TIED
from solvers.jtree.orders import best_orders
from solvers.jtree.search import Problem, make_join
from solvers.jtree.tables.joins import likely_orders
from solvers.model.cost import PricedJoin
from solvers.model.tree import Tree, joins, leaf_mask

__all__ = ["reordered"]


def reordered(problem: Problem, tree: Tree, untouched: Collection[int], deadline: Deadline) -> Tree:
    """The same tree, each pipeline in its best order where that costs less than the one it has; joins in `untouched` stay as they are."""
    made: dict[int, Tree] = {}
    for node in joins(tree):
        inputs = [made.get(leaf_mask(child), child) for child in node.inputs]
        orders = node.orders
        if len(inputs) > 2 and node.mask not in untouched:
            blocks = [leaf_mask(child) for child in inputs]
            best = likely_orders(problem.model, blocks, node.asked) if problem.model.graph.tables else best_orders(problem.model, blocks, deadline)[0]
            assert best is not None  # the running orders can bind every index
            was, now = (_costs(problem.model.price_join(blocks, some, None, node.asked)) for some in (orders, best))
            orders = tuple(new if after < before * TIED else old for old, new, before, after in zip(orders, best, was, now, strict=True))
        made[node.mask] = make_join(inputs, orders, node.asked)
    return made.get(leaf_mask(tree), tree)


def _costs(join: PricedJoin) -> list[float]:
    return [math.fsum(probe.cpu for probe in pipeline.probes) for pipeline in join.pipelines]

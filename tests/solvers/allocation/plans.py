"""Plans of every shape for the tests of allocations."""

from __future__ import annotations

import random

from models.request import Costs, Query
from solvers.allocation.productivity import PlanPaths, paths_of_plan
from solvers.jtree.components import join_components
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import bits, join_graph
from solvers.model.probe_order import best_orders
from solvers.model.tree import Tree, leaf_mask

__all__ = ["plan_paths", "priced_plan", "random_tree"]


def random_tree(model: CostModel, rng: random.Random) -> Tree:
    """Some join tree without cross products: inputs are merged at random, two or three at a time."""
    parts = []
    for component in model.graph.components:
        trees: list[Tree] = list(bits(component))
        while len(trees) > 1:
            first = rng.choice(trees)
            group, mask = [first], leaf_mask(first)
            while len(group) < min(len(trees), rng.choice((2, 2, 2, 3))):
                near = [tree for tree in trees if tree not in group and leaf_mask(tree) & model.graph.around(mask)]
                group.append(rng.choice(near))
                mask |= leaf_mask(group[-1])
            trees = [tree for tree in trees if tree not in group]
            group.sort(key=lambda tree: leaf_mask(tree) & -leaf_mask(tree))
            trees.append(make_join(group, best_orders(model, [leaf_mask(tree) for tree in group])[0]))
        parts.append(trees[0])
    return join_components(model, parts)


def priced_plan(query: Query, rng: random.Random, costs: Costs | None = None) -> tuple[CostModel, PricedTree]:
    model = CostModel(join_graph(query), costs or Costs())
    return model, model.price(random_tree(model, rng))


def plan_paths(query: Query, rng: random.Random, costs: Costs | None = None) -> PlanPaths:
    model, priced = priced_plan(query, rng, costs)
    return paths_of_plan(model.graph, model.costs, priced)

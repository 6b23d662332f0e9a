"""Graphs that are not connected: each component is planned on its own, and the root joins them (contract §1).

A component's subresult has the same size and rate whatever its shape, so the root costs the same for every choice of
sub-plans: figures add up, and the staircase of the whole is the sum of the components' staircases.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from solvers.jtree.orders import best_orders
from solvers.jtree.search import make_join, staircase
from solvers.model.cost import CostModel
from solvers.model.point import Point, point_of
from solvers.model.staircase import undominated
from solvers.model.tree import Tree, leaf_mask

__all__ = ["join_components", "sum_of_staircases"]


def join_components(model: CostModel, parts: Sequence[Tree]) -> Tree:
    """One tree over the components' trees; the only one itself where there is one."""
    if len(parts) == 1:
        return parts[0]
    orders, _ = best_orders(model, [leaf_mask(part) for part in parts])
    return make_join(parts, orders)


def sum_of_staircases(model: CostModel, staircases: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The staircase of the whole from the staircases of its components.

    A component's points carry the CPU of its own joins and the bytes of its own inner states, whatever their origin:
    only the trees are used, and the result is priced whole.
    """
    if len(staircases) == 1:
        return staircase(point_of(model, point.tree) for point in staircases[0])
    sums: list[tuple[float, float, tuple[Tree, ...]]] = [(0.0, 0.0, ())]
    for points in staircases:
        grown = ((cpu + point.cpu, memory + point.memory_bytes, (*trees, point.tree)) for cpu, memory, trees in sums for point in points)
        sums = undominated(grown, itemgetter(0, 1))
    return staircase(point_of(model, join_components(model, trees)) for _, _, trees in sums)

"""Plans of given joins for queries with tables: the accesses and probe orders that suit them.

A `Shape` says what is joined with what; which tables are asked is then decided join by join, since costs add up over joins.
"""

from __future__ import annotations

import math

from solvers.common.deadline import NEVER, Deadline
from solvers.jtree.search import Shape, make_join, sorted_inputs, staircase
from solvers.jtree.tables.joins import Way, likely_orders, likely_ways
from solvers.model.binding import grown
from solvers.model.cost import CostModel
from solvers.model.point import Point, point_of
from solvers.model.staircase import undominated
from solvers.model.tree import Asked, Tree

__all__ = ["first_points", "points_of", "tree_asking"]

MOST_POINTS = 16  # of one shape's trade-offs between accesses, spread evenly where there are more


def points_of(model: CostModel, shape: Shape, deadline: Deadline = NEVER) -> tuple[Point, ...]:
    """Plans of this shape, priced, by rising CPU: what its accesses leave to choose; none where they cannot be bound."""
    sums: list[tuple[float, float, tuple[tuple[int, Asked], ...]]] = [(0.0, 0.0, ())]
    for whole, inputs in shape.items():
        found: list[Way] = likely_ways(model, sorted_inputs(inputs), deadline)
        if not found:
            return ()
        sums = undominated(
            [(cpu + way.cpu, held + way.bytes, (*chosen, (whole, way.asked))) for cpu, held, chosen in sums for way in found], lambda entry: entry[:2]
        )
        if len(sums) > MOST_POINTS:
            step = (len(sums) - 1) / (MOST_POINTS - 1)
            sums = [sums[math.floor(k * step)] for k in range(MOST_POINTS)]
    return staircase(point_of(model, tree_asking(model, shape, dict(chosen))) for _, _, chosen in sums)


def tree_asking(model: CostModel, shape: Shape, asked: dict[int, Asked]) -> Tree:
    """The join tree of this shape, in which every join asks these tables, with likely orders of its probes."""
    trees: dict[int, Tree] = {}
    root: Tree = 0
    for whole in sorted(shape, key=lambda mask: (mask.bit_count(), mask)):
        inputs = sorted_inputs(shape[whole])
        orders = likely_orders(model, inputs, asked[whole])
        assert orders is not None
        root = trees[whole] = make_join([trees[part] if part & (part - 1) else part.bit_length() - 1 for part in inputs], orders, asked[whole])
    return root


def first_points(model: CostModel) -> tuple[Point, ...]:
    """Some plans at once, whatever the size of the graph: the smallest result is always made next."""
    graph = model.graph
    shape: Shape = {}
    for part in graph.components:
        if part & (part - 1):
            shape |= grown(graph, part, model.size)[1]
    if len(graph.components) > 1:
        shape[graph.all] = graph.components
    return points_of(model, shape)

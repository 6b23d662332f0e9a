"""Join trees one step away from a given one.

A kept subresult is dissolved into its user's join; two inputs of a wider join become one; or both at once, which turns one
binary tree into another. From any tree of a connected graph every other one can be reached in such steps. No cross products.
"""

from __future__ import annotations

from collections.abc import Iterator

from solvers.jtree.search import Shape, sorted_inputs, tree_of_joins
from solvers.model.cost import CostModel
from solvers.model.probe_order import best_join
from solvers.model.tree import Tree

__all__ = ["built", "neighbours"]


def neighbours(model: CostModel, shape: Shape) -> Iterator[Shape]:
    """What they join, in an order that depends on nothing but what the given one joins."""
    for user, inputs in shape.items():
        if not model.graph.connected(user):
            continue
        yield from _grouped(model, shape, user)
        for kept in inputs:
            if kept in shape:
                dissolved = {mask: parts for mask, parts in shape.items() if mask != kept}
                dissolved[user] = sorted_inputs([*(part for part in inputs if part != kept), *shape[kept]])
                yield dissolved
                yield from (grouped for grouped in _grouped(model, dissolved, user) if kept not in grouped)


def _grouped(model: CostModel, shape: Shape, user: int) -> Iterator[Shape]:
    """Every way to make one input of two that a predicate joins."""
    inputs = shape[user]
    if len(inputs) < 3:
        return
    for k, left in enumerate(inputs):
        near = model.graph.around(left)
        for right in inputs[k + 1 :]:
            if near & right:
                others = [part for part in inputs if part not in (left, right)]
                yield {**shape, left | right: (left, right), user: sorted_inputs([*others, left | right])}


def built(model: CostModel, shape: Shape) -> Tree:
    """The join tree of a shape, with the best probe orders."""
    return tree_of_joins(shape, lambda inputs: best_join(model, inputs).orders)

"""Join trees: streams as leaves, joins of two or more inputs as inner nodes, a probe order per input.

This is the form that is priced and returned. Where a tree has another form for a while, one function leads back here:

| form | where | back by |
|---|---|---|
| sets of inputs by set of streams (`Shape`): no orders, easily changed | searches that walk from plan to plan | `jtree.search.tree_of_joins` |
| rows and points (`Stairs`), members (`Seeds`) | compiled exact search | `jtree.component.Component` |
| entries (`Solution`), halves of sets or of intervals | compiled regions, binary trees, linear orders | a `Shape` |
| operators of a plan | the wire | `jtree.given.tree_of`; there by `plan.builder.operators_of` |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["BOTH", "Asked", "Join", "Tree", "joins", "leaf_mask", "probes_of"]


Asked = tuple[tuple[int, int], ...]
BOTH = ((1,), (0,))
"""The orders of a join of two inputs: each visits the other."""


@dataclass(frozen=True, slots=True)
class Join:
    """One join. `orders[k]` are the positions of the other inputs, in the order in which a new tuple of input k visits them.

    Inputs stand in the order of their lowest streams, so that equal trees are equal objects. A table has no tuples that arrive: its order is empty.
    """

    inputs: tuple[Tree, ...]
    orders: tuple[tuple[int, ...], ...]
    mask: int
    asked: Asked = ()
    """The tables among the inputs that are asked, each with the place of the index among what it offers; the others are kept."""


Tree = int | Join
"""A stream's position, or a join."""


def leaf_mask(tree: Tree) -> int:
    """The set of streams below."""
    return tree.mask if isinstance(tree, Join) else 1 << tree


def joins(tree: Tree) -> Iterator[Join]:
    """All joins, inputs before users, the root last."""
    found: list[Join] = []
    waiting: list[Tree] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Join):
            found.append(node)
            waiting.extend(node.inputs)
    return reversed(found)


def probes_of(tree: Tree) -> int:
    """How many probes all pipelines have together."""
    return sum([sum(map(len, join.orders)) for join in joins(tree)])

"""Which indexes of tables can be bound: paper 5's bind fields.

Problem: whether some order of probes has a value for every bound attribute of an index before it asks it; and some join tree in which every table
can be reached. Method: blocks grow from the streams. Two blocks that a predicate joins become one; a table joins a block that can reach it: always
where it is kept, by an index where the block has a value for every bound attribute. A larger block binds no less and is joined with no
less, so whichever grows first, the end is the same: a table that is left over is bound by no plan. In which order they grow decides the
tree: the smallest result is always made next (`jtree.greedy_tree` does the same with streams alone).
Guarantee: exact; a tree wherever there is one. Complexity: O(n³ · predicates of a stream).
"""

from __future__ import annotations

from collections.abc import Callable

from solvers.common.errors import BindError
from solvers.model.graph import JoinGraph, Offer, bits

__all__ = ["check_bound", "grown"]


def grown(graph: JoinGraph, part: int, size: Callable[[int], float]) -> tuple[list[int], dict[int, tuple[int, ...]]]:
    """The blocks that the streams of a part grow to, and the joins inside them, each with its inputs."""
    blocks = [1 << i for i in bits(part & ~graph.tables)]
    tables = [1 << i for i in bits(part & graph.tables)]
    shape: dict[int, tuple[int, ...]] = {}
    while True:
        near = {block: graph.around(block) & part for block in blocks}
        pairs = [(size(a | b), a, b) for a in blocks for b in blocks if a < b and near[a] & b]
        for t in tables:
            offers = graph.offers[t.bit_length() - 1]
            pairs += [(size(a | t), a, t) for a in blocks if near[a] & t and any(offer.bindable(a) for offer in offers)]
        if not pairs:
            return blocks, shape
        _, left, right = min(pairs)
        blocks.remove(left)
        if right in tables:
            tables.remove(right)
            # A table that follows shares the join of what it follows: it takes no other probes and no state between the two.
            shape[left | right] = (*shape.pop(left, (left,)), right)
        else:
            blocks.remove(right)
            shape[left | right] = (left, right)
        blocks.append(left | right)


def check_bound(graph: JoinGraph) -> None:
    """Raise BindError where some index can be bound by no order of probes, naming its table and attributes."""
    for table, place, offer in graph.indexes():
        if not _can_be_bound(graph, table, offer):
            lacking = [attribute for attribute, binder in zip(offer.bound, offer.binders, strict=True) if not binder]
            why = f"no equality gives {' and '.join(lacking)} a value" if lacking else "nothing that a plan joins has values for all of them"
            detail = f"no order of probes can bind the index of table {graph.names[table]!r} by {', '.join(offer.bound)}: {why}"
            raise BindError(detail, graph.access_pointer(table, place, "bound"))


def _can_be_bound(graph: JoinGraph, table: int, offer: Offer) -> bool:
    if not all(offer.binders):
        return False
    streams = graph.all & ~graph.tables
    for binder in offer.binders:
        streams &= binder
    if streams:
        return True  # one stream alone binds it
    part = graph.component(1 << table, graph.all)
    if not part & ~graph.tables:
        return _bound_at_the_root(graph, part, table, offer)
    blocks, _ = grown(graph, part & ~(1 << table), lambda mask: 0.0)
    return any(offer.bindable(block) for block in blocks)


def _bound_at_the_root(graph: JoinGraph, part: int, table: int, offer: Offer) -> bool:
    """Whether tables that no stream is joined with, which the root joins one by one, can come before this one and bind it."""
    visited, before = 0, -1
    while visited != before:
        before = visited
        for other in bits(part & ~visited & ~(1 << table)):
            if any(one.bindable(visited) for one in graph.offers[other]):
                visited |= 1 << other
    return offer.bindable(visited)

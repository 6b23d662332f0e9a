"""Connected sets of streams, and how they split: what searches in plain Python enumerate.

Each generator gives everything once, in an order that depends on the graph alone, and holds no more than one path of what it has
not given yet. `solvers.jtree.compiled.sets` does the same for searches in compiled code, with tables.
Complexity: O(streams) per set, pair or partition given (Moerkotte and Neumann 2006 for sets and pairs).
"""

from __future__ import annotations

from collections.abc import Iterator

from solvers.model.graph import bits

__all__ = ["connected_pairs", "connected_sets", "partitions", "sets_within"]

Neighbours = tuple[int, ...]
"""For each stream the set of streams it shares a predicate with: `JoinGraph.neighbours`."""


def connected_sets(neighbours: Neighbours, start: int, forbidden: int) -> Iterator[int]:
    """Every connected set that contains `start` and no stream of `forbidden`; `start` itself first.

    >>> [bin(found) for found in connected_sets((0b010, 0b101, 0b010), 0b001, 0)]
    ['0b1', '0b11', '0b111']
    """
    yield start
    # A frame: a set, what may not be added below it, the streams around it, and the next part of those to add.
    frames = [_frame(neighbours, start, forbidden | start)]
    while frames:
        found, closed, around, part = frames[-1]
        if not part:
            frames.pop()
            continue
        frames[-1] = (found, closed, around, (part - 1) & around)
        yield found | part
        frames.append(_frame(neighbours, found | part, closed | around))


def _frame(neighbours: Neighbours, found: int, closed: int) -> tuple[int, int, int, int]:
    around = _around(neighbours, found) & ~closed
    return found, closed, around, around


def _around(neighbours: Neighbours, mask: int) -> int:
    around = 0
    for i in bits(mask):
        around |= neighbours[i]
    return around


def sets_within(neighbours: Neighbours, component: int) -> Iterator[int]:
    """Every connected set of streams of a component, single streams included."""
    for i in bits(component):
        yield from connected_sets(neighbours, 1 << i, ~component | (1 << i) - 1)


def connected_pairs(neighbours: Neighbours, component: int) -> Iterator[tuple[int, int]]:
    """Every pair of disjoint connected sets that a predicate joins."""
    for i in reversed(list(bits(component))):
        for left in connected_sets(neighbours, 1 << i, (1 << i) - 1):
            closed = left | (left & -left) - 1
            around = _around(neighbours, left) & ~closed
            for k in reversed(list(bits(around))):
                for right in connected_sets(neighbours, 1 << k, closed | ((1 << k) - 1) & around):
                    yield left, right


def partitions(neighbours: Neighbours, whole: int) -> Iterator[tuple[int, ...]]:
    """Every way to split a set into two or more connected parts; parts by their lowest streams.

    >>> list(partitions((0b010, 0b101, 0b010), 0b111))
    [(3, 4), (1, 6), (1, 2, 4)]
    """
    waiting: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while waiting:
        left, parts = waiting.pop()
        if not left:
            if len(parts) > 1:
                yield parts
            continue
        waiting.extend((left & ~part, (*parts, part)) for part in connected_sets(neighbours, left & -left, ~left))

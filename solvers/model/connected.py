"""Connected sets of streams, and the ways to split one into connected parts: in plain Python, for callers that look at a few thousand.

Problem: every connected set, every pair of them that a predicate joins, every partition of one, each exactly once. Method: a set grows from one
stream; the lowest stream next to it is taken, or is ruled out for good (as `solvers.jtree.compiled.sets` does, compiled).
Complexity: two steps a set, so O(sets); memory O(streams).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solvers.model.graph import bits

__all__ = ["connected_pairs", "connected_sets", "partitions"]


def connected_sets(neighbours: Sequence[int], start: int, within: int) -> Iterator[int]:
    """Every connected set that contains the stream `start` (a mask of one bit), inside `within`, each once.

    >>> sorted(connected_sets((0b010, 0b101, 0b010), 0b001, 0b111))
    [1, 3, 7]
    """
    waiting = [(start, neighbours[start.bit_length() - 1], within & ~start)]
    while waiting:
        found, reached, free = waiting.pop()
        around = reached & free
        if not around:
            yield found
            continue
        low = around & -around
        waiting.append((found, reached, free & ~low))
        waiting.append((found | low, reached | neighbours[low.bit_length() - 1], free & ~low))


def connected_pairs(neighbours: Sequence[int], component: int) -> Iterator[tuple[int, int]]:
    """Every pair of disjoint connected sets that a predicate joins, each once; the first has the lowest stream (Moerkotte and Neumann 2006)."""
    for i in reversed(list(bits(component))):
        above = component & -(1 << i)
        for left in connected_sets(neighbours, 1 << i, above):
            around = 0
            for k in bits(left):
                around |= neighbours[k]
            free = above & ~left
            around &= free
            for k in bits(around):
                yield from ((left, right) for right in connected_sets(neighbours, 1 << k, free & ~(around & ((1 << k) - 1))))


def partitions(neighbours: Sequence[int], whole: int) -> Iterator[tuple[int, ...]]:
    """Every way to split a set into two or more connected parts, each once; the parts by their lowest streams."""
    waiting: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while waiting:
        left, parts = waiting.pop()
        if not left:
            if len(parts) > 1:
                yield parts
            continue
        waiting.extend((left & ~part, (*parts, part)) for part in connected_sets(neighbours, left & -left, left))

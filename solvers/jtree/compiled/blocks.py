"""The blocks that partitions are made of, compiled: in which order they are tried, and the least that a stream costs in any of them.

Problem: the search makes a partition block by block; next is always a block of the lowest stream that is left. Blocks are tried by rising bound,
so that all that follow one that is too dear are too dear as well. Method: a list of blocks for every lowest stream and number of streams,
sorted by bound. A block's bound is what it costs above the least shares of its streams; streams that are not placed yet count with their shares.
Guarantee: a stream's share is never above its part of what any block costs. Complexity: O(sets · n²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.bounds import Bounds
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, making
from solvers.jtree.compiled.sets import Sets, lowest, popcount
from solvers.jtree.compiled.staircase import Steps, dominated

__all__ = ["Blocks", "Lists", "block_room", "empty_lists", "few_of", "least_shares", "sort_lists", "usable_sets"]


class Lists(NamedTuple):
    """The blocks that plans may keep, by lowest stream and number of streams: list g = lowest · (n + 1) + number is listed[begin[g] : end[g]]."""

    begin: Ints
    end: Ints
    listed: Ints


class Blocks(NamedTuple):
    """Of every set that is a block: its least figures with what keeping it adds, how much more than its streams' shares it costs, and where its
    points are."""

    e: Floats
    m: Floats
    o: Ints
    kept_e: Floats
    kept_m: Floats
    bound: Floats
    first: Ints
    many: Ints
    share: Floats
    """`least_shares`"""


@making
def block_room(sets: Sets, bounds: Bounds, share: Floats) -> Blocks:
    """The streams are blocks that cost nothing to make; of the others nothing is known yet."""
    total = sets.mask.size
    bound = np.zeros(total)
    for i in range(sets.n):
        bound[i] = max(0.0, sets.pace[i] * bounds.ahead[i, 1] - share[1, i])
    return Blocks(
        e=np.zeros(total),
        m=np.zeros(total),
        o=np.zeros(total, np.int64),
        kept_e=bounds.kept_e,
        kept_m=bounds.kept_m,
        bound=bound,
        first=np.zeros(total, np.int64),
        many=np.zeros(total, np.int64),
        share=share,
    )


@making
def least_shares(sets: Sets, bounds: Bounds, usable: Flags) -> Floats:
    """[t, i]: the least that stream i costs in any usable block, in an mjoin whose pipelines have at least t partial results."""
    n = sets.n
    masks, paces, ahead, kept_e, inside_least = sets.mask, sets.pace, bounds.ahead, bounds.kept_e, bounds.inside
    share = np.full((n, n), np.inf)
    for s in range(masks.size - 1):
        if not usable[s]:
            continue
        own = kept_e[s] + inside_least[s] if s >= n else 0.0
        inside = masks[s]
        while inside:
            i = lowest(inside)
            inside &= inside - 1
            for t in range(n):
                share[t, i] = min(share[t, i], paces[i] * (own / paces[s] + ahead[s, t])) if paces[s] > 0.0 else 0.0
    return share


@making
def empty_lists(sets: Sets, usable: Flags) -> Lists:
    """Lists with room for all usable sets; the streams are in them already."""
    n, width = sets.n, sets.n + 1
    begin = np.zeros(n * width + 1, np.int64)
    for s in range(sets.mask.size - 1):
        if usable[s]:
            begin[lowest(sets.mask[s]) * width + popcount(sets.mask[s]) + 1] += 1
    for g in range(n * width):
        begin[g + 1] += begin[g]
    end, listed = begin.copy(), np.empty(begin[n * width], np.int64)
    for i in range(n):
        listed[end[i * width + 1]] = i
        end[i * width + 1] += 1
    return Lists(begin, end, listed)


@making
def sort_lists(lists: Lists, bound: Floats, n: int, size: int) -> None:
    """Sort the lists of sets of `size` streams by rising bound. They have to be complete."""
    begin, end, listed = lists
    for low in range(n):
        g = low * (n + 1) + size
        if end[g] > begin[g] + 1:
            part = listed[begin[g] : end[g]].copy()
            order = np.argsort(bound[part], kind="mergesort")
            for k in range(part.size):
                listed[begin[g] + k] = part[order[k]]


@making
def few_of(sets: Sets, beam: int) -> Flags:
    """The sets of a beam: of each number of streams the `beam` sets of the lowest rates; all sets where it is 0."""
    total = sets.mask.size
    few = np.full(total, beam == 0)
    first = sets.n
    while beam and first < total - 1:
        size = popcount(sets.mask[first])
        last = first
        while last < total and popcount(sets.mask[last]) == size:
            last += 1
        order = np.argsort(sets.size[first:last] * sets.pace[first:last], kind="mergesort")
        for k in range(min(beam, last - first)):
            few[first + order[k]] = True
        first = last
    return few


@making
def usable_sets(bounds: Bounds, few: Flags, frontier: Steps, count: int, limit_e: float, limit_m: float) -> Flags:
    """Which sets may be kept by a plan within the limits that beats the first `count` points of the frontier: some of the few, and all streams."""
    total = few.size
    kept_e, kept_m, inside, outside = bounds.kept_e, bounds.kept_m, bounds.inside, bounds.outside
    root_e, root_m, root_o, _ = frontier
    usable = np.zeros(total, np.bool_)
    n = bounds.ahead.shape[1]
    usable[:n] = True
    for s in range(n, total - 1):
        e = kept_e[s] + inside[s] + outside[s]
        if few[s] and not (e > limit_e or kept_m[s] > limit_m):
            usable[s] = not dominated(root_e, root_m, root_o, count, e, kept_m[s], 2)
    return usable

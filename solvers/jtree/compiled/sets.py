"""The connected sets of a join graph, compiled: listed once each, found by hash.

Problem: every exact search asks for figures of thousands of connected sets. Method: a set grows from its lowest stream; the lowest stream next to
it is taken or is ruled out for good, which meets each set exactly once (`solvers.model.connected` is the same, plain). The table is by rising
number of streams, and a set is found by the hash of its mask. Complexity: O(sets); memory about 100 bytes a set.
Streams are numbered inside their component (`Sets.order`). `solvers.jtree.compiled.tables` fills in the figures.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making

__all__ = ["MAX_BITS", "SPREADING", "Sets", "find", "hash_table", "list_connected", "lowest", "next_set", "place_of", "popcount"]

MAX_BITS = 62  # a set is one signed machine word
SPREADING = 0x1E3779B97F4A7C15  # a hash is a multiple of it: odd, so that neighbouring masks lie far apart; below 2^61, so no sign to think of


class Sets(NamedTuple):
    """The connected sets of a component with their figures, by rising number of streams; sets[0..n) are the streams."""

    n: int
    order: Ints
    """For each bit the place of its stream among the component's by rising position."""
    mask: Ints
    size: Floats
    """size(S)"""
    partial: Floats
    """What S counts for as a partial result of a multi-way join: size(S), or less where caches may answer for it (`cached_partials`)."""
    pace: Floats
    """Σ_{i∈S} 1/T_i"""
    bytes: Floats
    """Bytes of one tuple of S."""
    around: Ints
    """Streams next to S."""
    equal_around: Ints
    """Streams that share an equality predicate with S, inside or outside of it."""
    keys: Ints
    places: NDArray[np.int32]
    multiplier: int
    shift: int
    neighbours: Ints
    equal_neighbours: Ints
    rates: Floats
    choosing_size: Floats
    """size(S), and Σ 1/T_i below, by which a binary join's states are indexed or plain. Where rates are varied, these stay those of the plan's own
    rates: its choices stay as well."""
    choosing_pace: Floats


@compiled
def find(keys: Ints, places: NDArray[np.int32], multiplier: int, shift: int, mask: int) -> int:
    """Where a set stands in the table; −1 where it is not connected."""
    last = keys.size - 1
    slot = ((mask * multiplier) >> shift) & last
    while keys[slot] != mask:
        if keys[slot] == 0:
            return -1
        slot = (slot + 1) & last
    return int(places[slot])


@compiled
def place_of(sets: Sets, mask: int) -> int:
    """`find` in a whole table."""
    return find(sets.keys, sets.places, sets.multiplier, sets.shift, mask)


@compiled
def popcount(mask: int) -> int:
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count


@compiled
def lowest(mask: int) -> int:
    """Position of the lowest set bit: the bits below it, counted the way that compilers know as one instruction."""
    below = (mask & -mask) - 1
    place = 0
    while below:
        below &= below - 1
        place += 1
    return place


@compiled
def next_set(stack: Ints, top: int, neighbours: Ints) -> int:
    """On to the next connected set: afterwards it is `stack[top − 1, 0]`, and below it what it grew from. Returns the new top, 0 where none is left.

    A row of the stack is a set, the streams that its streams lead to, and the streams that are ruled out. It takes 2n + 2 rows.
    """
    growing = False
    while top and not growing:
        inside, reached, ruled_out = stack[top - 1, 0], stack[top - 1, 1], stack[top - 1, 2]
        open_ = reached & ~ruled_out & ~inside
        if open_ == 0:
            top -= 1
        else:
            x = lowest(open_)
            stack[top - 1, 2] = ruled_out | (1 << x)
            stack[top, 0] = inside | (1 << x)
            stack[top, 1] = reached | neighbours[x]
            stack[top, 2] = ruled_out
            top += 1
            growing = True
    return top


@making
def list_connected(neighbours: Ints, limit: int) -> tuple[Ints, NDArray[np.int8]]:
    """Every connected set once, by rising number of streams, with the stream that was added last; empty above the limit."""
    n = neighbours.size
    found = np.empty(1024, np.int64)
    added = np.empty(1024, np.int8)
    first = np.zeros(n + 2, np.int64)  # for every number of streams the place of the first such set
    total = 0
    stack = np.empty((2 * n + 2, 3), np.int64)
    for start in range(n):
        stack[0, 0], stack[0, 1], stack[0, 2] = 1 << start, neighbours[start], (1 << (start + 1)) - 1
        top, x = 1, start
        while top:
            if total == limit:
                return np.empty(0, np.int64), np.empty(0, np.int8)
            if total == found.size:
                found = np.concatenate((found, np.empty_like(found)))
                added = np.concatenate((added, np.empty_like(added)))
            grown = stack[top - 1, 0]
            found[total] = grown
            added[total] = x
            total += 1
            first[popcount(grown) + 1] += 1
            top = next_set(stack, top, neighbours)
            if top:
                x = lowest(stack[top - 1, 0] & ~stack[top - 2, 0])
    for k in range(n + 1):
        first[k + 1] += first[k]
    masks = np.empty(total, np.int64)
    last = np.empty(total, np.int8)
    for s in range(total):
        k = popcount(found[s])
        masks[first[k]] = found[s]
        last[first[k]] = added[s]
        first[k] += 1
    return masks, last


@making
def hash_table(masks: Ints, n: int) -> tuple[Ints, NDArray[np.int32], int, int]:
    """keys, places, multiplier, shift: for few streams the mask itself is the slot, else its hash."""
    wanted = 1
    width = 0
    while wanted < 2 * masks.size:
        wanted *= 2
        width += 1
    multiplier = 1
    shift = 0
    if n <= width + 2:
        wanted = 1 << n
    else:
        multiplier = SPREADING
        shift = 61 - width
    keys = np.zeros(wanted, np.int64)
    places = np.empty(wanted, np.int32)
    for s in range(masks.size):
        slot = ((masks[s] * multiplier) >> shift) & (wanted - 1)
        while keys[slot] != 0:
            slot = (slot + 1) & (wanted - 1)
        keys[slot] = masks[s]
        places[slot] = s
    return keys, places, multiplier, shift

"""Lower bounds of what plans cost, set by set, compiled: the search for staircases drops what they rule out.

Problem: for every connected set lower bounds of the excess of its own joins and of all joins above it. Method: the t-th partial result of a
pipeline is at least the smallest connected set with t streams more; a tree of joins costs at least the best prefix code over its leaves'
first partial results (`solvers.jtree.lower_bound`). Guarantee: never above what any plan costs. Complexity: O(sets · n²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import SHAVED
from solvers.jtree.compiled.compiling import Floats, Ints, making, released
from solvers.jtree.compiled.cost import Prices, kept_bytes, kept_excess
from solvers.jtree.compiled.orders import plain_mjoins
from solvers.jtree.compiled.sets import Sets, find, lowest

__all__ = ["Bounds", "bounds_of"]


class Bounds(NamedTuple):
    """Per set what keeping it adds and bounds of what its plans and those above it cost."""

    kept_e: Floats
    kept_m: Floats
    ahead: Floats
    """[set, j]: what the first j partial results of a pipeline that starts here cost at least, per 1/T."""
    inside: Floats
    """The least excess of its own joins."""
    outside: Floats
    """The least excess of all joins above it once it is kept."""
    plain: Floats
    """The excess of its plain mjoin."""


@making
def partial_results(sets: Sets, made: float, stop: Ints) -> Floats:
    """costs[s, j]: what the first j partial results of a pipeline that starts at s cost at least, per 1/T.

    The t-th partial result is a connected set above s with at least t streams more, and not all streams: it costs at least
    what the smallest such set does.
    """
    total, n = sets.mask.size, sets.n
    masks, partial, arounds = sets.mask, sets.partial, sets.around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    costs = np.zeros((total, n))
    if made == 0.0:
        return costs
    for s in range(total - 1, -1, -1):
        if s & 1023 == 0 and stop[0]:
            break
        costs[s, 1:] = np.inf
        open_ = arounds[s]
        while open_:
            x = lowest(open_)
            open_ &= open_ - 1
            above = find(keys, places, multiplier, shift, masks[s] | (1 << x))
            if above != total - 1:
                costs[s, 1] = min(costs[s, 1], made * partial[above], costs[above, 1])
                for t in range(2, n):
                    costs[s, t] = min(costs[s, t], costs[above, t - 1])
    for s in range(total):
        for t in range(2, n):
            costs[s, t] += costs[s, t - 1]
    return costs


@released
def code_excess(weights: Floats, count: int, queue: Floats) -> float:
    """Huffman(weights) − Σ weights: see `lower_bound`. `weights` by rising value; `queue` is scratch."""
    total = 0.0
    taken, head = 0, 0
    for merged in range(count - 1):
        pair = 0.0
        for _ in range(2):
            if taken < count and (head == merged or weights[taken] <= queue[head]):
                pair += weights[taken]
                taken += 1
            else:
                pair += queue[head]
                head += 1
        queue[merged] = pair
        if merged < count - 2:
            total += pair
    return total


@making
def inside_and_outside(sets: Sets, prices: Prices, ahead: Floats) -> tuple[Floats, Floats]:
    """For every set the least excess of its own joins, and of all joins above it once it is kept, by prefix codes (`lower_bound`)."""
    total, n = sets.mask.size, sets.n
    masks, paces = sets.mask, sets.pace
    inside, outside = np.zeros(total), np.zeros(total)
    if prices.made == 0.0:
        return inside, outside
    factor = SHAVED * (prices.made + min(prices.keep, prices.made / 2.0)) / prices.made
    weight = np.empty(n)
    for i in range(n):
        weight[i] = paces[i] * ahead[i, 1]
    order = np.argsort(weight)
    chosen, queue = np.empty(n + 1), np.empty(n + 1)
    for s in range(n, total - 1):
        mask = masks[s]
        count = 0
        for k in range(n):
            if mask >> order[k] & 1:
                chosen[count] = weight[order[k]]
                count += 1
        inside[s] = factor * code_excess(chosen, count, queue)
        own = paces[s] * ahead[s, 1]
        count = 0
        placed = False
        for k in range(n):
            if mask >> order[k] & 1 == 0:
                if not placed and own <= weight[order[k]]:
                    chosen[count] = own
                    count += 1
                    placed = True
                chosen[count] = weight[order[k]]
                count += 1
        if not placed:
            chosen[count] = own
            count += 1
        outside[s] = factor * code_excess(chosen, count, queue)
    return inside, outside


@making
def bounds_of(sets: Sets, prices: Prices, stop: Ints) -> Bounds:
    """What every search of these sets asks for, whatever its limits."""
    total = sets.mask.size
    kept_e, kept_m = np.zeros(total), np.zeros(total)
    for s in range(sets.n, total):
        kept_e[s] = kept_excess(sets, prices, s)
        kept_m[s] = kept_bytes(sets, prices, s)
    ahead = partial_results(sets, prices.made, stop)
    inside, outside = inside_and_outside(sets, prices, ahead)
    return Bounds(kept_e, kept_m, ahead, inside, outside, plain_mjoins(sets, prices, stop))

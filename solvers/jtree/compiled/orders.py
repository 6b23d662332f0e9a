"""The best probe orders of a join, and what it costs with them, compiled; `solvers.model.probe_order` defines them, plain.

Problem: of every input of a join the order in which it visits the others. Method: what it costs to go on from a set of visited blocks does not
depend on the input that began, up to its 1/T, so one backward pass over the connected unions of blocks orders all inputs at once.
Guarantee: exact, but for `greedy_excess`. Complexity: O(unions · m) for m blocks, greedily O(m³).

The pass stands here twice, because what a union is differs, and with it the time (`tests/bench/bench_orders.py`):

* `mjoin_excess`: up to DENSE_INPUTS blocks of any kind. Unions are numbered by their blocks in a small table, and only those are listed that
  some pipeline can afford. The search for staircases spends most of its time here. In its place `wide_mjoin_excess` takes 4 times as long
  (median of joins of 4 to 8 blocks of 10 to 14 streams; 1.3 times in a chain, 60 times in a star);
* `wide_mjoin_excess`: more blocks than that, whose 2^m unions need too much room: it walks the table of connected sets and passes over
  those that cut a block.

A third is in `unions`, for graphs that have no table of connected sets.

`plain_mjoins` goes forward instead and so prices the plain mjoins of all sets in one pass; one backward pass each would be O(sets²).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import TIED
from solvers.jtree.compiled.compiling import Floats, Ints, making, released
from solvers.jtree.compiled.cost import Prices, binary_excess, keeping_in_mjoin, rounded, scanning, stepping, weights_of
from solvers.jtree.compiled.sets import Sets, find, lowest, place_of, popcount
from solvers.jtree.compiled.tables import connected_sets
from solvers.jtree.table_sizes import HASTY_SETS
from solvers.model.cost import CostModel

__all__ = [
    "DENSE_INPUTS",
    "EXACT_INPUTS",
    "Scratch",
    "best_mjoin_orders",
    "follow",
    "greedy_excess",
    "join_excess",
    "mjoin_excess",
    "plain_mjoins",
    "scratch_for",
    "wide_mjoin_excess",
]

DENSE_INPUTS = 13  # up to here all unions of blocks fit a small table; beyond, the table of connected sets is walked
EXACT_INPUTS = 8  # of a join of a plan to start from: 256 unions, microseconds


class Scratch(NamedTuple):
    """Room for the backward pass over unions of m blocks, made once for many joins."""

    unions: Ints
    """3·2^m, all zeros between calls: per union its place in the table and 1, the unions by number of blocks, per union the blocks next to it."""
    to_go: Floats
    """2^m"""
    unlimited: Floats
    """Infinities, for pipelines that can afford any partial result."""


@making
def scratch_for(m: int) -> Scratch:
    return Scratch(np.zeros(3 << m, np.int64), np.empty(1 << m), np.full(m, np.inf))


@released
def mjoin_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, largest: Floats, scratch: Scratch) -> float:
    """The excess of an mjoin of blocks (places in the table) with the best probe orders, by a backward pass over their connected unions.

    `largest`: for every block the largest partial result that its pipeline can afford. Unions that are too large for all of their blocks are
    not looked at: where a pipeline cannot afford its best order, the answer is above that of the best orders, by how much is not known.
    Afterwards `scratch.to_go` holds for every union of blocks what it costs to go on from it.
    """
    masks, sizes, partial, paces = sets.mask, sets.size, sets.partial, sets.pace
    around, equal_around = sets.around, sets.equal_around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    made, scan = prices.made, prices.weights.scan
    unions, to_go = scratch.unions, scratch.to_go
    full = (1 << m) - 1
    listed, beside = full + 1, 2 * (full + 1)
    cost = stepping(prices.weights, m)
    scans = False  # whether some probe may have to scan, at a cost; where equalities join all blocks, none does
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
        to_go[1 << k] = largest[k]  # on the way up, what a union may hold; on the way down, what it costs to go on from it
        unions[1 << k] = blocks[k] + 1
        unions[listed + k] = 1 << k
        near = 0
        for j in range(m):
            if around[blocks[k]] & masks[blocks[j]]:
                near |= 1 << j
                scans |= (scan != 0.0) & (equal_around[blocks[k]] & masks[blocks[j]] == 0)
        unions[beside + (1 << k)] = near
    count, taken = m, 0
    while taken < count:
        u = unions[listed + taken]
        taken += 1
        mask = masks[unions[u] - 1]
        left = unions[beside + u] & ~u
        while left:
            k = lowest(left)
            left &= left - 1
            grown = u | (1 << k)
            if unions[grown] == 0:
                union = find(keys, places, multiplier, shift, mask | masks[blocks[k]])
                # As much as the richest of its blocks can afford, whichever way leads to this union.
                most = max(to_go[u], largest[k])
                if partial[union] > most and grown != full:
                    continue
                to_go[grown] = most
                unions[grown] = union + 1
                unions[beside + grown] = unions[beside + u] | unions[beside + (1 << k)]
                unions[listed + count] = grown
                count += 1
    to_go[full] = 0.0
    for place in range(count - 1, -1, -1):
        u = unions[listed + place]
        if u == full:
            continue
        here = unions[u] - 1
        best = np.inf
        left = unions[beside + u] & ~u
        while left:
            k = lowest(left)
            left &= left - 1
            if unions[u | (1 << k)] == 0:
                continue
            step = to_go[u | (1 << k)]
            if scans and equal_around[here] & masks[blocks[k]] == 0:
                step += scan * (partial[here] * sizes[blocks[k]])
            best = min(best, step)
        to_go[u] = best + made * partial[here] if u & (u - 1) else best
    for place in range(count):
        u = unions[listed + place]
        unions[u], unions[beside + u], unions[listed + place] = 0, 0, 0
    for k in range(m):
        cost += paces[blocks[k]] * to_go[1 << k]
    return cost


@released
def wide_mjoin_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, to_go: Floats) -> float:
    """As `mjoin_excess`, for many blocks: a backward pass over the connected sets that are unions of them. `to_go` is scratch per set."""
    cost = stepping(prices.weights, m)
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
    last = place_of(sets, whole)
    to_go[last] = 0.0
    for s in range(last - 1, -1, -1):
        mask = sets.mask[s]
        if mask & ~whole:
            continue
        width = 0
        cut = False
        for k in range(m):
            part = mask & sets.mask[blocks[k]]
            if part:
                width += 1
                cut |= part != sets.mask[blocks[k]]
        if cut:
            continue
        best = np.inf
        for k in range(m):
            if sets.mask[blocks[k]] & sets.around[s]:
                above = place_of(sets, mask | sets.mask[blocks[k]])
                best = min(best, to_go[above] + scanning(sets, prices, s, blocks[k]))
        to_go[s] = best + prices.made * sets.partial[s] if width > 1 else best
    for k in range(m):
        cost += sets.pace[blocks[k]] * to_go[blocks[k]]
    return cost


@making
def follow(sets: Sets, prices: Prices, blocks: Ints, m: int, to_go: Floats, dense: bool) -> Ints:
    """The best probe orders, a row per input, from a backward pass's costs to go (by union, or by set); of equals lower inputs first."""
    orders = np.zeros((m, m - 1), np.int64)
    for start in range(m):
        u = 1 << start
        here = blocks[start]
        step = 0
        while step < m - 1:
            best, chosen, reached = np.inf, -1, -1
            for k in range(m):
                if u >> k & 1 or sets.mask[blocks[k]] & sets.around[here] == 0:
                    continue
                made = place_of(sets, sets.mask[here] | sets.mask[blocks[k]])
                cost = scanning(sets, prices, here, blocks[k]) + (to_go[u | (1 << k)] if dense else to_go[made])
                if cost < best * TIED or chosen < 0:
                    best, chosen, reached = cost, k, made
            orders[start, step] = chosen
            u |= 1 << chosen
            here = reached
            step += 1
    return orders


@released
def greedy_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int) -> float:
    """The same with greedy probe orders: next is the block whose step costs least."""
    cost = stepping(prices.weights, m)
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
        here = blocks[k]
        total = 0.0
        while sets.mask[here] != whole:
            best, following = np.inf, -1
            for j in range(m):
                target = blocks[j]
                if sets.mask[target] & sets.mask[here] == 0 and sets.mask[target] & sets.around[here]:
                    made = place_of(sets, sets.mask[here] | sets.mask[target])
                    step = scanning(sets, prices, here, target)
                    if sets.mask[made] != whole:
                        step += prices.made * sets.partial[made]
                    if step < best or following < 0:
                        best, following = step, made
            total += best
            here = following
        cost += sets.pace[blocks[k]] * total
    return cost


@released
def join_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, scratch: Scratch) -> float:
    """The excess of one join: exact up to EXACT_INPUTS inputs, beyond with greedy orders."""
    if m == 2:
        return binary_excess(sets, prices, blocks[0], blocks[1])
    if m <= EXACT_INPUTS:
        return rounded(mjoin_excess(sets, prices, blocks, m, whole, scratch.unlimited, scratch), prices.grain)
    return rounded(greedy_excess(sets, prices, blocks, m, whole), prices.grain)


@making
def plain_mjoins(sets: Sets, prices: Prices, stop: Ints) -> Floats:
    """For every set the excess of its plain mjoin, from one forward pass over ways[set, first stream]."""
    total, n = sets.mask.size, sets.n
    masks, partial, paces = sets.mask, sets.partial, sets.pace
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    ways = np.full((total, n), np.inf)
    excess = np.zeros(total)
    scans = prices.weights.scan != 0.0
    equal, indexed, plain = np.empty(n, np.int64), np.empty(n), np.empty(n)
    for i in range(n):
        ways[i, i] = 0.0
        equal[i] = sets.equal_around[i] & ~(1 << i)
        indexed[i], plain[i] = keeping_in_mjoin(sets, prices, i, equal[i]), keeping_in_mjoin(sets, prices, i, 0)
    for s in range(n, total):
        if s & 1023 == 0 and stop[0]:
            break
        mask = masks[s]
        inside = mask
        made = prices.made * partial[s]
        while inside:
            x = lowest(inside)
            inside &= inside - 1
            rest = find(keys, places, multiplier, shift, mask & ~(1 << x))
            if rest < 0:
                continue
            step = scanning(sets, prices, rest, x) if scans else 0.0
            for i in range(n):
                ways[s, i] = min(ways[s, i], ways[rest, i] + step)
        inside = mask
        excess[s] = stepping(prices.weights, popcount(mask))
        while inside:
            i = lowest(inside)
            inside &= inside - 1
            excess[s] += paces[i] * ways[s, i] + (indexed[i] if equal[i] & mask else plain[i])
        excess[s] = rounded(excess[s], prices.grain)
        for i in range(n):
            ways[s, i] += made
    return excess


def best_mjoin_orders(model: CostModel, component: int) -> tuple[tuple[int, ...], ...] | None:
    """The best probe order of every stream of a connected component in its plain mjoin, as positions among its streams.

    Exact; of equal orders the one that visits lower positions first. None where the component is too large for a table.
    """
    sets = connected_sets(model, component, HASTY_SETS)
    if sets is None:
        return None
    weights = weights_of(model.costs)
    prices = Prices(weights, weights.join + weights.probe, 0.0, np.zeros(sets.n), 0.0, 0.0)  # what keeping costs does not change the orders
    streams, to_go = np.arange(sets.n), np.empty(sets.mask.size)
    wide_mjoin_excess(sets, prices, streams, sets.n, (1 << sets.n) - 1, to_go)
    return tuple(tuple(order) for order in follow(sets, prices, streams, sets.n, to_go, False).tolist())

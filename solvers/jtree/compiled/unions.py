"""Joins of a handful of blocks, compiled: figures of every union of them, what one join costs, and its probe orders.

Problem: what a join of blocks B_1..B_m (disjoint sets of streams, each joined below already) costs. Method: sizes of unions are products of the
blocks' own; probe orders by one backward pass over all unions, or greedily where those are too many. The search by rising cost prices its joins
here too (`families.price`). Guarantee: exact up to 2^m unions, `greedy`
none. Complexity: O(2^m · m) and O(m³).

`orders.mjoin_excess` does the same over a table of connected sets. It is not called here because a graph that needs regions has no such table: too
many connected sets, or more streams than a mask has bits. Nor does it call this: making the unions takes 80 times as long as its own pass (median;
`tests/bench/bench_orders.py`), and of a region they are made once for all joins.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Flags, Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, pair_excess, stepping, weighted
from solvers.jtree.compiled.sets import lowest

__all__ = [
    "Between",
    "OrderScratch",
    "Unions",
    "backwards",
    "between",
    "greedy",
    "join_of_unions",
    "order_scratch",
    "size_of",
    "union_figures",
    "unions_of",
]


class Between(NamedTuple):
    """Between every two blocks: the product of the selectivities, whether there is a predicate, and an equality."""

    product: Floats
    joined: Ints
    equal: Ints


class Unions(NamedTuple):
    """For every union of blocks: size, Σ 1/T, the blocks it reaches by a predicate, by an equality, and whether it is connected."""

    sizes: Floats
    seconds: Floats
    reach: Ints
    hashes: Ints
    connected: Flags


class OrderScratch(NamedTuple):
    """Room for the backward pass of a join, by set of visited inputs."""

    union: Ints
    """Of blocks; then its size, the inputs it leads to, and those by an equality."""
    sizes: Floats
    reach: Ints
    hashes: Ints
    to_go: Floats
    following: Ints
    """The input to visit next."""


@making
def order_scratch(m: int) -> OrderScratch:
    count = 1 << m
    ints, floats = np.zeros((4, count), np.int64), np.zeros((2, count))
    return OrderScratch(ints[0], floats[0], ints[1], ints[2], floats[1], ints[3])


@making
def between(owner: Ints, left: Ints, right: Ints, selectivity: Floats, equality: Ints, m: int) -> Between:
    """Between every two blocks: the product of the selectivities, whether there is a predicate, and an equality."""
    product = np.ones((m, m))
    joined = np.zeros((m, m), np.int64)
    equal = np.zeros((m, m), np.int64)
    for e in range(left.shape[0]):
        a, b = owner[left[e]], owner[right[e]]
        if a >= 0 and b >= 0 and a != b:
            product[a, b] *= selectivity[e]
            product[b, a] = product[a, b]
            joined[a, b] = joined[b, a] = 1
            equal[a, b] |= equality[e]
            equal[b, a] = equal[a, b]
    return Between(product, joined, equal)


@compiled
def size_of(streams: Ints, inside: Flags, windows: Floats, left: Ints, right: Ints, selectivity: Floats) -> float:
    """Π w · Π σ over the streams marked inside, on mantissas and exponents apart."""
    mantissa, exponent = 1.0, 0
    for i in streams:
        mantissa, e = math.frexp(mantissa * windows[i])
        exponent += e
    for p in range(left.shape[0]):
        if inside[left[p]] and inside[right[p]]:
            mantissa, e = math.frexp(mantissa * selectivity[p])
            exponent += e
    if exponent > 1023:
        return np.inf
    return math.ldexp(mantissa, exponent) if exponent > -1100 else 0.0


@compiled
def union_figures(m: int, product: Floats, near: Ints, near_equal: Ints, sizes: Floats, reach: Ints, hashes: Ints) -> None:
    """Size, reach and hashes of every union of m blocks. Given are the sizes of the blocks alone, as unions, the selectivity between every two, and
    for each the blocks that a predicate leads to, or an equality."""
    reach[0] = hashes[0] = 0
    for union in range(1, 1 << m):
        low = lowest(union)
        rest = union & (union - 1)
        reach[union], hashes[union] = reach[rest] | near[low], hashes[rest] | near_equal[low]
        if rest:
            factor = sizes[1 << low]
            left = near[low] & rest
            while left:
                factor *= product[low, lowest(left)]
                left &= left - 1
            made = sizes[rest] * factor
            sizes[union] = made if made == made else np.inf


@making
def unions_of(size: Floats, per_second: Floats, between: Between) -> Unions:
    """The figures of every union, from those of the blocks."""
    product, joined, equal = between
    m = size.shape[0]
    near, near_equal = np.zeros(m, np.int64), np.zeros(m, np.int64)
    for k in range(m):
        for other in range(m):
            near[k] |= (joined[k, other] != 0) << other
            near_equal[k] |= (equal[k, other] != 0) << other
    count = 1 << m
    sizes, seconds, reach, hashes = np.ones(count), np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
    for k in range(m):
        sizes[1 << k] = size[k]
    union_figures(m, product, near, near_equal, sizes, reach, hashes)
    connected = np.zeros(count, np.bool_)
    for union in range(1, count):
        seconds[union] = seconds[union & (union - 1)] + per_second[lowest(union)]
        # A connected set of two blocks or more has one without which it is still connected.
        connected[union] = union & (union - 1) == 0
        left = 0 if connected[union] else union
        while left and not connected[union]:
            other = union & ~(left & -left)
            connected[union] = connected[other] and reach[other] & left & -left != 0
            left &= left - 1
    return Unions(sizes, seconds, reach, hashes, connected)


@compiled
def backwards(count: int, sizes: Floats, reach: Ints, hashes: Ints, weights: Weights, to_go: Floats, following: Ints) -> None:
    """What it costs to go on from every union of inputs, per 1/T of the input that began, and which input is best to visit next.

    Unions are numbered by their inputs; `reach` and `hashes` may have bits of others.
    """
    every = (1 << count) - 1
    probe, scan, made = weights.probe, weights.scan, weights.join + weights.probe
    to_go[every] = 0.0
    for visited in range(every - 1, 0, -1):
        best, choice = np.inf, -1
        left = reach[visited] & every & ~visited
        while left:
            k = lowest(left)
            left &= left - 1
            cost = to_go[visited | 1 << k]
            if scan != 0.0 and not hashes[visited] >> k & 1:
                cost += scan * (sizes[visited] * sizes[1 << k])
            if cost < best:
                best, choice = cost, k
        # What was visited was made, unless it is an input, and goes on to probe.
        to_go[visited] = best + weighted(made if visited & (visited - 1) else probe, sizes[visited])
        following[visited] = choice


@compiled
def join_of_unions(parts: Ints, count: int, unions: Unions, weights: Weights, scratch: OrderScratch) -> float:
    """The excess of one join over these unions of blocks, and its best orders in `scratch.following`."""
    sizes, seconds, reach, hashes = unions.sizes, unions.seconds, unions.reach, unions.hashes
    if count == 2:
        a, b = parts[0], parts[1]
        scratch.following[1], scratch.following[2] = 1, 0
        return pair_excess(sizes[a], seconds[a], sizes[b], seconds[b], hashes[a] & b != 0, weights)
    union, made, near, near_equal, to_go, following = scratch
    union[0] = near[0] = near_equal[0] = 0
    for visited in range(1, 1 << count):
        low, rest = lowest(visited), visited & (visited - 1)
        here = union[visited] = union[rest] | parts[low]
        made[visited] = sizes[here]
        if rest:
            near[visited], near_equal[visited] = near[rest] | near[visited ^ rest], near_equal[rest] | near_equal[visited ^ rest]
            continue
        near[visited] = near_equal[visited] = 0
        for k in range(count):
            near[visited] |= (reach[here] & parts[k] != 0) << k
            near_equal[visited] |= (hashes[here] & parts[k] != 0) << k
    backwards(count, made, near, near_equal, weights, to_go, following)
    total = stepping(weights, count)
    for k in range(count):
        total += seconds[parts[k]] * to_go[1 << k]
        # Whoever shares an equality with this input probes it by hash when its own turn comes.
        indexed = near_equal[1 << k] & ~(1 << k) != 0
        total += weighted(weights.indexed if indexed else weights.append, sizes[parts[k]] * seconds[parts[k]])
    return total if total == total else np.inf


@making
def greedy(size: Floats, seconds: Floats, between: Between, weights: Weights) -> tuple[float, Ints]:
    """A wide join's excess and orders: next is always the input whose step is cheapest, its results included."""
    m = size.shape[0]
    product, joined, equal = between
    join, keep, append, probe, scan, _ = weights
    orders = np.zeros((m, m - 1), np.int64)
    total = stepping(weights, m)
    growth = np.empty(m)
    near, near_equal, left = np.empty(m, np.bool_), np.empty(m, np.bool_), np.empty(m, np.int64)
    for start in range(m):
        growth[:] = size
        near[:] = False
        near_equal[:] = False
        left[:] = np.arange(m)
        here, now, cost = start, size[start], 0.0
        for step in range(m - 1):
            count, anything = 0, False
            for place in range(m - step):  # what is left but for `here`, lowest first
                k = left[place]
                if k == here:
                    continue
                left[count] = k
                count += 1
                if joined[here, k]:
                    near[k] = True
                    growth[k] *= product[here, k]
                    if equal[here, k]:
                        near_equal[k] = True
                anything = anything or near[k]
            best, best_made, choice = np.inf, np.inf, -1
            for place in range(count):
                k = left[place]
                if anything and not near[k]:
                    continue
                made = now * growth[k]
                if made != made:
                    made = np.inf
                price = weighted(join, made) + (0.0 if near_equal[k] else weighted(scan, now * size[k]))
                if choice < 0 or price < best or (price == best and made < best_made):
                    best, best_made, choice = price, made, k
            cost += weighted(probe, now) + (best if step < m - 2 else best - weighted(join, best_made))
            orders[start, step] = choice
            here, now = choice, best_made
        total += seconds[start] * cost
    for k in range(m):
        total += weighted(keep if equal[k].any() else append, size[k] * seconds[k])
    return (total if total == total else np.inf), orders

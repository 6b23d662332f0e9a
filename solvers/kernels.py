"""Compiled tables over the connected sets of a join graph, and what follows from one pass over them.

Problem: every exact search asks for size(S) of thousands of connected sets S. Method: list the connected sets of one
component once, each exactly once, find them by hash, and compute their figures incrementally (S from S without one
stream), on mantissas and exponents apart as `solvers.graph` does. Observed sub-joins stand in as the contract says.

* `best_mjoin_orders`: one backward pass gives the best probe orders of all inputs of the plain mjoin. Exact, O(sets·n).
* `best_binary_tree`: the binary tree of least CPU, each state indexed or plain as is cheaper. Exact, O(pairs of sets).

The passes compare in doubles; figures of a plan come from `CostModel.price`. Compiled with numba, cached on disk,
no fast-math: the same comparisons on every machine. Every compiled function has its plain Python under `py_func`.
Streams are numbered inside their component: bit k is the component's k-th lowest stream.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from solvers.cost import CostModel
from solvers.graph import bits
from solvers.probe_order import TIED
from solvers.search import make_join
from solvers.tree import Tree

__all__ = ["MAX_BITS", "MAX_SETS", "Sets", "best_binary_tree", "best_mjoin_orders", "compiled", "connected_sets", "find", "released"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., object])

MAX_BITS = 62  # a set is one signed machine word
MAX_SETS = 1 << 20  # all subsets of 20 streams: 100 MB of tables, a third of a second
MAX_PAIRS = 50_000_000  # of halves of binary trees: about a second
_GOLDEN = 0x1E3779B97F4A7C15  # odd, spreads neighbouring masks over the table; below 2^61, so no sign to think of


def compiled(function: F) -> F:
    """numba's njit with its cache, typed."""
    return cast(F, numba.njit(cache=True, error_model="numpy")(function))


def released(function: F) -> F:
    """The same for long loops: other threads run meanwhile, so that one of them can say stop."""
    return cast(F, numba.njit(cache=True, nogil=True, error_model="numpy")(function))


class Sets(NamedTuple):
    """The connected sets of a component with their figures, by rising number of streams; sets[0..n) are the streams."""

    n: int
    mask: Ints
    size: Floats
    """size(S)"""
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
    """size(S) and Σ 1/T_i by which a binary join's states are indexed or plain: of other rates where those are what is asked about."""
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
def list_connected(neighbours: Ints, limit: int) -> tuple[Ints, NDArray[np.int8]]:
    """Every connected set once, by rising number of streams, with the stream that was added last; empty above the limit.

    Each set grows from its lowest stream: the lowest stream next to it is taken or is ruled out for good.
    """
    n = neighbours.size
    found = np.empty(1024, np.int64)
    added = np.empty(1024, np.int8)
    counts = np.zeros(n + 2, np.int64)
    total = 0
    stack = np.empty((2 * n + 2, 3), np.int64)
    for start in range(n):
        stack[0, 0] = 1 << start
        stack[0, 1] = neighbours[start]
        stack[0, 2] = (1 << (start + 1)) - 1
        top = 1
        if total == found.size:
            found = np.concatenate((found, np.empty_like(found)))
            added = np.concatenate((added, np.empty_like(added)))
        found[total] = 1 << start
        added[total] = start
        total += 1
        counts[1] += 1
        while top:
            top -= 1
            inside, reached, ruled_out = stack[top, 0], stack[top, 1], stack[top, 2]
            open_ = reached & ~ruled_out & ~inside
            if open_ == 0:
                continue
            x = lowest(open_)
            stack[top, 2] = ruled_out | (1 << x)
            top += 1
            if total == limit:
                return np.empty(0, np.int64), np.empty(0, np.int8)
            if total == found.size:
                found = np.concatenate((found, np.empty_like(found)))
                added = np.concatenate((added, np.empty_like(added)))
            grown = inside | (1 << x)
            found[total] = grown
            added[total] = x
            total += 1
            counts[popcount(grown)] += 1
            stack[top, 0] = grown
            stack[top, 1] = reached | neighbours[x]
            stack[top, 2] = ruled_out
            top += 1
    places = np.zeros(n + 2, np.int64)
    for k in range(1, n + 1):
        places[k + 1] = places[k] + counts[k]
    masks = np.empty(total, np.int64)
    last = np.empty(total, np.int8)
    for s in range(total):
        k = popcount(found[s])
        masks[places[k]] = found[s]
        last[places[k]] = added[s]
        places[k] += 1
    return masks, last


@compiled
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
        multiplier = _GOLDEN
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


@compiled
def times(mantissa: float, exponent: int, factor: float) -> tuple[float, int]:
    """mantissa · 2^exponent · factor, normalised."""
    m, e = math.frexp(factor)
    m, carried = math.frexp(mantissa * m)
    return m, exponent + e + carried


@compiled
def figures(
    masks: Ints,
    last: NDArray[np.int8],
    keys: Ints,
    places: NDArray[np.int32],
    multiplier: int,
    shift: int,
    window_tuples: Floats,
    pace_of: Floats,
    bytes_of: Floats,
    neighbours: Ints,
    equal_neighbours: Ints,
    edge_masks: Ints,
    edge_selectivity: Floats,
    edges_of: Ints,
    first_edge: Ints,
    observed_masks: Ints,
    observed_selectivity: Floats,
) -> tuple[Floats, Floats, Floats, Ints, Ints]:
    """size, pace, bytes, around, equal_around of every set."""
    total = masks.size
    size, pace, bytes_, around = np.empty(total), np.empty(total), np.empty(total), np.empty(total, np.int64)
    equal_around = np.empty(total, np.int64)
    mantissas = np.empty(total)
    exponents = np.empty(total, np.int64)
    standing_in = np.empty(observed_masks.size, np.int64)
    for s in range(total):
        mask, x = masks[s], int(last[s])
        rest = mask & ~(1 << x)
        if rest:
            r = find(keys, places, multiplier, shift, rest)
            m, e = times(mantissas[r], exponents[r], window_tuples[x])
            for place in range(first_edge[x], first_edge[x + 1]):
                edge = edges_of[place]
                if edge_masks[edge] & ~mask == 0:
                    m, e = times(m, e, edge_selectivity[edge])
            pace[s] = pace[r] + pace_of[x]
            bytes_[s] = bytes_[r] + bytes_of[x]
            around[s] = (around[r] | neighbours[x]) & ~mask
            equal_around[s] = equal_around[r] | equal_neighbours[x]
        else:
            m, e = times(1.0, 0, window_tuples[x])
            pace[s], bytes_[s], around[s] = pace_of[x], bytes_of[x], neighbours[x]
            equal_around[s] = equal_neighbours[x]
        mantissas[s], exponents[s] = m, e
        count = 0
        for o in range(observed_masks.size):
            if observed_masks[o] == mask:
                standing_in[0] = o
                count = 1
                break
        if count == 0:
            free = mask
            for o in range(observed_masks.size):
                if observed_masks[o] & ~free == 0:
                    standing_in[count] = o
                    count += 1
                    free &= ~observed_masks[o]
        if count:
            m, e = 1.0, 0
            for i in range(neighbours.size):
                if mask >> i & 1:
                    m, e = times(m, e, window_tuples[i])
            for c in range(count):
                m, e = times(m, e, observed_selectivity[standing_in[c]])
            for edge in range(edge_masks.size):
                if edge_masks[edge] & ~mask == 0:
                    covered = False
                    for c in range(count):
                        covered |= edge_masks[edge] & ~observed_masks[standing_in[c]] == 0
                    if not covered:
                        m, e = times(m, e, edge_selectivity[edge])
        size[s] = np.inf if m and e > 1024 else math.ldexp(m, int(e))
    return size, pace, bytes_, around, equal_around


def connected_sets(model: CostModel, component: int, limit: int = MAX_SETS, order: Sequence[int] = ()) -> Sets | None:
    """The table of one component; None where it has more than `limit` connected sets or MAX_BITS streams.

    Streams are numbered as in `order`, which lists the component's, or by rising position.
    """
    graph = model.graph
    streams = list(order) or list(bits(component))
    n = len(streams)
    if n > MAX_BITS:
        return None
    place = {stream: k for k, stream in enumerate(streams)}

    def local(mask: int) -> int:
        return sum(1 << place[i] for i in bits(mask & component))

    edges = [edge for edge in graph.edges if edge.mask & ~component == 0]
    ends = [(place[edge.left], place[edge.right]) for edge in edges]
    next_to, equal_to = [0] * n, [0] * n
    edges_of: list[list[int]] = [[] for _ in streams]
    for e, (left, right) in enumerate(ends):
        next_to[left] |= 1 << right
        next_to[right] |= 1 << left
        if edges[e].equality:
            equal_to[left] |= 1 << right
            equal_to[right] |= 1 << left
        edges_of[left].append(e)
        edges_of[right].append(e)
    neighbours, equal_neighbours = np.array(next_to, np.int64), np.array(equal_to, np.int64)
    masks, last = list_connected(neighbours, limit)
    if masks.size == 0:
        return None
    observed = [(local(mask), selectivity) for mask, selectivity in graph.observed if mask & ~component == 0]
    keys, places, multiplier, shift = hash_table(masks, n)
    size, pace, bytes_, around, equal_around = figures(
        masks,
        last,
        keys,
        places,
        multiplier,
        shift,
        np.array([graph.window_tuples[i] for i in streams]),
        np.array([1.0 / graph.window_seconds[i] for i in streams]),
        np.array([graph.tuple_bytes[i] for i in streams]),
        neighbours,
        equal_neighbours,
        np.array([1 << left | 1 << right for left, right in ends], np.int64),
        np.array([edge.selectivity for edge in edges], np.float64),
        np.array([e for listed in edges_of for e in listed], np.int64),
        np.array([0, *accumulate(map(len, edges_of))], np.int64),
        np.array([mask for mask, _ in observed], np.int64),
        np.array([selectivity for _, selectivity in observed], np.float64),
    )
    rates = np.array([graph.rates[i] for i in streams])
    choosing_size, choosing_pace = size, pace
    if model.choices is not None:
        others = connected_sets(model.choices, component, limit, streams)
        assert others is not None
        choosing_size, choosing_pace = others.size, others.pace
    return Sets(
        n,
        masks,
        size,
        pace,
        bytes_,
        around,
        equal_around,
        keys,
        places,
        multiplier,
        shift,
        neighbours,
        equal_neighbours,
        rates,
        choosing_size,
        choosing_pace,
    )


@compiled
def backward_pass(sets: Sets, join: float, probe: float, scan: float) -> NDArray[np.int8]:
    """For every connected set the stream to visit next on the cheapest way to all streams; of equals the lowest."""
    total = sets.mask.size
    to_go = np.zeros(total)
    following = np.full(total, -1, np.int8)
    for s in range(total - 2, -1, -1):
        mask, best = sets.mask[s], np.inf
        open_ = sets.around[s]
        while open_:
            x = lowest(open_)
            open_ &= open_ - 1
            weight = probe if sets.equal_around[s] >> x & 1 else probe + scan * sets.size[x]
            made = find(sets.keys, sets.places, sets.multiplier, sets.shift, mask | (1 << x))
            cost = to_go[made]
            if join:
                cost += join * sets.size[made]
            if weight:
                cost += weight * sets.size[s]
            if cost < best * TIED or following[s] < 0:
                following[s] = x
            best = min(best, cost)
        to_go[s] = best
    return following


def best_mjoin_orders(model: CostModel, component: int) -> tuple[tuple[int, ...], ...] | None:
    """The best probe order of every stream of a connected component in its plain mjoin, as positions among its streams.

    Exact; of equal orders the one that visits lower positions first. None where the component is too large for a table.
    """
    sets = connected_sets(model, component)
    if sets is None:
        return None
    costs = model.costs
    following = backward_pass(sets, costs.join, costs.probe, costs.scan)
    orders = []
    for start in range(sets.n):
        visited = 1 << start
        order: list[int] = []
        while len(order) < sets.n - 1:
            target = int(following[find(sets.keys, sets.places, sets.multiplier, sets.shift, visited)])
            order.append(target)
            visited |= 1 << target
        orders.append(tuple(order))
    return tuple(orders)


@compiled
def access_cost(hashable: bool, kept: float, arriving: float, size: float, index: float, append: float, scan: float) -> float:
    """Keeping one state of a binary join and scanning it where it has no index: whichever of the two is cheaper."""
    plain = append * kept if append else 0.0
    if scan:
        plain += scan * (arriving * size)
    if not hashable:
        return plain
    return min(plain, index * kept if index else 0.0)


@compiled
def binary_splits(sets: Sets, join: float, index: float, append: float, probe: float, scan: float, max_pairs: int) -> Ints:
    """For every connected set the half with its lowest stream of its cheapest binary tree, −1 for a stream; empty if too long.

    Pairs of connected sets that a predicate joins, each once (Moerkotte and Neumann 2006): the left half has the lowest
    stream of both and runs through its list by rising size, from the highest lowest stream down, so that both halves
    are final when they meet.
    """
    # As locals: a field of a tuple that is read in a loop is counted as a reference each time.
    total, n = sets.mask.size, sets.n
    masks, sizes, paces, around, equal_around = sets.mask, sets.size, sets.pace, sets.around, sets.equal_around
    keys, places, multiplier, shift, neighbours = sets.keys, sets.places, sets.multiplier, sets.shift, sets.neighbours
    least = np.full(total, np.inf)
    least[:n] = 0.0
    split = np.full(total, -1, np.int64)
    starting = np.zeros(n + 1, np.int64)
    for s in range(total):
        starting[lowest(masks[s]) + 1] += 1
    for k in range(n):
        starting[k + 1] += starting[k]
    listed = np.empty(total, np.int64)
    filled = starting.copy()
    for s in range(total):
        low = lowest(masks[s])
        listed[filled[low]] = s
        filled[low] += 1
    every = (1 << n) - 1
    stack = np.empty((2 * n + 2, 3), np.int64)
    pairs = 0
    for low in range(n - 1, -1, -1):
        for place in range(starting[low], starting[low + 1]):
            left = listed[place]
            mask = masks[left]
            a = sizes[left] * paces[left]
            if join and mask & (mask - 1):
                least[left] += join * a
            within = every & ~((1 << (low + 1)) - 1) & ~mask
            touching = around[left] & within
            while touching:
                first = lowest(touching)
                ruled_out = ~within | (around[left] & ((1 << first) - 1))
                touching &= touching - 1
                stack[0, 0] = 1 << first
                stack[0, 1] = neighbours[first]
                stack[0, 2] = ruled_out
                top = 1
                half = 1 << first
                while True:
                    if half:
                        pairs += 1
                        if pairs > max_pairs:
                            return np.empty(0, np.int64)
                        right = find(keys, places, multiplier, shift, half)
                        both = find(keys, places, multiplier, shift, mask | half)
                        cost = least[left] + least[right]
                        if cost < least[both] or split[both] < 0:
                            b = sizes[right] * paces[right]
                            hashable = equal_around[left] & half != 0
                            cost += access_cost(hashable, a, b, sizes[left], index, append, scan)
                            cost += access_cost(hashable, b, a, sizes[right], index, append, scan)
                            if probe:
                                cost += probe * (a + b)
                            if cost < least[both] or split[both] < 0:
                                least[both] = cost
                                split[both] = mask
                    if top == 0:
                        break
                    top -= 1
                    half = 0
                    inside, reached, closed = stack[top, 0], stack[top, 1], stack[top, 2]
                    open_ = reached & ~closed & ~inside
                    if open_:
                        x = lowest(open_)
                        half = inside | (1 << x)
                        stack[top, 2] = closed | (1 << x)
                        stack[top + 1, 0] = half
                        stack[top + 1, 1] = reached | neighbours[x]
                        stack[top + 1, 2] = closed
                        top += 2
    return split


def best_binary_tree(model: CostModel, component: int, max_pairs: int = MAX_PAIRS, by_memory: bool = False) -> Tree | None:
    """The binary join tree of a connected component with the least CPU, or memory. Exact; None where it takes more than `max_pairs` pairs."""
    sets = connected_sets(model, component)
    if sets is None:
        return None
    costs = model.costs
    if by_memory:
        # With bytes for pace, "making the results" of a set costs what keeping them takes, and nothing else costs anything.
        split = binary_splits(sets._replace(pace=sets.bytes), 1.0, 0.0, 0.0, 0.0, 0.0, max_pairs)
    else:
        split = binary_splits(sets, costs.join, costs.insert + costs.delete, costs.append, costs.probe, costs.scan, max_pairs)
    if split.size == 0:
        return None
    return _tree_of(split, sets, list(bits(component)))


def _tree_of(split: Ints, sets: Sets, streams: Sequence[int]) -> Tree:
    """The tree that the splits describe, built inputs first."""
    waiting, visited = [(1 << sets.n) - 1], []
    while waiting:
        mask = waiting.pop()
        half = int(split[find(sets.keys, sets.places, sets.multiplier, sets.shift, mask)])
        visited.append((mask, half))
        if half >= 0:
            waiting += [half, mask & ~half]
    built: dict[int, Tree] = {}
    for mask, half in reversed(visited):
        if half < 0:
            built[mask] = streams[mask.bit_length() - 1]
        else:
            built[mask] = make_join((built[half], built[mask & ~half]), ((1,), (0,)))
    return built[(1 << sets.n) - 1]

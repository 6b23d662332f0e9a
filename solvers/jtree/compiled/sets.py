"""Compiled tables over the connected sets of a join graph, and what follows from one pass over them.

Problem: every exact search asks for size(S) of thousands of connected sets S. Method: list the connected sets of one
component once, each exactly once, find them by hash, and compute their figures incrementally (S from S without one
stream), on mantissas and exponents apart as `solvers.model.graph` does. Observed sub-joins stand in as the contract says.

* `best_mjoin_orders`: one backward pass gives the best probe orders of all inputs of the plain mjoin. Exact, O(sets·n).
* `best_binary_tree`: the binary tree of least CPU, each state indexed or plain as is cheaper. Exact, O(pairs of sets).

The passes compare in doubles; figures of a plan come from `CostModel.price`. Compiled with numba, cached on disk,
no fast-math: the same comparisons on every machine. Every compiled function has its plain Python under `py_func`.
Streams are numbered inside their component (`Sets.order`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.compiling import njit
from solvers.jtree.search import make_join
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.probe_order import TIED
from solvers.model.tree import Tree

__all__ = ["MAX_BITS", "SPARED", "Sets", "best_binary_tree", "best_mjoin_orders", "compiled", "connected_sets", "find", "released"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
F = TypeVar("F", bound=Callable[..., object])

MAX_BITS = 62  # a set is one signed machine word
MOST_TABLED = 22  # streams of which every set, connected or not, has an entry: 16 MB, a tenth of a second
MAX_PAIRS = 50_000_000  # of halves of binary trees: about a second
LARGEST = 1e290  # sizes above this count as this: no plan that makes them can be priced, and no infinity is subtracted
SPARED = 1e-9  # of a bound or a limit: sums round
_GOLDEN = 0x1E3779B97F4A7C15  # odd, spreads neighbouring masks over the table; below 2^61, so no sign to think of


def compiled(function: F) -> F:
    """Compiled, and cached on disk."""
    return njit(function, error_model="numpy")


def released(function: F) -> F:
    """The same for long loops: other threads run meanwhile, so that one of them can say stop."""
    return njit(function, nogil=True, error_model="numpy")


class Sets(NamedTuple):
    """The connected sets of a component with their figures, by rising number of streams; sets[0..n) are the streams."""

    n: int
    order: Ints
    """For each bit the place of its stream among the component's by rising position."""
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
        if total == limit:
            return np.empty(0, np.int64), np.empty(0, np.int8)
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
def first_observed(observed_masks: Ints, n: int, sets: int) -> NDArray[np.int32]:
    """For every set of the n streams the first observed set inside it, or their number where there is none.

    Empty where looking through all observed sets for each of the connected ones takes less.
    """
    if n > MOST_TABLED or sets * observed_masks.size <= n << n:
        return np.empty(0, np.int32)
    first = np.full(1 << n, observed_masks.size, np.int32)
    for o in range(observed_masks.size):
        first[observed_masks[o]] = o
    for mask in range(1 << n):
        for i in range(n):
            if mask >> i & 1:
                first[mask] = min(first[mask], first[mask & ~(1 << i)])
    return first


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
    standing_in = np.empty(neighbours.size, np.int64)
    first = first_observed(observed_masks, neighbours.size, total)
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
        # Largest first, so that a set which is observed itself is the first of its subsets.
        count, free, o = 0, mask, 0
        while free:
            if first.size:
                o = first[free]
            else:
                while o < observed_masks.size and observed_masks[o] & ~free:
                    o += 1
            if o == observed_masks.size:
                break
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
        size[s] = LARGEST if m and e > 1024 else min(math.ldexp(m, int(e)), LARGEST)
    return size, pace, bytes_, around, equal_around


@compiled
def dear_first(window_tuples: Floats, pace_of: Floats, ends: Ints, selectivities: Floats, observed: Ints, observed_selectivity: Floats) -> Ints:
    """The streams, those first whose cheapest pair costs most: partitions place the lowest stream first, and dear ones fail early."""
    n = window_tuples.size
    pair = np.zeros((n, n))
    for e in range(selectivities.size):
        i, j = min(ends[3 * e], ends[3 * e + 1]), max(ends[3 * e], ends[3 * e + 1])
        pair[i, j] = (pair[i, j] if pair[i, j] else window_tuples[i] * window_tuples[j]) * selectivities[e]
    joined = pair > 0.0
    for o in range(observed.size):
        i = lowest(observed[o])
        rest = observed[o] & ~(1 << i)
        if rest and rest & (rest - 1) == 0:
            j = lowest(rest)
            pair[i, j] = window_tuples[i] * window_tuples[j] * observed_selectivity[o]
    cheapest = np.full(n, np.inf)
    for i in range(n):
        for j in range(i + 1, n):
            size = pair[i, j]
            if joined[i, j]:
                cheapest[i], cheapest[j] = min(cheapest[i], size * pace_of[i]), min(cheapest[j], size * pace_of[j])
    order = np.arange(n)
    for k in range(1, n):
        stream = order[k]
        place = k
        while place and cheapest[order[place - 1]] < cheapest[stream]:
            order[place] = order[place - 1]
            place -= 1
        order[place] = stream
    return order


@compiled
def tables(order: Ints, of_streams: Floats, ends: Ints, selectivities: Floats, observed: Ints, observed_selectivity: Floats, limit: int) -> Sets:
    """All of `Sets` from figures of the streams (all tuples, all 1/T, all bytes, all rates), predicates (each two ends and whether an equality)
    and observed sub-joins.

    Numbered as in `order`, which may be empty: then `dear_first`. No sets at all where there are more than the limit.
    """
    n = of_streams.size // 4
    if order.size == 0:
        order = dear_first(of_streams[:n], of_streams[n : 2 * n], ends, selectivities, observed, observed_selectivity)
    place = np.empty(n, np.int64)
    figure = np.empty((4, n))
    for k in range(n):
        place[order[k]] = k
        for f in range(4):
            figure[f, k] = of_streams[f * n + order[k]]
    neighbours, equal_neighbours = np.zeros(n, np.int64), np.zeros(n, np.int64)
    edge_masks = np.empty(selectivities.size, np.int64)
    first_edge = np.zeros(n + 1, np.int64)
    for e in range(selectivities.size):
        left, right = place[ends[3 * e]], place[ends[3 * e + 1]]
        edge_masks[e] = 1 << left | 1 << right
        for i, j in ((left, right), (right, left)):
            first_edge[i + 1] += 1
            neighbours[i] |= 1 << j
            if ends[3 * e + 2]:
                equal_neighbours[i] |= 1 << j
    for i in range(n):
        first_edge[i + 1] += first_edge[i]
    edges_of = np.empty(first_edge[n], np.int64)
    filled = first_edge.copy()
    for e in range(selectivities.size):
        for i in (place[ends[3 * e]], place[ends[3 * e + 1]]):
            edges_of[filled[i]] = e
            filled[i] += 1
    observed_masks = np.zeros(observed.size, np.int64)
    for o in range(observed.size):
        for i in range(n):
            if observed[o] >> i & 1:
                observed_masks[o] |= 1 << place[i]
    masks, last = list_connected(neighbours, limit)
    keys, places, multiplier, shift = hash_table(masks, n)
    size, pace, bytes_, around, equal_around = figures(
        masks,
        last,
        keys,
        places,
        multiplier,
        shift,
        figure[0],
        figure[1],
        figure[2],
        neighbours,
        equal_neighbours,
        edge_masks,
        selectivities,
        edges_of,
        first_edge,
        observed_masks,
        observed_selectivity,
    )
    return Sets(
        n,
        order,
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
        figure[3],
        size,
        pace,
    )


def connected_sets(model: CostModel, component: int, limit: int = MAX_SETS, order: Ints | None = None) -> Sets | None:
    """The table of one component; None where it has more than `limit` connected sets or MAX_BITS streams.

    Its streams are numbered by rising position; as in `order`, which lists places among them; or, where that is empty, dear ones first.
    """
    graph = model.graph
    whole = component == graph.all
    streams = range(len(graph)) if whole else list(bits(component))
    if len(streams) > MAX_BITS:
        return None
    place = {stream: k for k, stream in enumerate(streams)}
    ends: list[int] = []
    selectivities: list[float] = []
    for edge in graph.edges:
        if edge.left in place:
            ends += (place[edge.left], place[edge.right], edge.equality)
            selectivities.append(edge.selectivity)
    figures = [graph.window_tuples[i] for i in streams]
    figures += [1.0 / graph.window_seconds[i] for i in streams]
    figures += [graph.tuple_bytes[i] for i in streams]
    figures += [graph.rates[i] for i in streams]
    observed = [(mask, selectivity) for mask, selectivity in graph.observed if whole or mask & ~component == 0]
    sets = tables(
        np.arange(len(streams)) if order is None else order,
        np.array(figures),
        np.array(ends, np.int64),
        np.array(selectivities, np.float64),
        np.array([mask if whole else sum(1 << place[i] for i in bits(mask)) for mask, _ in observed], np.int64),
        np.array([selectivity for _, selectivity in observed], np.float64),
        limit,
    )
    if sets.mask.size == 0:
        return None
    if model.choices is not None:
        others = connected_sets(model.choices, component, limit, sets.order)
        assert others is not None
        sets = sets._replace(choosing_size=others.size, choosing_pace=others.pace)
    return sets


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
    sets = connected_sets(model, component, HASTY_SETS)
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
def greedy_binary_cpu(sets: Sets, join: float, index: float, append: float, probe: float, scan: float) -> float:
    """The CPU of a binary tree that joins next whatever pair has the lowest rate: at least that of the best one."""
    masks, sizes, paces, around, equal_around = sets.mask, sets.size, sets.pace, sets.around, sets.equal_around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    roots = np.arange(sets.n)
    cost = 0.0
    for count in range(sets.n, 1, -1):
        best, left, right, made = np.inf, -1, -1, -1
        for i in range(count):
            for j in range(i + 1, count):
                if around[roots[i]] & masks[roots[j]]:
                    both = find(keys, places, multiplier, shift, masks[roots[i]] | masks[roots[j]])
                    rate = sizes[both] * paces[both]
                    if rate < best or made < 0:
                        best, left, right, made = rate, i, j, both
        a, b = roots[left], roots[right]
        rate_a, rate_b = sizes[a] * paces[a], sizes[b] * paces[b]
        hashable = equal_around[a] & masks[b] != 0
        cost += access_cost(hashable, rate_a, rate_b, sizes[a], index, append, scan)
        cost += access_cost(hashable, rate_b, rate_a, sizes[b], index, append, scan)
        cost += probe * (rate_a + rate_b) + join * best
        roots[left] = made
        roots[right] = roots[count - 1]
    return cost


@compiled
def binary_splits(sets: Sets, join: float, index: float, append: float, probe: float, scan: float, max_pairs: int) -> Ints:
    """For every connected set the half with its lowest stream of its cheapest binary tree, −1 for a stream; empty if too long.

    Right for the sets of the best tree of all streams: sets that cost more by themselves than a greedy tree does are passed over.

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
    enough = greedy_binary_cpu(sets, join, index, append, probe, scan) * (1.0 + SPARED)
    if not enough < np.inf:
        enough = np.inf
    for low in range(n - 1, -1, -1):
        for place in range(starting[low], starting[low + 1]):
            left = listed[place]
            mask = masks[left]
            a = sizes[left] * paces[left]
            if join and mask & (mask - 1):
                least[left] += join * a
            if least[left] > enough:
                continue
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
                        if cost <= enough and (cost < least[both] or split[both] < 0):
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


def best_binary_tree(model: CostModel, component: int, max_pairs: int = MAX_PAIRS, by_memory: bool = False, max_sets: int = MAX_SETS) -> Tree | None:
    """The binary join tree of a connected component with the least CPU, or memory. Exact; None where it takes more than `max_pairs` pairs."""
    sets = connected_sets(model, component, max_sets)
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

"""The figures of every connected set of a component, compiled.

Problem: size(S), Σ 1/T, bytes and neighbours of thousands of connected sets S, with observed sub-joins standing in as the contract says (§2).
Method: S from S without one stream, on mantissas and exponents apart as `solvers.model.graph` does. Guarantee: the contract's figures, but for the
order in which factors are multiplied; a size that leaves the range of a double counts as MOST_TUPLES. Complexity: O(sets · predicates of a stream);
O(n·2^n) once where there are many observed sets.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, stream_floors, weights_of
from solvers.jtree.compiled.sets import MAX_BITS, Sets, find, hash_table, list_connected, lowest
from solvers.jtree.table_sizes import MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.graph import bits

__all__ = ["connected_sets", "sets_and_floors"]

MOST_TABLED = 22  # streams of which every set, connected or not, has an entry: 16 MB, a tenth of a second
MOST_TUPLES = 1e290  # sizes above this count as this: no plan that makes them can be priced, and no infinity is subtracted


class Streams(NamedTuple):
    """Of every stream: w, 1/T, bytes of a tuple, neighbours, and those by an equality."""

    tuples: Floats
    pace: Floats
    bytes: Floats
    neighbours: Ints
    equal_neighbours: Ints


class Predicates(NamedTuple):
    """Of every predicate its two streams and its selectivity; stream i's are edges_of[first_edge[i] : first_edge[i + 1]]."""

    masks: Ints
    selectivity: Floats
    edges_of: Ints
    first_edge: Ints


class Observed(NamedTuple):
    """The observed sub-joins, in the order in which they stand in for predicates."""

    masks: Ints
    selectivity: Floats


class Listed(NamedTuple):
    """The connected sets as `list_connected` and `hash_table` give them."""

    masks: Ints
    last: NDArray[np.int8]
    keys: Ints
    places: NDArray[np.int32]
    multiplier: int
    shift: int


@compiled
def times(mantissa: float, exponent: int, factor: float) -> tuple[float, int]:
    """mantissa · 2^exponent · factor, normalised."""
    m, e = math.frexp(factor)
    m, carried = math.frexp(mantissa * m)
    return m, exponent + e + carried


@making
def first_observed(observed_masks: Ints, n: int, sets: int) -> NDArray[np.int32]:
    """For every set of the n streams the first observed set inside it, or their number where there is none.

    Empty where it takes less time to look through all observed sets for each connected one.
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


@making
def by_streams(streams: Streams, predicates: Predicates, listed: Listed) -> tuple[Floats, Ints, Floats, Floats, Ints, Ints]:
    """Of every set Π w · Π σ as mantissa and exponent, observed sub-joins apart; pace, bytes, around and equal_around."""
    masks, last, keys, places, multiplier, shift = listed
    window_tuples, pace_of, bytes_of, neighbours, equal_neighbours = streams
    edge_masks, selectivity, edges_of, first_edge = predicates
    total = masks.size
    pace, bytes_, around, equal_around = np.empty(total), np.empty(total), np.empty(total, np.int64), np.empty(total, np.int64)
    mantissas, exponents = np.empty(total), np.empty(total, np.int64)
    for s in range(total):
        mask, x = masks[s], int(last[s])
        rest = mask & ~(1 << x)
        if rest:
            r = find(keys, places, multiplier, shift, rest)
            m, e = times(mantissas[r], exponents[r], window_tuples[x])
            for place in range(first_edge[x], first_edge[x + 1]):
                edge = edges_of[place]
                if edge_masks[edge] & ~mask == 0:
                    m, e = times(m, e, selectivity[edge])
            pace[s] = pace[r] + pace_of[x]
            bytes_[s] = bytes_[r] + bytes_of[x]
            around[s] = (around[r] | neighbours[x]) & ~mask
            equal_around[s] = equal_around[r] | equal_neighbours[x]
        else:
            m, e = times(1.0, 0, window_tuples[x])
            pace[s], bytes_[s], around[s] = pace_of[x], bytes_of[x], neighbours[x]
            equal_around[s] = equal_neighbours[x]
        mantissas[s], exponents[s] = m, e
    return mantissas, exponents, pace, bytes_, around, equal_around


@compiled
def standing_in(observed: Ints, first: NDArray[np.int32], mask: int, chosen: Ints) -> int:
    """How many observed sets stand in for predicates inside a set, and in `chosen` which: the first that fits, then the first in what is left.

    Observed sets are largest first, so that a set which is observed itself is the first of its subsets. `first` is `first_observed`.
    """
    count, free, o = 0, mask, 0
    while free:
        if first.size:
            o = first[free]
        else:
            while o < observed.size and observed[o] & ~free:
                o += 1
        if o == observed.size:
            break
        chosen[count] = o
        count += 1
        free &= ~observed[o]
    return count


@compiled
def observed_size(streams: Streams, predicates: Predicates, observed: Observed, mask: int, chosen: Ints, count: int) -> tuple[float, int]:
    """Mantissa and exponent of a set's size where `count` observed sets stand in for the predicates inside them."""
    m, e = 1.0, 0
    for i in range(streams.neighbours.size):
        if mask >> i & 1:
            m, e = times(m, e, streams.tuples[i])
    for c in range(count):
        m, e = times(m, e, observed.selectivity[chosen[c]])
    for edge in range(predicates.masks.size):
        if predicates.masks[edge] & ~mask == 0:
            covered = False
            for c in range(count):
                covered |= predicates.masks[edge] & ~observed.masks[chosen[c]] == 0
            if not covered:
                m, e = times(m, e, predicates.selectivity[edge])
    return m, e


@making
def figures(streams: Streams, predicates: Predicates, observed: Observed, listed: Listed) -> tuple[Floats, Floats, Floats, Ints, Ints]:
    """size, pace, bytes, around, equal_around of every set."""
    mantissas, exponents, pace, bytes_, around, equal_around = by_streams(streams, predicates, listed)
    masks, total = listed.masks, listed.masks.size
    chosen = np.empty(streams.neighbours.size, np.int64)
    first = first_observed(observed.masks, streams.neighbours.size, total)
    size = np.empty(total)
    for s in range(total):
        m, e = mantissas[s], exponents[s]
        count = standing_in(observed.masks, first, masks[s], chosen)
        if count:
            m, e = observed_size(streams, predicates, observed, masks[s], chosen, count)
        size[s] = MOST_TUPLES if m and e > 1024 else min(math.ldexp(m, int(e)), MOST_TUPLES)
    return size, pace, bytes_, around, equal_around


@making
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


@making
def predicates_of(place: Ints, ends: Ints, selectivities: Floats) -> tuple[Predicates, Ints, Ints]:
    """The predicates with their streams renumbered as `place` says; for every stream its neighbours, and those by an equality."""
    n = place.size
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
    return Predicates(edge_masks, selectivities, edges_of, first_edge), neighbours, equal_neighbours


@making
def tables(
    order: Ints, of_streams: Floats, ends: Ints, observed: Ints, all_selectivities: Floats, limit: int, weights: Weights
) -> tuple[Sets, Floats]:
    """All of `Sets`, and the streams' floors, from figures of the streams (all tuples, all 1/T, all bytes, all rates), predicates (each two ends and
    whether an equality), observed sub-joins, and the selectivities of the predicates, then of the sub-joins. They come as few arrays: each costs its
    own crossing into compiled code, in searches of 0.1 ms.

    Streams are numbered as in `order`; where that is empty, as `dear_first` has them. No sets at all where there are more than the limit.
    """
    n, edges = of_streams.size // 4, ends.size // 3
    selectivities, observed_selectivity = all_selectivities[:edges], all_selectivities[edges:]
    if order.size == 0:
        order = dear_first(of_streams[:n], of_streams[n : 2 * n], ends, selectivities, observed, observed_selectivity)
    place = np.empty(n, np.int64)
    figure = np.empty((4, n))
    for k in range(n):
        place[order[k]] = k
        for f in range(4):
            figure[f, k] = of_streams[f * n + order[k]]
    predicates, neighbours, equal_neighbours = predicates_of(place, ends, selectivities)
    observed_masks = np.zeros(observed.size, np.int64)
    for o in range(observed.size):
        for i in range(n):
            if observed[o] >> i & 1:
                observed_masks[o] |= 1 << place[i]
    masks, last = list_connected(neighbours, limit)
    keys, places, multiplier, shift = hash_table(masks, n)
    streams = Streams(figure[0], figure[1], figure[2], neighbours, equal_neighbours)
    listed = Listed(masks, last, keys, places, multiplier, shift)
    size, pace, bytes_, around, equal_around = figures(streams, predicates, Observed(observed_masks, observed_selectivity), listed)
    found = (masks, size, size, pace, bytes_, around, equal_around)
    sets = Sets(n, order, *found, keys, places, multiplier, shift, neighbours, equal_neighbours, figure[3], size, pace)
    return sets, stream_floors(sets, weights)


def connected_sets(model: CostModel, component: int, limit: int = MAX_SETS, order: Ints | None = None) -> Sets | None:
    """The table of one component; None where it has more than `limit` connected sets or MAX_BITS streams.

    Its streams are numbered by rising position. Where `order` is given, they are numbered as it lists them; where it is empty, dear ones first.
    """
    found = sets_and_floors(model, component, limit, order)
    return found[0] if found else None


def sets_and_floors(model: CostModel, component: int, limit: int = MAX_SETS, order: Ints | None = None) -> tuple[Sets, Floats] | None:
    """The same with the least that keeping each stream costs."""
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
    sets, floors = tables(
        np.arange(len(streams)) if order is None else order,
        np.array(figures),
        np.array(ends, np.int64),
        np.array([mask if whole else sum(1 << place[i] for i in bits(mask)) for mask, _ in observed], np.int64),
        np.array([*selectivities, *(selectivity for _, selectivity in observed)], np.float64),
        limit,
        weights_of(model.costs),
    )
    if sets.mask.size == 0:
        return None
    if model.choices is not None:
        others = connected_sets(model.choices, component, limit, sets.order)
        assert others is not None
        sets = sets._replace(choosing_size=others.size, choosing_pace=others.pace)
    return sets, floors

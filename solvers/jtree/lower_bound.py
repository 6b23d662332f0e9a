"""What no join tree can go below, in CPU and in memory, for graphs too large for an exact search.

Problem: a lower bound of the least CPU (and least memory, and an upper bound of the most headroom) of any join tree.
Method: a relaxation of trees to prefix codes. It takes next to no time and needs no plan; `cheapest_first`, which does, is closer. Guarantee: never
above the optimum. Complexity: O(streams · predicates), plus one minimum cut per predicate where that tightens it. No paper of this project has one;
the argument follows.

An arrival of stream i is joined with more and more streams until it is part of the output: it runs through sets
{i} = U_0 ⊂ U_1 ⊂ … ⊂ all, inside i's own join first, then in the pipelines of that join's output, and so on to the root. Each U_k
between the ends is made (join · size(U_k)/T_i) and goes on to probe (probe · size(U_k)/T_i); where it is the output of a
join below the root, it is kept as well, for at least base = min(insert + delete, append). Let m_i be the smallest size of any
connected set of two or more streams that contains i, and c_i = m_i/T_i; so each U_k costs at least (join + probe) · c_i.

How many there are follows from the shape. In a join of m inputs, an input's arrivals take m − 1 steps. Replace the join by a
balanced binary tree over its inputs, the heavier (by Σ c_i) no deeper than the lighter: the mean depth A_m is at most m/2 from
m = 4 on, A_2 = 1, A_3 = 5/3. With j = join + probe and κ = min(base, j/2), each join costs at least what its binary
replacement costs at (j + κ) per level, because A_m·(j + κ) ≤ (m − 1)·j + base below the root, and at the root, which keeps nothing and
whose last step is the output, (A_m − 1)·(j + κ) ≤ (m − 2)·j. So the tree costs at least (j + κ) · Σ c_i·(d_i − 1) for the
depths d_i of some binary tree, and the least Σ c_i·d_i of all binary trees is Huffman's:

    CPU ≥ Σ_i keeping and first probe of stream i  +  join · rate(all)  +  (j + κ) · (Huffman(c) − Σ c_i)  +  step · least steps

m_i: the logarithm of size is Σ log w − Σ |log σ| over the set's streams and predicates. Making that small is a minimum cut
(choose predicates, pay for their streams), exact once i and one neighbour are put inside; connectedness is not asked for,
which can only make it smaller. An observed set counts as one more predicate over all its streams where it shrinks its join.
Logarithms are whole numbers in units of 2^-24, rounded so that m_i only gets smaller: no figure depends on a library's log.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models.request import Objective
from solvers.common.deadline import NEVER, Deadline
from solvers.common.tolerances import ROUNDED_DOWN, SUMMED_DOWN
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph, bits
from solvers.model.operations import least_keeping, least_steps, stepping
from solvers.model.point import Caps

__all__ = ["cpu_lower_bound", "headroom_upper_bound", "huffman", "largest_factor", "memory_lower_bound", "relaxed_bound", "smallest_joins"]

FRACTION = 24  # binary digits of a logarithm: squares of 32-bit numbers fit a machine word
MAX_CUTS = 1_000  # minimum cuts per bound: a tenth of a second for 200 streams
MAX_ARCS = 5_000  # with more arcs a cut takes milliseconds, so the quick bound is used
_NOTHING = -(1 << 45)  # the logarithm of an empty join: below that of any double
_HALVINGS = 40  # of the interval in which the headroom's bound lies


def log2_floor(values: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
    """⌊log2 · 2^FRACTION⌋ of each value, or a little less, by squaring: whole numbers alone, so the same on every machine."""
    mantissa, exponent = np.frexp(np.asarray(values, np.float64))
    number = (mantissa * 2.0**32).astype(np.uint64)  # in [2^31, 2^32): the value is number/2^31 · 2^(exponent − 1)
    result = exponent.astype(np.int64) - 1
    for _ in range(FRACTION):
        number = number * number >> np.uint64(31)
        carry = number >> np.uint64(32)
        number >>= carry
        result = 2 * result + carry.astype(np.int64)
    return np.where(mantissa == 0.0, _NOTHING, result)


_ROOTS = [2.0]
for _ in range(FRACTION):
    _ROOTS.append(math.sqrt(_ROOTS[-1]))  # IEEE asks sqrt to be correctly rounded, unlike pow


def exp2_floor(logarithm: int) -> float:
    """2^(logarithm / 2^FRACTION), or a little less."""
    whole, fraction = logarithm >> FRACTION, logarithm & ((1 << FRACTION) - 1)
    if whole < -1080:
        return 0.0
    if whole > 1000:
        return math.ldexp(1.0, 1000)
    mantissa = 1.0
    for k in range(1, FRACTION + 1):
        if fraction >> (FRACTION - k) & 1:
            mantissa *= _ROOTS[k]
    return math.ldexp(mantissa * SUMMED_DOWN, whole)


def huffman(weights: Sequence[float]) -> float:
    """The least Σ weight · depth of any binary tree with these leaves.

    >>> huffman([1.0, 1.0, 2.0])
    6.0
    """
    heap = sorted(weights)
    merged = []
    while len(heap) > 1:
        pair = heapq.heappop(heap) + heapq.heappop(heap)
        merged.append(pair)
        heapq.heappush(heap, pair)
    return math.fsum(merged)


def _shrinking(graph: JoinGraph, component: int) -> list[tuple[int, int]]:
    """The observed sets of a component whose join they make smaller, each with −log2 of how much."""
    if not graph.observed:
        return []
    # For all sets at once: there may be tens of thousands. The product is taken as `graph.product` takes it.
    sets = graph.observed_words
    mantissa, exponent = np.ones(len(sets)), np.zeros(len(sets), np.int64)
    for edge in graph.edges:
        mask = graph.words([edge.mask])
        inside = (sets & mask == mask).all(axis=1)
        part, power = math.frexp(edge.selectivity)
        mantissa[inside], carried = np.frexp(mantissa[inside] * part)
        exponent[inside] += carried + power
    usual = np.ldexp(mantissa, exponent)
    selectivity = np.array([selectivity for _, selectivity in graph.observed])
    before, after = log2_floor(usual), log2_floor(selectivity)
    shrinks = (selectivity < usual) & (sets & graph.words([graph.all & ~component]) == 0).all(axis=1)
    return [(graph.observed[o][0], int(before[o] + 1 - after[o])) for o in shrinks.nonzero()[0]]


def smallest_joins(model: CostModel, component: int, deadline: Deadline = NEVER) -> list[float]:
    """For every stream of the component, at most the size of the smallest connected set of two or more streams that contains it.

    A deadline that has passed leaves the quick bounds as they are, which are lower but still bounds.
    """
    graph = model.graph
    streams = list(bits(component))
    n = len(streams)
    gains = _gains(graph, component)
    observed = _shrinking(graph, component)
    # Everything is doubled, so that a predicate's half for each of its ends is a whole number.
    price = 2 * log2_floor([graph.window_tuples[stream] for stream in streams])
    every_gain = sum(2 * gain for _, gain in observed)
    first, second = np.triu(gains.joined, 1).nonzero()
    bounds, exact = _quick_bounds(price, gains, (first, second), every_gain)
    uncertain = (~exact).nonzero()[0].tolist()
    arcs = len(first) + n + sum(subset.bit_count() for subset, _ in observed)
    if uncertain and not deadline.expired() and len(uncertain) <= MAX_CUTS and arcs <= MAX_ARCS:
        place = {stream: k for k, stream in enumerate(streams)}
        pairs = {(a, b): int(gains.shared[a, b]) for a, b in zip(first.tolist(), second.tolist(), strict=True)}
        cuts = _Cuts(price.tolist(), pairs, [([place[i] for i in bits(subset)], gain) for subset, gain in observed])
        for pair in uncertain:
            if deadline.expired():
                break
            bounds[pair] = cuts.least_with((int(first[pair]), int(second[pair])), int(bounds[pair]))
    least = np.full(n, -_NOTHING, np.int64)
    np.minimum.at(least, first, bounds)
    np.minimum.at(least, second, bounds)
    return [exp2_floor(bound >> 1) for bound in least.tolist()]


@dataclass(frozen=True, slots=True)
class _Gains:
    """Of the predicates of a component, by place in it."""

    shared: NDArray[np.int64]
    """−log2 of the selectivities between two streams."""
    joined: NDArray[np.bool_]


def _gains(graph: JoinGraph, component: int) -> _Gains:
    """Kept with the graph's predicates, which a graph at other rates shares."""
    known = graph.columns.derived
    if component not in known:
        place = np.full(len(graph), -1, np.int64)
        streams = list(bits(component))
        place[streams] = range(len(streams))
        left, right = place[graph.columns.left], place[graph.columns.right]
        inside = left >= 0
        gain = -log2_floor(graph.columns.selectivity[inside])
        shared, joined = np.zeros((len(streams), len(streams)), np.int64), np.zeros((len(streams), len(streams)), np.bool_)
        for a, b in ((left[inside], right[inside]), (right[inside], left[inside])):
            np.add.at(shared, (a, b), gain)
            joined[a, b] = True
        known[component] = _Gains(shared, joined)
    found = known[component]
    assert isinstance(found, _Gains)
    return found


def _quick_bounds(
    price: NDArray[np.int64], gains: _Gains, pairs: tuple[NDArray[np.int64], NDArray[np.int64]], every_gain: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """For every joined pair: a bound of twice the logarithm of the smallest set around it, and whether the pair itself is that set.

    Any other stream k of the set brings its window, its predicates to the pair, and at most all its other predicates, of
    which it is charged half; those of the pair's own to k count in full. Observed sets are taken to be inside, all of them.
    """
    first, second = pairs
    shared = gains.shared
    own = price - shared.sum(axis=1)
    gained = np.zeros(len(first), np.int64)
    ends = np.searchsorted(first, np.arange(len(price) + 1))
    for a, (start, end) in enumerate(pairwise(ends.tolist())):
        if start < end:
            others = second[start:end]
            brings = own - shared[a] - shared[others]
            brings[:, a] = 0
            brings[np.arange(len(others)), others] = 0
            gained[start:end] = np.minimum(brings, 0).sum(axis=1)
    alone = price[first] + price[second] - 2 * shared[first, second]
    return alone + gained - every_gain, (gained == 0) & (every_gain == 0)


class _Cuts:
    """The network whose minimum cuts are the smallest sets, built once; every pair only opens its own two arcs."""

    def __init__(self, price: list[int], pairs: dict[tuple[int, int], int], observed: list[tuple[list[int], int]]) -> None:
        from ortools.graph.python import max_flow  # takes a moment to import, and small graphs never need it

        n = len(price)
        self._source, self._sink = n, n + 1
        self._flow = max_flow.SimpleMaxFlow()
        weight = list(price)
        for (a, b), gain in pairs.items():
            weight[a] -= gain
            weight[b] -= gain
            if gain:
                self._flow.add_arc_with_capacity(a, b, gain)
                self._flow.add_arc_with_capacity(b, a, gain)
        self._certain = sum(min(0, w) for w in weight) - sum(2 * gain for _, gain in observed)
        self._unlimited = sum(abs(w) for w in weight) + sum(2 * gain for _, gain in observed) + 1
        self._open = [max(0, -w) for w in weight]
        self._enter = []
        for k, w in enumerate(weight):
            self._enter.append(self._flow.add_arc_with_capacity(self._source, k, self._open[k]))
            if w > 0:
                self._flow.add_arc_with_capacity(k, self._sink, w)
        for number, (members, gain) in enumerate(observed):
            node = n + 2 + number
            self._flow.add_arc_with_capacity(self._source, node, 2 * gain)
            for k in members:
                self._flow.add_arc_with_capacity(node, k, self._unlimited)

    def least_with(self, pair: tuple[int, int], known: int) -> int:
        """Twice the least logarithm of any set that contains the pair; what is known of it where the solver fails."""
        for k in pair:
            self._flow.set_arc_capacity(self._enter[k], self._unlimited)
        status = self._flow.solve(self._source, self._sink)
        value = max(known, self._certain + int(self._flow.optimal_flow())) if status == self._flow.OPTIMAL else known
        for k in pair:
            self._flow.set_arc_capacity(self._enter[k], self._open[k])
        return value


def cpu_lower_bound(model: CostModel, deadline: Deadline = NEVER) -> float:
    """CPU that every join tree uses at least."""
    graph, costs = model.graph, model.costs
    if graph.tables:
        return _cpu_with_tables(model)
    keep = costs.insert + costs.delete
    base = least_keeping(costs)
    made = costs.join + costs.probe
    step = made + min(base, made / 2.0)
    if len(graph) == 1:
        return 0.0
    parts = graph.components
    terms = [costs.join * model.rate(graph.all), stepping(costs, least_steps(graph))]
    slowest = min(graph.rates) if len(parts) == 1 else 0.0
    for component in parts:
        streams = list(bits(component))
        if len(streams) > 1 and len(parts) > 1:
            terms.append((costs.join + base) * model.rate(component))
        terms += [costs.probe * graph.rates[i] for i in streams if len(streams) > 1]
        smallest = smallest_joins(model, component, deadline) if len(streams) > 1 else []
        weights = [size / graph.window_seconds[i] for size, i in zip(smallest, streams, strict=False)]
        slowest = min([slowest, *weights])
        if len(streams) > 2:
            terms.append(step * max(0.0, huffman(weights) - math.fsum(weights)))
    for rate, window in zip(graph.rates, graph.window_tuples, strict=True):
        # Without an index, whoever probes the stream scans its window: no block's arrivals are rarer than `slowest`.
        terms.append(min(rate * keep, rate * costs.append + costs.scan * slowest * window))
    if len(parts) > 1:
        for component in parts:
            least = min(model.size(other) for other in parts if other != component)
            terms.append(model.rate(component) * (costs.probe + costs.scan * least))
    return math.fsum(terms) * ROUNDED_DOWN


def _always_kept(graph: JoinGraph) -> int:
    """Of a graph with tables the streams that every plan keeps, because no table may be their only partner, and the tables that cannot be asked."""
    near = graph.neighbours
    streams = sum(1 << i for i in bits(graph.all & ~graph.tables) if near[i] and not near[i] & graph.tables)
    return streams | sum(1 << i for i in bits(graph.tables) if all(offer.kept for offer in graph.offers[i]))


def _cpu_with_tables(model: CostModel) -> float:
    """CPU that every plan of a graph with tables needs: making the results, each stream's first probe, the least steps, keeping what must be kept."""
    graph, costs = model.graph, model.costs
    cheapest = min([costs.probe, *(offer.cpu for offers in graph.offers for offer in offers if not offer.kept)])
    keep = least_keeping(costs)
    terms = [costs.join * model.rate(graph.all), stepping(costs, least_steps(graph)), *(cheapest * rate for rate in graph.rates)]
    return math.fsum([*terms, *(keep * graph.rates[i] for i in bits(_always_kept(graph)))]) * ROUNDED_DOWN


def memory_lower_bound(model: CostModel) -> float:
    """Bytes that every join tree keeps: the windows, and the components' joins where there are several."""
    parts = model.graph.components
    kept = [model.state_bytes(component) for component in parts if component & (component - 1)] if len(parts) > 1 else []
    leaves = _always_kept(model.graph) if model.graph.tables else model.graph.all
    return math.fsum([model.leaves_bytes(leaves), *kept])


def headroom_upper_bound(model: CostModel, caps: Caps, deadline: Deadline = NEVER) -> float:
    """A factor of all rates that no join tree can bear within the caps; infinity without caps.

    Where even a bound at that factor is over a cap, every plan is. Found by halving, so the bound itself need not rise evenly.
    """
    passed = Deadline(0.0)  # the quick bounds alone: this is asked often
    return largest_factor(model, caps, lambda scaled: cpu_lower_bound(scaled, passed), deadline)


def largest_factor(model: CostModel, caps: Caps, least_cpu: Callable[[CostModel], float], deadline: Deadline = NEVER) -> float:
    """A factor of all rates beyond which no plan stays within the caps; infinity without caps. `least_cpu` is what every plan of a model needs."""
    if math.isinf(caps.cpu) and math.isinf(caps.memory_bytes):
        return math.inf

    def refused(factor: float) -> bool:
        scaled = CostModel(model.graph.scaled(factor), model.costs)
        return least_cpu(scaled) > caps.cpu or memory_lower_bound(scaled) > caps.memory_bytes

    high = 1.0
    while not refused(high):
        high *= 2.0
        if high > 1e30 or deadline.expired():
            return math.inf
    low = 0.0
    for _ in range(_HALVINGS):
        if deadline.expired():
            break
        middle = (low + high) / 2.0
        low, high = (low, middle) if refused(middle) else (middle, high)
    return high


def relaxed_bound(problem: Problem, deadline: Deadline) -> float | None:
    """A bound of the objective that takes next to no time."""
    if problem.objective is Objective.MIN_CPU:
        return cpu_lower_bound(problem.model, deadline)
    if problem.objective is Objective.MIN_MEMORY:
        return memory_lower_bound(problem.model)
    bound = headroom_upper_bound(problem.model, problem.caps, deadline)
    return bound if math.isfinite(bound) else None

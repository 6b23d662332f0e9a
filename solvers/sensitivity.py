"""How far the statistics can move before a plan leaves its caps: headroom and validity (contract §3).

A plan's CPU is a sum of terms weight · size(U) · size(V) · Σ_{i∈B} 1/T_i (see `solvers.cost`), its memory a sum of
bytes · size(S). The plan is held fixed, its hash and nested-loop choices included. Then

* under a common factor f on all rates each term is a monomial of f: a time window holds f times the tuples, a row
  window is run through f times as often. CPU and memory are polynomials with non-negative coefficients, so they
  rise with f, and the largest f within the caps is found by bisection to the last bit;
* in any one rate or selectivity both are affine, so the interval within the caps has a closed form.

Only +, −, ×, ÷ and comparisons are used: the same figures on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from solvers.cost import CostModel, PricedTree
from solvers.graph import JoinGraph, bits
from solvers.search import Caps

MAX_WORK = 8_000_000  # terms times predicates: a second or two. An mjoin of a clique of 60 streams is below it

__all__ = ["Interval", "headroom", "lists_selectivities", "validity"]


@dataclass(frozen=True, slots=True)
class Interval:
    """Where a statistic may lie; None is no end."""

    statistic: str
    low: float
    high: float | None


def _kept(priced: PricedTree, graph: JoinGraph) -> list[tuple[int, float]]:
    """(set, bytes of its state) for everything the plan keeps."""
    model_bytes = graph.tuple_bytes
    leaves = [(1 << i, graph.window_tuples[i] * model_bytes[i]) for i in range(len(graph))]
    inner = [(node.mask, priced.sizes[node.mask] * math.fsum(model_bytes[i] for i in bits(node.mask))) for node in priced.nodes[:-1]]
    return [*leaves, *inner, *priced.cached]


def _by_rows(graph: JoinGraph) -> int:
    mask = 0
    for i, rows in enumerate(graph.row_windows):
        mask |= rows << i
    return mask


def _row_share(graph: JoinGraph, arriving: int, rows: int) -> float:
    """The part of Σ_{i∈B} 1/T_i that row windows make up."""
    if not arriving & rows:
        return 0.0
    if not arriving & ~rows:
        return 1.0
    return math.fsum(1.0 / graph.window_seconds[i] for i in bits(arriving & rows)) / math.fsum(1.0 / graph.window_seconds[i] for i in bits(arriving))


def _polynomial(parts: list[tuple[int, float]]) -> list[float]:
    """Coefficients by degree from (degree, coefficient) pairs."""
    grouped: dict[int, list[float]] = {}
    for degree, value in parts:
        grouped.setdefault(degree, []).append(value)
    return [math.fsum(grouped.get(degree, ())) for degree in range(max(grouped, default=0) + 1)]


def _value(polynomial: list[float], factor: float) -> float:
    total = 0.0
    for coefficient in reversed(polynomial):
        total = total * factor + coefficient
    return total


def _largest_factor(polynomial: list[float], cap: float) -> float:
    """The largest f with polynomial(f) ≤ cap: infinity where it never gets there, 0 where it is never within."""
    if not any(polynomial[1:]):
        return math.inf if polynomial[0] <= cap else 0.0
    if polynomial[0] > cap:
        return 0.0
    low, high = 0.0, 1.0
    while _value(polynomial, high) <= cap:
        low, high = high, high * 2.0
        if math.isinf(high):
            return math.inf
    while low == 0.0 and high > 0.0 and _value(polynomial, high / 2.0) > cap:
        high /= 2.0
    if low == 0.0:
        low = high / 2.0
    while True:
        middle = low + (high - low) / 2.0
        if not low < middle < high:
            return low
        if _value(polynomial, middle) <= cap:
            low = middle
        else:
            high = middle


def headroom(priced: PricedTree, graph: JoinGraph, caps: Caps) -> float | None:
    """The largest common factor on all rates that keeps the plan within its caps; None where nothing limits it."""
    rows = _by_rows(graph)
    factors = []
    if math.isfinite(caps.cpu):
        parts: list[tuple[int, float]] = []
        for term in priced.terms:
            degree = ((term.made | term.scanned) & ~rows).bit_count()
            share = _row_share(graph, term.arriving, rows)
            parts.append((degree + 1, term.value * share))
            parts.append((degree, term.value - term.value * share))
        factors.append(_largest_factor(_polynomial(parts), caps.cpu))
    if math.isfinite(caps.memory_bytes):
        factors.append(_largest_factor(_polynomial([((mask & ~rows).bit_count(), size) for mask, size in _kept(priced, graph)]), caps.memory_bytes))
    factor = min(factors, default=math.inf)
    if math.isinf(factor):
        return None
    # Horner's rule and fsum round differently: at factor 1 the priced figures have the last word.
    within = priced.cpu <= caps.cpu and priced.memory_bytes <= caps.memory_bytes
    return max(factor, 1.0) if within else min(factor, math.nextafter(1.0, 0.0))


def lists_selectivities(priced: PricedTree, graph: JoinGraph) -> bool:
    """Whether `validity` lists selectivities too: not for a join so wide in a graph so dense that it would take seconds."""
    return sum(len(join.terms) for join in priced.joins) * len(graph.edges) <= MAX_WORK


def validity(priced: PricedTree, model: CostModel, caps: Caps) -> list[Interval]:
    """For every rate and every selectivity the interval in which the plan is within its caps, all else as it is.

    A statistic is left out where no value of it alone would bring the plan within the caps; see `lists_selectivities`.
    """
    graph, rows = model.graph, _by_rows(model.graph)
    cpu_of_set: dict[tuple[int, int], list[float]] = {}
    cpu_of_arrival: dict[int, list[float]] = {}
    for term in priced.terms:
        cpu_of_set.setdefault((term.made, term.scanned), []).append(term.value)
        if term.arriving & rows:
            cpu_of_arrival.setdefault(term.arriving, []).append(term.value)
    kept = _kept(priced, graph)

    n, m = len(graph), len(graph.edges) if lists_selectivities(priced, graph) else 0
    cpu_parts: list[list[float]] = [[] for _ in range(n + m)]
    memory_parts: list[list[float]] = [[] for _ in range(n + m)]
    for (made, scanned), values in cpu_of_set.items():
        value = math.fsum(values)
        for i in bits((made | scanned) & ~rows):
            cpu_parts[i].append(value)
        for part in (made, scanned) if m else ():
            for p in graph.factors(part)[1]:
                cpu_parts[n + p].append(value)
    for arriving, values in cpu_of_arrival.items():
        per_second = model.per_second(arriving)
        for i in bits(arriving & rows):
            cpu_parts[i].append(math.fsum(values) * (1.0 / graph.window_seconds[i]) / per_second)
    for mask, size in kept:
        for i in bits(mask & ~rows):
            memory_parts[i].append(size)
        for p in graph.factors(mask)[1] if m else ():
            memory_parts[n + p].append(size)

    intervals = []
    for k in range(n + m):
        value, domain_end = (graph.rates[k], math.inf) if k < n else (graph.edges[k - n].selectivity, 1.0)
        high = min(
            _upper_end(value, priced.cpu, math.fsum(cpu_parts[k]), caps.cpu),
            _upper_end(value, priced.memory_bytes, math.fsum(memory_parts[k]), caps.memory_bytes),
        )
        if high >= 0.0:
            name = f"{graph.names[k]}.rate" if k < n else f"predicates[{k - n}].selectivity"
            intervals.append(Interval(name, 0.0, high if high < domain_end else None))
    return intervals


def _upper_end(value: float, total: float, moving: float, cap: float) -> float:
    """The largest value of a statistic with (total − moving) + moving · x / value ≤ cap; −1 where there is none."""
    rest = max(0.0, total - moving)
    if math.isinf(cap) or (moving <= 0.0 and rest <= cap):
        return math.inf
    if rest > cap:
        return -1.0
    high = value * ((cap - rest) / moving)
    return max(high, value) if total <= cap else high

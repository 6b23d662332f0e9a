"""How far the statistics can move before a plan leaves its caps: headroom and validity (contract §3).

A plan's CPU is a sum of terms weight · size(U) · size(V) · Σ_{i∈B} 1/T_i (see `solvers.model.cost`), its memory a sum of
bytes · size(S). The plan is held fixed, its hash and nested-loop choices included. Then

* under a common factor f on all rates each term is a monomial of f: a time window holds f times the tuples, a row
  window is run through f times as often. CPU and memory are polynomials with non-negative coefficients, so they
  rise with f, and the largest f within the caps is found to the last bit, by Newton's steps and bisection;
* in any one rate or selectivity both are affine, so the interval within the caps has a closed form.

Only +, −, ×, ÷ and comparisons are used: the same figures on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import compress, repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.model.cost import CostModel, PricedTree, Term
from solvers.model.graph import DENSE, JoinGraph, bits
from solvers.model.point import Caps
from solvers.model.wide_join import are_wide

Floats = NDArray[np.float64]

MAX_WORK = 1_000_000  # terms times predicates that are looked at one by one: a quarter of a second
MAX_WORK_AT_ONCE = 40_000_000  # the same over arrays
ONE_BY_ONE = 4_000  # sets times streams from which arrays are used: a third of the time for a clique of 60, a sixth for one of 100
NEWTON_STEPS = 12  # to a largest factor: seven are usual
CLOSE, NEXT = 1e-8, 4e-16  # a step so small, relative to the factor, is Newton's last, because it leads to the double next to the factor, or nearly
WIDER = 4  # times that the bracket around it is widened: rounding moves it by a few digits
LEAST_FACTOR = 1e-300  # smaller ones have few digits, and are found by bisection
AT_ONCE = 2_048  # sets in one array: with as many predicates as a clique of 60 streams has, 4 MB

__all__ = ["Interval", "headroom", "lists_selectivities", "validity"]


class Interval(NamedTuple):
    """Where a statistic may lie; None is no end."""

    statistic: str
    low: float
    high: float | None


def _kept(priced: PricedTree, model: CostModel) -> list[tuple[int, float]]:
    """(set, bytes of its state) for everything the plan keeps."""
    graph = model.graph
    leaves = [(1 << i, graph.window_tuples[i] * graph.tuple_bytes[i]) for i in bits(priced.leaves)]
    inner = [(node.mask, priced.sizes[node.mask] * model.tuple_bytes(node.mask)) for node in priced.nodes[:-1]]
    return [*leaves, *inner, *priced.cached]


def _narrow_terms(priced: PricedTree) -> list[Term]:
    """The terms of all joins but for those that have them as arrays."""
    return [*(term for join in priced.joins if not are_wide(join.terms) for term in join.terms), *priced.adjustments]


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
    grouped: list[list[float]] = [[] for _ in range(max(parts, default=(0,))[0] + 1)]
    for degree, value in parts:
        grouped[degree].append(value)
    return list(map(math.fsum, grouped))


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
    low, high = _bracket(polynomial, cap) or (0.0, 1.0)
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


def _bracket(polynomial: list[float], cap: float) -> tuple[float, float] | None:
    """Two factors next to each other, the lower within the cap and the higher not, by a few Newton steps; None where these lead nowhere.

    Bisection then ends where it ends from any other two: the computed polynomial never falls as f rises, because no coefficient is negative and no
    rounding turns two figures round. So there is one f within the cap whose next double is not, on every machine.
    """
    if min(polynomial) < 0.0 or not 0.0 < cap < math.inf:
        return None
    # No term alone may be above the cap. From such a factor on, Newton's steps only go down: the polynomial is convex.
    factor = min([math.pow(cap / value, 1.0 / degree) for degree, value in enumerate(polynomial) if degree and value], default=math.inf)
    falling = polynomial[::-1]
    for _ in range(NEWTON_STEPS):
        if not LEAST_FACTOR < factor < math.inf:
            return None
        value = slope = 0.0
        for coefficient in falling:
            slope = slope * factor + value
            value = value * factor + coefficient
        if not (0.0 < slope < math.inf and value < math.inf):
            return None
        step = (value - cap) / slope
        factor -= step
        if abs(step) <= CLOSE * factor:
            break
    apart = NEXT * factor
    for _ in range(WIDER):
        low, high = factor - apart, factor + apart
        if _value(polynomial, low) <= cap < _value(polynomial, high):
            return low, high
        apart *= 16.0
    return None


def headroom(priced: PricedTree, model: CostModel, caps: Caps) -> float | None:
    """The largest common factor on all rates that keeps the plan within its caps; None where nothing limits it."""
    graph = model.graph
    rows = _by_rows(graph)
    factors = []
    if math.isfinite(caps.cpu):
        parts: list[tuple[int, float]] = []
        shares: dict[int, float] = {}
        for join in priced.joins:
            if are_wide(join.terms):
                parts += join.terms.by_degree(rows, [_row_share(graph, block, rows) for block in join.blocks])
        for value, made, arriving, scanned in _narrow_terms(priced):
            degree = ((made | scanned) & ~rows).bit_count()
            if arriving & rows:
                if arriving not in shares:
                    shares[arriving] = _row_share(graph, arriving, rows)
                share = shares[arriving]
                parts.append((degree + 1, value * share))
                value -= value * share
            parts.append((degree, value))
        factors.append(_largest_factor(_polynomial(parts), caps.cpu))
    if math.isfinite(caps.memory_bytes):
        factors.append(_largest_factor(_polynomial([((mask & ~rows).bit_count(), size) for mask, size in _kept(priced, model)]), caps.memory_bytes))
    factor = min(factors, default=math.inf)
    if math.isinf(factor):
        return None
    # Horner's rule and fsum round differently: at factor 1 the priced figures have the last word.
    within = priced.cpu <= caps.cpu and priced.memory_bytes <= caps.memory_bytes
    return max(factor, 1.0) if within else min(factor, math.nextafter(1.0, 0.0))


def lists_selectivities(priced: PricedTree, graph: JoinGraph) -> bool:
    """Whether `validity` lists selectivities too: not for a join so wide in a graph so dense that it would take seconds."""
    most = MAX_WORK if graph.observed else MAX_WORK_AT_ONCE
    return sum(len(join.terms) for join in priced.joins) * len(graph.edges) <= most


def validity(priced: PricedTree, model: CostModel, caps: Caps) -> list[Interval]:
    """For every rate and every selectivity the interval in which the plan is within its caps, all else as it is.

    A statistic is left out where no value of it alone would bring the plan within the caps; see `lists_selectivities`.
    """
    graph = model.graph
    n, m = len(graph), len(graph.edges) if lists_selectivities(priced, graph) else 0
    limited = math.isfinite(caps.cpu) or math.isfinite(caps.memory_bytes)
    # Without caps nothing ends anywhere, whatever moves.
    cpu, memory = _moving(priced, model, m) if limited else ([0.0] * (n + m), [0.0] * (n + m))
    tables = graph.tables
    rates = [graph.window_tuples[k] if tables >> k & 1 else graph.rates[k] for k in range(n)]  # a table's own statistic is its rows
    of_rates = [f"{name}.rows" if tables >> k & 1 else f"{name}.rate" for k, name in enumerate(graph.names)]
    selectivities = [edge.selectivity for edge in graph.edges[:m]]
    values = [*rates, *selectivities]
    ends = np.minimum(_upper_ends(values, priced.cpu, cpu, caps.cpu), _upper_ends(values, priced.memory_bytes, memory, caps.memory_bytes))
    named = [f"predicates[{p}].selectivity" for p in range(m)]
    return [*_intervals(of_rates, ends[:n], math.inf), *_of_indexes(priced, graph, caps), *_intervals(named, ends[n:], 1.0)]


def _intervals(names: Iterable[str], ends: Floats, most: float) -> list[Interval]:
    """Those that reach from 0 to an end: none from `most` on. Statistics whose end is below 0 are left out."""
    high = [end if end < most else None for end in ends.tolist()]
    listed = (ends >= 0.0).tolist()
    return list(map(Interval._make, zip(compress(names, listed), repeat(0.0), compress(high, listed), strict=False)))


def _moving(priced: PricedTree, model: CostModel, m: int) -> tuple[list[float], list[float]]:
    """For each stream's rate, then for each of the first m selectivities, the CPU and the memory that are proportional to it."""
    graph = model.graph
    rows = _by_rows(graph) & ~graph.tables  # what a table makes grows with its rows
    cpu_of_set: dict[tuple[int, int], list[float]] = {}
    cpu_of_arrival: dict[int, list[float]] = {}
    for term in _narrow_terms(priced):
        cpu_of_set.setdefault((term.made, term.scanned), []).append(term.value)
        if term.arriving & rows:
            cpu_of_arrival.setdefault(term.arriving, []).append(term.value)
    sets = [(part, math.fsum(values)) for part, values in cpu_of_set.items()]
    kept = [((mask, 0), size) for mask, size in _kept(priced, model)]

    moved = _moved_at_once if len(sets) * len(graph) > ONE_BY_ONE and not graph.observed else _moved_one_by_one
    cpu, memory = moved(graph, sets, rows, m), moved(graph, kept, rows, m)
    for join in priced.joins:
        if are_wide(join.terms):
            cpu = [value + more for value, more in zip(cpu, join.terms.moved(rows, m).tolist(), strict=True)]
            for block, value in zip(join.blocks, join.terms.totals().tolist(), strict=True) if rows else ():
                if block & rows:
                    cpu_of_arrival.setdefault(block, []).append(value)
    for arriving, values in cpu_of_arrival.items():
        per_second = model.per_second(arriving)
        for i in bits(arriving & rows):
            cpu[i] += math.fsum(values) * (1.0 / graph.window_seconds[i]) / per_second
    return cpu, memory


def _of_indexes(priced: PricedTree, graph: JoinGraph, caps: Caps) -> list[Interval]:
    """The same for what asking for a key costs, of every table that is asked."""
    found = []
    for join in priced.joins:
        for table, place in join.asked:
            index = graph.offers[table][place]
            target = join.blocks.index(1 << table)
            arriving = [probe.rate_in for pipeline in join.pipelines for probe in pipeline.probes if probe.target == target]
            probes = math.fsum([*arriving, *(-keys for served, keys in priced.answered if served == table)])
            high = float(_upper_ends([index.cpu], priced.cpu, [index.cpu * probes], caps.cpu)[0]) if index.cpu else math.inf
            if priced.memory_bytes <= caps.memory_bytes and high >= 0.0:
                found.append(Interval(f"{graph.names[table]}.access[{place}].cpu", 0.0, high if math.isfinite(high) else None))
    return found


_Parts = list[tuple[tuple[int, int], float]]
"""((set, scanned set or 0), value): values that are proportional to the sizes of both."""


def _moved_one_by_one(graph: JoinGraph, parts: _Parts, rows: int, m: int) -> list[float]:
    """For each stream, then for each of the first m predicates, the sum of the values that are proportional to its rate or selectivity."""
    n = len(graph)
    found: list[list[float]] = [[] for _ in range(n + m)]
    for (made, scanned), value in parts:
        for i in bits((made | scanned) & ~rows):
            found[i].append(value)
        for part in (made, scanned) if m else ():
            for p in graph.factors(part)[1]:
                found[n + p].append(value)
    return [math.fsum(values) for values in found]


def _moved_at_once(graph: JoinGraph, parts: _Parts, rows: int, m: int) -> list[float]:
    """The same sums for thousands of sets of a large graph: row by row over arrays, 0.05 s where one by one takes a second.

    Rows are added in their order, so figures are the same on every machine. Only where nothing is observed: then a predicate counts
    in every set that holds both its ends; where there are many predicates, that is looked up in a table of all pairs of streams.
    """
    n = len(graph)
    width = (n + 7) // 8
    moved = np.zeros(n + m)
    counted = np.array([not rows >> i & 1 for i in range(n)])
    left, right = graph.columns.left[:m], graph.columns.right[:m]
    table = np.zeros((n, n)) if m > DENSE else None
    place = _places(graph, parts) if table is not None else np.arange(n)
    for start in range(0, len(parts), AT_ONCE):
        chunk = parts[start : start + AT_ONCE]
        values = np.array([value for _, value in chunk])[:, None]
        inside = [_as_rows([part[k] for part, _ in chunk], n, width) for k in (0, 1)]
        moved[:n] += np.add.reduce(np.where((inside[0] | inside[1]) & counted, values, 0.0), axis=0)
        if table is not None:
            for value, *masks in zip(values[:, 0].tolist(), *inside, strict=True):
                for members in (place[mask] for mask in masks if mask.any()):
                    first, last = int(members.min()), int(members.max()) + 1
                    if last - first == len(members):
                        table[first:last, first:last] += value
                    else:
                        table[members[:, None], members] += value
            continue
        for rows_inside in inside if m else ():
            moved[n:] += np.add.reduce(np.where(rows_inside[:, left] & rows_inside[:, right], values, 0.0), axis=0)
    if table is not None:
        moved[n:] = table[place[left], place[right]]
    return [float(value) for value in moved]


def _places(graph: JoinGraph, parts: _Parts) -> NDArray[np.int64]:
    """By stream a place, so that sets of which any two are nested or disjoint, as those of a tree's joins are, take neighbouring places each."""
    n = len(graph)
    sets = sorted({mask for part, _ in parts for mask in part}, key=lambda mask: (-mask.bit_count(), mask))
    held = np.ascontiguousarray(_as_rows(sets, n, (n + 7) // 8).T)
    place = np.empty(n, np.int64)
    place[sorted(range(n), key=[row.tobytes() for row in held].__getitem__)] = np.arange(n)
    return place


def _as_rows(masks: list[int], n: int, width: int) -> NDArray[np.bool_]:
    """Sets as rows of booleans, one column a stream."""
    packed = np.frombuffer(b"".join(mask.to_bytes(width, "little") for mask in masks), np.uint8).reshape(len(masks), width)
    return np.unpackbits(packed, axis=1, count=n, bitorder="little").astype(np.bool_)


def _upper_ends(values: Sequence[float], total: float, moving: Sequence[float], cap: float) -> Floats:
    """For each statistic the largest value x with (total − moving) + moving · x / value ≤ cap; −1 where there is none."""
    if math.isinf(cap):
        return np.full(len(values), math.inf)
    own, moved = np.array(values), np.array(moving)
    rest = np.maximum(0.0, total - moved)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        high = own * ((cap - rest) / moved)
    if total <= cap:
        high = np.maximum(high, own)
    ends: Floats = np.where(rest > cap, -1.0, np.where(moved <= 0.0, math.inf, high))
    return ends

"""The figures of a join of many inputs in a large graph, over arrays: those of `CostModel.price_join` to the last few bits.

It prices joins a second time because step by step takes 6 times as long for 60 streams of a random graph, 14 to 20 for a chain or a star of 200, and
25 for a clique of 100 (CPU time). `tests/solvers/test_wide_join.py` holds thousands of its probes against the definition.

A join of 200 streams has 39,800 probes, and in a graph in which every stream is joined with every other each of its pipelines checks 19,900
predicates. What is asked of a step follows from where in the order its target stands: the predicates that it checks are those whose later end is
that target; the sets that hold a stream or a predicate are those from that step on. So sums over sets are sums over the ends of rows.

Guarantee: the same steps, algorithms and predicates as step by step; figures differ in their last bits, as products and sums are taken in another
order, which is the same on every machine. Complexity: O(m·(m + predicates)) for m inputs.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, repeat
from typing import Any, TypeGuard, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from models.request import Costs
from solvers.model.cost import CostModel, PricedJoin, PricedPipeline, PricedProbe, PricedState, Term
from solvers.model.graph import JoinGraph, bits
from solvers.model.operations import keeping, probing, scanning, stepping, times, total
from solvers.model.products import AT_ONCE

__all__ = ["WideProbes", "WideTerms", "are_wide", "price_wide_join", "probing_along", "sizes_along"]

Floats = NDArray[np.float64]
Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in each pipeline every input stands. Rows are pipelines."""

    blocks: tuple[int, ...]
    owner: NDArray[np.int64]
    """By stream the input that it belongs to; −1 where it belongs to none."""
    targets: NDArray[np.int64]
    """By step the input that is probed."""
    places: NDArray[np.int64]
    """By input how many others were visited before it is: 0 for the pipeline's own."""
    across: NDArray[np.int64]
    """The predicates between two inputs, in the order of the query."""
    steps: NDArray[np.uint8]
    """By predicate across the place of its later end: the step that checks it."""
    inside: NDArray[np.int64]
    """The predicates inside one input."""
    around: NDArray[np.int64]
    """For each of them that input."""
    checked: NDArray[np.unsignedinteger[Any]]
    """By pipeline the predicates across, as places in `across`, in the order in which it checks them. Of a clique of 200 streams these are four
    million, so they are as narrow as they can be."""
    starts: NDArray[np.int64]
    """By pipeline and step where in `checked` its predicates begin."""
    alike: tuple[tuple[int, int, int], ...]
    """See `_alike`."""

    @classmethod
    def of(cls, graph: JoinGraph, blocks: Sequence[int], orders: Sequence[Sequence[int]]) -> Layout:
        m = len(blocks)
        owner = np.full(len(graph), -1, np.int64)
        for k, block in enumerate(blocks):
            owner[list(bits(block))] = k
        targets = np.array(orders, np.int64)
        places = np.zeros((m, m), np.int64)
        np.put_along_axis(places, targets, np.arange(1, m)[None, :], axis=1)
        columns = graph.columns
        left, right = owner[columns.left], owner[columns.right]
        across = ((left != right) & (left >= 0) & (right >= 0)).nonzero()[0]
        inside = ((left == right) & (left >= 0)).nonzero()[0]
        narrow = places.astype(np.uint8)
        ends = left[across], right[across]
        steps = np.empty((m, len(across)), np.uint8)
        for places_of_one, row in zip(narrow, steps, strict=True):
            np.maximum(places_of_one.take(ends[0]), places_of_one.take(ends[1]), out=row)
        checked = np.empty(steps.shape, np.uint16 if len(across) <= np.iinfo(np.uint16).max else np.uint32)
        starts, each = np.zeros((m, m - 1), np.int64), np.arange(1, m, dtype=np.uint8)
        alike = _alike(targets)
        for k, other, own in alike:
            row = steps[k]
            first = (row <= own).nonzero()[0]
            reached = row[first]
            order = reached.argsort(kind="stable")
            checked[k, : len(first)], checked[k, len(first) :] = first[order], checked[other, len(first) :]
            starts[k, :own], starts[k, own:] = reached[order].searchsorted(each[:own]), starts[other, own:]
        return cls(tuple(blocks), owner, targets, places, across, steps, inside, left[inside], checked, starts, alike)

    def most_and_fewest(self) -> tuple[int, int]:
        """Predicates that any step checks."""
        counts = np.diff(self.starts, append=len(self.across))
        return int(counts.max()), int(counts.min())


def _alike(targets: NDArray[np.int64]) -> tuple[tuple[int, int, int], ...]:
    """(a pipeline, one that stands earlier in this list, how many steps only the first of the two takes), every pipeline once: the first with itself
    and all of its steps.

    The steps after those are the same in both, predicates and sizes included: whose last steps have the same targets has visited the same before
    them. Of a clique of 200 streams that is more than a third of the predicates.
    """
    backwards = np.ascontiguousarray(targets[:, ::-1].astype(np.uint8))
    ranked = sorted(range(len(targets)), key=[row.tobytes() for row in backwards].__getitem__)
    differs = backwards[ranked[1:]] != backwards[ranked[:-1]]
    own = targets.shape[1] - differs.argmax(axis=1)
    return (ranked[0], ranked[0], targets.shape[1]), *zip(ranked[1:], ranked[:-1], own.tolist(), strict=True)


class _Listed(Sequence[Part]):
    """A sequence whose parts are made one by one, which takes long, when one of them is first asked
    for. Most of the joins that are priced are never asked."""

    _listed: tuple[Part, ...] | None = None

    @abstractmethod
    def _made(self) -> Iterator[Part]: ...

    @overload
    def __getitem__(self, index: int) -> Part: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Part]: ...
    def __getitem__(self, index: int | slice) -> Part | Sequence[Part]:
        if self._listed is None:
            self._listed = tuple(self._made())
        return self._listed[index]

    def __iter__(self) -> Iterator[Part]:
        return iter(self[:])


class WideTerms(_Listed[Term]):
    """The terms of a wide join as arrays: a row per pipeline, a column per step."""

    def __init__(self, layout: Layout, hashed: NDArray[np.bool_], values: tuple[Floats, Floats, Floats], kept: Floats, steps: float) -> None:
        self.layout, self.hashed, self.kept, self.steps = layout, hashed, kept, steps
        self.probing, self.joining, self.scanning = values
        self._by_degree: dict[tuple[int, tuple[float, ...]], list[tuple[int, float]]] = {}

    def __len__(self) -> int:
        return sum(int(np.count_nonzero(values)) for values in (self.probing, self.joining, self.scanning, self.kept, self.steps))

    def _made(self) -> Iterator[Term]:
        return (term for term in self._each() if term.value)

    def _each(self) -> Iterator[Term]:
        blocks = self.layout.blocks
        for k, targets in enumerate(self.layout.targets.tolist()):
            visited = blocks[k]
            for target, probed, joined, scanned in zip(
                targets, self.probing[k].tolist(), self.joining[k].tolist(), self.scanning[k].tolist(), strict=True
            ):
                made = visited | blocks[target]
                yield Term(probed, visited, blocks[k])
                yield Term(joined, made, blocks[k])
                yield Term(scanned, visited, blocks[k], blocks[target])
                visited = made
        for block, value in zip(blocks, self.kept.tolist(), strict=True):
            yield Term(value, block, block)
        yield Term(self.steps, 0, 0)

    def totals(self) -> Floats:
        """By input the sum of what its arrivals cost: keeping them and all their probes. Added one after the other, which is the same everywhere."""
        return np.cumsum(np.column_stack([self.probing, self.joining, self.scanning, self.kept]), axis=1)[:, -1]

    def by_degree(self, rows: int, shares: Sequence[float]) -> list[tuple[int, float]]:
        """(degree, sum of values): a term is proportional to that power of a common factor on all rates. `shares`: by input how much of its
        arrivals windows of `rows` make up, which rise by one power more. Worked out once: the objective, shortfall and plan ask for it."""
        key = rows, tuple(shares)
        if key not in self._by_degree:
            self._by_degree[key] = self._summed_by_degree(rows, shares)
        return self._by_degree[key]

    def _summed_by_degree(self, rows: int, shares: Sequence[float]) -> list[tuple[int, float]]:
        layout = self.layout
        counts = np.array([(block & ~rows).bit_count() for block in layout.blocks])
        after = counts[:, None] + np.cumsum(counts[layout.targets], axis=1)
        before = after - counts[layout.targets]
        degrees = np.concatenate([before.ravel(), after.ravel(), after.ravel(), counts])
        steps = layout.targets.shape[1]
        by_rows = np.array(shares)
        share = np.concatenate([*(np.repeat(by_rows, steps) for _ in range(3)), by_rows])
        values = np.concatenate([self.probing.ravel(), self.joining.ravel(), self.scanning.ravel(), self.kept])
        found = [*_summed(degrees, values - values * share), (0, self.steps)]
        return [*found, *_summed(degrees + 1, values * share)] if by_rows.any() else found

    def moved(self, rows: int, m: int) -> Floats:
        """For each stream, then for each of the first m predicates, the sum of the values that are proportional to its rate or selectivity."""
        layout = self.layout
        made = np.zeros(layout.places.shape)  # by how many inputs have been visited, values that are proportional to the size of that join
        made[:, :-1] += self.probing
        made[:, :-1] += self.scanning
        made[:, 1:] += self.joining
        onwards = np.cumsum(made[:, ::-1], axis=1)[:, ::-1]
        by_block = np.add.reduce(np.take_along_axis(onwards, layout.places, axis=1), axis=0) + self.kept
        by_block += np.bincount(layout.targets.ravel(), weights=self.scanning.ravel(), minlength=len(by_block))
        n = len(layout.owner)
        moved = np.zeros(n + m)
        counted = np.array([not rows >> i & 1 for i in range(n)]) & (layout.owner >= 0)
        moved[:n][counted] = by_block[layout.owner[counted]]
        if m:
            across = layout.across < m
            moved[n + layout.across[across]] = np.add.reduce(np.take_along_axis(onwards, layout.steps[:, across].astype(np.int64), axis=1), axis=0)
            inside = layout.inside < m
            moved[n + layout.inside[inside]] = by_block[layout.around[inside]]
        return moved


def _summed(degrees: NDArray[np.int64], values: Floats) -> list[tuple[int, float]]:
    """The exact sum of the values of each degree."""
    order = degrees.astype(np.uint16).argsort(kind="stable")  # of small numbers a sort that looks at digits
    ends = np.cumsum(np.bincount(degrees)).tolist()
    listed = values[order].tolist()
    return [(degree, math.fsum(listed[start:end])) for degree, (start, end) in enumerate(pairwise([0, *ends])) if start < end]


def sizes_along(graph: JoinGraph, layout: Layout) -> Floats:
    """The size of what a tuple of each input has visited before its first probe and after every one of them.

    Mantissas and exponents are multiplied apart, as in `graph.product`. After the last probe all have visited the same, so it has one size.
    """
    own, own_exponents = np.frexp(np.array([graph.size(block) for block in layout.blocks]))
    selectivity, exponents = np.frexp(graph.columns.selectivity[layout.across])
    m = len(layout.blocks)
    mantissas, powers = np.empty((m, m)), np.empty((m, m), np.int64)
    mantissas[:, 0], powers[:, 0] = own, own_exponents
    for k, other, steps in layout.alike:
        starts, targets = layout.starts[k, :steps], layout.targets[k, :steps]
        checked = layout.checked[k, : layout.starts[k, steps] if steps < m - 1 else None]
        grown, carried = np.frexp(np.multiply.reduceat(selectivity.take(checked), starts))
        mantissas[k, 1 : steps + 1], mantissas[k, steps + 1 :] = grown * own[targets], mantissas[other, steps + 1 :]
        powers[k, 1 : steps + 1] = carried + np.add.reduceat(exponents.take(checked), starts) + own_exponents[targets]
        powers[k, steps + 1 :] = powers[other, steps + 1 :]
    mantissas, carried = np.frexp(np.multiply.accumulate(mantissas, axis=1))
    with np.errstate(over="ignore", under="ignore"):
        sizes: Floats = np.ldexp(mantissas, np.clip(np.cumsum(powers, axis=1) + carried, -3000, 3000).astype(np.int32))
    sizes[:, -1] = sizes[0, -1]
    return sizes


def probing_along(graph: JoinGraph, costs: Costs, terms: WideTerms, sizes: dict[int, float]) -> list[float]:
    """For each input what all probes of one of its live tuples cost in this graph. `sizes` takes up those of the inputs and of the join."""
    layout = terms.layout
    visited = sizes_along(graph, layout)
    sizes.update(zip(layout.blocks, visited[:, 0].tolist(), strict=True))
    sizes[sum(layout.blocks)] = float(visited[0, -1])
    size = visited[:, 0][layout.targets]
    per_tuple = np.where(terms.hashed, probing(costs, True, size), probing(costs, False, size))
    before = np.where(per_tuple == 0.0, 0.0, per_tuple * visited[:, :-1])
    after = np.broadcast_to(times(costs.join, visited[:, 1:]), before.shape)
    return [math.fsum([*a, *b]) for a, b in zip(before.tolist(), after.tolist(), strict=True)]


def layout_of(graph: JoinGraph, blocks: Sequence[int], orders: Sequence[Sequence[int]]) -> Layout | None:
    """The layout of a wide join; None where a step checks no predicate, or more than can be multiplied at once."""
    layout = Layout.of(graph, blocks, orders)
    most, fewest = layout.most_and_fewest()
    return layout if fewest > 0 and most <= AT_ONCE else None


def are_wide(terms: Sequence[Term]) -> TypeGuard[WideTerms]:
    """Whether a join's terms are arrays. Whether something is a `WideTerms`, which is an abstract class's, takes ten times as long to find out."""
    return not isinstance(terms, tuple)


def price_wide_join(model: CostModel, blocks: Sequence[int], orders: Sequence[Sequence[int]], sizes: dict[int, float]) -> PricedJoin | None:
    """The figures of a join of many inputs; None where it has to be priced step by step."""
    graph, costs = model.graph, model.costs
    layout = layout_of(graph, blocks, orders)
    if layout is None:
        return None
    m = len(blocks)
    visited = sizes_along(graph, layout)
    sizes.update(zip(blocks, visited[:, 0].tolist(), strict=True))
    sizes[sum(blocks)] = float(visited[0, -1])
    rates = [model.rate(block) for block in blocks]
    with np.errstate(over="ignore", invalid="ignore"):
        produced = visited[:, 1:] * np.array([model.per_second(block) for block in blocks])[:, None]
        arriving = np.column_stack([np.array(rates), produced[:, :-1]])
        hashed = _hashed(graph, layout)
        probed = np.broadcast_to(times(costs.probe, arriving), hashed.shape)
        joined = np.broadcast_to(times(costs.join, produced), hashed.shape)
        scanned = np.where(hashed, 0.0, scanning(costs, False, arriving, visited[:, 0][layout.targets]))
        cpu = probed + joined + scanned
    indexed = np.bincount(layout.targets[hashed], minlength=m) > 0
    kept = [keeping(costs, index, rate) for index, rate in zip(indexed.tolist(), rates, strict=True)]
    figures = _Figures(layout, hashed, arriving, produced, cpu)
    steps = stepping(costs, layout.targets.size)
    values = np.concatenate([probed.ravel(), joined.ravel(), scanned.ravel(), np.array([*kept, steps])])
    cpu_of_all = total(values[values != 0.0].tolist())
    return PricedJoin(
        tuple(blocks),
        tuple(tuple(order) for order in orders),
        tuple(PricedState(index, value) for index, value in zip(indexed.tolist(), kept, strict=True)),
        tuple(PricedPipeline(WideProbes(figures, k)) for k in range(m)),
        cpu_of_all,
        WideTerms(layout, hashed, (probed, joined, scanned), np.array(kept), steps),
        (cpu_of_all,),
        steps,
    )


def _hashed(graph: JoinGraph, layout: Layout) -> NDArray[np.bool_]:
    """By step whether one of the predicates that it checks is an equality."""
    equality = graph.columns.equality[layout.across]
    if equality.all():
        return np.ones(layout.targets.shape, np.bool_)
    return np.array([np.logical_or.reduceat(equality[checked], starts) for checked, starts in zip(layout.checked, layout.starts, strict=True)])


@dataclass(frozen=True)
class _Figures:
    """What is known of the steps of a wide join: a row per pipeline, a column per step."""

    layout: Layout
    hashed: NDArray[np.bool_]
    arriving: Floats
    produced: Floats
    cpu: Floats

    @cached_property
    def predicates(self) -> list[list[list[int]]]:
        """By pipeline and step the predicates that it checks, in the order of the query: pipelines that have a step in common share its list."""
        layout = self.layout
        numbers = layout.across.astype(object)  # one object each: a clique's steps list each of its predicates 200 times
        found: list[list[list[int]]] = [[] for _ in layout.blocks]
        for k, other, own in layout.alike:
            starts = [*layout.starts[k].tolist(), len(layout.across)][: own + 1]
            listed = numbers.take(layout.checked[k, : starts[-1]]).tolist()
            found[k] = [listed[start:end] for start, end in pairwise(starts)] + found[other][own:]
        return found

    def steps(self, k: int) -> Iterator[tuple[Any, ...]]:
        """The fields of every probe of pipeline k, with the predicates that it checks."""
        columns = [values[k].tolist() for values in (self.layout.targets, self.hashed, self.arriving, self.produced, self.cpu)]
        return zip(*columns, self.predicates[k], repeat(False))


class WideProbes(_Listed[PricedProbe]):
    """The probes of one pipeline of a wide join."""

    def __init__(self, figures: _Figures, k: int) -> None:
        self._figures, self._k = figures, k

    def __len__(self) -> int:
        return int(self._figures.layout.targets.shape[1])

    def _made(self) -> Iterator[PricedProbe]:
        return (PricedProbe._make((*probe[:5], tuple(probe[5]), probe[6])) for probe in self._figures.steps(self._k))

    def fields(self) -> Iterator[tuple[Any, ...]]:
        """The fields of every probe in the order of `PricedProbe`, for those who need no more. Probes of several pipelines may share a list of
        predicates."""
        return self._figures.steps(self._k)

    def sum_of_all(self) -> float:
        """Of the figures of all probes: finite where all of them are, unless it overflows itself."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(sum(values[self._k].sum() for values in (self._figures.arriving, self._figures.produced, self._figures.cpu)))

    def cpu(self) -> float:
        """Of all probes."""
        return math.fsum(self._figures.cpu[self._k].tolist())

"""What are the statistics of these rows? A query with measured rates, bytes, distinct values and selectivities (contract §6, `watersmeet profile`).

The steps: rates and bytes of each stream; the selectivity of each predicate on its own; then sets of streams, from small to large, and
those whose selectivity the smaller ones do not predict are `observed`: their predicates are not independent. Sets of three are
looked at wherever two predicates meet; larger ones where two observed sets overlap, since of those only one can stand in (contract §2).
Everything has an interval of confidence, and what the sample does not show is said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from models.request import LEAST_SELECTIVITY, Comparison, Observed, Predicate, Query, Stream
from solvers.common.errors import MethodError
from solvers.model.graph import join_graph
from solvers.model.products import product
from solvers.profiling.confidence import Figure, of_rate, of_selectivity
from solvers.profiling.results import Joins
from solvers.profiling.sample import SECOND, Rows, Sample

__all__ = ["Profile", "profile"]

FEW = 100  # matches below which a selectivity is said to be uncertain
DEPENDENT = 0.1  # by how much the logarithm of a set's σ has to be off what smaller sets predict
CHANCE = 3.0  # and by how many standard errors
MOST_SETS = 400  # that are looked at
LARGEST = 6  # streams of a set that is looked at
INSTANTS = 8  # at which the distinct values of a window are counted

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Profile:
    """A query with what was measured, how sure it is, and what could not be measured."""

    query: Query
    rates: dict[str, Figure] = field(default_factory=dict)
    selectivities: list[Figure] = field(default_factory=list)
    observed: list[Figure] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def profile(query: Query, sample: Sample, tell: Tell = lambda step, share: None) -> Profile:
    """The query with the sample's statistics. `tell` is told what is being done and how far that is, from 0 to 1."""
    if query.tables:
        raise MethodError(
            f"profile measures streams alone, and the query has tables: {', '.join(table.name for table in query.tables)}", "/query/tables"
        )
    return _Measuring(query, sample, tell).profile()


class _Measuring:
    def __init__(self, query: Query, sample: Sample, tell: Tell) -> None:
        self.query, self.sample, self.tell = query, sample, tell
        self.warnings: list[str] = []
        self.rates = {stream.name: self._rate(stream.name) for stream in query.streams}
        self.windows = {stream.name: self._window(stream) for stream in query.streams}
        self.joins = Joins(sample, self.windows)

    def profile(self) -> Profile:
        streams = [self._stream(stream) for stream in self.query.streams]
        figures = []
        for k, predicate in enumerate(self.query.predicates):
            self.tell(f"{predicate.left} {predicate.op.value} {predicate.right}", k / len(self.query.predicates))
            figures.append(self._selectivity(predicate))
        alone = [p.model_copy(update={"selectivity": _share(f.value)}) for p, f in zip(self.query.predicates, figures, strict=True)]
        query = Query(streams=streams, predicates=alone)
        observed = self._observed(query, figures)
        query = Query(streams=streams, predicates=alone, observed=[one for one, _ in observed])
        return Profile(query, self.rates, figures, [figure for _, figure in observed], self.warnings)

    def _rate(self, name: str) -> Figure:
        rows = self.sample.streams[name]
        return of_rate(rows.ts, self.sample.start, self.sample.end, rows.in_stretch, self.sample.seconds)

    def _window(self, stream: Stream) -> int:
        """In microseconds; a window of rows has the length that it has at the stream's rate."""
        seconds = stream.window.seconds
        if seconds is None:
            seconds = (stream.window.rows or 1) / max(self.rates[stream.name].value, 1.0 / self.sample.seconds)
        return round(seconds * SECOND)

    def _stream(self, stream: Stream) -> Stream:
        rows = self.sample.streams[stream.name]
        found = {"tuple_bytes": rows.tuple_bytes, "distinct": self._distinct(stream.name, rows), "skew": {}}
        if rows.in_stretch:
            found["rate"] = self.rates[stream.name].value
        else:
            self.warnings.append(f"{stream.name} has no row in the stretch: its rate is not measured, and stays {stream.rate:g} a second")
        return Stream.model_validate(stream.model_dump(mode="json", exclude_none=True) | found)

    def _distinct(self, name: str, rows: Rows) -> dict[str, float]:
        """Values in a window, on average, of the attributes that equalities compare."""
        found = {}
        window = min(self.windows[name], self.sample.end - int(rows.ts[0])) if len(rows.ts) else 0
        if window < self.windows[name]:
            reach, seconds = window / SECOND, self.windows[name] / SECOND
            self.warnings.append(
                f"{name}: distinct values are those of {reach:g} s, as far as the source reaches back, not of a window of {seconds:g} s"
            )
        for attribute, codes in rows.codes.items():
            by_it = self.sample.by is not None and self.sample.by.attributes.get(name) == attribute
            if rows.share < 1.0 and not by_it:
                self.warnings.append(f"{name}.{attribute}: distinct values are not measured, because rows were sampled by another key")
            elif len(rows.ts):
                ends = np.linspace(max(self.sample.start, int(rows.ts[0]) + window), self.sample.end, INSTANTS)
                spans = [np.searchsorted(rows.ts, [end - window, end]) for end in ends]
                counts = [len(np.unique(codes[begin:end])) for begin, end in spans]
                found[attribute] = max(1.0, float(np.mean(counts)) / (self.sample.by.share if by_it and self.sample.by else 1.0))
        return found

    def _selectivity(self, predicate: Predicate) -> Figure:
        streams = sorted({side.split(".", 1)[0] for side in (predicate.left, predicate.right)})
        counted = self.joins.counted(streams, [predicate])
        said = f"{predicate.left} {predicate.op.value} {predicate.right}"
        if not counted.combinations.sum():
            self.warnings.append(f"{said}: no two rows were within their windows, so its selectivity is not measured, and taken as 1")
            return Figure(1.0, math.inf)
        if counted.matches < FEW:
            self.warnings.append(f"{said}: {counted.matches:.0f} matches were seen, so its selectivity is uncertain; read more with --seconds")
        return of_selectivity(counted, self._correction(streams, [predicate]))

    def _correction(self, streams: Sequence[str], predicates: Sequence[Predicate]) -> float:
        """What a sample of keys does to results over combinations: of streams that are joined by the sampled key one share of the results is
        left, of the combinations one share for each of them."""
        if self.sample.by is None:
            return 1.0
        attributes = self.sample.by.attributes
        groups = {name: {name} for name in streams if name in attributes}
        for predicate in predicates:
            (left, a), (right, b) = (side.split(".", 1) for side in (predicate.left, predicate.right))
            if predicate.op is Comparison.EQ and attributes.get(left) == a and attributes.get(right) == b and left in groups and right in groups:
                joined = groups[left] | groups[right]
                for name in joined:
                    groups[name] = joined
        kept = len({frozenset(group) for group in groups.values()})
        return product([self.sample.streams[name].share for name in groups]) / self.sample.by.share**kept

    def _observed(self, query: Query, figures: Sequence[Figure]) -> list[tuple[Observed, Figure]]:
        """Sets whose selectivity is not what smaller ones predict, in the order in which they were found."""
        found: dict[frozenset[str], tuple[Observed, Figure]] = {}
        looked = 0
        for size in range(2, min(LARGEST, len(query.streams)) + 1):
            wanted = list(_of_predicates(query, size)) if size <= 3 else list(_overlapping(list(found), size))
            graph = join_graph(Query(streams=query.streams, predicates=query.predicates, observed=[one for one, _ in found.values()]))
            place = {name: 1 << i for i, name in enumerate(graph.names)}
            for k, names in enumerate(wanted):
                if looked == MOST_SETS:
                    self.warnings.append(f"only {MOST_SETS} sets of streams were looked at for predicates that are not independent")
                    return list(found.values())
                looked += 1
                self.tell(f"{'⋈'.join(sorted(names))}", k / len(wanted))
                inside = [p for p in query.predicates if {side.split(".", 1)[0] for side in (p.left, p.right)} <= names]
                stand_ins, left_over = graph.factors(sum(place[name] for name in names))
                predicted = product([value for _, value in stand_ins] + [figures[p].value for p in left_over])
                known = {sum(place[name] for name in one.streams): figure for one, figure in found.values()}
                parts = [figures[p].relative for p in left_over] + [known[mask].relative for mask, _ in stand_ins]
                counted = self.joins.counted(sorted(names), inside)
                figure = of_selectivity(counted, self._correction(sorted(names), inside))
                if _off(figure, predicted, parts, counted.matches):
                    found[names] = (Observed(streams=sorted(names), selectivity=min(1.0, figure.value)), figure)
        return list(found.values())


def _share(value: float) -> float:
    return min(1.0, max(value, LEAST_SELECTIVITY))


def _off(figure: Figure, predicted: float, parts: Sequence[float], matches: float) -> bool:
    """Whether it differs from what was predicted by more than chance."""
    errors = math.sqrt(sum(error**2 for error in (figure.relative, *parts)))
    if not math.isfinite(errors) or not predicted:
        return False
    if not matches:
        return figure.high < predicted * math.exp(-DEPENDENT)
    return abs(math.log(figure.value / predicted)) > max(DEPENDENT, CHANCE * errors)


def _of_predicates(query: Query, size: int) -> Iterator[frozenset[str]]:
    """Sets of two streams with several predicates; sets of three with two predicates that meet in a stream."""
    pairs = [frozenset(side.split(".", 1)[0] for side in (p.left, p.right)) for p in query.predicates]
    met = [one | other for one, other in combinations(pairs, 2) if one & other]
    yield from dict.fromkeys(names for names in met if len(names) == size)


def _overlapping(found: Sequence[frozenset[str]], size: int) -> Iterator[frozenset[str]]:
    met = [one | other for one, other in combinations(found, 2) if one & other]
    yield from dict.fromkeys(names for names in met if len(names) == size)

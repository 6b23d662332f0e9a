"""Rates, selectivities, bytes and distinct values from what the last batches counted: the terms of a request.

The problem: a plan that runs measures steps, a planner asks for predicates. What each figure is and where it comes from:

- Rates are rows per second of event time, by each stream's own clock.
- The selectivity of a step is its matches over the pairs that were within their windows, which does not depend on rates, on how full the
  windows were, or on the length of batches. Steps between the same two sets of streams are added up, whatever plans they belonged to; where
  a cache answers the step, a few rows are sent through it to see, and count as many times as rows arrived for each of them. With
  σ of one stream 1, a step from A to B says σ(A ∪ B) = σ(A)·σ(B)·selectivity: that is what `observed` takes; where several steps make the
  same set, each counts by the pairs it saw.
- A predicate that some step checks alone has that step's selectivity (`counted`, or `sampled` where a cache answers all such steps); of several
  steps each counts by the pairs that were looked at, so that what is known by few rows does not blur what is known by many.
- Others are checked together only: cyclic graphs, several predicates between two streams, kept subresults. Their logarithms are the
  solution of the least squares, over the steps that check them, of log selectivity = Σ log s_p, a step weighed by the square root of its
  matches; where that leaves a choice, the one nearest to what the plan was made with (`fitted`). So if two predicates are only ever seen
  together and twice as many pairs match as before, each is taken to be √2 times what it was.
- A predicate that no step checked is not in the answer.

Where nothing matched, half a match is assumed: the selectivity is below one in so many pairs, and not 0. Complexity: linear in steps and
periods, and one least-squares problem of as many unknowns as there are predicates that are never alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from models.request import Query
from spark_adapter.stem.skew import Frequent

__all__ = ["Period", "estimates", "longest_window", "recent"]

PERIODS = 128  # held at most: beyond, neighbours become one, and what is forgotten goes in larger steps
NO_MATCH = 0.5  # what is assumed where nothing matched

Names = frozenset[str]
Pair = tuple[Names, Names]


@dataclass(slots=True)
class _Arrived:
    rows: int = 0
    kept: int = 0
    """Rows that were not shed: those that `bytes` are of."""
    bytes: int = 0
    first: int | None = None
    last: int | None = None

    def add(self, other: _Arrived) -> None:
        self.rows += other.rows
        self.kept += other.kept
        self.bytes += other.bytes
        if other.first is not None and other.last is not None:
            self.first = other.first if self.first is None else min(self.first, other.first)
            self.last = other.last if self.last is None else max(self.last, other.last)


@dataclass(slots=True)
class _Met:
    """Pairs that met at steps between the same two sets of streams."""

    pairs: float = 0.0
    matched: float = 0.0
    looked: float = 0.0
    """Those of the pairs that were looked at; they stand for all."""
    variance: float = 0.0
    """Of `matched`, by chance."""
    counted: bool = False
    """Whether all pairs of some step were looked at."""

    def add(self, other: _Met) -> None:
        self.pairs += other.pairs
        self.matched += other.matched
        self.looked += other.looked
        self.variance += other.variance
        self.counted |= other.counted

    @property
    def _share(self) -> float:
        """Matches over their variance, which is 1 where all pairs were looked at, and less the more of them stand for others; without matches, the
        share of the pairs that were looked at."""
        return self.matched / self.variance if self.variance > 0.0 else self.looked / self.pairs

    @property
    def seen(self) -> float:
        """The number of matches that would say as much, had all pairs been looked at."""
        return self.matched * self._share

    @property
    def as_looked(self) -> _Met:
        """The same selectivity from fewer pairs: as many as would say as much, had all been looked at."""
        return _Met(self.pairs * self._share, self.seen, self.pairs * self._share, self.seen, self.counted)

    @property
    def selectivity(self) -> float:
        return min(1.0, max(self.matched / self.pairs, NO_MATCH / self.looked))


@dataclass(slots=True)
class Period:
    """What was counted in one batch, or in several."""

    streams: dict[str, _Arrived] = field(default_factory=dict)
    met: dict[Pair, _Met] = field(default_factory=dict)
    results: int = 0
    cpu: float = 0.0
    plan: int | None = None
    """The number of the plan that made the results; None where it was one and then another, or something was being built for the next."""
    frequent: Frequent = field(default_factory=Frequent)
    """The most frequent values of attributes."""
    held: Mapping[str, Any] = field(default_factory=dict)
    """As it is at the end: states, caches and distinct values."""

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> Period:
        """From a line of the statistics."""
        plan = None if line["building"] else line["plan"]
        period = cls(results=line["results"], cpu=math.fsum(line["cpu_seconds"].values()), plan=plan)
        for seen in line["streams"]:
            period.streams[seen["stream"]] = _Arrived(seen["rows"], seen["rows"] - seen["shed"], seen["bytes"], seen["first"], seen["last"])
        for step in line["steps"]:
            if step["pairs"] > 0:
                place = frozenset(step["arriving"]), frozenset(step["joined"])
                met = _Met(step["pairs"], step["matched"], step["looked"], step["variance"], not step["sampled"])
                period.met.setdefault(place, _Met()).add(met)
        period.held = {name: line.get(name, {}) for name in ("states", "caches", "distinct")}
        period.frequent = Frequent(line.get("frequent"))
        return period

    @property
    def last(self) -> int | None:
        """The latest event time."""
        return max((seen.last for seen in self.streams.values() if seen.last is not None), default=None)

    def add(self, later: Period) -> None:
        self.plan = later.plan if later.plan == self.plan or not self.streams else None
        for name, seen in later.streams.items():
            self.streams.setdefault(name, _Arrived()).add(seen)
        for place, met in later.met.items():
            self.met.setdefault(place, _Met()).add(met)
        self.frequent.add_all(later.frequent)
        self.results += later.results
        self.cpu += later.cpu
        self.held = later.held or self.held


def longest_window(query: Query, rates: Mapping[str, float] | None = None) -> float:
    """In seconds; a window of rows by the rate that was measured, or else by the query's."""
    measured = rates or {}
    return max(
        (stream.window.rows or 0) / measured.get(f"{stream.name}.rate", stream.rate) if stream.window.seconds is None else stream.window.seconds
        for stream in query.streams
    )


def recent(periods: Sequence[Period], seconds: float) -> list[Period]:
    """Those with rows of the last `seconds` of event time, and what came after; always the newest. At most PERIODS of them."""
    newest = max((last for period in periods if (last := period.last) is not None), default=None)
    if newest is None:
        return list(periods[-PERIODS:])
    start = next(k for k, period in enumerate(periods) if (last := period.last) is not None and last >= newest - 1e6 * seconds)
    kept = list(periods[start:])
    if len(kept) <= PERIODS:
        return kept
    return [_together(kept[k : k + 2]) for k in range(0, len(kept), 2)]


def _together(periods: Iterable[Period]) -> Period:
    whole = Period()
    for period in periods:
        whole.add(period)
    return whole


def estimates(query: Query, periods: Sequence[Period]) -> dict[str, Any]:
    """What these periods, in their order, say of the query.

    `how` says where each selectivity comes from, `counts` how many rows or matches a figure is made of.
    """
    whole = _together(periods)
    met = whole.met
    selectivities, how, matches = _predicates(query, met)
    seconds = _seconds(whole)
    widths = {relation.name: relation.tuple_bytes for relation in query.relations}
    measured_widths = {name: seen.bytes / seen.kept for name, seen in sorted(whole.streams.items()) if seen.kept and seen.bytes}
    return {
        "seconds": seconds,
        "rates": _rates(query, whole, seconds),
        "tuple_bytes": {f"{name}.tuple_bytes": width for name, width in measured_widths.items()},
        "distinct": dict(whole.held.get("distinct") or {}),
        "skew": whole.frequent.shares({name: seen.rows for name, seen in whole.streams.items()}),
        "selectivities": {f"predicates[{p}].selectivity": selectivities[p] for p in sorted(selectivities)},
        "how": {f"predicates[{p}].selectivity": how[p] for p in sorted(how)},
        "counts": {f"{name}.rate": seen.rows for name, seen in sorted(whole.streams.items())}
        | {f"predicates[{p}].selectivity": matches[p] for p in sorted(matches)},
        "observed": _observed(query, met),
        **_of_the_plan(periods),
        "memory_bytes": _held_bytes(whole.held, widths | measured_widths),
    }


def _of_the_plan(periods: Sequence[Period]) -> dict[str, float | None]:
    """Results and CPU seconds of the operator per second of event time, under the plan that runs now."""
    start = len(periods)
    while start and periods[start - 1].plan is not None and periods[start - 1].plan == periods[-1].plan:
        start -= 1
    under = _together(periods[start:])
    before = max((last for period in periods[:start] if (last := period.last) is not None), default=None)
    seconds = _seconds(under) if before is None or under.last is None else (under.last - before) / 1e6
    return {"output_rate": under.results / seconds, "cpu": under.cpu / seconds} if seconds > 0 else {"output_rate": None, "cpu": None}


def _seconds(whole: Period) -> float:
    """Of event time, from the first row of any stream to the last."""
    first = min((seen.first for seen in whole.streams.values() if seen.first is not None), default=None)
    return 0.0 if first is None or whole.last is None else (whole.last - first) / 1e6


def _rates(query: Query, whole: Period, seconds: float) -> dict[str, float]:
    """The first row starts a stream's clock and is not counted. A stream that was silent for all of its window counts as one row in that time."""
    found = {}
    for stream in sorted(query.streams, key=lambda stream: stream.name):
        seen = whole.streams.get(stream.name, _Arrived())
        if seen.first is not None and seen.last is not None and seen.last > seen.first and seen.rows > 1:
            found[f"{stream.name}.rate"] = (seen.rows - 1) * 1e6 / (seen.last - seen.first)
        elif stream.window.seconds is not None and seconds >= stream.window.seconds:
            found[f"{stream.name}.rate"] = 1.0 / seconds
    return found


def _held_bytes(held: Mapping[str, Any], widths: Mapping[str, float]) -> float:
    """States and caches in the plan's measure, rows times bytes: copies that a grid makes are not counted."""
    states = [state["rows"] * math.fsum(widths[name] for name in state["streams"]) for state in held.get("states") or ()]
    return math.fsum([*states, *(cache["bytes"] for cache in held.get("caches") or ())])


def _between(query: Query, left: Names, right: Names) -> list[int]:
    """The predicates that a step from one set to the other checks."""
    found = []
    for p, predicate in enumerate(query.predicates):
        a, b = (side.split(".", 1)[0] for side in (predicate.left, predicate.right))
        if (a in left and b in right) or (b in left and a in right):
            found.append(p)
    return found


def _predicates(query: Query, met: Mapping[Pair, _Met]) -> tuple[dict[int, float], dict[int, str], dict[int, float]]:
    """Per predicate its selectivity, how that was found, and how many matches it is known by."""
    checked = {place: _between(query, *place) for place in met}
    alone: dict[int, _Met] = {}
    for place, seen in met.items():
        if len(checked[place]) == 1:
            alone.setdefault(checked[place][0], _Met()).add(seen.as_looked)
    found = {p: seen.selectivity for p, seen in alone.items()}
    how = {p: "counted" if seen.counted else "sampled" for p, seen in alone.items()}
    matches = {p: seen.seen for p, seen in alone.items()}
    together = [(checked[place], seen) for place, seen in met.items() if len(checked[place]) > 1]
    unknown = sorted({p for predicates, _ in together for p in predicates if p not in found})
    if unknown:
        found |= _fitted(query, together, found, unknown)
        how |= dict.fromkeys(unknown, "fitted")
        matches |= {p: math.fsum(seen.seen for predicates, seen in together if p in predicates) for p in unknown}
    return found, how, matches


def _fitted(query: Query, together: Sequence[tuple[Sequence[int], _Met]], known: Mapping[int, float], unknown: Sequence[int]) -> dict[int, float]:
    column = {p: k for k, p in enumerate(unknown)}
    before = np.array([math.log(query.predicates[p].selectivity or 1.0) for p in unknown])
    rows, sides = [], []
    for predicates, seen in together:
        row = np.zeros(len(unknown))
        for p in predicates:
            if p in column:
                row[column[p]] = 1.0
        rest = math.log(seen.selectivity) - math.fsum(math.log(known[p]) for p in predicates if p in known)
        weight = math.sqrt(max(seen.seen, NO_MATCH))
        rows.append(weight * row)
        sides.append(weight * (rest - float(row @ before)))
    # Of all solutions the one with the least length: here the length of the step away from what was known before.
    moved, *_ = np.linalg.lstsq(np.array(rows), np.array(sides), rcond=None)
    return {p: min(1.0, math.exp(float(before[k] + moved[k]))) for p, k in column.items()}


def _observed(query: Query, met: Mapping[Pair, _Met]) -> list[dict[str, Any]]:
    """σ of every set that steps made, from the small to the large, with the least number of matches that any step on the way had."""
    sigma: dict[Names, tuple[float, float]] = {frozenset([relation.name]): (1.0, math.inf) for relation in query.relations}
    made: dict[Names, list[tuple[float, float, float]]] = {}
    places = sorted(met, key=lambda place: (len(place[0] | place[1]), sorted(place[0]), sorted(place[1])))
    for size in sorted({len(left | right) for left, right in places}):
        for left, right in places:
            if len(left | right) == size and left in sigma and right in sigma:
                seen = met[left, right]
                product = sigma[left][0] * sigma[right][0] * seen.selectivity
                matches = min(sigma[left][1], sigma[right][1], seen.seen)
                made.setdefault(left | right, []).append((product, seen.as_looked.pairs, matches))
        for names, ways in made.items():
            if len(names) == size:
                pairs = math.fsum(weight for _, weight, _ in ways)
                value = math.fsum(product * weight for product, weight, _ in ways) / pairs
                sigma[names] = (min(1.0, value), max(matches for *_, matches in ways))
    listed = sorted((sorted(names), sigma[names]) for names in made)
    return [{"streams": names, "selectivity": value, "matched": matches} for names, (value, matches) in listed]

"""How many of the combinations within the windows satisfy a set of predicates, counted in a sample.

The problem: σ(S) is results over combinations of rows that are in each other's windows (contract §1). The method: every combination has a
last arrival. When a row r of stream i arrives last, stream j's part of it is among the rows of [ts_r − T_j, ts_r], whatever the other
streams' are, so the combinations that r completes are the product of these counts; and the results that it completes are found by
following the predicates from r, stream by stream, through indexes on the join keys. The last stream is counted and not
followed. Guarantee: exact over the rows that were followed. Those are all, unless partial results become too many: then as many last
arrivals, taken at random, as MOST partial results allow. Complexity: O(n log n) for an index, O(log n) for each partial result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.request import Comparison, Predicate
from solvers.profiling.sample import Columns, Sample

__all__ = ["GROUPS", "Counted", "Joins"]

GROUPS = 20  # of last arrivals by their keys: what differs between them says how sure a figure is
MOST = 2_000_000  # partial results of one last stream
BLOCK = 5_000  # last arrivals at a time
MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, its bits well spread: combines the codes of several attributes

COMPARED: Mapping[Comparison, Callable[[Columns, Columns], Columns]] = {
    Comparison.EQ: np.equal,
    Comparison.NE: np.not_equal,
    Comparison.LT: np.less,
    Comparison.LE: np.less_equal,
    Comparison.GT: np.greater,
    Comparison.GE: np.greater_equal,
}


@dataclass(frozen=True)
class Counted:
    """Results and combinations, by group of last arrivals."""

    results: Columns
    combinations: Columns

    @property
    def matches(self) -> float:
        return float(self.results.sum())

    @property
    def selectivity(self) -> float:
        return self.matches / max(1.0, float(self.combinations.sum()))


@dataclass(frozen=True, slots=True)
class _Index:
    """A stream's rows by the codes of some attributes, each code's in the order of time."""

    codes: Columns
    """All that occur, sorted."""
    places: Columns
    """Rank of the code times (rows + 1) plus the row's place in time: sorted, so that a code's rows between two places are a range."""
    rows: Columns


@dataclass
class Joins:
    """Counts joins of a sample's streams; `windows` are in microseconds."""

    sample: Sample
    windows: Mapping[str, int]
    seed: int = 0
    _indexes: dict[tuple[str, ...], _Index] = field(default_factory=dict)

    def counted(self, streams: Sequence[str], predicates: Sequence[Predicate]) -> Counted:
        """Over all combinations of these streams that are completed within the stretch."""
        results, combinations = np.zeros(GROUPS), np.zeros(GROUPS)
        for last in streams:
            order, arrivals = self._order(last, streams, predicates), self._arrivals(last)
            here, followed, begin = np.zeros((2, GROUPS)), 0, 0
            while begin < len(arrivals) and followed <= MOST:
                block = arrivals[begin : begin + BLOCK]
                possible, found, made = self._completed(last, block, order, predicates)
                groups = self._groups(last, block, predicates)
                here += np.bincount(groups, found, GROUPS), np.bincount(groups, possible, GROUPS)
                followed, begin = followed + made, begin + len(block)
            # Those that were followed stand for all.
            scale = len(arrivals) / min(begin, len(arrivals)) if begin else 0.0
            results, combinations = results + here[0] * scale, combinations + here[1] * scale
        return Counted(results, combinations)

    def _arrivals(self, last: str) -> Columns:
        """The rows of the stretch itself, in a random order that is the same every time."""
        rows = self.sample.streams[last]
        first, end = np.searchsorted(rows.ts, [self.sample.start, self.sample.end])
        return np.random.default_rng(self.seed).permutation(np.arange(first, end))

    def _groups(self, last: str, block: Columns, predicates: Sequence[Predicate]) -> Columns:
        """Rows with the same key are in the same group: they join the same rows, so they do not count as so many observations."""
        keys = [attribute for p in predicates if p.op is Comparison.EQ for owner, attribute in _sides(p) if owner == last]
        codes = self.sample.streams[last].codes[keys[0]][block] if keys else block
        return (codes.astype(np.uint64) * MIX >> np.uint64(40)).astype(np.int64) % GROUPS

    def _order(self, last: str, streams: Sequence[str], predicates: Sequence[Predicate]) -> list[str]:
        """Streams by equality from what has been visited where that is possible: those have the fewest partners."""
        order, left = [last], [name for name in streams if name != last]
        while left:

            def links(name: str) -> tuple[int, int]:
                between = [p for p in predicates if {owner for owner, _ in _sides(p)} <= {*order, name} and name in {owner for owner, _ in _sides(p)}]
                return sum(p.op is Comparison.EQ for p in between), len(between)

            order.append(max(left, key=links))
            left.remove(order[-1])
        return order[1:]

    def _completed(self, last: str, block: Columns, order: Sequence[str], predicates: Sequence[Predicate]) -> tuple[Columns, Columns, int]:
        """Per last arrival the combinations and the results that it completes, and how many partial results were followed."""
        times = self.sample.streams[last].ts[block]
        possible = np.ones(len(block))
        spans = {}
        for name in order:
            ts = self.sample.streams[name].ts
            # Of two rows with one event time, the stream that is earlier by name counts as the earlier row.
            begin, end = np.searchsorted(ts, times - self.windows[name], "left"), np.searchsorted(ts, times, "right" if name < last else "left")
            spans[name] = (begin, np.maximum(begin, end))
            possible *= spans[name][1] - begin
        at = np.arange(len(block))
        partial: dict[str, Columns] = {last: block}
        found: Columns = np.zeros(len(block))
        followed = 0
        for step, name in enumerate(order):
            here = [p for p in predicates if {owner for owner, _ in _sides(p)} <= {*partial, name} and name in {owner for owner, _ in _sides(p)}]
            equal = [p for p in here if p.op is Comparison.EQ]
            others = [p for p in here if p.op is not Comparison.EQ]
            first, count, rows = self._matching(name, equal, partial, spans[name][0][at], spans[name][1][at])
            if step == len(order) - 1 and not others:
                found = np.bincount(at, count, len(block)).astype(float)
                break
            picked = np.repeat(np.arange(len(at)), count)
            followed += len(picked)
            inside = np.arange(len(picked)) - np.repeat(np.cumsum(count) - count, count)
            joined = rows[np.repeat(first, count) + inside]
            keep = np.ones(len(picked), dtype=bool)
            for predicate in others:
                keep &= self._holds(predicate, name, joined, {stream: part[picked] for stream, part in partial.items()})
            partial = {stream: part[picked][keep] for stream, part in partial.items()} | {name: joined[keep]}
            at = at[picked][keep]
            if step == len(order) - 1:
                found = np.bincount(at, minlength=len(block)).astype(float)
        return possible, found, followed

    def _matching(
        self, name: str, equal: Sequence[Predicate], partial: Mapping[str, Columns], begin: Columns, end: Columns
    ) -> tuple[Columns, Columns, Columns]:
        """Per partial result the range of rows of `name` that it joins: first, count, and the rows that ranges are over."""
        if not equal:
            rows = np.arange(len(self.sample.streams[name].ts))
            return begin, end - begin, rows
        pairs = sorted((_own(p, name), _other(p, name)) for p in equal)
        index = self._index(name, tuple(own for own, _ in pairs))
        wanted = _combined([self.sample.streams[stream].codes[attribute][partial[stream]] for _, (stream, attribute) in pairs])
        if not len(index.codes):
            return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.int64), index.rows
        rank = np.minimum(np.searchsorted(index.codes, wanted), len(index.codes) - 1)
        known = index.codes[rank] == wanted
        base = rank * (len(index.rows) + 1)
        first = np.searchsorted(index.places, base + begin)
        count = np.where(known, np.searchsorted(index.places, base + end) - first, 0)
        return first, count, index.rows

    def _index(self, name: str, attributes: tuple[str, ...]) -> _Index:
        found = self._indexes.get((name, *attributes))
        if found is None:
            codes, rank = np.unique(_combined([self.sample.streams[name].codes[attribute] for attribute in attributes]), return_inverse=True)
            rows = np.argsort(rank, kind="stable")
            found = _Index(codes, rank[rows] * (len(rows) + 1) + rows, rows)
            self._indexes[name, *attributes] = found
        return found

    def _holds(self, predicate: Predicate, name: str, joined: Columns, partial: Mapping[str, Columns]) -> Columns:
        """Which of the pairs satisfy a comparison by order, or an inequality."""
        sides = []
        for owner, attribute in _sides(predicate):
            rows = self.sample.streams[owner]
            column = rows.codes[attribute] if predicate.op is Comparison.NE else rows.values[attribute]
            sides.append(column[joined if owner == name else partial[owner]])
        return COMPARED[predicate.op](*sides)


def _sides(predicate: Predicate) -> list[tuple[str, str]]:
    sides = []
    for side in (predicate.left, predicate.right):
        stream, attribute = side.split(".", 1)
        sides.append((stream, attribute))
    return sides


def _own(predicate: Predicate, name: str) -> str:
    return next(attribute for stream, attribute in _sides(predicate) if stream == name)


def _other(predicate: Predicate, name: str) -> tuple[str, str]:
    return next(side for side in _sides(predicate) if side[0] != name)


def _combined(codes: Sequence[Columns]) -> Columns:
    """One code for the codes of several attributes, in their order."""
    found = codes[0].astype(np.uint64)
    for code in codes[1:]:
        found = (found ^ (found >> np.uint64(31))) * MIX + code.astype(np.uint64)
    return found

"""Run a plan with its caches in memory, tuple by tuple, and count what it does: the reference for what a plan means.

An arrival expires what has left its window, walks its pipeline to the end, and then enters its state; the results of an
inner join arrive at its user in turn. A cache is worked as paper 1 §3.2 and §6 say: a miss computes the segment
and makes an entry; every new tuple of the cache's kept join (its own streams, and those of `semijoin`) that passes by is added to
the entry of its key, if there is one; what expires is taken out. An entry dies when its key no longer occurs in the state
it is read from. Nothing here is shared with the product: results, counts and caches follow from the plan document alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from models.plan import Cache, Operator, Plan

__all__ = ["Arrival", "Interpreter", "by_definition"]


@dataclass(frozen=True)
class Arrival:
    """One tuple of a stream."""

    stream: str
    time: float
    values: dict[str, int]
    number: int


Row = dict[str, Arrival]
"""A joined tuple: one arrival per stream."""


def _sides(attributes: list[str]) -> list[tuple[int, str, str]]:
    """(place in the key, stream, attribute) for each."""
    return [(i, *attribute.split(".", 1)) for i, attribute in enumerate(attributes)]  # type: ignore[misc]


def _identity(row: Row) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, arrival.number) for name, arrival in row.items()))


@dataclass
class _Entries:
    """The entries that caches of one group share."""

    streams: list[str]
    kept: frozenset[str]
    key: list[str]
    readers: list[Cache] = field(default_factory=list)
    entries: dict[tuple[int, ...], dict[tuple[tuple[str, int], ...], Row]] = field(default_factory=dict)


class Interpreter:
    """A running plan. `results` are the rows it made, `counts` what it did."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.windows = {stream.name: stream.window.seconds or 0.0 for stream in plan.query.streams}
        self.below = {stream.name: frozenset({stream.name}) for stream in plan.query.streams}
        self.users: dict[str, Operator] = {}
        for operator in plan.operators:
            self.below[operator.id] = frozenset(operator.streams)
            for name in operator.inputs:
                self.users[name] = operator
        self.states: dict[str, list[Row]] = {name: [] for name in self.users}
        self.orders = {(o.id, p.input): [probe.target for probe in p.probes] for o in plan.operators for p in o.pipelines}
        self.checks = [(*p.left.split("."), *p.right.split("."), p.op.value) for p in plan.query.predicates]
        self.groups: dict[int, _Entries] = {}
        self.placed: dict[tuple[str, str, int], Cache] = {}
        for cache in plan.caches:
            group = self.groups.setdefault(cache.group, _Entries(cache.streams, frozenset(cache.streams) | frozenset(cache.semijoin), cache.key))
            group.readers.append(cache)
            self.placed[cache.operator, cache.input, cache.first] = cache
        self.results: list[tuple[tuple[str, int], ...]] = []
        self.counts: Counter[tuple[Any, ...]] = Counter()

    def run(self, arrivals: Iterable[Arrival]) -> None:
        for arrival in arrivals:
            self._expire(arrival.time)
            waiting: list[tuple[str, Row]] = [(arrival.stream, {arrival.stream: arrival})]
            while waiting:
                name, row = waiting.pop()
                operator = self.users[name]
                made = self._through(operator, name, row)
                self.states[name].append(row)
                self.counts["kept", name] += 1
                if operator is self.plan.operators[-1]:
                    self.results += [_identity(result) for result in made]
                else:
                    waiting += [(operator.id, result) for result in made]

    def _alive(self, row: Row, now: float) -> bool:
        return all(now - arrival.time <= self.windows[name] for name, arrival in row.items())

    def _expire(self, now: float) -> None:
        gone: list[tuple[str, Row]] = []
        for name, rows in self.states.items():
            kept = [row for row in rows if self._alive(row, now)]
            if len(kept) < len(rows):
                gone += [(name, row) for row in rows if not self._alive(row, now)]
                self.states[name] = kept
        for group in self.groups.values():
            for rows_of_key in group.entries.values():
                for identity in [identity for identity, row in rows_of_key.items() if not self._alive(row, now)]:
                    del rows_of_key[identity]
            for name, row in gone:
                self._forget(group, name, row)

    def _forget(self, group: _Entries, name: str, row: Row) -> None:
        """Drop the entries whose key was read from this row's state and no longer occurs there, for every pipeline that reads it."""
        for cache in group.readers:
            here = [part for part in _sides(cache.lookup) if part[1] in self.below[name]]
            if not here or self.users[name].id != cache.operator:
                continue
            for key in [key for key in group.entries if all(row[s].values[a] == key[i] for i, s, a in here)]:
                if not any(self._readable(reader, key) for reader in group.readers):
                    del group.entries[key]

    def _readable(self, cache: Cache, key: tuple[int, ...]) -> bool:
        """Whether every input that the key is read from has a live row that carries its part."""
        operator = next(o for o in self.plan.operators if o.id == cache.operator)
        for name in operator.inputs:
            parts = [part for part in _sides(cache.lookup) if part[1] in self.below[name]]
            if parts and not any(all(row[s].values[a] == key[i] for i, s, a in parts) for row in self.states[name]):
                return False
        return True

    def _matches(self, row: Row, other: Row) -> bool:
        for left, a, right, b, op in self.checks:
            if left in row and right in other:
                x, y = row[left].values[a], other[right].values[b]
            elif right in row and left in other:
                x, y = other[left].values[a], row[right].values[b]
            else:
                continue
            if not {"=": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op]:
                return False
        return True

    def _step(self, operator: Operator, name: str, step: int, rows: list[Row]) -> list[Row]:
        target = self.orders[operator.id, name][step]
        made = [{**row, **other} for row in rows for other in self.states[target] if self._matches(row, other)]
        self.counts["in", operator.id, name, step] += len(rows)
        self.counts["out", operator.id, name, step] += len(made)
        return made

    def _through(self, operator: Operator, name: str, row: Row) -> list[Row]:
        rows, step = [row], 0
        length = len(self.orders[operator.id, name])
        while step < length:
            cache = self.placed.get((operator.id, name, step))
            if cache is None:
                rows = self._step(operator, name, step, rows)
                step += 1
            else:
                rows = [made for one in rows for made in self._look_up(operator, name, cache, one)]
                step = cache.last + 1
            self._update(operator, rows)
        return rows

    def _look_up(self, operator: Operator, name: str, cache: Cache, row: Row) -> list[Row]:
        group = self.groups[cache.group]
        key = tuple(row[stream].values[attribute] for _, stream, attribute in _sides(cache.lookup))
        self.counts["lookups", cache.id] += 1
        if key in group.entries:
            found = [{**row, **other} for other in group.entries[key].values()]
            self.counts["hits", cache.id] += 1
            self.counts["hit results", cache.id] += len(found)
            return found
        rows = [row]
        for step in range(cache.first, cache.last + 1):
            rows = self._step(operator, name, step, rows)
        value = [{stream: made[stream] for stream in cache.streams} for made in rows]
        group.entries[key] = {_identity(part): part for part in value}
        self.counts["created", cache.id] += len(value)
        return rows

    def _update(self, operator: Operator, rows: list[Row]) -> None:
        """Rows that are new tuples of a cache's kept join go to the entry of their key."""
        for number, group in self.groups.items():
            if group.readers[0].operator != operator.id:
                continue
            for row in rows:
                if row.keys() != group.kept:
                    continue
                self.counts["updates", number] += 1
                part = {stream: row[stream] for stream in group.streams}
                key = tuple(part[stream].values[attribute] for _, stream, attribute in _sides(group.key))
                if key in group.entries:
                    group.entries[key][_identity(part)] = part

    def consistent(self) -> bool:
        """Whether every entry holds only live tuples of its join and key, and for prefix caches all of them."""
        for group in self.groups.values():
            inputs = [name for name in self.users if self.users[name].id == group.readers[0].operator and self.below[name] <= set(group.streams)]
            joined: list[Row] = [{}]
            for name in inputs:
                joined = [{**row, **other} for row in joined for other in self.states[name] if self._matches(row, other)]
            for key, rows in group.entries.items():
                wanted = {_identity(row) for row in joined if tuple(row[s].values[a] for _, s, a in _sides(group.key)) == key}
                if not rows.keys() <= wanted or (group.kept == frozenset(group.streams) and rows.keys() != wanted):
                    return False
        return True

    def cpu(self, seconds: float) -> float:
        """CPU-seconds per second of what was counted, by the plan's cost constants; hash probes only."""
        costs, counts = self.plan.costs, self.counts
        upkeep = costs.insert + costs.delete
        total = 0.0
        weight = {"kept": upkeep, "in": costs.probe, "out": costs.join, "lookups": costs.probe, "hits": 0.0, "hit results": costs.join}
        weight |= {"created": upkeep, "updates": upkeep}
        for what, count in counts.items():
            total += count * weight[what[0]]
        return total / seconds + costs.step * sum(map(len, self.orders.values()))


def by_definition(plan: Plan, arrivals: list[Arrival]) -> list[tuple[tuple[str, int], ...]]:
    """All results by contract §1: every predicate holds, and each partner was in its window when the last one arrived."""
    reader = Interpreter(plan)
    rows: list[Row] = [{}]
    for stream in plan.query.streams:
        mine = [arrival for arrival in arrivals if arrival.stream == stream.name]
        rows = [{**row, stream.name: arrival} for row in rows for arrival in mine if reader._matches(row, {stream.name: arrival})]
    found = []
    for row in rows:
        last = max(arrival.time for arrival in row.values())
        if reader._alive(row, last):
            found.append(_identity(row))
    return found

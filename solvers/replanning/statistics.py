"""How far the statistics of today are from those that the running plan was made for, and how much of that may be noise.

Problem: measured statistics flicker, and a plan that follows every flicker is changed for nothing. Method: a figure counts as off when it differs by
more than a share ε. To tell drift from noise there is a second set of statistics beside today's: each *eased* towards what the plan was made for,
by ε for the error of today's figure, by ε for that of the old one, and no further than the old one. Where only noise moved them, eased
figures are the old ones; after a drift, nearly the new ones. A change that brings its gain under both is worth it even if every figure is off by ε.

Guarantee: eased figures lie between the old and the new ones and change continuously with either. Complexity: linear in the query, beside the
selectivities of sets that only one of the two queries has observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from models.faults import condition
from models.plan import Plan
from models.replan import Measured
from models.request import Costs, Observed, PlanRequest, Predicate, Query, Stream
from models.table import Access, AccessKind, Table
from solvers.common import words
from solvers.model.graph import JoinGraph, join_graph
from solvers.model.products import product

__all__ = ["Drift", "Off", "in_order", "is_off", "measured_off", "offering", "terms_off"]

MOST_WORKED_OUT = 1000  # observed sets that only one query has, for which the other's selectivity is worked out: a tenth of a second


class Off(NamedTuple):
    """A figure that is not what the running plan was made for."""

    figure: str
    was: float
    now: float

    @property
    def times(self) -> float:
        """How far off, as a factor of at least 1."""
        low, high = sorted((abs(self.was), abs(self.now)))
        return high / low if low > 0.0 else float("inf")

    def sentence(self) -> str:
        figure = self.figure[:1].upper() + self.figure[1:] if " " in self.figure else self.figure
        return f"{figure} is {words.amount(self.now)}, and the plan was made for {words.amount(self.was)}."


def is_off(was: float, now: float, error: float) -> bool:
    return abs(now - was) > error * abs(was)


def eased(was: float, now: float, error: float) -> float:
    """`now`, moved towards `was` by what both of them together may be off, but not past it.

    >>> eased(100.0, 108.0, 0.05), eased(100.0, 220.5, 0.05), eased(100.0, 50.0, 0.05)
    (100.0, 200.0, 55.125)
    """
    both = (1.0 + error) ** 2
    return max(was, now / both) if now > was else min(was, now * both)


def in_order(query: Query, other: Query) -> Query:
    """The query with its streams and predicates in the order of those of another query, which has the same."""
    streams = {stream.name: stream for stream in query.streams}
    tables = {table.name: table for table in query.tables}
    listed: dict[str, list[Predicate]] = {}
    for predicate in query.predicates:
        listed.setdefault(condition(predicate), []).append(predicate)
    return query.model_copy(
        update={
            "streams": [streams[stream.name] for stream in other.streams],
            "tables": [tables[table.name] for table in other.tables],
            "predicates": [listed[condition(predicate)].pop(0) for predicate in other.predicates],
        }
    )


def offering(query: Query, other: Query) -> Query:
    """The query, whose tables are in the order of the other's, with the accesses that the other lists, and its own figures of those that it has.

    Trees say by place which access they use.
    """
    tables = [table.model_copy(update={"access": _listed(table, same)}) for table, same in zip(query.tables, other.tables, strict=True)]
    return query.model_copy(update={"tables": tables})


def _listed(table: Table, other: Table) -> list[Access]:
    own: dict[tuple[AccessKind, tuple[str, ...]], list[Access]] = {}
    for access in table.access:
        own.setdefault((access.kind, tuple(sorted(access.bound))), []).append(access)
    listed = [own.get((access.kind, tuple(sorted(access.bound)))) for access in other.access]
    return [same.pop(0) if same else access for same, access in zip(listed, other.access, strict=True)]


class Drift:
    """Two queries with the same parts in the same order: as the running plan was made for, and as of today."""

    def __init__(self, was: Query, now: Query) -> None:
        self.was, self.now = was, now
        self._graphs = (join_graph(was), join_graph(now))

    def off(self, error: float) -> list[Off]:
        """The statistics that are off by more than the error, the furthest first."""
        found = [off for off in (*self._streams(), *self._tables(), *self._predicates(), *self._sets.values()) if is_off(off.was, off.now, error)]
        return sorted(found, key=lambda off: (-off.times, off.figure))

    def eased(self, error: float) -> Query:
        """Today's query with every statistic eased towards the old one."""
        streams = []
        for before, after in zip(self.was.streams, self.now.streams, strict=True):
            figures = {off.figure.split(".", 1)[1]: eased(off.was, off.now, error) for off in _of_stream(before, after)}
            distinct = {attribute: figures.get(f"distinct.{attribute}", count) for attribute, count in after.distinct.items()}
            streams.append(after.model_copy(update={"rate": figures["rate"], "tuple_bytes": figures["tuple_bytes"], "distinct": distinct}))
        tables = []
        for was, now in zip(self.was.tables, self.now.tables, strict=True):
            figures = {off.figure.split(".", 1)[1]: eased(off.was, off.now, error) for off in _of_table(was, now)}
            distinct = {attribute: figures.get(f"distinct.{attribute}", count) for attribute, count in now.distinct.items()}
            tables.append(now.model_copy(update={"rows": figures["rows"], "tuple_bytes": figures["tuple_bytes"], "distinct": distinct}))
        predicates = [
            predicate.model_copy(update={"selectivity": eased(off.was, off.now, error)})
            for predicate, off in zip(self.now.predicates, self._predicates(), strict=True)
        ]
        observed = [Observed(streams=list(names), selectivity=eased(off.was, off.now, error)) for names, off in self._sets.items()]
        return self.now.model_copy(update={"streams": streams, "tables": tables, "predicates": predicates, "observed": observed})

    def _streams(self) -> Iterator[Off]:
        for before, after in zip(self.was.streams, self.now.streams, strict=True):
            yield from _of_stream(before, after)

    def _tables(self) -> Iterator[Off]:
        for before, after in zip(self.was.tables, self.now.tables, strict=True):
            yield from _of_table(before, after)

    def _predicates(self) -> Iterator[Off]:
        for before, after, predicate in zip(self._graphs[0].edges, self._graphs[1].edges, self.now.predicates, strict=True):
            yield Off(f"the selectivity of {predicate.left} {predicate.op.value} {predicate.right}", before.selectivity, after.selectivity)

    @cached_property
    def _sets(self) -> dict[tuple[str, ...], Off]:
        """The selectivities of observed sets. What one query has not observed follows from its predicates, unless that is too much work."""
        was, now = ({tuple(sorted(entry.streams)): entry.selectivity for entry in query.observed} for query in (self.was, self.now))
        if len(was.keys() ^ now.keys()) > MOST_WORKED_OUT:
            return {names: Off(_joined(names), was.get(names, now[names]), now[names]) for names in sorted(now)}
        found = {}
        for names in sorted(was.keys() | now.keys()):
            before, after = (
                known[names] if names in known else _selectivity(graph, names) for known, graph in zip((was, now), self._graphs, strict=True)
            )
            found[names] = Off(_joined(names), before, after)
        return found


def _joined(names: Sequence[str]) -> str:
    return f"the selectivity of {'⋈'.join(names)}"


def _of_stream(was: Stream, now: Stream) -> Iterator[Off]:
    yield Off(f"{now.name}.rate", was.rate, now.rate)
    yield Off(f"{now.name}.tuple_bytes", was.tuple_bytes, now.tuple_bytes)
    for attribute in sorted(was.distinct.keys() & now.distinct.keys()):
        yield Off(f"{now.name}.distinct.{attribute}", was.distinct[attribute], now.distinct[attribute])


def _of_table(was: Table, now: Table) -> Iterator[Off]:
    yield Off(f"{now.name}.rows", was.rows, now.rows)
    yield Off(f"{now.name}.tuple_bytes", was.tuple_bytes, now.tuple_bytes)
    for attribute in sorted(was.distinct.keys() & now.distinct.keys()):
        yield Off(f"{now.name}.distinct.{attribute}", was.distinct[attribute], now.distinct[attribute])


def _selectivity(graph: JoinGraph, names: tuple[str, ...]) -> float:
    """σ of a set, from what stands in for its predicates."""
    observed, predicates = graph.factors(sum(1 << graph.names.index(name) for name in names))
    return product([*(selectivity for _, selectivity in observed), *(graph.edges[p].selectivity for p in predicates)])


def terms_off(plan: Plan, was: Query, request: PlanRequest, error: float) -> list[str]:
    """What else is asked for than when the plan was made: caps, objective, freshness, cost constants; in sentences."""
    found = []
    caps = (("CPU", plan.resources.cpu, request.resources.cpu), ("memory", plan.resources.memory_bytes, request.resources.memory_bytes))
    for cap, before, after in caps:
        if before != after:
            found.append(f"The cap on {cap} is {_cap(after)}, and it was {_cap(before)} when the plan was made.")
    if plan.objective is not request.objective:
        found.append(f"The objective is {request.objective.value}, and the plan was made for {plan.objective.value}.")
    for before_stream, after_stream in zip(was.streams, request.query.streams, strict=True):
        if before_stream.freshness != after_stream.freshness:
            found.append(f"The freshness of {after_stream.name} is another than when the plan was made.")
        if before_stream.distinct.keys() != after_stream.distinct.keys():
            found.append(f"Distinct values of {after_stream.name} are known of other attributes than when the plan was made.")
    for before_table, after_table in zip(was.tables, request.query.tables, strict=True):
        if before_table.access != after_table.access:
            found.append(f"What {after_table.name} offers is another than when the plan was made.")
    return found + [off.sentence() for off in _costs(plan.costs, request.costs) if is_off(off.was, off.now, error)]


def _costs(was: Costs, now: Costs) -> Iterator[Off]:
    for name in Costs.model_fields:
        yield Off(f"costs.{name}", getattr(was, name), getattr(now, name))


def _cap(value: float | None) -> str:
    return "none" if value is None else words.amount(value)


def measured_off(plan: Plan, measured: Measured, error: float) -> list[Off]:
    """What the pipeline reports that is off what the plan expected of itself."""
    shed = plan.allocation
    expected = {
        "the measured output rate": (shed.throughput if shed else plan.cost.output_rate, measured.output_rate),
        "the measured CPU": (shed.cpu if shed else plan.cost.cpu, measured.cpu),
        "the measured memory": (plan.cost.memory_bytes, measured.memory_bytes),
    }
    return [Off(figure, was, now) for figure, (was, now) in expected.items() if now is not None and is_off(was, now, error)]

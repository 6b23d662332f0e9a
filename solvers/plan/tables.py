"""How a plan reaches its tables: on the wire, why, and where it would turn (contract §2).

Asking takes time without taking CPU. An index that is asked for p keys a second, k of them a call, takes p/k calls a second of s seconds each: the
share p/k · s of the time is spent waiting at one call at a time, and above 1 so many calls have to run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from models.table import AccessKind, TableAccess
from solvers.common import words
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import Offer, bits
from solvers.model.ranges import waits_too_long

__all__ = ["reasons", "tables_of", "waiting_warnings"]


NONE: Mapping[tuple[int, int, int], float] = {}
Misses = Mapping[tuple[int, int, int], float]
"""By join, pipeline and step the share of probes that a cache does not answer."""


def _reached(model: CostModel, priced: PricedTree, misses: Misses) -> Iterator[tuple[int, Offer | None, float]]:
    """(table, its index where it is asked, tuples a second that look for partners in it; of an index those that no kept answer serves)."""
    if not model.graph.tables:
        return
    arriving: dict[int, list[float]] = {table: [] for table in bits(model.graph.tables)}
    asked: dict[int, Offer] = {}
    for number, join in enumerate(priced.joins):
        asked.update({table: model.graph.offers[table][place] for table, place in join.asked})
        for k, pipeline in enumerate(join.pipelines):
            for step, probe in enumerate(pipeline.probes):
                table = join.blocks[probe.target].bit_length() - 1
                if join.blocks[probe.target] == 1 << table and table in arriving:
                    arriving[table].append(probe.rate_in * misses.get((number, k, step), 1.0))
    for table, rates in arriving.items():
        yield table, asked.get(table), math.fsum(rates)


def tables_of(model: CostModel, priced: PricedTree, misses: Misses = NONE) -> list[TableAccess]:
    """Every table with the access that the plan uses."""
    graph, found = model.graph, []
    for table, index, probes in _reached(model, priced, misses):
        if index is None:
            held = graph.window_tuples[table] * graph.tuple_bytes[table]
            found.append(TableAccess(name=graph.names[table], access=AccessKind.SCAN, state_bytes=held, probes_per_second=probes))
            continue
        calls = probes / index.keys
        waiting = calls * index.seconds
        if not math.isfinite(waiting):
            raise waits_too_long(model, table, index)
        found.append(
            TableAccess(
                name=graph.names[table],
                access=AccessKind.INDEX,
                bound=list(index.bound),
                probes_per_second=probes,
                calls_per_second=calls,
                waiting=waiting,
                side_by_side=max(1, math.ceil(waiting)) if waiting < 1e15 else 10**15,
            )
        )
    return found


def waiting_warnings(tables: list[TableAccess]) -> Iterator[str]:
    """Which tables cannot be asked with one call at a time."""
    for table in tables:
        if table.waiting > 1.0:
            yield (
                f"Asking {table.name} one call at a time would wait {words.amount(table.waiting)} seconds a second: "
                f"{table.side_by_side} calls have to run side by side."
            )


def reasons(problem: Problem, priced: PricedTree, misses: Misses = NONE) -> Iterator[str]:
    """Why each table is kept or asked, and where that would turn, all else as it is."""
    model = problem.model
    for table, index, probes in _reached(model, priced, misses):
        offers = model.graph.offers[table]
        if index is None:
            yield _kept(problem, priced, table, min((o for o in offers if not o.kept), key=lambda o: o.cpu, default=None), probes)
        else:
            yield _asked(problem, priced, table, index, any(o.kept for o in offers), probes)


def _kept(problem: Problem, priced: PricedTree, table: int, other: Offer | None, probes: float) -> str:
    graph, caps = problem.model.graph, problem.caps
    name, width = graph.names[table], graph.tuple_bytes[table]
    held = graph.window_tuples[table] * width
    said = f"{name} is kept, which takes {words.bytes_(held)}"
    if other is None:
        return f"{said}: it offers nothing else."
    more = probes * (other.cpu - problem.model.costs.probe)
    said += f" and saves {words.cpu(more)} CPU" if more >= 0 else f" and costs {words.cpu(-more)} CPU"
    said += f" against asking it by {', '.join(other.bound)} {words.amount(probes)} times a second."
    if math.isfinite(caps.memory_bytes) and priced.memory_bytes <= caps.memory_bytes:
        rows = graph.window_tuples[table] + (caps.memory_bytes - priced.memory_bytes) / width
        said += f" Above {words.amount(rows)} rows it would no longer fit the memory."
    return said


def _asked(problem: Problem, priced: PricedTree, table: int, index: Offer, scans: bool, probes: float) -> str:
    graph, caps = problem.model.graph, problem.caps
    name, width = graph.names[table], graph.tuple_bytes[table]
    spent = probes * index.cpu
    said = f"{name} is asked by {', '.join(index.bound)}, {words.amount(probes)} times a second, which takes {words.cpu(spent)} CPU"
    if not scans:
        return f"{said}: it offers no scan."
    said += f" and no memory; keeping it would take {words.bytes_(graph.window_tuples[table] * width)}."
    if math.isfinite(caps.memory_bytes) and priced.memory_bytes < caps.memory_bytes:
        said += f" Below {words.amount((caps.memory_bytes - priced.memory_bytes) / width)} rows it could be kept."
    if math.isfinite(caps.cpu) and spent > 0.0 and priced.cpu <= caps.cpu:
        said += f" Above {words.amount(probes * (1.0 + (caps.cpu - priced.cpu) / spent))} times a second asking would no longer fit the CPU."
    return said

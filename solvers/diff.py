"""What changed between two plans, in structure and in cost (contract §3, POST /v1/diffs).

Operators are matched by the set of streams below them, not by id: a subresult is the same subresult wherever it
stands in the list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from models.plan import Change, Diff, DiffRequest, Operator, Plan
from models.table import AccessKind, TableAccess

__all__ = ["diff"]


def diff(request: DiffRequest) -> Diff:
    """The differences, totals first, then the subresults with the largest changes."""
    before, after = request.before, request.after
    changes = list(_request_changes(before, after))
    return Diff(
        same_structure=before.fingerprint == after.fingerprint,
        same_request=not changes,
        structure=list(_structure_changes(before, after)),
        cost=_cost_changes(before, after),
        request=changes,
    )


def _label(operator: Operator) -> str:
    return "⋈".join(operator.streams)


def _by_streams(plan: Plan) -> dict[str, Operator]:
    return {_label(operator): operator for operator in plan.operators}


def _inputs(plan: Plan, operator: Operator) -> dict[str, str]:
    """Labels of the operator's inputs by name."""
    below = {other.id: f"({_label(other)})" for other in plan.operators}
    return {name: below.get(name, name) for name in operator.inputs}


def _structure_changes(before: Plan, after: Plan) -> Iterator[str]:
    old, new = _by_streams(before), _by_streams(after)
    for label in sorted(old.keys() - new.keys()):
        yield f"{label} is no longer kept" if old[label].materialized else f"{label} is no longer joined"
    for label in sorted(new.keys() - old.keys()):
        yield f"{label} is now kept" if new[label].materialized else f"{label} is now joined"
    for label in sorted(old.keys() & new.keys()):
        yield from _operator_changes(label, before, old[label], after, new[label])
    was, now = ({table.name: table for table in plan.tables} for plan in (before, after))
    for name in sorted(was.keys() & now.keys()):
        if (was[name].access, was[name].bound) != (now[name].access, now[name].bound):
            yield f"{name} was {_reached(was[name])}; now {_reached(now[name])}"
    caches = [
        {f"{_label_of(plan, cache.operator)} from {cache.input}: {'⋈'.join(cache.streams)}" for cache in plan.caches} for plan in (before, after)
    ]
    for cache in sorted(caches[0] - caches[1]):
        yield f"no longer cached in {cache}"
    for cache in sorted(caches[1] - caches[0]):
        yield f"now cached in {cache}"


def _reached(table: TableAccess) -> str:
    return "kept" if table.access is AccessKind.SCAN else f"asked by {', '.join(table.bound)}"


def _label_of(plan: Plan, identifier: str) -> str:
    return next((_label(operator) for operator in plan.operators if operator.id == identifier), identifier)


def _operator_changes(label: str, before: Plan, old: Operator, after: Plan, new: Operator) -> Iterator[str]:
    here, there = _inputs(before, old), _inputs(after, new)
    if sorted(here.values()) != sorted(there.values()):
        yield f"{label} was the join of {', '.join(sorted(here.values()))}; now of {', '.join(sorted(there.values()))}"
        return
    orders = {here[pipeline.input]: pipeline.probes for pipeline in old.pipelines}
    for pipeline in new.pipelines:
        name = there[pipeline.input]
        was, now = orders.get(name, []), pipeline.probes
        path_was, path_now = [here[probe.target] for probe in was], [there[probe.target] for probe in now]
        if path_was != path_now:
            yield f"in {label}, {name} probed {', '.join(path_was)}; now {', '.join(path_now)}"
        elif [probe.algorithm for probe in was] != [probe.algorithm for probe in now]:
            moved = [f"{there[b.target]} by {b.algorithm.value}" for a, b in zip(was, now, strict=True) if a.algorithm is not b.algorithm]
            yield f"in {label}, {name} now probes {', '.join(moved)}"


def _change(figure: str, before: float | None, after: float | None) -> Change | None:
    if before == after:
        return None
    ratio = after / before if before and after is not None else None
    return Change(figure=figure, before=before, after=after, ratio=ratio if ratio is not None and math.isfinite(ratio) else None)


def _cost_changes(before: Plan, after: Plan) -> list[Change]:
    totals = [
        _change("cost.cpu", before.cost.cpu, after.cost.cpu),
        _change("cost.memory_bytes", before.cost.memory_bytes, after.cost.memory_bytes),
        _change("cost.memory_tuples", before.cost.memory_tuples, after.cost.memory_tuples),
        _change("cost.output_rate", before.cost.output_rate, after.cost.output_rate),
        _change("headroom", before.headroom, after.headroom),
    ]
    old, new = _by_streams(before), _by_streams(after)
    parts = []
    for label in sorted(old.keys() | new.keys()):
        for figure in ("cpu", "state_bytes", "rate"):
            values = [getattr(side[label], figure) if label in side else None for side in (old, new)]
            parts.append(_change(f"{label}.{figure}", *values))
    found = [change for change in parts if change is not None]
    # Worst first: what appeared or vanished, then by how far the ratio is from one, either way.
    found.sort(key=lambda change: (-_distance(change), change.figure))
    return [change for change in totals if change is not None] + found


def _distance(change: Change) -> float:
    if change.ratio is None or change.ratio <= 0.0:
        return math.inf
    return max(change.ratio, 1.0 / change.ratio)


def _request_changes(before: Plan, after: Plan) -> Iterator[str]:
    """What differs in the requests, field by field."""
    old = {stream.name: stream for stream in before.query.streams}
    new = {stream.name: stream for stream in after.query.streams}
    for name in sorted(old.keys() - new.keys()):
        yield f"stream {name} is gone"
    for name in sorted(new.keys() - old.keys()):
        yield f"stream {name} is new"
    for name in sorted(old.keys() & new.keys()):
        yield from _fields(name, old[name].model_dump(mode="json"), new[name].model_dump(mode="json"))
    was_tables, now_tables = ({table.name: table for table in plan.query.tables} for plan in (before, after))
    for name in sorted(was_tables.keys() ^ now_tables.keys()):
        yield f"table {name} is {'new' if name in now_tables else 'gone'}"
    for name in sorted(was_tables.keys() & now_tables.keys()):
        yield from _fields(name, was_tables[name].model_dump(mode="json"), now_tables[name].model_dump(mode="json"))
    pairs = [sorted(predicate.model_dump_json() for predicate in plan.query.predicates) for plan in (before, after)]
    if pairs[0] != pairs[1]:
        was = {(p.left, p.op.value, p.right): p.selectivity for p in before.query.predicates}
        now = {(p.left, p.op.value, p.right): p.selectivity for p in after.query.predicates}
        for key in sorted(was.keys() | now.keys()):
            if was.get(key) != now.get(key):
                text = " ".join(key)
                if key not in was or key not in now:
                    yield f"predicate {text} is {'new' if key in now else 'gone'}"
                else:
                    yield f"selectivity of {text}: {was[key]} → {now[key]}"
    if {frozenset(o.streams): o.selectivity for o in before.query.observed} != {frozenset(o.streams): o.selectivity for o in after.query.observed}:
        yield "observed sub-joins differ"
    yield from _fields("resources", before.resources.model_dump(), after.resources.model_dump())
    yield from _fields("costs", before.costs.model_dump(), after.costs.model_dump())
    if before.objective is not after.objective:
        yield f"objective: {before.objective.value} → {after.objective.value}"


def _fields(name: str, old: dict[str, object], new: dict[str, object]) -> Iterator[str]:
    for field in sorted(old.keys() | new.keys()):
        if old.get(field) != new.get(field):
            yield f"{name}.{field}: {_shown(old.get(field))} → {_shown(new.get(field))}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{part} {key}" for key, part in sorted(value.items())) or "none"
    return "none" if value is None else str(value)

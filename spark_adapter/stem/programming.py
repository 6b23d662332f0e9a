"""A plan as a program: what cells run (see `program`).

The problem: a plan speaks of streams, operators and predicate indexes; the cell works on frames of columns. The method:
one module per stream, kept table and materialized operator, one route per input of each join that flows, and for every step of a route
the predicates between what has been visited and the target. They are taken from the query, not from the plan's own lists,
so that on a cyclic graph every predicate is enforced exactly once on every route, whatever a plan says.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_adapter.stem.program import FOREVER, MIRRORED, Cached, Comparison, Join, Module, Program, Route, Segment, Step, Stream, Table

if TYPE_CHECKING:
    from models.plan import Cache, Operator, Pipeline, Plan
    from models.request import Query
    from models.table import Access
    from models.table import Table as RequestedTable

__all__ = ["kept_streams", "program_of"]


def program_of(
    plan: Plan, payload: Mapping[str, int], delays: Mapping[str, int] | None = None, run: str = "", idle_after: Mapping[str, int] | None = None
) -> Program:
    """The program of a checked plan, for results that take `payload[stream]` columns of each stream, whose watermarks trail by `delays`.

    Both `delays` and `idle_after` are in milliseconds.
    """
    query = plan.query
    used = _attributes(query)
    streams = {
        stream.name: Stream(
            stream.name,
            FOREVER if stream.window.seconds is None else min(FOREVER, round(stream.window.seconds * 1_000_000)),
            stream.window.rows,
            used[stream.name],
            tuple(f"{stream.name}/{i}" for i in range(payload[stream.name])),
            stream.tuple_bytes,
            (delays or {}).get(stream.name),
            (idle_after or {}).get(stream.name),
        )
        for stream in query.streams
    }
    tables = {table.name: _table(plan, table, used[table.name], payload[table.name]) for table in query.tables}
    relations: dict[str, Stream | Table] = {**streams, **tables}
    modules = {name: _module(query, relations, name, (name,)) for name in relations}
    for operator in plan.operators:
        modules[operator.id] = _module(query, relations, operator.id, tuple(sorted(operator.streams)))
    joins: list[Join] = []
    caches: dict[str, Cached] = {}
    shares = {(a.operator, a.input, a.step): a.share for a in plan.allocation.allowances} if plan.allocation else {}
    for operator in plan.operators:
        routes = [_route(query, operator, pipeline.input, modules, shares) for pipeline in _in_order(operator)]
        for cache in plan.caches:
            if cache.operator == operator.id:
                _place(query, relations, operator, cache, routes, modules, caches)
        output = modules[operator.id]
        inputs = sorted(operator.inputs, key=lambda name: name in tables)
        joins.append(Join(operator.id, output.key, tuple(modules[name].key for name in inputs), tuple(routes), output.columns))
    probed = kept_streams(plan)
    tables = {name: _competing(query, table, joins) if table.kept else table for name, table in tables.items()}
    kept = [replace(modules[name], kept=name in probed) for name in streams]
    kept += [modules[name] for name, table in tables.items() if table.kept]
    kept += [modules[operator.id] for operator in plan.operators[:-1]]
    made = {route.input: route for join in joins for route in join.routes}
    completed = tuple(_upkept(query, cache, made, modules) for cache in caches.values())
    admitted = plan.allocation.admitted if plan.allocation else 1.0
    return Program(tuple(streams.values()), tuple(kept), tuple(joins), completed, admitted, run, tables=tuple(tables.values()))


def kept_streams(plan: Plan) -> list[str]:
    """The streams of whose rows a state is kept: those that some other input that flows is joined with."""
    tables = [table.name for table in plan.query.tables]
    unprobed = {name for operator in plan.operators for name in operator.inputs if not _flowing(operator, tables) - {name}}
    return [stream.name for stream in plan.query.streams if stream.name not in unprobed]


def _flowing(operator: Operator, tables: Collection[str]) -> set[str]:
    """The inputs of an operator that are no tables."""
    return {name for name in operator.inputs if name not in tables}


def _table(plan: Plan, table: RequestedTable, attributes: tuple[str, ...], payload: int) -> Table:
    reached = next(access for access in plan.tables if access.name == table.name)
    found = Table(table.name, attributes, tuple(f"{table.name}/{i}" for i in range(payload)), table.tuple_bytes, table.rows, not reached.bound)
    if found.kept:
        return found
    offer = next(offer for offer in table.access if offer.kind.value == "index" and sorted(offer.bound) == sorted(reached.bound))
    return _asked(found, offer, reached.side_by_side)


def _asked(table: Table, offer: Access, side_by_side: int) -> Table:
    return replace(table, bound=tuple(f"{table.name}.{attribute}" for attribute in offer.bound), keys=offer.keys or 1, side_by_side=side_by_side)


def _competing(query: Query, table: Table, joins: Sequence[Join]) -> Table:
    """With the first index that every probe of this kept table could ask, where there is one: it can serve until the rows have been read."""
    requested = next(entry for entry in query.tables if entry.name == table.name)
    steps = [step for join in joins for route in join.routes for step in (*route.steps, *(s for segment in route.segments for s in segment.steps))]
    equated = [{comparison.right for comparison in step.equal} for step in steps if step.target == table.name]
    for offer in requested.access:
        if offer.kind.value == "index" and all(sides.issuperset(f"{table.name}.{attribute}" for attribute in offer.bound) for sides in equated):
            return _asked(table, offer, 1)
    return table


def _attributes(query: Query) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {relation.name: {} for relation in query.relations}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            found[_stream(side)][side] = None
    return {name: tuple(sides) for name, sides in found.items()}


def _stream(side: str) -> str:
    return side.split(".", 1)[0]


def _module(query: Query, relations: Mapping[str, Stream | Table], name: str, members: tuple[str, ...]) -> Module:
    """A stream or a table keeps all its attributes; a joined row only those that predicates to other streams still need."""
    inside = set(members)
    outward = {
        side
        for predicate in query.predicates
        for side, across in ((predicate.left, predicate.right), (predicate.right, predicate.left))
        if _stream(side) in inside and _stream(across) not in inside
    }
    columns: list[str] = []
    for member in members:
        attributes = relations[member].attributes
        columns += attributes if len(members) == 1 else [side for side in attributes if side in outward]
        columns += relations[member].payload
    streams = {member: relation for member in members if isinstance(relation := relations[member], Stream)}
    counted = tuple(member for member, stream in streams.items() if stream.rows is not None)
    columns += [f"{member}#" for member in counted]
    death, reach = "hi", min((stream.window for stream in streams.values()), default=FOREVER)
    if counted:
        # Rows of several streams die by any of them. One that counts rows always moves on, while all event times may be without an end.
        death, reach = f"{counted[0]}#", streams[counted[0]].rows or 1
    return Module("+".join(members), name, members, tuple(columns), counted, death, max(1, reach))


def _in_order(operator: Operator) -> list[Pipeline]:
    """The operator's pipelines in the order of its inputs; tables have none."""
    by_input = {pipeline.input: pipeline for pipeline in operator.pipelines}
    return [by_input[name] for name in operator.inputs if name in by_input]


def _step(query: Query, visited: Sequence[str], target: Module, scan: bool, share: float = 1.0, salt: int = 0) -> Step:
    equal: list[Comparison] = []
    other: list[Comparison] = []
    for p in range(len(query.predicates)):
        found = _oriented(query, p, visited, target.streams)
        if found is not None:
            (equal if found.op == "=" else other).append(found)
    return Step(target.key, tuple(equal), tuple(other), scan or not equal, share, salt, tuple(visited))


def _oriented(query: Query, p: int, visited: Sequence[str], members: Sequence[str]) -> Comparison | None:
    predicate = query.predicates[p]
    op = predicate.op.value
    if _stream(predicate.left) in visited and _stream(predicate.right) in members:
        return Comparison(predicate.left, op, predicate.right, p)
    if _stream(predicate.right) in visited and _stream(predicate.left) in members:
        return Comparison(predicate.right, MIRRORED[op], predicate.left, p)
    return None


def _route(query: Query, operator: Operator, name: str, modules: Mapping[str, Module], shares: Mapping[tuple[str, str, int], float]) -> Route:
    pipeline = next(pipeline for pipeline in operator.pipelines if pipeline.input == name)
    visited = list(modules[name].streams)
    steps = []
    for i, probe in enumerate(pipeline.probes):
        salt = int.from_bytes(hashlib.sha256(f"{operator.id}/{name}/{i}".encode()).digest()[:8], "big")
        target = modules[probe.target]
        steps.append(_step(query, visited, target, probe.algorithm.value == "nested_loop", shares.get((operator.id, name, i), 1.0), salt))
        visited += target.streams
    return Route(modules[name].key, name, tuple(steps))


def _place(
    query: Query,
    relations: Mapping[str, Stream | Table],
    operator: Operator,
    cache: Cache,
    routes: list[Route],
    modules: Mapping[str, Module],
    caches: dict[str, Cached],
) -> None:
    """Put a cache of the plan into its route.

    A segment that no equality leads into has no key and runs without a cache; so does one inside which only a share of the rows may
    probe, since a cache answers all of it at once, and one of several steps with a table among them, whose keys may come from elsewhere.
    """
    k = next(k for k, route in enumerate(routes) if route.name == cache.input)
    steps = routes[k].steps[cache.first : cache.last + 1]
    tabled = any(isinstance(relations.get(step.target), Table) for step in steps)
    if any(step.share < 1.0 for step in steps[1:]) or (tabled and len(steps) > 1):
        return
    by_key = {module.key: module for module in modules.values()}
    targets = [by_key[step.target] for step in steps]
    members = [name for target in targets for name in target.streams]
    visited = steps[0].arriving
    class_of = _classes(query, members, [column for target in targets for column in target.columns])
    lookup: dict[str, str] = {}
    residual: list[Comparison] = []
    for p in range(len(query.predicates)):
        found = _oriented(query, p, visited, members)
        if found is None:
            continue
        if found.op == "=" and class_of[found.right] not in lookup:
            lookup[class_of[found.right]] = found.left
        else:
            residual.append(found)
    if not lookup:
        return
    columns = tuple(sorted(lookup))
    # The inputs are part of the name: the rows of a subresult have other columns than the rows of its streams.
    key = f"{operator.id}:{','.join(sorted(target.key for target in targets))}:{','.join(columns)}"
    making = []
    seen: list[str] = []
    for target in targets:
        plain = _step(query, seen, target, False)
        bound = [
            Comparison(f"key{i}", "=", side)
            for i, column in enumerate(columns)
            for side in target.columns
            if "." in side and class_of.get(side) == column
        ]
        making.append(Step(target.key, (*bound, *plain.equal), plain.other, not (bound or plain.equal), arriving=(*visited, *seen)))
        seen += target.streams
    segment = Segment(key, cache.id, cache.first, cache.last, tuple(lookup[column] for column in columns), tuple(residual), tuple(making))
    routes[k] = Route(routes[k].input, routes[k].name, routes[k].steps, (*routes[k].segments, segment))
    known = caches.get(key)
    caches[key] = Cached(
        key,
        operator.id,
        tuple(target.key for target in targets) if known is None else known.inputs,
        columns,
        tuple(name for name in sorted(members) if isinstance(stream := relations[name], Stream) and stream.rows is not None),
        tuple(sorted(members)),
        sum(relations[name].tuple_bytes for name in members),
        max(cache.memory_bytes, known.capacity if known else 0.0),
        {},
        {},
    )


def _classes(query: Query, members: Sequence[str], present: Sequence[str]) -> dict[str, str]:
    """For each attribute of `members` the smallest one present that their own equalities make equal to it."""
    leader: dict[str, str] = {}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            if _stream(side) in members:
                leader.setdefault(side, side)
    for predicate in query.predicates:
        if predicate.op.value == "=" and predicate.left in leader and predicate.right in leader:
            first, second = sorted((leader[predicate.left], leader[predicate.right]))
            leader = {side: first if led == second else led for side, led in leader.items()}
    shown: dict[str, str] = {}
    for side in sorted(present):
        if side in leader:
            shown.setdefault(leader[side], side)
    return {side: shown[led] for side, led in leader.items() if led in shown}


def _upkept(query: Query, cache: Cached, routes: Mapping[str, Route], modules: Mapping[str, Module]) -> Cached:
    """How each arrival keeps the cache current: from its own route where that makes the cached join anyway, else by steps of its own.

    The first is the prefix invariant of paper 1. Where it does not hold, the paper updates entries from a larger join that passes
    by anyway, and so keeps of new rows only those with partners there (X ⋉ Y). Here new rows are joined by steps of their own,
    as soon as possible only those whose key has an entry. What is held is what the plan prices: the rows of X for the keys in use. The steps
    are work that the plan does not price; in return, rows that are alike need no counts of witnesses, and event times
    may come in any order: with the arriving input itself in Y, an entry would have to die with the last row that carries its key,
    and one that is out of order could still need it.
    """
    by_key = {module.key: module for module in modules.values()}
    wanted = set(cache.inputs)
    captured, upkeep = {}, {}
    for key in (key for key in cache.inputs if key in routes):  # tables do not change
        route = routes[key]
        visited = {key}
        after = None
        for i, step in enumerate(route.steps):
            if step.share < 1.0 or step.target not in wanted:
                break
            visited.add(step.target)
            if visited == wanted:
                after = i
        inside = after is not None and any(segment.first <= after < segment.last for segment in route.segments)
        if after is not None and not inside:
            captured[key] = after
            continue
        steps, members = [], list(by_key[key].streams)
        for target in [step.target for step in route.steps if step.target in wanted]:
            steps.append(_step(query, members, by_key[target], False))
            members += by_key[target].streams
        upkeep[key] = tuple(steps)
    return Cached(
        cache.key,
        cache.join,
        cache.inputs,
        cache.columns,
        cache.counted,
        cache.streams,
        cache.tuple_bytes,
        cache.capacity,
        captured,
        upkeep,
    )

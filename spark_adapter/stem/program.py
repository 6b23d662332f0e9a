"""What a cell runs: a plan reduced to state modules, probe steps and column names, small enough to send to every worker.

The problem: a plan speaks of streams, operators and predicate indexes; the cell works on frames of columns. The method:
one module per stream and per materialized operator, one route per input of each join, and for every step of a route
the predicates between what has been visited and the target. They are taken from the query, not from the plan's own lists,
so that on a cyclic graph every predicate is enforced exactly once on every route, whatever a plan says.

Columns of a frame, for a stream called bids:

    bids.auction   an attribute that predicates compare
    bids/0         the first column of the result's row
    bids#          the row's number in its stream, where the window is counted in rows
    hi, mx         min(ts + T) and max(ts) over the row's streams: two partial rows satisfy all pairwise window
                   conditions exactly when each one's mx is at most the other's hi
    h              the sum of the 64-bit hashes of the row's components: its identity, whatever the join order

This module imports nothing but the standard library: it is read by every worker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from models.plan import Cache, Operator, Pipeline, Plan
    from models.request import Query
    from spark_adapter.stem.pieces import Piece

__all__ = ["Cached", "Comparison", "Join", "Module", "Program", "Route", "Segment", "Step", "Stream", "program_of"]

ENTRY_BYTES = 32.0  # of a cache's key, in the plan's measure; its rows are measured by their streams' tuple_bytes
MODULES = "modules"  # what the state of cells is called in Spark's store
META = "meta"  # the store's key for a cell's own notes; all its other keys are names of pieces, and…
PLAN = "plan "  # … this with a number, for the plans that it runs and builds for
FOREVER = 1 << 61  # microseconds: beyond every event time, and the sum of two still fits 64 bits


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of the plan."""

    name: str
    window: int
    """T_i in microseconds; FOREVER where the window is counted in rows."""
    rows: int | None
    """N_i, where the window is counted in rows."""
    attributes: tuple[str, ...]
    payload: tuple[str, ...]
    tuple_bytes: float
    delay: int | None = None
    """By how many milliseconds the watermark trails this stream's latest event time, where that is known."""
    idle_after: int | None = None
    """For how many milliseconds it may be silent before nobody waits for it (see `silence`); None where all wait for ever."""


@dataclass(frozen=True, slots=True)
class Module:
    """A state module: the live rows of one stream or of one materialized operator."""

    key: str
    """Its name in the state store: its streams, sorted. Two plans that materialize the same streams share it."""
    name: str
    """Its name in the plan: a stream or an operator id."""
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    """What a row has besides hi, mx and h."""
    counted: tuple[str, ...]
    """Those of its streams whose windows are counted in rows."""
    death: str
    """The column that says when a row dies: `hi`, or the row's number where it is a stream's and the window is counted in rows."""
    reach: int
    """For how long a row lives at most, in the unit of `death`."""

    def last_death(self, piece: Piece) -> int:
        """When the last row of a piece dies, in the unit of `death`."""
        return piece.bounds.hi[1] if self.death == "hi" else piece.bounds.numbers[self.death[:-1]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A predicate with the column of the visited side first."""

    left: str
    op: str
    right: str
    predicate: int = -1
    """Its index in the query; −1 for a comparison with a cache's key."""


@dataclass(frozen=True, slots=True)
class Step:
    """One probe: partial rows look up their partners in one module."""

    target: str
    """Key of the probed module."""
    equal: tuple[Comparison, ...]
    other: tuple[Comparison, ...]
    scan: bool
    """Nested loop, because the plan says so or because nothing is an equality."""
    share: float = 1.0
    """Of the arriving rows this share may probe (the plan's allowance)."""
    salt: int = 0
    """Makes the choice at this step independent of the choices at others."""
    arriving: tuple[str, ...] = ()
    """Streams visited before this step."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps of a route that a cache answers."""

    cache: str
    """Key of the cache."""
    name: str
    """The cache's id in the plan."""
    first: int
    last: int
    lookup: tuple[str, ...]
    """Columns of the arriving rows, in the order of the cache's key."""
    residual: tuple[Comparison, ...]
    """Predicates between the arriving rows and the segment that the key does not cover."""
    steps: tuple[Step, ...]
    """How the entries of missing keys are made, starting from the keys."""


@dataclass(frozen=True, slots=True)
class Cached:
    """A cache of the join of some inputs of one operator, by key (paper 1)."""

    key: str
    join: str
    inputs: tuple[str, ...]
    """Keys of the modules whose join it holds."""
    columns: tuple[str, ...]
    """The attributes it is looked up by, one of each class that the segment's own predicates equate."""
    counted: tuple[str, ...]
    """Those of its streams whose windows are counted in rows."""
    streams: tuple[str, ...]
    tuple_bytes: float
    """Of one row."""
    capacity: float
    """Bytes, in the plan's measure of tuples."""
    captured: Mapping[str, int]
    """Per input the step of its own route after which exactly the cached join has been made, where there is one."""
    upkeep: Mapping[str, tuple[Step, ...]]
    """Per other input the steps that make its share of the cached join."""


@dataclass(frozen=True, slots=True)
class Route:
    """The probe order of one input."""

    input: str
    """Key of the input's module."""
    name: str
    """The input in the plan."""
    steps: tuple[Step, ...]
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """One operator."""

    name: str
    output: str
    """Key of the module of its output; of the root's, which is not kept, the same form."""
    inputs: tuple[str, ...]
    routes: tuple[Route, ...]
    columns: tuple[str, ...]
    """What its output keeps."""


@dataclass(frozen=True, slots=True)
class Program:
    """A plan as a cell runs it."""

    streams: tuple[Stream, ...]
    modules: tuple[Module, ...]
    """Streams first, then materialized operators, inputs before users."""
    joins: tuple[Join, ...]
    caches: tuple[Cached, ...]
    admitted: float = 1.0
    """Share of every stream's rows that is let in at all: below 1 where keeping the windows alone takes too much of the CPU."""
    run: str = ""
    """Names the run. Spark moves its watermark by what a run has seen, and forgets that with the run; so do we."""
    number: int = 0
    """Counts the plans that a checkpoint was given: of two plans the one with the higher number is in force."""
    adaptive: bool = False
    """Whether each cell orders its own probes by what it has measured (see `routing`)."""

    @property
    def listening(self) -> bool:
        """Whether any stream may be idle: then every batch tells every cell which streams it has rows of."""
        return any(stream.idle_after is not None for stream in self.streams)

    @property
    def sheds(self) -> bool:
        """Whether rows are kept out or from probing: then results depend on the plan."""
        return self.admitted < 1.0 or any(step.share < 1.0 for join in self.joins for route in join.routes for step in route.steps)

    @property
    def counted(self) -> bool:
        """Whether any window is counted in rows: then the order of arrival matters and there is one cell only."""
        return any(stream.rows is not None for stream in self.streams)

    @property
    def keys(self) -> frozenset[str]:
        """The attributes that equalities compare."""
        compared = [comparison for join in self.joins for route in join.routes for step in route.steps for comparison in step.equal]
        return frozenset(side for comparison in compared for side in (comparison.left, comparison.right))

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns of a result."""
        return tuple(column for stream in self.streams for column in stream.payload)


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
    modules = {name: _module(query, streams, name, (name,)) for name in streams}
    for operator in plan.operators:
        modules[operator.id] = _module(query, streams, operator.id, tuple(sorted(operator.streams)))
    joins: list[Join] = []
    caches: dict[str, Cached] = {}
    shares = {(a.operator, a.input, a.step): a.share for a in plan.allocation.allowances} if plan.allocation else {}
    for operator in plan.operators:
        routes = [_route(query, operator, pipeline.input, modules, shares) for pipeline in _in_order(operator)]
        for cache in plan.caches:
            if cache.operator == operator.id:
                _place(query, streams, operator, cache, routes, modules, caches)
        output = modules[operator.id]
        joins.append(Join(operator.id, output.key, tuple(modules[name].key for name in operator.inputs), tuple(routes), output.columns))
    kept = [modules[name] for name in streams] + [modules[operator.id] for operator in plan.operators[:-1]]
    made = {route.input: route for join in joins for route in join.routes}
    completed = tuple(_upkept(query, cache, made, modules) for cache in caches.values())
    admitted = plan.allocation.admitted if plan.allocation else 1.0
    return Program(tuple(streams.values()), tuple(kept), tuple(joins), completed, admitted, run)


def _attributes(query: Query) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {stream.name: {} for stream in query.streams}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            found[_stream(side)][side] = None
    return {name: tuple(sides) for name, sides in found.items()}


def _stream(side: str) -> str:
    return side.split(".", 1)[0]


def _module(query: Query, streams: Mapping[str, Stream], name: str, members: tuple[str, ...]) -> Module:
    """A stream keeps all its attributes; a joined row only those that predicates to other streams still need."""
    inside = set(members)
    outward = {
        side
        for predicate in query.predicates
        for side, across in ((predicate.left, predicate.right), (predicate.right, predicate.left))
        if _stream(side) in inside and _stream(across) not in inside
    }
    columns: list[str] = []
    for member in members:
        attributes = streams[member].attributes
        columns += attributes if len(members) == 1 else [side for side in attributes if side in outward]
        columns += streams[member].payload
    counted = tuple(member for member in members if streams[member].rows is not None)
    columns += [f"{member}#" for member in counted]
    death, reach = "hi", min(streams[member].window for member in members)
    if counted:
        # Rows of several streams die by any of them. One that counts rows always moves on, while all event times may be without an end.
        death, reach = f"{counted[0]}#", streams[counted[0]].rows or 1
    return Module("+".join(members), name, members, tuple(columns), counted, death, max(1, reach))


def _in_order(operator: Operator) -> list[Pipeline]:
    """The operator's pipelines in the order of its inputs."""
    by_input = {pipeline.input: pipeline for pipeline in operator.pipelines}
    return [by_input[name] for name in operator.inputs]


def _step(query: Query, visited: Sequence[str], target: Module, scan: bool, share: float = 1.0, salt: int = 0) -> Step:
    equal: list[Comparison] = []
    other: list[Comparison] = []
    for p in range(len(query.predicates)):
        found = _oriented(query, p, visited, target.streams)
        if found is not None:
            (equal if found.op == "=" else other).append(found)
    return Step(target.key, tuple(equal), tuple(other), scan or not equal, share, salt, tuple(visited))


MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


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
    streams: Mapping[str, Stream],
    operator: Operator,
    cache: Cache,
    routes: list[Route],
    modules: Mapping[str, Module],
    caches: dict[str, Cached],
) -> None:
    """Put a cache of the plan into its route.

    A segment that no equality leads into has no key and runs without a cache; so does one inside which only a share of the rows may
    probe, since a cache answers all of it at once.
    """
    k = operator.inputs.index(cache.input)
    steps = routes[k].steps[cache.first : cache.last + 1]
    if any(step.share < 1.0 for step in steps[1:]):
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
        tuple(name for name in sorted(members) if streams[name].rows is not None),
        tuple(sorted(members)),
        sum(streams[name].tuple_bytes for name in members),
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
    for key in cache.inputs:
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

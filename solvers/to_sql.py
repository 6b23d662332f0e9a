"""How is this plan typed as SQL? A plan of binary joins as one query, with the joins nested in the plan's order (contract §6).

The problem: engines join streams in the order typed, so a plan for them is a query. The method: the plan's tree, join by join. Each join gets
its predicates, and bounds on event times between the streams on its one side and those on its other: the windows', or those of a
predicate that is tighter. Guarantee: over the whole tree these bounds imply those of all pairs, so the query means what the plan does. Tables
have no time and no bounds: a join with one is its predicates alone. How it is written is the engine's matter (`sql/engines.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from models.bindings import BindingsDraft, StreamDraft, TableDraft
from models.plan import Plan
from solvers.common.errors import MethodError, SqlError
from solvers.sql.bounds import Bound, Pair, shortest, tightest
from solvers.sql.comparisons import Side, TwoSided, bounds_of, taken_apart
from solvers.sql.engines import ENGINES, Join, Written
from solvers.sql.intervals import SECOND

__all__ = ["to_sql"]


def to_sql(plan: Plan, bindings: BindingsDraft, engine: str = "spark") -> str:
    """The query. Raises MethodError where the plan has other joins than binary ones, SqlError where plan and bindings do not fit."""
    _check(plan, bindings)
    relations = {relation.name: _written(bindings, relation.name) for relation in plan.query.relations}
    windows = {stream.name: round((stream.window.seconds or 0.0) * SECOND) for stream in plan.query.streams}
    select = [_parsed(column, f"/select/{k}") for k, column in enumerate(bindings.select)]
    return ENGINES[engine](relations, windows, select).query(list(_joins(plan, bindings, relations, windows)))


def _check(plan: Plan, bindings: BindingsDraft) -> None:
    for k, table in enumerate(plan.tables):
        if table.bound:
            said = f"the plan asks {table.name} by key, which a join in SQL cannot: leave its index out of the request for a plan that keeps it"
            raise MethodError(said, f"/tables/{k}")
    for k, operator in enumerate(plan.operators):
        if len(operator.inputs) != 2:
            said = f"{operator.id} joins {', '.join(operator.inputs)} at once, which SQL cannot say: plan with --method bjtree for binary joins"
            raise MethodError(said, f"/operators/{k}/kind")
    for k, stream in enumerate(plan.query.streams):
        if stream.window.seconds is None:
            said = f"{stream.name} has a window of {stream.window.rows} rows, which a join in SQL cannot have: give it one in seconds"
            raise MethodError(said, f"/query/streams/{k}/window")
    for kind, needed, given in (("stream", plan.query.streams, bindings.streams), ("table", plan.query.tables, bindings.tables)):
        missing = [one.name for one in needed if one.name not in given]
        if missing:
            raise SqlError([(f"/{kind}s", f"there is no binding for {', '.join(missing)}; every {kind} of the plan needs one")])


def _written(bindings: BindingsDraft, name: str) -> Written:
    draft, at = _draft(bindings, name)
    where = _parsed(draft.where, f"{at}/where") if draft.where else None
    table = _parsed(draft.table or exp.to_identifier(name).sql("spark"), f"{at}/table", exp.Table)
    event_time = _parsed(draft.event_time, f"{at}/event_time") if isinstance(draft, StreamDraft) else None
    return Written(table, event_time, where)


def _draft(bindings: BindingsDraft, name: str) -> tuple[StreamDraft | TableDraft, str]:
    """What the bindings say of a stream or table, and where."""
    if name in bindings.streams:
        return bindings.streams[name], f"/streams/{name}"
    return bindings.tables[name], f"/tables/{name}"


def _parsed(text: str, pointer: str, kind: type[exp.Expr] | None = None) -> exp.Expr:
    try:
        return sqlglot.parse_one(text, read="spark", into=kind)
    except (SqlglotError, RecursionError):
        raise SqlError([(pointer, f"{text!r} is not an expression of Spark's SQL")]) from None


def _joins(plan: Plan, bindings: BindingsDraft, relations: dict[str, Written], windows: dict[str, int]) -> Iterator[Join]:
    """The plan's joins, inputs before users."""
    predicates = [TwoSided(_side(bindings, one.left), one.op.value, _side(bindings, one.right), exp.Null()) for one in plan.query.predicates]
    timed = [one for one in predicates if one.op != "!=" and all(relations[side.relation].is_time(side.base) for side in (one.left, one.right))]
    own = [Bound(i, j, windows[i], False, False, exp.Null()) for i in windows for j in windows if i != j]
    bounds = tightest([*own, *(bound for one in timed for bound in bounds_of(one))])
    others = [one for one in predicates if one not in timed or one.op == "="]
    below: dict[str, tuple[str, ...]] = {name: (name,) for name in relations}
    for operator in plan.operators:
        left, right = operator.inputs
        names = below[operator.id] = below[left] + below[right]
        ends = {pair for i in below[left] for j in below[right] for pair in ((i, j), (j, i))}
        here = tuple(one for one in others if (one.left.relation, one.right.relation) in ends)
        one, other = (tuple(name for name in below[side] if name in windows) for side in (left, right))
        pairs = [pair for i in one for j in other for pair in ((i, j), (j, i))]
        needed = _needed(one + other, bounds)
        crossing = {pair: bounds[pair] for pair in pairs}
        yield Join(operator.id, left, right, one, other, names, here, crossing, frozenset(pair for pair in pairs if pair in needed))


def _side(bindings: BindingsDraft, reference: str) -> Side:
    name, attribute = reference.split(".", 1)
    draft, at = _draft(bindings, name)
    text = draft.columns.get(attribute)
    if text is None:
        return Side(name, exp.column(attribute), None)
    base, offset = taken_apart(_parsed(text, f"{at}/columns/{attribute}"))
    return Side(name, base, offset)


def _needed(streams: tuple[str, ...], bounds: dict[Pair, Bound]) -> set[Pair]:
    """The bounds among these streams that do not follow from others by way of a third stream.

    Where event times are at a fixed distance from each other, each of several bounds may follow from the others: then all are needed.
    """
    if len(streams) < 2:
        return set()
    distance = shortest(streams, ((i, j, bounds[i, j].length) for i in streams for j in streams if i != j))
    if (distance + distance.T)[~np.eye(len(streams), dtype=bool)].min() <= 0:
        return {(i, j) for i in streams for j in streams if i != j}
    needed = set()
    for a, i in enumerate(streams):
        for b, j in enumerate(streams):
            by_others = [distance[a, k] + distance[k, b] for k in range(len(streams)) if k not in (a, b)]
            bound = bounds.get((i, j))
            if bound is not None and (not by_others or min(by_others) > bound.length - bound.strict):
                needed.add((i, j))
    return needed

"""What each condition of a query is: a bound on time, a predicate between two streams, or a condition on one.

A comparison of two streams' event times, each with an interval or without, is a bound on how much later one may be than the other. Which
column is a stream's event time is said by the statistics; where they do not say, it is the one that the query compares with
intervals, or compares with another stream's event time.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from solvers.sql.bounds import Bound
from solvers.sql.columns import Columns
from solvers.sql.comparisons import MIRRORED, Side, TwoSided, bounds_of, taken_apart
from solvers.sql.intervals import microseconds
from solvers.sql.text import FaultError, Faults, Text

__all__ = ["Conditions", "read_conditions"]

OPERATORS: dict[type[exp.Expr], str] = {exp.EQ: "=", exp.NEQ: "!=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}
INVERTED = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
ONE_EACH = "write it with one stream on each side of =, <, <=, >, >= or !="


@dataclass(frozen=True, slots=True)
class Conditions:
    """All conditions of a query, by what they are."""

    event_times: Mapping[str, exp.Expr]
    """By relation, in Spark's words."""
    bounds: Sequence[Bound]
    predicates: Sequence[TwoSided]
    where: Mapping[str, Sequence[exp.Expr]] = field(default_factory=dict)
    """By relation, in Spark's words; all must hold."""


def read_conditions(text: Text, columns: Columns, given: Mapping[str, exp.Expr], tables: Container[str], faults: Faults) -> Conditions:
    """The conditions of the query; `given` are the event times that the statistics name. Tables have none: what compares a time with a table's
    column is a predicate."""
    comparisons: list[TwoSided] = []
    where: dict[str, list[exp.Expr]] = {}
    for condition in columns.joined.conditions:
        with faults.gathered():
            columns.check_row(condition)
            relations = columns.relations(condition)
            if len(relations) == 1:
                where.setdefault(relations[0], []).append(columns.inside(condition))
            elif relations:
                comparisons += _compared(text, columns, condition)
            elif not _always(condition):
                raise text.fault(condition, f"{condition.sql(text.dialect)} says nothing of any stream")
    event_times = dict(given)
    flowing = [one for one in comparisons if one.left.relation not in tables and one.right.relation not in tables]
    with faults.gathered():
        _infer(text, flowing, event_times)
    bounds: list[Bound] = []
    predicates: list[TwoSided] = []
    times = {relation: base.sql("spark") for relation, base in event_times.items()}
    for one in comparisons:
        if one.op != "!=" and all(times.get(side.relation) == side.text for side in (one.left, one.right)):
            bounds += bounds_of(one)
            if one.op == "=":
                predicates.append(one)
        else:
            predicates.append(one)
    return Conditions(event_times, bounds, predicates, where)


def _always(condition: exp.Expr) -> bool:
    """TRUE, and the 1 = 1 that programs write before AND."""
    if isinstance(condition, exp.EQ):
        return isinstance(condition.left, exp.Literal) and condition.left == condition.right
    return isinstance(condition, exp.Boolean) and bool(condition.this)


def _compared(text: Text, columns: Columns, condition: exp.Expr, inverted: bool = False) -> Iterator[TwoSided]:
    """The comparisons that a condition on several relations consists of."""
    if isinstance(condition, exp.Paren):
        yield from _compared(text, columns, condition.this, inverted)
    elif isinstance(condition, exp.Not):
        yield from _compared(text, columns, condition.this, not inverted)
    elif isinstance(condition, exp.Between) and not inverted and not condition.args.get("symmetric"):
        for kind, end in ((exp.GTE, "low"), (exp.LTE, "high")):
            yield _two_sided(text, columns, kind(this=condition.this, expression=condition.args[end]))
    elif isinstance(condition, exp.Binary) and type(condition) in OPERATORS:
        yield _two_sided(text, columns, condition, inverted)
    elif isinstance(condition, (exp.Or, exp.In)):
        raise text.fault(condition, "alternatives (OR, IN) between streams are not planned; plan each on its own")
    elif isinstance(condition, exp.NullSafeEQ):
        raise text.fault(condition, "rows without a value are never joined; compare with =")
    else:
        shown = condition.sql(text.dialect)
        raise text.fault(condition, f"{shown} compares several streams in a way that is not planned; {ONE_EACH}")


def _two_sided(text: Text, columns: Columns, node: exp.Binary, inverted: bool = False) -> TwoSided:
    op = OPERATORS[type(node)]
    if inverted:
        op = INVERTED[op]
    difference = _difference(text, columns, node.left, op, node.right, node) or _difference(text, columns, node.right, MIRRORED[op], node.left, node)
    if difference is not None:
        return difference
    left, right = (columns.relations(side) for side in (node.left, node.right))
    if len(left) == 1 and len(right) == 1 and left != right:
        return TwoSided(_side(text, columns, node.left, left[0]), op, _side(text, columns, node.right, right[0]), node)
    shown = node.sql(text.dialect)
    if len({*left, *right}) > 2:
        raise text.fault(node, f"{shown} compares more than two streams; {ONE_EACH}")
    raise text.fault(node, f"{shown} has two streams on one side, so neither can be looked up by it; {ONE_EACH}")


def _difference(text: Text, columns: Columns, left: exp.Expr, op: str, right: exp.Expr, node: exp.Expr) -> TwoSided | None:
    """`a.ts - b.ts op INTERVAL …` as `a.ts op b.ts + INTERVAL …`."""
    left = left.unnest()
    length = microseconds(right)
    if length is None or not isinstance(left, exp.Sub):
        return None
    sides = [columns.relations(side) for side in (left.left, left.right)]
    if any(len(side) != 1 for side in sides) or sides[0] == sides[1]:
        return None
    first, second = (_side(text, columns, side, names[0]) for side, names in zip((left.left, left.right), sides, strict=True))
    return TwoSided(first, op, Side(second.relation, second.base, (second.offset or 0) + length), node)


def _side(text: Text, columns: Columns, node: exp.Expr, relation: str) -> Side:
    """The side with the intervals taken off that are added to it."""
    base, offset = taken_apart(node)
    if isinstance(base, (exp.Add, exp.Sub)) and any(isinstance(part.unnest(), exp.Interval) for part in (base.left, base.right)):
        raise text.fault(node, f"the interval in {node.sql(text.dialect)} has no fixed length in microseconds; months and years have none, use days")
    return Side(relation, columns.inside(base), offset)


def _infer(text: Text, comparisons: Sequence[TwoSided], event_times: dict[str, exp.Expr]) -> None:
    """Event times that the statistics do not give, from the comparisons."""
    given = set(event_times)
    for one in comparisons:
        for side in (one.left, one.right) if one.timed else ():
            known = event_times.setdefault(side.relation, side.base)
            if side.relation not in given and known.sql("spark") != side.text:
                raise _two_times(text, one, side, known)
    changed = True
    while changed:
        changed = False
        for one in comparisons:
            for side, other in ((one.left, one.right), (one.right, one.left)):
                time = event_times.get(other.relation)
                if one.op != "!=" and side.relation not in event_times and time is not None and time.sql("spark") == other.text:
                    event_times[side.relation] = side.base
                    changed = True


def _two_times(text: Text, one: TwoSided, side: Side, known: exp.Expr) -> FaultError:
    name, first = side.relation, known.sql("spark")
    said = f"say which is its event time, in the statistics: streams.{name}.event_time"
    return text.fault(one.node, f"{name} is compared with intervals by {first} and by {side.text}; {said}")

"""Comparisons between two relations, with the intervals on either side taken off: what bounds on time are made of, in and out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from solvers.sql.bounds import Bound
from solvers.sql.intervals import interval, microseconds

__all__ = ["MIRRORED", "Side", "TwoSided", "bounds_of", "taken_apart"]

MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a comparison: an expression over one relation, and an interval that is added to it."""

    relation: str
    base: exp.Expr
    """In Spark's words, over the relation's columns."""
    offset: int | None
    """In microseconds; None where no interval is added."""

    @property
    def text(self) -> str:
        return self.base.sql("spark")

    @property
    def moved(self) -> exp.Expr:
        """The whole side."""
        if not self.offset:
            return self.base
        base = self.base.copy()
        return exp.Add(this=exp.Paren(this=base) if isinstance(base, exp.Binary) else base, expression=interval(self.offset))


@dataclass(frozen=True, slots=True)
class TwoSided:
    """A comparison between two relations."""

    left: Side
    op: str
    right: Side
    node: exp.Expr
    """Where it stands in the text."""

    @property
    def timed(self) -> bool:
        """Whether an interval stands in it."""
        return self.left.offset is not None or self.right.offset is not None


def taken_apart(node: exp.Expr) -> tuple[exp.Expr, int | None]:
    """The expression without the intervals that are added to it, and those; None where there are none."""
    total: int | None = None
    base = node.unnest()
    while True:
        taken, rest = _last_taken_off(base)
        if rest is None:
            return base, total
        total, base = (total or 0) + taken, rest.unnest()


def _last_taken_off(node: exp.Expr) -> tuple[int, exp.Expr | None]:
    """The interval that is added last, and what it is added to; None where none is."""
    if isinstance(node, (exp.Add, exp.Sub)):
        right = microseconds(node.right)
        if right is not None:
            return (right if isinstance(node, exp.Add) else -right), node.left
        left = microseconds(node.left)
        if left is not None and isinstance(node, exp.Add):
            return left, node.right
    if isinstance(node, (exp.TimestampAdd, exp.DateAdd, exp.DatetimeAdd)) and node.args.get("unit") is not None:
        length = microseconds(exp.Interval(this=node.expression.copy(), unit=node.args["unit"].copy()))
        if length is not None:
            return length, node.this
    return 0, None


def bounds_of(one: TwoSided) -> Iterator[Bound]:
    """A comparison of event times, left + l op right + r, as bounds on how much later one is than the other."""
    gap = (one.right.offset or 0) - (one.left.offset or 0)
    left, right = one.left.relation, one.right.relation
    if one.op in ("<", "<=", "="):
        yield Bound(right, left, gap, one.op == "<", one.op == "=", one.node)
    if one.op in (">", ">=", "="):
        yield Bound(left, right, -gap, one.op == ">", one.op == "=", one.node)

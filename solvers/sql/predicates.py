"""The predicates of the request: the query's own comparisons, and the bounds on time that windows alone do not say.

What a predicate compares has to have a name. A column is its own; an expression gets one made of its words, and the bindings say
what it stands for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from solvers.sql.bounds import Bound, Pair, share
from solvers.sql.comparisons import Side, TwoSided
from solvers.sql.intervals import named
from solvers.sql.relations import NAME

__all__ = ["Attributes", "Named", "from_bounds", "from_comparisons"]

LONGEST_NAME = 48  # characters of an expression's name; with a number behind it, it stays within the 63 that a name may have


@dataclass(frozen=True, slots=True)
class Named:
    """A predicate as the request has it."""

    left: str
    """As stream.attribute."""
    op: str
    right: str
    share: float | None = None
    """Its selectivity, where that follows from windows alone."""


class Attributes:
    """Names for what predicates compare, by relation."""

    def __init__(self, sides: Sequence[Side]) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._taken: dict[tuple[str, str], str] = {}
        self.expressions: dict[str, dict[str, str]] = {}
        """By relation, attribute → expression, where that is not the column of the same name."""
        # Columns first: no expression may take the name of one.
        for side in sides:
            if (column := _column(side)) is not None:
                self._names[side.relation, _text(side)] = column
                self._taken[side.relation, column.lower()] = column

    def name(self, side: Side) -> str:
        """The side, as stream.attribute."""
        key = (side.relation, _text(side))
        if key not in self._names:
            self._names[key] = self._new(side)
            self.expressions.setdefault(side.relation, {})[self._names[key]] = key[1]
        return f"{side.relation}.{self._names[key]}"

    def _new(self, side: Side) -> str:
        words = side.text + (f" {named(side.offset)}" if side.offset else "")
        base = re.sub(r"\W+", "_", words, flags=re.ASCII).strip("_").lower()[:LONGEST_NAME].strip("_")
        base = base if NAME.fullmatch(base) else f"_{base}"
        name, number = base, 1
        while (side.relation, name.lower()) in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken[side.relation, name.lower()] = name
        return name


def _text(side: Side) -> str:
    return side.moved.sql("spark")


def _column(side: Side) -> str | None:
    """The column's name, where the side is a column and nothing else, of a name that attributes can have."""
    plain = isinstance(side.base, exp.Column) and not side.offset and NAME.fullmatch(side.base.name)
    return side.base.name if plain else None


def from_comparisons(comparisons: Sequence[TwoSided], attributes: Attributes) -> list[Named]:
    return list(dict.fromkeys(Named(attributes.name(one.left), one.op, attributes.name(one.right)) for one in comparisons))


def from_bounds(
    kept: Sequence[Bound], bounds: Mapping[Pair, Bound], lengths: Mapping[str, int], event_times: Mapping[str, exp.Expr], attributes: Attributes
) -> list[Named]:
    """`later <= earlier + length` for each bound."""
    found = []
    counted: set[Pair] = set()
    for bound in kept:
        left, right = sides_of(bound, event_times)
        found.append(Named(attributes.name(left), "<" if bound.strict else "<=", attributes.name(right), share(bound, bounds, lengths, counted)))
        counted.add((bound.earlier, bound.later))
    return found


def sides_of(bound: Bound, event_times: Mapping[str, exp.Expr]) -> tuple[Side, Side]:
    """The later stream's event time, and the earlier one's with the bound added."""
    return Side(bound.later, event_times[bound.later], None), Side(bound.earlier, event_times[bound.earlier], bound.length or None)

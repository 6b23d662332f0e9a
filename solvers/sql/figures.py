"""Rates and selectivities of a query's streams and predicates: those that are given, and guesses, said as such, where none are.

A guess is what lets a plan be drawn before anything is measured; every guess is in the warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from models.sql import PredicateStatistics, Statistics, StreamStatistics, TableStatistics
from solvers.sql.comparisons import MIRRORED
from solvers.sql.intervals import SECOND
from solvers.sql.predicates import Named
from solvers.sql.text import Faults

__all__ = ["Figures"]

GUESSED_RATE = 1.0  # per second: windows then count their seconds
# Where nothing is known of a comparison, as in the first optimizer of all (Selinger et al. 1979).
GUESSED_RANGE = 1 / 3
GUESSED_UNEQUAL = 1.0
DIGITS = 9  # of what follows from windows: enough to tell any two apart, and no noise of the last bit


class Figures:
    """Streams, tables and predicates as the request has them."""

    def __init__(
        self, given: Statistics, lengths: Mapping[str, int], tables: Mapping[str, TableStatistics], where: Mapping[str, str], warnings: list[str]
    ) -> None:
        self.given, self.lengths, self.where, self.warnings = given, lengths, where, warnings
        folded = {name.lower(): name for name in given.streams}
        self._of = {name: given.streams.get(folded.get(name.lower(), ""), StreamStatistics()) for name in lengths}
        self._tables = tables

    def check(self, predicates: Sequence[Named], faults: Faults) -> None:
        """That every figure is of something that the query has."""
        known = {name.lower() for name in self.lengths}
        for name in self.given.streams:
            if name.lower() not in known:
                streams = ", ".join(self.lengths)
                faults.append((f"/statistics/streams/{name}", f"{name} is no stream of the query; its streams are {streams}"))
        for k, one in enumerate(self.given.predicates):
            if not any(_same(one, predicate) for predicate in predicates):
                listed = ", ".join(f"{predicate.left} {predicate.op} {predicate.right}" for predicate in predicates) or "none"
                faults.append((f"/statistics/predicates/{k}", f"the query has no such predicate; its predicates are {listed}"))

    def streams(self) -> list[dict[str, Any]]:
        unknown = [name for name in self.lengths if self._of[name].rate is None]
        if unknown:
            self.warnings.append(f"no rate is given for {', '.join(unknown)}: {GUESSED_RATE:g} row a second is taken for each")
        return [self._stream(name, length) for name, length in self.lengths.items()]

    def _stream(self, name: str, length: int) -> dict[str, Any]:
        known = self._of[name]
        return {
            "name": name,
            "rate": self._rate(name) * self._passing(name, known.where_selectivity, "its rate is"),
            "window": {"seconds": length / SECOND},
            "tuple_bytes": known.tuple_bytes,
            "distinct": dict(known.distinct),
        }

    def tables(self) -> list[dict[str, Any]]:
        return [
            {
                "name": name,
                "rows": known.rows * self._passing(name, known.where_selectivity, "its number of rows is"),
                "tuple_bytes": known.tuple_bytes,
                "distinct": dict(known.distinct),
                "access": known.access,
            }
            for name, known in self._tables.items()
        ]

    def _passing(self, name: str, given: float | None, taken: str) -> float:
        """The share of rows that satisfy the condition on this relation alone."""
        if self.where.get(name) and given is None:
            self.warnings.append(f"how many rows of {name} satisfy {self.where[name]} is not given (where_selectivity): {taken} taken as it is")
        elif given is not None and not self.where.get(name):
            self.warnings.append(f"{name} has no condition of its own: its where_selectivity is not used")
            return 1.0
        return 1.0 if given is None else given

    def _rate(self, name: str) -> float:
        rate = self._of[name].rate
        return GUESSED_RATE if rate is None else rate

    def predicates(self, predicates: Sequence[Named]) -> list[dict[str, Any]]:
        guessed = []
        found = []
        for predicate in predicates:
            entry: dict[str, Any] = {"left": predicate.left, "op": predicate.op, "right": predicate.right}
            selectivity = next((one.selectivity for one in self.given.predicates if _same(one, predicate)), predicate.share)
            if selectivity is None and not self._distinct(predicate):
                selectivity = self._guess(predicate)
                guessed.append(f"{predicate.left} {predicate.op} {predicate.right}")
            if selectivity is not None:
                entry["selectivity"] = float(f"{selectivity:.{DIGITS}g}")
            found.append(entry)
        if guessed:
            self.warnings.append(f"no selectivity is given for {', '.join(guessed)}: it is a guess; give predicates, or distinct, in the statistics")
        return found

    def _distinct(self, predicate: Named) -> bool:
        """Whether the selectivity follows from distinct values, as the request has it."""
        sides = (side.split(".", 1) for side in (predicate.left, predicate.right))
        known = {name: one.distinct for given in (self._of, self._tables) for name, one in given.items()}
        return predicate.op == "=" and all(attribute in known[name] for name, attribute in sides)

    def _guess(self, predicate: Named) -> float:
        """For an equality, that of a key: a row finds one partner in a table, or in the larger of two windows."""
        if predicate.op != "=":
            return GUESSED_UNEQUAL if predicate.op == "!=" else GUESSED_RANGE
        names = [side.split(".", 1)[0] for side in (predicate.left, predicate.right)]
        rows = [self._tables[name].rows for name in names if name in self._tables]
        return 1.0 / max(1.0, *(rows or [self._rate(name) * self.lengths[name] / SECOND for name in names]))


def _same(given: PredicateStatistics, predicate: Named) -> bool:
    """Whether the figure is this predicate's: the sides in either order, and the comparison where it is given."""
    stated, mirrored = (predicate.left, predicate.right), (predicate.right, predicate.left)
    sides = (given.left.lower(), given.right.lower())
    op = predicate.op if given.op is None else given.op.value
    return (sides == tuple(map(str.lower, stated)) and op == predicate.op) or (
        sides == tuple(map(str.lower, mirrored)) and MIRRORED[op] == predicate.op
    )

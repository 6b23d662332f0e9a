"""What a cell counts while it works off a batch, and how it says so.

A note stands on its own: every step comes with the streams that arrive and those that are joined, every state with its streams, every cache
with its names in the plan. So notes of batches that ran under different plans can be added up (see `statistics`). This module is read by
every worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from spark_adapter.stem.program import Program

__all__ = ["Counts", "Tally"]


@dataclass(slots=True)
class Counts:
    """What happened at one step."""

    rows_in: int = 0
    rows_out: int = 0
    pairs: float = 0.0
    """Of an arriving row and a row of the target, within their windows."""
    looked: float = 0.0
    """Those of the pairs that were looked at: where a cache answers the step, some stand for the others."""
    matched: float = 0.0
    """Those of the pairs that satisfied the predicates."""
    variance: float = 0.0
    """Of `matched`, by chance: as much as itself where all pairs were looked at, else more."""
    cpu: float = 0.0
    shed: int = 0
    indexed: int = 0
    """Rows that indexes were made of, copies included: it is work, as `cpu` is."""
    sampled: bool = False
    """Whether pairs and matches follow from some rows only, because a cache answers this step."""

    def met(self, pairs: float, matched: int, each: float = 1.0) -> None:
        """Pairs and matches of rows that stand for `each` as many."""
        self.looked += pairs
        self.pairs += each * pairs
        self.matched += each * matched
        self.variance += each * each * matched

    def noted(self) -> list[Any]:
        """As numbers, in the order of the fields."""
        return [getattr(self, name) for name in _FIGURES] + [int(self.sampled)]

    def add(self, noted: Sequence[Any]) -> None:
        """What was noted of the same step in another cell or batch."""
        *figures, sampled = noted
        for name, value in zip(_FIGURES, figures, strict=True):
            setattr(self, name, getattr(self, name) + value)
        self.sampled |= bool(sampled)


_FIGURES = tuple(each.name for each in fields(Counts) if each.name != "sampled")


@dataclass(slots=True)
class Tally:
    """The counts of all steps of a program, in one batch."""

    program: Program
    steps: dict[tuple[str, str, int], Counts] = field(default_factory=dict)

    def at(self, join: str, route: str, step: int) -> Counts:
        return self.steps.setdefault((join, route, step), Counts())

    def noted(self) -> list[list[Any]]:
        """Per route its operator, its input, the streams of that, and per step the target, its streams and what was counted."""
        names = module_names(self.program)
        return [
            [
                join.name,
                route.name,
                route.input,
                [[names[step.target], step.target, *self.at(join.name, route.name, i).noted()] for i, step in enumerate(route.steps)],
            ]
            for join in self.program.joins
            for route in join.routes
        ]


def module_names(program: Program) -> Mapping[str, str]:
    """The plan's names of modules by their keys."""
    return {module.key: module.name for module in program.modules} | {table.name: table.name for table in program.tables}

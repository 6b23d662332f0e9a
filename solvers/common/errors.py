"""Everything a solver may raise.

WatersmeetError
├── RangeError         a size, a cost or a product of them leaves the range of a double
├── BindError          an index of a table that no order of probes can bind
├── ShapeError         operators that do not form a join tree of the query
├── MethodError        the method cannot answer this request, and says which would
└── SqlError           SQL that is no query we plan, or statistics that do not fit it: every fault, with its place

WrongBoundError        a solver's own fault, never the request's: a bound that its value contradicts
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

__all__ = ["BindError", "MethodError", "RangeError", "ShapeError", "SqlError", "WatersmeetError", "WrongBoundError", "in_range"]


class WatersmeetError(Exception):
    """Bad input that only a solver can see. `pointer` is where in the request."""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer

    @property
    def errors(self) -> list[tuple[str, str]]:
        """Every fault, as (pointer, sentence)."""
        return [(self.pointer, self.detail)]


class RangeError(WatersmeetError):
    """A size or a cost leaves the range of a double."""


class BindError(WatersmeetError):
    """An index is asked before its attributes have values."""


class ShapeError(WatersmeetError):
    """The operators are not a join tree of the query."""


class MethodError(WatersmeetError):
    """The method does not apply."""


class SqlError(WatersmeetError):
    """Faults of a SQL query, each with its place in the text, and of the statistics given with it."""

    def __init__(self, errors: Sequence[tuple[str, str]]) -> None:
        pointer, detail = errors[0]
        super().__init__(detail if len(errors) == 1 else f"The query has {len(errors)} faults.", pointer)
        self._errors = list(errors)

    @property
    def errors(self) -> list[tuple[str, str]]:
        return self._errors


class WrongBoundError(Exception):
    """A bound is on the wrong side of the value that it bounds, by more than rounding."""

    def __init__(self, value: float, bound: float, maximise: bool) -> None:
        side = "an upper bound below" if maximise else "a lower bound above"
        super().__init__(f"{bound!r} is {side} the value it bounds, {value!r}")


@contextmanager
def in_range() -> Iterator[None]:
    """Refuse what leaves the range of a double where nobody looked before, so that Python gives up on a sum.

    Whoever answers a caller works within this, the service and the command line alike.
    """
    try:
        yield
    except OverflowError as beyond:
        raise RangeError("the numbers of the request multiply or add up to more than a double can hold: lower them") from beyond

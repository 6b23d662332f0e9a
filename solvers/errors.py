"""Everything a solver may raise.

WatersmeetError
├── RangeError         a product of windows and selectivities leaves the range of a double
├── ShapeError         operators that do not form a join tree of the query
└── MethodError        the method cannot answer this request, and says which would
"""

from __future__ import annotations

__all__ = ["MethodError", "RangeError", "ShapeError", "WatersmeetError"]


class WatersmeetError(Exception):
    """Bad input that only a solver can see. `pointer` is where in the request."""

    def __init__(self, detail: str, pointer: str = "") -> None:
        super().__init__(detail)
        self.detail = detail
        self.pointer = pointer


class RangeError(WatersmeetError):
    """A size leaves the range of a double."""


class ShapeError(WatersmeetError):
    """The operators are not a join tree of the query."""


class MethodError(WatersmeetError):
    """The method does not apply."""

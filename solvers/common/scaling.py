"""Decimal figures as the whole numbers that CP-SAT works on.

A figure is taken for the decimal it was written as, so 0.1 is a tenth and three of it are 0.3. Where all of them
become whole under one factor that leaves room for sums, nothing is lost; otherwise they are rounded to the given side
and the caller is told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

__all__ = ["MOST_UNITS", "decimal", "whole_numbers"]

ROOM = 1 << 60  # CP-SAT adds in 64 bits
MOST_UNITS = 1 << 40  # whole units of one path: with more, one unit is below the rounding of the figures


def decimal(value: float) -> Fraction:
    """
    >>> decimal(0.1) * 3 == decimal(0.3)
    True
    """
    return Fraction(repr(float(value)))


def whole_numbers(values: Sequence[float], counts: Sequence[int], up: bool = False) -> tuple[list[int], bool]:
    """The values times one common factor, and whether they are exact. Σ value·count stays below 2⁶⁰.

    >>> whole_numbers([0.5, 1.25], [10, 10])
    ([2, 5], True)
    """
    fractions = [decimal(value) for value in values]
    largest = sum((value * count for value, count in zip(fractions, counts, strict=True)), Fraction(0))
    if largest == 0:
        return [0] * len(values), True
    factor = Fraction(math.lcm(*(value.denominator for value in fractions)))
    exact = largest * factor < ROOM
    if not exact:
        factor = ROOM / (2 * largest)
    scaled = [value * factor for value in fractions]
    return [math.ceil(value) if up else math.floor(value) for value in scaled], exact

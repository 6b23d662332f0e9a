"""Products of many factors, on mantissas and exponents apart: only a result outside the range of a double overflows (to infinity), never an
intermediate; a result below the range becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["AT_ONCE", "product", "product_at_once"]

AT_ONCE = 1_000  # mantissas that are multiplied as they are: none is below 1/2, and a double goes down to 2^-1022


def product(factors: Iterable[float]) -> float:
    """The product, in the order given; infinity only where the result itself leaves the range of a double.

    >>> product([1e200, 1e200, 1e-300])
    1e+100
    """
    mantissa, exponent = 1.0, 0
    for factor in factors:
        m, e = math.frexp(mantissa * math.frexp(factor)[0])
        mantissa, exponent = m, exponent + e + math.frexp(factor)[1]
    try:
        return math.ldexp(mantissa, exponent)
    except OverflowError:
        return math.inf


def product_at_once(factors: NDArray[np.float64], more: tuple[float, ...] = ()) -> float:
    """The same of hundreds of factors."""
    import numpy as np  # only in large graphs

    mantissas, exponents = np.frexp(factors)
    pieces, carried = np.frexp(np.multiply.reduceat(mantissas, range(0, len(mantissas), AT_ONCE)))
    parts = [math.frexp(factor) for factor in more]
    mantissa = math.prod([*pieces.tolist(), *(part for part, _ in parts)])
    try:
        return math.ldexp(mantissa, int(exponents.sum() + carried.sum()) + sum(power for _, power in parts))
    except OverflowError:
        return math.inf

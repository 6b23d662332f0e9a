"""What a value and its bound prove together: the one place where a gap is taken (contract §3).

A bound on the wrong side of its value is a bug in whoever made it, so it is never mended here: it is raised.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from models.plan import Proof
from solvers.common.errors import WrongBoundError
from solvers.common.tolerances import ROUNDING

__all__ = ["Claim", "claim", "gap_between"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What an answer says of its value."""

    proof: Proof
    bound: float | None
    gap: float | None


def gap_between(value: float, bound: float | None, maximise: bool = False) -> float | None:
    """(value − bound) / value; where the value is made large, (bound − value) / bound. None without a bound, or with an infinite one.

    Raises WrongBoundError where the bound says that the value cannot be.

    >>> gap_between(4.0, 3.0), gap_between(3.0, 4.0, maximise=True)
    (0.25, 0.25)
    """
    if bound is None:
        return None
    low, high = (value, bound) if maximise else (bound, value)
    if maximise and high == math.inf:
        return None
    if not high - low >= -ROUNDING * max(abs(low), abs(high)):  # so that not-a-number is wrong too
        raise WrongBoundError(value, bound, maximise)
    return max(0.0, high - low) / high if high > 0.0 else 0.0


def claim(value: float, bound: float | None, maximise: bool = False) -> Claim:
    """What a value and its bound prove. A gap that is no more than rounding counts as none.

    >>> claim(4.0, 3.0)
    Claim(proof=<Proof.BOUNDED: 'bounded'>, bound=3.0, gap=0.25)
    """
    gap = gap_between(value, bound, maximise)
    if gap is None:
        return Claim(Proof.NONE, None, None)
    if gap < ROUNDING:
        return Claim(Proof.OPTIMAL, value, 0.0)
    return Claim(Proof.BOUNDED, bound, gap)

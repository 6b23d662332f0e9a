"""How far two figures may differ and still be the same: every tolerance of the solvers, with its reason.

Figures are doubles, and the same sum in another order differs in its last digits: by less than 1e-12 of itself, for hundreds of terms. Two
sizes of tolerance follow. `ROUNDING` is far above that, for decisions that callers see; `SUMMING` is just above it, for bounds that
should stay tight. Thresholds that decide how long an algorithm goes on, or what is worth doing, are no tolerances and stand with their algorithm.
"""

from __future__ import annotations

__all__ = [
    "AT_A_CAP",
    "NUDGE",
    "ROUNDED",
    "ROUNDED_DOWN",
    "ROUNDING",
    "SAME_COST",
    "SHAVED",
    "SIMPLEX_SLACK",
    "SUMMED",
    "SUMMED_DOWN",
    "SUMMING",
    "SUM_ROUNDING",
    "TIED",
]

ROUNDING = 1e-9
"""Relative. Figures this close are the same; the contract calls a gap below this none, and a plan over a cap by less is within it until its price
decides."""
ROUNDED = 1.0 + ROUNDING
"""A figure times this is not smaller than the same figure summed in another order. A search multiplies a cap by it, so that no plan is
dropped that its price, which decides in the end, would admit."""
ROUNDED_DOWN = 1.0 - ROUNDING
"""A figure times this is not larger than the same figure summed in another order; a gain that is smaller is none."""

SUMMING = 1e-12
"""Relative. What some dozens or hundreds of products differ by when added up in another order, each off by 1e-16."""
SUMMED = 1.0 + SUMMING
"""A bound divided by this, or a cap multiplied by it, is on the safe side of the same products added up in another order."""
SUMMED_DOWN = 1.0 - SUMMING
"""A figure times this is not above the same figure computed in another way."""
TIED = SUMMED_DOWN
"""Costs whose ratio is above this are a tie, which the order of the inputs breaks: a plan must not change with the last bit of a rate."""
SHAVED = 1.0 - 1e-13
"""A bound of the compiled searches times this is not above the same few dozen terms added up in another order."""

AT_A_CAP = 1e-11
"""Relative. Within this of a cap the compiled searches drop nothing: prices, which round differently by far less, decide there."""
SAME_COST = 1e-11
"""Of the cost without caches: two choices of caches this close cost the same, so branch and bound does not tell them apart. Ten times what
sums differ by, a hundredth of what callers see."""

SIMPLEX_SLACK = 1e-9
"""Of a row's end: what the simplex may break a row by, rows being scaled to about 1 and its own tolerances set to 1e-12."""
NUDGE = 1e-11
"""Relative. Multipliers this much to the safe side keep their rounding from being charged at a path's whole limit."""
SUM_ROUNDING = 1e-14
"""Of the terms of a linear program's bound: some dozens of units in the last place, since `fsum` rounds once."""

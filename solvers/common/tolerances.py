"""How far two figures may differ and still be the same: every tolerance of the searches, with its reason."""

from __future__ import annotations

__all__ = ["ROUNDED", "ROUNDING", "SUMMED"]

ROUNDING = 1e-9
"""Relative. Sums over hundreds of terms in another order differ by less than 1e-12; the contract calls a gap below this none."""
SUMMED = 1.0 + 1e-12
"""A bound divided by this is not above the same few dozen products added up in another order, each off by 1e-16."""
ROUNDED = 1.0 + ROUNDING
"""A figure times this is not smaller than the same figure summed in another order."""

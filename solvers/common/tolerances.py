"""How far two figures may differ and still be the same: every tolerance of the searches, with its reason."""

from __future__ import annotations

__all__ = ["AT_A_CAP", "ROUNDED", "ROUNDING", "SHAVED", "SUMMED"]

ROUNDING = 1e-9
"""Relative. Sums over hundreds of terms in another order differ by less than 1e-12; the contract calls a gap below this none."""
SUMMED = 1.0 + 1e-12
"""A bound divided by this is not above the same few dozen products added up in another order, each off by 1e-16."""
ROUNDED = 1.0 + ROUNDING
"""A figure times this is not smaller than the same figure summed in another order."""
SHAVED = 1.0 - 1e-13
"""A bound of the compiled searches times this is not above the same few dozen terms added up in another order."""
AT_A_CAP = 1e-11
"""Relative. Within this of a cap the compiled searches drop nothing: prices, which round differently by far less, decide there."""

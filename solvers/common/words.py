"""Figures as a person reads them, for explanations, warnings and drawings."""

from __future__ import annotations

import math

__all__ = ["amount", "bytes_", "cpu", "per_second"]

_SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ROUNDS_UP = 0.9995  # of a unit: three digits of what is above this are one unit


def amount(value: float) -> str:
    """Three significant digits.

    >>> amount(1234567), amount(12.345), amount(0), amount(4.4e-05)
    ('1.23M', '12.3', '0', '4.4e-05')
    """
    for scale, letter in _SCALES:
        if abs(value) >= scale * _ROUNDS_UP:
            return f"{value / scale:.3g}{letter}" if abs(value) < 1e15 else f"{value:.2e}"
    return f"{value:.3g}"


def bytes_(value: float) -> str:
    """Bytes in decimal units.

    >>> bytes_(12_000_000), bytes_(640)
    ('12 MB', '640 B')
    """
    for scale, letter in _SCALES:
        if value >= scale * _ROUNDS_UP:
            return f"{value / scale:.3g} {letter}B" if value < 1e15 else f"{value:.2e} B"
    return f"{value:.3g} B"


def per_second(value: float) -> str:
    """
    >>> per_second(200)
    '200 tuples/s'
    """
    return f"{amount(value)} tuples/s"


def cpu(value: float) -> str:
    """CPU-seconds per second.

    >>> cpu(0.4123), cpu(2e-6)
    ('0.412', '2e-06')
    """
    return f"{value:.3g}" if math.isfinite(value) else "∞"

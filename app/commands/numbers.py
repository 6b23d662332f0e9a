"""Numbers given as options."""

from __future__ import annotations

import argparse
import math

__all__ = ["positive", "share"]


def positive(text: str) -> float:
    """Seconds, above 0."""
    return _number(text, 0.0, "a number of seconds above 0")


def share(text: str) -> float:
    """A share, at least 0."""
    return _number(text, -math.ulp(0.0), "a share of at least 0, such as 0.05")


def _number(text: str, above: float, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not above < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value

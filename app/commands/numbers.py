"""Numbers given as options."""

from __future__ import annotations

import argparse
import math

__all__ = ["port", "positive", "share"]

LARGEST_PORT = 65535  # sixteen bits


def positive(text: str) -> float:
    """Seconds, above 0."""
    return _number(text, 0.0, "a number of seconds above 0")


def share(text: str) -> float:
    """A share, at least 0."""
    return _number(text, -math.ulp(0.0), "a share of at least 0, such as 0.05")


def port(text: str) -> int:
    """A port to listen on; 0 is any that is free."""
    if not (text.isascii() and text.isdecimal() and int(text) <= LARGEST_PORT):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {LARGEST_PORT}, got {text!r}")
    return int(text)


def _number(text: str, above: float, wanted: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not above < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be {wanted}, got {text!r}")
    return value

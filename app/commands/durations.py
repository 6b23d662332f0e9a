"""Lengths of time as they are typed: 90s, 10m, 2h, 1d, or a number of seconds."""

from __future__ import annotations

import argparse
import math
import re

__all__ = ["duration"]

SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration(text: str) -> float:
    """In seconds, for `argparse`.

    >>> duration("10m"), duration("1.5h"), duration("45")
    (600.0, 5400.0, 45.0)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhd]?)", text.strip())
    seconds = float(found[1]) * SECONDS[found[2]] if found else 0.0
    if not 0.0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be a time above 0 such as 90s, 10m, 2h or 1d, got {text!r}")
    return seconds

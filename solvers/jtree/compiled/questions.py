"""What is asked of the search for staircases, and how it answers, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import SHAVED
from solvers.jtree.compiled.compiling import Floats, Ints, making, released
from solvers.jtree.compiled.seeds import Seeds
from solvers.jtree.compiled.sets import Sets

__all__ = ["FRONTIER", "FULL", "LEAST_BYTES", "LEAST_CPU", "LEAST_LOAD", "STOPPED", "Limits", "Stairs", "as_seeds", "tightened"]

FRONTIER, LEAST_CPU, LEAST_BYTES, LEAST_LOAD = 0, 1, 2, 3  # what is asked for
STOPPED, FULL = 1, 2  # how a search ends that is not complete: it was told to stop, or there is no room for its points


class Limits(NamedTuple):
    """What the caps leave above what every plan pays, and what is asked for."""

    goal: int
    cap_e: float
    """Plans above this are dropped. It is the CPU cap and a little more, because kernels round differently from prices."""
    cap_m: float
    sure_e: float
    """Up to here a plan is surely within the CPU cap: a little less than it."""
    sure_m: float
    cpu: float
    """The caps themselves and what every plan pays, for LEAST_LOAD: the least max(CPU / cap, memory / cap)."""
    bytes: float
    pays: float
    pays_bytes: float
    beam: int = 0
    """Only plans that keep some of this many sets of each number of streams, those of the lowest rates (`few_of`); 0: all plans."""


@released
def tightened(limits: Limits, limit_e: float, limit_m: float, e: float, m: float) -> tuple[float, float]:
    """The limits after a plan with these figures was found: from then on no worse plan is looked for."""
    if limits.goal == LEAST_LOAD:
        load = max((e + limits.pays) / limits.cpu, (m + limits.pays_bytes) / limits.bytes) * (2.0 - SHAVED)
        return min(limit_e, load * limits.cpu - limits.pays), min(limit_m, load * limits.bytes - limits.pays_bytes)
    if e <= limits.sure_e and m <= limits.sure_m:
        if limits.goal == LEAST_CPU:
            return min(limit_e, e), limit_m
        if limits.goal == LEAST_BYTES:
            return limit_e, min(limit_m, m)
    return limit_e, limit_m


class Stairs(NamedTuple):
    """The frontier so far, and what its rows refer to.

    A row ≥ 0 starts in `entries` with a number of inputs, then the inputs: −1−i is stream i, p ≥ 0 is point p. Row −1 is the plain mjoin,
    row −2−k seed k.
    """

    status: int
    """0: complete, STOPPED or FULL."""
    e: Floats
    m: Floats
    operators: Ints
    rows: Ints
    point_rows: Ints
    point_sets: Ints
    entries: Ints


@making
def as_seeds(sets: Sets, start: Seeds, stairs: Stairs) -> Seeds:
    """What a search found as seeds of the next; `start` were its own."""
    n = sets.n
    rows, entries = stairs.rows, stairs.entries
    members = np.zeros((rows.size, n), np.int64)
    waiting = np.empty(n + 1, np.int64)
    for k in range(rows.size):
        if rows[k] <= -2:
            members[k] = start.members[-2 - rows[k]]
            continue
        members[k, 0] = sets.mask[-1]
        count, left, row = 1, 0, rows[k]
        while True:
            if row >= 0:
                for j in range(entries[row]):
                    point = entries[row + 1 + j]
                    if point >= 0:
                        members[k, count] = sets.mask[stairs.point_sets[point]]
                        count += 1
                        waiting[left] = stairs.point_rows[point]
                        left += 1
            if left == 0:
                break
            left -= 1
            row = waiting[left]
    return Seeds(stairs.e, stairs.m, stairs.operators, members)

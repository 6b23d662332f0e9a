"""The staircase of one set while its plans are searched, and what they may cost at most, compiled."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, inlined, making
from solvers.jtree.compiled.questions import Limits, tightened
from solvers.jtree.compiled.staircase import Steps, dominated, insert, lighter, room_for

__all__ = ["COUNT", "MOST_E", "MOST_M", "OF_ALL", "Stair", "begin_stair", "bought_by", "misses", "put", "stair_room"]

COUNT, OF_ALL = 0, 1  # places of `Stair.counts`: how many points there are, and whether the set is all streams
MOST_E, MOST_M = 0, 1  # places of `Stair.most`
FOREIGN = -(1 << 40)  # the row of a point of the frontier in another set's staircase


class Stair(NamedTuple):
    """The points so far, and the limits for more."""

    here: Steps
    most: Floats
    counts: Ints
    limits: Limits


@making
def stair_room(longest: int, limits: Limits) -> Stair:
    return Stair(room_for(longest), np.zeros(2), np.zeros(2, np.int64), limits)


@inlined
def begin_stair(stair: Stair, frontier: Steps, most: Floats, count: int, own_e: float, own_m: float, of_all: bool) -> None:
    """A set's staircase begins with the frontier's points, less what keeping the set adds: what they beat is in no plan worth having. Of the points
    that are then at or below 0 only the last counts."""
    skipped = 0
    while not of_all and skipped + 1 < count and frontier.e[skipped + 1] <= own_e:
        skipped += 1
    for k in range(count - skipped):
        at = skipped + k
        stair.here.e[k], stair.here.m[k] = frontier.e[at] - own_e, frontier.m[at] - own_m
        stair.here.o[k], stair.here.row[k] = (frontier.o[at], frontier.row[at]) if of_all else (frontier.o[at] - 1, FOREIGN)
    stair.counts[COUNT], stair.counts[OF_ALL] = count - skipped, of_all
    stair.most[MOST_E], stair.most[MOST_M] = most[MOST_E] - own_e, most[MOST_M] - own_m


@inlined
def misses(stair: Stair, e: float, m: float, o: int) -> bool:
    """Whether a plan with these figures, or worse ones, breaks a limit or is beaten."""
    if e > stair.most[MOST_E] or m > stair.most[MOST_M]:
        return True
    return dominated(stair.here.e, stair.here.m, stair.here.o, stair.counts[COUNT], e, m, o)


@inlined
def bought_by(stair: Stair, m: float) -> float:
    """The least that a point costs which needs no more memory; infinity where there is none."""
    count = stair.counts[COUNT]
    place = lighter(stair.here.m, count, m)
    return float(stair.here.e[place]) if place < count else np.inf


@inlined
def put(stair: Stair, e: float, m: float, o: int, row: int) -> None:
    """A point that is not beaten. Of all streams no worse plan is looked for from then on."""
    stair.counts[COUNT] = insert(stair.here, stair.counts[COUNT], e, m, o, row)
    if stair.counts[OF_ALL]:
        stair.most[MOST_E], stair.most[MOST_M] = tightened(stair.limits, stair.most[MOST_E], stair.most[MOST_M], e, m)

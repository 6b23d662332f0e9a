"""Every choice of the points of a join's blocks that is a step of a staircase, compiled.

Problem: a join of blocks costs the same whatever plans the blocks have, and each block has a staircase of them. Method: depth first through the
blocks' points by rising CPU, dropped where the points chosen and the least of what is left are beaten; the last block's points are gone through
one after the other beside the staircase. Complexity: O(choices that are not dropped · points).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import SHAVED
from solvers.jtree.compiled.blocks import Blocks
from solvers.jtree.compiled.climbing import COUNT, MOST_E, MOST_M, Stair, misses, put
from solvers.jtree.compiled.compiling import Floats, Ints, inlined, making
from solvers.jtree.compiled.questions import FULL, STOPPED
from solvers.jtree.compiled.staircase import up_to

__all__ = ["MAX_POINTS", "Points", "choose", "last_block", "point_room", "record", "useless"]

MAX_POINTS = 1 << 15  # of one staircase; beyond it the search stops
POINTS, USED = 0, 1  # places of `Points.counts`


class Points(NamedTuple):
    """The points of all blocks' staircases, one after the other, and what the choice at hand is made of."""

    e: Floats
    m: Floats
    o: Ints
    row: Ints
    """Where its inputs stand in `entries`."""
    of: Ints
    """The set whose point it is."""
    entries: Ints
    """Their number, then each: a point, or −1 − i for stream i."""
    counts: Ints
    inner: Ints
    """The blocks that are no streams."""
    pick: Ints
    """Which point of each is next."""
    part_e: Floats
    part_m: Floats
    part_o: Ints
    """What the join and the points chosen so far come to, and below what all blocks from here on do at least."""
    tail_e: Floats
    tail_m: Floats
    tail_o: Ints
    streams: int


@making
def point_room(n: int, room: int) -> Points:
    """Room for so many points of a graph of n streams."""
    return Points(
        e=np.empty(room),
        m=np.empty(room),
        o=np.empty(room, np.int64),
        row=np.empty(room, np.int64),
        of=np.empty(room, np.int64),
        entries=np.empty(4 * room, np.int64),
        counts=np.zeros(2, np.int64),
        inner=np.empty(n + 1, np.int64),
        pick=np.empty(n + 1, np.int64),
        part_e=np.empty(n + 2),
        part_m=np.empty(n + 2),
        part_o=np.empty(n + 2, np.int64),
        tail_e=np.empty(n + 2),
        tail_m=np.empty(n + 2),
        tail_o=np.empty(n + 2, np.int64),
        streams=n,
    )


@inlined
def record(points: Points, blocks: Blocks, joined: Ints, joins: int) -> int:
    """Write down the choice at hand. Returns where."""
    row, place = points.counts[USED], 0
    points.entries[row] = joins
    for j in range(joins):
        if joined[j] < points.streams:
            points.entries[row + 1 + j] = -1 - joined[j]
        else:
            points.entries[row + 1 + j] = blocks.first[joined[j]] + points.pick[place] - 1
            place += 1
    points.counts[USED] += joins + 1
    return int(row)


@inlined
def last_block(points: Points, blocks: Blocks, stair: Stair, joined: Ints, joins: int, level: int, many: int) -> int:
    """All blocks but the last, if any has points to choose, have theirs: try each of its points. FULL or STOPPED where there is no room."""
    block, alone, below = 0, 1, 0
    if many:
        block = points.inner[level]
        alone = blocks.many[block]
    here_e, here_m, here_o = stair.here.e, stair.here.m, stair.here.o
    for k in range(alone):
        e, m, o = points.part_e[level], points.part_m[level], points.part_o[level]
        if many:
            point = blocks.first[block] + k
            e, m, o = e + points.e[point] + blocks.kept_e[block], m + points.m[point] + blocks.kept_m[block], o + points.o[point]
        if e > stair.most[MOST_E]:
            break
        if m > stair.most[MOST_M]:
            continue
        count = stair.counts[COUNT]
        if below == 0:
            below = up_to(here_e, count, e)
        while below < count and here_e[below] <= e:
            below += 1
        before = max(below - 1, 0)
        beaten = (here_e[before] < e) | (here_m[before] < m) | (here_o[before] <= o)
        if (below > 0) & (here_m[before] <= m) & beaten:
            continue
        if points.counts[USED] + joins + 1 > points.entries.size or count == here_e.size - 1:
            return STOPPED if count == MAX_POINTS - 1 else FULL
        points.pick[level] = k + 1
        put(stair, e, m, o, record(points, blocks, joined, joins))
        below = 0
    return 0


@inlined
def useless(points: Points, stair: Stair, level: int, many: int) -> int:
    """Whether no choice from a level on can be of use: 2 where none with a dearer point of the block before can either."""
    low_e = points.part_e[level] + points.tail_e[level]
    if level < many:
        low_e *= SHAVED
    if low_e > stair.most[MOST_E]:
        return 2
    return int(misses(stair, low_e, points.part_m[level] + points.tail_m[level], points.part_o[level] + points.tail_o[level]))


@inlined
def choose(points: Points, blocks: Blocks, stair: Stair, joined: Ints, joins: int, node: float) -> int:
    """Put every choice of points of the blocks joined into the staircase that is a step of it; the join alone costs `node`.

    FULL or STOPPED where there is no room for them.
    """
    many = 0
    for k in range(joins):
        if joined[k] >= points.streams:
            points.inner[many] = joined[k]
            many += 1
    points.tail_e[many], points.tail_m[many], points.tail_o[many] = 0.0, 0.0, 0
    for k in range(many - 1, -1, -1):
        block = points.inner[k]
        points.tail_e[k] = points.tail_e[k + 1] + blocks.e[block]
        points.tail_m[k] = points.tail_m[k + 1] + blocks.m[block]
        points.tail_o[k] = points.tail_o[k + 1] + blocks.o[block]
    points.part_e[0], points.part_m[0], points.part_o[0] = node, 0.0, 1
    level = 0
    points.pick[0] = -1
    while level >= 0:
        if points.pick[level] < 0:  # the first visit of a level
            points.pick[level] = 0
            drop = useless(points, stair, level, many)
            if drop:
                level -= 1
                if drop == 2 and level >= 0:
                    points.pick[level] = blocks.many[points.inner[level]]
                continue
        if level + 1 < many:
            block = points.inner[level]
            if points.pick[level] == blocks.many[block]:
                level -= 1
                continue
            point = blocks.first[block] + points.pick[level]
            points.pick[level] += 1
            points.part_e[level + 1] = points.part_e[level] + points.e[point] + blocks.kept_e[block]
            points.part_m[level + 1] = points.part_m[level] + points.m[point] + blocks.kept_m[block]
            points.part_o[level + 1] = points.part_o[level] + points.o[point]
            level += 1
            points.pick[level] = -1
            continue
        status = last_block(points, blocks, stair, joined, joins, level, many)
        if status:
            return status
        level -= 1
    return 0

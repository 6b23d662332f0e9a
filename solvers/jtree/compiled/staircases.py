"""The staircase of (CPU, memory) of every connected set that a good plan could keep, by dynamic programming, compiled.

Problem: all plans that no other beats in both resources, or the best by one of them, within limits. Method: size and rate of a subresult do
not depend on how it was joined, and costs add up over joins; so of two sub-plans of the same set the one that is worse in both resources
can go. The staircase of all streams is the whole frontier. For every set V, by rising number of streams, the search tries the plain mjoin, every
binary join, and every partition into three or more blocks, each with every choice of its blocks' points. A sub-plan is dropped where it breaks a
limit, where it cannot beat a point of V's own staircase, or where no plan that keeps it can beat a point of the frontier so far, which starts
from seeds.

Partitions are made and bounded in `partitions`, the points of their blocks chosen in `choices`.

Guarantee: exact in whole multiples of the last digit of what every plan pays (`Prices.grain`): sums are exact, and plans whose figures agree to the
last bit of a double are ties. Of ties the one with fewer operators stays, then the first met. Complexity: exponential in the number of
streams; what dominance and bounds leave decides (tests/bench/bench_search.py). Reference: JTree-Finder of paper 3, which drops nothing.

A search over a beam, the few sets of each number of streams that have the lowest rates, takes next to no time and nearly always meets
the best plans: what it finds are the seeds of the search over all sets, which then has little but the proof to do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.binary_tree import binary_splits, members_as_rows
from solvers.jtree.compiled.blocks import Blocks, Lists, block_room, empty_lists, few_of, least_shares, sort_lists, usable_sets
from solvers.jtree.compiled.bounds import Bounds, bounds_of
from solvers.jtree.compiled.choices import MAX_POINTS, POINTS, USED, Points, choose, point_room
from solvers.jtree.compiled.climbing import COUNT, FOREIGN, MOST_E, MOST_M, Stair, begin_stair, misses, put, stair_room
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, inlined, making, released
from solvers.jtree.compiled.cost import Prices, binary_excess, rounded_down
from solvers.jtree.compiled.partitions import NO_MORE, TOLD_TO_STOP, Inside, Walk, begin_walk, mjoin_cost, next_partition, walk_room
from solvers.jtree.compiled.questions import FULL, STOPPED, Limits, Stairs, tightened
from solvers.jtree.compiled.seeds import Seeds, seeds
from solvers.jtree.compiled.sets import Sets, lowest, popcount
from solvers.jtree.compiled.staircase import Steps, dominated, insert, room_for

__all__ = ["at_once", "begun", "climb", "climbed", "from_seeds", "joins_of", "may_be_kept", "staircases", "take_as_block"]

MORE_ROOM = 16  # times as much, when it was not enough
PLAIN = -1  # the row of a plain mjoin


class Room(NamedTuple):
    """What a search works on."""

    frontier: Steps
    most: Floats
    """Limits for plans of all streams."""
    counts: Ints
    """One figure: the points of the frontier."""
    usable: Flags
    lists: Lists
    blocks: Blocks
    inside: Inside
    walk: Walk
    points: Points
    stair: Stair


@released
def from_seeds(start: Seeds, limits: Limits, frontier: Steps) -> tuple[int, float, float]:
    """Fill the frontier with the seeds. Returns how many points it has then, and the limits that are left."""
    limit_e, limit_m = limits.cap_e, limits.cap_m
    count = 0
    for k in range(start.e.size):
        e, m, o = start.e[k], start.m[k], start.operators[k]
        if e <= limit_e and m <= limit_m and not dominated(frontier.e, frontier.m, frontier.o, count, e, m, o):
            count = insert(frontier, count, e, m, o, -2 - k)
            limit_e, limit_m = tightened(limits, limit_e, limit_m, e, m)
    return count, limit_e, limit_m


@making
def room_to_climb(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Room:
    """Room for so many points, the seeds taken up."""
    longest = min(MAX_POINTS, room)
    frontier, most, counts = room_for(longest), np.empty(2), np.empty(1, np.int64)
    counts[0], most[MOST_E], most[MOST_M] = from_seeds(start, limits, frontier)
    usable = usable_sets(bounds, few_of(sets, limits.beam), frontier, counts[0], most[MOST_E], most[MOST_M])
    lists, blocks = empty_lists(sets, usable), block_room(sets, bounds, least_shares(sets, bounds, usable))
    inside, walk = walk_room(sets, prices, lists.listed.size, stop)
    return Room(frontier, most, counts, usable, lists, blocks, inside, walk, point_room(sets.n, room), stair_room(longest, limits))


@inlined
def may_be_kept(prices: Prices, bounds: Bounds, room: Room, v: int) -> bool:
    """Whether any plan that keeps v may beat the frontier; if so, v's staircase is begun."""
    own_e, own_m, count = rounded_down(bounds.kept_e[v] + bounds.outside[v], prices.grain), bounds.kept_m[v], room.counts[0]
    e, front = own_e + bounds.inside[v], room.frontier
    if e > room.most[MOST_E] or own_m > room.most[MOST_M] or dominated(front.e, front.m, front.o, count, e, own_m, 2):
        return False
    begin_stair(room.stair, front, room.most, count, own_e, own_m, False)
    return True


@inlined
def joins_of(sets: Sets, prices: Prices, bounds: Bounds, room: Room, v: int) -> int:
    """Put the plans of v into its staircase: the plain mjoin, every binary join, every other mjoin. FULL or STOPPED where it does not end."""
    inside, walk, blocks, points, stair = room.inside, room.walk, room.blocks, room.points, room.stair
    whole = sets.mask[v]
    first = lowest(whole)
    e = bounds.plain[v] if popcount(whole) > 2 else binary_excess(sets, prices, first, lowest(whole & (whole - 1)))
    if not misses(stair, e, 0.0, 1):
        put(stair, e, 0.0, 1, PLAIN)
    begin_walk(sets, room.lists, blocks.share, inside, walk, v)
    listed = range(inside.begin[first * (sets.n + 1)], inside.begin[(first + 1) * (sets.n + 1)]) if popcount(whole) > 2 else range(0)
    for place in listed:
        one, other = inside.block[place], inside.less[place]
        if other < 0 or (other >= sets.n and blocks.many[other] == 0):
            continue
        walk.block[0], walk.block[1] = one, other
        status = choose(points, blocks, stair, walk.block, 2, binary_excess(sets, prices, one, other))
        if status:
            return status
    while True:
        joins = next_partition(sets, prices, bounds.ahead, blocks, inside, walk, stair)
        if joins == NO_MORE:
            return 0
        if joins == TOLD_TO_STOP:
            return STOPPED
        status = choose(points, blocks, stair, walk.block, joins, mjoin_cost(sets, prices, blocks, walk, stair, joins))
        if status:
            return status


@inlined
def take_as_block(sets: Sets, ahead: Floats, room: Room, v: int) -> bool:
    """Keep the points of v's staircase: v is a block of larger sets from then on. False where there is no room."""
    points, blocks, here, count = room.points, room.blocks, room.stair.here, room.stair.counts[COUNT]
    first = points.counts[POINTS]
    if first + count > points.e.size:
        return False
    taken, blocks.o[v] = first, sets.n
    for k in range(count):
        if here.row[k] != FOREIGN:
            points.e[taken], points.m[taken], points.o[taken] = here.e[k], here.m[k], here.o[k]
            points.row[taken], points.of[taken] = here.row[k], v
            blocks.o[v] = min(blocks.o[v], here.o[k])
            taken += 1
    blocks.first[v], blocks.many[v], points.counts[POINTS] = first, taken - first, taken
    if taken == first:
        return True
    blocks.e[v], blocks.m[v] = points.e[first] + blocks.kept_e[v], points.m[taken - 1] + blocks.kept_m[v]
    e, whole = blocks.e[v] + sets.pace[v] * ahead[v, 1], sets.mask[v]
    g = lowest(whole) * (sets.n + 1) + popcount(whole)
    while whole:
        e -= blocks.share[1, lowest(whole)]
        whole &= whole - 1
    blocks.bound[v] = max(0.0, e)
    room.lists.listed[room.lists.end[g]] = v
    room.lists.end[g] += 1
    return True


@inlined
def climb(sets: Sets, prices: Prices, bounds: Bounds, room: Room, stop: Ints) -> int:
    """Make the staircase of every set, by rising number of streams; the last is the frontier. FULL or STOPPED where it does not end."""
    layer, last, status = 2, sets.mask.size - 1, 0
    for v in range(sets.n, last + 1):
        size = popcount(sets.mask[v])
        if size > layer:
            sort_lists(room.lists, room.blocks.bound, sets.n, layer)  # those of the last layer are complete
            layer = size
        if v != last and not room.usable[v]:
            continue
        if stop[0]:
            return STOPPED
        stop[1] = v  # how far this is, for the thread that watches
        if v == last:
            begin_stair(room.stair, room.frontier, room.most, room.counts[0], 0.0, 0.0, True)
        elif not may_be_kept(prices, bounds, room, v):
            continue
        status = joins_of(sets, prices, bounds, room, v)
        if status and v != last:
            return status
        if v != last and not take_as_block(sets, bounds.ahead, room, v):
            return FULL
    room.counts[0] = room.stair.counts[COUNT]
    for k in range(room.counts[0]):
        room.frontier.e[k], room.frontier.m[k] = room.stair.here.e[k], room.stair.here.m[k]
        room.frontier.o[k], room.frontier.row[k] = room.stair.here.o[k], room.stair.here.row[k]
    return status


@making
def climbed(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """`staircases` with room for so many points: FULL where that is not enough."""
    made = room_to_climb(sets, prices, bounds, start, limits, stop, room)
    status = climb(sets, prices, bounds, made, stop)
    front, count, points = made.frontier, made.counts[0], made.points
    many, used = points.counts[POINTS], points.counts[USED]
    return Stairs(
        status,
        front.e[:count].copy(),
        front.m[:count].copy(),
        front.o[:count].copy(),
        front.row[:count].copy(),
        points.row[:many].copy(),
        points.of[:many].copy(),
        points.entries[:used].copy(),
    )


@making
def staircases(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """The plans within the limits that no other beats. Starts with room for this many points of all staircases and takes more as it needs."""
    stairs = climbed(sets, prices, bounds, start, limits, stop, room)
    while stairs.status == FULL and not stop[0]:
        room *= MORE_ROOM
        stairs = climbed(sets, prices, bounds, start, limits, stop, room)
    return stairs


@making
def at_once(sets: Sets, prices: Prices, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """Bounds and staircases in one call: between Python and compiled code a small graph's tables travel for longer than they are searched."""
    return staircases(sets, prices, bounds_of(sets, prices, stop), start, limits, stop, room)


@making
def begun(sets: Sets, prices: Prices, expansions: int, limits: Limits, stop: Ints, room: int) -> tuple[Seeds, Stairs]:
    """The same from the best binary tree on: the seeds, and what is found from them."""
    splits = binary_splits(sets, prices.weights, sets.mask.size * sets.mask.size)
    start = seeds(sets, prices, members_as_rows(splits, sets), expansions, stop)
    return start, at_once(sets, prices, start, limits, stop, room)

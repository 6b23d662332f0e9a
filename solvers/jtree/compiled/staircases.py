"""The staircase of (CPU, memory) of every connected set that a good plan could keep, by dynamic programming, compiled.

Problem: all plans that no other beats in both resources, or the best by one of them, within limits. Method: size and rate of a subresult do
not depend on how it was joined, and costs add up over joins; so of two sub-plans of the same set the one that is worse in both resources
can go. The staircase of all streams is the whole frontier. For every set V, by rising number of streams: the plain mjoin, every binary
join, and every partition into three or more blocks (`partitions`), each with every choice of its blocks' points. Dropped is what cannot
beat a point of V's own staircase, or, once it is kept, a point of the frontier so far (which starts from seeds), or what breaks a limit.

Guarantee: exact in whole multiples of the last digit of what every plan pays (`Prices.grain`): sums are exact, and plans whose figures agree to the
last bit of a double are ties. Of ties the one with fewer operators stays, then the first met. Complexity: exponential in the number of
streams; what dominance and bounds leave decides (tests/bench/bench_search.py). Reference: JTree-Finder of paper 3, which drops nothing.

A search over a beam, the few sets of each number of streams that have the lowest rates, takes next to no time and nearly always meets
the best plans: what it finds are the seeds of the search over all sets, which then has little but the proof to do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import ROUNDED, SHAVED
from solvers.jtree.compiled.bounds import Bounds, bounds_of
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, released
from solvers.jtree.compiled.cost import Prices, binary_excess, rounded, rounded_down
from solvers.jtree.compiled.orders import DENSE_INPUTS, Scratch, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.partitions import (
    AT,
    ENTRIES,
    FRONT,
    HERE,
    POINTS,
    TOLD_TO_STOP,
    Room,
    add_to_lists,
    begin_partitions,
    empty_inside,
    empty_lists,
    empty_partition,
    list_inside,
    next_partition,
    nothing_kept,
    sort_lists,
)
from solvers.jtree.compiled.seeds import Seeds
from solvers.jtree.compiled.sets import Sets, lowest, popcount
from solvers.jtree.compiled.staircase import Steps, dominated, insert, lighter, room_for, up_to

__all__ = ["FRONTIER", "LEAST_BYTES", "LEAST_CPU", "LEAST_LOAD", "Limits", "Stairs", "as_seeds", "at_once", "staircases"]

FRONTIER, LEAST_CPU, LEAST_BYTES, LEAST_LOAD = 0, 1, 2, 3  # what is asked for
MAX_POINTS = 1 << 15  # of one staircase; beyond it the search stops
STOPPED, FULL = 1, 2  # how a search ends that is not complete: it was told to stop, or there is no room for its points
MORE_ROOM = 16  # times as much, when it was not enough
PLAIN = -1  # the row of a plain mjoin
FOREIGN = -(1 << 40)  # the row of a point of the frontier in another set's staircase


class Limits(NamedTuple):
    """What the caps leave above what every plan pays, and what is asked for."""

    goal: int
    cap_e: float
    """Nothing above is kept: the CPU cap and a little more, because kernels round differently from prices."""
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


class Points(NamedTuple):
    """The points of all staircases that are done, set by set, and what their rows refer to."""

    steps: Steps
    of: Ints
    """The set whose staircase a point belongs to."""
    entries: Ints


class Choice(NamedTuple):
    """A choice of one point for each block of a join that is a join itself, level by level."""

    inner: Ints
    """These blocks."""
    pick: Ints
    """How many points of each were tried; −1: nothing was looked at yet."""
    e: Floats
    m: Floats
    o: Ints
    """The join and the points chosen before a level."""
    rest_e: Floats
    rest_m: Floats
    rest_o: Ints
    """The least that the blocks from a level on cost."""


class Work(NamedTuple):
    """All that a search writes to."""

    room: Room
    points: Points
    choice: Choice
    scratch: Scratch
    wide_to_go: Floats
    largest: Floats
    """The largest partial results that pipelines can afford."""


@released
def tightened(limits: Limits, limit_e: float, limit_m: float, e: float, m: float) -> tuple[float, float]:
    """The limits once a plan with these figures is found: worse ones are not asked for."""
    if limits.goal == LEAST_LOAD:
        load = max((e + limits.pays) / limits.cpu, (m + limits.pays_bytes) / limits.bytes) * (2.0 - SHAVED)
        return min(limit_e, load * limits.cpu - limits.pays), min(limit_m, load * limits.bytes - limits.pays_bytes)
    if e <= limits.sure_e and m <= limits.sure_m:
        if limits.goal == LEAST_CPU:
            return min(limit_e, e), limit_m
        if limits.goal == LEAST_BYTES:
            return limit_e, min(limit_m, m)
    return limit_e, limit_m


@released
def few_of(sets: Sets, beam: int) -> Flags:
    """Of each number of streams the `beam` sets of the lowest rates; 0: all."""
    total = sets.mask.size
    few = np.full(total, beam == 0)
    first = sets.n
    while beam and first < total - 1:
        size = popcount(sets.mask[first])
        last = first
        while last < total and popcount(sets.mask[last]) == size:
            last += 1
        order = np.argsort(sets.size[first:last] * sets.pace[first:last], kind="mergesort")
        for k in range(min(beam, last - first)):
            few[first + order[k]] = True
        first = last
    return few


@released
def usable_sets(sets: Sets, bounds: Bounds, few: Flags, frontier: Steps, limit: Floats, count: int) -> Flags:
    """The sets that a plan may keep which beats the frontier so far, of `count` points, within the limits; streams always."""
    n, total = sets.n, sets.mask.size
    kept_e, kept_m, inside, outside = bounds.kept_e, bounds.kept_m, bounds.inside, bounds.outside
    root_e, root_m, root_o, _ = frontier
    usable = np.zeros(total, np.bool_)
    usable[:n] = True
    for s in range(n, total - 1):
        e = kept_e[s] + inside[s] + outside[s]
        if few[s] and not (e > limit[0] or kept_m[s] > limit[1]):
            usable[s] = not dominated(root_e, root_m, root_o, count, e, kept_m[s], 2)
    return usable


@released
def begin_search(sets: Sets, bounds: Bounds, start: Seeds, limits: Limits, room: int) -> tuple[Work, Flags]:
    """The frontier as the seeds have it, the sets that may be kept, and as much room for points as asked for."""
    n, longest = sets.n, min(MAX_POINTS, room)
    frontier, counts = room_for(longest), np.zeros(5, np.int64)
    limit = np.array([limits.cap_e, limits.cap_m])
    count = 0
    for k in range(start.e.size):
        e, m, o = start.e[k], start.m[k], start.operators[k]
        if e <= limit[0] and m <= limit[1] and not dominated(frontier.e, frontier.m, frontier.o, count, e, m, o):
            count = insert(frontier, count, e, m, o, -2 - k)
            limit[0], limit[1] = tightened(limits, limit[0], limit[1], e, m)
    counts[FRONT] = count
    usable = usable_sets(sets, bounds, few_of(sets, limits.beam), frontier, limit, count)
    lists = empty_lists(sets, usable)
    inside = empty_inside(n, lists.listed.size)
    most = np.empty(2)
    writing = Room(nothing_kept(sets, bounds, usable), lists, inside, empty_partition(n), room_for(longest), most, frontier, limit, counts)
    points = Points(room_for(room), np.empty(room, np.int64), np.empty(4 * room, np.int64))
    ints, floats = np.empty((4, n + 2), np.int64), np.empty((5, n + 2))
    choice = Choice(ints[0], ints[1], floats[0], floats[1], ints[2], floats[2], floats[3], ints[3])
    wide_to_go = np.empty(sets.mask.size if n > DENSE_INPUTS else 1)
    return Work(writing, points, choice, scratch_for(min(n, DENSE_INPUTS)), wide_to_go, floats[4]), usable


@released
def begin_set(sets: Sets, prices: Prices, bounds: Bounds, room: Room, v: int) -> bool:
    """V's staircase at first: the frontier's points as V sees them, less what V adds. False where V has no hope.

    Of points that cost V nothing only the last counts.
    """
    counts, here, frontier, most, limit = room.counts, room.here, room.frontier, room.most, room.limit
    is_root = v == sets.mask.size - 1
    own_e, own_m, skipped = 0.0, 0.0, 0
    hope = True
    if not is_root:
        # What keeping V adds, and all joins above it at least.
        own_e, own_m = rounded_down(bounds.kept_e[v] + bounds.outside[v], prices.grain), bounds.kept_m[v]
        e = own_e + bounds.inside[v]
        hope = not (e > limit[0] or own_m > limit[1] or dominated(frontier.e, frontier.m, frontier.o, counts[FRONT], e, own_m, 2))
        while skipped + 1 < counts[FRONT] and frontier.e[skipped + 1] <= own_e:
            skipped += 1
    count = counts[FRONT] - skipped
    for k in range(count if hope else 0):
        here.e[k], here.m[k] = frontier.e[skipped + k] - own_e, frontier.m[skipped + k] - own_m
        here.o[k], here.row[k] = frontier.o[skipped + k], frontier.row[skipped + k]
        if not is_root:
            here.o[k], here.row[k] = here.o[k] - 1, FOREIGN
    counts[AT], counts[HERE] = v, count
    most[0], most[1] = limit[0] - own_e, limit[1] - own_m
    return hope


@released
def plain_join(sets: Sets, prices: Prices, bounds: Bounds, limits: Limits, room: Room) -> None:
    """V as one join of its streams: the plain mjoin; of two streams it is the binary join."""
    here, most, counts = room.here, room.most, room.counts
    v = counts[AT]
    whole = sets.mask[v]
    e = bounds.plain[v] if popcount(whole) > 2 else binary_excess(sets, prices, lowest(whole), lowest(whole & (whole - 1)))
    if e <= most[0] and most[1] >= 0.0 and not dominated(here.e, here.m, here.o, counts[HERE], e, 0.0, 1):
        counts[HERE] = insert(here, counts[HERE], e, 0.0, 1, PLAIN)
        if v == sets.mask.size - 1:
            most[0], most[1] = tightened(limits, most[0], most[1], e, 0.0)


@released
def write_row(points: Points, room: Room, choice: Choice, n: int, joins: int) -> int:
    """The row of a join of the blocks at hand with the points that were picked: a number of inputs, then the inputs. Returns where it begins."""
    entries, blocks, first, pick = points.entries, room.partition.blocks, room.kept.first, choice.pick
    used = room.counts[ENTRIES]
    entries[used] = joins
    level = 0
    for j in range(joins):
        if blocks[j] < n:
            entries[used + 1 + j] = -1 - blocks[j]
        else:
            entries[used + 1 + j] = first[blocks[j]] + pick[level] - 1
            level += 1
    room.counts[ENTRIES] = used + joins + 1
    return int(used)


@released
def last_points(sets: Sets, bounds: Bounds, limits: Limits, work: Work, joins: int, level: int, many: int) -> int:
    """All but the last block have their points: those of the last one after the other, along both staircases. Returns 0, STOPPED or FULL."""
    room, points, choice = work.room, work.points, work.choice
    here, most, counts, kept, steps = room.here, room.most, room.counts, room.kept, points.steps
    here_e, here_m, here_o, _ = here
    begun_e, begun_m, begun_o = choice.e[level], choice.m[level], choice.o[level]
    first, alone, kept_e, kept_m = 0, 1, 0.0, 0.0
    if many:
        block = choice.inner[level]
        first, alone = kept.first[block], kept.points[block]
        kept_e, kept_m = bounds.kept_e[block], bounds.kept_m[block]
    is_root = counts[AT] == sets.mask.size - 1
    below, status = 0, 0
    for k in range(alone):
        e, m, o = begun_e, begun_m, begun_o
        if many:
            e, m, o = e + steps.e[first + k] + kept_e, m + steps.m[first + k] + kept_m, o + steps.o[first + k]
        if e > most[0]:
            break
        if m > most[1]:
            continue
        count = counts[HERE]
        if below == 0:
            below = up_to(here_e, count, e)
        while below < count and here_e[below] <= e:
            below += 1
        before = max(below - 1, 0)
        beaten = (here_e[before] < e) | (here_m[before] < m) | (here_o[before] <= o)
        if (below > 0) & (here_m[before] <= m) & beaten:
            continue
        if counts[ENTRIES] + joins + 1 > points.entries.size or count == here_e.size - 1:
            status = STOPPED if count == MAX_POINTS - 1 else FULL
            break
        choice.pick[level] = k + 1
        counts[HERE] = insert(here, count, e, m, o, write_row(points, room, choice, sets.n, joins))
        below = 0
        if is_root:
            most[0], most[1] = tightened(limits, most[0], most[1], e, m)
    return status


@released
def choose_points(sets: Sets, bounds: Bounds, limits: Limits, work: Work, joins: int, node: float) -> int:
    """Every choice of points for the blocks at hand, joined by a join that costs `node`: those that V's staircase lacks go into it.

    Returns 0, STOPPED or FULL.
    """
    room, choice, steps = work.room, work.choice, work.points.steps
    kept, counts, most, blocks = room.kept, room.counts, room.most, room.partition.blocks
    here_e, here_m, here_o, _ = room.here
    inner, pick, part_e, part_m, part_o, rest_e, rest_m, rest_o = choice
    many = 0
    for k in range(joins):
        if blocks[k] >= sets.n:
            inner[many] = blocks[k]
            many += 1
    rest_e[many], rest_m[many], rest_o[many] = 0.0, 0.0, 0
    for k in range(many - 1, -1, -1):
        rest_e[k] = rest_e[k + 1] + kept.e[inner[k]]
        rest_m[k] = rest_m[k + 1] + kept.m[inner[k]]
        rest_o[k] = rest_o[k + 1] + kept.o[inner[k]]
    part_e[0], part_m[0], part_o[0] = node, 0.0, 1
    level, status = 0, 0
    pick[0] = -1
    while level >= 0 and status == 0:
        if pick[level] < 0:
            # Met for the first time: is there any hope?
            pick[level] = 0
            e = part_e[level] + rest_e[level]
            if level < many:
                e *= SHAVED
            if e > most[0]:
                level -= 1
                if level >= 0:
                    pick[level] = kept.points[inner[level]]  # what follows costs more CPU
                continue
            m, o = part_m[level] + rest_m[level], part_o[level] + rest_o[level]
            if m > most[1] or dominated(here_e, here_m, here_o, counts[HERE], e, m, o):
                level -= 1
                continue
        if level + 1 >= many:
            status = last_points(sets, bounds, limits, work, joins, level, many)
            level -= 1
            continue
        block = inner[level]
        if pick[level] == kept.points[block]:
            level -= 1
            continue
        point = kept.first[block] + pick[level]
        pick[level] += 1
        part_e[level + 1] = part_e[level] + steps.e[point] + bounds.kept_e[block]
        part_m[level + 1] = part_m[level] + steps.m[point] + bounds.kept_m[block]
        part_o[level + 1] = part_o[level] + steps.o[point]
        level += 1
        pick[level] = -1
    return status


@released
def binary_joins(sets: Sets, prices: Prices, bounds: Bounds, limits: Limits, work: Work) -> int:
    """Every binary join of V, each by the half with the lowest stream. Returns 0, STOPPED or FULL."""
    room = work.room
    kept, counts, most, blocks, inside = room.kept, room.counts, room.most, room.partition.blocks, room.inside
    least_e, least_m, least_o, points_of, block_of, less = kept.e, kept.m, kept.o, kept.points, inside.block, inside.less
    here_e, here_m, here_o, _ = room.here
    n, width = sets.n, sets.n + 1
    low = lowest(sets.mask[counts[AT]]) * width
    status = 0
    for place in range(inside.begin[low], inside.begin[low + width]):
        half, other = block_of[place], less[place]
        if other < 0 or (other >= n and points_of[other] == 0):
            continue
        node = binary_excess(sets, prices, half, other)
        # As `choose_points` asks first: most have no hope, and a call takes longer than to find that out.
        e = (node + (least_e[other] + least_e[half])) * SHAVED
        m, o = least_m[other] + least_m[half], 1 + least_o[other] + least_o[half]
        if e > most[0] or m > most[1] or dominated(here_e, here_m, here_o, counts[HERE], e, m, o):
            continue
        blocks[0], blocks[1] = half, other
        status = choose_points(sets, bounds, limits, work, 2, node)
        if status:
            break
    return status


@released
def mjoin_cost(sets: Sets, prices: Prices, work: Work, joins: int) -> float:
    """The excess of an mjoin of the blocks at hand; above what V's staircase asks for, it may be more than that of the best orders.

    Nothing above the limit, or above a point that needs no more memory, is asked for: what is left of it above what is known of all pipelines is
    all that any of them can spend more.
    """
    room, largest = work.room, work.largest
    blocks, piped, kept, paces = room.partition.blocks, room.partition.piped, room.kept, sets.pace
    whole = sets.mask[room.counts[AT]]
    if joins > DENSE_INPUTS:
        return rounded(wide_mjoin_excess(sets, prices, blocks, joins, whole, work.wide_to_go), prices.grain)
    limit, m, count = room.most[0], 0.0, room.counts[HERE]
    for k in range(joins):
        m += kept.m[blocks[k]]
    bought = lighter(room.here.m, count, m)
    if bought < count:
        limit = min(limit, room.here.e[bought])
    spare = limit * ROUNDED
    for k in range(joins):
        spare -= kept.e[blocks[k]] + paces[blocks[k]] * piped[k]
    for k in range(joins):
        largest[k] = (piped[k] + spare / paces[blocks[k]]) / prices.made if prices.made > 0.0 else np.inf
    return rounded(mjoin_excess(sets, prices, blocks, joins, whole, largest, work.scratch), prices.grain)


@released
def joins_of(sets: Sets, prices: Prices, bounds: Bounds, limits: Limits, work: Work, stop: Ints) -> int:
    """The staircase of V, which has three streams or more: first its binary joins, then its mjoins. Returns 0, STOPPED or FULL."""
    room = work.room
    v = room.counts[AT]
    filled = list_inside(sets, room.lists, room.inside, prices.made, v)
    status = binary_joins(sets, prices, bounds, limits, work)
    begin_partitions(sets, room.kept, room.partition, v, filled)
    while status == 0:
        joins = next_partition(sets, prices, bounds, room, stop)
        if joins == 0:
            break
        if joins == TOLD_TO_STOP:
            return STOPPED
        status = choose_points(sets, bounds, limits, work, joins, mjoin_cost(sets, prices, work, joins))
    return status


@released
def keep_set(sets: Sets, bounds: Bounds, work: Work) -> int:
    """V's own points go to those of all sets, and V is a block from now on; if it has none, it is not. Returns 0 or FULL."""
    room, steps, of = work.room, work.points.steps, work.points.of
    kept, counts, here = room.kept, room.counts, room.here
    v, points, count = counts[AT], counts[POINTS], counts[HERE]
    if points + count > of.size:
        return FULL
    kept.first[v], kept.o[v] = points, sets.n
    for k in range(count):
        if here.row[k] != FOREIGN:
            steps.e[points], steps.m[points] = here.e[k], here.m[k]
            steps.o[points], steps.row[points], of[points] = here.o[k], here.row[k], v
            kept.o[v] = min(kept.o[v], here.o[k])
            points += 1
    counts[POINTS] = points
    kept.points[v] = points - kept.first[v]
    if kept.points[v]:
        kept.e[v] = steps.e[kept.first[v]] + bounds.kept_e[v]
        kept.m[v] = steps.m[points - 1] + bounds.kept_m[v]
        e = kept.e[v] + sets.pace[v] * bounds.ahead[v, 1]
        left = sets.mask[v]
        while left:
            e -= kept.share[1, lowest(left)]
            left &= left - 1
        kept.bound[v] = max(0.0, e)
        add_to_lists(sets, room.lists, v)
    return 0


@released
def climbed(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """`staircases` with room for so many points: FULL where that is not enough."""
    total, n, masks = sets.mask.size, sets.n, sets.mask
    work, usable = begin_search(sets, bounds, start, limits, room)
    writing, points = work.room, work.points
    counts, frontier, here = writing.counts, writing.frontier, writing.here
    status = 0
    size = 2
    for v in range(n, total):
        if popcount(masks[v]) > size:
            sort_lists(writing.lists, writing.kept.bound, n, size)
            size = popcount(masks[v])
        is_root = v == total - 1
        if not is_root and not usable[v]:
            continue
        if stop[0]:
            status = STOPPED
            break
        stop[1] = v  # for whoever watches
        if not begin_set(sets, prices, bounds, writing, v):
            continue
        plain_join(sets, prices, bounds, limits, writing)
        if size > 2:
            status = joins_of(sets, prices, bounds, limits, work, stop)
        if is_root:
            counts[FRONT] = counts[HERE]
            for k in range(counts[HERE]):
                frontier.e[k], frontier.m[k], frontier.o[k], frontier.row[k] = here.e[k], here.m[k], here.o[k], here.row[k]
        elif status == 0:
            status = keep_set(sets, bounds, work)
        if status:
            break
    count, many = counts[FRONT], counts[POINTS]
    return Stairs(
        status,
        frontier.e[:count].copy(),
        frontier.m[:count].copy(),
        frontier.o[:count].copy(),
        frontier.row[:count].copy(),
        points.steps.row[:many].copy(),
        points.of[:many].copy(),
        points.entries[: counts[ENTRIES]].copy(),
    )


@released
def staircases(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """The plans within the limits that no other beats. Starts with room for this many points of all staircases and takes more as it needs."""
    stairs = climbed(sets, prices, bounds, start, limits, stop, room)
    while stairs.status == FULL and not stop[0]:
        room *= MORE_ROOM
        stairs = climbed(sets, prices, bounds, start, limits, stop, room)
    return stairs


@released
def at_once(sets: Sets, prices: Prices, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """Bounds and staircases in one call: between Python and compiled code a small graph's tables travel for longer than they are searched."""
    return staircases(sets, prices, bounds_of(sets, prices, stop), start, limits, stop, room)


@released
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

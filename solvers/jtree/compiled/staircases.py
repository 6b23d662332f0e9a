"""The staircase of (CPU, memory) of every connected set that a good plan could keep, by dynamic programming, compiled.

Problem: all plans that no other beats in both resources, or the best by one of them, within limits. Method: size and rate of a subresult do
not depend on how it was joined, and costs add up over joins; so of two sub-plans of the same set the one that is worse in both resources
can go. The staircase of all streams is the whole frontier. For every set V, by rising number of streams, the search tries the plain mjoin, every
binary join, and every partition into three or more blocks, each with every choice of its blocks' points. A sub-plan is dropped where it breaks a
limit, where it cannot beat a point of V's own staircase, or where no plan that keeps it can beat a point of the frontier so far, which starts
from seeds.

Partitions come depth first: first the block without which V is smallest, then always that of the lowest stream left. A partial one is dropped by
valid bounds alone:

* what its blocks cost at least: their own least excess, being made and kept, and in each pipeline of an mjoin a first
  partial result, at least the smallest connected set above the block;
* for a stream not placed yet its least share of such costs, whatever its block;
* the last partial result of each pipeline, which lacks one block of V. The block without which V is smallest is placed first, so that
  this is known of all pipelines but its own from the start: where joins grow, few blocks come into question at all.

Guarantee: exact in whole multiples of the last digit of what every plan pays (`Prices.grain`): sums are exact, and plans whose figures agree to the
last bit of a double are ties. Of ties the one with fewer operators stays, then the first met. Complexity: exponential in the number of
streams; what dominance and bounds leave decides (tests/bench/bench_search.py). Reference: JTree-Finder of paper 3, which drops nothing.

A search over a beam, the few sets of each number of streams that have the lowest rates, takes next to no time and nearly always meets
the best plans: what it finds are the seeds of the search over all sets, which then has little but the proof to do.
"""

from __future__ import annotations

import numpy as np

from solvers.common.tolerances import ROUNDED, SHAVED
from solvers.jtree.compiled.binary_tree import binary_splits, members_as_rows
from solvers.jtree.compiled.blocks import empty_lists, few_of, least_shares, sort_lists, usable_sets
from solvers.jtree.compiled.bounds import Bounds, bounds_of
from solvers.jtree.compiled.compiling import Ints, making, released
from solvers.jtree.compiled.cost import Prices, binary_excess, rounded, rounded_down, scanning, stepping
from solvers.jtree.compiled.orders import DENSE_INPUTS, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.questions import FULL, STOPPED, Limits, Stairs, tightened
from solvers.jtree.compiled.seeds import Seeds, seeds
from solvers.jtree.compiled.sets import Sets, find, lowest, popcount
from solvers.jtree.compiled.staircase import Steps, dominated, insert, lighter, room_for, up_to

__all__ = ["at_once", "staircases"]

MAX_POINTS = 1 << 15  # of one staircase; beyond it the search stops
MORE_ROOM = 16  # times as much, when it was not enough
PLAIN = -1  # the row of a plain mjoin
FOREIGN = -(1 << 40)  # the row of a point of the frontier in another set's staircase


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


# long: in functions of a screen each it took 2.4 times as long, since numba counts references of every array that is handed on
@making
def climbed(sets: Sets, prices: Prices, bounds: Bounds, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """`staircases` with room for so many points: FULL where that is not enough.

    One long function on purpose. Taken apart into functions of a screen each, which pass their arrays in tuples, it took 2.4 times as long
    (median of 36 cases of 8 to 16 streams; 4.1 times for a star of 10): numba counts a reference to every array of a tuple, up and down, at
    every call, and most partitions are dropped in less time than that takes. With no more taken out than what runs once for a set V, it
    took 1.17 times as long (median of 32 cases of 8 to 14 streams, up to 1.7). Its parts, in order: V's staircase at first · the plain mjoin
    · the blocks inside V · the next partition and its bounds · the join's cost · the choice of points · V as a block.
    """
    total, n = sets.mask.size, sets.n
    # As locals: a field of a tuple that is read in a loop is counted as a reference each time.
    masks, partial, paces, arounds = sets.mask, sets.partial, sets.pace, sets.around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    made = prices.made
    root = total - 1
    kept_e, kept_m, ahead, plain = bounds.kept_e, bounds.kept_m, bounds.ahead, bounds.plain
    inside_least, outside_least = bounds.inside, bounds.outside
    longest = min(MAX_POINTS, room)
    frontier = room_for(longest)
    root_e, root_m, root_o, root_r = frontier
    root_count, limit_e, limit_m = from_seeds(start, limits, frontier)
    usable = usable_sets(bounds, few_of(sets, limits.beam), frontier, root_count, limit_e, limit_m)
    share = least_shares(sets, bounds, usable)
    # Of every set that is a block: its least figures with what keeping it adds, how much more than its streams' shares it costs, its points.
    least_e, least_m = np.zeros(total), np.zeros(total)
    least_o = np.zeros(total, np.int64)
    bound = np.zeros(total)
    first_point = np.zeros(total, np.int64)
    points_of = np.zeros(total, np.int64)
    width = n + 1
    begin, end, listed = lists = empty_lists(sets, usable)
    local, local_less = np.empty(listed.size, np.int64), np.empty(listed.size, np.int64)
    local_lack = np.empty(listed.size)
    local_begin = np.zeros(n * width + 1, np.int64)
    for i in range(n):
        bound[i] = max(0.0, paces[i] * ahead[i, 1] - share[1, i])

    point_e, point_m = np.empty(room), np.empty(room)
    point_o, point_r, point_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    entries = np.empty(4 * room, np.int64)
    points, used = 0, 0

    here = room_for(longest)
    here_e, here_m, here_o, here_r = here
    scratch = scratch_for(min(n, DENSE_INPUTS))
    wide_to_go = np.empty(total if n > DENSE_INPUTS else 1)
    blocks = np.empty(n + 1, np.int64)
    inner = np.empty(n + 1, np.int64)
    pick = np.empty(n + 1, np.int64)
    part_e, part_m, part_o = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    tail_e, tail_m, tail_o = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    left_at, group_at, place_at = np.empty(n + 2, np.int64), np.empty(n + 2, np.int64), np.empty(n + 2, np.int64)
    e_at, m_at, o_at = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    second_at = np.empty(n + 2)
    steps_of = np.array([stepping(prices.weights, joins) for joins in range(n + 2)])  # what a join of so many inputs costs for its steps
    piped, largest = np.empty(n + 1), np.empty(n + 1)  # what pipelines cost at least, and the partial results they can afford
    first_at = np.empty((n + 1) * width)
    lack_of = np.empty(n)
    status = 0
    steps = 0
    layer = 2
    for v in range(n, total):
        whole = masks[v]
        size = popcount(whole)
        if size > layer:
            sort_lists(lists, bound, n, layer)  # those of the last layer are complete
            layer = size
        is_root = v == root
        if not is_root and not usable[v]:
            continue
        if stop[0]:
            status = STOPPED
            break
        stop[1] = v  # how far this is, for the thread that watches
        # What keeping V adds, and all joins above it at least.
        own_e, own_m = 0.0, 0.0
        if not is_root:
            own_e, own_m = rounded_down(kept_e[v] + outside_least[v], prices.grain), kept_m[v]
            e = own_e + inside_least[v]
            if e > limit_e or own_m > limit_m or dominated(root_e, root_m, root_o, root_count, e, own_m, 2):
                continue
        # V's staircase begins with the frontier's points, less what keeping V adds: what they beat is in no plan worth having. Of the
        # points that are then at or below 0 only the last counts.
        skipped = 0
        if not is_root:
            while skipped + 1 < root_count and root_e[skipped + 1] <= own_e:
                skipped += 1
        count = root_count - skipped
        for k in range(count):
            here_e[k], here_m[k] = root_e[skipped + k] - own_e, root_m[skipped + k] - own_m
            here_o[k], here_r[k] = root_o[skipped + k], root_r[skipped + k]
            if not is_root:
                here_o[k], here_r[k] = here_o[k] - 1, FOREIGN
        most_e, most_m = limit_e - own_e, limit_m - own_m

        # The plain mjoin; of two streams it is the binary join.
        e = plain[v] if size > 2 else binary_excess(sets, prices, lowest(whole), lowest(whole & (whole - 1)))
        if e <= most_e and most_m >= 0.0 and not dominated(here_e, here_m, here_o, count, e, 0.0, 1):
            count = insert(here, count, e, 0.0, 1, PLAIN)
            if is_root:
                most_e, most_m = tightened(limits, most_e, most_m, e, 0.0)

        filled, shares = 0, 0.0
        if size > 2:
            # Blocks inside V, list by list, with the partial result that lacks them: what it costs at least to end with it.
            for low in range(n):
                lack_of[low] = np.inf
                for k in range(width):
                    g = low * width + k
                    local_begin[g] = filled
                    if whole >> low & 1 and k < size:
                        for place in range(begin[g], end[g]):
                            if masks[listed[place]] & ~whole == 0:
                                local[filled] = listed[place]
                                filled += 1
            local_begin[n * width] = filled
            steps += filled
            inside = whole
            while inside:
                shares += share[1, lowest(inside)]
                inside &= inside - 1
            for k in range(filled):
                less = find(keys, places, multiplier, shift, whole & ~masks[local[k]])
                local_less[k] = less
                local_lack[k] = made * partial[less] if less >= 0 else np.inf
                inside = masks[local[k]]
                while inside:
                    i = lowest(inside)
                    inside &= inside - 1
                    lack_of[i] = min(lack_of[i], local_lack[k])

        # Partitions one by one: first the binary joins, each by the block of the lowest stream; then the mjoins, each by the block
        # without which the rest is smallest, which every other pipeline makes last, and from there the block of the lowest stream left.
        low_begin = local_begin[lowest(whole) * width] if filled else 0
        low_end = local_begin[(lowest(whole) + 1) * width] if filled else 0
        candidate = -1
        binary_place = low_begin
        depth = -1
        lack, lacking = 0.0, -1
        while True:
            joins = 0
            if binary_place < low_end:
                other = local_less[binary_place]
                blocks[0] = local[binary_place]
                binary_place += 1
                steps += 1
                if other < 0 or (other >= n and points_of[other] == 0):
                    continue
                blocks[1] = other
                joins = 2
            elif depth < 1:
                # The next candidate for the block that every other pipeline visits last.
                candidate += 1
                if candidate >= filled:
                    break
                lack = local_lack[candidate]
                lacking = local[candidate]
                steps += 1
                if steps & 255 == 0 and stop[0]:
                    status = STOPPED
                    break
                if lack == np.inf or popcount(masks[lacking]) > size - 2:
                    continue
                others = paces[v] - paces[lacking]
                e = (least_e[lacking] + paces[lacking] * max(ahead[lacking, 1], lack) + others * lack) * SHAVED
                if e > most_e or least_m[lacking] > most_m or dominated(here_e, here_m, here_o, count, e, least_m[lacking], 1 + least_o[lacking]):
                    continue
                e = least_e[lacking] + paces[lacking] * max(ahead[lacking, 1], lack)
                inside = whole & ~masks[lacking]
                while inside:
                    i = lowest(inside)
                    inside &= inside - 1
                    e += max(share[1, i], paces[i] * lack)
                e *= SHAVED
                if e > most_e or dominated(here_e, here_m, here_o, count, e, least_m[lacking], 1 + least_o[lacking]):
                    continue
                blocks[0] = lacking
                first_at[0] = np.inf
                second_at[0] = np.inf
                depth = 1
                left_at[1] = whole & ~masks[lacking]
                group_at[1] = lowest(left_at[1]) * width + 1
                place_at[1] = local_begin[group_at[1]]
                e_at[1] = shares + bound[lacking]
                m_at[1], o_at[1] = least_m[lacking], 1 + least_o[lacking]
                continue
            else:
                left = left_at[depth]
                group = group_at[depth]
                place = place_at[depth]
                if place == local_begin[group + 1]:
                    if group - lowest(left) * width >= popcount(left):
                        depth -= 1
                    else:
                        group_at[depth] = group + 1
                        place_at[depth] = local_begin[group + 1]
                    continue
                place_at[depth] = place + 1
                block = local[place]
                if masks[block] & ~left:
                    continue
                steps += 1
                if steps & 255 == 0 and stop[0]:
                    status = STOPPED
                    break
                e = (e_at[depth] + bound[block]) * SHAVED
                if e > most_e or dominated(here_e, here_m, here_o, count, e, m_at[depth], o_at[depth]):
                    # The list is by rising bound: what follows is no better.
                    place_at[depth] = local_begin[group + 1]
                    continue
                rest = left & ~masks[block]
                # Each partition once: the block lacking at last is the first of those whose lack is least.
                if (rest == 0 and depth == 1) or local_lack[place] < lack or (local_lack[place] == lack and place < candidate):
                    continue
                m = m_at[depth] + least_m[block]
                o = o_at[depth] + least_o[block]
                if m > most_m or dominated(here_e, here_m, here_o, count, e, m, o):
                    continue
                # All that is known of the mjoin by now: how many partial results there are at least, the last of them, and of
                # blocks with all their neighbours placed the first.
                firsts = depth * width
                reach = max(depth + (1 if rest else 0) - 1, 1)
                first = np.inf
                for a in range(depth):
                    first_at[firsts + a] = first_at[firsts - width + a]
                    if arounds[blocks[a]] & masks[block]:
                        both = find(keys, places, multiplier, shift, masks[blocks[a]] | masks[block])
                        cost = made * partial[both]
                        first = min(first, cost + scanning(sets, prices, block, blocks[a]))
                        first_at[firsts + a] = min(first_at[firsts + a], cost + scanning(sets, prices, blocks[a], block))
                first_at[firsts + depth] = first
                blocks[depth] = block
                # The block that the others lack at last lacks another one itself, placed or still to come.
                second_at[depth] = min(second_at[depth - 1], local_lack[place])
                final = second_at[depth]
                inside = rest
                e = steps_of[depth + (2 if rest else 1)]
                while inside:
                    i = lowest(inside)
                    inside &= inside - 1
                    final = min(final, max(lack, lack_of[i]))
                    e += max(share[reach, i], (share[reach - 1, i] if reach > 1 else 0.0) + paces[i] * lack)
                for a in range(depth + 1):
                    first = ahead[blocks[a], 1]
                    if arounds[blocks[a]] & rest == 0:
                        first = max(first, first_at[firsts + a])
                    if reach == 1:
                        piped[a] = max(first, final)
                    else:
                        gap = ahead[blocks[a], reach] - ahead[blocks[a], reach - 1]
                        piped[a] = first + ahead[blocks[a], reach - 1] - ahead[blocks[a], 1] + max(gap, final)
                    e += least_e[blocks[a]] + paces[blocks[a]] * piped[a]
                    final = lack
                e *= SHAVED
                if e > most_e or dominated(here_e, here_m, here_o, count, e, m, o):
                    continue
                if rest:
                    e_at[depth + 1], m_at[depth + 1], o_at[depth + 1] = e_at[depth] + bound[block], m, o
                    depth += 1
                    left_at[depth] = rest
                    group_at[depth] = lowest(rest) * width + 1
                    place_at[depth] = local_begin[group_at[depth]]
                    continue
                joins = depth + 1

            if joins == 2:
                node = binary_excess(sets, prices, blocks[0], blocks[1])
            elif joins <= DENSE_INPUTS:
                # Nothing above the limit, or above a point that needs no more memory, is asked for: what is left of it above what is
                # known of all pipelines is all that any of them can spend more.
                limit, m = most_e, 0.0
                for k in range(joins):
                    m += least_m[blocks[k]]
                bought = lighter(here_m, count, m)
                if bought < count:
                    limit = min(limit, here_e[bought])
                spare = limit * ROUNDED - steps_of[joins]
                for k in range(joins):
                    spare -= least_e[blocks[k]] + paces[blocks[k]] * piped[k]
                for k in range(joins):
                    largest[k] = (piped[k] + spare / paces[blocks[k]]) / made if made > 0.0 else np.inf
                node = rounded(mjoin_excess(sets, prices, blocks, joins, whole, largest, scratch), prices.grain)
            else:
                node = rounded(wide_mjoin_excess(sets, prices, blocks, joins, whole, wide_to_go), prices.grain)

            # Every choice of the blocks' points, the last block's one after the other along both staircases.
            many = 0
            for k in range(joins):
                if blocks[k] >= n:
                    inner[many] = blocks[k]
                    many += 1
            tail_e[many], tail_m[many], tail_o[many] = 0.0, 0.0, 0
            for k in range(many - 1, -1, -1):
                tail_e[k] = tail_e[k + 1] + least_e[inner[k]]
                tail_m[k] = tail_m[k + 1] + least_m[inner[k]]
                tail_o[k] = tail_o[k + 1] + least_o[inner[k]]
            part_e[0], part_m[0], part_o[0] = node, 0.0, 1
            level = 0
            pick[0] = -1
            while level >= 0:
                if pick[level] < 0:
                    # At the first visit of a level: can any choice from here on be of use?
                    pick[level] = 0
                    low_e = part_e[level] + tail_e[level]
                    if level < many:
                        low_e *= SHAVED
                    if low_e > most_e:
                        level -= 1
                        if level >= 0:
                            pick[level] = points_of[inner[level]]  # what follows costs more CPU
                        continue
                    m, o = part_m[level] + tail_m[level], part_o[level] + tail_o[level]
                    if m > most_m or dominated(here_e, here_m, here_o, count, low_e, m, o):
                        level -= 1
                        continue
                if level + 1 < many:
                    block = inner[level]
                    if pick[level] == points_of[block]:
                        level -= 1
                        continue
                    point = first_point[block] + pick[level]
                    pick[level] += 1
                    part_e[level + 1] = part_e[level] + point_e[point] + kept_e[block]
                    part_m[level + 1] = part_m[level] + point_m[point] + kept_m[block]
                    part_o[level + 1] = part_o[level] + point_o[point]
                    level += 1
                    pick[level] = -1
                    continue
                # All but the last block have their points.
                block, alone = 0, 1
                if many:
                    block, alone = inner[level], points_of[inner[level]]
                below = 0
                for k in range(alone):
                    e, m, o = part_e[level], part_m[level], part_o[level]
                    if many:
                        point = first_point[block] + k
                        e, m, o = e + point_e[point] + kept_e[block], m + point_m[point] + kept_m[block], o + point_o[point]
                    if e > most_e:
                        break
                    if m > most_m:
                        continue
                    if below == 0:
                        below = up_to(here_e, count, e)
                    while below < count and here_e[below] <= e:
                        below += 1
                    before = max(below - 1, 0)
                    beaten = (here_e[before] < e) | (here_m[before] < m) | (here_o[before] <= o)
                    if (below > 0) & (here_m[before] <= m) & beaten:
                        continue
                    if used + joins + 1 > entries.size or count == longest - 1:
                        status = STOPPED if count == MAX_POINTS - 1 else FULL
                        break
                    pick[level] = k + 1
                    entries[used] = joins
                    place = 0
                    for j in range(joins):
                        if blocks[j] < n:
                            entries[used + 1 + j] = -1 - blocks[j]
                        else:
                            entries[used + 1 + j] = first_point[blocks[j]] + pick[place] - 1
                            place += 1
                    count = insert(here, count, e, m, o, used)
                    used += joins + 1
                    below = 0
                    if is_root:
                        most_e, most_m = tightened(limits, most_e, most_m, e, m)
                level = -1 if status else level - 1
            if status:
                break
        if is_root:
            root_count = count
            for k in range(count):
                root_e[k], root_m[k], root_o[k], root_r[k] = here_e[k], here_m[k], here_o[k], here_r[k]
        if status or is_root:
            break
        first_point[v] = points
        if points + count > point_e.size:
            status = FULL
            break
        least_o[v] = n
        for k in range(count):
            if here_r[k] != FOREIGN:
                point_e[points], point_m[points] = here_e[k], here_m[k]
                point_o[points], point_r[points], point_s[points] = here_o[k], here_r[k], v
                least_o[v] = min(least_o[v], here_o[k])
                points += 1
        points_of[v] = points - first_point[v]
        if points_of[v] == 0:
            continue
        least_e[v] = point_e[first_point[v]] + kept_e[v]
        least_m[v] = point_m[points - 1] + own_m
        e = least_e[v] + paces[v] * ahead[v, 1]
        inside = whole
        while inside:
            e -= share[1, lowest(inside)]
            inside &= inside - 1
        bound[v] = max(0.0, e)
        g = lowest(whole) * width + size
        listed[end[g]] = v
        end[g] += 1
    return Stairs(
        status,
        root_e[:root_count].copy(),
        root_m[:root_count].copy(),
        root_o[:root_count].copy(),
        root_r[:root_count].copy(),
        point_r[:points].copy(),
        point_s[:points].copy(),
        entries[:used].copy(),
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

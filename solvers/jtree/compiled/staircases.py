"""Compiled: the staircase of (CPU, memory) of every connected set that a good plan could keep, by dynamic programming.

Size and rate of a subresult do not depend on how it was joined, and costs add up over joins; so of two sub-plans of the same
set the one that is worse in both resources can go. The staircase of all streams is the whole frontier.

Figures are excesses over what every plan pays (`Prices`), in whole multiples of its last digit: sums are exact, and plans
whose figures agree to the last bit of a double are ties. Of ties the one with fewer operators stays, then the first met.

For every set V, by rising number of streams: the plain mjoin, every binary join, and every partition into three or more
blocks, depth first, after the first block always that of the lowest stream left. A partial partition is dropped only by valid bounds:

* what its blocks cost at least: their own least excess, being made and kept, and in each pipeline of an mjoin a first
  partial result, at least the smallest connected set above the block;
* for a stream not placed yet its least share of such costs, whatever its block;
* the last partial result of each pipeline, which lacks one block of V. The block without which V is smallest is placed first, so that
  this is known of all pipelines but its own from the start: where joins grow, few blocks come into question at all.

Dropped is what cannot beat a point of V's own staircase, or, once it is kept, a point of the frontier so far (which starts
from seeds), or what breaks a limit. Probe orders are computed for the partitions that survive.

A search over a beam, the few sets of each number of streams that have the lowest rates, takes next to no time and nearly always meets
the best plans: what it finds are the seeds of the search over all sets, which then has little but the proof to do.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from solvers.jtree.compiled.seeds import (
    Prices,
    Seeds,
    binary_excess,
    dominated,
    insert,
    keeping_in_mjoin,
    kept_bytes,
    kept_excess,
    mjoin_excess,
    rounded,
    scanning,
    up_to,
)
from solvers.jtree.compiled.sets import SPARED, Floats, Ints, Sets, find, lowest, popcount, released

__all__ = ["FRONTIER", "LEAST_BYTES", "LEAST_CPU", "LEAST_LOAD", "Bounds", "Limits", "Stairs", "as_seeds", "at_once", "bounds_of", "staircases"]

FRONTIER, LEAST_CPU, LEAST_BYTES, LEAST_LOAD = 0, 1, 2, 3  # what is asked for
DENSE_INPUTS = 13  # up to here all unions of blocks fit a small table; beyond, the table of connected sets is walked
SHAVED = 1.0 - 1e-13  # bounds are sums in another order than costs: this much below is never above
MAX_POINTS = 1 << 15  # of one staircase; beyond it the search stops
STOPPED, FULL = 1, 2  # how a search ends that is not complete: it was told to stop, or there is no room for its points
MORE_ROOM = 16  # times as much, when it was not enough
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
    steps: int


class Bounds(NamedTuple):
    """Per set what keeping it adds and bounds of what its plans and those above it cost."""

    kept_e: Floats
    kept_m: Floats
    ahead: Floats
    """[set, j]: what the first j partial results of a pipeline that starts here cost at least, per 1/T."""
    inside: Floats
    """The least excess of its own joins."""
    outside: Floats
    """The least excess of all joins above it once it is kept."""
    plain: Floats
    """The excess of its plain mjoin."""


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
def rounded_down(value: float, grain: float) -> float:
    """As `rounded`, never above the value: for bounds."""
    return float(np.floor(value / grain) * grain) if grain else value


@released
def partial_results(sets: Sets, made: float, stop: Ints) -> Floats:
    """costs[s, j]: what the first j partial results of a pipeline that starts at s cost at least, per 1/T.

    The t-th partial result is a connected set above s with at least t streams more, and not all streams: it costs at least
    what the smallest such set does.
    """
    total, n = sets.mask.size, sets.n
    masks, sizes, arounds = sets.mask, sets.size, sets.around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    costs = np.zeros((total, n))
    if made == 0.0:
        return costs
    for s in range(total - 1, -1, -1):
        if s & 1023 == 0 and stop[0]:
            break
        costs[s, 1:] = np.inf
        open_ = arounds[s]
        while open_:
            x = lowest(open_)
            open_ &= open_ - 1
            above = find(keys, places, multiplier, shift, masks[s] | (1 << x))
            if above != total - 1:
                costs[s, 1] = min(costs[s, 1], made * sizes[above], costs[above, 1])
                for t in range(2, n):
                    costs[s, t] = min(costs[s, t], costs[above, t - 1])
    for s in range(total):
        for t in range(2, n):
            costs[s, t] += costs[s, t - 1]
    return costs


@released
def code_excess(weights: Floats, count: int, queue: Floats) -> float:
    """Huffman(weights) − Σ weights: see `lower_bound`. `weights` by rising value; `queue` is scratch."""
    total = 0.0
    taken, head = 0, 0
    for merged in range(count - 1):
        pair = 0.0
        for _ in range(2):
            if taken < count and (head == merged or weights[taken] <= queue[head]):
                pair += weights[taken]
                taken += 1
            else:
                pair += queue[head]
                head += 1
        queue[merged] = pair
        if merged < count - 2:
            total += pair
    return total


@released
def inside_and_outside(sets: Sets, prices: Prices, ahead: Floats) -> tuple[Floats, Floats]:
    """For every set the least excess of its own joins, and of all joins above it once it is kept, by prefix codes (`lower_bound`)."""
    total, n = sets.mask.size, sets.n
    masks, paces = sets.mask, sets.pace
    inside, outside = np.zeros(total), np.zeros(total)
    if prices.made == 0.0:
        return inside, outside
    factor = SHAVED * (prices.made + min(prices.keep, prices.made / 2.0)) / prices.made
    weight = np.empty(n)
    for i in range(n):
        weight[i] = paces[i] * ahead[i, 1]
    order = np.argsort(weight)
    chosen, queue = np.empty(n + 1), np.empty(n + 1)
    for s in range(n, total - 1):
        mask = masks[s]
        count = 0
        for k in range(n):
            if mask >> order[k] & 1:
                chosen[count] = weight[order[k]]
                count += 1
        inside[s] = factor * code_excess(chosen, count, queue)
        own = paces[s] * ahead[s, 1]
        count = 0
        placed = False
        for k in range(n):
            if mask >> order[k] & 1 == 0:
                if not placed and own <= weight[order[k]]:
                    chosen[count] = own
                    count += 1
                    placed = True
                chosen[count] = weight[order[k]]
                count += 1
        if not placed:
            chosen[count] = own
            count += 1
        outside[s] = factor * code_excess(chosen, count, queue)
    return inside, outside


@released
def plain_mjoins(sets: Sets, prices: Prices, stop: Ints) -> Floats:
    """For every set the excess of its plain mjoin, from one forward pass over ways[set, first stream]."""
    total, n = sets.mask.size, sets.n
    masks, sizes, paces = sets.mask, sets.size, sets.pace
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    ways = np.full((total, n), np.inf)
    excess = np.zeros(total)
    scans = prices.scan != 0.0
    equal, indexed, plain = np.empty(n, np.int64), np.empty(n), np.empty(n)
    for i in range(n):
        ways[i, i] = 0.0
        equal[i] = sets.equal_around[i] & ~(1 << i)
        indexed[i], plain[i] = keeping_in_mjoin(sets, prices, i, equal[i]), keeping_in_mjoin(sets, prices, i, 0)
    for s in range(n, total):
        if s & 1023 == 0 and stop[0]:
            break
        mask = masks[s]
        inside = mask
        made = prices.made * sizes[s]
        while inside:
            x = lowest(inside)
            inside &= inside - 1
            rest = find(keys, places, multiplier, shift, mask & ~(1 << x))
            if rest < 0:
                continue
            step = scanning(sets, prices, rest, x) if scans else 0.0
            for i in range(n):
                ways[s, i] = min(ways[s, i], ways[rest, i] + step)
        inside = mask
        while inside:
            i = lowest(inside)
            inside &= inside - 1
            excess[s] += paces[i] * ways[s, i] + (indexed[i] if equal[i] & mask else plain[i])
        excess[s] = rounded(excess[s], prices.grain)
        for i in range(n):
            ways[s, i] += made
    return excess


@released
def bounds_of(sets: Sets, prices: Prices, stop: Ints) -> Bounds:
    """What every search of these sets asks for, whatever its limits."""
    total = sets.mask.size
    kept_e, kept_m = np.zeros(total), np.zeros(total)
    for s in range(sets.n, total):
        kept_e[s] = kept_excess(sets, prices, s)
        kept_m[s] = kept_bytes(sets, prices, s)
    ahead = partial_results(sets, prices.made, stop)
    inside, outside = inside_and_outside(sets, prices, ahead)
    return Bounds(kept_e, kept_m, ahead, inside, outside, plain_mjoins(sets, prices, stop))


@released
def few_of(sets: Sets, beam: int) -> NDArray[np.bool_]:
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
def wide_mjoin_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, to_go: Floats) -> float:
    """As `mjoin_excess`, for many blocks: a backward pass over the connected sets that are unions of them. `to_go` is scratch per set."""
    cost = 0.0
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
    last = find(sets.keys, sets.places, sets.multiplier, sets.shift, whole)
    to_go[last] = 0.0
    for s in range(last - 1, -1, -1):
        mask = sets.mask[s]
        if mask & ~whole:
            continue
        width = 0
        cut = False
        for k in range(m):
            part = mask & sets.mask[blocks[k]]
            if part:
                width += 1
                cut |= part != sets.mask[blocks[k]]
        if cut:
            continue
        best = np.inf
        for k in range(m):
            if sets.mask[blocks[k]] & sets.around[s]:
                above = find(sets.keys, sets.places, sets.multiplier, sets.shift, mask | sets.mask[blocks[k]])
                best = min(best, to_go[above] + scanning(sets, prices, s, blocks[k]))
        to_go[s] = best + prices.made * sets.size[s] if width > 1 else best
    for k in range(m):
        cost += sets.pace[blocks[k]] * to_go[blocks[k]]
    return cost


@released
def lighter(ms: Floats, count: int, m: float) -> int:
    """The first of `count` values, which fall, that is at most m."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ms[middle] <= m:
            high = middle
        else:
            low = middle + 1
    return low


@released
def climbed(
    sets: Sets,
    prices: Prices,
    bounds: Bounds,
    beam: int,
    start: Seeds,
    limits: Limits,
    stop: NDArray[np.int64],
    room: int,
) -> Stairs:
    """As `staircases`, as far as there is room."""
    total, n = sets.mask.size, sets.n
    # As locals: a field of a tuple that is read in a loop is counted as a reference each time.
    masks, sizes, paces, arounds = sets.mask, sets.size, sets.pace, sets.around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    made = prices.made
    root = total - 1
    kept_e, kept_m, ahead, plain = bounds.kept_e, bounds.kept_m, bounds.ahead, bounds.plain
    inside_least, outside_least = bounds.inside, bounds.outside
    few = few_of(sets, beam)

    longest = min(MAX_POINTS, room)
    root_e, root_m = np.empty(longest), np.empty(longest)
    root_o, root_r = np.empty(longest, np.int64), np.empty(longest, np.int64)
    root_count = 0
    limit_e, limit_m = limits.cap_e, limits.cap_m
    for k in range(start.e.size):
        e, m, o = start.e[k], start.m[k], start.operators[k]
        if e <= limit_e and m <= limit_m and not dominated(root_e, root_m, root_o, root_count, e, m, o):
            root_count = insert(root_e, root_m, root_o, root_r, root_count, e, m, o, -2 - k)
            limit_e, limit_m = tightened(limits, limit_e, limit_m, e, m)

    # share[t, i]: the least that stream i costs, whatever its block, in an mjoin whose pipelines have t partial results at least.
    share = np.full((n, n), np.inf)
    usable = np.zeros(total, np.bool_)
    for s in range(total - 1):
        own = 0.0
        if s >= n:
            own = kept_e[s] + inside_least[s]
            e = own + outside_least[s]
            if not few[s] or e > limit_e or kept_m[s] > limit_m or dominated(root_e, root_m, root_o, root_count, e, kept_m[s], 2):
                continue
        usable[s] = True
        inside = masks[s]
        while inside:
            i = lowest(inside)
            inside &= inside - 1
            for t in range(n):
                share[t, i] = min(share[t, i], paces[i] * (own / paces[s] + ahead[s, t])) if paces[s] > 0.0 else 0.0

    # Blocks by lowest stream and number of streams, each list by rising bound.
    least_e, least_m = np.zeros(total), np.zeros(total)
    least_o = np.zeros(total, np.int64)
    bound = np.zeros(total)
    first_point = np.zeros(total, np.int64)
    points_of = np.zeros(total, np.int64)
    width = n + 1
    counts = np.zeros(n * width + 1, np.int64)
    for s in range(total - 1):
        if usable[s]:
            counts[lowest(masks[s]) * width + popcount(masks[s])] += 1
    begin = np.zeros(n * width + 1, np.int64)
    for g in range(n * width):
        begin[g + 1] = begin[g] + counts[g]
    listed = np.empty(begin[n * width], np.int64)
    end = begin.copy()
    local, local_less = np.empty(begin[n * width], np.int64), np.empty(begin[n * width], np.int64)
    local_lack = np.empty(begin[n * width])
    local_begin = np.zeros(n * width + 1, np.int64)
    for i in range(n):
        bound[i] = max(0.0, paces[i] * ahead[i, 1] - share[1, i])
        g = i * width + 1
        listed[end[g]] = i
        end[g] += 1

    point_e, point_m = np.empty(room), np.empty(room)
    point_o, point_r, point_s = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.int64)
    points = 0
    entries = np.empty(4 * room, np.int64)
    used = 0

    here_e, here_m = np.empty(longest), np.empty(longest)
    here_o, here_r = np.empty(longest, np.int64), np.empty(longest, np.int64)
    dense = min(n, DENSE_INPUTS)
    dense_unions, dense_to_go = np.zeros(3 << dense, np.int64), np.empty(1 << dense)
    wide_to_go = np.empty(total if n > DENSE_INPUTS else 1)
    blocks = np.empty(n + 1, np.int64)
    inner = np.empty(n + 1, np.int64)
    pick = np.empty(n + 1, np.int64)
    part_e, part_m, part_o = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    tail_e, tail_m, tail_o = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    left_at, group_at, place_at = np.empty(n + 2, np.int64), np.empty(n + 2, np.int64), np.empty(n + 2, np.int64)
    e_at, m_at, o_at = np.empty(n + 2), np.empty(n + 2), np.empty(n + 2, np.int64)
    second_at = np.empty(n + 2)
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
            # The lists of the last layer are complete: sort each by its bound.
            for low in range(n):
                g = low * width + layer
                if end[g] > begin[g] + 1:
                    part = listed[begin[g] : end[g]].copy()
                    order = np.argsort(bound[part], kind="mergesort")
                    for k in range(part.size):
                        listed[begin[g] + k] = part[order[k]]
            layer = size
        is_root = v == root
        if not is_root and not usable[v]:
            continue
        if stop[0]:
            status = STOPPED
            break
        stop[1] = v  # for whoever watches
        # What keeping V adds, and all joins above it at least.
        own_e, own_m = 0.0, 0.0
        if not is_root:
            own_e, own_m = rounded_down(kept_e[v] + outside_least[v], prices.grain), kept_m[v]
            e = own_e + inside_least[v]
            if e > limit_e or own_m > limit_m or dominated(root_e, root_m, root_o, root_count, e, own_m, 2):
                continue
        # V's staircase among the frontier's points as V sees them: less what V adds. Of those that cost V nothing only the last counts.
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
            count = insert(here_e, here_m, here_o, here_r, count, e, 0.0, 1, -1)
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
                local_lack[k] = made * sizes[less] if less >= 0 else np.inf
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
                # The next block to be lacking at last.
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
                        cost = made * sizes[both]
                        first = min(first, cost + scanning(sets, prices, block, blocks[a]))
                        first_at[firsts + a] = min(first_at[firsts + a], cost + scanning(sets, prices, blocks[a], block))
                first_at[firsts + depth] = first
                blocks[depth] = block
                # The block that the others lack at last lacks another one itself, placed or still to come.
                second_at[depth] = min(second_at[depth - 1], local_lack[place])
                final = second_at[depth]
                inside = rest
                e = 0.0
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
                spare = limit * (1.0 + SPARED)
                for k in range(joins):
                    spare -= least_e[blocks[k]] + paces[blocks[k]] * piped[k]
                for k in range(joins):
                    largest[k] = (piped[k] + spare / paces[blocks[k]]) / made if made > 0.0 else np.inf
                node = rounded(mjoin_excess(sets, prices, blocks, joins, whole, largest, dense_unions, dense_to_go), prices.grain)
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
                    # Met for the first time: is there any hope?
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
                    count = insert(here_e, here_m, here_o, here_r, count, e, m, o, used)
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
        steps,
    )


@released
def staircases(sets: Sets, prices: Prices, bounds: Bounds, beam: int, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """The plans within the limits that no other beats. With a `beam` (0: none) only plans that keep sets of it are looked at.

    Starts with room for this many points of all staircases and takes more as it needs.
    """
    stairs = climbed(sets, prices, bounds, beam, start, limits, stop, room)
    while stairs.status == FULL and not stop[0]:
        room *= MORE_ROOM
        stairs = climbed(sets, prices, bounds, beam, start, limits, stop, room)
    return stairs


@released
def at_once(sets: Sets, prices: Prices, start: Seeds, limits: Limits, stop: Ints, room: int) -> Stairs:
    """Bounds and staircases in one call: between Python and compiled code a small graph's tables travel for longer than they are searched."""
    every = int(np.int64(0))  # a plain 0 would be a type of its own, and all of `climbed` be compiled for it
    return staircases(sets, prices, bounds_of(sets, prices, stop), every, start, limits, stop, room)


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

"""Compiled: good plans to start an exact search from.

A join tree is a laminar family of connected sets, one per join: a join's inputs are the largest members inside it and the
streams that no member covers. From the best binary tree one member is removed at a time, from the plain mjoin one is added at
a time (paper 3's state-removal and state-selection in one step each); every plan met on the way is a seed.

Costs are excesses: what every plan pays alike is left out (`Prices`). Joins of up to EXACT_INPUTS inputs are
priced with their best probe orders, larger ones with greedy orders: a seed is an upper bound either way.
Guarantee: none. Complexity: O(n²) joins priced per path.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.sets import Floats, Ints, Sets, access_cost, find, lowest, released
from solvers.model.probe_order import TIED

__all__ = ["ONE_DESCENT", "ONE_PLAN", "Prices", "Seeds", "dominated", "follow", "insert", "join_excess", "members_as_rows", "seeds"]

EXACT_INPUTS = 8  # 256 unions: microseconds
ONE_DESCENT, ONE_PLAN = -1, -2  # instead of a number of expansions


class Prices(NamedTuple):
    """What operations cost, and what of it every plan pays.

    A plan's CPU = what every plan pays + its excess. Every plan keeps each stream for at least its floor, sends each
    arrival to a first probe, and makes the output. So a join's output that is kept adds rate · (join + probe + least keeping),
    and a partial result that is not kept adds rate · (join + probe).
    """

    made: float
    """join + probe: what a partial result costs that is made and goes on to probe."""
    indexed: float
    """insert + delete: keeping a tuple in a state with an index."""
    append: float
    scan: float
    keep: float
    """min(indexed, append): the least that keeping a tuple costs."""
    floors: Floats
    """Per stream the least that keeping it costs, in any plan."""
    grain: float
    """CPU is counted in whole multiples of this, the last digit of what every plan pays; 0: as it comes."""
    grain_bytes: float


class Seeds(NamedTuple):
    """Plans to start from, a staircase: the excess, bytes and joins of each, and its members in any order, 0 after the last."""

    e: Floats
    m: Floats
    operators: Ints
    members: Ints


@released
def rounded(value: float, grain: float) -> float:
    """To a whole multiple of a power of two, so that sums do not depend on their order and ties are ties."""
    return float(np.rint(value / grain) * grain) if grain else value


@released
def kept_excess(sets: Sets, prices: Prices, s: int) -> float:
    """What keeping a join's output adds."""
    rate = sets.size[s] * sets.pace[s]
    return rounded((prices.made + prices.keep) * rate, prices.grain)


@released
def kept_bytes(sets: Sets, prices: Prices, s: int) -> float:
    return rounded(sets.size[s] * sets.bytes[s], prices.grain_bytes)


@released
def access_excess(sets: Sets, prices: Prices, kept: int, arriving: int) -> float:
    """What keeping one state of a binary join and probing it costs above the state's floor: indexed or plain, as the choosing rates have it."""
    rate, probes = sets.size[kept] * sets.pace[kept], sets.size[arriving] * sets.pace[arriving]
    plain = access_cost(False, rate, probes, sets.size[kept], prices.indexed, prices.append, prices.scan)
    indexed = prices.indexed * rate
    choosing_rate = sets.choosing_size[kept] * sets.choosing_pace[kept]
    choosing_probes = sets.choosing_size[arriving] * sets.choosing_pace[arriving]
    cheaper = access_cost(False, choosing_rate, choosing_probes, sets.choosing_size[kept], prices.indexed, prices.append, prices.scan)
    hashed = (sets.equal_around[kept] & sets.mask[arriving] != 0) & (prices.indexed * choosing_rate <= cheaper)
    floor = prices.floors[kept] if kept < sets.n else prices.keep * rate
    return float(max(0.0, (indexed if hashed else plain) - floor))


@released
def binary_excess(sets: Sets, prices: Prices, left: int, right: int) -> float:
    """The excess of a binary join of two sets, its inputs' floors left out."""
    return rounded(access_excess(sets, prices, left, right) + access_excess(sets, prices, right, left), prices.grain)


@released
def keeping_in_mjoin(sets: Sets, prices: Prices, s: int, whole: int) -> float:
    """What keeping an input costs above its floor, in an mjoin of `whole`: indexed where any equality predicate leads to it."""
    rate = sets.size[s] * sets.pace[s]
    hashable = sets.equal_around[s] & whole & ~sets.mask[s] != 0
    cost = rate * (prices.indexed if hashable else prices.append)
    return float(max(0.0, cost - (prices.floors[s] if s < sets.n else prices.keep * rate)))


@released
def scanning(sets: Sets, prices: Prices, visited: int, target: int) -> float:
    """What a probe that can only scan adds, per 1/T."""
    if prices.scan == 0.0 or sets.equal_around[visited] & sets.mask[target]:
        return 0.0
    return float(prices.scan * (sets.size[visited] * sets.size[target]))


@released
def mjoin_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, largest: Floats, unions: Ints, to_go: Floats) -> float:
    """The excess of an mjoin of blocks (places in the table) with the best probe orders, by a backward pass over their connected unions.

    `largest`: for every block the largest partial result that its pipeline can afford. Unions that are too large for all of their blocks are
    not looked at, so where a pipeline cannot afford its best order, what comes back may be any number above the best orders' cost.
    `to_go` is scratch of 2^m, `unions` of 3·2^m and all zeros before and after: per union its place in the table and 1, the unions by
    number of blocks, per union the blocks next to it.
    """
    masks, sizes, paces, around, equal_around = sets.mask, sets.size, sets.pace, sets.around, sets.equal_around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    made, scan = prices.made, prices.scan
    full = (1 << m) - 1
    listed, beside = full + 1, 2 * (full + 1)
    cost = 0.0
    scans = False  # whether any probe may have to, at a cost: where equalities join all blocks, none does
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
        to_go[1 << k] = largest[k]  # on the way up, what a union may hold; on the way down, what it costs to go on from it
        unions[1 << k] = blocks[k] + 1
        unions[listed + k] = 1 << k
        near = 0
        for j in range(m):
            if around[blocks[k]] & masks[blocks[j]]:
                near |= 1 << j
                scans |= (scan != 0.0) & (equal_around[blocks[k]] & masks[blocks[j]] == 0)
        unions[beside + (1 << k)] = near
    count, taken = m, 0
    while taken < count:
        u = unions[listed + taken]
        taken += 1
        mask = masks[unions[u] - 1]
        left = unions[beside + u] & ~u
        while left:
            k = lowest(left)
            left &= left - 1
            grown = u | (1 << k)
            if unions[grown] == 0:
                union = find(keys, places, multiplier, shift, mask | masks[blocks[k]])
                # Another way up to this union, through blocks that can afford more of it, comes to the same: all its blocks count.
                most = max(to_go[u], largest[k])
                if sizes[union] > most and grown != full:
                    continue
                to_go[grown] = most
                unions[grown] = union + 1
                unions[beside + grown] = unions[beside + u] | unions[beside + (1 << k)]
                unions[listed + count] = grown
                count += 1
    to_go[full] = 0.0
    for place in range(count - 1, -1, -1):
        u = unions[listed + place]
        if u == full:
            continue
        here = unions[u] - 1
        best = np.inf
        left = unions[beside + u] & ~u
        while left:
            k = lowest(left)
            left &= left - 1
            if unions[u | (1 << k)] == 0:
                continue
            step = to_go[u | (1 << k)]
            if scans and equal_around[here] & masks[blocks[k]] == 0:
                step += scan * (sizes[here] * sizes[blocks[k]])
            best = min(best, step)
        to_go[u] = best + made * sizes[here] if u & (u - 1) else best
    for place in range(count):
        u = unions[listed + place]
        unions[u], unions[beside + u], unions[listed + place] = 0, 0, 0
    for k in range(m):
        cost += paces[blocks[k]] * to_go[1 << k]
    return cost


@released
def follow(sets: Sets, prices: Prices, blocks: Ints, m: int, to_go: Floats, dense: bool) -> Ints:
    """The best probe orders, a row per input, from a backward pass's costs to go (by union, or by set); of equals lower inputs first."""
    orders = np.zeros((m, m - 1), np.int64)
    for start in range(m):
        u = 1 << start
        here = blocks[start]
        step = 0
        while step < m - 1:
            best, chosen, reached = np.inf, -1, -1
            for k in range(m):
                if u >> k & 1 or sets.mask[blocks[k]] & sets.around[here] == 0:
                    continue
                made = find(sets.keys, sets.places, sets.multiplier, sets.shift, sets.mask[here] | sets.mask[blocks[k]])
                cost = scanning(sets, prices, here, blocks[k]) + (to_go[u | (1 << k)] if dense else to_go[made])
                if cost < best * TIED or chosen < 0:
                    best, chosen, reached = cost, k, made
            orders[start, step] = chosen
            u |= 1 << chosen
            here = reached
            step += 1
    return orders


@released
def greedy_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int) -> float:
    """The same with greedy probe orders: next is the block whose step costs least."""
    cost = 0.0
    for k in range(m):
        cost += keeping_in_mjoin(sets, prices, blocks[k], whole)
        here = blocks[k]
        total = 0.0
        while sets.mask[here] != whole:
            best, following = np.inf, -1
            for j in range(m):
                target = blocks[j]
                if sets.mask[target] & sets.mask[here] == 0 and sets.mask[target] & sets.around[here]:
                    made = find(sets.keys, sets.places, sets.multiplier, sets.shift, sets.mask[here] | sets.mask[target])
                    step = scanning(sets, prices, here, target)
                    if sets.mask[made] != whole:
                        step += prices.made * sets.size[made]
                    if step < best or following < 0:
                        best, following = step, made
            total += best
            here = following
        cost += sets.pace[blocks[k]] * total
    return cost


@released
def join_excess(sets: Sets, prices: Prices, blocks: Ints, m: int, whole: int, unlimited: Floats, unions: Ints, to_go: Floats) -> float:
    """The excess of one join; `unlimited` are infinities, unions and to_go scratch of `mjoin_excess`."""
    if m == 2:
        return binary_excess(sets, prices, blocks[0], blocks[1])
    if m <= EXACT_INPUTS:
        return rounded(mjoin_excess(sets, prices, blocks, m, whole, unlimited, unions, to_go), prices.grain)
    return rounded(greedy_excess(sets, prices, blocks, m, whole), prices.grain)


@released
def inputs_of(sets: Sets, family: Ints, count: int, whole: int, skipped: int, blocks: Ints) -> int:
    """The inputs of the join of `whole`, but for the member `skipped`: the largest members inside, then bare streams. family is by falling size."""
    left = whole
    m = 0
    for f in range(count):
        member = family[f]
        if member != whole and member != skipped and member & ~whole == 0 and member & ~left == 0:
            blocks[m] = find(sets.keys, sets.places, sets.multiplier, sets.shift, member)
            m += 1
            left &= ~member
    while left:
        blocks[m] = lowest(left)
        m += 1
        left &= left - 1
    return m


@released
def up_to(es: Floats, count: int, e: float) -> int:
    """How many of the first `count` values, which rise, are at most e."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if es[middle] <= e:
            low = middle + 1
        else:
            high = middle
    return low


@released
def dominated(es: Floats, ms: Floats, os: Ints, count: int, e: float, m: float, o: int) -> bool:
    """Whether a staircase (e rising, m falling) has a point at least as good in both, and in operators where both are equal."""
    low = up_to(es, count, e)
    # One way out and no `or`: on each way out of a function numba counts references to its arrays, which took most of the search's time.
    place = max(low - 1, 0)
    worse = (es[place] < e) | (ms[place] < m) | (os[place] <= o)
    return bool((low > 0) & (ms[place] <= m) & worse)


@released
def insert(es: Floats, ms: Floats, os: Ints, rows: Ints, count: int, e: float, m: float, o: int, row: int) -> int:
    """Put a point that is not dominated into a staircase, dropping what it dominates; returns the new count."""
    place = 0
    while place < count and es[place] < e:
        place += 1
    end = place
    while end < count and ms[end] >= m:
        end += 1
    moved = place + 1 - end
    if moved > 0:
        for k in range(count - 1, end - 1, -1):
            es[k + 1], ms[k + 1], os[k + 1], rows[k + 1] = es[k], ms[k], os[k], rows[k]
    elif moved < 0:
        for k in range(end, count):
            es[k + moved], ms[k + moved], os[k + moved], rows[k + moved] = es[k], ms[k], os[k], rows[k]
    es[place], ms[place], os[place], rows[place] = e, m, o, row
    return count + moved


@released
def members_as_rows(split: Ints, sets: Sets) -> Ints:
    """The members of a binary tree given by its splits, by falling size, the whole first."""
    family = np.zeros(sets.n, np.int64)
    family[0] = (1 << sets.n) - 1
    count = 1
    place = 0
    while place < count:
        half = split[find(sets.keys, sets.places, sets.multiplier, sets.shift, family[place])]
        for part in (half, family[place] & ~half):
            if part & (part - 1):
                family[count] = part
                count += 1
        place += 1
    return family[:count].copy()


@released
def by_falling_size(sets: Sets, family: Ints, count: int) -> None:
    """Sort members by falling place in the table: the table is by rising number of streams."""
    for k in range(1, count):
        member = family[k]
        place = find(sets.keys, sets.places, sets.multiplier, sets.shift, member)
        j = k
        while j and find(sets.keys, sets.places, sets.multiplier, sets.shift, family[j - 1]) < place:
            family[j] = family[j - 1]
            j -= 1
        family[j] = member


@released
def plan_figures(
    sets: Sets, prices: Prices, family: Ints, members: int, blocks: Ints, unlimited: Floats, unions: Ints, to_go: Floats
) -> tuple[float, float]:
    """e and m of the plan with these members, by falling size."""
    e, m = 0.0, 0.0
    for f in range(members):
        inputs = inputs_of(sets, family, members, family[f], 0, blocks)
        e += join_excess(sets, prices, blocks, inputs, family[f], unlimited, unions, to_go)
        if f:
            s = find(sets.keys, sets.places, sets.multiplier, sets.shift, family[f])
            e += kept_excess(sets, prices, s)
            m += kept_bytes(sets, prices, s)
    return e, m


@released
def seeds(sets: Sets, prices: Prices, binary: Ints, expansions: int) -> Seeds:
    """Good plans of any size.

    Two descents, from the binary tree by removals and from the plain mjoin by additions, then up to `expansions` points of the
    staircase in turn: of each every plan with one member less or one more. With `expansions` below 0 only the first descent (ONE_DESCENT)
    or the binary tree alone (ONE_PLAN), which is all that a small graph is worth.
    """
    n = sets.n
    every = (1 << n) - 1
    room = 4096 + 64 * n if expansions >= 0 else 64 * n
    es, ms, os, rows = np.empty(room), np.empty(room), np.empty(room, np.int64), np.empty(room, np.int64)
    families = np.zeros((room, n), np.int64)
    expanded = np.zeros(room, np.bool_)
    used = 0
    count = 0
    unions, to_go, unlimited = np.zeros(3 << EXACT_INPUTS, np.int64), np.empty(1 << EXACT_INPUTS), np.full(EXACT_INPUTS, np.inf)
    blocks = np.empty(n + 1, np.int64)
    other = np.empty(n + 1, np.int64)
    family = np.zeros(n + 2, np.int64)
    trial = np.zeros(n + 2, np.int64)
    cost_of = np.zeros(n + 2)
    members = binary.size
    family[:members] = binary
    by_falling_size(sets, family, members)
    phase = 0  # 0: removals, 1: additions, 2: both, from the staircase
    while used < room - 1 and count < room - 1:
        e, m = 0.0, 0.0
        for f in range(members):
            inputs = inputs_of(sets, family, members, family[f], 0, blocks)
            cost_of[f] = join_excess(sets, prices, blocks, inputs, family[f], unlimited, unions, to_go)
            e += cost_of[f]
            if f:
                s = find(sets.keys, sets.places, sets.multiplier, sets.shift, family[f])
                e += kept_excess(sets, prices, s)
                m += kept_bytes(sets, prices, s)
        if phase < 2 and e < np.inf and not dominated(es, ms, os, count, e, m, members):
            families[used, :members] = family[:members]
            count = insert(es, ms, os, rows, count, e, m, members, used)
            used += 1
        if expansions == ONE_PLAN:
            break
        best, chosen = np.inf, 0
        for f in range(members):
            whole = family[f]
            inputs = inputs_of(sets, family, members, whole, 0, blocks)
            for i in range(-1, inputs):
                for j in range(i + 1, inputs):
                    if i < 0:
                        # Without this member: its inputs go to the join above.
                        if j > 0 or f == 0 or phase == 1:
                            continue
                        part = whole
                        g = f - 1
                        while whole & ~family[g]:
                            g -= 1
                        width = inputs_of(sets, family, members, family[g], whole, other)
                        s = find(sets.keys, sets.places, sets.multiplier, sets.shift, whole)
                        change = join_excess(sets, prices, other, width, family[g], unlimited, unions, to_go)
                        change -= cost_of[f] + cost_of[g] + kept_excess(sets, prices, s)
                        grown = -kept_bytes(sets, prices, s)
                    else:
                        # With two of its inputs joined first.
                        if phase == 0 or inputs < 3 or sets.around[blocks[i]] & sets.mask[blocks[j]] == 0:
                            continue
                        part = sets.mask[blocks[i]] | sets.mask[blocks[j]]
                        s = find(sets.keys, sets.places, sets.multiplier, sets.shift, part)
                        other[0] = s
                        width = 1
                        for k in range(inputs):
                            if k not in (i, j):
                                other[width] = blocks[k]
                                width += 1
                        change = join_excess(sets, prices, other, width, whole, unlimited, unions, to_go) - cost_of[f]
                        change += binary_excess(sets, prices, blocks[i], blocks[j]) + kept_excess(sets, prices, s)
                        grown = kept_bytes(sets, prices, s)
                    if phase < 2:
                        if phase == 1 and change >= 0.0:
                            continue
                        ratio = change / abs(grown) if grown != 0.0 else (-np.inf if change <= 0.0 else np.inf)
                        if ratio < best or chosen == 0:
                            best, chosen = ratio, part
                    if not dominated(es, ms, os, count, e + change, m + grown, 0) and used < room - 1 and e + change < np.inf:
                        kept = 0
                        for k in range(members):
                            if i >= 0 or k != f:
                                trial[kept] = family[k]
                                kept += 1
                        if i >= 0:
                            trial[kept] = part
                            kept += 1
                            by_falling_size(sets, trial, kept)
                        # Differences round: the figures of a plan that stays are summed anew.
                        new_e, new_m = plan_figures(sets, prices, trial, kept, other, unlimited, unions, to_go)
                        if not dominated(es, ms, os, count, new_e, new_m, kept):
                            families[used, :kept] = trial[:kept]
                            count = insert(es, ms, os, rows, count, new_e, new_m, kept, used)
                            used += 1
        if phase < 2 and chosen:
            kept = 0
            if phase == 0:
                for f in range(members):
                    if family[f] != chosen:
                        family[kept] = family[f]
                        kept += 1
                members = kept
            else:
                family[members] = chosen
                members += 1
                by_falling_size(sets, family, members)
            continue
        phase += 1
        if expansions < 0:
            break
        if phase == 1:
            members = 1
            family[0] = every
            continue
        phase = 2
        members = 0
        for k in range(count):
            if not expanded[rows[k]]:
                expanded[rows[k]] = True
                while members < n and families[rows[k], members]:
                    family[members] = families[rows[k], members]
                    members += 1
                break
        if members == 0 or expansions == 0:
            break
        expansions -= 1
    found = np.zeros((count, n), np.int64)
    for k in range(count):
        found[k] = families[rows[k]]
    return Seeds(es[:count].copy(), ms[:count].copy(), os[:count].copy(), found)

"""Good plans to start an exact search from, compiled.

Problem: plans of either end of the frontier and between, in next to no time. Method: a join tree is a laminar family of connected sets, one
per join: a join's inputs are the largest members inside it and the streams that no member covers. From the best binary tree one member is
removed at a time, from the plain mjoin one is added at a time (paper 3's state-removal and state-selection in one step each); every plan
met on the way is a seed, and then every plan one step from a seed.

Costs are excesses: what every plan pays alike is left out (`Prices`). Joins of up to EXACT_INPUTS inputs are
priced with their best probe orders, larger ones with greedy orders: a seed is an upper bound either way.
Guarantee: none. Complexity: O(n²) joins priced per path, and per seed whose neighbours are tried.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Flags, Floats, Ints, compiled, making, released
from solvers.jtree.compiled.cost import Prices, binary_excess, kept_bytes, kept_excess
from solvers.jtree.compiled.orders import EXACT_INPUTS, Scratch, join_excess, scratch_for
from solvers.jtree.compiled.sets import Sets, lowest, place_of
from solvers.jtree.compiled.staircase import Steps, dominated, insert, room_for

__all__ = ["ONE_DESCENT", "ONE_PLAN", "Seeds", "seeds"]

ONE_DESCENT, ONE_PLAN = -1, -2  # instead of a number of expansions
REMOVING, ADDING, SPREADING = 0, 1, 2  # down from the binary tree, up from the mjoin, and from seeds in both directions
COUNT, USED = 0, 1  # entries of Pool.counts


class Seeds(NamedTuple):
    """Plans to start from, a staircase: the excess, bytes and joins of each, and its members in any order, 0 after the last."""

    e: Floats
    m: Floats
    operators: Ints
    members: Ints


class Pool(NamedTuple):
    """The plans so far that no other beats, a staircase; a row is a place in `families`, which keeps every plan that ever was one of them."""

    steps: Steps
    families: Ints
    """Members by falling size, 0 after the last."""
    expanded: Flags
    counts: Ints
    """How many points the staircase has, and how many families are taken."""


class Plan(NamedTuple):
    """The plan at hand, and room to look at its neighbours."""

    family: Ints
    cost: Floats
    """Of the join of each member."""
    blocks: Ints
    other: Ints
    trial: Ints
    trial_cost: Floats
    scratch: Scratch
    stop: Ints
    """Its first entry is set where time is over: what was found by then is enough."""


@compiled
def inputs_of(sets: Sets, family: Ints, count: int, whole: int, skipped: int, blocks: Ints) -> int:
    """The inputs of the join of `whole` if `skipped` were no member: the largest members inside, then bare streams. family is by falling size."""
    left = whole
    m = 0
    for f in range(count):
        member = family[f]
        if member != whole and member != skipped and member & ~whole == 0 and member & ~left == 0:
            blocks[m] = place_of(sets, member)
            m += 1
            left &= ~member
    while left:
        blocks[m] = lowest(left)
        m += 1
        left &= left - 1
    return m


@compiled
def by_falling_size(sets: Sets, family: Ints, count: int) -> None:
    """Sort members by falling place in the table: the table is by rising number of streams."""
    for k in range(1, count):
        member = family[k]
        own = place_of(sets, member)
        j = k
        while j and place_of(sets, family[j - 1]) < own:
            family[j] = family[j - 1]
            j -= 1
        family[j] = member


@compiled
def plan_figures(sets: Sets, prices: Prices, family: Ints, members: int, plan: Plan, cost: Floats) -> tuple[float, float]:
    """e and m of the plan with these members, by falling size; leaves in `cost` what each join costs."""
    e, m = 0.0, 0.0
    for f in range(members):
        inputs = inputs_of(sets, family, members, family[f], 0, plan.other)
        cost[f] = join_excess(sets, prices, plan.other, inputs, family[f], plan.scratch)
        e += cost[f]
        if f:
            s = place_of(sets, family[f])
            e += kept_excess(sets, prices, s)
            m += kept_bytes(sets, prices, s)
    return e, m


@compiled
def take(pool: Pool, family: Ints, members: int, e: float, m: float) -> None:
    """Put a plan into the pool, unless it is beaten."""
    steps, counts = pool.steps, pool.counts
    if not dominated(steps.e, steps.m, steps.o, counts[COUNT], e, m, members):
        for k in range(members):
            pool.families[counts[USED], k] = family[k]
        counts[COUNT] = insert(steps, counts[COUNT], e, m, members, counts[USED])
        counts[USED] += 1


@compiled
def without(sets: Sets, prices: Prices, plan: Plan, members: int, f: int) -> tuple[float, float]:
    """What e and m change by without member f: its inputs go to the join above."""
    family, cost = plan.family, plan.cost
    g = f - 1
    while family[f] & ~family[g]:
        g -= 1
    width = inputs_of(sets, family, members, family[g], family[f], plan.other)
    s = place_of(sets, family[f])
    change = join_excess(sets, prices, plan.other, width, family[g], plan.scratch)
    change -= cost[f] + cost[g] + kept_excess(sets, prices, s)
    return change, -kept_bytes(sets, prices, s)


@compiled
def joined_first(sets: Sets, prices: Prices, plan: Plan, f: int, inputs: int, pair: tuple[int, int]) -> tuple[float, float]:
    """What e and m change by if two inputs of member f (at places i and j of `plan.blocks`) are joined first."""
    blocks, other = plan.blocks, plan.other
    i, j = pair
    s = place_of(sets, sets.mask[blocks[i]] | sets.mask[blocks[j]])
    other[0] = s
    width = 1
    for k in range(inputs):
        if k not in (i, j):
            other[width] = blocks[k]
            width += 1
    change = join_excess(sets, prices, other, width, plan.family[f], plan.scratch) - plan.cost[f]
    change += binary_excess(sets, prices, blocks[i], blocks[j]) + kept_excess(sets, prices, s)
    return change, kept_bytes(sets, prices, s)


@compiled
def with_change(sets: Sets, plan: Plan, members: int, removed: int, added: int) -> int:
    """The members at hand without one and with another (0: none), in `plan.trial`, by falling size. Returns how many."""
    kept = 0
    for k in range(members):
        if plan.family[k] != removed:
            plan.trial[kept] = plan.family[k]
            kept += 1
    if added:
        plan.trial[kept] = added
        kept += 1
        by_falling_size(sets, plan.trial, kept)
    return kept


@released
def step_ratio(change: float, grown: float) -> float:
    """What a step costs in CPU for the bytes it changes: the least is taken."""
    if grown != 0.0:
        return change / abs(grown)
    return -np.inf if change <= 0.0 else np.inf


@compiled
def try_neighbours(sets: Sets, prices: Prices, pool: Pool, plan: Plan, members: int, phase: int) -> int:
    """The plan at hand and every plan one step from it: those that nothing beats go into the pool. Returns the member of the best step, or 0.

    While SPREADING, the plan at hand is in the pool already.
    """
    family, blocks, steps, counts = plan.family, plan.blocks, pool.steps, pool.counts
    e, m = plan_figures(sets, prices, family, members, plan, plan.cost)
    if phase != SPREADING and e < np.inf:
        take(pool, family, members, e, m)
    best, chosen = np.inf, 0
    for f in range(members):
        if plan.stop[0]:
            return 0
        inputs = inputs_of(sets, family, members, family[f], 0, blocks)
        for i in range(-1, inputs):
            for j in range(i + 1, inputs):
                removed, added = 0, 0
                if i < 0:
                    if j > 0 or f == 0 or phase == ADDING:
                        continue
                    removed = family[f]
                    change, grown = without(sets, prices, plan, members, f)
                else:
                    if phase == REMOVING or inputs < 3 or sets.around[blocks[i]] & sets.mask[blocks[j]] == 0:
                        continue
                    added = sets.mask[blocks[i]] | sets.mask[blocks[j]]
                    change, grown = joined_first(sets, prices, plan, f, inputs, (i, j))
                if phase == ADDING and change >= 0.0:
                    continue
                ratio = step_ratio(change, grown)
                if phase != SPREADING and (ratio < best or chosen == 0):
                    best, chosen = ratio, removed | added
                hope = not dominated(steps.e, steps.m, steps.o, counts[COUNT], e + change, m + grown, 0)
                if hope and counts[USED] < pool.expanded.size - 1 and e + change < np.inf:
                    kept = with_change(sets, plan, members, removed, added)
                    # Differences round: the figures of a plan that stays are summed anew.
                    new_e, new_m = plan_figures(sets, prices, plan.trial, kept, plan, plan.trial_cost)
                    take(pool, plan.trial, kept, new_e, new_m)
    return chosen


@released
def next_to_expand(pool: Pool, family: Ints) -> int:
    """The members of the first seed whose neighbours were not tried yet, in `family`. Returns how many, 0 where there is none left."""
    rows, families, expanded = pool.steps.row, pool.families, pool.expanded
    members = 0
    for k in range(pool.counts[COUNT]):
        if not expanded[rows[k]]:
            expanded[rows[k]] = True
            while members < families.shape[1] and families[rows[k], members]:
                family[members] = families[rows[k], members]
                members += 1
            break
    return members


@released
def descend(sets: Sets, prices: Prices, pool: Pool, plan: Plan, members: int, phase: int) -> None:
    """From the plan at hand one best step after the other, removing or adding members, until there is none or no room."""
    family, room = plan.family, pool.expanded.size - 1
    moving = True
    while moving and pool.counts[USED] < room and pool.counts[COUNT] < room:
        chosen = try_neighbours(sets, prices, pool, plan, members, phase)
        moving = chosen != 0
        if moving:
            members = with_change(sets, plan, members, chosen if phase == REMOVING else 0, chosen if phase == ADDING else 0)
            for k in range(members):
                family[k] = plan.trial[k]


@making
def seeds(sets: Sets, prices: Prices, binary: Ints, expansions: int, stop: Ints) -> Seeds:
    """Good plans of any size; where `stop` is set, those found so far, the binary tree at least.

    Two descents, from the binary tree by removals and from the plain mjoin by additions, then up to `expansions` points of the
    staircase in turn: of each every plan with one member less or one more. With `expansions` below 0 only the first descent (ONE_DESCENT)
    or the binary tree alone (ONE_PLAN), which is all that a small graph is worth.
    """
    n = sets.n
    room = 4096 + 64 * n if expansions >= 0 else 64 * n
    pool = Pool(room_for(room), np.zeros((room, n), np.int64), np.zeros(room, np.bool_), np.zeros(2, np.int64))
    ints = np.zeros((4, n + 2), np.int64)
    plan = Plan(ints[0], np.zeros(n + 2), ints[1], ints[2], ints[3], np.zeros(n + 2), scratch_for(EXACT_INPUTS), stop)
    members = binary.size
    plan.family[:members] = binary
    by_falling_size(sets, plan.family, members)
    if expansions == ONE_PLAN:
        e, m = plan_figures(sets, prices, plan.family, members, plan, plan.cost)
        if e < np.inf:
            take(pool, plan.family, members, e, m)
    else:
        descend(sets, prices, pool, plan, members, REMOVING)
    if expansions >= 0:
        plan.family[0] = (1 << n) - 1
        descend(sets, prices, pool, plan, 1, ADDING)
        for _ in range(expansions):
            members = next_to_expand(pool, plan.family)
            if members == 0 or stop[0] or pool.counts[USED] >= room - 1 or pool.counts[COUNT] >= room - 1:
                break
            try_neighbours(sets, prices, pool, plan, members, SPREADING)
    steps, count = pool.steps, pool.counts[COUNT]
    found = np.zeros((count, n), np.int64)
    for k in range(count):
        found[k] = pool.families[steps.row[k]]
    return Seeds(steps.e[:count].copy(), steps.m[:count].copy(), steps.o[:count].copy(), found)

"""The partitions of a set into three blocks or more that an mjoin within the limits may have, one by one, compiled.

Problem: of all partitions of V into blocks that may be kept, those whose mjoin may be a step of V's staircase. Method: depth first: first the block
without which V is smallest, then always that of the lowest stream left. A partial one is dropped by valid bounds alone:

* what its blocks cost at least: their own least excess, being made and kept, and in each pipeline of an mjoin a first
  partial result, at least the smallest connected set above the block;
* for a stream not placed yet its least share of such costs, whatever its block;
* the last partial result of each pipeline, which lacks one block of V. The block without which V is smallest is placed first, so that
  this is known of all pipelines but its own from the start: where joins grow, few blocks come into question at all.

Guarantee: each partition once, and none left out that could be a step. Complexity: exponential in the streams of V; what the bounds leave decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import ROUNDED, SHAVED
from solvers.jtree.compiled.blocks import Blocks, Lists
from solvers.jtree.compiled.climbing import MOST_E, Stair, bought_by, misses
from solvers.jtree.compiled.compiling import Floats, Ints, inlined, making
from solvers.jtree.compiled.cost import Prices, rounded, scanning, stepping
from solvers.jtree.compiled.orders import DENSE_INPUTS, Scratch, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.sets import Sets, lowest, place_of, popcount

__all__ = [
    "NO_MORE",
    "TOLD_TO_STOP",
    "Inside",
    "Walk",
    "begin_walk",
    "blocks_inside",
    "fits",
    "go_on_with",
    "mjoin_cost",
    "next_partition",
    "starts",
    "told_to_stop",
    "walk_room",
]

NO_MORE, TOLD_TO_STOP = 0, -1
V, WHOLE, FILLED, CANDIDATE, DEPTH, STEPS = range(6)  # places of `Walk.at`
SHARES, LACK = 0, 1  # places of `Walk.known`
ASKED_EVERY = 31  # steps, less one: how often it is seen whether to stop; a step may end in the price of an mjoin of twenty inputs


class Inside(NamedTuple):
    """The blocks inside V, list by list as in `Lists`."""

    block: Ints
    less: Ints
    """V without it; −1 where that is not connected."""
    lack: Floats
    """What the partial result costs that lacks it, per 1/T."""
    begin: Ints
    lack_of: Floats
    """The least of them by stream."""


class Walk(NamedTuple):
    """Where the walk through V's partitions is: its blocks so far, and by depth what is left and what is known."""

    block: Ints
    left: Ints
    group: Ints
    place: Ints
    e: Floats
    m: Floats
    o: Ints
    second: Floats
    """The least partial result that lacks any block but the first."""
    first: Floats
    """[depth, k]: the least first partial result of block k with blocks that are placed."""
    piped: Floats
    """What pipelines cost at least, per 1/T."""
    largest: Floats
    """The partial results that they can afford."""
    scratch: Scratch
    to_go: Floats
    steps: Floats
    """What a join of so many inputs costs for its steps."""
    made: float
    known: Floats
    at: Ints
    stop: Ints


@making
def walk_room(sets: Sets, prices: Prices, blocks: int, stop: Ints) -> tuple[Inside, Walk]:
    """Room for walks through lists of so many blocks."""
    n = sets.n
    width = n + 1
    inside = Inside(
        block=np.empty(blocks, np.int64),
        less=np.empty(blocks, np.int64),
        lack=np.empty(blocks),
        begin=np.zeros(n * width + 1, np.int64),
        lack_of=np.empty(n),
    )
    wide = sets.mask.size if n > DENSE_INPUTS else 1
    steps = np.array([stepping(prices.weights, joins) for joins in range(n + 2)])
    walk = Walk(
        block=np.empty(n + 1, np.int64),
        left=np.empty(n + 2, np.int64),
        group=np.empty(n + 2, np.int64),
        place=np.empty(n + 2, np.int64),
        e=np.empty(n + 2),
        m=np.empty(n + 2),
        o=np.empty(n + 2, np.int64),
        second=np.empty(n + 2),
        first=np.empty((n + 1, width)),
        piped=np.empty(n + 1),
        largest=np.empty(n + 1),
        scratch=scratch_for(min(n, DENSE_INPUTS)),
        to_go=np.empty(wide),
        steps=steps,
        made=prices.made,
        known=np.zeros(2),
        at=np.zeros(6, np.int64),
        stop=stop,
    )
    return inside, walk


@inlined
def blocks_inside(sets: Sets, lists: Lists, made: float, inside: Inside, whole: int) -> int:
    """List the blocks inside V, with what it costs at least to end with the partial result that lacks them. Returns how many there are."""
    n, width, size, filled = sets.n, sets.n + 1, popcount(whole), 0
    for low in range(n):
        inside.lack_of[low] = np.inf
        for k in range(width):
            g = low * width + k
            inside.begin[g] = filled
            if whole >> low & 1 and k < size:
                for place in range(lists.begin[g], lists.end[g]):
                    if sets.mask[lists.listed[place]] & ~whole == 0:
                        inside.block[filled] = lists.listed[place]
                        filled += 1
    inside.begin[n * width] = filled
    for k in range(filled):
        less = place_of(sets, whole & ~sets.mask[inside.block[k]])
        inside.less[k] = less
        inside.lack[k] = made * sets.partial[less] if less >= 0 else np.inf
        streams = sets.mask[inside.block[k]]
        while streams:
            i = lowest(streams)
            streams &= streams - 1
            inside.lack_of[i] = min(inside.lack_of[i], inside.lack[k])
    return filled


@inlined
def begin_walk(sets: Sets, lists: Lists, share: Floats, inside: Inside, walk: Walk, v: int) -> None:
    """Before the first partition of set v."""
    whole, at = sets.mask[v], walk.at
    at[V], at[WHOLE], at[FILLED], at[CANDIDATE], at[DEPTH] = v, whole, 0, -1, -1
    walk.known[SHARES] = 0.0
    if popcount(whole) > 2:
        at[FILLED] = blocks_inside(sets, lists, walk.made, inside, whole)
        at[STEPS] += at[FILLED]
        while whole:
            walk.known[SHARES] += share[1, lowest(whole)]
            whole &= whole - 1


@inlined
def told_to_stop(walk: Walk) -> bool:
    """Count a step, and look whether to stop now and then."""
    walk.at[STEPS] += 1
    return bool(walk.at[STEPS] & ASKED_EVERY == 0 and walk.stop[0])


@inlined
def go_on_with(sets: Sets, inside: Inside, walk: Walk, depth: int, left: int) -> None:
    """These streams are left at this depth: the block of the lowest of them is next."""
    walk.at[DEPTH] = depth
    walk.left[depth] = left
    walk.group[depth] = lowest(left) * (sets.n + 1) + 1
    walk.place[depth] = inside.begin[walk.group[depth]]


@inlined
def starts(sets: Sets, ahead: Floats, blocks: Blocks, inside: Inside, walk: Walk, stair: Stair) -> bool:
    """Begin with the candidate as the block that every other pipeline visits last; whether any partition may be worth it."""
    candidate = walk.at[CANDIDATE]
    lack, lacking = inside.lack[candidate], inside.block[candidate]
    rest, pace = walk.at[WHOLE] & ~sets.mask[lacking], sets.pace[lacking]
    if lack == np.inf or not rest & (rest - 1):
        return False
    e, m, o = blocks.e[lacking] + pace * max(ahead[lacking, 1], lack), blocks.m[lacking], 1 + blocks.o[lacking]
    if misses(stair, (e + (sets.pace[walk.at[V]] - pace) * lack) * SHAVED, m, o):
        return False
    streams = rest
    while streams:
        i = lowest(streams)
        streams &= streams - 1
        e += max(blocks.share[1, i], sets.pace[i] * lack)
    if misses(stair, e * SHAVED, m, o):
        return False
    walk.known[LACK] = lack
    walk.block[0] = lacking
    walk.first[0, 0], walk.second[0] = np.inf, np.inf
    go_on_with(sets, inside, walk, 1, rest)
    walk.e[1], walk.m[1], walk.o[1] = walk.known[SHARES] + blocks.bound[lacking], m, o
    return True


@inlined
def fits(sets: Sets, prices: Prices, ahead: Floats, blocks: Blocks, inside: Inside, walk: Walk, place: int) -> float:
    """Place the block that is listed there; all that is known of the mjoin by then: how many partial results there are at least, the last of them,
    and of blocks with all their neighbours placed the first. Returns what it costs at least.
    """
    depth, block, lack, lacks = walk.at[DEPTH], inside.block[place], walk.known[LACK], inside.lack[place]
    rest = walk.left[depth] & ~sets.mask[block]
    first = np.inf
    for a in range(depth):
        other = walk.block[a]
        walk.first[depth, a] = walk.first[depth - 1, a]
        if sets.around[other] & sets.mask[block]:
            both = place_of(sets, sets.mask[other] | sets.mask[block])
            cost = walk.made * sets.partial[both]
            first = min(first, cost + scanning(sets, prices, block, other))
            walk.first[depth, a] = min(walk.first[depth, a], cost + scanning(sets, prices, other, block))
    walk.first[depth, depth] = first
    walk.block[depth] = block
    # The block that the others lack at last lacks another one itself, placed or still to come.
    walk.second[depth] = min(walk.second[depth - 1], lacks)
    final, reach = walk.second[depth], max(depth + (1 if rest else 0) - 1, 1)
    e, streams = walk.steps[depth + (2 if rest else 1)], rest
    while streams:
        i = lowest(streams)
        streams &= streams - 1
        final = min(final, max(lack, inside.lack_of[i]))
        e += max(blocks.share[reach, i], (blocks.share[reach - 1, i] if reach > 1 else 0.0) + sets.pace[i] * lack)
    for a in range(depth + 1):
        other = walk.block[a]
        first = ahead[other, 1]
        if sets.around[other] & rest == 0:
            first = max(first, walk.first[depth, a])
        if reach == 1:
            walk.piped[a] = max(first, final)
        else:
            gap = ahead[other, reach] - ahead[other, reach - 1]
            walk.piped[a] = first + ahead[other, reach - 1] - ahead[other, 1] + max(gap, final)
        e += blocks.e[other] + sets.pace[other] * walk.piped[a]
        final = lack
    return float(e * SHAVED)


@inlined
def next_partition(sets: Sets, prices: Prices, ahead: Floats, blocks: Blocks, inside: Inside, walk: Walk, stair: Stair) -> int:
    """How many inputs the next mjoin has that may be worth having, in `walk.block`; NO_MORE where there is none."""
    at, width = walk.at, sets.n + 1
    while True:
        depth = at[DEPTH]
        if depth < 1:
            at[CANDIDATE] += 1
            if at[CANDIDATE] >= at[FILLED]:
                return NO_MORE
            if told_to_stop(walk):
                return TOLD_TO_STOP
            starts(sets, ahead, blocks, inside, walk, stair)
            continue
        left, group, place = walk.left[depth], walk.group[depth], walk.place[depth]
        end = inside.begin[group + 1]
        if place == end:
            if group - lowest(left) * width >= popcount(left):
                at[DEPTH] = depth - 1
            else:
                walk.group[depth], walk.place[depth] = group + 1, end
            continue
        walk.place[depth] = place + 1
        block = inside.block[place]
        if sets.mask[block] & ~left:
            continue
        if told_to_stop(walk):
            return TOLD_TO_STOP
        if misses(stair, (walk.e[depth] + blocks.bound[block]) * SHAVED, walk.m[depth], walk.o[depth]):
            walk.place[depth] = end  # the list is by rising bound: what follows is no better
            continue
        # Each partition once: the block that the others lack at last is the first of those whose lack is least.
        rest, lack, lacks = left & ~sets.mask[block], walk.known[LACK], inside.lack[place]
        if (rest == 0 and depth == 1) or lacks < lack or (lacks == lack and place < at[CANDIDATE]):
            continue
        m, o = walk.m[depth] + blocks.m[block], walk.o[depth] + blocks.o[block]
        if misses(stair, (walk.e[depth] + blocks.bound[block]) * SHAVED, m, o):
            continue
        if misses(stair, fits(sets, prices, ahead, blocks, inside, walk, place), m, o):
            continue
        if rest == 0:
            return int(depth) + 1
        walk.e[depth + 1], walk.m[depth + 1], walk.o[depth + 1] = walk.e[depth] + blocks.bound[block], m, o
        go_on_with(sets, inside, walk, depth + 1, rest)


@inlined
def mjoin_cost(sets: Sets, prices: Prices, blocks: Blocks, walk: Walk, stair: Stair, joins: int) -> float:
    """The excess of the mjoin of the walk's blocks. Nothing above the limit, or above a point that needs no more memory, is asked for: what is left
    of it above what is known of all pipelines is all that any of them can spend more."""
    whole = walk.at[WHOLE]
    if joins > DENSE_INPUTS:
        return rounded(wide_mjoin_excess(sets, prices, walk.block, joins, whole, walk.to_go), prices.grain)
    m = 0.0
    for k in range(joins):
        m += blocks.m[walk.block[k]]
    spare = min(stair.most[MOST_E], bought_by(stair, m)) * ROUNDED - walk.steps[joins]
    for k in range(joins):
        spare -= blocks.e[walk.block[k]] + sets.pace[walk.block[k]] * walk.piped[k]
    for k in range(joins):
        walk.largest[k] = (walk.piped[k] + spare / sets.pace[walk.block[k]]) / walk.made if walk.made > 0.0 else np.inf
    return rounded(mjoin_excess(sets, prices, walk.block, joins, whole, walk.largest, walk.scratch), prices.grain)

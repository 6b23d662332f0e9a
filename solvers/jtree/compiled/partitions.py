"""The partitions of one set into three blocks or more that may make a good mjoin, one after the other, compiled.

Problem: of all ways to split a connected set V into blocks, those whose mjoin may belong to a plan that nothing beats. Method: depth first,
first the block without which V is smallest, then always that of the lowest stream left. Partial partitions are dropped by valid bounds alone:

* what its blocks cost at least: their own least excess, being made and kept, and in each pipeline of an mjoin a first
  partial result, at least the smallest connected set above the block;
* for a stream not placed yet its least share of such costs, whatever its block;
* the last partial result of each pipeline, which lacks one block of V. The block without which V is smallest is placed first, so that
  this is known of all pipelines but its own from the start: where joins grow, few blocks come into question at all.

Dropped is what breaks a limit or cannot beat a point of V's staircase so far. Guarantee: every partition that is not dropped comes once.
Complexity: exponential in the number of streams of V; what the bounds leave decides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.common.tolerances import SHAVED
from solvers.jtree.compiled.bounds import Bounds
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, released
from solvers.jtree.compiled.cost import Prices, scanning
from solvers.jtree.compiled.sets import Sets, find, lowest, popcount
from solvers.jtree.compiled.staircase import Steps, dominated

__all__ = [
    "AT",
    "ENTRIES",
    "FRONT",
    "HERE",
    "POINTS",
    "TOLD_TO_STOP",
    "Inside",
    "Kept",
    "Lists",
    "Partition",
    "Room",
    "add_to_lists",
    "begin_partitions",
    "empty_inside",
    "empty_lists",
    "empty_partition",
    "least_shares",
    "list_inside",
    "next_partition",
    "nothing_kept",
    "sort_lists",
]

TOLD_TO_STOP = -1
DEPTH, LACKING, FILLED, MOVES = 0, 1, 2, 3  # entries of Partition.at
AT, HERE, POINTS, FRONT, ENTRIES = 0, 1, 2, 3, 4  # entries of Room.counts


class Kept(NamedTuple):
    """Of every set whose staircase is done, what plans cost at least that have it as a block, and where its points are."""

    e: Floats
    """Its least excess, with what keeping it adds; and so its bytes and operators."""
    m: Floats
    o: Ints
    bound: Floats
    """How much more than its streams' least shares (`least_shares`)."""
    first: Ints
    points: Ints
    share: Floats
    """[t, i]: the least that stream i costs, whatever its block, in an mjoin whose pipelines have t partial results at least."""


class Lists(NamedTuple):
    """The blocks that plans may keep, by lowest stream and number of streams: list g = lowest · (n + 1) + number is listed[begin[g] : end[g]]."""

    begin: Ints
    end: Ints
    listed: Ints


class Inside(NamedTuple):
    """The blocks inside V, in the order of `Lists`: list g is block[begin[g] : begin[g + 1]]."""

    block: Ints
    less: Ints
    """V without the block, −1 where that is not connected."""
    lack: Floats
    """What making that, the last partial result of a pipeline, costs per 1/T; infinite where it is not connected."""
    begin: Ints
    lack_of: Floats
    """For every stream the least of its blocks'."""


class Partition(NamedTuple):
    """A partial partition of V, level by level; of level 0 is the block that the other pipelines lack at last."""

    at: Ints
    """How many blocks are placed, the place of the first among those inside V, how many are inside V, and how many moves were made."""
    blocks: Ints
    left: Ints
    """The streams not placed yet."""
    group: Ints
    place: Ints
    """The list that the next block comes from, and the place in it."""
    e: Floats
    m: Floats
    o: Ints
    second: Floats
    """The least lack of all blocks but the first: its own pipeline ends so, or later."""
    first: Floats
    """[level · (n + 1) + a]: what the first partial result of block a costs at least, as far as its neighbours are placed."""
    piped: Floats
    """What the pipeline of each block costs at least, per 1/T."""


class Room(NamedTuple):
    """What a search over all sets writes to: of sets that are done, and of the set V at hand."""

    kept: Kept
    lists: Lists
    inside: Inside
    partition: Partition
    here: Steps
    """V's staircase so far."""
    most: Floats
    """What a plan of V may cost: CPU and bytes."""
    frontier: Steps
    """That of all streams, so far."""
    limit: Floats
    """What any plan may cost."""
    counts: Ints
    """V; how many points there are of V's staircase, of all that are done, and of the frontier; how many entries of rows are written."""


@released
def least_shares(sets: Sets, bounds: Bounds, usable: Flags) -> Floats:
    """`Kept.share` of the blocks that are usable."""
    n = sets.n
    masks, paces, ahead, kept_e, inside_least = sets.mask, sets.pace, bounds.ahead, bounds.kept_e, bounds.inside
    share = np.full((n, n), np.inf)
    for s in range(masks.size - 1):
        if not usable[s]:
            continue
        own = kept_e[s] + inside_least[s] if s >= n else 0.0
        inside = masks[s]
        while inside:
            i = lowest(inside)
            inside &= inside - 1
            for t in range(n):
                share[t, i] = min(share[t, i], paces[i] * (own / paces[s] + ahead[s, t])) if paces[s] > 0.0 else 0.0
    return share


@released
def nothing_kept(sets: Sets, bounds: Bounds, usable: Flags) -> Kept:
    """Before the first staircase: streams cost nothing by themselves."""
    total = sets.mask.size
    share = least_shares(sets, bounds, usable)
    bound = np.zeros(total)
    for i in range(sets.n):
        bound[i] = max(0.0, sets.pace[i] * bounds.ahead[i, 1] - share[1, i])
    ints = np.zeros((3, total), np.int64)
    return Kept(np.zeros(total), np.zeros(total), ints[0], bound, ints[1], ints[2], share)


@released
def empty_lists(sets: Sets, usable: Flags) -> Lists:
    """Room for the usable sets; the streams are listed."""
    n, width = sets.n, sets.n + 1
    begin = np.zeros(n * width + 1, np.int64)
    for s in range(sets.mask.size - 1):
        if usable[s]:
            begin[lowest(sets.mask[s]) * width + popcount(sets.mask[s]) + 1] += 1
    for g in range(n * width):
        begin[g + 1] += begin[g]
    lists = Lists(begin, begin.copy(), np.empty(begin[n * width], np.int64))
    for i in range(n):
        add_to_lists(sets, lists, i)
    return lists


@released
def add_to_lists(sets: Sets, lists: Lists, s: int) -> None:
    g = lowest(sets.mask[s]) * (sets.n + 1) + popcount(sets.mask[s])
    lists.listed[lists.end[g]] = s
    lists.end[g] += 1


@released
def sort_lists(lists: Lists, bound: Floats, n: int, size: int) -> None:
    """The lists of sets with so many streams, which are complete, by rising bound."""
    begin, end, listed = lists
    for low in range(n):
        g = low * (n + 1) + size
        if end[g] > begin[g] + 1:
            part = listed[begin[g] : end[g]].copy()
            order = np.argsort(bound[part], kind="mergesort")
            for k in range(part.size):
                listed[begin[g] + k] = part[order[k]]


@released
def empty_inside(n: int, most: int) -> Inside:
    """Room for `most` blocks."""
    return Inside(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.zeros(n * (n + 1) + 1, np.int64), np.empty(n))


@released
def list_inside(sets: Sets, lists: Lists, inside: Inside, made: float, v: int) -> int:
    """The blocks inside V, list by list, with the partial result that lacks them. Returns how many."""
    n, width, whole = sets.n, sets.n + 1, sets.mask[v]
    masks, sizes = sets.mask, sets.size
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    begin, end, listed = lists
    block, less, lack, local_begin, lack_of = inside
    size = popcount(whole)
    filled = 0
    for low in range(n):
        lack_of[low] = np.inf
        for k in range(width):
            g = low * width + k
            local_begin[g] = filled
            if whole >> low & 1 and k < size:
                for place in range(begin[g], end[g]):
                    if masks[listed[place]] & ~whole == 0:
                        block[filled] = listed[place]
                        filled += 1
    local_begin[n * width] = filled
    for k in range(filled):
        rest = find(keys, places, multiplier, shift, whole & ~masks[block[k]])
        less[k] = rest
        lack[k] = made * sizes[rest] if rest >= 0 else np.inf
        left = masks[block[k]]
        while left:
            i = lowest(left)
            left &= left - 1
            lack_of[i] = min(lack_of[i], lack[k])
    return filled


@released
def empty_partition(n: int) -> Partition:
    ints = np.empty((5, n + 2), np.int64)
    floats = np.empty((4, n + 2))
    first = np.empty((n + 1) * (n + 1))
    return Partition(np.zeros(4, np.int64), ints[0], ints[1], ints[2], ints[3], floats[0], floats[1], ints[4], floats[2], first, floats[3])


@released
def begin_partitions(sets: Sets, kept: Kept, partition: Partition, v: int, filled: int) -> None:
    """Before the first partition of V, inside which so many blocks are."""
    shares = 0.0
    left = sets.mask[v]
    while left:
        shares += kept.share[1, lowest(left)]
        left &= left - 1
    partition.e[0] = shares
    partition.at[DEPTH], partition.at[LACKING], partition.at[FILLED] = 0, -1, filled


@released
def first_bound(sets: Sets, bounds: Bounds, kept: Kept, whole: int, lacking: int, lack: float) -> float:
    """What the mjoins of V cost at least whose pipelines, but that of the block `lacking`, end with V without it."""
    e = kept.e[lacking] + sets.pace[lacking] * max(bounds.ahead[lacking, 1], lack)
    left = whole & ~sets.mask[lacking]
    while left:
        i = lowest(left)
        left &= left - 1
        e += max(kept.share[1, i], sets.pace[i] * lack)
    return float(e * SHAVED)


@released
def place_block(sets: Sets, prices: Prices, partition: Partition, depth: int, block: int) -> None:
    """The next block of a partial partition: what its own first partial result and those of the blocks before it cost at least."""
    masks, sizes, around, blocks, first = sets.mask, sets.size, sets.around, partition.blocks, partition.first
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    width = sets.n + 1
    here = depth * width
    least = np.inf
    for a in range(depth):
        first[here + a] = first[here - width + a]
        if around[blocks[a]] & masks[block]:
            both = find(keys, places, multiplier, shift, masks[blocks[a]] | masks[block])
            cost = prices.made * sizes[both]
            least = min(least, cost + scanning(sets, prices, block, blocks[a]))
            first[here + a] = min(first[here + a], cost + scanning(sets, prices, blocks[a], block))
    first[here + depth] = least
    blocks[depth] = block


@released
def partition_bound(sets: Sets, bounds: Bounds, kept: Kept, inside: Inside, partition: Partition, depth: int, rest: int) -> float:
    """What the mjoin costs at least, with so many blocks after the first and the streams `rest` still to be placed.

    Known by now are how many partial results there are at least, the last of them, and of blocks with all their neighbours placed the first.
    Leaves in `piped` what each pipeline costs at least.
    """
    paces, around, ahead = sets.pace, sets.around, bounds.ahead
    least_e, share, lack_of = kept.e, kept.share, inside.lack_of
    blocks, firsts, piped = partition.blocks, partition.first, partition.piped
    here = depth * (sets.n + 1)
    lack = inside.lack[partition.at[LACKING]]
    reach = max(depth + (1 if rest else 0) - 1, 1)
    # The block that the others lack at last lacks another one itself, placed or still to come.
    final = partition.second[depth]
    left = rest
    e = 0.0
    while left:
        i = lowest(left)
        left &= left - 1
        final = min(final, max(lack, lack_of[i]))
        e += max(share[reach, i], (share[reach - 1, i] if reach > 1 else 0.0) + paces[i] * lack)
    for a in range(depth + 1):
        block = blocks[a]
        first = ahead[block, 1]
        if around[block] & rest == 0:
            first = max(first, firsts[here + a])
        if reach == 1:
            piped[a] = max(first, final)
        else:
            gap = ahead[block, reach] - ahead[block, reach - 1]
            piped[a] = first + ahead[block, reach - 1] - ahead[block, 1] + max(gap, final)
        e += least_e[block] + paces[block] * piped[a]
        final = lack
    return e * SHAVED


@released
def next_partition(sets: Sets, prices: Prices, bounds: Bounds, room: Room, stop: Ints) -> int:
    """On to the next partition of V that may be worth its probe orders: its number of blocks, which are in `partition.blocks`; 0 where none is left.

    TOLD_TO_STOP once `stop` says so.
    """
    masks, paces, ahead = sets.mask, sets.pace, bounds.ahead
    kept, inside, partition = room.kept, room.inside, room.partition
    least_e, least_m, least_o, bound = kept.e, kept.m, kept.o, kept.bound
    block_of, lack_of_block, begin = inside.block, inside.lack, inside.begin
    at, left_at, group_at, place_at = partition.at, partition.left, partition.group, partition.place
    e_at, m_at, o_at, second_at = partition.e, partition.m, partition.o, partition.second
    here_e, here_m, here_o, _ = room.here
    count, most_e, most_m = room.counts[HERE], room.most[0], room.most[1]
    v, width = room.counts[AT], sets.n + 1
    whole = masks[v]
    depth, lacking, filled, moves = at[DEPTH], at[LACKING], at[FILLED], at[MOVES]
    lack = lack_of_block[lacking] if lacking >= 0 else 0.0
    found = 0
    while found == 0:
        moves += 1
        if moves & 255 == 0 and stop[0]:
            found = TOLD_TO_STOP
        elif depth < 1:
            # The next block to be lacking at last.
            lacking += 1
            if lacking >= filled:
                break
            lack, block = lack_of_block[lacking], block_of[lacking]
            if lack == np.inf or popcount(masks[block]) > popcount(whole) - 2:
                continue
            m, o = least_m[block], 1 + least_o[block]
            e = (least_e[block] + paces[block] * max(ahead[block, 1], lack) + (paces[v] - paces[block]) * lack) * SHAVED
            if e > most_e or m > most_m or dominated(here_e, here_m, here_o, count, e, m, o):
                continue
            e = first_bound(sets, bounds, kept, whole, block, lack)
            if e > most_e or dominated(here_e, here_m, here_o, count, e, m, o):
                continue
            depth, at[LACKING] = 1, lacking
            partition.blocks[0], partition.first[0], second_at[0] = block, np.inf, np.inf
            left_at[1] = whole & ~masks[block]
            group_at[1] = lowest(left_at[1]) * width + 1
            place_at[1] = begin[group_at[1]]
            e_at[1], m_at[1], o_at[1] = e_at[0] + bound[block], m, o
        else:
            left, group, place = left_at[depth], group_at[depth], place_at[depth]
            if place == begin[group + 1]:
                if group - lowest(left) * width >= popcount(left):
                    depth -= 1
                else:
                    group_at[depth], place_at[depth] = group + 1, begin[group + 1]
                continue
            place_at[depth] = place + 1
            block = block_of[place]
            if masks[block] & ~left:
                continue
            e = (e_at[depth] + bound[block]) * SHAVED
            if e > most_e or dominated(here_e, here_m, here_o, count, e, m_at[depth], o_at[depth]):
                place_at[depth] = begin[group + 1]  # the list is by rising bound: what follows is no better
                continue
            rest = left & ~masks[block]
            # Each partition once: the block lacking at last is the first of those whose lack is least.
            if (rest == 0 and depth == 1) or lack_of_block[place] < lack or (lack_of_block[place] == lack and place < lacking):
                continue
            m, o = m_at[depth] + least_m[block], o_at[depth] + least_o[block]
            if m > most_m or dominated(here_e, here_m, here_o, count, e, m, o):
                continue
            place_block(sets, prices, partition, depth, block)
            second_at[depth] = min(second_at[depth - 1], lack_of_block[place])
            e = partition_bound(sets, bounds, kept, inside, partition, depth, rest)
            if e > most_e or dominated(here_e, here_m, here_o, count, e, m, o):
                continue
            if rest == 0:
                found = depth + 1
                continue
            depth += 1
            e_at[depth], m_at[depth], o_at[depth] = e_at[depth - 1] + bound[block], m, o
            left_at[depth], group_at[depth] = rest, lowest(rest) * width + 1
            place_at[depth] = begin[group_at[depth]]
    at[DEPTH], at[LACKING], at[MOVES] = depth, lacking, moves
    return found

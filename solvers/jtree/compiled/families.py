"""Joins of three or more sets by cost, compiled: all of them within a limit that have one given set as their dearest input.

Problem: of all families of sets with A among them, the others no dearer than A, whose join costs no more than a limit, the cost of each, exactly.
Method: branch and bound over candidates, each in the family or not. What the blocks of a family cost in any larger one is bounded so: each costs what
it does as an input (`kept.as_input`); its pipeline makes unions of blocks of the family, of known sizes, until it leaves by a candidate; that join
counts, at its own size, and what follows counts for nothing. A backward pass over the unions finds the least. The candidate by which the
pipeline that gains most leaves is branched on next: in the family its sizes are known, out of it nobody leaves by it, and the bound rises either
way. Families are priced with the best probe orders, over all unions (`unions.backwards`).

Guarantee: every family within the limit of up to MOST_BLOCKS blocks is priced once; of wider ones `wide` has a lower bound. Complexity: exponential
in the number of blocks that the limit pays for; O(2^m · candidates) for each family of m blocks that is looked at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.cached_families import (
    Looking,
    blocks_beside,
    cached_ways_out,
    least_of_cached_family,
    looking_room,
    new_block,
    relaxed_pipelines,
)
from solvers.jtree.compiled.cached_runs import look_between, look_from_to
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, inlined, making, released
from solvers.jtree.compiled.cost import stepping, weighted
from solvers.jtree.compiled.kept import TAKEN, WORK, Kept, Streams, as_input, between, kept_cost, keys_from, missing, offer, share, smallest_beside
from solvers.jtree.compiled.sets import lowest
from solvers.jtree.compiled.unions import backwards, union_figures

__all__ = [
    "DONE",
    "MOST_BLOCKS",
    "NO_ROOM",
    "STOPPED",
    "Family",
    "add_block",
    "branch",
    "candidates",
    "drop_dear",
    "family_room",
    "joins_with",
    "least_of_family",
    "list_usable",
    "mark_last",
    "most_wanted",
    "pipelines",
    "price",
    "unions_of_family",
    "ways_out",
]

MOST_BLOCKS = 12  # of a family: 4,096 unions
DONE, NO_ROOM, STOPPED = 0, 1, 2  # how it ended
SCANNED, LISTED_AT_ONCE = 64, 2  # unions and candidates that count as one step of work
BRANCHED = 3  # steps that a branching takes at least


class Family(NamedTuple):
    """The family at hand, block by block, the candidates for it, and the branchings that led to it. Branchings are numbered from 1."""

    chosen: Ints
    union: Ints
    """[m]: the union of the first m blocks; `reach` what it leads to; `size`, and `total`, what these blocks cost as inputs."""
    reach: Ints
    size: Floats
    total: Floats
    inside: Floats
    """[m, k]: the smallest join of block k with another of the first m."""
    block_size: Floats
    """Of every block its size and Σ 1/T."""
    block_pace: Floats
    cross: Floats
    """[k, j]: the selectivity between two blocks; `beside` and `hashed`: the blocks that each leads to, and those by an equality."""
    beside: Ints
    hashed: Ints
    rows: Floats
    """[k, c]: the selectivity between block k and candidate c; infinity where no predicate joins them."""
    firsts: Floats
    """[k, c]: what the join of the two counts for as the candidate's first partial result."""
    listed: Ints
    """The candidates."""
    out: Ints
    """Of a candidate the branching that ruled it out; 0: none did."""
    usable: Flags
    last: Flags
    """Whether the join may be within the limit with this candidate and no other."""
    low: Floats
    """What a candidate adds at least."""
    blocks_at: Ints
    """Of a branching: how many blocks the family has, the candidate it is about (−1: none), what was tried: nothing, with it, without it."""
    about: Ints
    tried: Ints
    reaches: Ints
    """By union of blocks, this and what follows: the blocks it leads to, those by an equality, its size, what it costs to go on, and by which."""
    hashes: Ints
    sizes: Floats
    to_go: Floats
    following: Ints
    to_leave: Floats
    """The smallest join of the union with a candidate, and `leaving` which; `best`: by which the best way on from here leaves, −1 where by none."""
    leaving: Ints
    best: Ints
    factor: Floats
    looking: Looking
    """Room for what caches change, where they are allowed."""
    wide: Floats
    """One figure: what joins of more than MOST_BLOCKS blocks cost at least, of those that were met."""


@making
def family_room(most: int, words: int, cached: bool = False) -> Family:
    """Room for families from up to `most` candidates."""
    m, unions = MOST_BLOCKS + 1, 1 << MOST_BLOCKS
    frames = most + MOST_BLOCKS + 2
    looking = looking_room(most if cached else 0, m, unions)
    return Family(
        chosen=np.zeros(m, np.int64),
        union=np.zeros((m + 1, words), np.int64),
        reach=np.zeros((m + 1, words), np.int64),
        size=np.zeros(m + 1),
        total=np.zeros(m + 1),
        inside=np.full((m + 1, m + 1), np.inf),
        block_size=np.zeros(m),
        block_pace=np.zeros(m),
        cross=np.ones((m, m)),
        beside=np.zeros(m, np.int64),
        hashed=np.zeros(m, np.int64),
        rows=np.empty((m, most)),
        firsts=np.empty((m, most)),
        listed=np.empty(most, np.int64),
        out=np.zeros(most, np.int64),
        usable=np.zeros(most, np.bool_),
        last=np.zeros(most, np.bool_),
        low=np.empty(most),
        blocks_at=np.zeros(frames, np.int64),
        about=np.zeros(frames, np.int64),
        tried=np.zeros(frames, np.int64),
        reaches=np.zeros(unions, np.int64),
        hashes=np.zeros(unions, np.int64),
        sizes=np.empty(unions),
        to_go=np.empty(unions),
        following=np.empty(unions, np.int64),
        to_leave=np.empty(unions),
        leaving=np.empty(unions, np.int64),
        best=np.empty(unions, np.int64),
        factor=np.empty(unions),
        looking=looking,
        wide=np.full(1, np.inf),
    )


@inlined
def unions_of_family(family: Family, m: int) -> None:
    """The figures of every union of the first m blocks. Those that are not connected have some too, but no pipeline comes to one."""
    for k in range(m):
        family.sizes[1 << k] = family.block_size[k]
    union_figures(m, family.cross, family.beside, family.hashed, family.sizes, family.reaches, family.hashes)


@released
def candidates(kept: Kept, streams: Streams, family: Family, a: int, limit: float) -> int:
    """List the sets that may be in a family with A within the limit. Returns their number."""
    mask, around, least, own = kept.mask, kept.around, kept.least, kept.own
    made = streams.weights.join + streams.weights.probe
    limit -= stepping(streams.weights, 3)  # of any family
    floor = own[a] + made * kept.pace[a] * smallest_beside(kept, a, limit - own[a])
    many = 0
    for p in range(kept.counts[TAKEN]):
        b = kept.order[p]
        if floor + least[b] > limit:
            break
        kept.counts[WORK] += p & 1
        if floor + own[b] > limit or share(mask, a, mask, b):
            continue
        first = smallest_beside(kept, b, limit - own[a] - own[b])
        if share(around, a, mask, b):
            joined = kept.size[a] * kept.size[b] * between(streams, mask, a, b)
            first = min(first, joined * missing(kept, b, keys_from(streams, mask, b, a)))
        if floor + own[b] + made * kept.pace[b] * first <= limit:
            family.listed[many] = b
            many += 1
    return many


@inlined
def add_block(kept: Kept, streams: Streams, family: Family, m: int, b: int, many: int) -> None:
    """Make set b the family's block number m, and work out its joins with the others and with all candidates; but for the first block only with those
    that are usable, and −1 says of the others that they are so no more."""
    mask, around, equal, size = kept.mask, kept.around, kept.equal, kept.size
    family.chosen[m], family.block_size[m], family.block_pace[m] = b, size[b], kept.pace[b]
    family.beside[m], family.hashed[m] = 0, 0
    grown, nearest = size[b], np.inf
    for k in range(m):
        other = family.chosen[k]
        family.beside[k] &= (1 << m) - 1
        family.hashed[k] &= (1 << m) - 1
        one, two = np.inf, np.inf
        if share(around, other, mask, b):
            look_from_to(streams, mask, family, k, m)
            look_from_to(streams, mask, family, m, k)
            family.cross[k, m] = family.cross[m, k] = between(streams, mask, other, b)
            both = size[other] * size[b] * family.cross[k, m]
            grown *= family.cross[k, m]
            family.beside[k] |= 1 << m
            family.beside[m] |= 1 << k
            if share(equal, other, mask, b):
                family.hashed[k] |= 1 << m
                family.hashed[m] |= 1 << k
            one, two = both * missing(kept, other, family.looking.keys[k, m]), both * missing(kept, b, family.looking.keys[m, k])
        family.inside[m + 1, k] = min(family.inside[m, k], one)
        nearest = min(nearest, two)
    family.inside[m + 1, m] = nearest
    family.size[m + 1] = grown * (family.size[m] if m else 1.0)
    family.total[m + 1] = kept.own[b] + (family.total[m] if m else 0.0)
    for w in range(mask.shape[1]):
        before, reached = (family.union[m, w], family.reach[m, w]) if m else (0, 0)
        family.union[m + 1, w] = before | mask[b, w]
        family.reach[m + 1, w] = (reached | around[b, w]) & ~family.union[m + 1, w]
    row = family.rows[m]
    for c in range(many):
        other = family.listed[c]
        if m and not family.usable[c]:
            row[c] = -1.0
            continue
        row[c], family.firsts[m, c] = np.inf, np.inf
        if share(around, other, mask, b) and not share(mask, other, mask, b):
            row[c] = between(streams, mask, b, other)
            family.firsts[m, c] = size[b] * size[other] * row[c] * look_between(kept, streams, family, m, c)


@inlined
def ways_out(kept: Kept, family: Family, m: int, many: int) -> None:
    """For every union of the first m blocks: the smallest join of it with a usable candidate."""
    full = (1 << m) - 1
    to_leave, leaving, factor, sizes = family.to_leave, family.leaving, family.factor, family.sizes
    to_leave[: full + 1] = np.inf
    for c in range(many):
        if not family.usable[c]:
            continue
        beside = blocks_beside(family, m, c)
        factor[0] = kept.size[family.listed[c]]
        for u in range(1, full + 1):
            k = lowest(u)
            factor[u] = factor[u & (u - 1)] * (family.rows[k, c] if beside >> k & 1 else 1.0)
            if u & beside:
                joined = sizes[u] * factor[u]
                if joined < to_leave[u]:
                    to_leave[u], leaving[u] = joined, c


@inlined
def least_of_family(kept: Kept, family: Family, m: int, made: float) -> float:
    """What the first m blocks cost at least in any larger family, whose other blocks are usable candidates: a pipeline goes on inside the family
    until it leaves by one of them, and what follows then counts for nothing. `best` says by which, −1 where it does not leave early."""
    full = (1 << m) - 1
    reach, sizes, to_go, best = family.reaches, family.sizes, family.to_go, family.best
    for u in range(full, 0, -1):
        least, out = made * family.to_leave[u], family.leaving[u]
        if u == full and m > 1:
            least, out = 0.0, -1  # the join with the candidate may be the output
        left = reach[u] & full & ~u
        while left:
            k = lowest(left)
            left &= left - 1
            if to_go[u | (1 << k)] <= least:
                least, out = to_go[u | (1 << k)], best[u | (1 << k)]
        to_go[u] = least + made * sizes[u] if u & (u - 1) else least
        best[u] = out
    low = family.total[m]
    for k in range(m):
        low += kept.pace[family.chosen[k]] * to_go[1 << k]
    return float(low)


@inlined
def list_usable(kept: Kept, family: Family, m: int, many: int, limit: float, made: float) -> bool:
    """Which candidates may join the first m blocks within the limit, and what each adds at least. Whether there are any."""
    left = limit - family.total[m]
    some = False
    for c in range(many):
        b = family.listed[c]
        family.usable[c] = family.rows[m - 1, c] >= 0.0 and kept.own[b] <= left and family.out[c] == 0 and not share(kept.mask, b, family.union, m)
        if family.usable[c]:
            some = True
            # Its first partial result is its join with a block or with another candidate, which has to be paid for as well.
            first = smallest_beside(kept, b, left - kept.own[b])
            for k in range(m):
                first = min(first, family.firsts[k, c])
            family.low[c] = kept.own[b] + made * kept.pace[b] * first
    return some


@inlined
def most_wanted(kept: Kept, family: Family, m: int, many: int) -> int:
    """The usable candidate to branch on: by which the block with most to gain leaves; else any that is next to the family; −1 where none is."""
    most, wanted = -1.0, -1
    for k in range(m):
        if family.best[1 << k] >= 0:
            gain = kept.pace[family.chosen[k]] * (family.inside[m, k] - family.to_leave[1 << k]) if m > 1 else 0.0
            if gain > most or wanted < 0:
                most, wanted = gain, family.best[1 << k]
    for c in range(many if wanted < 0 else 0):
        if family.usable[c] and share(kept.mask, family.listed[c], family.reach, m):
            return c
    return int(wanted)


@inlined
def mark_last(kept: Kept, streams: Streams, family: Family, m: int, many: int, limit: float) -> bool:
    """Which candidates may be the last block of a join within the limit, so that its output counts as well. Whether any may."""
    pace, some = 0.0, False
    for k in range(m):
        pace += family.block_pace[k]
    for c in range(many):
        family.last[c] = False
        if family.usable[c]:
            b, size, beside, whole = family.listed[c], family.size[m], False, True
            for k in range(m):
                if family.rows[k, c] < np.inf:
                    size, beside = size * family.rows[k, c], True
            for w in range(kept.mask.shape[1]):
                whole &= family.union[m, w] | kept.mask[b, w] == streams.near[-1, w]
            made = 0.0 if whole else weighted(streams.weights.join + streams.base, size * kept.size[b] * (pace + kept.pace[b]))
            family.last[c] = beside and family.total[m] + family.low[c] + made <= limit
            some |= family.last[c]
    return some


@inlined
def drop_dear(family: Family, many: int, least: float, limit: float) -> None:
    """Drop the candidates that no join within the limit has; `least` is what the blocks so far cost at least. One that cannot be the last comes
    with another one."""
    first, second, cheapest = np.inf, np.inf, -1
    for c in range(many):
        if family.usable[c]:
            if family.low[c] < first:
                first, second, cheapest = family.low[c], first, c
            else:
                second = min(second, family.low[c])
    for c in range(many):
        if family.usable[c]:
            another = 0.0 if family.last[c] else second if c == cheapest else first
            family.usable[c] = least + family.low[c] + another <= limit


@inlined
def branch(kept: Kept, streams: Streams, family: Family, depth: int, many: int, limit: float) -> None:
    """Open branching number `depth`: on which candidate, if any larger family than this one may be within the limit."""
    m, made = family.blocks_at[depth], streams.weights.join + streams.weights.probe
    family.tried[depth], family.about[depth] = 0, -1
    steps = stepping(streams.weights, max(3, m + 1))
    limit -= steps
    kept.counts[WORK] += BRANCHED + many * (m + 1) // LISTED_AT_ONCE
    if not list_usable(kept, family, m, many, limit, made):
        return
    unions_of_family(family, m)
    if streams.keys.allowed and m > family.blocks_at[depth - 1]:
        new_block(family, m)
    one_more = mark_last(kept, streams, family, m, many, limit)
    closer = streams.ends.size >= 2 * (streams.first.size - 1)  # in graphs without a cycle, such as chains, it takes longer and rules out little more
    changed, least = True, 0.0
    kept.counts[WORK] += (np.sum(family.usable[:many]) + m << m) // SCANNED
    while changed:
        if streams.keys.allowed:
            cached_ways_out(kept, family, m, many)
            least = least_of_cached_family(kept, family, m, made, limit, one_more, closer)
        else:
            ways_out(kept, family, m, many)
            least = least_of_family(kept, family, m, made)
        drop_dear(family, many, least, limit)
        # What is left costs no more unless a pipeline left by a candidate that was dropped.
        changed = False
        for k in range(m):
            out = family.best[1 << k]
            changed |= least <= limit and out >= 0 and not family.usable[out]
    if m == MOST_BLOCKS:
        for c in range(many):
            if family.usable[c]:
                family.wide[0] = min(family.wide[0], steps + least + family.low[c])
    elif least <= limit:
        family.about[depth] = most_wanted(kept, family, m, many)


@inlined
def pipelines(streams: Streams, family: Family, m: int) -> tuple[float, float]:
    """Of a join of the family's first m blocks, in the best orders: what the first probe of every pipeline costs, and what all of them do."""
    unions_of_family(family, m)
    backwards(m, family.sizes, family.reaches, family.hashes, streams.weights, family.to_go, family.following)
    first, every = 0.0, 0.0
    for k in range(m):
        first += family.block_pace[k] * weighted(streams.weights.probe, family.block_size[k])
        every += family.block_pace[k] * family.to_go[1 << k]
    return first, every


@inlined
def price(kept: Kept, streams: Streams, family: Family, m: int, limit: float) -> bool:
    """Offer the join of the family's m blocks where it is within the limit. False where there is no room."""
    made = streams.weights.join + streams.weights.probe
    steps = stepping(streams.weights, m)
    pace, cost = 0.0, family.total[m] + steps
    for k in range(m):
        pace += family.block_pace[k]
        cost += made * family.block_pace[k] * family.inside[m, k]
    after = kept_cost(streams, family.union[m], family.size[m] * pace)
    if cost + after > limit:
        return True
    cost = after + steps
    for k in range(m):
        keep = streams.weights.indexed if family.hashed[k] else streams.weights.append
        cost += kept.least[family.chosen[k]] + family.block_pace[k] * weighted(keep, family.block_size[k])
    first, probes = pipelines(streams, family, m)
    if streams.keys.allowed:
        # What an input has new is sent to a probe or looked up, which costs as much.
        probes = first + relaxed_pipelines(kept, streams, family, m, probes - first, limit - cost - first)
    cost += probes
    return cost > limit or offer(kept, family.chosen, m, family.union[m], family.size[m], cost)


@released
def joins_with(kept: Kept, streams: Streams, family: Family, a: int, limit: float, stop: Ints) -> int:
    """Offer all joins within the limit of A with two or more sets that were taken before it. `stop`: whether to stop, how much work is allowed."""
    kept.own[a] = as_input(kept, streams, a)
    many = candidates(kept, streams, family, a, limit) if kept.own[a] <= limit else 0
    if many < 2:
        return DONE
    add_block(kept, streams, family, 0, a, many)
    depth, status = 1, DONE
    family.blocks_at[1] = 1
    branch(kept, streams, family, 1, many, limit)
    while depth:
        m, c = family.blocks_at[depth], family.about[depth]
        family.tried[depth] += 1
        if c < 0 or family.tried[depth] > 2:
            if c >= 0:
                family.out[c] = 0
            depth -= 1
            continue
        if stop[0] or kept.counts[WORK] > stop[1]:
            status = STOPPED
            break
        if family.tried[depth] == 1:
            add_block(kept, streams, family, m, family.listed[c], many)
            m += 1
            if m >= 3 and not price(kept, streams, family, m, limit):
                status = NO_ROOM
                break
        else:
            family.out[c] = depth
        depth += 1
        family.blocks_at[depth] = m
        branch(kept, streams, family, depth, many, limit)
    family.out[:many] = 0
    return status

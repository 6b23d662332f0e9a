"""What one pipeline of a join of three or more sets costs at least where caches are allowed, compiled.

Problem: pipeline k of a join comes from its block to all blocks, by probes and by lookups of caches; of the caches only the fewest new keys of
a lookup are known, not their upkeep. Where the blocks so far are part of a larger join, the others are unknown as well. What does it cost at least?
Method: a shortest path. The sets at which a run begins or ends are made for every arrival, whether lookups hit or not: each costs its size at the
pace of k. Sets strictly inside a run are made for lookups that miss alone: by what was visited when the run began, U, at least newkeys(U) / size(U)
of pace(k), and newkeys grows with the blocks that the run has met: a key has a part for every predicate between U and them (`keys_together`).
So there is one pass over the sets that contain U for every U at which a run may begin, smaller ones first. Few need one: most sets are so large that
to make them for every arrival costs more than another way does.

A part of a larger join may be left from any set on, inside a run or between two, by one of the candidates; that join counts, and what follows counts
for nothing. Where all blocks so far were visited and one more may be all there is, that join may be the output and counts for nothing either.

Guarantee: never above what the pipeline costs with any caches and any order. Complexity: O(3^m · m) for m blocks, O(2^m · m) where all sets are
large. Reference: the figures of paper 1, as `solvers.caches.figures` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, inlined
from solvers.jtree.compiled.kept import WORK, Kept, Streams, key_parts, keys_from, missing
from solvers.jtree.compiled.sets import lowest

if TYPE_CHECKING:
    from solvers.jtree.compiled.families import Family

__all__ = [
    "COMPLETE",
    "MORE",
    "ONE_MORE",
    "keys_together",
    "least_of_pipeline",
    "look_between",
    "look_from_to",
    "new_keys_with",
    "paced_pipeline",
    "paced_sizes",
    "run_from",
]

COMPLETE, ONE_MORE, MORE = 0, 1, 2  # how many blocks a join has beyond those that are known: none, at least one, at least two
PASSED_AT_ONCE = 16  # unions of a pass that count as one step of work


@inlined
def look_between(kept: Kept, streams: Streams, family: Family, m: int, c: int) -> float:
    """Note the new keys of lookups by what block m has, of runs with a candidate in them. Returns the share of lookups the other way that miss."""
    if not streams.keys.allowed:
        return 1.0
    block, other = family.chosen[m], family.listed[c]
    family.looking.out[m, c] = keys_from(streams, kept.mask, block, other)
    return missing(kept, other, keys_from(streams, kept.mask, other, block))


@inlined
def look_from_to(streams: Streams, mask: Ints, family: Family, k: int, b: int) -> None:
    """Note the keys of lookups by what block k has, of runs with block b in them."""
    looking, keys = family.looking, streams.keys
    if keys.allowed:
        one = family.chosen[k]
        most, values, fastest = key_parts(streams, mask, one, family.chosen[b])
        looking.keys[k, b], looking.values[k, b], looking.fastest[k, b] = max(most, keys.scarce * values * fastest), values, fastest
        looking.holds[k] = max(1.0, streams.tuples[one]) if one < streams.tuples.size else 0.0
        looking.scarce[0] = keys.scarce


@inlined
def new_keys_with(family: Family, m: int, start: int, pace: float, made: float) -> None:
    """What a tuple of a partial result costs at least, of a run that begins at `start` and has met a block, block by block: by its new keys, at most
    `pace`, what it costs where every lookup misses."""
    looking = family.looking
    for b in range(m):
        keys, inside = looking.rarest[start], start & family.beside[b]
        while inside:
            keys = max(keys, looking.keys[lowest(inside), b])
            inside &= inside - 1
        looking.new[b] = min(pace, made * (keys / family.sizes[start]))


@inlined
def keys_together(family: Family, start: int, met: int) -> float:
    """At least so many new keys a second has a lookup by what a union has, of a run that has met these blocks: by all parts of the key together."""
    looking, product, fastest = family.looking, family.looking.scarce[0], 0.0
    while start:
        i = lowest(start)
        start &= start - 1
        values, inside, holds = 1.0, met & family.beside[i], looking.holds[i]
        while inside:
            b = lowest(inside)
            inside &= inside - 1
            # The parts of one stream have values together; of a larger block those of one run are enough.
            values = values * looking.values[i, b] if holds > 0.0 else max(values, looking.values[i, b])
            fastest = max(fastest, looking.fastest[i, b])
        product *= min(values, holds) if holds > 0.0 else values
    return float(product * fastest)


@inlined
def run_from(kept: Kept, family: Family, m: int, k: int, start: int, blocks: int, least: float) -> tuple[float, int]:
    """All runs of pipeline k that begin at a union, and single steps: where one ends it costs no more than this in `to_go`. Returns the least that
    the pipeline costs by one of them where that is below `least`, and the candidate by which it leaves then, −1 where by none; else −2."""
    full, sizes, looking, reaches = (1 << m) - 1, family.sizes, family.looking, family.reaches
    pace, made = looking.made[0] * kept.pace[family.chosen[k]], looking.made[0]
    to_go, before, here, out = family.to_go, family.factor, family.to_go[start], -2
    if blocks != COMPLETE:
        if here + pace * family.to_leave[start] < least:
            least, out = here + pace * family.to_leave[start], family.leaving[start]
        if here + made * looking.to_leave[start] < least:
            least, out = here + made * looking.to_leave[start], looking.leaving[start]
    new_keys_with(family, m, start, pace, made)
    before[start : full + 1] = np.inf
    u, on = start, here
    while True:
        # What follows a union counts from it on: the blocks that it leads to.
        left = reaches[u] & full & ~u if on < least else 0
        while left:
            union = u | (left & -left)
            left &= left - 1
            before[union] = min(before[union], on)
        u += 1
        while u <= full and before[u] >= least:
            u += 1
        if u > full:
            break
        if u == full and blocks == COMPLETE:
            least, out = before[u], -1
            break
        paced, left = 0.0, u & ~start
        while left:
            paced = max(paced, looking.new[lowest(left)])
            left &= left - 1
        if paced < pace:
            paced = max(paced, min(pace, made * (keys_together(family, start, u & ~start) / sizes[start])))
        on = before[u] + paced * sizes[u]
        if u == full and blocks == ONE_MORE:
            if on < least:
                least, out = on, -1
            break
        if blocks != COMPLETE and on + paced * family.to_leave[u] < least:
            least, out = on + paced * family.to_leave[u], family.leaving[u]
        to_go[u] = min(to_go[u], before[u] + pace * sizes[u])
    return float(least), int(out)


@inlined
def least_of_pipeline(kept: Kept, family: Family, m: int, k: int, made: float, blocks: int, most: float) -> float:
    """What partial results of pipeline k cost at least, infinity where that is no less than `most`. Where there are more `blocks` than the first m,
    `best` of its block says by which candidate it leaves, −1 where it comes to all blocks and may be done after the next."""
    to_go, least, runs = family.to_go, most, 0
    family.looking.made[0] = made
    family.best[1 << k] = -1
    to_go[1 << k : 1 << m] = np.inf
    to_go[1 << k] = 0.0
    for start in range(1 << k, 1 << m):
        if to_go[start] < least:
            runs += 1
            found, out = run_from(kept, family, m, k, start, blocks, least)
            if out != -2:
                least, family.best[1 << k] = found, out
    kept.counts[WORK] += (runs << m) // PASSED_AT_ONCE
    return float(least) if least < most else np.inf


@inlined
def paced_sizes(kept: Kept, family: Family, m: int, k: int, paced: Floats) -> None:
    """For every union that pipeline k may come to, at what pace it counts at least as a partial result; −1 where it does not come there."""
    full, looking = (1 << m) - 1, family.looking
    paced[: full + 1] = -1.0
    paced[1 << k] = kept.pace[family.chosen[k]]
    for u in range(1 << k, full):
        if paced[u] < 0.0:
            continue
        left = family.reaches[u] & full & ~u
        while left:
            b = lowest(left)
            left &= left - 1
            union, new, inside = u | 1 << b, 0.0, u & family.beside[b]
            while inside:
                new = max(new, looking.keys[lowest(inside), b])
                inside &= inside - 1
            on = min(paced[u], max(looking.rarest[u], new) / family.sizes[u])
            paced[union] = on if paced[union] < 0.0 else min(paced[union], on)


@inlined
def paced_pipeline(kept: Kept, family: Family, m: int, k: int, made: float) -> float:
    """As `least_of_pipeline` where blocks are to follow, in one pass: every partial result counts at the least pace of any way to it,
    where runs end as well. Seldom as much, but in a fraction of its time."""
    full, looking = (1 << m) - 1, family.looking
    reach, to_go, paced = family.reaches, family.to_go, family.factor
    paced_sizes(kept, family, m, k, paced)
    for u in range(full, 0, -1):
        if paced[u] < 0.0:
            continue
        least = 0.0 if u == full and m > 1 else made * min(paced[u] * family.to_leave[u], looking.to_leave[u])
        left = reach[u] & full & ~u
        while left:
            least = min(least, to_go[u | (left & -left)])
            left &= left - 1
        to_go[u] = least + made * paced[u] * family.sizes[u] if u & (u - 1) else least
    return float(to_go[1 << k])

"""What one pipeline of a join of three or more sets costs at least where caches are allowed, compiled.

Problem: pipeline k of a join comes from its block to all blocks, by probes and by lookups of caches; of the caches only the fewest new keys of
a lookup are known, not their upkeep. Where the blocks so far are part of a larger join, the others are unknown as well. What does it cost at least?
Method: a shortest path. The sets at which a run begins or ends are made for every arrival, whether lookups hit or not: each costs its size at the
pace of k. Sets strictly inside a run are made for lookups that miss alone: by what was visited when the run began, U, at least newkeys(U) / size(U)
of pace(k), and newkeys grows with the blocks that the run has met. So there is one pass over the sets that contain U for every U at which a run may
begin, backwards from all blocks. Few need one: most sets are so large that making them for every arrival costs more than the whole join may.

A part of a larger join may be left from any set on, inside a run or between two, by one of the candidates; that join counts, and what follows counts
for nothing, nor does the last one where all blocks so far were visited, as it may be the output, unless one more block is known not to be all there is.

Guarantee: never above what the pipeline costs with any caches and any order. Complexity: O(3^m · m) for m blocks, O(2^m · m) where all sets are
large. Reference: the figures of paper 1, as `solvers.caches.figures` has them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from solvers.jtree.compiled.compiling import compiled
from solvers.jtree.compiled.kept import WORK, Kept
from solvers.jtree.compiled.sets import lowest

if TYPE_CHECKING:
    from solvers.jtree.compiled.families import Family

__all__ = ["COMPLETE", "MORE", "ONE_MORE", "begins", "least_of_pipeline", "new_keys_with", "way_from"]

COMPLETE, ONE_MORE, MORE = 0, 1, 2  # how many blocks a join has beyond those that are known: none, at least one, at least two
PASSED_AT_ONCE = 64  # sets too large to look at that count as one step of work


@compiled
def begins(kept: Kept, family: Family, m: int, k: int, made: float, blocks: int, most: float) -> bool:
    """At which unions of the first m blocks a run of pipeline k may begin or end, −1 in `to_go`: its block, and those that cost less than `most`, all
    blocks among them only where more than one follows. Whether there are any beside its block."""
    full, to_go, some = (1 << m) - 1, family.to_go, False
    pace = made * kept.pace[family.chosen[k]]
    to_go[1 << k] = -1.0
    for u in range((1 << k) + 1, full + (blocks == MORE)):
        if u >> k & 1 and pace * family.sizes[u] < most:
            to_go[u], some = -1.0, True
    return some


@compiled
def new_keys_with(family: Family, m: int, start: int) -> None:
    """At least so many new keys a second has a lookup by what `start` has, of a run with a block in it, block by block."""
    looking = family.looking
    for b in range(m):
        keys, inside = looking.rarest[start], start & family.beside[b]
        while inside:
            keys = max(keys, looking.keys[lowest(inside), b])
            inside &= inside - 1
        looking.new[b] = keys


@compiled
def way_from(kept: Kept, family: Family, m: int, k: int, start: int, made: float, blocks: int) -> tuple[float, int]:
    """What pipeline k costs at least from a union on at which a run may begin, and the candidate by which it leaves, −1 where by none. Known are
    the same of all larger unions at which one may."""
    full, sizes, looking, reaches = (1 << m) - 1, family.sizes, family.looking, family.reaches
    pace, to_go, before = made * kept.pace[family.chosen[k]], family.to_go, family.factor
    least, out = np.inf, -1
    if blocks != COMPLETE:
        least, out = pace * family.to_leave[start], family.leaving[start]
        if made * looking.to_leave[start] < least:
            least, out = made * looking.to_leave[start], looking.leaving[start]
    new_keys_with(family, m, start)
    before[start : full + 1] = np.inf
    u, on, met = start, 0.0, 0
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
        met += 1
        if u == full and blocks == COMPLETE:
            least, out = before[u], -1
            break
        new_keys, left = 0.0, u & ~start
        while left:
            new_keys = max(new_keys, looking.new[lowest(left)])
            left &= left - 1
        paced = min(pace, made * (new_keys / sizes[start]))
        on = before[u] + paced * sizes[u]
        if u == full and blocks == ONE_MORE:
            if on < least:
                least, out = on, -1
            break
        if blocks != COMPLETE and on + paced * family.to_leave[u] < least:
            least, out = on + paced * family.to_leave[u], family.leaving[u]
        if to_go[u] >= 0.0 and before[u] + pace * sizes[u] + to_go[u] < least:
            least, out = before[u] + pace * sizes[u] + to_go[u], family.best[u]
    kept.counts[WORK] += met + (full - start) // PASSED_AT_ONCE
    return float(least), int(out)


@compiled
def least_of_pipeline(kept: Kept, family: Family, m: int, k: int, made: float, blocks: int) -> float:
    """What partial results of pipeline k cost at least. Where there are more `blocks` than the first m, `best` of its block says by which
    candidate it leaves, −1 where it comes to all blocks and may be done after the next."""
    to_go, own = family.to_go, 1 << k
    to_go[: 1 << m] = -2.0
    least, family.best[own] = way_from(kept, family, m, k, own, made, blocks)
    if not begins(kept, family, m, k, made, blocks, least):
        return least
    for start in range((1 << m) - 1, 0, -1):
        if to_go[start] == -1.0:
            to_go[start], family.best[start] = way_from(kept, family, m, k, start, made, blocks)
    return float(to_go[own])

"""The join tree of least CPU by growing kept sets in the order of what they cost, compiled.

Problem: without a cap on memory there is one number to minimise: the plan that has least of it, or how little any plan can have. Method: Dijkstra's,
over sets. What a set S costs, f(S), is the least excess of all plans of S, and of keeping it. No input of a join costs more than the join, so sets
are final in the order of f. When A is final, all its joins with sets that were final before are looked at: with one of them here, with
more in `families`. A plan's cost is f of all streams; whatever costs more than a limit, the cost of a plan that is known, is dropped. Sets of low
cost are few even where connected sets are billions: in random graphs of 24 to 60 streams some hundreds up to some ten thousand.

Guarantee: every plan costs at least the f of the set that is next, because a plan that costs less is made of final sets, by joins that were all
looked at; or at least what `families` says of its widest joins; or more than the limit. Where all streams are final, the plan is the best.
Complexity: O(final sets²) and that of `families`; every step is counted, and the search ends at a count. Reference: Knuth, A generalization of
Dijkstra's algorithm, Information Processing Letters 6(1), 1977.
"""

from __future__ import annotations

from solvers.jtree.compiled.compiling import Ints, released
from solvers.jtree.compiled.cost import pair_excess
from solvers.jtree.compiled.families import DONE, NO_ROOM, STOPPED, Family, joins_with
from solvers.jtree.compiled.kept import (
    HEAPED,
    TAKEN,
    WORK,
    Kept,
    Streams,
    between,
    is_all,
    kept_cost,
    keys_from,
    look_at_keys,
    missing,
    note,
    offer,
    pop,
    share,
    start,
)

__all__ = ["cheapest_first", "pairs_with"]


@released
def pairs_with(kept: Kept, streams: Streams, a: int, limit: float) -> bool:
    """Offer all joins within the limit of A with one set that was taken before it, and note their sizes. False where there is no room."""
    mask, around, equal, size, paces, least = kept.mask, kept.around, kept.equal, kept.size, kept.pace, kept.least
    words, weights, whole, blocks = mask.shape[1], streams.weights, kept.whole, kept.pair
    blocks[0] = a
    for p in range(kept.counts[TAKEN]):
        b = kept.order[p]
        if least[a] + least[b] > limit:
            break
        kept.counts[WORK] += p & 1
        if share(mask, a, mask, b) or not share(around, a, mask, b):
            continue
        kept.counts[WORK] += 4
        joined = size[a] * size[b] * between(streams, mask, a, b)
        from_a, from_b = missing(kept, a, keys_from(streams, mask, a, b)), missing(kept, b, keys_from(streams, mask, b, a))
        if not (note(kept, a, least[b], joined * from_a) and note(kept, b, least[a], joined * from_b)):
            return False
        for w in range(words):
            whole[w] = mask[a, w] | mask[b, w]
        cost = least[a] + least[b] + kept_cost(streams, whole, joined * (paces[a] + paces[b]))
        if cost > limit:
            continue
        cost += pair_excess(size[a], paces[a], size[b], paces[b], share(equal, a, mask, b), weights)
        blocks[1] = b
        if cost <= limit and not offer(kept, blocks, 2, whole, joined, cost):
            return False
    return True


@released
def cheapest_first(kept: Kept, streams: Streams, family: Family, limit: float, stop: Ints) -> tuple[int, float]:
    """How it ended (DONE, NO_ROOM or STOPPED), and what every plan costs at least; the last set that is taken are all streams where a plan was found.

    `stop`: whether to stop, and how much work is allowed.
    """
    counts = kept.counts
    start(kept, streams)
    while counts[HEAPED]:
        a, value = kept.heap[0], kept.heap_cost[0]
        pop(kept.heap, kept.heap_cost, counts[HEAPED])
        counts[HEAPED] -= 1
        if kept.taken[a]:
            continue
        kept.taken[a] = True
        kept.order[counts[TAKEN]] = a
        look_at_keys(kept, streams, a)
        status = DONE
        if is_all(streams, kept.mask[a]):
            counts[TAKEN] += 1
            return DONE, min(value, family.wide[0])
        if stop[0] or counts[WORK] > stop[1]:
            status = STOPPED
        elif not pairs_with(kept, streams, a, limit):
            status = NO_ROOM
        else:
            status = joins_with(kept, streams, family, a, limit, stop)
        if status != DONE:
            return status, min(value, family.wide[0])
        counts[TAKEN] += 1
    return DONE, min(limit, family.wide[0])

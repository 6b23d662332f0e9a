"""The sets that plans may keep, met by rising cost, compiled: the table of the cheapest-first search.

Problem: a graph of dozens of streams has billions of connected sets, and a search by cost meets a few thousand of them. Method: sets are rows of
machine words, found by hash, each with its figures, the least cost of making and keeping it, and the blocks it is made of; a heap has those that are
not final yet. For every set the sizes of its joins with others are noted as a staircase by the other's cost (`smallest_beside`): what the first
partial result of a pipeline from it is at least. Complexity: O(words + predicates of its streams) a set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Flags, Floats, Ints, compiled, inlined, making, released
from solvers.jtree.compiled.cost import Weights, weighted
from solvers.jtree.compiled.key_classes import KeyClasses, rarest_key
from solvers.jtree.compiled.sets import MAX_BITS, SPREADING, lowest

__all__ = [
    "COUNT",
    "HEAPED",
    "TAKEN",
    "WORD",
    "WORK",
    "Kept",
    "Streams",
    "as_input",
    "between",
    "is_all",
    "keeping",
    "kept_cost",
    "key_parts",
    "keys_from",
    "look_at_keys",
    "missing",
    "note",
    "offer",
    "place_of_set",
    "pop",
    "push",
    "room_of",
    "share",
    "smallest_beside",
    "start",
]

WORD = MAX_BITS  # streams of a machine word
COUNT, TAKEN, STEPS, LISTED, HEAPED, WORK = 0, 1, 2, 3, 4, 5  # places of `Kept.counts`


class Streams(NamedTuple):
    """The graph: of every stream its neighbours, those by an equality, w and 1/T; its predicates, two streams' put together."""

    near: Ints
    """[n + 1, words]; the last row are all streams."""
    equal_near: Ints
    first: Ints
    """Stream i's partners are ends[first[i] : first[i + 1]], each with the product of the selectivities."""
    ends: Ints
    selectivity: Floats
    tuples: Floats
    pace: Floats
    weights: Weights
    """As `Ledger` has them: of what is above the base."""
    base: float
    """The least of keeping a tuple."""
    keys: KeyClasses
    """What caches are looked up by, where they are allowed."""


class Kept(NamedTuple):
    """Sets in the order in which they were met; the streams are the first."""

    mask: Ints
    around: Ints
    equal: Ints
    """Streams that share an equality with the set, inside or outside of it."""
    size: Floats
    pace: Floats
    least: Floats
    """The least excess of making it and keeping it, so far; final once it is taken."""
    own: Floats
    """`as_input` of a set that is taken."""
    rarest: Floats
    """Of a set that is taken: the fewest new keys a second of a cache that is looked up by it; infinity where there are no caches."""
    taken: Flags
    order: Ints
    """The sets that are taken, by rising cost."""
    made_of: Ints
    """Where its blocks stand in `lists`: their number, then each; −1 for a stream."""
    lists: Ints
    stair: Ints
    """The last step of the set's staircase: sizes of joins with others, falling, by the other's cost."""
    step_cost: Floats
    step_size: Floats
    step_before: Ints
    heap: Ints
    heap_cost: Floats
    slots: Ints
    counts: Ints
    whole: Ints
    pair: Ints
    """Room for the streams of a join of two, and for its blocks."""


@making
def room_of(most: int, words: int) -> Kept:
    """Room for this many sets. Pages that are never written cost nothing."""
    slots = 1
    while slots < 2 * most:
        slots *= 2
    return Kept(
        mask=np.zeros((most, words), np.int64),
        around=np.zeros((most, words), np.int64),
        equal=np.zeros((most, words), np.int64),
        size=np.empty(most),
        pace=np.empty(most),
        least=np.empty(most),
        own=np.empty(most),
        rarest=np.full(most, np.inf),
        taken=np.zeros(most, np.bool_),
        order=np.empty(most, np.int64),
        made_of=np.full(most, -1, np.int64),
        lists=np.empty(8 * most, np.int64),
        stair=np.full(most, -1, np.int64),
        step_cost=np.empty(8 * most),
        step_size=np.empty(8 * most),
        step_before=np.empty(8 * most, np.int64),
        heap=np.empty(4 * most, np.int64),
        heap_cost=np.empty(4 * most),
        slots=np.full(slots, -1, np.int64),
        counts=np.zeros(8, np.int64),
        whole=np.empty(words, np.int64),
        pair=np.empty(2, np.int64),
    )


@compiled
def push(heap: Ints, cost: Floats, many: int, item: int, value: float) -> None:
    """Add to a heap of `many`; of equals the set that was met first comes first."""
    k = many
    while k:
        up = (k - 1) >> 1
        if cost[up] < value or (cost[up] == value and heap[up] <= item):
            break
        heap[k], cost[k] = heap[up], cost[up]
        k = up
    heap[k], cost[k] = item, value


@compiled
def pop(heap: Ints, cost: Floats, many: int) -> None:
    """Remove the first of `many`."""
    last = many - 1
    item, value = heap[last], cost[last]
    k = 0
    while 2 * k + 1 < last:
        down = 2 * k + 1
        if down + 1 < last and (cost[down + 1] < cost[down] or (cost[down + 1] == cost[down] and heap[down + 1] < heap[down])):
            down += 1
        if value < cost[down] or (value == cost[down] and item <= heap[down]):
            break
        heap[k], cost[k] = heap[down], cost[down]
        k = down
    heap[k], cost[k] = item, value


@inlined
def share(one: Ints, a: int, other: Ints, b: int) -> bool:
    """Whether row a of one array of sets and row b of another have a stream in common."""
    common = 0
    for w in range(one.shape[1]):
        common |= one[a, w] & other[b, w]
    return common != 0


@inlined
def between(streams: Streams, mask: Ints, a: int, b: int) -> float:
    """The product of the selectivities between two sets."""
    first, ends, selectivity = streams.first, streams.ends, streams.selectivity
    product = 1.0
    for w in range(mask.shape[1]):
        left = mask[b, w]
        while left:
            i = w * WORD + lowest(left)
            left &= left - 1
            for e in range(first[i], first[i + 1]):
                j = ends[e]
                if mask[a, j // WORD] >> (j % WORD) & 1:
                    product *= selectivity[e]
    return product


@inlined
def key_parts(streams: Streams, mask: Ints, a: int, b: int) -> tuple[float, float, float]:
    """Of lookups by what A has, of a run with B in it: at least so many new values a second has a part of the key; how many values the parts have
    together, stream by stream of A no more than its window holds; and the 1/T of the fastest of these streams."""
    keys = streams.keys
    most, product, fastest = 0.0, 1.0, 0.0
    for w in range(mask.shape[1]):
        left = mask[a, w]
        while left:
            i = w * WORD + lowest(left)
            left &= left - 1
            own = 0.0
            for e in range(keys.first_predicate[i], keys.first_predicate[i + 1]):
                j = keys.ends[e]
                if mask[b, j // WORD] >> (j % WORD) & 1:
                    most = max(most, keys.new_here[e])
                    if keys.values[e] > 0.0:
                        own = max(own, 1.0) * keys.values[e]
            if own > 0.0:
                product *= min(max(1.0, streams.tuples[i]), own)
                fastest = max(fastest, streams.pace[i])
    return most, product, fastest


@inlined
def keys_from(streams: Streams, mask: Ints, a: int, b: int) -> float:
    """At least so many new keys a second has a lookup by what A has, of a run with B in it; infinity where there is none."""
    if not streams.keys.allowed:
        return np.inf
    most, product, fastest = key_parts(streams, mask, a, b)
    return float(max(most, streams.keys.scarce * product * fastest))


@compiled
def is_all(streams: Streams, whole: Ints) -> bool:
    """Whether these are all streams."""
    same = True
    for w in range(whole.size):
        same &= whole[w] == streams.near[-1, w]
    return same


@compiled
def kept_cost(streams: Streams, whole: Ints, rate: float) -> float:
    """What the output of a join adds: being made and the least of being kept; nothing at the root, where every plan pays it."""
    return 0.0 if is_all(streams, whole) else weighted(streams.weights.join + streams.base, rate)


@compiled
def place_of_set(kept: Kept, whole: Ints) -> int:
    """Where a set stands; −1 − its slot where it was not met yet."""
    slots, mask = kept.slots, kept.mask
    last = slots.size - 1
    mixed = 0
    for w in range(whole.size):
        mixed = (mixed ^ whole[w]) * SPREADING
        mixed ^= (mixed >> 29) & 0xFFFFFFFF
    slot = mixed & last
    while slots[slot] >= 0:
        same = True
        for w in range(whole.size):
            same &= mask[slots[slot], w] == whole[w]
        if same:
            return int(slots[slot])
        slot = (slot + 1) & last
    return int(-1 - slot)


@compiled
def offer(kept: Kept, blocks: Ints, m: int, whole: Ints, size: float, cost: float) -> bool:
    """A way to make a set from the first `m` of these blocks and to keep it, at this cost; `size` is its size. False where there is no room."""
    counts = kept.counts
    s = place_of_set(kept, whole)
    if s >= 0 and (kept.taken[s] or cost >= kept.least[s]):
        return True
    if counts[HEAPED] == kept.heap.size or counts[LISTED] + m + 1 > kept.lists.size or counts[COUNT] == kept.size.size:
        return False
    if s < 0:
        slot = -1 - s
        s = counts[COUNT]
        counts[COUNT] += 1
        kept.slots[slot] = s
        for w in range(whole.size):
            around, equal = 0, 0
            for k in range(m):
                around |= kept.around[blocks[k], w]
                equal |= kept.equal[blocks[k], w]
            kept.mask[s, w], kept.around[s, w], kept.equal[s, w] = whole[w], around & ~whole[w], equal
        pace = 0.0
        for k in range(m):
            pace += kept.pace[blocks[k]]
        kept.size[s], kept.pace[s] = size, pace
    kept.least[s], kept.made_of[s] = cost, counts[LISTED]
    kept.lists[counts[LISTED]] = m
    for k in range(m):
        kept.lists[counts[LISTED] + 1 + k] = blocks[k]
    counts[LISTED] += m + 1
    push(kept.heap, kept.heap_cost, counts[HEAPED], s, cost)
    counts[HEAPED] += 1
    return True


@compiled
def keeping(kept: Kept, streams: Streams, s: int) -> float:
    """What keeping a tuple of a set costs at least beyond the base, as an input of a join of three or more: that has an index where an equality
    leads to it, so surely where no other predicate does."""
    always = True
    for w in range(kept.mask.shape[1]):
        always &= kept.around[s, w] & ~kept.equal[s, w] == 0
    weights = streams.weights
    return float(weights.indexed if always else min(weights.indexed, weights.append))


@compiled
def as_input(kept: Kept, streams: Streams, s: int) -> float:
    """What a set costs at least as an input of a join of three or more: with all below it, kept, sent to its first probe."""
    rate = kept.size[s] * kept.pace[s]
    return float(kept.least[s] + weighted(keeping(kept, streams, s) + streams.weights.probe, rate))


@compiled
def look_at_keys(kept: Kept, streams: Streams, s: int) -> None:
    """Work out by how rare a key a set may look caches up, where there are any."""
    if streams.keys.allowed:
        kept.rarest[s] = rarest_key(streams.keys, kept.mask[s])


@inlined
def missing(kept: Kept, s: int, new_keys: float) -> float:
    """The share of a set's lookups that miss at least, where so many of their keys are new a second."""
    lookups, new = kept.size[s] * kept.pace[s], max(new_keys, kept.rarest[s])
    return float(new / lookups) if new < lookups else 1.0


@compiled
def note(kept: Kept, s: int, cost: float, size: float) -> bool:
    """Note the size of a set's join with one of this cost; costs come by rising value. False where there is no room."""
    before = kept.stair[s]
    if before >= 0 and kept.step_size[before] <= size:
        return True
    step = kept.counts[STEPS]
    if step == kept.step_cost.size:
        return False
    kept.counts[STEPS] += 1
    kept.step_cost[step], kept.step_size[step], kept.step_before[step] = cost, size, before
    kept.stair[s] = step
    return True


@inlined
def smallest_beside(kept: Kept, s: int, most: float) -> float:
    """The smallest join of a set with one that is taken and costs no more than this."""
    step = kept.stair[s]
    while step >= 0 and kept.step_cost[step] > most:
        step = kept.step_before[step]
    return float(kept.step_size[step]) if step >= 0 else np.inf


@released
def start(kept: Kept, streams: Streams) -> None:
    """The streams alone, which cost nothing."""
    n, words = streams.tuples.size, kept.mask.shape[1]
    for i in range(n):
        kept.mask[i, i // WORD] = 1 << (i % WORD)
        for w in range(words):
            kept.around[i, w], kept.equal[i, w] = streams.near[i, w], streams.equal_near[i, w]
        kept.size[i], kept.pace[i], kept.least[i] = streams.tuples[i], streams.pace[i], 0.0
        kept.slots[-1 - place_of_set(kept, kept.mask[i])] = i
        push(kept.heap, kept.heap_cost, i, i, 0.0)
    kept.counts[COUNT], kept.counts[HEAPED] = n, n

"""What partial results of multi-way joins count for where caches may answer for them, compiled.

Problem: a lower bound of the CPU of every plan, whatever caches it has, for the cost of one more search. Method: the search for the best tree
is run again with smaller partial results (`Sets.partial`), so that no plan with caches costs less than its tree costs then.

Why that holds (paper 1; `solvers.caches.figures` has the formulas). A cache on pipeline k is looked up after U was visited and answers for a
run of blocks X, two or more. Its results U∪X are made whether it hits or not. What it saves are the partial results W strictly between U and U∪X,
and of these only the share of hits: with D new keys in T seconds, of the size(U)·pace(k) lookups a second at least D/T miss. pace(k) is at most
pace(U), since k's block is part of U. So W, which costs made · size(W) per 1/T without a cache, costs at least

    miss · made · size(W) + (miss · update · size(U∪X) + upkeep(X) / users(X) / pace(U)) / (|X| − 1)

where every miss puts its results into the cache, entries are kept up to date from some join Z ⊇ X (the one with the fewest new tuples is
taken), at most n − |X| pipelines share them, and at most |X| − 1 partial results lie inside the run and share the sum in brackets. The least over
all U and X, and over no cache at all, is what W counts for. States, outputs and binary joins cost what they cost.
Where a probe has to scan, the bracket is left out: a scan inside a run costs miss times what it costs, and no more.

Of a key of several parts at least as many values are new as of any one of them. A part's values may be read from any attribute that is equal to
it in U; the one with the fewest new values a second counts, which is right for every way in which the cache can be kept.
Complexity: O(sets² + pairs · (predicates + 2^|X|)).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, making, released
from solvers.jtree.compiled.sets import Sets, find, lowest, popcount

__all__ = ["Classes", "KeyPredicates", "cached_partials", "classify", "least_new_keys", "no_classes"]


class KeyPredicates(NamedTuple):
    """The predicates with the attributes they compare, and of every attribute the least new values a second and the least values."""

    left: Ints
    right: Ints
    """Streams, as the sets number them."""
    left_attribute: Ints
    right_attribute: Ints
    equality: Ints
    new_values: Floats
    """Per attribute: min(window, distinct) / T."""
    values: Floats
    """Per attribute: min(window, distinct, 1)."""


class Classes(NamedTuple):
    """For each of several sets, a row each, which attributes have one value in it."""

    root: Ints
    """Per attribute the first of its class: equalities inside the set connect them."""
    new_values: Floats
    """Per root the least new values a second of its class; the same for the least values."""
    values: Floats


@making
def no_classes(rows: int, predicates: KeyPredicates) -> Classes:
    """Room for the classes of so many sets."""
    attributes = predicates.values.size
    return Classes(np.empty((rows, attributes), np.int64), np.empty((rows, attributes)), np.empty((rows, attributes)))


@released
def classify(predicates: KeyPredicates, mask: int, into: Classes, row: int) -> None:
    """Work out the classes of one set."""
    root, new_values, values = into.root[row], into.new_values[row], into.values[row]
    attributes = root.size
    for a in range(attributes):
        root[a], new_values[a], values[a] = a, predicates.new_values[a], predicates.values[a]
    for p in range(predicates.left.size):
        if predicates.equality[p] and mask >> predicates.left[p] & 1 and mask >> predicates.right[p] & 1:
            one, other = root[predicates.left_attribute[p]], root[predicates.right_attribute[p]]
            if one != other:
                low, high = min(one, other), max(one, other)
                for a in range(high, attributes):
                    if root[a] == high:
                        root[a] = low
                new_values[low] = min(new_values[low], new_values[high])
                values[low] = min(values[low], values[high])


@released
def least_new_keys(predicates: KeyPredicates, known: Classes, u: int, x: int, visited: int, segment: int, part: Ints) -> float:
    """At least so many new keys a second where the segment is looked up after `visited`; −1 where it cannot be. Their classes are in rows u and x."""
    before, inside = known.root[u], known.root[x]
    part[:] = -1
    most, product, any_part = 0.0, 1.0, False
    for p in range(predicates.left.size):
        outer, inner = predicates.left_attribute[p], predicates.right_attribute[p]
        if visited >> predicates.right[p] & 1 and segment >> predicates.left[p] & 1:
            outer, inner = inner, outer
        elif not (visited >> predicates.left[p] & 1 and segment >> predicates.right[p] & 1):
            continue
        if not predicates.equality[p]:
            return -1.0
        origin = before[outer]
        if part[inside[inner]] >= 0:
            if part[inside[inner]] != origin:
                return -1.0
            continue
        part[inside[inner]] = origin
        any_part = True
        most = max(most, known.new_values[u, origin])
        product *= min(1.0, known.values[u, origin])
    # Parts of less than one value make the product smaller than the largest part.
    return most * product if any_part else -1.0


@making
def cached_partials(sets: Sets, predicates: KeyPredicates, made: float, update: float, scans: bool, stop: Ints) -> Floats:
    """For every set what it counts for as a partial result, at most its size. Told to stop, it leaves 0, which is a bound as well."""
    total, n = sets.mask.size, sets.n
    masks, sizes, paces, arounds = sets.mask, sets.size, sets.pace, sets.around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    partial = sizes.copy()
    upkeep = sizes * paces
    for s in range(total - 1, -1, -1):
        open_ = arounds[s]
        while open_:
            x = lowest(open_)
            open_ &= open_ - 1
            upkeep[s] = min(upkeep[s], upkeep[find(keys, places, multiplier, shift, masks[s] | (1 << x))])
    known = no_classes(total, predicates)
    for s in range(total):
        classify(predicates, masks[s], known, s)
    part = np.empty(predicates.values.size, np.int64)
    # No key has fewer new values a second than this: sets with fewer lookups, often most of them, need no look at their segments.
    fewest = predicates.new_values.min() * predicates.values.min() ** predicates.left.size
    for u in range(total - 1):
        if stop[0]:
            partial[:] = 0.0
            return partial
        lookups = sizes[u] * paces[u]
        if not lookups > fewest:
            continue
        for x in range(n, total - 1):
            segment = masks[x]
            if segment & masks[u] or segment & arounds[u] == 0:
                continue
            new_keys = least_new_keys(predicates, known, u, x, masks[u], segment, part)
            if new_keys < 0.0 or new_keys >= lookups:
                continue
            miss = new_keys / lookups
            length = popcount(segment)
            extra = 0.0
            if made > 0.0 and not scans:
                results = sizes[find(keys, places, multiplier, shift, masks[u] | segment)]
                extra = (miss * update * results + update * upkeep[x] / max(1, n - length) / paces[u]) / (made * (length - 1))
            reached = masks[u] | segment
            if total >> length == 0:  # fewer sets than subsets of the segment
                for between in range(u + 1, total):
                    mask = masks[between]
                    if mask & masks[u] == masks[u] and mask & ~reached == 0 and mask != reached:
                        partial[between] = min(partial[between], miss * sizes[between] + extra)
                continue
            subset = (segment - 1) & segment
            while subset:
                between = find(keys, places, multiplier, shift, masks[u] | subset)
                if between >= 0:
                    partial[between] = min(partial[between], miss * sizes[between] + extra)
                subset = (subset - 1) & segment
    return partial

"""Whether a cache could pay in one join, compiled: most cannot, and to know it spares choosing among them.

Problem: of a join with given inputs, is there a segment X of two inputs or more whose cache, in some pipelines and under some probe orders, saves
more than it costs to keep up to date? Method: for every U that a pipeline k may have visited before X, what the lookup saves is at most

    pace(k) · ((1 − miss) · made · Σ size(W) − miss · (update · size(U∪X) + probe · size(U)))

(`solvers.caches.figures`), where W are the partial results of the cheapest way from U to U∪X, since without the cache that way can be taken, and miss
follows from the fewest new keys (`least_new_keys`). A pipeline looks a cache up once, so the savings of X are at most the sum over pipelines of the
largest of these. Keeping X up to date costs at least update · rate(Z) for the Z ⊇ X with the fewest new tuples.
Guarantee: where the answer is no, the join costs no less with any caches and any probe orders than without caches in its best orders. A yes says
nothing. Only for joins whose probes all hash. Complexity: O(3^m · (m + predicates)) for m inputs.
"""

from __future__ import annotations

import numpy as np

from solvers.common.tolerances import ROUNDING
from solvers.jtree.compiled.cached import KeyPredicates, classify, least_new_keys, no_classes
from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making, released
from solvers.jtree.compiled.cost import Prices
from solvers.jtree.compiled.sets import Sets, lowest, place_of

__all__ = ["SLACK", "cache_could_pay", "saved_by_lookup"]

SLACK = ROUNDING  # sums that differ by less are left to those who add them up exactly


@compiled
def saved_by_lookup(new_keys: float, pace: float, size: float, run: float, put_in: float, probe: float) -> float:
    """What a lookup saves at most, below 0 where it loses: pipeline k, of this pace, comes with size(U) tuples per 1/T of which so many keys a second
    are new; `run` is what the partial results cost that a hit spares, per 1/T, and `put_in` what it costs to put all results into the cache."""
    lookups = size * pace
    miss = min(1.0, new_keys / lookups) if lookups > 0.0 else 1.0
    return pace * ((1.0 - miss) * run - miss * (put_in + probe * size))


@making
def unions_of(sets: Sets, inputs: Ints) -> Ints:
    """For every set of inputs the place of its union among the connected sets; −1 where it is not connected."""
    masks = np.zeros(1 << inputs.size, np.int64)
    places = np.full(1 << inputs.size, -1, np.int64)
    for union in range(1, places.size):
        masks[union] = masks[union & (union - 1)] | sets.mask[inputs[lowest(union)]]
        places[union] = place_of(sets, masks[union])
    return places


@released
def partial_results(sizes: Floats, places: Ints, visited: int, least: Floats) -> None:
    """For every connected union above `visited` the fewest partial results on the way there, both ends left out; elsewhere infinity."""
    least[:] = np.inf
    least[visited] = 0.0
    for union in range(visited + 1, places.size):
        if union & visited != visited or places[union] < 0:
            continue
        added = union & ~visited
        while added:
            before = union & ~(added & -added)
            added &= added - 1
            if least[before] < np.inf:
                least[union] = min(least[union], least[before] + (sizes[places[before]] if before != visited else 0.0))


@making
def cache_could_pay(sets: Sets, prices: Prices, predicates: KeyPredicates, inputs: Ints) -> bool:
    """Whether some cache of the join of these sets, given by their places, could save more than it costs."""
    update, made, probe = prices.weights.indexed, prices.made, prices.weights.probe
    sizes, paces = sets.size, sets.pace
    m = inputs.size
    places = unions_of(sets, inputs)
    every = places.size - 1
    known = no_classes(places.size, predicates)
    for union in range(1, places.size):
        if places[union] >= 0:
            classify(predicates, sets.mask[places[union]], known, union)
    saves = np.zeros((places.size, m))
    least, part = np.empty(places.size), np.empty(predicates.values.size, np.int64)
    for visited in range(1, every):
        if places[visited] < 0:
            continue
        partial_results(sizes, places, visited, least)
        size, segment = sizes[places[visited]], every & ~visited
        while segment:
            union = visited | segment
            if segment & (segment - 1) and places[segment] >= 0 and least[union] < np.inf:
                new_keys = least_new_keys(predicates, known, visited, segment, sets.mask[places[visited]], sets.mask[places[segment]], part)
                for k in range(m if new_keys >= 0.0 else 0):
                    if visited >> k & 1:
                        saved = saved_by_lookup(new_keys, paces[inputs[k]], size, made * least[union], update * sizes[places[union]], probe)
                        saves[segment, k] = max(saves[segment, k], saved)
            segment = (segment - 1) & ~visited & every
    for segment in range(1, every):
        if not saves[segment].any():
            continue
        upkeep = np.inf
        for union in range(segment, places.size):
            if union & segment == segment and places[union] >= 0:
                upkeep = min(upkeep, update * (sizes[places[union]] * paces[places[union]]))
        if not saves[segment].sum() <= upkeep * (1.0 - SLACK):
            return True
    return False

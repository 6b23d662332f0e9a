"""What joins of three or more sets cost at least where caches are allowed, compiled: the relaxed prices of `families`.

Problem: the search by rising cost prices every join within a limit. With caches a join may cost less; how much less, at most? Method: pipeline k,
when it has visited U, may look a cache up that answers for the blocks X. A hit makes its results all the same, so what is saved are the
partial results on the way from U to U∪X, and of those only the share that hits (`paying.saved_by_lookup`). New keys all miss; how many there are at
least follows from `key_classes`. Keeping X up to date costs update · rate(Z) for a Z ⊇ X, a union of blocks: at least that of the Z with the
fewest new tuples. So a join costs at least the sum over pipelines of a shortest path, by probes and by lookups, where a lookup also pays for its
part of the upkeep, if all pipelines that could gain by X share it; and X is left out where all of them together gain less than its upkeep. Of small
joins more is said: all pipelines of Z come through Z, unless Z are all blocks. So it costs the least, over all Z, of such paths through Z, or of
paths whose caches are all kept up to date by the join's results.

While a family is not complete, nothing is known of upkeep and results, but partial results inside a run still cost their share of misses, and those
at either end of it all of what they cost (`cached_runs`).

Guarantee: never above what the join costs with any caches and any probe orders; equal to what it costs without where no cache can pay.
Complexity: O(3^m · predicates between the blocks) for a join of m blocks, O(4^m ·) for small ones; O(2^m · m²) for a bound of larger families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from solvers.jtree.compiled.cached_runs import COMPLETE, MORE, ONE_MORE, least_of_pipeline, paced_pipeline
from solvers.jtree.compiled.compiling import Flags, Floats, Ints, compiled, inlined, making
from solvers.jtree.compiled.cost import weighted
from solvers.jtree.compiled.kept import WORK, Kept, Streams
from solvers.jtree.compiled.key_classes import KeyClasses, list_streams
from solvers.jtree.compiled.paying import SLACK, saved_by_lookup
from solvers.jtree.compiled.sets import lowest

if TYPE_CHECKING:
    from solvers.jtree.compiled.families import Family

__all__ = [
    "Looking",
    "Lookups",
    "blocks_beside",
    "cached_pipelines",
    "cached_ways_out",
    "family_keys",
    "keys_of_segment",
    "least_of_cached_family",
    "looking_room",
    "lookups_from",
    "most_saved",
    "new_block",
    "paths",
    "relaxed_pipelines",
    "shared",
    "total_of",
]

MOST_LOOKED_UP = 11  # blocks of a join whose lookups are gone through one by one: 177,147 of them
MOST_KEPT = 6  # of a join of which it is asked for each union what it takes to keep caches up to date by it
MOST_STEPS = 1_000_000  # of looking lookups up, by predicate: some milliseconds, after which the search can be told to stop
UNKNOWN = -2
LOOKED_UP_AT_ONCE = 4  # that count as one step of work


class Looking(NamedTuple):
    """Room for what lookups change while families grow."""

    keys: Floats
    """[k, b]: the new keys a second of a lookup by what block k has, of a run with block b in it."""
    values: Floats
    """[k, b]: how many values the key of that lookup has; `fastest`: the 1/T of the fastest of the streams that it is read from."""
    fastest: Floats
    holds: Floats
    """By block: of a single stream, how many tuples its window holds, which is as many keys as it can have; 0 of a larger one."""
    out: Floats
    """[k, c]: the new keys a second for a run with candidate c in it."""
    rarest: Floats
    """By union of blocks, this and what follows: the fewest new keys of any lookup; the new keys of one with a candidate in the run."""
    new: Floats
    made: Floats
    """One figure: what a partial result costs a tuple; `scarce` another: as `KeyClasses.scarce`."""
    scarce: Floats
    pipes: Floats
    """[m, k]: what pipeline k costs at least in joins of the first m blocks and others."""
    exits: Ints
    """By which candidate it leaves, −1 where by none."""
    to_leave: Floats
    """The least that a join with a candidate counts for a second where it is looked up, and `leaving` which."""
    leaving: Ints


@making
def looking_room(most: int, blocks: int, unions: int) -> Looking:
    """Room for so many candidates."""
    return Looking(
        keys=np.full((blocks, blocks), np.inf),
        values=np.ones((blocks, blocks)),
        fastest=np.zeros((blocks, blocks)),
        holds=np.zeros(blocks),
        out=np.empty((blocks, most)),
        rarest=np.full(unions, np.inf),
        new=np.zeros(unions),
        made=np.zeros(1),
        scarce=np.ones(1),
        pipes=np.zeros((blocks, blocks)),
        exits=np.full((blocks, blocks), UNKNOWN, np.int64),
        to_leave=np.full(unions, np.inf),
        leaving=np.full(unions, -1, np.int64),
    )


class Lookups(NamedTuple):
    """The predicates between the blocks of a family, and what lookups from one union of blocks may save."""

    one: Ints
    other: Ints
    """The two blocks of each predicate."""
    at_one: Ints
    """Its two streams; then how many values it has at each, as `KeyClasses.values`."""
    at_other: Ints
    values_one: Floats
    values_other: Floats
    possible: Flags
    """Whether it is an equality: only those can be part of a key."""
    new_values: Floats
    """[p, k]: the least new values a second of the predicate's class in block k."""
    connected: Flags
    pace: Floats
    """By union of blocks."""
    run: Floats
    """By union: what the partial results cost, per 1/T, on the cheapest way there from the union at hand; infinity where there is none."""
    new_keys: Floats
    """By segment: its new keys a second, looked up from the union at hand; −1 where it cannot be."""
    own: Floats
    """By stream: room for the values of the parts of a key that are read from it, 1 between uses."""
    share: Floats
    """By segment: what a lookup of it pays for upkeep at least; below 0 where no cache of it pays."""


@making
def family_keys(kept: Kept, keys: KeyClasses, family: Family, m: int) -> Lookups:
    """The predicates between the first m blocks, and which unions of these are connected."""
    most = 0
    for k in range(m):
        many = list_streams(kept.mask[family.chosen[k]], keys.listed)
        for i in keys.listed[:many]:
            keys.owner[i] = k
            most += keys.first_predicate[i + 1] - keys.first_predicate[i]
    one, other, number, here, there = np.empty((5, most), np.int64)
    values_here, values_there = np.empty((2, most))
    found = 0
    for k in range(m):
        many = list_streams(kept.mask[family.chosen[k]], keys.listed)
        for i in keys.listed[:many]:
            for p in range(keys.first_predicate[i], keys.first_predicate[i + 1]):
                j = keys.ends[p]
                if keys.owner[j] > k:
                    one[found], other[found], number[found], here[found], there[found] = k, keys.owner[j], keys.predicate_class[p], i, j
                    values_here[found], values_there[found] = keys.values[p], keys.values[keys.reverse[p]]
                    found += 1
    new_values = np.full((found, m), np.inf)
    for k in range(m):
        many = list_streams(kept.mask[family.chosen[k]], keys.listed)
        for p in range(found):
            if number[p] >= 0:
                keys.least[number[p]] = np.inf
        for i in keys.listed[:many]:
            keys.owner[i] = -1
            for a in range(keys.first[i], keys.first[i + 1]):
                keys.least[keys.class_of[a]] = min(keys.least[keys.class_of[a]], keys.new_values[a])
        for p in range(found):
            if number[p] >= 0:
                new_values[p, k] = keys.least[number[p]]
    unions = 1 << m
    connected, pace = np.zeros(unions, np.bool_), np.zeros(unions)
    for u in range(1, unions):
        pace[u] = pace[u & (u - 1)] + kept.pace[family.chosen[lowest(u)]]
        connected[u] = u & (u - 1) == 0
        left = 0 if connected[u] else u
        while left and not connected[u]:
            before = u & ~(left & -left)
            connected[u] = connected[before] and family.reaches[before] & left & -left != 0
            left &= left - 1
    return Lookups(
        one=one[:found],
        other=other[:found],
        at_one=here[:found],
        at_other=there[:found],
        values_one=values_here[:found],
        values_other=values_there[:found],
        possible=number[:found] >= 0,
        new_values=new_values,
        connected=connected,
        pace=pace,
        run=np.empty(unions),
        new_keys=np.empty(unions),
        own=np.ones(keys.owner.size),
        share=np.zeros(unions),
    )


@compiled
def lookups_from(streams: Streams, family: Family, lookups: Lookups, u: int, within: int) -> bool:
    """Fill in what can be looked up from one union inside another: the runs from it, and the new keys of the segments. Whether there is any."""
    run, new_keys, sizes = lookups.run, lookups.new_keys, family.sizes
    scan, made = streams.weights.scan, streams.weights.join + streams.weights.probe
    rest, segment, some = within & ~u, 0, False
    run[u] = 0.0
    while segment != rest:
        segment = (segment - rest) & rest  # the next larger one
        union = u | segment
        run[union] = np.inf
        left = segment
        while left:
            k = lowest(left)
            left &= left - 1
            before = union & ~(1 << k)
            if family.reaches[before] >> k & 1 and run[before] < np.inf:
                step = run[before] + (weighted(made, sizes[before]) if before != u else 0.0)
                if scan != 0.0 and not family.hashes[before] >> k & 1:
                    step += scan * (sizes[before] * sizes[1 << k])
                run[union] = min(run[union], step)
        new_keys[segment] = -1.0
        if segment & (segment - 1) and lookups.connected[segment] and lookups.share[segment] >= 0.0 and run[union] < np.inf:
            new_keys[segment] = keys_of_segment(streams, lookups, u, segment)
            some |= new_keys[segment] >= 0.0
    return some


@compiled
def keys_of_segment(streams: Streams, lookups: Lookups, u: int, segment: int) -> float:
    """At least so many new keys a second has a lookup of the segment by what a union has; −1 where it cannot be looked up."""
    most, product, fastest, possible = -1.0, streams.keys.scarce, 0.0, True
    # In the first pass every stream's values are multiplied, in the second each is taken once.
    for again in range(2):
        for p in range(lookups.one.size):
            one, other = lookups.one[p], lookups.other[p]
            if u >> one & 1 and segment >> other & 1:
                stream, values = lookups.at_one[p], lookups.values_one[p]
            elif u >> other & 1 and segment >> one & 1:
                stream, values = lookups.at_other[p], lookups.values_other[p]
            else:
                continue
            possible &= lookups.possible[p]
            if again:
                product *= min(max(1.0, streams.tuples[stream]), lookups.own[stream])
                lookups.own[stream] = 1.0
                continue
            if values > 0.0:
                lookups.own[stream] *= values
                fastest = max(fastest, streams.pace[stream])
            least, left = np.inf, u
            while left:
                least = min(least, lookups.new_values[p, lowest(left)])
                left &= left - 1
            most = max(most, least)
    return float(max(most, product * fastest)) if possible and most >= 0.0 else -1.0


@making
def most_saved(kept: Kept, streams: Streams, family: Family, lookups: Lookups, m: int) -> Floats:
    """[X, k]: what pipeline k saves at most by a cache of segment X."""
    full = (1 << m) - 1
    sizes, update, probe = family.sizes, streams.keys.update, streams.weights.probe
    saves = np.zeros((full + 1, m))
    for u in range(1, full):
        if not lookups.connected[u]:
            continue
        fastest = 0.0
        for k in range(m):
            if u >> k & 1:
                fastest = max(fastest, kept.pace[family.chosen[k]])
        if family.looking.rarest[u] >= sizes[u] * fastest or not lookups_from(streams, family, lookups, u, full):
            continue
        segment = full & ~u
        while segment:
            if lookups.new_keys[segment] >= 0.0:
                for k in range(m):
                    if u >> k & 1:
                        put_in = update * sizes[u | segment]
                        saved = saved_by_lookup(
                            lookups.new_keys[segment], kept.pace[family.chosen[k]], sizes[u], lookups.run[u | segment], put_in, probe
                        )
                        saves[segment, k] = max(saves[segment, k], saved)
            segment = (segment - 1) & ~u & full
    return saves


@compiled
def shared(lookups: Lookups, saves: Floats, upkeep: Floats) -> bool:
    """Which segments a cache could pay for, at this upkeep, and what a lookup of each pays for it at least. Whether there are any."""
    some = False
    for segment in range(upkeep.size):
        users, total = 0, 0.0
        for saved in saves[segment]:
            users += saved > 0.0
            total += saved
        pays = users > 0 and total > upkeep[segment] * (1.0 - SLACK)
        lookups.share[segment] = upkeep[segment] / users if pays else -1.0
        some |= pays
    return some


@compiled
def paths(kept: Kept, streams: Streams, family: Family, lookups: Lookups, within: int, to_go: Floats) -> None:
    """[k, u]: what pipelines cost at least from u on, by probes and lookups, until they come to the union `within`, from which it is known."""
    sizes, update, weights = family.sizes, streams.keys.update, streams.weights
    made = weights.join + weights.probe
    u = within
    while u:
        u = (u - 1) & within
        if not u or not lookups.connected[u]:
            continue
        some = lookups_from(streams, family, lookups, u, within)
        for k in range(to_go.shape[0]):
            if not u >> k & 1:
                continue
            pace, best = kept.pace[family.chosen[k]], np.inf
            left = family.reaches[u] & within & ~u
            while left:
                target = lowest(left)
                left &= left - 1
                step = to_go[k, u | 1 << target]
                if weights.scan != 0.0 and not family.hashes[u] >> target & 1:
                    step += pace * (weights.scan * (sizes[u] * sizes[1 << target]))
                best = min(best, step)
            segment = within & ~u if some else 0
            while segment:
                union = u | segment
                if lookups.new_keys[segment] >= 0.0:
                    saved = saved_by_lookup(lookups.new_keys[segment], pace, sizes[u], lookups.run[union], update * sizes[union], weights.probe)
                    best = min(best, to_go[k, union] + pace * lookups.run[union] - saved + lookups.share[segment])
                segment = (segment - 1) & within & ~u
            to_go[k, u] = best + (weighted(made, sizes[u]) * pace if u & (u - 1) else 0.0)


@compiled
def total_of(to_go: Floats) -> float:
    """All pipelines from their start."""
    total = 0.0
    for k in range(to_go.shape[0]):
        total += to_go[k, 1 << k]
    return total


@making
def cached_pipelines(kept: Kept, streams: Streams, family: Family, lookups: Lookups, m: int, plain: float) -> float:
    """What all partial results of a join of the first m blocks cost at least where caches are allowed; `plain` is what they cost without any."""
    full = (1 << m) - 1
    saves = most_saved(kept, streams, family, lookups, m)
    upkeep, least = np.full(full + 1, np.inf), np.full(full + 1, np.inf)
    for z in range(full, 0, -1):
        if z & (z - 1) and lookups.connected[z]:
            upkeep[z] = least[z] = streams.keys.update * (family.sizes[z] * lookups.pace[z])
        for k in range(m):
            least[z] = min(least[z], least[z | 1 << k])
    if not shared(lookups, saves, least):
        return plain
    to_go = np.full((m, full + 1), np.inf)
    to_go[:, full] = 0.0
    paths(kept, streams, family, lookups, full, to_go)
    if m > MOST_KEPT or total_of(to_go) >= plain:
        return min(total_of(to_go), plain)
    # Either some cache is kept up to date by a union Z that is not all blocks, and then all pipelines of Z come through Z ...
    best, through = plain, np.empty_like(to_go)
    for z in range(1, full):
        useful = 0.0
        segment = z if upkeep[z] < np.inf else 0
        while segment:
            useful = max(useful, saves[segment].sum())
            segment = (segment - 1) & z
        if useful <= upkeep[z] * (1.0 - SLACK):
            continue
        through[:] = to_go
        paths(kept, streams, family, lookups, z, through)
        # Inside Z there is no way but through Z; pipelines from outside go as they like.
        best = min(best, total_of(through))
    # ... or all are kept up to date by the join's results.
    least[:] = upkeep[full]
    if shared(lookups, saves, least):
        to_go[:] = np.inf
        to_go[:, full] = 0.0
        paths(kept, streams, family, lookups, full, to_go)
        best = min(best, total_of(to_go))
    return best


@inlined
def blocks_beside(family: Family, m: int, c: int) -> int:
    """Those of the first m blocks that a predicate joins with a candidate."""
    beside = 0
    for k in range(m):
        if family.rows[k, c] < np.inf:
            beside |= 1 << k
    return beside


@inlined
def cached_ways_out(kept: Kept, family: Family, m: int, many: int) -> None:
    """As `families.ways_out`: for every union of the first m blocks the smallest join of it with a usable candidate, and the one that counts for
    least where a cache is looked up by the union. One loop for both: in two, every candidate's factors would be worked out twice."""
    full, looking = (1 << m) - 1, family.looking
    to_leave, leaving, factor, sizes = family.to_leave, family.leaving, family.factor, family.sizes
    to_leave[: full + 1], looking.to_leave[: full + 1] = np.inf, np.inf
    looking.rarest[0] = np.inf
    for u in range(1, full + 1):
        k, rest = lowest(u), u & (u - 1)
        looking.rarest[u] = min(looking.rarest[rest], kept.rarest[family.chosen[k]])
    factor[0], looking.new[0] = 1.0, 0.0
    for c in range(many):
        if not family.usable[c]:
            continue
        beside = blocks_beside(family, m, c)
        factor[0] = kept.size[family.listed[c]]
        for u in range(1, full + 1):
            k, rest = lowest(u), u & (u - 1)
            if beside >> k & 1:
                factor[u], looking.new[u] = factor[rest] * family.rows[k, c], max(looking.new[rest], looking.out[k, c])
            else:
                factor[u], looking.new[u] = factor[rest], looking.new[rest]
            if u & beside:
                joined = sizes[u] * factor[u]
                if joined < to_leave[u]:
                    to_leave[u], leaving[u] = joined, c
                looked_up = factor[u] * max(looking.rarest[u], looking.new[u])
                if looked_up < looking.to_leave[u]:
                    looking.to_leave[u], looking.leaving[u] = looked_up, c


@inlined
def new_block(family: Family, m: int) -> None:
    """With a block more, pipelines cost at least what they did without it, and by what they leave is not known."""
    looking = family.looking
    for k in range(m):
        looking.pipes[m, k] = looking.pipes[m - 1, k] if k < m - 1 else 0.0
    looking.exits[m, :m] = UNKNOWN


@inlined
def least_of_cached_family(kept: Kept, family: Family, m: int, made: float, limit: float, one_more: bool, closer: bool) -> float:
    """As `families.least_of_family`, where a cache may answer for any partial result after a block or more were visited; infinity above the limit.
    A quick bound of all pipelines comes first: where that is above the limit already the `closer` one, if it is asked for, is not needed.
    Pipelines that are known and leave by a candidate that still is usable cost what they did. Where one more block cannot do (not `one_more`), the
    join of all blocks so far with a candidate counts as well."""
    pipes, exits, low = family.looking.pipes[m], family.looking.exits[m], family.total[m]
    for k in range(m):
        low += pipes[k]
    for k in range(m):
        if low <= limit and exits[k] == UNKNOWN:
            quick = paced_pipeline(kept, family, m, k, made)
            low += max(0.0, quick - pipes[k])
            pipes[k] = max(pipes[k], quick)
    for k in range(m):
        if low > limit:
            return np.inf
        if not closer:
            family.best[1 << k] = -1
            continue
        if exits[k] != UNKNOWN and (exits[k] < 0 or family.usable[exits[k]]):
            family.best[1 << k] = exits[k]
            continue
        known = pipes[k]
        most = (limit - (low - known)) * (1.0 + SLACK)
        pipes[k] = max(known, least_of_pipeline(kept, family, m, k, made, ONE_MORE if one_more else MORE, most))
        exits[k] = family.best[1 << k]
        low += pipes[k] - known
    return float(low)


@making
def relaxed_pipelines(kept: Kept, streams: Streams, family: Family, m: int, plain: float, limit: float) -> float:
    """What all partial results of a join of the first m blocks cost at least where caches are allowed, as closely as a limit asks for: `plain` is
    what they cost without any."""
    made, low = streams.weights.join + streams.weights.probe, 0.0
    rarest = family.looking.rarest
    rarest[0] = np.inf
    for u in range(1, 1 << m):
        rarest[u] = min(rarest[u & (u - 1)], kept.rarest[family.chosen[lowest(u)]])
    for k in range(m):
        low += least_of_pipeline(kept, family, m, k, made, COMPLETE, np.inf)
    if low > limit or m > MOST_LOOKED_UP:
        return min(low, plain)
    lookups = family_keys(kept, streams.keys, family, m)
    steps = 3**m * (1 + lookups.one.size // m)
    if steps > MOST_STEPS:
        return min(low, plain)
    kept.counts[WORK] += steps // LOOKED_UP_AT_ONCE
    return cached_pipelines(kept, streams, family, lookups, m, plain)

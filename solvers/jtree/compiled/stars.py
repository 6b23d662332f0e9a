"""The best plan of a star, within a cap on memory or without one, compiled.

Problem: one hub, leaves that join the hub alone; of all join trees that keep no more bytes than a cap the one of least CPU. Every connected set of
two streams or more holds the hub, so a join has one input with the hub and single leaves beside it: a plan is a chain of growing sets of leaves.
Method: sets by rising number, so that subsets come first, each with the labels (CPU, bytes) of its plans that no other beats. From each set the
joins with sets of leaves are listed depth first, leaves by rising growth f = w·σ, by which a set grows when they join it: every pipeline visits them
best in that order, since each of them may come next once the hub's set is visited (Ibaraki and Kameda's ranks). A leaf that comes last in it adds
its own pipeline, and one step at the end of each of the others; all else stays as it is. So a join with one leaf more is priced in constant time,
and costs no less, with all that caches could spare taken off as well: what is above the limit is cut off with all that follows. The cost of a join of
two is `cost.pair_excess`.

Caches answer connected runs of two probes or more. A run of a star that is connected holds the hub, so it is looked up by a single leaf, before
anything else, and no pipeline of a hub's set has one. On the way to t more leaves a run passes t partial results, each at least as large as with the
t leaves of least growth; lookups that hit spare those, and nothing else. To keep such a run up to date takes the new tuples of a union of blocks
around it, of the hub's set and t leaves or more, and only the leaves outside can look it up (`spared`).

Few sets are enough where keeping a stream costs the same in every join (`Leaves.floors`). For let two leaves have the same window and tuples of the
same bytes, let b come before a, and f_a ≤ f_b: with the two exchanged every set that is kept or made has the same streams, or a in place of b. It
has the same pace then, and a size no larger; pipelines are begun at the same paces. Caches change nothing about it where misses · f, what a leaf's
run counts for, is the lesser of f and a figure that leaves of the same window share: it rises with f, and misses fall. So no leaf has to come before
one like it of smaller growth (`after`): 8³ sets instead of 2^20 for a star of 21 with three windows.

Guarantee: exact among the sets that `after` allows, and so, with floors, of all; told to stop, nothing. Complexity: O(pairs of such sets · labels of
one); steps are counted, and the search ends at a count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, pair_excess, stepping, weighted

__all__ = [
    "CUT_OFF",
    "ENDED",
    "NO_LABELS",
    "Growing",
    "Labels",
    "Leaves",
    "chains_of_star",
    "extend",
    "gain",
    "grow",
    "into",
    "join_room",
    "keep_up",
    "label",
    "label_room",
    "parts",
    "spared",
    "whole_cost",
]

ENDED, CUT_OFF, NO_LABELS = 0, 1, 2  # how it ended: all looked at, told to stop or work at its end, no room for labels


class Leaves(NamedTuple):
    """The leaves in the order in which pipelines visit them, and the hub."""

    growth: Floats
    """f: by how much a set of the hub's grows with it."""
    pace: Floats
    """1/T"""
    tuples: Floats
    after: Ints
    """The leaf that has to be in a set before it; −1 where none has to."""
    floors: Floats
    """What keeping a leaf costs, and last, a tuple of a hub's set: the least in any join. Where there are none, each join's own."""
    bytes: Floats
    """Of a tuple."""
    hub: Floats
    """Its tuples, 1/T, and the bytes of a tuple."""
    misses: Floats
    """The least share of each leaf's lookups that miss; where caches are not allowed there are none."""
    update: float
    """What a tuple costs that is put into a cache and taken out again."""
    weights: Weights
    """As `Ledger` has them: of what is above the base."""
    base: float


class Labels(NamedTuple):
    """Plans of sets: what each costs, keeping the set included, the bytes that it keeps, the plan it grows from, the set, and its next plan."""

    cpu: Floats
    bytes: Floats
    before: Ints
    mask: Ints
    following: Ints
    first: Ints
    """By set its first label; −1 where it has none."""
    counts: Ints
    """Labels, and work."""


class Growing(NamedTuple):
    """A join under way, by number of leaves: which leaf came last, their set, and the figures that the next leaf adds to."""

    leaf: Ints
    inside: Ints
    figures: Floats
    """[m]: the join's cost but for keeping the hub's set; Σ 1/T of the hub's set and the leaves; the product of all f; the sum of the products of
    the first 0 to m − 1; the bytes of a tuple."""
    gains: Floats
    """[i, t]: what the pipeline of the leaf that came i-th gains by a run of t leaves, by tuple of the hub's set; `upkeep`: what it takes at least to
    keep that up to date, `pays` what each pipeline pays of it, `best` what is left to each, and `row` room for a figure of each."""
    upkeep: Floats
    pays: Floats
    best: Floats
    row: Floats


@making
def label_room(n: int, most: int) -> Labels:
    return Labels(
        np.empty(most),
        np.empty(most),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.full(1 << n, -1, np.int64),
        np.zeros(2, np.int64),
    )


@making
def join_room(n: int) -> Growing:
    return Growing(
        np.full(n + 1, -1, np.int64),
        np.zeros(n + 1, np.int64),
        np.zeros((n + 1, 5)),
        np.empty((n, n + 1)),
        np.empty((n, n + 1)),
        np.empty(n),
        np.empty(n),
        np.empty(n),
    )


@compiled
def label(labels: Labels, mask: int, cpu: float, held: float, before: int) -> bool:
    """Note a plan of a set unless another is as good; those that it beats go. False where there is no room."""
    cpus, bytes_, following, first = labels.cpu, labels.bytes, labels.following, labels.first
    here = first[mask]
    while here >= 0:
        if cpus[here] <= cpu and bytes_[here] <= held:
            return True
        here = following[here]
    last, here = -1, first[mask]
    while here >= 0:
        after = following[here]
        if cpu <= cpus[here] and held <= bytes_[here]:
            if last < 0:
                first[mask] = after
            else:
                following[last] = after
        else:
            last = here
        here = after
    place = labels.counts[0]
    if place == cpus.size:
        return False
    labels.counts[0] += 1
    cpus[place], bytes_[place], labels.before[place], labels.mask[place] = cpu, held, before, mask
    following[place] = first[mask]
    first[mask] = place
    return True


@compiled
def grow(star: Leaves, growing: Growing, m: int, leaf: int, size: float) -> None:
    """Add a leaf to a join of a hub's set of this size with m leaves of no larger growth."""
    weights, figures = star.weights, growing.figures
    f, pace, tuples = star.growth[leaf], star.pace[leaf], star.tuples[leaf]
    cost, paces, product, sums = figures[m, 0], figures[m, 1], figures[m, 2], figures[m, 3]
    made = weights.join + weights.probe
    # Everyone who has visited the others goes on to this leaf. What they have made so far is no longer the output, unless it is an input.
    cost += size * product * paces * (made if m else weights.probe)
    # Beyond what joins of two have, it takes a probe step for each leaf before it, and each of those takes one more.
    cost += stepping(weights, m + 2) - stepping(weights, m + 1)
    # Its own pipeline begins with the hub's set.
    cost += pace * (weights.probe * tuples + made * size * f * sums)
    cost += star.floors[leaf] if star.floors.size else weights.indexed * tuples * pace
    growing.leaf[m + 1], growing.inside[m + 1] = leaf, growing.inside[m] | 1 << leaf
    figures[m + 1, 0], figures[m + 1, 1], figures[m + 1, 2] = cost, paces + pace, product * f
    figures[m + 1, 3], figures[m + 1, 4] = sums + product, figures[m, 4] + star.bytes[leaf]


@compiled
def keep_up(star: Leaves, growing: Growing, m: int) -> None:
    """What it takes at least to keep a run up to date that a leaf looks up: a set of so many other leaves or more, or of it and more than so many;
    the smallest there are, at the slowest paces that so many leaves have."""
    figures, upkeep, slowest = growing.figures, growing.upkeep, growing.row
    for t in range(m):
        k, pace = t, star.pace[growing.leaf[t + 1]]
        while k and slowest[k - 1] > pace:
            slowest[k] = slowest[k - 1]
            k -= 1
        slowest[k] = pace
    whole = figures[0, 1]
    for t in range(m):
        whole += slowest[t]
    for i in range(m):
        f, least, pace = star.growth[growing.leaf[i + 1]], np.inf, whole
        for t in range(m - 1, 0, -1):
            least = min(least, star.update * figures[t + 1, 2] * pace)
            pace -= slowest[t]
            others = figures[t, 2] if t <= i else figures[t + 1, 2] / f
            least = upkeep[i, t] = min(least, star.update * others * pace)


@compiled
def gain(star: Leaves, growing: Growing, m: int) -> float:
    """What each pipeline of a join with m leaves gains at most by runs of each length, upkeep left out, by tuple of the hub's set; and what is made
    in all of them where lookups hit."""
    figures, gains, made, most = growing.figures, growing.gains, star.weights.join + star.weights.probe, 0.0
    for i in range(m):
        leaf = growing.leaf[i + 1]
        miss, f, pace = star.misses[leaf], star.growth[leaf], star.pace[leaf]
        passed, at = 0.0, f
        for t in range(1, m):
            # `at`: what is made before the t-th leaf is visited, then after it; the leaf itself is not one that it visits.
            passed += at
            at = f * figures[t, 2] if t <= i else figures[t + 1, 2]
            gains[i, t] = max(0.0, pace * ((1.0 - miss) * made * passed - miss * star.update * at))
        most += pace * (1.0 - miss) * made * passed
    return most


@compiled
def into(row: Floats, many: int, value: float) -> None:
    """Add a value to `many` that are in order."""
    k = many
    while k and row[k - 1] > value:
        row[k] = row[k - 1]
        k -= 1
    row[k] = value


@compiled
def parts(growing: Growing, m: int, t: int) -> None:
    """What each pipeline pays of the upkeep of a run of t leaves, such that no m − t of them, as many as may use one, pay more than it: at first all
    that it gains, but no more than a most that is the same for all; then, where runs take more that it looks up, what is left of that."""
    gains, upkeep, pays, row = growing.gains, growing.upkeep, growing.pays, growing.row
    left, most = upkeep[m - 1, t], np.inf
    for i in range(m):
        into(row, i, gains[i, t])
    for k in range(t, m):
        if row[k] * (m - k) >= left:
            most = left / (m - k)
            break
        left -= row[k]
    for i in range(m):
        pays[i] = min(gains[i, t], most)
    # Leaves that came earlier look up runs that take more.
    for i in range(m - 1, -1, -1):
        if upkeep[i, t] > upkeep[m - 1, t] and pays[i] < gains[i, t]:
            many, beside = 0, 0.0
            for other in range(m):
                if other != i:
                    into(row, many, pays[other])
                    many += 1
            for k in range(t, many):
                beside += row[k]
            pays[i] = min(gains[i, t], max(pays[i], upkeep[i, t] - beside))


@compiled
def spared(star: Leaves, growing: Growing, m: int) -> float:
    """What caches spare at most in a join with m leaves less what they take, by tuple of the hub's set, once `gain` has said what pipelines gain:
    what is left to each of its best run, where no users of a run pay more for it than its upkeep (`parts`)."""
    gains, pays, best = growing.gains, growing.pays, growing.best
    keep_up(star, growing, m)
    best[:m] = 0.0
    for t in range(1, m):
        parts(growing, m, t)
        for i in range(m):
            best[i] = max(best[i], gains[i, t] - pays[i])
    total = 0.0
    for i in range(m):
        total += best[i]
    return total


@compiled
def whole_cost(star: Leaves, growing: Growing, m: int, size: float, pace: float) -> float:
    """What the join of a hub's set with m leaves costs, its caches included where they are allowed."""
    weights, leaf = star.weights, growing.leaf[1]
    if m == 1 and not star.floors.size:
        return pair_excess(size, pace, star.tuples[leaf], star.pace[leaf], True, weights)
    less = 0.0
    if m > 1 and star.misses.size:
        gain(star, growing, m)
        less = size * spared(star, growing, m)
    keep = star.floors[-1] if star.floors.size else weights.indexed
    return float(growing.figures[m, 0] + keep * size * pace - less)


@compiled
def extend(labels: Labels, s: int, whole: int, cost: float, held: float, limits: Floats) -> bool:
    """Extend all plans of a set by a join. False where there is no room."""
    cpu, bytes_, following, counts = labels.cpu, labels.bytes, labels.following, labels.counts
    here = labels.first[s]
    while here >= 0:
        counts[1] += 1
        if (
            cpu[here] + cost <= limits[0]
            and bytes_[here] + held <= limits[1]
            and not label(labels, whole, cpu[here] + cost, bytes_[here] + held, here)
        ):
            return False
        here = following[here]
    return True


@making
def chains_of_star(star: Leaves, labels: Labels, limits: Floats, stop: Ints) -> int:
    """Fill the labels of all sets with plans within limits of CPU and bytes, and say how it ended. A plan's CPU is its excess, as in `Ledger`.

    `stop`: whether to stop, and how much work is allowed.
    """
    n, every = star.growth.size, (1 << star.growth.size) - 1
    growing = join_room(n)
    figures, inside, counts = growing.figures, growing.inside, labels.counts
    label(labels, 0, 0.0, 0.0, -1)
    for s in range(every):
        if labels.first[s] < 0:
            continue
        size, pace, width, least = star.hub[0], star.hub[1], star.hub[2], np.inf
        for k in range(n):
            if s >> k & 1:
                size, pace, width = size * star.growth[k], pace + star.pace[k], width + star.bytes[k]
        here = labels.first[s]
        while here >= 0:
            least = min(least, labels.cpu[here])
            here = labels.following[here]
        figures[0, 1], figures[0, 2], figures[0, 4] = pace, 1.0, width
        m, leaf = 0, 0
        while m >= 0:
            counts[1] += 1
            if leaf == n:
                leaf = growing.leaf[m] + 1
                m -= 1
                continue
            if stop[0] or counts[1] > stop[1]:
                return CUT_OFF
            before = star.after[leaf]
            if s >> leaf & 1 or (before >= 0 and not (s | inside[m]) >> before & 1):
                leaf += 1
                continue
            grow(star, growing, m, leaf, size)
            whole, cost, held = s | inside[m + 1], whole_cost(star, growing, m + 1, size, pace), 0.0
            if whole != every:
                made = size * figures[m + 1, 2]
                cost += weighted(star.weights.join + star.base, made * figures[m + 1, 1])
                held = made * figures[m + 1, 4]
            if least + cost <= limits[0] and not extend(labels, s, whole, cost, held, limits):
                return NO_LABELS
            hits = size * gain(star, growing, m + 1) if star.misses.size else 0.0
            if least + figures[m + 1, 0] - hits <= limits[0]:
                m += 1
            leaf += 1
    return ENDED

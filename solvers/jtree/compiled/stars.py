"""The best plan of a star, within a cap on memory or without one, compiled.

Problem: one hub, leaves that join the hub alone; of all join trees that keep no more bytes than a cap the one of least CPU. Every connected set of
two streams or more holds the hub, so a join has one input with the hub and single leaves beside it: a plan is a chain of growing sets of leaves.
Method: sets by rising number, so that subsets come first, each with the labels (CPU, bytes) of its plans that no other beats. From each set the
joins with sets of leaves are listed depth first, leaves by rising growth f = w·σ, by which a set grows when they join it: every pipeline visits them
best in that order, since each of them may come next once the hub's set is visited (Ibaraki and Kameda's ranks). A leaf that comes last in it adds
its own pipeline, and one step at the end of each of the others; all else stays as it is. So a join with one leaf more is priced in constant time,
and costs no less: what is above the limit is cut off with all that follows. The cost of a join of two is `cost.pair_excess`.

Few sets are enough where keeping a stream costs the same in every join (`Leaves.floors`). For let two leaves have the same window and tuples of the
same bytes, let b come before a, and f_a ≤ f_b: with the two exchanged every set that is kept or made has the same streams, or a in place of b. It
has the same pace then, and a size no larger; pipelines are begun at the same paces. So no leaf has to come before one like it of smaller growth
(`after`): 8³ sets instead of 2^20 for a star of 21 with three windows.

Guarantee: exact among the sets that `after` allows, and so, with floors, of all; told to stop, nothing. Complexity: O(pairs of such sets · labels of
one); steps are counted, and the search ends at a count.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, compiled, making
from solvers.jtree.compiled.cost import Weights, pair_excess, stepping, weighted

__all__ = ["CUT_OFF", "ENDED", "NO_LABELS", "Labels", "Leaves", "chains_of_star", "extend", "grow", "join_room", "label", "label_room", "whole_cost"]

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
    return Growing(np.full(n + 1, -1, np.int64), np.zeros(n + 1, np.int64), np.zeros((n + 1, 5)))


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
def whole_cost(star: Leaves, growing: Growing, m: int, size: float, pace: float) -> float:
    """What the join of a hub's set with m leaves costs."""
    weights, leaf = star.weights, growing.leaf[1]
    if star.floors.size:
        return float(growing.figures[m, 0] + star.floors[-1] * size * pace)
    if m == 1:
        return pair_excess(size, pace, star.tuples[leaf], star.pace[leaf], True, weights)
    return float(growing.figures[m, 0] + weights.indexed * size * pace)


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
        figures[0, 0], figures[0, 1], figures[0, 2], figures[0, 3], figures[0, 4] = 0.0, pace, 1.0, 0.0, width
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
            if least + figures[m + 1, 0] <= limits[0]:
                m += 1
            leaf += 1
    return ENDED

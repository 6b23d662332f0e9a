"""The best plan of a star without a memory cap, compiled.

Problem: one hub, leaves that join the hub alone; the join tree of least CPU. Every connected set of two streams or more holds the hub, so a join has
one input with the hub and single leaves beside it: a plan is a chain of growing sets of leaves.
Method: a shortest path over such sets. Leaves with the same window are interchangeable but for their growth f = w·σ, by which a set's size
changes when they join it; there is a best plan in which of two such leaves the one with the smaller f comes no later. For let b come before a
with f_a ≤ f_b: with the two exchanged every set that is kept or made has the same streams, or a in place of b. It has the same pace then, and a size
no larger; pipelines are begun at the same paces, and what keeping a leaf costs is the same in every join (`solvers.jtree.star` sees to that). So a
set is as many leaves of each window, those of the smallest growths: 8³ sets instead of 2^20 for a star of 21 with three windows.

Guarantee: exact. Complexity: O(pairs of sets · leaves²).
"""

from __future__ import annotations

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, released

__all__ = ["best_chain", "join_of_leaves"]


@released
def join_of_leaves(size: float, pace: float, growth: Floats, paces: Floats, many: int) -> float:
    """What the partial results of a join of a hub's set with the first `many` leaves, by rising growth, come to: size times pace, all pipelines."""
    if many < 2:
        return 0.0
    total = 0.0
    made = size
    for k in range(many - 1):
        made *= growth[k]
        total += made * pace
    for leaf in range(many):
        made = size * growth[leaf]
        part = made
        left = many - 2
        for k in range(many):
            if left == 0:
                break
            if k != leaf:
                made *= growth[k]
                part += made
                left -= 1
        total += part * paces[leaf]
    return total


@released
def best_chain(hub: Floats, growth: Floats, leaf_pace: Floats, group: Ints, counts: Ints, weights: Floats, stop: Ints) -> tuple[float, Ints]:
    """The least excess, and for every set of leaves the set it grows from, −1 where none.

    `hub` are its tuples and its 1/T. Leaves are sorted by rising growth; `group` is the window of each, of which `counts` has the numbers.
    A set is a number with a digit for each window. `weights`: what a partial result costs, and what a kept set does, per tuple.
    """
    groups = counts.size
    total = 1
    for g in range(groups):
        total *= counts[g] + 1
    n = growth.size
    rank = np.empty(n, np.int64)  # which of its window's leaves each is
    seen = np.zeros(groups, np.int64)
    for k in range(n):
        rank[k] = seen[group[k]]
        seen[group[k]] += 1
    digits = np.zeros((total, groups), np.int64)
    sizes, paces = np.empty(total), np.empty(total)
    for s in range(total):
        rest = s
        for g in range(groups):
            digits[s, g] = rest % (counts[g] + 1)
            rest //= counts[g] + 1
        sizes[s], paces[s] = hub[0], hub[1]
        for k in range(n):
            if rank[k] < digits[s, group[k]]:
                sizes[s] *= growth[k]
                paces[s] += leaf_pace[k]
    least, before = np.full(total, np.inf), np.full(total, -1, np.int64)
    least[0] = 0.0
    added, added_pace = np.empty(n), np.empty(n)
    for s in range(total):
        if stop[0]:
            break
        # A set's number is larger than those of all its subsets.
        here = least[s] + (weights[1] * sizes[s] * paces[s] if s else 0.0)
        if here >= least[total - 1]:
            continue
        for t in range(s + 1, total):
            inside = True
            for g in range(groups):
                inside &= digits[t, g] >= digits[s, g]
            if not inside:
                continue
            many = 0
            for k in range(n):
                if digits[s, group[k]] <= rank[k] < digits[t, group[k]]:
                    added[many], added_pace[many] = growth[k], leaf_pace[k]
                    many += 1
            cost = here + weights[0] * join_of_leaves(sizes[s], paces[s], added, added_pace, many)
            if cost < least[t]:
                least[t], before[t] = cost, s
    return least[total - 1], before

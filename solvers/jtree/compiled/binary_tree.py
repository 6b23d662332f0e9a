"""The binary join tree of least CPU, compiled.

Problem: of all trees of binary joins without cross products the cheapest, each state indexed or plain as is cheaper. Method: dynamic programming over
the pairs of connected sets that a predicate joins, each once (Moerkotte and Neumann 2006): the left half has the lowest stream of both and runs
through its list by rising size, from the highest lowest stream down, so that both halves are final when they meet.
Probe steps are left out: all binary trees have as many.
Guarantee: exact, in doubles; figures of a plan come from `CostModel.price`. Complexity: O(pairs), about 50 million a second.
`solvers.jtree.bjtree` is the same, plain, for few pairs.
"""

from __future__ import annotations

import numpy as np

from solvers.common.tolerances import ROUNDED
from solvers.jtree.compiled.compiling import Ints, making
from solvers.jtree.compiled.cost import Weights, side, weighted, weights_of
from solvers.jtree.compiled.sets import Sets, find, lowest, next_set, place_of
from solvers.jtree.compiled.tables import connected_sets
from solvers.jtree.search import Shape, both, tree_of_joins
from solvers.jtree.table_sizes import MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.tree import Tree

__all__ = ["best_binary_tree", "binary_splits", "members_as_rows"]

MAX_PAIRS = 50_000_000  # of halves of binary trees: about a second


@making
def greedy_binary_cpu(sets: Sets, weights: Weights) -> float:
    """The CPU of a binary tree that joins next whatever pair has the lowest rate: at least that of the best one."""
    masks, sizes, paces, around, equal_around = sets.mask, sets.size, sets.pace, sets.around, sets.equal_around
    keys, places, multiplier, shift = sets.keys, sets.places, sets.multiplier, sets.shift
    roots = np.arange(sets.n)
    cost = 0.0
    for count in range(sets.n, 1, -1):
        best, left, right, made = np.inf, -1, -1, -1
        for i in range(count):
            for j in range(i + 1, count):
                if around[roots[i]] & masks[roots[j]]:
                    both = find(keys, places, multiplier, shift, masks[roots[i]] | masks[roots[j]])
                    rate = sizes[both] * paces[both]
                    if rate < best or made < 0:
                        best, left, right, made = rate, i, j, both
        a, b = roots[left], roots[right]
        rate_a, rate_b = sizes[a] * paces[a], sizes[b] * paces[b]
        hashable = equal_around[a] & masks[b] != 0
        cost += side(rate_a, rate_b, sizes[a], hashable, weights)
        cost += side(rate_b, rate_a, sizes[b], hashable, weights)
        cost += weights.probe * (rate_a + rate_b) + weights.join * best
        roots[left] = made
        roots[right] = roots[count - 1]
    return cost


@making
def by_lowest(masks: Ints, n: int) -> tuple[Ints, Ints]:
    """The places of sets by their lowest streams, each list in the order of the table: stream k's is listed[starting[k] : starting[k + 1]]."""
    starting = np.zeros(n + 1, np.int64)
    for s in range(masks.size):
        starting[lowest(masks[s]) + 1] += 1
    for k in range(n):
        starting[k + 1] += starting[k]
    listed = np.empty(masks.size, np.int64)
    filled = starting.copy()
    for s in range(masks.size):
        low = lowest(masks[s])
        listed[filled[low]] = s
        filled[low] += 1
    return starting, listed


@making
def binary_splits(sets: Sets, weights: Weights, max_pairs: int) -> Ints:
    """For every connected set: that half of its cheapest binary tree which has its lowest stream, −1 for a stream. Empty beyond `max_pairs` pairs.

    Right for the sets of the best tree of all streams: sets that cost more by themselves than a greedy tree does are passed over.
    """
    # As locals: a field of a tuple that is read in a loop is counted as a reference each time.
    total, n = sets.mask.size, sets.n
    masks, sizes, paces, around, equal_around = sets.mask, sets.size, sets.pace, sets.around, sets.equal_around
    keys, places, multiplier, shift, neighbours = sets.keys, sets.places, sets.multiplier, sets.shift, sets.neighbours
    least = np.full(total, np.inf)
    least[:n] = 0.0
    split = np.full(total, -1, np.int64)
    starting, listed = by_lowest(masks, n)
    stack = np.empty((2 * n + 2, 3), np.int64)
    pairs = 0
    enough = greedy_binary_cpu(sets, weights) * ROUNDED
    if not enough < np.inf:
        enough = np.inf
    for low in range(n - 1, -1, -1):
        for listing in range(starting[low], starting[low + 1]):
            left = listed[listing]
            mask = masks[left]
            a = sizes[left] * paces[left]
            if mask & (mask - 1):
                least[left] += weighted(weights.join, a)
            if least[left] > enough:
                continue
            within = ((1 << n) - 1) & ~((1 << (low + 1)) - 1) & ~mask
            touching = around[left] & within
            while touching:
                first = lowest(touching)
                touching &= touching - 1
                stack[0, 0], stack[0, 1], stack[0, 2] = 1 << first, neighbours[first], ~within | (around[left] & ((1 << first) - 1))
                top = 1
                while top:
                    half = stack[top - 1, 0]
                    pairs += 1
                    if pairs > max_pairs:
                        return np.empty(0, np.int64)
                    right = find(keys, places, multiplier, shift, half)
                    both = find(keys, places, multiplier, shift, mask | half)
                    cost = least[left] + least[right]
                    if cost <= enough and (cost < least[both] or split[both] < 0):
                        b = sizes[right] * paces[right]
                        hashable = equal_around[left] & half != 0
                        cost += side(a, b, sizes[left], hashable, weights)
                        cost += side(b, a, sizes[right], hashable, weights)
                        cost += weighted(weights.probe, a + b)
                        if cost < least[both] or split[both] < 0:
                            least[both] = cost
                            split[both] = mask
                    top = next_set(stack, top, neighbours)
    return split


@making
def members_as_rows(split: Ints, sets: Sets) -> Ints:
    """The members of a binary tree given by its splits, by falling size, the whole first."""
    family = np.zeros(sets.n, np.int64)
    family[0] = (1 << sets.n) - 1
    count = 1
    place = 0
    while place < count:
        half = split[place_of(sets, family[place])]
        for part in (half, family[place] & ~half):
            if part & (part - 1):
                family[count] = part
                count += 1
        place += 1
    return family[:count].copy()


def best_binary_tree(model: CostModel, component: int, max_pairs: int = MAX_PAIRS, by_memory: bool = False, max_sets: int = MAX_SETS) -> Tree | None:
    """The binary join tree of a connected component with the least CPU, or memory. Exact; None where it takes more than `max_pairs` pairs."""
    sets = connected_sets(model, component, max_sets)
    if sets is None:
        return None
    if by_memory:
        # With bytes for pace, "making the results" of a set costs what keeping them takes, and nothing else costs anything.
        split = binary_splits(sets._replace(pace=sets.bytes), Weights(1.0, 0.0, 0.0, 0.0, 0.0, 0.0), max_pairs)
    else:
        split = binary_splits(sets, weights_of(model.costs), max_pairs)
    if split.size == 0:
        return None
    streams = list(bits(component))

    def named(mask: int) -> int:
        return sum(1 << streams[k] for k in bits(mask))

    shape: Shape = {}
    waiting = [(1 << sets.n) - 1] if sets.n > 1 else []
    while waiting:
        mask = waiting.pop()
        half = int(split[find(sets.keys, sets.places, sets.multiplier, sets.shift, mask)])
        shape[named(mask)] = named(half), named(mask & ~half)
        waiting += [part for part in (half, mask & ~half) if part & (part - 1)]
    return tree_of_joins(shape, both) if shape else streams[0]

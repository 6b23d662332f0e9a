"""Binary trees over the intervals of one order of the streams."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import numpy as np
import pytest

from solvers.jtree.compiled.cost import weights_of
from solvers.jtree.compiled.linearised import Intervals, best_intervals, from_to, linearised, sums_of
from solvers.model.tree import joins, leaf_mask
from tests.solvers.compiled.cases import SHAPES, Case, a_case, cases, close
from tests.solvers.reference import Blocks


def an_order(rng: random.Random, case: Case) -> list[int]:
    """The streams, each next to one before."""
    order = [rng.choice(case.streams)]
    visited = 1 << order[0]
    while len(order) < case.n:
        order.append(rng.choice([i for i in case.streams if case.reference.around(visited) >> i & 1]))
        visited |= 1 << order[-1]
    return order


def least_over(case: Case, order: Sequence[int], cpu_weight: float, memory_weight: float) -> float:
    """The least weighted sum of CPU and inner states' bytes of all trees whose joins cover intervals of the order."""
    reference, n = case.reference, len(order)
    masks = {(i, j): sum(1 << k for k in order[i : j + 1]) for i in range(n) for j in range(i, n)}
    best = {(i, i): 0.0 for i in range(n)}
    for length in range(2, n + 1):
        for i in range(n - length + 1):
            j = i + length - 1
            held = memory_weight * reference.state_bytes(masks[i, j]) if length < n else 0.0
            best[i, j] = math.inf
            for k in range(i, j):
                left, right = masks[i, k], masks[k + 1, j]
                if reference.around(left) & right:
                    cost = best[i, k] + best[k + 1, j] + held + (cpu_weight * reference.binary(left, right) if cpu_weight else 0.0)
                    best[i, j] = min(best[i, j], cost)
    return best[0, n - 1]


def assert_best(rng: random.Random, case: Case) -> None:
    order = an_order(rng, case)
    weights = rng.choice(((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (1.0, 10.0 ** rng.uniform(-12, -6))))
    tree = linearised(case.model, order, *weights)
    assert tree is not None and leaf_mask(tree) == case.component
    blocks: list[Blocks] = [tuple(leaf_mask(child) for child in node.inputs) for node in joins(tree)]
    places = {stream: k for k, stream in enumerate(order)}
    for halves in blocks:
        inside = sorted(places[i] for i in order if sum(halves) >> i & 1)
        assert len(halves) == 2 and inside == list(range(inside[0], inside[-1] + 1))
    found = weights[0] * case.reference.cpu(blocks) + weights[1] * case.reference.inner_bytes(blocks, case.component)
    assert close(found, least_over(case, order, *weights))


def test_best_intervals_are_split_where_their_best_tree_is() -> None:
    """From the contract's own figures of every interval."""
    for rng, case in cases(150, 2, 12, salt=96, fourteen=SHAPES):
        reference, order, n = case.reference, an_order(rng, case), case.n
        size, rate, held = (np.full((n, n), np.inf) for _ in range(3))
        joined, hashed = np.zeros((n, n), np.bool_), np.zeros((n, n), np.bool_)
        for i in range(n):
            for j in range(i, n):
                mask = sum(1 << k for k in order[i : j + 1])
                size[i, j], rate[i, j], held[i, j] = reference.size(mask), reference.rate(mask), reference.state_bytes(mask)
                joined[i, j], hashed[i, j] = (bool(near[order[i]] >> order[j] & 1) for near in (reference.near, reference.equal))
        split = best_intervals(Intervals(size, rate, held, joined, hashed), weights_of(reference.costs), 1.0, 0.0)
        waiting, blocks = [(0, n - 1)], list[Blocks]()
        while waiting:
            i, j = waiting.pop()
            if i < j:
                k = int(split[i, j])
                blocks.append((sum(1 << s for s in order[i : k + 1]), sum(1 << s for s in order[k + 1 : j + 1])))
                waiting += [(i, k), (k + 1, j)]
        assert close(reference.cpu(blocks), least_over(case, order, 1.0, 0.0))


def test_sums_of_and_from_to_count_the_flags_between_two_intervals() -> None:
    rng = random.Random(1)
    for _ in range(200):
        n = rng.randint(2, 9)
        flags = np.triu(np.array([[rng.random() < 0.4 for _ in range(n)] for _ in range(n)]), 1)
        i, j = sorted(rng.sample(range(n), 2))
        k = rng.randint(i, j - 1)
        sums = sums_of(flags)
        assert sums[i, j] == flags[:i, :j].sum()
        assert from_to(sums, i, k, j) == flags[i : k + 1, k + 1 : j + 1].sum()


def test_best_intervals_are_split_into_the_best_tree_over_an_order() -> None:
    for rng, case in cases(400, 2, 12, salt=95, fourteen=SHAPES):
        assert_best(rng, case)


@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_large_graphs_are_split_into_the_best_tree_over_an_order(shape: str) -> None:
    for seed in range(10):
        rng = random.Random(seed)
        assert_best(rng, a_case(rng, 14, shape))


def test_intervals_of_a_chain_in_its_own_order_hold_the_best_binary_tree() -> None:
    for seed in range(20):
        case = a_case(random.Random(seed), 12, "chain")
        ends = [i for i in case.streams if case.reference.near[i].bit_count() == 1]
        order, visited = [ends[0]], 1 << ends[0]
        while len(order) < case.n:
            order.append(case.reference.around(visited).bit_length() - 1)
            visited |= 1 << order[-1]
        tree = linearised(case.model, order)
        assert tree is not None
        blocks: list[Blocks] = [tuple(leaf_mask(child) for child in node.inputs) for node in joins(tree)]
        assert close(case.reference.cpu(blocks), case.reference.least_binary(case.leaves))

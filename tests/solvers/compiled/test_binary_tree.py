"""The compiled best binary tree and the best orders of the plain mjoin, against dynamic programs over the contract's own formulas."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from solvers.common.deadline import Deadline
from solvers.jtree.compiled.binary_tree import best_binary_tree, binary_splits, by_lowest, greedy_binary_cpu
from solvers.jtree.compiled.cost import Weights, side, weighted, weights_of
from solvers.jtree.compiled.orders import best_mjoin_orders
from solvers.model import operations as defined
from solvers.model.tree import Tree, joins, leaf_mask
from tests.solvers.compiled.cases import FEW_SETS, SHAPES, Case, a_case, any_costs, cases, close
from tests.solvers.reference import Blocks, positions

LARGEST = {"chain": 14, "star": 13, "cycle": 14, "snowflake": 14, "clique": 10, "random": 14}


def blocks_of(tree: Tree) -> list[Blocks]:
    return [tuple(leaf_mask(child) for child in node.inputs) for node in joins(tree)]


def assert_best_binary_tree(case: Case) -> None:
    reference, component = case.reference, case.component
    tree = best_binary_tree(case.model, component)
    assert tree is not None and leaf_mask(tree) == component and all(len(blocks) == 2 for blocks in blocks_of(tree))
    assert close(reference.cpu(blocks_of(tree)), reference.least_binary(case.leaves))
    smallest = best_binary_tree(case.model, component, by_memory=True)
    assert smallest is not None and leaf_mask(smallest) == component
    assert close(reference.inner_bytes(blocks_of(smallest), component), reference.least_binary(case.leaves, by_memory=True))


def test_binary_splits_are_the_best_tree_of_small_graphs() -> None:
    for _, case in cases(600, 2, 8, salt=10):
        assert_best_binary_tree(case)


@pytest.mark.parametrize("shape", SHAPES)
def test_binary_splits_are_the_best_tree_of_large_graphs(shape: str) -> None:
    """Sizes at which a search reports what this finds as proven."""
    for seed in range(4):
        n = LARGEST[shape]
        assert_best_binary_tree(a_case(random.Random(seed), n, shape))
        assert_best_binary_tree(a_case(random.Random(100 + seed), n, shape, parts=3))


def least_binary_of_clique(case: Case, by_memory: bool) -> float:
    """As `reference.least_binary` where any two sets join, over arrays: 2.4 million pairs of sets of 14 streams are too many for Python."""
    reference, costs, n = case.reference, case.model.costs, case.n
    every = range(1, 1 << n)
    rate, size = (np.array([0.0, *map(figure, every)]) for figure in (reference.rate, reference.size))
    equal = np.array([0, *map(reference.equal_around, every)])
    best = np.zeros(1 << n)
    for union in sorted((mask for mask in every if mask & (mask - 1)), key=int.bit_count):
        lowest = union & -union
        rest = np.array(positions(union & ~lowest))
        # Every half that has the lowest stream, the whole left out: one of each pair.
        chosen = np.arange((1 << len(rest)) - 1)
        left = lowest + ((chosen[:, None] >> np.arange(len(rest)) & 1) << rest).sum(axis=1)
        right = union - left
        own = np.full(len(left), reference.state_bytes(union) if union != (1 << n) - 1 else 0.0)
        if not by_memory:
            own = np.full(len(left), reference.rate(union) * costs.join + 2 * costs.step)
            for probed, probing in ((left, right), (right, left)):
                plain = rate[probed] * costs.append + rate[probing] * (costs.probe + costs.scan * size[probed])
                indexed = rate[probed] * (costs.insert + costs.delete) + rate[probing] * costs.probe
                own = own + np.where(equal[probing] & probed != 0, np.minimum(plain, indexed), plain)
        best[union] = (best[left] + best[right] + own).min()
    return float(best[-1])


@pytest.mark.parametrize("n", [8, 14])
def test_binary_splits_are_the_best_tree_of_large_cliques(n: int) -> None:
    case = a_case(random.Random(n), n, "clique")
    for by_memory in (False, True):
        tree = best_binary_tree(case.model, case.component, by_memory=by_memory)
        assert tree is not None
        blocks, wanted = blocks_of(tree), least_binary_of_clique(case, by_memory)
        assert close(case.reference.inner_bytes(blocks, case.component) if by_memory else case.reference.cpu(blocks), wanted)
        if n == 8:
            assert close(wanted, case.reference.least_binary(case.leaves, by_memory)), "the arrays say what the definition says"


@pytest.mark.parametrize("shape", SHAPES)
def test_binary_splits_end_with_the_pairs_they_may_look_at(shape: str) -> None:
    for seed in range(4):
        case = a_case(random.Random(seed), 7, shape)
        sets, weights = case.sets, weights_of(case.model.costs)
        pairs = case.reference.pairs(case.component)
        assert binary_splits(sets, weights, pairs).size == sets.mask.size
        # Sets that are dearer than a greedy tree are passed over, so fewer pairs may do; but no tree is found from none.
        assert binary_splits(sets, weights, 0).size == 0


def test_plain_and_compiled_best_binary_trees_cost_the_same() -> None:
    """The one that a small graph gets without loading any compiled code."""
    from solvers.jtree.bjtree import best_binary_tree as plain

    for _, case in cases(200, 2, 8, salt=11, fourteen=FEW_SETS):
        for by_memory in (False, True):
            tree, proven = plain(case.model, case.component, Deadline.after(60.0), by_memory)
            assert proven
            blocks = blocks_of(tree)
            found = case.reference.inner_bytes(blocks, case.component) if by_memory else case.reference.cpu(blocks)
            assert close(found, case.reference.least_binary(case.leaves, by_memory))


def test_greedy_binary_cpu_is_that_of_joining_the_slowest_pair_next_but_for_its_steps() -> None:
    for _, case in cases(300, 2, 14, salt=12):
        reference = case.reference
        blocks, wanted = case.leaves, 0.0
        while len(blocks) > 1:
            pairs = [(reference.rate(a | b), a, b) for a in blocks for b in blocks if a < b and reference.around(a) & b]
            rates = sorted(rate for rate, _, _ in pairs)
            if len(rates) > 1 and close(rates[0], rates[1]):
                break  # which of two equals comes first is for nobody to say
            _, a, b = min(pairs)
            wanted += reference.binary(a, b)
            blocks = [block for block in blocks if block not in (a, b)] + [a | b]
        found = greedy_binary_cpu(case.sets, weights_of(case.model.costs))
        found += 2 * (case.n - 1) * case.model.costs.step
        if len(blocks) == 1:
            assert close(found, wanted)
        if case.n <= 8:
            assert found >= reference.least_binary(case.leaves) * (1.0 - 1e-9)


def test_by_lowest_lists_every_set_under_its_lowest_stream_in_the_order_of_the_table() -> None:
    for _, case in cases(60, 2, 12, salt=17, fourteen=SHAPES):
        masks = case.sets.mask.tolist()
        starting, listed = by_lowest(case.sets.mask, case.n)
        for k in range(case.n):
            wanted = [s for s, mask in enumerate(masks) if positions(mask)[0] == k]
            assert listed[starting[k] : starting[k + 1]].tolist() == wanted


def test_weighted_makes_nothing_of_anything_that_weighs_nothing() -> None:
    assert weighted(0.0, math.inf) == 0.0
    assert weighted(2.0, 3.0) == 6.0


def test_side_is_the_cheaper_of_index_and_scan() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        kept, arriving, size, index, append, scan = (10.0 ** rng.uniform(-6, 6) * (rng.random() < 0.9) for _ in range(6))
        plain, indexed = kept * append + arriving * scan * size, kept * index
        weights = Weights(1.0, index, append, 1.0, scan, 1.0)
        assert close(side(kept, arriving, size, True, weights), min(plain, indexed))
        assert close(side(kept, arriving, size, False, weights), plain)
    assert side(math.inf, math.inf, 1e290, False, Weights(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)) == 0.0


def test_side_is_the_plain_one_but_for_its_probes() -> None:
    rng = random.Random(6)
    for _ in range(3000):
        kept, arriving, size = (10.0 ** rng.uniform(-6, 6) for _ in range(3))
        costs = any_costs(rng)
        plain = [defined.side(costs, indexed, kept, arriving, size) for indexed in (False, True)]
        for hashable in (False, True):
            found = side(kept, arriving, size, hashable, weights_of(costs)) + costs.probe * arriving
            assert close(found, min(plain) if hashable else plain[0])


def test_side_of_both_inputs_is_the_binary_join() -> None:
    for rng, case in cases(100, 2, 10, salt=13, fourteen=SHAPES):
        reference, costs = case.reference, case.model.costs
        for _ in range(10):
            left = rng.choice([mask for mask in case.masks if reference.around(mask)])
            right = rng.choice([mask for mask in case.masks if not mask & left and mask & reference.around(left)])
            hashable = bool(reference.equal_around(left) & right)
            rates = {mask: reference.rate(mask) for mask in (left, right, left | right)}
            sides = [side(rates[a], rates[b], reference.size(a), hashable, weights_of(costs)) for a, b in ((left, right), (right, left))]
            others = costs.probe * (rates[left] + rates[right]) + costs.join * rates[left | right] + 2 * costs.step
            assert close(sum(sides) + others, reference.binary(left, right))


def test_best_mjoin_orders_cost_what_the_best_pipelines_do() -> None:
    for _, case in cases(120, 3, 14, salt=14):
        reference, leaves = case.reference, case.leaves
        orders = best_mjoin_orders(case.model, case.component)
        assert orders is not None
        assert close(reference.along(leaves, orders), reference.keeping(leaves) + _pipelines(case))


def _pipelines(case: Case) -> float:
    """All pipelines of the plain mjoin in their best orders: what the reference's join costs, but for its states."""
    reference, leaves = case.reference, tuple(case.leaves)
    if len(leaves) > 2:
        return reference.join(leaves) - reference.keeping(leaves)
    return math.fsum(reference.pipeline(leaves, start, (1 - start,)) for start in range(2))


def test_the_reference_finds_the_best_orders_that_there_are() -> None:
    """Its table over unions against all permutations."""
    from itertools import permutations

    for _, case in cases(60, 3, 6, salt=16):
        reference, leaves = case.reference, case.leaves
        if len(leaves) < 3:
            continue
        every = range(len(leaves))
        best = [min(reference.pipeline(leaves, start, order) for order in permutations([k for k in every if k != start])) for start in every]
        assert close(reference.keeping(leaves) + math.fsum(best), reference.join(tuple(leaves)))
        assert positions(case.component) == [i for leaf in leaves for i in positions(leaf)]

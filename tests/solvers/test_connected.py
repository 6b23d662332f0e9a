"""The plain lists of connected sets, pairs and partitions, against all subsets."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from solvers.model.connected import connected_pairs, connected_sets, partitions
from tests.graphs import SHAPES, edges_of


def neighbours_of(n: int, shape: str) -> tuple[int, ...]:
    near = [0] * n
    rename = random.Random(n).sample(range(n), n)
    for a, b in edges_of(random.Random(n), n, shape):
        near[rename[a]] |= 1 << rename[b]
        near[rename[b]] |= 1 << rename[a]
    return tuple(near)


def is_connected(near: tuple[int, ...], mask: int) -> bool:
    seen = mask & -mask
    while True:
        grown = seen
        for i, around in enumerate(near):
            if seen >> i & 1:
                grown |= around & mask
        if grown == seen:
            return seen == mask
        seen = grown


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", range(2, 8))
def test_every_connected_set_of_a_stream_is_listed_once(shape: str, n: int) -> None:
    near = neighbours_of(n, shape)
    for i in range(n):
        for within in ((1 << n) - 1, (1 << n) - (1 << i)):
            wanted = [mask for mask in range(1, 1 << n) if mask >> i & 1 and mask & ~within == 0 and is_connected(near, mask)]
            assert sorted(connected_sets(near, 1 << i, within)) == wanted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", range(2, 8))
def test_every_pair_that_a_predicate_joins_is_listed_once(shape: str, n: int) -> None:
    near = neighbours_of(n, shape)
    sets = [mask for mask in range(1, 1 << n) if is_connected(near, mask)]
    wanted = {(a, b) for a in sets for b in sets if not a & b and a & -a < b & -b and is_connected(near, a | b)}
    found = list(connected_pairs(near, (1 << n) - 1))
    assert len(found) == len(wanted) and set(found) == wanted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n", range(2, 7))
def test_every_partition_is_listed_once_with_its_parts_by_their_lowest_streams(shape: str, n: int) -> None:
    near = neighbours_of(n, shape)
    whole = (1 << n) - 1
    sets = [mask for mask in range(1, whole) if is_connected(near, mask)]
    wanted = {tuple(sorted(some, key=lambda mask: mask & -mask)) for k in range(2, n + 1) for some in combinations(sets, k) if covers(some, whole)}
    found = list(partitions(near, whole))
    assert len(found) == len(wanted) and set(found) == wanted


def covers(parts: tuple[int, ...], whole: int) -> bool:
    """Whether they are disjoint and together the whole."""
    return sum(parts) == whole and all(not a & b for a, b in combinations(parts, 2))

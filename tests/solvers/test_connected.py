"""The plain lists of connected sets, pairs and partitions, against all subsets."""

from __future__ import annotations

import random
from collections.abc import Iterator

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
@pytest.mark.parametrize("n", range(2, 8))
def test_every_partition_is_listed_once_with_its_parts_by_their_lowest_streams(shape: str, n: int) -> None:
    near = neighbours_of(n, shape)
    whole = (1 << n) - 1
    wanted = {parts for parts in divisions(whole) if len(parts) > 1 and all(is_connected(near, part) for part in parts)}
    found = list(partitions(near, whole))
    assert len(found) == len(wanted) and set(found) == wanted


def divisions(whole: int) -> Iterator[tuple[int, ...]]:
    """All ways to divide a set into parts, connected or not: what goes with its lowest stream, and every division of the rest."""
    if not whole:
        yield ()
        return
    lowest = whole & -whole
    for more in range(whole + 1):
        if more & ~(whole ^ lowest) == 0:
            part = lowest | more
            for others in divisions(whole ^ part):
                yield part, *others

"""Connected sets, pairs and partitions, each exactly once: against trying all subsets."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from solvers.model.connected import connected_pairs, connected_sets, partitions, sets_within
from solvers.model.graph import JoinGraph, join_graph
from tests.graphs import SHAPES, random_graph


def graphs() -> list[JoinGraph]:
    rng = random.Random(0)
    return [join_graph(random_graph(rng, n, shape, shuffled=True)) for n in range(1, 7) for shape in SHAPES]


GRAPHS = graphs()


def all_connected(graph: JoinGraph, within: int) -> list[int]:
    return [mask for mask in range(1, within + 1) if mask & ~within == 0 and graph.connected(mask)]


def every_partition(items: list[int]) -> list[list[int]]:
    """All partitions of a list of bits, as lists of masks."""
    if not items:
        return [[]]
    first, *rest = items
    smaller = every_partition(rest)
    return [[first, *parts] for parts in smaller] + [[*parts[:k], parts[k] | first, *parts[k + 1 :]] for parts in smaller for k in range(len(parts))]


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_every_connected_set_is_given_once(graph: JoinGraph) -> None:
    assert sorted(sets_within(graph.neighbours, graph.all)) == all_connected(graph, graph.all)
    allowed = graph.all & ~(1 << len(graph) - 1) | 1
    found = list(connected_sets(graph.neighbours, 1, ~allowed))
    assert found[0] == 1 and sorted(found) == [mask for mask in all_connected(graph, allowed) if mask & 1]


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_every_pair_of_sets_that_a_predicate_joins_is_given_once(graph: JoinGraph) -> None:
    expected = [pair for pair in combinations(all_connected(graph, graph.all), 2) if not pair[0] & pair[1] and graph.connected(pair[0] | pair[1])]
    assert sorted(tuple(sorted(pair)) for pair in connected_pairs(graph.neighbours, graph.all)) == sorted(expected)


@pytest.mark.parametrize("graph", GRAPHS, ids=range(len(GRAPHS)))
def test_every_partition_into_connected_parts_is_given_once(graph: JoinGraph) -> None:
    bits = [1 << i for i in range(len(graph))]
    expected = [sorted(parts) for parts in every_partition(bits) if len(parts) > 1 and all(map(graph.connected, parts))]
    assert sorted(sorted(parts) for parts in partitions(graph.neighbours, graph.all)) == sorted(expected)

"""Tens of thousands of observed sets are handled all at once: the same as one by one."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from models.request import MAX_OBSERVED, Costs, Observed, PlanRequest, Query
from solvers.jtree.compiled.tables import connected_sets
from solvers.jtree.lower_bound import _shrinking, log2_floor
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph, bits, join_graph
from solvers.model.products import product
from tests.graphs import SHAPES, random_graph


def graphs(count: int) -> list[JoinGraph]:
    found = []
    for seed in range(count):
        rng = random.Random(seed)
        query = random_graph(rng, rng.randint(3, 8), rng.choice(SHAPES), observed=rng.choice((0.4, 0.7, 1.0)), parts=rng.choice((1, 2)))
        if query.observed:
            found.append(join_graph(query))
    return found


def one_by_one(graph: JoinGraph, mask: int) -> tuple[tuple[int, float], ...]:
    """Contract §2, word for word."""
    taken, free = [], mask
    for subset, selectivity in sorted(graph.observed, key=lambda entry: (-entry[0].bit_count(), sorted(graph.names[i] for i in bits(entry[0])))):
        if subset & ~free == 0:
            taken.append((subset, selectivity))
            free &= ~subset
    return tuple(taken)


def test_the_sets_that_stand_in_are_those_of_the_contract() -> None:
    for graph in graphs(60):
        for mask in range(1, graph.all + 1):
            assert graph.stand_ins(mask) == graph._stand_ins_of_many(mask) == one_by_one(graph, mask)


def test_sets_of_more_streams_than_a_machine_word_has_bits_are_compared_too() -> None:
    rng = random.Random(1)
    query = random_graph(rng, 150, "chain")
    sets = {tuple(sorted(rng.sample(range(150), 3))) for _ in range(300)}
    graph = join_graph(query.model_copy(update={"observed": [Observed(streams=[f"s{i}" for i in held], selectivity=0.5) for held in sorted(sets)]}))
    for _ in range(50):
        mask = rng.getrandbits(150)
        assert graph.stand_ins(mask) == one_by_one(graph, mask)


def test_tables_with_an_entry_for_every_set_have_the_sizes_of_the_graph() -> None:
    for graph in graphs(30):
        model = CostModel(graph, Costs())
        for part in graph.components:
            streams = list(bits(part))
            sets = connected_sets(model, part)
            assert sets is not None
            for mask, size in zip(sets.mask.tolist(), sets.size.tolist(), strict=True):
                assert size == pytest.approx(graph.size(sum(1 << streams[k] for k in bits(mask))), rel=1e-12, abs=1e-300)


def test_the_sets_that_shrink_their_join_are_found_all_at_once() -> None:
    for graph in graphs(60):
        for part in graph.components:
            expected = []
            for subset, selectivity in graph.observed:
                usual = product(edge.selectivity for edge in graph.edges if edge.mask & ~subset == 0)
                if subset & ~part == 0 and selectivity < usual:
                    before, after = log2_floor([usual, selectivity]).tolist()
                    expected.append((subset, before + 1 - after))
            assert _shrinking(graph, part) == expected


def test_as_many_sets_as_the_contract_says_are_taken() -> None:
    names = [f"s{i}" for i in range(17)]
    sets = [held for size in range(2, 18) for held in combinations(names, size)][:MAX_OBSERVED]
    assert len(sets) == 65_536
    query = random_graph(random.Random(1), 17, "chain").model_dump(mode="json")
    query["observed"] = [{"streams": list(held), "selectivity": 0.1} for held in sets]
    assert len(join_graph(PlanRequest.model_validate({"query": query}).query).observed) == 65_536
    assert Query.model_fields["observed"].metadata[0].max_length == 65_536

"""Connected sets, their table and their figures: each compiled function against the plain reference."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import Costs
from solvers.jtree.compiled.compiling import Floats, Ints
from solvers.jtree.compiled.cost import weights_of
from solvers.jtree.compiled.sets import MAX_BITS, Sets, find, hash_table, list_connected, lowest, next_set, place_of, popcount
from solvers.jtree.compiled.tables import (
    MOST_TABLED,
    MOST_TUPLES,
    Listed,
    Observed,
    Streams,
    by_streams,
    connected_sets,
    dear_first,
    figures,
    first_observed,
    observed_size,
    predicates_of,
    standing_in,
    tables,
    times,
)
from solvers.model.connected import connected_sets as plain_connected_sets
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.graphs import SHAPES, edges_of, random_graph
from tests.solvers.compiled.cases import a_query, cases, close, ints
from tests.solvers.reference import Reference, positions

ANY_SET = st.integers(1, (1 << MAX_BITS) - 1)


def neighbours_of(n: int, edges: list[tuple[int, int]]) -> list[int]:
    near = [0] * n
    for a, b in edges:
        near[a] |= 1 << b
        near[b] |= 1 << a
    return near


def connected_by_growing(near: list[int]) -> set[int]:
    """Every connected set, from single streams by one more at a time."""
    found = {1 << i for i in range(len(near))}
    waiting = list(found)
    while waiting:
        mask = waiting.pop()
        for i in positions(mask):
            for k in positions(near[i] & ~mask):
                if mask | 1 << k not in found:
                    found.add(mask | 1 << k)
                    waiting.append(mask | 1 << k)
    return found


@settings(deadline=None, max_examples=1000)
@given(ANY_SET)
def test_popcount_counts_streams(mask: int) -> None:
    assert popcount(mask) == mask.bit_count()


@settings(deadline=None, max_examples=1000)
@given(ANY_SET)
def test_lowest_is_the_lowest_stream(mask: int) -> None:
    assert lowest(mask) == positions(mask)[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_list_connected_has_every_connected_set_once(shape: str) -> None:
    for n in range(1, 15):
        edges = edges_of(random.Random(n), n, shape)
        rename = random.Random(n).sample(range(n), n)
        near = neighbours_of(n, [(rename[a], rename[b]) for a, b in edges])
        wanted = connected_by_growing(near)
        masks, last = list_connected(ints(near), 1 << 20)
        assert sorted(masks.tolist()) == sorted(wanted)
        counts = [mask.bit_count() for mask in masks.tolist()]
        assert counts == sorted(counts) and masks[:n].tolist() == [1 << i for i in range(n)]
        for mask, stream in zip(masks.tolist(), last.tolist(), strict=True):
            assert mask >> stream & 1 and (mask == 1 << stream or mask & ~(1 << stream) in wanted)


@pytest.mark.parametrize("shape", SHAPES)
def test_next_set_meets_the_connected_sets_in_the_order_of_the_plain_list(shape: str) -> None:
    """Each from one stream: a set before those that grow from it, where the plain one has it after."""
    for n in range(1, 10):
        near = neighbours_of(n, edges_of(random.Random(n), n, shape))
        for start in range(n):
            stack = np.empty((2 * n + 2, 3), np.int64)
            stack[0] = 1 << start, near[start], (1 << (start + 1)) - 1
            top, found = 1, list[int]()
            while top:
                found.append(int(stack[top - 1, 0]))
                top = next_set(stack, top, ints(near))
            assert sorted(found) == sorted(plain_connected_sets(near, 1 << start, (1 << n) - (1 << start)))


@pytest.mark.parametrize("shape", SHAPES)
def test_list_connected_is_empty_above_its_limit_and_whole_at_it(shape: str) -> None:
    for n in range(2, 9):
        near = neighbours_of(n, edges_of(random.Random(n), n, shape))
        many = len(connected_by_growing(near))
        assert list_connected(ints(near), many)[0].size == many
        for limit in (many - 1, many // 2, 1):
            assert list_connected(ints(near), limit)[0].size == 0


@pytest.mark.parametrize(
    ("n", "shape"), [(1, "chain"), (3, "star"), (8, "clique"), (12, "random"), (14, "cycle"), (14, "star"), (40, "chain"), (62, "cycle")]
)
def test_hash_table_and_find_know_every_connected_set_and_no_other(n: int, shape: str) -> None:
    rng = random.Random(n)
    near = neighbours_of(n, edges_of(rng, n, shape))
    masks, _ = list_connected(ints(near), 1 << 20)
    keys, places, multiplier, shift = hash_table(masks, n)
    for place, mask in enumerate(masks.tolist()):
        assert find(keys, places, multiplier, shift, mask) == place
    known = set(masks.tolist())
    others = [rng.randrange(1, 1 << n) for _ in range(2000)] if n > 10 else range(1, 1 << n)
    for mask in others:
        assert (find(keys, places, multiplier, shift, mask) >= 0) == (mask in known)


POSITIVE = st.floats(1e-290, 1e290)


@settings(deadline=None, max_examples=1000)
@given(st.floats(0.5, 1.0, exclude_max=True), st.integers(-5000, 5000), POSITIVE)
def test_times_multiplies_without_leaving_the_range(mantissa: float, exponent: int, factor: float) -> None:
    m, e = times(mantissa, exponent, factor)
    assert 0.5 <= m < 1.0
    exact = Fraction(mantissa) * Fraction(factor) * Fraction(2) ** exponent
    assert abs(Fraction(m) * Fraction(2) ** e / exact - 1) <= Fraction(1, 2**52)


def test_times_nothing_is_nothing() -> None:
    assert times(0.75, 40, 0.0)[0] == 0.0


def arrays_of(model: CostModel, component: int) -> tuple[Floats, Ints, Floats, Ints, Floats]:
    """A component as what makes up `tables` takes it: figures of its streams, ends and selectivities of predicates, observed sets and theirs."""
    graph, streams = model.graph, positions(component)
    place = {stream: k for k, stream in enumerate(streams)}
    figures = (graph.window_tuples, [1.0 / t for t in graph.window_seconds], graph.tuple_bytes, graph.rates)
    edges = [edge for edge in graph.edges if edge.left in place]
    observed = [(mask, selectivity) for mask, selectivity in graph.observed if mask & ~component == 0]
    return (
        np.array([figure[i] for figure in figures for i in streams]),
        ints(part for edge in edges for part in (place[edge.left], place[edge.right], edge.equality)),
        np.array([edge.selectivity for edge in edges]),
        ints(sum(1 << place[i] for i in positions(mask)) for mask, _ in observed),
        np.array([selectivity for _, selectivity in observed]),
    )


def assert_tables(sets: Sets, reference: Reference, streams: list[int]) -> None:
    """Every column against the reference."""

    def named(mask: int) -> int:
        return sum(1 << streams[k] for k in positions(mask))

    component = sum(1 << i for i in streams)
    assert sorted(named(mask) for mask in sets.mask.tolist()) == sorted(reference.connected_sets(component))
    for k, stream in enumerate(streams):
        assert sets.rates[k] == reference.rates[stream]
        assert named(int(sets.neighbours[k])) == reference.near[stream]
        assert named(int(sets.equal_neighbours[k])) == reference.equal[stream]
    for s, kernel in enumerate(sets.mask.tolist()):
        mask = named(kernel)
        assert close(sets.size[s], reference.size(mask))
        assert close(sets.pace[s], reference.per_second(mask))
        assert close(sets.bytes[s], reference.tuple_bytes(mask))
        assert named(int(sets.around[s])) == reference.around(mask)
        assert named(int(sets.equal_around[s])) & ~mask == reference.equal_around(mask)


def test_figures_and_by_streams_and_predicates_of_and_standing_in_and_observed_size_are_the_contracts() -> None:
    for _, case in cases(60, 2, 14, salt=3):
        reference, streams = case.reference, positions(case.component)
        place = {stream: k for k, stream in enumerate(streams)}

        def numbered(mask: int, place: dict[int, int] = place) -> int:
            return sum(1 << place[i] for i in positions(mask))

        tuples, ends, selectivities, observed, measured = arrays_of(case.model, case.component)
        predicates, near, equal = predicates_of(np.arange(case.n), ends, selectivities)
        for k, stream in enumerate(streams):
            assert near[k] == numbered(reference.near[stream]) and equal[k] == numbered(reference.equal[stream])
            own = predicates.edges_of[predicates.first_edge[k] : predicates.first_edge[k + 1]].tolist()
            assert own == [e for e, mask in enumerate(predicates.masks.tolist()) if mask >> k & 1]
        n = case.n
        own_figures = Streams(tuples[:n], tuples[n : 2 * n], tuples[2 * n : 3 * n], near, equal)
        masks, last = list_connected(near, 1 << 20)
        listed = Listed(masks, last, *hash_table(masks, n))
        found = figures(own_figures, predicates, Observed(observed, measured), listed)
        mantissas, exponents, *others = by_streams(own_figures, predicates, listed)
        assert all(np.array_equal(one, other) for one, other in zip(others, found[1:], strict=True))
        chosen = np.empty(n, np.int64)
        for s, kernel in enumerate(masks.tolist()):
            count = standing_in(observed, np.empty(0, np.int32), kernel, chosen)
            inside = observed[chosen[:count]].tolist()
            assert [numbered(mask) for mask, _ in case.model.graph.stand_ins(sum(1 << streams[k] for k in positions(kernel)))] == inside
            m, e = mantissas[s], exponents[s]
            if count:
                m, e = observed_size(own_figures, predicates, Observed(observed, measured), kernel, chosen, count)
            assert close(found[0][s], min(math.ldexp(m, int(e)), MOST_TUPLES))
        for kernel, size, pace, bytes_, around, equal_around in zip(masks.tolist(), *found, strict=True):
            mask = sum(1 << streams[k] for k in positions(kernel))
            assert close(size, reference.size(mask)) and close(pace, reference.per_second(mask)) and close(bytes_, reference.tuple_bytes(mask))
            assert around == numbered(reference.around(mask)) and int(equal_around) & ~kernel == numbered(reference.equal_around(mask))


def test_tables_hold_the_contracts_figures_in_whatever_order_streams_are_numbered() -> None:
    for rng, case in cases(60, 2, 14, salt=1):
        assert_tables(case.sets, case.reference, case.streams)
        streams = positions(case.component)
        for order in (None, ints(rng.sample(range(case.n), case.n))):
            sets = connected_sets(case.model, case.component, order=order)
            assert sets is not None
            assert_tables(sets, case.reference, [streams[k] for k in sets.order.tolist()])


def test_first_observed_is_the_first_observed_set_inside_every_set() -> None:
    rng = random.Random(5)
    for n in range(2, 8):
        observed = rng.sample(range(3, 1 << n), min(12, (1 << n) - 3))
        table = first_observed(ints(observed), n, 1 << 40)
        for mask in range(1 << n):
            assert table[mask] == next((o for o, inside in enumerate(observed) if inside & ~mask == 0), len(observed))
        assert first_observed(ints(observed), n, 0).size == 0  # where looking through them takes less


def test_place_of_a_set_is_where_it_stands_in_the_table() -> None:
    for _, case in cases(20, 2, 10, salt=4, fourteen=SHAPES):
        for s, mask in enumerate(case.sets.mask.tolist()):
            assert place_of(case.sets, mask) == s


def test_figures_beyond_a_double_stop_at_the_largest() -> None:
    query = random_graph(random.Random(1), 4, "chain", rates=(1e100, 1e101), log_selectivity=(-1e-9, 0.0))
    sets = connected_sets(CostModel(join_graph(query), Costs()), 15)
    assert sets is not None
    sizes = {int(mask): float(size) for mask, size in zip(sets.mask, sets.size, strict=True)}
    assert sizes[0b1111] == sizes[0b111] == MOST_TUPLES and math.isfinite(sizes[0b11]) and sizes[0b11] > 1e200


def test_tables_are_empty_above_the_limit_and_follow_the_order_given() -> None:
    query = a_query(random.Random(3), 6, "cycle")
    model = CostModel(join_graph(query), Costs())
    many = len(Reference(query, Costs()).connected_sets(63))
    assert connected_sets(model, 63, many - 1) is None
    sets = connected_sets(model, 63, many)
    assert sets is not None and sets.order.tolist() == list(range(6))
    order = ints([5, 3, 1, 0, 2, 4])
    of_streams, ends, selectivities, observed, measured = arrays_of(model, 63)
    made, _ = tables(order, of_streams, ends, observed, np.concatenate([selectivities, measured]), 1 << 20, weights_of(model.costs))
    assert_tables(made, Reference(query, Costs()), order.tolist())


def test_dear_first_lists_streams_by_their_cheapest_pair_the_dearest_first() -> None:
    for _, case in cases(60, 2, 14, salt=2):
        reference = case.reference
        pace = [1.0 / t for t in reference.seconds]
        cheapest = {i: min(reference.size(1 << i | 1 << k) * pace[i] for k in positions(reference.near[i])) for i in positions(case.component)}
        assert sorted(case.streams) == positions(case.component)
        for a, b in zip(case.streams, case.streams[1:], strict=False):
            assert cheapest[a] >= cheapest[b] * (1.0 - 1e-9)
        streams, ends, selectivities, observed, measured = arrays_of(case.model, case.component)
        found = dear_first(streams[: case.n], streams[case.n : 2 * case.n], ends, selectivities, observed, measured)
        assert [positions(case.component)[k] for k in found.tolist()] == case.streams


def test_first_observed_is_the_first_of_the_list_that_lies_in_a_set() -> None:
    for seed in range(30):
        graph = join_graph(random_graph(random.Random(seed), 3 + seed % 6, "random", observed=0.5))
        masks = np.array([mask for mask, _ in graph.observed], np.int64)
        table = first_observed(masks, len(graph), 1 << 40)
        for mask in range(graph.all + 1):
            inside = [o for o, (subset, _) in enumerate(graph.observed) if subset & ~mask == 0]
            assert table[mask] == min(inside, default=len(graph.observed))
        assert first_observed(masks, MOST_TABLED + 1, 1 << 40).size == 0

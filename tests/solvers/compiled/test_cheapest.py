"""The search by rising cost, piece by piece, against plain figures of the model."""

from __future__ import annotations

import math
import random
from itertools import combinations

import numpy as np
import pytest

from models.request import Costs
from solvers.jtree.cheapest_first import streams_of
from solvers.jtree.compiled.cheapest import cheapest_first, pairs_with
from solvers.jtree.compiled.families import (
    DONE,
    Family,
    add_block,
    branch,
    candidates,
    family_room,
    joins_with,
    least_of_family,
    list_usable,
    most_wanted,
    price,
    unions_of_family,
    ways_out,
)
from solvers.jtree.compiled.kept import (
    COUNT,
    HEAPED,
    TAKEN,
    WORD,
    Kept,
    Streams,
    as_input,
    between,
    is_all,
    keeping,
    kept_cost,
    note,
    offer,
    place_of_set,
    pop,
    push,
    room_of,
    share,
    smallest_beside,
    start,
)
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.shape import excess_of, shape_of
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.probe_order import best_join
from tests.graphs import random_graph
from tests.solvers.compiled.cases import ints

ROOM = 4_000


def a_ledger(seed: int, n: int, theta: float = 0.0, shape: str = "random") -> Ledger:
    query = random_graph(random.Random(seed), n, shape, windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0), theta=theta)
    return Ledger(CostModel(join_graph(query), Costs(probe=1e-7, step=1e-6)))


def all_taken(ledger: Ledger) -> tuple[Kept, Streams, Family]:
    """The streams alone, each taken."""
    streams = streams_of(ledger)
    kept, family = room_of(ROOM, streams.near.shape[1]), family_room(ROOM, streams.near.shape[1])
    start(kept, streams)
    for i in range(streams.tuples.size):
        kept.taken[i] = True
        kept.order[i] = i
        kept.own[i] = as_input(kept, streams, i)
    kept.counts[TAKEN] = streams.tuples.size
    return kept, streams, family


def row(mask: int, words: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return ints(mask >> WORD * w & (1 << WORD) - 1 for w in range(words))


def test_push_and_pop_give_the_least_first_and_of_equals_the_first() -> None:
    rng = random.Random(1)
    heap, cost = np.empty(100, np.int64), np.empty(100)
    items = [(rng.choice((1.0, 2.0, 3.0)), k) for k in range(100)]
    for many, (value, item) in enumerate(items):
        push(heap, cost, many, item, value)
    popped = []
    for many in range(100, 0, -1):
        popped.append((float(cost[0]), int(heap[0])))
        pop(heap, cost, many)
    assert popped == sorted(items)


@pytest.mark.parametrize("n", [7, 70, 130])
def test_room_of_and_start_and_place_of_set_and_is_all_know_the_streams(n: int) -> None:
    ledger = a_ledger(1, n)
    streams = streams_of(ledger)
    words = streams.near.shape[1]
    kept = room_of(ROOM, words)
    start(kept, streams)
    assert kept.counts[COUNT] == kept.counts[HEAPED] == n
    for i in range(n):
        assert place_of_set(kept, row(1 << i, words)) == i
        assert kept.size[i] == ledger.size(1 << i)
    assert place_of_set(kept, row(3, words)) < 0
    assert is_all(streams, row(ledger.model.graph.all, words))
    assert not is_all(streams, row(ledger.model.graph.all & ~(1 << (n - 1)), words))


@pytest.mark.parametrize("n", [7, 70])
def test_between_and_offer_make_sets_with_the_figures_of_the_model(n: int) -> None:
    ledger = a_ledger(2, n)
    graph = ledger.model.graph
    kept, streams, _ = all_taken(ledger)
    edge = graph.edges[-1]
    a, b = edge.left, edge.right
    mask = 1 << a | 1 << b
    joined = kept.size[a] * kept.size[b] * between(streams, kept.mask, a, b)
    assert joined == pytest.approx(ledger.size(mask), rel=1e-12)
    whole = row(mask, streams.near.shape[1])
    assert offer(kept, ints((a, b)), 2, whole, joined, 2.0)
    assert offer(kept, ints((b, a)), 2, whole, joined, 1.0)  # a better way
    assert offer(kept, ints((a, b)), 2, whole, joined, 3.0)  # a worse one
    place = place_of_set(kept, whole)
    assert kept.least[place] == 1.0
    assert kept.lists[kept.made_of[place] : kept.made_of[place] + 3].tolist() == [2, b, a]
    assert sum(int(word) << WORD * w for w, word in enumerate(kept.around[place])) == graph.around(mask)
    assert kept.pace[place] == pytest.approx(ledger.model.per_second(mask), rel=1e-12)


def test_share_sees_a_stream_in_any_word() -> None:
    sets = np.array([[1, 0, 0], [2, 0, 4], [0, 8, 4], [0, 0, 0]], np.int64)
    for a in range(4):
        for b in range(4):
            assert share(sets, a, sets, b) == any(int(x) & int(y) for x, y in zip(sets[a], sets[b], strict=True))


def test_note_and_smallest_beside_keep_what_is_smaller_by_cost() -> None:
    kept, _, _ = all_taken(a_ledger(3, 5))
    for cost, size in ((0.0, 9.0), (1.0, 10.0), (2.0, 5.0), (2.0, 4.0), (3.0, 1.0)):
        assert note(kept, 0, cost, size)
    assert [smallest_beside(kept, 0, cost) for cost in (-1.0, 0.0, 1.5, 2.0, 2.9, 3.0)] == [math.inf, 9.0, 9.0, 4.0, 4.0, 1.0]


@pytest.mark.parametrize("theta", [0.0, 1.0])
def test_keeping_and_as_input_and_kept_cost_are_at_most_what_joins_pay(theta: float) -> None:
    ledger = a_ledger(4, 6, theta)
    kept, streams, _ = all_taken(ledger)
    weights, graph = ledger.weights, ledger.model.graph
    for i in range(6):
        plain = any(not edge.equality for edge in graph.edges if i in (edge.left, edge.right))
        keep = min(weights.indexed, weights.append) if plain else weights.indexed
        assert keeping(kept, streams, i) <= weights.indexed
        if not plain:
            assert keeping(kept, streams, i) == keep
        assert as_input(kept, streams, i) == pytest.approx((keeping(kept, streams, i) + weights.probe) * graph.rates[i], rel=1e-12)
    assert kept_cost(streams, row(3, 1), 10.0) == pytest.approx(10.0 * (weights.join + ledger.base))
    assert kept_cost(streams, row(graph.all, 1), 10.0) == 0.0


@pytest.mark.parametrize("seed", range(6))
def test_pairs_with_finds_every_join_of_two(seed: int) -> None:
    ledger = a_ledger(seed, 7, theta=0.3)
    graph = ledger.model.graph
    kept, streams, _ = all_taken(ledger)
    kept.counts[TAKEN] = 6
    assert pairs_with(kept, streams, 6, math.inf)
    for i in range(6):
        place = place_of_set(kept, row(1 << i | 1 << 6, 1))
        if graph.neighbours[6] >> i & 1:
            masks = (1 << i, 1 << 6)
            assert kept.least[place] == pytest.approx(ledger.join(masks)[0] + ledger.kept(sum(masks)), rel=1e-12)
        else:
            assert place < 0


@pytest.mark.parametrize("seed", range(6))
def test_family_room_and_add_block_and_unions_of_family_and_price_have_the_cost_of_joins_of_streams(seed: int) -> None:
    ledger = a_ledger(seed, 6, theta=0.3 * (seed % 2))
    model = ledger.model
    kept, streams, family = all_taken(ledger)
    for m in (3, 4, 5, 6):
        for chosen in combinations(range(6), m):
            masks = tuple(1 << i for i in chosen)
            if not model.graph.connected(sum(masks)):
                continue
            for k, i in enumerate(chosen):
                add_block(kept, streams, family, k, i, 0)
            unions_of_family(family, m)
            assert family.sizes[(1 << m) - 1] == pytest.approx(ledger.size(sum(masks)), rel=1e-12)
            assert price(kept, streams, family, m, math.inf)
            paid = sum(ledger.base * model.rate(mask) for mask in masks) + model.costs.join * model.rate(sum(masks))
            paid += 2 * (m - 1) * model.costs.step
            kept_output = ledger.kept(sum(masks)) if sum(masks) != model.graph.all else 0.0
            found = kept.least[place_of_set(kept, row(sum(masks), 1))]
            assert found - kept_output + paid == pytest.approx(best_join(model, masks).cpu, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_candidates_and_list_usable_and_ways_out_and_least_of_family_are_below_every_larger_join(seed: int) -> None:
    ledger = a_ledger(seed, 7)
    kept, streams, family = all_taken(ledger)
    for i in range(7):
        kept.counts[TAKEN] = i
        assert pairs_with(kept, streams, i, math.inf)
    made = streams.weights.join + streams.weights.probe
    kept.counts[TAKEN] = 6
    many = candidates(kept, streams, family, 6, 1e9)
    assert sorted(family.listed[:many].tolist()) == list(range(6))
    for second in range(6):
        if not ledger.model.graph.neighbours[6] >> second & 1:
            continue
        add_block(kept, streams, family, 0, 6, many)
        assert list_usable(kept, family, 1, many, 1e9, made)
        add_block(kept, streams, family, 1, second, many)
        assert list_usable(kept, family, 2, many, 1e9, made)
        unions_of_family(family, 2)
        ways_out(kept, family, 2, many)
        least = least_of_family(kept, family, 2, made)
        wanted = most_wanted(kept, family, 2, many)
        assert wanted == -1 or family.usable[wanted]
        for others in (c for size in (1, 2, 3) for c in combinations([i for i in range(6) if i != second], size)):
            masks = tuple(1 << i for i in sorted((6, second, *others)))
            if ledger.model.graph.connected(sum(masks)):
                assert least <= ledger.join(masks)[0] * (1.0 + 1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_joins_with_and_branch_and_price_and_most_wanted_meet_every_join_of_streams(seed: int) -> None:
    ledger = a_ledger(seed, 7, theta=0.3 * (seed % 2))
    graph = ledger.model.graph
    kept, streams, family = all_taken(ledger)
    for i in range(7):
        kept.counts[TAKEN] = i
        assert pairs_with(kept, streams, i, 1e9)
        assert joins_with(kept, streams, family, i, 1e9, ints((0, 1 << 40))) == DONE
    assert not family.out.any()
    for m in range(3, 8):
        for chosen in combinations(range(7), m):
            masks = tuple(1 << i for i in chosen)
            whole = sum(masks)
            if graph.connected(whole):
                place = place_of_set(kept, row(whole, 1))
                wanted = ledger.join(masks)[0] + (ledger.kept(whole) if whole != graph.all else 0.0)
                assert kept.least[place] == pytest.approx(wanted, rel=1e-9)
    assert price(kept, streams, family, 3, 0.0)  # nothing is within a limit of nothing: nothing to make room for
    family.blocks_at[1] = 1
    branch(kept, streams, family, 1, 0, 1e9)
    assert family.about[1] == -1  # without candidates there is nothing to branch on


def test_cheapest_first_ends_at_its_work_with_a_lower_bound_that_rises() -> None:
    ledger = a_ledger(5, 14)
    streams = streams_of(ledger)
    limit = excess_of(ledger, shape_of(greedy_plan(ledger.model)))

    def search(within: float, stop: int, work: int) -> tuple[int, float]:
        return cheapest_first(room_of(100_000, 1), streams, family_room(100_000, 1), within, ints((stop, work)))

    ended = [search(limit, 0, work) for work in (100, 1_000, 10_000, 10_000_000)]
    bounds = [bound for _, bound in ended]
    assert ended[-1][0] == DONE
    assert ended[0][0] != DONE
    assert bounds == sorted(bounds)
    assert bounds[-1] <= limit
    assert search(0.9 * bounds[-1], 0, 1 << 40) == (DONE, 0.9 * bounds[-1])
    assert search(limit, 1, 1 << 40)[0] != DONE

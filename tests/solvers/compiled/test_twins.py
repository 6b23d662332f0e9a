"""Each piece of maths has one plain definition in solvers/model and one compiled twin: the two agree on thousands of random inputs.

The other tests of this folder hold compiled functions against `tests.solvers.reference`, which shares no code with either.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.request import Costs
from solvers.jtree.cheapest_first import streams_of
from solvers.jtree.compiled.cost import binary_excess, pair_excess, stepping, weights_of
from solvers.jtree.compiled.families import add_block, family_room, price
from solvers.jtree.compiled.kept import as_input, offer, place_of_set, room_of, start
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.orders import best_mjoin_orders, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.sets import list_connected
from solvers.jtree.compiled.staircase import dominated, insert, room_for
from solvers.jtree.compiled.unions import greedy, join_of_unions, order_scratch
from solvers.model import operations
from solvers.model.connected import connected_sets
from solvers.model.graph import bits
from solvers.model.probe_order import _blocks, _greedy, best_join, best_orders
from solvers.model.staircase import undominated
from tests.solvers.compiled.cases import SHAPES, Case, cases, close, divided, ints
from tests.solvers.reference import Blocks

MANY = 2000  # inputs of each comparison, at least


def joins(count: int, least: int, salt: int, per_case: int = 6) -> list[tuple[Case, Blocks]]:
    """Joins of random inputs: streams, and sets that are joined below already."""
    found = []
    for rng, case in cases(count, least, 9, salt, fourteen=SHAPES):
        wide = [mask for mask in case.masks if mask.bit_count() >= least]
        for _ in range(per_case if wide else 0):
            blocks = divided(rng, case.reference, rng.choice(wide), 7)
            if len(blocks) >= least:
                found.append((case, blocks))
    return found


def test_the_size_rate_and_bytes_of_every_set_are_the_same() -> None:
    compared = 0
    for _, case in cases(60, 2, 10, salt=201, fourteen=SHAPES):
        model = case.model
        for s, mask in enumerate(case.masks):
            compared += 1
            assert close(float(case.sets.size[s]), model.size(mask))
            assert close(float(case.sets.size[s] * case.sets.pace[s]), model.rate(mask))
            assert close(float(case.sets.bytes[s]), model.tuple_bytes(mask))
    assert compared >= MANY


def test_the_connected_sets_are_the_same() -> None:
    compared = 0
    for _, case in cases(60, 2, 10, salt=202, fourteen=SHAPES):
        near = [int(mask) for mask in case.sets.neighbours]
        wanted = [mask for i in range(case.n) for mask in connected_sets(near, 1 << i, (1 << case.n) - (1 << i))]
        found, _ = list_connected(case.sets.neighbours, 1 << 20)
        assert sorted(found.tolist()) == sorted(wanted)
        compared += len(wanted)
    assert compared >= MANY


def test_a_binary_join_costs_the_same() -> None:
    compared = 0
    for rng, case in cases(300, 2, 10, salt=203, fourteen=SHAPES):
        for _ in range(8):
            left, right = divided(rng, case.reference, rng.choice(case.masks[case.n :]), 2)
            compared += 1
            found = binary_excess(case.sets, case.prices, case.place(left), case.place(right))
            case.assert_excess(found, (left, right), case.model.price_join((left, right), ((1,), (0,))).cpu)
    assert compared >= MANY


def test_stepping_is_what_a_joins_probes_cost_beyond_those_of_binary_joins() -> None:
    costs = Costs(step=3e-4)
    for m in range(2, 200):
        more = operations.probe_steps(m) - (m - 1) * operations.probe_steps(2)
        assert stepping(weights_of(costs), m) == pytest.approx(operations.stepping(costs, more))
        assert stepping(weights_of(Costs()), m) == 0.0


def test_an_mjoin_costs_the_same_by_each_compiled_pass() -> None:
    compared = joins(700, 3, salt=204)
    for case, blocks in compared:
        m, places, whole, scratch = len(blocks), case.places(blocks), case.numbered(sum(blocks)), scratch_for(len(blocks))
        wanted = best_join(case.model, blocks).cpu
        case.assert_excess(mjoin_excess(case.sets, case.prices, places, m, whole, scratch.unlimited, scratch), blocks, wanted)
        case.assert_excess(wide_mjoin_excess(case.sets, case.prices, places, m, whole, np.empty(case.sets.mask.size)), blocks, wanted)
    assert len(compared) >= MANY


def test_a_join_of_unions_costs_the_same_and_has_orders_as_good() -> None:
    compared = joins(500, 2, salt=205)
    for case, blocks in compared:
        model, ledger, m = case.model, Ledger(case.model), len(blocks)
        best = best_join(model, blocks)
        excess = join_of_unions(ints(1 << k for k in range(m)), m, ledger.unions(blocks), ledger.weights, order_scratch(m))
        paid = sum(ledger.base * model.rate(block) for block in blocks) + model.costs.join * model.rate(sum(blocks))
        paid += 2 * (m - 1) * model.costs.step
        assert close(excess + paid, best.cpu)
        assert close(model.price_join(blocks, ledger.join(blocks)[1]).cpu, best.cpu)
    assert len(compared) >= MANY


def test_pair_excess_and_price_of_a_family_cost_the_same() -> None:
    """The search by rising cost has sets as rows of words, met one by one: what it makes of their joins is the definition's."""
    compared = 0
    for case, blocks in joins(700, 2, salt=208):
        model, ledger, m = case.model, Ledger(case.model), len(blocks)
        if model.graph.observed:
            continue
        compared += 1
        streams, kept = streams_of(ledger), room_of(64, 1)
        start(kept, streams)
        places = []
        for block in blocks:
            below = ints(bits(block))
            if below.size > 1:
                offer(kept, below, below.size, ints([block]), ledger.size(block), 0.0)
            places.append(place_of_set(kept, ints([block])))
            kept.own[places[-1]] = as_input(kept, streams, places[-1])
        paid = sum(ledger.base * model.rate(block) for block in blocks) + model.costs.join * model.rate(sum(blocks))
        paid += 2 * (m - 1) * model.costs.step
        output = ledger.kept(sum(blocks)) if sum(blocks) != model.graph.all else 0.0
        if m == 2:
            a, b = places
            hashable = model.graph.hashable(*blocks)
            found = pair_excess(kept.size[a], kept.pace[a], kept.size[b], kept.pace[b], hashable, ledger.weights)
        else:
            family = family_room(64, 1)
            for k, place in enumerate(places):
                add_block(kept, streams, family, k, place, 0)
            assert price(kept, streams, family, m, np.inf)
            found = kept.least[place_of_set(kept, ints([sum(blocks)]))] - output
        assert close(found + paid, best_join(model, blocks).cpu, scale=output)
    assert compared >= MANY


def test_greedy_orders_cost_the_same() -> None:
    """Of two steps that cost the same but for rounding either may come first: then the orders differ, and so may all that follows."""
    compared = alike = 0
    for case, blocks in joins(500, 3, salt=206):
        ledger = Ledger(case.model)
        if not ledger._independent(blocks):
            continue
        _, found = greedy(*ledger._arrays(blocks), ledger._between(blocks), ledger.weights)
        plain = _blocks(case.model, blocks)
        compared += 1
        alike += [tuple(order) for order in found.tolist()] == [_greedy(plain, start) for start in range(len(blocks))]
    assert alike > 0.95 * compared and compared >= MANY // 2


def test_the_best_orders_of_a_plain_mjoin_cost_the_same() -> None:
    compared = 0
    for _, case in cases(400, 3, 9, salt=207, fourteen=SHAPES):
        leaves = case.leaves
        found, (wanted, proven) = best_mjoin_orders(case.model, case.component), best_orders(case.model, leaves)
        assert found is not None and proven
        compared += len(leaves)  # orders, one per stream
        assert close(case.model.price_join(leaves, found).cpu, case.model.price_join(leaves, wanted).cpu)
    assert compared >= MANY // 2


@pytest.mark.parametrize("largest", [4, 30, 1000])
def test_a_staircase_keeps_the_same_points(largest: int) -> None:
    """Few values make ties, many make long staircases."""
    rng = random.Random(largest)
    for _ in range(MANY):
        points = [(float(rng.randint(0, largest)), float(rng.randint(0, largest)), rng.randint(1, 3)) for _ in range(rng.randint(1, 25))]
        steps, count = room_for(32), 0
        for k, (e, m, o) in enumerate(points):
            if not dominated(steps.e, steps.m, steps.o, count, e, m, o):
                count = insert(steps, count, e, m, o, k)
        kept = [points[row] for row in steps.row[:count].tolist()]
        assert kept == undominated(points, lambda point: point[:2], lambda point: point[2])

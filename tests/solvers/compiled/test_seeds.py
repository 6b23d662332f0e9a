"""What joins cost above what every plan pays, best probe orders, staircases as arrays, and the plans to start from."""

from __future__ import annotations

import bisect
import math
import random

import numpy as np
import pytest
from numpy.typing import NDArray

from models.request import Costs, Query
from solvers.jtree.compiled.binary_tree import binary_splits, members_as_rows
from solvers.jtree.compiled.cost import (
    access_excess,
    binary_excess,
    keeping_in_mjoin,
    kept_bytes,
    kept_excess,
    rounded,
    scanning,
    stream_floors,
    weights_of,
)
from solvers.jtree.compiled.orders import EXACT_INPUTS, follow, greedy_excess, join_excess, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.seeds import (
    ADDING,
    COUNT,
    ONE_DESCENT,
    ONE_PLAN,
    REMOVING,
    SPREADING,
    USED,
    Plan,
    Pool,
    by_falling_size,
    descend,
    inputs_of,
    joined_first,
    next_to_expand,
    plan_figures,
    seeds,
    step_ratio,
    take,
    try_neighbours,
    with_change,
    without,
)
from solvers.jtree.compiled.sets import Sets
from solvers.jtree.compiled.staircase import cheaper, dominated, insert, is_full, room_for, up_to
from solvers.jtree.compiled.tables import connected_sets
from solvers.jtree.component import component_of
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.solvers.compiled.cases import FEW_SETS, SHAPES, Case, a_case, a_tree, cases, close, divided, going_on, ints
from tests.solvers.reference import Blocks, Reference

WIDEST = 14


def a_join(rng: random.Random, case: Case, least: int = 2, most: int = WIDEST) -> Blocks:
    """A connected set with more than one stream, divided; of three inputs or more where asked for and there are so many streams."""
    wide = [mask for mask in case.masks if mask.bit_count() >= least]
    while True:
        blocks = divided(rng, case.reference, rng.choice(wide), most)
        if len(blocks) >= least:
            return blocks


def a_pair(rng: random.Random, case: Case) -> tuple[int, int]:
    left, right = divided(rng, case.reference, rng.choice(case.masks[case.n :]), 2)
    return (left, right) if rng.random() < 0.5 else (right, left)


# What everybody pays


def test_stream_floors_are_what_keeping_a_stream_costs_at_least_wherever_it_is_joined() -> None:
    for _, case in cases(150, 2, 9, salt=20, fourteen=SHAPES):
        reference, costs = case.reference, case.model.costs
        unprobed = Reference(case.query, costs.model_copy(update={"probe": 0.0}))
        floors = stream_floors(case.sets, weights_of(costs))
        least = min(reference.index, costs.append)
        for k, stream in enumerate(case.streams):
            rate, own = reference.rates[stream], 1 << stream
            ways = [unprobed.side(own, other) for other in case.masks if other & reference.around(own) and not other & own]
            for whole in case.masks:
                if whole & own and whole.bit_count() > 2:
                    ways.append(rate * (reference.index if reference.equal_around(own) & whole else costs.append))
            assert rate * least * (1.0 - 1e-12) <= floors[k] <= min(ways) * (1.0 + 1e-12)
            if not reference.near[stream] & ~reference.equal[stream] and reference.index >= costs.append:
                assert close(floors[k], min(ways))  # with equalities all around, some join keeps it for just that


def test_rounded_is_the_nearest_multiple_of_the_grain() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        grain = 2.0 ** rng.randint(-60, 10)
        value = rng.uniform(0.0, 1e6) * grain
        result = rounded(value, grain)
        assert (result / grain).is_integer() and abs(result - value) <= grain / 2
        assert rounded(value, 0.0) == value


def test_kept_excess_and_kept_bytes_are_what_an_inner_join_adds_to_its_plan() -> None:
    for _, case in cases(60, 2, 14, salt=21):
        reference, prices = case.reference, case.prices
        for s in range(case.n, len(case.masks)):
            mask = case.masks[s]
            added = (reference.costs.join + reference.costs.probe + prices.keep) * reference.rate(mask)
            assert math.isclose(kept_excess(case.sets, prices, s), added, rel_tol=1e-9, abs_tol=prices.grain)
            assert math.isclose(kept_bytes(case.sets, prices, s), reference.state_bytes(mask), rel_tol=1e-9, abs_tol=prices.grain_bytes)


# One join


def test_access_excess_is_one_side_of_a_binary_join_above_the_states_floor() -> None:
    for rng, case in cases(200, 2, 14, salt=22):
        for _ in range(10):
            kept, arriving = a_pair(rng, case)
            found = access_excess(case.sets, case.prices, case.place(kept), case.place(arriving))
            wanted = case.reference.side(kept, arriving)
            probes = case.reference.costs.probe * case.reference.rate(arriving)
            assert found >= 0.0 and close(found + case.floor(kept) + probes, wanted, wanted)


def test_access_excess_keeps_the_choices_of_other_rates() -> None:
    """At other rates the states of a plan stay indexed or plain as they are."""
    for rng, case in cases(150, 2, 9, salt=23, fourteen=SHAPES):
        factor = 10.0 ** rng.uniform(-3, 3)
        scaled = CostModel(case.model.graph.scaled(factor), case.model.costs, case.model)
        sets = connected_sets(scaled, case.component, order=case.sets.order)
        assert sets is not None
        costs = scaled.costs
        prices = case.prices._replace(floors=stream_floors(sets, weights_of(costs)))
        for _ in range(10):
            kept, arriving = a_pair(rng, case)
            k, a = case.place(kept), case.place(arriving)
            indexed = case.reference.rate(kept) * (costs.insert + costs.delete)
            plain = case.reference.rate(kept) * costs.append + case.reference.rate(arriving) * costs.scan * case.reference.size(kept)
            if close(indexed, plain):
                continue  # a tie, decided by rounding
            hashed = bool(case.reference.equal_around(kept) & arriving) and indexed < plain
            size, rate, probes = (float(x) for x in (sets.size[k], sets.size[k] * sets.pace[k], sets.size[a] * sets.pace[a]))
            cost = rate * (costs.insert + costs.delete) if hashed else rate * costs.append + probes * costs.scan * size
            floor = float(prices.floors[k]) if k < case.n else prices.keep * rate
            assert close(access_excess(sets, prices, k, a) + floor, cost, cost)


def test_binary_excess_is_a_binary_join_above_what_all_pay() -> None:
    for rng, case in cases(300, 2, 14, salt=24):
        for _ in range(10):
            left, right = a_pair(rng, case)
            found = binary_excess(case.sets, case.prices, case.place(left), case.place(right))
            case.assert_excess(found, (left, right), case.reference.binary(left, right))


def test_keeping_in_mjoin_is_a_state_of_an_mjoin_above_its_floor() -> None:
    for rng, case in cases(200, 3, 14, salt=25):
        for _ in range(5 if case.n > 2 else 0):
            blocks = a_join(rng, case, least=3)
            whole = case.numbered(sum(blocks))
            found = sum(keeping_in_mjoin(case.sets, case.prices, case.place(block), whole) + case.floor(block) for block in blocks)
            assert close(found, case.reference.keeping(blocks))


def test_scanning_is_what_a_probe_without_equality_adds() -> None:
    for rng, case in cases(200, 3, 14, salt=26):
        reference = case.reference
        for _ in range(10):
            visited, target = a_pair(rng, case)
            wanted = 0.0 if reference.equal_around(visited) & target else reference.costs.scan * reference.size(visited) * reference.size(target)
            assert close(scanning(case.sets, case.prices, case.place(visited), case.place(target)), wanted)


def test_mjoin_excess_is_that_of_the_best_probe_orders() -> None:
    for rng, case in cases(300, 3, WIDEST, salt=27):
        for _ in range(4 if case.n > 2 else 0):
            blocks = a_join(rng, case, least=3, most=10)
            scratch = scratch_for(len(blocks))
            found = mjoin_excess(case.sets, case.prices, case.places(blocks), len(blocks), case.numbered(sum(blocks)), scratch.unlimited, scratch)
            case.assert_excess(found, blocks, case.reference.join(blocks))
            assert not scratch.unions.any()  # as the next call wants it


def test_mjoin_excess_of_free_scans_is_finite_however_large_the_sizes() -> None:
    """Their product is beyond a double, and costs nothing."""
    document = {
        "streams": [{"name": f"s{i}", "rate": 1e160 * (i + 1), "window": {"seconds": 1}} for i in range(4)],
        "predicates": [{"left": f"s{i}.a", "right": f"s{i + 1}.a", "op": "<", "selectivity": 1e-160} for i in range(3)],
    }
    query, costs = Query.model_validate(document), Costs(scan=0.0)
    part = component_of(CostModel(join_graph(query), costs), 15, 1 << 20)
    assert part is not None
    reference, blocks = Reference(query, costs), (1, 2, 4, 8)
    places = ints(part.streams.index(i) for i in range(4))
    scratch = scratch_for(4)
    found = mjoin_excess(part.sets, part.prices, places, 4, 15, scratch.unlimited, scratch)
    # No scans to pay for: making and probing with the partial results, and nothing else.
    wanted = reference.join(blocks) - part.base
    assert math.isfinite(found) and close(found, wanted, part.base)


def largest_partial_results(reference: Reference, blocks: Blocks, orders: list[list[int]]) -> list[float]:
    """Of every pipeline, along its order."""
    largest = []
    for start, order in enumerate(orders):
        visited, most = blocks[start], 0.0
        for place in order[:-1]:
            visited |= blocks[place]
            most = max(most, reference.size(visited))
        largest.append(most)
    return largest


def test_mjoin_excess_loses_nothing_that_its_pipelines_can_afford_and_never_comes_out_below() -> None:
    for rng, case in cases(300, 4, 12, salt=28, fourteen=SHAPES):
        if case.n < 4:
            continue
        blocks = a_join(rng, case, least=4, most=9)
        m, places, whole = len(blocks), case.places(blocks), case.numbered(sum(blocks))
        scratch = scratch_for(m)
        best = mjoin_excess(case.sets, case.prices, places, m, whole, scratch.unlimited, scratch)
        orders = follow(case.sets, case.prices, places, m, scratch.to_go, True).tolist()
        enough = np.array(largest_partial_results(case.reference, blocks, orders)) * (1.0 + 1e-9)
        assert close(mjoin_excess(case.sets, case.prices, places, m, whole, enough, scratch), best, case.paid(blocks))
        some = np.array([rng.choice((0.0, limit, limit * 0.5)) for limit in enough.tolist()])
        assert mjoin_excess(case.sets, case.prices, places, m, whole, some, scratch) >= best * (1.0 - 1e-9)
        assert not scratch.unions.any()


def test_follow_gives_the_best_probe_orders_from_either_pass() -> None:
    for rng, case in cases(200, 3, WIDEST, salt=29):
        if case.n < 3:
            continue
        blocks = a_join(rng, case, least=3, most=10)
        m, places, whole = len(blocks), case.places(blocks), case.numbered(sum(blocks))
        scratch = scratch_for(m)
        mjoin_excess(case.sets, case.prices, places, m, whole, scratch.unlimited, scratch)
        wide = np.empty(case.sets.mask.size)
        wide_mjoin_excess(case.sets, case.prices, places, m, whole, wide)
        for costs_to_go, dense in ((scratch.to_go, True), (wide, False)):
            orders = follow(case.sets, case.prices, places, m, costs_to_go, dense)
            assert close(case.reference.along(blocks, orders.tolist()), case.reference.join(blocks))


def greedy_cost(reference: Reference, blocks: Blocks) -> float | None:
    """An mjoin whose pipelines take the cheapest step next; None where two steps are equal, but for rounding."""
    total = reference.keeping(blocks)
    for start in blocks:
        visited = start
        while visited != sum(blocks):
            # Leaving out what is the same for every step: the probe, and making the whole.
            ways = []
            for block in blocks:
                if block & reference.around(visited):
                    made = reference.produced(start, visited | block) * (reference.costs.join + reference.costs.probe)
                    scanned = reference.step(start, visited, block) - reference.produced(start, visited) * reference.costs.probe
                    scanned -= reference.produced(start, visited | block) * reference.costs.join
                    ways.append((max(0.0, scanned) + (made if visited | block != sum(blocks) else 0.0), block))
            ways.sort()
            if len(ways) > 1 and math.isclose(ways[0][0], ways[1][0], rel_tol=1e-6, abs_tol=1e-9 * ways[-1][0]):
                return None
            total += reference.step(start, visited, ways[0][1])
            visited |= ways[0][1]
    return total


def test_greedy_excess_is_that_of_the_cheapest_step_next_and_never_below_the_best() -> None:
    compared = 0
    for rng, case in cases(400, 3, 12, salt=30, fourteen=SHAPES):
        if case.n < 3:
            continue
        blocks = a_join(rng, case, least=3)
        found = greedy_excess(case.sets, case.prices, case.places(blocks), len(blocks), case.numbered(sum(blocks)))
        assert case.paid(blocks) + found >= case.reference.join(blocks) * (1.0 - 1e-9)
        wanted = greedy_cost(case.reference, blocks)
        if wanted is not None:
            compared += 1
            case.assert_excess(found, blocks, wanted)
    assert compared > 100


def test_join_excess_is_exact_up_to_its_limit_of_inputs_and_greedy_beyond() -> None:
    for rng, case in cases(150, 2, WIDEST, salt=31):
        blocks = a_join(rng, case)
        m, places, whole = len(blocks), case.places(blocks), case.numbered(sum(blocks))
        found = join_excess(case.sets, case.prices, places, m, whole, scratch_for(EXACT_INPUTS))
        if m <= EXACT_INPUTS:
            case.assert_excess(found, blocks, case.reference.join(blocks))
        else:
            assert found == rounded(greedy_excess(case.sets, case.prices, places, m, whole), case.prices.grain)


# Plans as families of sets


def test_inputs_of_are_the_largest_members_inside_and_the_streams_left_over() -> None:
    for rng, case in cases(150, 3, WIDEST, salt=32):
        joins = a_tree(rng, case.reference, case.component, 5)
        family = ints(case.numbered(sum(blocks)) for blocks in joins)
        by_falling_size(case.sets, family, family.size)
        room = np.empty(case.n + 1, np.int64)
        for blocks in joins:
            count = inputs_of(case.sets, family, family.size, case.numbered(sum(blocks)), 0, room)
            assert sorted(case.masks[place] for place in room[:count].tolist()) == sorted(blocks)
            for inner in (block for block in blocks if block & (block - 1)):
                count = inputs_of(case.sets, family, family.size, case.numbered(sum(blocks)), case.numbered(inner), room)
                (opened,) = [other for other in joins if sum(other) == inner]
                wanted = sorted([*(block for block in blocks if block != inner), *opened])
                assert sorted(case.masks[place] for place in room[:count].tolist()) == wanted


def test_by_falling_size_sorts_members_by_their_number_of_streams() -> None:
    for rng, case in cases(150, 3, WIDEST, salt=33):
        members = [case.numbered(sum(blocks)) for blocks in a_tree(rng, case.reference, case.component)]
        rng.shuffle(members)
        family = ints([*members, 0])
        by_falling_size(case.sets, family, len(members))
        sizes = [mask.bit_count() for mask in family.tolist()]
        assert sizes == sorted(sizes, reverse=True) and sorted(family.tolist()) == sorted([*members, 0])


def best_binary(case: Case, sets: Sets) -> NDArray[np.int64]:
    return binary_splits(sets, weights_of(case.model.costs), 1 << 40)


def test_members_as_rows_are_the_joins_of_the_tree_that_splits_describe() -> None:
    for _, case in cases(100, 2, 12, salt=34, fourteen=FEW_SETS):
        family = members_as_rows(best_binary(case, case.sets), case.sets)
        joins = case.reference.joins_of(case.named(mask) for mask in family.tolist())
        assert family[0] == (1 << case.n) - 1 and len(joins) == case.n - 1 and all(len(blocks) == 2 for blocks in joins)
        assert close(case.reference.cpu(joins), case.reference.least_binary(case.leaves))


def a_plan(case: Case, family: NDArray[np.int64]) -> Plan:
    """The plan with these members at hand."""
    ints_ = np.zeros((4, case.n + 2), np.int64)
    ints_[0, : family.size] = family
    return Plan(ints_[0], np.zeros(case.n + 2), ints_[1], ints_[2], ints_[3], np.zeros(case.n + 2), scratch_for(EXACT_INPUTS), going_on())


def a_pool(case: Case, room: int = 400) -> Pool:
    return Pool(room_for(room), np.zeros((room, case.n), np.int64), np.zeros(room, np.bool_), np.zeros(2, np.int64))


def a_family(rng: random.Random, case: Case) -> NDArray[np.int64]:
    """The members of a random plan, by falling size."""
    family = ints(case.numbered(sum(blocks)) for blocks in a_tree(rng, case.reference, case.component, 4))
    by_falling_size(case.sets, family, family.size)
    return family


def test_without_and_joined_first_and_with_change_say_what_a_step_changes() -> None:
    """The figures of the plan after the step, summed anew, less those before it."""
    steps = 0
    for rng, case in cases(150, 4, 9, salt=37, fourteen=SHAPES):
        family = a_family(rng, case)
        plan, members = a_plan(case, family), family.size
        plan_figures(case.sets, case.prices, family, members, plan, plan.cost)

        def assert_step(change: tuple[float, float], removed: int, added: int, case: Case = case, plan: Plan = plan, members: int = members) -> None:
            kept = with_change(case.sets, plan, members, removed, added)
            wanted = {*plan.family[:members].tolist(), added} - {removed, 0}
            assert set(plan.trial[:kept].tolist()) == wanted and len(wanted) == kept
            sizes = [mask.bit_count() for mask in plan.trial[:kept].tolist()]
            assert sizes == sorted(sizes, reverse=True)
            e_before, m_before = plan_figures(case.sets, case.prices, plan.family, members, plan, plan.cost)
            e_after, m_after = plan_figures(case.sets, case.prices, plan.trial, kept, plan, plan.trial_cost)
            assert math.isclose(e_before + change[0], e_after, rel_tol=1e-9, abs_tol=1e-12 * (case.base + abs(e_before)))
            assert math.isclose(m_before + change[1], m_after, rel_tol=1e-9, abs_tol=1e-9 * m_before)

        for f in range(1, members):
            assert_step(without(case.sets, case.prices, plan, members, f), int(family[f]), 0)
            steps += 1
        for f in range(members):
            inputs = inputs_of(case.sets, plan.family, members, int(family[f]), 0, plan.blocks)
            for i in range(inputs if inputs > 2 else 0):
                for j in range(i + 1, inputs):
                    one, other = int(case.sets.mask[plan.blocks[i]]), int(case.sets.mask[plan.blocks[j]])
                    if case.sets.around[plan.blocks[i]] & other:
                        assert_step(joined_first(case.sets, case.prices, plan, f, inputs, (i, j)), 0, one | other)
                        steps += 1
    assert steps > 300


def test_step_ratio_is_cpu_for_bytes() -> None:
    assert step_ratio(6.0, -2.0) == 3.0 and step_ratio(-6.0, 2.0) == -3.0
    assert step_ratio(0.0, 0.0) == -math.inf and step_ratio(1.0, 0.0) == math.inf


def plans_in(pool: Pool) -> list[list[int]]:
    """The members of every plan of the staircase."""
    return [[mask for mask in pool.families[row].tolist() if mask] for row in pool.steps.row[: pool.counts[COUNT]].tolist()]


def test_take_and_next_to_expand_keep_the_plans_that_nothing_beats_and_give_each_once() -> None:
    for rng, case in cases(40, 4, 8, salt=38, fourteen=SHAPES):
        pool = a_pool(case)
        offered = []
        for _ in range(12):
            family = a_family(rng, case)
            plan = a_plan(case, family)
            e, m = plan_figures(case.sets, case.prices, family, family.size, plan, plan.cost)
            take(pool, family, family.size, e, m)
            offered.append((e, m, family.size))
        best = sorted({point for point in offered if not any(beats(other, point) for other in offered if other != point)})
        steps = pool.steps
        count = int(pool.counts[COUNT])
        assert list(zip(steps.e[:count], steps.m[:count], steps.o[:count], strict=True)) == best
        met, family = [], np.zeros(case.n + 2, np.int64)
        while members := next_to_expand(pool, family):
            met.append(family[:members].tolist())
        assert met == plans_in(pool) and pool.counts[USED] >= count


@pytest.mark.parametrize("phase", [REMOVING, ADDING, SPREADING])
def test_try_neighbours_and_descend_leave_plans_that_nothing_they_met_beats(phase: int) -> None:
    for rng, case in cases(30, 4, 8, salt=39, fourteen=SHAPES):
        family = a_family(rng, case)
        plan, pool = a_plan(case, family), a_pool(case)
        chosen = try_neighbours(case.sets, case.prices, pool, plan, family.size, phase)
        members = set(family.tolist())
        assert (chosen == 0 or phase != SPREADING) and (chosen in members) == (phase == REMOVING and chosen != 0)
        for other in plans_in(pool):
            # The plan itself or one step from it, in the direction asked for.
            gone, new = members - set(other), set(other) - members
            assert len(gone) + len(new) <= 1 and not (phase == REMOVING and new) and not (phase == ADDING and gone)
        if phase != SPREADING:
            further = a_pool(case)
            descend(case.sets, case.prices, further, a_plan(case, family), family.size, phase)
            steps, count = further.steps, int(further.counts[COUNT])
            for k in range(int(pool.counts[COUNT])):
                assert dominated(steps.e, steps.m, steps.o, count, pool.steps.e[k], pool.steps.m[k], int(pool.steps.o[k]))


def test_plan_figures_are_the_cpu_and_the_bytes_of_the_plan() -> None:
    for rng, case in cases(300, 2, WIDEST, salt=35):
        joins = a_tree(rng, case.reference, case.component, EXACT_INPUTS)
        family = ints(case.numbered(sum(blocks)) for blocks in joins)
        by_falling_size(case.sets, family, family.size)
        plan = a_plan(case, family)
        e, m = plan_figures(case.sets, case.prices, family, family.size, plan, plan.cost)
        assert math.isclose(case.base + e, case.reference.cpu(joins), rel_tol=1e-9)
        held = case.reference.inner_bytes(joins, case.component)
        assert math.isclose(m, held, rel_tol=1e-9, abs_tol=case.n * case.prices.grain_bytes)


# Staircases as arrays


def a_staircase(rng: random.Random, count: int) -> tuple[list[float], list[float], list[int]]:
    """Few different numbers, so that there are ties with what is asked for."""
    es = sorted(rng.sample(range(4 * count + 4), count))
    ms = sorted(rng.sample(range(4 * count + 4), count), reverse=True)
    return [float(e) for e in es], [float(m) for m in ms], [rng.randint(1, 4) for _ in es]


def test_up_to_counts_the_values_that_are_at_most_one() -> None:
    rng = random.Random(2)
    for _ in range(2000):
        count = rng.randint(0, 12)
        es, _, _ = a_staircase(rng, count)
        e = float(rng.randint(-1, 4 * count + 5))
        assert up_to(np.array([*es, -7.0]), count, e) == bisect.bisect_right(es, e)


def beats(one: tuple[float, float, int], other: tuple[float, float, int]) -> bool:
    """As good in both, and in operators where both are equal."""
    return one[0] <= other[0] and one[1] <= other[1] and (one[:2] != other[:2] or one[2] <= other[2])


def test_dominated_and_insert_keep_the_points_that_no_other_beats() -> None:
    rng = random.Random(3)
    for _ in range(300):
        es, ms, os, rows = steps = room_for(40)
        count, kept = 0, list[tuple[float, float, int, int]]()
        for row in range(30):
            point = (float(rng.randint(0, 12)), float(rng.randint(0, 12)), rng.randint(1, 3))
            beaten = any(beats(other[:3], point) for other in kept)
            assert dominated(es, ms, os, count, *point) == beaten
            if not beaten:
                assert not is_full(steps, count, *point[:2])
                count = insert(steps, count, *point, row)
                kept = sorted([other for other in kept if not beats(point, other[:3])] + [(*point, row)])
            assert list(zip(es[:count], ms[:count], os[:count], rows[:count], strict=True)) == kept


def test_is_full_and_insert_never_lose_the_cheapest_step_for_want_of_room() -> None:
    rng = random.Random(4)
    cut = 0
    for _ in range(300):
        steps, count, kept = room_for(3), 0, list[tuple[float, float]]()
        for row in range(30):
            e, m = float(rng.randint(0, 20)), float(rng.randint(0, 20))
            if dominated(steps.e, steps.m, steps.o, count, e, m, 0):
                continue
            left = [(a, b) for a, b in kept if not (e <= a and m <= b)]
            full = len(left) == 3
            assert is_full(steps, count, e, m) == full
            cut += full
            if full:
                left.remove(next((step for step in left if step[0] > e), left[-1]))
            kept = sorted([*left, (e, m)])
            least = steps.e[0] if count else math.inf
            count = insert(steps, count, e, m, 0, row)
            assert list(zip(steps.e[:count], steps.m[:count], strict=True)) == kept and steps.e[0] <= least
    assert cut > 50


def test_cheaper_counts_the_steps_that_cost_less_and_room_for_and_scratch_for_make_as_much_room_as_asked_for() -> None:
    assert [cheaper(np.array([1.0, 2.0, 4.0, 0.0]), 3, e) for e in (0.0, 2.0, 3.0, 9.0)] == [0, 1, 2, 3]
    assert [part.size for part in room_for(7)] == [7, 7, 7, 7]
    scratch = scratch_for(3)
    assert not scratch.unions.any() and scratch.unions.size == 24 and scratch.to_go.size == 8 and (scratch.unlimited == np.inf).all()


# Plans to start from


@pytest.mark.parametrize("expansions", [ONE_PLAN, ONE_DESCENT, 0, 20])
def test_seeds_are_plans_with_their_own_figures_and_none_beats_another(expansions: int) -> None:
    for _, case in cases(48, 2, 12 if expansions < 0 else 10, salt=36, fourteen=FEW_SETS):
        binary = members_as_rows(best_binary(case, case.sets), case.sets)
        found = seeds(case.sets, case.prices, binary, expansions, going_on())
        assert found.e.size >= 1
        for e, m, operators, members in zip(found.e, found.m, found.operators, found.members, strict=True):
            joins = case.reference.joins_of(case.named(mask) for mask in members.tolist())
            assert operators == len(joins) and sum(joins[-1]) == case.component
            cpu = case.reference.cpu(joins)
            if all(len(blocks) <= EXACT_INPUTS for blocks in joins):
                assert math.isclose(case.base + e, cpu, rel_tol=1e-9)
            assert case.base + e >= cpu * (1.0 - 1e-9)
            assert math.isclose(m, case.reference.inner_bytes(joins, case.component), rel_tol=1e-9, abs_tol=case.n * case.prices.grain_bytes)
        assert all(a < b for a, b in zip(found.e, found.e[1:], strict=False)) and all(a > b for a, b in zip(found.m, found.m[1:], strict=False))
        assert case.base + found.e[0] <= case.reference.least_binary(case.leaves) * (1.0 + 1e-9)
        if expansions == ONE_PLAN:
            assert found.e.size == 1
        if expansions >= 0 and case.n <= EXACT_INPUTS:
            # The second descent starts from the mjoin, which keeps nothing.
            assert found.m[-1] == 0.0


def test_seeds_with_more_expansions_are_never_worse() -> None:
    for seed in range(12):
        case = a_case(random.Random(seed), 9, "random")
        binary = members_as_rows(best_binary(case, case.sets), case.sets)
        few, many = (seeds(case.sets, case.prices, binary, expansions, going_on()) for expansions in (0, 20))
        for e, m, operators in zip(few.e, few.m, few.operators, strict=True):
            assert dominated(many.e, many.m, many.operators, many.e.size, e, m, operators)


def test_seeds_told_to_stop_are_the_binary_tree_and_the_mjoin() -> None:
    for seed in range(6):
        case = a_case(random.Random(seed), 9, "random")
        binary = members_as_rows(best_binary(case, case.sets), case.sets)
        stopped = going_on()
        stopped[0] = 1
        found = seeds(case.sets, case.prices, binary, 20, stopped)
        assert 1 <= found.e.size <= 2 < seeds(case.sets, case.prices, binary, 20, going_on()).e.size
        assert close(case.base + found.e[0], case.reference.least_binary(case.leaves)) or found.e.size == 1

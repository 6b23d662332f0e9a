"""Bounds of plans and the staircases of all sets, against plain dynamic programs over all join trees."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from solvers.jtree.compiled.binary_tree import binary_splits, members_as_rows
from solvers.jtree.compiled.blocks import Blocks, block_room, empty_lists, few_of, least_shares, sort_lists, usable_sets
from solvers.jtree.compiled.bounds import Bounds, bounds_of, code_excess, inside_and_outside, partial_results
from solvers.jtree.compiled.climbing import FOREIGN
from solvers.jtree.compiled.cost import Prices, rounded_down, weights_of
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.orders import plain_mjoins, wide_mjoin_excess
from solvers.jtree.compiled.questions import FRONTIER, FULL, LEAST_BYTES, LEAST_CPU, LEAST_LOAD, STOPPED, Limits, Stairs, as_seeds, tightened
from solvers.jtree.compiled.regions import solve_region
from solvers.jtree.compiled.seeds import ONE_DESCENT, ONE_PLAN, Seeds, seeds
from solvers.jtree.compiled.staircase import dominated, lighter, room_for
from solvers.jtree.compiled.staircases import (
    at_once,
    begun,
    climb,
    climbed,
    from_seeds,
    joins_of,
    may_be_kept,
    room_to_climb,
    staircases,
    take_as_block,
)
from tests.solvers.compiled.cases import FEW_SETS, SHAPES, Case, a_case, assert_same_staircase, cases, close, divided, going_on
from tests.solvers.compiled.searched import points_of, searched, within, without_seeds
from tests.solvers.reference import Step, positions, steps

ROUNDED = 1.0 + 1e-9
LARGEST = (("chain", 14), ("cycle", 11), ("star", 9), ("snowflake", 11), ("random", 9), ("clique", 7))
BEYOND = (("star", 12), ("snowflake", 12), ("cycle", 12), ("random", 11), ("clique", 9))  # for the two compiled searches to agree on
KEPT = 12  # sets of fourteen streams that a cap on bytes leaves
ROOM = 1 << 12


def some_seeds(case: Case, expansions: int) -> Seeds:
    splits = binary_splits(case.sets, weights_of(case.model.costs), 1 << 40)
    return seeds(case.sets, case.prices, members_as_rows(splits, case.sets), expansions, going_on())


def figures(case: Case, stairs: Stairs) -> list[Step]:
    return [(case.base + e, m) for e, m in zip(stairs.e.tolist(), stairs.m.tolist(), strict=True)]


def rounding(case: Case, part: bool = False) -> Step:
    """What figures may be off by; CPU too where it is that of a part of the streams, which may cost far less than all do."""
    return 4 * case.n * case.prices.grain if part else 0.0, 4 * case.n * case.prices.grain_bytes


# Small ones


def test_rounded_down_is_the_next_multiple_of_the_grain_below() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        grain = 2.0 ** rng.randint(-60, 10)
        value = rng.uniform(0.0, 1e6) * grain
        result = rounded_down(value, grain)
        assert (result / grain).is_integer() and 0.0 <= value - result < grain
        assert rounded_down(value, 0.0) == value


def test_lighter_is_the_first_value_that_is_at_most_one() -> None:
    rng = random.Random(2)
    for _ in range(2000):
        count = rng.randint(0, 12)
        ms = sorted((float(m) for m in rng.sample(range(4 * count + 4), count)), reverse=True)
        m = float(rng.randint(-1, 4 * count + 5))
        wanted = next((k for k, value in enumerate(ms) if value <= m), count)
        assert lighter(np.array([*ms, -7.0]), count, m) == wanted


def test_tightened_asks_for_nothing_worse_and_for_everything_better() -> None:
    rng = random.Random(3)
    for _ in range(3000):
        cpu, held = rng.uniform(2.0, 9.0), rng.uniform(2.0, 9.0)
        goal = rng.choice((FRONTIER, LEAST_CPU, LEAST_BYTES, LEAST_LOAD))
        limits = Limits(goal, cpu - 1.0, held - 1.0, cpu - 1.0, held - 1.0, cpu, held, 1.0, 1.0)
        before = (math.inf, math.inf) if goal == LEAST_LOAD else (cpu - 1.0, held - 1.0)
        found = (rng.uniform(0.0, 9.0), rng.uniform(0.0, 9.0))
        limit_e, limit_m = tightened(limits, *before, *found)
        assert limit_e <= before[0] and limit_m <= before[1]
        fits = found[0] <= cpu - 1.0 and found[1] <= held - 1.0
        other = (rng.uniform(0.0, 9.0), rng.uniform(0.0, 9.0))
        asked = other[0] <= limit_e and other[1] <= limit_m

        def load(e: float, m: float, cpu: float = cpu, held: float = held) -> float:
            return max((e + 1.0) / cpu, (m + 1.0) / held)

        if goal == LEAST_LOAD:
            assert asked == (load(*other) <= load(*found))
        else:
            better = {FRONTIER: True, LEAST_CPU: other[0] <= found[0] or not fits, LEAST_BYTES: other[1] <= found[1] or not fits}[goal]
            assert asked == (other[0] <= cpu - 1.0 and other[1] <= held - 1.0 and better)


def test_code_excess_is_the_best_prefix_code_less_one_level() -> None:
    rng = random.Random(4)
    for _ in range(2000):
        weights = sorted(rng.choice((rng.random(), 0.0, 1.0, 10.0 ** rng.uniform(-9, 9))) for _ in range(rng.randint(1, 14)))
        heap, total = list(weights), 0.0
        while len(heap) > 1:
            pair = heapq.heappop(heap) + heapq.heappop(heap)
            total += pair
            heapq.heappush(heap, pair)
        wanted = total - sum(weights) if len(weights) > 1 else 0.0
        assert close(code_excess(np.array([*weights, -1.0]), len(weights), np.empty(20)), wanted, 1e3 * sum(weights))


def test_few_of_are_the_sets_of_the_lowest_rates_of_each_size() -> None:
    for rng, case in cases(60, 2, 10, salt=40, fourteen=SHAPES):
        beam = rng.randint(1, 6)
        few = few_of(case.sets, beam)
        assert few_of(case.sets, 0).all()
        for size in range(2, case.n):
            rates = sorted((case.reference.rate(mask), s) for s, mask in enumerate(case.masks) if mask.bit_count() == size)
            chosen = [rate for rate, s in rates if few[s]]
            assert len(chosen) == min(beam, len(rates))
            assert all(close(a, rate) for a, (rate, _) in zip(chosen, rates, strict=False))
        assert not few[: case.n].any()


# What plans cost at least


def test_partial_results_are_the_smallest_sets_above() -> None:
    for _, case in cases(60, 3, 8, salt=41, fourteen=FEW_SETS):
        reference, made = case.reference, case.prices.made
        costs = partial_results(case.sets, made, going_on())
        for s, mask in enumerate(case.masks):
            wanted = 0.0
            assert costs[s, 0] == 0.0
            for t in range(1, case.n):
                above = [
                    other for other in case.masks if mask & ~other == 0 and other.bit_count() >= mask.bit_count() + t and other != case.component
                ]
                wanted += made * min((reference.size(other) for other in above), default=math.inf) if made else 0.0
                assert close(costs[s, t], wanted)


def test_partial_results_are_never_above_those_of_a_pipeline() -> None:
    """What they are for, with the pipelines of random joins in random orders."""
    for rng, case in cases(150, 4, 14, salt=42):
        reference, made = case.reference, case.prices.made
        costs = partial_results(case.sets, made, going_on())
        for _ in range(5):
            blocks = divided(rng, reference, rng.choice(case.masks[case.n :]), case.n)
            start = visited = rng.choice(blocks)
            total = 0.0
            for step in range(1, len(blocks) - 1):
                visited |= rng.choice([block for block in blocks if block & reference.around(visited)])
                total += made * reference.size(visited)
                assert costs[case.place(start), step] <= total * ROUNDED


def least_excess(case: Case, blocks: Sequence[int]) -> tuple[float, float]:
    """The least CPU of the joins over blocks above what all pay, and the figure it was subtracted from."""
    cpu = case.reference.staircase(blocks)[0][0]
    return cpu - case.paid(blocks), cpu


def test_inside_and_outside_are_never_above_the_best_joins_of_a_set_and_above_it() -> None:
    inner = outer = 0
    for rng, case in cases(72, 3, 8, salt=43):
        if case.n < 3:
            continue
        prices = case.prices
        ahead = partial_results(case.sets, prices.made, going_on())
        inside, outside = inside_and_outside(case.sets, prices, ahead)
        assert (inside >= 0.0).all() and (outside >= 0.0).all()
        for s in rng.sample(range(case.n, len(case.masks)), min(8, len(case.masks) - case.n)):
            mask = case.masks[s]
            if mask == case.component:
                continue
            least, scale = least_excess(case, [1 << i for i in positions(mask)])
            assert inside[s] <= least * ROUNDED + 1e-12 * scale
            inner += bool(inside[s] > 0.1 * least > 1e-9 * scale)
            least, scale = least_excess(case, [mask, *(1 << i for i in positions(case.component & ~mask))])
            assert outside[s] <= least * ROUNDED + 1e-12 * scale
            outer += bool(outside[s] > 0.1 * least > 1e-9 * scale)
    assert inner > 20 and outer > 20  # nothing at all would be a bound, too


def test_plain_mjoins_are_every_sets_own() -> None:
    for rng, case in cases(90, 3, 14, salt=44):
        excess = plain_mjoins(case.sets, case.prices, going_on())
        several = [s for s in range(case.n, len(case.masks)) if case.masks[s].bit_count() > 2]
        for s in rng.sample(several, min(25, len(several))):
            leaves = tuple(1 << i for i in positions(case.masks[s]))
            case.assert_excess(excess[s], leaves, case.reference.join(leaves))


def test_bounds_of_hold_what_keeping_adds_and_every_bound() -> None:
    for _, case in cases(40, 3, 9, salt=45, fourteen=SHAPES):
        bounds: Bounds = bounds_of(case.sets, case.prices, going_on())
        prices: Prices = case.prices
        ahead = partial_results(case.sets, prices.made, going_on())
        inside, outside = inside_and_outside(case.sets, prices, ahead)
        wanted = (ahead, inside, outside, plain_mjoins(case.sets, prices, going_on()))
        for found, right in zip((bounds.ahead, bounds.inside, bounds.outside, bounds.plain), wanted, strict=True):
            assert np.array_equal(found, right)
        for s in range(case.n, len(case.masks)):
            added = (prices.made + prices.keep) * case.reference.rate(case.masks[s])
            assert math.isclose(bounds.kept_e[s], added, rel_tol=1e-9, abs_tol=prices.grain)
            assert math.isclose(bounds.kept_m[s], case.reference.state_bytes(case.masks[s]), rel_tol=1e-9, abs_tol=prices.grain_bytes)


def test_wide_mjoin_excess_is_that_of_the_best_probe_orders() -> None:
    for rng, case in cases(150, 3, 14, salt=46):
        if case.n < 3:
            continue
        wide = [mask for mask in case.masks if mask.bit_count() > 2]
        for whole in (rng.choice(wide), case.component):
            blocks = divided(rng, case.reference, whole, case.n)
            if whole == case.component:
                blocks = tuple(case.leaves)
            if len(blocks) < 3:
                continue
            to_go = np.empty(case.sets.mask.size)
            found = wide_mjoin_excess(case.sets, case.prices, case.places(blocks), len(blocks), case.numbered(whole), to_go)
            case.assert_excess(found, blocks, case.reference.join(blocks))


# Blocks


def all_usable(case: Case) -> NDArray[np.bool_]:
    return np.ones(case.sets.mask.size, np.bool_)


def test_least_shares_are_never_above_what_a_stream_costs_in_any_block() -> None:
    for _, case in cases(60, 3, 8, salt=71, fourteen=SHAPES):
        bounds = bounds_of(case.sets, case.prices, going_on())
        share = least_shares(case.sets, bounds, all_usable(case))
        for s, mask in enumerate(case.sets.mask[:-1].tolist()):
            own = float(bounds.kept_e[s] + bounds.inside[s]) if s >= case.n else 0.0
            for t in range(case.n):
                whole = own + case.sets.pace[s] * bounds.ahead[s, t]
                assert math.fsum(share[t, i] for i in positions(mask)) <= whole * ROUNDED


def test_block_room_knows_of_streams_alone_what_they_cost_above_their_shares() -> None:
    for _, case in cases(60, 3, 8, salt=73, fourteen=SHAPES):
        bounds = bounds_of(case.sets, case.prices, going_on())
        share = least_shares(case.sets, bounds, all_usable(case))
        blocks: Blocks = block_room(case.sets, bounds, share)
        for figure in (blocks.e, blocks.m, blocks.o, blocks.first, blocks.many):
            assert figure.size == case.sets.mask.size and not figure.any()
        assert np.array_equal(blocks.kept_e, bounds.kept_e) and np.array_equal(blocks.kept_m, bounds.kept_m)
        assert np.array_equal(blocks.share, share)
        first = case.sets.pace * bounds.ahead[:, 1]  # what a pipeline's first partial result costs at least
        for i in range(case.n):
            # A stream's share and what it costs above it are the stream alone.
            assert close(share[1, i] + blocks.bound[i], first[i]) and blocks.bound[i] >= 0.0
        assert not blocks.bound[case.n :].any()


def test_empty_lists_and_sort_lists_hold_blocks_by_lowest_stream_and_size_and_bound() -> None:
    for rng, case in cases(60, 3, 9, salt=72, fourteen=SHAPES):
        lists, masks, width = empty_lists(case.sets, all_usable(case)), case.sets.mask.tolist(), case.n + 1
        bound = np.array([float(rng.randint(0, 4)) for _ in masks])
        assert [lists.listed[lists.begin[i * width + 1]] for i in range(case.n)] == list(range(case.n))
        for s in range(case.n, len(masks) - 1):
            g = positions(masks[s])[0] * width + masks[s].bit_count()
            lists.listed[lists.end[g]] = s
            lists.end[g] += 1
        for size in range(1, case.n):
            sort_lists(lists, bound, case.n, size)
            for low in range(case.n):
                g = low * width + size
                own = lists.listed[lists.begin[g] : lists.end[g]].tolist()
                wanted = [s for s, mask in enumerate(masks) if mask.bit_count() == size and positions(mask)[0] == low]
                assert own == sorted(wanted, key=lambda s: (bound[s], s))


# The search itself


def test_from_seeds_and_usable_sets_begin_with_what_the_seeds_do_not_beat() -> None:
    for rng, case in cases(60, 3, 8, salt=76, fourteen=SHAPES):
        start, bounds = some_seeds(case, 3), bounds_of(case.sets, case.prices, going_on())
        frontier, limits = room_for(100), within(case, held=float(start.m.max()) * rng.choice((0.5, 2.0)))
        count, limit_e, limit_m = from_seeds(start, limits, frontier)
        assert [(e, m) for e, m in zip(start.e, start.m, strict=True) if m <= limits.cap_m] == list(
            zip(frontier.e[:count], frontier.m[:count], strict=True)
        )
        assert (limit_e, limit_m) == (limits.cap_e, limits.cap_m)
        usable = usable_sets(bounds, few_of(case.sets, 0), frontier, count, limit_e, limit_m)
        assert usable[: case.n].all() and not usable[-1]
        for s in range(case.n, case.sets.mask.size - 1):
            e, m = float(bounds.kept_e[s] + bounds.inside[s] + bounds.outside[s]), float(bounds.kept_m[s])
            assert usable[s] == (e <= limit_e and m <= limit_m and not dominated(frontier.e, frontier.m, frontier.o, count, e, m, 2))


def test_room_to_climb_begins_with_the_seeds_within_the_limits_and_with_the_streams_as_blocks() -> None:
    taken = left_out = 0
    for rng, case in cases(60, 3, 8, salt=77, fourteen=FEW_SETS):
        start, bounds = some_seeds(case, 3), bounds_of(case.sets, case.prices, going_on())
        goal, room = rng.choice((FRONTIER, LEAST_CPU)), rng.choice((100, 1 << 16))
        limits = within(case, goal, held=float(start.m.max()) * rng.choice((0.5, 2.0)))._replace(beam=rng.choice((0, 0, 2)))
        made = room_to_climb(case.sets, case.prices, bounds, start, limits, going_on(), room)
        kept = [(e, m, o) for e, m, o in zip(start.e.tolist(), start.m.tolist(), start.operators.tolist(), strict=True) if m <= limits.cap_m]
        least = min((e for e, _, _ in kept), default=math.inf)
        assert made.most.tolist() == [least if goal == LEAST_CPU else math.inf, limits.cap_m]
        if goal == FRONTIER:
            assert points_of(made.frontier, made.counts[0]) == kept
        usable = usable_sets(bounds, few_of(case.sets, limits.beam), made.frontier, made.counts[0], float(made.most[0]), float(made.most[1]))
        assert np.array_equal(made.usable, usable)
        # All that is usable has its place in the lists; the streams have taken theirs.
        assert made.lists.listed.size == made.inside.block.size == usable.sum()
        assert (made.lists.end - made.lists.begin[: made.lists.end.size]).sum() == case.n
        assert np.array_equal(made.blocks.share, least_shares(case.sets, bounds, usable))
        assert made.points.e.size == room and made.stair.here.e.size == made.frontier.e.size == min(room, 1 << 15)
        assert made.stair.limits == limits
        taken, left_out = taken + len(kept), left_out + int(usable.size - 1 - usable.sum())
    assert taken > 60 and left_out > 200


def test_may_be_kept_rules_out_no_set_of_a_plan_that_beats_the_seeds() -> None:
    ruled_out = kept = 0
    for rng, case in cases(120, 4, 8, salt=78):
        bounds = bounds_of(case.sets, case.prices, going_on())
        every = at_once(case.sets, case.prices, without_seeds(case), within(case), going_on(), ROOM)
        plans = as_seeds(case.sets, without_seeds(case), every)
        # Some seeds are other plans, and some are of the best, so that the others are just not beaten by them.
        start = some_seeds(case, ONE_PLAN)
        if rng.random() < 0.5:
            some = sorted(rng.sample(range(plans.e.size), plans.e.size // 2))
            start = Seeds(plans.e[some], plans.m[some], plans.operators[some], plans.members[some])
        limits = within(case, rng.choice((FRONTIER, LEAST_CPU)), held=rng.choice((math.inf, rng.choice(plans.m.tolist()))))
        room = room_to_climb(case.sets, case.prices, bounds, start, limits, going_on(), ROOM)
        said = {v: may_be_kept(case.prices, bounds, room, v) for v in range(case.n, len(case.masks) - 1)}
        front = room.frontier
        for e, m, o, members in zip(plans.e.tolist(), plans.m.tolist(), plans.operators.tolist(), plans.members.tolist(), strict=True):
            if e <= room.most[0] and m <= room.most[1] and not dominated(front.e, front.m, front.o, room.counts[0], e, m, o):
                inner = [case.place(case.named(mask)) for mask in members[1:] if mask]
                assert all(said[v] for v in inner)
                kept += len(inner)
        ruled_out += sum(not may for may in said.values())
    assert ruled_out > 500 and kept > 100, (ruled_out, kept)


def test_may_be_kept_rules_out_a_set_where_its_bounds_are_beaten_and_nowhere_else() -> None:
    """A plan that keeps a set has two operators at least, and a plan that keeps nothing else as few bytes as that."""
    said = {True: 0, False: 0}
    for rng, case in cases(60, 4, 8, salt=98):
        bounds = bounds_of(case.sets, case.prices, going_on())
        room = room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), going_on(), 10)
        for v in rng.sample(range(case.n, len(case.masks) - 1), min(6, len(case.masks) - 1 - case.n)):
            e = rounded_down(float(bounds.kept_e[v] + bounds.outside[v]), case.prices.grain) + float(bounds.inside[v])
            m = float(bounds.kept_m[v])
            for by_e, by_m, operators in product((-1, 0, 1), (-1, 0, 1), (2, 3)):
                seed = e * (1.0 + 1e-6 * by_e) + 1e-9 * by_e, m * (1.0 + 1e-6 * by_m) + 1e-9 * by_m
                room.frontier.e[0], room.frontier.m[0], room.frontier.o[0], room.counts[0] = *seed, operators, 1
                beaten = by_e <= 0 and by_m <= 0 and (by_e < 0 or by_m < 0 or operators == 2)
                assert may_be_kept(case.prices, bounds, room, v) != beaten
                said[not beaten] += 1
            room.counts[0] = 0
            for by_e, by_m in product((-1, 1), (-1, 1)):
                room.most[:] = e * (1.0 + 1e-6 * by_e) + 1e-9 * by_e, m * (1.0 + 1e-6 * by_m) + 1e-9 * by_m
                assert may_be_kept(case.prices, bounds, room, v) == (by_e > 0 and by_m > 0)
            room.most[:] = math.inf
    assert min(said.values()) > 500


def test_may_be_kept_begins_the_staircase_of_the_set_with_what_is_left_to_it() -> None:
    begun_with_some = 0
    for _, case in cases(60, 3, 8, salt=79):
        bounds, start = bounds_of(case.sets, case.prices, going_on()), some_seeds(case, 3)
        room = room_to_climb(case.sets, case.prices, bounds, start, within(case, held=2.0 * float(start.m.max()) + 1.0), going_on(), ROOM)
        for v in range(case.n, len(case.masks) - 1):
            if not may_be_kept(case.prices, bounds, room, v):
                continue
            # Every plan that keeps it spends this much on keeping it and on the joins above it.
            e = rounded_down(float(bounds.kept_e[v] + bounds.outside[v]), case.prices.grain)
            count = room.stair.counts[0]
            found = points_of(room.stair.here, count)
            less = [(own_e - e, own_m - bounds.kept_m[v], own_o - 1) for own_e, own_m, own_o in points_of(room.frontier, room.counts[0])]
            assert found and found == less[-count:]
            assert room.stair.most.tolist() == [math.inf, room.most[1] - bounds.kept_m[v]]
            begun_with_some += count > 1
    assert begun_with_some > 20


def test_joins_of_puts_the_plans_of_a_set_that_no_other_beats() -> None:
    most = 0
    for rng, case in cases(90, 3, 7, salt=74):
        search, reference = searched(case), case.reference
        for v in {rng.randrange(case.n, len(case.masks)), len(case.masks) - 1}:
            search.begin()
            assert joins_of(case.sets, case.prices, search.bounds, search.room, v) == 0
            leaves = [1 << i for i in positions(case.masks[v])]
            found = points_of(search.room.stair.here, search.room.stair.counts[0])
            paid = case.paid(leaves)
            assert_same_staircase([(paid + e, m) for e, m, _ in found], reference.staircase(leaves), rounding(case, True))
            most = max(most, len(found))
    assert most > 10


def test_joins_of_puts_nothing_above_the_limits_or_that_the_points_before_beat() -> None:
    left_out = 0
    for rng, case in cases(90, 3, 6, salt=99):
        search = searched(case)
        v = rng.randrange(case.n, len(case.masks))
        leaves = [1 << i for i in positions(case.masks[v])]
        every, paid = case.reference.staircase(leaves), case.paid(leaves)
        # Neither a limit nor a point that is as good as a plan: there rounding decides.
        cpu = rng.choice((math.inf, rng.choice(every)[0] * rng.choice((0.999, 1.001))))
        held = rng.choice((math.inf, (rng.choice(every)[1] + 1.0) * rng.choice((0.999, 1.001))))
        before = [
            (e * rng.choice((0.999, 1.001)), m + rng.choice((-1e-3, 1e-3)) * (m + 1.0)) for e, m in rng.sample(every, rng.randint(0, len(every)))
        ]
        before = [(e, m) for e, m in before if e <= cpu and m <= held]
        search.begin(cpu - paid, held, [(e - paid, m, 1) for e, m in before])
        assert joins_of(case.sets, case.prices, search.bounds, search.room, v) == 0
        found = [(paid + e, m) for e, m, _ in points_of(search.room.stair.here, search.room.stair.counts[0])]
        wanted = steps([*before, *((e, m) for e, m in every if e <= cpu and m <= held)])
        assert_same_staircase(found, wanted, rounding(case, True))
        left_out += len(set(every) - set(wanted))
    assert left_out > 50


def test_joins_of_ends_where_it_is_told_to() -> None:
    case = a_case(random.Random(3), 7, "clique")
    search = searched(case)
    search.begin()
    search.room.walk.stop[0] = 1
    assert joins_of(case.sets, case.prices, search.bounds, search.room, len(case.masks) - 1) == STOPPED


def test_take_as_block_makes_the_least_figures_and_a_bound_of_the_points_of_its_own() -> None:
    above = 0
    for rng, case in cases(90, 4, 8, salt=75):
        bounds = bounds_of(case.sets, case.prices, going_on())
        room = room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), going_on(), 100)
        listed, taken = {s: s < case.n for s in range(len(case.masks))}, 0
        for v in rng.sample(range(case.n, len(case.masks) - 1), min(5, len(case.masks) - 1 - case.n)):
            count, joins = rng.randint(1, 6), case.masks[v].bit_count() - 1
            points = [(bounds.inside[v] + k, 20.0 - 2.0 * k, rng.randint(1, joins), rng.choice((FOREIGN, 7 + k))) for k in range(count)]
            for k, point in enumerate(points):
                here = room.stair.here
                here.e[k], here.m[k], here.o[k], here.row[k] = point
            room.stair.counts[0] = count
            own = [point for point in points if point[3] != FOREIGN]
            assert take_as_block(case.sets, bounds.ahead, room, v)
            blocks, first = room.blocks, taken
            taken += len(own)
            assert (blocks.first[v], blocks.many[v]) == (first, len(own)) and room.points.counts[0] == taken
            rows = zip(*(figure[first:taken].tolist() for figure in room.points[:5] if isinstance(figure, np.ndarray)), strict=True)
            assert list(rows) == [(*point, v) for point in own]
            if not own:
                continue
            listed[v] = True
            assert blocks.e[v] == min(e for e, _, _, _ in own) + bounds.kept_e[v]
            assert blocks.m[v] == min(m for _, m, _, _ in own) + bounds.kept_m[v]
            assert blocks.o[v] == min(o for _, _, o, _ in own)
            # In an mjoin it costs its own plan and a first partial result: its bound is that without its streams' shares.
            shares = math.fsum(blocks.share[1, i] for i in positions(int(case.sets.mask[v])))
            whole = blocks.e[v] + case.sets.pace[v] * bounds.ahead[v, 1]
            if whole < math.inf:
                assert close(blocks.bound[v], max(0.0, whole - shares), whole)
                above += blocks.bound[v] > 1e-6 * whole
        lists, width = room.lists, case.n + 1
        for s, mask in enumerate(case.sets.mask.tolist()[:-1]):
            g = positions(mask)[0] * width + mask.bit_count()
            assert (s in lists.listed[lists.begin[g] : lists.end[g]].tolist()) == listed[s]
    assert above > 50


def test_take_as_block_says_when_there_is_no_room_for_its_points() -> None:
    case = a_case(random.Random(4), 6, "chain")
    bounds = bounds_of(case.sets, case.prices, going_on())
    for room in (4, 5):
        made = room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), going_on(), room)
        made.stair.here.e[:3], made.stair.here.m[:3] = (1.0, 2.0, 3.0), (3.0, 2.0, 1.0)
        made.stair.here.o[:3], made.stair.here.row[:3], made.stair.counts[0] = 1, 0, 3
        made.points.counts[0] = 2
        assert take_as_block(case.sets, bounds.ahead, made, case.n) == (room == 5)
        assert made.points.counts[0] == made.blocks.many[case.n] + 2 == room * 3 - 10  # 2 where there was no room, else 5


def test_climb_makes_the_staircase_of_every_set_and_the_frontier_of_the_last() -> None:
    for _, case in cases(60, 2, 6, salt=76):
        search = searched(case)
        room, points, last = search.room, search.room.points, len(case.masks) - 1
        for v in range(case.n, last + 1):
            leaves = [1 << i for i in positions(case.masks[v])]
            paid, first = case.paid(leaves), int(room.blocks.first[v])
            own = slice(first, first + int(room.blocks.many[v]))
            es, ms = (points.e[own], points.m[own]) if v < last else (room.frontier.e[: room.counts[0]], room.frontier.m[: room.counts[0]])
            found = [(paid + e, m) for e, m in zip(es.tolist(), ms.tolist(), strict=True)]
            assert_same_staircase(found, case.reference.staircase(leaves), rounding(case, True))
        lists = room.lists
        assert sorted(lists.listed.tolist()) == list(range(last))
        for g, end in enumerate(lists.end[:-1].tolist()):
            assert end == lists.begin[g + 1]
            bound = room.blocks.bound[lists.listed[lists.begin[g] : end]]
            assert np.array_equal(bound, np.sort(bound))


def test_climb_ends_before_the_first_set_that_it_is_not_to_look_at() -> None:
    case = a_case(random.Random(5), 6, "cycle")
    bounds, stop = bounds_of(case.sets, case.prices, going_on()), going_on()
    room = room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), stop, ROOM)
    stop[0] = 1
    assert climb(case.sets, case.prices, bounds, room, stop) == STOPPED
    assert not room.blocks.many.any()
    stop[0] = 0
    assert climb(case.sets, case.prices, bounds, room, stop) == 0
    assert stop[1] == len(case.masks) - 1  # how far it is


def assert_answers(rng: random.Random, case: Case, wanted: list[Step], start: Seeds, most: float = math.inf) -> None:
    """The whole frontier of the plans that keep `most` bytes; under tighter caps what is left of it, and the best by each goal."""
    sets, prices = case.sets, case.prices
    bounds = bounds_of(sets, prices, going_on())

    def asked(limits: Limits) -> list[Step]:
        stairs = staircases(sets, prices, bounds, start, limits, going_on(), ROOM)
        assert stairs.status == 0
        return figures(case, stairs)

    assert_same_staircase(asked(within(case, held=most)), wanted, rounding(case))
    once = at_once(sets, prices, start, within(case, held=most), going_on(), ROOM)
    assert_same_staircase(figures(case, once), wanted, rounding(case))

    cpu = rng.choice(wanted)[0] * rng.choice((1.0 - 1e-6, 1.0 + 1e-6, 1.1))
    held = min(most, (rng.choice(wanted)[1] + 1.0) * rng.choice((1.0 - 1e-6, 1.0 + 1e-6, 1.5)))
    left = [step for step in wanted if step[0] <= cpu and step[1] <= held]
    assert_same_staircase(asked(within(case, FRONTIER, cpu, held)), left, rounding(case))
    for goal, figure in ((LEAST_CPU, 0), (LEAST_BYTES, 1)):
        found = asked(within(case, goal, cpu, held))
        assert bool(found) == bool(left)
        if left:
            best, right = min(step[figure] for step in found), min(step[figure] for step in left)
            assert math.isclose(best, right, rel_tol=1e-9, abs_tol=rounding(case)[figure])
    if most < math.inf:
        return  # the least load may need more
    # All loads are above 0 only where the cap on bytes counts something that all keep.
    limits = Limits(LEAST_LOAD, math.inf, math.inf, math.inf, math.inf, cpu, held, case.base, 1.0)
    best, right = (min(max(a / cpu, (b + 1.0) / held) for a, b in some) for some in (asked(limits), wanted))
    assert math.isclose(best, right, rel_tol=1e-9, abs_tol=rounding(case)[1])


@pytest.mark.parametrize("chunk", range(4))
def test_staircases_and_at_once_are_the_frontier_of_all_plans(chunk: int) -> None:
    for rng, case in cases(60, 2, 7, salt=50 + chunk):
        start = without_seeds(case) if rng.random() < 0.5 else some_seeds(case, rng.choice((ONE_PLAN, 3)))
        assert_answers(rng, case, case.reference.staircase(case.leaves), start)


@pytest.mark.parametrize(("shape", "n"), LARGEST)
def test_staircases_of_large_graphs_are_the_frontier_of_all_plans(shape: str, n: int) -> None:
    for seed in range(1 if n > 11 else 3):
        rng = random.Random(60 + seed)
        case = a_case(rng, n, shape)
        assert_answers(rng, case, case.reference.staircase(case.leaves), some_seeds(case, 3 * seed))


@pytest.mark.parametrize("shape", SHAPES)
def test_staircases_of_fourteen_streams_are_the_frontier_of_all_plans_under_a_cap_on_bytes(shape: str) -> None:
    """A cap leaves few sets that any plan may keep: of these the plain search sees every plan of every shape."""
    trees = tried = 0
    for seed in range(40, 99):  # from the first clique on that has no such sets as below
        rng = random.Random(seed)
        case = a_case(rng, 14, shape)
        bytes_of = {mask: case.reference.state_bytes(mask) for mask in case.masks if mask.bit_count() > 1 and mask != case.component}
        if min(bytes_of.values()) < 1e3 * rounding(case)[1]:
            continue  # sets that keep nothing but a rounding are many
        held = sorted(bytes_of.values())[:KEPT][-1] * 1.001  # not at the cap itself, where rounding decides
        allowed = {mask for mask, size in bytes_of.items() if size <= held}
        wanted = [step for step in case.reference.staircase(case.leaves, allowed) if step[1] <= held]
        assert_answers(rng, case, wanted, some_seeds(case, 3 * tried), held)
        trees, tried = trees + len(wanted), tried + 1
        if tried == (2 if shape == "clique" else 5):
            break
    assert trees > tried > 0  # not the mjoin alone


@pytest.mark.parametrize(("shape", "n"), BEYOND)
def test_staircases_are_what_the_search_of_regions_finds(shape: str, n: int) -> None:
    """Beyond the plain search's reach: two compiled searches that share nothing agree."""
    case = a_case(random.Random(70), n, shape)
    ledger = Ledger(case.model)
    ways, whole = solve_region(ledger, case.leaves, max_steps=4000)
    assert whole
    wanted = [(ledger.common + way.excess, way.state_bytes) for way in ways]
    stairs = staircases(case.sets, case.prices, bounds_of(case.sets, case.prices, going_on()), some_seeds(case, 3), within(case), going_on(), 1 << 16)
    held = max(held for _, held in wanted)
    assert_same_staircase(figures(case, stairs), [step for step in wanted if step[1] <= held], rounding(case))


def test_staircases_over_a_beam_are_the_frontier_of_the_plans_that_keep_its_sets() -> None:
    for rng, case in cases(90, 3, 7, salt=47, fourteen=SHAPES):
        beam = rng.randint(1, 3)
        few = few_of(case.sets, beam)
        allowed = {mask for s, mask in enumerate(case.masks) if few[s]}
        bounds = bounds_of(case.sets, case.prices, going_on())
        stairs = staircases(case.sets, case.prices, bounds, without_seeds(case), within(case)._replace(beam=beam), going_on(), ROOM)
        assert_same_staircase(figures(case, stairs), case.reference.staircase(case.leaves, allowed), rounding(case))


@pytest.mark.parametrize("shape", SHAPES)
def test_climbed_says_when_its_room_is_not_enough_and_staircases_takes_more(shape: str) -> None:
    case = a_case(random.Random(1), 7, shape)
    bounds, start = bounds_of(case.sets, case.prices, going_on()), without_seeds(case)
    wanted = case.reference.staircase(case.leaves)
    assert climbed(case.sets, case.prices, bounds, start, within(case), going_on(), 2).status == FULL
    stairs = staircases(case.sets, case.prices, bounds, start, within(case), going_on(), 2)
    assert stairs.status == 0
    assert_same_staircase(figures(case, stairs), wanted, rounding(case))


@pytest.mark.parametrize("shape", SHAPES)
def test_climbed_ends_when_it_is_told_to_with_the_seeds_it_had(shape: str) -> None:
    case = a_case(random.Random(2), 8, shape)
    bounds, start = bounds_of(case.sets, case.prices, going_on()), some_seeds(case, ONE_PLAN)
    stairs = climbed(case.sets, case.prices, bounds, start, within(case), np.ones(2, np.int64), ROOM)
    assert stairs.status == STOPPED and stairs.rows.tolist() == [-2]
    assert np.array_equal(as_seeds(case.sets, start, stairs).members, start.members)


def test_begun_finds_what_its_parts_do_one_after_the_other() -> None:
    for rng, case in cases(90, 2, 9, salt=49, fourteen=FEW_SETS):
        limits = within(case, rng.choice((FRONTIER, LEAST_CPU, LEAST_BYTES)))
        expansions = rng.choice((ONE_PLAN, ONE_DESCENT, 3))
        wanted = some_seeds(case, expansions)
        start, stairs = begun(case.sets, case.prices, expansions, limits, going_on(), ROOM)
        other = at_once(case.sets, case.prices, wanted, limits, going_on(), ROOM)
        assert all(np.array_equal(a, b) for a, b in zip((*start, *stairs[1:]), (*wanted, *other[1:]), strict=True))


def test_as_seeds_describes_the_plans_that_were_found() -> None:
    for rng, case in cases(90, 3, 8, salt=48, fourteen=SHAPES):
        start = without_seeds(case) if rng.random() < 0.5 else some_seeds(case, 2)
        stairs = at_once(case.sets, case.prices, start, within(case), going_on(), ROOM)
        found = as_seeds(case.sets, start, stairs)
        assert np.array_equal(found.e, stairs.e) and np.array_equal(found.m, stairs.m)
        for (cpu, held), operators, members in zip(figures(case, stairs), found.operators, found.members, strict=True):
            joins = case.reference.joins_of(case.named(mask) for mask in members.tolist())
            assert operators == len(joins) and sum(joins[-1]) == case.component
            assert math.isclose(case.reference.cpu(joins), cpu, rel_tol=1e-9)
            assert math.isclose(case.reference.inner_bytes(joins, case.component), held, rel_tol=1e-9, abs_tol=rounding(case)[1])

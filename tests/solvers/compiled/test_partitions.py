"""The walk through a set's partitions, against all of them by the graph alone and the reference's prices of their mjoins."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import numpy as np
import pytest

from solvers.jtree.compiled.blocks import Lists
from solvers.jtree.compiled.bounds import bounds_of
from solvers.jtree.compiled.climbing import misses
from solvers.jtree.compiled.orders import DENSE_INPUTS
from solvers.jtree.compiled.partitions import (
    ASKED_EVERY,
    CANDIDATE,
    DEPTH,
    FILLED,
    NO_MORE,
    SHARES,
    STEPS,
    TOLD_TO_STOP,
    WHOLE,
    V,
    begin_walk,
    blocks_inside,
    fits,
    go_on_with,
    mjoin_cost,
    next_partition,
    starts,
    told_to_stop,
    walk_room,
)
from solvers.jtree.compiled.staircases import room_to_climb
from tests.solvers.compiled.cases import FEW_SETS, Case, a_case, cases, close, going_on
from tests.solvers.compiled.searched import Figures, Point, Searched, searched, within, without_seeds
from tests.solvers.reference import positions


def begin(search: Searched, v: int) -> None:
    room = search.room
    begin_walk(search.sets, room.lists, room.blocks.share, room.inside, room.walk, v)


def following(search: Searched) -> int:
    room = search.room
    return next_partition(search.sets, search.case.prices, search.bounds.ahead, room.blocks, room.inside, room.walk, room.stair)


def walked(search: Searched) -> Iterator[tuple[int, ...]]:
    """The partitions that the walk comes to."""
    while (joins := following(search)) > 0:
        yield tuple(search.room.walk.block[:joins].tolist())
    assert joins == NO_MORE


def start(search: Searched, candidate: int) -> bool:
    room = search.room
    room.walk.at[CANDIDATE] = candidate
    return starts(search.sets, search.bounds.ahead, room.blocks, room.inside, room.walk, room.stair)


def listed_at(search: Searched, block: int) -> int:
    """Where a block stands among those inside the set of the walk."""
    (place,) = np.flatnonzero(search.room.inside.block[: search.room.walk.at[FILLED]] == block)
    return int(place)


def in_order(search: Searched, blocks: tuple[int, ...]) -> list[int]:
    """A partition in the order of the walk: the block that is missing from the smallest partial result, then by their lowest streams."""
    inside, places = search.room.inside, {block: listed_at(search, block) for block in blocks}
    first = min(blocks, key=lambda block: (inside.lack[places[block]], places[block]))
    return [first, *sorted((block for block in blocks if block != first), key=lambda block: positions(int(search.sets.mask[block]))[0])]


def some_limits(rng: random.Random, figures: list[Figures]) -> tuple[float, float, list[Point]]:
    """Limits and points of a staircase that some mjoins only just come below."""
    most_e, most_m, points = math.inf, math.inf, []
    if rng.random() < 0.5:
        one = rng.choice(figures)
        most_e = one.e + 2.0 * one.slack
    if rng.random() < 0.5:
        most_m = rng.choice(figures).m
    for one in rng.sample(figures, min(len(figures), rng.randint(0, 4))):
        points.append((one.e + 2.0 * one.slack, one.m, one.o))
    return most_e, most_m, points


def limited(count: int, salt: int) -> Iterator[tuple[random.Random, Searched, int, list[tuple[tuple[int, ...], Figures]]]]:
    """Walks that begin within limits: the set, and every partition of it with the figures of its mjoin."""
    for rng, case in cases(count, 4, 7, salt=salt):
        search = searched(case)
        for v in {rng.choice(search.wide), case.sets.mask.size - 1}:
            every = [(blocks, search.cost(blocks)) for blocks in search.partitions(v)]
            most_e, most_m, points = some_limits(rng, [figures for _, figures in every])
            search.begin(most_e, most_m, points)
            begin(search, v)
            yield rng, search, v, every


def is_a_step(search: Searched, figures: Figures) -> bool:
    return not misses(search.room.stair, figures.e + figures.slack, figures.m, figures.o)


# The walk itself


def test_walk_room_has_room_for_so_many_blocks_and_knows_what_steps_cost() -> None:
    for rng, case in cases(12, 3, 8, salt=80, fourteen=FEW_SETS):
        blocks, stop = rng.randint(1, 99), going_on()
        inside, walk = walk_room(case.sets, case.prices, blocks, stop)
        assert {inside.block.size, inside.less.size, inside.lack.size} == {blocks}
        assert inside.begin.size == case.n * (case.n + 1) + 1 and inside.lack_of.size == case.n
        for joins in range(1, case.n + 1):
            # Each input of an mjoin probes all others; a tree of binary joins has two probes a join.
            assert close(walk.steps[joins], case.model.costs.step * (joins * (joins - 1) - 2 * (joins - 1)))
        assert walk.made == case.prices.made and not walk.at.any() and not walk.known.any()
        assert walk.block.size >= case.n and min(walk.left.size, walk.group.size, walk.place.size) > case.n
        if case.n > DENSE_INPUTS:
            assert walk.to_go.size == case.sets.mask.size
        walk.at[STEPS] = ASKED_EVERY
        stop[0] = 1
        assert told_to_stop(walk)  # whoever holds `stop` can say so


def test_told_to_stop_counts_every_step_and_looks_now_and_then() -> None:
    _, case = next(cases(1, 4, 5, salt=80))
    stop = going_on()
    _, walk = walk_room(case.sets, case.prices, 1, stop)
    assert not any(told_to_stop(walk) for _ in range(1000))
    assert walk.at[STEPS] == 1000
    stop[0] = 1
    said = [told_to_stop(walk) for _ in range(1000)]
    assert [1001 + k for k, stops in enumerate(said) if stops] == [step for step in range(1001, 2001) if step % (ASKED_EVERY + 1) == 0]


def test_blocks_inside_are_those_of_the_lists_with_the_partial_results_that_lack_them() -> None:
    for rng, case in cases(40, 3, 8, salt=81):
        search, reference = searched(case), case.reference
        listed = search.room.lists
        ends = [end - rng.randint(0, 1) if end > begin + 1 else end for begin, end in zip(listed.begin.tolist(), listed.end.tolist(), strict=False)]
        lists = Lists(listed.begin, np.array(ends), listed.listed)
        inside = search.room.inside
        for v in (rng.choice(search.wide), case.sets.mask.size - 1):
            whole = case.masks[v]
            filled = blocks_inside(case.sets, lists, case.prices.made, inside, int(case.sets.mask[v]))
            found = []
            for g in range(case.n * (case.n + 1)):
                own = lists.listed[lists.begin[g] : lists.end[g]].tolist()
                wanted = [block for block in own if case.masks[block] & ~whole == 0 and case.masks[block] != whole]
                assert inside.block[inside.begin[g] : inside.begin[g + 1]].tolist() == wanted
                found += wanted
            assert filled == len(found)
            least = dict.fromkeys(range(case.n), math.inf)
            for k, block in enumerate(found):
                less = whole & ~case.masks[block]
                assert inside.less[k] == case.place(less)
                lack = case.prices.made * reference.size(less) if reference.connected(less) else math.inf
                assert close(inside.lack[k], lack)
                for i in positions(int(case.sets.mask[block])):
                    least[i] = min(least[i], lack)
            assert all(close(inside.lack_of[i], lack) for i, lack in least.items())


def test_begin_walk_lists_the_blocks_inside_and_the_least_that_their_streams_cost() -> None:
    for rng, case in cases(30, 3, 7, salt=82):
        search = searched(case)
        for v in rng.sample(range(case.n, case.sets.mask.size), 3):
            walk, mask, before = search.room.walk, int(case.sets.mask[v]), int(search.room.walk.at[STEPS])
            begin(search, v)
            wide = mask.bit_count() > 2
            inner = [s for s, other in enumerate(case.sets.mask.tolist()) if other & ~mask == 0 and s != v] if wide else []
            assert walk.at.tolist() == [v, mask, len(inner), -1, -1, before + len(inner)]
            assert sorted(search.room.inside.block[: len(inner)].tolist()) == inner
            assert close(walk.known[SHARES], math.fsum(search.room.blocks.share[1, i] for i in positions(mask)) if wide else 0.0)


def test_begin_walk_begins_anew_wherever_the_last_one_was() -> None:
    for rng, case in cases(20, 4, 6, salt=83):
        search = searched(case)
        search.begin()
        v, other = rng.choice(search.wide), rng.randrange(case.n, case.sets.mask.size)
        begin(search, v)
        wanted = list(walked(search))
        begin(search, other)
        for _ in range(rng.randint(0, 3)):
            following(search)
        begin(search, v)
        assert (search.room.walk.at[V], search.room.walk.at[WHOLE]) == (v, case.sets.mask[v])
        assert list(walked(search)) == wanted


def test_go_on_with_comes_to_the_blocks_of_the_lowest_stream_left_from_the_stream_alone_on() -> None:
    for rng, case in cases(30, 3, 8, salt=84):
        search = searched(case)
        inside, walk, masks = search.room.inside, search.room.walk, case.sets.mask
        begin(search, case.sets.mask.size - 1)
        for _ in range(10):
            left, depth = rng.randrange(1, 1 << case.n), rng.randint(1, case.n)
            go_on_with(case.sets, inside, walk, depth, left)
            low = positions(left)[0]
            assert walk.at[DEPTH] == depth and walk.left[depth] == left
            begins = [block for block in inside.block[: walk.at[FILLED]].tolist() if positions(int(masks[block]))[0] == low]
            place = walk.place[depth]
            assert inside.block[place : place + len(begins)].tolist() == begins and begins[0] == low
            assert inside.begin[walk.group[depth]] == place


def test_starts_without_limits_wherever_what_the_block_lacks_is_connected() -> None:
    for rng, case in cases(40, 3, 7, salt=85):
        search = searched(case)
        room = search.room
        search.begin()
        for v in (rng.choice(search.wide), case.sets.mask.size - 1):
            begin(search, v)
            for candidate in range(room.walk.at[FILLED]):
                block = int(room.inside.block[candidate])
                rest = case.masks[v] & ~case.masks[block]
                wanted = case.reference.connected(rest) and rest.bit_count() > 1
                room.walk.at[DEPTH] = 0
                assert start(search, candidate) == wanted
                assert (room.walk.at[DEPTH] == 1) == wanted
                if wanted:
                    assert room.walk.block[0] == block and case.named(int(room.walk.left[1])) == rest


def test_starts_leaves_out_no_block_of_an_mjoin_that_could_be_a_step() -> None:
    said = {True: 0, False: 0}
    for _, search, _, every in limited(60, salt=86):
        firsts = {in_order(search, blocks)[0] for blocks, figures in every if is_a_step(search, figures)}
        others = {in_order(search, blocks)[0] for blocks, _ in every} - firsts
        for block in firsts:
            assert start(search, listed_at(search, block))
        for block in others:
            said[start(search, listed_at(search, block))] += 1
    assert said[False] > said[True] / 4 > 0, said  # to begin with everything would be no fault, but slow


def place_all(search: Searched, blocks: list[int]) -> list[float]:
    """What is known of an mjoin with every block that is placed after the first."""
    room, case = search.room, search.case
    assert start(search, listed_at(search, blocks[0]))
    known = []
    for depth, block in enumerate(blocks[1:], 1):
        known.append(fits(case.sets, case.prices, search.bounds.ahead, room.blocks, room.inside, room.walk, listed_at(search, block)))
        if block != blocks[-1]:
            go_on_with(case.sets, room.inside, room.walk, depth + 1, int(room.walk.left[depth] & ~case.sets.mask[block]))
    return known


def test_fits_is_never_above_what_an_mjoin_costs_with_the_best_plans_of_its_blocks() -> None:
    close_to = {True: 0, False: 0}  # by whether all blocks are placed
    asked = 0
    for rng, case in cases(100, 4, 8, salt=87):
        search = searched(case)
        search.begin()
        for v in {rng.choice(search.wide), case.sets.mask.size - 1}:
            begin(search, v)
            every = search.partitions(v)
            for blocks in rng.sample(every, min(len(every), 15)):
                wanted = search.cost(blocks)
                known = place_all(search, in_order(search, blocks))
                assert max(known) <= wanted.e + wanted.slack
                close_to[False] += known[0] > 0.5 * wanted.e
                close_to[True] += known[-1] > 0.5 * wanted.e
                asked += 1
    assert close_to[True] > 0.6 * asked and close_to[False] > 0.3 * asked, (close_to, asked)  # nothing at all would be a bound, too


def test_fits_counts_the_plans_of_what_is_placed_the_steps_and_what_is_left_at_the_least_shares() -> None:
    for rng, case in cases(60, 4, 8, salt=96):
        search = searched(case)
        search.begin()
        begin(search, case.sets.mask.size - 1)
        least, every = search.room.blocks, search.partitions(case.sets.mask.size - 1)
        for blocks in rng.sample(every, min(len(every), 10)):
            order = in_order(search, blocks)
            for placed, found in enumerate(place_all(search, order), 2):
                left = [i for block in order[placed:] for i in positions(int(case.sets.mask[block]))]
                inputs = placed + bool(left)  # at least
                parts = [case.model.costs.step * (inputs - 1) * (inputs - 2), *least.e[order[:placed]].tolist(), *least.share[1, left].tolist()]
                assert found >= math.fsum(parts) * (1.0 - 1e-9)


def test_fits_is_all_that_three_blocks_cost_but_for_scans_and_dearer_states() -> None:
    """With three blocks each pipeline has one partial result, of which all is known."""
    asked = 0
    for rng, case in cases(60, 3, 7, salt=88):
        search, reference = searched(case), case.reference
        search.begin()
        begin(search, case.sets.mask.size - 1)
        three = [blocks for blocks in search.partitions(case.sets.mask.size - 1) if len(blocks) == 3]
        for blocks in rng.sample(three, min(len(three), 15)):
            wanted = search.cost(blocks)
            masks = [case.masks[block] for block in blocks]
            joined = [(a, b) for a in masks for b in masks if reference.around(a) & b]
            if case.model.costs.scan and not all(reference.equal_around(a) & b for a, b in joined):
                continue
            kept = reference.keeping(masks) - math.fsum(case.floor(mask) for mask in masks)
            known = place_all(search, in_order(search, blocks))
            assert abs(known[-1] + kept - wanted.e) <= wanted.slack
            asked += 1
    assert asked > 50


def test_next_partition_yields_every_partition_into_three_blocks_or_more_once() -> None:
    for rng, case in cases(60, 3, 7, salt=89):
        search = searched(case)
        search.begin()
        for v in {rng.choice(search.wide), case.sets.mask.size - 1}:
            begin(search, v)
            found = list(walked(search))
            assert sorted(map(sorted, found)) == sorted(map(sorted, search.partitions(v)))


def test_next_partition_begins_with_the_block_that_the_smallest_partial_result_lacks() -> None:
    for _, case in cases(30, 3, 7, salt=90):
        search, reference = searched(case), case.reference
        search.begin()
        v = case.sets.mask.size - 1
        begin(search, v)
        for blocks in walked(search):
            less = [case.component & ~case.masks[block] for block in blocks]
            sizes = [reference.size(mask) if reference.connected(mask) else math.inf for mask in less]
            assert sizes[0] < math.inf
            assert sizes[0] <= min(sizes) * (1.0 + 1e-9) or case.prices.made == 0.0
            assert list(blocks) == in_order(search, blocks)


def test_next_partition_leaves_out_none_that_could_be_a_step() -> None:
    yielded = steps = total = 0
    for _, search, _, every in limited(100, salt=91):
        wanted = {tuple(sorted(blocks)) for blocks, figures in every if is_a_step(search, figures)}
        found = [tuple(sorted(blocks)) for blocks in walked(search)]
        assert len(set(found)) == len(found)
        assert wanted <= set(found) <= {tuple(sorted(blocks)) for blocks, _ in every}
        yielded, steps, total = yielded + len(found), steps + len(wanted), total + len(every)
    assert steps > 500 and yielded - steps < 0.15 * (total - steps), (steps, yielded, total)


def test_next_partition_knows_the_memory_and_the_operators_of_what_is_placed() -> None:
    for rng, case in cases(30, 4, 7, salt=97):
        search = searched(case)
        search.begin()
        begin(search, rng.choice(search.wide))
        walk, least = search.room.walk, search.room.blocks
        for blocks in walked(search):
            for depth in range(1, len(blocks)):
                placed = list(blocks[:depth])
                assert close(walk.m[depth], math.fsum(least.m[placed])) and walk.o[depth] == 1 + least.o[placed].sum()


@pytest.mark.parametrize("most", [math.inf, -1.0], ids=["among partitions", "where none is worth it"])
def test_next_partition_ends_where_it_is_told_to(most: float) -> None:
    case = a_case(random.Random(95), 6, "clique")
    search = searched(case)
    search.begin(most)
    search.room.walk.stop[0] = 1
    for steps in (1, 3, ASKED_EVERY):
        begin(search, case.sets.mask.size - 1)
        search.room.walk.at[STEPS] = ASKED_EVERY + 1 - steps
        found = following(search)
        while found > 0:
            found = following(search)
        assert found == TOLD_TO_STOP and search.room.walk.at[STEPS] == ASKED_EVERY + 1


# What the mjoins cost


def test_mjoin_cost_is_that_of_the_best_probe_orders() -> None:
    for rng, case in cases(60, 3, 7, salt=92):
        search = searched(case)
        search.begin()
        v = rng.choice(search.wide)
        begin(search, v)
        for blocks in walked(search):
            if rng.random() < 0.3:
                masks = tuple(case.masks[block] for block in blocks)
                found = mjoin_cost(case.sets, case.prices, search.room.blocks, search.room.walk, search.room.stair, len(blocks))
                case.assert_excess(found, masks, case.reference.join(masks))
                assert case.prices.grain == 0.0 or (found / case.prices.grain).is_integer()


def test_mjoin_cost_is_right_up_to_the_limits_and_above_them_no_less() -> None:
    below = above = 0
    for rng, search, v, every in limited(60, salt=93):
        case, room = search.case, search.room
        prices = {tuple(sorted(blocks)): figures for blocks, figures in every}
        one = rng.choice(every)[1]
        most = one.e + 2.0 * one.slack
        if rng.random() < 0.5:
            search.begin(most)
        else:
            search.begin(points=[(most, one.m, 1)])
        begin(search, v)
        for blocks in walked(search):
            figures = prices[tuple(sorted(blocks))]
            own = math.fsum(room.blocks.e[list(blocks)])
            found = mjoin_cost(case.sets, case.prices, room.blocks, room.walk, room.stair, len(blocks)) + own
            assert found >= figures.e - figures.slack
            if is_a_step(search, figures):
                assert found <= figures.e + figures.slack
                below += 1
            else:
                above += 1
    assert min(below, above) > 100, (below, above)


def wide_room(case: Case) -> Searched:
    """A graph that is too large to make every staircase here: before the first."""
    bounds = bounds_of(case.sets, case.prices, going_on())
    return Searched(case, bounds, room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), going_on(), 64))


def test_mjoin_cost_of_more_inputs_than_a_small_table_takes_is_that_of_the_best_probe_orders() -> None:
    for _, case in cases(0, 2, 2, salt=94, fourteen=FEW_SETS):
        assert case.n > DENSE_INPUTS
        search = wide_room(case)
        search.begin()
        begin(search, case.sets.mask.size - 1)
        search.room.walk.block[: case.n] = range(case.n)
        found = mjoin_cost(case.sets, case.prices, search.room.blocks, search.room.walk, search.room.stair, case.n)
        leaves = tuple(case.leaves)
        case.assert_excess(found, leaves, case.reference.join(leaves))

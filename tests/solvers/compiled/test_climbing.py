"""The staircase of one set while its plans are searched, against lists of points and the definition of what beats what."""

from __future__ import annotations

import math
import random

import numpy as np

from solvers.jtree.compiled.climbing import COUNT, FOREIGN, MOST_E, MOST_M, Stair, begin_stair, bought_by, misses, put, stair_room
from solvers.jtree.compiled.questions import FRONTIER, LEAST_BYTES, LEAST_CPU, Limits
from solvers.jtree.compiled.staircase import Steps, room_for
from solvers.model.staircase import undominated
from tests.solvers.compiled.searched import Point, points_of

LONGEST = 60


def asked(goal: int = FRONTIER) -> Limits:
    return Limits(goal, math.inf, math.inf, math.inf, math.inf, math.inf, math.inf, 0.0, 0.0)


def some_points(rng: random.Random, most: int = 12, side: int = 14) -> list[Point]:
    """Of whole numbers, so that many are equal and differences are exact."""
    return [(float(rng.randint(0, side)), float(rng.randint(0, side)), rng.randint(1, 4)) for _ in range(rng.randint(0, most))]


def best_of(points: list[Point]) -> list[Point]:
    return undominated(points, lambda point: point[:2], lambda point: point[2])


def beats(one: Point, other: Point) -> bool:
    """As good in both figures, and in operators where both are equal."""
    return one[0] <= other[0] and one[1] <= other[1] and (one[:2] != other[:2] or one[2] <= other[2])


def as_steps(points: list[Point]) -> Steps:
    steps = room_for(LONGEST)
    for k, (e, m, o) in enumerate(points):
        steps.e[k], steps.m[k], steps.o[k], steps.row[k] = e, m, o, 100 + k
    return steps


def begun_with(points: list[Point], cpu: float, held: float, of_all: bool = True, goal: int = FRONTIER) -> Stair:
    """A staircase of all streams that begins with these points, within limits."""
    stair = stair_room(LONGEST, asked(goal))
    begin_stair(stair, as_steps(points), np.array([cpu, held]), len(points), 0.0, 0.0, of_all)
    return stair


def some_limit(rng: random.Random) -> float:
    return rng.choice((math.inf, float(rng.randint(0, 16))))


def test_stair_room_has_room_for_so_many_points_beside_the_limits_it_is_given() -> None:
    for longest in (1, 2, 17):
        stair = stair_room(longest, asked(LEAST_BYTES))
        assert stair.counts[COUNT] == 0 and stair.limits == asked(LEAST_BYTES)
        stair.most[:] = np.inf
        for k in range(longest):
            put(stair, float(k), float(-k), 1, k)
        assert stair.counts[COUNT] == longest == stair.here.e.size
        assert points_of(stair.here, longest) == [(float(k), float(-k), 1) for k in range(longest)]


def test_begin_stair_keeps_the_frontiers_points_less_what_keeping_adds() -> None:
    skipped = 0
    for seed in range(400):
        rng = random.Random(seed)
        frontier = best_of(some_points(rng))
        own_e, own_m = float(rng.randint(0, 9)), float(rng.randint(0, 9))
        stair = stair_room(LONGEST, asked())
        begin_stair(stair, as_steps(frontier), np.array([20.0, 30.0]), len(frontier), own_e, own_m, False)
        less = [(e - own_e, m - own_m, o - 1) for e, m, o in frontier]
        free = [point for point in less if point[0] <= 0.0]
        kept = free[-1:] + less[len(free) :]
        assert points_of(stair.here, stair.counts[COUNT]) == kept
        assert set(stair.here.row[: len(kept)].tolist()) <= {FOREIGN}
        assert (stair.most[MOST_E], stair.most[MOST_M]) == (20.0 - own_e, 30.0 - own_m)
        skipped += len(less) - len(kept)
    assert skipped > 100


def test_begin_stair_of_all_streams_is_the_frontier_itself() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        frontier = [(e - 6.0, m, o) for e, m, o in best_of(some_points(rng))]
        stair = begun_with(frontier, 20.0, 30.0)
        assert points_of(stair.here, stair.counts[COUNT]) == frontier
        assert stair.here.row[: len(frontier)].tolist() == [100 + k for k in range(len(frontier))]
        assert stair.most.tolist() == [20.0, 30.0]


def test_begin_stair_and_misses_rule_out_what_the_frontier_beats_with_what_keeping_adds() -> None:
    """A plan of the set is part of one of all streams, with an operator more at least."""
    said = {True: 0, False: 0}
    for seed in range(300):
        rng = random.Random(seed)
        frontier = best_of(some_points(rng))
        own_e, own_m, cpu, held = float(rng.randint(0, 9)), float(rng.randint(0, 9)), some_limit(rng), some_limit(rng)
        stair = stair_room(LONGEST, asked())
        begin_stair(stair, as_steps(frontier), np.array([cpu, held]), len(frontier), own_e, own_m, False)
        for e, m, o in some_points(rng, 30):
            whole = (e + own_e, m + own_m, o + 1)
            wanted = whole[0] > cpu or whole[1] > held or any(beats(point, whole) for point in frontier)
            assert misses(stair, e, m, o) == wanted
            said[wanted] += 1
    assert min(said.values()) > 300, said


def test_misses_is_what_breaks_a_limit_or_is_beaten() -> None:
    said = {True: 0, False: 0}
    for seed in range(300):
        rng = random.Random(seed)
        here, cpu, held = best_of(some_points(rng)), some_limit(rng), some_limit(rng)
        stair = begun_with(here, cpu, held)
        for point in some_points(rng, 30):
            wanted = point[0] > cpu or point[1] > held or any(beats(other, point) for other in here)
            assert misses(stair, *point) == wanted
            said[wanted] += 1
    assert min(said.values()) > 300, said


def test_bought_by_is_the_cheapest_point_that_needs_no_more_memory() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        points = some_points(rng)
        stair = begun_with(best_of(points), math.inf, math.inf)
        for m in range(-1, 16):
            assert bought_by(stair, float(m)) == min((e for e, held, _ in points if held <= m), default=math.inf)


def test_put_leaves_of_all_points_those_that_no_other_beats() -> None:
    for seed in range(300):
        rng = random.Random(seed)
        stair, points = begun_with([], math.inf, math.inf, of_all=rng.random() < 0.5), some_points(rng, 30)
        put_as: dict[int, Point] = {}
        for row, point in enumerate(points):
            if not misses(stair, *point):
                put(stair, *point, row)
                put_as[row] = point
        count = stair.counts[COUNT]
        assert points_of(stair.here, count) == best_of(points)
        assert [put_as[row] for row in stair.here.row[:count].tolist()] == best_of(points)


def test_put_asks_for_nothing_worse_from_then_on_but_of_all_streams_alone() -> None:
    for seed in range(200):
        rng = random.Random(seed)
        goal, of_all = rng.choice((FRONTIER, LEAST_CPU, LEAST_BYTES)), rng.random() < 0.7
        stair = begun_with([], 12.0, 13.0, of_all, goal)
        cpu, held = 12.0, 13.0
        for row, point in enumerate(some_points(rng)):
            if misses(stair, *point):
                continue
            put(stair, *point, row)
            if of_all and goal == LEAST_CPU:
                cpu = min(cpu, point[0])
            if of_all and goal == LEAST_BYTES:
                held = min(held, point[1])
            assert (stair.most[MOST_E], stair.most[MOST_M]) == (cpu, held)

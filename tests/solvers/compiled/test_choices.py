"""Choices of the points of a join's blocks, against the product of all of them."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from itertools import product

import numpy as np

from solvers.jtree.compiled.blocks import Blocks
from solvers.jtree.compiled.choices import MAX_POINTS, POINTS, USED, Points, choose, last_block, point_room, record, useless
from solvers.jtree.compiled.climbing import COUNT, MOST_E, Stair, begin_stair, misses, put, stair_room
from solvers.jtree.compiled.compiling import Ints
from solvers.jtree.compiled.questions import FRONTIER, FULL, STOPPED, Limits
from solvers.jtree.compiled.staircase import room_for
from solvers.model.staircase import undominated
from tests.solvers.compiled.cases import ints
from tests.solvers.compiled.searched import Point, points_of

UNLIMITED = Limits(FRONTIER, math.inf, math.inf, math.inf, math.inf, math.inf, math.inf, 0.0, 0.0)
STREAMS, ROOM, LONGEST, BEFORE = 5, 1 << 12, 400, -9


def best_of(points: list[Point]) -> list[Point]:
    return undominated(points, lambda point: point[:2], lambda point: point[2])


def some_points(rng: random.Random, most: int, side: int) -> list[Point]:
    """Of whole numbers, so that sums are exact and many of them equal."""
    return [(float(rng.randint(0, side)), float(rng.randint(0, side)), rng.randint(1, 3)) for _ in range(rng.randint(0, most))]


def a_staircase(rng: random.Random) -> list[Point]:
    many = rng.randint(1, 7)
    es, ms = (sorted(rng.sample(range(16), many)) for _ in range(2))
    return [(float(e), float(m), rng.randint(1, 3)) for e, m in zip(es, reversed(ms), strict=True)]


def added(*points: Point) -> Point:
    return sum(point[0] for point in points), sum(point[1] for point in points), sum(point[2] for point in points)


@dataclass(frozen=True)
class Joining:
    """A join of streams and of blocks with random staircases."""

    points: Points
    blocks: Blocks
    joined: Ints
    inner: list[int]
    steps: dict[int, list[Point]]
    """Of each inner block, with what keeping it adds."""
    node: float

    @property
    def sums(self) -> list[Point]:
        """Of every choice of points."""
        return [added((self.node, 0.0, 1), *chosen) for chosen in product(*(self.steps[block] for block in self.inner))]

    def after(self, level: int, chosen: list[int]) -> Point:
        """The points chosen of the first blocks are taken, and those of the others at least: as `choose` does. Returns what they come to so far."""
        points, blocks = self.points, self.blocks
        part = added((self.node, 0.0, 1), *(self.steps[block][k] for block, k in zip(self.inner[:level], chosen, strict=True)))
        points.inner[: len(self.inner)] = self.inner
        points.pick[:level] = [k + 1 for k in chosen]
        points.part_e[level], points.part_m[level], points.part_o[level] = part
        rest = self.inner[level:]
        tail = blocks.e[rest].sum(), blocks.m[rest].sum(), blocks.o[rest].sum()
        points.tail_e[level], points.tail_m[level], points.tail_o[level] = tail
        return part

    def made_of(self, row: int) -> Point:
        """The figures of a choice that was written down, which is of the blocks of this join in their order."""
        points, many = self.points, len(self.joined)
        assert points.entries[row] == many
        written = points.entries[row + 1 : row + 1 + many].tolist()
        assert [-1 - entry if entry < 0 else int(points.of[entry]) for entry in written] == self.joined.tolist()
        chosen = [(entry, int(points.of[entry])) for entry in written if entry >= 0]
        steps = [(points.e[p] + self.blocks.kept_e[block], points.m[p] + self.blocks.kept_m[block], points.o[p]) for p, block in chosen]
        return added((self.node, 0.0, 1), *steps)


def a_join(rng: random.Random, least: int = 0, room: int = ROOM) -> Joining:
    """With so many inner blocks at least; all others know of points that are no business of this join."""
    total = STREAMS + 6
    blocks = Blocks(
        e=np.zeros(total),
        m=np.zeros(total),
        o=np.zeros(total, np.int64),
        kept_e=np.array([float(rng.randint(0, 5)) for _ in range(total)]),
        kept_m=np.array([float(rng.randint(0, 5)) for _ in range(total)]),
        bound=np.zeros(total),
        first=np.zeros(total, np.int64),
        many=np.zeros(total, np.int64),
        share=np.zeros((1, 1)),
    )
    points, steps, taken = point_room(STREAMS, room), {}, 0
    for block in range(STREAMS, total):
        own = a_staircase(rng)
        blocks.first[block], blocks.many[block] = taken, len(own)
        for e, m, o in own:
            points.e[taken], points.m[taken], points.o[taken], points.of[taken] = e, m, o, block
            taken += 1
        steps[block] = [added(point, (float(blocks.kept_e[block]), float(blocks.kept_m[block]), 0)) for point in own]
        blocks.e[block], blocks.m[block] = steps[block][0][0], steps[block][-1][1]
        blocks.o[block] = min(o for _, _, o in own)
    points.counts[POINTS] = taken
    inner = rng.sample(range(STREAMS, total), rng.randint(least, 4))
    joined = rng.sample(range(STREAMS), rng.randint(2 if len(inner) < 2 else 0, 3)) + inner
    rng.shuffle(joined)
    inner = [block for block in joined if block >= STREAMS]
    return Joining(points, blocks, ints(joined), inner, steps, float(rng.randint(0, 5)))


def a_stair(before: list[Point], cpu: float = math.inf, held: float = math.inf, longest: int = LONGEST) -> Stair:
    """With points of before, all within limits."""
    stair = stair_room(longest, UNLIMITED)
    begin_stair(stair, room_for(1), np.array([cpu, held]), 0, 0.0, 0.0, False)
    for point in before:
        if not misses(stair, *point):
            put(stair, *point, BEFORE)
    return stair


def assert_has(joining: Joining, stair: Stair, sums: list[Point], before: list[Point]) -> int:
    """The staircase is the best of these sums and of the points of before, which stay where a sum is no better; what is written down for each sum
    comes to its figures. Returns how many were put."""
    count = int(stair.counts[COUNT])
    assert points_of(stair.here, count) == best_of(before + sums)
    rows: list[int] = stair.here.row[:count].tolist()
    for point, row in zip(points_of(stair.here, count), rows, strict=True):
        assert (row == BEFORE) == (point in before)
        assert row == BEFORE or joining.made_of(row) == point
    return count - rows.count(BEFORE)


def limits_for(rng: random.Random, sums: list[Point]) -> tuple[float, float]:
    """Limits that a choice lies at, or none."""
    return rng.choice((math.inf, rng.choice(sums)[0])), rng.choice((math.inf, rng.choice(sums)[1]))


def test_point_room_has_room_for_so_many_points_and_for_a_join_of_all_streams() -> None:
    for n, room in ((2, 1), (7, 40)):
        points = point_room(n, room)
        assert {array.size for array in (points.e, points.m, points.o, points.row, points.of)} == {room}
        assert points.entries.size == 4 * room and points.counts.tolist() == [0, 0] and points.streams == n
        # A visit of every level of a join of n inner blocks, and of the one below the last.
        assert min(points.inner.size, points.pick.size) >= n
        assert min(array.size for array in points[9:15] if isinstance(array, np.ndarray)) >= n + 1


def test_record_writes_down_the_streams_and_the_points_chosen_one_after_the_other() -> None:
    for seed in range(100):
        rng = random.Random(seed)
        joining, used = a_join(rng), 0
        for _ in range(3):
            chosen = [rng.randrange(len(joining.steps[block])) for block in joining.inner]
            part = joining.after(len(joining.inner), chosen)
            row = record(joining.points, joining.blocks, joining.joined, joining.joined.size)
            assert row == used and joining.made_of(row) == part
            used += 1 + joining.joined.size
            assert joining.points.counts[USED] == used
            entries = joining.points.entries[row + 1 : used].tolist()
            assert [p - joining.blocks.first[joining.points.of[p]] for p in entries if p >= 0] == chosen


def test_last_block_tries_each_of_its_points_with_those_chosen_before() -> None:
    tried = 0
    for seed in range(300):
        rng = random.Random(seed)
        joining = a_join(rng, 1)
        level = len(joining.inner) - 1
        part = joining.after(level, [rng.randrange(len(joining.steps[block])) for block in joining.inner[:level]])
        sums = [added(part, step) for step in joining.steps[joining.inner[-1]]]
        cpu, held = limits_for(rng, sums)
        before = [point for point in some_points(rng, 9, 60) if point[0] <= cpu and point[1] <= held]
        stair = a_stair(before, cpu, held)
        assert last_block(joining.points, joining.blocks, stair, joining.joined, joining.joined.size, level, level + 1) == 0
        tried += assert_has(joining, stair, [point for point in sums if point[0] <= cpu and point[1] <= held], before)
    assert tried > 300


def test_last_block_of_streams_alone_is_one_choice() -> None:
    joining = a_join(random.Random(1))
    streams = ints((3, 0, 2))
    alone = Joining(joining.points, joining.blocks, streams, [], joining.steps, 7.0)
    for before, more in ((None, 1), ((7.0, 0.0, 2), 1), ((7.0, 0.0, 1), 0), ((6.0, 0.0, 9), 0)):
        beside = [before] if before else []
        stair = a_stair(beside)
        alone.after(0, [])
        assert last_block(alone.points, alone.blocks, stair, streams, 3, 0, 0) == 0
        assert assert_has(alone, stair, [(7.0, 0.0, 1)], beside) == more


def test_last_block_says_when_there_is_no_room_for_a_point() -> None:
    streams = ints((0, 1))
    blocks = a_join(random.Random(1)).blocks

    def put_beside(count: int, longest: int, used: int) -> int:
        """One choice beside so many points that do not beat it, where so many entries of 8 are used."""
        points, stair = point_room(STREAMS, 2), a_stair([], longest=longest)
        stair.here.e[:count], stair.here.m[:count] = np.arange(count) + 1.0, count - np.arange(count)
        stair.here.o[:count], stair.counts[COUNT] = 1, count
        points.part_e[0], points.part_m[0], points.part_o[0] = 0.0, MAX_POINTS, 1
        points.counts[USED] = used
        return last_block(points, blocks, stair, streams, 2, 0, 0)

    assert put_beside(3, 5, 0) == put_beside(3, 5, 5) == 0
    assert put_beside(3, 5, 6) == FULL
    assert put_beside(3, 4, 0) == FULL
    assert put_beside(MAX_POINTS - 2, MAX_POINTS, 0) == 0
    assert put_beside(MAX_POINTS - 1, MAX_POINTS, 0) == STOPPED


def test_useless_is_said_where_no_choice_of_what_is_left_is_a_step_and_seldom_missed() -> None:
    said = [0, 0, 0]
    for seed in range(1500):
        rng = random.Random(seed)
        joining = a_join(rng, 1)
        many = len(joining.inner)
        level = rng.randint(0, many)
        part = joining.after(level, [rng.randrange(len(joining.steps[block])) for block in joining.inner[:level]])
        least = added(part, *((joining.blocks.e[block], joining.blocks.m[block], joining.blocks.o[block]) for block in joining.inner[level:]))
        cpu, held = (rng.choice((math.inf, figure + rng.randint(-2, 2))) for figure in least[:2])
        stair = a_stair(some_points(rng, 5, 40), cpu, held)
        drop = useless(joining.points, stair, level, many)
        said[drop] += 1
        if drop:
            for chosen in product(*(joining.steps[block] for block in joining.inner[level:])):
                assert misses(stair, *added(part, *chosen))
        # Figures are whole numbers: one below is surely below.
        assert drop or not misses(stair, least[0] - (1.0 if level < many else 0.0), least[1], least[2])
        assert (drop == 2) == (least[0] > stair.most[MOST_E])
    assert min(said) > 200, said


def test_choose_puts_the_choices_that_no_other_beats_and_no_others() -> None:
    most = put_here = 0
    for seed in range(500):
        rng = random.Random(seed)
        joining = a_join(rng)
        sums = joining.sums
        cpu, held = limits_for(rng, sums)
        before = [point for point in some_points(rng, 6, 60) if point[0] <= cpu and point[1] <= held]
        stair = a_stair(before, cpu, held)
        assert choose(joining.points, joining.blocks, stair, joining.joined, joining.joined.size, joining.node) == 0
        put_here += assert_has(joining, stair, [point for point in sums if point[0] <= cpu and point[1] <= held], before)
        most = max(most, len(sums))
    assert most > 500 and put_here > 1000


def test_choose_says_when_there_is_no_room_for_what_it_found() -> None:
    said = {0: 0, FULL: 0}
    for seed in range(100):
        rng = random.Random(seed)
        joining = a_join(rng, 2)
        wanted = best_of(joining.sums)
        longest = rng.randint(2, 12)
        stair = a_stair([], longest=longest)
        status = choose(joining.points, joining.blocks, stair, joining.joined, joining.joined.size, joining.node)
        said[status] += 1
        assert status or points_of(stair.here, stair.counts[COUNT]) == wanted
        assert status == FULL or len(wanted) < longest
        assert stair.counts[COUNT] < longest
    assert min(said.values()) > 10, said

"""Cases whose sets all have a staircase, nothing ruled out, beside what joins of them cost by the plain reference: for the parts of the search."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.bounds import Bounds, bounds_of
from solvers.jtree.compiled.climbing import begin_stair, misses, put
from solvers.jtree.compiled.questions import FRONTIER, Limits
from solvers.jtree.compiled.seeds import Seeds
from solvers.jtree.compiled.sets import Sets
from solvers.jtree.compiled.staircase import Steps
from solvers.jtree.compiled.staircases import Room, climb, room_to_climb
from solvers.model.connected import partitions
from tests.solvers.compiled.cases import Case, going_on

__all__ = ["Figures", "Point", "Searched", "points_of", "searched", "within", "without_seeds"]

ROOM = 1 << 14

Point = tuple[float, float, int]


class Figures(NamedTuple):
    """What a join costs with the best plans of its blocks, each figure by itself, and what the first may be off by."""

    e: float
    m: float
    o: int
    slack: float


def without_seeds(case: Case) -> Seeds:
    none = np.empty(0)
    return Seeds(none, none, np.empty(0, np.int64), np.empty((0, case.n), np.int64))


def within(case: Case, goal: int = FRONTIER, cpu: float = math.inf, held: float = math.inf) -> Limits:
    """Limits for caps on CPU and on bytes of inner states that no plan lies at."""
    return Limits(goal, cpu - case.base, held, cpu - case.base, held, cpu, held, case.base, 0.0)


def points_of(steps: Steps, count: int) -> list[Point]:
    return list(zip(steps.e[:count].tolist(), steps.m[:count].tolist(), steps.o[:count].tolist(), strict=True))


@dataclass(frozen=True)
class Searched:
    """A case with what the search has when every set was a block of larger ones."""

    case: Case
    bounds: Bounds
    room: Room

    @property
    def sets(self) -> Sets:
        return self.case.sets

    @property
    def wide(self) -> list[int]:
        """The sets of three streams or more."""
        return [s for s, mask in enumerate(self.case.masks) if mask.bit_count() > 2]

    def partitions(self, v: int) -> list[tuple[int, ...]]:
        """Every partition of set v into three connected blocks or more, from the graph alone."""
        every = partitions(self.case.reference.near, self.case.masks[v])
        return [tuple(self.case.place(block) for block in blocks) for blocks in every if len(blocks) > 2]

    def cost(self, blocks: Sequence[int]) -> Figures:
        case, least = self.case, self.room.blocks
        masks = tuple(case.masks[block] for block in blocks)
        cpu = case.reference.join(masks)
        e = math.fsum([cpu, -case.paid(masks), *least.e[list(blocks)].tolist()])
        m, o = sum(least.m[list(blocks)].tolist()), 1 + sum(least.o[list(blocks)].tolist())
        return Figures(e, m, o, 1e-9 * abs(e) + 1e-12 * cpu + 8.0 * case.prices.grain)

    def begin(self, cpu: float = math.inf, held: float = math.inf, points: Iterable[Point] = ()) -> None:
        """The staircase of a set begins with these points, within these limits."""
        stair = self.room.stair
        begin_stair(stair, self.room.frontier, np.array([cpu, held]), 0, 0.0, 0.0, False)
        for point in points:
            if not misses(stair, *point):
                put(stair, *point, -9)


def searched(case: Case) -> Searched:
    bounds, stop = bounds_of(case.sets, case.prices, going_on()), going_on()
    room = room_to_climb(case.sets, case.prices, bounds, without_seeds(case), within(case), stop, ROOM)
    assert climb(case.sets, case.prices, bounds, room, stop) == 0
    return Searched(case, bounds, room)

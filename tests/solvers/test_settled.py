"""Questions that an earlier answer settles: asked one after the other of one solver, each is answered as if it were the only one."""

from __future__ import annotations

import math
import random
from functools import partial

import pytest

from models.request import Costs
from solvers.common.deadline import NEVER
from solvers.jtree.compiled.questions import FRONTIER, LEAST_BYTES, LEAST_CPU
from solvers.jtree.parts import Solver
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import NO_CAPS, Caps
from tests.graphs import SHAPES, random_costs, random_graph

LIMIT = 10_000


def models(seed: int, count: int) -> list[CostModel]:
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        query = random_graph(rng, rng.randint(3, 7), rng.choice(SHAPES), windows=(0.1, 1.0, 10.0), theta=rng.choice((0.0, 0.3)))
        found.append(CostModel(join_graph(query), random_costs(rng)))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_an_answer_is_the_same_whatever_was_asked_before(seed: int) -> None:
    rng = random.Random(seed)
    for model in models(seed, 6):
        frontier, _ = Solver(model, LIMIT).points(NO_CAPS, FRONTIER, NEVER)
        ends = frontier[0], frontier[-1]
        asked = Solver(model, LIMIT)
        asked.points(NO_CAPS, LEAST_CPU, NEVER)
        for _ in range(4):
            memory = rng.uniform(0.9, 1.1) * rng.choice(ends).memory_bytes
            cpu = rng.uniform(0.9, 1.1) * rng.choice(ends).cpu
            for caps, goal in ((Caps(memory_bytes=memory), LEAST_CPU), (Caps(cpu=cpu), LEAST_BYTES), (Caps(cpu, memory), LEAST_CPU)):
                answer, complete = asked.points(caps, goal, NEVER)
                alone, _ = Solver(model, LIMIT).points(caps, goal, NEVER)
                assert complete
                best = partial(min, default=math.inf)
                within, expected = ([point for point in points if caps.admit(point)] for points in (answer, alone))
                assert best(point.cpu for point in within) == best(point.cpu for point in expected)
                assert best(point.memory_bytes for point in within) == best(point.memory_bytes for point in expected)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_memory_of_all_plans_is_that_of_the_frontier(seed: int) -> None:
    for model in [*models(seed, 6), CostModel(join_graph(random_graph(random.Random(seed), 5, "cycle", observed=0.6)), Costs())]:
        frontier, _ = Solver(model, LIMIT).points(NO_CAPS, FRONTIER, NEVER)
        points, complete = Solver(model, LIMIT).points(NO_CAPS, LEAST_BYTES, NEVER)
        least = points[-1]
        assert complete
        assert (least.cpu, least.memory_bytes) == (frontier[-1].cpu, frontier[-1].memory_bytes)

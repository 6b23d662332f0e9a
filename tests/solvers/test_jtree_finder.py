"""The baseline of the benchmarks is what it says: all join trees within the caps, each once."""

from __future__ import annotations

import random

import pytest

from models.request import Costs
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from tests.bench.jtree_finder import jtree_finder
from tests.graphs import random_graph
from tests.solvers.brute_force import every_plan


@pytest.mark.parametrize("shape", ["chain", "star", "cycle", "clique"])
@pytest.mark.parametrize("n", [3, 5])
def test_jtree_finder_meets_every_plan_within_the_caps_once(shape: str, n: int) -> None:
    model = CostModel(join_graph(random_graph(random.Random(n), n, shape, windows=(1.0, 5.0), theta=0.3)), Costs())
    plans = list(every_plan(model))
    middle = sorted(plan.memory_bytes for plan in plans)[len(plans) // 2] * (1.0 + 1e-9)
    for caps in (Caps(), Caps(memory_bytes=middle)):
        within = [plan for plan in plans if plan.memory_bytes <= caps.memory_bytes]
        met, cpu, memory = jtree_finder(model, caps)
        assert met == len(within)
        assert cpu == pytest.approx(min(plan.cpu for plan in within), rel=1e-9)
        assert memory == pytest.approx(min(plan.memory_bytes for plan in within), rel=1e-9)

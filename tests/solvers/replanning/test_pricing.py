"""A way is priced once: with many caches that is most of what a replan does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from models.replan import ReplanRequest
from models.request import CacheMode, Method, Options, PlanRequest
from solvers.caches.given import cached_at
from solvers.planner import plan
from solvers.replan import replan
from solvers.replanning import ways
from tests.graphs import random_graph
from tests.solvers.replanning.drifts import drifted


@pytest.mark.parametrize("seed", range(6))
def test_no_way_with_caches_is_priced_twice_for_one_problem(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    request = PlanRequest(query=random_graph(rng, 8, "cycle", windows=(10.0, 60.0)), options=Options(method=Method.MJOIN, caches=CacheMode.AUTO))
    running = plan(request)
    assert running.caches
    asked: Counter[Any] = Counter()

    def counted(problem: Any, priced: Any, places: Any) -> Any:
        asked[id(problem), str(priced.nodes), places] += 1
        return cached_at(problem, priced, places)

    monkeypatch.setattr(ways, "cached_at", counted)
    replan(ReplanRequest(plan=running, request=drifted(request, rng, 5.0)))
    assert asked
    assert set(asked.values()) == {1}

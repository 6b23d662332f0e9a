"""Figures at the ends of a double's range end in a plan or in a sentence, never in a crash."""

from __future__ import annotations

import itertools
import math

import pytest

from models.request import Objective, PlanRequest
from solvers.errors import RangeError
from solvers.planner import plan

TINY, SMALL, LARGE, HUGE = 5e-324, 1e-300, 1e100, 1e300


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("rows", [False, True], ids=["time", "rows"])
def test_extreme_rates_windows_and_caps_are_planned_or_refused(objective: Objective, rows: bool) -> None:
    planned = 0
    for cap, rate, length in itertools.product((TINY, SMALL, 1.0, HUGE), (TINY, SMALL, 1.0, LARGE), (SMALL, 1.0, LARGE)):
        window = {"rows": max(1, int(min(length, 1e15)))} if rows else {"seconds": length}
        document = {
            "query": {
                "streams": [{"name": name, "rate": rate, "window": window} for name in "abc"],
                "predicates": [
                    {"left": "a.x", "right": "b.x", "selectivity": 0.1},
                    {"left": "b.x", "right": "c.x", "selectivity": 1e-9},
                ],
            },
            "resources": {"cpu": cap, "memory_bytes": cap},
            "objective": objective,
        }
        try:
            made = plan(PlanRequest.model_validate(document))
        except RangeError:
            continue
        planned += 1
        assert math.isfinite(made.cost.cpu)
        assert "inf" not in made.model_dump_json().lower().replace("infinite", "")
        assert "nan" not in made.model_dump_json().lower()
    assert planned > 10

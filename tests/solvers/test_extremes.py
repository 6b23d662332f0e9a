"""Figures at the ends of a double's range end in a plan or in a sentence, never in a crash."""

from __future__ import annotations

import itertools
import math

import pytest

from models.request import Objective, PlanRequest
from solvers.common.errors import RangeError
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


@pytest.mark.parametrize("rate", [1.1e290, 1e300, 1e301, 3e302, 1e308])
@pytest.mark.parametrize("seconds", [1e-300, 1e-290, 1e-20, 1.0])
def test_rates_beyond_the_range_are_refused_whatever_they_are_multiplied_with(rate: float, seconds: float) -> None:
    streams = [{"name": name, "rate": 10.0, "window": {"seconds": 1.0}} for name in "ab"]
    streams.append({"name": "c", "rate": rate, "window": {"seconds": seconds}})
    predicates = [{"left": "a.x", "right": "b.x", "selectivity": 1e-300}, {"left": "b.x", "right": "c.x", "selectivity": 1e-300}]
    with pytest.raises(RangeError) as refused:
        plan(PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}}))
    assert refused.value.pointer == "/query/streams/2"


def test_figures_that_only_their_sum_takes_out_of_range_are_refused() -> None:
    streams = [{"name": name, "rate": 1e200, "window": {"seconds": 1e105}, "tuple_bytes": 900.0} for name in "ab"]
    document = {"query": {"streams": streams, "predicates": [{"left": "a.x", "right": "b.x", "selectivity": 1e-307}]}}
    with pytest.raises(RangeError):
        plan(PlanRequest.model_validate(document))


def test_a_cap_whose_factor_on_the_rates_is_below_the_range_ends_in_a_plan() -> None:
    """That factor has so few digits that multiplying it by a little more than one leaves it as it is."""
    figures = (("a", 9600, 60, 150), ("b", 8, 1800, 200), ("c", 3, 3600, 250), ("d", 0.1, 7200, 120), ("e", 0.5, 3600, 90), ("f", 400, 120, 110))
    streams = [{"name": name, "rate": rate, "window": {"seconds": seconds}, "tuple_bytes": held} for name, rate, seconds, held in figures]
    selectivities = {"b": 7e-5, "c": 1e-4, "d": 1.4e-3, "e": 3e-4, "f": 1e-5}
    predicates = [{"left": f"a.{other}", "right": f"{other}.a", "selectivity": selectivity} for other, selectivity in selectivities.items()]
    options = {"time_limit": 60}  # a search that is cut off does not get there
    document = {"query": {"streams": streams, "predicates": predicates}, "resources": {"cpu": 1.0, "memory_bytes": 1e-307}, "options": options}
    made = plan(PlanRequest.model_validate(document))
    assert not made.qualified and made.shortfall is not None

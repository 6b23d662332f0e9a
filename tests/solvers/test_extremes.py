"""Figures at the ends of a double's range end in a plan or in a sentence, never in a crash."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from models.method import Method
from models.request import Objective, PlanRequest
from solvers.common.errors import RangeError, in_range
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


def chain(n: int, seconds: float, selectivity: float = 1e-3) -> dict[str, Any]:
    streams = [{"name": f"s{i}", "rate": 100, "window": {"seconds": seconds}} for i in range(n)]
    return {"streams": streams, "predicates": [{"left": f"s{i}.k", "right": f"s{i + 1}.k", "selectivity": selectivity} for i in range(n - 1)]}


def few_results() -> dict[str, Any]:
    """Two of the three make a trillion tuples a second, whichever two; all three together hardly any."""
    return {**chain(3, 1e8, 1.0), "observed": [{"streams": ["s0", "s1", "s2"], "selectivity": 1e-30}]}


def with_table(access: dict[str, Any], rows: float = 1000.0, streams: int = 1) -> dict[str, Any]:
    query = chain(streams, 60.0)
    query["tables"] = [{"name": "t", "rows": rows, "access": [access if access["kind"] == "scan" else {"bound": ["id"], **access}]}]
    query["predicates"].append({"left": "s0.t", "right": "t.id", "selectivity": 1e-3})
    return query


BEYOND = {
    "an index that takes too long": (with_table({"kind": "index", "cpu": 1e-5, "seconds": 1e307}), {}, "/query/tables/0/access/0/seconds"),
    "an index that takes too much": (with_table({"kind": "index", "cpu": 1e307}), {}, "/query/tables/0/access/0/cpu"),
    "an index that a join takes too much of": (with_table({"kind": "index", "cpu": 1e306}, streams=3), {}, "/query/tables/0/access/0/cpu"),
    "joining with many rows": (with_table({"kind": "scan"}, rows=1e200), {"join": 1e200}, "/costs/join"),
    "joining long windows": (chain(2, 1e150, 1e-100), {"join": 1e290}, "/costs/join"),
    "joins on the way": (few_results(), {"join": 1e300}, "/costs/join"),
    "probing": (chain(3, 60.0), {"probe": 1e307}, "/costs/probe"),
    "probing on the way": (few_results(), {"probe": 1e300}, "/costs/probe"),
    "steps": (chain(3, 60.0), {"step": 1e308}, "/costs/step"),
    "indexes": (chain(3, 60.0), {"insert": 1.7e308, "delete": 1.7e308}, "/costs/insert"),
    "states": (chain(1, 60.0), {"append": 1e307, "insert": 1e300}, "/costs/append"),
}


@pytest.mark.parametrize("resources", [{}, {"cpu": 1.0, "memory_bytes": 1e5}], ids=["free", "capped"])
@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("case", BEYOND)
def test_a_cost_beyond_the_range_is_refused_by_its_name(case: str, method: Method, resources: dict[str, float]) -> None:
    query, costs, pointer = BEYOND[case]
    for objective in Objective:
        if method is Method.CP_SAT and objective is Objective.MAX_HEADROOM:
            continue
        document = {"query": query, "costs": costs, "resources": resources, "objective": objective, "options": {"method": method}}
        with pytest.raises(RangeError) as refused:
            plan(PlanRequest.model_validate(document))
        assert refused.value.pointer == pointer


def test_a_sum_that_nobody_checked_is_refused() -> None:
    with pytest.raises(RangeError, match="more than a double can hold: lower them"), in_range():
        math.fsum([1.7e308, 1.7e308])

"""Headroom and validity, checked by pricing the plan again with the statistics moved."""

from __future__ import annotations

import copy
import math
import random
from typing import Any

import pytest
from hypothesis import given, settings

from models.plan import Plan
from models.request import PlanRequest
from solvers.model import sensitivity
from solvers.planner import plan
from tests.graphs import plan_requests
from tests.solvers import naive_pricer

SLACK = 1e-9  # the naive pricer rounds differently


def usage(made: Plan, query: dict[str, Any]) -> tuple[float, float]:
    """CPU and memory of the plan's own choices, held fixed, under another query: its share of the caps is what counts.

    The naive pricer chooses index or scan anew, so choices are held fixed by pricing probe by probe.
    """
    document = made.model_dump(mode="json")
    figures = naive_pricer.price(query, document["costs"], document["operators"], fixed=True, tables=document.get("tables", []))
    return figures.cpu, figures.memory_bytes


def within(made: Plan, query: dict[str, Any], slack: float) -> bool:
    cpu, memory = usage(made, query)
    cpu_cap, memory_cap = made.resources.cpu or math.inf, made.resources.memory_bytes or math.inf
    return cpu <= cpu_cap * (1 + slack) and memory <= memory_cap * (1 + slack)


def scaled(made: Plan, factor: float) -> dict[str, Any]:
    query = made.model_dump(mode="json")["query"]
    for stream in query["streams"]:
        stream["rate"] *= factor
    return dict(query)


def moved(made: Plan, statistic: str, value: float) -> dict[str, Any]:
    query = copy.deepcopy(made.model_dump(mode="json")["query"])
    if statistic.endswith(".rate"):
        next(stream for stream in query["streams"] if stream["name"] == statistic[:-5])["rate"] = value
    elif statistic.endswith(".rows"):
        next(table for table in query["tables"] if table["name"] == statistic[:-5])["rows"] = value
    elif statistic.endswith(".cpu"):
        name, place = statistic[:-5].split(".access[")
        next(table for table in query["tables"] if table["name"] == name)["access"][int(place)]["cpu"] = value
    else:
        query["predicates"][int(statistic.split("[")[1].split("]")[0])]["selectivity"] = value
    return dict(query)


def assert_validity(made: Plan) -> None:
    """Every statistic of the plan's query is listed with the interval within the caps, or no value of it would do."""
    listed = {entry.statistic: entry for entry in made.validity}
    statistics = [(f"{stream.name}.rate", math.inf) for stream in made.query.streams]
    statistics += [(f"{table.name}.rows", math.inf) for table in made.query.tables]
    statistics += [
        (f"{table.name}.access[{place}].cpu", math.inf)
        for table, reached in zip(made.query.tables, made.tables, strict=True)
        for place, offer in enumerate(table.access)
        if offer.bound and offer.bound == reached.bound
    ]
    statistics += [(f"predicates[{i}].selectivity", 1.0) for i in range(len(made.query.predicates))]
    assert set(listed) <= {statistic for statistic, _ in statistics}
    for statistic, end in statistics:
        entry = listed.get(statistic)
        if entry is None:
            assert not within(made, moved(made, statistic, 1e-12), -SLACK)
            continue
        assert entry.low == 0.0
        if entry.high is None:
            assert within(made, moved(made, statistic, min(end, 1e9)), SLACK)
        elif entry.high > 0.0:
            assert within(made, moved(made, statistic, entry.high), SLACK)
            if entry.high > 1e-300:
                assert not within(made, moved(made, statistic, entry.high * (1 + 1e-5)), -1e-7)


@settings(max_examples=200, deadline=None)
@given(plan_requests(most=5, methods=("mjoin", "bjtree")))
def test_headroom_is_the_largest_factor_on_all_rates_within_the_caps(request: PlanRequest) -> None:
    made = plan(request)
    if made.resources.cpu is None and made.resources.memory_bytes is None:
        assert made.headroom is None
        return
    if made.headroom is None:
        assert within(made, scaled(made, 1e6), SLACK)
        return
    assert (made.headroom >= 1.0) == made.qualified
    if made.headroom > 0.0:
        assert within(made, scaled(made, made.headroom), SLACK)
    assert not within(made, scaled(made, max(made.headroom, 1e-9) * (1 + 1e-6)), -SLACK)


@settings(max_examples=100, deadline=None)
@given(plan_requests(most=4, methods=("mjoin", "bjtree")))
def test_validity_is_the_interval_of_each_statistic_within_the_caps(request: PlanRequest) -> None:
    assert_validity(plan(request))


def test_a_plan_that_is_exactly_at_its_cap_is_qualified_with_headroom_one() -> None:
    request = {
        "query": {
            "streams": [{"name": name, "rate": 3.7, "window": {"seconds": 11.3}} for name in "abc"],
            "predicates": [{"left": f"{x}.k", "right": f"{y}.k", "selectivity": 0.013} for x, y in ("ab", "bc")],
        }
    }
    free = plan(PlanRequest.model_validate(request))
    at_cap = plan(PlanRequest.model_validate({**request, "resources": {"cpu": free.cost.cpu, "memory_bytes": free.cost.memory_bytes}}))
    assert at_cap.qualified
    assert at_cap.headroom == pytest.approx(1.0, rel=1e-12)
    assert at_cap.headroom is not None
    assert at_cap.headroom >= 1.0


def test_the_largest_factor_is_the_last_double_within_the_cap() -> None:
    """However far the coefficients are apart, and however close the cap is to what no rate moves."""
    draw = random.Random(7)
    found = []
    for _ in range(2_000):
        polynomial = [0.0 if draw.random() < 0.2 else 10.0 ** draw.uniform(-12.0, 3.0) for _ in range(draw.randint(2, 17))]
        polynomial[-1] = polynomial[-1] or 1.0
        cap = polynomial[0] * (1.0 + 10.0 ** draw.uniform(-15.0, 1.0)) or 10.0 ** draw.uniform(-10.0, 6.0)
        factor = sensitivity._largest_factor(polynomial, cap)
        assert 0.0 < factor < math.inf
        assert sensitivity._value(polynomial, factor) <= cap < sensitivity._value(polynomial, math.nextafter(factor, math.inf))
        found.append(sensitivity._bracket(polynomial, cap) is not None)
    assert {True, False} == set(found), "it is found both ways: by Newton's steps, and by bisection alone where rounding hides the slope"

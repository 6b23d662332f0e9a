"""The weighted multiple set cover: exact against enumeration, greedy against exact."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.cover import CoverRequest
from solvers.cover.solve import solve_cover


def _solve(**request: Any) -> Any:
    return solve_cover(CoverRequest.model_validate(request))


@st.composite
def covers(draw: st.DrawFn, unit_amounts: bool = False) -> dict[str, Any]:
    states = [{"name": f"s{j}", "required": draw(st.integers(0, 6))} for j in range(draw(st.integers(1, 4)))]
    paths = []
    for i in range(draw(st.integers(1, 4))):
        names = draw(st.lists(st.sampled_from([state["name"] for state in states]), unique=True))
        amounts = {name: 1 if unit_amounts else draw(st.integers(1, 12)) / 4 for name in names}
        path: dict[str, Any] = {"name": f"p{i}", "cost": draw(st.integers(1, 20)) / 2, "covers": amounts}
        if draw(st.booleans()):
            path["max_units"] = draw(st.integers(0, 4))
        paths.append(path)
    return {"states": states, "paths": paths}


def _cheapest(request: dict[str, Any]) -> float | None:
    """By trying all whole units."""
    ranges = [
        range(int(min(path.get("max_units", 99), max((math.ceil(6 / amount) for amount in path["covers"].values()), default=0))) + 1)
        for path in request["paths"]
    ]
    best: float | None = None
    for units in itertools.product(*ranges):
        cost = sum(n * path["cost"] for n, path in zip(units, request["paths"], strict=True))
        if best is not None and cost >= best:
            continue
        brought = {
            state["name"]: sum(n * path["covers"].get(state["name"], 0) for n, path in zip(units, request["paths"], strict=True))
            for state in request["states"]
        }
        if all(brought[state["name"]] >= state["required"] for state in request["states"]):
            best = cost
    return best


@given(covers())
@settings(max_examples=40, deadline=None)
def test_exact_whole_cover_equals_enumeration(request: dict[str, Any]) -> None:
    request = {**request, "paths": request["paths"][:3]}
    answer = _solve(**request, model="discrete", time_limit=10)
    best = _cheapest(request)
    assert answer.feasible == (best is not None)
    if best is None:
        assert answer.uncovered and answer.least_capacity is None
    else:
        assert answer.proof == "optimal"
        assert answer.cost == pytest.approx(best)


@given(covers())
@settings(max_examples=100, deadline=None)
def test_any_units_cost_no_more_than_whole_ones_and_greedy_no_less(request: dict[str, Any]) -> None:
    continuous, greedy = _solve(**request), _solve(**request, method="greedy")
    assert continuous.feasible == greedy.feasible
    assert continuous.uncovered == greedy.uncovered
    assert greedy.cost >= continuous.cost * (1 - 1e-9)
    whole = _solve(**request, model="discrete", method="greedy")
    if whole.feasible:
        assert whole.cost >= continuous.cost * (1 - 1e-9)
        assert all(amount == int(amount) for amount in whole.units.values())
        assert _solve(**request, model="discrete", time_limit=10).cost <= whole.cost + 1e-9
    for answer in (continuous, greedy, whole):
        for path in request["paths"]:
            assert 0 <= answer.units[path["name"]] <= path.get("max_units", math.inf)


@given(covers(unit_amounts=True), st.sampled_from(["continuous", "discrete"]))
@settings(max_examples=80, deadline=None)
def test_greedy_is_within_a_logarithm_where_a_unit_brings_one_to_each_state(request: dict[str, Any], model: str) -> None:
    exact, greedy = _solve(**request, model=model, time_limit=10), _solve(**request, model=model, method="greedy")
    if exact.feasible:
        assert greedy.feasible
        assert greedy.cost <= exact.cost * (math.log(len(request["states"])) + 1) * (1 + 1e-9)


def test_a_capacity_that_is_short_names_the_states_and_what_would_do() -> None:
    states = [{"name": "AB", "required": 10}, {"name": "CD", "required": 0}]
    paths = [{"name": "A", "cost": 3, "covers": {"AB": 1}}]
    answer = _solve(states=states, paths=paths, capacity=15)
    assert not answer.feasible
    assert (answer.uncovered, answer.least_capacity, answer.cost) == (["AB"], 30, 15)
    assert _solve(states=states, paths=paths, capacity=30).feasible
    whole = _solve(states=states, paths=paths, capacity=16, model="discrete")
    assert (whole.units, whole.uncovered) == ({"A": 5}, ["AB"])
    assert _solve(states=[], paths=[]).feasible

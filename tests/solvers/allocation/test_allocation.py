"""The knapsack of paper 2: its figures, and every exact method against another one."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models.allocation import AllocationRequest
from models.faults import errors_of
from solvers.allocation.grepp import grepp
from solvers.allocation.productivity import Path
from solvers.allocation.solve import solve_allocation
from solvers.common.errors import MethodError
from solvers.common.linear_program import Outcome, Row, linear_program

TABLE_2 = [
    {"name": "A", "resources": 15, "output": 4},
    {"name": "B", "resources": 16, "output": 5},
    {"name": "C", "resources": 10, "output": 1},
]


def _solve(**request: Any) -> Any:
    return solve_allocation(AllocationRequest.model_validate(request))


def _appendix_b(method: str) -> Any:
    """((A⋈B)⋈C): productivities a 0.5, b 5, ab 5, c 1; selectivities 0.001 and 0.005; µ 300."""

    def step(operator: str, productivity: float) -> dict[str, Any]:
        return {"operator": operator, "productivity": productivity, "selectivity": 0.001 if operator == "join-1" else 0.005}

    paths = [
        {"name": "A", "rate": 5000, "steps": [step("join-1", 0.5), step("join-2", 5)]},
        {"name": "B", "rate": 5000, "steps": [step("join-1", 5), step("join-2", 5)]},
        {"name": "C", "rate": 5000, "steps": [step("join-2", 1)]},
    ]
    return _solve(capacity=300, paths=paths, method=method)


def _first_join(answer: Any) -> float:
    a, b, _ = answer.paths
    return float(a.units * 0.5 + b.units * 5)


@pytest.mark.parametrize("method", ["exact", "grepp"])
def test_single_join_gives_all_to_the_more_productive_direction(method: str) -> None:
    paths = [
        {"name": "A", "rate": 500, "steps": [{"productivity": 2.5}]},
        {"name": "B", "rate": 700, "steps": [{"productivity": 5}]},
    ]
    answer = _solve(capacity=300, paths=paths, method=method)
    assert answer.throughput == 1500
    assert [path.units for path in answer.paths] == [0, 300]


@pytest.mark.parametrize(("method", "throughput", "units"), [("grepp", 6, [0, 1, 1]), ("exact", 8, [2, 0, 0]), ("dp", 8, [2, 0, 0])])
def test_table_2_in_whole_units(method: str, throughput: float, units: list[float]) -> None:
    answer = _solve(capacity=30, model="discrete", paths=TABLE_2, method=method)
    assert answer.throughput == throughput
    assert [path.units for path in answer.paths] == units
    assert answer.proof == ("bounded" if method == "grepp" else "optimal")


def test_table_2_in_any_units() -> None:
    assert _solve(capacity=30, paths=TABLE_2, method="grepp").throughput == 9.375
    steps = [{"productivity": 5 / 11}, {"productivity": 1}]
    paths = [*(path for path in TABLE_2 if path["name"] != "B"), {"name": "B", "rate": 1000, "steps": steps}]
    answer = _solve(capacity=30, paths=paths)
    assert answer.throughput == pytest.approx(9.375)
    assert answer.paths[2].steps == pytest.approx([20.625, 9.375])


def test_equal_half_way_joins_of_appendix_b() -> None:
    answer = _appendix_b("equal")
    assert answer.throughput == pytest.approx(450)
    assert _first_join(answer) == pytest.approx(412.5)


def test_global_ratio_of_appendix_b() -> None:
    answer = _appendix_b("global_ratio")
    assert answer.throughput == pytest.approx(678.26, abs=0.01)  # 300·(5·5 + 1)/11.5; the paper rounds the allowances first
    assert _first_join(answer) == pytest.approx(658.7, abs=0.01)


def test_best_per_operator_of_appendix_b() -> None:
    assert _appendix_b("equal_best").throughput == pytest.approx(750)
    assert _appendix_b("selectivity_best").throughput == pytest.approx(1250)  # 50 probes make 250 tuples, not the table's 150


def test_grepp_of_appendix_b() -> None:
    answer = _appendix_b("grepp")
    assert answer.throughput == pytest.approx(1250)
    assert answer.paths[1].steps == pytest.approx([50, 250])


def test_grepp_equals_the_linear_program_on_random_tables() -> None:
    rng = random.Random(2)
    for _ in range(300):
        paths = [
            Path(f"{i}", rng.choice([0.0, 1.0, 1.0, 1.0]) * rng.uniform(0.1, 20), rng.uniform(0, 10), rng.uniform(0.1, 20))
            for i in range(rng.randint(1, 12))
        ]
        capacity = rng.uniform(0, 300)
        units = grepp(capacity, paths)
        rows = [Row({i: path.resources for i, path in enumerate(paths)}, high=capacity)]
        best = linear_program([path.output for path in paths], [path.limit for path in paths], rows, maximise=True)
        assert best.outcome is Outcome.OPTIMAL
        value = sum(path.output * amount for path, amount in zip(paths, units, strict=True))
        assert value == pytest.approx(sum(path.output * amount for path, amount in zip(paths, best.units, strict=True)), rel=1e-9)
        assert value == pytest.approx(best.bound, rel=1e-9)
        assert sum(path.resources * amount for path, amount in zip(paths, units, strict=True)) <= capacity * (1 + 1e-12)
        assert all(0 <= amount <= path.limit for path, amount in zip(paths, units, strict=True))


@st.composite
def discrete_tables(draw: st.DrawFn) -> dict[str, Any]:
    paths = []
    for i in range(draw(st.integers(1, 5))):
        path: dict[str, Any] = {"name": f"p{i}", "resources": draw(st.integers(0, 12)), "output": draw(st.integers(0, 40)) / 4}
        if path["resources"] == 0 or draw(st.booleans()):
            path["max_units"] = draw(st.integers(0, 5))
        paths.append(path)
    return {"capacity": draw(st.integers(0, 40)), "model": "discrete", "paths": paths}


@given(discrete_tables())
@settings(max_examples=60, deadline=None)
def test_the_dynamic_program_equals_cp_sat(request: dict[str, Any]) -> None:
    exact, table, greedy = (_solve(**request, method=method, time_limit=10) for method in ("exact", "dp", "grepp"))
    assert exact.proof == "optimal"
    assert table.throughput == pytest.approx(exact.throughput)
    assert greedy.throughput <= exact.throughput + 1e-9
    for answer in (exact, table, greedy):
        assert answer.used <= request["capacity"]
        assert all(path.units == int(path.units) for path in answer.paths)


@given(discrete_tables())
@settings(max_examples=40, deadline=None)
def test_cp_sat_equals_enumeration(request: dict[str, Any]) -> None:
    best, capacity = 0.0, request["capacity"]
    ranges = []
    for path in request["paths"]:
        most = path.get("max_units", 10**9)
        ranges.append(range(int(min(most, capacity // path["resources"] if path["resources"] else most)) + 1))
    if len(ranges) > 3:
        ranges, request = ranges[:3], {**request, "paths": request["paths"][:3]}
    for units in itertools.product(*ranges):
        if sum(n * path["resources"] for n, path in zip(units, request["paths"], strict=True)) <= capacity:
            best = max(best, sum(n * path["output"] for n, path in zip(units, request["paths"], strict=True)))
    assert _solve(**request, time_limit=10).throughput == pytest.approx(best)


def test_decimal_resources_fill_the_capacity_exactly() -> None:
    answer = _solve(capacity=0.3, model="discrete", paths=[{"name": "a", "resources": 0.1, "output": 1}])
    assert answer.paths[0].units == 3


def test_a_table_that_is_too_large_is_refused_and_an_empty_one_is_not_built() -> None:
    path = {"name": "a", "resources": 3, "output": 1}
    with pytest.raises(MethodError, match="use exact"):
        _solve(capacity=10**12, model="discrete", paths=[path], method="dp")
    assert _solve(capacity=10**12, model="discrete", paths=[{**path, "output": 0}], method="dp").throughput == 0


def test_limits_hold_and_what_one_path_cannot_use_goes_to_the_next() -> None:
    paths = [{**path, "max_units": 1} for path in TABLE_2]
    answer = _solve(capacity=40, paths=paths)
    assert [path.units for path in answer.paths] == pytest.approx([1, 1, 0.9])


@pytest.mark.parametrize("method", ["equal", "global_ratio", "equal_best", "selectivity_best"])
def test_no_heuristic_beats_the_bound_or_the_capacity(method: str) -> None:
    for capacity in (0, 1, 50, 300, 5000, 10**6):
        answer = _appendix_b(method) if capacity == 300 else None
        rng = random.Random(capacity)
        paths = []
        for name, operators in (("A", ["1", "3"]), ("B", ["1", "3"]), ("C", ["2", "3"]), ("D", ["2", "3"])):
            shared = {"1": 2.0, "2": 0.7}[operators[0]]
            steps = [{"operator": operators[0], "productivity": rng.uniform(0.1, 5), "selectivity": 0.01}]
            steps.append({"operator": "3", "productivity": shared, "selectivity": 0.02})
            paths.append({"name": name, "rate": 100, "steps": steps})
        answer = _solve(capacity=capacity, paths=paths, method=method)
        best = _solve(capacity=capacity, paths=paths)
        assert answer.used <= capacity * (1 + 1e-12)
        assert answer.throughput <= best.throughput * (1 + 1e-12)
        assert answer.bound == pytest.approx(best.throughput)
        if capacity == 10**6:
            assert answer.throughput == pytest.approx(best.throughput)


STATES = {"states": [{"name": "AB", "required": 10}], "capacity": 30}


def test_freshness_and_throughput_together_are_never_below_jaqpot() -> None:
    paths = [
        {"name": "A", "resources": 2, "output": 5, "covers": {"AB": 1}},
        {"name": "B", "resources": 1.9, "output": 1, "covers": {"AB": 1}},
        {"name": "C", "resources": 1, "output": 3},
    ]
    together, apart = _solve(**STATES, paths=paths), _solve(**STATES, paths=paths, method="jaqpot")
    assert together.feasible and apart.feasible
    assert together.least_capacity == pytest.approx(19)
    assert apart.throughput == pytest.approx(10 + 33)
    assert together.throughput == pytest.approx(50 + 30)


def test_of_covers_that_take_the_whole_capacity_the_most_productive_is_the_best() -> None:
    """The least cover alone knows nothing of what its paths yield."""
    paths = [
        {"name": "A", "resources": 3, "output": 1, "covers": {"AB": 1}},
        {"name": "B", "resources": 3, "output": 100, "covers": {"AB": 1}},
    ]
    for order in (paths, paths[::-1]):
        answer = _solve(**STATES, paths=order)
        assert (answer.proof, answer.feasible) == ("optimal", True)
        assert answer.throughput == pytest.approx(1000)


def test_no_capacity_yields_only_what_takes_none() -> None:
    paths = [
        {"name": "A", "resources": 0, "output": 2, "max_units": 20, "covers": {"AB": 1}},
        {"name": "B", "resources": 1, "output": 100},
    ]
    answer = _solve(**{**STATES, "capacity": 0}, paths=paths)
    assert (answer.used, answer.throughput, answer.proof) == (0, 40, "optimal")


def test_more_units_than_are_worth_counting_are_not_called_optimal() -> None:
    paths = [{"name": "A", "resources": 1e-12, "output": 1}]
    answer = _solve(capacity=1e6, model="discrete", paths=paths)
    assert answer.throughput == pytest.approx(1e18) or answer.proof == "bounded"
    assert answer.bound >= 1e18 * (1 - 1e-9)


def test_an_exact_knapsack_cut_short_has_a_bound_that_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """CP-SAT stops at the worst solution there is: nothing taken."""
    from ortools.sat.python import cp_model

    monkeypatch.setattr(cp_model.CpSolver, "solve", lambda *_: cp_model.FEASIBLE)
    monkeypatch.setattr(cp_model.CpSolver, "value", lambda *_: 0)
    monkeypatch.setattr(cp_model.CpSolver, "objective_value", 0.0)
    monkeypatch.setattr(cp_model.CpSolver, "best_objective_bound", 40.0)
    answer = _solve(capacity=30, model="discrete", paths=TABLE_2)
    assert answer.proof == "bounded" and answer.bound >= 8


@pytest.mark.parametrize("method", ["exact", "jaqpot"])
def test_states_that_cannot_be_refreshed_are_named_with_the_capacity_that_would_do(method: str) -> None:
    paths = [{"name": "A", "resources": 6, "output": 5, "covers": {"AB": 1}}]
    answer = _solve(**STATES, paths=paths, method=method)
    assert not answer.feasible
    assert answer.uncovered == ["AB"]
    assert answer.least_capacity == pytest.approx(60)
    assert answer.used == pytest.approx(30)
    never = _solve(**STATES, paths=[{**paths[0], "max_units": 9}], method=method)
    assert never.uncovered == ["AB"] and never.least_capacity is None


@pytest.mark.parametrize(
    ("change", "pointer", "sentence"),
    [
        ({"method": "dp"}, "/model", "model must be discrete for dp"),
        ({"method": "equal"}, "/paths/0/steps", "steps are required for equal"),
        ({"paths": [{"name": "A", "resources": 1}]}, "/paths/0", "a path needs resources and output, or rate and steps"),
        ({"paths": [{"name": "A", "resources": 0, "output": 1}]}, "/paths/0/max_units", "max_units is required"),
        ({"paths": [TABLE_2[0], TABLE_2[0]]}, "/paths/1/name", "name 'A' is taken by /paths/0"),
        ({"paths": [{**TABLE_2[0], "covers": {"X": 1}}]}, "/paths/0/covers/X", "covers names state 'X'"),
        ({"capacity": -1}, "/capacity", "capacity must be at least 0"),
        ({"method": "dp", "model": "discrete", "capacity": 1.5}, "/capacity", "capacity must be a whole number for dp"),
    ],
)
def test_faults_are_named(change: dict[str, Any], pointer: str, sentence: str) -> None:
    with pytest.raises(ValidationError) as failure:
        AllocationRequest.model_validate({"capacity": 30, "paths": TABLE_2, **change})
    found = dict(errors_of(failure.value, AllocationRequest))
    assert sentence in found[pointer]

"""Paper 4: its figures, its closed forms, and the best of all allocations by brute force."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from models.faults import errors_of
from models.window_join import WindowJoinRequest
from solvers.window_join.solve import Side, approximate_crossover, hash_cost, nested_loop_cost, regulate, solve_window_join

BASE: dict[str, Any] = {
    "left": {"rate": 10, "window": {"seconds": 60}, "keys": 10},
    "right": {"rate": 100, "window": {"seconds": 60}, "keys": 10},
    "costs": {"hash": 0.65, "nested_loop": 0.5},
}


def _solve(**changes: Any) -> Any:
    return solve_window_join(WindowJoinRequest.model_validate({**BASE, **changes}))


def _side(rate: float, window: float, keys: float = 10) -> dict[str, Any]:
    return {"rate": rate, "window": {"seconds": window}, "keys": keys}


def test_costs_of_the_four_joins_are_the_papers() -> None:
    cost = _solve().cost
    assert pytest.approx((47261.5, 34396.5, 72975.0, 60110.0), rel=1e-12) == (cost.HHJ, cost.HNJ, cost.NHJ, cost.NNJ)
    assert _solve().algorithm == "HNJ"


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(1, 1e4), st.floats(1, 1e4))
@settings(max_examples=100, deadline=None)
def test_costs_are_equations_4_to_6(ra: float, rb: float, ta: float, tb: float, ka: float, kb: float) -> None:
    cost = _solve(left=_side(ra, ta, ka), right=_side(rb, tb, kb)).cost
    ch, cn = 0.65, 0.5
    assert pytest.approx((ra + rb) * (tb * rb / kb + ta * ra / ka + 1) * ch) == cost.HHJ
    assert pytest.approx(ra * (tb * rb + 2) * cn + rb * (ta * ra + 2) * cn) == cost.NNJ
    hnj = ra * (tb * rb * cn + ta * ra / ka * ch + ch) + rb * (ta * ra / ka * ch + 2 * cn)
    assert pytest.approx(hnj) == cost.HNJ
    mirrored = _solve(left=_side(rb, tb, kb), right=_side(ra, ta, ka)).cost
    assert pytest.approx(mirrored.HNJ) == cost.NHJ


def test_crossovers_are_the_papers() -> None:
    assert approximate_crossover(10, 1.3) == pytest.approx(6.69, abs=0.005)
    assert approximate_crossover(20, 1.3) == pytest.approx(14.38, abs=0.005)
    crossover = _solve().crossover
    assert crossover.left_to_right == pytest.approx(6.69, abs=0.005)
    assert crossover.exact.left_to_right == pytest.approx(2610 / 389.65)


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(0.1, 1e3), st.floats(1, 1e3), st.floats(0.5, 3))
@settings(max_examples=200, deadline=None)
def test_exact_crossover_says_which_of_the_two_costs_is_lower(probing: float, rate: float, window: float, keys: float, ratio: float) -> None:
    answer = _solve(left=_side(probing, 1), right=_side(rate, window, keys), costs={"hash": ratio, "nested_loop": 1})
    probed = Side(rate, window, keys)
    hashed, looped = hash_cost(probing, probed, ratio), nested_loop_cost(probing, probed, 1.0)
    crossover = answer.crossover.exact.left_to_right
    if crossover is None:
        assert hashed <= looped * (1 + 1e-9)
    elif rate / probing > crossover * (1 + 1e-9):
        assert looped <= hashed * (1 + 1e-9)
    elif rate / probing < crossover * (1 - 1e-9):
        assert hashed <= looped * (1 + 1e-9)


def test_lazy_invalidation_is_the_papers_formula_for_nested_loops() -> None:
    a, b = 10.0, Side(100.0, 60.0, 10.0)
    assert nested_loop_cost(a, b, 0.5, lazy=True) == a * (6000 + math.floor(math.log2(10) + 1)) * 0.5 + 100 * 0.5
    assert nested_loop_cost(100.0, Side(10.0, 60.0, 10.0), 0.5, lazy=True) == 100 * (600 + 1) * 0.5 + 10 * 0.5


def test_lazy_invalidation_saves_a_hash_join_the_search_for_expired_tuples_but_keeps_them() -> None:
    active, lazy = _solve(), _solve(invalidation="lazy")
    assert lazy.cost.HHJ < active.cost.HHJ
    assert active.expired.left == active.expired.right == 0.0
    assert lazy.expired.left > 0.0 < lazy.expired.right


def test_a_short_cpu_is_shared_evenly() -> None:
    answer = _solve(left=_side(80, 9), right=_side(20, 1), service_rate=10)
    assert (answer.regulated.left, answer.regulated.right) == (5.0, 5.0)


@pytest.mark.parametrize(("keys", "algorithm"), [(10, "HNJ"), (20, "HHJ")])
def test_a_slow_stream_is_let_in_whole_and_the_algorithm_follows_the_regulated_rates(keys: float, algorithm: str) -> None:
    answer = _solve(left=_side(5, 60, keys), right=_side(100, 60, keys), service_rate=50)
    assert (answer.regulated.left, answer.regulated.right) == (5.0, 45.0)
    assert answer.algorithm == algorithm


def test_flexible_windows_give_the_memory_to_the_slower_stream() -> None:
    answer = _solve(left=_side(10, 100, 200), right=_side(50, 100, 100), memory_tuples=1000, windows="flexible")
    assert (answer.memory.left, answer.memory.right) == (1000.0, 0.0)
    assert answer.output_rate == pytest.approx(250.0)


def test_rates_and_windows_both_free_yield_the_whole_of_both_resources() -> None:
    answer = _solve(left=_side(1e6, 1e9, 100), right=_side(1e6, 1e9, 100), selectivity=0.01, service_rate=10, memory_tuples=100, windows="flexible")
    assert answer.output_rate == pytest.approx(10.0, rel=1e-6)
    assert answer.output_rate <= 10.0


@given(
    st.floats(0.1, 100),
    st.floats(0.1, 100),
    st.floats(0.1, 100),
    st.floats(0.1, 100),
    st.one_of(st.just(math.inf), st.floats(0.1, 200)),
    st.one_of(st.just(math.inf), st.floats(0.1, 2e4)),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_no_rates_and_windows_within_the_limits_yield_more(
    ra: float, rb: float, ta: float, tb: float, service: float, memory: float, flexible: bool
) -> None:
    def output(left: Side, right: Side) -> float:
        return left.tuples * right.rate + right.tuples * left.rate

    left, right = regulate(Side(ra, ta, 1), Side(rb, tb, 1), service, memory, flexible)
    slack = 1 + 1e-9
    assert 0 < left.rate <= ra * slack and 0 < right.rate <= rb * slack and left.rate + right.rate <= service * slack
    assert left.window <= ta * slack and right.window <= tb * slack and left.tuples + right.tuples <= memory * slack
    best = output(left, right) * slack
    steps = 20
    for i in range(1, steps + 1):
        a = min(ra, service) * i / steps
        for j in range(1, steps + 1):
            b = min(rb, service) * j / steps
            if a + b > service:
                break
            if not flexible:
                assert a * ta + b * tb > memory or output(Side(a, ta, 1), Side(b, tb, 1)) <= best
                continue
            for k in range(11):
                kept = min(memory, a * ta) * k / 10
                rest = min(memory - kept, b * tb)
                assert kept * b + rest * a <= best


def test_figures_that_no_stream_has_are_refused_by_name() -> None:
    with pytest.raises(ValidationError) as failure:
        _solve(left=_side(1e300, 1e-300))
    assert dict(errors_of(failure.value, WindowJoinRequest)) == {
        "/left/rate": "rate must be at most 1000000000000.0, got 1e+300",
        "/left/window/seconds": "seconds must be at least 1e-12, got 1e-300",
    }

"""A value and its bound: what they prove together, and that a bound on the wrong side cannot pass."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.allocation import AllocationRequest
from models.caches import CacheSelectionRequest
from models.cover import CoverRequest
from models.plan import Proof
from models.request import Objective
from solvers.allocation import solve as allocation_solve
from solvers.allocation.knapsack_exact import Knapsack
from solvers.allocation.solve import solve_allocation
from solvers.caches import solve as caches_solve
from solvers.caches.select.program import Selection
from solvers.caches.solve import solve_caches
from solvers.common.errors import WatersmeetError, WrongBoundError
from solvers.common.gap import claim, gap_between
from solvers.cover import solve as cover_solve
from solvers.cover.exact import Cover
from solvers.cover.solve import solve_cover
from solvers.jtree import progress
from solvers.jtree.progress import Waiting
from solvers.jtree.search import Problem
from tests.solvers.search_models import keyed_model

FIGURE = st.floats(1e-300, 1e300)


@given(FIGURE, FIGURE, st.booleans())
def test_a_gap_is_in_0_to_1_or_the_bound_is_wrong(value: float, bound: float, maximise: bool) -> None:
    wrong = bound < value * (1.0 - 1e-9) if maximise else bound > value * (1.0 + 1e-9)
    try:
        gap = gap_between(value, bound, maximise)
    except WrongBoundError:
        assert (bound < value) if maximise else (bound > value)
        return
    assert not wrong
    assert gap is not None and 0.0 <= gap <= 1.0


@given(FIGURE, st.floats(0.0, 5e-10), st.booleans(), st.booleans())
def test_rounding_on_either_side_is_no_gap(value: float, off: float, above: bool, maximise: bool) -> None:
    claimed = claim(value, value * (1.0 + off if above else 1.0 - off), maximise)
    assert (claimed.proof, claimed.bound, claimed.gap) == (Proof.OPTIMAL, value, 0.0)


@pytest.mark.parametrize("maximise", [False, True])
def test_what_is_no_number_is_a_wrong_bound(maximise: bool) -> None:
    with pytest.raises(WrongBoundError):
        gap_between(1.0, math.nan, maximise)


def test_no_bound_proves_nothing() -> None:
    assert claim(1.0, None).proof is claim(1.0, math.inf, maximise=True).proof is Proof.NONE


def test_a_wrong_bound_is_not_taken_for_a_fault_of_the_request() -> None:
    assert not issubclass(WrongBoundError, WatersmeetError)


def test_a_wrong_bound_of_a_cover_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cover_solve, "continuous_cover", lambda *_: Cover([1.0], 3.0, 4.0))
    request = {"states": [{"name": "s", "required": 1}], "paths": [{"name": "p", "cost": 3, "covers": {"s": 1}}]}
    with pytest.raises(WrongBoundError, match=r"4\.0 is a lower bound above the value it bounds, 3\.0"):
        solve_cover(CoverRequest.model_validate(request))


def test_a_wrong_bound_of_an_allocation_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocation_solve, "knapsack_exact", lambda *_: Knapsack([1.0], 4.0))
    request = {"capacity": 1, "model": "discrete", "paths": [{"name": "p", "resources": 1, "output": 5}]}
    with pytest.raises(WrongBoundError, match=r"4\.0 is an upper bound below the value it bounds, 5\.0"):
        solve_allocation(AllocationRequest.model_validate(request))


def test_a_wrong_bound_of_caches_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches_solve, "exact", lambda *_: Selection((), 1.0, 2.0, True))
    with pytest.raises(WrongBoundError):
        solve_caches(CacheSelectionRequest.model_validate({"pipelines": [{"name": "p", "operator_costs": [1.0]}]}))


def test_a_wrong_bound_of_a_search_is_seen_by_who_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY", 0.0)
    waiting = Waiting(lambda _: None)
    waiting.begin(Problem(keyed_model(1, 4), objective=Objective.MIN_CPU))
    waiting.drafted(1.0, 1.0)
    with pytest.raises(WrongBoundError):
        waiting.proven(2.0)

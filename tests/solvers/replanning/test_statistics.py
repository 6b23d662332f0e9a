"""What counts as off, and figures eased towards what a plan was made for."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.request import Query
from solvers.model.graph import join_graph
from solvers.replanning.statistics import Drift, eased, in_order, is_off
from tests.solvers.replanning.drifts import drifted, quick

POSITIVE = st.floats(1e-6, 1e6)
ERRORS = st.floats(0.0, 1.0)


@given(POSITIVE, POSITIVE, ERRORS)
def test_eased_figures_lie_between_the_old_and_the_new_ones(was: float, now: float, error: float) -> None:
    between = eased(was, now, error)
    assert min(was, now) <= between <= max(was, now)


@given(POSITIVE, st.floats(-1.0, 1.0), ERRORS)
def test_what_is_off_by_no_more_than_the_error_is_eased_to_what_it_was(was: float, part: float, error: float) -> None:
    now = was * (1.0 + part * error * 0.99)
    if not is_off(was, now, error) and now >= was / (1.0 + error):
        assert eased(was, now, error) == was


@given(POSITIVE, POSITIVE, ERRORS)
def test_easing_changes_continuously(was: float, now: float, error: float) -> None:
    step = now * 1e-9
    assert abs(eased(was, now + step, error) - eased(was, now, error)) <= 4.1 * step * (1.0 + error) ** 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_a_drift_names_what_moved_and_nothing_else(seed: int) -> None:
    request = quick(seed)
    before, after = request.query, drifted(request, random.Random(seed)).query
    drift = Drift(before, after)
    named = {off.figure for off in drift.off(0.05)}
    for was, now in zip(before.streams, after.streams, strict=True):
        assert (f"{now.name}.rate" in named) == (abs(now.rate - was.rate) > 0.05 * was.rate)
    assert drift.off(1e9) == [] and Drift(before, before).off(0.0) == []
    assert drift.eased(0.0).streams == after.streams
    assert Drift(before, before).eased(0.1).streams == before.streams


def _query(selectivities: tuple[float, ...], observed: list[dict[str, Any]]) -> Query:
    streams = [{"name": name, "rate": 10, "window": {"seconds": 1}} for name in "abc"]
    predicates = [{"left": f"{x}.k", "right": f"{y}.k", "selectivity": s} for x, y, s in zip("ab", "bc", selectivities, strict=True)]
    return Query.model_validate({"streams": streams, "predicates": predicates, "observed": observed})


def test_a_sub_join_that_was_observed_since_is_compared_with_what_its_predicates_said() -> None:
    before = _query((0.1, 0.2), [])
    agrees = Drift(before, _query((0.1, 0.2), [{"streams": ["a", "b", "c"], "selectivity": 0.0201}]))
    assert agrees.off(0.05) == []
    differs = Drift(before, _query((0.1, 0.2), [{"streams": ["a", "b", "c"], "selectivity": 0.1}]))
    (off,) = differs.off(0.05)
    assert (off.figure, off.now) == ("the selectivity of a⋈b⋈c", 0.1) and off.was == pytest.approx(0.02)
    assert differs.eased(0.05).observed[0].selectivity == pytest.approx(0.1 / 1.05**2)
    gone = Drift(differs.now, before)
    assert [off.now for off in gone.off(0.05)] == [pytest.approx(0.02)]
    assert join_graph(gone.eased(0.05)).size(0b111) == pytest.approx(1000 * 0.02 * 1.05**2)


def test_queries_are_brought_into_one_order() -> None:
    query = _query((0.1, 0.2), [])
    other = query.model_copy(update={"streams": query.streams[::-1], "predicates": query.predicates[::-1]})
    assert in_order(other, query) == query

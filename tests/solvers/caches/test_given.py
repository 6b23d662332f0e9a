"""Caches of a document: those that could not stand together are refused."""

from __future__ import annotations

import pytest

from models.check import CheckCase
from models.request import PlanRequest
from solvers.check import price_again
from solvers.common.errors import ShapeError
from solvers.planner import plan
from tests.solvers.caches.test_in_plans import fast_probe, request_of


def test_caches_that_answer_the_same_step_are_refused() -> None:
    """Each would be counted as saving the whole step, down to less than no CPU at all."""
    request: PlanRequest = request_of(fast_probe(), "global", "mjoin")
    made = plan(request)
    assert made.caches
    twice = [made.caches[0], made.caches[0].model_copy(update={"id": "again"})]
    with pytest.raises(ShapeError, match="again answers a step that cache-1 answers already") as refused:
        price_again(CheckCase(name="case", request=request, plan=made.model_copy(update={"caches": twice})))
    assert refused.value.pointer == "/caches"


@pytest.mark.parametrize("change", [{"operator": "join-9"}, {"input": "nobody"}, {"last": 99}, {"semijoin": ["nobody"]}])
def test_caches_on_no_pipeline_of_the_plan_are_refused(change: dict[str, object]) -> None:
    request = request_of(fast_probe(), "global", "mjoin")
    made = plan(request)
    with pytest.raises(ShapeError) as refused:
        price_again(CheckCase(name="case", request=request, plan=made.model_copy(update={"caches": [made.caches[0].model_copy(update=change)]})))
    assert refused.value.pointer == "/caches"

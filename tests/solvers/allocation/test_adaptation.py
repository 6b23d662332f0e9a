"""Allocations follow drifting statistics, and stay put for a flicker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from models.replan import Thresholds
from models.request import Costs, Query
from solvers.allocation.adaptation import Load, Why, adapt
from solvers.allocation.in_plans import Shared, given_shares, share_out
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import join_graph

BINARY = ((1,), (0,))
STATED = [40.0, 30.0, math.inf]


def _model(first: float, second: float, rate: float = 20.0) -> CostModel:
    streams: list[dict[str, Any]] = [
        {"name": name, "rate": r, "window": {"seconds": w}} for name, r, w in (("A", rate, 8), ("B", 30, 6), ("C", 25, 10))
    ]
    predicates = [{"left": "A.x", "right": "B.x", "selectivity": first}, {"left": "B.y", "right": "C.y", "selectivity": second}]
    return CostModel(join_graph(Query.model_validate({"streams": streams, "predicates": predicates})), Costs())


def _plan(model: CostModel) -> PricedTree:
    return model.price(make_join((make_join((0, 1), BINARY), 2), BINARY))


def _load(shared: Shared) -> Load:
    return Load(shared.cpu, shared.throughput, shared.fresh)


def _cap() -> float:
    return 0.4 * _plan(_model(0.02, 0.02)).cpu


def _drift(to: CostModel, stated: Sequence[float] = STATED) -> tuple[Load, Load]:
    """What the allocation for selectivities of 0.02 comes to after the drift, and what would be best then."""
    model = _model(0.02, 0.02)
    before = share_out(model, _plan(model), _cap(), stated)
    present = given_shares(to, _plan(to), _cap(), stated, before.shares, before.admitted)
    return _load(present), _load(share_out(to, _plan(to), _cap(), stated))


def test_an_allocation_carried_over_to_the_same_statistics_is_what_it_was() -> None:
    model = _model(0.02, 0.02)
    before = share_out(model, _plan(model), _cap(), STATED)
    again = given_shares(model, _plan(model), _cap(), STATED, before.shares, before.admitted)
    assert (again.cpu, again.throughput, again.fresh) == (before.cpu, before.throughput, before.fresh)


def test_nothing_changes_while_the_statistics_are_as_they_were() -> None:
    assert adapt(*_drift(_model(0.02, 0.02)), _cap(), Thresholds(gain=0.0)) is None


def test_a_drift_that_brings_too_little_changes_nothing() -> None:
    present, proposed = _drift(_model(0.0195, 0.0195))
    assert proposed.results > present.results
    assert adapt(present, proposed, _cap(), Thresholds(gain=0.5)) is None


@pytest.mark.parametrize(("first", "second"), [(0.005, 0.02), (0.02, 0.004), (0.002, 0.002)])
def test_where_selectivities_fall_the_freed_cpu_is_put_to_use(first: float, second: float) -> None:
    present, proposed = _drift(_model(first, second))
    assert adapt(present, proposed, _cap(), Thresholds()) is Why.BETTER
    assert proposed.cpu <= _cap() * (1 + 1e-9)


def test_an_allocation_that_leaves_the_cap_is_replaced_whatever_it_yields() -> None:
    present, proposed = _drift(_model(0.06, 0.02))
    assert present.cpu > _cap()
    assert adapt(present, proposed, _cap(), Thresholds(gain=100.0)) is Why.OVER
    assert proposed.cpu <= _cap() * (1 + 1e-9)


def test_over_the_cap_by_less_than_the_error_is_no_reason() -> None:
    present, proposed = Load(1.04, 100.0), Load(1.0, 98.0)
    assert adapt(present, proposed, 1.0, Thresholds(error=0.05)) is None
    assert adapt(present, proposed, 1.0, Thresholds(error=0.03)) is Why.OVER


def test_a_broken_freshness_predicate_is_mended_where_that_can_be_done() -> None:
    present, proposed = Load(1.0, 100.0, (True, False)), Load(1.0, 60.0, (True, True))
    assert adapt(present, proposed, 1.0, Thresholds()) is Why.STALE
    assert adapt(proposed, proposed, 1.0, Thresholds()) is None


def test_a_plan_that_falls_behind_yields_as_much_as_its_cpu_suffices_for() -> None:
    assert Load(4.0, 100.0).kept_up(1.0) == 25.0
    assert Load(0.5, 100.0).kept_up(1.0) == 100.0

"""Allocations follow drifting statistics, and stay put for a flicker."""

from __future__ import annotations

import math
from typing import Any

import pytest

from models.request import Costs, Query
from solvers.allocation.adaptation import Thresholds, adapt
from solvers.allocation.in_plans import share_out
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import join_graph

BINARY = ((1,), (0,))


def _model(first: float, second: float, rate: float = 20.0) -> CostModel:
    streams: list[dict[str, Any]] = [
        {"name": name, "rate": r, "window": {"seconds": w}} for name, r, w in (("A", rate, 8), ("B", 30, 6), ("C", 25, 10))
    ]
    predicates = [{"left": "A.x", "right": "B.x", "selectivity": first}, {"left": "B.y", "right": "C.y", "selectivity": second}]
    return CostModel(join_graph(Query.model_validate({"streams": streams, "predicates": predicates})), Costs())


def _plan(model: CostModel) -> PricedTree:
    return model.price(make_join((make_join((0, 1), BINARY), 2), BINARY))


STATED = [40.0, 30.0, math.inf]


def test_nothing_changes_while_the_throughput_is_as_expected() -> None:
    model = _model(0.02, 0.02)
    priced = _plan(model)
    present = share_out(model, priced, 0.4 * priced.cpu, STATED)
    assert adapt(_model(0.5, 0.5), priced, 0.4 * priced.cpu, STATED, present, present.throughput * 1.04) is None


def test_a_drift_that_brings_too_little_changes_nothing() -> None:
    model = _model(0.02, 0.02)
    priced = _plan(model)
    cap = 0.4 * priced.cpu
    present = share_out(model, priced, cap, STATED)
    lower = _model(0.0195, 0.0195)
    measured = present.throughput * 0.9
    assert adapt(lower, priced, cap, STATED, present, measured, Thresholds(gain=0.5)) is None


@pytest.mark.parametrize(("first", "second"), [(0.005, 0.02), (0.02, 0.004), (0.002, 0.002)])
def test_where_selectivities_fall_the_freed_cpu_is_put_to_use(first: float, second: float) -> None:
    model = _model(0.02, 0.02)
    priced = _plan(model)
    cap = 0.4 * priced.cpu
    present = share_out(model, priced, cap, STATED)
    drifted = _model(first, second)
    proposed = adapt(drifted, priced, cap, STATED, present, 0.5 * present.throughput)
    assert proposed is not None
    assert proposed.cpu <= cap * (1 + 1e-9)
    assert sum(proposed.shares) > sum(present.shares)


def test_an_allocation_that_leaves_the_cap_is_replaced_whatever_it_yields() -> None:
    model = _model(0.02, 0.02)
    priced = _plan(model)
    cap = 0.4 * priced.cpu
    present = share_out(model, priced, cap, STATED)
    proposed = adapt(_model(0.06, 0.02), priced, cap, STATED, present, 3 * present.throughput, Thresholds(gain=math.inf))
    assert proposed is not None and proposed.cpu <= cap * (1 + 1e-9)

"""Allowances do what they promise: plans of paper 2's shapes, run tuple by tuple."""

from __future__ import annotations

import math

import pytest

from models.request import Costs, Query
from solvers.allocation.freshness import joint_shares
from solvers.allocation.heuristics import HEURISTICS
from solvers.allocation.in_plans import share_out
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import join_graph
from solvers.model.tree import Tree
from tests.solvers.allocation.simulation import shares_of_flow, shares_of_streams, simulate
from tests.solvers.allocation.tables import tables_of

BINARY = ((1,), (0,))
SHAPES = ("linear", "bushy", "mjoin_below", "five_streams")


def _shape(name: str) -> Tree:
    ab = make_join((0, 1), BINARY)
    if name == "linear":
        return make_join((make_join((ab, 2), BINARY), 3), BINARY)
    if name == "mjoin_below":
        return make_join((make_join((0, 1, 2), ((1, 2), (0, 2), (1, 0))), 3), BINARY)
    bushy = make_join((ab, make_join((2, 3), BINARY)), BINARY)
    return bushy if name == "bushy" else make_join((bushy, 4), BINARY)


def _plan(shape: str) -> tuple[CostModel, PricedTree]:
    figures = [("A", 20, 6), ("B", 30, 8), ("C", 25, 6), ("D", 15, 10), ("E", 12, 6)][: 5 if shape == "five_streams" else 4]
    streams = [{"name": name, "rate": rate, "window": {"seconds": window}} for name, rate, window in figures]
    pairs = [("A", "B", 1 / 60), ("B", "C", 1 / 60), ("C", "D", 1 / 80), ("D", "E", 1 / 75)][: len(streams) - 1]
    predicates = [{"left": f"{a}.x", "right": f"{b}.y", "selectivity": s} for a, b, s in pairs]
    model = CostModel(join_graph(Query.model_validate({"streams": streams, "predicates": predicates})), Costs(probe=5e-7))
    return model, model.price(_shape(shape))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("part", "tolerance"), [(0.3, 4.0), (0.6, 3.0)])
def test_an_overloaded_plan_yields_what_was_promised_and_nothing_stale(shape: str, part: float, tolerance: float) -> None:
    model, priced = _plan(shape)
    stated = [tolerance * window for window in model.graph.window_seconds]
    shared = share_out(model, priced, part * priced.cpu, stated)
    assert all(shared.fresh)
    outcome = simulate(model.graph, model.costs, priced, shares_of_streams(priced, shared.shares), stated, 60.0)
    assert outcome.throughput == pytest.approx(shared.throughput, rel=0.05)
    assert outcome.cpu == pytest.approx(shared.cpu, rel=0.05)
    assert all(age <= limit for age, limit in zip(outcome.oldest, stated, strict=True))
    assert outcome.stale_share < 0.01  # Lemma 1 speaks of averages: purging costs next to nothing


@pytest.mark.parametrize("shape", ["linear", "bushy"])
def test_no_heuristic_yields_more_in_the_simulation(shape: str) -> None:
    """The paper's order: the joint optimum first, then the heuristics by half-way productivity."""
    model, priced = _plan(shape)
    stated = [3.0 * window for window in model.graph.window_seconds]
    cap = 0.3 * priced.cpu
    shared = share_out(model, priced, cap, stated)
    best = simulate(model.graph, model.costs, priced, shares_of_streams(priced, shared.shares), stated, 60.0)
    paths = tables_of(model.graph, model.costs, priced)
    for heuristic in HEURISTICS.values():
        flow = heuristic(cap - shared.plan.keeping, paths)
        outcome = simulate(model.graph, model.costs, priced, shares_of_flow(priced, paths, flow), stated, 60.0)
        assert outcome.throughput <= best.throughput * 1.05
        assert outcome.throughput + outcome.purged == pytest.approx(math.fsum(flow.output), rel=0.2)


@pytest.mark.parametrize("shape", ["linear", "bushy"])
def test_throughput_alone_makes_results_stale(shape: str) -> None:
    """The paper's reason for covering: GrePP without a cover probes subresults that are no longer renewed."""
    model, priced = _plan(shape)
    stated = [3.0 * window for window in model.graph.window_seconds]
    needed = share_out(model, priced, priced.cpu, stated).freshness_cpu
    assert needed is not None
    cap = 1.02 * needed
    shared = share_out(model, priced, cap, stated)
    greedy = joint_shares(shared.plan, cap - shared.plan.keeping, [0.0] * len(model.graph))
    covered, uncovered = (
        simulate(model.graph, model.costs, priced, shares_of_streams(priced, shares), stated, 60.0) for shares in (shared.shares, greedy)
    )
    assert all(shared.fresh)
    assert uncovered.stale_share > 0.3
    assert covered.stale_share < 0.01
    assert covered.throughput > uncovered.throughput

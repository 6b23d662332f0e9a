"""Time limits are kept by what is left undone; how long answers take is for `tests.bench.bench_deadlines` to say."""

from __future__ import annotations

import random
import time
from dataclasses import replace

import pytest

from models.plan import Plan, Termination
from models.request import Method, Options, PlanRequest, Resources
from solvers.allocation import in_plans as allocation
from solvers.common.deadline import Deadline
from solvers.frontier import frontier
from solvers.jtree import bjtree, lower_bound
from solvers.jtree.compiled import binary_tree as compiled
from solvers.jtree.parts import affordable_sets
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.jtree.warm import warm
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.tree import Tree
from solvers.planner import plan
from tests.graphs import random_graph

STREAMS = 120
NO_TIME = 1e-3
SHAPES = ("star", "chain", "snowflake", "random")


def asked(shape: str, method: Method, resources: Resources | None = None, time_limit: float = NO_TIME) -> PlanRequest:
    query = random_graph(random.Random(4), STREAMS, shape, windows=(10.0, 60.0), log_selectivity=(-3.5, -2.0))
    return PlanRequest(query=query, resources=resources or Resources(), options=Options(method=method, time_limit=time_limit))


def probes(made: Plan) -> int:
    return sum(len(pipeline.probes) for operator in made.operators for pipeline in operator.pipelines)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("method", [Method.AUTO, Method.EXACT, Method.ANYTIME, Method.TWO_LAYER, Method.STATE_REMOVAL])
def test_without_time_the_plan_is_one_that_is_quick_to_write(shape: str, method: Method) -> None:
    """The mjoin of so many streams has 14,000 probes, a binary tree 238: pricing and writing them takes longer than finding them."""
    made = plan(asked(shape, method))
    assert made.termination is Termination.TIME_LIMIT
    assert probes(made) <= 4 * STREAMS
    assert {name for operator in made.operators for name in operator.streams} == {stream.name for stream in made.query.streams}


def test_with_time_enough_the_wide_plan_of_a_star_is_found() -> None:
    warm()  # compiling would take more than all of the time
    assert probes(plan(asked("star", Method.ANYTIME, time_limit=6.0))) > 4 * STREAMS


def test_no_network_of_cuts_is_built_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def built(*_: object) -> None:
        raise AssertionError("a network was built")

    query = random_graph(random.Random(1), 30, "random", windows=(1.0,), log_selectivity=(-4.0, -1.0))
    model = CostModel(join_graph(query), PlanRequest(query=query).costs)
    monkeypatch.setattr(lower_bound, "_Cuts", built)
    with pytest.raises(AssertionError, match="a network was built"):
        lower_bound.cpu_lower_bound(model, Deadline.after(60))
    assert lower_bound.cpu_lower_bound(model, Deadline(0.0)) > 0.0


def test_an_allocation_tries_one_plan_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    entered = 0
    enter = allocation._Contest.enter

    def counted(self: allocation._Contest, *rest: object) -> bool:
        nonlocal entered
        entered += 1
        return enter(self, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(allocation._Contest, "enter", counted)
    query = random_graph(random.Random(2), 6, "random", windows=(10.0,), log_selectivity=(-2.0, -1.0))
    short = Resources(cpu=1e-6)
    plan(PlanRequest(query=query, resources=short, options=Options(time_limit=30.0)))
    with_time, entered = entered, 0
    made = plan(PlanRequest(query=query, resources=short, options=Options(time_limit=1e-6)))
    assert made.termination is Termination.TIME_LIMIT and made.allocation is not None
    assert with_time > 1 and entered == 1


def test_a_frontier_without_time_has_its_ends() -> None:
    query = random_graph(random.Random(3), 16, "chain", windows=(10.0,))
    whole = frontier(PlanRequest(query=query, options=Options(time_limit=30.0)))
    cut = frontier(PlanRequest(query=query, options=Options(time_limit=NO_TIME)))
    assert cut.termination is Termination.TIME_LIMIT
    assert 1 <= len(cut.points) < len(whole.points)


def test_budgets_of_work_follow_from_the_time_granted_whatever_is_left_of_it() -> None:
    """On a busy machine much of the time may be gone before a search begins: its tables are no smaller for that."""
    nearly_over = replace(Deadline.after(10.0), at=time.monotonic() + 0.5)
    assert affordable_sets(nearly_over) == affordable_sets(Deadline.after(10.0)) == MAX_SETS
    assert affordable_sets(nearly_over.share(0.1)) == affordable_sets(Deadline.after(1.0)) == HASTY_SETS
    assert nearly_over.share(0.1).granted == 1.0
    assert nearly_over.share(0.1).remaining() <= 0.05


def test_the_pairs_of_a_binary_tree_are_those_that_the_time_granted_affords(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = []
    found = compiled.best_binary_tree

    def noted(model: CostModel, component: int, most: int, by_memory: bool, sets: int) -> Tree | None:
        asked_for.append((most, sets))
        return found(model, component, most, by_memory, sets)

    monkeypatch.setattr(compiled, "best_binary_tree", noted)
    query = random_graph(random.Random(3), 9, "clique", windows=(1.0,), log_selectivity=(-2.0, -1.0))
    model = CostModel(join_graph(query), PlanRequest(query=query).costs)
    for deadline in (Deadline.after(10.0), replace(Deadline.after(10.0), at=time.monotonic() + 5.0), Deadline.after(1.0), Deadline(0.0)):
        bjtree.best_binary_tree(model, model.graph.all, deadline)
    most, _, less = (entry[1:] for entry in bjtree.AFFORDABLE)
    assert asked_for == [most, most, less, bjtree.LEAST_AFFORDABLE[1:]]

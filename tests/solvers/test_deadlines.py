"""Time limits are kept by what is left undone; how long answers take is for `tests.bench.bench_deadlines` to say."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from models.plan import Plan, Termination
from models.request import CacheMode, Method, Objective, Options, PlanRequest, Resources
from solvers import planner
from solvers.allocation import in_plans as allocation
from solvers.caches import claims
from solvers.caches.candidates import CacheCandidate, Pipelines, prefix_candidates, program_of
from solvers.caches.global_caches import global_candidates
from solvers.caches.in_plans import Known
from solvers.caches.select import branch_and_bound as selection
from solvers.caches.select.program import cheapest_cover
from solvers.common import deadline as deadlines
from solvers.common.deadline import Deadline
from solvers.frontier import frontier
from solvers.jtree import bjtree, component, lower_bound, with_caches
from solvers.jtree import shape as shapes
from solvers.jtree.compiled import binary_tree as compiled
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.seeds import seeds
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.mjoin import mjoin
from solvers.jtree.parts import affordable_sets
from solvers.jtree.search import Found, Problem
from solvers.jtree.state_removal import remove_states
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.jtree.warm import warm
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from solvers.model.probe_order import orders_by_unions
from solvers.model.tree import Tree, probes_of
from solvers.plan.builder import BRIEF
from solvers.planner import plan, problem_of
from tests.graphs import random_graph
from tests.solvers.clocks import Looks

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


@pytest.mark.parametrize("method", [Method.EXACT, Method.STATE_REMOVAL, Method.TWO_LAYER, Method.CP_SAT, Method.ANYTIME])
def test_time_is_kept_for_the_plan_at_hand_and_not_for_the_widest_there_is(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """The join of all 200 streams would take a quarter of a second to write, more than there is; no plan that is met takes a tenth of that."""
    warm()
    for module in (deadlines, shapes):  # no time passes: a search that ends early does so for what it keeps
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    query = random_graph(random.Random(4), 200, "random", windows=(10.0, 60.0), log_selectivity=(-3.5, -2.0))
    made = plan(PlanRequest(query=query, options=Options(method=method, time_limit=0.2, caches=CacheMode.OFF)))
    assert made.termination is Termination.COMPLETE
    assert probes(made) < 2000


@pytest.mark.parametrize("method", [Method.TWO_LAYER, Method.CP_SAT, Method.STATE_REMOVAL, Method.BJTREE])
def test_without_time_not_even_the_least_memory_is_worth_an_mjoin_that_takes_long_to_write(method: Method) -> None:
    made = plan(asked("star", method).model_copy(update={"objective": Objective.MIN_MEMORY}))
    assert made.termination is Termination.TIME_LIMIT
    assert probes(made) <= 4 * STREAMS


@pytest.mark.parametrize(("time_limit", "trees"), [(NO_TIME, 1), (60.0, 2)])
def test_without_time_one_binary_tree_of_a_large_graph_is_made(time_limit: float, trees: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    found = bjtree.best_binary_tree

    def noted(*rest: Any) -> tuple[Tree, bool]:
        made.append(rest)
        return found(*rest)

    monkeypatch.setattr(bjtree, "best_binary_tree", noted)
    request = asked("random", Method.BJTREE, time_limit=time_limit)
    assert probes(plan(request.model_copy(update={"objective": Objective.MIN_MEMORY}))) == 2 * (STREAMS - 1)
    assert len(made) == trees


def test_state_selection_keeps_time_for_the_plan_that_it_has_got_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first plan is the mjoin, its later ones have ever fewer probes: the moment to write the first may pass while it looks for the others."""
    for module in (deadlines, shapes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    kept_for = []
    before = shapes.Writing.before

    def noted(self: shapes.Writing, deadline: Deadline, draft: shapes.Draft) -> Deadline:
        kept_for.append(self.seconds(draft))
        return before(self, deadline, draft)

    monkeypatch.setattr(shapes.Writing, "before", noted)
    plan(asked("random", Method.STATE_SELECTION, time_limit=1.0))
    assert len(kept_for) > 10
    assert kept_for[-1] < 0.9 * kept_for[0]


@pytest.mark.parametrize("ask", [plan, frontier])
def test_a_query_of_many_predicates_is_written_briefly_without_time(ask: Callable[[PlanRequest], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said of each predicate takes as long as the plan, however few probes it has."""
    query = random_graph(random.Random(4), 110, "clique", windows=(10.0, 60.0), log_selectivity=(-0.5, 0.0))
    said = []
    for limit in (NO_TIME, 60.0):
        monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: 1000.0))
        made = ask(PlanRequest(query=query, options=Options(method=Method.BJTREE, time_limit=limit)))
        written = made if isinstance(made, Plan) else made.points[0].plan
        assert probes(written) == 2 * 109
        said.append((BRIEF in written.warnings, len(written.validity)))
    assert said == [(True, 0), (False, 110 + len(query.predicates))]


def test_a_walk_ends_where_the_next_plan_might_not_be_written_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deadlines, shapes):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    problem = problem_of(asked("star", Method.STATE_REMOVAL))
    ledger = Ledger(problem.model)
    binary = shapes.shape_of(greedy_plan(problem.model))
    writing = shapes.Writing.measured(problem, greedy_plan(problem.model))
    walk = list(remove_states(ledger, binary, Deadline.after(1.0)))
    enough = 1.001 * writing.seconds(walk[-1])
    assert len(list(writing.passed(Deadline.after(enough), walk))) == len(walk)
    short = list(writing.passed(Deadline.after(enough / 3), walk))
    assert 1 < len(short) < len(walk)
    assert all(writing.seconds(draft) < enough / 3 for draft in short[:-1]) and writing.seconds(short[-1]) >= enough / 3
    assert writing.in_time(Deadline.after(enough / 3), short) == short[:-1]


def test_with_time_enough_the_wide_plan_of_a_star_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    warm()  # compiling would take more than all of the time
    for module in (deadlines, shapes):  # time of this process: others may have the machine
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=time.process_time))
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


def wide_join(n: int = 40) -> tuple[Problem, Pipelines]:
    """One join of a chain, which has as many candidates for caches as any."""
    problem = problem_of(PlanRequest(query=random_graph(random.Random(6), n, "chain", windows=(10.0, 60.0), log_selectivity=(-3.5, -2.0))))
    tree = mjoin(problem, Deadline.after(60)).best.tree
    return problem, Pipelines.of(problem.model.price(tree).joins[-1])


@pytest.mark.parametrize("generate", [prefix_candidates, global_candidates])
def test_no_cache_is_thought_of_when_time_is_over(generate: Callable[..., list[CacheCandidate]]) -> None:
    problem, pipelines = wide_join()
    assert len(generate(problem.model, problem.attributes, pipelines)) > 500
    assert generate(problem.model, problem.attributes, pipelines, Deadline(0.0)) == []


def test_caches_are_weighed_until_the_deadline_and_what_is_known_by_then_is_honest(monkeypatch: pytest.MonkeyPatch) -> None:
    covered = 0

    def counted(*rest: Any) -> Any:
        nonlocal covered
        covered += 1
        return cheapest_cover(*rest)

    monkeypatch.setattr(selection, "cheapest_cover", counted)
    problem, pipelines = wide_join(24)
    program, _ = program_of(pipelines, prefix_candidates(problem.model, problem.attributes, pipelines), 1e6)
    whole = selection.branch_and_bound(program, Deadline.after(60), 100)
    with_time, covered = covered, 0
    monkeypatch.setattr(deadlines, "time", Looks())
    cut = selection.branch_and_bound(program, Deadline(4.0), 100)
    assert covered <= 3 * len(program.operator_costs) < with_time
    assert not cut.optimal and cut.bound is not None and cut.bound <= whole.cost * (1 + 1e-9) <= cut.cost * (1 + 2e-9)


def test_first_plans_of_an_exact_search_are_looked_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()

    def waiting(sets: Any, prices: Any, binary: Any, expansions: int, stop: Any) -> Any:
        patience = time.monotonic() + 60
        while not stop[0] and time.monotonic() < patience:
            time.sleep(0.001)
        if stop[0]:
            told.set()
        return seeds(sets, prices, binary, expansions, stop)

    monkeypatch.setattr(component, "seeds", waiting)
    query = random_graph(random.Random(4), 20, "chain", windows=(10.0,))
    made = plan(PlanRequest(query=query, options=Options(method=Method.EXACT, time_limit=0.05)))
    assert told.is_set() and made.termination is Termination.TIME_LIMIT


def test_orders_are_not_refined_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("orders were looked for")

    monkeypatch.setattr(shapes, "best_orders", looked)
    problem = problem_of(PlanRequest(query=random_graph(random.Random(6), 20, "star", windows=(10.0,), log_selectivity=(-3.5, -2.0))))
    ledger = Ledger(problem.model)
    wide = [shapes.draft_of(ledger, shapes.mjoin_shape(ledger))]
    with pytest.raises(AssertionError, match="orders were looked for"):
        shapes.priced(problem, ledger, wide, Deadline.after(60))
    assert len(shapes.priced(problem, ledger, wide, Deadline(0.0))) == 1


def test_unions_are_not_listed_when_time_is_over() -> None:
    problem, pipelines = wide_join()
    assert orders_by_unions(problem.model, pipelines.join.blocks) is not None
    assert orders_by_unions(problem.model, pipelines.join.blocks, Deadline(0.0)) is None


def test_caches_leave_the_time_that_it_takes_to_write_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Deadline, int]] = []

    def seen(_: Problem, found: Found, until: Deadline, __: Known | None) -> None:
        given.append((until, probes_of(found.best.tree)))

    monkeypatch.setattr(planner, "caches_in_plans", seen)
    monkeypatch.setattr(deadlines, "time", SimpleNamespace(monotonic=lambda: 0.0))
    request = asked("star", Method.MJOIN, time_limit=30.0)
    plan(request)
    ((until, probed),) = given
    assert probed == STREAMS * (STREAMS - 1)
    listed = STREAMS * len(request.query.predicates)  # by every pipeline
    taken = probed * deadlines.SECONDS_PER_PROBE + listed * deadlines.SECONDS_PER_LISTED + deadlines.SECONDS_PER_JOIN
    taken += len(request.query.predicates) * deadlines.SECONDS_PER_PREDICATE
    assert until.at == pytest.approx(30.0 - taken)


def test_the_bound_of_headroom_with_caches_is_narrowed_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    asked_for = 0
    least = claims.least_cpu

    def counted(model: CostModel) -> float:
        nonlocal asked_for
        asked_for += 1
        return least(model)

    monkeypatch.setattr(claims, "least_cpu", counted)
    problem, _ = wide_join(8)
    problem = replace(problem, caps=Caps(cpu=10.0), objective=Objective.MAX_HEADROOM)
    narrow = claims._bound(problem, 0.0, Deadline.after(60))
    with_time, asked_for = asked_for, 0
    assert claims._bound(problem, 0.0, Deadline(0.0)) >= narrow
    assert asked_for < with_time


@pytest.mark.parametrize("method", [Method.STATE_SELECTION, Method.STATE_REMOVAL, Method.TWO_LAYER, Method.EXACT])
def test_a_plan_whose_bound_the_clock_has_cut_does_not_say_that_it_is_complete(method: Method, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever finds the plan: with more time its bound would be another, so the answer is none to keep."""
    query = random_graph(random.Random(7), 14, "random", windows=(10.0, 60.0), log_selectivity=(-3.5, -2.0))
    request = PlanRequest(query=query, options=Options(method=method, time_limit=30.0))
    assert plan(request).termination is Termination.COMPLETE
    assert frontier(request).termination is Termination.COMPLETE
    cut: list[bool] = []

    def cut_short(*given: Any) -> with_caches.LeastWithCaches:
        cut.append(True)
        return with_caches.LeastWithCaches(0.0, True)

    monkeypatch.setattr(with_caches, "least_with_caches", cut_short)
    assert plan(request).termination is Termination.TIME_LIMIT
    assert frontier(request).termination is Termination.TIME_LIMIT
    assert len(cut) == 2

"""OR-Tools and PuLP fail in every way they have, at every call: no answer claims a proof that it does not have."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import random
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import pulp
import pytest
from ortools.graph.python import max_flow
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from models.allocation import AllocationRequest
from models.caches import CacheSelectionRequest
from models.cover import CoverRequest
from models.jtree import JtreeRequest
from models.plan import Proof
from models.request import Costs, Options, PlanRequest, Query
from solvers.allocation.solve import solve_allocation
from solvers.caches.solve import solve_caches
from solvers.common.deadline import Deadline
from solvers.common.linear_program import Outcome, Row, linear_program
from solvers.cover.solve import solve_cover
from solvers.frontier import frontier
from solvers.join_tree import solve_jtree
from solvers.jtree.exact import exact
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.planner import plan
from tests.graphs import random_graph
from tests.solvers.brute_force import every_plan

SOLVERS = Path(__file__).parents[2] / "solvers"
ROUNDED = 1.0 + 1e-9
LONG = 60.0  # seconds: nothing here takes nearly as long


class InjectedError(Exception):
    """What a solver raises here."""


def _raises(error: type[Exception]) -> Callable[..., Any]:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("injected")

    return fail


def _returns(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


@dataclass(frozen=True)
class Entry:
    """A function of a solver's library, and what it may do instead of its work."""

    owner: Any
    name: str
    failures: tuple[Callable[..., Any], ...]


def _raising(owner: Any, *names: str) -> Iterator[Entry]:
    """Functions that have no other way to fail."""
    for name in names:
        yield Entry(owner, name, (_raises(InjectedError),))


GLOP, CP, FLOW = pywraplp.Solver, cp_model, max_flow.SimpleMaxFlow
NO_NUMBERS = tuple(map(_returns, (math.nan, math.inf, -math.inf, 0.0)))
SOLVE = Entry(
    GLOP,
    "Solve",
    (
        *map(_returns, (GLOP.ABNORMAL, GLOP.NOT_SOLVED, GLOP.INFEASIBLE, GLOP.UNBOUNDED, GLOP.FEASIBLE, GLOP.MODEL_INVALID)),
        _raises(InjectedError),
    ),
)
CP_SOLVE = Entry(CP.CpSolver, "solve", (*map(_returns, (CP.UNKNOWN, CP.MODEL_INVALID, CP.INFEASIBLE)), _raises(InjectedError)))
ENTRIES = (
    Entry(GLOP, "CreateSolver", (_returns(None), _raises(InjectedError))),
    Entry(GLOP, "SetSolverSpecificParametersAsString", (_returns(False), _raises(InjectedError))),
    SOLVE,
    *_raising(GLOP, "NumVar", "Constraint", "Objective", "infinity"),
    *_raising(pywraplp.Constraint, "SetCoefficient"),
    *_raising(pywraplp.Objective, "SetCoefficient", "SetMaximization"),
    Entry(pywraplp.Constraint, "dual_value", (*NO_NUMBERS, _raises(InjectedError))),
    Entry(pywraplp.Variable, "solution_value", (*NO_NUMBERS, _raises(InjectedError))),
    CP_SOLVE,
    *_raising(CP.CpSolver, "__init__", "value", "boolean_value"),
    *_raising(CP.CpModel, "__init__", "add", "add_at_most_one", "add_bool_or", "add_hint", "add_implication", "clear_hints"),
    *_raising(CP.CpModel, "maximize", "minimize", "new_bool_var", "new_int_var"),
    *_raising(CP.LinearExpr, "weighted_sum"),
    *_raising(CP.IntVar, "negated"),
    Entry(FLOW, "solve", (*map(_returns, (FLOW.POSSIBLE_OVERFLOW, FLOW.BAD_INPUT, FLOW.BAD_RESULT)), _raises(InjectedError))),
    *_raising(FLOW, "add_arc_with_capacity", "set_arc_capacity", "optimal_flow"),
    Entry(
        pulp.LpProblem,
        "solve",
        (
            *map(_returns, (pulp.LpStatusNotSolved, pulp.LpStatusInfeasible, pulp.LpStatusUnbounded, pulp.LpStatusUndefined)),
            _raises(pulp.PulpSolverError),
            _raises(InjectedError),
        ),
    ),
    *_raising(pulp.LpProblem, "__init__", "__iadd__", "add_variable", "get_constraint_by_name"),
    Entry(pulp.LpVariable, "value", (_returns(None), *NO_NUMBERS, _raises(InjectedError))),
    *_raising(pulp.LpElement, "__le__", "__mul__"),
    *_raising(pulp.LpAffineExpression, "__le__"),
    *_raising(pulp, "lpSum"),
    *_raising(pulp.PULP_CBC_CMD, "__init__"),
)
STATIC = {"CreateSolver", "infinity", "weighted_sum"}  # of a class, so that no object stands before their arguments
MOST_CALLS = 3  # of one function in one answer that are made to fail one by one; of more the first, the one in the middle and the last


@contextmanager
def injected(entry: Entry, instead: Callable[..., Any], fails: Callable[[int], bool]) -> Iterator[list[str]]:
    """The entry with `instead` in its place at the calls that fail; yields the files of `solvers` that called it."""
    real, callers = getattr(entry.owner, entry.name), list[str]()

    def call(*args: Any, **named: Any) -> Any:
        frame = sys._getframe(1)
        while SOLVERS not in Path(frame.f_code.co_filename).parents:
            assert frame.f_back is not None
            frame = frame.f_back
        callers.append(frame.f_code.co_filename)
        return instead(*args, **named) if fails(len(callers) - 1) else real(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entry.owner, entry.name, staticmethod(call) if entry.name in STATIC else call)
        yield callers


@dataclass(frozen=True)
class Claimed:
    """What an answer says: its value, and what it proves of it."""

    value: float
    proof: Proof
    bound: float | None
    gap: float | None


@dataclass(frozen=True)
class Case:
    """A question, its answer's claims, and the true optimum, known without any solver."""

    ask: Callable[[], list[Claimed]]
    optimum: Callable[[], float]
    maximise: bool = False

    def check(self, claims: list[Claimed]) -> None:
        optimum = self.optimum()
        for claim in claims:
            low, high = (claim.value, optimum) if self.maximise else (optimum, claim.value)
            assert low <= high * ROUNDED, "better than the best"
            if claim.proof is Proof.OPTIMAL:
                assert low == pytest.approx(high, rel=1e-9), "called optimal"
            assert (claim.proof is Proof.NONE) == (claim.bound is None) == (claim.gap is None)
            if claim.bound is not None:
                better, worse = (optimum, claim.bound) if self.maximise else (claim.bound, optimum)
                assert better <= worse * ROUNDED, "the bound rules the optimum out"


def _figures(answer: Any, value: float) -> list[Claimed]:
    return [Claimed(value, answer.proof, answer.bound, answer.gap)]


# `other` gives 4.5 of what t needs, half a unit of `both` the rest of it, and as much to s: `one` gives what s then lacks.
COVER_OPTIMUM = 4.5 * 1.2 + 0.5 * 3 + 3.5
COVER = {
    "states": [{"name": "s", "required": 4}, {"name": "t", "required": 5}],
    "paths": [
        {"name": "both", "cost": 3, "covers": {"s": 1.0, "t": 1.0}, "max_units": 1},
        {"name": "one", "cost": 1, "covers": {"s": 1.0}},
        {"name": "other", "cost": 1.2, "covers": {"t": 1.0}, "max_units": 4.5},
        {"name": "dear", "cost": 10, "covers": {"t": 1.0}},
    ],
}
COVERED = {
    "capacity": 30,
    "states": [{"name": "AB", "required": 10}],
    "paths": [
        {"name": "A", "resources": 2, "output": 5, "covers": {"AB": 1}},
        {"name": "B", "resources": 1.9, "output": 1, "covers": {"AB": 1}},
        {"name": "C", "resources": 1, "output": 3},
    ],
}
TABLE_2 = {
    "capacity": 30,
    "paths": [
        {"name": "A", "resources": 15, "output": 4},
        {"name": "B", "resources": 16, "output": 5},
        {"name": "C", "resources": 10, "output": 1},
    ],
}
CACHED = 66  # of pipelines, each of which one cache of one byte could answer; a third of them fits. More than branch and bound takes.
CACHES = {
    "pipelines": [{"name": f"p{i}", "operator_costs": [2.0, 1.0 + i]} for i in range(CACHED)],
    "candidates": [
        {"id": f"c{i}", "pipeline": f"p{i}", "first": 0, "last": 1, "group": f"g{i}", "proc": 1.0, "memory_bytes": 1.0} for i in range(CACHED)
    ],
    "groups": [{"id": f"g{i}", "update_cost": 0.5} for i in range(CACHED)],
    "memory_bytes": CACHED / 3,
    "time_limit": LONG,
}
CACHES_OPTIMUM = sum(3.0 + i for i in range(CACHED)) - sum(1.5 + i for i in range(CACHED * 2 // 3, CACHED))

# Two caches overlap in every pipeline: the better one saves 2.0, the other 1.5. Two of the better ones exclude each other.
OVERLAPPING = {
    "pipelines": [{"name": f"p{i}", "operator_costs": [2.0, 1.0, 2.0]} for i in range(CACHED // 2)],
    "candidates": [
        {
            "id": f"{kind}{i}",
            "pipeline": f"p{i}",
            "first": first,
            "last": first + 1,
            "group": f"{kind}{i}",
            "proc": proc,
            "memory_bytes": 1.0,
            "excludes": ["better1"] if kind == "better" and i == 0 else [],
        }
        for i in range(CACHED // 2)
        for kind, first, proc in (("other", 0, 1.0), ("better", 1, 0.5))
    ],
    "groups": [{"id": f"{kind}{i}", "update_cost": 0.5} for i in range(CACHED // 2) for kind in ("other", "better")],
    "memory_bytes": None,
}
OVERLAPPING_OPTIMUM = 3.0 * (CACHED // 2) + 0.5


def _cover(**changes: Any) -> list[Claimed]:
    answer = solve_cover(CoverRequest.model_validate({**COVER, **changes, "time_limit": LONG}))
    assert answer.least_capacity is not None
    return _figures(answer, answer.least_capacity)


def _allocation(request: dict[str, Any], **changes: Any) -> list[Claimed]:
    answer = solve_allocation(AllocationRequest.model_validate({**request, **changes, "time_limit": LONG}))
    return _figures(answer, answer.throughput)


def _caches(**changes: Any) -> list[Claimed]:
    answer = solve_caches(CacheSelectionRequest.model_validate({**CACHES, **changes}))
    assert answer.lp_bound is None or answer.lp_bound <= (OVERLAPPING_OPTIMUM if "pipelines" in changes else CACHES_OPTIMUM) * ROUNDED
    return _figures(answer, answer.total_cost)


QUERY = random_graph(random.Random(5), 6, "clique", observed=0.3)
CYCLE = random_graph(random.Random(0), 12, "cycle", log_selectivity=(-3.0, -1.5))  # large enough for a bound by minimum cuts


@functools.cache
def _least() -> float:
    return min(tried.cpu for tried in every_plan(CostModel(join_graph(QUERY), Costs())))


@functools.cache
def _least_of_cycle() -> float:
    """By the exact search, which needs no solver and is held against brute force elsewhere."""
    return exact(Problem(CostModel(join_graph(CYCLE), Costs())), Deadline.after(LONG)).best.cpu


def _request(method: str, query: Query = QUERY) -> PlanRequest:
    return PlanRequest(query=query, options=Options(method=method, caches="off", time_limit=LONG))


def _plan(method: str, query: Query = QUERY) -> list[Claimed]:
    made = plan(_request(method, query))
    assert made.tree_proof is made.proof and made.tree_bound == made.bound
    return _figures(made, made.cost.cpu)


def _frontier(method: str) -> list[Claimed]:
    found = frontier(_request(method))
    if found.proof is Proof.OPTIMAL:
        assert found.points[0].cpu == pytest.approx(_least(), rel=1e-9)
    return [claim for point in found.points for claim in _figures(point.plan, point.plan.cost.cpu)]


def _jtree(method: str) -> list[Claimed]:
    answer = solve_jtree(JtreeRequest(query=QUERY, method=method, time_limit=LONG))
    return _figures(answer, answer.cost.cpu)


CASES = {
    "cover": Case(_cover, lambda: COVER_OPTIMUM),
    "cover, greedy": Case(lambda: _cover(method="greedy"), lambda: COVER_OPTIMUM),
    "cover, whole": Case(lambda: _cover(model="discrete"), lambda: 3 + 3 + 4 * 1.2),
    "allocation with freshness": Case(lambda: _allocation(COVERED), lambda: 80.0, maximise=True),
    "allocation with freshness, jaqpot": Case(lambda: _allocation(COVERED, method="jaqpot"), lambda: 80.0, maximise=True),
    "allocation, whole": Case(lambda: _allocation(TABLE_2, model="discrete"), lambda: 8.0, maximise=True),
    "caches": Case(_caches, lambda: CACHES_OPTIMUM),
    "caches that overlap": Case(lambda: _caches(**OVERLAPPING), lambda: OVERLAPPING_OPTIMUM),
    "caches, greedy": Case(lambda: _caches(method="greedy"), lambda: CACHES_OPTIMUM),
    "caches, rounding": Case(lambda: _caches(method="lp_rounding"), lambda: CACHES_OPTIMUM),
    **{f"plan, {method}": Case(functools.partial(_plan, method), _least) for method in ("auto", "exact", "cp_sat", "anytime", "two_layer")},
    "plan, anytime, by cuts": Case(lambda: _plan("anytime", CYCLE), _least_of_cycle),
    **{f"frontier, {method}": Case(functools.partial(_frontier, method), _least) for method in ("auto", "cp_sat", "anytime")},
    **{f"jtree, {method}": Case(functools.partial(_jtree, method), _least) for method in ("auto", "cp_sat", "anytime")},
}


def _never(_: int) -> bool:
    return False


@pytest.mark.parametrize("name", CASES)
def test_unharmed_solvers_answer_with_claims_that_hold(name: str) -> None:
    claims = CASES[name].ask()
    CASES[name].check(claims)
    if not any(word in name for word in ("greedy", "jaqpot", "rounding", "anytime", "two_layer", "frontier")):
        assert claims[0].proof is Proof.OPTIMAL


def _calls(case: Case) -> dict[int, list[str]]:
    """By place among the entries, the files of `solvers` that called it."""
    with ExitStack() as stack:
        made = [stack.enter_context(injected(entry, _raises(AssertionError), _never)) for entry in ENTRIES]
        case.ask()
    return dict(enumerate(made))


@pytest.mark.parametrize("name", CASES)
def test_a_failure_at_any_call_is_an_error_or_an_honest_claim(name: str) -> None:
    case = CASES[name]
    for place, calls in _calls(case).items():
        last = len(calls) - 1
        single = range(len(calls)) if len(calls) <= MOST_CALLS else (0, last // 2, last)
        at: list[Callable[[int], bool]] = [lambda _: True, *(functools.partial(operator.eq, k) for k in single)]
        for instead, fails in itertools.product(ENTRIES[place].failures if calls else (), at):
            with injected(ENTRIES[place], instead, fails) as made:
                try:
                    claims = case.ask()
                except InjectedError:
                    claims = []
            assert made
            case.check(claims)


def _functions_called() -> tuple[set[str], set[str]]:
    """What `solvers` calls of the two libraries over all cases: the functions, and the files that call them."""
    functions, files = set[str](), set[str]()

    def note(called: str, caller: FrameType | None) -> None:
        if caller is not None and SOLVERS in Path(caller.f_code.co_filename).parents:
            functions.add(called.removeprefix("PyCapsule."))
            files.add(caller.f_code.co_filename)

    def seen(frame: FrameType, event: str, called: Any) -> None:
        if event == "call" and re.search(r"site-packages/(ortools|pulp)/", frame.f_code.co_filename):
            note(frame.f_code.co_qualname, frame.f_back)
        elif event == "c_call" and str(getattr(called, "__module__", "")).startswith("ortools"):
            note(called.__qualname__, frame)

    sys.setprofile(seen)
    try:
        for case in CASES.values():
            case.ask()
    finally:
        sys.setprofile(None)
    return functions, files


def test_every_function_of_a_solver_that_is_called_is_made_to_fail() -> None:
    functions, files = _functions_called()
    importing = {str(path) for path in SOLVERS.rglob("*.py") if re.search(r"^\s*(from|import) (ortools|pulp)", path.read_text(), re.M)}
    assert files == importing
    # Properties read what `solve` returned, and have no other way to fail.
    known = {f"{entry.owner.__name__}.{entry.name}".removeprefix("pulp.") for entry in ENTRIES} | {"CpSolver.best_objective_bound"}
    known |= {entry.name for entry in ENTRIES if entry.owner in (FLOW, CP.LinearExpr, CP.IntVar)}
    assert functions <= known


def test_every_way_to_fail_is_tried() -> None:
    called = {place for case in CASES.values() for place, calls in _calls(case).items() if calls}
    assert [entry for place, entry in enumerate(ENTRIES) if place not in called] == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (GLOP.INFEASIBLE, Outcome.INFEASIBLE),
        (GLOP.UNBOUNDED, Outcome.UNBOUNDED),
        (GLOP.FEASIBLE, Outcome.TIME_LIMIT),
        (GLOP.ABNORMAL, Outcome.FAILED),
        (GLOP.NOT_SOLVED, Outcome.FAILED),
    ],
)
def test_how_a_linear_program_ended_is_a_value(status: int, outcome: Outcome) -> None:
    with injected(SOLVE, _returns(status), lambda _: True):
        answer = linear_program([1.0], [5.0], [Row({0: 1.0}, high=2.0)], maximise=True)
    assert (answer.outcome, answer.units) == (outcome, ())


def test_a_linear_program_that_cannot_be_says_so() -> None:
    assert linear_program([1.0], [1.0], [Row({0: 1.0}, low=2.0)], maximise=False).outcome is Outcome.INFEASIBLE
    assert linear_program([1.0], [float("inf")], [], maximise=True).outcome is not Outcome.OPTIMAL


def test_a_cp_sat_that_calls_what_there_is_impossible_proves_nothing() -> None:
    with injected(CP_SOLVE, _returns(CP.INFEASIBLE), lambda _: True):
        (claim,) = _plan("cp_sat")
    assert claim.proof is Proof.BOUNDED

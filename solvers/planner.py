"""From a request to a plan, in named steps: graph, search, plan.

`METHODS` names every search; the seam is `solvers.search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from models.plan import Plan
from models.request import Method, PlanRequest
from solvers.caches.in_plans import caches_in_plans
from solvers.cost import CostModel
from solvers.deadline import NOBODY, Deadline, Progress
from solvers.graph import join_graph
from solvers.plan_builder import build_plan
from solvers.search import Caps, Found, Problem, Search

__all__ = ["METHODS", "begin", "early", "plan", "problem_of", "search"]

AT_LIMIT, WHEN_ASKED = "stopped at its time limit", "stopped early, as it was asked to"


def _lazily(module: str, name: str) -> Search:
    """A search that is imported when it is first called: the command line must start fast."""

    def call(problem: Problem, deadline: Deadline) -> Found:
        function: Callable[[Problem, Deadline], Found] = getattr(import_module(module), name)
        return function(problem, deadline)

    return call


METHODS: dict[Method, Search] = {
    Method.AUTO: _lazily("solvers.auto", "auto"),
    Method.EXACT: _lazily("solvers.exact", "exact"),
    Method.CP_SAT: _lazily("solvers.cp_sat", "cp_sat"),
    Method.TWO_LAYER: _lazily("solvers.two_layer", "two_layer"),
    Method.STATE_SELECTION: _lazily("solvers.state_selection", "state_selection"),
    Method.STATE_REMOVAL: _lazily("solvers.state_removal", "state_removal"),
    Method.MJOIN: _lazily("solvers.mjoin", "mjoin"),
    Method.BJTREE: _lazily("solvers.bjtree", "bjtree"),
    Method.ANYTIME: _lazily("solvers.anytime", "anytime"),
}


def problem_of(request: PlanRequest) -> Problem:
    """The problem a request poses."""
    caps = request.resources
    return Problem(
        model=CostModel(join_graph(request.query), request.costs),
        caps=Caps(
            math.inf if caps.cpu is None else caps.cpu,
            math.inf if caps.memory_bytes is None else caps.memory_bytes,
        ),
        objective=request.objective,
        seed=request.options.seed,
    )


def search(request: PlanRequest, problem: Problem, deadline: Deadline) -> Found:
    """What the request's method finds."""
    return METHODS[request.options.method](problem, deadline)


def begin(problem: Problem, progress: Progress) -> None:
    """What comes before any search."""
    problem.model.check_range()
    progress.begin(problem)
    progress.doing("searching")


def plan(request: PlanRequest, progress: Progress = NOBODY) -> Plan:
    """The best plan for a request. Asked to stop, it is the best so far."""
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    found = search(request, problem, deadline)
    progress.found((found.best,))
    progress.doing("choosing caches")
    found = early(found, deadline)
    cached = caches_in_plans(request, problem, found, deadline)
    made = build_plan(request, problem, found, cached)
    progress.ended(made)
    return made


def early(found: Found, deadline: Deadline) -> Found:
    """What a search found, and where it was asked to stop, that: a search itself sees its deadline strike, not why."""
    if not deadline.progress.stopped():
        return found
    return replace(found, notes=tuple(note.replace(AT_LIMIT, WHEN_ASKED) for note in found.notes))

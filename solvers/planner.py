"""From a request to a plan, in named steps: graph, search, caches, claims, allocation, plan.

`METHODS` names every search; the seam is `solvers.jtree.search`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

from models.plan import Plan, Termination
from models.request import Method, PlanRequest
from solvers.caches.claims import with_caches_allowed
from solvers.caches.in_plans import CachedPlan, caches_in_plans
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.jtree.search import Found, Problem, Search, structure_key
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from solvers.plan.builder import Outcome, build_plan, value_of

__all__ = ["METHODS", "begin", "plan", "problem_of", "search", "written"]


def _lazily(module: str, name: str) -> Search:
    """A search that is imported when it is first called: the command line must start fast."""

    def call(problem: Problem, deadline: Deadline) -> Found:
        function: Callable[[Problem, Deadline], Found] = getattr(import_module(module), name)
        return function(problem, deadline)

    return call


METHODS: dict[Method, Search] = {
    Method.AUTO: _lazily("solvers.jtree.auto", "auto"),
    Method.EXACT: _lazily("solvers.jtree.exact", "exact"),
    Method.CP_SAT: _lazily("solvers.jtree.cp_sat", "cp_sat"),
    Method.TWO_LAYER: _lazily("solvers.jtree.two_layer", "two_layer"),
    Method.STATE_SELECTION: _lazily("solvers.jtree.state_selection", "state_selection"),
    Method.STATE_REMOVAL: _lazily("solvers.jtree.state_removal", "state_removal"),
    Method.MJOIN: _lazily("solvers.jtree.mjoin", "mjoin"),
    Method.BJTREE: _lazily("solvers.jtree.bjtree", "bjtree"),
    Method.ANYTIME: _lazily("solvers.jtree.anytime", "anytime"),
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
    """Refuse what no double can hold, and tell whoever waits which problem is being solved."""
    problem.model.check_range()
    progress.begin(problem)
    progress.doing("searching")


def plan(request: PlanRequest, progress: Progress = NOBODY) -> Plan:
    """The best plan for a request. Asked to stop, it is the best so far."""
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    tree = search(request, problem, deadline)
    progress.found((tree.best,))
    progress.doing("choosing caches")
    cached = caches_in_plans(request, problem, tree, deadline)
    made = written(request, problem, tree, cached, deadline)
    progress.ended(made)
    return made


def written(request: PlanRequest, problem: Problem, tree: Found, cached: CachedPlan | None, deadline: Deadline) -> Plan:
    """Write the plan of a tree, or of a tree with caches: its figures, what is proven of it and, where nothing fits, who may probe how much."""
    termination = tree.termination if tree.termination is not Termination.COMPLETE else deadline.termination()
    best, relief = tree, None
    if cached is not None:
        points = sorted((*tree.points, cached.point), key=lambda point: (point.cpu, point.memory_bytes, structure_key(point.tree)))
        best = replace(tree, best=cached.point, points=tuple(points), lacking=None)
    elif not problem.caps.admit(tree.best):
        from solvers.allocation.in_plans import relieve  # imported late: only requests that nothing fits need it

        relief = relieve(problem, request, tree, deadline)
        best = relief.found
    found = with_caches_allowed(problem, request, tree, best, value_of(problem, best.best, cached), deadline)
    return build_plan(request, problem, Outcome(tree, found, cached, relief, termination))

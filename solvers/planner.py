"""From a request to a plan, in named steps: problem, tree, caches, allocation, proof, plan."""

from __future__ import annotations

import math
from dataclasses import replace

from models.plan import EstimateRequest, Plan, Termination
from models.request import Objective, PlanRequest
from solvers.caches.cached_plan import CachedPlan
from solvers.caches.claims import Least, can_exist, least_of_all, no_cache_pays
from solvers.caches.in_plans import WORTH, Known, caches_in_plans, chosen_together, least_of_small_graphs
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.jtree.registry import run
from solvers.jtree.search import Found, Problem, before_writing
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps
from solvers.model.ranges import check_range
from solvers.plan.builder import build_plan
from solvers.plan.outcome import Outcome, allocated, chosen, proven

__all__ = ["begin", "best", "plan", "problem_of", "search"]

MIDDLE = 20  # streams, up to which tables of all connected sets leave time enough
TREE_SHARE = 0.6  # of the time, for the tree of larger graphs; what it has found by then is good, and the bound takes as long


def plan(request: PlanRequest, progress: Progress = NOBODY) -> Plan:
    """The best plan for a request. Asked to stop, it is the best so far."""
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    outcome = best(problem, deadline)
    outcome = proven(problem, outcome, before_writing(problem, outcome.tree.best, deadline))
    made = build_plan(problem, outcome)
    progress.ended(made)
    return made


def best(problem: Problem, deadline: Deadline, known: Known | None = None) -> Outcome:
    """The best plan with its caches and, where nothing fits, its allocation; what is proven of it beyond its tree is not worked out yet.

    `known`: what was found out of caches in this problem's trees before.
    """
    tree = search(problem, deadline.share(TREE_SHARE) if _bound_takes_long(problem) else deadline)
    deadline.progress.found((tree.best,))
    deadline.progress.doing("choosing caches")
    choosing = before_writing(problem, tree.best, deadline)
    cached, least = _with_caches(problem, tree, choosing, known)
    caches_tried = can_exist(problem.model, problem.options.caches)
    ended = Termination.TIME_LIMIT if least and least.cut and tree.termination is Termination.COMPLETE else tree.termination
    outcome = chosen(tree, cached, choosing.termination(ended) if caches_tried else ended)
    outcome = replace(outcome, least=least.cpu if least else None)
    if known is not None:
        known.least = outcome.least
    return allocated(problem, outcome, choosing)


def _bound_takes_long(problem: Problem) -> bool:
    """Whether time is kept back for the bound of plans with caches: without it little would be proven of them, however good the tree."""
    asked = problem.objective is Objective.MIN_CPU and problem.options.method.can.whole_frontier
    return asked and len(problem.model.graph) > MIDDLE and not problem.model.graph.tables and can_exist(problem.model, problem.options.caches)


def _with_caches(problem: Problem, tree: Found, deadline: Deadline, known: Known | None) -> tuple[CachedPlan | None, Least | None]:
    """The plan with caches that is better than the tree, if there is one, and a lower bound of the CPU of all plans, if that is known by then.

    Where no cache can pay, none is looked for. In small graphs trees, orders and caches are chosen together, with a proof. Methods that look at
    some trees alone add caches to those; their bound, which takes compiled code that they do without, can wait.
    """
    if not problem.options.method.can.whole_frontier:
        return caches_in_plans(problem, tree, deadline, known), None
    least = least_of_all(problem, tree, deadline)
    if no_cache_pays(problem, tree, least.cpu):
        return None, least
    joint = chosen_together(problem, deadline)
    if joint is not None:
        least = least.or_more(joint.least_cpu)
        if joint.cached is not None and problem.caps.admit(joint.cached.point) and not no_cache_pays(problem, tree, least.cpu):
            return joint.cached, least
    cached = None if no_cache_pays(problem, tree, least.cpu, WORTH) else caches_in_plans(problem, tree, deadline, known)
    if joint is not None and problem.caps.admit(tree.best) and not no_cache_pays(problem, tree, least.cpu):
        least = least.or_more(least_of_small_graphs(problem, cached.point.cpu if cached else tree.best.cpu, deadline))
    return cached, least


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
        options=request.options,
        query=request.query,
        shape_given=isinstance(request, EstimateRequest),
    )


def begin(problem: Problem, progress: Progress) -> None:
    """Refuse what no double can hold, and tell whoever waits which problem is being solved."""
    check_range(problem.model)
    progress.begin(problem)
    progress.doing("searching")


def search(problem: Problem, deadline: Deadline) -> Found:
    """What the method that was asked for finds."""
    return run(problem.options.method, problem, deadline)

"""Every trade-off between CPU and memory worth having (contract §3, POST /v1/frontiers)."""

from __future__ import annotations

from dataclasses import replace

from models.plan import Frontier, FrontierPoint, Proof
from models.request import Method, Objective, PlanRequest
from solvers.choice import choose
from solvers.deadline import NOBODY, Deadline, Progress
from solvers.plan_builder import build_plan
from solvers.planner import begin, problem_of, search
from solvers.search import Found, Problem

__all__ = ["frontier"]

_WHOLE_FRONTIER = (Method.AUTO, Method.EXACT)
"""Methods that search all join trees; the others give the trade-offs among the plans they found."""


def frontier(request: PlanRequest, progress: Progress = NOBODY) -> Frontier:
    """The plans within the caps that no other plan beats in both resources, by rising CPU.

    The plan that is best by the objective carries the proof; of the others it is proven only that none beats them in both.
    """
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    found = _search(request, problem, deadline)
    points = [point for point in found.points if problem.caps.admit(point)]
    best = choose(problem, points) if points else None
    if points:
        progress.found(points)
    progress.doing(f"pricing {len(points)} plans")
    result = []
    for point in points:
        proven = found.proof if point is best else Proof.NONE
        bound = _bound(problem, found) if proven is Proof.OPTIMAL else None
        alone = replace(found, best=point, proof=proven if bound is not None else Proof.NONE, bound=bound, lacking=None, notes=())
        progress.stopped()  # raises where nobody waits for the rest
        made = build_plan(request, problem, alone)
        if point is best:
            progress.ended(made)
        result.append(FrontierPoint(cpu=point.cpu, memory_bytes=point.memory_bytes, plan=made))
    return Frontier(points=result, proof=found.proof if request.options.method in _WHOLE_FRONTIER else Proof.NONE)


def _search(request: PlanRequest, problem: Problem, deadline: Deadline) -> Found:
    if request.options.method in _WHOLE_FRONTIER:
        from solvers.exact import frontier_search  # numba takes a while to import

        return frontier_search(problem, deadline)
    return search(request, problem, deadline)


def _bound(problem: Problem, found: Found) -> float | None:
    """On a whole frontier the best CPU is the first point's and the best memory the last one's."""
    admitted = [point for point in found.points if problem.caps.admit(point)]
    if problem.objective is Objective.MIN_CPU:
        return admitted[0].cpu
    return admitted[-1].memory_bytes if problem.objective is Objective.MIN_MEMORY else None

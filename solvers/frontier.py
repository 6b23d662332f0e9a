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
SEARCHING = 0.7  # of the time limit: the rest is for writing the plans


def frontier(request: PlanRequest, progress: Progress = NOBODY) -> Frontier:
    """The plans within the caps that no other plan beats in both resources, by rising CPU.

    The plan that is best by the objective carries the proof; of the others it is proven only that none beats them in both. Where the
    time limit comes before all plans are written, those that are stand all along the frontier, and it is not called complete.
    """
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    found = _search(request, problem, Deadline.after(deadline.remaining() * SEARCHING, progress))
    points = [point for point in found.points if problem.caps.admit(point)]
    if not points:
        return Frontier(points=[], proof=_proof(request, found))
    best = choose(problem, points)
    progress.found(points)
    progress.doing(f"writing {len(points)} plans")
    written: dict[int, FrontierPoint] = {}
    for place in _all_along(len(points), points.index(best)):
        if written and deadline.expired():
            break
        point = points[place]
        proven = found.proof if point is best else Proof.NONE
        bound = _bound(problem, found) if proven is Proof.OPTIMAL else None
        alone = replace(found, best=point, proof=proven if bound is not None else Proof.NONE, bound=bound, lacking=None, notes=())
        progress.stopped()  # raises where nobody waits for the rest
        made = build_plan(request, problem, alone)
        if point is best:
            progress.ended(made)
        written[place] = FrontierPoint(cpu=point.cpu, memory_bytes=point.memory_bytes, plan=made)
    proof = _proof(request, found)
    if len(written) < len(points):
        proof = Proof.BOUNDED if proof is Proof.OPTIMAL else proof
        said = f"{len(written)} of {len(points)} trade-offs are listed: the time limit came before the others were written."
        written[points.index(best)].plan.warnings.append(said)
    return Frontier(points=[written[place] for place in sorted(written)], proof=proof)


def _all_along(count: int, first: int) -> list[int]:
    """All places below `count`: `first`, both ends, then the middle of each gap in turn, so that every beginning is spread evenly.

    >>> _all_along(6, 4)
    [4, 0, 5, 2, 1, 3]
    """
    places = dict.fromkeys((first, 0, count - 1))
    gaps = [(0, count - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if low < middle < high:
            places[middle] = None
            gaps += [(low, middle), (middle, high)]
    return list(places)


def _search(request: PlanRequest, problem: Problem, deadline: Deadline) -> Found:
    from solvers.auto import EXACT_STREAMS

    too_large = max(component.bit_count() for component in problem.model.graph.components) > EXACT_STREAMS
    if request.options.method not in _WHOLE_FRONTIER:
        return search(request, problem, deadline)
    if request.options.method is Method.AUTO and too_large:
        found = search(request, problem, deadline)  # what it proves is about its best plan alone
        return replace(found, proof=Proof.BOUNDED) if found.proof is Proof.OPTIMAL else found
    from solvers.exact import frontier_search  # numba takes a while to import

    return frontier_search(problem, deadline)


def _proof(request: PlanRequest, found: Found) -> Proof:
    """Of the whole frontier."""
    return found.proof if request.options.method in _WHOLE_FRONTIER else Proof.NONE


def _bound(problem: Problem, found: Found) -> float | None:
    """On a whole frontier the best CPU is the first point's and the best memory the last one's."""
    admitted = [point for point in found.points if problem.caps.admit(point)]
    if problem.objective is Objective.MIN_CPU:
        return admitted[0].cpu
    return admitted[-1].memory_bytes if problem.objective is Objective.MIN_MEMORY else None

"""Every trade-off between CPU and memory worth having (contract §3, POST /v1/frontiers).

The frontier of join trees is found and proven by exact search where that ends. Then caches are chosen for its trees one by one, for at most
CACHED_TREES of them, and a plan with caches is listed where no other plan beats it. That list may lack some: the trees of a long frontier that were
passed over, and trees that are on no frontier by themselves and would be with caches. So where caches can exist the frontier is `bounded`, a
warning says so, and `tree_proof` says what is proven without caches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.plan import Frontier, FrontierPoint, Proof, Termination
from models.request import Objective, PlanRequest
from solvers.caches.cached_plan import CachedPlan
from solvers.caches.claims import can_exist, least_cpu
from solvers.caches.in_plans import cached_frontier
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.tolerances import ROUNDED
from solvers.jtree.lower_bound import memory_lower_bound
from solvers.jtree.search import Found, Problem, before_writing, spread
from solvers.model.point import Point
from solvers.model.staircase import undominated
from solvers.plan.builder import build_plan
from solvers.plan.outcome import Outcome, proven, value_of
from solvers.planner import begin, problem_of, search

__all__ = ["frontier"]

SEARCHING = 0.7  # of the time limit: the rest is for caches and for writing the plans
CACHING = 0.5  # of what is left after that
CACHED_TREES = 12  # trees of a long frontier that are tried with caches, spread all along it: a few milliseconds each


@dataclass(frozen=True, slots=True)
class _Step:
    """One trade-off: a plan with caches, or a tree without."""

    point: Point
    cached: CachedPlan | None


def frontier(request: PlanRequest, progress: Progress = NOBODY) -> Frontier:
    """The plans within the caps that no other plan found beats in both resources, by rising CPU.

    Only the plan that is best by the objective carries a proof. Plans are written from all along the frontier in turn, so that those that
    are written when the time limit comes are spread over it; the frontier is then not called complete.
    """
    deadline = Deadline.after(request.options.time_limit, progress)
    problem = problem_of(request)
    begin(problem, progress)
    found = _search(problem, deadline.share(SEARCHING))
    caching = before_writing(problem, found.best, deadline).share(CACHING)
    steps = _with_caches(problem, found, caching)
    termination = caching.termination(found.termination)
    written: dict[int, FrontierPoint] = {}
    warnings = []
    if steps:
        points = [step.point for step in steps]
        first = _best(problem, steps)
        progress.found(points)
        progress.doing(f"writing {len(points)} plans")
        for place in spread(len(points), first):
            writing = before_writing(problem, steps[place].point, deadline)
            if written and writing.expired():
                termination = deadline.termination()
                break
            progress.stopped()  # raises AbandonedError where nobody wants the rest any more
            step = steps[place]
            made = build_plan(problem, _outcome(problem, found, step, writing if place == first else None))
            if place == first:
                progress.ended(made)
                termination = made.termination if termination is Termination.COMPLETE else termination
            written[place] = FrontierPoint(cpu=step.point.cpu, memory_bytes=step.point.memory_bytes, plan=made)
    tree_proof = found.proof if problem.options.method.can.whole_frontier else Proof.NONE
    proof = tree_proof
    if tree_proof is Proof.OPTIMAL and not _caches_cannot_beat(problem, steps):
        proof = Proof.BOUNDED
        warnings.append(
            "Caches were chosen for the trees of the frontier one by one: a plan with caches that is not listed may beat a point. "
            "Without caches the frontier is proven."
        )
    if len(written) < len(steps):
        proof, tree_proof = (Proof.BOUNDED if claim is Proof.OPTIMAL else claim for claim in (proof, tree_proof))
        warnings.append(f"{len(written)} of {len(steps)} trade-offs are listed: the time limit came before the others were written.")
    listed = [written[place] for place in sorted(written)]
    return Frontier(points=listed, proof=proof, termination=termination, tree_proof=tree_proof, warnings=warnings)


def _with_caches(problem: Problem, found: Found, deadline: Deadline) -> list[_Step]:
    """The trade-offs among trees without caches and trees with them."""
    plain = [_Step(point, None) for point in found.points if problem.caps.admit(point)]
    trees = [found.points[place] for place in spread(len(found.points))[:CACHED_TREES]]
    steps = plain + [_Step(plan.point, plan) for plan in cached_frontier(problem, found, trees, deadline)]
    # Of equals the one without caches, which stands first, stays.
    return undominated(steps, lambda step: (step.point.cpu, step.point.memory_bytes))


def _outcome(problem: Problem, found: Found, step: _Step, deadline: Deadline | None) -> Outcome:
    """What to write of one trade-off. The search proved something of the best plan by the objective: that one has a deadline, for its claims."""
    alone = replace(found, best=step.point, proof=Proof.NONE, bound=None, lacking=None, notes=())
    if deadline is None:
        return Outcome(alone, alone, step.cached, None, found.termination)
    tree = replace(found, lacking=None, notes=())
    bound = _bound(problem, found) if found.proof is Proof.OPTIMAL else found.bound
    tree = replace(tree, bound=bound, proof=Proof.NONE if bound is None else found.proof)
    return proven(problem, Outcome(tree, replace(tree, best=step.point), step.cached, None, found.termination), deadline)


def _caches_cannot_beat(problem: Problem, steps: Sequence[_Step]) -> bool:
    """Whether no plan with caches can beat a point of the frontier, nor fit where there is none."""
    model, caps = problem.model, problem.caps
    if not can_exist(model, problem.options.caches):
        return True
    if not steps:
        return math.isinf(caps.cpu) or memory_lower_bound(model) > caps.memory_bytes or least_cpu(model) > caps.cpu
    return all(step.point.cpu <= least_cpu(model) * ROUNDED for step in steps)


def _best(problem: Problem, steps: Sequence[_Step]) -> int:
    """The place of the best by the objective."""
    sign = -1.0 if problem.objective is Objective.MAX_HEADROOM else 1.0
    return min(range(len(steps)), key=lambda place: (sign * value_of(problem, steps[place].point, steps[place].cached), place))


def _search(problem: Problem, deadline: Deadline) -> Found:
    can = problem.options.method.can
    if not can.whole_frontier:
        return search(problem, deadline)
    if can.largest is not None and max(part.bit_count() for part in problem.model.graph.components) > can.largest:
        found = search(problem, deadline)  # what it proves is about its best plan alone
        return replace(found, proof=Proof.BOUNDED) if found.proof is Proof.OPTIMAL else found
    from solvers.jtree.exact import frontier_search  # numba takes a while to import

    return frontier_search(problem, deadline)


def _bound(problem: Problem, found: Found) -> float | None:
    """On a whole frontier the best CPU is the first point's and the best memory the last one's; none where only plans with caches fit."""
    admitted = [point for point in found.points if problem.caps.admit(point)]
    if not admitted:
        return None
    if problem.objective is Objective.MIN_CPU:
        return admitted[0].cpu
    return admitted[-1].memory_bytes if problem.objective is Objective.MIN_MEMORY else None

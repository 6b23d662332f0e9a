"""What may be claimed of plans that a heuristic or a search of a smaller space found.

A plan's `proof` is about all join trees (contract §3), even if its method looked at some of them only. So the best of all mjoins, or of all
binary trees, is not `optimal`; what was proven of them is said in a sentence. Two proofs cost nothing and hold for every method: every plan
keeps the windows, so a plan that keeps nothing else has the least memory, and no plan fits a memory cap below that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.choice import choose
from solvers.jtree.lower_bound import memory_lower_bound, relaxed_bound
from solvers.jtree.search import ALL_TREES, Found, Problem, staircase
from solvers.model.point import Point

__all__ = ["heuristic"]


def heuristic(
    problem: Problem, points: Iterable[Point], space: str, deadline: Deadline, notes: Sequence[str] = (), *, complete: bool = False
) -> Found:
    """The best of these plans, with a proof only where one of the two above applies. Found until the deadline, unless the search is `complete`."""
    model, caps = problem.model, problem.caps
    termination = Termination.COMPLETE if complete else deadline.termination()
    found = staircase(points)
    best = choose(problem, found)
    least = memory_lower_bound(model)
    if caps.memory_bytes < least:
        bound = relaxed_bound(problem, deadline)
        notes = (*notes, "The windows alone need more than the memory cap.")
        return Found(best, found, Proof.OPTIMAL, bound, ALL_TREES, notes, termination=termination)
    if problem.objective is Objective.MIN_MEMORY and caps.admit(best) and best.memory_bytes <= least * ROUNDED:
        return Found(best, found, Proof.OPTIMAL, min(least, best.memory_bytes), ALL_TREES, tuple(notes), termination=termination)
    return Found(best, found, Proof.NONE, None, space, tuple(notes), termination=termination)

"""The exact join tree: the whole frontier of CPU and memory, or the best plan within the caps, with a proof.

Problem: of all join trees (paper 3's jtrees: joins of any number of inputs, every probe order) the best by the objective within the
caps, or every trade-off worth having, or the proof that nothing fits and what it would take.
Method: dynamic programming over connected sets with a staircase of (CPU, memory) per set (`compiled.staircases`), from seeds by
state-removal and state-selection (`compiled.seeds`); of large graphs first over a beam of few sets of each size, whose plans are seeds of the
search over all (`component`). Components on their own, summed up at the root (`parts`). Where CPU alone counts, large graphs are searched by rising
cost first (`cheapest_first`).
Guarantee: exact: the answer is decided on priced figures. At the deadline: the best plan so far, with the bound of `lower_bound`.
Complexity: exponential in the number of streams; what is cut away by dominance and bounds decides.

Departs from paper 3's JTree-Finder (Alg. 1), which keeps every sub-plan within the caps: dominance keeps the frontier of each set
alone, which loses no qualified plan because a subresult has the same size and rate whatever its shape.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from models.plan import Proof, Termination
from models.request import Method, Objective
from solvers.common.deadline import Deadline
from solvers.jtree.choice import choose, objective_value
from solvers.jtree.compiled.questions import FRONTIER, LEAST_BYTES, LEAST_CPU
from solvers.jtree.compiled.sets import MAX_BITS, list_connected
from solvers.jtree.lacking import best_so_far, most_headroom, nothing_fits
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.parts import PATIENT, solver_for
from solvers.jtree.registry import run
from solvers.jtree.search import ALL_TREES, Found, Problem, staircase
from solvers.jtree.star import star

__all__ = ["exact", "frontier_search", "one_number"]

TABLED = 20  # streams up to which tables of all connected sets are made first: they are quick, and say more
FEW_SETS = 20_000  # connected sets whose search takes less than a tenth of a second
HALF = 0.5  # of the time, for the search by rising cost where there is time for both
FIRST_SHARE = 0.1  # of the time, for a good plan to have where the search does not end


def frontier_search(problem: Problem, deadline: Deadline) -> Found:
    """Every trade-off within the caps that is worth having; none, with `lacking`, where nothing fits."""
    until, deadline = deadline, deadline.before_writing(*problem.model.graph.widest())
    solver = solver_for(problem.model, deadline)
    if not solver.fits:
        found = _beyond(problem, until)  # what it proves is about its best plan alone
        return replace(found, proof=Proof.NONE if found.bound is None else Proof.BOUNDED)
    solver.tell_bound(problem, deadline)
    points, complete = solver.points(problem.caps, FRONTIER, deadline)
    within = tuple(point for point in points if problem.caps.admit(point))
    if within:
        best = choose(problem, within)
        if complete and problem.objective is not Objective.MAX_HEADROOM:
            return Found(best, within, Proof.OPTIMAL, objective_value(problem, best), ALL_TREES)
        bound = relaxed_bound(problem, deadline)
        proof = Proof.OPTIMAL if complete else Proof.NONE if bound is None else Proof.BOUNDED
        return Found(best, within, proof, bound, ALL_TREES, termination=_ended(complete, deadline))
    if complete:
        return replace(nothing_fits(problem, solver, deadline), points=())
    return replace(best_so_far(problem, points, deadline), points=())


def exact(problem: Problem, deadline: Deadline) -> Found:
    """The best plan of all join trees within the caps, or the proof that there is none and what it would take."""
    # Which plan will have to be written is known when all connected sets have been searched; anytime search keeps time for those it has met.
    until, deadline = deadline, deadline.before_writing(*problem.model.graph.widest())
    if (found := star(problem, deadline)) is not None:
        return found
    first: Found | None = None
    if one_number(problem):
        patient = deadline.granted > PATIENT
        first = run(Method.ANYTIME, problem, until.share(HALF) if patient else until)
        if first.proof is Proof.OPTIMAL or not patient:
            return first
    solver = solver_for(problem.model, deadline)
    if not solver.fits:
        return first or _beyond(problem, until)
    solver.tell_bound(problem, deadline)
    if problem.objective is Objective.MAX_HEADROOM and (math.isfinite(problem.caps.cpu) or math.isfinite(problem.caps.memory_bytes)):
        most = most_headroom(problem, solver, deadline)
        if most.proof is Proof.OPTIMAL and not problem.caps.admit(most.best):
            return nothing_fits(problem, solver, deadline)
        return most
    goal = LEAST_BYTES if problem.objective is Objective.MIN_MEMORY else LEAST_CPU
    if solver.large and first is None:
        first = run(Method.ANYTIME, problem, until.share(FIRST_SHARE))
        if first.proof is Proof.OPTIMAL and problem.caps.admit(first.best):
            return first
    points, complete = solver.points(problem.caps, goal, deadline)
    within = [point for point in points if problem.caps.admit(point)]
    if not complete:
        return _stronger(best_so_far(problem, staircase((*(first.points if first else ()), *points)), deadline), first)
    if not within:
        return nothing_fits(problem, solver, deadline)
    best = choose(problem, within)
    value = objective_value(problem, best)
    return Found(best, points, Proof.OPTIMAL, value if math.isfinite(value) else None, ALL_TREES)


def one_number(problem: Problem) -> bool:
    """Whether `anytime` is to be asked first, because its search by rising cost (`cheapest_first`) likely proves more than tables of all connected
    sets.

    That search minimises CPU alone. And where connected sets are few, tables are as quick and say more.
    """
    graph = problem.model.graph
    if problem.objective is not Objective.MIN_CPU or problem.caps.memory_bytes < math.inf or len(graph) <= TABLED or graph.tables:
        return False
    near = np.array(graph.neighbours if len(graph) <= MAX_BITS else (), np.int64)
    return not list_connected(near, FEW_SETS)[0].size


def _stronger(found: Found, first: Found | None) -> Found:
    """A search that did not end, with the better of its bound and an earlier one. Both are of the objective that is minimised."""
    if first is None or first.bound is None or found.bound is None or found.proof is not Proof.BOUNDED:
        return found
    return replace(found, bound=max(found.bound, first.bound))


def _beyond(problem: Problem, deadline: Deadline) -> Found:
    """For a graph with too many connected sets for a table: the plan and the bound of `anytime`."""
    found = run(Method.ANYTIME, problem, deadline)
    return replace(found, notes=("There are too many connected sets for exact search: improved a good plan region by region.", *found.notes))


def _ended(complete: bool, deadline: Deadline) -> Termination:
    """Why the search ended. One that ran out of room before its deadline is `complete` as well: more time would not help it."""
    return Termination.COMPLETE if complete else deadline.termination()

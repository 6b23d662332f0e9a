"""The strongest search that fits the time limit.

Problem: a plan within the time limit with the strongest proof that can be had. Method: exact search where the tables of
connected sets fit; if it does not end within its share of the time, or the tables do not fit, anytime search in the time that
is left, which gives a bound instead of a proof. The better plan of the two is the answer.
Guarantee: that of the search that ended, said in `notes`. Deterministic as long as the exact search ends in its share.
"""

from __future__ import annotations

from dataclasses import replace

from models.plan import Proof, Termination
from models.request import Method, Objective
from solvers.common.deadline import Deadline
from solvers.jtree.choice import choose
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.registry import run
from solvers.jtree.search import Found, Problem, staircase
from solvers.jtree.tables.shapes import first_points

__all__ = ["auto"]

EXACT_SHARE = 0.7  # of the time limit; anytime search finds most of what it finds in the rest


def auto(problem: Problem, deadline: Deadline) -> Found:
    """The best plan within the time limit, exact where time allows."""
    graph = problem.model.graph
    widest = max(component.bit_count() for component in graph.components)
    if Method.AUTO.can.largest is not None and widest > Method.AUTO.can.largest:
        found = run(Method.ANYTIME, problem, deadline)
        if found.proof is Proof.OPTIMAL:
            return found
        return replace(found, notes=(f"{len(graph)} streams are too many for exact search: improved a good plan region by region.", *found.notes))
    if deadline.progress.listens:
        # A first plan to report at once: it takes a millisecond, and anytime search starts from it, so the answer is no worse.
        deadline.progress.planned([first_points(problem.model)[0].tree if graph.tables else greedy_plan(problem.model)])
    from solvers.jtree.exact import exact, one_number  # numba takes a while to import

    if one_number(problem):
        return exact(problem, deadline)  # which has anytime search in it
    first = exact(problem, deadline.share(EXACT_SHARE))
    if first.proof is Proof.OPTIMAL or first.termination is Termination.COMPLETE:
        return first
    deadline.progress.found((first.best,))
    return _better(problem, first, run(Method.ANYTIME, problem, deadline))


def _better(problem: Problem, first: Found, second: Found) -> Found:
    """The better plan of two searches, with the stronger of their bounds."""
    points = staircase((*first.points, *second.points, first.best, second.best))
    best = choose(problem, points)
    bounds = [found.bound for found in (first, second) if found.bound is not None]
    # Both bounds hold for all join trees, so the tighter one does: from below, or from above for headroom.
    bound = None if not bounds else min(bounds) if problem.objective is Objective.MAX_HEADROOM else max(bounds)
    proof = second.proof if second.proof is Proof.OPTIMAL else Proof.BOUNDED if bound is not None else Proof.NONE
    notes = ("Exact search did not end: improved a good plan region by region.", *first.notes, *second.notes)
    ended = first.termination if first.termination is not Termination.COMPLETE else second.termination
    return Found(best, points, proof, bound, first.space, notes, first.lacking or second.lacking, ended)

"""The strongest search that fits the time limit."""

from __future__ import annotations

from models.plan import Proof
from models.request import Objective
from solvers.bjtree import bjtree
from solvers.choice import choose, objective_value
from solvers.deadline import Deadline
from solvers.mjoin import mjoin
from solvers.search import Found, Problem, staircase

__all__ = ["auto"]


def auto(problem: Problem, deadline: Deadline) -> Found:
    """The better of the plain mjoin and the best binary tree."""
    wide, binary = mjoin(problem, deadline), bjtree(problem, deadline)
    points = staircase((*wide.points, *binary.points))
    best = choose(problem, points)
    proven = Proof.OPTIMAL if wide.proof is binary.proof is Proof.OPTIMAL else Proof.NONE
    bound = objective_value(problem, best) if proven is Proof.OPTIMAL and problem.objective is not Objective.MAX_HEADROOM else None
    return Found(best, points, proven if bound is not None else Proof.NONE, bound, "binary join trees and mjoins")

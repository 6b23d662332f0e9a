"""Which of several plans is best by the objective, and the least bad one where none fits."""

from __future__ import annotations

import math
from collections.abc import Sequence

from models.request import Objective
from solvers.jtree.search import Problem, structure_key
from solvers.model.point import Point
from solvers.model.sensitivity import headroom

__all__ = ["choose", "objective_value", "overload"]


def overload(problem: Problem, point: Point) -> float:
    """How many times over its caps the plan is, in the worse of the two resources."""
    caps = problem.caps
    return max(point.cpu / caps.cpu, point.memory_bytes / caps.memory_bytes)


def objective_value(problem: Problem, point: Point) -> float:
    """The objective's value: CPU, bytes, or headroom (infinity where nothing limits the plan)."""
    if problem.objective is Objective.MIN_CPU:
        return point.cpu
    if problem.objective is Objective.MIN_MEMORY:
        return point.memory_bytes
    factor = headroom(problem.model.price(point.tree), problem.model, problem.caps)
    return math.inf if factor is None else factor


def choose(problem: Problem, points: Sequence[Point]) -> Point:
    """The best point within the caps; where none is, the one that is least over them. Ties by structure.

    Raises RangeError where there is none at all: a search has some plan always, unless the figures of all leave the range of a double.
    """
    if not points:
        raise problem.model.out_of_range()
    within = [point for point in points if problem.caps.admit(point)]
    if not within:
        return min(points, key=lambda point: (overload(problem, point), point.cpu, structure_key(point.tree)))
    sign = -1.0 if problem.objective is Objective.MAX_HEADROOM else 1.0
    return min(within, key=lambda point: (sign * objective_value(problem, point), point.cpu, point.memory_bytes, structure_key(point.tree)))

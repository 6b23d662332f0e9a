"""The discrete knapsack as an integer program (paper 2, Problem 1), by OR-Tools CP-SAT.

Problem: whole units of paths, each up to its limit, within the capacity, for the most results.
Method: one integer per path, started from the greedy answer.
Guarantee: exact where the figures fit 64 bits as whole multiples of one decimal and no path has MOST_UNITS, else bounded by the
fractional optimum; out of time the best so far with CP-SAT's bound; where CP-SAT fails, the greedy answer and the fractional optimum.
Complexity: NP-hard in the size of the figures; pseudo-polynomial in practice.
Departs from paper 2: figures need not be whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.allocation.grepp import grepp, grepp_in_whole_units
from solvers.allocation.productivity import Path
from solvers.common.cp_solver import repeatable_solver
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.scaling import MOST_UNITS, decimal, whole_numbers

__all__ = ["Knapsack", "knapsack_exact"]


@dataclass(frozen=True, slots=True)
class Knapsack:
    """Units per path, and a bound: no units yield more."""

    units: list[float]
    bound: float


def knapsack_exact(capacity: float, paths: Sequence[Path], seconds: float, progress: Progress = NOBODY) -> Knapsack:
    """Whole units per path with the most output, searched for so many seconds; loading the solver does not count."""
    from ortools.sat.python import cp_model  # takes a second to import

    greedy = grepp_in_whole_units(capacity, paths)
    most = [_most_units(capacity, path) for path in paths]
    open_ = [i for i, count in enumerate(most) if count > 0]
    counts = [most[i] for i in open_]
    weights, exact_weights = whole_numbers([capacity, *(paths[i].resources for i in open_)], [1, *counts], up=True)
    if not exact_weights:
        weights[0] -= 1  # rounded up like the resources, so that what fits here fits the real capacity
    values, exact_values = whole_numbers([paths[i].output for i in open_], counts)
    model = cp_model.CpModel()
    units = [model.new_int_var(0, count, "") for count in counts]
    model.add(cp_model.LinearExpr.weighted_sum(units, weights[1:]) <= weights[0])
    model.maximize(cp_model.LinearExpr.weighted_sum(units, values))
    for variable, i in zip(units, open_, strict=True):
        model.add_hint(variable, min(most[i], int(greedy[i])))
    solver = repeatable_solver(seconds)
    with Deadline.after(seconds, progress).watched(solver.stop_search):
        status = solver.solve(model)
    fractional = math.fsum(path.output * amount for path, amount in zip(paths, grepp(capacity, paths), strict=True) if amount)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Knapsack(greedy, fractional)
    found = [0.0] * len(paths)
    for variable, i in zip(units, open_, strict=True):
        found[i] = float(solver.value(variable))
    value, known = (sum(decimal(path.output) * int(n) for path, n in zip(paths, taken, strict=True)) for taken in (found, greedy))
    best = found if value >= known else greedy
    if not (exact_weights and exact_values and all(count < MOST_UNITS for count in counts)):
        return Knapsack(best, fractional)
    if status == cp_model.OPTIMAL:
        return Knapsack(best, float(value))
    unit = next((decimal(paths[i].output) / scaled for i, scaled in zip(open_, values, strict=True)), 0)
    return Knapsack(best, min(fractional, solver.best_objective_bound * float(unit)))


def _most_units(capacity: float, path: Path) -> int:
    if path.output <= 0.0:
        return 0
    limits = [MOST_UNITS]
    if math.isfinite(path.limit):
        limits.append(math.floor(path.limit))
    if path.resources > 0.0:
        limits.append(math.floor(decimal(capacity) / decimal(path.resources)))
    return min(limits)

"""Small linear programs by OR-Tools' GLOP.

maximise or minimise Σ value_i·x_i with rows low ≤ Σ a_ij·x_i ≤ high and 0 ≤ x_i ≤ limit_i. Exact up to the simplex's
tolerance of about 1e-9; the same answer every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Row", "linear_program"]


@dataclass(frozen=True, slots=True)
class Row:
    """low ≤ Σ factors[i]·x_i ≤ high."""

    factors: Mapping[int, float]
    low: float = -math.inf
    high: float = math.inf


def linear_program(values: Sequence[float], limits: Sequence[float], rows: Sequence[Row], maximise: bool) -> list[float] | None:
    """The best x, or None where the rows contradict each other."""
    from ortools.linear_solver import pywraplp  # takes a while to import

    solver = pywraplp.Solver.CreateSolver("GLOP")
    variables = [solver.NumVar(0.0, limit if math.isfinite(limit) else solver.infinity(), "") for limit in limits]
    for row in rows:
        constraint = solver.Constraint(
            row.low if math.isfinite(row.low) else -solver.infinity(), row.high if math.isfinite(row.high) else solver.infinity()
        )
        for i, factor in row.factors.items():
            constraint.SetCoefficient(variables[i], factor)
    for variable, value in zip(variables, values, strict=True):
        solver.Objective().SetCoefficient(variable, value)
    if maximise:
        solver.Objective().SetMaximization()
    if solver.Solve() != pywraplp.Solver.OPTIMAL:
        return None
    return [min(max(variable.solution_value(), 0.0), limit) for variable, limit in zip(variables, limits, strict=True)]

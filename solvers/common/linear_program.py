"""Small linear programs by OR-Tools' GLOP.

maximise or minimise Σ value_i·x_i with rows low ≤ Σ a_ij·x_i ≤ high and 0 ≤ x_i ≤ limit_i. The units are exact up to the simplex's
tolerances, and the same every time.

Guarantee: the bound. The simplex may break rows by its tolerances; no other units that break them by no more have a better value than the bound.
It does not depend on the simplex, which only proposes a multiplier λ_j for each row: the bound is computed from these anew, by weak duality (for
maximise; minimise is its mirror image):

    Σ value_i·x_i  ≤  Σ_j max over the row of λ_j·row_j  +  Σ_i max(0, value_i − Σ_j λ_j·a_ij)·limit_i
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from solvers.common.tolerances import NUDGE, SIMPLEX_SLACK, SUM_ROUNDING

__all__ = ["LinearAnswer", "Outcome", "Row", "linear_program"]

TOLERANCES = "primal_feasibility_tolerance: 1e-12, dual_feasibility_tolerance: 1e-12"  # rows are scaled to about 1


class Outcome(StrEnum):
    """How a solver ended. Only `optimal` says anything of the program; the others are no proof of anything else."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    TIME_LIMIT = "time_limit"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Row:
    """low ≤ Σ factors[i]·x_i ≤ high."""

    factors: Mapping[int, float]
    low: float = -math.inf
    high: float = math.inf


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """The best x and a proven bound of its value; without x, and with an infinite bound, where the outcome is not `optimal`."""

    outcome: Outcome
    units: tuple[float, ...]
    bound: float


def linear_program(values: Sequence[float], limits: Sequence[float], rows: Sequence[Row], maximise: bool) -> LinearAnswer:
    """The best x. Without finite limits there may be no finite bound."""
    from ortools.linear_solver import pywraplp  # takes a while to import

    solver = pywraplp.Solver.CreateSolver("GLOP")
    if solver is None or not solver.SetSolverSpecificParametersAsString(TOLERANCES):
        return _unsolved(Outcome.FAILED, maximise)
    variables = [solver.NumVar(0.0, limit if math.isfinite(limit) else solver.infinity(), "") for limit in limits]
    constraints = []
    for row in rows:
        constraint = solver.Constraint(
            row.low if math.isfinite(row.low) else -solver.infinity(), row.high if math.isfinite(row.high) else solver.infinity()
        )
        for i, factor in row.factors.items():
            constraint.SetCoefficient(variables[i], factor)
        constraints.append(constraint)
    for variable, value in zip(variables, values, strict=True):
        solver.Objective().SetCoefficient(variable, value)
    if maximise:
        solver.Objective().SetMaximization()
    ended = {
        pywraplp.Solver.OPTIMAL: Outcome.OPTIMAL,
        pywraplp.Solver.INFEASIBLE: Outcome.INFEASIBLE,
        pywraplp.Solver.UNBOUNDED: Outcome.UNBOUNDED,
        pywraplp.Solver.FEASIBLE: Outcome.TIME_LIMIT,
    }
    outcome = ended.get(solver.Solve(), Outcome.FAILED)
    if outcome is not Outcome.OPTIMAL:
        return _unsolved(outcome, maximise)
    units = [min(max(variable.solution_value(), 0.0), limit) for variable, limit in zip(variables, limits, strict=True)]
    duals = [constraint.dual_value() for constraint in constraints]
    slack = max((_broken(row, units) for row in rows), default=0.0)
    if not (slack <= SIMPLEX_SLACK and all(math.isfinite(figure) for figure in (*units, *duals))):
        return _unsolved(Outcome.FAILED, maximise)
    sign = 1.0 if maximise else -1.0
    most = min(_most([sign * value for value in values], limits, rows, [sign * dual for dual in duals], slack, nudge) for nudge in (0.0, NUDGE))
    return LinearAnswer(outcome, tuple(units), sign * most)


def _unsolved(outcome: Outcome, maximise: bool) -> LinearAnswer:
    return LinearAnswer(outcome, (), math.inf if maximise else -math.inf)


def _broken(row: Row, units: Sequence[float]) -> float:
    """How far the units break a row, as a share of the end that they break."""
    value = math.fsum(factor * units[i] for i, factor in row.factors.items())
    over = [(value - row.high, row.high), (row.low - value, row.low)]
    return max((by / abs(end) if end else math.inf for by, end in over if by > 0.0), default=0.0)


def _most(values: Sequence[float], limits: Sequence[float], rows: Sequence[Row], multipliers: Sequence[float], slack: float, nudge: float) -> float:
    """What Σ value_i·x_i cannot exceed where rows are broken by no more than `slack`, whatever the multipliers are; rounded up."""
    terms, used = [], [[value] for value in values]
    for row, multiplier in zip(rows, multipliers, strict=True):
        end = row.high if multiplier > 0.0 else row.low
        if multiplier and math.isfinite(end):
            nudged = multiplier * (1.0 + nudge if multiplier > 0.0 else 1.0 - nudge)
            terms += [nudged * end, slack * abs(nudged * end)]
            for i, factor in row.factors.items():
                used[i].append(-nudged * factor)
    for parts, limit in zip(used, limits, strict=True):
        left = math.fsum(parts)
        if left > 0.0 and limit > 0.0:
            terms.append(left * limit)
    return math.fsum(terms) + SUM_ROUNDING * math.fsum(map(abs, terms))

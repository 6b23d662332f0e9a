"""The weighted multiple set cover, exactly (paper 2, Problem 2).

Problem: units of paths, each up to its limit, so that every state gets what it requires, at the least cost.
Method: a linear program where units are any numbers; CP-SAT where they are whole, started from the greedy cover.
Guarantee: exact (whole units: where the figures fit 64 bits as multiples of one decimal); the bound holds in every case, also
out of time and where a solver fails. Complexity: polynomial for any numbers, NP-hard for whole ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from solvers.common.cp_solver import repeatable_solver
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.errors import MethodError
from solvers.common.linear_program import Outcome, Row, linear_program
from solvers.common.scaling import MOST_UNITS, decimal, whole_numbers
from solvers.cover.greedy import CoverPath, greedy_cover

__all__ = ["Cover", "continuous_cover", "cost_of", "discrete_cover"]


@dataclass(frozen=True, slots=True)
class Cover:
    """Units per path, and what no cover costs less than."""

    units: list[float]
    cost: float
    bound: float
    searched: bool = False
    """Whether a search found it, which the time limit may have ended."""


def cost_of(paths: Sequence[CoverPath], units: Sequence[float]) -> float:
    return math.fsum(path.cost * amount for path, amount in zip(paths, units, strict=True))


def continuous_cover(required: Mapping[str, float], paths: Sequence[CoverPath]) -> Cover:
    """Units per path, any numbers. Every required state must be coverable.

    Where the linear program fails, the greedy cover, bounded by what the dearest state takes alone.
    """
    # Rounding may make a state that all paths together just cover a little short: then it asks for what there is.
    most = {state: math.fsum(path.covers[state] * path.limit for path in paths if state in path.covers) for state in required}
    needed = {state: min(amount, most[state]) for state, amount in required.items() if amount > 0.0}
    if not needed:
        return Cover([0.0] * len(paths), 0.0, 0.0)
    # Rows scaled to 1 and costs to their largest, so that the simplex's absolute tolerances mean the same for every unit of measure.
    rows = [
        Row({i: path.covers[state] / amount for i, path in enumerate(paths) if state in path.covers}, low=1.0) for state, amount in needed.items()
    ]
    largest = max((path.cost for path in paths), default=0.0) or 1.0
    limits = [min(path.limit, _enough(needed, path)) for path in paths]
    solved = linear_program([path.cost / largest for path in paths], limits, rows, maximise=False)
    if solved.outcome is not Outcome.OPTIMAL:
        units = greedy_cover(required, paths)
        # For one state alone the greedy cover is the cheapest.
        return Cover(units, cost_of(paths, units), max(cost_of(paths, greedy_cover({state: amount}, paths)) for state, amount in needed.items()))
    units = list(solved.units)
    # The simplex may fall short by its tolerance: scale up what is not at its limit.
    for _ in range(3):
        short = max((1.0 - math.fsum(factor * units[i] for i, factor in row.factors.items()) for row in rows), default=0.0)
        if short <= 0.0:
            break
        units = [min(path.limit, amount * (1.0 + 2.0 * short)) for path, amount in zip(paths, units, strict=True)]
    return Cover(units, cost_of(paths, units), max(0.0, solved.bound * largest))


def _enough(required: Mapping[str, float], path: CoverPath) -> float:
    """More units of a path than cover each of its states alone are never needed."""
    return max((required[state] / amount for state, amount in path.covers.items() if state in required), default=0.0)


def discrete_cover(required: Mapping[str, float], paths: Sequence[CoverPath], seconds: float, progress: Progress = NOBODY) -> Cover:
    """Whole units per path, searched for so many seconds; loading the solver does not count. Every required state must be coverable."""
    from ortools.sat.python import cp_model  # takes a second to import

    greedy = greedy_cover(required, paths, whole=True)
    needed = {state: amount for state, amount in required.items() if amount > 0.0}
    most = [_most_units(needed, path) for path in paths]
    if max(most, default=0) > MOST_UNITS:
        raise MethodError(
            f"some path would need more than {MOST_UNITS} units, which are no longer worth counting: use the continuous model", "/model"
        )
    open_ = [i for i, count in enumerate(most) if count > 0]
    model = cp_model.CpModel()
    units = {i: model.new_int_var(0, most[i], "") for i in open_}
    exact = True
    for state, amount in needed.items():
        givers = [i for i in open_ if state in paths[i].covers]
        scaled, whole = whole_numbers([amount, *(paths[i].covers[state] for i in givers)], [1, *(most[i] for i in givers)])
        exact &= whole
        model.add(cp_model.LinearExpr.weighted_sum([units[i] for i in givers], scaled[1:]) >= scaled[0] + (not whole))
    costs, whole = whole_numbers([paths[i].cost for i in open_], [most[i] for i in open_], up=True)
    exact &= whole
    model.minimize(cp_model.LinearExpr.weighted_sum(list(units.values()), costs))
    for i, variable in units.items():
        model.add_hint(variable, min(most[i], int(greedy[i])))
    solver = repeatable_solver(seconds)
    with Deadline.after(seconds, progress).watched(solver.stop_search):
        status = solver.solve(model)
    fractional = continuous_cover(required, paths).bound
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Cover(greedy, cost_of(paths, greedy), fractional, searched=True)
    found = [float(solver.value(units[i])) if i in units else 0.0 for i in range(len(paths))]
    cost, known = (sum(decimal(path.cost) * int(n) for path, n in zip(paths, counts, strict=True)) for counts in (found, greedy))
    best = found if cost <= known else greedy
    return Cover(best, cost_of(paths, best), float(cost) if status == cp_model.OPTIMAL and exact else fractional, searched=True)


def _most_units(required: Mapping[str, float], path: CoverPath) -> int:
    """The most whole units of a path that can be needed."""
    needed = max((math.ceil(decimal(required[state]) / decimal(amount)) for state, amount in path.covers.items() if state in required), default=0)
    return min(needed, math.floor(path.limit)) if math.isfinite(path.limit) else needed

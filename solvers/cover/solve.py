"""POST /v1/solvers/cover: refresh every state at the least cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from models.allocation import ExecutionModel
from models.cover import CoverAnswer, CoverMethod, CoverRequest
from models.plan import Proof, Termination
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.gap import claim
from solvers.common.tolerances import ROUNDED, ROUNDED_DOWN
from solvers.cover.exact import continuous_cover, cost_of, discrete_cover
from solvers.cover.greedy import CoverPath, greedy_cover

__all__ = ["coverable", "short_states", "solve_cover"]


def coverable(required: Mapping[str, float], paths: Sequence[CoverPath], whole: bool = False) -> dict[str, float]:
    """The states that all paths together, used to their limits, would cover."""
    limits = [math.floor(path.limit) if whole and math.isfinite(path.limit) else path.limit for path in paths]
    return {state: amount for state, amount in required.items() if _brought(state, paths, limits) >= amount * ROUNDED_DOWN}


def _brought(state: str, paths: Sequence[CoverPath], units: Sequence[float]) -> float:
    return math.fsum(path.covers[state] * amount for path, amount in zip(paths, units, strict=True) if state in path.covers and amount)


def short_states(required: Mapping[str, float], paths: Sequence[CoverPath], units: Sequence[float]) -> list[str]:
    """The states that these units leave short."""
    return [state for state, amount in required.items() if _brought(state, paths, units) < amount * ROUNDED_DOWN]


def solve_cover(request: CoverRequest, progress: Progress = NOBODY) -> CoverAnswer:
    """The least cover that the method finds, and what is proven of it."""
    deadline = Deadline.after(request.time_limit, progress)
    whole = request.model is ExecutionModel.DISCRETE
    required = {state.name: state.required for state in request.states}
    paths = [CoverPath(path.name, path.cost, path.covers, math.inf if path.max_units is None else path.max_units) for path in request.paths]
    possible = coverable(required, paths, whole)
    searched = whole and request.method is CoverMethod.EXACT
    found = discrete_cover(possible, paths, request.time_limit, progress) if searched else continuous_cover(possible, paths)
    units, least = found.units, found.cost
    if request.method is CoverMethod.GREEDY:
        units = greedy_cover(possible, paths, whole)
        least = cost_of(paths, units)
    claimed = claim(least, found.bound)
    if request.capacity is not None and least > request.capacity * ROUNDED:
        fit = request.capacity / least
        units = [math.floor(amount * fit) if whole else amount * fit for amount in units]
    short = short_states(required, paths, units)
    return CoverAnswer(
        feasible=not short,
        cost=cost_of(paths, units),
        units={path.name: amount for path, amount in zip(paths, units, strict=True)},
        uncovered=short,
        least_capacity=least if len(possible) == len(required) else None,
        proof=claimed.proof,
        termination=deadline.termination() if searched and claimed.proof is not Proof.OPTIMAL else Termination.COMPLETE,
        bound=claimed.bound,
        gap=claimed.gap,
    )

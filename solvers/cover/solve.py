"""POST /v1/solvers/cover: refresh every state at the least cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from models.allocation import ExecutionModel
from models.cover import CoverAnswer, CoverMethod, CoverRequest
from models.plan import Proof, Termination
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.gap import claim
from solvers.common.tolerances import ROUNDED, ROUNDED_DOWN
from solvers.cover.exact import Cover, continuous_cover, cost_of, discrete_cover
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


@dataclass(frozen=True, slots=True)
class _Posed:
    """What a method is given."""

    required: Mapping[str, float]
    """States that can be covered."""
    paths: Sequence[CoverPath]
    whole: bool
    """Whether units are whole numbers."""
    seconds: float
    progress: Progress


def _exact(posed: _Posed) -> Cover:
    if posed.whole:
        return discrete_cover(posed.required, posed.paths, posed.seconds, posed.progress)
    return continuous_cover(posed.required, posed.paths)


def _greedy(posed: _Posed) -> Cover:
    units = greedy_cover(posed.required, posed.paths, posed.whole)
    return Cover(units, cost_of(posed.paths, units), continuous_cover(posed.required, posed.paths).bound)


METHODS: dict[CoverMethod, Callable[[_Posed], Cover]] = {CoverMethod.EXACT: _exact, CoverMethod.GREEDY: _greedy}


def solve_cover(request: CoverRequest, progress: Progress = NOBODY) -> CoverAnswer:
    """The least cover that the method finds, and what is proven of it."""
    deadline = Deadline.after(request.time_limit, progress)
    whole = request.model is ExecutionModel.DISCRETE
    required = {state.name: state.required for state in request.states}
    paths = [CoverPath(path.name, path.cost, path.covers, math.inf if path.max_units is None else path.max_units) for path in request.paths]
    possible = coverable(required, paths, whole)
    found = METHODS[request.method](_Posed(possible, paths, whole, request.time_limit, progress))
    units, least = found.units, found.cost
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
        termination=deadline.termination() if found.searched and claimed.proof is not Proof.OPTIMAL else Termination.COMPLETE,
        bound=claimed.bound,
        gap=claimed.gap,
    )

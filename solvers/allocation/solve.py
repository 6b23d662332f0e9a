"""POST /v1/solvers/allocation: who may probe how much."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from models.allocation import AllocatedPath, AllocationAnswer, AllocationMethod, AllocationPath, AllocationRequest, ExecutionModel
from models.plan import Proof
from solvers.allocation.grepp import grepp, grepp_in_whole_units
from solvers.allocation.heuristics import HEURISTICS, Flow, Heuristic
from solvers.allocation.jaqpot import jaqpot
from solvers.allocation.joint import joint
from solvers.allocation.knapsack_dp import knapsack_dp
from solvers.allocation.knapsack_exact import knapsack_exact
from solvers.allocation.productivity import Path, Step, path_of_steps
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.errors import RangeError
from solvers.common.gap import claim
from solvers.cover.exact import continuous_cover
from solvers.cover.greedy import CoverPath
from solvers.cover.solve import coverable, short_states

__all__ = ["solve_allocation"]


def _path(given: AllocationPath) -> Path:
    if given.steps is None:
        assert given.resources is not None and given.output is not None  # the model saw to it
        return Path(given.name, given.resources, given.output, math.inf if given.max_units is None else given.max_units, covers=given.covers)
    assert given.rate is not None
    steps = [
        Step(step.productivity, step.unit_cost, step.operator or "", 1.0 if step.selectivity is None else step.selectivity) for step in given.steps
    ]
    rate = given.rate if given.max_units is None else min(given.rate, given.max_units)
    return path_of_steps(given.name, rate, steps, given.covers)


@dataclass(frozen=True, slots=True)
class _Shares:
    """What a method shares out."""

    units: list[float]
    bound: float = math.inf
    """No allocation yields more than this; infinity where the method has no bound of its own."""
    searched: bool = False
    """Whether a search found them, which the time limit may have ended."""
    flow: Flow | None = None
    """Where tuples are dropped on the way: what goes through. Otherwise it follows from the units."""


@dataclass(frozen=True, slots=True)
class _Posed:
    """What a method is given."""

    request: AllocationRequest
    paths: list[Path]
    progress: Progress

    @property
    def whole(self) -> bool:
        return self.request.model is ExecutionModel.DISCRETE

    def coverable(self) -> dict[str, float]:
        """What states require, of those that can be covered."""
        return coverable({state.name: state.required for state in self.request.states}, _givers(self.paths))


def _exact(posed: _Posed) -> _Shares:
    request = posed.request
    if posed.whole:
        found = knapsack_exact(request.capacity, posed.paths, request.time_limit, posed.progress)
        return _Shares(found.units, found.bound, searched=True)
    if possible := posed.coverable():
        together = joint(request.capacity, posed.paths, possible)
        return _Shares(together.units, together.bound)
    return _grepp(posed)


def _dp(posed: _Posed) -> _Shares:
    units = knapsack_dp(int(posed.request.capacity), posed.paths)
    return _Shares(units, _throughput(posed.paths, units))


def _grepp(posed: _Posed) -> _Shares:
    share_out = grepp_in_whole_units if posed.whole else grepp
    return _Shares(share_out(posed.request.capacity, posed.paths))


def _jaqpot(posed: _Posed) -> _Shares:
    return _Shares(jaqpot(posed.request.capacity, posed.paths, posed.coverable()))


def _half_way(heuristic: Heuristic) -> Callable[[_Posed], _Shares]:
    def share_out(posed: _Posed) -> _Shares:
        flow = heuristic(posed.request.capacity, posed.paths)
        return _Shares([steps[0] for steps in flow.steps], flow=flow)

    return share_out


METHODS: dict[AllocationMethod, Callable[[_Posed], _Shares]] = {
    AllocationMethod.EXACT: _exact,
    AllocationMethod.DP: _dp,
    AllocationMethod.GREPP: _grepp,
    AllocationMethod.JAQPOT: _jaqpot,
    **{method: _half_way(heuristic) for method, heuristic in HEURISTICS.items()},
}


def solve_allocation(request: AllocationRequest, progress: Progress = NOBODY) -> AllocationAnswer:
    """The allocation that the method finds, and what is proven of it."""
    deadline = Deadline.after(request.time_limit, progress)
    paths = [_path(given) for given in request.paths]
    for i, path in enumerate(paths):
        if not (math.isfinite(path.resources) and math.isfinite(path.output)):
            raise RangeError(f"path {path.name} makes more tuples than a double can count: lower its productivities", f"/paths/{i}")
    shares = METHODS[request.method](_Posed(request, paths, progress))
    answer = _answer(request, paths, shares)
    return answer if answer.proof is Proof.OPTIMAL or not shares.searched else answer.model_copy(update={"termination": deadline.termination()})


def _givers(paths: list[Path]) -> list[CoverPath]:
    return [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths]


def _throughput(paths: list[Path], units: list[float]) -> float:
    return math.fsum(path.output * amount for path, amount in zip(paths, units, strict=True) if amount)


def _answer(request: AllocationRequest, paths: list[Path], shares: _Shares) -> AllocationAnswer:
    """The shares on the wire. Where the method has no bound of its own, the bound is what GrePP yields, which may split units and need not refresh
    any state."""
    units, flow = shares.units, shares.flow
    steps = flow.steps if flow else [[amount * arriving for arriving in path.arriving] for path, amount in zip(paths, units, strict=True)]
    yields = flow.output if flow else [amount * path.output for path, amount in zip(paths, units, strict=True)]
    uses = [
        math.fsum(step.unit_cost * amount for step, amount in zip(path.steps, arriving, strict=True)) if path.steps else amount_ * path.resources
        for path, arriving, amount_ in zip(paths, steps, units, strict=True)
    ]
    throughput = math.fsum(yields)
    bound = _throughput(paths, grepp(request.capacity, paths)) if math.isinf(shares.bound) else shares.bound
    claimed = claim(throughput, bound, maximise=True)
    required = {state.name: state.required for state in request.states}
    givers = _givers(paths)
    short = short_states(required, givers, units)
    least = None
    if len(coverable(required, givers)) == len(required):
        least = continuous_cover(required, givers).cost
    return AllocationAnswer(
        throughput=throughput,
        used=math.fsum(uses),
        paths=[
            AllocatedPath(name=path.name, units=amount, resources=use, output=made, steps=list(arriving))
            for path, amount, use, made, arriving in zip(paths, units, uses, yields, steps, strict=True)
        ],
        feasible=not short,
        uncovered=short,
        least_capacity=least,
        proof=claimed.proof,
        bound=claimed.bound,
        gap=claimed.gap,
    )

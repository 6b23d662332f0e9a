"""POST /v1/solvers/allocation: who may probe how much."""

from __future__ import annotations

import math

from models.allocation import AllocatedPath, AllocationAnswer, AllocationMethod, AllocationPath, AllocationRequest, ExecutionModel
from models.plan import Proof
from solvers.allocation.grepp import grepp, grepp_in_whole_units
from solvers.allocation.heuristics import HEURISTICS
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


def solve_allocation(request: AllocationRequest, progress: Progress = NOBODY) -> AllocationAnswer:
    """The allocation that the method finds, and what is proven of it."""
    paths = [_path(given) for given in request.paths]
    for i, path in enumerate(paths):
        if not (math.isfinite(path.resources) and math.isfinite(path.output)):
            raise RangeError(f"path {path.name} makes more tuples than a double can count: lower its productivities", f"/paths/{i}")
    if request.method in HEURISTICS:
        flow = HEURISTICS[request.method](request.capacity, paths)
        return _answer(request, paths, [steps[0] for steps in flow.steps], steps=flow.steps, output=flow.output)
    whole = request.model is ExecutionModel.DISCRETE
    if request.method is AllocationMethod.DP:
        units = knapsack_dp(int(request.capacity), paths)
        return _answer(request, paths, units, _throughput(paths, units))
    if whole and request.method is AllocationMethod.EXACT:
        deadline = Deadline.after(request.time_limit, progress)
        found = knapsack_exact(request.capacity, paths, request.time_limit, progress)
        answer = _answer(request, paths, found.units, found.bound)
        return answer if answer.proof is Proof.OPTIMAL else answer.model_copy(update={"termination": deadline.termination()})
    if whole:
        return _answer(request, paths, grepp_in_whole_units(request.capacity, paths))
    required = {state.name: state.required for state in request.states}
    possible = coverable(required, [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths])
    if request.method is AllocationMethod.JAQPOT:
        return _answer(request, paths, jaqpot(request.capacity, paths, possible)[0])
    if possible and request.method is AllocationMethod.EXACT:
        together = joint(request.capacity, paths, possible)
        return _answer(request, paths, together.units, together.bound)
    return _answer(request, paths, grepp(request.capacity, paths))


def _throughput(paths: list[Path], units: list[float]) -> float:
    return math.fsum(path.output * amount for path, amount in zip(paths, units, strict=True) if amount)


def _answer(
    request: AllocationRequest,
    paths: list[Path],
    units: list[float],
    bound: float = math.inf,
    steps: list[list[float]] | None = None,
    output: list[float] | None = None,
) -> AllocationAnswer:
    """`steps` and `output` where tuples are dropped on the way; otherwise they follow from the units.

    An answer without a bound of its own gets the bound of the fractional knapsack, which no states, whole units or dropped tuples can exceed.
    """
    steps = steps or [[amount * arriving for arriving in path.arriving] for path, amount in zip(paths, units, strict=True)]
    yields = output or [amount * path.output for path, amount in zip(paths, units, strict=True)]
    uses = [
        math.fsum(step.unit_cost * amount for step, amount in zip(path.steps, arriving, strict=True)) if path.steps else amount_ * path.resources
        for path, arriving, amount_ in zip(paths, steps, units, strict=True)
    ]
    throughput = math.fsum(yields)
    if math.isinf(bound):
        bound = _throughput(paths, grepp(request.capacity, paths))
    claimed = claim(throughput, bound, maximise=True)
    required = {state.name: state.required for state in request.states}
    givers = [CoverPath(path.name, path.resources, path.covers, path.limit) for path in paths]
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

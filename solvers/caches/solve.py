"""POST /v1/solvers/caches: a request to a `Program`, a method, an answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from models.caches import CacheAllocation, CacheMethod, CacheSelection, CacheSelectionRequest
from models.plan import Termination
from solvers.caches.select.exact import exact
from solvers.caches.select.exhaustive import exhaustive
from solvers.caches.select.greedy import greedy
from solvers.caches.select.lp_rounding import lp_rounding
from solvers.caches.select.memory import priority_allocation
from solvers.caches.select.program import Candidate, Program, Selection
from solvers.caches.select.relaxation import Relaxation, relaxation
from solvers.caches.select.tree import tree
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.common.errors import RangeError
from solvers.common.gap import claim
from solvers.common.linear_program import Outcome

__all__ = ["program_of", "solve_caches"]


@dataclass(frozen=True, slots=True)
class _Posed:
    """What a method is given."""

    program: Program
    deadline: Deadline
    seed: int
    relaxed: Relaxation | None
    """The linear relaxation, for methods that approximate."""


@dataclass(frozen=True, slots=True)
class _Method:
    """One method, and what it can do."""

    select: Callable[[_Posed], Selection]
    approximates: bool = False
    """Whether it states its ratio to the bound of the linear relaxation; otherwise it searches, and the time limit may end it."""


def _rounded(posed: _Posed) -> Selection:
    assert posed.relaxed is not None
    return lp_rounding(posed.program, posed.relaxed, posed.seed)


METHODS = {
    CacheMethod.EXACT: _Method(lambda posed: exact(posed.program, posed.deadline)),
    CacheMethod.EXHAUSTIVE: _Method(lambda posed: exhaustive(posed.program, posed.deadline)),
    CacheMethod.GREEDY: _Method(lambda posed: greedy(posed.program), approximates=True),
    CacheMethod.TREE: _Method(lambda posed: tree(posed.program), approximates=True),
    CacheMethod.LP_ROUNDING: _Method(_rounded, approximates=True),
}


def program_of(request: CacheSelectionRequest) -> Program:
    """The program a request poses."""
    costs = [cost for item in request.pipelines for cost in item.operator_costs]
    costs += [item.proc for item in request.candidates] + [item.update_cost for item in request.groups]
    if math.isinf(sum(costs)) or math.isinf(sum(item.memory_bytes for item in request.candidates)):
        raise RangeError("the costs or the bytes add up to more than a double can hold: use a larger unit")
    pipeline = {item.name: i for i, item in enumerate(request.pipelines)}
    group = {item.id: i for i, item in enumerate(request.groups)}
    return Program(
        tuple(tuple(item.operator_costs) for item in request.pipelines),
        tuple(
            Candidate(
                pipeline[item.pipeline],
                item.first,
                item.last,
                group[item.group],
                item.proc,
                item.memory_bytes,
                frozenset(group[name] for name in item.excludes),
            )
            for item in request.candidates
        ),
        tuple(item.update_cost for item in request.groups),
        math.inf if request.memory_bytes is None else request.memory_bytes,
    )


def solve_caches(request: CacheSelectionRequest, progress: Progress = NOBODY) -> CacheSelection:
    """The caches to use, by the request's method."""
    deadline = Deadline.after(request.time_limit, progress)
    program = program_of(request)
    by_priority = request.allocation is CacheAllocation.PRIORITY
    posed = program.without_cap() if by_priority else program
    method = METHODS[request.method]
    relaxed = relaxation(posed, deadline.remaining()) if method.approximates else None
    found = method.select(_Posed(posed, deadline, request.seed, relaxed))
    ids = [candidate.id for candidate in request.candidates]
    if by_priority:
        allotted = priority_allocation(program, found.choice)
        choice, cost = allotted.choice, allotted.cost
        held = {i: size * allotted.shares[i] for i, size in program.memory(choice).items()}
    else:
        choice, cost = found.choice, found.cost
        held = program.memory(choice)
    claimed = claim(cost, relaxed.bound if found.bound is None and relaxed is not None else found.bound)
    lp_bound = relaxed.bound if relaxed is not None and relaxed.outcome is Outcome.OPTIMAL else None
    cut_short = not method.approximates and not found.optimal
    return CacheSelection(
        chosen=[ids[i] for i in choice],
        total_cost=cost,
        cost_without_caches=program.cost_without_caches,
        memory={ids[i]: held[i] for i in choice},
        memory_bytes=math.fsum(held.values()),
        proof=claimed.proof,
        termination=deadline.termination() if cut_short else Termination.COMPLETE,
        bound=claimed.bound,
        gap=claimed.gap,
        lp_bound=lp_bound,
        ratio=cost / lp_bound if lp_bound else None,
    )

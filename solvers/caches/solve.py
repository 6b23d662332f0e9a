"""POST /v1/solvers/caches: a request to a `Program`, a method, an answer."""

from __future__ import annotations

import math

from models.caches import CacheAllocation, CacheMethod, CacheSelection, CacheSelectionRequest
from models.plan import Proof, Termination
from solvers.caches.exact import exact
from solvers.caches.exhaustive import exhaustive
from solvers.caches.greedy import greedy
from solvers.caches.lp_rounding import lp_rounding
from solvers.caches.memory import priority_allocation
from solvers.caches.program import Candidate, Program, Selection
from solvers.caches.relaxation import Relaxation, relaxation
from solvers.caches.tree import tree
from solvers.deadline import NOBODY, Deadline, Progress
from solvers.errors import RangeError

__all__ = ["program_of", "solve_caches"]

APPROXIMATIONS = (CacheMethod.GREEDY, CacheMethod.LP_ROUNDING, CacheMethod.TREE)
"""Methods that state their ratio to the bound of the linear relaxation."""


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
    relaxed = relaxation(posed, deadline.remaining()) if request.method in APPROXIMATIONS else None
    found = _select(request, posed, relaxed, deadline)
    ids = [candidate.id for candidate in request.candidates]
    if by_priority:
        allotted = priority_allocation(program, found.choice)
        choice, cost, bound, optimal = allotted.choice, allotted.cost, found.bound, False
        held = {i: size * allotted.shares[i] for i, size in program.memory(choice).items()}
    else:
        choice, cost, bound, optimal = found.choice, found.cost, found.bound, found.optimal
        held = program.memory(choice)
    if bound is None and relaxed is not None:
        bound = relaxed.bound
    if bound is not None:
        bound = min(bound, cost)
    searched = request.method in (CacheMethod.EXACT, CacheMethod.EXHAUSTIVE) and not found.optimal
    return CacheSelection(
        chosen=[ids[i] for i in choice],
        total_cost=cost,
        cost_without_caches=program.cost_without_caches,
        memory={ids[i]: held[i] for i in choice},
        memory_bytes=math.fsum(held.values()),
        proof=Proof.OPTIMAL if optimal else Proof.NONE if bound is None else Proof.BOUNDED,
        termination=deadline.termination() if searched else Termination.COMPLETE,
        bound=bound,
        gap=None if bound is None else (cost - bound) / cost if cost > 0.0 else 0.0,
        lp_bound=relaxed.bound if relaxed else None,
        ratio=cost / relaxed.bound if relaxed and relaxed.bound > 0.0 else None,
    )


def _select(request: CacheSelectionRequest, program: Program, relaxed: Relaxation | None, deadline: Deadline) -> Selection:
    if request.method is CacheMethod.GREEDY:
        return greedy(program)
    if request.method is CacheMethod.TREE:
        return tree(program)
    if request.method is CacheMethod.EXHAUSTIVE:
        return exhaustive(program, deadline)
    if request.method is CacheMethod.LP_ROUNDING:
        assert relaxed is not None
        return lp_rounding(program, relaxed, request.seed)
    return exact(program, deadline)

"""The linear relaxation of the cache program (paper 1 App. B), solved by PuLP's CBC.

Problem: min Σ proc·x + Σ operators left to themselves + Σ update_cost·z, x_c ≤ z_group(c), every operator covered once,
0 ≤ x, z ≤ 1; under a memory cap Σ y ≤ M with y_g ≥ memory_c · x_c.

Guarantee: the bound is never above the optimum, whatever the solver's tolerances: its dual values are only used to split
update costs and memory among the members of a group, and the bound is then computed anew, pipeline by
pipeline (`split_bound`). One pipeline's covers are paths, so that bound equals the relaxation's optimum up to rounding.
Where CBC fails, update costs are split evenly: the bound is then lower, but it holds.
Exclusions are part of the relaxation, but not of the bound, which is then a little lower.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solvers.caches.select.program import Program, cheapest_cover
from solvers.common.linear_program import Outcome
from solvers.common.tolerances import SUMMING

__all__ = ["Relaxation", "relaxation", "split_bound"]


@dataclass(frozen=True, slots=True)
class Relaxation:
    """x of the fractional optimum, and the bound. Where the outcome is not `optimal`, x is empty, and the bound is one that needs no solver."""

    candidates: tuple[float, ...]
    bound: float
    outcome: Outcome


def split_bound(program: Program, shares: Sequence[float], memory_price: float, memory_shares: Sequence[float]) -> float:
    """A lower bound of every feasible choice's cost: some optimum needs useful candidates only.

    Candidate c is charged proc + shares[c] + memory_price · memory_shares[c] · memory_bytes. Any non-negative shares
    do: per group they are scaled so that they add up to at most the update cost, and at most 1.
    """
    charge = [math.inf] * len(program.candidates)
    useful = frozenset(program.useful)
    for group, listed in enumerate(program.members):
        members = [i for i in listed if i in useful]
        scale = _scale(program.update_costs[group], math.fsum(shares[i] for i in members))
        memory_scale = _scale(1.0, math.fsum(memory_shares[i] for i in members))
        for i in members:
            candidate = program.candidates[i]
            charge[i] = candidate.proc + shares[i] * scale
            if memory_price:
                charge[i] += memory_price * memory_shares[i] * memory_scale * candidate.memory_bytes
    covers = [cheapest_cover(program, p, charge)[0] for p in range(len(program.operator_costs))]
    value = math.fsum([*covers, -memory_price * program.memory_bytes] if memory_price else covers)
    return max(0.0, value - SUMMING * program.cost_without_caches)


def _scale(limit: float, total: float) -> float:
    return limit / total if total > limit else 1.0


def relaxation(program: Program, seconds: float = 60.0) -> Relaxation:
    """The fractional optimum and its bound."""
    import pulp  # takes a quarter of a second to import, and most requests do not need it

    if not program.useful:
        return Relaxation((0.0,) * len(program.candidates), program.cost_without_caches, Outcome.OPTIMAL)
    # CBC's tolerances are absolute: costs are scaled to add up to one, memory to fill one.
    unit = program.cost_without_caches or 1.0
    capped = math.isfinite(program.memory_bytes)
    full = program.memory_bytes or 1.0
    problem = pulp.LpProblem("caches", pulp.LpMinimize)
    listed = program.useful
    groups = sorted({program.candidates[i].group for i in listed})
    x = {i: problem.add_variable(f"x{i}", 0.0, 1.0) for i in listed}
    z = {g: problem.add_variable(f"z{g}", 0.0, 1.0) for g in groups}
    problem += pulp.lpSum(
        [x[i] * ((program.candidates[i].proc - program.replaced[i]) / unit) for i in listed]
        + [z[g] * (program.update_costs[g] / unit) for g in groups]
    )
    for p, costs in enumerate(program.operator_costs):
        for o in range(len(costs)):
            over = [x[i] for i in program.by_pipeline[p] if i in x and program.candidates[i].first <= o <= program.candidates[i].last]
            if over:
                problem += pulp.lpSum(over) <= 1.0
    for i in listed:
        candidate = program.candidates[i]
        problem += (x[i] <= z[candidate.group], f"share{i}")
        for g in sorted(candidate.excludes & z.keys()):
            problem += x[i] + z[g] <= 1.0
    if capped:
        y = {g: problem.add_variable(f"y{g}", 0.0) for g in groups}
        for i in listed:
            problem += (x[i] * (program.candidates[i].memory_bytes / full) <= y[program.candidates[i].group], f"held{i}")
        problem += (pulp.lpSum(y.values()) <= program.memory_bytes / full, "cap")
    count = len(program.candidates)
    outcome = _solved(problem, max(1.0, seconds))
    if outcome is not Outcome.OPTIMAL:
        equal = [program.update_costs[c.group] / len(program.members[c.group]) for c in program.candidates]
        return Relaxation((0.0,) * count, split_bound(program, equal, 0.0, [0.0] * count), outcome)

    def dual(name: str) -> float:
        return max(0.0, -(problem.get_constraint_by_name(name).pi or 0.0))

    shares = [dual(f"share{i}") * unit if i in x else 0.0 for i in range(count)]
    price = dual("cap") * unit / full if capped else 0.0
    held = [dual(f"held{i}") if capped and i in x else 0.0 for i in range(count)]
    return Relaxation(
        tuple(min(1.0, max(0.0, x[i].value() or 0.0)) if i in x else 0.0 for i in range(count)),
        split_bound(program, shares, price if math.isfinite(price * program.memory_bytes) else 0.0, held),
        outcome,
    )


def _solved(problem: Any, seconds: float) -> Outcome:
    """How CBC ended, which is a program of its own that may be missing, be killed or break off."""
    import pulp

    try:
        status = problem.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=seconds, threads=1))
    except pulp.PulpSolverError:
        return Outcome.FAILED
    if status == pulp.LpStatusOptimal:
        # CBC calls what it had when time ran out optimal as well.
        return Outcome.OPTIMAL if problem.sol_status == pulp.LpSolutionOptimal else Outcome.TIME_LIMIT
    ended = {pulp.LpStatusInfeasible: Outcome.INFEASIBLE, pulp.LpStatusUnbounded: Outcome.UNBOUNDED, pulp.LpStatusNotSolved: Outcome.TIME_LIMIT}
    return ended.get(status, Outcome.FAILED)

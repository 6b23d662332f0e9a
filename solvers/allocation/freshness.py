"""From freshness predicates to refresh rates, and the shares that keep them (paper 2 §4.2).

A subresult S keeps its newest size(S) tuples. With shares p_i of the streams' tuples probing, it is renewed

    Y(S) = Σ_{i∈S} p_i/T_i        times a second, so a tuple of it stays 1/Y(S) seconds,

and a result holds tuples of stream i of age up to T_i + Σ_{S∋i} 1/Y(S), over the kept subresults S (Lemma 1). A
freshness predicate of F_i seconds leaves the *tolerance* F_i − T_i for that sum; S's refresh rate is size(S)·Y(S).

*Splitting the tolerance.* How long each subresult on a path may keep its tuples is chosen so that the least CPU is
needed for all predicates together: minimise Σ cost_i·p_i with Σ_{S∋i} 1/Y(S) ≤ F_i − T_i for every i and 0 ≤ p ≤ 1. That
is a convex program, solved by Newton's method on a logarithmic barrier (to 1e-5 of the least CPU, rounded to six digits
so that the answer does not depend on the order in which a machine adds). Subresults that share a cheap stream get equal
times; where they do not, the time goes as the square root of what renewing costs.

*Shares.* In units of p_i/T_i every unit of a stream brings 1 to each subresult that holds it and 1 to the results, and
the kept subresults are nested or disjoint. So the least cover is found bottom-up, each subresult raising its cheapest
streams; and the most results within a budget are that cover, topped up with the cheapest streams.

Guarantee: cover and joint optimum are exact for given refresh rates: they equal the linear programs of
`solvers.cover.exact` and `solvers.allocation.joint`. Complexity: O(n·m) after sorting; a Newton step is O(n³), about 40,
fewer beyond 150 streams, where the split was seen up to a tenth above the least.
Departs from paper 2, which does not say how the tolerance is split, covers greedily, and decides throughput afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from solvers.allocation.productivity import PlanPaths
from solvers.common.tolerances import ROUNDING
from solvers.cover.greedy import CoverPath, greedy_cover
from solvers.model.graph import bits

__all__ = [
    "Refresh",
    "ages",
    "cover_shares",
    "cpu_of",
    "greedy_shares",
    "joint_shares",
    "least_cost_stays",
    "most_results",
    "residences",
    "split_tolerance",
]

PRECISION = 1e-5  # of the least CPU
SIX_DIGITS = 5e-6  # relative: by how much rounding to six digits changes a figure at most
BARRIER_GROWTH = 50.0  # times heavier, from one barrier to the next: half a dozen of them reach PRECISION
CENTRED = 0.1  # Newton decrement below which a barrier has been followed closely enough
FAR_MORE = 1e30  # renewals in a tolerance, from which on more make no difference: squares of it still fit a double
UNTHREADED = 100  # rows up to which BLAS works in one thread
MAX_WORK = 3e8  # multiplications: a second or so at worst
MAX_STEPS = 400  # of Newton's method; about 40 are needed


@dataclass(frozen=True, slots=True)
class Refresh:
    """How many times a second each kept subresult must be renewed; 0 where nothing depends on it."""

    renewals: tuple[float, ...]
    """By subresult, in the order of `PlanPaths.subresults`."""


def residences(plan: PlanPaths, shares: Sequence[float]) -> list[float]:
    """How many seconds a tuple stays in each kept subresult; infinity where nothing renews it."""
    result = []
    for subresult in plan.subresults:
        renewed = math.fsum(shares[i] / plan.windows[i] for i in bits(subresult.mask))
        result.append(1.0 / renewed if renewed > 0.0 else math.inf)
    return result


def ages(plan: PlanPaths, shares: Sequence[float]) -> list[float]:
    """How old the tuples of each stream get in a result (Lemma 1)."""
    parts = [[window] for window in plan.windows]
    for subresult, stay in zip(plan.subresults, residences(plan, shares), strict=True):
        for i in bits(subresult.mask):
            parts[i].append(stay)
    return [math.fsum(own) for own in parts]


def cpu_of(plan: PlanPaths, shares: Sequence[float]) -> float:
    """What these shares cost, the streams' own windows left out."""
    return math.fsum(share * cpu for share, cpu in zip(shares, plan.cpu, strict=True) if share)


def _cheapest_first(plan: PlanPaths) -> list[int]:
    """Streams by what one renewal a second costs."""
    return sorted(range(len(plan.windows)), key=lambda i: (plan.cpu[i] * plan.windows[i] if math.isfinite(plan.windows[i]) else math.inf, i))


def cover_shares(plan: PlanPaths, refresh: Refresh) -> list[float]:
    """The shares of least CPU that renew every subresult often enough."""
    shares = [0.0] * len(plan.windows)
    order = _cheapest_first(plan)
    for subresult, renewals in zip(plan.subresults, refresh.renewals, strict=True):
        lacking = renewals - math.fsum(shares[i] / plan.windows[i] for i in bits(subresult.mask))
        for i in order:
            if lacking <= 0.0:
                break
            if subresult.mask >> i & 1:
                more = min(1.0 - shares[i], lacking * plan.windows[i])
                shares[i] += more
                lacking -= more / plan.windows[i]
    return shares


def joint_shares(plan: PlanPaths, budget: float, shares: Sequence[float]) -> list[float]:
    """The shares of the most results within a budget of CPU, on top of a cover that costs no more than it."""
    topped = list(shares)
    left = budget - cpu_of(plan, shares)
    for i in _cheapest_first(plan):
        cost = (1.0 - topped[i]) * plan.cpu[i]
        if cost <= left:
            topped[i] = 1.0
            left -= cost
        elif left > 0.0:
            topped[i] = min(1.0, topped[i] + left / plan.cpu[i])
            left = 0.0
    return topped


def most_results(plan: PlanPaths, budget: float) -> float:
    """The most results a second within a budget of CPU, whatever becomes of kept subresults: those of `joint_shares` on top of no cover."""
    renewals, left = 0.0, budget
    flowing = [(cpu * window, window, cpu) for cpu, window in zip(plan.cpu, plan.windows, strict=True) if window < math.inf]
    for cost, window, cpu in sorted(flowing):
        if cpu <= left:
            renewals += 1.0 / window
            left -= cpu
        elif left > 0.0:
            renewals += left / cost
            left = 0.0
    return plan.size * renewals


def greedy_shares(plan: PlanPaths, refresh: Refresh) -> list[float]:
    """The shares that GH-WMSCP covers the subresults with."""
    required = {f"{j}": renewals for j, renewals in enumerate(refresh.renewals)}
    holding: list[dict[str, float]] = [{} for _ in plan.windows]
    for j, subresult in enumerate(plan.subresults):
        for i in bits(subresult.mask):
            holding[i][f"{j}"] = 1.0
    paths = [CoverPath("", cpu * window, covers, 1.0 / window) for cpu, window, covers in zip(plan.cpu, plan.windows, holding, strict=True)]
    return [min(1.0, amount * window) for amount, window in zip(greedy_cover(required, paths), plan.windows, strict=True)]


def split_tolerance(plan: PlanPaths, tolerances: Sequence[float]) -> Refresh:
    """The refresh rates of least CPU within the tolerances, in seconds by stream; infinity where a stream has none.

    Every tolerance must be above what the plan needs with all shares 1.
    """
    chains: dict[tuple[int, ...], float] = {}
    for i, tolerance in enumerate(tolerances):
        chain = tuple(j for j, subresult in enumerate(plan.subresults) if subresult.mask >> i & 1)
        if chain and math.isfinite(tolerance):
            chains[chain] = min(tolerance, chains.get(chain, math.inf))
    if not chains:
        return Refresh((0.0,) * len(plan.subresults))
    # A chain that is part of a longer chain with no more time adds no condition.
    sets = [(frozenset(chain), tolerance) for chain, tolerance in chains.items()]
    chains = {tuple(sorted(held)): time for held, time in sets if not any(held < other and limit <= time for other, limit in sets)}
    renewals = [[1.0 / plan.windows[i] if subresult.mask >> i & 1 else 0.0 for i in range(len(plan.windows))] for subresult in plan.subresults]
    stays = least_cost_stays(renewals, plan.cpu, chains)
    # Rounding must not ask for more than all shares together bring.
    return Refresh(tuple(0.0 if math.isinf(stay) else min(1.0 / stay, math.fsum(row)) for stay, row in zip(stays, renewals, strict=True)))


def least_cost_stays(renewals: Sequence[Sequence[float]], costs: Sequence[float], chains: Mapping[tuple[int, ...], float]) -> list[float]:
    """How long tuples may stay in each state so that renewing them costs least; infinity where no chain holds the state.

    renewals[j][i]: times a second that path i, used to its limit, renews state j; costs[i]: what that costs; chains: states
    that a tuple passes one after the other, and the seconds that it may take for all of them. The barrier method.
    """
    import numpy as np  # imported late: requests whose CPU is not short do not need it

    involved = sorted({j for chain in chains for j in chain})
    useful = [i for i in range(len(costs)) if any(renewals[j][i] > 0.0 for j in involved)]
    # In units of the tolerances all figures that matter are near 1; what is renewed far more often than needed is never short.
    scales = {j: min(tolerance for chain, tolerance in chains.items() if j in chain) for j in involved}
    holds = np.array([[min(FAR_MORE, renewals[j][i] * scales[j]) for i in useful] for j in involved])
    place = {j: number for number, j in enumerate(involved)}
    paths = np.zeros((len(chains), len(involved)))
    for row, (chain, tolerance) in enumerate(chains.items()):
        for j in chain:
            paths[row, place[j]] = scales[j] / tolerance
    cost = np.array([costs[i] for i in useful])
    total = float(cost.sum())
    cost = cost / total if total > 0.0 else np.full(len(useful), 1.0 / len(useful))
    stays = _barrier(holds, paths, cost)
    result = [math.inf] * len(renewals)
    for j, stay in zip(involved, stays, strict=True):
        result[j] = float(f"{stay * scales[j] * (1.0 - SIX_DIGITS):.6g}")  # rounded to a shorter stay, never to a longer one
    return result


def _barrier(holds: Any, paths: Any, cost: Any) -> list[float]:
    """The stays 1/(holds·p) of the p within (0, 1) of least cost with paths·stays ≤ 1."""
    import numpy as np

    slack = 1.0 - float((paths @ (1.0 / holds.sum(axis=1))).max())
    if slack <= ROUNDING:
        return [float(stay) for stay in 1.0 / holds.sum(axis=1)]
    shares = np.full(len(cost), 1.0 - slack / 2.0)
    weight = 1.0
    # Every step leaves shares that keep the tolerances, so a large program may end before the least cost is reached.
    for _ in range(min(MAX_STEPS, max(16, int(MAX_WORK / (len(cost) + len(paths)) ** 3)))):
        stays = 1.0 / (holds @ shares)
        slopes = (paths * stays**2) @ holds
        pressure = 1.0 / (1.0 - paths @ stays)
        gradient = weight * cost - slopes.T @ pressure - 1.0 / shares + 1.0 / (1.0 - shares)
        bend = 2.0 * stays**3 * (paths.T @ pressure)
        step = _newton_step(gradient, (holds.T * bend) @ holds, 1.0 / shares**2 + 1.0 / (1.0 - shares) ** 2, slopes * pressure[:, None])
        decrement = math.sqrt(max(0.0, float(-gradient @ step)))
        if decrement < CENTRED:
            if (len(paths) + 2 * len(cost)) / weight < PRECISION * float(cost @ shares):
                break
            weight *= BARRIER_GROWTH
            continue
        size = 1.0
        while True:  # the barrier ends where a share or a tolerance is used up, and falls as long as its slope along the step does
            trial = shares + size * step
            if trial.min() > 0.0 and trial.max() < 1.0:
                stays = 1.0 / (holds @ trial)
                room = 1.0 - paths @ stays
                if room.min() > 0.0:
                    slope = weight * cost - ((paths * stays**2) @ holds).T @ (1.0 / room) - 1.0 / trial + 1.0 / (1.0 - trial)
                    if decrement < 0.25 or float(slope @ step) <= 0.0:
                        break
            size /= 2.0
        shares = trial
    stays = 1.0 / (holds @ shares)
    return [float(stay) for stay in stays / (paths @ stays).max()]


def _newton_step(gradient: Any, bent: Any, diagonal: Any, rows: Any) -> Any:
    """The x with (bent + diag(diagonal) + rowsᵀ·rows)·x = −gradient.

    The rows grow without bound as tolerances are used up, and their squares would drown the rest. So they are kept as
    equations of their own, scaled to 1, and the variables are measured by their own curvature.
    """
    import numpy as np

    n, k = len(gradient), len(rows)
    units = 1.0 / np.sqrt(diagonal + np.diagonal(bent))
    rows = rows * units
    sizes = np.maximum(np.sqrt((rows**2).sum(axis=1)), 1e-140)
    system = np.empty((n + k, n + k))
    system[:n, :n] = bent * units * units[:, None]
    system[:n, :n][np.diag_indices(n)] = 1.0
    system[n:, :n] = rows / sizes[:, None]
    system[:n, n:] = system[n:, :n].T
    system[n:, n:] = np.diag(-1.0 / sizes**2)
    right = np.zeros(n + k)
    right[:n] = -gradient * units
    return units * _eliminate(system, right)[:n]


def _eliminate(system: Any, right: Any) -> Any:
    """Solve a quasi-definite system.

    Beyond UNTHREADED rows BLAS starts threads, which on a busy machine wait for each other a hundred times as long as they
    work. Such a system needs no pivots, so it is eliminated column by column instead.
    """
    import numpy as np

    size = len(right)
    if size <= UNTHREADED:
        return np.linalg.solve(system, right)
    for k in range(size - 1):
        factors = system[k + 1 :, k] / system[k, k]
        system[k + 1 :, k + 1 :] -= factors[:, None] * system[k, k + 1 :]
        right[k + 1 :] -= factors * right[k]
    for k in range(size - 1, -1, -1):
        right[k] = (right[k] - (system[k, k + 1 :] * right[k + 1 :]).sum()) / system[k, k]
    return right

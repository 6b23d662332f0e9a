"""What it would take, exactly: the plan that bears the largest factor on all rates, and the least caps under which something fits.

Problem: where nothing fits the caps, the least CPU, the least memory, each under the other's cap, and by which factor all rates would have to shrink;
where something fits, how far they may grow. Method: each answer is a search of its own (`parts.Solver.points`); the factor by a series of them at
rising rates. What an earlier answer settles is not searched again. Guarantee: exact, each as far as its search ended. Complexity: four to ten exact
searches.
"""

from __future__ import annotations

import math
from dataclasses import replace

from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP, ROUNDED_DOWN
from solvers.jtree.choice import choose, objective_value, overload
from solvers.jtree.compiled.questions import LEAST_BYTES, LEAST_CPU, LEAST_LOAD
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.parts import AnySolver
from solvers.jtree.search import ALL_TREES, Found, Lacking, Problem, staircase, structure_key
from solvers.model.cost import CostModel
from solvers.model.point import Caps, Point, point_of
from solvers.model.sensitivity import headroom
from solvers.model.tree import Tree

Answered = tuple[tuple[Point, ...], bool]
"""Plans, and whether they are the complete answer."""

__all__ = ["best_so_far", "most_headroom", "nothing_fits"]

LOWER, LEAST_FACTOR = 16.0, 1e-12  # how rates are lowered to find some that fit, and where that ends


def best_so_far(problem: Problem, points: tuple[Point, ...], deadline: Deadline) -> Found:
    """The best of the plans so far with a quick bound: the answer of a search that its deadline ended."""
    best = choose(problem, points)
    bound = relaxed_bound(problem, deadline)
    return Found(best, points, Proof.NONE if bound is None else Proof.BOUNDED, bound, ALL_TREES, termination=deadline.termination())


def nothing_fits(problem: Problem, solver: AnySolver, deadline: Deadline) -> Found:
    """The least bad plan, and exactly what it would take. Each answer is a search of its own, under one cap or none."""
    deadline.progress.doing("nothing fits: finding out what it would take")
    caps = problem.caps
    least_load = solver.points(caps, LEAST_LOAD, deadline)
    most = most_headroom(problem, solver, deadline, least_load, chosen_anew=True)  # rates that shrink get a plan of their own

    def ask(under: Caps, goal: int) -> Answered:
        return ((), False) if deadline.expired() else solver.points(under, goal, deadline)

    asked = [
        ask(Caps(), LEAST_CPU),
        ask(Caps(), LEAST_BYTES),
        ask(Caps(memory_bytes=caps.memory_bytes), LEAST_CPU) if math.isfinite(caps.memory_bytes) else ((), True),
        ask(Caps(cpu=caps.cpu), LEAST_BYTES) if math.isfinite(caps.cpu) else ((), True),
        least_load,
    ]
    at_memory_cap = [point.cpu for point in asked[2][0] if point.memory_bytes <= caps.memory_bytes]
    at_cpu_cap = [point.memory_bytes for point in asked[3][0] if point.cpu <= caps.cpu]
    points = staircase([*(point for found, _ in asked for point in found), *most.points])
    best = choose(problem, points)
    least_cpu, least_bytes = min(point.cpu for point in points), min(point.memory_bytes for point in points)
    bounds = {Objective.MIN_CPU: least_cpu, Objective.MIN_MEMORY: least_bytes, Objective.MAX_HEADROOM: most.bound}
    if not all(complete for _, complete in asked):
        # That nothing fits is proven; what it would take is not: the least that was found is no bound.
        found = best_so_far(problem, points, deadline)
        return replace(found, notes=(f"Proven: none of {ALL_TREES} fits the caps. What it would take is not proven.",))
    bound = bounds[problem.objective]
    lacking = Lacking(
        least_cpu,
        least_bytes,
        min(at_memory_cap, default=None),
        min(at_cpu_cap, default=None),
        most.bound if most.bound and most.termination is Termination.COMPLETE else None,
    )
    return Found(best, points, Proof.OPTIMAL, bound, ALL_TREES, lacking=lacking)


def most_headroom(problem: Problem, solver: AnySolver, deadline: Deadline, today: Answered | None = None, chosen_anew: bool = False) -> Found:
    """The plan that bears the largest factor on all rates within the caps; `today` is the answer to LEAST_LOAD at the rates as they are, if known.

    At a factor f the plan of least load max(CPU/cap, memory/cap) is found; it bears more than f, or no plan does. Its own largest factor
    is the next f. Rises strictly, ends because plans are finite. A plan keeps its choice of indexed and plain states at every f; with
    `chosen_anew` it is chosen for f, and the bound is the largest f at which some plan fits, which today's plans may not reach.
    """
    model, graph, caps = problem.model, problem.model.graph, problem.caps
    asking = replace(problem, objective=Objective.MAX_HEADROOM)
    factor, here, rising = 1.0, solver, False
    met: list[Point] = []
    borne: dict[Tree, float] = {}

    def factor_of(point: Point) -> float:
        if point.tree not in borne:
            borne[point.tree] = objective_value(asking, point)
        return borne[point.tree]

    while True:
        points, complete = today if here is solver and today else here.points(caps, LEAST_LOAD, deadline)
        met += [point if here is solver else point_of(model, point.tree) for point in points]
        if not complete:
            return best_so_far(asking, staircase(met), deadline)
        if not points:  # no plan's figures fit a double at these rates
            raise here.model.out_of_range()
        least = min(points, key=lambda point: (overload(asking, point), structure_key(point.tree)))
        gain = headroom(here.model.price(least.tree), here.model, caps)
        if gain is None:
            factor = math.inf
            break
        if here is solver:
            borne[least.tree] = gain
        if rising and (gain <= 1.0 + AT_A_CAP or factor * gain <= factor):  # a factor below 1e-308 has few digits and may not rise any more
            break
        if gain > 0.0:
            factor *= max(gain, 1.0) if rising else gain
            rising = True
        else:
            # The plan that is least over the caps at these rates fits at none. At lower rates another plan may be the least, and fit.
            factor /= LOWER
            if factor < LEAST_FACTOR:
                factor = 0.0
                break
        here = solver.of(CostModel(graph.scaled(factor), model.costs, None if chosen_anew else model))
    best = min(met, key=lambda point: (-factor_of(point), point.cpu, point.memory_bytes, structure_key(point.tree)))
    value = factor_of(best)
    if not math.isfinite(max(factor, value)):  # nothing limits the best plan; it was met on the way, and need not be the last that was found
        return Found(best, staircase(met), Proof.OPTIMAL, None, ALL_TREES)
    proof = Proof.OPTIMAL if value >= factor * ROUNDED_DOWN else Proof.BOUNDED
    return Found(best, staircase(met), proof, max(factor, value), ALL_TREES)

"""The best binary join tree (paper 3 §2.3; Selinger et al. 1979, Moerkotte and Neumann 2006 for the enumeration).

Problem: of all trees of binary joins without cross products, the one with the least CPU (or memory). Costs add up over
joins and do not depend on how an input was joined, so the best tree of a set is made of best trees of its two parts.
Method: dynamic programming over the pairs of connected sets that a predicate joins, in Python up to PYTHON_PAIRS of them, by a
compiled kernel up to as many as are AFFORDABLE in the time; beyond that, trees over linear orders.
Where that tree breaks a cap, the same recursion keeps for each set every pair of CPU and memory that no other beats.

Guarantee: exact for one resource up to the affordable number of pairs, and under caps up to MAX_PAIRS as long as the deadline allows;
otherwise bounded by the best tree without caps, or nothing is proven. Complexity: O(pairs), times the product of two staircases.
Departs from paper 3: it is exact, and each of the two states of a join is indexed or not, whichever is cheaper.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter

from models.plan import Proof
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.choice import objective_value
from solvers.jtree.claims import heuristic
from solvers.jtree.components import join_components, sum_of_staircases
from solvers.jtree.search import ALL_TREES, Found, Problem, Shape, both, make_join, tree_of_joins
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.model.connected import connected_pairs
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.operations import probe_steps, side, stepping
from solvers.model.point import Caps, Point, point_of
from solvers.model.staircase import undominated
from solvers.model.tree import Tree

__all__ = ["best_binary_tree", "bjtree"]

PYTHON_PAIRS = 3_000  # pairs that Python looks at in the time it takes to load the compiled code
AFFORDABLE = ((8.0, 200_000_000, MAX_SETS), (2.0, 50_000_000, HASTY_SETS), (0.5, 10_000_000, HASTY_SETS))
"""With more than so many seconds granted, the pairs and the connected sets that the kernel may look at: a fifth of the time, on a machine half as
fast as ours. 200 million pairs are those of a clique of 18 streams."""
LEAST_AFFORDABLE = (0.0, 2_000_000, HASTY_SETS // 8)
MAX_PAIRS = 60_000  # pairs whose staircases Python can usually merge within the default time limit
SPACE = "binary join trees"


def _joining(model: CostModel, left: int, right: int) -> float:
    """What both sides of a binary join cost: keeping the states and probing them, but not making results."""
    sides = ((left, right), (right, left))
    return stepping(model.costs, probe_steps(2)) + sum(
        side(model.costs, model.hashed_in_binary(a, b), model.rate(b), model.rate(a), model.size(b)) for a, b in sides
    )


def best_binary_tree(model: CostModel, component: int, deadline: Deadline, by_memory: bool = False) -> tuple[Tree, bool]:
    """The binary tree of one component with the least CPU, or memory, and whether that is proven."""
    if component & (component - 1) == 0:
        return component.bit_length() - 1, True
    pairs: dict[int, list[tuple[int, int]]] = {}
    n = component.bit_count()
    few = n * (n * n - 1) // 6 <= PYTHON_PAIRS  # as many as a chain has, and no connected graph has fewer
    for count, (left, right) in enumerate(connected_pairs(model.graph.neighbours, component) if few else ()):
        pairs.setdefault(left | right, []).append((left, right))
        if count >= PYTHON_PAIRS:
            few = False
            break
    if not few:
        from solvers.jtree.compiled import binary_tree as compiled  # numba takes a while to import, and small graphs do not need it

        granted = 0.0 if deadline.expired() else deadline.granted
        _, most, sets = next((entry for entry in AFFORDABLE if granted > entry[0]), LEAST_AFFORDABLE)
        tree = compiled.best_binary_tree(model, component, most, by_memory, sets)
        if tree is not None:
            return tree, True
        from solvers.jtree.compiled.ledger import Ledger
        from solvers.jtree.linear_orders import best_over_linear_orders

        return best_over_linear_orders(Ledger(model), component, deadline, by_memory), False
    best: dict[int, tuple[float, int, int]] = {1 << i: (0.0, 0, 0) for i in bits(component)}
    for union in sorted(pairs, key=lambda mask: (mask.bit_count(), mask)):
        # The component's own state is kept in all its trees or in none, so it does not matter here.
        output = model.state_bytes(union) if by_memory else model.costs.join * model.rate(union)
        choice = (math.inf, 0, 0)
        for left, right in sorted(pairs[union]):
            joining = 0.0 if by_memory else _joining(model, left, right)
            cost = best[left][0] + best[right][0] + joining + output
            if cost < choice[0] or not choice[1]:
                choice = (cost, left, right)
        best[union] = choice
    return _tree_of(best, component), True


def _tree_of(best: dict[int, tuple[float, int, int]], component: int) -> Tree:
    shape: Shape = {}
    waiting = [component]
    while waiting:
        mask = waiting.pop()
        _, left, right = best[mask]
        shape[mask] = (left, right)
        waiting += [part for part in (left, right) if part & (part - 1)]
    return tree_of_joins(shape, both)


def _staircase_of_binary_trees(model: CostModel, component: int, caps: Caps, deadline: Deadline) -> tuple[Point, ...] | None:
    """Every binary tree of one component that no other beats in both resources, within the caps; None where time or pairs run out.

    Figures are those of the component's own joins and inner states.
    """
    grouped: dict[int, list[tuple[int, int]]] = {}
    for count, (left, right) in enumerate(connected_pairs(model.graph.neighbours, component)):
        grouped.setdefault(left | right, []).append((left, right))
        if count >= MAX_PAIRS or (count % 1024 == 0 and deadline.expired()):
            return None
    cpu_cap, memory_cap = caps.cpu * ROUNDED, (caps.memory_bytes - model.leaves_bytes()) * ROUNDED
    staircases: dict[int, list[tuple[float, float, Tree]]] = {1 << i: [(0.0, 0.0, i)] for i in bits(component)}
    for union in sorted(grouped, key=lambda mask: (mask.bit_count(), mask)):
        if deadline.expired():
            return None
        kept = model.state_bytes(union) if union != model.graph.all else 0.0
        output = model.costs.join * model.rate(union)
        candidates = []
        for left, right in sorted(grouped[union]):
            if deadline.expired():
                return None
            cost = _joining(model, left, right) + output
            for cpu, memory, tree in staircases[left]:
                if deadline.expired():
                    return None
                for other_cpu, other_memory, other in staircases[right]:
                    total, held = cpu + other_cpu + cost, memory + other_memory + kept
                    if total <= cpu_cap and held <= memory_cap:
                        candidates.append((total, held, tree, other))
        steps = undominated(candidates, itemgetter(0, 1))
        staircases[union] = [(total, held, make_join((tree, other), ((1,), (0,)))) for total, held, tree, other in steps]
    return tuple(Point(*step) for step in staircases[component])


def bjtree(problem: Problem, deadline: Deadline) -> Found:
    """The best binary tree by the problem's objective within its caps."""
    model, caps = problem.model, problem.caps
    n, predicates = len(model.graph), len(model.graph.edges)
    deadline = deadline.before_writing(2 * n, 2 * predicates, n, predicates)

    def least(by_memory: bool) -> tuple[Point, bool]:
        parts = [best_binary_tree(model, component, deadline, by_memory) for component in model.graph.components]
        return point_of(model, join_components(model, [tree for tree, _ in parts])), all(exact for _, exact in parts)

    cheapest, exact_cpu = least(by_memory=False)
    found = problem.objective is Objective.MIN_CPU and caps.admit(cheapest)
    if found or (deadline.expired() and not exact_cpu):  # a good tree of the least memory would take as long again
        return _claimed(problem, [cheapest], exact_cpu, deadline)
    smallest, exact_memory = least(by_memory=True)
    points = [cheapest, smallest]
    whole = False
    if exact_cpu and exact_memory:
        parts = [_staircase_of_binary_trees(model, component, caps, deadline) for component in model.graph.components]
        complete = [part for part in parts if part is not None]
        whole = len(complete) == len(parts)
        if whole and all(complete):
            points += sum_of_staircases(model, complete)
    return _claimed(problem, points, whole and problem.objective is not Objective.MAX_HEADROOM, deadline)


def _claimed(problem: Problem, points: list[Point], exact: bool, deadline: Deadline) -> Found:
    """The best of these points. `exact`: it is proven best of all binary trees, and of two streams there are no other trees."""
    found = heuristic(problem, points, SPACE, deadline, complete=exact)
    fits = problem.caps.admit(found.best)
    if not exact or found.proof is Proof.OPTIMAL:
        return found
    if len(problem.model.graph) <= 2 and fits:
        return replace(found, proof=Proof.OPTIMAL, bound=objective_value(problem, found.best), space=ALL_TREES)
    better = "uses less memory" if problem.objective is Objective.MIN_MEMORY else "uses less CPU"
    return replace(found, notes=(f"Proven: of all binary join trees none {better if fits else 'fits the caps'}.",))

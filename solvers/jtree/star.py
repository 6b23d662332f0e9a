"""Stars, for which exact search over all connected sets would take too long: the best plan without looking at the memory cap.

Problem: the join tree of least CPU of a star. Method: a shortest path over sets of leaves (`compiled.stars`, which says why few sets are enough).
It holds where keeping a state costs the same in every join, so it is used only where every state is indexed in every plan: all predicates are
equalities, nothing is observed, there are no tables, and scanning never costs less than an index. What a plan keeps is checked against the cap on
memory afterwards: the plan with the least CPU of all is the best within the cap if it fits.

Guarantee: the best of all join trees; None where the graph is no such star, or the plan does not fit. Complexity: that of `best_chain`.
"""

from __future__ import annotations

import math

import numpy as np

from models.plan import Proof
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.compiled.stars import best_chain
from solvers.jtree.orders import best_orders
from solvers.jtree.search import ALL_TREES, Found, Problem, Shape, sorted_inputs, tree_of_joins
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.point import Point, point_of

__all__ = ["best_of_star", "star"]

SMALLEST = 13  # streams; of fewer, exact search over all connected sets ends in milliseconds and says more
MAX_SETS = 3_000  # sets of leaves: a tenth of a second


def _hub(model: CostModel) -> int | None:
    """The stream that all others join, where they join nothing else."""
    graph = model.graph
    every = graph.all
    hubs = [i for i, near in enumerate(graph.neighbours) if near == every & ~(1 << i)]
    if len(graph) < 4 or len(hubs) != 1 or graph.tables or graph.observed or not all(edge.equality for edge in graph.edges):
        return None
    return hubs[0] if all(graph.neighbours[i] == 1 << hubs[0] for i in range(len(graph)) if i != hubs[0]) else None


def _always_indexed(model: CostModel, hub: int) -> bool:
    """Whether in every join of every plan every state has an index, because scanning it would cost more."""
    graph, costs = model.graph, model.costs
    spared = costs.insert + costs.delete - costs.append
    if spared <= 0.0:
        return True
    leaves = [i for i in range(len(graph)) if i != hub]
    smallest = graph.window_tuples[hub] * math.prod(min(1.0, model.size(1 << i | 1 << hub) / graph.window_tuples[hub]) for i in leaves)
    # A leaf's state is probed by the hub's sets, and theirs by leaves: rate · size of what is scanned against keeping it.
    rarest = smallest / graph.window_seconds[hub]
    by_sets = all(costs.scan * rarest * graph.window_tuples[i] > spared * graph.rates[i] * ROUNDED for i in leaves)
    by_leaves = all(costs.scan * graph.rates[i] > spared * model.per_second(graph.all) * ROUNDED for i in leaves)
    return by_sets and by_leaves and rarest > 0.0


def star(problem: Problem, deadline: Deadline) -> Found | None:
    """The plan of least CPU where that is asked for and fits the caps; None where the graph is no star of this kind."""
    if problem.objective is not Objective.MIN_CPU or len(problem.model.graph) < SMALLEST:
        return None
    best = best_of_star(problem.model, deadline)
    if best is None or not problem.caps.admit(best):
        return None
    return Found(best, (best,), Proof.OPTIMAL, best.cpu, ALL_TREES)


def best_of_star(model: CostModel, deadline: Deadline) -> Point | None:
    """The plan of least CPU; None where the graph is no star of this kind, or time is over."""
    hub = _hub(model)
    if hub is None or not _always_indexed(model, hub):
        return None
    graph, costs = model.graph, model.costs
    tuples = graph.window_tuples[hub]
    growth = {i: model.size(1 << i | 1 << hub) / tuples for i in range(len(graph)) if i != hub}
    leaves = sorted(growth, key=lambda i: (growth[i], i))
    windows = sorted({graph.window_seconds[i] for i in leaves})
    counts = [sum(graph.window_seconds[i] == seconds for i in leaves) for seconds in windows]
    if math.prod(count + 1 for count in counts) > MAX_SETS:
        return None
    group = np.array([windows.index(graph.window_seconds[i]) for i in leaves], np.int64)
    made = costs.join + costs.probe
    stop = np.zeros(1, np.int64)
    ended = False
    with deadline.watched(lambda: stop.put(0, 1)):
        _, before = best_chain(
            np.array([tuples, 1.0 / graph.window_seconds[hub]]),
            np.array([growth[i] for i in leaves]),
            np.array([1.0 / graph.window_seconds[i] for i in leaves]),
            group,
            np.array(counts, np.int64),
            np.array([made, made + costs.insert + costs.delete]),
            stop,
        )
        ended = not stop[0]
    return (
        point_of(model, tree_of_joins(_shape(hub, leaves, group.tolist(), counts, before.tolist()), lambda b: best_orders(model, b)[0]))
        if ended
        else None
    )


def _shape(hub: int, leaves: list[int], group: list[int], counts: list[int], before: list[int]) -> Shape:
    """The joins of a chain of sets of leaves."""

    def mask_of(number: int) -> int:
        digits = []
        for count in counts:
            digits.append(number % (count + 1))
            number //= count + 1
        mask = 1 << hub
        for leaf, g in zip(leaves, group, strict=True):
            if digits[g]:
                digits[g] -= 1
                mask |= 1 << leaf
        return mask

    shape: Shape = {}
    here = len(before) - 1
    while here > 0:
        whole, inner = mask_of(here), mask_of(before[here])
        shape[whole] = sorted_inputs([inner, *(1 << i for i in bits(whole & ~inner))])
        here = before[here]
    return shape

"""The plain mjoin: one join of all streams (paper 3 §2.2).

Problem: the cheapest plan that keeps nothing but the streams' windows. Method: the best probe order of every input.
Guarantee: least memory of all plans of a connected graph, always; least CPU of all mjoins where `best_orders` is exact.
In a graph that is not connected, an mjoin per component under the root.
"""

from __future__ import annotations

from models.request import Objective
from solvers.claims import heuristic
from solvers.components import join_components
from solvers.cost import CostModel
from solvers.deadline import Deadline
from solvers.graph import bits
from solvers.probe_order import best_orders
from solvers.search import Found, Problem, make_join, point_of
from solvers.tree import Tree

__all__ = ["mjoin", "mjoin_tree"]

SPACE = "mjoins"


def mjoin_tree(model: CostModel, component: int) -> tuple[Tree, bool]:
    """The mjoin of one component, and whether its orders are proven best."""
    streams = list(bits(component))
    if len(streams) == 1:
        return streams[0], True
    orders, proven = best_orders(model, [1 << i for i in streams])
    return make_join(streams, orders), proven


def mjoin(problem: Problem, deadline: Deadline) -> Found:
    """The plain mjoin. Its search does not look at the deadline: it is polynomial, and every other search starts from it."""
    model = problem.model
    parts = [mjoin_tree(model, component) for component in model.graph.components]
    best = point_of(model, join_components(model, [tree for tree, _ in parts]))
    # At other rates other orders may be best, so least CPU today says nothing of the most headroom.
    exact = problem.objective is Objective.MIN_CPU and all(proven for _, proven in parts)
    return heuristic(problem, (best,), SPACE, ("Proven: of all mjoins none uses less CPU.",) if exact else ())

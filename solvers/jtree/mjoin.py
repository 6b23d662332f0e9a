"""The plain mjoin: one join of all streams (paper 3 §2.2).

Problem: the cheapest plan that keeps nothing but the streams' windows. Method: the best probe order of every input.
Guarantee: least memory of all plans of a connected graph, always; least CPU of all mjoins where `best_orders` is exact.
In a graph that is not connected, an mjoin per component under the root.
"""

from __future__ import annotations

from models.request import Objective
from solvers.common.deadline import NEVER, Deadline
from solvers.jtree.claims import heuristic
from solvers.jtree.components import join_components
from solvers.jtree.orders import best_orders
from solvers.jtree.search import Found, Problem, make_join
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.point import point_of
from solvers.model.tree import Tree

__all__ = ["mjoin", "mjoin_tree"]

SPACE = "mjoins"
ORDERING = 0.3  # of the time limit


def mjoin_tree(model: CostModel, component: int, deadline: Deadline = NEVER) -> tuple[Tree, bool]:
    """The mjoin of one component, and whether its orders are proven best."""
    streams = list(bits(component))
    if len(streams) == 1:
        return streams[0], True
    orders, proven = best_orders(model, [1 << i for i in streams], deadline)
    return make_join(streams, orders), proven


def mjoin(problem: Problem, deadline: Deadline) -> Found:
    """The plain mjoin. A wide one takes longer to price and write than to order, so only a part of the time is for the orders."""
    model, (probes, *rest) = problem.model, problem.model.graph.widest()
    writing = deadline.before_writing(2 * probes, *rest)
    ordering = writing.share(ORDERING)
    parts = [mjoin_tree(model, component, ordering) for component in model.graph.components]
    best = point_of(model, join_components(model, [tree for tree, _ in parts]))
    # As rates grow other orders may become best, so the mjoin of least CPU need not be the one with the most headroom.
    proven = all(exact for _, exact in parts)
    notes = ("Proven: of all mjoins none uses less CPU.",) if proven and problem.objective is Objective.MIN_CPU else ()
    return heuristic(problem, (best,), SPACE, ordering, notes, complete=proven)

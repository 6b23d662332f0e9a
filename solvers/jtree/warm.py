"""Compile every kernel before anyone waits for it.

`python -m solvers.jtree.warm` fills numba's cache on disk at installation; a server calls `warm()` before it reports ready,
which then only loads what is cached.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import import_module
from itertools import combinations, pairwise

import numpy as np

from models.request import Costs, Method, Objective
from solvers.common.deadline import Deadline
from solvers.jtree.anytime import anytime
from solvers.jtree.cheapest_first import cheapest
from solvers.jtree.compiled.binary_tree import best_binary_tree
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.linearised import linearised
from solvers.jtree.compiled.orders import best_mjoin_orders
from solvers.jtree.compiled.sets import list_connected
from solvers.jtree.exact import exact, frontier_search
from solvers.jtree.partials import join_costs, least_cpu_of_all
from solvers.jtree.registry import module_of
from solvers.jtree.search import Problem
from solvers.jtree.star import best_of_star
from solvers.jtree.with_caches import least_with_caches
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import Edge, JoinGraph
from solvers.model.point import Caps

__all__ = ["SMALL", "load_libraries", "warm"]

SMALL = 8  # streams of a graph whose exact search ends in milliseconds
WIDE = 15  # streams of an mjoin that is too wide for the small table of unions
DENSE = 13  # streams of a clique with so many connected sets that a few of them are searched first
QUICK = 0.01  # seconds' worth of work of a search that uses whatever it is given
ENOUGH = 10.0  # seconds for each search below, compiling not counted; none takes one second


def _graph(pairs: Sequence[tuple[int, int]]) -> JoinGraph:
    """A graph with these predicates and an observed sub-join: every kernel has something to do."""
    n = 1 + max(right for _, right in pairs)
    rates = tuple(10.0 * (i + 1) for i in range(n))
    return JoinGraph(
        names=tuple(f"s{i}" for i in range(n)),
        rates=rates,
        window_seconds=(1.0,) * n,
        window_tuples=rates,
        row_windows=(False,) * n,
        tuple_bytes=(100.0,) * n,
        edges=tuple(Edge(left, right, True, 0.01) for left, right in pairs),
        observed=((0b11, 0.02),),
    )


def _attributes(graph: JoinGraph) -> Attributes:
    """One attribute a stream, which every predicate compares: its values come often enough for partial results to count for less."""
    sides = tuple(((edge.left, "k"), (edge.right, "k"), True) for edge in graph.edges)
    return Attributes(graph, sides, {(i, "k"): 5.0 for i in range(len(graph))})


LIBRARIES = (
    "networkx",
    "ortools.graph.python.max_flow",
    "ortools.linear_solver.pywraplp",
    "ortools.sat.python.cp_model",
    "pulp",
    "solvers.allocation.in_plans",
    "solvers.caches.together",
    *map(module_of, Method),
)
"""What searches, and the reading of SQL, import when they first need it."""


def load_libraries() -> None:
    """Import it all now: for a process that answers many requests, each of which has its time limit.

    What was imported stays, so the collector is told to look past it. A plan of 200 streams is so many objects that it looks through everything
    there is several times while one is written, a tenth of a second each with the libraries among it.
    """
    for name in LIBRARIES:
        import_module(name)
    gc.collect()
    gc.freeze()


@cache
def warm(large: bool = True) -> None:
    """Run each kernel once on a small graph; without `large` only those that an exact search of up to SMALL streams needs."""
    for n in (4, WIDE) if large else (4,):
        model = CostModel(_graph(list(pairwise(range(n)))), Costs())
        frontier_search(Problem(model), Deadline.after(ENOUGH))
        exact(Problem(model, Caps(1.0, 1e6), Objective.MAX_HEADROOM), Deadline.after(ENOUGH))
        if n <= SMALL:
            attributes = _attributes(model.graph)
            least_cpu_of_all(model, attributes, math.inf, Deadline.after(ENOUGH))
            costs = join_costs(model, attributes)
            assert costs is not None
            costs.excess([0b1, 0b10, 0b1100], with_caches=True)
            costs.kept(0b11)
            costs.orders([0b1, 0b10, 0b1100])
            costs.cache_could_pay([0b1, 0b10, 0b1100])
        if large:
            best_mjoin_orders(model, model.graph.all)
            best_binary_tree(model, model.graph.all)
            anytime(Problem(model, Caps(1.0, 1e6)), Deadline.after(ENOUGH))
            linearised(model, range(n))
    if large:
        dense = CostModel(_graph(list(combinations(range(DENSE), 2))), Costs())
        exact(Problem(dense), Deadline.after(ENOUGH))
        star = CostModel(replace(_graph([(0, i) for i in range(1, SMALL)]), observed=()), Costs())
        best_of_star(star, Deadline.after(ENOUGH))
        quick = replace(Deadline.after(ENOUGH), granted=QUICK)
        cheapest(Ledger(star), 1.0, quick)
        least_with_caches(star, _attributes(star.graph), 1.0, quick)
        list_connected(np.zeros(1, np.int64), 1)


if __name__ == "__main__":
    warm()

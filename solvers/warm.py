"""Compile every kernel before anyone waits for it.

`python -m solvers.warm` fills numba's cache on disk at installation; a server calls `warm()` before it reports ready,
which then only loads what is cached.
"""

from __future__ import annotations

from models.request import Costs
from solvers.cost import CostModel
from solvers.graph import Edge, JoinGraph
from solvers.kernels import best_binary_tree, best_mjoin_orders

__all__ = ["warm"]


def _small_graph() -> JoinGraph:
    """Four streams in a chain, with an observed sub-join: every kernel has something to do."""
    rates = (10.0, 20.0, 30.0, 40.0)
    return JoinGraph(
        names=("a", "b", "c", "d"),
        rates=rates,
        window_seconds=(1.0,) * 4,
        window_tuples=rates,
        row_windows=(False,) * 4,
        tuple_bytes=(100.0,) * 4,
        edges=tuple(Edge(i, i + 1, True, 0.1) for i in range(3)),
        observed=((0b11, 0.2),),
    )


def warm() -> None:
    """Run each kernel once on a tiny graph."""
    graph = _small_graph()
    model = CostModel(graph, Costs())
    best_mjoin_orders(model, graph.all)
    best_binary_tree(model, graph.all)


if __name__ == "__main__":
    warm()

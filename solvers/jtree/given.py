"""The join tree that a plan document describes."""

from __future__ import annotations

from collections.abc import Sequence

from models.plan import Operator, OperatorShape
from solvers.jtree.orders import best_orders
from solvers.jtree.search import Problem, make_join
from solvers.model.graph import JoinGraph
from solvers.model.tree import Tree, leaf_mask

__all__ = ["tree_of"]


def tree_of(problem: Problem, operators: Sequence[OperatorShape] | Sequence[Operator]) -> Tree:
    """The tree that validated operators describe; an input without a pipeline gets its best probe order."""
    graph: JoinGraph = problem.model.graph
    trees: dict[str, Tree] = {name: i for i, name in enumerate(graph.names)}
    tree: Tree = 0
    for operator in operators:
        inputs = [trees[name] for name in operator.inputs]
        given = {pipeline.input: [probe.target for probe in pipeline.probes] for pipeline in operator.pipelines}
        best = best_orders(problem.model, [leaf_mask(child) for child in inputs])[0] if len(given) < len(inputs) else ()
        orders = [
            [operator.inputs.index(target) for target in given[name]] if name in given else list(best[k]) for k, name in enumerate(operator.inputs)
        ]
        tree = trees[operator.id] = make_join(inputs, orders)
    return tree

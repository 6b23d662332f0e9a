"""The join tree that a plan document describes."""

from __future__ import annotations

from collections.abc import Sequence

from models.plan import Operator, OperatorShape
from models.table import TableAccess, TableShape
from solvers.common.errors import BindError
from solvers.jtree.orders import best_orders
from solvers.jtree.search import Problem, make_join
from solvers.jtree.tables.joins import likely_orders, likely_ways
from solvers.model.graph import JoinGraph, bits
from solvers.model.probe_order import Orders
from solvers.model.tree import Asked, Tree, leaf_mask

__all__ = ["tree_of"]


def tree_of(
    problem: Problem, operators: Sequence[OperatorShape] | Sequence[Operator], tables: Sequence[TableShape] | Sequence[TableAccess] = ()
) -> Tree:
    """The tree of validated operators; an input without a pipeline gets its best probe order, a table that is not named its best access."""
    graph: JoinGraph = problem.model.graph
    trees: dict[str, Tree] = {name: i for i, name in enumerate(graph.names)}
    tree: Tree = 0
    for operator in operators:
        inputs = [trees[name] for name in operator.inputs]
        blocks = [leaf_mask(child) for child in inputs]
        given = {pipeline.input: [probe.target for probe in pipeline.probes] for pipeline in operator.pipelines}
        asked = _asked(problem, blocks, tables, operator.id) if graph.tables else ()
        flowing = sum(block & ~graph.tables != 0 for block in blocks)
        best = _best_orders(problem, blocks, asked, operator.id) if len(given) < flowing else ()
        orders = [
            [operator.inputs.index(target) for target in given[name]] if name in given else list(best[k]) if best else []
            for k, name in enumerate(operator.inputs)
        ]
        tree = trees[operator.id] = make_join(inputs, orders, asked)
    return tree


def _best_orders(problem: Problem, blocks: Sequence[int], asked: Asked, name: str) -> Orders:
    if not problem.model.graph.tables:
        return best_orders(problem.model, blocks)[0]
    orders = likely_orders(problem.model, blocks, asked)
    if orders is None:
        raise BindError(f"no order of {name}'s probes can bind the indexes that it asks", "/operators")
    return orders


def _asked(problem: Problem, blocks: Sequence[int], tables: Sequence[TableShape] | Sequence[TableAccess], name: str) -> Asked:
    """Which of a join's tables are asked: as named, and otherwise as takes the least CPU."""
    graph = problem.model.graph
    wanted = {
        table: place
        for entry in tables
        for table in bits(graph.tables)
        for place, offer in enumerate(graph.offers[table])
        if graph.names[table] == entry.name and sorted(offer.bound) == sorted(entry.bound)
    }
    here = [block.bit_length() - 1 for block in blocks if not block & ~graph.tables]
    if all(table in wanted for table in here):
        return tuple((table, wanted[table]) for table in here if not graph.offers[table][wanted[table]].kept)
    for way in likely_ways(problem.model, blocks):
        chosen = dict(way.asked)
        if all(table not in wanted or graph.offers[table][wanted[table]].kept != (table in chosen) for table in here) and all(
            chosen.get(table, wanted.get(table)) == wanted.get(table, chosen.get(table)) for table in here
        ):
            return way.asked
    raise BindError(f"no order of {name}'s probes can bind the indexes that it asks", "/operators")

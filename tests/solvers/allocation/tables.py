"""A plan's paths step by step: what `solvers.allocation.productivity` sums up, for tests to compare it with."""

from __future__ import annotations

from models.request import Costs
from solvers.allocation.productivity import Path, Step, path_of_steps
from solvers.model.cost import PricedTree
from solvers.model.graph import JoinGraph
from solvers.model.tree import leaf_mask

__all__ = ["tables_of"]


def tables_of(graph: JoinGraph, costs: Costs | None, priced: PricedTree) -> list[Path]:
    """The paths of a plan, with operators named by the streams below them; without costs the resource is probes."""
    entering: dict[int, tuple[int, int]] = {}
    for number, node in enumerate(priced.nodes):
        for k, child in enumerate(node.inputs):
            entering[leaf_mask(child)] = (number, k)
    paths = []
    for i in range(len(graph)):
        steps: list[Step] = []
        covers: dict[str, float] = {}
        block, window = 1 << i, graph.window_tuples[i]
        while block in entering:
            number, k = entering[block]
            node, join = priced.nodes[number], priced.joins[number]
            operator, visited = graph.label(node.mask), block
            for position, probe in enumerate(join.pipelines[k].probes):
                target = join.blocks[probe.target]
                before, after = graph.size(visited), graph.size(visited | target)
                ratio = after / before if before > 0.0 else 0.0
                cost = 1.0
                if costs is not None:
                    cost = costs.probe + ratio * costs.join + (0.0 if probe.hashed else costs.scan * graph.size(target))
                    if position == 0 and block.bit_count() > 1:
                        cost += costs.insert + costs.delete if join.states[k].indexed else costs.append
                pairs = before * graph.size(target)
                steps.append(Step(ratio, cost, operator, after / pairs if pairs > 0.0 else 0.0))
                visited |= target
            block = node.mask
            if number < len(priced.nodes) - 1:
                covers[operator] = graph.size(block) / window
        paths.append(path_of_steps(graph.names[i], graph.rates[i], steps, covers))
    return paths

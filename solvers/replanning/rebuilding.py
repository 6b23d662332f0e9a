"""What a change of the join tree has to build: the subresults that the new plan keeps and the running one does not.

Problem: a newly kept subresult is made from the states of its inputs, once, and that takes CPU. Method: all tuples of one input are sent through that
input's pipeline of the join, which costs what the pipeline costs per second over the new tuples a second per live tuple; the cheapest
input is taken; then every tuple made is put into the new state. Guarantee: the cost model's figure, inputs that are built too counted on their own.
Complexity: linear in the new plan's probes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from models.plan import Operator
from models.replan import Rebuild
from solvers.model.graph import JoinGraph, bits
from solvers.model.tree import leaf_mask
from solvers.replanning.ways import Priced

__all__ = ["Building", "building", "rebuilt"]


@dataclass(frozen=True, slots=True)
class Building:
    """States to build, by their sets of streams, and what that takes."""

    states: tuple[int, ...]
    cpu_seconds: float


def building(plan: Priced, kept: set[int]) -> Building:
    """What has to be built for this plan where the subresults in `kept` are there already."""
    model, priced = plan.problem.model, plan.tree
    costs = model.costs
    indexed = {block: join.states[k].indexed for join in priced.joins for k, block in enumerate(join.blocks)}
    states, seconds = [], []
    for node, join in zip(priced.nodes[:-1], priced.joins[:-1], strict=True):
        if node.mask in kept:
            continue
        passes = [
            math.fsum(probe.cpu for probe in pipeline.probes) / model.per_second(leaf_mask(child))
            for child, pipeline in zip(node.inputs, join.pipelines, strict=True)
            if pipeline.probes
        ]
        states.append(node.mask)
        seconds += [min(passes), priced.sizes[node.mask] * (costs.insert if indexed[node.mask] else costs.append)]
    return Building(tuple(states), math.fsum(seconds))


def rebuilt(work: Building, operators: Sequence[Operator], graph: JoinGraph) -> list[Rebuild]:
    """The states to build, on the wire."""
    named = {tuple(sorted(graph.names[i] for i in bits(mask))) for mask in work.states}
    return [
        Rebuild(operator=operator.id, tuples=operator.state_tuples, bytes=operator.state_bytes)
        for operator in operators
        if tuple(operator.streams) in named and operator.materialized
    ]

"""Keeping answers: caches of what the index of a table returned (paper 5: a state module on an index, with negative answers too).

A table does not change while a plan runs, so its answers need no upkeep: a cache of one probe, looked up by the key that the table would be asked
by. It saves what asking costs for every key that is met again, and holds an entry for each key, with rows or without. Figures are those of every
cache (`figures`): of a key's D values in a window of T seconds, D/T a second are new and have to be asked for. Where a table that is kept gives the
key, it has no more than its D values ever, and all of them are soon known.

Guarantee: every probe of an asked table that can be looked up by key. Complexity: linear in the probes of a join.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from solvers.caches.candidates import CacheCandidate, Pipelines, candidate
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph

__all__ = ["answer_candidates", "as_if_known"]


def answer_candidates(model: CostModel, attributes: Attributes, pipelines: Pipelines) -> Iterator[CacheCandidate]:
    """A candidate for every probe of a join that asks a table."""
    join = pipelines.join
    for k, pipeline in enumerate(join.pipelines):
        for step, probe in enumerate(pipeline.probes):
            if probe.asked:
                found = candidate(model, attributes, pipelines, k, step, step, join.blocks[probe.target])
                if found is not None:
                    yield found


def as_if_known(model: CostModel) -> CostModel:
    """The model in which every answer is known already and is looked up as in a state: no plan that keeps answers needs less CPU or memory than
    the same plan does there."""
    graph: JoinGraph = model.graph
    known = tuple(tuple(replace(offer, cpu=min(offer.cpu, model.costs.probe)) for offer in offers) for offers in graph.offers)
    return CostModel(replace(graph, offers=known), model.costs, model.choices)

"""What the caches of a given plan save, cost and hold under another request or cost model.

Problem: a plan document names its caches by operator, input and steps, with figures of its day. Method: each is made a
candidate of today's priced join (`candidates.candidate`, which knows paper 1's formulas) and counted once; caches that share entries
pay for them once. Guarantee: for a plan made today, the figures it has, but for the rounding of a sum; a cache that
could not be looked up any more is refused. Complexity: linear in the number of caches.
"""

from __future__ import annotations

import math
from dataclasses import replace

from models.fingerprint import fingerprint
from models.plan import Cache, EstimateRequest, Plan
from solvers.caches.candidates import CacheCandidate, GroupKey, Pipelines, candidate
from solvers.common.errors import ShapeError
from solvers.estimate import tree_of
from solvers.planner import problem_of

__all__ = ["with_given_caches"]


def with_given_caches(request: EstimateRequest, priced: Plan, given: Plan) -> Plan:
    """`priced` (the estimate of the plan's operators) with the caches of `given`. Raises ShapeError."""
    if not given.caches:
        return priced
    problem = problem_of(request)
    model, graph = problem.model, problem.model.graph
    tree = model.price(tree_of(problem, request.operators))
    attributes = problem.attributes
    position = {name: i for i, name in enumerate(graph.names)}
    joins = {frozenset(operator.streams): number for number, operator in enumerate(priced.operators)}
    below = {operator.id: frozenset(operator.streams) for operator in given.operators}
    held: dict[tuple[int, GroupKey], float] = {}
    updates: dict[tuple[int, GroupKey], float] = {}
    caches: list[Cache] = []
    for cache in given.caches:
        try:
            number = joins[below[cache.operator]]
            join = tree.joins[number]
            k = join.blocks.index(sum(1 << position[name] for name in below.get(cache.input, {cache.input})))
            kept = sum(1 << position[name] for name in {*cache.streams, *cache.semijoin})
            found = candidate(model, attributes, Pipelines.of(join), k, cache.first, cache.last, kept)
        except (IndexError, KeyError, ValueError):
            raise ShapeError(f"{cache.id} is on no pipeline of this plan", "/caches") from None
        if found is None:
            raise ShapeError(f"{cache.id} can no longer be looked up by {', '.join(cache.key)}", "/caches")
        if 0.0 < cache.entries < found.figures.entries:  # the plan gave it memory for fewer entries than it could use today
            found = replace(found, figures=found.figures.with_share(model, cache.entries / found.figures.entries))
        group = (number, found.group)
        caches.append(_on_the_wire(cache, found, priced.operators[number].id, first=group not in updates))
        updates[group] = found.figures.update
        held[group] = max(held.get(group, 0.0), found.figures.memory_bytes)
    saves = math.fsum(cache.saves for cache in caches)
    cost = priced.cost.model_copy(
        update={
            "cpu": priced.cost.cpu - saves + math.fsum(updates.values()),
            "memory_bytes": priced.cost.memory_bytes + math.fsum(held.values()),
        }
    )
    caps = request.resources
    qualified = (caps.cpu is None or cost.cpu <= caps.cpu) and (caps.memory_bytes is None or cost.memory_bytes <= caps.memory_bytes)
    return priced.model_copy(
        update={
            "cost": cost,
            "caches": caches,
            "qualified": qualified,
            "fingerprint": fingerprint(graph.names, priced.operators, caches),
            "allocation": None if qualified else priced.allocation,
            "shortfall": None if qualified else priced.shortfall,
            # These two were computed without caches and do not hold with them.
            "headroom": None,
            "validity": [],
        }
    )


def _on_the_wire(cache: Cache, found: CacheCandidate, operator: str, first: bool) -> Cache:
    figures = found.figures
    return cache.model_copy(
        update={
            "operator": operator,
            "miss_probability": figures.miss_probability,
            "saves": figures.benefit,
            "costs": figures.update if first else 0.0,
            "entries": figures.entries,
            "memory_bytes": figures.memory_bytes if first else 0.0,
        }
    )

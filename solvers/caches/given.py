"""What the caches of a given plan save, cost and hold under another request or cost model.

Problem: a plan document names its caches by operator, input and steps, with figures of its day. Method: each is made a
candidate of today's priced join (`candidates.candidate`, which knows paper 1's formulas), and `cached_plan` adds them up. A cache that had a
share of the memory that it could have used is given the same share today. Guarantee: for a plan made today, the figures it has; a cache that
could not be looked up any more is refused. Complexity: linear in the number of caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from models.plan import Plan
from solvers.caches.cached_plan import CachedPlan, cached_plan
from solvers.caches.candidates import CacheCandidate, Pipelines, candidate
from solvers.common.errors import ShapeError
from solvers.common.tolerances import ROUNDED_DOWN
from solvers.jtree.given import tree_of
from solvers.jtree.search import Problem
from solvers.model.cost import PricedTree

__all__ = ["Place", "cached_at", "places_of"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cache stands, by sets of streams, so that it is found in any pricing of the same tree."""

    join: int
    """The join whose pipeline it shortens."""
    arriving: int
    """The input whose pipeline that is."""
    first: int
    last: int
    kept: int
    """The join whose new tuples keep its entries up to date."""
    share: float = 1.0
    """Of the memory that it could use."""
    name: str = ""
    """What its plan calls it, for messages."""

    @classmethod
    def of(cls, cached: CachedPlan) -> tuple[Place, ...]:
        """The places of a plan's caches."""
        found = []
        for number, chosen in enumerate(cached.chosen, 1):
            join, c = cached.priced.joins[chosen.join], chosen.candidate
            mask = cached.priced.nodes[chosen.join].mask
            found.append(cls(mask, join.blocks[c.pipeline], c.first, c.last, c.kept, c.share, f"cache-{number}"))
        return tuple(found)


_Seen = dict[int, Pipelines]
"""The joins of a priced tree by their positions, each looked at once for all of its caches."""


def places_of(plan: Plan, problem: Problem) -> tuple[Place, ...]:
    """The places of a document's caches; `problem` is the one that the document answers. Raises ShapeError."""
    names = problem.model.graph.names
    priced = problem.model.price(tree_of(problem, plan.operators, plan.tables))
    pipelines: _Seen = {}
    masks = {name: 1 << i for i, name in enumerate(names)}
    for operator in plan.operators:
        masks[operator.id] = sum(masks[name] for name in operator.inputs)
    found = []
    for cache in plan.caches:
        try:
            kept = sum(masks[name] for name in {*cache.streams, *cache.semijoin})
            place = Place(masks[cache.operator], masks[cache.input], cache.first, cache.last, kept, name=cache.id)
        except KeyError as missing:
            raise ShapeError(f"{cache.id} names {missing.args[0]!r}, which this plan does not have", "/caches") from None
        entries = _candidate(problem, priced, place, pipelines)[1].figures.entries
        share = cache.entries / entries if 0.0 < cache.entries < entries * ROUNDED_DOWN else 1.0
        found.append(replace(place, share=share))
    for one, other in combinations(found, 2):
        if (one.join, one.arriving) == (other.join, other.arriving) and one.first <= other.last and other.first <= one.last:
            raise ShapeError(f"{other.name} answers a step that {one.name} answers already", "/caches")
    return tuple(found)


def cached_at(problem: Problem, priced: PricedTree, places: Sequence[Place]) -> CachedPlan:
    """The priced tree with caches in these places. Raises ShapeError."""
    uses = []
    pipelines: _Seen = {}
    for place in places:
        number, found = _candidate(problem, priced, place, pipelines)
        uses.append((number, found if place.share == 1.0 else found.with_share(problem.model, place.share)))
    return cached_plan(problem.model, problem.attributes, priced, uses)


def _candidate(problem: Problem, priced: PricedTree, place: Place, pipelines: _Seen) -> tuple[int, CacheCandidate]:
    """The position of the place's join, and the cache that could stand there with all the memory it can use."""
    number = next((number for number, node in enumerate(priced.nodes) if node.mask == place.join), None)
    join = None if number is None else priced.joins[number]
    if number is None or join is None or place.arriving not in join.blocks or not 0 <= place.first <= place.last < len(join.blocks) - 1:
        raise ShapeError(f"{place.name} is on no pipeline of this plan", "/caches")
    k = join.blocks.index(place.arriving)
    if number not in pipelines:
        pipelines[number] = Pipelines.of(join)
    found = candidate(problem.model, problem.attributes, pipelines[number], k, place.first, place.last, place.kept)
    if found is None:
        raise ShapeError(f"{place.name} can no longer be looked up by its key", "/caches")
    return number, found

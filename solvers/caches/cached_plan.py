"""A tree with caches as one plan: what the caches save, cost and hold together, on the wire and in words (paper 1; contract §3).

Caches of one join that hold the same entries (`CacheCandidate.group`) pay for them once: the first of them carries what keeping the entries costs,
and the memory is that of the one that holds the most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.plan import Cache, CacheKind
from solvers.caches.candidates import CacheCandidate, GroupKey
from solvers.common import words
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel, PricedTree, Term
from solvers.model.point import Point
from solvers.model.tree import Join, leaf_mask

__all__ = ["CachedPlan", "Chosen", "cached_plan"]


@dataclass(frozen=True, slots=True)
class Chosen:
    """One cache of a plan. Of those that share entries the first carries what keeping them costs."""

    join: int
    """Position of its join in the priced tree."""
    candidate: CacheCandidate
    group: int
    costs: float
    memory_bytes: float


@dataclass(frozen=True)
class CachedPlan:
    """A tree with caches. `priced` is the tree alone, `total` counts what the caches save, cost and hold."""

    priced: PricedTree
    total: PricedTree
    chosen: tuple[Chosen, ...]
    attributes: Attributes

    @property
    def point(self) -> Point:
        """The plan and its two resources, caches counted."""
        return Point(self.total.cpu, self.total.memory_bytes, self.priced.tree)

    def caches(self) -> list[Cache]:
        """On the wire, by operator, pipeline and step."""
        graph = self.attributes.graph
        ids = {node.mask: f"join-{number}" for number, node in enumerate(self.priced.nodes, 1)}
        result = []
        for number, cache in enumerate(self.chosen, 1):
            candidate, node = cache.candidate, self.priced.nodes[cache.join]
            child = node.inputs[candidate.pipeline]
            result.append(
                Cache(
                    id=f"cache-{number}",
                    operator=ids[node.mask],
                    input=ids[child.mask] if isinstance(child, Join) else graph.names[child],
                    first=candidate.first,
                    last=candidate.last,
                    streams=_names(graph.names, candidate.segment),
                    key=[self.attributes.name(part) for part in candidate.key.parts],
                    lookup=[self.attributes.name(part) for part in candidate.key.lookup],
                    kind=CacheKind.PREFIX if candidate.is_prefix else CacheKind.GLOBAL,
                    semijoin=_names(graph.names, candidate.kept & ~candidate.segment),
                    group=cache.group,
                    miss_probability=candidate.figures.miss_probability,
                    saves=candidate.figures.benefit,
                    costs=cache.costs,
                    entries=candidate.figures.entries,
                    memory_bytes=cache.memory_bytes,
                )
            )
        return result

    @property
    def misses(self) -> dict[tuple[int, int, int], float]:
        """By join, pipeline and step the share of tuples for which a probe is made although a cache stands there."""
        return {
            (cache.join, cache.candidate.pipeline, step): cache.candidate.figures.miss_probability
            for cache in self.chosen
            for step in range(cache.candidate.first, cache.candidate.last + 1)
        }

    def sentences(self, without: float) -> list[str]:
        """Why these caches, for a person; `without` is the CPU of the best plan without caches."""
        graph = self.attributes.graph
        result = [f"Caches bring the CPU from {words.cpu(without)} to {words.cpu(self.total.cpu)}."]
        for number, cache in enumerate(self.chosen, 1):
            candidate, figures = cache.candidate, cache.candidate.figures
            node = self.priced.nodes[cache.join]
            who = graph.label(leaf_mask(node.inputs[candidate.pipeline]))
            key = " and ".join(self.attributes.name(part) for part in candidate.key.parts)
            hits = f"{100.0 * (1.0 - figures.miss_probability):.3g} % of {words.amount(figures.lookups)} lookups/s hit"
            saves = f"saves {words.cpu(figures.benefit)} CPU"
            if cache.costs or cache.memory_bytes:
                upkeep = f"costs {words.cpu(cache.costs)} to keep and {words.bytes_(cache.memory_bytes)}"
            else:
                first = next(n for n, other in enumerate(self.chosen, 1) if other.group == cache.group)
                upkeep = f"shares the entries of cache-{first}"
            among = "" if candidate.is_prefix else f", kept for matches in {graph.label(candidate.kept & ~candidate.segment)}"
            result.append(
                f"cache-{number} answers {graph.label(candidate.segment)} for new tuples of {who} by {key}{among}: {hits}; it {saves}, {upkeep}."
            )
        return result


def _names(names: Sequence[str], mask: int) -> list[str]:
    return sorted(name for i, name in enumerate(names) if mask >> i & 1)


def cached_plan(model: CostModel, attributes: Attributes, priced: PricedTree, uses: Sequence[tuple[int, CacheCandidate]]) -> CachedPlan:
    """The priced tree with these caches, each with the position of its join; they must be such that may stand together."""
    chosen: list[Chosen] = []
    terms: list[Term] = []
    kept: list[tuple[int, float]] = []
    numbers: dict[tuple[int, GroupKey], int] = {}
    for join, candidate in uses:
        group = (join, candidate.group)
        first = group not in numbers
        number = numbers.setdefault(group, len(numbers))
        held = 0.0
        if first:
            sharing = (other for place, other in uses if (place, other.group) == group)
            largest = max(sharing, key=lambda c: c.figures.memory_bytes)
            held = largest.figures.memory_bytes
            tuples = largest.figures.tuples * model.tuple_bytes(candidate.segment)
            kept += [(candidate.segment, tuples), (0, held - tuples)]
            terms.append(Term(candidate.figures.update, candidate.kept, candidate.kept))
        terms += _terms(model, priced, join, candidate)
        chosen.append(Chosen(join, candidate, number, candidate.figures.update if first else 0.0, held))
    adjustments = tuple(term for term in terms if term.value)
    tables = model.graph.tables
    hits = [(c.segment, (1.0 - c.figures.miss_probability) * c.figures.lookups) for _, c in uses if not c.segment & ~tables]
    total = replace(
        priced,
        cpu=math.fsum([*(part for join in priced.joins for part in join.exact), *(term.value for term in adjustments)]),
        memory_bytes=math.fsum([priced.memory_bytes, *(size for _, size in kept)]),
        adjustments=adjustments,
        cached=tuple(kept),
        answered=tuple((segment.bit_length() - 1, keys) for segment, keys in hits),
    )
    return CachedPlan(priced, total, tuple(chosen), attributes)


def _terms(model: CostModel, priced: PricedTree, number: int, candidate: CacheCandidate) -> list[Term]:
    """What a cache changes in the CPU of its pipeline, as terms of the cost model, its hit probability held fixed."""
    costs, figures = model.costs, candidate.figures
    join = priced.joins[number]
    arriving, visited = join.blocks[candidate.pipeline], candidate.visited
    hit = 1.0 - figures.miss_probability
    indexes = {1 << table: model.graph.offers[table][place] for table, place in join.asked}
    terms = [Term(costs.probe * figures.lookups, visited, arriving)]
    for probe in join.pipelines[candidate.pipeline].probes[candidate.first : candidate.last + 1]:
        block = join.blocks[probe.target]
        made = visited | block
        probing = indexes[block].cpu if probe.asked else costs.probe
        terms += [Term(-hit * probing * probe.rate_in, visited, arriving), Term(-hit * costs.join * probe.rate_out, made, arriving)]
        if not probe.hashed:
            terms.append(Term(-hit * costs.scan * probe.rate_in * priced.sizes[block], visited, arriving, block))
        visited = made
    terms.append(Term((hit * costs.join + figures.miss_probability * (costs.insert + costs.delete)) * figures.results, visited, arriving))
    return terms

"""Candidate caches of one join (paper 1 §3.2, §4.4, §6).

Problem: which runs of probes of a priced join could be answered from a cache. Method: a set of inputs *obeys the prefix
invariant* when each of its pipelines visits the rest of the set first (Def. 3.2); every prefix of a pipeline is counted, and the set
is one that occurs once per member. A candidate is a run of two probes or more whose inputs are such a set Z (prefix) or lie in one
(global: the cache keeps X ⋉ Y with X ∪ Y = Z; `global_caches` says which). Caches of one join, with one key, share a group.

Guarantee: exactly the segments of the definition that can be looked up (`attributes`), in order of pipeline, first and last step.
Complexity: O(n²) sets, of which at most 2n obey the invariant; O(n) checks for each.
Departs from the paper: inputs may be subresults of a join tree; segments that no predicate holds together are left out, as
in every plan; a candidate that would skip the step at which a global cache is updated excludes that cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from solvers.caches.figures import Figures, Traffic, figures
from solvers.caches.select.program import Candidate, Program
from solvers.common.deadline import NEVER, Deadline
from solvers.model.attributes import Attributes, Key
from solvers.model.cost import CostModel, PricedJoin
from solvers.model.graph import bits

__all__ = ["CacheCandidate", "GroupKey", "Pipelines", "candidate", "prefix_candidates", "prefix_sets", "program_of", "streams_of"]

GroupKey = tuple[int, int, tuple[tuple[int, str], ...], int]


@dataclass(frozen=True, slots=True)
class CacheCandidate:
    """Probes first..last of one pipeline, answered from a cache of `segment`; sets are sets of streams."""

    pipeline: int
    first: int
    last: int
    visited: int
    segment: int
    kept: int
    """Z: the join whose new tuples keep the entries up to date."""
    key: Key
    figures: Figures
    arriving: int
    """The pipeline's input where it belongs to Z outside the segment, else 0: such entries depend on its window."""
    share: float = 1.0
    """Of the memory that it could use."""

    @property
    def is_prefix(self) -> bool:
        return self.kept == self.segment

    @property
    def group(self) -> GroupKey:
        """Same join, same key, kept alike: the same entries."""
        return self.segment, self.kept, self.key.parts, self.arriving

    def with_share(self, model: CostModel, share: float) -> CacheCandidate:
        """The same cache with a share of the memory that it could use."""
        return replace(self, figures=self.figures.with_share(model, share), share=share)


@dataclass(frozen=True)
class Pipelines:
    """A priced join seen as pipelines: `after[k][s]` are the streams visited when s probes of pipeline k are done."""

    join: PricedJoin
    after: tuple[tuple[int, ...], ...]
    inputs: tuple[tuple[int, ...], ...]
    """The same as sets of input positions."""

    @classmethod
    def of(cls, join: PricedJoin) -> Pipelines:
        after, inputs = [], []
        for k, order in enumerate(join.orders):
            streams, positions = [join.blocks[k]], [1 << k]
            for target in order:
                streams.append(streams[-1] | join.blocks[target])
                positions.append(positions[-1] | 1 << target)
            after.append(tuple(streams))
            inputs.append(tuple(positions))
        return cls(join, tuple(after), tuple(inputs))

    def replaced(self, k: int, first: int, last: int) -> float:
        return math.fsum(probe.cpu for probe in self.join.pipelines[k].probes[first : last + 1])


def prefix_sets(pipelines: Pipelines) -> list[int]:
    """The sets of two inputs or more that obey the prefix invariant, smallest first, as sets of input positions."""
    count: dict[int, int] = {}
    for reached in pipelines.inputs:
        for positions in reached[1:]:
            count[positions] = count.get(positions, 0) + 1
    return sorted((positions for positions, times in count.items() if times == positions.bit_count()), key=lambda s: (s.bit_count(), s))


def streams_of(join: PricedJoin, positions: int) -> int:
    mask = 0
    for k in bits(positions):
        mask |= join.blocks[k]
    return mask


def candidate(model: CostModel, attributes: Attributes, pipelines: Pipelines, k: int, first: int, last: int, kept: int) -> CacheCandidate | None:
    """The candidate over probes first..last of pipeline k, kept up to date from the join of `kept`; None where there is none."""
    join = pipelines.join
    visited, reached = pipelines.after[k][first], pipelines.after[k][last + 1]
    segment = reached & ~visited
    probes = join.pipelines[k].probes
    lookups, results = probes[first].rate_in, probes[last].rate_out
    if not lookups > 0.0 or not math.isfinite(results) or not model.graph.connected(segment):
        return None
    key = attributes.key(visited, segment)
    if key is None:
        return None
    arriving = join.blocks[k] if kept & join.blocks[k] else 0
    if arriving and (key := attributes.read_from(key, arriving, kept & ~arriving)) is None:
        return None
    priced = figures(model, attributes, key, Traffic(lookups, results, pipelines.replaced(k, first, last)), segment, kept)
    if not all(map(math.isfinite, (priced.replaced, priced.proc, priced.update, priced.memory_bytes))):
        return None
    return CacheCandidate(k, first, last, visited, segment, kept, key, priced, arriving)


def prefix_candidates(model: CostModel, attributes: Attributes, pipelines: Pipelines, deadline: Deadline = NEVER) -> list[CacheCandidate]:
    """Every candidate under the prefix invariant; those of few inputs alone where time runs out."""
    found: list[CacheCandidate] = []
    places = [{target: s for s, target in enumerate(order)} for order in pipelines.join.orders]
    for positions in prefix_sets(pipelines):
        if deadline.expired():
            break
        members = list(bits(positions))
        for k in range(len(places)):
            if positions >> k & 1:
                continue
            steps = [places[k][target] for target in members]
            first, last = min(steps), max(steps)
            if last - first + 1 == len(members):
                if deadline.expired():
                    return sorted(found, key=lambda c: (c.pipeline, c.first, c.last))
                made = candidate(model, attributes, pipelines, k, first, last, streams_of(pipelines.join, positions))
                if made is not None:
                    found.append(made)
    return sorted(found, key=lambda c: (c.pipeline, c.first, c.last))


def program_of(pipelines: Pipelines, candidates: Iterable[CacheCandidate], memory_bytes: float) -> tuple[Program, list[GroupKey]]:
    """The selection problem that candidates of one join pose, and its groups."""
    listed = list(candidates)
    nested = all(c.is_prefix for c in listed)
    groups = sorted({c.group for c in listed})
    number = {group: g for g, group in enumerate(groups)}
    updates = {c.group: c.figures.update for c in listed}
    return (
        Program(
            tuple(tuple(probe.cpu for probe in pipeline.probes) for pipeline in pipelines.join.pipelines),
            tuple(
                Candidate(
                    c.pipeline,
                    c.first,
                    c.last,
                    number[c.group],
                    c.figures.proc,
                    c.figures.memory_bytes,
                    frozenset() if nested else _excluded(pipelines, c, groups, number),
                )
                for c in listed
            ),
            tuple(updates[group] for group in groups),
            memory_bytes,
        ),
        groups,
    )


def _excluded(pipelines: Pipelines, c: CacheCandidate, groups: list[GroupKey], number: dict[GroupKey, int]) -> frozenset[int]:
    """Groups whose update step in this pipeline a hit would jump over: Z is complete strictly inside the segment."""
    skipped = set(pipelines.after[c.pipeline][c.first + 1 : c.last + 1])
    return frozenset(number[group] for group in groups if group[1] in skipped)

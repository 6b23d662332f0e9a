"""The cache selection problem as data (paper 1 §4.4 and App. B).

Every operator of every pipeline is covered exactly once: by a chosen candidate whose segment it lies in, or by itself
(the paper's cache of zero length). A choice costs

    Σ proc(chosen) + Σ operators left to themselves + Σ update cost of the groups in use, each once

and needs, for each group in use, the memory of its largest chosen member. A candidate may exclude groups: it
skips a step at which they would be kept up to date. Only globally-consistent caches do (`global_caches`).

A choice is a sorted tuple of candidate positions. `math.fsum` makes its price independent of any order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

__all__ = ["Candidate", "Choice", "Program", "Selection", "Trail", "cheapest_cover"]

Choice = tuple[int, ...]
"""Positions of the chosen candidates, ascending."""

Trail = tuple[float, Choice]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cache that could answer operators first..last of one pipeline."""

    pipeline: int
    first: int
    last: int
    group: int
    proc: float
    memory_bytes: float = 0.0
    excludes: frozenset[int] = frozenset()

    @property
    def length(self) -> int:
        """Operators that it covers."""
        return self.last - self.first + 1


@dataclass(frozen=True)
class Program:
    """Pipelines, candidates, groups, and the memory for caches."""

    operator_costs: tuple[tuple[float, ...], ...]
    candidates: tuple[Candidate, ...]
    update_costs: tuple[float, ...]
    """By group."""
    memory_bytes: float = math.inf

    @cached_property
    def operators(self) -> int:
        return sum(len(costs) for costs in self.operator_costs)

    @cached_property
    def cost_without_caches(self) -> float:
        return math.fsum(cost for costs in self.operator_costs for cost in costs)

    @cached_property
    def replaced(self) -> tuple[float, ...]:
        """For each candidate, what the operators cost that it replaces."""
        return tuple(math.fsum(self.operator_costs[c.pipeline][c.first : c.last + 1]) for c in self.candidates)

    @cached_property
    def members(self) -> tuple[Choice, ...]:
        """For each group its candidates."""
        found: list[list[int]] = [[] for _ in self.update_costs]
        for i, candidate in enumerate(self.candidates):
            found[candidate.group].append(i)
        return tuple(tuple(group) for group in found)

    @cached_property
    def by_pipeline(self) -> tuple[Choice, ...]:
        """For each pipeline its candidates, by last operator."""
        found: list[list[int]] = [[] for _ in self.operator_costs]
        for i, candidate in enumerate(self.candidates):
            found[candidate.pipeline].append(i)
        return tuple(tuple(sorted(group, key=lambda i: (self.candidates[i].last, i))) for group in found)

    @cached_property
    def useful(self) -> Choice:
        """The candidates that an optimum may need: cheaper than what they replace, within the memory, of a group that can pay."""
        saving = [
            replaced - c.proc if c.memory_bytes <= self.memory_bytes else 0.0 for c, replaced in zip(self.candidates, self.replaced, strict=True)
        ]
        pays = [math.fsum(saving[i] for i in group if saving[i] > 0.0) > cost for group, cost in zip(self.members, self.update_costs, strict=True)]
        return tuple(i for i, c in enumerate(self.candidates) if saving[i] > 0.0 and pays[c.group])

    def cost(self, choice: Iterable[int]) -> float:
        """The total cost of a choice that does not overlap."""
        return math.fsum(self.parts(choice))

    def parts(self, choice: Iterable[int]) -> list[float]:
        """What the cost of a choice is the sum of."""
        covered: list[set[int]] = [set() for _ in self.operator_costs]
        parts: list[float] = []
        groups = set()
        for i in choice:
            candidate = self.candidates[i]
            covered[candidate.pipeline].update(range(candidate.first, candidate.last + 1))
            parts.append(candidate.proc)
            groups.add(candidate.group)
        parts += [cost for p, costs in enumerate(self.operator_costs) for o, cost in enumerate(costs) if o not in covered[p]]
        parts += [self.update_costs[g] for g in groups]
        return parts

    def parts_beyond(self, members: Iterable[int], group: int) -> list[float]:
        """What is added to the parts of a choice that leaves out all of its members of a group."""
        parts = [-self.update_costs[group]]
        for i in members:
            candidate = self.candidates[i]
            parts += [-candidate.proc, *self.operator_costs[candidate.pipeline][candidate.first : candidate.last + 1]]
        return parts

    def memory(self, choice: Iterable[int]) -> dict[int, float]:
        """Bytes by chosen candidate: the largest of a group (of equals the first) carries them, the others 0."""
        largest: dict[int, int] = {}
        bytes_of = {}
        for i in sorted(choice):
            candidate = self.candidates[i]
            bytes_of[i] = 0.0
            if candidate.group not in largest or candidate.memory_bytes > self.candidates[largest[candidate.group]].memory_bytes:
                largest[candidate.group] = i
        for i in largest.values():
            bytes_of[i] = self.candidates[i].memory_bytes
        return bytes_of

    def fits(self, choice: Iterable[int]) -> bool:
        return math.fsum(self.memory(choice).values()) <= self.memory_bytes

    def feasible(self, choice: Sequence[int]) -> bool:
        """No operator is covered twice, nothing excluded is used, and the memory is enough."""
        return self.compatible(choice) and self.fits(choice)

    def compatible(self, choice: Sequence[int]) -> bool:
        """No operator is covered twice, and nothing excluded is used."""
        return len(self.compatible_part(choice)) == len(choice)

    def compatible_part(self, choice: Sequence[int]) -> Choice:
        """The choice without the candidates that do not go with one before them."""
        kept: list[int] = []
        covered: set[tuple[int, int]] = set()
        groups: set[int] = set()
        excluded: set[int] = set()
        for i in choice:
            candidate = self.candidates[i]
            steps = {(candidate.pipeline, o) for o in range(candidate.first, candidate.last + 1)}
            clashes = candidate.group in excluded or candidate.group in candidate.excludes or not candidate.excludes.isdisjoint(groups)
            if clashes or not steps.isdisjoint(covered):
                continue
            kept.append(i)
            covered |= steps
            groups.add(candidate.group)
            excluded |= candidate.excludes
        return tuple(kept)

    def without_cap(self) -> Program:
        return replace(self, memory_bytes=math.inf)


@dataclass(frozen=True, slots=True)
class Selection:
    """A feasible choice, its cost, and a proven lower bound of any choice's cost (None: nothing is proven)."""

    choice: Choice
    cost: float
    bound: float | None
    optimal: bool


def cheapest_cover(program: Program, pipeline: int, charge: Sequence[float]) -> Trail:
    """The cheapest way to cover one pipeline where candidate i costs charge[i] (infinity: not to be used), in O(m).

    Left to right, `best[o]` is the cheapest cover of the first o operators: this is the recursion of Theorem 4.1, which
    needs no tree and so serves segments that cross as well. Ties go to fewer caches.
    """
    costs = program.operator_costs[pipeline]
    best: list[tuple[float, int]] = [(0.0, 0)]
    back: list[int] = [-1]
    waiting = iter(program.by_pipeline[pipeline])
    candidate = next(waiting, None)
    for o, cost in enumerate(costs):
        value, used = best[o]
        here, via = (value + cost, used), -1
        while candidate is not None and program.candidates[candidate].last == o:
            before, count = best[program.candidates[candidate].first]
            if charge[candidate] < math.inf and (before + charge[candidate], count + 1) < here:
                here, via = (before + charge[candidate], count + 1), candidate
            candidate = next(waiting, None)
        best.append(here)
        back.append(via)
    chosen, o = [], len(costs)
    while o:
        via = back[o]
        if via >= 0:
            chosen.append(via)
        o = program.candidates[via].first if via >= 0 else o - 1
    return best[-1][0], tuple(sorted(chosen))

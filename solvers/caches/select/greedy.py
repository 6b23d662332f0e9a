"""Cache selection by the greedy cost-rate cover (paper 1 App. B).

Problem: the cheapest choice of a `Program`. Method: the cost-rate of a group is the least of (update cost + Σ proc) per
operator newly covered, over subsets of its members; the best subset is a prefix of the members by proc per operator.
Take the group (or single operator) of least cost-rate, again and again, until every operator is covered; of caches that
overlap in the end, the one that covers the most stays.

Guarantee: at most H_k = 1 + 1/2 + … + 1/k times the optimum for k operators, where segments nest, nothing is
excluded and no memory cap binds; always feasible. Complexity: O(k · m log m).
Departs from the paper: a group taken once is not charged again, and what would break the cap or an exclusion is passed
over; neither costs the guarantee anything where it holds.
"""

from __future__ import annotations

import math

from solvers.caches.select.program import Choice, Program, Selection

__all__ = ["greedy", "without_overlaps"]


def without_overlaps(program: Program, choice: Choice) -> Choice:
    """Of candidates that overlap, the one that covers the most operators (of equals the first) stays."""
    kept: list[int] = []
    taken: set[tuple[int, int]] = set()
    for i in sorted(choice, key=lambda i: (-program.candidates[i].length, i)):
        candidate = program.candidates[i]
        steps = {(candidate.pipeline, o) for o in range(candidate.first, candidate.last + 1)}
        if not steps & taken:
            taken |= steps
            kept.append(i)
    return tuple(sorted(kept))


def greedy(program: Program) -> Selection:
    """A feasible choice, within H_k of the optimum where the guarantee holds."""
    uncovered = {(p, o) for p, costs in enumerate(program.operator_costs) for o in range(len(costs))}
    held: dict[int, float] = {}
    choice: list[int] = []
    while uncovered:
        rate, group, members = _cheapest_group(program, uncovered, held, choice)
        own_rate, step = min((program.operator_costs[p][o], (p, o)) for p, o in uncovered)
        if group < 0 or own_rate <= rate:
            uncovered.discard(step)
            continue
        for i in members:
            candidate = program.candidates[i]
            uncovered.difference_update((candidate.pipeline, o) for o in range(candidate.first, candidate.last + 1))
            held[group] = max(held.get(group, 0.0), candidate.memory_bytes)
            choice.append(i)
    found = without_overlaps(program, tuple(choice))
    return Selection(found, program.cost(found), None, False)


def _cheapest_group(program: Program, uncovered: set[tuple[int, int]], held: dict[int, float], choice: list[int]) -> tuple[float, int, Choice]:
    """(cost-rate, group, members) of the group that covers uncovered operators at the least cost each; group −1: none does."""
    free = program.memory_bytes - math.fsum(held.values())
    excluded = {g for i in choice for g in program.candidates[i].excludes}
    best: tuple[float, int, Choice] = (math.inf, -1, ())
    for group, members in enumerate(program.members):
        if group in excluded:
            continue
        usable = []
        for i in members:
            candidate = program.candidates[i]
            new = sum((candidate.pipeline, o) in uncovered for o in range(candidate.first, candidate.last + 1))
            if new and candidate.memory_bytes - held.get(group, 0.0) <= free and not candidate.excludes & held.keys():
                usable.append((candidate.proc / new, i, new))
        total, count, prefix = 0.0 if group in held else program.update_costs[group], 0, []
        for _, i, new in sorted(usable):
            total += program.candidates[i].proc
            count += new
            prefix.append(i)
            if (total / count, group) < best[:2]:
                best = (total / count, group, tuple(prefix))
    return best

"""Memory for caches by priority (paper 1 §5).

Problem: caches were chosen as if memory were free; give them what there is. Method: the priority of a group of caches is
its net benefit per byte; groups are served in falling priority, the last one partly.

Guarantee: greedy, the fractional knapsack's optimum for linear values; nothing is proven for the choice as a whole, which
was made without the cap: `exact` decides both together. Complexity: O(m log m).
Reads the paper so: with a share of its memory a cache keeps that share of its entries, so that share of its hits, while
its update cost stays whole; a cache that would lose by that is dropped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from solvers.caches.select.program import Choice, Program

__all__ = ["Allotment", "evict", "priority", "priority_allocation"]


@dataclass(frozen=True, slots=True)
class Allotment:
    """The caches that got memory, the share of what each needs, and the total cost with that."""

    choice: Choice
    shares: dict[int, float]
    """By chosen candidate, in (0, 1]."""
    cost: float


def _groups(program: Program, choice: Choice) -> dict[int, Choice]:
    found: dict[int, Choice] = {}
    for i in choice:
        group = program.candidates[i].group
        found[group] = (*found.get(group, ()), i)
    return found


def _benefit(program: Program, members: Choice) -> float:
    """What the members of one group save, updates apart."""
    return math.fsum(program.replaced[i] - program.candidates[i].proc for i in members)


def priority(program: Program, members: Choice) -> float:
    """Net benefit per byte of the chosen members of one group; infinity where they need no memory."""
    net = _benefit(program, members) - program.update_costs[program.candidates[members[0]].group]
    held = max(program.candidates[i].memory_bytes for i in members)
    return net / held if held > 0.0 else math.inf


def _by_priority(program: Program, choice: Choice) -> list[Choice]:
    return sorted(_groups(program, choice).values(), key=lambda members: (-priority(program, members), members))


def priority_allocation(program: Program, choice: Choice) -> Allotment:
    """Serve the chosen caches by priority until the memory is used up."""
    free, shares = program.memory_bytes, {}
    # Costs operator by operator: what a cache replaces is then subtracted exactly, which it would not be from a rounded sum.
    parts = [cost for costs in program.operator_costs for cost in costs]
    for members in _by_priority(program, choice):
        held = max(program.candidates[i].memory_bytes for i in members)
        share = 1.0 if held <= free else free / held
        update = program.update_costs[program.candidates[members[0]].group]
        if share <= 0.0 or share * _benefit(program, members) <= update:
            continue
        free -= share * held
        parts.append(update)
        for i in members:
            candidate = program.candidates[i]
            parts += [
                share * candidate.proc,
                *(-share * cost for cost in program.operator_costs[candidate.pipeline][candidate.first : candidate.last + 1]),
            ]
        shares.update(dict.fromkeys(members, share))
    return Allotment(tuple(sorted(shares)), shares, math.fsum(parts))


def evict(program: Program, choice: Choice) -> Choice:
    """The groups of a choice that fit the memory whole, by priority, without those that do not pay."""
    kept: Choice = ()
    for members in _by_priority(program, choice):
        grown = tuple(sorted((*kept, *members)))
        if program.fits(grown):
            kept = grown
    return kept

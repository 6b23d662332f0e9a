"""The two-layer framework (paper 3, Algorithm 2): mjoin and bjtree first, then state-selection and state-removal.

Problem: a join tree within both caps. Method: layer one takes the mjoin (least memory) or the bjtree (usually least CPU) if it qualifies;
layer two walks from each towards the other. Guarantee: none, but for one: where the mjoin's memory is over the cap, no
plan fits. Complexity: that of its four parts.

Departs from the paper: its second early exit, no plan where the bjtree's CPU is over the cap, is unsound, because keeping a state can cost
more than making it anew (its own §2.4): layer two runs then, too. The misprinted `else` of layer one is read as belonging to the outer
`if`. The walk stops at the first qualified plan as the paper's does; a cap that is left out is never reached, and then
all four parts run and the objective picks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.claims import heuristic
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.lower_bound import memory_lower_bound
from solvers.jtree.search import Found, Problem, Shape
from solvers.jtree.shape import Draft, Writing, draft_of, mjoin_shape, priced
from solvers.jtree.state_removal import binary_shape, enough_removed, remove_states
from solvers.jtree.state_selection import select_states
from solvers.model.point import Point

__all__ = ["points_of_two_layers", "two_layer", "walk_two_layers"]

SPACE = "the join trees that the two-layer framework passes"


def walk_two_layers(problem: Problem, ledger: Ledger, deadline: Deadline, removing: Callable[[Shape], Iterable[Draft]] | None = None) -> list[Draft]:
    """Every plan that the framework passes, in its order, up to the first that qualifies. `removing` is the walk from the binary tree, if that has
    another deadline than the one from the mjoin."""
    caps = problem.caps
    capped = caps.cpu < math.inf and caps.memory_bytes < math.inf

    def qualified(draft: Draft) -> bool:
        return capped and draft.cpu <= caps.cpu and draft.memory_bytes <= caps.memory_bytes

    passed = [draft_of(ledger, mjoin_shape(ledger))]
    if qualified(passed[-1]) or caps.memory_bytes < memory_lower_bound(problem.model):
        return passed
    binary = binary_shape(ledger, deadline)
    passed.append(draft_of(ledger, binary))
    if qualified(passed[-1]):
        return passed
    half = deadline.share(0.5)
    for draft in select_states(ledger, lambda _: half):
        passed.append(draft)
        if qualified(draft):
            return passed
        if draft.memory_bytes > caps.memory_bytes * ROUNDED:
            break
    removed: list[Draft] = []
    for draft in removing(binary) if removing else remove_states(ledger, binary, deadline):
        removed.append(draft)
        if enough_removed(problem, removed):
            break
    return passed + removed


def points_of_two_layers(problem: Problem, ledger: Ledger, deadline: Deadline) -> tuple[tuple[Point, ...], Deadline]:
    """The best of the plans that the framework passes, priced, and when the last of them has to be written down."""
    writing = Writing.measured(problem, greedy_plan(problem.model))
    searching = writing.before(deadline, draft_of(ledger, mjoin_shape(ledger)))

    def removing(binary: Shape) -> Iterable[Draft]:
        return writing.passed(deadline, remove_states(ledger, binary, writing.before(deadline, draft_of(ledger, binary))))

    passed = walk_two_layers(problem, ledger, searching, removing)
    searching = writing.before(deadline, passed[-1])
    return priced(problem, ledger, writing.in_time(deadline, passed, passed[-1]), searching), searching


def two_layer(problem: Problem, deadline: Deadline) -> Found:
    """Paper 3's two-layer framework."""
    points, searching = points_of_two_layers(problem, Ledger(problem.model), deadline)
    return heuristic(problem, points, SPACE, searching)

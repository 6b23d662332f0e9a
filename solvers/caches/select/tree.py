"""Cache selection by tree recursion, where nothing is shared (paper 1 Thm 4.1 and 4.2).

Problem: the cheapest choice of a `Program` in which every candidate has a group of its own. Under the prefix invariant,
segments of one pipeline that overlap contain one another, so they form a forest. Method: bottom-up, a subtree is best
covered by its root, or by the best covers of its children and the operators between them.

Guarantee: exact; refuses with a reason what it does not apply to: shared groups, segments that cross, exclusions, and a
memory cap that the unconstrained optimum does not keep. Complexity: O(m log m), linear after sorting.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from solvers.caches.select.program import Choice, Program, Selection
from solvers.common.errors import MethodError

__all__ = ["OverlapNode", "overlap_forest", "tree"]


@dataclass(slots=True)
class OverlapNode:
    """A candidate and the candidates that lie directly within its segment."""

    candidate: int
    children: list[OverlapNode] = field(default_factory=list)


def overlap_forest(program: Program, pipeline: int) -> list[OverlapNode]:
    """The candidates of one pipeline under containment. Raises MethodError where two cross."""
    candidates = program.candidates
    ordered = sorted(program.by_pipeline[pipeline], key=lambda i: (candidates[i].first, -candidates[i].last, i))
    roots: list[OverlapNode] = []
    path: list[OverlapNode] = []
    for i in ordered:
        node = OverlapNode(i)
        while path and candidates[path[-1].candidate].last < candidates[i].first:
            path.pop()
        if path and candidates[path[-1].candidate].last < candidates[i].last:
            raise MethodError(
                "method tree needs candidates that contain each other or do not overlap; "
                f"in pipeline {pipeline} candidates {path[-1].candidate} and {i} cross: use exact",
                f"/candidates/{i}",
            )
        (path[-1].children if path else roots).append(node)
        path.append(node)
    return roots


def tree(program: Program) -> Selection:
    """The optimum where no group has two members."""
    for members in program.members:
        if len(members) > 1:
            raise MethodError(
                "method tree needs candidates that share nothing, because sharing makes the choice NP-hard; "
                f"candidates {members[0]} and {members[1]} share a group: use exact, greedy or lp_rounding",
                f"/candidates/{members[1]}/group",
            )
    for i, candidate in enumerate(program.candidates):
        if candidate.excludes:
            raise MethodError("method tree knows no exclusions: use exact", f"/candidates/{i}/excludes")
    choice: list[int] = []
    for pipeline in range(len(program.operator_costs)):
        for root in overlap_forest(program, pipeline):
            choice += _best(program, root)
    found = tuple(sorted(choice))
    if not program.fits(found):
        raise MethodError(
            "method tree knows no memory cap, and its choice does not fit this one: use exact, or allocation: priority", "/memory_bytes"
        )
    cost = program.cost(found)
    return Selection(found, cost, cost, True)


def _best(program: Program, root: OverlapNode) -> Choice:
    """The best cover of a subtree: its root alone, or the best of its children; bottom-up with a stack."""
    order, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        order.append(node)
        waiting.extend(node.children)
    saving: dict[int, float] = {}
    chosen: dict[int, Choice] = {}
    for node in reversed(order):
        i = node.candidate
        candidate = program.candidates[i]
        alone = program.replaced[i] - candidate.proc - program.update_costs[candidate.group]
        below = math.fsum(saving[child.candidate] for child in node.children)
        if alone > below:
            saving[i], chosen[i] = alone, (i,)
        else:
            saving[i], chosen[i] = below, tuple(k for child in node.children for k in chosen[child.candidate])
    return chosen[root.candidate]

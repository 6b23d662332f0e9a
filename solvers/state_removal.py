"""State-removal (paper 3, Algorithm 4): from the bjtree, drop intermediate results one by one to save memory.

Problem: a join tree within both caps. Method: hill-climbing from the best binary tree. To drop a state is to merge the join that makes
it into the join that uses it; of all states the one with the smallest quality ratio goes, ΔCPU / size: negative where keeping
the state cost more than making it anew. Guarantee: none. Complexity: O(n) merges of O(n) trials, each the ordering of one join;
trials are remembered, so that a merge only costs the trials next to it.

Departs from the paper: the walk stops at the first qualified plan as the paper's does, but a cap that is left out is never reached:
without a memory cap it goes on to the mjoin, and the objective picks among the plans it passed. In a join of more than WIDE inputs a
trial is only repeated when it comes up as the best, since each merge there changes all its neighbours a little.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from solvers.bjtree import best_binary_tree
from solvers.deadline import Deadline
from solvers.greedy_tree import greedy_tree
from solvers.region import Ledger
from solvers.search import Found, Problem
from solvers.shape import Draft, Shape, draft_of, finish, priced, shape_with, sorted_inputs

__all__ = ["binary_shape", "remove_states", "state_removal"]

SPACE = "the join trees that state-removal passes"
WIDE = 24  # inputs from which a join's trials are repeated lazily: beyond that one trial takes a tenth of a millisecond and more


def binary_shape(ledger: Ledger, deadline: Deadline) -> Shape:
    """The binary tree the walk starts from: the best, or where that takes too long the best of linear orders and greedy."""
    model = ledger.model
    trees = [best_binary_tree(model, component, deadline)[0] for component in model.graph.components]
    best = draft_of(ledger, shape_with(ledger, trees))
    greedy = draft_of(ledger, shape_with(ledger, [greedy_tree(model, component) for component in model.graph.components]))
    return min((best, greedy), key=lambda draft: draft.cpu).shape


def _merged(shape: Shape, state: int, user: int) -> tuple[int, ...]:
    """The inputs of the join that uses the state, with the state's own inputs in its place."""
    return sorted_inputs([part for part in shape[user] if part != state] + list(shape[state]))


def remove_states(ledger: Ledger, shape: Shape, deadline: Deadline) -> Iterator[Draft]:
    """Every plan on the way from a binary tree to the mjoin."""
    components = set(ledger.model.graph.components)
    users = {part: mask for mask, inputs in shape.items() for part in inputs if part in shape and part not in components}
    yield draft_of(ledger, shape)

    def quality(state: int) -> float:
        user = users[state]
        growth = ledger.join(_merged(shape, state, user))[0] - ledger.join(shape[user])[0] - ledger.join(shape[state])[0] - ledger.kept(state)
        size = ledger.size(state)
        if size == 0.0 or size == float("inf"):
            return -float("inf") if growth < 0.0 or size else float("inf")
        return growth / size

    ratios = {state: quality(state) for state in users}
    heap = [(ratio, state) for state, ratio in ratios.items()]
    heapq.heapify(heap)
    stale: set[int] = set()
    while heap and not deadline.expired():
        ratio, state = heapq.heappop(heap)
        if ratios.get(state) != ratio:
            continue
        if state in stale:
            stale.discard(state)
            ratios[state] = quality(state)
            heapq.heappush(heap, (ratios[state], state))
            continue
        user = users.pop(state)
        del ratios[state]
        freed = shape[state]
        shape = {mask: _merged(shape, state, user) if mask == user else inputs for mask, inputs in shape.items() if mask != state}
        for part in freed:
            if part in users:
                users[part] = user
        yield draft_of(ledger, shape)
        touched: Iterable[int] = [part for part in (user, *shape[user]) if part in users]
        for other in touched:
            if len(shape[users[other]]) > WIDE:
                stale.add(other)
            else:
                ratios[other] = quality(other)
                heapq.heappush(heap, (ratios[other], other))


def state_removal(problem: Problem, deadline: Deadline) -> Found:
    """Paper 3's state-removal."""
    ledger, caps = Ledger(problem.model), problem.caps
    passed: list[Draft] = []
    for draft in remove_states(ledger, binary_shape(ledger, deadline), deadline):
        passed.append(draft)
        if draft.cpu <= caps.cpu and draft.memory_bytes <= caps.memory_bytes < float("inf"):
            break
    notes = ("State-removal stopped at its time limit.",) if deadline.expired() else ()
    return finish(problem, priced(problem, ledger, passed), SPACE, notes)

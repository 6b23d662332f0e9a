"""State-removal (paper 3, Algorithm 4): from the bjtree, drop intermediate results one by one to save memory.

Problem: a join tree within both caps. Method: hill-climbing from the best binary tree. To drop a state is to merge the join that makes
it into the join that uses it; of all states the one with the smallest quality ratio goes, ΔCPU / size: negative where keeping
the state cost more than making it anew. Guarantee: none. Complexity: O(n) merges of O(n) trials, each the ordering of one join;
trials are remembered, so that a merge only costs the trials next to it.

Departs from the paper: the walk stops at the first qualified plan as the paper's does, but a cap that is left out is never reached:
then it goes on to the mjoin, or under min_cpu until memory is within its cap and CPU no longer falls, and the objective picks among
the plans it passed. In a join of more than WIDE inputs a trial is only repeated when it comes up as the best, since each merge there
changes all its neighbours a little.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Sequence

from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.jtree.claims import heuristic
from solvers.jtree.compiled.binary_tree import best_binary_tree
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.sets import MAX_BITS
from solvers.jtree.compiled.tables import connected_sets
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.linear_orders import best_over_linear_orders
from solvers.jtree.search import Found, Problem
from solvers.jtree.shape import Draft, Shape, Writing, draft_of, priced, shape_of, shape_with, sorted_inputs
from solvers.model.graph import bits
from solvers.model.tree import Tree

__all__ = ["binary_shape", "enough_removed", "remove_states", "state_removal"]

SPACE = "the join trees that state-removal passes"
MAX_SETS, MAX_PAIRS = 50_000, 5_000_000  # connected sets, and pairs of them, up to which the best binary tree is looked for: a tenth of a second
WIDE = 24  # inputs from which a join's trials are repeated lazily: beyond that one trial takes a tenth of a millisecond and more


def binary_shape(ledger: Ledger, deadline: Deadline) -> Shape:
    """The binary tree the walk starts from: the best of each component, or where it is large the best of linear orders and greedy."""
    parts = ledger.model.graph.components
    return shape_with(ledger, [_binary_tree(ledger, component, deadline) for component in parts])


def _binary_tree(ledger: Ledger, component: int, deadline: Deadline) -> Tree:
    model, streams = ledger.model, list(bits(component))
    if len(streams) == 1:
        return streams[0]
    if len(streams) <= MAX_BITS and connected_sets(model, component, MAX_SETS) is not None:
        tree = best_binary_tree(model, component, MAX_PAIRS)
        if tree is not None:
            return tree
    return best_over_linear_orders(ledger, component, deadline)


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
        if size == 0.0 or size == math.inf:
            return -math.inf if growth < 0.0 or size else math.inf
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


def enough_removed(problem: Problem, passed: Sequence[Draft]) -> bool:
    """Whether to stop: the newest plan qualifies, or memory is no longer short and removing more states only costs CPU."""
    caps, newest = problem.caps, passed[-1]
    if newest.memory_bytes > caps.memory_bytes:
        return False
    if caps.memory_bytes < math.inf and newest.cpu <= caps.cpu < math.inf:
        return True
    return problem.objective is Objective.MIN_CPU and len(passed) > 1 and newest.cpu > passed[-2].cpu


def state_removal(problem: Problem, deadline: Deadline) -> Found:
    """Paper 3's state-removal."""
    ledger = Ledger(problem.model)
    first = greedy_plan(problem.model)
    writing = Writing.measured(problem, first)
    searching = writing.before(deadline, draft_of(ledger, shape_of(first)))
    passed: list[Draft] = []
    for draft in writing.passed(deadline, remove_states(ledger, binary_shape(ledger, searching), searching)):
        passed.append(draft)
        if enough_removed(problem, passed):
            break
    searching = writing.before(deadline, passed[-1])
    return heuristic(problem, priced(problem, ledger, writing.in_time(deadline, passed, passed[-1]), searching), SPACE, searching)

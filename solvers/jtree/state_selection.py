"""State-selection (paper 3, Algorithm 3): from the mjoin, keep more and more intermediate results to save CPU.

Problem: a join tree within both caps. Method: hill-climbing from the mjoin. The two inputs of the top join to be joined first are the
ends of the edge with the largest frequency/weight: how often the probe orders follow it, over the size of its join. If the plan with that
join kept needs less CPU, it is taken; else the next edge is tried. *Optimize*: the new join may also dissolve those of its inputs that
are joins themselves, where that saves CPU (memory it saves always). Guarantee: none. Complexity: O(n) merges of O(predicates) trials,
each the ordering of one mjoin.

Departs from the paper: the edges are ranked anew after each merge, because the orders have changed. The walk stops at the first
qualified plan as the paper's does, but a cap that is left out is never reached: without a CPU cap it goes on as long as CPU falls, and the
objective picks among the plans it passed. Beyond MAX_WORK it stops where it is. In a graph of several components, each
component's join is a top join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.claims import heuristic
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.search import Found, Problem
from solvers.jtree.shape import Draft, Shape, Writing, draft_of, mjoin_shape, priced, sorted_inputs

__all__ = ["optimize", "ranked_edges", "select_states", "state_selection"]

SPACE = "the join trees that state-selection passes"
MAX_WORK = 20_000_000  # input triples over all trials, a tenth of a second: 2500 trials at 20 streams, 20 at 100
Edge = tuple[int, int]


def ranked_edges(ledger: Ledger, top: int, inputs: tuple[int, ...]) -> list[tuple[float, int, Edge]]:
    """(weight/frequency, top, pair of inputs) for every edge that the top join's probe orders follow: each order follows each edge once."""
    return [(size / len(inputs), top, (inputs[a], inputs[b])) for size, a, b in ledger.pairs(inputs)]


def optimize(ledger: Ledger, shape: Shape, pair: Edge) -> tuple[float, tuple[int, ...], tuple[int, ...]]:
    """The cheapest join of the two: (excess, inputs, joins dissolved). An input that is a join is dissolved only where that saves CPU."""
    ways: list[tuple[int, ...]] = [(), *((part,) for part in pair if part in shape)]
    if all(part in shape for part in pair):
        ways.append(pair)
    best: tuple[float, tuple[int, ...], tuple[int, ...]] | None = None
    for dissolved in ways:
        inputs = sorted_inputs(block for part in pair for block in (shape[part] if part in dissolved else (part,)))
        saved = sum(ledger.join(shape[part])[0] + ledger.kept(part) for part in dissolved)
        excess = ledger.join(inputs)[0] - saved
        if best is None or excess < best[0]:
            best = excess, inputs, dissolved
    assert best is not None
    return best


def select_states(ledger: Ledger, until: Callable[[Draft], Deadline]) -> Iterator[Draft]:
    """Every plan on the way from the mjoin, the mjoin first, each with less CPU than the one before. `until` says how long to go on from a plan."""
    work = 0
    shape = mjoin_shape(ledger)
    tops = [component for component in ledger.model.graph.components if component in shape]
    draft = draft_of(ledger, shape)
    yield draft
    while not (deadline := until(draft)).expired():
        edges = [edge for top in tops if len(shape[top]) > 2 for edge in ranked_edges(ledger, top, shape[top])]
        for _, top, pair in sorted(edges):
            work += len(shape[top]) ** 3
            if work > MAX_WORK or deadline.expired():
                return
            excess, inputs, dissolved = optimize(ledger, shape, pair)
            joined = pair[0] | pair[1]
            outer = sorted_inputs(joined if part == pair[0] else part for part in shape[top] if part != pair[1])
            before = ledger.join(shape[top])[0]
            if ledger.join(outer)[0] + excess + ledger.kept(joined) < before:
                shape = {mask: parts for mask, parts in shape.items() if mask not in dissolved}
                shape[joined], shape[top] = inputs, outer
                draft = draft_of(ledger, shape)
                yield draft
                break
        else:
            return


def state_selection(problem: Problem, deadline: Deadline) -> Found:
    """Paper 3's state-selection."""
    ledger, caps = Ledger(problem.model), problem.caps
    if (late := deadline.before_writing(*problem.model.graph.widest())).expired():  # no time for any plan but the one that the walk begins with
        return heuristic(problem, priced(problem, ledger, [draft_of(ledger, mjoin_shape(ledger))], late), SPACE, late)
    writing = Writing.measured(problem, greedy_plan(problem.model))
    passed: list[Draft] = []
    for draft in select_states(ledger, lambda newest: writing.before(deadline, newest)):
        passed.append(draft)
        if draft.memory_bytes > caps.memory_bytes * ROUNDED or draft.cpu <= caps.cpu < float("inf"):
            break
    searching = writing.before(deadline, passed[-1])
    return heuristic(problem, priced(problem, ledger, writing.in_time(deadline, passed, passed[-1]), searching), SPACE, searching)

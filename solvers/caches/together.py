"""Tree, probe orders and caches of a small graph chosen together, with a proof (contract §3: `optimal` covers all that the request allows).

Problem: of all join trees, with all probe orders and all choices of caches, memory for caches without end, the one with the least CPU.
Method: costs add up over joins, and caches of one join concern no other. So the best plan of a set of streams is the best of all ways to split it
into inputs, each in its own best plan: dynamic programming, from the top and as far as it is needed. A way to split is passed over where even a
bound is no better than what is known: the inputs' bounds and the join's own, with its partial results counting for as little as caches could make
of them (`compiled.cached`). For the others `join_choice` chooses orders and caches exactly.

Guarantee: the plan is the best, and its CPU a lower bound of all plans' CPU, whatever their memory. None where the graph is too large or time is
over. Complexity: all partitions of all connected sets, 876 for six streams that all join; most are passed over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from solvers.caches.cached_plan import CachedPlan, cached_plan
from solvers.caches.candidates import CacheCandidate, Pipelines, candidate, streams_of
from solvers.caches.join_choice import JoinChoice, best_choice
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDING, SUMMED, SUMMED_DOWN
from solvers.jtree.partials import join_costs
from solvers.jtree.search import Problem, make_join
from solvers.model.connected import partitions
from solvers.model.tree import Tree

__all__ = ["Blocks", "OutOfTimeError", "Together", "Ways", "together"]

Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Together:
    """What was proven."""

    least_cpu: float
    """No plan needs less."""
    tree: Tree
    """The best plan's."""
    cached: CachedPlan | None
    """The same with its caches; None where the best plan has none."""


class OutOfTimeError(Exception):
    """It takes longer than there is time."""


class Ways:
    """The ways to split each connected set of a small graph into the inputs of a join; sets of streams are the graph's own."""

    def __init__(self, problem: Problem, prefix_only: bool, deadline: Deadline) -> None:
        self.problem, self.prefix_only, self.deadline = problem, prefix_only, deadline
        graph = problem.model.graph
        costs = join_costs(problem.model, problem.attributes)
        assert costs is not None, "a small graph"
        self.costs = costs
        self.ways: dict[int, list[tuple[float, float, Blocks]]] = {}
        """Those with the lowest bounds first: a bound of all joins of such a plan, the bound of this join alone, the inputs."""
        self.kept: dict[int, float] = {}
        """What keeping the set adds."""
        self.bound: dict[int, float] = {}
        connected = [mask for mask in range(1, graph.all + 1) if mask & (mask - 1) and graph.connected(mask)]
        for mask in sorted(connected, key=lambda mask: (mask.bit_count(), mask)):
            self._bounds(mask)

    def _below(self, of: dict[int, float], blocks: Blocks) -> list[float]:
        return [part for block in blocks if block & (block - 1) for part in (of[block], self.kept[block])]

    def _bounds(self, mask: int) -> None:
        self.kept[mask] = self.costs.kept(mask)
        ways = []
        for blocks in partitions(self.problem.model.graph.neighbours, mask):
            own = self.costs.excess(blocks, with_caches=True)
            ways.append((math.fsum([*self._below(self.bound, blocks), own]), own, blocks))
        self.ways[mask] = sorted(ways)
        self.bound[mask] = self.ways[mask][0][0]
        if self.deadline.expired():
            raise OutOfTimeError


class _Search(Ways):
    """Best plans of connected sets, memory without end."""

    def __init__(self, problem: Problem, prefix_only: bool, deadline: Deadline) -> None:
        super().__init__(problem, prefix_only, deadline)
        self._best: dict[int, tuple[float, Blocks, JoinChoice | None]] = {}

    def best(self, mask: int) -> float:
        """The least excess of any plan of the set."""
        if mask not in self._best:
            self._best[mask] = self._found(mask)
        return self._best[mask][0]

    def _found(self, mask: int) -> tuple[float, Blocks, JoinChoice | None]:
        found: tuple[float, Blocks, JoinChoice | None] = (math.inf, (), None)
        for bound, least, blocks in self.ways[mask]:
            if bound * SUMMED_DOWN >= found[0]:
                break
            below = math.fsum([self.best(block) + self.kept[block] for block in blocks if block & (block - 1)])
            plain = self.costs.excess(blocks)
            if below + plain < found[0] * SUMMED_DOWN:
                found = (below + plain, blocks, None)
            if least >= plain * SUMMED_DOWN or below + least >= found[0] * SUMMED_DOWN or not self.costs.cache_could_pay(blocks):
                continue
            choice = best_choice(self.problem.model, self.problem.attributes, blocks, self.prefix_only, self.deadline)
            if choice is None or self.deadline.expired():
                raise OutOfTimeError
            if below + plain - choice.saves < found[0] * SUMMED_DOWN:
                found = (below + plain - choice.saves, blocks, choice)
        return found

    def tree(self, mask: int) -> Tree:
        """The best plan's tree; a plain join has the orders that are best without caches."""
        if mask & (mask - 1) == 0:
            return mask.bit_length() - 1
        _, blocks, choice = self._best[mask]
        return make_join([self.tree(block) for block in blocks], choice.orders if choice else self.costs.orders(blocks))

    def uses(self, tree: Tree) -> list[tuple[int, CacheCandidate]]:
        """The best plan's caches as candidates of its priced joins."""
        model, attributes = self.problem.model, self.problem.attributes
        priced = model.price(tree)
        found = []
        for number, (node, join) in enumerate(zip(priced.nodes, priced.joins, strict=True)):
            choice = self._best[node.mask][2]
            for use in choice.uses if choice else ():
                made = candidate(model, attributes, Pipelines.of(join), use.pipeline, use.first, use.last, streams_of(join, use.kept))
                assert made is not None, "its figures were priced"
                found.append((number, made))
        return found


def together(problem: Problem, prefix_only: bool, deadline: Deadline) -> Together | None:
    """The plan with the least CPU of all, with caches or without, memory for caches without end; None where that takes too long to find."""
    model, graph = problem.model, problem.model.graph
    if len(graph) < 3 or len(graph.components) > 1 or deadline.expired():
        return None
    try:
        search = _Search(problem, prefix_only, deadline)
        least = search.costs.base + search.best(graph.all)
        tree = search.tree(graph.all)
        uses = search.uses(tree)
    except OutOfTimeError:
        return None
    cached = cached_plan(model, problem.attributes, model.price(tree), uses) if uses else None
    cpu = cached.point.cpu if cached else model.price(tree).cpu
    if not abs(cpu - least) <= ROUNDING * cpu / 4.0:
        return None  # the price, which decides, is not what was proven: rounding took its place
    return Together(min(least, cpu) / SUMMED, tree, cached)

"""A lower bound of the CPU of all plans with caches that keep a memory cap, in small graphs.

Problem: `together` finds the best plan where caches may take any memory. Under a cap its bound may be far below what plans that fit can reach.
Method: every join tree whose states fit the cap and that could be better than the plan at hand is looked at. Its caches have what memory its
states leave. That limit is relaxed: a byte of caches has a price p, and

    CPU >= (the least of CPU + p * memory of its joins, each on its own: `join_choice.choice_at`) - p * the memory that is left

for every p >= 0, since caches that fit take no more than is left. As a function of p the right side is concave and made of straight lines, one for
each choice of caches; the best p is where the line of a choice that takes too much crosses that of one that does not, so each step tries where the
two nearest ones cross. A cache that would take more than all that is left has the share of it that fits. With a smaller share it saves no more
than that share of what it saves so, which lies between having it and not having it, and the bound holds.

Guarantee: no plan within the memory cap needs less CPU; `enough`, the CPU of the plan at hand, where no plan is better than that.
None where there are too many trees or choices, or time is over. Complexity: at most 2,752 trees of six streams, a few choices for each that is left.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from solvers.caches.join_choice import choice_at
from solvers.caches.joint_orders import CacheableJoin
from solvers.caches.together import Blocks, OutOfTimeError, Ways
from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP, SUMMED, SUMMED_DOWN
from solvers.jtree.search import Problem

__all__ = ["least_within_memory"]

MAX_TREES = 3_000  # of one set: more than six streams have
MAX_CHOICES = 60  # of caches for one join: about a millisecond each
STEPS = 8  # prices that are tried for a tree; the lines are few, so most take two or three


class _Tree(NamedTuple):
    """A join tree by its joins; figures are above what every plan has."""

    bound: float
    """Of its CPU, whatever its caches."""
    states: float
    """Bytes of its kept subresults."""
    keeping: float
    """The CPU that keeping them adds."""
    joins: tuple[Blocks, ...]


class _Line(NamedTuple):
    """One choice of caches: what it costs and takes, for a whole tree."""

    cpu: float
    memory_bytes: float


class _Within:
    """The trees of one problem that fit, and bounds of what they need."""

    def __init__(self, problem: Problem, ways: Ways, enough: float) -> None:
        self.problem, self.ways, self.enough = problem, ways, enough
        self.room = problem.caps.memory_bytes * (1.0 + AT_A_CAP) - problem.model.leaves_bytes()
        self._trees: dict[int, list[_Tree]] = {}
        self._joins: dict[Blocks, CacheableJoin] = {}
        self._choices = 0

    def trees(self, mask: int) -> list[_Tree]:
        """Those of a set that fit, and whose bound is below what is enough."""
        if mask not in self._trees:
            found: list[_Tree] = []
            for bound, own, blocks in self.ways.ways[mask]:
                if bound >= self.enough:
                    break
                found += self._split(own, blocks)
                if len(found) > MAX_TREES or self.ways.deadline.expired():
                    raise OutOfTimeError
            self._trees[mask] = found
        return self._trees[mask]

    def _split(self, own: float, blocks: Blocks) -> list[_Tree]:
        """The trees whose root joins these inputs."""
        found = [_Tree(own, 0.0, 0.0, (blocks,))]
        for block in blocks:
            if block & (block - 1):
                kept, held = self.ways.kept[block], self.problem.model.state_bytes(block)
                pairs = ((tree, below) for tree in found for below in self.trees(block))
                found = [
                    _Tree(a.bound + b.bound + kept, a.states + b.states + held, a.keeping + b.keeping + kept, a.joins + b.joins)
                    for a, b in pairs
                    if a.bound + b.bound + kept < self.enough and a.states + b.states + held <= self.room
                ]
        return found

    def least(self, tree: _Tree) -> float:
        """A bound of what the tree needs with caches in the memory that it leaves."""
        left = max(0.0, self.room - tree.states)
        could = [blocks for blocks in tree.joins if self.ways.costs.cache_could_pay(blocks)]
        without = _Line(math.fsum([tree.keeping, *(self.ways.costs.excess(blocks) for blocks in tree.joins)]), 0.0)
        if not could or not left:
            return without.cpu
        least, much = self._at(0.0, left, without.cpu, could)
        little = without
        for _ in range(STEPS):
            if least >= self.enough or much.memory_bytes <= left:
                break
            price = (little.cpu - much.cpu) / (much.memory_bytes - little.memory_bytes)
            crossing = much.cpu + price * (much.memory_bytes - left)
            total, line = self._at(price, left, without.cpu, could)
            bound = total - price * left
            least = max(least, bound)
            if bound >= crossing * SUMMED_DOWN:
                break
            if line.memory_bytes > left:
                much = line
            else:
                little = line
        return least

    def _at(self, price: float, left: float, without: float, joins: list[Blocks]) -> tuple[float, _Line]:
        """The least of CPU and the price of memory, and the choice that has it."""
        saves, taken = [], []
        for blocks in joins:
            if blocks not in self._joins:
                self._joins[blocks] = CacheableJoin(self.problem.model, self.problem.attributes, blocks)
            self._choices += 1
            choice = choice_at(price, left, self._joins[blocks], self.ways.prefix_only, self.ways.deadline)
            if choice is None or self._choices > MAX_CHOICES:
                raise OutOfTimeError
            saves.append(choice.saves)
            taken.append(choice.memory_bytes)
        total, memory = without - math.fsum(saves), math.fsum(taken)
        return total, _Line(total - price * memory, memory)


def least_within_memory(problem: Problem, prefix_only: bool, enough: float, deadline: Deadline) -> float | None:
    """A lower bound of the CPU of every plan, with caches or without, within the memory cap; at most `enough`."""
    try:
        ways = Ways(problem, prefix_only, deadline)
        base = ways.costs.base
        within = _Within(problem, ways, enough - base)
        least = enough - base
        for tree in sorted(within.trees(problem.model.graph.all)):
            if tree.bound >= least:
                break
            least = min(least, within.least(tree))
    except OutOfTimeError:
        return None
    return (base + least) / SUMMED

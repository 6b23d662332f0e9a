"""Exact cache selection by splitting update costs (a Lagrangian bound for paper 1's integer program).

Problem: the cheapest choice of a `Program`, sharing, exclusions and memory cap included.
Method: once it is decided which groups are in use, every pipeline is a shortest path of its own (`cheapest_cover`). For
undecided groups the update cost, and the memory at a price, is split among the members; the paths then give a lower bound,
which subgradient steps at the root make as tight as the linear relaxation. Branch on the group whose share was
paid least in full: closed, or open for members up to one of its memory sizes.

Guarantee: exact unless the limit of nodes or the deadline ends it; then the best choice so far with its bound.
Complexity: exponential in the number of shared groups at worst; the relaxation is integral for most pipelines, and a few
nodes are the rule. Pure Python: it needs none of the imports that take seconds.
Departs from the paper, which settles for approximations where caches are shared.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass

from solvers.caches.select.memory import evict
from solvers.caches.select.program import Choice, Program, Selection, Trail, cheapest_cover
from solvers.common.deadline import Deadline
from solvers.common.tolerances import SAME_COST

__all__ = ["branch_and_bound"]

MAX_NODES = 4000  # beyond that an integer programming solver is faster
ROOT_STEPS = 60  # subgradient steps: bounds stop moving after a few dozen
NODE_STEPS = 6  # enough to follow one decision


@dataclass(frozen=True, slots=True)
class _Node:
    """What is decided: groups that are open, with the largest member memory allowed, and groups that are closed."""

    open: dict[int, float]
    closed: frozenset[int]


class _Search:
    def __init__(self, program: Program, deadline: Deadline, below: float) -> None:
        self.program, self.deadline, self.below = program, deadline, below
        self.capped = math.isfinite(program.memory_bytes)
        self.usable = frozenset(program.useful)
        self.members = {g: tuple(i for i in group if i in self.usable) for g, group in enumerate(program.members)}
        self.members = {g: group for g, group in self.members.items() if group}
        self.slack = SAME_COST * program.cost_without_caches
        self.best: tuple[float, int, Choice] = (program.cost(()), 0, ())
        self.seen: set[Choice] = set()

    @property
    def to_beat(self) -> float:
        """What costs this much or more is of no use."""
        return min(self.best[0], self.below) - self.slack

    def offer(self, choice: Choice) -> None:
        """A choice that covers nothing twice, made feasible and kept if it is the best so far."""
        if not self.program.feasible(choice):
            choice = evict(self.program, self.program.compatible_part(choice))
        found = (self.program.cost(choice), len(choice), choice)
        if found[0] < self.best[0] - self.slack or (found[0] <= self.best[0] + self.slack and found[1:] < self.best[1:]):
            self.best = found

    def repaired(self, choice: Choice) -> None:
        """Offer the choice, then the cheapest use of the groups that it has; while some of these save less than their upkeep, leave those out and
        offer the cheapest use of the rest."""
        if choice in self.seen:
            return
        self.seen.add(choice)
        self.offer(choice)
        program = self.program
        opened = {program.candidates[i].group for i in choice}
        while opened and not self.deadline.expired():
            charge = [
                program.candidates[i].proc if i in self.usable and program.candidates[i].group in opened else math.inf
                for i in range(len(program.candidates))
            ]
            used = tuple(sorted(i for p in range(len(program.operator_costs)) for i in cheapest_cover(program, p, charge)[1]))
            self.offer(used)
            saved: dict[int, float] = dict.fromkeys(opened, 0.0)
            for i in used:
                saved[program.candidates[i].group] += program.replaced[i] - program.candidates[i].proc
            losing = {g for g in opened if saved[g] <= program.update_costs[g]}
            if not losing:
                return
            opened -= losing

    def allowed(self, node: _Node) -> list[bool]:
        candidates = self.program.candidates
        result = [False] * len(candidates)
        for g, group in self.members.items():
            if g in node.closed:
                continue
            limit = node.open.get(g, math.inf)
            for i in group:
                result[i] = candidates[i].memory_bytes <= limit and not any(e in node.open for e in candidates[i].excludes)
        return result


def branch_and_bound(program: Program, deadline: Deadline, max_nodes: int = MAX_NODES, below: float = math.inf) -> Selection:
    """The optimum, or the best choice found with its bound. A caller who has no use for choices that cost `below` or more says so, and they are
    not searched for."""
    search = _Search(program, deadline, below)
    if not search.members:
        cost = program.cost(())
        return Selection((), cost, cost, True)
    shares = {i: program.update_costs[g] / len(group) for g, group in search.members.items() for i in group}
    weights = {i: 1.0 / len(group) for group in search.members.values() for i in group}
    count, numbers = 0, itertools.count(1)
    waiting: list[tuple[float, int, _Node, dict[int, float], dict[int, float], float]] = [
        (-math.inf, 0, _Node({}, frozenset()), shares, weights, 0.0)
    ]
    while waiting and count < max_nodes and not deadline.expired():
        bound, _, node, shares, weights, price = heapq.heappop(waiting)
        if bound >= search.to_beat:
            waiting = []
            break
        steps = ROOT_STEPS if count == 0 else NODE_STEPS
        bound, split, branch = _bound(search, node, shares, weights, price, steps)
        count += 1
        if branch is None or bound >= search.to_beat:
            continue
        for child in _children(search, node, branch):
            heapq.heappush(waiting, (bound, next(numbers), child, *split))
    value = search.best[0]
    # Nodes within the slack of the best, or of what is asked for, were not looked into.
    bound = max(0.0, min([value, below, *(entry[0] for entry in waiting)]) - search.slack)
    return Selection(search.best[2], value, bound, not waiting and value <= below)


def _children(search: _Search, node: _Node, group: int) -> list[_Node]:
    sizes = sorted({search.program.candidates[i].memory_bytes for i in search.members[group]}) if search.capped else [math.inf]
    free = search.program.memory_bytes - math.fsum(node.open.values()) if search.capped else math.inf
    children = [_Node(node.open, node.closed | {group})]
    children += [_Node({**node.open, group: size}, node.closed) for size in sizes if size <= free or not search.capped]
    return children


_Split = tuple[dict[int, float], dict[int, float], float]


def _bound(
    search: _Search, node: _Node, shares: dict[int, float], weights: dict[int, float], price: float, steps: int
) -> tuple[float, _Split, int | None]:
    """The best bound that a few subgradient steps find, the split that gives it, and the group to branch on (None: solved)."""
    program, candidates = search.program, search.program.candidates
    allowed = search.allowed(node)
    free = program.memory_bytes - math.fsum(node.open.values()) if search.capped else math.inf
    paid = math.fsum(program.update_costs[g] for g in node.open)
    undecided = {g: tuple(i for i in group if allowed[i]) for g, group in search.members.items() if g not in node.open and g not in node.closed}
    undecided = {g: group for g, group in undecided.items() if group}
    shares, weights = _renormalised(program, undecided, shares, weights)
    best: tuple[float, _Split, int | None] = (-math.inf, (shares, weights, price), None)
    previous: list[tuple[tuple[float, ...], Trail]] = [((), (0.0, ()))] * len(program.operator_costs)
    scale = 1.0
    for step in range(steps):
        if step and search.deadline.expired():
            break
        charge = [candidates[i].proc if ok else math.inf for i, ok in enumerate(allowed)]
        for group in undecided.values():
            for i in group:
                charge[i] += shares[i] + (price * weights[i] * candidates[i].memory_bytes if price else 0.0)
        for p, listed in enumerate(program.by_pipeline):
            key = tuple(charge[i] for i in listed)
            if previous[p][0] != key or not key:
                previous[p] = (key, cheapest_cover(program, p, charge))
        used = tuple(sorted(i for _, trail in previous for i in trail[1]))
        value = math.fsum([paid, *(trail[0] for _, trail in previous), -price * free if price else 0.0])
        search.repaired(used)
        branch = _violated(search, undecided, used, shares, free)
        if value > best[0]:
            best = (value, (shares, weights, price), branch)
            if branch is None and not price:
                break
        elif step % 3 == 2:
            scale /= 2.0
        gap = search.best[0] - value
        if value >= search.to_beat:
            break
        shares, weights, price = _stepped(search, undecided, used, (shares, weights, price), scale * gap, free)
    value, split, branch = best
    if branch is None and value < search.best[0] - search.slack:
        # The paths agree with the split but not with the best choice: decide whatever is left.
        branch = next(iter(undecided), None)
    return value, split, branch


def _renormalised(
    program: Program, undecided: dict[int, Choice], shares: dict[int, float], weights: dict[int, float]
) -> tuple[dict[int, float], dict[int, float]]:
    """Shares that still add up to the whole after members were ruled out."""
    new_shares, new_weights = {}, {}
    for g, group in undecided.items():
        total, weight = math.fsum(shares[i] for i in group), math.fsum(weights[i] for i in group)
        for i in group:
            new_shares[i] = shares[i] / total * program.update_costs[g] if total > 0.0 else program.update_costs[g] / len(group)
            new_weights[i] = weights[i] / weight if weight > 0.0 else 1.0 / len(group)
    return {**shares, **new_shares}, {**weights, **new_weights}


def _violated(search: _Search, undecided: dict[int, Choice], used: Choice, shares: dict[int, float], free: float) -> int | None:
    """The undecided group on which the paths and the program disagree most; None where they agree."""
    program, candidates = search.program, search.program.candidates
    chosen = set(used)
    worst, branch = search.slack, None
    held = 0.0
    largest: tuple[float, int | None] = (-1.0, None)
    for g, group in undecided.items():
        members = [i for i in group if i in chosen]
        if not members:
            continue
        unpaid = program.update_costs[g] - math.fsum(shares[i] for i in members)
        if unpaid > worst:
            worst, branch = unpaid, g
        size = max(candidates[i].memory_bytes for i in members)
        held += size
        if size > largest[0]:
            largest = (size, g)
    if branch is not None:
        return branch
    groups = {candidates[i].group for i in used}
    for i in used:
        for g in sorted(candidates[i].excludes & groups):
            if g in undecided:
                return g
            if candidates[i].group in undecided:
                return candidates[i].group
    return largest[1] if held > free else None


def _stepped(search: _Search, undecided: dict[int, Choice], used: Choice, split: _Split, gap: float, free: float) -> _Split:
    """One subgradient step (Polyak's length): members that are used bear more of their group's cost, the others less."""
    program, candidates = search.program, search.program.candidates
    shares, weights, price = split
    chosen = set(used)
    moves: dict[int, float] = {}
    for group in undecided.values():
        if len(group) > 1:
            mean = sum(i in chosen for i in group) / len(group)
            for i in group:
                moves[i] = (i in chosen) - mean
    norm = math.fsum(move * move for move in moves.values())
    if norm > 0.0:
        shares = {**shares, **{i: shares[i] + gap / norm * move for i, move in moves.items()}}
        for g, group in undecided.items():
            if len(group) > 1:
                total = program.update_costs[g]
                positive = {i: max(0.0, shares[i]) for i in group}
                whole = math.fsum(positive.values())
                for i in group:
                    shares[i] = positive[i] / whole * total if whole > 0.0 else total / len(group)
    if search.capped and free > 0.0:
        held = math.fsum(weights[i] * candidates[i].memory_bytes for group in undecided.values() for i in group if i in chosen)
        over = (held - free) / free
        if over > 0.0 or price > 0.0:
            price = max(0.0, price + gap / free * over / (1.0 + over * over))
            weights = {
                **weights,
                **{i: shares[i] / program.update_costs[g] for g, group in undecided.items() for i in group if program.update_costs[g] > 0.0},
            }
    return shares, weights, price

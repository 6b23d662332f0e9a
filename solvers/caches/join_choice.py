"""Probe orders and caches of one join, chosen together, with a proof (paper 1 leaves ordering and caching chosen together open).

Problem: for a join of given inputs the orders of its pipelines and the caches they use that together cost least, memory without end. Method: branch
and bound over *groups* of caches: the segment X whose join is held, the join Z ⊇ X that keeps it up to date, the key. Once it is decided which
groups are kept, each pipeline is on its own: a shortest path over the sets of inputs it has visited, by probes and by lookups, that passes through
every Z it has to (`joint_orders.CacheableJoin`). For a bound, paths may look up groups that are not decided as well: such a lookup pays the group's
upkeep divided by the number of pipelines that could use it, and the path need not pass through Z. A group is dropped from the start where its uses,
each where it saves the most, save less than its upkeep.

Where memory has a price, a group pays for memory as well: for as much as the use of it that takes least. What it would really cost is no less.

Guarantee: exact; None where the limit of nodes or the deadline comes first. Complexity: O(2^m · (m + groups)) a path, m paths a node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from solvers.caches.figures import Figures, Traffic, processing, update_cost
from solvers.caches.joint_orders import CacheableJoin
from solvers.common.deadline import Deadline
from solvers.common.tolerances import SUMMED, SUMMED_DOWN
from solvers.model.attributes import Attributes, Key
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.probe_order import Orders

__all__ = ["JoinChoice", "Use", "best_choice", "choice_at"]

MAX_NODES = 400  # of one join; most take one or two


@dataclass(frozen=True, slots=True)
class Use:
    """Steps first..last of one pipeline, answered from a cache that the join of `kept` keeps up to date (a set of inputs)."""

    pipeline: int
    first: int
    last: int
    kept: int


@dataclass(frozen=True, slots=True)
class JoinChoice:
    """The best orders and caches of a join."""

    saves: float
    """How much less CPU than with the best orders alone, the price of memory deducted."""
    orders: Orders
    uses: tuple[Use, ...]
    memory_bytes: float
    """The caches take at least so much."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Caches that share their entries."""

    segment: int
    kept: int
    upkeep: float
    """Of keeping the entries up to date, the price of its memory included."""
    memory_bytes: float
    """What the use of it that needs the least memory takes."""
    share: float
    """The part of the upkeep that falls to each pipeline if all that could use it do."""


_Path = tuple[float, tuple[tuple[int, int], ...]]
"""(cost, steps): a step is the set visited after it, and the group that was looked up or −1."""


class _Choosing:
    """One join while its caches are chosen."""

    def __init__(self, join: CacheableJoin, prefix_only: bool, price: float, room: float) -> None:
        self.join, self.m, self.price, self.room = join, len(join.blocks), price, room
        self.groups: list[_Group] = []
        self.lookups: list[dict[int, list[tuple[int, int, float]]]] = [{} for _ in range(self.m)]
        """Per pipeline and set visited: (group, set visited after it, what it costs)."""
        model = join.model
        connected = [s for s in range(1, join.every + 1) if s & (s - 1) and model.graph.connected(join.streams[s])]
        upkeep = {kept: update_cost(model) * model.rate(join.streams[kept]) for kept in connected}
        for segment in connected:
            if segment == join.every:
                continue
            ways = [segment] if prefix_only else [kept for kept in connected if segment & ~kept == 0]
            most, places = self._worth(segment)
            for kept in ways:
                if upkeep[kept] < most:
                    self._add_groups(segment, kept, upkeep[kept], places)

    def _places(self, k: int, segment: int) -> list[int]:
        """The sets that pipeline k may have visited before it looks the segment up."""
        others = self.join.every & ~segment & ~(1 << k)
        part, found = others, []
        while True:
            found.append(part | 1 << k)
            if not part:
                return found
            part = (part - 1) & others

    def _worth(self, segment: int) -> tuple[float, list[tuple[int, int]]]:
        """What all caches of a segment save together at most, whatever joins keep them up to date; and the places at which one could save something,
        as (pipeline, set visited before)."""
        saved, places = 0.0, []
        for k in bits(self.join.every & ~segment):
            most = 0.0
            for visited in self._places(k, segment):
                benefit = _most_benefit(self.join, k, visited, segment)
                if benefit > 0.0:
                    most = max(most, benefit)
                    places.append((k, visited))
            saved += most
        return saved, places

    def _add_groups(self, segment: int, kept: int, upkeep: float, places: list[tuple[int, int]]) -> None:
        join = self.join
        found: dict[object, list[tuple[int, int, Figures]]] = {}
        for k, visited in places:
            # Where the arriving input has no part in keeping the entries, they are the same however they are kept.
            priced = join.cache(k, visited, (segment, kept if kept >> k & 1 else segment))
            if priced is not None:
                figures, key = priced
                if figures.memory_bytes > self.room:
                    figures = figures.with_share(join.model, self.room / figures.memory_bytes)
                if figures.benefit > 0.0:
                    found.setdefault(key, []).append((k, visited, figures))
        for uses in found.values():
            saved: dict[int, float] = {}
            for k, _, figures in uses:
                saved[k] = max(saved.get(k, 0.0), figures.benefit)
            memory_bytes = min(figures.memory_bytes for _, _, figures in uses)
            paid = upkeep + self.price * memory_bytes
            if math.fsum(saved.values()) > paid:
                number = len(self.groups)
                self.groups.append(_Group(segment, kept, paid, memory_bytes, paid / len(saved)))
                for k, visited, figures in uses:
                    self.lookups[k].setdefault(visited, []).append((number, visited | segment, figures.proc))

    def path(self, k: int, taken: frozenset[int], barred: frozenset[int]) -> _Path:
        """The cheapest way of pipeline k through all inputs where these groups are kept, and of the others those that are not barred may be."""
        join, groups, every = self.join, self.groups, self.join.every
        fixed = sorted({groups[g].kept for g in taken if groups[g].kept != every and groups[g].kept >> k & 1})
        rate, lookups = join.per_second[k], self.lookups[k]
        best: dict[int, _Path] = {1 << k: (0.0, ())}
        for visited in range(1 << k, every):
            here = best.get(visited)
            if here is None:
                continue
            cost, steps = here
            for _, union, step in join.steps[visited]:
                if all(union & ~kept == 0 or kept & ~union == 0 for kept in fixed):
                    now = cost + step * rate
                    if union not in best or now < best[union][0]:
                        best[union] = (now, (*steps, (union, -1)))
            for g, union, proc in lookups.get(visited, ()):
                if g in barred or any(union & ~kept and kept & ~visited for kept in fixed):
                    continue
                now = cost + proc + (0.0 if g in taken else groups[g].share)
                if union not in best or now < best[union][0]:
                    best[union] = (now, (*steps, (union, g)))
        return best.get(every, (math.inf, ()))

    def total(self, paths: Sequence[_Path], kept: frozenset[int]) -> float:
        return math.fsum([*(cost for cost, _ in paths), *(self.groups[g].upkeep for g in sorted(kept))])

    def choose(self, deadline: Deadline) -> tuple[float, list[_Path]] | None:
        """What the best choice costs, and its paths."""
        nothing, every = frozenset[int](), frozenset(range(len(self.groups)))
        plain = [self.path(k, nothing, every) for k in range(self.m)]
        best, chosen = self.total(plain, nothing), plain
        waiting = [(nothing, nothing)]
        nodes = 0
        while waiting and self.groups:
            nodes += 1
            if nodes > MAX_NODES or deadline.expired():
                return None
            taken, barred = waiting.pop()
            paths = [self.path(k, taken, barred) for k in range(self.m)]
            if self.total(paths, taken) >= best * SUMMED_DOWN:
                continue
            used = _used(paths)
            kept = [self.path(k, used, every - used) for k in range(self.m)]
            total = self.total(kept, _used(kept))
            if total < best:
                best, chosen = total, kept
            open_ = sorted(used - taken)
            if open_:
                # Of the groups that are used and not decided, the dearest is decided next.
                branch = max(open_, key=lambda g: (self.groups[g].upkeep, g))
                waiting.append((taken, barred | {branch}))
                waiting.append((taken | {branch}, barred))
        return best, chosen


def _used(paths: Sequence[_Path]) -> frozenset[int]:
    return frozenset(g for _, steps in paths for _, g in steps if g >= 0)


def _most_benefit(join: CacheableJoin, k: int, visited: int, segment: int) -> float:
    """What a cache saves pipeline k at most where it looks the segment up after `visited`, however it is kept."""
    model, attributes = join.model, join.attributes
    key = attributes.key(join.streams[visited], join.streams[segment])
    cost, _ = join.run(visited, segment)
    lookups = model.size(join.streams[visited]) * join.per_second[k]
    if key is None or not cost < math.inf or not lookups > 0.0:
        return 0.0
    replaced, results = cost * join.per_second[k], model.size(join.streams[visited | segment]) * join.per_second[k]
    miss = min(1.0, _least_new_keys(attributes, key) / lookups) / SUMMED
    return max(0.0, (replaced - processing(model, Traffic(lookups, results, replaced), miss)) * SUMMED)


def _least_new_keys(attributes: Attributes, key: Key) -> float:
    """New keys a second, at least: of a key of several parts at least as many as of any one of them, wherever they are read from."""
    seconds, distinct = attributes.graph.window_seconds, attributes.distinct
    most, product = 0.0, 1.0
    for equals in key.equals:
        known = [a for a in equals if a in distinct]
        most = max(most, min((distinct[a] / seconds[a[0]] for a in known), default=0.0))
        product *= min(1.0, min((distinct[a] for a in known), default=0.0))
    return most * product


def _as_choice(choosing: _Choosing, saves: float, paths: Sequence[_Path]) -> JoinChoice:
    """The paths as orders and steps that caches answer."""
    orders, uses = [], []
    for k, (_, steps) in enumerate(paths):
        visited = 1 << k
        order: tuple[int, ...] = ()
        for union, g in steps:
            if g < 0:
                order += ((union & ~visited).bit_length() - 1,)
            else:
                run = choosing.join.run(visited, union & ~visited)[1]
                uses.append(Use(k, len(order), len(order) + len(run) - 1, choosing.groups[g].kept))
                order += run
            visited = union
        orders.append(order)
    return JoinChoice(saves, tuple(orders), tuple(uses), math.fsum(choosing.groups[g].memory_bytes for g in sorted(_used(paths))))


def best_choice(model: CostModel, attributes: Attributes, blocks: tuple[int, ...], prefix_only: bool, deadline: Deadline) -> JoinChoice | None:
    """The best orders and caches of a join of these inputs; None where the search for them does not end in time."""
    return choice_at(0.0, math.inf, CacheableJoin(model, attributes, blocks), prefix_only, deadline)


def choice_at(price: float, room: float, join: CacheableJoin, prefix_only: bool, deadline: Deadline) -> JoinChoice | None:
    """The same where each byte that caches take costs so much CPU, and none may take more than `room`."""
    choosing = _Choosing(join, prefix_only, price, room)
    plain = choosing.total([choosing.path(k, frozenset(), frozenset(range(len(choosing.groups)))) for k in range(choosing.m)], frozenset())
    found = choosing.choose(deadline)
    if found is None:
        return None
    total, paths = found
    return _as_choice(choosing, max(0.0, plain - total), paths)

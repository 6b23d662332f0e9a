"""One join with tables among its inputs: its cheapest probe orders for every choice of accesses.

Problem: of a join over given inputs every trade-off between CPU and memory that the accesses of its tables leave, with the best probe orders of
each. Method: every choice of accesses; for each one backward pass over the unions of inputs that pipelines can reach, as in `model.probe_order`. A
table that is asked may be visited once its bound attributes have values, tables have no pipelines, and in a connected join every probe
follows a predicate.

Whether a state has an index may depend on the orders: a state that shares an equality with tables alone is probed by hash only by those who have
visited one of them. So the pass keeps, for every set of such states, the cheapest way on that probes exactly these by hash, and the
pipelines are put together by the sets that come out.

Guarantee: exact. Complexity: O(accesses · 2^m · m) for m inputs, times 2^a for a such states, of which there are hardly ever any.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice, product
from typing import NamedTuple

from solvers.common.deadline import NEVER, Deadline
from solvers.common.tolerances import TIED
from solvers.jtree.search import spread
from solvers.model.cost import CostModel, PricedJoin
from solvers.model.graph import Offer, bits
from solvers.model.operations import going_on, keeping, probe_steps, probing, stepping, times
from solvers.model.probe_order import Orders
from solvers.model.staircase import undominated
from solvers.model.tree import Asked

__all__ = ["Way", "can_bind", "likely_orders", "likely_ways", "orders_of", "ways"]

MAX_INPUTS = 10  # of a join whose orders take a few milliseconds
MAX_CHOICES = 64  # of accesses
MOST_TURNS = 8  # choices between keeping all tables and asking all that are tried of a wide join


class Way(NamedTuple):
    """One choice of accesses in a join: its CPU, the bytes of its streams and tables that are kept, and which tables are asked."""

    cpu: float
    bytes: float
    asked: Asked


_Steps = dict[int, tuple[float, int, int]]
"""By the states that are probed by hash on the way: what the way costs per 1/T, the next input, and the states that are probed by hash after it."""


@dataclass(frozen=True)
class _Join:
    """The inputs of one join by position; a set of them is an integer with a bit for each."""

    model: CostModel
    blocks: tuple[int, ...]
    indexes: dict[int, Offer]
    """By position the index of each table that is asked."""

    @cached_property
    def tables(self) -> int:
        return sum(1 << k for k, block in enumerate(self.blocks) if not block & ~self.model.graph.tables)

    @cached_property
    def follows_predicates(self) -> bool:
        return self.model.graph.connected(sum(self.blocks))

    @cached_property
    def _near(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """For each input the others that it shares a predicate with, and those by an equality."""
        graph, m = self.model.graph, len(self.blocks)
        owner = {i: k for k, block in enumerate(self.blocks) for i in bits(block)}
        near, equal = [0] * m, [0] * m
        for edge in graph.edges:
            a, b = owner.get(edge.left), owner.get(edge.right)
            if a is not None and b is not None and a != b:
                near[a] |= 1 << b
                near[b] |= 1 << a
                equal[a] |= edge.equality << b
                equal[b] |= edge.equality << a
        return tuple(near), tuple(equal)

    @cached_property
    def _binders(self) -> dict[int, list[int]]:
        """For each table that is asked the inputs that give each of its bound attributes a value."""
        return {
            k: [sum(1 << j for j, block in enumerate(self.blocks) if block & binder) for binder in index.binders] for k, index in self.indexes.items()
        }

    @cached_property
    def kept(self) -> int:
        """The inputs whose states cost something to keep."""
        out = self.model.left_out(self.blocks, ())
        return sum(1 << k for k, block in enumerate(self.blocks) if not block & out) & ~self.tables

    @cached_property
    def undecided(self) -> int:
        """The kept inputs that share an equality with tables, and with nothing else: the orders decide whether they need an index."""
        _, equal = self._near
        return sum(1 << k for k in bits(self.kept) if equal[k] and not equal[k] & ~self.tables)

    def next(self, visited: int) -> Iterator[int]:
        """The inputs that may be visited next."""
        near, _ = self._near
        reached = (1 << len(self.blocks)) - 1
        if self.follows_predicates:
            reached = 0
            for k in bits(visited):
                reached |= near[k]
        for k in bits(reached & ~visited):
            if all(visited & binder for binder in self._binders.get(k, ())):
                yield k

    def size(self, union: int) -> float:
        return self.model.size(sum(self.blocks[k] for k in bits(union)))

    @cached_property
    def steps(self) -> dict[int, _Steps]:
        """For every union that pipelines reach, the cheapest ways on to the whole; none from where it cannot be reached."""
        layers: list[dict[int, None]] = [dict.fromkeys(1 << k for k in range(len(self.blocks)) if not self.tables >> k & 1)]
        while len(layers) < len(self.blocks):
            layers.append(dict.fromkeys(union | 1 << k for union in layers[-1] for k in self.next(union)))
        found: dict[int, _Steps] = {(1 << len(self.blocks)) - 1: {0: (0.0, -1, 0)}}
        for layer in reversed(layers[:-1]):
            for union in layer:
                found.setdefault(union, self._ways_on(union, found))
        return found

    def step(self, visited: int, k: int, size: float, made: float) -> float:
        """What it costs per 1/T to go on to input k, from `size` tuples to as many as are `made`."""
        costs, index = self.model.costs, self.indexes.get(k)
        hashed = self._near[1][k] & visited != 0
        per_tuple = probing(costs, hashed, self.model.size(self.blocks[k])) if index is None else index.cpu
        return going_on(per_tuple, size, costs.join, made)

    def _ways_on(self, union: int, found: dict[int, _Steps]) -> _Steps:
        _, equal = self._near
        size = self.size(union)
        best: _Steps = {}
        for k in self.next(union):
            ahead = found.get(union | 1 << k)
            if not ahead:
                continue
            step = self.step(union, k, size, self.size(union | 1 << k))
            here = self.undecided & 1 << k if equal[k] & union else 0
            for later, (cost, _, _) in ahead.items():
                way = (step + cost, k, later)
                known = best.get(here | later)
                if known is None or way[0] < known[0] * TIED:
                    best[here | later] = way
        return best

    @cached_property
    def together(self) -> tuple[float, int, tuple[int, ...]]:
        """The CPU of all pipelines and states at best, the undecided states that are indexed then, and by pipeline those that it probes by hash."""
        starts = [k for k in range(len(self.blocks)) if not self.tables >> k & 1]
        sums: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
        for k in starts:
            pace, grown = self.model.per_second(self.blocks[k]), dict[int, tuple[float, tuple[int, ...]]]()
            for own, (cost, _, _) in self.steps.get(1 << k, {}).items():
                for before, (total, chosen) in sums.items():
                    whole = total + times(pace, cost)
                    if before | own not in grown or whole < grown[before | own][0]:
                        grown[before | own] = whole, (*chosen, own)
            sums = grown
        steps = stepping(self.model.costs, probe_steps(len(self.blocks), len(self.blocks) - len(starts)))
        best: tuple[float, int, tuple[int, ...]] = (math.inf, 0, ())
        for indexed in sorted(sums):
            cpu = sums[indexed][0] + self._keeping(indexed) + steps
            if cpu < best[0]:
                best = cpu, indexed, sums[indexed][1]
        return best

    def _keeping(self, indexed: int) -> float:
        """What keeping the states costs, of the undecided ones those indexed."""
        model, (_, equal) = self.model, self._near
        by_hash = sum(1 << k for k in bits(self.kept) if equal[k] & ~self.tables) | indexed
        return math.fsum(keeping(model.costs, by_hash >> k & 1 != 0, model.rate(self.blocks[k])) for k in bits(self.kept))

    @property
    def bound(self) -> bool:
        """Whether every pipeline has an order that binds what is asked."""
        return all(self.steps.get(1 << k) for k in range(len(self.blocks)) if not self.tables >> k & 1)

    def orders(self) -> Orders | None:
        """The orders behind `together`; None where some pipeline cannot bind an index, or all cost more than a double can hold."""
        if math.isinf(self.together[0]):
            return None
        chosen = iter(self.together[2])
        orders: list[tuple[int, ...]] = []
        for k in range(len(self.blocks)):
            order: list[int] = []
            if not self.tables >> k & 1:
                visited, hashed = 1 << k, next(chosen)
                while len(order) < len(self.blocks) - 1:
                    _, target, hashed = self.steps[visited][hashed]
                    order.append(target)
                    visited |= 1 << target
            orders.append(tuple(order))
        return tuple(orders)


def _join(model: CostModel, blocks: Sequence[int], asked: Asked) -> _Join:
    chosen = {1 << table: model.graph.offers[table][place] for table, place in asked}
    return _Join(model, tuple(blocks), {k: chosen[block] for k, block in enumerate(blocks) if block in chosen})


def orders_of(model: CostModel, blocks: Sequence[int], asked: Asked) -> Orders | None:
    """The cheapest probe order of every input that is no table; None where an index cannot be bound."""
    if _streams_alone(model, blocks):
        return (1,), (0,)
    return _join(model, blocks, asked).orders()


def can_bind(model: CostModel, blocks: Sequence[int]) -> bool:
    """Whether a join of so few inputs that all orders are tried can bind some choice of accesses, whatever that costs."""
    choices = islice(product(*_offered(model, blocks, False)), MAX_CHOICES)
    return len(blocks) <= MAX_INPUTS and any(_join(model, blocks, _asked(model, chosen)).bound for chosen in choices)


def _offered(model: CostModel, blocks: Sequence[int], cpu_alone: bool) -> list[list[tuple[int, int]]]:
    """For each table among the inputs what may be chosen of it, kept before asked; where only the CPU counts, nothing that keeping it beats."""
    found = []
    for table in (block.bit_length() - 1 for block in blocks if not block & ~model.graph.tables):
        offers = model.graph.offers[table]
        kept = [place for place, offer in enumerate(offers) if offer.kept]
        worse = kept and cpu_alone
        asked = [place for place, offer in enumerate(offers) if not offer.kept and not (worse and offer.cpu > model.costs.probe)]
        found.append([(table, place) for place in (*kept, *asked)])
    return found


def _asked(model: CostModel, chosen: Sequence[tuple[int, int]]) -> Asked:
    return tuple((table, place) for table, place in chosen if not model.graph.offers[table][place].kept)


def ways(model: CostModel, blocks: Sequence[int], cpu_alone: bool = False, deadline: Deadline = NEVER) -> list[Way]:
    """Every choice of accesses that no other beats in both resources, by rising CPU; none where no order can bind them.

    Where only the CPU counts, the choice of least CPU is among them, and others may not be. From the deadline on, those so far.
    """
    if _streams_alone(model, blocks):
        return [Way(model.price_join(blocks, ((1,), (0,))).cpu, _leaves(model, blocks, ()), ())]
    found = []
    for chosen in product(*_offered(model, blocks, cpu_alone)):
        asked = _asked(model, chosen)
        cpu = _join(model, blocks, asked).together[0]
        if math.isfinite(cpu):
            found.append(Way(cpu, _leaves(model, blocks, asked), asked))
        if deadline.expired():
            break
    return undominated(found, lambda way: (way.cpu, way.bytes))


def _leaves(model: CostModel, blocks: Sequence[int], asked: Asked) -> float:
    """The bytes of the streams and tables among the inputs that are kept."""
    return model.leaves_bytes(sum(block for block in blocks if block & (block - 1) == 0) & ~model.left_out(blocks, asked))


def _streams_alone(model: CostModel, blocks: Sequence[int]) -> bool:
    """Whether this is a binary join without tables, where each state is indexed or not, whichever is cheaper."""
    return len(blocks) == 2 and all(block & ~model.graph.tables for block in blocks)


def likely_ways(model: CostModel, blocks: Sequence[int], deadline: Deadline = NEVER) -> list[Way]:
    """As `ways` for a join of any width, without its guarantee: some choices of accesses, with greedy orders where those of all are too many.

    First the choice of least CPU. From there tables are asked one after the other, those first that free most for what it costs.
    """
    offered = _offered(model, blocks, False)
    if math.prod(map(len, offered)) <= MAX_CHOICES and len(blocks) <= MAX_INPUTS:
        return ways(model, blocks, False, deadline)
    cheapest = tuple(min(offers, key=lambda at: _probing(model, *at)) for offers in offered)
    tried = ((list(start), _priced(model, blocks, _asked(model, start))) for start in chain((cheapest,), islice(product(*offered), MAX_CHOICES)))
    chosen, first = next(((start, join) for start, join in tried if join is not None), ([], None))
    if first is None:
        return []
    found = [_way(model, first)]
    turns = sorted(_turns(model, first, chosen, offered))
    every = max(1, len(turns) // MOST_TURNS)
    counts = [*range(every, len(turns), every), len(turns)] if turns else []
    for count in (counts[place] for place in spread(len(counts), len(counts) - 1)):
        if len(found) > 1 and deadline.expired():
            break
        turned = {k: (chosen[k][0], place) for _, k, place in turns[:count]}
        join = _priced(model, blocks, _asked(model, [turned.get(k, at) for k, at in enumerate(chosen)]))
        if join is not None:
            found.append(_way(model, join))
    return undominated(found, lambda way: (way.cpu, way.bytes))


def _probing(model: CostModel, table: int, place: int) -> float:
    """What one probe of a table costs by this access."""
    offer = model.graph.offers[table][place]
    return model.costs.probe if offer.kept else offer.cpu


def _turns(
    model: CostModel, join: PricedJoin, chosen: Sequence[tuple[int, int]], offered: Sequence[Sequence[tuple[int, int]]]
) -> Iterator[tuple[float, int, int]]:
    """For every kept table that may be asked: CPU a byte that asking it costs, its number among the tables, and its cheapest index."""
    graph = model.graph
    for k, (table, place) in enumerate(chosen):
        indexes = [other for _, other in offered[k] if not graph.offers[table][other].kept]
        if graph.offers[table][place].kept and indexes:
            target = join.blocks.index(1 << table)
            probes = math.fsum(probe.rate_in for pipeline in join.pipelines for probe in pipeline.probes if probe.target == target)
            index = min(indexes, key=lambda other: graph.offers[table][other].cpu)
            yield probes * (_probing(model, table, index) - model.costs.probe) / model.leaves_bytes(1 << table), k, index


def _priced(model: CostModel, blocks: Sequence[int], asked: Asked) -> PricedJoin | None:
    orders = likely_orders(model, blocks, asked)
    return None if orders is None else model.price_join(blocks, orders, None, asked)


def _way(model: CostModel, join: PricedJoin) -> Way:
    return Way(join.cpu, _leaves(model, join.blocks, join.asked), join.asked)


def likely_orders(model: CostModel, blocks: Sequence[int], asked: Asked) -> Orders | None:
    """The best orders of a join that is not too wide, else greedy ones: next is always the cheapest step, its results included."""
    if len(blocks) <= MAX_INPUTS:
        return orders_of(model, blocks, asked)
    join, graph = _join(model, blocks, asked), model.graph
    orders = []
    for start in range(len(blocks)):
        order: list[int] = []
        visited, mask, size = 1 << start, blocks[start], model.size(blocks[start])
        while not join.tables >> start & 1 and len(order) < len(blocks) - 1:
            steps = []
            for k in join.next(visited):
                made = graph.grown(size, mask | blocks[k], model.size(blocks[k]), graph.between(mask, blocks[k]))
                steps.append((join.step(visited, k, size, made), k, made))
            if not steps:
                return None
            _, k, size = min(steps)
            order.append(k)
            visited, mask = visited | 1 << k, mask | blocks[k]
        orders.append(tuple(order))
    return tuple(orders)

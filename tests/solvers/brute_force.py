"""Every join tree, every probe order and every access of tables, straight from the contract's formulas (§1, §2): slow, short, and sure.

Shares nothing with the searches but the sizes of sets. A pipeline's cost does not depend on the other pipelines' orders, so
each input's cheapest order is found on its own, among all permutations that never take a cross product. Which states have an index does depend
on the orders where there are tables: then the cheapest order is found for every set of states that it probes by hash.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations, product
from typing import Any

from solvers.model.cost import CostModel
from solvers.model.graph import bits

__all__ = ["Tried", "best_within", "every_plan", "frontier", "partitions"]

Blocks = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """One plan: its figures and the inputs of its joins."""

    cpu: float
    memory_bytes: float
    joins: tuple[Blocks, ...]
    asked: tuple[tuple[int, int], ...] = ()
    """The tables that are asked, each with the place of its index."""


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    """All ways to divide items into non-empty parts."""
    if not items:
        yield []
        return
    first, rest = items[0], items[1:]
    for divided in partitions(rest):
        yield [[first], *divided]
        for k, part in enumerate(divided):
            yield [*divided[:k], [first, *part], *divided[k + 1 :]]


class _Formulas:
    """The contract's §1 for one model."""

    def __init__(self, model: CostModel) -> None:
        self.model, self.graph, self.costs = model, model.graph, model.costs
        self.join_cpu = lru_cache(maxsize=None)(self._join_cpu)
        self.trees = lru_cache(maxsize=None)(self._trees)

    def from_(self, block: int, visited: int) -> float:
        return math.fsum(self.graph.size(visited) / self.graph.window_seconds[i] for i in bits(block))

    def equality(self, left: int, right: int) -> bool:
        return any(self.graph.edges[p].equality for p in self.graph.between(left, right))

    def _join_cpu(self, blocks: Blocks) -> float:
        """One join with the best order of every pipeline; its probes follow predicates where its streams are connected."""
        whole = sum(blocks)
        crossing = not self.graph.connected(whole)
        costs = self.costs
        if len(blocks) == 2:
            return math.fsum(self._binary_side(a, b) for a, b in (blocks, blocks[::-1]))
        total = []
        for block in blocks:
            indexed = self.equality(block, whole & ~block)
            total.append(self.from_(block, block) * (costs.insert + costs.delete if indexed else costs.append))
            others = [other for other in blocks if other != block]
            total.append(min(self._pipeline(block, order, crossing) for order in permutations(others)))
        return math.fsum(total)

    def table_ways(self, blocks: Blocks) -> list[tuple[float, float, tuple[tuple[int, int], ...]]]:
        """CPU, bytes of the inputs that are kept, and asked tables of one join, for every choice of accesses that can be bound."""
        graph, found = self.graph, []
        leaves = [block.bit_length() - 1 for block in blocks if block & (block - 1) == 0]
        tables = [i for i in leaves if graph.offers[i]]
        flowing = [block for block in blocks if block.bit_length() - 1 not in tables or block & (block - 1)]
        for places in product(*(range(len(graph.offers[i])) for i in tables)):
            asked = {i: place for i, place in zip(tables, places, strict=True) if graph.offers[i][place].bound}
            lone = flowing[0] if len(flowing) == 1 and flowing[0] & (flowing[0] - 1) == 0 else 0
            kept = [i for i in leaves if i not in asked and 1 << i != lone]
            held = math.fsum(graph.window_tuples[i] * graph.tuple_bytes[i] for i in kept)
            if not tables and len(blocks) == 2:
                cpu = self.join_cpu(blocks)
            else:
                cpu = self._cpu_with_tables(blocks, flowing, lone, {1 << i: graph.offers[i][place] for i, place in asked.items()})
            if cpu < math.inf:
                found.append((cpu, held, tuple(sorted(asked.items()))))
        return found

    def _cpu_with_tables(self, blocks: Blocks, flowing: list[int], lone: int, indexes: dict[int, Any]) -> float:
        crossing, costs = not self.graph.connected(sum(blocks)), self.costs
        pipelines = []
        for block in flowing:
            ways: dict[frozenset[int], float] = {}
            for order in permutations([other for other in blocks if other != block]):
                hashed, cost = self._probed(block, order, crossing, indexes)
                ways[hashed] = min(ways.get(hashed, math.inf), cost)
            pipelines.append([(hashed, cost) for hashed, cost in ways.items() if cost < math.inf])
        best = math.inf
        for chosen in product(*pipelines):
            indexed = frozenset().union(*(hashed for hashed, _ in chosen))
            keeping = [
                self.from_(block, block) * (costs.insert + costs.delete if block in indexed else costs.append) for block in flowing if block != lone
            ]
            best = min(best, math.fsum([*keeping, *(cost for _, cost in chosen)]))
        return best

    def _probed(self, block: int, order: Sequence[int], crossing: bool, indexes: dict[int, Any]) -> tuple[frozenset[int], float]:
        """What a pipeline probes by hash, and what it costs; infinity where a probe follows no predicate or an index is not bound."""
        costs, visited, total, hashed = self.costs, block, [], set()
        for target in order:
            arriving, index = self.from_(block, visited), indexes.get(target)
            if not crossing and not self.graph.between(visited, target):
                return frozenset(), math.inf
            if index is not None:
                if not all(visited & binder for binder in index.binders):
                    return frozenset(), math.inf
                total.append(arriving * index.cpu)
            else:
                total.append(arriving * costs.probe)
                if self.equality(visited, target):
                    hashed.add(target)
                else:
                    total.append(arriving * costs.scan * self.graph.size(target))
            visited |= target
            total.append(self.from_(block, visited) * costs.join + costs.step)
        return frozenset(hashed), math.fsum(total)

    def _binary_side(self, probing: int, probed: int) -> float:
        """Keeping `probed` and probing it from the other side, with an index or without, whichever is cheaper."""
        costs = self.costs
        kept, arriving = self.from_(probed, probed), self.from_(probing, probing)
        made = self.from_(probing, probing | probed) * costs.join + costs.step
        plain = kept * costs.append + arriving * (costs.probe + costs.scan * self.graph.size(probed)) + made
        if not self.equality(probing, probed):
            return plain
        return min(plain, kept * (costs.insert + costs.delete) + arriving * costs.probe + made)

    def _pipeline(self, block: int, order: Sequence[int], crossing: bool) -> float:
        costs, visited, total = self.costs, block, 0.0
        for target in order:
            if not crossing and not self.graph.between(visited, target):
                return math.inf
            arriving = self.from_(block, visited)
            total += arriving * costs.probe
            if not self.equality(visited, target):
                total += arriving * costs.scan * self.graph.size(target)
            visited |= target
            total += self.from_(block, visited) * costs.join + costs.step
        return total

    def _allowed(self, block: int) -> bool:
        """No operator joins tables alone."""
        return block & (block - 1) == 0 or block & ~self.graph.tables != 0

    def _trees(self, whole: int) -> tuple[tuple[Blocks, ...], ...]:
        """Every join tree of a connected set, as the inputs of its joins, the topmost last."""
        if whole & (whole - 1) == 0:
            return ((),)
        found = []
        for parts in partitions(list(bits(whole))):
            blocks = tuple(sorted((sum(1 << i for i in part) for part in parts), key=lambda mask: mask & -mask))
            if len(blocks) > 1 and all(self.graph.connected(block) and self._allowed(block) for block in blocks):
                for chosen in product(*(self.trees(block) for block in blocks)):
                    found.append((*(join for tree in chosen for join in tree), blocks))
        return tuple(found)


def every_plan(model: CostModel) -> list[Tried]:
    """All plans of the query, with the best probe orders of each."""
    formulas = _Formulas(model)
    components = model.graph.components
    if len(components) == 1:
        trees: Iterator[tuple[Blocks, ...]] = iter(formulas.trees(components[0]))
    else:
        trees = ((*(join for tree in chosen for join in tree), components) for chosen in product(*(formulas.trees(part) for part in components)))
    plans = []
    if model.graph.tables:
        return _with_tables(formulas, trees)
    for joins in trees:
        kept = [sum(blocks) for blocks in joins[:-1]]
        memory = math.fsum([model.leaves_bytes(), *(model.state_bytes(mask) for mask in kept)])
        plans.append(Tried(math.fsum(formulas.join_cpu(blocks) for blocks in joins), memory, joins))
    return plans


def _with_tables(formulas: _Formulas, trees: Iterator[tuple[Blocks, ...]]) -> list[Tried]:
    model, known, plans = formulas.model, dict[Blocks, Any](), []
    for joins in trees:
        inner = [model.state_bytes(sum(blocks)) for blocks in joins[:-1]]
        for blocks in joins:
            if blocks not in known:
                known[blocks] = formulas.table_ways(blocks)
        for chosen in product(*(known[blocks] for blocks in joins)):
            asked = tuple(sorted(one for _, _, asks in chosen for one in asks))
            plans.append(Tried(math.fsum(cpu for cpu, _, _ in chosen), math.fsum([*inner, *(held for _, held, _ in chosen)]), joins, asked))
    return plans


def frontier(plans: Sequence[Tried]) -> list[Tried]:
    """The plans that no other beats in both resources, by rising CPU."""
    kept: list[Tried] = []
    for plan in sorted(plans, key=lambda plan: (plan.cpu, plan.memory_bytes, len(plan.joins))):
        if not kept or plan.memory_bytes < kept[-1].memory_bytes:
            kept.append(plan)
    return kept


def best_within(plans: Sequence[Tried], cpu: float, memory_bytes: float) -> list[Tried]:
    """The plans within both caps."""
    return [plan for plan in plans if plan.cpu <= cpu and plan.memory_bytes <= memory_bytes]

"""What contract §1 says of a query, and the best plans by it: plain, slow, from the contract's text alone.

Knows nothing of solvers/. Streams are bits by their position in the query, sets of streams are integers, and a join is the tuple of
its inputs' sets. Every search here goes through all there is, over the unions of some *blocks*, disjoint connected sets that are
joined already: usually the single streams.

* `least_binary`: the best tree of binary joins.
* `staircase`: every trade-off of CPU and bytes among all join trees.
* `join`: one join with its best probe orders, by a table over the unions of its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Generic, TypeVar

from models.request import Comparison, Costs, Query

__all__ = ["Reference", "positions", "steps", "subsets"]

Blocks = tuple[int, ...]
Step = tuple[float, float]
T = TypeVar("T")

MANY = 1_000  # points that are collected before those that others beat are dropped


def positions(mask: int) -> list[int]:
    """The streams of a set."""
    return [i for i in range(mask.bit_length()) if mask >> i & 1]


def subsets(mask: int) -> Iterator[int]:
    """Every subset that holds the lowest element, the set itself first."""
    low = mask & -mask
    rest = part = mask ^ low
    yield mask
    while part:
        part = (part - 1) & rest
        yield low | part


def steps(points: Iterable[Step]) -> list[Step]:
    """The points that no other beats in both, by the first."""
    kept: list[Step] = []
    for point in sorted(points):
        if not kept or point[1] < kept[-1][1]:
            kept.append(point)
    return kept


class Reference:
    """One query under one set of cost constants."""

    def __init__(self, query: Query, costs: Costs) -> None:
        self.costs = costs
        self.index = costs.insert + costs.delete
        place = {stream.name: i for i, stream in enumerate(query.streams)}
        self.n = len(place)
        self.all = (1 << self.n) - 1
        self.rates = [stream.rate for stream in query.streams]
        self.bytes = [float(stream.tuple_bytes) for stream in query.streams]
        self.tuples, self.seconds = [], []
        for stream in query.streams:
            if stream.window.rows is not None:
                self.tuples.append(float(stream.window.rows))
                self.seconds.append(stream.window.rows / stream.rate)
            else:
                assert stream.window.seconds is not None
                self.tuples.append(stream.rate * stream.window.seconds)
                self.seconds.append(stream.window.seconds)
        self.predicates: list[tuple[int, bool, float]] = []
        for predicate in query.predicates:
            ends = [1 << place[side.split(".")[0]] for side in (predicate.left, predicate.right)]
            assert predicate.selectivity is not None
            self.predicates.append((ends[0] | ends[1], predicate.op is Comparison.EQ, predicate.selectivity))
        by_size = sorted(query.observed, key=lambda entry: (-len(entry.streams), sorted(entry.streams)))
        self.observed = [(sum(1 << place[name] for name in entry.streams), entry.selectivity) for entry in by_size]
        self.near = [self._partners(i, equal=False) for i in range(self.n)]
        self.equal = [self._partners(i, equal=True) for i in range(self.n)]
        self.size = lru_cache(maxsize=None)(self._size)
        self.per_second = lru_cache(maxsize=None)(self._per_second)
        self.around = lru_cache(maxsize=None)(self._around)
        self.equal_around = lru_cache(maxsize=None)(self._equal_around)
        self.join = lru_cache(maxsize=None)(self._join)

    # Sets

    def _partners(self, i: int, equal: bool) -> int:
        found = 0
        for ends, equality, _ in self.predicates:
            if ends >> i & 1 and (equality or not equal):
                found |= ends & ~(1 << i)
        return found

    def selectivities(self, mask: int) -> list[float]:
        """What σ(S) is the product of."""
        for members, selectivity in self.observed:
            if members == mask:
                return [selectivity]
        taken: list[int] = []
        factors, free = [], mask
        for members, selectivity in self.observed:
            if members & ~free == 0:
                taken.append(members)
                free &= ~members
                factors.append(selectivity)
        for ends, _, selectivity in self.predicates:
            if ends & ~mask == 0 and all(ends & ~members for members in taken):
                factors.append(selectivity)
        return factors

    def _size(self, mask: int) -> float:
        windows, selectivities = [self.tuples[i] for i in positions(mask)], self.selectivities(mask)
        size = math.prod(windows) * math.prod(selectivities)
        if 0.0 < size < math.inf or 0.0 in selectivities:
            return size
        return float(math.prod(map(Fraction, windows)) * math.prod(map(Fraction, selectivities)))  # a factor left the range, not the size

    def _per_second(self, mask: int) -> float:
        return math.fsum(1.0 / self.seconds[i] for i in positions(mask))

    def produced(self, block: int, visited: int) -> float:
        """Tuples of `visited` per second that arrivals of `block` complete."""
        return self.size(visited) * self.per_second(block)

    def rate(self, mask: int) -> float:
        return self.produced(mask, mask)

    def tuple_bytes(self, mask: int) -> float:
        return math.fsum(self.bytes[i] for i in positions(mask))

    def state_bytes(self, mask: int) -> float:
        return self.size(mask) * self.tuple_bytes(mask)

    def leaves_bytes(self) -> float:
        return math.fsum(self.state_bytes(1 << i) for i in range(self.n))

    def _around(self, mask: int) -> int:
        reached = 0
        for i in positions(mask):
            reached |= self.near[i]
        return reached & ~mask

    def _equal_around(self, mask: int) -> int:
        reached = 0
        for i in positions(mask):
            reached |= self.equal[i]
        return reached & ~mask

    def connected(self, mask: int) -> bool:
        seen = mask & -mask
        while self.around(seen) & mask:
            seen |= self.around(seen) & mask
        return seen == mask

    def components(self) -> list[int]:
        found, left = [], self.all
        while left:
            seen = left & -left
            while self.around(seen):
                seen |= self.around(seen)
            found.append(seen)
            left &= ~seen
        return found

    def connected_unions(self, blocks: Sequence[int]) -> list[int]:
        """Every connected union of blocks, smaller ones first."""
        found = set(blocks)
        waiting = list(blocks)
        while waiting:
            mask = waiting.pop()
            around = self.around(mask)
            for block in blocks:
                if block & around and not block & mask and mask | block not in found:
                    found.add(mask | block)
                    waiting.append(mask | block)
        return sorted(found, key=lambda mask: (mask.bit_count(), mask))

    def connected_sets(self, component: int) -> list[int]:
        return self.connected_unions([1 << i for i in positions(component)])

    # One join

    def side(self, probed: int, probing: int) -> float:
        """Keeping one state of a binary join and probing it from the other side: indexed or not, whichever is cheaper."""
        costs, kept, arriving = self.costs, self.rate(probed), self.rate(probing)
        plain = kept * costs.append + arriving * (costs.probe + costs.scan * self.size(probed))
        return min(plain, kept * self.index + arriving * costs.probe) if self.equal_around(probing) & probed else plain

    def binary(self, left: int, right: int) -> float:
        return self.side(left, right) + self.side(right, left) + self.rate(left | right) * self.costs.join + 2 * self.costs.step

    def step(self, block: int, visited: int, target: int) -> float:
        """One probe of the pipeline of `block` in an mjoin."""
        costs, arriving = self.costs, self.produced(block, visited)
        scanned = 0.0 if self.equal_around(visited) & target else costs.scan * self.size(target)
        return arriving * (costs.probe + scanned) + self.produced(block, visited | target) * costs.join + costs.step

    def keeping(self, blocks: Sequence[int]) -> float:
        """The states of an mjoin."""
        whole = sum(blocks)
        return math.fsum(self.rate(b) * (self.index if self.equal_around(b) & whole else self.costs.append) for b in blocks)

    def pipeline(self, blocks: Sequence[int], start: int, order: Sequence[int]) -> float:
        """The pipeline of one input of an mjoin along an order of the others' places, infinite where a step follows no predicate."""
        visited, total = blocks[start], 0.0
        for place in order:
            if not self.around(visited) & blocks[place]:
                return math.inf
            total += self.step(blocks[start], visited, blocks[place])
            visited |= blocks[place]
        return total if visited == sum(blocks) else math.inf

    def along(self, blocks: Sequence[int], orders: Sequence[Sequence[int]]) -> float:
        """An mjoin with these probe orders."""
        return self.keeping(blocks) + math.fsum(self.pipeline(blocks, start, order) for start, order in enumerate(orders))

    def _join(self, blocks: Blocks) -> float:
        """The CPU of one join, with its best probe orders."""
        if len(blocks) == 2:
            return self.binary(*blocks)
        whole, costs = sum(blocks), self.costs
        to_go = {whole: 0.0}  # per 1/T of whoever arrives
        for union in reversed(self.connected_unions(blocks)):
            if union == whole:
                continue
            best = math.inf
            around, equal, size = self.around(union), self.equal_around(union), self.size(union)
            for block in blocks:
                if block & around:
                    weight = costs.probe if block & equal else costs.probe + costs.scan * self.size(block)
                    best = min(best, size * weight + self.size(union | block) * costs.join + to_go[union | block])
            to_go[union] = best
        steps = len(blocks) * (len(blocks) - 1) * costs.step
        return self.keeping(blocks) + math.fsum([steps, *(self.per_second(block) * to_go[block] for block in blocks)])

    # Whole plans, as the tuples of their joins' inputs

    def cpu(self, joins: Iterable[Blocks]) -> float:
        return math.fsum(self.join(blocks) for blocks in joins)

    def inner_bytes(self, joins: Iterable[Blocks], whole: int) -> float:
        return math.fsum(self.state_bytes(sum(blocks)) for blocks in joins if sum(blocks) != whole)

    def joins_of(self, members: Iterable[int]) -> list[Blocks]:
        """The joins of the plan in which these sets are made: a join's inputs are the largest members inside it, and streams."""
        family = sorted({mask for mask in members if mask}, key=lambda mask: mask.bit_count())
        joins = []
        for k, mask in enumerate(family):
            left, inputs = mask, []
            for other in reversed(family[:k]):
                if other & ~left == 0:
                    inputs.append(other)
                    left &= ~other
            joins.append(tuple(sorted([*inputs, *(1 << i for i in positions(left))], key=lambda block: block & -block)))
        return joins

    # Searches over all plans of some blocks

    def least_binary(self, blocks: Sequence[int], by_memory: bool = False) -> float:
        """The least CPU of all binary trees; or the fewest bytes that their inner joins keep."""
        whole = sum(blocks)
        best = _Known(dict.fromkeys(blocks, 0.0))
        for union in self.connected_unions(blocks):
            if union in blocks:
                continue
            own = self.state_bytes(union) if union != whole else 0.0
            halves = [(left, union & ~left) for left in best.parts(union) if union & ~left in best.figure]
            best.add(union, min(best.figure[a] + best.figure[b] + (own if by_memory else self.binary(a, b)) for a, b in halves))
        return best.figure[whole]

    def pairs(self, component: int) -> int:
        """How many pairs of connected sets a predicate joins."""
        found = self.connected_sets(component)
        return sum(1 for left in found for right in found if left < right and not left & right and self.around(left) & right)

    def staircase(self, blocks: Sequence[int], allowed: set[int] | None = None) -> list[Step]:
        """(CPU, bytes of inner states) of all join trees over the blocks that no other beats; `allowed`: the sets that may be kept."""
        whole = sum(blocks)
        known = _Known[list[Step]]({block: [(0.0, 0.0)] for block in blocks})
        for union in self.connected_unions(blocks):
            if union in blocks or (union != whole and allowed is not None and union not in allowed):
                continue
            own = self.state_bytes(union) if union != whole else 0.0
            points: list[Step] = []
            for parts in known.partitions(union):
                sums = [(self.join(parts), own)]
                for part in parts:
                    if part not in blocks:
                        sums = steps((cpu + more, held + kept) for cpu, held in sums for more, kept in known.figure[part])
                points += sums
                if len(points) > MANY:
                    points = steps(points)
            known.add(union, steps(points))
        return known.figure[whole]


class _Known(Generic[T]):
    """Sets whose figure is known already, and the ways to make others of them."""

    def __init__(self, figure: dict[int, T]) -> None:
        self.figure: dict[int, T] = {}
        self._by_lowest: dict[int, list[int]] = {}
        for mask, value in figure.items():
            self.add(mask, value)

    def add(self, mask: int, value: T) -> None:
        self.figure[mask] = value
        self._by_lowest.setdefault(mask & -mask, []).append(mask)

    def parts(self, union: int) -> Iterator[int]:
        """The known sets inside a union that hold its lowest stream, the union itself too where it is known."""
        listed = self._by_lowest.get(union & -union, [])
        if len(listed) >> union.bit_count():
            return (part for part in subsets(union) if part in self.figure)
        return (part for part in listed if part & ~union == 0)

    def partitions(self, union: int) -> Iterator[Blocks]:
        """Every way to divide a union into two known sets or more, each once, by their lowest streams."""
        waiting: list[tuple[int, Blocks]] = [(union, ())]
        while waiting:
            left, parts = waiting.pop()
            if not left:
                yield parts
            else:
                waiting.extend((left & ~part, (*parts, part)) for part in self.parts(left) if part != union)

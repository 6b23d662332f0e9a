"""Random components with the tables that compiled functions take, beside the plain reference that they are held against."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from models.request import Costs, Query
from solvers.jtree.compiled.cost import Prices
from solvers.jtree.compiled.sets import Sets, find
from solvers.jtree.component import component_of
from solvers.jtree.table_sizes import MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.graphs import SHAPES, random_costs, random_graph
from tests.solvers.reference import Blocks, Reference, Step, positions

__all__ = [
    "FEW_SETS",
    "SHAPES",
    "Case",
    "a_case",
    "a_query",
    "a_tree",
    "any_costs",
    "assert_same_staircase",
    "cases",
    "close",
    "divided",
    "going_on",
    "ints",
]

FEW_SETS = ("chain", "cycle", "snowflake")  # shapes of which the plain searches end for 14 streams too
CLOSE = 1e-9  # of a figure: sums in another order
FREE = (
    Costs(scan=0.0),
    Costs(append=0.0, probe=1e-6),
    Costs(insert=0.0, delete=0.0),
    Costs(join=0.0, probe=0.0),
    Costs(scan=1e-9, insert=1e-5),
    Costs(step=1e-3),
)


def close(found: float, wanted: float, scale: float = 0.0) -> bool:
    """Equal but for rounding of the figure, or of the `scale` that it was subtracted from."""
    return math.isclose(found, wanted, rel_tol=CLOSE, abs_tol=1e-13 * abs(scale))


def ints(values: Iterable[int]) -> NDArray[np.int64]:
    return np.array(list(values), np.int64)


def any_costs(rng: random.Random) -> Costs:
    """The tests' usual constants, or some under which one operation is free or scans are nearly."""
    return rng.choice(FREE) if rng.random() < 0.3 else random_costs(rng)


def a_query(rng: random.Random, n: int, shape: str, parts: int = 1) -> Query:
    """Every feature that the tables know: windows in rows, theta and several predicates, observed sets."""
    return random_graph(
        rng,
        n,
        shape,
        windows=rng.choice(((1.0,), (0.1, 1.0, 10.0), (60.0,))),
        tuple_bytes=rng.choice(((100.0,), (10.0, 100.0, 1000.0))),
        log_selectivity=rng.choice((None, (-4.0, -1.0), (-2.0, 0.0))),
        rows=rng.choice((0.0, 0.4)),
        theta=rng.choice((0.0, 0.3, 1.0)),
        observed=rng.choice((0.0, 0.3, 1.0)) if n < 7 else rng.choice((0.0, 0.01)),
        parts=parts,
        equalities=rng.choice((0.0, 0.3)),
        shuffled=rng.random() < 0.5,
    )


@dataclass(frozen=True)
class Case:
    """One component of a query: its tables, numbered as the kernels do, and the reference, numbered as the query does."""

    query: Query
    model: CostModel
    reference: Reference
    component: int
    streams: list[int]
    """For each bit of the tables its stream."""
    sets: Sets
    prices: Prices
    base: float

    @property
    def n(self) -> int:
        return len(self.streams)

    @cached_property
    def masks(self) -> list[int]:
        """The connected sets in the order of the tables, as the query numbers streams."""
        return [self.named(int(mask)) for mask in self.sets.mask]

    @property
    def leaves(self) -> list[int]:
        return [1 << i for i in positions(self.component)]

    def named(self, mask: int) -> int:
        return sum(1 << self.streams[k] for k in positions(mask))

    def numbered(self, mask: int) -> int:
        return sum(1 << self.streams.index(i) for i in positions(mask))

    def place(self, mask: int) -> int:
        sets = self.sets
        return find(sets.keys, sets.places, sets.multiplier, sets.shift, self.numbered(mask))

    def places(self, masks: Sequence[int]) -> NDArray[np.int64]:
        return ints(self.place(mask) for mask in masks)

    def floor(self, mask: int) -> float:
        """What keeping a set costs at least, wherever it is kept: what a join's excess is counted from."""
        place = self.place(mask)
        return float(self.prices.floors[place]) if place < self.n else self.prices.keep * self.reference.rate(mask)

    def paid(self, blocks: Sequence[int]) -> float:
        """What every join of these inputs costs: CPU = this + excess."""
        reference, costs = self.reference, self.reference.costs
        floors = [self.floor(block) + costs.probe * reference.rate(block) for block in blocks]
        return math.fsum([*floors, costs.join * reference.rate(sum(blocks)), 2 * (len(blocks) - 1) * costs.step])

    def assert_excess(self, found: float, blocks: Sequence[int], wanted: float) -> None:
        """The excess of a join of these inputs is what its CPU is above what every such join costs."""
        paid = self.paid(blocks)
        assert math.isclose(paid + found, wanted, rel_tol=CLOSE, abs_tol=4.0 * self.prices.grain), f"{paid} + {found} is not {wanted}"


def a_case(rng: random.Random, n: int, shape: str, parts: int = 1) -> Case:
    """The largest component of a random query."""
    query, costs = a_query(rng, n, shape, parts), any_costs(rng)
    model, reference = CostModel(join_graph(query), costs), Reference(query, costs)
    component = max(reference.components(), key=lambda mask: mask.bit_count())
    part = component_of(model, component, MAX_SETS)
    assert part is not None
    return Case(query, model, reference, component, part.streams, part.sets, part.prices, part.base)


def cases(count: int, least: int, most: int, salt: int = 0, fourteen: Sequence[str] = ()) -> Iterator[tuple[random.Random, Case]]:
    """Cases of all shapes in turn, every third a part of a graph that is not connected; each with a generator to go on with.

    After them one connected graph of 14 streams of each of the shapes in `fourteen`."""
    for seed in range(count):
        rng = random.Random(1000 * salt + seed)
        shape = SHAPES[seed % len(SHAPES)]
        n = rng.randint(least, most)
        parts = 2 if seed % 3 == 0 and n > 4 else 1
        yield rng, a_case(rng, n, shape, parts)
    for shape in fourteen:
        rng = random.Random(f"{salt} {shape}")
        yield rng, a_case(rng, 14, shape)


def divided(rng: random.Random, reference: Reference, whole: int, most: int) -> Blocks:
    """A connected set cut into at most so many connected parts, at random, by their lowest streams: parts grow until few are left."""
    blocks = [1 << i for i in positions(whole)]
    target = rng.randint(2, max(2, min(most, len(blocks))))
    while len(blocks) > target:
        a = rng.choice(blocks)
        b = rng.choice([block for block in blocks if block & reference.around(a)])
        blocks = [block for block in blocks if block not in (a, b)] + [a | b]
    return tuple(sorted(blocks, key=lambda block: block & -block))


def a_tree(rng: random.Random, reference: Reference, whole: int, widest: int = 99) -> list[Blocks]:
    """The joins of a random plan of a connected set, the topmost first."""
    joins, waiting = [], [whole]
    while waiting:
        blocks = divided(rng, reference, waiting.pop(), widest)
        joins.append(blocks)
        waiting += [block for block in blocks if block & (block - 1)]
    return joins


def going_on() -> NDArray[np.int64]:
    """What a compiled search looks at to see whether to stop: it is not to."""
    return np.zeros(2, np.int64)


def assert_same_staircase(found: Sequence[Step], wanted: Sequence[Step], rounding: Step = (0.0, 0.0)) -> None:
    """Whatever one has the other has as good, in both figures; `rounding`: what those may be off by, whatever their size."""

    def covers(one: Step, other: Step) -> bool:
        return all(a <= b * (1.0 + CLOSE) + off for a, b, off in zip(one, other, rounding, strict=True))

    for point in wanted:
        assert any(covers(other, point) for other in found), f"{point} is missing among {found}"
    for point in found:
        assert any(covers(other, point) for other in wanted), f"{point} is better than any of {wanted}"
    # Steps that differ in what they have above what all pay may be equal when that is added.
    assert all(a[0] <= b[0] and a[1] > b[1] for a, b in pairwise(found))

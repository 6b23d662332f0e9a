"""How rows are spread over cells: the shares ("hypercube") scheme.

The problem: p cells work side by side, and the rows of a result must meet in one of them. The method: the cells form a grid with a
dimension per join attribute (attributes that predicates equate are one). A row has a coordinate, by hash, in every dimension whose
attribute it has, and is copied along the others. A stream may also have a dimension of its own, spread by the hash of the whole row: that
is what joins without equalities are left with. The shares are chosen so that the fullest cell gets the fewest bytes a second. Without skew
that is where the fewest bytes are sent; a value that a share s of a stream's rows has puts s of them, and not one in so many coordinates,
into one place. No attribute has more coordinates than a quarter of its values, where their number is known. All ways of writing p as a
product over the dimensions are tried where they are at most MAX_TRIED, otherwise each prime factor goes where it costs least, largest first.

The guarantee: every result is made in exactly one cell, because each dimension with more than one coordinate belongs to some stream. Exact
up to MAX_TRIED, a heuristic beyond. Complexity: MAX_TRIED · streams · dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_adapter.stem.programming import kept_streams

if TYPE_CHECKING:
    from models.plan import Plan
    from models.request import Query

__all__ = ["Dimension", "Grid", "choose_grid", "copied", "fits", "fitting_grid", "spread_keys"]

VALUES = 4  # of an attribute per coordinate, at least: with fewer some cells would have most rows and others none
ANEW = 3600.0  # seconds: a table weighs as if all of it were sent so often, since it takes room in every cell that it is copied to
MAX_TRIED = 20_000  # under a second, and more than p = 64 over a dozen attributes needs


@dataclass(frozen=True, slots=True)
class Dimension:
    """One axis of the grid."""

    share: int
    """Number of coordinates."""
    attributes: Mapping[str, str]
    """stream → the attribute of it that is hashed; the empty name for the whole row."""


@dataclass(frozen=True, slots=True)
class Grid:
    """The cells, numbered in mixed radix, the last dimension fastest."""

    dimensions: tuple[Dimension, ...]
    """Only those with more than one coordinate."""

    @property
    def cells(self) -> int:
        return math.prod(dimension.share for dimension in self.dimensions)

    @property
    def strides(self) -> tuple[int, ...]:
        shares = [dimension.share for dimension in self.dimensions]
        return tuple(math.prod(shares[d + 1 :]) for d in range(len(shares)))

    def hashed(self, stream: str) -> list[int]:
        """The dimensions in which a row of the stream has a coordinate."""
        return [d for d, dimension in enumerate(self.dimensions) if stream in dimension.attributes]

    def offsets(self, stream: str) -> list[int]:
        """What to add to the cell of a row's own coordinates for every copy of it; 0 first."""
        axes = [
            [c * stride for c in range(dimension.share)] if stream not in dimension.attributes else [0]
            for dimension, stride in zip(self.dimensions, self.strides, strict=True)
        ]
        return [sum(parts) for parts in itertools.product(*axes)]

    def home(self, cell: int, streams: Sequence[str]) -> bool:
        """Whether this cell is where rows of these streams are counted: the first of their copies."""
        return all(
            cell // stride % dimension.share == 0
            for dimension, stride in zip(self.dimensions, self.strides, strict=True)
            if not any(stream in dimension.attributes for stream in streams)
        )

    def meeting(self, left: Sequence[str], right: Sequence[str]) -> int:
        """k, where one in k pairs of a left and a right row meets in some cell: they do where they agree in every dimension that both have."""
        return math.prod(
            dimension.share
            for dimension in self.dimensions
            if any(stream in dimension.attributes for stream in left) and any(stream in dimension.attributes for stream in right)
        )

    def copies(self, streams: Sequence[str]) -> int:
        """How many cells hold a row of these streams."""
        return math.prod(dimension.share for dimension in self.dimensions if not any(stream in dimension.attributes for stream in streams))


def copied(plan: Plan, grid: Grid) -> float:
    """By what factor the grid's copies multiply the bytes of a plan's states: the copies of each state's rows, weighed by its bytes."""
    kept = kept_streams(plan)
    states: list[tuple[tuple[str, ...], float]] = [
        ((stream.name,), (stream.window.rows or stream.rate * (stream.window.seconds or 0)) * stream.tuple_bytes)
        for stream in plan.query.streams
        if stream.name in kept
    ]
    states += [((table.name,), table.state_bytes) for table in plan.tables]
    states += [(tuple(operator.streams), operator.state_bytes) for operator in plan.operators[:-1]]
    states += [(tuple(cache.streams), cache.memory_bytes) for cache in plan.caches]
    whole = math.fsum(held for _, held in states)
    return math.fsum(grid.copies(streams) * held for streams, held in states) / whole if whole else 1.0


def fits(plan: Plan, grid: Grid) -> bool:
    """Whether the copies leave a plan that is within its cap on memory there: what it keeps is kept as often as the grid copies it."""
    cap = plan.resources.memory_bytes
    return cap is None or plan.cost.memory_bytes > cap or plan.cost.memory_bytes * copied(plan, grid) <= cap


def fitting_grid(plan: Plan, cells: int) -> Grid:
    """The grid of so many cells, or of the largest power of two below whose copies fit the plan's cap."""
    grid = choose_grid(plan.query, cells)
    while not fits(plan, grid):
        cells = 1 << ((cells - 1).bit_length() - 1)
        grid = choose_grid(plan.query, cells)
    return grid


def choose_grid(query: Query, cells: int) -> Grid:
    """The grid of `cells` cells whose fullest cell gets the fewest bytes. One cell where a window is counted in rows: its rows must meet in order."""
    if cells < 2 or any(stream.window.rows is not None for stream in query.streams):
        return Grid(())
    axes = _axes(query)
    sent = {stream.name: stream.rate * stream.tuple_bytes for stream in query.streams}
    sent |= {table.name: table.rows * table.tuple_bytes / ANEW for table in query.tables}
    skew = {stream.name: stream.skew for stream in query.streams} | {table.name: {} for table in query.tables}
    limits = [_most_coordinates(query, axis) for axis in axes]
    factors = _prime_factors(cells)

    def cost(shares: Sequence[int]) -> float:
        if any(share > max(1.0, limit) for share, limit in zip(shares, limits, strict=True)):
            return math.inf
        # As a multiple of an even share of all cells: a row is copied along the axes it is not on, and gathered where it is skewed.
        laid = list(zip(shares, axes, strict=True))
        return math.fsum(
            weight * math.prod(1 + skew[name].get(axis[name], 0.0) * (share - 1) if name in axis else share for share, axis in laid)
            for name, weight in sent.items()
        )

    best: tuple[float, tuple[int, ...]] | None = None
    if len(axes) ** len(factors) <= MAX_TRIED:
        for places in itertools.product(range(len(axes)), repeat=len(factors)):
            shares = [1] * len(axes)
            for place, factor in zip(places, factors, strict=True):
                shares[place] *= factor
            candidate = (cost(shares), tuple(-share for share in shares))
            best = candidate if best is None else min(best, candidate)
        assert best is not None
        chosen = [-share for share in best[1]]
    else:
        chosen = [1] * len(axes)
        for factor in factors:
            place = min(range(len(axes)), key=lambda d: (cost([s * factor if d == e else s for e, s in enumerate(chosen)]), d))
            chosen[place] *= factor
    return Grid(tuple(Dimension(share, axis) for share, axis in zip(chosen, axes, strict=True) if share > 1))


def _most_coordinates(query: Query, axis: Mapping[str, str]) -> float:
    """How many coordinates a dimension can have that are used about evenly."""
    relations = query.relations
    known = [relation.distinct[axis[relation.name]] for relation in relations if axis.get(relation.name) in relation.distinct]
    return min(known) / VALUES if known else math.inf


def _axes(query: Query) -> list[dict[str, str]]:
    """Every possible dimension: the classes of equated attributes, then each stream on its own.

    None that tables alone have: rows of streams would be copied along it, and each copy would ask the same.
    """
    leader: dict[str, str] = {}
    for predicate in query.predicates:
        if predicate.op.value == "=":
            for side in (predicate.left, predicate.right):
                leader.setdefault(side, side)
            first, second = leader[predicate.left], leader[predicate.right]
            leader = {side: first if led == second else led for side, led in leader.items()}
    axes: dict[str, dict[str, str]] = {}
    for side, led in leader.items():
        stream, attribute = side.split(".", 1)
        axes.setdefault(led, {}).setdefault(stream, attribute)
    streams = {stream.name for stream in query.streams}
    return [*(axis for axis in axes.values() if streams & set(axis)), *({stream.name: ""} for stream in query.streams)]


def _prime_factors(number: int) -> list[int]:
    """Largest first.

    >>> _prime_factors(12)
    [3, 2, 2]
    """
    found, divisor = [], 2
    while number > 1:
        while number % divisor == 0:
            found.append(divisor)
            number //= divisor
        divisor += 1
    return found[::-1]


def spread_keys(cells: int, partitions: int) -> list[int]:
    """A grouping key per cell, such that Spark's hash puts cells into partitions in turn: no partition waits for another's cells."""
    found: dict[int, list[int]] = {partition: [] for partition in range(partitions)}
    wanted = [sum(1 for cell in range(cells) if cell % partitions == partition) for partition in range(partitions)]
    key = 0
    while any(len(found[partition]) < wanted[partition] for partition in range(partitions)):
        partition = _murmur3(key) % partitions
        if len(found[partition]) < wanted[partition]:
            found[partition].append(key)
        key += 1
    return [found[cell % partitions][cell // partitions] for cell in range(cells)]


def _murmur3(number: int) -> int:
    """Spark's hash of an INT (Murmur3, 32 bits, seed 42), as a signed number."""
    mask = 0xFFFFFFFF

    def rotate(x: int, by: int) -> int:
        return (x << by | x >> (32 - by)) & mask

    k = rotate(number * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
    h = (rotate(42 ^ k, 13) * 5 + 0xE6546B64) & mask
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h

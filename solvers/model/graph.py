"""The join graph as the solvers see it: streams as bits, sets of streams as integers.

Notation (contract §1): stream i has rate λ_i, a window of T_i seconds that holds w_i tuples, and tuples of
b_i bytes. A set S of streams is an int with bit i set for stream i. σ(S) and size(S) are defined on every set.
Tables come after the streams and are counted among them: rate 0, a window of w = rows that never ends, so that 1/T = 0.

Products are taken as `solvers.model.products` has them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from models.request import Comparison, Query, Stream
from models.table import Table
from solvers.model.products import AT_ONCE, product, product_at_once

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["DENSE", "SMALL", "Edge", "JoinGraph", "Offer", "bits", "freshness_of", "inputs_of", "join_graph"]

MODERATE = 900  # binary digits by which all factors together may differ from 1; a double has 1022
LOOKED_THROUGH = 100  # observed sets up to which a loop is faster than numpy
REMEMBERED = 1 << 12  # sets whose members are remembered, of all graphs together: at most seven megabytes, where all have 200 streams
FEW = 40  # predicates that are all looked at for those inside a set: quicker than from stream to stream
DENSE = 1_000  # predicates of a graph from which the size of a set is computed over arrays
LONG = 32  # binary digits of a set that is taken apart one by one
SMALL = 24  # streams up to which a set's size and predicates are found from the set itself and remembered: few enough sets are ever asked for


@lru_cache(REMEMBERED)
def bits(mask: int) -> tuple[int, ...]:
    """The positions of the set bits, lowest first.

    >>> bits(0b1010)
    (1, 3)
    """
    if mask >> LONG:
        return tuple([i for i, digit in enumerate(f"{mask:b}"[::-1]) if digit == "1"])  # four times as fast where there are many
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return tuple(found)


class Edge(NamedTuple):
    """A predicate between two streams."""

    left: int
    right: int
    equality: bool
    selectivity: float

    @property
    def mask(self) -> int:
        return 1 << self.left | 1 << self.right


@dataclass(frozen=True, slots=True)
class Columns:
    """Predicates as arrays, in the order of the query."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    equality: NDArray[np.bool_]
    selectivity: NDArray[np.float64]
    derived: dict[int, object] = field(default_factory=dict)
    """What lower bounds have worked out from these predicates, by set of streams: it is the same at all rates."""

    @classmethod
    def of(cls, edges: Sequence[Edge]) -> Columns:
        import numpy as np  # only in large graphs

        left, right, equality, selectivity = zip(*edges, strict=True) if edges else ((), (), (), ())
        return cls(np.array(left, np.int64), np.array(right, np.int64), np.array(equality, np.bool_), np.array(selectivity, np.float64))


@dataclass(frozen=True, slots=True)
class Offer:
    """One access of a table: kept, or, where it has `bound` attributes, asked by them."""

    bound: tuple[str, ...] = ()
    binders: tuple[int, ...] = ()
    """For each bound attribute the streams and tables that an equality takes its value from."""
    cpu: float = 0.0
    """CPU-seconds of asking for one key."""
    seconds: float = 0.0
    """From a call to its answer."""
    keys: int = 1
    """How many one call asks for."""

    @property
    def kept(self) -> bool:
        return not self.bound

    def bindable(self, visited: int) -> bool:
        """Whether tuples of these streams have a value for every bound attribute."""
        return all(visited & binder for binder in self.binders)


@dataclass(frozen=True)
class JoinGraph:
    """Streams, predicates and observed sub-joins, by position."""

    names: tuple[str, ...]
    rates: tuple[float, ...]
    """λ_i, tuples per second."""
    window_seconds: tuple[float, ...]
    """T_i."""
    window_tuples: tuple[float, ...]
    """w_i."""
    row_windows: tuple[bool, ...]
    """Whether stream i's window is counted in rows: then T_i shrinks as its rate grows."""
    tuple_bytes: tuple[float, ...]
    edges: tuple[Edge, ...]
    """In the order of the query's predicates."""
    observed: tuple[tuple[int, float], ...] = ()
    """(set, σ), in the order in which they stand in for predicates: largest first, ties by sorted names."""
    offers: tuple[tuple[Offer, ...], ...] = ()
    """By position what each table offers; nothing for a stream. Empty where there are no tables."""
    _sizes: dict[int, float] = field(default_factory=dict, compare=False, repr=False)
    _hashed_to: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    _between: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict, compare=False, repr=False)
    _factors: dict[int, tuple[tuple[tuple[int, float], ...], tuple[int, ...]]] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def all(self) -> int:
        """The set of all streams."""
        return (1 << len(self.names)) - 1

    @cached_property
    def tables(self) -> int:
        """The set of all tables."""
        return sum(1 << i for i, offered in enumerate(self.offers) if offered)

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For each stream the set of streams it shares a predicate with."""
        return self._neighbours(equal=False)

    @cached_property
    def equal_neighbours(self) -> tuple[int, ...]:
        """For each stream the set of streams it shares an equality predicate with."""
        return self._neighbours(equal=True)

    def _neighbours(self, equal: bool) -> tuple[int, ...]:
        if len(self.edges) > DENSE:
            return self._neighbours_at_once(equal)
        masks = [0] * len(self.names)
        for edge in self.edges:
            if edge.equality or not equal:
                masks[edge.left] |= 1 << edge.right
                masks[edge.right] |= 1 << edge.left
        return tuple(masks)

    def _neighbours_at_once(self, equal: bool) -> tuple[int, ...]:
        """The same from a table of all pairs."""
        import numpy as np  # only in large graphs

        columns = self.columns
        counted = columns.equality if equal else np.ones(len(self.edges), np.bool_)
        left, right = columns.left[counted], columns.right[counted]
        joined = np.zeros((len(self.names), len(self.names)), np.bool_)
        joined[left, right] = joined[right, left] = True
        return tuple(int.from_bytes(row.tobytes(), "little") for row in np.packbits(joined, axis=1, bitorder="little"))

    @cached_property
    def columns(self) -> Columns:
        """The predicates as arrays."""
        return Columns.of(self.edges)

    @cached_property
    def _edge_masks(self) -> tuple[int, ...]:
        """The ends of every predicate."""
        return tuple([edge.mask for edge in self.edges])

    @cached_property
    def _observed_sets(self) -> dict[int, float]:
        return dict(self.observed)

    def around(self, mask: int) -> int:
        """The streams outside `mask` that share a predicate with it."""
        reached = 0
        for i in bits(mask):
            reached |= self.neighbours[i]
        return reached & ~mask

    def hashable(self, left: int, right: int) -> bool:
        """Whether some equality predicate joins the two sets."""
        reached = self._hashed_to.get(left)
        if reached is None:
            reached = 0
            for i in bits(left):
                reached |= self.equal_neighbours[i]
            self._hashed_to[left] = reached
        return reached & right != 0

    @cached_property
    def _incident(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each stream its predicates, as (index, other end)."""
        if len(self.edges) > DENSE:
            return self._incident_at_once()
        found: list[list[tuple[int, int]]] = [[] for _ in self.names]
        for p, edge in enumerate(self.edges):
            found[edge.left].append((p, edge.right))
            found[edge.right].append((p, edge.left))
        return tuple(map(tuple, found))

    def _incident_at_once(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """The same over arrays."""
        import numpy as np  # only in large graphs

        ends = np.column_stack([self.columns.left, self.columns.right]).ravel()
        by_stream = ends.argsort(kind="stable")
        listed = list(zip((by_stream // 2).tolist(), ends[by_stream ^ 1].tolist(), strict=True))
        starts = [0, *np.bincount(ends, minlength=len(self.names)).cumsum().tolist()]
        return tuple([tuple(listed[start:end]) for start, end in pairwise(starts)])

    def between(self, left: int, right: int) -> tuple[int, ...]:
        """Indexes of the predicates with one end in each set, in the order of the query."""
        found = self._between.get((left, right))
        if found is None:
            found = self._found_between(left, right)
            if len(self.names) <= SMALL:
                self._between[left, right] = self._between[right, left] = found
        return found

    def _found_between(self, left: int, right: int) -> tuple[int, ...]:
        few, many = (left, right) if left.bit_count() <= right.bit_count() else (right, left)
        if few & (few - 1) == 0:  # one stream, whose predicates stand in the order of the query already
            return tuple([p for p, other in self._incident[few.bit_length() - 1] if many >> other & 1])
        return tuple(sorted(p for i in bits(few) for p, other in self._incident[i] if many >> other & 1))

    def connected(self, mask: int) -> bool:
        return self.component(mask & -mask, mask) == mask

    def component(self, start: int, within: int) -> int:
        """The streams of `within` that `start` reaches inside it."""
        seen = frontier = start
        while frontier:
            reached = 0
            for i in bits(frontier):
                reached |= self.neighbours[i]
            frontier = reached & within & ~seen
            seen |= frontier
        return seen

    @cached_property
    def components(self) -> tuple[int, ...]:
        """The connected parts, the one with the lowest stream first. Tables that no stream is joined with are parts each on their own, because no
        operator joins tables alone."""
        parts, left = [], self.all
        while left:
            part = self.component(left & -left, left)
            parts += [part] if part & ~self.tables else [1 << i for i in bits(part)]
            left &= ~part
        return tuple(parts)

    def stand_ins(self, mask: int) -> tuple[tuple[int, float], ...]:
        """The observed sets that stand in for the predicates inside them, in σ(mask)."""
        if mask in self._observed_sets:
            return ((mask, self._observed_sets[mask]),)
        if len(self.observed) > LOOKED_THROUGH:
            return self._stand_ins_of_many(mask)
        taken, free = [], mask
        for subset, selectivity in self.observed:
            if subset & ~free == 0:
                taken.append((subset, selectivity))
                free &= ~subset
        return tuple(taken)

    def _stand_ins_of_many(self, mask: int) -> tuple[tuple[int, float], ...]:
        """The same as `stand_ins`, with numpy over all observed sets at once."""
        taken, free = [], mask
        inside = (self.observed_words & self.words([self.all & ~free]) == 0).all(axis=1).nonzero()[0]
        while inside.size:
            subset, selectivity = self.observed[inside[0]]
            taken.append((subset, selectivity))
            free &= ~subset
            inside = inside[(self.observed_words[inside] & self.words([subset]) == 0).all(axis=1)]
        return tuple(taken)

    @cached_property
    def observed_words(self) -> NDArray[np.uint64]:
        """`observed`'s sets, as `words`."""
        return self.words([subset for subset, _ in self.observed])

    def words(self, masks: list[int]) -> NDArray[np.uint64]:
        """Sets as rows of machine words."""
        import numpy as np  # only where many sets were observed

        words = (len(self.names) + 63) // 64
        return np.frombuffer(b"".join(mask.to_bytes(8 * words, "little") for mask in masks), "<u8").reshape(len(masks), words)

    def factors(self, mask: int) -> tuple[tuple[tuple[int, float], ...], tuple[int, ...]]:
        """What σ(mask) is the product of: observed sets, and the predicates left over."""
        found = self._factors.get(mask)
        if found is None:
            found = self._found_factors(mask)
            if len(self.names) <= SMALL:
                self._factors[mask] = found
        return found

    def _found_factors(self, mask: int) -> tuple[tuple[tuple[int, float], ...], tuple[int, ...]]:
        if not self.observed and len(self.edges) <= FEW:
            return (), tuple([p for p, inside in enumerate(self._edge_masks) if inside & mask == inside])
        taken = self.stand_ins(mask)
        free = mask
        for subset, _ in taken:
            free &= ~subset
        left_over = [p for i in bits(free) for p, other in self._incident[i] if mask >> other & 1 and (not free >> other & 1 or other > i)]
        for k, (subset, _) in enumerate(taken):
            for other, _ in taken[k + 1 :]:
                left_over += self.between(subset, other)
        return taken, tuple(sorted(left_over))

    def size(self, mask: int) -> float:
        """size(S) = Π w_i · σ(S): tuples of S that are live at any time. Infinity where it overflows."""
        size = self._sizes.get(mask)
        if size is None and len(self.edges) > DENSE and not self.observed:
            size = self._sizes[mask] = self._size_at_once(mask)
        if size is None:
            taken, left_over = self.factors(mask)
            windows, edges = self.window_tuples, self.edges
            factors = [windows[i] for i in bits(mask)]
            if taken:
                factors += [selectivity for _, selectivity in taken]
            factors += [edges[p].selectivity for p in left_over]
            size = self._sizes[mask] = math.prod(factors) if self._moderate else product(factors)
        return size

    def _size_at_once(self, mask: int) -> float:
        """The same over arrays, mantissas and exponents apart."""
        if mask & (mask - 1) == 0:
            return self.window_tuples[mask.bit_length() - 1]
        import numpy as np  # only in large graphs

        inside = np.zeros(len(self.names), np.bool_)
        inside[list(bits(mask))] = True
        columns = self.columns
        chosen = columns.selectivity[inside[columns.left] & inside[columns.right]]
        return product_at_once(np.concatenate([np.array(self.window_tuples)[inside], chosen]))

    @cached_property
    def _moderate(self) -> bool:
        """Whether no product of windows and selectivities, however few or many, leaves the range of a double: then they are multiplied as they are,
        and the result is that of `product` to the last bit, because powers of two do not round."""
        factors = (*self.window_tuples, *(edge.selectivity for edge in self.edges), *(selectivity for _, selectivity in self.observed))
        return all(factors) and sum(abs(math.frexp(factor)[1]) + 1 for factor in factors) < MODERATE

    def grown(self, size: float, union: int, other_size: float, between: Iterable[int]) -> float:
        """The size of a union, from the sizes of its two parts and the predicates between them: constant time, however many streams they have.

        In a small graph it is computed from the set itself, so that it is the same however the set was joined.
        """
        if self.observed or len(self.names) <= SMALL:
            return self.size(union)
        between = tuple(between)
        if len(between) > AT_ONCE // 10:
            return product_at_once(self.columns.selectivity[list(between)], (size, other_size))
        return product([size, other_size, *(self.edges[p].selectivity for p in between)])

    def most_probes(self) -> int:
        """How many probes the widest plan has: one join of all streams of each part."""
        return sum(part.bit_count() * (part.bit_count() - 1) for part in self.components)

    def widest(self) -> tuple[int, int, int, int]:
        """What the widest plan takes to write (`Deadline.before_writing`): its probes, the predicates that they list, its joins, all predicates."""
        return self.most_probes(), self.most_listed(), 1, len(self.edges)

    def most_listed(self) -> int:
        """How many predicates its probes list at most: every pipeline of a join lists all predicates between its inputs."""
        return max(part.bit_count() for part in self.components) * len(self.edges)

    def label(self, mask: int) -> str:
        """The set as a person writes it: ads⋈users."""
        return "⋈".join(sorted(self.names[i] for i in bits(mask)))

    def indexes(self) -> Iterator[tuple[int, int, Offer]]:
        """(table, number of the access, index) of every index."""
        for table in bits(self.tables):
            yield from ((table, place, offer) for place, offer in enumerate(self.offers[table]) if not offer.kept)

    def access_pointer(self, table: int, place: int, field: str) -> str:
        """Where a request says this of one access of a table; tables follow the streams."""
        return f"/query/tables/{table - ((self.tables & -self.tables).bit_length() - 1)}/access/{place}/{field}"

    def scaled(self, factor: float) -> JoinGraph:
        """The same graph with all rates multiplied by `factor`. What does not depend on rates both graphs share, and fill."""
        graph = JoinGraph(
            names=self.names,
            rates=tuple(rate * factor for rate in self.rates),
            window_seconds=tuple(t / factor if rows else t for t, rows in zip(self.window_seconds, self.row_windows, strict=True)),
            window_tuples=tuple(w if rows else w * factor for w, rows in zip(self.window_tuples, self.row_windows, strict=True)),
            row_windows=self.row_windows,
            tuple_bytes=self.tuple_bytes,
            edges=self.edges,
            observed=self.observed,
            offers=self.offers,
            _hashed_to=self._hashed_to,
            _between=self._between,
            _factors=self._factors,
        )
        for name in SAME_AT_ALL_RATES:
            graph.__dict__[name] = getattr(self, name)
        return graph


SAME_AT_ALL_RATES = ("columns", "tables", "neighbours", "equal_neighbours", "_incident", "_edge_masks", "components", "_observed_sets")


def inputs_of(query: Query) -> list[Stream | Table]:
    """The streams, then the tables: by position."""
    return [*query.streams, *query.tables]


def selectivity_of(query: Query, index: int) -> float:
    """The predicate's selectivity, or 1/max(distinct) where it is left out."""
    predicate = query.predicates[index]
    if predicate.selectivity is not None:
        return predicate.selectivity
    distinct = {entry.name: entry.distinct for entry in inputs_of(query)}
    sides = [side.split(".", 1) for side in (predicate.left, predicate.right)]
    return min(1.0, 1.0 / max(distinct[stream][attribute] for stream, attribute in sides))


def join_graph(query: Query) -> JoinGraph:
    """The graph of a validated query."""
    streams, tables = query.streams, query.tables
    position = {entry.name: i for i, entry in enumerate(inputs_of(query))}
    rows = [stream.window.rows for stream in streams]
    window_tuples = [float(n) if n is not None else stream.rate * (stream.window.seconds or 0.0) for n, stream in zip(rows, streams, strict=True)]
    window_seconds = [
        stream.window.seconds if stream.window.seconds is not None else n / stream.rate for n, stream in zip(window_tuples, streams, strict=True)
    ]
    bit = {name: 1 << i for name, i in position.items()}
    # For ties by sorted names: of two sets of one size, the one whose sorted names come first has the larger sum of these.
    rank = {name: 1 << i for i, name in enumerate(sorted(position, reverse=True))}
    observed = sorted(
        (-len(entry.streams), -sum(map(rank.__getitem__, entry.streams)), sum(map(bit.__getitem__, entry.streams)), entry.selectivity)
        for entry in query.observed
    )
    columns = (
        [position[p.left.partition(".")[0]] for p in query.predicates],
        [position[p.right.partition(".")[0]] for p in query.predicates],
        [p.op is Comparison.EQ for p in query.predicates],
        [p.selectivity if p.selectivity is not None else selectivity_of(query, k) for k, p in enumerate(query.predicates)],
    )
    return JoinGraph(
        names=tuple(position),
        rates=(*(stream.rate for stream in streams), *(0.0 for _ in tables)),
        window_seconds=(*window_seconds, *(math.inf for _ in tables)),
        window_tuples=(*window_tuples, *(table.rows for table in tables)),
        row_windows=(*(n is not None for n in rows), *(True for _ in tables)),
        tuple_bytes=tuple(entry.tuple_bytes for entry in inputs_of(query)),
        edges=tuple(map(partial(tuple.__new__, Edge), zip(*columns, strict=True))),  # as `_make` does, without a call of Python's for each
        observed=tuple((mask, selectivity) for _, _, mask, selectivity in observed),
        offers=(*(() for _ in streams), *(_offers(query, table, bit) for table in tables)) if tables else (),
    )


def _offers(query: Query, table: Table, bit: dict[str, int]) -> tuple[Offer, ...]:
    """What a table offers, each index with those that can bind it."""
    binders: dict[str, int] = {}
    for predicate in query.predicates:
        if predicate.op is Comparison.EQ:
            for own, other in ((predicate.left, predicate.right), (predicate.right, predicate.left)):
                name, attribute = own.split(".", 1)
                if name == table.name:
                    binders[attribute] = binders.get(attribute, 0) | bit[other.split(".", 1)[0]]
    return tuple(
        Offer(tuple(access.bound), tuple(binders.get(name, 0) for name in access.bound), access.cpu or 0.0, access.seconds or 0.0, access.keys or 1)
        for access in table.access
    )


def freshness_of(query: Query, graph: JoinGraph) -> tuple[float, ...]:
    """How old results may be, measured on each stream, in seconds; infinity where it states nothing."""
    stated = []
    for stream, rate in zip(query.streams, graph.rates, strict=False):
        if stream.freshness is None:
            stated.append(math.inf)
        elif stream.freshness.seconds is not None:
            stated.append(stream.freshness.seconds)
        else:
            stated.append((stream.freshness.rows or 0) / rate)
    return (*stated, *(math.inf for _ in query.tables))

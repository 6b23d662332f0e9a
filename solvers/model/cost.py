"""The unit-time cost model (contract §1; papers 3 §2 and 4 §3). Knows nothing of any search.

A join keeps a state per input and runs a probe pipeline per input. `price` prices any join tree from its shape
and probe orders alone; `price_join` prices one join from the sets of streams of its inputs, because the size and
rate of a subresult do not depend on how it was joined. Costs add up over joins.

Every CPU figure is a sum of *terms* weight · size(U) · size(V) · Σ_{i∈B} 1/T_i; a term remembers U, V and B, and
that is all that sensitivity analysis (headroom, validity) needs to know. Sums are `total`, which is exact
before its one rounding, so no figure depends on the order of summation.

What one operation costs is said in `model.operations`. Beside what tuples cost, each probe step costs `step` whatever comes: a term without U, V
and B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from models.request import Costs
from solvers.common.errors import BindError, RangeError
from solvers.model.graph import SMALL, JoinGraph, Offer, bits
from solvers.model.operations import exact_sum, keeping, least_keeping, least_steps, scanning, stepping, times, total
from solvers.model.tree import Asked, Join, Tree, joins, leaf_mask

__all__ = [
    "WIDE",
    "CostModel",
    "PricedJoin",
    "PricedPipeline",
    "PricedProbe",
    "PricedState",
    "PricedTree",
    "Term",
]


RECENT = 3  # prices of whole plans that are remembered: a wide join's take up to 20 MB
_new = tuple.__new__  # of a named tuple, whose own way there is a function of Python: a plan has hundreds of terms
WIDE = 16  # inputs of a join in a large graph from which its figures are computed over arrays
DEAR = 1.0  # CPU-seconds a tuple: no cost above this was ever measured, so where figures are out of range such a cost is named before sizes are


class Term(NamedTuple):
    """value = weight · size(made) · size(scanned) · Σ_{i∈arriving} 1/T_i; `scanned` is 0 where no state is scanned. Where all three are 0, it is
    what steps cost, which depends on no rate."""

    value: float
    made: int
    arriving: int
    scanned: int = 0


class PricedProbe(NamedTuple):
    """One step of a pipeline."""

    target: int
    """Position of the probed input."""
    hashed: bool
    rate_in: float
    rate_out: float
    cpu: float
    """What its tuples cost. `Costs.step`, which every step costs, is counted in the join and on the wire but not here: no cache saves it."""
    predicates: tuple[int, ...]
    """The query's predicates between what was visited and the target."""
    asked: bool = False
    """Whether the target is a table that is asked."""


class PricedPipeline(NamedTuple):
    probes: Sequence[PricedProbe]


class PricedState(NamedTuple):
    indexed: bool
    cpu: float
    kept: bool = True
    """False of a table that is asked, and of a stream that nobody probes because all others are tables."""


class PricedJoin(NamedTuple):
    """One join with its figures; states and pipelines by input position."""

    blocks: tuple[int, ...]
    orders: tuple[tuple[int, ...], ...]
    states: tuple[PricedState, ...]
    pipelines: tuple[PricedPipeline, ...]
    cpu: float
    terms: Sequence[Term]
    exact: tuple[float, ...]
    """A few numbers that add up to the exact sum of the terms, without rounding; of a wide join in a large graph its CPU alone."""
    steps: float
    """What its probe steps cost, whatever their rows."""
    asked: Asked = ()


@dataclass(frozen=True, slots=True)
class PricedTree:
    """A whole plan with its figures; joins inputs first, the root last."""

    tree: Tree
    nodes: tuple[Join, ...]
    joins: tuple[PricedJoin, ...]
    cpu: float
    memory_bytes: float
    memory_tuples: float
    output_rate: float
    sizes: dict[int, float]
    """size(S) of every set that the plan makes, and maybe of others."""
    leaves: int
    """The streams and tables that are kept: all, but for tables that are asked and streams that only tables are joined with."""
    adjustments: tuple[Term, ...] = ()
    """What caches save (below 0) and cost, where the figures count them."""
    cached: tuple[tuple[int, float], ...] = ()
    """(set, bytes) held in caches, growing with the sizes of the set's windows."""
    answered: tuple[tuple[int, float], ...] = ()
    """(table, keys a second) that kept answers serve, so that it is not asked for them."""

    @property
    def terms(self) -> list[Term]:
        return [*(term for join in self.joins for term in join.terms), *self.adjustments]


class CostModel:
    """The figures of one join graph under one set of cost constants; those of a set of streams are computed once."""

    def __init__(self, graph: JoinGraph, costs: Costs, choices: CostModel | None = None) -> None:
        self.graph = graph
        self.costs = costs
        self.choices = choices
        """Another model that decides which states of binary joins are indexed: a plan whose rates change keeps the choices it was made with."""
        self.best_joins: dict[tuple[int, ...], PricedJoin] = {}
        """Filled by `probe_order.best_join`: priced joins by their inputs."""
        self.derived: dict[int, object] = {}
        """What searches keep of it, by connected part."""
        self._per_second: dict[int, float] = {}
        self._bytes: dict[int, float] = {}
        self._state_bytes: dict[int, float] = {}
        self._recent: list[PricedTree] = []
        self._small = len(graph) <= SMALL
        self._known_sizes: dict[int, float] = {}
        self._known_joins: dict[tuple[tuple[int, ...], tuple[tuple[int, ...], ...], Asked], PricedJoin] = {}
        self._known_figures: dict[int, tuple[Join, tuple[float, ...], tuple[float, ...]]] = {}

    def size(self, mask: int) -> float:
        return self.graph.size(mask)

    def per_second(self, mask: int) -> float:
        """Σ_{i∈S} 1/T_i: rate(S) per live tuple of S."""
        value = self._per_second.get(mask)
        if value is None:
            windows = self.graph.window_seconds
            value = self._per_second[mask] = total([1.0 / windows[i] for i in bits(mask)])
        return value

    def rate(self, mask: int) -> float:
        """rate(S): new tuples of S per second."""
        if mask & (mask - 1) == 0:
            return self.graph.rates[mask.bit_length() - 1]
        return self.graph.size(mask) * self.per_second(mask)

    def _rate(self, sizes: Mapping[int, float], mask: int) -> float:
        return self.rate(mask) if mask & (mask - 1) == 0 else sizes[mask] * self.per_second(mask)

    def produced(self, block: int, visited: int) -> float:
        """Tuples per second of `visited` that arrivals of `block` complete."""
        return self.rate(block) if visited == block else self.graph.size(visited) * self.per_second(block)

    def tuple_bytes(self, mask: int) -> float:
        """Bytes of one tuple of S."""
        value = self._bytes.get(mask)
        if value is None:
            value = self._bytes[mask] = total([self.graph.tuple_bytes[i] for i in bits(mask)])
        return value

    def state_bytes(self, mask: int) -> float:
        value = self._state_bytes.get(mask)
        if value is None:
            value = self._state_bytes[mask] = self.graph.size(mask) * self.tuple_bytes(mask)
        return value

    def leaves_bytes(self, leaves: int | None = None) -> float:
        """The memory of the windows of these streams, of all where nothing is said: without tables, what every plan takes."""
        if leaves is None or leaves == self.graph.all:
            return self._leaves_bytes
        return total(self.graph.window_tuples[i] * self.graph.tuple_bytes[i] for i in bits(leaves))

    @cached_property
    def _leaves_bytes(self) -> float:
        return total(w * b for w, b in zip(self.graph.window_tuples, self.graph.tuple_bytes, strict=True))

    def paid_by_all(self) -> list[float]:
        """What every plan without tables pays: making the results, the least probe steps, and for each stream the least of keeping it."""
        graph, least = self.graph, least_keeping(self.costs)
        results = times(self.costs.join, self.rate(graph.all))
        return [results, stepping(self.costs, least_steps(graph)), *(least * rate for rate in graph.rates)]

    def hashed_in_binary(self, probing: int, probed: int, sizes: Mapping[int, float] | None = None) -> bool:
        """Whether, in a binary join, `probing` finds its partners in the state of `probed` by hash; else by a nested loop.

        By hash where a predicate is an equality and the index costs no more than scanning without one.

        `sizes` are those of the two sets, where they are known already.
        """
        if self.choices is not None:
            return self.choices.hashed_in_binary(probing, probed)
        if not self.graph.hashable(probing, probed):
            return False
        known = {mask: self.graph.size(mask) for mask in (probing, probed)} if sizes is None else sizes
        kept, arriving, size = self._rate(known, probed), self._rate(known, probing), known[probed]
        scanned = keeping(self.costs, False, kept) + scanning(self.costs, False, arriving, size)
        return not scanned < keeping(self.costs, True, kept)

    def price_join(
        self, blocks: Sequence[int], orders: Sequence[Sequence[int]], sizes: dict[int, float] | None = None, asked: Asked = ()
    ) -> PricedJoin:
        """The figures of one join over inputs with these sets of streams, probed in these orders, some of its tables `asked`.

        `sizes` holds the sizes that are known already and takes up the new ones. In a large graph each size is computed from the one before it
        in the pipeline, which takes constant time; in a small graph from the set itself, so that a join costs the same in every tree.
        """
        costs, graph, binary = self.costs, self.graph, len(blocks) == 2
        probe, join, sizes = costs.probe, costs.join, {} if sizes is None else sizes
        if len(blocks) >= WIDE and not (self._small or graph.observed or graph.tables):
            from solvers.model.wide_join import price_wide_join  # numpy takes a while to import

            if (wide := price_wide_join(self, blocks, orders, sizes)) is not None:
                return wide
        rates = []
        for block in blocks:
            if block not in sizes:
                sizes[block] = graph.size(block)
            rates.append(self._rate(sizes, block))
        indexed = [False] * len(blocks)
        indexes = {1 << table: graph.offers[table][place] for table, place in asked} if asked else {}
        terms: list[Term] = []
        pipelines: list[PricedPipeline] = []
        for k, order in enumerate(orders):
            own = visited = blocks[k]
            arriving, per_second = rates[k], self.per_second(own)
            probes = []
            for target in order:
                block = blocks[target]
                predicates = pipelines[0].probes[0].predicates if binary and k and pipelines[0].probes else graph.between(visited, block)
                index = indexes.get(block) if indexes else None
                if index is not None:
                    if not index.bindable(visited):
                        self._refuse_unbound(block, index)
                    hashed = True
                else:
                    hashed = self.hashed_in_binary(visited, block, sizes) if binary else graph.hashable(visited, block)
                if hashed:
                    indexed[target] = True
                made = visited | block
                size = sizes.get(made)
                if size is None:
                    size = sizes[made] = graph.grown(sizes[visited], made, sizes[block], predicates)
                produced = size * per_second
                asking = probe if index is None else index.cpu
                # `times`, written out: calling it would take 4 % of the pricing of an mjoin.
                probing, joining = asking * arriving if asking else 0.0, join * produced if join else 0.0
                if probing:
                    terms.append(_new(Term, (probing, visited, own, 0)))
                if joining:
                    terms.append(_new(Term, (joining, made, own, 0)))
                cpu = probing + joining  # of two terms this is `total`
                if not hashed:
                    scanned = scanning(costs, hashed, arriving, sizes[block])
                    if scanned:
                        terms.append(_new(Term, (scanned, visited, own, block)))
                    cpu = total((probing, joining, scanned))
                probes.append(_new(PricedProbe, (target, hashed, arriving, produced, cpu, predicates, index is not None)))
                visited, arriving = made, produced
            pipelines.append(_new(PricedPipeline, (tuple(probes),)))
        states = []
        left_out = self.left_out(blocks, asked) if graph.tables else 0
        for k, block in enumerate(blocks):
            if block & left_out:
                states.append(PricedState(False, 0.0, False))
                continue
            kept = keeping(costs, indexed[k], rates[k])
            if kept:
                terms.append(_new(Term, (kept, block, block, 0)))
            states.append(_new(PricedState, (indexed[k], kept, True)))
        if steps := stepping(costs, sum(map(len, orders))):
            terms.append(Term(steps, 0, 0))
        exact = exact_sum([term.value for term in terms])
        cpu = exact[0] if exact else 0.0
        return PricedJoin(tuple(blocks), tuple(map(tuple, orders)), tuple(states), tuple(pipelines), cpu, tuple(terms), exact, steps, asked)

    def left_out(self, blocks: Sequence[int], asked: Asked) -> int:
        """The inputs of a join that it keeps no state of: tables that are asked, and a stream whose partners are all tables."""
        tables = self.graph.tables
        if not tables:
            return 0
        flowing = [block for block in blocks if block & ~tables]
        alone = flowing[0] if len(flowing) == 1 and flowing[0] & (flowing[0] - 1) == 0 and len(blocks) > 1 else 0
        return sum((1 << table for table, _ in asked), alone)

    def price(self, tree: Tree) -> PricedTree:
        """The figures of a whole plan from its shape and probe orders.

        Raises RangeError where a figure leaves the range of a double.
        """
        for known in self._recent:
            if known.tree is tree:
                return known  # what the search priced last is chosen from, shared out and written
        nodes = tuple(joins(tree))
        sizes: dict[int, float] = self._known_sizes if self._small else {}
        priced = tuple(self._priced_join(node, sizes) for node in nodes)
        for node in nodes:
            if not math.isfinite(sizes[node.mask] * self.per_second(node.mask)):
                self._refuse(node.mask)
        kept = [node.mask for node in nodes[:-1]]
        leaves = self.graph.all
        if self.graph.tables:
            for join in priced:
                leaves &= ~self.left_out(join.blocks, join.asked)
        result = PricedTree(
            tree,
            nodes,
            priced,
            total(part for join in priced for part in join.exact),
            total([self.leaves_bytes(leaves), *(sizes[mask] * self.tuple_bytes(mask) for mask in kept)]),
            total([*(self.graph.window_tuples[i] for i in bits(leaves)), *(sizes[mask] for mask in kept)]),
            self._rate(sizes, leaf_mask(tree)) if nodes else self.rate(leaf_mask(tree)),
            sizes,
            leaves,
        )
        if not all(map(math.isfinite, (result.memory_bytes, result.memory_tuples, result.output_rate))):
            self._refuse(self.graph.all)
        if not math.isfinite(result.cpu):
            raise self.out_of_range()
        self._recent = [result, *self._recent[: RECENT - 1]]
        return result

    def figures(self, tree: Tree) -> tuple[float, float]:
        """CPU and memory bytes of a plan, the same as `price` gives. In a small graph the sums below each join are remembered for other trees."""
        if not self._small or self.graph.tables or not isinstance(tree, Join):
            priced = self.price(tree)
            return priced.cpu, priced.memory_bytes
        known, waiting = self._known_figures, [tree]
        while waiting:
            node = waiting[-1]
            below = [child for child in node.inputs if isinstance(child, Join)]
            missing = [child for child in below if id(child) not in known]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if id(node) not in known:
                sizes = self._known_sizes
                cpu = self._priced_join(node, sizes).exact
                if not math.isfinite(sizes[node.mask] * self.per_second(node.mask)):
                    self._refuse(node.mask)
                kept: tuple[float, ...] = ()
                for child in below:
                    _, parts, states = known[id(child)]
                    cpu, kept = cpu + parts, (*kept, *states, sizes[child.mask] * self.tuple_bytes(child.mask))
                known[id(node)] = node, cpu, kept  # holds on to the join, so that its id is not given to another
        _, cpu, kept = known[id(tree)]
        figures = total(cpu), total((self.leaves_bytes(), *kept))
        if not math.isfinite(figures[1]):
            self._refuse(self.graph.all)
        if not math.isfinite(figures[0]):
            raise self.out_of_range()
        return figures

    def _priced_join(self, node: Join, sizes: dict[int, float]) -> PricedJoin:
        """The figures of one join. In a small graph they are remembered: the plans of a frontier share most of their joins."""
        return self.known_join(tuple(leaf_mask(child) for child in node.inputs), node.orders, sizes, node.asked)

    def known_join(
        self, blocks: tuple[int, ...], orders: tuple[tuple[int, ...], ...], sizes: dict[int, float] | None = None, asked: Asked = ()
    ) -> PricedJoin:
        """As `price_join`; in a small graph each join is priced once."""
        if not self._small:
            return self.price_join(blocks, orders, sizes, asked)
        key = (blocks, orders, asked)
        found = self._known_joins.get(key)
        if found is None:
            found = self._known_joins[key] = self.price_join(blocks, orders, self._known_sizes, asked)
        return found

    def out_of_range(self) -> RangeError:
        """What to refuse a request with where no plan's CPU fits a double: the dearest constant where that is to blame, else the sizes."""
        named = [(value, f"the cost {name}", f"/costs/{name}") for name, value in self.costs.model_dump().items()]
        for table, place, index in self.graph.indexes():
            named.append((index.cpu, f"the CPU of asking {self.graph.names[table]}", self.graph.access_pointer(table, place, "cpu")))
        value, name, pointer = max(named)
        if value > DEAR:
            return RangeError(f"{name}, {value:g}, comes to more CPU than a double can hold with the tuples of these joins: lower it", pointer)
        return self.too_many(self.graph.all)

    def _refuse(self, mask: int) -> None:
        raise self.too_many(mask)

    def too_many(self, mask: int) -> RangeError:
        """What to refuse a request with whose tuples of these streams leave the range of a double."""
        names = ", ".join(sorted(self.graph.names[i] for i in bits(mask)))
        return RangeError(f"the join of {names} has more tuples than a double can count: lower their rates, windows or selectivities", "/query")

    def _refuse_unbound(self, table: int, index: Offer) -> None:
        attributes = ", ".join(index.bound)
        name = self.graph.names[table.bit_length() - 1]
        raise BindError(f"the index of {name} by {attributes} is asked before all of these have values", "/operators")

"""One connected part of a graph: its tables, its search, and join trees made of what the search found.

What the compiled search returns are rows (`compiled.staircases.Stairs`) and members of seeds (`compiled.seeds.Seeds`); here they become trees, with
the best probe orders of every join. How much is spent on seeds and beams before the search for the proof is decided here, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from solvers.common.deadline import Deadline, Progress
from solvers.common.tolerances import ROUNDED
from solvers.jtree.compiled.binary_tree import binary_splits, members_as_rows
from solvers.jtree.compiled.bounds import bounds_of
from solvers.jtree.compiled.compiling import Floats, Ints
from solvers.jtree.compiled.cost import Prices, weights_of
from solvers.jtree.compiled.orders import DENSE_INPUTS, follow, mjoin_excess, scratch_for, wide_mjoin_excess
from solvers.jtree.compiled.questions import FRONTIER, LEAST_BYTES, LEAST_CPU, LEAST_LOAD, Limits, Stairs, as_seeds
from solvers.jtree.compiled.seeds import ONE_DESCENT, ONE_PLAN, Seeds, seeds
from solvers.jtree.compiled.sets import Sets, find
from solvers.jtree.compiled.staircases import at_once, begun, staircases
from solvers.jtree.compiled.tables import sets_and_floors
from solvers.jtree.search import both, make_join, spread
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.operations import probe_steps, stepping, total
from solvers.model.point import Point
from solvers.model.probe_order import Orders
from solvers.model.tree import Join, Tree

__all__ = ["Answer", "Component", "component_of"]

DEAR_FIRST = np.empty(0, np.int64)
AT_LEAST = 2  # trees of an answer that are made whatever the time: the least CPU and the least memory
EXPANSIONS = 60  # plans whose neighbours are tried as seeds
BEAMS, WORTH = (20, 100), 250  # sets of each size to search first, where there are this many times as many sets in all
QUICK_STREAMS, QUICK_SETS = 16, 1_000  # up to which the search ends in milliseconds
FEW_STREAMS = 12  # up to which the seeds of one descent are enough: under a cap, finding more takes 5.5 ms and saves 3.4
# Graphs of up to so many sets are searched from one seed: a descent to others takes longer than it saves. CAPPED_SETS is where one figure is capped.
TINY_SETS, CAPPED_SETS = 160, 110
QUICK_ROOM, ROOM = 1 << 10, 1 << 22  # points of all staircases: pages that are never written cost nothing
SEED_PAIRS = 3_000_000  # pairs for the binary tree that seeds start from: a tenth of a second


class Answer(NamedTuple):
    """Plans by rising CPU as rows of `compiled.staircases.Stairs`, what they refer to, and whether nothing within the limits is missing."""

    complete: bool
    rows: Ints
    seeds: Ints
    point_rows: Ints
    point_sets: Ints
    entries: Ints


def _answer(start: Seeds, stairs: Stairs, limits: Limits) -> Answer:
    """What was found; of a search that ended early with nothing within the limits, its seeds."""
    rows = stairs.rows if stairs.rows.size or not stairs.status else -2 - np.arange(len(start.members))
    if limits.goal == LEAST_LOAD and not stairs.status and rows.size > 1:
        with np.errstate(over="ignore"):  # of a cap near 0 the load is infinite
            load = np.maximum((stairs.e + limits.pays) / limits.cpu, (stairs.m + limits.pays_bytes) / limits.bytes)
        rows = rows[load <= load.min() * ROUNDED]  # prices decide among these; the others need not be priced
    if limits.goal == LEAST_BYTES and limits.cap_e == math.inf and not stairs.status and stairs.e.size:
        # Plans on the way to the least memory are offered as well: seeds that take more of it for less CPU.
        cheaper = np.flatnonzero((start.m <= limits.cap_m) & (start.m > stairs.m[-1]) & (start.e < stairs.e[0]))
        rows = np.concatenate((-2 - cheaper, rows))
    return Answer(not stairs.status, rows, start.members, stairs.point_rows, stairs.point_sets, stairs.entries)


def _is_capped(limits: Limits) -> bool:
    """Whether one figure is minimised under a cap on the other."""
    cap = {LEAST_CPU: limits.cap_m, LEAST_BYTES: limits.cap_e}
    return cap.get(limits.goal, math.inf) < math.inf


@dataclass
class Component:
    """One connected part of the graph, its tables, and trees made of what the compiled search found."""

    model: CostModel
    streams: list[int]
    sets: Sets
    prices: Prices
    base: float
    """The CPU that every plan of this part pays."""
    _known_orders: dict[tuple[int, ...], Orders] = field(default_factory=dict)
    _starts: dict[int, Seeds] = field(default_factory=dict)
    """The seeds of searches that are over in milliseconds, by how many were made: they are the same for every question."""

    def orders(self, blocks: tuple[int, ...]) -> Orders:
        """The best probe orders of a join of these sets, in their order."""
        found = self._known_orders.get(blocks)
        if found is None:
            found = self._known_orders[blocks] = both(blocks) if len(blocks) == 2 else self._orders(blocks)
        return found

    def _orders(self, blocks: tuple[int, ...]) -> Orders:
        sets, prices, m, whole = self.sets, self.prices, len(blocks), sum(blocks)
        places = np.array([find(sets.keys, sets.places, sets.multiplier, sets.shift, block) for block in blocks], np.int64)
        dense = m <= DENSE_INPUTS
        if dense:
            scratch = scratch_for(m)
            mjoin_excess(sets, prices, places, m, whole, scratch.unlimited, scratch)
            to_go = scratch.to_go
        else:
            to_go = np.empty(sets.mask.size)
            wide_mjoin_excess(sets, prices, places, m, whole, to_go)
        return tuple(tuple(row) for row in follow(sets, prices, places, m, to_go, dense).tolist())

    def _join(self, parts: Iterable[tuple[int, Tree]], whole: int) -> Join:
        """A join of these sets, each with its tree, and of the streams of `whole` that none of them has."""
        inside = list(parts)
        inside += [(1 << k, self.streams[k]) for k in bits(whole & ~sum(mask for mask, _ in inside))]
        inside.sort(key=lambda block: block[0] & -block[0])
        return make_join([tree for _, tree in inside], self.orders(tuple(mask for mask, _ in inside)))

    def tree_of_seed(self, members: Ints) -> Tree:
        """The join tree with these sets as its joins."""
        joined: dict[int, Tree] = {}
        for member in sorted((mask for mask in members.tolist() if mask), key=lambda mask: (mask.bit_count(), mask)):
            joined[member] = self._join([(mask, joined.pop(mask)) for mask in list(joined) if mask & ~member == 0], member)
        (tree,) = joined.values()
        return tree

    def tree_of_row(self, row: int, answer: Answer, built: dict[tuple[int, int], Tree]) -> Tree:
        """The join tree that a row of the answer describes; `built` are subtrees that other rows have as well.

        Not by way of `tree_of_joins`: the plans of a frontier share most of their subtrees, and what is shared is made and priced once.
        """
        masks, entries = self.sets.mask, answer.entries
        root = (int(masks[-1]), row)
        waiting = [root]
        while waiting:
            key = waiting[-1]
            mask, here = key
            below: list[tuple[int, int]] = []
            if here >= 0:
                listed = entries[here + 1 : here + 1 + entries[here]].tolist()
                below = [(int(masks[answer.point_sets[entry]]), int(answer.point_rows[entry])) for entry in listed if entry >= 0]
            missing = [part for part in below if part not in built]
            if missing:
                waiting.extend(missing)
                continue
            waiting.pop()
            if key not in built:
                built[key] = self._join([(part[0], built[part]) for part in below], mask)
        return built[root]

    @property
    def quick(self) -> bool:
        """Whether the search ends in milliseconds: then few seeds are enough, and a timer, which takes half a millisecond to start, is not needed."""
        return self.sets.n <= QUICK_STREAMS and self.sets.mask.size <= QUICK_SETS

    def search(self, limits: Limits, deadline: Deadline) -> Answer:
        """What the compiled search finds within the limits."""
        sets, prices, progress = self.sets, self.prices, deadline.progress
        total = sets.mask.size
        stop = np.zeros(2, np.int64)
        # The mjoin keeps nothing, so no plan that keeps a byte is the least of all. The search itself would learn that with its last set.
        keeps_nothing = limits.goal == LEAST_BYTES and limits.cap_e == math.inf
        within = limits._replace(cap_m=min(limits.cap_m, 0.0)) if keeps_nothing else limits
        if self.quick:
            tries = ONE_PLAN if total <= (CAPPED_SETS if _is_capped(limits) else TINY_SETS) else ONE_DESCENT
            start = self._starts.get(tries)
            if start is None:
                start, stairs = begun(sets, prices, tries, within, stop, QUICK_ROOM)
                self._starts[tries] = start
            else:
                stairs = at_once(sets, prices, start, within, stop, QUICK_ROOM)
            self._tell(start, progress)
            return _answer(start, stairs, limits)
        if limits.goal == LEAST_CPU and limits.cap_m == math.inf:
            sets = sets._replace(bytes=np.zeros_like(sets.bytes))  # one figure to minimise: of every set one plan is enough
        # Of a whole frontier the second beam takes as long as it saves: its plans are many.
        beams = [beam for beam in (BEAMS[:1] if limits.goal == FRONTIER else BEAMS) if beam * WORTH < total and not keeps_nothing]
        with deadline.watched(lambda: stop.put(0, 1), lambda: progress.doing(f"proving: {stop[1]} of {total} connected sets")):
            start = self._seeds(stop, sets)
            self._tell(start, progress)
            bounds = bounds_of(sets, prices, stop)
            for beam in beams:
                stairs = staircases(sets, prices, bounds, start, limits._replace(beam=beam), stop, ROOM)
                if stairs.rows.size:
                    start = as_seeds(sets, start, stairs)
                    self._tell(start, progress)
            stairs = staircases(sets, prices, bounds, start, within, stop, ROOM)
        return _answer(start, stairs, limits)

    def least_with_partials(self, partial: Floats, limits: Limits, stop: Ints) -> float:
        """The least excess of any plan whose partial results count for so much; infinity where none is within the limits."""
        sets = self.sets._replace(partial=partial)
        if limits.cap_m >= self._most_kept:
            sets = sets._replace(bytes=np.zeros_like(sets.bytes))  # memory rules nothing out, so of every set one plan is enough
        if self.quick:
            _, stairs = begun(sets, self.prices, ONE_PLAN, limits, stop, QUICK_ROOM)
            return 0.0 if stairs.status else min(stairs.e.tolist(), default=math.inf)
        start = seeds(sets, self.prices, self._binary, ONE_PLAN, stop)
        stairs = at_once(sets, self.prices, start, limits, stop, QUICK_ROOM)
        return 0.0 if stairs.status else min(stairs.e.tolist(), default=math.inf)

    @cached_property
    def _most_kept(self) -> float:
        """No plan keeps more bytes beside its streams: those of all sets together."""
        return total(self.sets.bytes.tolist())

    @cached_property
    def _binary(self) -> Ints:
        """The members of the best binary tree, or of the mjoin where that takes too long."""
        sets = self.sets
        splits = binary_splits(sets, self.prices.weights, SEED_PAIRS)
        return members_as_rows(splits, sets) if splits.size else np.array([(1 << sets.n) - 1], np.int64)

    def seed_bytes(self) -> float:
        """The most bytes that a seed of a quick search kept."""
        return max((float(start.m.max(initial=0.0)) for start in self._starts.values()), default=0.0)

    def _seeds(self, stop: Ints, sets: Sets) -> Seeds:
        """Plans to start from: as many as are worth their time, and no more than there is time for."""
        return seeds(sets, self.prices, self._binary, ONE_DESCENT if sets.n <= FEW_STREAMS else EXPANSIONS, stop)

    def _tell(self, start: Seeds, progress: Progress) -> None:
        """Tell whoever listens of the plans at both ends of what there is."""
        if progress.listens and len(start.members) and len(self.streams) == len(self.model.graph):
            progress.planned([self.tree_of_seed(start.members[np.argmin(figures)]) for figures in (start.e, start.m)])

    def points(self, answer: Answer, priced: Callable[[Tree], Point], deadline: Deadline) -> tuple[list[Point], bool]:
        """The plans that the answer describes, by rising CPU, and whether these are all. Where time is short, they are spread over the answer."""
        built: dict[tuple[int, int], Tree] = {}
        made: dict[int, Point] = {}
        rows = answer.rows.tolist()
        for place in spread(len(rows)):
            if len(made) >= AT_LEAST and deadline.expired():
                break
            row = rows[place]
            tree = self.tree_of_seed(answer.seeds[-2 - row]) if row <= -2 else self.tree_of_row(row, answer, built)
            made[place] = priced(tree)
        return [made[place] for place in sorted(made)], len(made) == len(rows)


def _grain(value: float) -> float:
    """The last digit of a double of this magnitude."""
    return math.ldexp(1.0, math.frexp(value)[1] - 53) if 1e-280 < value < 1e280 else 0.0


def component_of(model: CostModel, mask: int, limit: int) -> Component | None:
    """The tables of one part; None where they would be too large. Made once: what is proven of plans with caches is searched in them as well."""
    known = model.derived.get(mask)
    if isinstance(known, Component) and known.sets.mask.size <= limit:
        return known
    found = sets_and_floors(model, mask, limit, DEAR_FIRST)
    if found is None:
        return None
    sets, floors = found
    places = list(bits(mask))
    streams = [places[k] for k in sets.order.tolist()]
    weights = weights_of(model.costs)
    results, steps = weights.join * float(sets.size[-1] * sets.pace[-1]), stepping(model.costs, (sets.n - 1) * probe_steps(2))
    base = total([*floors.tolist(), *(weights.probe * rate for rate in sets.rates.tolist()), results, steps])
    if not math.isfinite(base):
        raise model.out_of_range()
    prices = Prices(
        weights=weights,
        made=weights.join + weights.probe,
        keep=min(weights.indexed, weights.append),
        floors=floors,
        grain=_grain(base),
        grain_bytes=_grain(model.leaves_bytes()),
    )
    made = model.derived[mask] = Component(model, streams, sets, prices, base)
    return made

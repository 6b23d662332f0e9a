"""Stars, for which exact search over all connected sets would take too long: the best plan, or one that is nearly.

Problem: of the join trees of a star within a cap on memory the one of least CPU. Method: chains of sets of leaves (`compiled.stars`). If keeping a
state cost the same in every join, few sets would be enough. It nearly does: only in a join of two may a state go without an index. So two searches
over the same few sets close in on the best plan. The first counts what each state costs at least in any join, and gives a bound of all plans; the
second counts what each costs in its own join, and gives a plan. They agree where no state is better off without an index, or where what it would
save is below all digits that count.

Valid: a leaf's state is kept with an index, or scanned by every tuple of the hub's set that it is joined with. No such set has a rate below the
hub's window times all growths below 1, over the hub's T. A set's state is scanned by leaves, none of which has a lower rate than the slowest.

With caches the first search is run again with what they spare at most (`stars.spared`), for a bound of all plans.

Guarantee: the best of all join trees within the caps where it is said to be; else within the gap. None where the graph is no star of equalities, or
has too many kinds of leaves. Complexity: that of `chains_of_star`; its work is counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from models.plan import Proof
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDING, SUMMED, SUMMED_DOWN
from solvers.jtree.cheapest_first import streams_of
from solvers.jtree.compiled.compiling import Floats
from solvers.jtree.compiled.kept import WORD, keys_from
from solvers.jtree.compiled.key_classes import KeyClasses, rarest_key
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.stars import ENDED, Labels, Leaves, chains_of_star, label_room
from solvers.jtree.orders import best_orders
from solvers.jtree.search import ALL_TREES, Found, Problem, Shape, sorted_inputs, tree_of_joins
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.point import Point, point_of

__all__ = ["BestOfStar", "best_of_star", "least_of_star", "least_of_trees", "star"]

SMALLEST = 13  # streams: with fewer, exact search over all connected sets ends in milliseconds, and says more
TABLED = 16  # streams up to which that search mostly ends
LARGEST_STAR = 24  # streams: a table of as many sets as there are sets of leaves
MAX_SETS = 20_000  # of leaves, as many of each kind as one likes: a tenth of a second
MOST_LABELS = 200_000
WORK = 20_000_000  # steps of each search: about half a second
HUGE = 1e200  # an excess from which sizes may leave the range of a double
NEAR = 1e-3  # of the CPU between a bound and a plan, which searches over all connected sets seldom have for a star of this size


@dataclass(frozen=True, slots=True)
class BestOfStar:
    """A plan within a cap on memory, and a bound of the CPU of all that are."""

    point: Point
    bound: float

    @property
    def proven(self) -> bool:
        return self.point.cpu - self.bound <= ROUNDING * self.bound


def star(problem: Problem, deadline: Deadline) -> Found | None:
    """The plan of least CPU where that is asked for and there is one within the caps; None where the graph is no such star."""
    if problem.objective is not Objective.MIN_CPU or len(problem.model.graph) < SMALLEST:
        return None
    best = best_of_star(problem.model, deadline, problem.caps.memory_bytes)
    if best is None or not problem.caps.admit(best.point):
        return None
    point = best.point
    if best.proven:
        return Found(point, (point,), Proof.OPTIMAL, point.cpu, ALL_TREES)
    near = len(problem.model.graph) > TABLED and point.cpu - best.bound <= NEAR * best.bound
    return Found(point, (point,), Proof.BOUNDED, best.bound, ALL_TREES) if near else None


def best_of_star(model: CostModel, deadline: Deadline, cap: float = math.inf) -> BestOfStar | None:
    """A plan of least CPU within a cap on memory, or nearly, and a bound; None where the graph is no star of this kind, or time or work is over."""
    hub = _hub(model)
    if hub is None or len(model.graph) > LARGEST_STAR:
        return None
    ledger = Ledger(model)
    leaves, kinds = _leaves(ledger, hub, math.isfinite(cap))
    if _sets(kinds) > MAX_SETS or not all(0.0 < growth < HUGE for growth in kinds.growth):
        return None
    limits = np.array([HUGE, (cap - model.leaves_bytes()) * SUMMED])  # whether a plan fits is decided on its priced figures
    made = _searched(kinds, limits, deadline)
    if made is None:
        return None
    labels, place = made
    shape = _shape(hub, leaves, labels, place)
    point = point_of(model, tree_of_joins(shape, lambda blocks: best_orders(model, blocks)[0]))
    limits[0] = labels.cpu[place] / SUMMED_DOWN
    least = _searched(kinds._replace(floors=_floors(ledger, leaves, kinds)), limits, deadline)
    if least is None:
        return None
    bound = ledger.common + float(least[0].cpu[least[1]]) * SUMMED_DOWN
    return BestOfStar(point, min(point.cpu, bound))


def least_of_trees(model: CostModel, deadline: Deadline) -> float:
    """A bound of the CPU of every join tree of a star too large for exact search; 0 where nothing is known."""
    best = best_of_star(model, deadline) if len(model.graph) >= SMALLEST else None
    return best.bound if best is not None else 0.0


def least_of_star(model: CostModel, keys: KeyClasses, enough: float, deadline: Deadline) -> float:
    """A bound of the CPU of every plan, those with caches included; one above `enough` would be of no more use. 0 where nothing is known."""
    hub = _hub(model)
    if hub is None or len(model.graph) > LARGEST_STAR:
        return 0.0
    ledger = Ledger(model)
    leaves, kinds = _leaves(ledger, hub, False)
    if _sets(kinds) > MAX_SETS or not all(0.0 < growth < HUGE for growth in kinds.growth) or enough > HUGE:
        return 0.0
    kinds = kinds._replace(floors=_floors(ledger, leaves, kinds), misses=_misses(ledger, keys, hub, leaves, kinds), update=keys.update)
    limit = (enough - ledger.common) * SUMMED
    labels = label_room(kinds.growth.size, MOST_LABELS)
    if not _ended(kinds, labels, np.array([limit, math.inf]), deadline):
        return 0.0
    place = _cheapest_whole(labels)
    least = limit if place < 0 else float(labels.cpu[place])
    return min(enough, (ledger.common + least * SUMMED_DOWN) * SUMMED_DOWN)


def _misses(ledger: Ledger, keys: KeyClasses, hub: int, leaves: list[int], kinds: Leaves) -> Floats:
    """The least share of each leaf's lookups that miss, such that leaves of the same window may be exchanged."""
    graph, streams = ledger.model.graph, streams_of(ledger, keys)
    single = np.zeros_like(streams.near[:-1])
    for i in range(len(graph)):
        single[i, i // WORD] = 1 << i % WORD
    seldom = []
    for k, i in enumerate(leaves):
        new = max(keys_from(streams, single, i, hub), rarest_key(keys, single[i]))
        seldom.append(float(kinds.growth[k]) * new / graph.rates[i])
    least: dict[float, float] = {}
    for i, share in zip(leaves, seldom, strict=True):
        least[graph.window_seconds[i]] = min(least.get(graph.window_seconds[i], math.inf), share)
    return np.array([min(1.0, least[graph.window_seconds[i]] / float(f)) for i, f in zip(leaves, kinds.growth, strict=True)])


def _hub(model: CostModel) -> int | None:
    """The stream that all others join, where they join nothing else, and all by equalities."""
    graph = model.graph
    every = graph.all
    hubs = [i for i, near in enumerate(graph.neighbours) if near == every & ~(1 << i)]
    if len(graph) < 4 or len(hubs) != 1 or graph.tables or graph.observed or model.choices is not None:
        return None
    hub = hubs[0]
    alone = all(graph.neighbours[i] == 1 << hub for i in range(len(graph)) if i != hub)
    return hub if alone and graph.equal_neighbours[hub] == graph.neighbours[hub] else None


def _leaves(ledger: Ledger, hub: int, by_bytes: bool) -> tuple[list[int], Leaves]:
    """The leaves by rising growth, and their figures."""
    graph = ledger.model.graph
    tuples = graph.window_tuples[hub]
    growth = {i: ledger.size(1 << i | 1 << hub) / tuples for i in range(len(graph)) if i != hub}
    leaves = sorted(growth, key=lambda i: (growth[i], i))
    last: dict[tuple[float, float], int] = {}
    after = []
    for k, i in enumerate(leaves):
        kind = graph.window_seconds[i], graph.tuple_bytes[i] if by_bytes else 0.0
        after.append(last.get(kind, -1))
        last[kind] = k

    def figures(values: tuple[float, ...]) -> Floats:
        return np.array([values[i] for i in leaves], np.float64)

    return leaves, Leaves(
        growth=np.array([growth[i] for i in leaves]),
        pace=1.0 / figures(graph.window_seconds),
        tuples=figures(graph.window_tuples),
        after=np.array(after, np.int64),
        floors=np.empty(0),
        bytes=figures(graph.tuple_bytes) if by_bytes else np.zeros(len(leaves)),
        hub=np.array([tuples, 1.0 / graph.window_seconds[hub], graph.tuple_bytes[hub] if by_bytes else 0.0]),
        misses=np.empty(0),
        update=0.0,
        weights=ledger.weights,
        base=ledger.base,
    )


def _sets(kinds: Leaves) -> int:
    """How many sets of leaves there are: as many of each kind as one likes, those of the smallest growths."""
    many = [1] * kinds.growth.size
    for k, before in enumerate(kinds.after.tolist()):
        if before >= 0:
            many[k], many[before] = many[before] + 1, 0
    return math.prod(count + 1 for count in many)


def _floors(ledger: Ledger, leaves: list[int], kinds: Leaves) -> Floats:
    """What keeping each leaf costs at least in any join, and a tuple of a hub's set."""
    graph, weights = ledger.model.graph, ledger.weights
    smallest = float(np.prod(np.minimum(kinds.growth, 1.0))) * kinds.hub[0] * kinds.hub[1]
    floors = []
    for k, i in enumerate(leaves):
        rarest = smallest / min(1.0, float(kinds.growth[k]))  # of the sets without it
        scanned = weights.append + weights.scan * rarest * graph.window_tuples[i] / graph.rates[i]
        floors.append(min(weights.indexed, scanned) * graph.rates[i])
    slowest = min(graph.rates[i] for i in leaves)
    floors.append(min(weights.indexed, weights.append + weights.scan * slowest / ledger.model.per_second(graph.all)))
    return np.array(floors)


def _searched(kinds: Leaves, limits: Floats, deadline: Deadline) -> tuple[Labels, int] | None:
    """The labels, and the place of the cheapest plan of all leaves; None where the search did not end, or found none."""
    labels = label_room(kinds.growth.size, MOST_LABELS)
    place = _cheapest_whole(labels) if _ended(kinds, labels, limits, deadline) else -1
    return (labels, place) if place >= 0 else None


def _ended(kinds: Leaves, labels: Labels, limits: Floats, deadline: Deadline) -> bool:
    """Fill the labels, and say whether all were looked at."""
    stop = np.array([0, WORK], np.int64)
    with deadline.watched(lambda: stop.put(0, 1)):
        return bool(chains_of_star(kinds, labels, limits, stop) == ENDED)


def _cheapest_whole(labels: Labels) -> int:
    """The place of the cheapest plan of all leaves; −1 where there is none."""
    place = best = int(labels.first[-1])
    while place >= 0:
        best = place if labels.cpu[place] < labels.cpu[best] else best
        place = int(labels.following[place])
    return best


def _shape(hub: int, leaves: list[int], labels: Labels, place: int) -> Shape:
    """The joins of a chain of sets of leaves."""

    def mask_of(at: int) -> int:
        return 1 << hub | sum(1 << leaves[k] for k in bits(int(labels.mask[at])))

    shape: Shape = {}
    while (before := int(labels.before[place])) >= 0:
        whole, inner = mask_of(place), mask_of(before)
        shape[whole] = sorted_inputs([inner, *(1 << i for i in bits(whole & ~inner))])
        place = before
    return shape

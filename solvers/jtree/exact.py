"""The exact join tree: the whole frontier of CPU and memory, or the best plan within the caps, with a proof.

Problem: of all join trees (paper 3's jtrees: joins of any number of inputs, every probe order) the best by the objective within the
caps, or every trade-off worth having, or the proof that nothing fits and what it would take.
Method: dynamic programming over connected sets with a staircase of (CPU, memory) per set (`staircase_kernel`), from seeds by
state-removal and state-selection (`seed_kernel`); of large graphs first over a beam of few sets of each size, whose plans are seeds of the
search over all. Components on their own, summed up at the root (`components`).
Guarantee: exact. Kernels compare excesses over what every plan pays; the answer is decided on priced figures, and
nothing within a relative SLACK of a cap is dropped before that. At the deadline: the best plan so far, with the bound of `lower_bound`.
Complexity: exponential in the number of streams; what is cut away by dominance and bounds decides.

Departs from paper 3's JTree-Finder (Alg. 1), which keeps every sub-plan within the caps: dominance keeps the frontier of each set
alone, which loses no qualified plan because a subresult has the same size and rate whatever its shape.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.deadline import Deadline, Progress
from solvers.jtree.choice import choose, objective_value, overload
from solvers.jtree.compiled.seeds import ONE_DESCENT, ONE_PLAN, Prices, Seeds, follow, members_as_rows, mjoin_excess, seeds
from solvers.jtree.compiled.sets import Floats, Ints, Sets, binary_splits, connected_sets, find, lowest, released
from solvers.jtree.compiled.staircases import (
    DENSE_INPUTS,
    FRONTIER,
    LEAST_BYTES,
    LEAST_CPU,
    LEAST_LOAD,
    Limits,
    Stairs,
    as_seeds,
    at_once,
    bounds_of,
    staircases,
    wide_mjoin_excess,
)
from solvers.jtree.components import join_components, sum_of_staircases
from solvers.jtree.lower_bound import cpu_lower_bound, headroom_upper_bound, memory_lower_bound
from solvers.jtree.mjoin import mjoin_tree
from solvers.jtree.search import ALL_TREES, Found, Lacking, Problem, make_join, spread, staircase, structure_key
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.point import Caps, Point, point_of
from solvers.model.sensitivity import headroom
from solvers.model.tree import Join, Tree, joins, leaf_mask

__all__ = ["exact", "frontier_search"]

AGREED = 1e-9  # two factors this close are one: each comes out of a bisection on rounded sums
LOWER, LEAST_FACTOR = 16.0, 1e-12  # how rates are lowered to find some that fit, and where that ends
SLACK = 1e-11  # of a cap: kernels and prices round differently, by far less than this
DEAR_FIRST = np.empty(0, np.int64)
AT_LEAST = 2  # trees of an answer that are made whatever the time: the least CPU and the least memory
EXPANSIONS = 60  # plans whose neighbours are tried as seeds
BEAMS, WORTH = (20, 100), 250  # sets of each size to search first, where there are this many times as many sets in all
PATIENT = 4.0  # seconds from which larger tables are worth their time
QUICK_STREAMS, QUICK_SETS = 12, 1_000  # up to which the kernel ends in milliseconds
TINY_SETS = 128  # up to which the kernel takes less time than a descent, and under a cap than any seed
QUICK_ROOM, ROOM = 1 << 10, 1 << 22  # points of all staircases: pages that are never written cost nothing
SEED_PAIRS = 3_000_000  # pairs for the binary tree that seeds start from: a tenth of a second


@released
def stream_floors(sets: Sets, indexed: float, append: float, scan: float) -> Floats:
    """The least that keeping each stream costs in any plan: indexed, or plain where nothing hashes to it or scanning it is cheap."""
    floors = np.empty(sets.n)
    for i in range(sets.n):
        floors[i] = sets.rates[i] * (append if sets.neighbours[i] & ~sets.equal_neighbours[i] else max(indexed, append))
        if sets.equal_neighbours[i]:
            floors[i] = min(floors[i], sets.rates[i] * indexed)
    for s in range(sets.mask.size):
        rate = sets.size[s] * sets.pace[s]
        open_ = sets.around[s]
        while open_:
            i = lowest(open_)
            open_ &= open_ - 1
            floors[i] = min(floors[i], sets.rates[i] * append + scan * rate * sets.size[i])
    return floors


class Answer(NamedTuple):
    """Plans by rising CPU as rows of `staircase_kernel.staircases`, what they refer to, and whether nothing within the limits is missing."""

    complete: bool
    rows: Ints
    seeds: Ints
    point_rows: Ints
    point_sets: Ints
    entries: Ints


def _answer(start: Seeds, stairs: Stairs) -> Answer:
    """What the kernels found; of a search that ended early with nothing within the limits, its seeds."""
    rows = stairs.rows if stairs.rows.size or not stairs.status else -2 - np.arange(len(start.members))
    return Answer(not stairs.status, rows, start.members, stairs.point_rows, stairs.point_sets, stairs.entries)


@dataclass
class Component:
    """One connected part of the graph, its tables, and trees made of the kernels' answers."""

    model: CostModel
    streams: list[int]
    sets: Sets
    prices: Prices
    base: float
    """The CPU that every plan of this part pays."""
    _joins: dict[tuple[int, ...], tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def orders(self, blocks: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
        """The best probe orders of a join of these sets, in their order."""
        found = self._joins.get(blocks)
        if found is None:
            if len(blocks) == 2:
                found = ((1,), (0,))
            else:
                sets, m = self.sets, len(blocks)
                places = np.array([_place(sets, block) for block in blocks], np.int64)
                dense = m <= DENSE_INPUTS
                to_go = np.empty(1 << m if dense else sets.mask.size)
                whole = sum(blocks)
                if dense:
                    mjoin_excess(sets, self.prices, places, m, whole, np.full(m, np.inf), np.zeros(3 << m, np.int64), to_go)
                else:
                    wide_mjoin_excess(sets, self.prices, places, m, whole, to_go)
                found = tuple(tuple(row) for row in follow(sets, self.prices, places, m, to_go, dense).tolist())
            self._joins[blocks] = found
        return found

    def tree(self, members: Sequence[int]) -> Tree:
        """The join tree with these sets as its joins, by rising size."""
        roots: dict[int, tuple[int, Tree]] = {k: (1 << k, stream) for k, stream in enumerate(self.streams)}
        for member in members:
            inside = [roots[k] for k in bits(member) if k in roots]
            blocks = tuple(mask for mask, _ in inside)
            tree = make_join([tree for _, tree in inside], self.orders(blocks))
            for k in bits(member):
                roots.pop(k, None)
            roots[(member & -member).bit_length() - 1] = (member, tree)
        return roots[0][1]

    def tree_of_seed(self, members: Ints) -> Tree:
        return self.tree(sorted((mask for mask in members.tolist() if mask), key=lambda mask: (mask.bit_count(), mask)))

    def tree_of_row(self, row: int, answer: Answer, built: dict[tuple[int, int], Tree]) -> Tree:
        """The join tree that a row of the kernel describes; `built` are subtrees that other rows have as well."""
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
            if key in built:
                continue
            inside: list[tuple[int, Tree]] = [(part[0], built[part]) for part in below]
            covered = sum(part[0] for part in below)
            inside += [(1 << k, self.streams[k]) for k in bits(mask & ~covered)]
            inside.sort(key=lambda block: block[0] & -block[0])
            built[key] = make_join([tree for _, tree in inside], self.orders(tuple(block for block, _ in inside)))
        return built[root]

    @property
    def quick(self) -> bool:
        """Whether the kernel ends in milliseconds: then few seeds are enough, and a timer, which takes half a millisecond to start, is not needed."""
        return self.sets.n <= QUICK_STREAMS and self.sets.mask.size <= QUICK_SETS

    def search(self, limits: Limits, deadline: Deadline) -> Answer:
        """The kernels' answer."""
        sets, prices, progress = self.sets, self.prices, deadline.progress
        total = sets.mask.size
        start = self._seeds(limits)
        stop = np.zeros(2, np.int64)
        self._tell(start, progress)
        if self.quick:
            return _answer(start, at_once(sets, prices, start, limits, stop, QUICK_ROOM))
        # Of a whole frontier the second beam takes as long as it saves: its plans are many.
        beams = [beam for beam in (BEAMS[:1] if limits.goal == FRONTIER else BEAMS) if beam * WORTH < total]
        with deadline.watched(lambda: stop.put(0, 1), lambda: progress.doing(f"proving: {stop[1]} of {total} connected sets")):
            bounds = bounds_of(sets, prices, stop)
            for beam in beams:
                stairs = staircases(sets, prices, bounds, beam, start, limits, stop, ROOM)
                if stairs.rows.size:
                    start = as_seeds(sets, start, stairs)
                    self._tell(start, progress)
            stairs = staircases(sets, prices, bounds, 0, start, limits, stop, ROOM)
        return _answer(start, stairs)

    @cached_property
    def _binary(self) -> Ints:
        """The members of the best binary tree, or of the mjoin where that takes too long."""
        sets, costs = self.sets, self.model.costs
        splits = binary_splits(sets, costs.join, costs.insert + costs.delete, costs.append, costs.probe, costs.scan, SEED_PAIRS)
        return members_as_rows(splits, sets) if splits.size else np.array([(1 << sets.n) - 1], np.int64)

    def _seeds(self, limits: Limits) -> Seeds:
        """Plans to start from, as many as they are worth."""
        sets = self.sets
        tiny = sets.n <= QUICK_STREAMS and sets.mask.size <= TINY_SETS
        if tiny and ((limits.goal == LEAST_CPU and limits.cap_m < math.inf) or (limits.goal == LEAST_BYTES and limits.cap_e < math.inf)):
            none = np.empty(0)
            return Seeds(none, none, np.empty(0, np.int64), np.empty((0, sets.n), np.int64))
        return seeds(sets, self.prices, self._binary, EXPANSIONS if sets.n > QUICK_STREAMS else ONE_PLAN if tiny else ONE_DESCENT)

    def _tell(self, start: Seeds, progress: Progress) -> None:
        """Tell whoever listens of the plans at both ends of what there is."""
        if progress.listens and len(start.members) and len(self.streams) == len(self.model.graph):
            progress.planned([self.tree_of_seed(start.members[np.argmin(figures)]) for figures in (start.e, start.m)])

    def points(self, answer: Answer, priced: Callable[[Tree], Point], deadline: Deadline) -> tuple[list[Point], bool]:
        """The plans that the kernels' answer describes, by rising CPU, and whether all of them: as many as time allows, spread all along."""
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


def _place(sets: Sets, mask: int) -> int:
    return find(sets.keys, sets.places, sets.multiplier, sets.shift, mask)


def _grain(value: float) -> float:
    """The last digit of a double of this magnitude."""
    return math.ldexp(1.0, math.frexp(value)[1] - 53) if 1e-280 < value < 1e280 else 0.0


def component_of(model: CostModel, mask: int, limit: int) -> Component | None:
    """The tables of one part; None where they would be too large."""
    sets = connected_sets(model, mask, limit, DEAR_FIRST)
    if sets is None:
        return None
    places = list(bits(mask))
    streams = [places[k] for k in sets.order.tolist()]
    costs = model.costs
    indexed = costs.insert + costs.delete
    floors = stream_floors(sets, indexed, costs.append, costs.scan)
    base = math.fsum([*floors.tolist(), *(costs.probe * rate for rate in sets.rates.tolist()), costs.join * float(sets.size[-1] * sets.pace[-1])])
    prices = Prices(
        made=costs.join + costs.probe,
        indexed=indexed,
        append=costs.append,
        scan=costs.scan,
        keep=min(indexed, costs.append),
        floors=floors,
        grain=_grain(base),
        grain_bytes=_grain(model.leaves_bytes()),
    )
    return Component(model, streams, sets, prices, base)


def _affordable(deadline: Deadline) -> int:
    """How many connected sets to make tables of: where time is short, no more than can be searched in it."""
    return MAX_SETS if deadline.remaining() > PATIENT else HASTY_SETS


class Solver:
    """The parts of one graph with their tables, and answers about the whole."""

    def __init__(self, model: CostModel, limit: int) -> None:
        self.model, self.limit = model, limit
        self.masks = model.graph.components
        self.parts = [component_of(model, mask, limit) if mask & (mask - 1) else None for mask in self.masks]
        self.fits = all(part is not None for mask, part in zip(self.masks, self.parts, strict=True) if mask & (mask - 1))
        pays = [part.base for part in self.parts if part is not None]
        pays_bytes = [model.leaves_bytes()]
        if len(self.masks) > 1 and self.fits:
            root = join_components(model, [mjoin_tree(model, mask)[0] for mask in self.masks])
            assert isinstance(root, Join)
            pays.append(model.price_join([leaf_mask(tree) for tree in root.inputs], root.orders).cpu)
            pays_bytes += [model.state_bytes(mask) for mask in self.masks if mask & (mask - 1)]
        self.pays, self.pays_bytes = math.fsum(pays), math.fsum(pays_bytes)

    def limits(self, caps: Caps, goal: int) -> Limits:
        return Limits(
            goal,
            caps.cpu * (1.0 + SLACK) - self.pays,
            caps.memory_bytes * (1.0 + SLACK) - self.pays_bytes,
            caps.cpu * (1.0 - SLACK) - self.pays,
            caps.memory_bytes * (1.0 - SLACK) - self.pays_bytes,
            caps.cpu,
            caps.memory_bytes,
            self.pays,
            self.pays_bytes,
        )

    def points(self, caps: Caps, goal: int, deadline: Deadline) -> tuple[tuple[Point, ...], bool]:
        """Priced plans by rising CPU, and whether the answer is complete.

        Complete, they hold every point of the frontier within the caps (FRONTIER), or the best one by the goal. LEAST_LOAD takes the caps
        as its yardstick alone. Not complete, they are the plans found so far, some perhaps beyond the caps.
        """
        several = sum(part is not None for part in self.parts) > 1
        limits = self.limits(caps, goal)
        if goal == LEAST_LOAD:
            limits = limits._replace(cap_e=math.inf, cap_m=math.inf)
        priced = self._alone if len(self.masks) > 1 else self._whole
        parts: list[list[Point]] = []
        complete = True
        for mask, part in zip(self.masks, self.parts, strict=True):
            if part is None:
                parts.append([priced(mjoin_tree(self.model, mask)[0])])
            else:
                answer = part.search(limits._replace(goal=FRONTIER) if several else limits, deadline)
                found, all_of_them = part.points(answer, priced, deadline)
                parts.append(found)
                complete = complete and answer.complete and all_of_them
        if not all(parts):
            return (), complete
        return staircase(parts[0]) if len(parts) == 1 else sum_of_staircases(self.model, parts), complete

    def tell_bound(self, problem: Problem, deadline: Deadline) -> None:
        """Tell whoever listens a bound, where the search will take long enough for it to matter."""
        if deadline.progress.listens and any(part is not None and not part.quick for part in self.parts):
            deadline.progress.proven(_relaxed(problem, deadline))

    def _whole(self, tree: Tree) -> Point:
        return point_of(self.model, tree)

    def _alone(self, tree: Tree) -> Point:
        """A part's tree with the CPU of its own joins and the bytes of its inner states."""
        nodes = list(joins(tree))
        cpu = math.fsum(self.model.price_join([leaf_mask(child) for child in node.inputs], node.orders).cpu for node in nodes)
        return Point(cpu, math.fsum(self.model.state_bytes(node.mask) for node in nodes[:-1]), tree)


def frontier_search(problem: Problem, deadline: Deadline) -> Found:
    """Every trade-off within the caps that is worth having; none, with `lacking`, where nothing fits."""
    solver = Solver(problem.model, _affordable(deadline))
    if not solver.fits:
        found = _beyond(problem, deadline)  # what it proves is about its best plan alone
        return replace(found, proof=Proof.NONE if found.bound is None else Proof.BOUNDED)
    solver.tell_bound(problem, deadline)
    points, complete = solver.points(problem.caps, FRONTIER, deadline)
    within = tuple(point for point in points if problem.caps.admit(point))
    if within:
        best = choose(problem, within)
        if complete and problem.objective is not Objective.MAX_HEADROOM:
            return Found(best, within, Proof.OPTIMAL, objective_value(problem, best), ALL_TREES)
        bound = _relaxed(problem, deadline)
        proof = Proof.OPTIMAL if complete else Proof.NONE if bound is None else Proof.BOUNDED
        return Found(best, within, proof, bound, ALL_TREES, termination=_ended(complete, deadline))
    if complete:
        return replace(_nothing_fits(problem, solver, deadline), points=())
    return replace(_best_so_far(problem, points, deadline), points=())


def exact(problem: Problem, deadline: Deadline) -> Found:
    """The best plan of all join trees within the caps, or the proof that there is none and what it would take."""
    solver = Solver(problem.model, _affordable(deadline))
    if not solver.fits:
        return _beyond(problem, deadline)
    solver.tell_bound(problem, deadline)
    if problem.objective is Objective.MAX_HEADROOM and (math.isfinite(problem.caps.cpu) or math.isfinite(problem.caps.memory_bytes)):
        most = _most_headroom(problem, solver, deadline)
        if most.proof is Proof.OPTIMAL and not problem.caps.admit(most.best):
            return _nothing_fits(problem, solver, deadline)
        return most
    goal = LEAST_BYTES if problem.objective is Objective.MIN_MEMORY else LEAST_CPU
    points, complete = solver.points(problem.caps, goal, deadline)
    within = [point for point in points if problem.caps.admit(point)]
    if not complete:
        return _best_so_far(problem, points, deadline)
    if not within:
        return _nothing_fits(problem, solver, deadline)
    best = choose(problem, within)
    value = objective_value(problem, best)
    return Found(best, points, Proof.OPTIMAL, value if math.isfinite(value) else None, ALL_TREES)


def _beyond(problem: Problem, deadline: Deadline) -> Found:
    """What there is for a graph with too many connected sets for a table: the plan and the bound of anytime search."""
    from solvers.jtree.anytime import anytime

    found = anytime(problem, deadline)
    return replace(found, notes=("There are too many connected sets for exact search: improved a good plan region by region.", *found.notes))


def _relaxed(problem: Problem, deadline: Deadline) -> float | None:
    """A bound of the objective that takes next to no time."""
    if problem.objective is Objective.MIN_CPU:
        return cpu_lower_bound(problem.model, deadline)
    if problem.objective is Objective.MIN_MEMORY:
        return memory_lower_bound(problem.model)
    bound = headroom_upper_bound(problem.model, problem.caps, deadline)
    return bound if math.isfinite(bound) else None


def _best_so_far(problem: Problem, points: tuple[Point, ...], deadline: Deadline) -> Found:
    """What there is when the deadline strikes."""
    best = choose(problem, points)
    bound = _relaxed(problem, deadline)
    return Found(best, points, Proof.NONE if bound is None else Proof.BOUNDED, bound, ALL_TREES, termination=deadline.termination())


def _ended(complete: bool, deadline: Deadline) -> Termination:
    """Why the search ended. One whose tables had no room has nothing left to do either: that is no matter of time."""
    return Termination.COMPLETE if complete else deadline.termination()


def _nothing_fits(problem: Problem, solver: Solver, deadline: Deadline) -> Found:
    """The least bad plan, and exactly what it would take. Each answer is a search of its own, under one cap or none."""
    deadline.progress.doing("nothing fits: finding out what it would take")
    caps = problem.caps
    most = _most_headroom(problem, solver, deadline, chosen_anew=True)  # rates that shrink get a plan of their own

    def ask(under: Caps, goal: int) -> tuple[tuple[Point, ...], bool]:
        return ((), False) if deadline.expired() else solver.points(under, goal, deadline)

    asked = [
        ask(Caps(), LEAST_CPU),
        ask(Caps(), LEAST_BYTES),
        ask(Caps(memory_bytes=caps.memory_bytes), LEAST_CPU) if math.isfinite(caps.memory_bytes) else ((), True),
        ask(Caps(cpu=caps.cpu), LEAST_BYTES) if math.isfinite(caps.cpu) else ((), True),
        ask(caps, LEAST_LOAD),
    ]
    at_memory_cap = [point.cpu for point in asked[2][0] if point.memory_bytes <= caps.memory_bytes]
    at_cpu_cap = [point.memory_bytes for point in asked[3][0] if point.cpu <= caps.cpu]
    points = staircase([*(point for found, _ in asked for point in found), *most.points])
    best = choose(problem, points)
    least_cpu, least_bytes = min(point.cpu for point in points), min(point.memory_bytes for point in points)
    bounds = {Objective.MIN_CPU: least_cpu, Objective.MIN_MEMORY: least_bytes, Objective.MAX_HEADROOM: most.bound}
    if not all(complete for _, complete in asked):
        # That nothing fits is proven; what it would take is not: the least that was found is no bound.
        found = _best_so_far(problem, points, deadline)
        return replace(found, notes=(f"Proven: none of {ALL_TREES} fits the caps. What it would take is not proven.",))
    bound = bounds[problem.objective]
    lacking = Lacking(
        least_cpu,
        least_bytes,
        min(at_memory_cap, default=None),
        min(at_cpu_cap, default=None),
        most.bound if most.bound and most.termination is Termination.COMPLETE else None,
    )
    return Found(best, points, Proof.OPTIMAL, bound, ALL_TREES, lacking=lacking)


def _most_headroom(problem: Problem, solver: Solver, deadline: Deadline, chosen_anew: bool = False) -> Found:
    """The plan that bears the largest factor on all rates within the caps.

    At a factor f the plan of least load max(CPU/cap, memory/cap) is found; it bears more than f, or no plan does. Its own largest factor
    is the next f. Rises strictly, ends because plans are finite. A plan keeps its choice of indexed and plain states at every f; with
    `chosen_anew` it is chosen for f, and the bound is the largest f at which some plan fits, which today's plans may not reach.
    """
    model, graph, caps = problem.model, problem.model.graph, problem.caps
    asking = replace(problem, objective=Objective.MAX_HEADROOM)
    factor, here, rising = 1.0, solver, False
    met: list[Point] = []
    while True:
        points, complete = here.points(caps, LEAST_LOAD, deadline)
        met += [point if here is solver else point_of(model, point.tree) for point in points]
        if not complete:
            return _best_so_far(asking, staircase(met), deadline)
        least = min(points, key=lambda point: (overload(asking, point), structure_key(point.tree)))
        gain = headroom(here.model.price(least.tree), here.model.graph, caps)
        if gain is None:
            factor = math.inf
            break
        if rising and gain <= 1.0 + SLACK:
            break
        if gain > 0.0:
            factor *= max(gain, 1.0) if rising else gain
            rising = True
        else:
            # What is least over the caps here fits at no rates; another plan may at lower ones.
            factor /= LOWER
            if factor < LEAST_FACTOR:
                factor = 0.0
                break
        here = Solver(CostModel(graph.scaled(factor), model.costs, None if chosen_anew else model), solver.limit)
    best = min(met, key=lambda point: (-objective_value(asking, point), point.cpu, point.memory_bytes, structure_key(point.tree)))
    value = objective_value(asking, best)
    if not math.isfinite(factor):
        return Found(best, staircase(met), Proof.OPTIMAL, None, ALL_TREES)
    proof = Proof.OPTIMAL if value >= factor * (1.0 - AGREED) else Proof.BOUNDED
    return Found(best, staircase(met), proof, max(factor, value), ALL_TREES)

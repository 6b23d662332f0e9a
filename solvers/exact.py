"""The exact join tree: the whole frontier of CPU and memory, or the best plan within the caps, with a proof.

Problem: of all join trees (paper 3's jtrees: joins of any number of inputs, every probe order) the best by the objective within the
caps, or every trade-off worth having, or the proof that nothing fits and what it would take.
Method: dynamic programming over connected sets with a staircase of (CPU, memory) per set (`staircase_kernel`), from seeds by
state-removal and state-selection (`seed_kernel`); components on their own, summed up at the root (`components`).
Guarantee: exact. Kernels compare excesses over what every plan pays; the answer is decided on priced figures, and
nothing within a relative SLACK of a cap is dropped before that. At the deadline: the best plan so far, with the bound of `lower_bound`.
Complexity: exponential in the number of streams; what is cut away by dominance and bounds decides.

Departs from paper 3's JTree-Finder (Alg. 1), which keeps every sub-plan within the caps: dominance keeps the frontier of each set
alone, which loses no qualified plan because a subresult has the same size and rate whatever its shape.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from models.plan import Proof
from models.request import Objective
from solvers.choice import choose, objective_value
from solvers.components import join_components, sum_of_staircases
from solvers.cost import CostModel
from solvers.deadline import Deadline
from solvers.graph import bits
from solvers.kernels import Floats, Ints, Sets, binary_splits, connected_sets, find, lowest, released
from solvers.lower_bound import cpu_lower_bound
from solvers.mjoin import mjoin_tree
from solvers.search import Caps, Found, Point, Problem, make_join, point_of, staircase
from solvers.seed_kernel import Prices, follow, members_as_rows, mjoin_excess, seeds
from solvers.staircase_kernel import DENSE_INPUTS, FRONTIER, LEAST_BYTES, LEAST_CPU, staircases, wide_mjoin_excess
from solvers.tree import Tree, leaf_mask

__all__ = ["SPACE", "exact", "frontier_search"]

SPACE = "all join trees"
SLACK = 1e-11  # of a cap: kernels and prices round differently, by far less than this
LARGEST = 1e290  # sizes above this count as this: no plan that keeps them can be priced, and no infinity is subtracted
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


@dataclass
class _Component:
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
                    mjoin_excess(sets, self.prices, places, m, whole, np.empty(1 << m, np.int64), to_go)
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


def _place(sets: Sets, mask: int) -> int:
    return find(sets.keys, sets.places, sets.multiplier, sets.shift, mask)


def _grain(value: float) -> float:
    """The last digit of a double of this magnitude."""
    return math.ldexp(1.0, math.frexp(value)[1] - 53) if 1e-280 < value < 1e280 else 0.0


def _component(model: CostModel, mask: int) -> _Component | None:
    """The tables of one part; None where they would be too large."""
    sets = connected_sets(model, mask)
    if sets is None:
        return None
    sets = sets._replace(size=np.minimum(sets.size, LARGEST))
    costs = model.costs
    indexed = costs.insert + costs.delete
    floors = stream_floors(sets, indexed, costs.append, costs.scan)
    rates = [float(rate) for rate in sets.rates]
    base = math.fsum([*floors.tolist(), *(costs.probe * rate for rate in rates), costs.join * float(sets.size[-1] * sets.pace[-1])])
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
    return _Component(model, list(bits(mask)), sets, prices, base)


@dataclass(frozen=True)
class _Answer:
    """What the kernel found of one part: join trees by rising CPU excess, and whether nothing is missing."""

    trees: tuple[Tree, ...]
    complete: bool


def _solve(component: _Component, limits: tuple[float, float, float, float], goal: int, deadline: Deadline) -> _Answer:
    """The staircase of one part within the limits (cap_e, cap_m, sure_e, sure_m)."""
    sets, prices = component.sets, component.prices
    costs = component.model.costs
    split = binary_splits(sets, costs.join, prices.indexed, costs.append, costs.probe, costs.scan, SEED_PAIRS)
    binary = members_as_rows(split, sets) if split.size else np.array([(1 << sets.n) - 1], np.int64)
    seed_e, seed_m, seed_o, members = seeds(sets, prices, binary)
    stop = np.zeros(1, np.int64)
    timer = threading.Timer(deadline.remaining(), _set, (stop,))
    timer.daemon = True
    timer.start()
    try:
        status, _, _, _, rows, point_rows, point_sets, entries, _ = staircases(sets, prices, seed_e, seed_m, seed_o, *limits, goal, stop)
    finally:
        timer.cancel()
    trees = []
    listed = rows.tolist()
    if not listed and status:
        listed = [-2 - k for k in range(len(seed_e))]
    for row in listed:
        family = [mask for mask in members[-2 - row].tolist() if mask] if row <= -2 else _members(sets, row, point_rows, point_sets, entries)
        trees.append(component.tree(sorted(family, key=lambda mask: (mask.bit_count(), mask))))
    return _Answer(tuple(trees), status == 0)


def _set(stop: Ints) -> None:
    stop[0] = 1


def _members(sets: Sets, row: int, point_rows: Ints, point_sets: Ints, entries: Ints) -> list[int]:
    """The sets of the joins of the plan that a row describes."""
    waiting, found = [(int(sets.mask[-1]), row)], []
    while waiting:
        mask, row = waiting.pop()
        found.append(mask)
        if row >= 0:
            for entry in entries[row + 1 : row + 1 + entries[row]].tolist():
                if entry >= 0:
                    waiting.append((int(sets.mask[point_sets[entry]]), int(point_rows[entry])))
    return found


def _points(problem: Problem, caps: Caps, goal: int, deadline: Deadline) -> tuple[tuple[Point, ...], bool]:
    """Priced plans: all of the frontier within caps (or towards the goal), and whether that is proven."""
    model = problem.model
    parts: list[tuple[tuple[Tree, ...], bool]] = []
    components: list[_Component | None] = []
    for mask in model.graph.components:
        components.append(_component(model, mask) if mask & (mask - 1) else None)
    pays = math.fsum(component.base for component in components if component is not None)
    pays_bytes = model.leaves_bytes()
    if len(components) > 1:
        blocks = list(model.graph.components)
        root = join_components(model, [mjoin_tree(model, mask)[0] for mask in blocks])
        assert not isinstance(root, int)
        pays = math.fsum([pays, model.price_join([leaf_mask(tree) for tree in root.inputs], root.orders).cpu])
        pays_bytes = math.fsum([pays_bytes, *(model.state_bytes(mask) for mask in blocks if mask & (mask - 1))])
    limits = (
        caps.cpu * (1.0 + SLACK) - pays,
        caps.memory_bytes * (1.0 + SLACK) - pays_bytes,
        caps.cpu * (1.0 - SLACK) - pays,
        caps.memory_bytes * (1.0 - SLACK) - pays_bytes,
    )
    several = sum(component is not None for component in components) > 1
    for mask, component in zip(model.graph.components, components, strict=True):
        if component is None:
            tree, proven = mjoin_tree(model, mask)
            parts.append(((tree,), proven and mask & (mask - 1) == 0))
        else:
            answer = _solve(component, limits, FRONTIER if several else goal, deadline)
            parts.append((answer.trees, answer.complete))
    complete = all(proven for _, proven in parts)
    if any(not trees for trees, _ in parts):
        return (), complete
    if len(parts) == 1:
        return staircase(point_of(model, tree) for tree in parts[0][0]), complete
    figures = []
    for trees, _ in parts:
        figures.append([_own(model, tree) for tree in trees])
    return sum_of_staircases(model, figures), complete


def _own(model: CostModel, tree: Tree) -> Point:
    """A part's tree with the CPU of its joins and the bytes of its inner states."""
    if isinstance(tree, int):
        return Point(0.0, 0.0, tree)
    priced = model.price(tree)
    return Point(priced.cpu, priced.memory_bytes, tree)


def frontier_search(problem: Problem, deadline: Deadline) -> Found:
    """Every trade-off within the caps that is worth having."""
    points, complete = _points(problem, problem.caps, FRONTIER, deadline)
    points = tuple(point for point in points if problem.caps.admit(point))
    if not points:
        points, _ = _points(problem, Caps(), FRONTIER, deadline)
        return Found(choose(problem, points), (), Proof.OPTIMAL if complete else Proof.NONE, None, SPACE)
    best = choose(problem, points)
    return Found(best, points, Proof.OPTIMAL if complete else Proof.NONE, objective_value(problem, best) if complete else None, SPACE)


def exact(problem: Problem, deadline: Deadline) -> Found:
    goal = {Objective.MIN_CPU: LEAST_CPU, Objective.MIN_MEMORY: LEAST_BYTES}.get(problem.objective, FRONTIER)
    points, complete = _points(problem, problem.caps, goal, deadline)
    best = choose(problem, points)
    value = objective_value(problem, best)
    bound = value if complete else cpu_lower_bound(problem.model, deadline)
    return Found(best, points, Proof.OPTIMAL if complete else Proof.BOUNDED, bound, SPACE)

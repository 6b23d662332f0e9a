"""The connected parts of one graph with their tables, and priced plans of the whole: what every exact question is asked of.

Parts are searched on their own and summed up at the root (`components`). Compiled code compares excesses over what every plan pays; plans are priced
here, and nothing within AT_A_CAP of a cap is dropped before that.
"""

from __future__ import annotations

import math
from typing import Protocol

from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP
from solvers.jtree.compiled.questions import FRONTIER, LEAST_CPU, LEAST_LOAD, Limits
from solvers.jtree.component import component_of
from solvers.jtree.components import join_components, sum_of_staircases
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.mjoin import mjoin_tree
from solvers.jtree.search import Problem, staircase
from solvers.jtree.table_sizes import HASTY_SETS, MAX_SETS
from solvers.jtree.tables.solver import TableSolver
from solvers.model.cost import CostModel
from solvers.model.point import NO_CAPS, Caps, Point, point_of
from solvers.model.tree import Join, Tree, joins, leaf_mask

__all__ = ["PATIENT", "AnySolver", "Solver", "affordable_sets", "solver_for"]

LARGE_TABLE = 100_000  # connected sets of a part, from which its search takes seconds
ROOMY = 2.0  # times what every plan keeps: a cap on memory above this is seldom what decides
PATIENT = 4.0  # seconds granted, from which on larger tables are worth their time


def affordable_sets(deadline: Deadline) -> int:
    """How many connected sets to make tables of: where time is short, no more than can be searched in it."""
    return MAX_SETS if deadline.granted > PATIENT else HASTY_SETS


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
        self.large = any(part is not None and part.sets.mask.size > LARGE_TABLE for part in self.parts)
        """Whether the search may well not end in time."""
        self.pays, self.pays_bytes = math.fsum(pays), math.fsum(pays_bytes)
        self._least_cpu: tuple[Point, ...] = ()
        """The answer to LEAST_CPU without caps, once it is complete; of one quick part alone."""
        self._met_bytes = math.inf
        """The most memory that this answer and the plans it was searched from take."""

    def of(self, model: CostModel) -> Solver:
        """The same questions of another model of the same graph."""
        return Solver(model, self.limit)

    def limits(self, caps: Caps, goal: int) -> Limits:
        return Limits(
            goal,
            caps.cpu * (1.0 + AT_A_CAP) - self.pays,
            caps.memory_bytes * (1.0 + AT_A_CAP) - self.pays_bytes,
            caps.cpu * (1.0 - AT_A_CAP) - self.pays,
            caps.memory_bytes * (1.0 - AT_A_CAP) - self.pays_bytes,
            caps.cpu,
            caps.memory_bytes,
            self.pays,
            self.pays_bytes,
        )

    def points(self, caps: Caps, goal: int, deadline: Deadline) -> tuple[tuple[Point, ...], bool]:
        """Priced plans by rising CPU, and whether the answer is complete.

        Complete, they hold every point of the frontier within the caps (FRONTIER), or the best one by the goal. For LEAST_LOAD the caps are
        what a load is measured by, and rule nothing out. Not complete, they are the plans found so far, some perhaps beyond the caps.
        """
        limits = self.limits(caps, goal)
        if goal != LEAST_LOAD and min(limits.cap_e, limits.cap_m) < 0.0:
            return (), True  # what every plan pays is over a cap
        if (goal == LEAST_LOAD and self._hardly_kept(caps)) or (goal == LEAST_CPU and self._roomy(caps)):
            self.points(NO_CAPS, LEAST_CPU, deadline)
        if (settled := self._settled(caps, goal)) is not None:
            return settled, True
        several = sum(part is not None for part in self.parts) > 1
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
        if len(parts) > 1:
            return sum_of_staircases(self.model, parts), complete
        points = staircase(parts[0])
        alone = self.parts[0]
        if complete and goal == LEAST_CPU and caps == NO_CAPS and alone is not None and alone.quick:
            self._least_cpu, self._met_bytes = points, max(points[0].memory_bytes, alone.seed_bytes() + self.pays_bytes)
        return points, complete

    def _hardly_kept(self, caps: Caps) -> bool:
        """Whether the plan of least CPU likely is that of least load, and so is asked for first: whether what every plan pays loads the CPU's cap
        more than the memory's."""
        alone = self.parts[0]
        return len(self.parts) == 1 and alone is not None and alone.quick and self.pays_bytes * caps.cpu < self.pays * caps.memory_bytes

    def _roomy(self, caps: Caps) -> bool:
        """Whether the plan of least CPU is asked for first: where it likely keeps the cap on memory, it settles whether anything fits, and of larger
        graphs it is found sooner without caps, from fewer seeds."""
        alone = self.parts[0]
        return caps != NO_CAPS and len(self.parts) == 1 and alone is not None and alone.quick and ROOMY * self.pays_bytes < caps.memory_bytes

    def _settled(self, caps: Caps, goal: int) -> tuple[Point, ...] | None:
        """What the plan of least CPU says of a question; None where it says nothing.

        If its CPU is above the cap on CPU, no plan keeps that cap. If the caps admit it, and the one on memory all plans it was found from, it is
        also the plan of least CPU under these caps. If it loads the cap on CPU more than the cap on memory, no plan has a lower load.
        """
        if not self._least_cpu:
            return None
        least = self._least_cpu[0]
        if goal == LEAST_LOAD:
            return self._least_cpu if least.memory_bytes * caps.cpu <= least.cpu * caps.memory_bytes else None
        if least.cpu > caps.cpu * (1.0 + 2.0 * AT_A_CAP):
            return ()
        admitted = least.cpu < caps.cpu * (1.0 - 2.0 * AT_A_CAP) and self._met_bytes < caps.memory_bytes * (1.0 - 2.0 * AT_A_CAP)
        same = goal == LEAST_CPU and admitted
        return self._least_cpu if same else None

    def tell_bound(self, problem: Problem, deadline: Deadline) -> None:
        """Tell whoever listens a bound, where the search will take long enough for it to matter."""
        if deadline.progress.listens and any(part is not None and not part.quick for part in self.parts):
            deadline.progress.proven(relaxed_bound(problem, deadline))

    def _whole(self, tree: Tree) -> Point:
        return point_of(self.model, tree)

    def _alone(self, tree: Tree) -> Point:
        """A part's tree with the CPU of its own joins and the bytes of its inner states."""
        nodes = list(joins(tree))
        cpu = math.fsum(self.model.price_join([leaf_mask(child) for child in node.inputs], node.orders).cpu for node in nodes)
        return Point(cpu, math.fsum(self.model.state_bytes(node.mask) for node in nodes[:-1]), tree)


class AnySolver(Protocol):
    """What every exact question is asked of, with tables or without."""

    model: CostModel
    fits: bool
    large: bool

    def of(self, model: CostModel) -> AnySolver: ...

    def points(self, caps: Caps, goal: int, deadline: Deadline) -> tuple[tuple[Point, ...], bool]: ...

    def tell_bound(self, problem: Problem, deadline: Deadline) -> None: ...


def solver_for(model: CostModel, deadline: Deadline) -> AnySolver:
    """The solver that knows everything in the graph."""
    return TableSolver(model) if model.graph.tables else Solver(model, affordable_sets(deadline))

"""The exact search for queries with tables: trees, probe orders and accesses together.

Problem: as `exact`, with tables: every trade-off between CPU and memory, or the best plan by one of them, over all join trees, all probe orders and
all accesses. Method: dynamic programming over connected sets with at least one stream, a staircase of (CPU, memory) for each; a set is divided
in every way into such sets and single inputs, and every way to join those (`joins.ways`) is added to every choice of their points. Size and
rate of a subresult depend neither on its shape nor on its accesses, so of two sub-plans of one set the one that is worse in both can go.

A set with one stream is joined in one join alone: taking a join with tables apart into several changes no probe and adds states.

Guarantee: exact; figures that agree but for rounding count as ties, of which the one with fewer operators stays. Complexity: exponential in
the number of inputs; in plain Python, about 20,000 joins a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from solvers.common.deadline import Deadline
from solvers.common.tolerances import AT_A_CAP, SUMMED
from solvers.jtree.compiled.questions import LEAST_BYTES, LEAST_CPU, LEAST_LOAD
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.search import Problem, make_join, staircase
from solvers.jtree.tables.joins import Way, orders_of, ways
from solvers.jtree.tables.shapes import first_points
from solvers.model.connected import connected_sets, partitions
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph, bits
from solvers.model.point import Caps, Point, point_of
from solvers.model.tree import Asked, Tree

__all__ = ["TableSolver", "divisions"]

MAX_SETS = 4_000  # connected sets of all parts: beyond, the search does not end within seconds


class _Plan(NamedTuple):
    """A sub-plan: its CPU, the bytes of all that is kept inside, its joins, and how its topmost one is made; a leaf has no inputs."""

    cpu: float
    bytes: float
    operators: int
    mask: int
    inputs: tuple[_Plan, ...] = ()
    asked: Asked = ()


@dataclass(frozen=True, slots=True)
class _Aim:
    """What is worth keeping: plans within these figures, of one resource alone where the other counts for nothing."""

    cpu: float
    bytes: float
    goal: int

    @classmethod
    def of(cls, caps: Caps, goal: int) -> _Aim:
        if goal == LEAST_LOAD:
            return cls(math.inf, math.inf, goal)
        return cls(caps.cpu * (1.0 + AT_A_CAP), caps.memory_bytes * (1.0 + AT_A_CAP), goal)

    @property
    def cpu_alone(self) -> bool:
        """Whether memory counts for nothing."""
        return self.goal == LEAST_CPU and math.isinf(self.bytes)

    def figures(self, cpu: float, held: float) -> tuple[float, float]:
        """The figures by which plans are compared."""
        if self.cpu_alone:
            return cpu, 0.0
        if self.goal == LEAST_BYTES and math.isinf(self.cpu):
            return 0.0, held
        return cpu, held


class _Stairs:
    """The plans of one set that no other beats in both figures that count."""

    def __init__(self, aim: _Aim) -> None:
        self.aim = aim
        self.plans: list[tuple[float, float, _Plan]] = []

    def beaten(self, cpu: float, held: float, operators: int) -> bool:
        """Whether a plan of at least these figures is out of the question."""
        if cpu > self.aim.cpu or held > self.aim.bytes:
            return True
        x, y = self.aim.figures(cpu, held)
        for other_x, other_y, plan in self.plans:
            if other_x <= x * SUMMED and other_y <= y * SUMMED:
                better = plan.cpu < cpu / SUMMED or plan.bytes < held / SUMMED
                if plan.cpu <= cpu * SUMMED and plan.bytes <= held * SUMMED and (better or plan.operators <= operators):
                    return True
                if other_x < x / SUMMED or other_y < y / SUMMED:
                    return True
        return False

    def add(self, plan: _Plan) -> None:
        if self.beaten(plan.cpu, plan.bytes, plan.operators):
            return
        x, y = self.aim.figures(plan.cpu, plan.bytes)
        self.plans = [entry for entry in self.plans if entry[0] < x or entry[1] < y]
        self.plans.append((x, y, plan))


def divisions(graph: JoinGraph) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Every set that a plan may join, by rising size, with every way to divide it into inputs; the whole graph last."""
    for part in graph.components:
        for whole in _joined(graph, part, binary=False):
            for blocks in _divided(graph, whole, binary=False):
                yield whole, blocks
    if len(graph.components) > 1:
        yield graph.all, graph.components


def _joined(graph: JoinGraph, part: int, binary: bool) -> list[int]:
    """The connected sets of a part that have a stream, by rising size; with one stream alone, and no binary tree asked for, the part itself."""
    if not part & (part - 1):
        return []
    if not binary and _one_stream(graph, part):
        return [part]
    found = (mask for i in bits(part) for mask in connected_sets(graph.neighbours, 1 << i, part & -(1 << i)))
    return sorted((mask for mask in found if mask & (mask - 1) and mask & ~graph.tables), key=lambda mask: (mask.bit_count(), mask))


def _divided(graph: JoinGraph, whole: int, binary: bool) -> Iterable[tuple[int, ...]]:
    if not binary and _one_stream(graph, whole):
        return [tuple(1 << i for i in bits(whole))]
    return partitions(graph.neighbours, whole)


def _one_stream(graph: JoinGraph, mask: int) -> bool:
    streams = mask & ~graph.tables
    return streams & (streams - 1) == 0


class TableSolver:
    """The parts of one graph, and answers about the whole; what `parts.Solver` is for streams alone."""

    def __init__(self, model: CostModel, limit: int = MAX_SETS, binary: bool = False) -> None:
        self.model, self.limit, self.binary = model, min(limit, MAX_SETS), binary
        self.fits = self._sets_fit()
        self.large = False  # anytime search knows no tables
        self._ways: dict[tuple[tuple[int, ...], bool], list[Way]] = {}
        self._trees: dict[_Plan, Tree] = {}

    def of(self, model: CostModel) -> TableSolver:
        """The same questions of another model of the same graph."""
        return TableSolver(model, self.limit, self.binary)

    def _sets_fit(self) -> bool:
        graph, count = self.model.graph, 0
        for part in graph.components:
            for i in bits(part):
                for _ in connected_sets(graph.neighbours, 1 << i, part & -(1 << i)):
                    count += 1
                    if count > self.limit:
                        return False
        return True

    def tell_bound(self, problem: Problem, deadline: Deadline) -> None:
        """Tell whoever listens a bound."""
        if deadline.progress.listens:
            deadline.progress.proven(relaxed_bound(problem, deadline))

    def points(self, caps: Caps, goal: int, deadline: Deadline) -> tuple[tuple[Point, ...], bool]:
        """Priced plans by rising CPU, and whether the answer is complete: as `parts.Solver.points`."""
        graph, aim = self.model.graph, _Aim.of(caps, goal)
        parts: list[list[_Plan]] = []
        for part in graph.components:
            found = self._part(part, aim, deadline)
            if found is None:
                return first_points(self.model), False
            parts.append(found)
        if deadline.expired():
            return first_points(self.model), False
        if len(parts) == 1:
            plans = parts[0]
        else:
            stairs = _Stairs(aim)
            self._join(stairs, graph.all, parts, deadline)
            plans = [plan for _, _, plan in stairs.plans]
        return staircase(point_of(self.model, self._tree(plan)) for plan in plans), True

    def _part(self, part: int, aim: _Aim, deadline: Deadline) -> list[_Plan] | None:
        """The plans of one part; None where time is over."""
        graph = self.model.graph
        known = {1 << i: [_Plan(0.0, 0.0, 0, 1 << i)] for i in bits(part)}
        for whole in _joined(graph, part, self.binary):
            stairs = _Stairs(aim)
            for blocks in _divided(graph, whole, self.binary):
                if deadline.expired():
                    return None
                if (len(blocks) == 2 or not self.binary) and all(block in known for block in blocks):
                    self._join(stairs, whole, [known[block] for block in blocks], deadline)
            known[whole] = [plan for _, _, plan in stairs.plans]
        return known[part]

    def _join(self, stairs: _Stairs, whole: int, parts: Sequence[Sequence[_Plan]], deadline: Deadline) -> None:
        """Add every plan that joins one plan of each part. The parts' own results are kept, those of the whole are not counted."""
        model = self.model
        if not all(parts):
            return
        least = [(min(plan.cpu for plan in plans), min(plan.bytes for plan in plans) + self._kept(plans[0].mask)) for plans in parts]
        floor = math.fsum(cpu for cpu, _ in least) + model.costs.join * model.size(whole) * model.per_second(whole)
        if stairs.beaten(floor / SUMMED, math.fsum(held for _, held in least) / SUMMED, 1):
            return
        sums: list[tuple[float, float, int, tuple[_Plan, ...]]] = [(0.0, 0.0, 1, ())]
        for plans in parts:
            kept = self._kept(plans[0].mask)
            sums = [
                (cpu + plan.cpu, held + plan.bytes + kept, operators + plan.operators, (*chosen, plan))
                for cpu, held, operators, chosen in sums
                for plan in plans
            ]
        for way in self._ways_of(tuple(plans[0].mask for plans in parts), stairs.aim.cpu_alone, deadline):
            for cpu, held, operators, chosen in sums:
                stairs.add(_Plan(cpu + way.cpu, held + way.bytes, operators, whole, chosen, way.asked))

    def _kept(self, mask: int) -> float:
        return self.model.state_bytes(mask) if mask & (mask - 1) else 0.0

    def _ways_of(self, blocks: tuple[int, ...], cpu_alone: bool, deadline: Deadline) -> list[Way]:
        key = (blocks, cpu_alone)
        if key not in self._ways:
            found = ways(self.model, blocks, cpu_alone, deadline)
            if deadline.expired():
                return found  # others may be missing
            self._ways[key] = found
        return self._ways[key]

    def _tree(self, plan: _Plan) -> Tree:
        """The join tree of a plan, with the best probe orders of every join."""
        waiting = [plan]
        while waiting:
            node = waiting[-1]
            missing = [part for part in node.inputs if part not in self._trees]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if not node.inputs:
                self._trees[node] = node.mask.bit_length() - 1
                continue
            orders = orders_of(self.model, [part.mask for part in node.inputs], node.asked)
            assert orders is not None
            self._trees[node] = make_join([self._trees[part] for part in node.inputs], orders, node.asked)
        return self._trees[plan]

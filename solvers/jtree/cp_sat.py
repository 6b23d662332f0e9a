"""The join tree as an integer program, solved by OR-Tools CP-SAT: a second opinion on the exact search.

Problem: the join tree of least CPU or least memory within both caps. Model: a Boolean per connected set S and way to split it into connected
parts, "S is joined from these parts". Every component is joined exactly once; any other set is joined as often as it is used as a part,
which is at most once, because sets that are used below one root are disjoint or nested. Costs add up over joins, so objective and
caps are linear. Guarantee: exact where the splits number at most MAX_SPLITS; elsewhere the start comes back with the bound of
`solvers.jtree.lower_bound`.
Complexity: as many Booleans as splits, Bell(n + 1) − 1 at worst; the program itself is nearly always solved at its root.

Splits that cannot be part of a plan better than the start (two-layer) or within the caps are left out, by the least cost of their parts.
Coefficients are whole numbers of 2^-42 of the start's cost, rounded down: every plan within the caps stays within, and one
that is over them by less than rounding is forbidden when its price says so, and the program solved again.
One worker, a fixed seed and CP-SAT's deterministic time make answers repeatable; the clock only ends what takes too long.
It is never the faster way: 9 to 80 times the exact search's time on 6 to 12 streams (tests/bench/bench_cp_sat.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.cp_solver import repeatable_solver
from solvers.common.deadline import Deadline
from solvers.common.errors import MethodError
from solvers.common.tolerances import ROUNDED, ROUNDING
from solvers.jtree.choice import choose, objective_value
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.search import ALL_TREES, Found, Problem, before_writing, staircase
from solvers.jtree.shape import sorted_inputs, tree_of, with_root
from solvers.jtree.two_layer import points_of_two_layers
from solvers.model.connected import connected_sets, partitions
from solvers.model.graph import bits
from solvers.model.point import Caps, Point, point_of
from solvers.model.tree import Asked, Tree, joins, leaf_mask

__all__ = ["MAX_SPLITS", "Program", "Split", "cp_sat", "refuse_headroom", "solved"]

MAX_SPLITS = 60_000  # two seconds to list and price; cliques of 9 streams, chains of 14
STEPS = 1 << 42  # of the start's cost: sums of 200 stay well within CP-SAT's 2^62, and rounding below that of a plan's price
DETERMINISTIC_TIME = 30.0  # CP-SAT's own units, about a second each
RETRIES = 20  # times that a plan which is over a cap when priced may be forbidden and the program solved again


@dataclass(frozen=True, slots=True)
class Split:
    """One way to join a set: its parts, what the join adds to the CPU of a plan, the bytes that it adds, and which tables it asks."""

    whole: int
    parts: tuple[int, ...]
    cpu: float
    state_bytes: float
    asked: Asked = ()


@dataclass(slots=True)
class Program:
    """The splits that plans are made of, and for each set the least CPU of joining it."""

    roots: tuple[int, ...]
    """The sets that every plan joins."""
    tree: Callable[[Sequence[Split]], Tree]
    """The join tree that splits make."""
    cpu: float
    """CPU of every plan, whatever its splits."""
    state_bytes: float
    """Bytes of every plan."""
    splits: list[Split] = field(default_factory=list)
    least: dict[int, float] = field(default_factory=dict)


def _program(ledger: Ledger, limits: Caps, deadline: Deadline) -> Program | None:
    """All splits that a plan within the limits can use; None where they are too many, too wide to order, or time runs out."""
    graph, held_by_all = ledger.model.graph, ledger.model.leaves_bytes()
    inputs = with_root(ledger, {}).get(graph.all)
    program = Program(
        roots=graph.components,
        tree=lambda splits: tree_of(ledger, with_root(ledger, {split.whole: split.parts for split in splits})),
        cpu=ledger.common + (ledger.join(inputs)[0] if inputs else 0.0),
        state_bytes=held_by_all,
        least={1 << i: 0.0 for i in range(len(graph))},
    )
    excess_limit = (limits.cpu * ROUNDED - ledger.common) + ROUNDING * ledger.common
    memory_limit = limits.memory_bytes * ROUNDED - held_by_all
    seen = 0
    for component in graph.components:
        sets: list[int] = []
        for part in (part for i in bits(component) for part in connected_sets(graph.neighbours, 1 << i, component & -(1 << i))):
            # Every set has a split at least, so too many sets are too many splits.
            if len(sets) > MAX_SPLITS or (len(sets) % 256 == 0 and deadline.expired()):
                return None
            if part & (part - 1):
                sets.append(part)
        for number, whole in enumerate(sorted(sets, key=lambda mask: (mask.bit_count(), mask))):
            if number % 64 == 0 and deadline.expired():  # sets that no plan within the caps can keep are priced as well
                return None
            root = whole == graph.all
            kept, held = (0.0, 0.0) if root else (ledger.kept(whole), ledger.state_bytes(whole))
            if not (kept <= excess_limit and held <= memory_limit):
                continue
            for parts in partitions(graph.neighbours, whole):
                seen += 1
                if seen > MAX_SPLITS or (seen % 64 == 0 and deadline.expired()):
                    return None
                if any(part not in program.least for part in parts):
                    continue
                below = math.fsum(program.least[part] for part in parts) + kept
                if below > excess_limit:
                    continue
                own, proven = ledger.exact_join(sorted_inputs(parts))
                if not proven:
                    return None
                if not own + below <= excess_limit:
                    continue
                program.splits.append(Split(whole, sorted_inputs(parts), own + kept, held))
                program.least[whole] = min(program.least.get(whole, math.inf), own + below)
    return program


class _Model:
    """The program as CP-SAT takes it."""

    def __init__(self, problem: Problem, program: Program, cpu_scale: float, memory_scale: float) -> None:
        from ortools.sat.python import cp_model

        model, caps = cp_model.CpModel(), problem.caps
        self.cp_model, self.model, self.program = cp_model, model, program
        self.cpu_scale, self.memory_scale = cpu_scale, memory_scale
        self.chosen = [model.new_bool_var("") for _ in program.splits]
        made: dict[int, list[Any]] = {}
        used: dict[int, list[Any]] = {}
        for split, choice in zip(program.splits, self.chosen, strict=True):
            made.setdefault(split.whole, []).append(choice)
            for part in split.parts:
                used.setdefault(part, []).append(choice)
        roots = set(program.roots)
        for root in program.roots:
            if root & (root - 1) and root not in made:
                model.add_bool_or([])  # no way to join it is within the caps
        for mask in sorted(made.keys() | {part for part in used if part & (part - 1)}):
            model.add(sum(made.get(mask, [])) == (1 if mask in roots else sum(used.get(mask, []))))
        cpu = [int(split.cpu / cpu_scale) for split in program.splits]
        held = [int(split.state_bytes / memory_scale) for split in program.splits]
        self.cpu = sum(c * x for c, x in zip(cpu, self.chosen, strict=True))
        self.memory = sum(b * x for b, x in zip(held, self.chosen, strict=True))
        # The slack is the rounding of a plan's price, so that a plan exactly at a cap is not lost.
        cpu_left = caps.cpu * ROUNDED - program.cpu
        memory_left = caps.memory_bytes * ROUNDED - program.state_bytes
        if caps.cpu < math.inf:
            model.add(self.cpu <= math.floor(min(cpu_left / cpu_scale, 2.0**60)))
        if caps.memory_bytes < math.inf:
            model.add(self.memory <= math.floor(min(memory_left / memory_scale, 2.0**60)))
        model.minimize(self.cpu if problem.objective is Objective.MIN_CPU else self.memory)

    def solve(self, seed: int, deadline: Deadline, hint: Tree, better: Callable[[list[int], float], None]) -> tuple[Any, Any]:
        """The solver and its status. If somebody listens, `better` is called with the splits of every solution and the bound at that time."""
        solver = repeatable_solver(max(0.001, deadline.remaining()), seed)
        solver.parameters.linearization_level = 2
        solver.parameters.max_deterministic_time = DETERMINISTIC_TIME
        self.model.clear_hints()
        hinted = {(node.mask, sorted_inputs(map(leaf_mask, node.inputs)), node.asked) for node in joins(hint)}
        for split, choice in zip(self.program.splits, self.chosen, strict=True):
            self.model.add_hint(choice, (split.whole, split.parts, split.asked) in hinted)
        with deadline.watched(solver.stop_search):
            return solver, solver.solve(self.model, self._teller(better) if deadline.progress.listens else None)

    def _teller(self, better: Callable[[list[int], float], None]) -> Any:
        chosen = self.chosen

        class Teller(self.cp_model.CpSolverSolutionCallback):  # type: ignore[misc, name-defined]  # imported late
            def on_solution_callback(self) -> None:
                better([k for k, choice in enumerate(chosen) if self.boolean_value(choice)], self.best_objective_bound)

        return Teller()

    def least(self, problem: Problem, bound: float) -> float:
        """The program's bound in the objective's unit: a bound, since coefficients were rounded down; ROUNDED is for the rounding of this sum."""
        if problem.objective is Objective.MIN_CPU:
            return (self.program.cpu + bound * self.cpu_scale) / ROUNDED
        return (self.program.state_bytes + bound * self.memory_scale) / ROUNDED

    def forbid(self, picked: list[int]) -> None:
        self.model.add(sum(self.chosen[k] for k in picked) <= len(picked) - 1)


def cp_sat(problem: Problem, deadline: Deadline) -> Found:
    """The best join tree by the integer program."""
    refuse_headroom(problem)
    ledger = Ledger(problem.model)
    start, _ = points_of_two_layers(problem, ledger, deadline)
    deadline = before_writing(problem, choose(problem, start), deadline)
    if len(problem.model.graph) < 3:
        best = choose(problem, start)
        return Found(best, staircase(start), Proof.OPTIMAL, objective_value(problem, best), ALL_TREES)
    return solved(problem, start, lambda limits: _program(ledger, limits, deadline), deadline)


def refuse_headroom(problem: Problem) -> None:
    """Raise MethodError where no linear program says what is asked for."""
    if problem.objective is Objective.MAX_HEADROOM:
        raise MethodError("cp_sat makes CPU or memory least; for max_headroom use exact or anytime", "/options/method")


def solved(problem: Problem, start: tuple[Point, ...], listed: Callable[[Caps], Program | None], deadline: Deadline) -> Found:
    """The best plan by the program of all splits of plans within the limits that `listed` is given; `start` are plans that are known already."""
    deadline.progress.doing("listing the ways to join")
    deadline.progress.found(start)
    best, caps = choose(problem, start), problem.caps
    # Where the start qualifies, no split of a better plan costs more than the start does.
    within = caps.admit(best)
    program = listed(
        Caps(
            best.cpu if within and problem.objective is Objective.MIN_CPU else caps.cpu,
            best.memory_bytes if within and problem.objective is Objective.MIN_MEMORY else caps.memory_bytes,
        )
    )
    if program is None:
        return _unproven(problem, start, "The integer program is too large for its time: this is the two-layer plan.", deadline)
    return _solved(problem, program, start, deadline)


def _unproven(problem: Problem, points: tuple[Point, ...], why: str, deadline: Deadline, limited: bool = False) -> Found:
    """The best of these plans. `limited`: CP-SAT ended at a limit; its deterministic time, which no deadline knows of, is a time limit too."""
    termination = deadline.termination()
    if limited and termination is Termination.COMPLETE:
        termination = Termination.TIME_LIMIT
    bound = relaxed_bound(problem, deadline)
    return Found(choose(problem, points), staircase(points), Proof.BOUNDED, bound, ALL_TREES, (why,), termination=termination)


def _solved(problem: Problem, program: Program, start: tuple[Point, ...], deadline: Deadline) -> Found:
    best = choose(problem, start)
    cpu_scale = max(best.cpu, max((split.cpu for split in program.splits), default=0.0), 1e-300) / STEPS
    memory_scale = max(best.memory_bytes, max((split.state_bytes for split in program.splits), default=0.0), 1e-300) / STEPS
    built = _Model(problem, program, cpu_scale, memory_scale)
    points = list(start)

    def point_from(picked: list[int]) -> Point:
        return point_of(problem.model, program.tree([program.splits[k] for k in picked]))

    def better(picked: list[int], bound: float) -> None:
        point = point_from(picked)
        deadline.progress.found([point])
        if problem.caps.admit(point):  # the bound is one of plans within the caps, and a plan over them may be below it
            deadline.progress.proven(built.least(problem, bound))

    deadline.progress.doing(f"solving the integer program of {len(program.splits)} choices")
    for _ in range(RETRIES):
        solver, status = built.solve(problem.seed, deadline, best.tree, better)
        if status == built.cp_model.INFEASIBLE and not any(map(problem.caps.admit, points)):
            found = staircase(points)
            return Found(choose(problem, found), found, Proof.OPTIMAL, relaxed_bound(problem, deadline), ALL_TREES)
        if status not in (built.cp_model.OPTIMAL, built.cp_model.FEASIBLE):
            # Also where it says that nothing fits, although a plan is known that does.
            return _unproven(problem, tuple(points), "The integer program was not solved.", deadline, status == built.cp_model.UNKNOWN)
        picked = [k for k, choice in enumerate(built.chosen) if solver.value(choice)]
        point = point_from(picked)
        points.append(point)
        if status == built.cp_model.FEASIBLE:
            return _unproven(problem, tuple(points), "The integer program was not solved to its end.", deadline, limited=True)
        if problem.caps.admit(point):
            found = staircase(points)
            winner = choose(problem, found)
            return Found(winner, found, Proof.OPTIMAL, objective_value(problem, winner), ALL_TREES)
        built.forbid(picked)
    return _unproven(problem, tuple(points), "Too many plans lie at a cap to within rounding.", deadline)

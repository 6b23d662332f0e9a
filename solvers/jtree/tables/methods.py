"""Every method of `models.method` for queries with tables: what each promises of them.

| method | with tables |
|---|---|
| exact, auto | the search of `tables.solver`, exact; beyond its reach, or its time, `anytime` with a bound |
| bjtree | the best tree of binary joins, exact in the same way |
| mjoin | one join of each connected part, with the best accesses: exact up to joins of ten inputs and 64 choices of accesses |
| state_removal, state_selection, two_layer | paper 3's walks from the binary tree and from the mjoin, step by step (`_walk`) |
| anytime | the same walk in both directions, from all of these, until nothing is better or the time is over |
| cp_sat | its program with a choice for every access (`tables.cp_sat`), exact; where that is too large, the two-layer plan with a bound |

A walk's step dissolves a kept subresult into the join that uses it, or makes one input of two. Accesses and probe orders are chosen anew for
every shape (`shapes.points_of`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from models.method import Method
from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.errors import MethodError
from solvers.jtree.choice import choose, objective_value, overload
from solvers.jtree.claims import heuristic
from solvers.jtree.compiled.questions import FRONTIER
from solvers.jtree.lower_bound import relaxed_bound
from solvers.jtree.search import ALL_TREES, Found, Problem, Search, Shape, shape_of, sorted_inputs, staircase
from solvers.jtree.tables.joins import can_bind
from solvers.jtree.tables.shapes import first_points, points_of
from solvers.jtree.tables.solver import TableSolver
from solvers.model.cost import CostModel
from solvers.model.point import Caps, Point

__all__ = ["with_tables"]

START = 0.4  # of the time, for what a walk or a program starts from

Moves = Callable[[CostModel, Shape], Iterator[Shape]]


def with_tables(method: Method, search: Search) -> Search:
    """The function that answers for a method where the query has tables; `search` is what answers where it has none."""
    return {
        Method.MJOIN: _mjoin,
        Method.BJTREE: _bjtree,
        Method.STATE_REMOVAL: _state_removal,
        Method.STATE_SELECTION: _state_selection,
        Method.TWO_LAYER: _two_layer,
        Method.ANYTIME: _anytime,
        Method.CP_SAT: _cp_sat,
    }.get(method, search)


def _cp_sat(problem: Problem, deadline: Deadline) -> Found:
    from solvers.jtree.cp_sat import refuse_headroom, solved  # OR-Tools and numba take a while to import
    from solvers.jtree.tables.cp_sat import program_with_tables

    refuse_headroom(problem)
    start = _two_layer(problem, deadline.share(START)).points
    return solved(problem, start, lambda limits: program_with_tables(problem.model, limits, deadline), deadline)


def _wide_shape(model: CostModel) -> Shape:
    """One join of each connected part, under one root."""
    parts = [part for part in model.graph.components if part & (part - 1)]
    shape = {part: tuple(1 << i for i in range(len(model.graph)) if part >> i & 1) for part in parts}
    if len(model.graph.components) > 1:
        shape[model.graph.all] = sorted_inputs(model.graph.components)
    return shape


def _mjoin(problem: Problem, deadline: Deadline) -> Found:
    points = points_of(problem.model, _wide_shape(problem.model), deadline)
    if not points:
        if all(can_bind(problem.model, inputs) for inputs in _wide_shape(problem.model).values()):
            raise problem.model.out_of_range()
        raise MethodError("no single join can bind every index: some pipelines reach a table before they have its key; use auto", "/options/method")
    return heuristic(problem, points, "mjoins", deadline, complete=not deadline.expired())


def _binary_points(problem: Problem, deadline: Deadline) -> tuple[tuple[Point, ...], bool]:
    solver = TableSolver(problem.model, binary=True)
    return solver.points(Caps(), FRONTIER, deadline) if solver.fits else (first_points(problem.model), False)


def _bjtree(problem: Problem, deadline: Deadline) -> Found:
    points, complete = _binary_points(problem, deadline)
    proven = complete and problem.objective is not Objective.MAX_HEADROOM
    notes = ("Proven: no tree of binary joins is better.",) if proven else ()
    return heuristic(problem, points, "binary join trees", deadline, notes, complete=complete)


def _dissolved(model: CostModel, shape: Shape) -> Iterator[Shape]:
    """Every shape in which one kept subresult fewer is kept."""
    for user, inputs in shape.items():
        if model.graph.connected(user):
            for kept in (part for part in inputs if part in shape):
                rest = {mask: parts for mask, parts in shape.items() if mask != kept}
                yield {**rest, user: sorted_inputs((*(part for part in inputs if part != kept), *shape[kept]))}


def _grouped(model: CostModel, shape: Shape) -> Iterator[Shape]:
    """Every shape in which two inputs of a wider join are one."""
    graph = model.graph
    for user, inputs in shape.items():
        if len(inputs) > 2 and graph.connected(user):
            for k, left in enumerate(inputs):
                near = graph.around(left)
                for right in inputs[k + 1 :]:
                    if near & right and (left | right) & ~graph.tables:
                        rest = tuple(part for part in inputs if part not in (left, right))
                        yield {**shape, left | right: (left, right), user: sorted_inputs((*rest, left | right))}


def _merit(problem: Problem, point: Point) -> tuple[float, float, float]:
    """Smaller is better: within the caps first, then the objective, then the rest."""
    if not problem.caps.admit(point):
        return (1.0, overload(problem, point), point.cpu)
    sign = -1.0 if problem.objective is Objective.MAX_HEADROOM else 1.0
    return (0.0, sign * objective_value(problem, point), point.cpu)


def _walk(problem: Problem, start: Sequence[Point], moves: Sequence[Moves], deadline: Deadline) -> tuple[Point, ...]:
    """From the best of the plans to better and better ones, until no step is better or the time is over; all that were met."""
    met = list(start)
    here = choose(problem, met)
    while not deadline.expired():
        shape, best = shape_of(here.tree), here
        for move in moves:
            for other in move(problem.model, shape):
                if deadline.expired():
                    break
                found = points_of(problem.model, other, deadline)
                met += found
                if found and _merit(problem, point := choose(problem, found)) < _merit(problem, best):
                    best = point
        if best is here:
            break
        here = best
    return staircase(met)


def _state_removal(problem: Problem, deadline: Deadline) -> Found:
    points, _ = _binary_points(problem, deadline.share(0.5))
    met = _walk(problem, points, (_dissolved,), deadline)
    return heuristic(problem, met, "the trees met on the way from the binary tree", deadline, complete=not deadline.expired())


def _widest(problem: Problem, deadline: Deadline) -> tuple[Point, ...]:
    """The mjoin; where that cannot bind every index, the first plan that can."""
    return points_of(problem.model, _wide_shape(problem.model), deadline) or first_points(problem.model)


def _state_selection(problem: Problem, deadline: Deadline) -> Found:
    met = _walk(problem, _widest(problem, deadline), (_grouped,), deadline)
    return heuristic(problem, met, "the trees met on the way from the mjoin", deadline, complete=not deadline.expired())


def _two_layer(problem: Problem, deadline: Deadline) -> Found:
    binary, _ = _binary_points(problem, deadline.share(START))
    met = _walk(problem, binary, (_dissolved,), deadline.share(0.5)) + _walk(problem, _widest(problem, deadline), (_grouped,), deadline)
    return heuristic(problem, met, "the trees met from the binary tree and from the mjoin", deadline, complete=not deadline.expired())


def _anytime(problem: Problem, deadline: Deadline) -> Found:
    start = [*first_points(problem.model), *_widest(problem, deadline)]
    met = _walk(problem, start, (_dissolved, _grouped), deadline)
    best, bound = choose(problem, met), relaxed_bound(problem, deadline)
    ended = Termination.COMPLETE if not deadline.expired() else deadline.termination()
    return Found(best, met, Proof.NONE if bound is None else Proof.BOUNDED, bound, ALL_TREES, termination=ended)

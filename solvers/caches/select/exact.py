"""Exact cache selection: the integer program of paper 1 App. B.

Problem: the cheapest choice of a `Program`, memory cap and exclusions included.
Method: OR-Tools CP-SAT on the paper's integer program, with variables for caches alone, by what each saves, so that operators
need none of their own. A small program is given to `branch_and_bound` first, which is done before CP-SAT is imported.

Guarantee: exact; costs become integers with RESOLUTION steps in the cost without caches, so two choices may be taken for equal that
differ by less than that, and the bound is below the cost by as much. Bytes are rounded down: every choice that fits is allowed, and one
that is over the cap by less than rounding is forbidden when it is found, and the program solved again. Where time runs out or CP-SAT
fails: the best choice, with a bound if there is one. One worker and a fixed seed: the same choice on every run.
Complexity: NP-hard (Thm 4.2); 687 candidates take a fraction of a second.
"""

from __future__ import annotations

import math

from solvers.caches.select.branch_and_bound import branch_and_bound
from solvers.caches.select.memory import evict
from solvers.caches.select.program import Choice, Program, Selection
from solvers.common.cp_solver import repeatable_solver
from solvers.common.deadline import Deadline

__all__ = ["cp_sat", "exact"]

RESOLUTION = 1 << 46  # steps of cost: fine enough for doubles, and sums of thousands of them fit 64 bits
MEMORY_RESOLUTION = 1 << 40  # steps of the memory cap: a byte of a terabyte, and sums fit 64 bits
LARGEST_SCALE = 1e300  # costs below 1e-286 are as good as none
SMALL = 60  # candidates up to which branch and bound is as fast as CP-SAT
RETRIES = 20  # choices that rounding let through and their bytes did not
PYTHON_NODES = 400  # of branch and bound: longer than nearly every small program takes


def exact(program: Program, deadline: Deadline) -> Selection:
    """The optimum by branch and bound where the program is small, by CP-SAT where it is not or takes too many nodes."""
    if len(program.candidates) > SMALL:
        return cp_sat(program, deadline)
    found = branch_and_bound(program, deadline, PYTHON_NODES)
    if found.optimal or deadline.expired():
        return found
    solved = cp_sat(program, deadline, found.choice)
    best = solved if solved.optimal or solved.cost < found.cost else found
    bounds = [bound for bound in (solved.bound, found.bound) if bound is not None]
    return Selection(best.choice, best.cost, max(bounds, default=None), solved.optimal)


def cp_sat(program: Program, deadline: Deadline, hint: Choice = ()) -> Selection:
    """The optimum by CP-SAT."""
    from ortools.sat.python import cp_model  # takes seconds to import

    total = program.cost_without_caches
    scale = min(RESOLUTION / total, LARGEST_SCALE) if total > 0.0 else 1.0
    model = cp_model.CpModel()
    saving = {i: round((program.replaced[i] - program.candidates[i].proc) * scale) for i in program.useful}
    useful = [i for i in program.useful if saving[i] > 0]
    x = {i: model.new_bool_var("") for i in useful}
    groups = sorted({program.candidates[i].group for i in useful})
    z = {g: model.new_bool_var("") for g in groups}
    for i in useful:
        candidate = program.candidates[i]
        model.add_implication(x[i], z[candidate.group])
        for g in sorted(candidate.excludes & z.keys()):
            model.add_bool_or(x[i].negated(), z[g].negated())
        if hint:
            model.add_hint(x[i], i in hint)
    cliques = {
        tuple(i for i in program.by_pipeline[p] if i in x and program.candidates[i].first <= o <= program.candidates[i].last)
        for p, costs in enumerate(program.operator_costs)
        for o in range(len(costs))
    }
    for clique in sorted(cliques):
        if len(clique) > 1:
            model.add_at_most_one(x[i] for i in clique)
    if math.isfinite(program.memory_bytes) and useful:
        unit = program.memory_bytes / MEMORY_RESOLUTION or 1.0
        held = {g: model.new_int_var(0, MEMORY_RESOLUTION, "") for g in groups}
        for i in useful:
            # Rounded down, so that what fits indeed fits here.
            model.add(held[program.candidates[i].group] >= math.floor(program.candidates[i].memory_bytes / unit) * x[i])
        model.add(sum(held.values()) <= math.floor(program.memory_bytes / unit))
    weights = [round(program.update_costs[g] * scale) for g in groups] + [-saving[i] for i in useful]
    model.minimize(cp_model.LinearExpr.weighted_sum([*z.values(), *x.values()], weights))
    rounding = (len(useful) + len(groups)) / scale
    best, bound = hint, None
    for _ in range(RETRIES):
        solver = repeatable_solver(max(0.01, deadline.remaining()))
        solver.parameters.linearization_level = 2  # the relaxation is nearly integral: seconds become milliseconds
        solver.parameters.cp_model_probing_level = 0  # finds nothing here that the relaxation does not
        solver.parameters.symmetry_level = 0
        with deadline.watched(solver.stop_search):
            status = solver.solve(model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            break
        bound = max(0.0, total + solver.best_objective_bound / scale - rounding)
        choice = tuple(i for i in useful if solver.boolean_value(x[i]))
        fits = program.fits(choice)
        best = min(choice if fits else evict(program, choice), best, key=program.cost)
        if fits and status == cp_model.OPTIMAL:
            return Selection(best, program.cost(best), bound, True)
        if status == cp_model.FEASIBLE:
            break
        model.add_bool_or(x[i].negated() for i in choice)
    return Selection(best, program.cost(best), bound, False)

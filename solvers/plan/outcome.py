"""What the steps of planning come to, step by step: the plan that was chosen, what may probe where nothing fits, and what is proven of it all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from models.method import Compiled
from models.plan import Proof, Termination
from models.request import Objective
from solvers.caches.cached_plan import CachedPlan
from solvers.caches.claims import Least, least_cpu, least_of_all, with_caches_allowed
from solvers.caches.in_plans import chosen_together
from solvers.common.deadline import Deadline
from solvers.common.gap import claim
from solvers.common.tolerances import ROUNDED
from solvers.jtree.choice import objective_value
from solvers.jtree.search import Found, Problem, structure_key
from solvers.model.point import Point
from solvers.model.sensitivity import headroom
from solvers.model.tree import probes_of

if TYPE_CHECKING:
    from solvers.allocation.in_plans import Relief

MANY_PROBES = 20_000  # of a join of 142 inputs: writing them down takes a tenth of a second, and who may probe how much as long again
MANY_PREDICATES = 5_000  # as many as 100 streams have of which each is joined with every other: each takes part in pricing, and has its validity

__all__ = ["Outcome", "allocated", "chosen", "of_shape", "proven", "settled", "value_of"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the steps of planning came to; `build_plan` only writes it down."""

    tree: Found
    """What the search found and proved of plans without caches."""
    found: Found
    """The plan to write, and what is proven of it among all that the request allows."""
    cached: CachedPlan | None = None
    relief: Relief | None = None
    """Where nothing fits: what is offered."""
    termination: Termination = Termination.COMPLETE
    least: float | None = None
    """A lower bound of the CPU of all plans, caches allowed; None where it is not worked out yet."""
    brief: bool = False
    """Whether to leave out what takes long, with a warning that says so."""


def chosen(tree: Found, cached: CachedPlan | None, termination: Termination) -> Outcome:
    """The tree with caches where there is one, else the tree."""
    if cached is None:
        return Outcome(tree, tree, termination=termination)
    points = sorted((*tree.points, cached.point), key=lambda point: (point.cpu, point.memory_bytes, structure_key(point.tree)))
    return Outcome(tree, replace(tree, best=cached.point, points=tuple(points), lacking=None), cached, termination=termination)


def of_shape(point: Point, cached: CachedPlan | None = None, relief: Relief | None = None) -> Outcome:
    """A plan whose shape is given: nothing was searched, so nothing is proven."""
    tree = Found(point, (point,), Proof.NONE, None, "plans of this shape")
    found = replace(tree, best=cached.point) if cached else tree
    return Outcome(tree, found, cached, relief)


def allocated(problem: Problem, outcome: Outcome, deadline: Deadline) -> Outcome:
    """Where nothing fits the caps: another plan perhaps, and who may probe how much."""
    if problem.caps.admit(outcome.found.best):
        return outcome
    from solvers.allocation.in_plans import relieve  # requests that fit do without it

    if _hurried(problem, outcome, deadline):
        return replace(outcome, brief=True, termination=deadline.termination(outcome.termination))
    relief = relieve(problem, outcome.tree, deadline)
    return replace(outcome, found=relief.found, relief=relief, termination=deadline.termination(outcome.termination))


def _hurried(problem: Problem, outcome: Outcome, deadline: Deadline) -> bool:
    """Whether the plan has so many probes, or the query so many predicates, that writing it takes all the time there is left: then what can be done
    without is left out."""
    many = probes_of(outcome.found.best.tree) > MANY_PROBES or len(problem.model.graph.edges) > MANY_PREDICATES
    return many and deadline.expired()


def proven(problem: Problem, outcome: Outcome, deadline: Deadline) -> Outcome:
    """What is proven of the plan, now that caches may be used as well."""
    outcome = replace(outcome, brief=outcome.brief or _hurried(problem, outcome, deadline))
    value = value_of(problem, outcome.found.best, outcome.cached)
    outcome = _with_best_tree(problem, outcome, value)
    least = _least(problem, outcome, deadline) if outcome.least is None else Least(outcome.least)
    found = settled(problem, with_caches_allowed(problem, outcome.tree, outcome.found, value, least.cpu, deadline), value)
    termination = outcome.termination
    if least.cut and termination is Termination.COMPLETE:
        termination = Termination.STOPPED if deadline.progress.stopped() else Termination.TIME_LIMIT
    return replace(outcome, found=found, tree=_of_trees(problem, outcome.tree, found), termination=termination)


def settled(problem: Problem, found: Found, value: float) -> Found:
    """`optimal` where a plan that fits has a value that its proven bound leaves nothing of (contract §3), whoever proved the bound, and how."""
    if found.proof is not Proof.BOUNDED or not problem.caps.admit(found.best):
        return found
    claimed = claim(value, found.bound, problem.objective is Objective.MAX_HEADROOM)
    return replace(found, proof=Proof.OPTIMAL, bound=claimed.bound) if claimed.proof is Proof.OPTIMAL else found


def _with_best_tree(problem: Problem, outcome: Outcome, value: float) -> Outcome:
    """The same, with what a bound of all trees leaves of the best of them; `value` is that of the plan."""
    alone = outcome.cached is None and outcome.found.best is outcome.tree.best
    tree = settled(problem, outcome.tree, value if alone else objective_value(problem, outcome.tree.best))
    if tree is outcome.tree:
        return outcome
    return replace(outcome, tree=tree, found=replace(outcome.found, proof=tree.proof, bound=tree.bound) if alone else outcome.found)


def _least(problem: Problem, outcome: Outcome, deadline: Deadline) -> Least:
    """A lower bound of the CPU of all plans.

    A plan without caches by a method without compiled code has the bound that needs none either: loading the code takes longer than the method.
    """
    if problem.options.method.can.compiled is Compiled.NONE and outcome.cached is None:
        return Least(least_cpu(problem.model))
    tree = outcome.tree
    least = least_of_all(problem, tree, deadline)
    if tree.best.cpu > least.cpu * ROUNDED and (joint := chosen_together(problem, deadline)) is not None:
        least = least.or_more(joint.least_cpu)
    return least


def _of_trees(problem: Problem, tree: Found, found: Found) -> Found:
    """`tree` with what is known of plans without caches once `found` is known of all plans.

    A bound of all plans is a bound of those without caches as well. And where the best of all plans has no caches, it is the best of those.
    """
    if found.proof is Proof.NONE or (tree.proof is Proof.OPTIMAL and problem.caps.admit(tree.best)):
        return tree
    bounds = [claimed.bound for claimed in (tree, found) if claimed.proof is not Proof.NONE and claimed.bound is not None]
    # That nothing fits may be proven by a bound that is looser than the one of all plans.
    tightest = (min if problem.objective is Objective.MAX_HEADROOM else max)(bounds, default=None)
    settled = found.proof is Proof.OPTIMAL and (found.best is tree.best or not problem.caps.admit(found.best))
    proof = Proof.OPTIMAL if settled or tree.proof is Proof.OPTIMAL else Proof.BOUNDED if bounds else tree.proof
    return replace(tree, proof=proof, bound=tightest)


def value_of(problem: Problem, point: Point, cached: CachedPlan | None) -> float:
    """The objective's value of the plan, its caches counted."""
    if cached is None or problem.objective is not Objective.MAX_HEADROOM:
        return objective_value(problem, point)
    factor = headroom(cached.total, problem.model, problem.caps)
    return math.inf if factor is None else factor

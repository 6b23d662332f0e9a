"""What could run instead, from the smallest kind of change to the largest; each attempt is made only when those before it would not do.

Sets of plans, each part of the next: the running tree in other probe orders, with other caches, with other allowances; any plan. The best of each is

  orders      the best order of every pipeline, exactly (`jtree.orders`). Joins with caches stay as they are: an order decides which caches
              are consistent, and paper 1 drops the caches of a pipeline that is reordered (§4.5, step 5)
  caches      the running caches without those that lose (`caches`), then the best caches for the running and for the best orders
  allocation  where load has to be shed, the best shares for the running tree; where it has not any more, none
  tree        what `planner.best` finds

Where all plans are searched with a bound, that comes first: if no plan can bring the gain, only the best of all is looked at.
Where the running plan does not fit, a plan that fits with room is looked for before one that just fits: the next flicker would change it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from models.plan import Termination
from models.request import Objective
from solvers.caches.claims import can_exist
from solvers.caches.in_plans import Known, caches_in_plans
from solvers.common.deadline import Deadline
from solvers.jtree.choice import choose
from solvers.jtree.search import Problem
from solvers.model.point import Caps, point_of
from solvers.model.tree import Tree
from solvers.plan.outcome import Outcome, allocated, chosen, of_shape
from solvers.planner import best
from solvers.replanning.caches import reconsidered
from solvers.replanning.orders import reordered
from solvers.replanning.question import Question
from solvers.replanning.ways import Way, way_of_outcome

__all__ = ["Attempt", "attempts"]


@dataclass(frozen=True)
class Attempt:
    """A plan that could run instead."""

    way: Way
    outcome: Outcome | None = None
    """The same, to be written down; None where it is the way as it is priced, which whoever judges it does anyway."""
    drops: bool = False
    """Whether it is what runs without caches that lose."""


def attempts(question: Question, known: Known, deadline: Deadline) -> Iterator[Attempt]:
    """What could run instead, the smallest kind of change first; what is found out of today's problem on the way is known from then on."""
    now, way = question.now, question.way
    shape = replace(now, shape_given=True).with_keys_of(now)
    shedding = way.shares is not None
    found = None
    if now.options.method.can.whole_frontier and question.running.fits and not way.places and not shedding:
        found = best(now, deadline, known)
        if not _promising(question, found):
            yield _attempt(now, found)
            return
    best_orders = reordered(now, way.tree, (), deadline)
    if shedding:
        yield _attempt(shape, allocated(shape, _with_caches(question, best_orders, known, deadline), deadline))
    else:
        yield from _of_the_same_tree(question, best_orders, known, deadline)
    found = found or best(now, deadline, known)
    if not shedding and not question.running.fits:
        if now.caps.admit(found.found.best):
            yield from _roomy(question, found)
        else:
            yield _attempt(shape, allocated(shape, of_shape(point_of(now.model, best_orders)), deadline))
    yield _attempt(now, found)


def _promising(question: Question, found: Outcome) -> bool:
    """Whether some plan might bring the gain over a running plan that fits; `found` is the best of all, with what is known of them."""
    now, cpu = question.now, question.running.cpu
    least = found.least if can_exist(now.model, now.options.caches) else found.tree.bound
    if now.objective is not Objective.MIN_CPU or least is None:
        return True
    return cpu - least >= question.thresholds.gain * cpu


def _attempt(problem: Problem, outcome: Outcome) -> Attempt:
    return Attempt(way_of_outcome(problem, outcome), outcome)


def _of_the_same_tree(question: Question, best_orders: Tree, known: Known, deadline: Deadline) -> Iterator[Attempt]:
    """Other orders, then other caches."""
    now, way = question.now, question.way
    with_caches = {place.join for place in way.places}
    tree = reordered(now, way.tree, with_caches, deadline) if with_caches else best_orders
    yield Attempt(Way(tree, way.places))
    caches = reconsidered(question)
    if caches.dropped:
        yield Attempt(Way(way.tree, caches.kept), drops=True)
    if caches.select:
        yield _attempt(now, _with_caches(question, best_orders, known, deadline))


def _with_caches(question: Question, best_orders: Tree, known: Known, deadline: Deadline) -> Outcome:
    """The running tree with the best caches that it can have, in its own orders or in the best ones."""
    now = replace(question.now, shape_given=True).with_keys_of(question.now)
    points = tuple(dict.fromkeys(point_of(now.model, tree) for tree in (best_orders, question.way.tree)))
    found = replace(of_shape(points[0]).tree, points=points)
    return chosen(found, caches_in_plans(now, found, deadline, known), Termination.COMPLETE)


def _roomy(question: Question, found: Outcome) -> Iterator[Attempt]:
    """The best of the plans found that are within the caps even if their figures are off by the error, where the best of all is not."""
    caps, less = question.now.caps, 1.0 / (1.0 + question.thresholds.error)
    tight = replace(question.now, caps=Caps(caps.cpu * less, caps.memory_bytes * less))
    fitting = [point for point in found.tree.points if tight.caps.admit(point)]
    if fitting and not tight.caps.admit(found.found.best):
        yield _attempt(question.now, replace(of_shape(choose(tight, fitting)), termination=found.termination))

"""What is proven of a plan once caches may be used as well (contract §3: `proof` covers everything that the request allows).

A search proves things of join trees without caches. A cache saves probes, so a plan with caches may need less CPU than any tree without,
and may fit where no tree does. Three things hold for every plan, with caches or without:

* it keeps every window, and makes every result: a hit in a cache makes its results too (`least_cpu`). That is a bound of the CPU; a better
  one, for graphs with few connected sets, is that of `jtree.partials`, for larger ones that of `jtree.with_caches`, and for the smallest graphs
  `together` finds the best plan with caches itself, and `within_memory` bounds those that keep a memory cap;
* a cache only adds to the memory of its tree, so the least memory of all plans is that of a tree;
* caches answer runs of two probes or more by equal keys, so they exist only where a connected part has three streams and an equality; or, where
  tables are asked, they keep answers, and then no plan is better than the best one would be if all answers were known.

Where these decide, what is proven of the tree holds for the plan. Elsewhere the plan is `bounded` by them, and a sentence says what is
proven of the tree alone; the plan's `tree_proof` and `tree_bound` say it to machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from models.plan import Proof
from models.request import CacheMode, Objective
from solvers.caches.answers import as_if_known
from solvers.common import words
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED, ROUNDING, SUMMED
from solvers.jtree.lower_bound import cpu_lower_bound, largest_factor, memory_lower_bound
from solvers.jtree.search import Found, Problem
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph

__all__ = ["TOGETHER_STREAMS", "Least", "can_exist", "least_cpu", "least_of_all", "no_cache_pays", "with_caches_allowed"]

TOGETHER_STREAMS = 6  # up to which `together` chooses trees, orders and caches at once
LEAST_INPUTS = 3  # of a join with a cache: a cached run has two probes or more


def can_exist(model: CostModel, mode: CacheMode) -> bool:
    """Whether some plan of this graph could have a cache."""
    graph = model.graph
    if mode is CacheMode.OFF:
        return False
    wide = [part for part in graph.components if part.bit_count() >= LEAST_INPUTS]
    if graph.tables:
        return _runs_can_exist(graph) or any(not offer.kept for offers in graph.offers for offer in offers)
    return any(edge.equality and edge.mask & part for part in wide for edge in graph.edges)


def _runs_can_exist(graph: JoinGraph) -> bool:
    """Whether, in a graph with tables, a cache could answer a run of two probes or more: such a run is held together by predicates, and a stream
    outside of it looks it up."""
    wide = [part for part in graph.components if part.bit_count() >= LEAST_INPUTS]
    return any(part & ~graph.tables & ~edge.mask for part in wide for edge in graph.edges if edge.mask & part)


def least_cpu(model: CostModel) -> float:
    """The CPU of what every plan has to do: keep the windows, make the results and take the least probe steps."""
    if model.graph.tables:
        return cpu_lower_bound(model) / SUMMED
    return math.fsum(model.paid_by_all()) / SUMMED


def no_cache_pays(problem: Problem, tree: Found, least: float, worth: float = ROUNDING) -> bool:
    """Whether caches need not be looked for: the CPU of the tree is above what all plans need (`least`) by no more than the share `worth`, or nothing
    fits with caches either."""
    if not problem.caps.admit(tree.best):
        return nothing_can_fit(problem, least)
    return problem.objective is Objective.MIN_CPU and tree.best.cpu <= least * (1.0 + worth)


def nothing_can_fit(problem: Problem, least: float) -> bool:
    """Whether every plan, with caches or without, is over a cap: caches only add memory, and `least` is the CPU that all plans need."""
    return memory_lower_bound(problem.model) > problem.caps.memory_bytes or least > problem.caps.cpu


def _bound(problem: Problem, least: float, deadline: Deadline) -> float:
    """A bound of the objective for plans with caches; `least` is the CPU that every plan needs."""
    model, caps = problem.model, problem.caps
    if problem.objective is Objective.MIN_CPU:
        return least
    if problem.objective is Objective.MIN_MEMORY:
        return memory_lower_bound(model)
    return largest_factor(model, caps, least_cpu, deadline)


@dataclass(frozen=True, slots=True)
class Least:
    """What is known of the CPU of all plans, those with caches included."""

    cpu: float
    """No plan needs less."""
    cut: bool = False
    """Whether the clock ended the search for it."""

    def or_more(self, cpu: float) -> Least:
        """The same where another bound is known as well."""
        return replace(self, cpu=max(self.cpu, cpu))


def least_of_all(problem: Problem, tree: Found, deadline: Deadline) -> Least:
    """A lower bound of the CPU of all plans. A close one takes time, and is only worked out where it decides something: whether the tree has the
    least CPU where that is asked for, or whether any plan keeps the cap on CPU where the tree does not fit."""
    least, caps = least_cpu(problem.model), problem.caps
    fits = caps.admit(tree.best)
    enough = tree.best.cpu if fits else caps.cpu
    if not can_exist(problem.model, problem.options.caches) or least * ROUNDED >= enough or math.isinf(enough):
        return Least(least)
    if deadline.expired() or problem.model.graph.tables or (fits and problem.objective is not Objective.MIN_CPU):
        return Least(least)
    from solvers.jtree.partials import least_cpu_of_all  # its compiled code takes a while to import

    # Of a plan that does not fit, the bound is that of all plans, whatever their memory.
    found = least_cpu_of_all(problem.model, problem.attributes, enough * ROUNDED, deadline, caps.memory_bytes if fits else math.inf)
    known = Least(least).or_more(found or 0.0)
    if known.cpu * ROUNDED >= enough or len(problem.model.graph) <= TOGETHER_STREAMS:
        return known
    from solvers.jtree.with_caches import least_with_caches  # the same

    beyond = least_with_caches(problem.model, problem.attributes, enough, deadline, known.cpu)
    return Least(min(max(known.cpu, beyond.cpu), enough), beyond.cut)


def with_caches_allowed(problem: Problem, tree: Found, best: Found, value: float, least: float, deadline: Deadline) -> Found:
    """`best`, the plan that was chosen with or without caches, with what is proven of it; `tree` is what the search found and proved.

    `value` is what `best` has by the objective, its caches counted; `least` a lower bound of the CPU of all plans.
    """
    model, caps = problem.model, problem.caps
    if not can_exist(model, problem.options.caches):
        return best
    if model.graph.tables and not _runs_can_exist(model.graph):
        return _with_answers_allowed(problem, tree, best, value, deadline)
    bound = _bound(problem, least, deadline)
    fits = caps.admit(best.best)
    if not fits:
        proven = nothing_can_fit(problem, least) or (tree.proof is Proof.OPTIMAL and math.isinf(caps.cpu))
    else:
        from_above = problem.objective is Objective.MAX_HEADROOM
        at_bound = math.isinf(value) or bound <= value * ROUNDED if from_above else value <= bound * ROUNDED
        # Without a cap on CPU a cache gains nothing but CPU, which these objectives do not look at.
        no_use = problem.objective is not Objective.MIN_CPU and math.isinf(caps.cpu)
        proven = at_bound or (tree.proof is Proof.OPTIMAL and no_use)
        if proven and tree.proof is Proof.OPTIMAL and best.best is tree.best:
            return best
    proof = Proof.OPTIMAL if proven else Proof.BOUNDED
    if not math.isfinite(bound):
        return replace(best, proof=Proof.OPTIMAL if proven else Proof.NONE, bound=None, notes=(*best.notes, *_said(problem, tree, proven)))
    return replace(best, proof=proof, bound=bound, space=f"{tree.space} with caches", notes=(*best.notes, *_said(problem, tree, proven)))


def _with_answers_allowed(problem: Problem, tree: Found, best: Found, value: float, deadline: Deadline) -> Found:
    """As `with_caches_allowed`, for queries in which answers of tables are all that a cache could hold: no plan needs less than the best plan of the
    model in which all answers are known already (`as_if_known`)."""
    from solvers.jtree.exact import exact  # numba takes a while to import; the search has done so

    known = exact(replace(problem, model=as_if_known(problem.model)), deadline)
    if not problem.caps.admit(best.best):
        proven = known.proof is Proof.OPTIMAL and not problem.caps.admit(known.best)
    elif known.bound is None:
        proven = tree.proof is Proof.OPTIMAL and math.isinf(value)
    else:
        proven = known.bound <= value * ROUNDED if problem.objective is Objective.MAX_HEADROOM else value <= known.bound * ROUNDED
    if proven and tree.proof is Proof.OPTIMAL and best.best is tree.best:
        return best
    proof = Proof.OPTIMAL if proven else Proof.NONE if known.bound is None else Proof.BOUNDED
    return replace(best, proof=proof, bound=known.bound, space=f"{tree.space} with caches", notes=(*best.notes, *_said(problem, tree, proven)))


def _said(problem: Problem, tree: Found, proven: bool) -> tuple[str, ...]:
    """What is proven of the tree alone, where that is more than what is proven of the plan."""
    if tree.proof is not Proof.OPTIMAL or proven:
        return ()
    if not problem.caps.admit(tree.best):
        return (f"Proven: without caches, none of {tree.space} fits the caps.",)
    least = {
        Objective.MIN_CPU: f"needs less than {words.cpu(tree.best.cpu)} CPU",
        Objective.MIN_MEMORY: f"needs less than {words.bytes_(tree.best.memory_bytes)}",
        Objective.MAX_HEADROOM: "leaves more headroom",
    }
    return (f"Proven: without caches, none of {tree.space} within the caps {least[problem.objective]}.",)

"""Caches in plans: the tree and its caches chosen together (paper 1; contract §3).

Problem: of the plans a search found, with the caches that their multi-way joins could use, which is best within the caps?
Method: for each tree that could still win, the candidate caches of all its multi-way joins as one selection problem in the
memory the tree leaves, solved by branch and bound; with `auto` also the same trees with probe orders chosen for caches
(`joint_orders`). Where memory is short, caches may have a share of what they could use.
A plan with caches competes by the objective with the plans without, and has to be better to win.

Guarantee: never worse than the plan without caches; the best caches for every tree and order that is tried, unless the selection
reaches its limit of nodes. `solvers.caches.claims` says what is proven of such a plan.
In queries with tables the caches are those of the tables' answers (`answers`), for the trees as they are.
`prefix` and `global` add caches to the plan that won without; with `auto` every tree on the frontier competes, where it is small.
Complexity: that of the selection, for at most MAX_TREES trees; nothing where no join has three inputs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from models.request import CacheMode, Objective
from solvers.caches.answers import answer_candidates
from solvers.caches.cached_plan import CachedPlan, cached_plan
from solvers.caches.candidates import CacheCandidate, Pipelines, prefix_candidates, program_of
from solvers.caches.claims import TOGETHER_STREAMS, can_exist, least_cpu
from solvers.caches.global_caches import global_candidates
from solvers.caches.joint_orders import joint_orders
from solvers.caches.select.branch_and_bound import branch_and_bound
from solvers.caches.select.program import Candidate, Program, cheapest_cover
from solvers.common.deadline import Deadline
from solvers.jtree.choice import overload
from solvers.jtree.search import Found, Problem, make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.operations import exact_sum
from solvers.model.point import Caps, Point
from solvers.model.probe_order import Orders
from solvers.model.sensitivity import headroom
from solvers.model.tree import Tree, joins, leaf_mask

if TYPE_CHECKING:
    from solvers.caches.together import Together

__all__ = ["WORTH", "Known", "cached_frontier", "caches_in_plans", "chosen_together", "least_of_small_graphs"]

MAX_TREES = 6  # of the frontier, by rising CPU, beside the one with the least memory
MAX_UNBOUNDED_TREES = 2  # the same for objectives under which no tree can be ruled out beforehand
FRONTIER_STREAMS = 5  # up to which the whole frontier takes a millisecond or two
MAX_PARTIAL = 24  # candidates that are also tried with a share of their memory
MAX_NODES = 100  # of the exact selection: a tenth of a second; beyond, the best choice found
WORTH = 1e-6  # a plan with caches has to be better by this share: less is not worth running caches for


@dataclass(frozen=True, slots=True)
class _Posed:
    """What selecting the caches of one tree is about."""

    priced: PricedTree
    program: Program
    """Of all multi-way joins together."""
    owners: tuple[tuple[int, CacheCandidate], ...]
    """The program's candidates, each with the position of its join."""


@dataclass(slots=True)
class Known:
    """What was found out about a problem's trees. A caller with several questions about one problem passes the same object with each, so that no tree
    is looked at twice."""

    orders: dict[tuple[int, ...], Orders | None] = field(default_factory=dict)
    """Per join, by its inputs: the probe orders that suit caches best."""
    posed: dict[Tree, _Posed | None] = field(default_factory=dict)
    choices: dict[Tree, tuple[int, ...]] = field(default_factory=dict)
    """Per tree the candidates that save most."""
    least: float | None = None
    """A lower bound of the CPU of all plans, once the best of them was looked for."""


def chosen_together(problem: Problem, deadline: Deadline) -> Together | None:
    """The best plan of a small graph, trees, orders and caches chosen together; None where CPU is not the objective, or it takes too long."""
    mode = problem.options.caches
    if (
        problem.model.graph.tables
        or len(problem.model.graph) > TOGETHER_STREAMS
        or problem.objective is not Objective.MIN_CPU
        or not can_exist(problem.model, mode)
    ):
        return None
    if deadline.expired():
        return None
    from solvers.caches.together import together  # its compiled code takes a while to import

    return together(problem, mode is CacheMode.PREFIX, deadline)


def least_of_small_graphs(problem: Problem, enough: float, deadline: Deadline) -> float:
    """A lower bound of the CPU of all plans of a small graph within its memory cap, at most `enough`; 0 where that takes too long to find."""
    if math.isinf(problem.caps.memory_bytes) or len(problem.model.graph.components) > 1 or deadline.expired():
        return 0.0
    from solvers.caches.within_memory import least_within_memory  # its compiled code takes a while to import

    return least_within_memory(problem, problem.options.caches is CacheMode.PREFIX, enough, deadline) or 0.0


def caches_in_plans(problem: Problem, found: Found, deadline: Deadline, known: Known | None = None) -> CachedPlan | None:
    """The plan with caches that is better than every plan without; None where there is none."""
    mode = problem.options.caches
    if not can_exist(problem.model, mode) or deadline.expired():
        return None
    wide = _where_caches_could_pay(problem, _wide_trees(problem, found, deadline))
    best: tuple[tuple[float, ...], CachedPlan | None] = (_merit(problem, found.best, None), None)
    known = known or Known()
    for tree in wide:
        for variant in _variants(problem, tree):
            if deadline.expired() or _cannot_win(problem, tree, best[0]):
                break
            ordered = variant if variant is not None else _for_caches(problem, tree, known, deadline, best[0])
            plan = None if ordered is None else _best_caches(problem, ordered, known, deadline, best[0])
            # Where nothing fits, who may probe how much is decided for plans without caches.
            if plan is not None and problem.caps.admit(plan.point):
                merit = _merit(problem, plan.point, plan.total)
                if _better(merit, best[0]):
                    best = (merit, plan)
    return best[1]


def _variants(problem: Problem, tree: Tree) -> tuple[Tree | None, ...]:
    """The trees to look for caches in: the tree as it is and, with `auto`, None, which stands for the tree with probe orders chosen for caches."""
    return (tree, None) if problem.options.caches is CacheMode.AUTO and not problem.model.graph.tables else (tree,)


def _may_have_caches(problem: Problem, tree: Tree) -> bool:
    """Whether some join of the tree has a run of probes that a cache could answer: two at least, or one that asks a table."""
    return any(node.asked if problem.model.graph.tables else len(node.inputs) > 2 for node in joins(tree))


def cached_frontier(problem: Problem, found: Found, points: Sequence[Point], deadline: Deadline) -> list[CachedPlan]:
    """The trees of `points`, and in small graphs others that caches could make as good, each with the caches that save most within the caps."""
    mode = problem.options.caches
    if not can_exist(problem.model, mode) or deadline.expired():
        return []
    trees = dict.fromkeys(point.tree for point in (*points, *_more_points(problem, found, deadline)))
    known = Known()
    by_cpu, nothing_to_beat = replace(problem, objective=Objective.MIN_CPU), (1.0,)
    plans: list[CachedPlan] = []
    for tree in _where_caches_could_pay(problem, [tree for tree in trees if _may_have_caches(problem, tree)]):
        for variant in _variants(problem, tree):
            if deadline.expired():
                return plans
            ordered = variant if variant is not None else _for_caches(by_cpu, tree, known, deadline, nothing_to_beat)
            plan = None if ordered is None else _best_caches(by_cpu, ordered, known, deadline, nothing_to_beat)
            if plan is not None and problem.caps.admit(plan.point):
                plans.append(plan)
    return plans


def _more_points(problem: Problem, found: Found, deadline: Deadline) -> Sequence[Point]:
    """The frontier under the memory cap alone; none where it takes long, or where no tree with caches could beat what was found."""
    if problem.shape_given or problem.options.caches is not CacheMode.AUTO or not _worth_more_trees(problem, found):
        return ()
    from solvers.jtree.exact import frontier_search  # numba takes a while to import; these methods have done so

    return frontier_search(replace(problem, caps=Caps(memory_bytes=problem.caps.memory_bytes)), deadline).points


def _wide_trees(problem: Problem, found: Found, deadline: Deadline) -> list[Tree]:
    """The trees that have a join of three inputs or more and could win, the best without caches first."""
    points = [found.best]
    if problem.options.caches is CacheMode.AUTO or problem.shape_given:
        points += found.points
        points += _more_points(problem, found, deadline)
    trees = dict.fromkeys(point.tree for point in points if point.memory_bytes <= problem.caps.memory_bytes)
    wide = [tree for tree in trees if _may_have_caches(problem, tree)]
    most = MAX_TREES if problem.objective is Objective.MIN_CPU else MAX_UNBOUNDED_TREES
    return wide[:most] + wide[most:][-1:]


def _where_caches_could_pay(problem: Problem, trees: list[Tree]) -> list[Tree]:
    """The trees without those of which a test, microseconds a join, shows that no caches make them cheaper than their best orders do.

    All trees where the test does not apply: it is about the best orders, and a shape that a caller gave may have others; and it is compiled code,
    which methods that do without are not made to load.
    """
    if not trees or problem.shape_given or not problem.options.method.can.whole_frontier:
        return trees
    from solvers.jtree.partials import join_costs  # numba takes a while to import; these methods have done so

    costs = join_costs(problem.model, problem.attributes)
    return trees if costs is None else [t for t in trees if any(costs.cache_could_pay([leaf_mask(c) for c in node.inputs]) for node in joins(t))]


def _worth_more_trees(problem: Problem, found: Found) -> bool:
    """Whether the whole frontier is cheap to have and some tree with caches could beat what was found."""
    if not problem.options.method.can.whole_frontier or not 3 <= len(problem.model.graph) <= FRONTIER_STREAMS:
        return False
    if problem.objective is not Objective.MIN_CPU or not problem.caps.admit(found.best):
        return True
    return least_cpu(problem.model) < found.best.cpu * (1.0 - WORTH)


def _for_caches(problem: Problem, tree: Tree, known: Known, deadline: Deadline, to_beat: tuple[float, ...]) -> Tree | None:
    """The tree with the probe orders that suit caches best; None where it has them already."""
    made: dict[int, Tree] = {}
    priced = problem.model.price(tree)
    by_cpu = problem.objective is Objective.MIN_CPU and to_beat[0] == 0.0
    for node, join in zip(priced.nodes, priced.joins, strict=True):
        inputs = [made.get(leaf_mask(child), child) for child in node.inputs]
        blocks = tuple(leaf_mask(child) for child in inputs)
        if len(blocks) > 2 and blocks not in known.orders:
            probes = math.fsum(probe.cpu for pipeline in join.pipelines for probe in pipeline.probes)
            limit = to_beat[1] - (priced.cpu - probes) if by_cpu else math.inf
            known.orders[blocks] = joint_orders(problem.model, problem.attributes, blocks, deadline, limit)
        made[node.mask] = make_join(inputs, known.orders.get(blocks) or node.orders)
    other = made[leaf_mask(tree)]
    return other if other != tree else None


def _merit(problem: Problem, point: Point, total: PricedTree | None) -> tuple[float, ...]:
    """Smaller is better: within the caps first, then the objective, then the rest."""
    if not problem.caps.admit(point):
        return (1.0, overload(problem, point), point.cpu)
    if problem.objective is Objective.MIN_CPU:
        return (0.0, point.cpu, point.memory_bytes)
    if problem.objective is Objective.MIN_MEMORY:
        return (0.0, point.memory_bytes, point.cpu)
    factor = headroom(total or problem.model.price(point.tree), problem.model, problem.caps)
    return (0.0, -math.inf if factor is None else -factor, point.cpu)


def _better(merit: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Whether the first figure that differs is better by a share that is worth it."""
    for mine, theirs in zip(merit, other, strict=True):
        if mine != theirs:
            return mine < theirs and (math.isinf(theirs) or theirs - mine > WORTH * abs(theirs))
    return False


def _best_caches(problem: Problem, tree: Tree, known: Known, deadline: Deadline, to_beat: tuple[float, ...]) -> CachedPlan | None:
    """The tree with its best caches; None where none is worth it or it cannot beat what there is."""
    if tree not in known.posed:
        known.posed[tree] = _posed(problem, tree, deadline)
    posed = known.posed[tree]
    if posed is None:
        return None
    whole = posed.program
    others = posed.priced.cpu - whole.cost_without_caches
    if tree not in known.choices:
        below = to_beat[1] - others if problem.objective is Objective.MIN_CPU and to_beat[0] == 0.0 else math.inf
        free_updates = [c.proc for c in whole.candidates]
        if math.fsum(cheapest_cover(whole, p, free_updates)[0] for p in range(len(whole.operator_costs))) >= below:
            return None
        found = branch_and_bound(whole, deadline, MAX_NODES, below)
        if found.cost >= below:
            return None
        known.choices[tree] = found.choice
    choice = known.choices[tree]
    if problem.objective is Objective.MIN_MEMORY:
        choice = _least_memory(whole, choice, problem.caps.cpu - others)
    if not choice:
        return None
    return cached_plan(problem.model, problem.attributes, posed.priced, [posed.owners[i] for i in choice])


def _posed(problem: Problem, tree: Tree, deadline: Deadline) -> _Posed | None:
    """The selection of the tree's caches; None where no cache would save anything."""
    model, attributes = problem.model, problem.attributes
    priced = model.price(tree)
    generate = prefix_candidates if problem.options.caches is CacheMode.PREFIX else global_candidates
    free = problem.caps.memory_bytes - priced.memory_bytes
    programs: list[Program] = []
    owners: list[tuple[int, CacheCandidate]] = []
    for number, join in enumerate(priced.joins):
        if join.asked if model.graph.tables else len(join.blocks) > 2:
            pipelines = Pipelines.of(join)
            made = answer_candidates(model, attributes, pipelines) if model.graph.tables else generate(model, attributes, pipelines, deadline)
            useful = _fitting(model, [c for c in made if c.figures.benefit > 0.0], free)
            if useful:
                programs.append(program_of(pipelines, useful, free)[0])
                owners += [(number, c) for c in useful]
    return _Posed(priced, _together(programs, free), tuple(owners)) if programs else None


def _fitting(model: CostModel, candidates: list[CacheCandidate], free: float) -> list[CacheCandidate]:
    """The candidates; where memory is short, each also with the share of its memory that would fit, and with half of that share."""
    if math.fsum(c.figures.memory_bytes for c in candidates) <= free or free <= 0.0:
        return candidates if free > 0.0 else []
    found = [c for c in candidates if c.figures.memory_bytes <= free]
    if len(candidates) <= MAX_PARTIAL:
        for c in candidates:
            whole = c.figures.memory_bytes
            for share in (0.5, 0.25) if whole <= free else (free / whole, 0.5 * free / whole):
                part = c.with_share(model, share)
                if part.figures.benefit > 0.0 and part.figures.memory_bytes <= free:
                    found.append(part)
    return found


def _cannot_win(problem: Problem, tree: Tree, to_beat: tuple[float, ...]) -> bool:
    """Whether the tree would not be better, or not be within the cap on CPU, even if caches answered everything for nothing."""
    most = math.inf if to_beat[0] > 0.0 or problem.objective is not Objective.MIN_CPU else to_beat[1]
    if problem.model.graph.tables or (math.isinf(most) and math.isinf(problem.caps.cpu)):
        return False
    least = _least_cpu(problem.model, problem.model.price(tree))
    return least >= most or least > problem.caps.cpu


def _least_cpu(model: CostModel, priced: PricedTree) -> float:
    """What no caches can save: binary joins, states, probe steps, and making the results of multi-way joins."""
    total = []
    for node, join in zip(priced.nodes, priced.joins, strict=True):
        if len(join.blocks) == 2:
            total.append(join.cpu)
        else:
            total += [join.steps, *(state.cpu for state in join.states)]
            total.append(model.costs.join * priced.sizes[node.mask] * model.per_second(node.mask))
    return math.fsum(total)


def _together(programs: list[Program], free: float) -> Program:
    """Several joins' selection problems as one: they share the memory and nothing else."""
    if len(programs) == 1:
        return programs[0]
    costs: tuple[tuple[float, ...], ...] = ()
    candidates: tuple[Candidate, ...] = ()
    updates: tuple[float, ...] = ()
    for program in programs:
        p, g = len(costs), len(updates)
        candidates += tuple(
            replace(c, pipeline=c.pipeline + p, group=c.group + g, excludes=frozenset(e + g for e in c.excludes)) for c in program.candidates
        )
        costs += program.operator_costs
        updates += program.update_costs
    return Program(costs, candidates, updates, free)


def _least_memory(program: Program, choice: tuple[int, ...], cpu: float) -> tuple[int, ...]:
    """The choice with less memory: groups are left out, the one of most bytes first, wherever the cost stays within `cpu` without them."""
    groups = sorted({program.candidates[i].group for i in choice}, key=lambda g: -max(program.candidates[i].memory_bytes for i in program.members[g]))
    parts = exact_sum(program.parts(choice))  # a wide join has 39,800 operators: they are added up once
    for group in groups:
        members = [i for i in choice if program.candidates[i].group == group]
        without = exact_sum([*parts, *program.parts_beyond(members, group)])
        if (without[0] if without else 0.0) <= cpu:
            parts, choice = without, tuple(i for i in choice if i not in members)
    return choice

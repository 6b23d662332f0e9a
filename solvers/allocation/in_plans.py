"""The best answer for a request that no plan satisfies (contract §3; papers 2 and 4).

Where the CPU is short: the plan and the allocation are chosen together, among the plans that the search found within
the memory cap. For each plan two answers are compared:

* all tuples are kept, and shares of them may probe: the joint optimum of freshness and throughput (paper 2);
* only a share of every stream is let in, all of which probes: what is left when keeping the windows takes too much. Probe steps cost what they
  cost whatever is let in; where they alone are over the cap, nothing is.

The plan that meets more freshness predicates is better, then the one with more results. The search keeps the plans that
are best at full load; when the CPU is short another may be best. So in small graphs the best of them is improved step by step.

A kept subresult that no predicate speaks of is still renewed at least a fifth as often as at full load, where the CPU
allows (five windows are the loosest predicate of paper 2): with no bound at all the most productive path probes
subresults that are never renewed. Where the CPU does not even pay the least cover, that cover is cut down.

Where memory is short: the windows that fit and lose the fewest results (`solvers.window_join.flexible_windows`), for a plan that
keeps nothing but windows, the one of least memory.

Guarantee: shares are exact for each plan and its refresh rates; letting in the same share of all streams is best where
results cost the same however few there are, a heuristic elsewhere; over plans, the best of those tried. Complexity: O(n²) a plan, and
about 40 Newton steps where freshness is stated.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from models.plan import Allocation, Allowance, Renewal, StreamShare, WindowSuggestion
from solvers.allocation.freshness import Refresh, ages, cover_shares, cpu_of, greedy_shares, joint_shares, most_results, residences, split_tolerance
from solvers.allocation.neighbours import built, neighbours
from solvers.allocation.productivity import KnownJoins, PlanPaths, paths_of_plan, results_of, visited_sizes
from solvers.common import words
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED, ROUNDED_DOWN, SUMMED
from solvers.jtree.search import Found, Problem, Shape, shape_of, structure_key
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import SMALL as REMEMBERED_STREAMS
from solvers.model.graph import JoinGraph, bits
from solvers.model.operations import total
from solvers.model.point import Caps, Point, point_of
from solvers.model.sensitivity import headroom
from solvers.model.tree import Join, Tree
from solvers.window_join.flexible_windows import flexible_windows, kept_share

__all__ = ["Relief", "Shared", "allocation_of", "given_shares", "relieve", "share_out", "thinning"]

SMALL = 8  # streams up to which plans that the search did not keep are tried as well
TRIED_PER_SECOND, MOST_TRIED = 160, 1_600  # streams of all of them together, by the time limit: what a plan takes to try grows with its streams
MAX_PLANS = 12  # of those found, the ones with the least CPU at full load; the bound may end it sooner
WORTH_THINNING = 0.05  # of the CPU cap: if keeping the windows takes less, letting in fewer tuples cannot free much
ALLOWANCE_FIELDS = set(Allowance.model_fields)
LEAST_RENEWAL = 0.2  # of full load, for subresults that no predicate speaks of


@dataclass(frozen=True, slots=True)
class Shared:
    """One plan with what may probe."""

    priced: PricedTree
    graph: JoinGraph
    """At the rates that are let in."""
    plan: PlanPaths
    budget: float
    """CPU for probing."""
    shares: tuple[float, ...]
    admitted: float
    asked: Refresh
    """By freshness predicates."""
    aimed_at: Refresh
    ages: tuple[float, ...]
    fresh: tuple[bool, ...]
    freshness_cpu: float | None

    @property
    def throughput(self) -> float:
        return results_of(self.plan, self.shares)

    @property
    def cpu(self) -> float:
        return self.plan.keeping + cpu_of(self.plan, self.shares)

    @property
    def jaqpot_throughput(self) -> float:
        """What the greedy cover, topped up with the most productive paths, would yield."""
        if self.admitted < 1.0:
            return self.throughput
        greedy = greedy_shares(self.plan, self.aimed_at)
        cost = cpu_of(self.plan, greedy)
        if cost <= self.budget:
            return results_of(self.plan, joint_shares(self.plan, self.budget, greedy))
        return results_of(self.plan, [share * (self.budget / cost) for share in greedy])


@dataclass(frozen=True, slots=True)
class Relief:
    """What is offered to a request that no plan satisfies."""

    found: Found
    allocation: Allocation | None
    windows: tuple[WindowSuggestion, ...]
    output_rate: float | None


def _fresh(reached: Sequence[float], stated: Sequence[float]) -> tuple[bool, ...]:
    """Whether each predicate holds for results of this age."""
    return tuple(age <= limit * ROUNDED for age, limit in zip(reached, stated, strict=True))


def share_out(model: CostModel, priced: PricedTree, cap: float, stated: Sequence[float], known: PlanPaths | None = None) -> Shared:
    """All tuples are kept; the shares of them that may probe, for the most fresh results within the cap."""
    plan = known or paths_of_plan(model.graph, model.costs, priced)
    budget, full = max(0.0, cap - plan.keeping), [1.0] * len(plan.windows)
    youngest = ages(plan, full)
    tolerances = [
        limit - window if age < limit * ROUNDED_DOWN else math.inf for limit, window, age in zip(stated, plan.windows, youngest, strict=True)
    ]
    asked = split_tolerance(plan, tolerances)
    aimed_at = Refresh(tuple(renewals or LEAST_RENEWAL / stay for renewals, stay in zip(asked.renewals, residences(plan, full), strict=True)))
    cover, wide = cover_shares(plan, asked), cover_shares(plan, aimed_at)
    cost, wide_cost = cpu_of(plan, cover), cpu_of(plan, wide)
    if wide_cost <= budget:
        shares = joint_shares(plan, budget, wide)
    elif cost <= budget:
        part = (budget - cost) / (wide_cost - cost)
        shares = [a + part * (b - a) for a, b in zip(cover, wide, strict=True)]
    else:
        shares = [share * (budget / cost) for share in cover]
    reached = ages(plan, shares)
    return Shared(
        priced=priced,
        graph=model.graph,
        plan=plan,
        budget=budget,
        shares=tuple(shares),
        admitted=1.0,
        asked=asked,
        aimed_at=aimed_at if wide_cost <= budget else asked,
        ages=tuple(reached),
        fresh=_fresh(reached, stated),
        freshness_cpu=plan.keeping + cost if all(_fresh(youngest, stated)) else None,
    )


def thinning(model: CostModel, priced: PricedTree, cap: float) -> float | None:
    """The share of every stream that can be let in where all of it probes; None where there is none below 1."""
    factor = headroom(priced, model, Caps(cpu=cap))
    return factor if factor is not None and 0.0 < factor < 1.0 else None


def given_shares(model: CostModel, priced: PricedTree, cap: float, stated: Sequence[float], shares: Sequence[float], admitted: float) -> Shared:
    """What these shares, of what is let in of every stream, come to; whether that is within the cap or not."""
    graph = model.graph if admitted in (0.0, 1.0) else model.graph.scaled(admitted)
    plan = paths_of_plan(graph, model.costs, priced)
    if not admitted:
        plan, shares = plan._replace(keeping=plan.steps), (0.0,) * len(graph)
    nothing = Refresh((0.0,) * len(plan.subresults))
    reached = ages(plan, shares)
    # Rows that are let in more slowly make a window of rows, and a freshness in rows, longer in seconds.
    limits = [age / (admitted or 1.0) if rows else age for age, rows in zip(stated, graph.row_windows, strict=True)]
    return Shared(
        priced=priced,
        graph=graph,
        plan=plan,
        budget=cap - plan.keeping,
        shares=tuple(shares),
        admitted=admitted,
        asked=nothing,
        aimed_at=nothing,
        ages=tuple(reached),
        fresh=_fresh(reached, limits),
        freshness_cpu=None,
    )


def _better(shared: Shared) -> tuple[int, float]:
    return sum(shared.fresh), shared.throughput


class _Contest:
    """The best plan and allocation so far.

    There are two ways to allocate (see the file's head). A way is tried of a plan only if the plan could win by it, were freshness to cost nothing.
    """

    def __init__(self, problem: Problem) -> None:
        self.model, self.caps, self.stated = problem.model, problem.caps, problem.freshness
        self.best: tuple[Tree, Shared] | None = None
        self._to_beat = -math.inf
        """The results of the best so far, if it meets all freshness predicates; else any allocation may be better."""
        self._output_rate = self.model.rate(self.model.graph.all)
        self._known = KnownJoins(self.model) if len(self.model.graph) <= REMEMBERED_STREAMS else None

    def enter(self, tree: Tree) -> bool:
        """Try one plan; whether it is the best so far."""
        priced, cap = self.model.price(tree), self.caps.cpu
        plan = paths_of_plan(self.model.graph, self.model.costs, priced, self._known)
        answers = []
        if plan.keeping <= cap and self._may_win(most_results(plan, cap - plan.keeping)):
            answers.append(share_out(self.model, priced, cap, self.stated, plan))
        if plan.keeping > WORTH_THINNING * cap or (answers and not all(answers[0].fresh)):
            factor = thinning(self.model, priced, cap) if self._thinned_may_win(priced.output_rate, priced.cpu, plan) else None
            if factor is not None:
                answers.append(given_shares(self.model, priced, cap, self.stated, (1.0,) * len(self.model.graph), factor))
        won = False
        for answer in answers:
            if self.best is None or _better(answer) > _better(self.best[1]):
                self.best, won = (tree, answer), True
                self._to_beat = answer.throughput if all(answer.fresh) else -math.inf
        return won

    def may_win(self, shape: Shape) -> bool:
        """Whether a plan of this shape may be better than the best so far. Most shapes cannot, and are not built.

        Joins that were not met before count with the least they could cost. One after the other their real costs take the place of that, for as
        long as the plan may still win.
        """
        known = self._known
        assert known is not None, "shapes are tried in small graphs"
        joins = list(shape.values())
        for join in known.unmet(joins):
            if not self._plan_may_win(known.paths_at_least(joins), 0.0):
                return False
            known.meet(join)
        return self._plan_may_win(known.paths_at_least(joins), WORTH_THINNING)

    def _plan_may_win(self, plan: PlanPaths, worth_thinning: float) -> bool:
        if plan.keeping <= self.caps.cpu * ROUNDED and self._may_win(most_results(plan, self.caps.cpu - plan.keeping) * ROUNDED):
            return True
        cpu = (plan.keeping + sum(plan.cpu)) * ROUNDED_DOWN
        thinned = plan.keeping * ROUNDED >= worth_thinning * self.caps.cpu
        return thinned and self._thinned_may_win(self._output_rate, cpu, plan)

    def _may_win(self, most: float) -> bool:
        """Whether an allocation of so many results at most may be better than the best so far."""
        return most * SUMMED > self._to_beat

    def _thinned_may_win(self, output_rate: float, cpu: float, plan: PlanPaths) -> bool:
        """Whether letting in a share of every stream may be better than the best so far.

        Each stream whose window is a time holds fewer tuples by the share f, so results fall by f for each of them: f is at least what leaves as
        many results as the best has. No cost falls faster than by f for each stream; keeping windows falls by f alone, and probe steps not at all.
        """
        if not self._may_win(output_rate):
            return False
        timed = sum(not rows for rows in self.model.graph.row_windows)
        if self._to_beat == -math.inf or not timed:
            return True
        share = math.pow(min(1.0, self._to_beat / output_rate), 1.0 / timed)
        least = plan.steps + (plan.keeping - plan.steps) * share + (cpu - plan.keeping) * math.pow(share, len(self.model.graph))
        return least <= self.caps.cpu * ROUNDED


def _more_plans(problem: Problem) -> int:
    """How many plans beyond those found may be tried: none where the shape or the kind of plan is the caller's choice."""
    if problem.shape_given or problem.model.graph.tables or not problem.options.method.can.any_tree or len(problem.model.graph) > SMALL:
        return 0
    return int(min(MOST_TRIED, TRIED_PER_SECOND * problem.options.time_limit)) // len(problem.model.graph)


def _best_shared(problem: Problem, points: Sequence[Point], deadline: Deadline) -> tuple[Point, Shared]:
    """The plan and its allocation with the most fresh results within the CPU cap."""
    model, contest = problem.model, _Contest(problem)
    likely = sorted(points, key=lambda point: (point.cpu, structure_key(point.tree)))[:MAX_PLANS]
    for number, point in enumerate(likely):
        if number and deadline.expired():
            break
        contest.enter(point.tree)
    if contest.best is None:  # even the share that fits rounds to nothing: nothing is let in
        nothing = given_shares(model, model.price(likely[0].tree), problem.caps.cpu, contest.stated, (), 0.0)
        return likely[0], nothing
    _improve(problem, contest, likely, _more_plans(problem), deadline)
    tree, shared = contest.best
    return point_of(model, tree), shared


def _improve(problem: Problem, contest: _Contest, likely: Sequence[Point], steps: int, deadline: Deadline) -> None:
    """Try the neighbours of plans that were tried before, those of winners first, and at most `steps` of them. In the smallest graphs these are all
    plans."""
    assert contest.best is not None
    known = {frozenset(shape_of(point.tree)) for point in likely}  # what is joined says which joins there are
    waiting = deque(shape_of(tree) for tree in (contest.best[0], *(point.tree for point in likely)))
    fits = _fits(problem, waiting[0])
    while waiting and steps > 0:
        for shape in neighbours(problem.model, waiting.popleft()):
            name = frozenset(shape)
            if name in known:
                continue
            known.add(name)
            if steps == 0 or deadline.expired():
                return
            steps -= 1
            if (not fits or _fits(problem, shape)) and contest.may_win(shape) and contest.enter(built(problem.model, shape)):
                waiting.appendleft(shape)
            else:
                waiting.append(shape)


def _fits(problem: Problem, shape: Shape) -> bool:
    model = problem.model
    kept = (model.state_bytes(mask) for mask in shape if mask != model.graph.all)
    return total([model.leaves_bytes(), *kept]) <= problem.caps.memory_bytes


def _allowances(shared: Shared, ids: dict[int, str], per_second: Sequence[float]) -> Iterator[dict[str, object]]:
    """How much of what arrives at each probe may go on."""
    graph, sizes = shared.graph, dict[int, float]()
    for node, join in zip(shared.priced.nodes, shared.priced.joins, strict=True):
        visited = visited_sizes(graph, join, sizes)
        for k, child in enumerate(node.inputs):
            block = join.blocks[k]
            name = ids[block] if isinstance(child, Join) else graph.names[child]
            arrivals = math.fsum(per_second[i] for i in bits(block))
            first = 1.0 if isinstance(child, Join) else shared.shares[child]
            for step, size in enumerate(visited[k][:-1]):
                share = first if step == 0 else 1.0
                yield {"operator": ids[node.mask], "input": name, "step": step, "share": share, "rate": arrivals * size}


def allocation_of(model: CostModel, shared: Shared) -> Allocation:
    """An allocation on the wire."""
    graph, priced = shared.graph, shared.priced
    ids = {node.mask: f"join-{number}" for number, node in enumerate(priced.nodes, 1)}
    per_second = [share / window for share, window in zip(shared.shares, shared.plan.windows, strict=True)]
    allowances = Allowance.trusted(_allowances(shared, ids, per_second), ALLOWANCE_FIELDS)
    if not all(math.isfinite(allowance.rate) for allowance in allowances) or not math.isfinite(shared.cpu):
        raise model.out_of_range()
    return Allocation(
        throughput=shared.throughput,
        saturation_throughput=model.rate(model.graph.all),
        jaqpot_throughput=shared.jaqpot_throughput,
        cpu=shared.cpu,
        admitted=shared.admitted,
        freshness_met=all(shared.fresh),
        freshness_cpu=shared.freshness_cpu,
        allowances=allowances,
        streams=[
            StreamShare(stream=name, share=share, fresh=fresh, oldest_seconds=age if math.isfinite(age) else None)
            for i, (name, share, fresh, age) in enumerate(zip(graph.names, shared.shares, shared.fresh, shared.ages, strict=True))
            if not graph.tables >> i & 1
        ],
        renewals=[
            Renewal(
                operator=ids[subresult.mask],
                required=subresult.size * renewals,
                rate=subresult.size * math.fsum(per_second[i] for i in bits(subresult.mask)),
            )
            for subresult, renewals in zip(shared.plan.subresults, shared.asked.renewals, strict=True)
        ],
    )


def _sentences(model: CostModel, shared: Shared) -> list[str]:
    whole, streams = model.rate(model.graph.all), list(bits(model.graph.all & ~model.graph.tables))
    percent = f" ({100.0 * shared.throughput / whole:.3g} %)" if whole > 0.0 else ""
    yields = (
        f"Of the plans found this one yields the most within the CPU cap: {words.per_second(shared.throughput)} of {words.amount(whole)}{percent}"
    )
    if shared.admitted < 1.0:
        sentences = [f"{yields}, when {shared.admitted:.3g} of every stream is let in, all of which probes."]
    else:
        names = sorted(streams, key=lambda i: (shared.shares[i], i))
        least = [f"{model.graph.names[i]} {shared.shares[i]:.3g}" for i in names][:4] + ["…"] * (len(names) > 4)
        sentences = [f"{yields}. Shares that may probe: {', '.join(least)}."]
    stale = [name for name, fresh in zip(model.graph.names, shared.fresh, strict=True) if not fresh]
    if stale:
        enough = f"takes {words.cpu(shared.freshness_cpu)} CPU" if shared.freshness_cpu is not None else "is beyond this plan at any CPU"
        sentences.append(f"The freshness of {', '.join(stale[:3])}{' and others' if len(stale) > 3 else ''} is not met: that {enough}.")
    elif any(subresult for subresult in shared.plan.subresults) and shared.admitted == 1.0:
        slowest = max(streams, key=lambda i: (shared.ages[i] / shared.plan.windows[i], -i))
        if math.isfinite(shared.ages[slowest]):
            sentences.append(
                f"Kept subresults are renewed more slowly, so results hold {model.graph.names[slowest]} up to {shared.ages[slowest]:.3g} s old."
            )
    return sentences


def _suggested_windows(model: CostModel, memory: float) -> tuple[tuple[WindowSuggestion, ...], float]:
    """The windows that fit the memory, and the results per second that they keep."""
    graph = model.graph
    each = [1.0 / window for window in graph.window_seconds]
    completed = [value / math.fsum(each) for value in each]
    sizes = [w * b for w, b in zip(graph.window_tuples, graph.tuple_bytes, strict=True)]
    parts = [(model.state_bytes(part), part) for part in graph.components if part & (part - 1)] if len(graph.components) > 1 else []

    def held(shares: Sequence[float]) -> float:
        return math.fsum(
            [s * t for s, t in zip(sizes, shares, strict=True)] + [size * math.prod(shares[i] for i in bits(part)) for size, part in parts]
        )

    shares = flexible_windows(completed, sizes, memory)
    if held(shares) > memory * ROUNDED:
        # The root of a graph that is not connected keeps its components' results: leave room for them.
        low, high = 0.0, memory
        for _ in range(60):
            middle = (low + high) / 2.0
            if held(flexible_windows(completed, sizes, middle)) <= memory:
                low = middle
            else:
                high = middle
        shares = flexible_windows(completed, sizes, low or memory * 1e-18)
    windows = tuple(
        WindowSuggestion(stream=name, seconds=min(seconds, sys.float_info.max) * share, rows=tuples * share if rows else None)
        for name, seconds, tuples, rows, share in zip(graph.names, graph.window_seconds, graph.window_tuples, graph.row_windows, shares, strict=True)
    )
    return windows, model.rate(graph.all) * kept_share(completed, shares)


def relieve(problem: Problem, found: Found, deadline: Deadline) -> Relief:
    """What to offer where `found` has no plan within the caps."""
    model, caps = problem.model, problem.caps
    points = dict.fromkeys((found.best, *found.points))
    fitting = [point for point in points if point.memory_bytes <= caps.memory_bytes]
    windows: tuple[WindowSuggestion, ...] = ()
    output_rate, notes = None, []
    if not fitting and not model.graph.tables:
        windows, output_rate = _suggested_windows(model, caps.memory_bytes)
        notes.append(
            f"With the windows in shortfall one join of all streams fits the memory and yields {words.per_second(output_rate)} "
            f"of {words.amount(model.rate(model.graph.all))}."
        )
    best, allocation = found.best, None
    if fitting or best.cpu > caps.cpu:
        best, shared = _best_shared(problem, fitting or [best], deadline)
        allocation = allocation_of(model, shared)
        notes = [*_sentences(model, shared), *notes]
    else:
        notes.append("This is the plan that is least over them.")
    return Relief(replace(found, best=best, notes=(*notes, *found.notes)), allocation, windows, output_rate)

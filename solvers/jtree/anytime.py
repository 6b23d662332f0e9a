"""Anytime search for large graphs: a good start, made better region by region, with a proven bound.

Problem: the best join tree by the objective within the caps, for graphs beyond exact search. Method: large-neighbourhood search.
Start from the best plans of greedy, linear orders and paper 3's walks (from a greedy start alone the worst plans are bad). A region, a join
with some of the joins below it, has a handful of blocks as leaves and is solved exactly (`solvers.jtree.compiled.regions`); its best replacement in
the whole plan, caps included, is taken if it is better. Joins wider than a region are changed by merging a join into its
user and by splitting off a pair of inputs. First regions grow towards the costliest joins, then at random (seeded). Under a cap the
same search is run with a price on bytes, and its plans on both sides of the cap are improved once more. It ends when a round of
each brings nothing; then larger regions and other random ones follow, as many as the time limit pays for, or until the deadline.
Guarantee: the plan is optimal where one region holds the whole graph; otherwise it is as good as every start and comes with the
bound of `solvers.jtree.lower_bound`. Complexity: per round n regions of milliseconds each.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.plan import Proof, Termination
from models.request import Objective
from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED, ROUNDED_DOWN, SUMMED_DOWN
from solvers.jtree.cheapest_first import Effort, cheapest
from solvers.jtree.choice import choose
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.regions import Solution, solve_region
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.lower_bound import cpu_lower_bound, headroom_upper_bound, memory_lower_bound
from solvers.jtree.search import ALL_TREES, Found, Problem, staircase
from solvers.jtree.shape import Draft, Shape, Writing, draft_of, excess_of, mjoin_shape, priced, shape_of, sorted_inputs, tree_of
from solvers.jtree.star import least_of_trees
from solvers.jtree.state_selection import optimize, ranked_edges
from solvers.jtree.two_layer import walk_two_layers
from solvers.model.point import Caps, Point, point_of

__all__ = ["anytime"]

WHOLE = 9  # streams of a graph that is solved as one region: 40 ms for a clique
WHOLE_STEPS = 400  # steps of its staircases, more than graphs of that size have
FIRST, LAST = 7, 9  # blocks of a region, in the first rounds and in the last: 0.3 and 3 ms each on sparse graphs
STARTS = 3  # plans that are improved, the best first
RANDOM_ROUNDS = 2  # rounds of random regions that have to bring nothing before the search ends
PERSISTENT = ((9, 50), (10, 15), (11, 5))
"""Blocks of the regions that are tried once rounds bring nothing, and how many a second of the time limit: about a sixth of it each. By their number
and not by the clock, so that the same request has the same plan however busy the machine is."""
MOST_SECONDS = 30.0  # of a time limit that are used up in this way
LARGE = 60  # streams, beyond which improving a plan takes so long that a proof is tried before it
BOUND_SHARE = 0.2  # of the time, for the quick bound
PROOF_SHARES = (0.6, 0.7)  # of the time that is left, for the first search for a proof and the second
COMPLETED = 2  # plans that such a search met and that are improved
MUCH_BETTER = 0.99  # of the CPU of the plan before
IDLE_ROUNDS = 12  # of those, after which no other regions are likely to be left
PAIRS = 4  # per round and wide join: pairs of its inputs that are tried as a join of their own
PRICES = 24  # powers of two of the price of a byte, around the plan's CPU per byte

Score = tuple[float, float, float]


class _Search:
    """One plan being improved."""

    def __init__(self, problem: Problem, ledger: Ledger, deadline: Deadline) -> None:
        self.problem, self.ledger, self.deadline = problem, ledger, deadline
        graph = problem.model.graph
        self.fixed = graph.all if len(graph.components) > 1 else 0
        self.in_memory = problem.objective is not Objective.MIN_CPU or problem.caps.memory_bytes < math.inf
        self.leaves = problem.model.leaves_bytes()
        self.price: float | None = None
        """What a byte costs in CPU, while plans are made for that price instead of for the caps."""
        self._solved: dict[tuple[int, ...], tuple[Solution, ...]] = {}
        self._settled: set[tuple[int, ...]] = set()
        self.left = math.inf
        """Regions that may still be solved."""
        self.cut = False
        """Whether the clock ended a step before its work was done, so that with more time, or less to do beside, the answer might be another."""

    def score(self, excess: float, memory: float) -> Score:
        """The score to minimise: first how far the plan is over the caps, then the objective, then the other resource."""
        if self.price is not None:
            return 1.0, excess + self.price * memory, memory
        caps = self.problem.caps
        overload = max((self.ledger.common + excess) / caps.cpu, (self.leaves + memory) / caps.memory_bytes)
        over = overload if overload > ROUNDED else 1.0
        if self.problem.objective is Objective.MIN_CPU:
            return over, excess, memory if self.in_memory else 0.0
        if self.problem.objective is Objective.MIN_MEMORY:
            return over, memory, excess
        return over, overload, excess

    def rank(self, draft: Draft) -> tuple[Score, int]:
        """Drafts sorted by score, the best first."""
        return self.score(draft.cpu - self.ledger.common, draft.memory_bytes - self.leaves), len(draft.shape)

    def figures(self, shape: Shape) -> tuple[float, float]:
        """Excess and inner states' bytes of these joins."""
        every = self.problem.model.graph.all
        held = math.fsum(self.ledger.state_bytes(mask) for mask in shape if mask != every) if self.in_memory else 0.0
        return excess_of(self.ledger, shape), held

    def replaced(self, shape: Shape, members: Sequence[int], ways: Iterable[tuple[float, float, Shape]]) -> Shape | None:
        """The plan with these joins replaced by the best of several (excess, bytes, joins), if that is better."""
        top = members[0]
        kept, held = (0.0, 0.0) if top == self.problem.model.graph.all else (self.ledger.kept(top), self.ledger.state_bytes(top))
        inner, inner_bytes = self.figures({mask: shape[mask] for mask in members})
        rest = rest_bytes = 0.0
        if self.in_memory:
            # Where memory does not count, less CPU in this region is better whatever the rest of the plan costs; also where the rest overflows.
            rest, rest_bytes = self.figures({mask: inputs for mask, inputs in shape.items() if mask not in members})
            rest = rest if math.isfinite(rest) else 0.0
        best = self.score(rest + inner, rest_bytes + inner_bytes)
        choice: Shape | None = None
        for excess, state_bytes, joins in ways:
            now = self.score(rest + excess + kept, rest_bytes + state_bytes + (held if self.in_memory else 0.0))
            if _better(now, best):
                best, choice = now, joins
        if choice is None:
            return None
        return {**{mask: inputs for mask, inputs in shape.items() if mask not in members}, **choice}

    def region(self, shape: Shape, top: int, limit: int, generator: random.Random | None) -> tuple[tuple[int, ...], list[int]]:
        """A region under `top`: its blocks, and the joins it is made of. It grows by the costliest join next; with a generator by any."""
        blocks, members = list(shape[top]), [top]
        waiting = [part for part in blocks if part in shape]
        while waiting:
            fitting = [part for part in waiting if len(blocks) + len(shape[part]) - 1 <= limit]
            if not fitting:
                break
            part = generator.choice(fitting) if generator else max(fitting, key=lambda mask: (self.weight(shape, mask), -mask))
            waiting.remove(part)
            blocks.remove(part)
            blocks += shape[part]
            members.append(part)
            waiting += [inner for inner in shape[part] if inner in shape]
        return sorted_inputs(blocks), members

    def solved(self, blocks: tuple[int, ...]) -> tuple[Solution, ...]:
        known = self._solved.get(blocks)
        if known is None:
            self.left -= 1
            known = self._solved[blocks] = solve_region(self.ledger, blocks, in_memory=self.in_memory)[0]
        return known

    def weight(self, shape: Shape, mask: int) -> float:
        return self.ledger.join(shape[mask])[0] + self.ledger.kept(mask)

    def round(self, shape: Shape, limit: int, generator: random.Random | None) -> tuple[Shape, bool]:
        """One region under every join, the costliest joins first; grown at random where there is a generator."""
        better = False
        start = shape
        for top in sorted(shape, key=lambda mask: (-self.weight(start, mask), mask)):
            if self.deadline.expired() or self.left <= 0:
                break
            if top not in shape or top == self.fixed:
                continue
            if len(shape[top]) > limit:
                changed = self.wide(shape, top, limit)
            else:
                blocks, members = self.region(shape, top, limit, generator)
                if len(blocks) < 3 or blocks in self._settled:
                    continue
                ways = ((way.excess, way.state_bytes, {sum(inputs): inputs for inputs in way.joins}) for way in self.solved(blocks))
                changed = self.replaced(shape, members, ways)
                if not self.in_memory:
                    self._settled.add(blocks)  # solved exactly: no change elsewhere makes another way to join these blocks better
            if changed is not None:
                shape, better = changed, True
                if self.deadline.progress.listens:
                    draft = draft_of(self.ledger, shape)
                    self.deadline.progress.drafted(draft.cpu, draft.memory_bytes, shape)
        return shape, better

    def wide(self, shape: Shape, top: int, limit: int) -> Shape | None:
        """A join too wide for a region with some of its inputs split off, or one of its joins merged into it."""
        ledger = self.ledger
        for _, _, pair in sorted(ranked_edges(ledger, top, shape[top]))[:PAIRS]:
            if self.deadline.expired():
                return None
            _, inputs, dissolved = optimize(ledger, shape, pair)
            joined = pair[0] | pair[1]
            outer = sorted_inputs(joined if part == pair[0] else part for part in shape[top] if part != pair[1])
            changed = self._instead(shape, [top, *dissolved], {top: outer, joined: inputs}) or self._split(shape, top, pair, limit)
            if changed is not None:
                return changed
        for part in shape[top]:
            if self.deadline.expired():
                return None
            if part in shape and len(shape[top]) + len(shape[part]) - 1 > limit:
                merged = sorted_inputs([other for other in shape[top] if other != part] + list(shape[part]))
                changed = self._instead(shape, [top, part], {top: merged})
                if changed is not None:
                    return changed
        return None

    def _split(self, shape: Shape, top: int, pair: tuple[int, int], limit: int) -> Shape | None:
        """A wide join with some of its inputs joined below it in the best way: the pair, then one by one what makes the smallest join with them."""
        graph, ledger = self.problem.model.graph, self.ledger
        inside, joined = list(pair), pair[0] | pair[1]
        ways: list[tuple[float, float, Shape]] = []
        while len(inside) < min(limit, len(shape[top]) - 2) and not self.deadline.expired():
            around = graph.around(joined)
            near = [part for part in shape[top] if part & around and part not in inside]
            part = min(near, key=lambda mask: (ledger.size(joined | mask), mask))
            inside.append(part)
            joined |= part
            outer = sorted_inputs([joined, *(part for part in shape[top] if part not in inside)])
            excess, held = ledger.join(outer)[0] + ledger.kept(joined), ledger.state_bytes(joined)
            for way in self.solved(sorted_inputs(inside)):
                joins = {sum(inputs): inputs for inputs in way.joins}
                ways.append((excess + way.excess, held + way.state_bytes, {top: outer, **joins}))
        return self.replaced(shape, [top], ways)

    def _instead(self, shape: Shape, members: Sequence[int], joins: Shape) -> Shape | None:
        top = members[0]
        excess, held = self.figures({mask: inputs for mask, inputs in joins.items() if mask != top})
        return self.replaced(shape, members, [(excess + self.ledger.join(joins[top])[0], held, joins)])

    def fits(self, shape: Shape) -> bool:
        """Whether the other resource, not the one that the objective minimises, is within its cap."""
        excess, memory = self.figures(shape)
        if self.problem.objective is Objective.MIN_CPU:
            return self.leaves + memory <= self.problem.caps.memory_bytes * ROUNDED
        return self.ledger.common + excess <= self.problem.caps.cpu * ROUNDED

    def traded(self, shape: Shape) -> list[Shape]:
        """Plans along the trade-off of CPU and memory, on both sides of the cap.

        Under a cap a region often cannot take more memory unless another gives some up. With a price on bytes in place of the cap every region
        decides for itself; the price at which the plans change over from one side of the cap to the other is found by halving.
        """
        found: list[Shape] = []
        self.price = 0.0
        plan = self.improved(shape, (FIRST,))
        excess, memory = self.figures(plan)
        cpu_first = self.problem.objective is Objective.MIN_CPU
        if memory > 0.0 and math.isfinite(excess) and not (cpu_first and self.fits(plan)):
            low, high = -PRICES, PRICES
            while high - low > 1 and not self.deadline.expired():
                middle = (low + high) // 2
                self.price = math.ldexp(excess / memory, middle)
                plan = self.improved(plan, (FIRST,))
                found.append(plan)
                low, high = (low, middle) if self.fits(plan) == cpu_first else (middle, high)
        self.price = None
        return found

    def improved(self, shape: Shape, limits: Sequence[int] = (FIRST, LAST)) -> Shape:
        """The plan after rounds of regions, until a round of each kind brings nothing."""
        generator = random.Random(self.problem.seed)
        for limit in limits:
            idle = 0
            while idle <= RANDOM_ROUNDS and not self.deadline.expired():
                shape, better = self.round(shape, limit, generator if idle else None)
                idle = 0 if better else idle + 1
                if better:
                    draft = draft_of(self.ledger, shape)
                    self.deadline.progress.drafted(draft.cpu, draft.memory_bytes, shape)
        return shape

    def is_best(self, drafts: Sequence[Draft], least_cpu: float) -> bool:
        """Whether the best draft is within the caps and no plan has less CPU, which is what is asked for."""
        best = min(drafts, key=self.rank)
        within = best.memory_bytes <= self.problem.caps.memory_bytes and best.cpu <= self.problem.caps.cpu
        return self.problem.objective is Objective.MIN_CPU and within and best.cpu <= least_cpu * ROUNDED

    def proved(self, drafts: list[Draft]) -> float:
        """CPU that every plan needs, by a search that starts from the least that the drafts have. What it meets on the way is added to them, made
        better region by region. A plan that is better by much is worth a second search: the closer the plan, the closer the bound."""
        ledger, progress = self.ledger, self.deadline.progress
        bound = excess = 0.0
        for share in PROOF_SHARES:
            known = min(draft.cpu for draft in drafts)
            if self.deadline.expired():
                break
            progress.doing("proving what the best plan needs")
            found = cheapest(ledger, known - ledger.common, self.deadline, Effort(share), excess)
            excess = found.bound
            bound = max(bound, (ledger.common + found.bound) * SUMMED_DOWN if found.bound else 0.0)
            progress.proven(bound)
            self.cut |= found.cut and known > bound * ROUNDED
            met = _different(sorted((draft_of(ledger, shape) for shape in found.shapes), key=self.rank))
            drafts += met
            if known <= bound * ROUNDED or not met or met[0].cpu <= bound * ROUNDED:
                break
            drafts += [draft_of(ledger, self.improved(draft.shape)) for draft in met[:COMPLETED]]
            if min(draft.cpu for draft in drafts) > known * MUCH_BETTER:
                break
        return bound

    def persisted(self, shape: Shape) -> Shape:
        """The plan after more and larger random regions, as many as the time granted pays for."""
        for number, (limit, per_second) in enumerate(PERSISTENT, 1):
            self.left = int(per_second * min(self.deadline.granted, MOST_SECONDS))
            generator = random.Random(self.problem.seed + number)
            idle = 0
            while self.left > 0 and idle < IDLE_ROUNDS and not self.deadline.expired():
                shape, better = self.round(shape, limit, generator)
                idle = 0 if better else idle + 1
        self.left = math.inf
        return shape


def _better(now: Score, before: Score) -> bool:
    if now[0] != before[0]:
        return now[0] < before[0]
    if now[1] < before[1] * ROUNDED_DOWN:
        return True
    return now[1] <= before[1] and now[2] < before[2] * ROUNDED_DOWN


def anytime(problem: Problem, deadline: Deadline) -> Found:
    """The best plan found until the deadline, with a proven bound."""
    model, graph = problem.model, problem.model.graph
    ledger = Ledger(model)
    if 3 <= len(graph) <= WHOLE and len(graph.components) == 1:
        whole = _whole(problem, ledger, deadline)
        if whole is not None:
            return whole
    progress = deadline.progress
    progress.doing("making first plans")
    first = greedy_plan(model)
    drafts = [draft_of(ledger, shape_of(first))]
    progress.drafted(drafts[0].cpu, drafts[0].memory_bytes, drafts[0].shape)
    writing = Writing.measured(problem, first)
    searching = writing.before(deadline, drafts[0])
    if not searching.expired():
        searching = writing.before(deadline, draft_of(ledger, mjoin_shape(ledger)))
        # Without the CPU cap, or the walks would end at the first plan that fits.
        drafts += walk_two_layers(replace(problem, caps=Caps(memory_bytes=problem.caps.memory_bytes)), ledger, searching)
    search = _Search(problem, ledger, searching)
    ranked = sorted(writing.in_time(deadline, drafts), key=search.rank)
    progress.drafted(ranked[0].cpu, ranked[0].memory_bytes, ranked[0].shape)
    # A wide join takes longer to price and to write than it took to find.
    searching = search.deadline = writing.before(deadline, ranked[0])
    least_cpu = max(cpu_lower_bound(model, searching.share(BOUND_SHARE)), least_of_trees(model, searching))
    if problem.objective is not Objective.MAX_HEADROOM:
        progress.proven(least_cpu if problem.objective is Objective.MIN_CPU else memory_lower_bound(model))
    starts = _different(ranked)[:STARTS]
    for number in range(len(starts) + 1):
        if problem.objective is Objective.MIN_CPU and number == (len(graph) <= LARGE):
            least_cpu = max(least_cpu, search.proved(drafts))
        if number == len(starts) or searching.expired() or search.is_best(drafts, least_cpu):
            break
        progress.doing(f"improving plan {number + 1} region by region")
        drafts.append(draft_of(ledger, search.improved(starts[number].shape)))
    settled = search.is_best(drafts, least_cpu)
    if search.in_memory and problem.objective is not Objective.MAX_HEADROOM and not (settled or searching.expired()):
        progress.doing("trading memory for CPU")
        traded = [draft_of(ledger, shape) for shape in search.traded(ranked[0].shape)]
        drafts += traded
        for draft in _different(sorted(traded, key=search.rank))[:STARTS]:
            drafts.append(draft_of(ledger, search.improved(draft.shape)))
    if not (searching.expired() or search.is_best(drafts, least_cpu)):
        progress.doing("trying larger regions")
        drafts.append(draft_of(ledger, search.persisted(min(drafts, key=search.rank).shape)))
    progress.doing("pricing what was found")
    termination = searching.termination(Termination.TIME_LIMIT if search.cut else Termination.COMPLETE)
    if termination is not Termination.COMPLETE:
        drafts = writing.in_time(deadline, drafts, ranked[0])
    return replace(_proven(problem, priced(problem, ledger, drafts, searching), least_cpu, searching), termination=termination)


def _different(drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts, each shape once."""
    seen: set[frozenset[int]] = set()
    kept = []
    for draft in drafts:
        joins = frozenset(draft.shape)
        if joins not in seen:
            seen.add(joins)
            kept.append(draft)
    return kept


def _proven(problem: Problem, points: Sequence[Point], least_cpu: float, deadline: Deadline) -> Found:
    """The best point, with what lower bounds say of it."""
    model, caps = problem.model, problem.caps
    found = staircase(points)
    best = choose(problem, found)
    least_memory = memory_lower_bound(model)
    if problem.objective is Objective.MIN_CPU:
        bound = least_cpu
    elif problem.objective is Objective.MIN_MEMORY:
        bound = least_memory
    else:
        bound = headroom_upper_bound(model, caps, deadline)
    nothing_fits = least_cpu > caps.cpu or least_memory > caps.memory_bytes
    smallest = problem.objective is Objective.MIN_MEMORY and caps.admit(best) and best.memory_bytes <= least_memory * ROUNDED
    cheapest = problem.objective is Objective.MIN_CPU and caps.admit(best) and best.cpu <= least_cpu * ROUNDED
    if not math.isfinite(bound):
        return Found(best, found, Proof.NONE, None, ALL_TREES)
    if cheapest:
        return Found(best, found, Proof.OPTIMAL, best.cpu, ALL_TREES)
    proof = Proof.OPTIMAL if nothing_fits or smallest else Proof.BOUNDED
    return Found(best, found, proof, bound, ALL_TREES, ("The bound is that of a relaxation of join trees.",))


def _whole(problem: Problem, ledger: Ledger, deadline: Deadline) -> Found | None:
    """A graph that is one region: its exact staircase within the caps. None where every way to join it overflows."""
    model, caps = problem.model, problem.caps
    streams = [1 << i for i in range(len(model.graph))]
    cpu_left, memory_left = caps.cpu * ROUNDED - ledger.common, caps.memory_bytes * ROUNDED - model.leaves_bytes()
    points, complete = _priced_whole(ledger, streams, cpu_left, memory_left)
    if not any(caps.admit(point) for point in points):
        nothing_fits = complete
        points, complete = _priced_whole(ledger, streams, math.inf, math.inf)
        if not points:
            return None
        found = _proven(problem, points, points[0].cpu if complete else cpu_lower_bound(model, deadline), deadline)
        return replace(found, proof=Proof.OPTIMAL) if nothing_fits and found.bound is not None else found
    best = choose(problem, points)
    if not complete or problem.objective is Objective.MAX_HEADROOM:
        return _proven(problem, points, cpu_lower_bound(model, deadline), deadline)
    bound = best.cpu if problem.objective is Objective.MIN_CPU else best.memory_bytes
    return Found(best, points, Proof.OPTIMAL, bound, ALL_TREES)


def _priced_whole(ledger: Ledger, streams: Sequence[int], cpu_left: float, memory_left: float) -> tuple[tuple[Point, ...], bool]:
    solutions, complete = solve_region(ledger, streams, cpu_left, memory_left, max_steps=WHOLE_STEPS)
    shapes = [{sum(inputs): inputs for inputs in way.joins} for way in solutions]
    return staircase(point_of(ledger.model, tree_of(ledger, shape)) for shape in shapes), complete

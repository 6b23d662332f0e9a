"""Trees, orders and caches chosen together, against all of them one by one; and the bound of all plans against the best one."""

from __future__ import annotations

import math
import random
from functools import cache
from itertools import permutations, product

import pytest

from models.plan import Proof
from models.request import CacheMode, Costs, Objective, Options, PlanRequest, Resources
from solvers.caches.candidates import Pipelines, candidate, prefix_sets, program_of, streams_of
from solvers.caches.select.branch_and_bound import branch_and_bound
from solvers.common.deadline import Deadline
from solvers.jtree.partials import least_cpu_of_all
from solvers.jtree.search import Problem
from solvers.model.connected import partitions
from solvers.planner import plan, problem_of
from tests.graphs import random_graph

MOST_ORDERS = 1_500  # of one join, all pipelines together


class TooManyOrdersError(Exception):
    """More than brute force goes through."""


def request_of(seed: int, sizes: tuple[int, ...] = (3, 4, 4)) -> PlanRequest:
    """A graph whose values come often enough for caches to be of use, mostly."""
    rng = random.Random(seed)
    query = random_graph(
        rng,
        rng.choice(sizes),
        rng.choice(("chain", "star", "cycle", "random")),
        windows=(1.0, 10.0, 60.0),
        log_selectivity=rng.choice(((-3.0, -1.0), (-2.0, 0.0))),
        theta=rng.choice((0.0, 0.0, 0.3)),
        equalities=rng.choice((0.0, 0.5)),
    )
    for stream in query.streams:
        held = stream.rate * (stream.window.seconds or 0.0)
        names = sorted({side.split(".")[1] for p in query.predicates for side in (p.left, p.right) if side.split(".")[0] == stream.name})
        stream.distinct.update({name: max(1.0, held * rng.choice((0.01, 0.1, 1.0))) for name in names})
    step = random.Random(f"{seed} step").choice((0.0, 1e-6, 1e-4))
    return PlanRequest(query=query, costs=Costs(step=step), options=Options(time_limit=100.0))


def _orders(problem: Problem, blocks: tuple[int, ...]) -> list[list[tuple[int, ...]]]:
    """For each input every order without cross products."""
    graph = problem.model.graph
    found = []
    for k in range(len(blocks)):
        kept = []
        for order in permutations([t for t in range(len(blocks)) if t != k]):
            visited = blocks[k]
            for target in order:
                if not graph.around(visited) & blocks[target]:
                    break
                visited |= blocks[target]
            else:
                kept.append(order)
        found.append(kept)
    return found


def _join(problem: Problem, blocks: tuple[int, ...], mode: CacheMode, room: float = math.inf) -> float:
    """The least CPU of one join over all orders and all caches that may stand together; where memory is short, with shares of theirs as well."""
    model, attributes = problem.model, problem.attributes
    ways = _orders(problem, blocks)
    if math.prod(map(len, ways)) > MOST_ORDERS:
        raise TooManyOrdersError
    best = math.inf
    for orders in product(*ways):
        join = model.price_join(blocks, orders)
        best = min(best, join.cpu)
        if len(blocks) == 2:
            continue
        pipelines = Pipelines.of(join)
        closed = [streams_of(join, positions) for positions in prefix_sets(pipelines)]
        listed = []
        for k, reached in enumerate(pipelines.after):
            for first in range(len(blocks) - 2):
                for last in range(first + 1, len(blocks) - 1):
                    segment = reached[last + 1] & ~reached[first]
                    for kept in closed:
                        if segment & ~kept == 0 and (kept == segment or mode is not CacheMode.PREFIX):
                            made = candidate(model, attributes, pipelines, k, first, last, kept)
                            if made is not None and made.figures.benefit > 0.0:
                                listed.append(made)
        for made in list(listed):
            fits = room / made.figures.memory_bytes
            listed += [made.with_share(model, share) for share in (fits, fits / 2.0, 0.7, 0.3) if share < 1.0 and math.isfinite(room)]
        if listed:
            program, _ = program_of(pipelines, listed, room)
            found = branch_and_bound(program, Deadline.after(60.0), 100_000)
            assert found.optimal
            best = min(best, join.cpu - program.cost_without_caches + found.cost)
    return best


def least_of_every_plan(problem: Problem, mode: CacheMode = CacheMode.AUTO) -> float:
    """The least CPU over every tree, every order and every choice of caches."""
    neighbours = problem.model.graph.neighbours

    @cache
    def least(mask: int) -> float:
        if mask & (mask - 1) == 0:
            return 0.0
        return min(_join(problem, blocks, mode) + math.fsum(map(least, blocks)) for blocks in partitions(neighbours, mask))

    return least(problem.model.graph.all)


def least_within(problem: Problem, memory_bytes: float, mode: CacheMode = CacheMode.AUTO) -> float:
    """The same over plans within a memory cap, caches with some shares of their memory included, for graphs in which no tree has two wide joins."""
    model, neighbours = problem.model, problem.model.graph.neighbours

    def trees(mask: int) -> list[tuple[tuple[int, ...], ...]]:
        if mask & (mask - 1) == 0:
            return [()]
        found = []
        for blocks in partitions(neighbours, mask):
            found += [sum(below, (blocks,)) for below in product(*map(trees, blocks))]
        return found

    least = math.inf
    for joins in trees(model.graph.all):
        held = math.fsum([model.leaves_bytes(), *(model.state_bytes(sum(blocks)) for blocks in joins if sum(blocks) != model.graph.all)])
        if held <= memory_bytes:
            assert sum(len(blocks) > 2 for blocks in joins) <= 1
            least = min(least, math.fsum(_join(problem, blocks, mode, memory_bytes - held) for blocks in joins))
    return least


@pytest.mark.parametrize("mode", [CacheMode.AUTO, CacheMode.PREFIX])
def test_under_a_memory_cap_no_plan_beats_the_bound_and_most_are_proven(mode: CacheMode) -> None:
    proven, unlike = [], 0
    for seed in range(30):
        request = request_of(seed + 300).model_copy(update={"options": Options(time_limit=100.0, caches=mode)})
        free, bare = plan(request), plan(request.model_copy(update={"objective": Objective.MIN_MEMORY}))
        cap = bare.cost.memory_bytes + random.Random(seed).choice((0.02, 0.3, 0.8)) * (free.cost.memory_bytes - bare.cost.memory_bytes) + 1.0
        made = plan(request.model_copy(update={"resources": Resources(memory_bytes=cap)}))
        best = least_within(problem_of(request), cap, mode)
        assert made.qualified and made.bound is not None and made.bound <= best * (1.0 + 1e-9), seed
        if made.proof is Proof.OPTIMAL:
            assert made.cost.cpu <= best * (1.0 + 1e-9), seed
        proven.append(made.proof is Proof.OPTIMAL)
        unlike += made.cost.cpu > free.cost.cpu * (1.0 + 1e-6)
    assert sum(proven) >= 24 and unlike >= 10, (sum(proven), unlike)


@pytest.mark.parametrize("seed", range(40))
def test_the_best_plan_with_caches_is_found_and_proven(seed: int) -> None:
    request = request_of(seed)
    best = least_of_every_plan(problem_of(request))
    made = plan(request)
    assert made.cost.cpu == pytest.approx(best, rel=1e-9)
    assert made.proof is Proof.OPTIMAL and made.gap is not None and made.gap < 1e-9


def test_the_best_plan_of_five_streams_is_found_and_proven() -> None:
    """Where brute force can go through all orders: in chains, and a few other graphs."""
    met = 0
    for seed in range(400, 440):
        request = request_of(seed, (5,))
        try:
            best = least_of_every_plan(problem_of(request))
        except TooManyOrdersError:
            continue
        made = plan(request)
        assert made.cost.cpu == pytest.approx(best, rel=1e-9), seed
        assert made.proof is Proof.OPTIMAL, seed
        met += 1
    assert met >= 8


@pytest.mark.parametrize("seed", range(100, 110))
def test_the_best_plan_with_prefix_caches_alone(seed: int) -> None:
    request = request_of(seed).model_copy(update={"options": Options(time_limit=100.0, caches=CacheMode.PREFIX)})
    best = least_of_every_plan(problem_of(request), CacheMode.PREFIX)
    made = plan(request)
    assert made.cost.cpu == pytest.approx(best, rel=1e-9)
    assert made.proof is Proof.OPTIMAL and all(cache.kind == "prefix" for cache in made.caches)


def test_some_of_these_plans_have_caches_and_some_have_several() -> None:
    caches = [len(plan(request_of(seed)).caches) for seed in range(40)]
    assert sum(count > 0 for count in caches) >= 5 and max(caches) > 1


@pytest.mark.parametrize("seed", range(40))
def test_the_bound_of_all_plans_is_not_above_the_best(seed: int) -> None:
    """Larger graphs than brute force takes: the best plan is the one that is chosen together."""
    request = request_of(seed + 200, (5, 6))
    problem = problem_of(request)
    made = plan(request)
    bound = least_cpu_of_all(problem.model, problem.attributes, math.inf, Deadline.after(60.0))
    assert bound is not None and bound <= made.cost.cpu * (1.0 + 1e-12)


def test_a_plan_with_caches_keeps_the_memory_cap_and_its_bound_holds() -> None:
    for seed in range(40):
        request = request_of(seed)
        free = plan(request)
        if free.caches:
            short = plan(request.model_copy(update={"resources": Resources(memory_bytes=free.cost.memory_bytes * 0.999)}))
            assert not short.qualified or short.cost.memory_bytes < free.cost.memory_bytes
            assert short.bound is not None and short.bound <= short.cost.cpu
            assert free.cost.cpu <= short.cost.cpu * (1.0 + 1e-9)
            return
    raise AssertionError("no plan had a cache")

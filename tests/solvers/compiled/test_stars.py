"""Plans of stars over few sets of leaves, against exact search over all connected sets and the model's own prices."""

from __future__ import annotations

import math
import random
from itertools import combinations, product

import numpy as np
import pytest

from models.plan import Proof
from models.request import CacheMode, Comparison, Costs, Options, PlanRequest, Query
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.cost import Weights
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.stars import (
    CUT_OFF,
    ENDED,
    NO_LABELS,
    Growing,
    Leaves,
    chains_of_star,
    extend,
    gain,
    grow,
    into,
    join_room,
    keep_up,
    label,
    label_room,
    parts,
    spared,
    whole_cost,
)
from solvers.jtree.exact import exact
from solvers.jtree.search import Problem
from solvers.jtree.star import _floors, _leaves, best_of_star, least_of_star
from solvers.jtree.with_caches import key_classes
from solvers.model.point import Caps
from solvers.model.probe_order import best_join
from solvers.planner import plan, problem_of
from tests.graphs import random_costs, random_graph
from tests.solvers.caches.test_together import least_of_every_plan
from tests.solvers.compiled.cases import ints


def a_star(seed: int, least: int = 4, most: int = 9) -> Problem:
    """All by equalities, of leaves that a set grows by, and of leaves that make it so small that its probes are rare."""
    rng = random.Random(seed)
    query = random_graph(
        rng,
        rng.randint(least, most),
        "star",
        windows=rng.choice(((10.0, 60.0, 300.0), (1.0,), (0.1, 1.0))),
        tuple_bytes=rng.choice(((100.0,), (10.0, 100.0))),
        log_selectivity=rng.choice(((-3.0, -1.0), (-2.5, -2.0), (-4.0, -3.0))),
        rows=rng.choice((0.0, 0.0, 0.3)),
    )
    return problem_of(PlanRequest(query=by_equalities(query), costs=random_costs(rng)))


def by_equalities(query: Query) -> Query:
    equal = [predicate.model_copy(update={"op": Comparison.EQ}) for predicate in query.predicates]
    return query.model_copy(update={"predicates": equal})


def test_chains_of_star_have_the_best_of_all_join_trees_or_a_bound_of_it_within_caps_on_memory_too() -> None:
    proven = capped = 0
    for seed in range(150):
        problem = a_star(seed)
        model, cap = problem.model, math.inf
        for _ in range(2):
            best = exact(Problem(model, Caps(memory_bytes=cap)), Deadline.after(60)).best
            found = best_of_star(model, Deadline.after(60), cap)
            assert found is not None
            assert found.bound <= best.cpu * (1.0 + 1e-12)
            assert found.point.cpu >= best.cpu * (1.0 - 1e-12)
            assert found.point.memory_bytes <= cap * (1.0 + 1e-9)
            if found.proven:
                proven += 1
                capped += cap < math.inf
                assert found.point.cpu == pytest.approx(best.cpu, rel=2e-9)
            cap = model.leaves_bytes() + 0.5 * (best.memory_bytes - model.leaves_bytes())
    assert proven > 80 and capped > 30


def test_chains_of_star_told_to_stop_or_without_room_say_so() -> None:
    ledger = Ledger(a_star(3, 7, 7).model)
    _, star = _leaves(ledger, 0, False)
    limits = np.array([math.inf, math.inf])
    assert chains_of_star(star, label_room(6, 1000), limits, ints((1, 10**6))) == CUT_OFF
    assert chains_of_star(star, label_room(6, 1000), limits, ints((0, 10))) == CUT_OFF
    assert chains_of_star(star, label_room(6, 3), limits, ints((0, 10**6))) == NO_LABELS
    assert chains_of_star(star, label_room(6, 1000), limits, ints((0, 10**6))) == ENDED


def test_grow_and_whole_cost_and_join_room_have_the_price_of_the_model_and_floors_are_no_higher() -> None:
    for seed in range(300):
        model = a_star(seed, 6, 8).model
        graph, ledger = model.graph, Ledger(model)
        rng = random.Random(seed)
        leaves, star = _leaves(ledger, 0, True)
        inner = sorted(rng.sample(range(len(leaves)), rng.randint(0, 2)))
        outer = sorted(rng.sample([k for k in range(len(leaves)) if k not in inner], rng.randint(1, 3)))
        mask = 1 | sum(1 << leaves[k] for k in inner)
        blocks = [mask, *(1 << leaves[k] for k in outer)]
        size, pace = ledger.size(mask), model.per_second(mask)
        paid = sum(ledger.base * model.rate(block) for block in blocks) + model.costs.join * model.rate(sum(blocks))
        paid += 2 * len(outer) * model.costs.step
        wanted = best_join(model, blocks).cpu
        costs = []
        for own in (star, star._replace(floors=_floors(ledger, leaves, star))):
            growing = join_room(len(leaves))
            growing.figures[0] = 0.0, pace, 1.0, 0.0, model.tuple_bytes(mask)
            for m, leaf in enumerate(outer):
                grow(own, growing, m, leaf, size)
            figures = growing.figures[len(outer)]
            assert size * figures[2] == pytest.approx(ledger.size(sum(blocks)), rel=1e-9)
            assert figures[1] == pytest.approx(model.per_second(sum(blocks)), rel=1e-9)
            assert figures[4] == pytest.approx(sum(graph.tuple_bytes[i] for i in range(len(graph)) if sum(blocks) >> i & 1))
            costs.append(whole_cost(own, growing, len(outer), size, pace))
        assert costs[0] + paid == pytest.approx(wanted, rel=1e-9)
        assert costs[1] <= costs[0] * (1.0 + 1e-12)


def test_label_and_extend_and_label_room_keep_the_plans_that_no_other_beats() -> None:
    rng = random.Random(7)
    for _ in range(200):
        labels = label_room(2, 400)
        points = [(float(rng.randint(0, 9)), float(rng.randint(0, 9))) for _ in range(rng.randint(1, 20))]
        for cpu, held in points:
            assert label(labels, 1, cpu, held, -1)
        limits = np.array([12.0, 11.0])
        assert extend(labels, 1, 3, 5.0, 3.0, limits)
        for mask, more in ((1, (0.0, 0.0)), (3, (5.0, 3.0))):
            found, place = set(), int(labels.first[mask])
            while place >= 0:
                found.add((float(labels.cpu[place]), float(labels.bytes[place])))
                place = int(labels.following[place])
            moved = {(cpu + more[0], held + more[1]) for cpu, held in points}
            best = {one for one in moved if not any(other != one and other[0] <= one[0] and other[1] <= one[1] for other in moved)}
            assert found == (best if mask == 1 else {one for one in best if one[0] <= limits[0] and one[1] <= limits[1]})


def with_values(seed: int, most: int) -> PlanRequest:
    """A star whose values come often enough for caches to be of use, mostly."""
    rng = random.Random(seed)
    query = random_graph(
        rng,
        rng.randint(4, most),
        "star",
        windows=rng.choice(((1.0, 10.0, 60.0), (10.0,))),
        log_selectivity=rng.choice(((-3.0, -1.0), (-2.0, 0.0), (-1.5, 0.0))),
        rows=rng.choice((0.0, 0.3)),
        equalities=rng.choice((0.0, 0.5)),
    )
    query = by_equalities(query)
    for stream in query.streams:
        held = stream.rate * (stream.window.seconds or 1.0)
        names = sorted({side.split(".")[1] for p in query.predicates for side in (p.left, p.right) if side.split(".")[0] == stream.name})
        if rng.random() < 0.8:
            stream.distinct.update({name: max(1.0, held * rng.choice((0.01, 0.01, 0.1, 1.0))) for name in names})
    update = rng.choice((2e-7, 2e-8, 2e-9))
    costs = Costs(step=rng.choice((0.0, 1e-6, 1e-4)), probe=rng.choice((0.0, 1e-7)), insert=update, delete=update)
    return PlanRequest(query=query, costs=costs, options=Options(time_limit=100.0, caches=rng.choice((CacheMode.AUTO, CacheMode.GLOBAL))))


def least_with(problem: Problem, enough: float) -> float:
    keys = key_classes(problem.attributes, problem.model.costs.insert + problem.model.costs.delete)
    return least_of_star(problem.model, keys, enough, Deadline.after(60))


def test_no_plan_of_a_star_with_any_caches_in_any_orders_is_below_its_bound() -> None:
    reached = lower = 0
    for seed in range(250):
        problem = problem_of(with_values(seed, 4))
        best = least_of_every_plan(problem)
        for factor in (1.0, 1.5):
            bound = least_with(problem, best * factor)
            assert 0.0 < bound <= best * (1.0 + 1e-9), seed
        reached += bound >= best * (1.0 - 1e-9)
        lower += best < exact(problem, Deadline.after(60)).best.cpu * (1.0 - 1e-6)
    assert reached > 60 and lower > 20, (reached, lower)


def test_no_plan_of_a_larger_star_with_caches_that_were_chosen_together_is_below_its_bound() -> None:
    cached = 0
    for seed in range(1000, 1060):
        request = with_values(seed, 6)
        made = plan(request)
        assert 0.0 < least_with(problem_of(request), made.cost.cpu * 1.5) <= made.cost.cpu * (1.0 + 1e-9), seed
        cached += bool(made.caches)
    assert cached > 5


def test_stars_of_20_streams_are_proven_with_caches_allowed_where_none_can_pay() -> None:
    proofs = []
    for seed in range(300, 304):
        query = random_graph(random.Random(seed), 20, "star", rates=(1, 100), windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
        made = plan(PlanRequest(query=query))
        assert made.gap is not None and made.gap < 1e-5
        proofs.append(made.proof)
    assert proofs.count(Proof.OPTIMAL) >= 2


def a_join(rng: random.Random, m: int) -> tuple[Leaves, Growing, float]:
    """A join of a hub's set with m leaves, where caches are allowed."""
    growth = np.sort(np.array([rng.choice((0.3, 1.0, 4.0)) * rng.uniform(0.5, 2.0) for _ in range(m)]))
    star = Leaves(
        growth=growth,
        pace=np.array([rng.choice((0.01, 0.1)) for _ in range(m)]),
        tuples=np.full(m, 100.0),
        after=np.full(m, -1),
        floors=np.zeros(m + 1),
        bytes=np.zeros(m),
        hub=np.array([50.0, 0.05, 0.0]),
        misses=np.array([rng.choice((0.02, 0.3, 1.0)) for _ in range(m)]),
        update=rng.choice((0.1, 1.0)),
        weights=Weights(join=2.0, indexed=0.4, append=0.1, probe=0.0, scan=1.0, step=0.0),
        base=0.1,
    )
    growing = join_room(m)
    growing.figures[0, 1:4] = 0.05, 1.0, 0.0
    for leaf in range(m):
        grow(star, growing, leaf, leaf, 50.0)
    return star, growing, 50.0


def spared_by_any(star: Leaves, m: int, size: float) -> float:
    """By going through all choices of a run for each leaf's pipeline."""
    made = star.weights.join + star.weights.probe

    def way(k: int, run: tuple[int, ...]) -> float:
        after = [j for j in range(m) if j != k and j not in run]
        cost, at, miss = 0.0, size * star.growth[k], star.misses[k]
        for place, leaf in enumerate([*run, *after]):
            cost += star.pace[k] * made * at * (miss if place < len(run) else 1.0)
            at *= star.growth[leaf]
            if place + 1 == len(run):
                cost += miss * star.pace[k] * star.update * at
        return float(cost)

    def upkeep(run: frozenset[int]) -> float:
        around = (z for r in range(len(run), m + 1) for z in combinations(range(m), r) if run <= set(z))
        return min(float(star.update * size * np.prod(star.growth[list(z)]) * (0.05 + star.pace[list(z)].sum())) for z in around)

    runs = [[run for r in range(m) for run in combinations([j for j in range(m) if j != k], r)] for k in range(m)]
    taken = {frozenset(run): upkeep(frozenset(run)) for row in runs for run in row if run}
    ways = [[(way(k, ()) - way(k, run), frozenset(run)) for run in runs[k]] for k in range(m)]
    return max(sum(gained for gained, _ in choice) - sum(taken[run] for run in {run for _, run in choice if run}) for choice in product(*ways))


def test_gain_and_keep_up_and_parts_and_spared_are_no_less_than_what_any_choice_of_runs_spares() -> None:
    rng, more = random.Random(11), 0
    for _ in range(120):
        m = rng.choice((2, 3, 3, 4))
        star, growing, size = a_join(rng, m)
        every = gain(star, growing, m)
        keep_up(star, growing, m)
        for t in range(1, m):
            parts(growing, m, t)
            for users in combinations(range(m), m - t):
                assert sum(growing.pays[i] for i in users) <= max(growing.upkeep[i, t] for i in users) * (1.0 + 1e-9)
        at_most, best = spared(star, growing, m) * size, spared_by_any(star, m, size)
        assert -1e-9 <= best <= at_most * (1.0 + 1e-9) + 1e-9
        assert at_most <= every * size * (1.0 + 1e-9)
        more += best > 1e-6
    assert more > 30


def test_into_keeps_a_row_in_order() -> None:
    rng, row = random.Random(2), np.empty(30)
    values = [float(rng.randint(0, 9)) for _ in range(30)]
    for many, value in enumerate(values):
        into(row, many, value)
    assert row.tolist() == sorted(values)

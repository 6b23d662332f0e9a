"""Plans of stars over few sets of leaves, against exact search over all connected sets and the model's own prices."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from models.request import Comparison, PlanRequest, Query
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.stars import (
    CUT_OFF,
    ENDED,
    NO_LABELS,
    chains_of_star,
    extend,
    grow,
    join_room,
    label,
    label_room,
    whole_cost,
)
from solvers.jtree.exact import exact
from solvers.jtree.search import Problem
from solvers.jtree.star import _floors, _leaves, best_of_star
from solvers.model.point import Caps
from solvers.model.probe_order import best_join
from solvers.planner import problem_of
from tests.graphs import random_costs, random_graph
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

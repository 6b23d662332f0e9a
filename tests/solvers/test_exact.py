"""The exact search against every plan there is, and what it promises about caps, ties, deadlines and proofs."""

from __future__ import annotations

import json
import math
import os
import random
import subprocess
import sys
from itertools import permutations, product
from pathlib import Path

import pytest
from hypothesis import given, settings

import solvers.jtree.component
from models.plan import Proof
from models.request import Costs, Objective, PlanRequest, Query, Stream, Window
from solvers.common.deadline import Deadline
from solvers.jtree.bjtree import bjtree
from solvers.jtree.choice import objective_value
from solvers.jtree.exact import exact, frontier_search
from solvers.jtree.mjoin import mjoin
from solvers.jtree.search import Found, Problem, make_join, structure_key
from solvers.jtree.state_removal import state_removal
from solvers.jtree.state_selection import state_selection
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.point import Caps, Point, point_of
from solvers.model.sensitivity import headroom
from solvers.model.tree import Tree, joins, leaf_mask
from tests.graphs import SHAPES, queries, random_costs, random_graph
from tests.solvers.brute_force import Tried, every_plan, frontier

JOB = Path(__file__).parents[1] / "data" / "job"
CLOSE = 1e-9  # brute force sums in another order
LONG = 60.0  # seconds: a deadline that never strikes


def random_model(seed: int, most: int = 7) -> CostModel:
    """Any graph of 3 streams or more, any cost constants."""
    rng = random.Random(seed)
    n = rng.choice([n for n in (3, 4, 5, 5, 6, 6, 7) if n <= most])
    shapes = [shape for shape in SHAPES if n < 7 or shape != "clique"] if seed % 25 else ["clique"]
    query = random_graph(
        rng,
        n,
        rng.choice(shapes),
        windows=rng.choice(((1.0,), (0.1, 1.0, 10.0), (60.0,))),
        tuple_bytes=rng.choice(((100.0,), (10.0, 100.0, 1000.0))),
        log_selectivity=rng.choice((None, (-4.0, -1.0), (-2.0, 0.0))),
        rows=rng.choice((0.0, 0.4)),
        theta=rng.choice((0.0, 0.3)),
        observed=rng.choice((0.0, 0.0, 0.3, 1.0)),
        parts=rng.choice((1, 1, 1, 1, 2, 3)),
    )
    return CostModel(join_graph(query), random_costs(rng))


def below(a: float, b: float) -> bool:
    """a ≤ b, but for rounding."""
    return a <= b * (1.0 + CLOSE)


def assert_same_frontier(found: Found, plans: list[Tried]) -> None:
    wanted = frontier(plans)
    for plan in wanted:
        assert any(below(p.cpu, plan.cpu) and below(p.memory_bytes, plan.memory_bytes) for p in found.points), f"{plan} is missing"
    for point in found.points:
        assert any(below(plan.cpu, point.cpu) and below(plan.memory_bytes, point.memory_bytes) for plan in wanted), f"{point} is too good"
        beaten = [plan for plan in wanted if not below(point.cpu, plan.cpu) and not below(point.memory_bytes, plan.memory_bytes)]
        assert not beaten, f"{point} is beaten by {beaten[0]}"


def some_caps(rng: random.Random, plans: list[Tried]) -> Caps:
    """Caps near the frontier: loose, tight, between two steps, or too low for any plan."""
    steps = frontier(plans)
    cpu = rng.choice(steps).cpu * rng.choice((0.9, 1.0 + 1e-6, 1.1, 2.0))
    memory = rng.choice(steps).memory_bytes * rng.choice((0.99, 1.0 + 1e-6, 1.01, 1.5))
    return rng.choice((Caps(cpu=cpu), Caps(memory_bytes=memory), Caps(cpu, memory), Caps(cpu, memory)))


def assert_equals_brute_force(seed: int) -> None:
    assert_answers_are_brute_forces(seed, random_model(seed))


def assert_answers_are_brute_forces(seed: int, model: CostModel) -> None:
    """The whole frontier, the verdict under caps, the best plan by CPU and by memory, and what is lacking."""
    plans = every_plan(model)
    whole = frontier_search(Problem(model), Deadline.after(LONG))
    assert whole.proof is Proof.OPTIMAL
    assert_same_frontier(whole, plans)

    caps = some_caps(random.Random(seed), plans)
    within = [plan for plan in plans if plan.cpu <= caps.cpu and plan.memory_bytes <= caps.memory_bytes]
    for objective in (Objective.MIN_CPU, Objective.MIN_MEMORY):
        found = exact(Problem(model, caps, objective), Deadline.after(LONG))
        assert found.proof is Proof.OPTIMAL
        assert caps.admit(found.best) == bool(within), f"seed {seed}: wrong verdict under {caps}"
        if within:
            best = min(plan.cpu if objective is Objective.MIN_CPU else plan.memory_bytes for plan in within)
            assert math.isclose(objective_value(Problem(model, caps, objective), found.best), best, rel_tol=CLOSE), f"seed {seed}"
            continue
        assert found.lacking is not None
        assert math.isclose(found.lacking.min_cpu, min(plan.cpu for plan in plans), rel_tol=CLOSE)
        assert math.isclose(found.lacking.min_memory_bytes, min(plan.memory_bytes for plan in plans), rel_tol=CLOSE)
        at_memory = [plan.cpu for plan in plans if plan.memory_bytes <= caps.memory_bytes < math.inf]
        assert_matches(found.lacking.cpu_at_memory_cap, at_memory)
        assert_matches(found.lacking.memory_bytes_at_cpu_cap, [plan.memory_bytes for plan in plans if plan.cpu <= caps.cpu < math.inf])
        least_bad = min(max(plan.cpu / caps.cpu, plan.memory_bytes / caps.memory_bytes) for plan in plans)
        assert math.isclose(max(found.best.cpu / caps.cpu, found.best.memory_bytes / caps.memory_bytes), least_bad, rel_tol=CLOSE)


@pytest.mark.parametrize("chunk", range(20))
def test_exact_equals_brute_force(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if chunk % 2:
        monkeypatch.setattr(solvers.jtree.component, "TINY_SETS", 0)  # seeds, as larger graphs have them
    for seed in range(25 * chunk, 25 * chunk + 25):
        assert_equals_brute_force(seed)


def test_measured_joins_across_components_are_counted_at_the_root() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        n = rng.randint(3, 6)
        query = random_graph(rng, n, rng.choice(SHAPES), windows=(0.1, 1.0), parts=rng.randint(2, min(n, 5)), across=0.5, observed=0.2, shuffled=True)
        assert_answers_are_brute_forces(seed, CostModel(join_graph(query), random_costs(rng)))


def test_a_search_over_beams_first_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with large graphs: neighbours of seeds, then the least sets of each size, then all."""
    monkeypatch.setattr(solvers.jtree.component, "QUICK_STREAMS", 2)
    monkeypatch.setattr(solvers.jtree.component, "BEAMS", (1, 3))
    monkeypatch.setattr(solvers.jtree.component, "WORTH", 0)
    for seed in range(1000, 1060):
        assert_equals_brute_force(seed)


def assert_matches(answer: float | None, candidates: list[float]) -> None:
    if not candidates:
        assert answer is None
    else:
        assert answer is not None and math.isclose(answer, min(candidates), rel_tol=CLOSE)


def every_tree_and_order(model: CostModel, whole: int) -> list[Tree]:
    """All join trees of a connected set, with all probe orders that follow predicates. For four streams at most."""
    graph = model.graph
    trees: list[Tree] = [whole.bit_length() - 1] if whole & (whole - 1) == 0 else []
    for blocks in {plan.joins[-1] for plan in every_plan(model)} if whole == graph.all else _divisions(model, whole):
        pipelines = []
        for k in range(len(blocks)):
            orders = []
            for order in permutations([j for j in range(len(blocks)) if j != k]):
                visited, follows = blocks[k], True
                for j in order:
                    follows = follows and bool(graph.between(visited, blocks[j]))
                    visited |= blocks[j]
                if follows:
                    orders.append(order)
            pipelines.append(orders)
        for inputs in product(*(every_tree_and_order(model, block) for block in blocks)):
            trees += [make_join(inputs, orders) for orders in product(*pipelines)]
    return trees


def _divisions(model: CostModel, whole: int) -> set[tuple[int, ...]]:
    return {blocks for plan in every_plan(model) for blocks in plan.joins if sum(blocks) == whole}


@pytest.mark.parametrize("seed", range(60))
def test_max_headroom_equals_brute_force_over_trees_and_orders(seed: int) -> None:
    rng = random.Random(seed)
    query = random_graph(rng, rng.choice((3, 4)), rng.choice(SHAPES), windows=(1.0, 10.0), rows=rng.choice((0.0, 0.4)), log_selectivity=(-2.0, 0.0))
    # Dear indexes and cheap scans: then which of the two is better changes with the rates, and a plan's headroom must not follow.
    model = CostModel(join_graph(query), Costs(insert=rng.choice((1e-6, 1e-5)), scan=rng.choice((1e-7, 1e-9))))
    plans = every_plan(model)
    steps = frontier(plans)
    caps = Caps(steps[0].cpu * rng.choice((0.5, 1.5, 3.0)), steps[-1].memory_bytes * rng.choice((0.8, 1.2, 2.0)))
    wanted = max(headroom(model.price(tree), model, caps) or 0.0 for tree in every_tree_and_order(model, model.graph.all))
    found = exact(Problem(model, caps, Objective.MAX_HEADROOM), Deadline.after(LONG))
    if wanted >= 1.0:
        assert caps.admit(found.best)
        assert math.isclose(headroom(model.price(found.best.tree), model, caps) or 0.0, wanted, rel_tol=CLOSE)
        assert found.proof is Proof.OPTIMAL
    else:
        assert not caps.admit(found.best) and found.lacking is not None
        scale = found.lacking.rate_scale
        assert (scale or 0.0) >= wanted * (1.0 - CLOSE)
        if scale is not None:
            assert some_plan_fits(model, scale * (1.0 - CLOSE), caps) and not some_plan_fits(model, scale * (1.0 + CLOSE), caps)


def some_plan_fits(model: CostModel, scale: float, caps: Caps) -> bool:
    """Whether a plan made for these rates fits the caps."""
    return any(caps.admit(Point(plan.cpu, plan.memory_bytes, 0)) for plan in every_plan(CostModel(model.graph.scaled(scale), model.costs)))


@settings(max_examples=40, deadline=None)
@given(queries(2, 7))
def test_every_point_is_a_whole_plan_with_its_own_price(query: Query) -> None:
    model = CostModel(join_graph(query), Costs())
    for point in frontier_search(Problem(model), Deadline.after(LONG)).points:
        assert point == point_of(model, point.tree)
        assert leaf_mask(point.tree) == model.graph.all
        for node in joins(point.tree):
            assert [sorted(order) for order in node.orders] == [[j for j in range(len(node.inputs)) if j != k] for k in range(len(node.inputs))]


@settings(max_examples=25, deadline=None)
@given(queries(3, 9))
def test_exact_is_never_above_any_other_search(query: Query) -> None:
    model = CostModel(join_graph(query), Costs())
    best = exact(Problem(model), Deadline.after(LONG)).best.cpu
    for search in (mjoin, bjtree, state_removal, state_selection):
        assert below(best, search(Problem(model), Deadline.after(LONG)).best.cpu)


@pytest.mark.parametrize("seed", range(10))
def test_a_plan_exactly_at_its_caps_is_not_lost(seed: int) -> None:
    model = random_model(1000 + seed, most=6)
    for point in frontier_search(Problem(model), Deadline.after(LONG)).points[:20]:
        caps = Caps(point.cpu, point.memory_bytes)
        for objective in Objective:
            found = exact(Problem(model, caps, objective), Deadline.after(LONG))
            assert caps.admit(found.best), f"lost {point} for {objective}"


def test_ties_go_to_fewer_operators() -> None:
    """An observed result of nothing makes every plan above it cost the same."""
    query = random_graph(random.Random(3), 5, "clique").model_copy(deep=True)
    document = query.model_dump(mode="json")
    document["observed"] = [{"streams": [f"s{i}", f"s{j}"], "selectivity": 0.0} for i in range(5) for j in range(i)]
    model = CostModel(join_graph(Query.model_validate(document)), Costs(probe=0.0, scan=0.0, append=4e-7))
    found = exact(Problem(model), Deadline.after(LONG))
    assert structure_key(found.best.tree)[0] == 1


def test_same_problem_same_answer() -> None:
    for seed in range(5):
        query = random_graph(random.Random(seed), 10, "random")
        first, second = (frontier_search(Problem(CostModel(join_graph(query), Costs())), Deadline.after(LONG)) for _ in range(2))
        assert first == second


@pytest.mark.parametrize("seconds", [0.0, 0.01])
@pytest.mark.parametrize("objective", list(Objective))
def test_a_short_deadline_yields_a_plan_and_an_honest_bound(seconds: float, objective: Objective) -> None:
    for shape in ("clique", "random"):
        model = CostModel(join_graph(random_graph(random.Random(1), 13, shape)), Costs())
        least = mjoin(Problem(model), Deadline.after(LONG)).best
        for caps in (Caps(), Caps(least.cpu, least.memory_bytes * 1.0001), Caps(least.cpu * 1e-6, least.memory_bytes * 1.0001)):
            problem = Problem(model, caps, objective)
            found = exact(problem, Deadline.after(seconds))
            assert leaf_mask(found.best.tree) == model.graph.all
            if found.bound is not None and caps.admit(found.best):
                value = objective_value(problem, found.best)
                assert below(value, found.bound) if objective is Objective.MAX_HEADROOM else below(found.bound, value)
            if found.proof is Proof.NONE:
                assert found.bound is None
            assert_no_false_claim(problem, frontier_search(problem, Deadline.after(seconds)))


def assert_no_false_claim(problem: Problem, found: Found) -> None:
    """Against what is known of all plans: the relaxation, and a plan that keeps nothing."""
    model, caps = problem.model, problem.caps
    assert all(caps.admit(point) and point == point_of(model, point.tree) for point in found.points)
    mjoined = mjoin(Problem(model), Deadline.after(LONG)).best
    if found.proof is Proof.OPTIMAL:
        # All that is worth having: something as good as the mjoin is there whenever the mjoin fits, and nothing only where nothing does.
        assert not caps.admit(mjoined) or any(below(p.cpu, mjoined.cpu) and below(p.memory_bytes, mjoined.memory_bytes) for p in found.points)
    elif found.bound is None:
        assert found.proof is Proof.NONE
    elif problem.objective is not Objective.MAX_HEADROOM:
        value = mjoined.cpu if problem.objective is Objective.MIN_CPU else mjoined.memory_bytes
        assert below(found.bound, value)
        assert below(found.bound, objective_value(problem, found.best))


def test_one_stream_needs_no_join() -> None:
    query = Query(streams=[Stream(name="a", rate=1.0, window=Window(seconds=1.0))])
    found = exact(Problem(CostModel(join_graph(query), Costs()), Caps(1.0, 1e6)), Deadline.after(LONG))
    assert found.best.tree == 0 and found.proof is Proof.OPTIMAL


@pytest.mark.parametrize("path", sorted(JOB.glob("*.json")), ids=lambda path: path.stem)
def test_job_graphs_are_solved_under_a_memory_cap_half_way_down_their_frontier(path: Path) -> None:
    request = PlanRequest.model_validate(json.loads(path.read_text()))
    model = CostModel(join_graph(request.query), request.costs)
    points = frontier_search(Problem(model), Deadline.after(LONG)).points
    caps = Caps(memory_bytes=points[len(points) // 2].memory_bytes)
    found = exact(Problem(model, caps), Deadline.after(LONG))
    assert found.proof is Proof.OPTIMAL
    assert found.best.cpu == min(point.cpu for point in points if caps.admit(point))


def test_compiled_and_plain_python_agree() -> None:
    """The kernels without their compiler find the same plans, to the last bit."""
    script = (
        "import random\n"
        "from models.request import Costs\n"
        "from solvers.model.cost import CostModel\n"
        "from solvers.common.deadline import Deadline\n"
        "from solvers.jtree.exact import frontier_search\n"
        "from solvers.model.graph import join_graph\n"
        "from solvers.jtree.search import Problem\n"
        "from tests.graphs import random_graph\n"
        "for seed in range(4):\n"
        "    query = random_graph(random.Random(seed), 6, 'random', theta=0.2, observed=0.2 * (seed % 2))\n"
        "    print(frontier_search(Problem(CostModel(join_graph(query), Costs())), Deadline.after(60.0)).points)\n"
    )
    root = Path(__file__).parents[2]
    answers = [
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", script], cwd=root, env={**os.environ, **extra}, capture_output=True, text=True, check=True
        ).stdout
        for extra in ({}, {"NUMBA_DISABLE_JIT": "1"})
    ]
    assert answers[0] == answers[1] != ""

"""Plans with caches for tests: any orders and any caches that may stand together, whether they pay or not."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from models.plan import Plan, Proof
from models.request import PlanRequest
from solvers.caches.cached_plan import cached_plan
from solvers.caches.candidates import CacheCandidate, Pipelines, prefix_candidates, program_of
from solvers.caches.global_caches import global_candidates
from solvers.jtree.search import Found, Problem, make_join
from solvers.model.graph import bits
from solvers.model.point import point_of
from solvers.model.tree import Join, Tree
from solvers.plan.builder import build_plan
from solvers.plan.outcome import Outcome
from solvers.planner import problem_of
from tests.solvers.caches.interpreter import Arrival

__all__ = ["any_tree", "arrivals", "candidates_of", "plan_with_caches", "query"]

SHAPES = ("chain", "star", "one key", "cycle", "two keys")


def query(generator: random.Random, n: int, shape: str, rate: float = 20.0, seconds: float = 1.0, domain: int = 4) -> dict[str, Any]:
    """A query whose selectivities and distinct values are those of `arrivals` with the same domain."""
    edges = {
        "chain": [(i, i + 1) for i in range(n - 1)],
        "star": [(0, i) for i in range(1, n)],
        "one key": [(i, j) for i in range(n) for j in range(i + 1, n)],
        "cycle": [(i, (i + 1) % n) for i in range(n)] if n > 2 else [(0, 1)],
        "two keys": [(i, i + 1) for i in range(n - 1)],
    }[shape]
    predicates = []
    for a, b in edges:
        names = [("k", "k")] if shape == "one key" else [("k", "k"), ("l", "l")] if shape == "two keys" and a == 0 else [(f"e{a}{b}", f"e{a}{b}")]
        predicates += [{"left": f"s{a}.{x}", "right": f"s{b}.{y}", "selectivity": 1.0 / domain} for x, y in names]
    streams = [
        {"name": f"s{i}", "rate": rate * generator.choice((0.5, 1.0, 2.0)), "window": {"seconds": seconds * generator.choice((0.5, 1.0))}}
        for i in range(n)
    ]
    return {"streams": streams, "predicates": predicates}


def arrivals(generator: random.Random, request: PlanRequest, seconds: float, domain: int) -> list[Arrival]:
    """Tuples at the streams' rates, every attribute drawn from the domain."""
    attributes: dict[str, set[str]] = {stream.name: set() for stream in request.query.streams}
    for predicate in request.query.predicates:
        for side in (predicate.left, predicate.right):
            stream_name, attribute = side.split(".")
            attributes[stream_name].add(attribute)
    found = []
    for stream in request.query.streams:
        for _ in range(round(stream.rate * seconds)):
            found.append((generator.uniform(0.0, seconds), stream.name, {a: generator.randrange(domain) for a in sorted(attributes[stream.name])}))
    found.sort(key=lambda entry: entry[0])
    return [Arrival(name, time, values, number) for number, (time, name, values) in enumerate(found)]


def any_tree(problem: Problem, generator: random.Random, nested: bool = False) -> Tree:
    """An mjoin of all streams in any orders without cross products; `nested`: over a binary join of two of them."""
    graph = problem.model.graph
    inputs: list[Tree] = list(range(len(graph)))
    if nested and len(inputs) > 3:
        first = generator.choice(inputs)
        assert isinstance(first, int)
        second = generator.choice(list(bits(graph.neighbours[first])))
        inputs = [i for i in inputs if i not in (first, second)] + [make_join((first, second), ((1,), (0,)))]
    masks = [tree.mask if isinstance(tree, Join) else 1 << tree for tree in inputs]
    orders = []
    for k, mask in enumerate(masks):
        visited = mask
        order: list[int] = []
        while len(order) < len(masks) - 1:
            around = graph.around(visited)
            target = generator.choice([t for t in range(len(masks)) if t != k and t not in order and masks[t] & around])
            order.append(target)
            visited |= masks[target]
        orders.append(order)
    return make_join(inputs, orders)


def candidates_of(problem: Problem, tree: Tree, kind: str) -> tuple[Pipelines, list[CacheCandidate]]:
    """The candidates of a tree's root."""
    attributes = problem.attributes
    pipelines = Pipelines.of(problem.model.price(tree).joins[-1])
    generate = prefix_candidates if kind == "prefix" else global_candidates
    return pipelines, generate(problem.model, attributes, pipelines)


def plan_with_caches(request: PlanRequest, kind: str, generator: random.Random, nested: bool = False) -> Plan:
    """A plan in any orders with any caches that do not overlap or exclude each other."""
    problem = problem_of(request)
    tree = any_tree(problem, generator, nested)
    priced = problem.model.price(tree)
    pipelines, candidates = candidates_of(problem, tree, kind)
    program, _ = program_of(pipelines, candidates, math.inf)
    choice: tuple[int, ...] = ()
    for i in generator.sample(range(len(candidates)), len(candidates)):
        if program.feasible(grown := tuple(sorted((*choice, i)))) and generator.random() < 0.8:
            choice = grown
    point = point_of(problem.model, tree)
    found = Found(point, (point,), Proof.NONE, None, "plans of this shape")
    uses = [(len(priced.joins) - 1, candidates[i]) for i in choice]
    cached = cached_plan(problem.model, problem.attributes, priced, uses) if uses else None
    return build_plan(problem, Outcome(found, replace(found, best=cached.point) if cached else found, cached))

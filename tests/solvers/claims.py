"""What a plan and a frontier claim, held against brute force and against each other.

A trial draws a request (3 to 7 streams; caches off, prefix, global, auto; caps loose, tight, impossible; every objective), asks for its plan
and its frontier, and lists every claim that something contradicts: every join tree by brute force, plans with any caches in any
orders, the plans of other objectives and methods.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from models.plan import Frontier, Plan, Proof
from models.request import CacheMode, Method, Objective, Options, PlanRequest, Resources
from solvers.caches.candidates import Pipelines, prefix_candidates, program_of
from solvers.caches.global_caches import global_candidates
from solvers.caches.select.branch_and_bound import branch_and_bound
from solvers.common.deadline import Deadline
from solvers.frontier import frontier
from solvers.jtree.search import Problem, sorted_inputs
from solvers.jtree.shape import tree_of_shape
from solvers.jtree.tables.shapes import tree_asking
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.point import Caps
from solvers.model.sensitivity import headroom
from solvers.model.tree import Tree
from solvers.planner import plan, problem_of
from tests.graphs import SHAPES, random_costs, random_graph
from tests.solvers.brute_force import Tried, every_plan
from tests.solvers.brute_force import frontier as undominated
from tests.solvers.caches.plans import any_tree

__all__ = ["contradictions", "random_request"]

CLOSE = 1e-9
CACHED_TRIALS = 12  # plans with caches that are drawn for each request
HEADROOM_TRIALS = 20  # trees whose headroom is worked out for each request, beside those that no other beats


@dataclass(frozen=True, slots=True)
class _Figures:
    cpu: float
    memory_bytes: float
    headroom: float


def random_request(seed: int) -> PlanRequest:
    """One request; its caps lie around what its plans need."""
    rng = random.Random(seed)
    n = rng.choice((3, 3, 4, 4, 5, 5, 6, 7))
    shape = rng.choice(("chain", "star") if n == 7 else SHAPES)
    query = random_graph(
        rng,
        n,
        shape,
        windows=(1.0, 10.0, 60.0),
        log_selectivity=rng.choice(((-4.0, -1.0), (-2.0, 0.0), None)),
        rows=rng.choice((0.0, 0.3)),
        theta=rng.choice((0.0, 0.0, 0.3)),
        observed=rng.choice((0.0, 0.0, 0.3)),
        parts=rng.choice((1, 1, 1, 2)) if n > 3 else 1,
    )
    for stream in query.streams:
        if rng.random() < 0.5:
            held = stream.window.rows or stream.rate * (stream.window.seconds or 0.0)
            attributes = {side.split(".")[1] for p in query.predicates for side in (p.left, p.right) if side.split(".")[0] == stream.name}
            stream.distinct.update({name: max(1.0, held * rng.choice((0.02, 0.3, 1.0))) for name in sorted(attributes)})
    costs = random_costs(rng) if rng.random() < 0.5 else None
    options = Options(method=rng.choice((Method.AUTO, Method.AUTO, *Method)), caches=rng.choice(list(CacheMode)), time_limit=20.0)
    objective = rng.choice(list(Objective))
    if options.method is Method.CP_SAT and objective is Objective.MAX_HEADROOM:
        objective = Objective.MIN_CPU
    request = PlanRequest(query=query, objective=objective, options=options)
    if costs is not None:
        request = request.model_copy(update={"costs": costs})
    free = plan(request.model_copy(update={"options": Options(method=Method.MJOIN, caches=CacheMode.OFF), "objective": Objective.MIN_CPU}))
    tightness = rng.choice((0.5, 0.95, 1.05, 1.5, 4.0))
    caps = Resources(
        cpu=free.cost.cpu * tightness if rng.random() < 0.6 else None,
        memory_bytes=free.cost.memory_bytes * rng.choice((0.9, 1.0001, 1.2, 3.0)) if rng.random() < 0.6 else None,
    )
    if rng.random() < 0.25:  # of searches that are cut off what they claim holds as well
        options = options.model_copy(update={"time_limit": 1e-4})
    return request.model_copy(update={"resources": caps, "options": options})


def contradictions(request: PlanRequest) -> list[str]:
    """Every claim of the request's plan and frontier that is wrong."""
    problem = problem_of(request)
    trees = every_plan(problem.model)
    answer, along = plan(request), frontier(request)
    cached = list(_cached_plans(request, problem, random.Random(len(trees))))
    others = [
        plan(request.model_copy(update={"objective": other, "options": Options(caches=request.options.caches, time_limit=20.0)}))
        for other in Objective
    ]
    return [
        *_of_the_plan(request, problem, answer, trees, cached, along, others),
        *_of_the_frontier(problem, along, trees, cached, [answer, *others]),
        *(claim for point in along.points for claim in _of_gaps(point.plan)),
    ]


def _caps(problem: Problem) -> Caps:
    return Caps(problem.caps.cpu * (1 - CLOSE), problem.caps.memory_bytes * (1 - CLOSE))


def _cached_plans(request: PlanRequest, problem: Problem, rng: random.Random) -> Iterator[_Figures]:
    """Plans with the best caches for orders drawn at random, memory without end."""
    graph = problem.model.graph
    if request.options.caches is CacheMode.OFF or len(graph.components) > 1 or graph.tables:
        return
    attributes = Attributes.of(request.query, graph)
    generate = prefix_candidates if request.options.caches is CacheMode.PREFIX else global_candidates
    for trial in range(CACHED_TRIALS):
        tree = any_tree(problem, rng, nested=trial % 3 == 2)
        priced = problem.model.price(tree)
        pipelines = Pipelines.of(priced.joins[-1])
        candidates = [c for c in generate(problem.model, attributes, pipelines) if c.figures.benefit > 0.0]
        if not candidates:
            continue
        program, _ = program_of(pipelines, candidates, problem.caps.memory_bytes - priced.memory_bytes)
        chosen = branch_and_bound(program, Deadline.after(5.0), 200).choice
        groups = {program.candidates[i].group: 0.0 for i in chosen}
        for i in chosen:
            groups[program.candidates[i].group] = max(groups[program.candidates[i].group], program.candidates[i].memory_bytes)
        cpu = priced.cpu - program.cost_without_caches + program.cost(chosen)
        yield _Figures(cpu, priced.memory_bytes + math.fsum(groups.values()), math.nan)


def _of_the_plan(
    request: PlanRequest, problem: Problem, answer: Plan, trees: list[Tried], cached: list[_Figures], along: Frontier, others: list[Plan]
) -> Iterator[str]:
    within = _caps(problem)
    fitting = [tree for tree in trees if tree.cpu <= within.cpu and tree.memory_bytes <= within.memory_bytes]
    with_caches = [c for c in cached if c.cpu <= within.cpu and c.memory_bytes <= within.memory_bytes]
    by_plans = [p for p in (*others, *(point.plan for point in along.points)) if p.qualified]
    if answer.tree_proof is Proof.OPTIMAL and not answer.qualified and fitting:
        yield "says that no tree fits, and one does"
    if answer.proof is Proof.OPTIMAL and not answer.qualified and (fitting or with_caches or by_plans):
        yield "says that no plan fits, and one does"
    if (answer.proof is Proof.NONE) != (answer.bound is None) and request.objective is not Objective.MAX_HEADROOM:
        yield "has a bound without a proof, or a proof without a bound"
    yield from _of_the_tree(request, answer)
    yield from _of_gaps(answer)
    if request.objective is Objective.MAX_HEADROOM:
        yield from _of_headroom(problem, answer, fitting, by_plans)
        return
    by_cpu = request.objective is Objective.MIN_CPU
    value = answer.cost.cpu if by_cpu else answer.cost.memory_bytes
    tree_best = min((t.cpu if by_cpu else t.memory_bytes for t in fitting or trees), default=math.inf)
    cached_best = min((c.cpu if by_cpu else c.memory_bytes for c in (with_caches if answer.qualified else cached)), default=math.inf)
    plan_best = min((p.cost.cpu if by_cpu else p.cost.memory_bytes for p in by_plans), default=math.inf)
    best = min(tree_best, cached_best, plan_best)
    if answer.bound is not None and answer.bound > min(best, value) * (1 + CLOSE):
        yield f"bound {answer.bound} is above {min(best, value)}"
    if answer.tree_bound is not None and answer.tree_bound > tree_best * (1 + CLOSE):
        yield f"tree_bound {answer.tree_bound} is above {tree_best}"
    if answer.proof is Proof.OPTIMAL and answer.qualified and value > best * (1 + CLOSE):
        yield f"optimal at {value}, and there is {best}"
    if answer.tree_proof is Proof.OPTIMAL and answer.qualified and fitting and not answer.caches and value > tree_best * (1 + CLOSE):
        yield f"the best tree at {value}, and there is {tree_best}"


def _of_the_tree(request: PlanRequest, answer: Plan) -> Iterator[str]:
    """What holds for all plans holds for those without caches."""
    if answer.proof is Proof.OPTIMAL and not answer.caches and answer.tree_proof is not Proof.OPTIMAL:
        yield "is the best of all plans and not of those without caches"
    if answer.bound is not None and answer.tree_bound is None:
        yield "has a bound of all plans and none of those without caches"
    if answer.bound is not None and answer.tree_bound is not None:
        looser = answer.tree_bound > answer.bound if request.objective is Objective.MAX_HEADROOM else answer.tree_bound < answer.bound
        if looser and not math.isclose(answer.tree_bound, answer.bound, rel_tol=CLOSE):
            yield f"tree_bound {answer.tree_bound} is looser than that of all plans, {answer.bound}"


def _of_gaps(answer: Plan) -> Iterator[str]:
    """A gap below 1e-9 of a proven bound is `optimal`, and of nothing else (contract §3)."""
    if not answer.qualified:
        return
    if answer.gap is not None and (answer.gap < CLOSE) != (answer.proof is Proof.OPTIMAL):
        yield f"has a gap of {answer.gap} and is {answer.proof}"
    if answer.caches or answer.tree_bound is None:
        return
    values = {Objective.MIN_CPU: answer.cost.cpu, Objective.MIN_MEMORY: answer.cost.memory_bytes, Objective.MAX_HEADROOM: answer.headroom}
    value, high = values[answer.objective], answer.tree_bound
    gap = math.inf if value is None else abs(value - high) / max(value, high, 1e-300)
    if gap < CLOSE / 2 and answer.tree_proof is not Proof.OPTIMAL:
        yield f"is {answer.tree_proof} of trees, within {gap} of the bound"


def _tree(model: CostModel, tried: Tried) -> Tree:
    shape = {sum(blocks): sorted_inputs(blocks) for blocks in tried.joins}
    if not model.graph.tables:
        return tree_of_shape(model, shape)
    return tree_asking(model, shape, {whole: tuple(one for one in tried.asked if 1 << one[0] in inputs) for whole, inputs in shape.items()})


def _of_headroom(problem: Problem, answer: Plan, fitting: list[Tried], others: list[Plan]) -> Iterator[str]:
    """Held against plans, and against trees by brute force: those that no other beats, and some of the rest."""
    model = problem.model
    some = [*undominated(fitting), *random.Random(len(fitting)).sample(fitting, min(HEADROOM_TRIALS, len(fitting)))]
    rooms = [headroom(model.price(_tree(model, tried)), model, problem.caps) for tried in some]
    of_trees = max((math.inf if room is None else room for room in rooms), default=0.0)
    if answer.tree_bound is not None and of_trees > answer.tree_bound * (1 + CLOSE):
        yield f"headroom's tree_bound {answer.tree_bound} is below {of_trees}"
    best = max((of_trees, *(math.inf if p.headroom is None else p.headroom for p in others)))
    value = math.inf if answer.headroom is None else answer.headroom
    if answer.bound is not None and max(best, value) > answer.bound * (1 + CLOSE):
        yield f"headroom's bound {answer.bound} is below {max(best, value)}"
    if answer.proof is Proof.OPTIMAL and answer.qualified and best > value * (1 + CLOSE):
        yield f"most headroom {value}, and there is {best}"


def _of_the_frontier(problem: Problem, along: Frontier, trees: list[Tried], cached: list[_Figures], plans: list[Plan]) -> Iterator[str]:
    points = [(point.cpu, point.memory_bytes) for point in along.points]
    if points != sorted(points) or any(b[1] >= a[1] for a, b in pairwise(points)):
        yield "the frontier is no staircase"
    claims = [(along.tree_proof, "tree", [(t.cpu, t.memory_bytes) for t in trees])]
    figures = [(c.cpu, c.memory_bytes) for c in cached] + [(p.cost.cpu, p.cost.memory_bytes) for p in plans]
    claims.append((along.proof, "plan", claims[0][2] + figures))
    within = _caps(problem)
    for proof, what, others in claims:
        for cpu, memory in others:
            if proof is not Proof.OPTIMAL or cpu > within.cpu or memory > within.memory_bytes:
                continue
            if not any(p[0] <= cpu * (1 + CLOSE) and p[1] <= memory * (1 + CLOSE) for p in points):
                yield f"the frontier is proven, and no point is as good as a {what} of {cpu} CPU and {memory} bytes"
                break

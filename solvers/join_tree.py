"""The join-tree search on its own, without caches, allocation and the rest of a plan (contract §5, POST /v1/solvers/jtree)."""

from __future__ import annotations

import math

from models.jtree import JtreeAnswer, JtreeRequest
from models.plan import Cost
from models.request import Options, PlanRequest
from solvers.common.deadline import NOBODY, Deadline, Progress
from solvers.jtree.choice import objective_value
from solvers.jtree.search import Found, Problem
from solvers.plan.builder import gap_of, operators_of
from solvers.plan.outcome import settled
from solvers.plan.tables import tables_of
from solvers.planner import begin, problem_of, search

__all__ = ["answer_of", "plan_request", "solve_jtree"]


def solve_jtree(request: JtreeRequest, progress: Progress = NOBODY) -> JtreeAnswer:
    """The best join tree that the method finds."""
    deadline = Deadline.after(request.time_limit, progress)
    problem = problem_of(plan_request(request))
    begin(problem, progress)
    return answer_of(problem, search(problem, deadline))


def plan_request(request: JtreeRequest) -> PlanRequest:
    """The request for a plan whose tree this is."""
    options = Options(method=request.method, time_limit=request.time_limit, seed=request.seed)
    return PlanRequest(query=request.query, resources=request.resources, costs=request.costs, objective=request.objective, options=options)


def answer_of(problem: Problem, found: Found) -> JtreeAnswer:
    """What a search found, on the wire."""
    priced = problem.model.price(found.best.tree)
    value = objective_value(problem, found.best)
    found = settled(problem, found, value)
    return JtreeAnswer(
        operators=operators_of(problem, priced),
        tables=tables_of(problem.model, priced),
        cost=Cost(cpu=priced.cpu, memory_bytes=priced.memory_bytes, memory_tuples=priced.memory_tuples, output_rate=priced.output_rate),
        qualified=problem.caps.admit(found.best),
        value=value if math.isfinite(value) else None,
        proof=found.proof,
        bound=found.bound,
        gap=gap_of(problem, value, found.bound),
        termination=found.termination,
    )

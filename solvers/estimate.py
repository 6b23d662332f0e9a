"""What would *this* plan cost? A request and a plan's shape, priced (contract §3, POST /v1/estimates); its caches as well, where it has any."""

from __future__ import annotations

from collections.abc import Sequence

from models.fingerprint import fingerprint
from models.plan import EstimateRequest, Plan
from models.request import PlanRequest
from solvers.caches.given import cached_at, places_of
from solvers.common.deadline import Deadline
from solvers.jtree.given import tree_of
from solvers.jtree.search import Problem
from solvers.model.point import point_of
from solvers.model.ranges import check_range
from solvers.plan.builder import build_plan
from solvers.plan.outcome import allocated, of_shape, proven
from solvers.planner import problem_of

__all__ = ["answered_by", "estimate", "with_given_caches"]


def estimate(request: EstimateRequest) -> Plan:
    """The plan of the given shape with its figures. Nothing is searched, so nothing is proven."""
    problem = problem_of(request)
    check_range(problem.model)
    point = point_of(problem.model, tree_of(problem, request.operators, request.tables))
    deadline = Deadline.after(request.options.time_limit)
    outcome = allocated(problem, of_shape(point), deadline)
    return build_plan(problem, proven(problem, outcome, deadline))


def answered_by(plan: Plan, names: Sequence[str]) -> Problem:
    """The problem that a plan document answers, its streams in the order of `names`."""
    streams = {stream.name: stream for stream in plan.query.streams}
    tables = {table.name: table for table in plan.query.tables}
    listed = {"streams": [streams[name] for name in names if name in streams], "tables": [tables[name] for name in names if name in tables]}
    query = plan.query.model_copy(update=listed)
    return problem_of(PlanRequest(query=query, costs=plan.costs))


def with_given_caches(request: EstimateRequest, priced: Plan, given: Plan) -> Plan:
    """`priced` (the estimate of the plan's operators) with the caches of `given`. Raises ShapeError."""
    if not given.caches:
        return priced
    problem = problem_of(request)
    names = problem.model.graph.names
    places = places_of(given, answered_by(given, names))
    cached = cached_at(problem, problem.model.price(tree_of(problem, request.operators, request.tables)), places)
    caches, qualified = cached.caches(), problem.caps.admit(cached.point)
    return priced.model_copy(
        update={
            "cost": priced.cost.model_copy(update={"cpu": cached.total.cpu, "memory_bytes": cached.total.memory_bytes}),
            "caches": caches,
            "qualified": qualified,
            "fingerprint": fingerprint(names, priced.operators, caches, priced.tables),
            "allocation": None if qualified else priced.allocation,
            "shortfall": None if qualified else priced.shortfall,
            # These two were computed without caches and do not hold with them.
            "headroom": None,
            "validity": [],
        }
    )

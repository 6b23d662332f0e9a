"""Requests whose statistics have drifted, or only flicker."""

from __future__ import annotations

import random
from collections.abc import Callable

from models.plan import Plan
from models.replan import Replan, ReplanRequest
from models.request import Method, PlanRequest
from solvers.replan import replan
from tests.solvers.claims import random_request

__all__ = ["asked", "drifted", "moved", "noisy", "quick"]

TIME_LIMIT = 60.0  # far more than any case needs: no answer depends on how busy the machine is


def moved(request: PlanRequest, factor: Callable[[], float]) -> PlanRequest:
    """The request with every statistic times a factor of its own."""
    query = request.query
    streams = [
        stream.model_copy(
            update={"rate": stream.rate * factor(), "distinct": {name: max(1.0, count * factor()) for name, count in stream.distinct.items()}}
        )
        for stream in query.streams
    ]
    predicates = [p.model_copy(update={"selectivity": min(1.0, p.selectivity * factor()) if p.selectivity else None}) for p in query.predicates]
    observed = [entry.model_copy(update={"selectivity": min(1.0, entry.selectivity * factor())}) for entry in query.observed]
    return request.model_copy(update={"query": query.model_copy(update={"streams": streams, "predicates": predicates, "observed": observed})})


def noisy(request: PlanRequest, rng: random.Random, deviation: float = 0.03) -> PlanRequest:
    """The same streams measured again, with an error of this standard deviation."""
    return moved(request, lambda: max(0.5, rng.gauss(1.0, deviation)))


def drifted(request: PlanRequest, rng: random.Random, most: float = 10.0) -> PlanRequest:
    """About half of the statistics times up to `most`, or divided by it."""
    return moved(request, lambda: most ** rng.uniform(-1.0, 1.0) if rng.random() < 0.5 else 1.0)


def quick(seed: int) -> PlanRequest:
    """Any request of `claims`, with time enough, and by a search that ends by itself."""
    request = random_request(seed)
    method = Method.AUTO if request.options.method in (Method.ANYTIME, Method.CP_SAT) else request.options.method
    return request.model_copy(update={"options": request.options.model_copy(update={"time_limit": TIME_LIMIT, "method": method})})


def asked(running: Plan, request: PlanRequest, **more: object) -> Replan:
    """The answer for a running plan."""
    return replan(ReplanRequest.model_validate({"plan": running, "request": request, **more}))

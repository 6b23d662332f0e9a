"""What the service can be asked: one line per question.

To add one: a function `Request -> Answer` in solvers/, its two models in models/, and a line here. Routes, the
OpenAPI document, workers and metrics follow from it. Functions are named, not imported, so that only workers load
the solvers; whatever a function raises as WatersmeetError becomes a 422.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast

from models.allocation import AllocationAnswer, AllocationRequest
from models.base import Model
from models.caches import CacheSelection, CacheSelectionRequest
from models.check import CheckReport, CheckRequest
from models.cover import CoverAnswer, CoverRequest
from models.jtree import JtreeAnswer, JtreeRequest
from models.plan import Diff, DiffRequest, EstimateRequest, Frontier, Plan
from models.replan import Replan, ReplanRequest
from models.request import PlanRequest
from models.sql import SqlMeaning, SqlRequest
from models.window_join import WindowJoinAnswer, WindowJoinRequest

__all__ = ["ENDPOINTS", "Endpoint"]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """POST `path` with a `request`; the answer is `function(request)`."""

    path: str
    operation_id: str
    request: type[Model]
    answer: type[Model]
    function: str
    summary: str

    streams: bool = False
    """Whether it tells how its search is going to who asks for text/event-stream."""
    so_far: str = ""
    """Makes an answer of a search that outlives its time limit, for those that have one: `so_far(request, best)`."""

    def load(self) -> Callable[..., Model]:
        """The function itself; imports its module. One that may take long has a second parameter, `progress`."""
        return _loaded(self.function)

    def load_so_far(self) -> Callable[..., Model] | None:
        """The function `so_far`; it takes little time whatever the request, and `best` may be None."""
        return _loaded(self.so_far) if self.so_far else None


def _loaded(name: str) -> Callable[..., Model]:
    module, function = name.split(":")
    return cast(Callable[..., Model], getattr(import_module(module), function))


ENDPOINTS = (
    Endpoint(
        "/v1/plans",
        "plan",
        PlanRequest,
        Plan,
        "solvers.planner:plan",
        "Plan a join of streams",
        streams=True,
        so_far="solvers.so_far:plan_so_far",
    ),
    Endpoint(
        "/v1/frontiers",
        "frontier",
        PlanRequest,
        Frontier,
        "solvers.frontier:frontier",
        "Find every trade-off between CPU and memory",
        streams=True,
        so_far="solvers.so_far:frontier_so_far",
    ),
    Endpoint("/v1/requests", "request_from_sql", SqlRequest, SqlMeaning, "solvers.from_sql:from_sql", "Say what a SQL query means as a request"),
    Endpoint("/v1/estimates", "estimate", EstimateRequest, Plan, "solvers.estimate:estimate", "Price a plan of your own"),
    Endpoint("/v1/diffs", "diff", DiffRequest, Diff, "solvers.diff:diff", "Compare two plans"),
    Endpoint(
        "/v1/replans",
        "replan",
        ReplanRequest,
        Replan,
        "solvers.replan:replan",
        "Keep or change a plan that runs",
        so_far="solvers.so_far:replan_so_far",
    ),
    Endpoint(
        "/v1/checks",
        "check",
        CheckRequest,
        CheckReport,
        "solvers.check:check",
        "Plan anew and compare with approved plans",
        so_far="solvers.so_far:check_so_far",
    ),
    Endpoint(
        "/v1/solvers/jtree",
        "jtree",
        JtreeRequest,
        JtreeAnswer,
        "solvers.join_tree:solve_jtree",
        "Search for a join tree alone",
        so_far="solvers.so_far:jtree_so_far",
    ),
    Endpoint(
        "/v1/solvers/allocation",
        "allocation",
        AllocationRequest,
        AllocationAnswer,
        "solvers.allocation.solve:solve_allocation",
        "Share a short capacity out over input paths",
        so_far="solvers.so_far:allocation_so_far",
    ),
    Endpoint(
        "/v1/solvers/caches",
        "caches",
        CacheSelectionRequest,
        CacheSelection,
        "solvers.caches.solve:solve_caches",
        "Choose the caches of pipelines",
        so_far="solvers.so_far:caches_so_far",
    ),
    Endpoint(
        "/v1/solvers/cover",
        "cover",
        CoverRequest,
        CoverAnswer,
        "solvers.cover.solve:solve_cover",
        "Refresh every state at the least cost",
        so_far="solvers.so_far:cover_so_far",
    ),
    Endpoint(
        "/v1/solvers/window-join",
        "window_join",
        WindowJoinRequest,
        WindowJoinAnswer,
        "solvers.window_join.solve:solve_window_join",
        "Join two windows: algorithms, rates, memory",
    ),
)

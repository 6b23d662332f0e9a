"""Right requests to every endpoint, and what becomes of them when somebody has been at them."""

from __future__ import annotations

import json
import random
from functools import cache
from typing import Any

from app.service.endpoints import ENDPOINTS, Endpoint
from app.service.worker import Reply, respond
from models.request import Costs, PlanRequest
from solvers.planner import plan
from tests.app.serving import example

__all__ = ["BY_NAME", "EXAMPLES", "bodies", "check_reply", "doctored", "reply_to"]

BY_NAME = {endpoint.operation_id: endpoint for endpoint in ENDPOINTS}
EXAMPLES = (("auction", "auction"), ("star", "star"), ("fraud", "auction"), ("cycle", "cycle"), ("orders", "orders"))
TIME_LIMIT = 2.0
SQL = (
    "SELECT a.id, lower(b.note) AS n FROM bid b JOIN auction a ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 9 SECONDS WHERE b.x > 0"
)

# Both ends of what a double holds, what products of two and three of them just leave, and numbers that are none.
NUMBERS: tuple[float, ...] = (0, -1, 0.5, 1, 7, 2**31, 10**400, 5e-324, 1e-307, 1e-300, 1e-160, 1e-100, 1e100, 1e154, 1e200, 9e289, 1e290, 2e290)
NUMBERS += (1e300, 1e301, 3e301, 1e302, 3e302, 1e306, 1.7e308)
NAMES = ("orders", "bids", "join-1", "join-2", "", "a.b", "☃", "exact", "greedy", "discrete", "off", "global", "min_memory", "max_headroom", "mjoin")


@cache
def _made(name: str) -> str:
    return plan(PlanRequest.model_validate(example(name))).model_dump_json()


def _drifted(request: dict[str, Any]) -> dict[str, Any]:
    """The request with the rate of its first stream times 8, so that the plan for it is looked at again."""
    drifted: dict[str, Any] = json.loads(json.dumps(request))
    drifted["query"]["streams"][0]["rate"] *= 8
    return drifted


def bodies(name: str, other: str) -> dict[str, Any]:
    """A right request for each endpoint, by its operation."""
    request, mine, theirs = {**example(name), "costs": Costs().model_dump()}, json.loads(_made(name)), json.loads(_made(other))
    steps = [{"productivity": 2.0, "unit_cost": 1.0, "operator": "a"}, {"productivity": 0.5, "operator": "b"}]
    return {
        "plan": request,
        "frontier": json.loads(json.dumps(request)),
        "jtree": {key: request[key] for key in ("query", "resources") if key in request},
        "request_from_sql": {
            "sql": SQL,
            "dialect": "spark",
            "statistics": {
                "streams": {"b": {"rate": 900, "where_selectivity": 0.5, "event_time": "ts"}, "a": {"rate": 60, "distinct": {"id": 100}}},
                "predicates": [{"left": "b.auction", "right": "a.id", "selectivity": 0.001}],
                "observed": [{"streams": ["a", "b"], "selectivity": 0.001}],
                "resources": {"cpu": 1.0},
            },
        },
        "estimate": {**request, "operators": mine["operators"]},
        "diff": {"before": mine, "after": theirs},
        "replan": {"plan": mine, "request": _drifted(request), "measured": {"output_rate": 290.0, "cpu": 0.5, "memory_bytes": 1.3e8}, "horizon": 60},
        "check": {"cases": [{"name": "case", "request": request, "plan": mine}]},
        "allocation": {
            "capacity": 30,
            "model": "continuous",
            "paths": [
                {"name": "p", "resources": 2, "output": 3, "max_units": 5, "covers": {"s": 2.0}},
                {"name": "q", "rate": 10, "steps": steps},
            ],
            "states": [{"name": "s", "required": 4}],
        },
        "cover": {
            "states": [{"name": "s", "required": 10}, {"name": "t", "required": 4}],
            "paths": [{"name": "p", "cost": 15, "covers": {"s": 5}, "max_units": 9}, {"name": "q", "cost": 7, "covers": {"s": 1, "t": 2}}],
            "model": "discrete",
            "capacity": 100,
        },
        "caches": {
            "pipelines": [{"name": "R", "operator_costs": [0.1, 0.2, 0.3]}, {"name": "S", "operator_costs": [0.4, 0.1]}],
            "candidates": [
                {"id": "c1", "pipeline": "R", "first": 0, "last": 1, "group": "g", "proc": 0.05, "memory_bytes": 1000},
                {"id": "c2", "pipeline": "S", "first": 0, "last": 1, "group": "g", "proc": 0.1, "memory_bytes": 500},
            ],
            "groups": [{"id": "g", "update_cost": 0.02}],
            "memory_bytes": 2000,
        },
        "window_join": {
            "left": {"rate": 100, "window": {"seconds": 60}, "keys": 50},
            "right": {"rate": 20, "window": {"seconds": 30}, "keys": 50},
            "selectivity": 0.01,
            "costs": {"hash": 1e-6, "nested_loop": 1e-7},
            "service_rate": 100,
            "memory_tuples": 1000,
        },
    }


def doctored(generator: random.Random, document: Any, edits: int) -> Any:
    """The document with parts of it removed, moved, doubled or replaced by other parts."""
    for _ in range(edits):
        places: list[tuple[Any, Any]] = []
        waiting = [document]
        while waiting:
            item = waiting.pop()
            inside = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
            for key, value in inside:
                places.append((item, key))
                waiting.append(value)
        numbers = [(holder, key) for holder, key in places if isinstance(holder[key], (int, float)) and not isinstance(holder[key], bool)]
        if not places:
            return document
        (holder, key), (donor, other) = generator.choice(places), generator.choice(places)
        deed = generator.choice(["remove", "other", "number", "number", "number", "name", "null", "swap", "double"])
        if deed == "remove":
            del holder[key]
        elif deed == "other":
            holder[key] = json.loads(json.dumps(donor[other]))
        elif deed == "number":
            holder, key = generator.choice(numbers or places)
            holder[key] = generator.choice(NUMBERS)
        elif deed == "name":
            holder[key] = generator.choice(NAMES)
        elif deed == "null":
            holder[key] = None
        elif deed == "swap" and isinstance(holder, list):
            generator.shuffle(holder)
        elif deed == "double" and isinstance(holder, list):
            holder.append(json.loads(json.dumps(holder[key])))
    return document


def reply_to(endpoint: Endpoint, body: Any) -> Reply:
    """What a worker says to this body; raises what would be a 500."""
    return respond(endpoint, endpoint.load(), json.dumps(body).encode(), TIME_LIMIT, lambda *_: None)


def check_reply(endpoint: Endpoint, reply: Reply) -> None:
    """An answer, or every fault with its place."""
    assert reply.status in (200, 422)
    if reply.status == 422:
        problem = json.loads(reply.body)
        assert problem["errors"] and all(error["detail"] for error in problem["errors"])
    else:
        endpoint.answer.model_validate_json(reply.body)

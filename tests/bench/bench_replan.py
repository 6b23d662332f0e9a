"""Replans of 12 streams over HTTP against plans of the same streams, and how often noise changes a plan.

A plan is made for a query, its statistics drift, and a server is asked in turn for a plan of today's statistics and for a replan of the running
plan under them, so that both see the same machine. Aim: a replan takes at most twice the time of a plan. Then streams that do not drift
are measured 100 times with a standard error of 3 %, for random queries with and without caps and caches. Aim: at most one change.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections import Counter
from http.client import HTTPConnection
from typing import Any

from models.plan import Plan
from models.replan import Decision, ReplanRequest
from models.request import CacheMode, Method, Options, PlanRequest
from solvers.planner import plan
from solvers.replan import replan
from tests.bench.bench_http import server
from tests.graphs import SHAPES, random_graph
from tests.solvers.replanning.drifts import drifted, noisy, quick

STREAMS = 12
ROUNDS = 15
CASES = 4  # queries of each shape
REPLANS, QUERIES = 100, 25


def main() -> None:
    timing()
    stationary(int(sys.argv[1]) if len(sys.argv) > 1 else QUERIES)


def timing() -> None:
    """Medians by shape and by what the answers were."""
    with server() as connection:

        def asked(path: str, body: bytes) -> tuple[float, dict[str, Any]]:
            began = time.perf_counter()
            content = _post(connection, path, body)
            return time.perf_counter() - began, json.loads(content)

        print(f"{'shape':<10}{'plan ms':>9}{'replan ms':>11}{'ratio':>7}  answers")
        for shape in (*SHAPES, "mjoin"):
            plans, replans, answers = [], [], Counter[str]()
            for case in range(CASES):
                now, running = _case(shape, case)
                body = json.dumps({"plan": json.loads(running.model_dump_json()), "request": json.loads(now.model_dump_json())}).encode()
                for number in range(ROUNDS):
                    a, _ = asked("/v1/plans", now.model_dump_json().encode())
                    b, answer = asked("/v1/replans", body)
                    if number:  # the first of each warms up
                        plans.append(a)
                        replans.append(b)
                answers[answer["kind"]] += 1
            one, other = statistics.median(plans) * 1e3, statistics.median(replans) * 1e3
            said = ", ".join(f"{kind} {count}" for kind, count in sorted(answers.items()))
            print(f"{shape:<10}{one:>9.1f}{other:>11.1f}{other / one:>7.2f}  {said}", flush=True)


def _post(connection: HTTPConnection, path: str, body: bytes) -> bytes:
    connection.request("POST", path, body, {"Content-Type": "application/json"})
    response = connection.getresponse()
    content = response.read()
    assert response.status == 200, content
    return content


def _case(shape: str, case: int) -> tuple[PlanRequest, Plan]:
    """A request whose statistics have drifted, and the plan that runs; `mjoin`: one join of all streams in a cycle."""
    rng = random.Random(case)
    options = Options(time_limit=20, method=Method.MJOIN if shape == "mjoin" else Method.AUTO, caches=CacheMode.AUTO)
    query = random_graph(rng, STREAMS, "cycle" if shape == "mjoin" else shape, windows=(10.0, 60.0))
    request = PlanRequest(query=query, options=options)
    return drifted(request, rng, 5.0), plan(request)


def stationary(queries: int) -> None:
    """How many changes noise brings about."""
    changes: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    for seed in range(1000, 1000 + queries):
        rng, request = random.Random(seed), quick(seed)
        running = plan(noisy(request, rng))
        kinds["with an allocation" if running.allocation else "with caches" if running.caches else "plain"] += 1
        count = 0
        for _ in range(REPLANS):
            answer = replan(ReplanRequest(plan=running, request=noisy(request, rng)))
            count += answer.decision is Decision.CHANGE
            running = answer.plan
        changes[count] += 1
    had = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    print(f"{REPLANS} replans of {queries} stationary queries ({had}) with 3 % noise, queries by changes: {dict(sorted(changes.items()))}")


if __name__ == "__main__":
    main()

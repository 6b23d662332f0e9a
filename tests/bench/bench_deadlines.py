"""Do solves keep their time limit? `python -m tests.bench.bench_deadlines [--cpu-clock] [--limits 0.1,1]`

Every shape and method at 20 to 200 streams, without caps, with caps that bind and with caps that nothing fits, caches on: how long past its limit
each plan and frontier came back. Allowed are 20 % or 50 ms, whichever is more. `--cpu-clock` lets deadlines run on this process's CPU time,
for a machine that does other work as well.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Iterator

from models.request import CacheMode, Method, Objective, Options, PlanRequest, Predicate, Query, Resources
from solvers.common import deadline
from solvers.common.errors import WatersmeetError
from solvers.frontier import frontier
from solvers.jtree import shape as shapes
from solvers.jtree.warm import load_libraries, warm
from solvers.planner import plan
from tests.graphs import random_graph

SIZES = (20, 60, 100, 200)
SHAPES = ("chain", "star", "snowflake", "random", "clique")
METHODS = tuple(Method)
ALLOWED_SHARE, ALLOWED_SECONDS = 0.2, 0.05


class CpuClock:
    """This process's CPU time in the place of the monotonic clock."""

    monotonic = staticmethod(time.process_time)


def query_of(shape: str, n: int, seed: int) -> Query:
    rng = random.Random(seed)
    base = random_graph(rng, n, "chain" if shape == "snowflake" else shape, rates=(1, 100), windows=(10.0, 60.0, 300.0), log_selectivity=(-3.5, -2.0))
    if shape != "snowflake":
        return base
    arms = max(2, round(n**0.5))
    edges = [(0, i) if i <= arms else ((i - 1) % arms + 1, i) for i in range(1, n)]
    predicates = [Predicate(left=f"s{a}.x{b}", right=f"s{b}.x{a}", selectivity=10.0 ** rng.uniform(-3.5, -2.0)) for a, b in edges]
    return base.model_copy(update={"predicates": predicates})


def cases(limits: list[float], seed: int) -> Iterator[tuple[str, PlanRequest]]:
    for n in SIZES:
        for shape in SHAPES:
            query = query_of(shape, n, seed)
            try:
                usual = plan(PlanRequest(query=query, options=Options(method=Method.MJOIN, caches=CacheMode.OFF)))
            except WatersmeetError:
                continue  # its results are more than a double can count
            caps = {
                "no caps": Resources(),
                "caps": Resources(cpu=usual.cost.cpu * 0.5, memory_bytes=usual.cost.memory_bytes * 1.5),
                "nothing fits": Resources(cpu=usual.cost.cpu * 1e-3, memory_bytes=usual.cost.memory_bytes * 1.01),
            }
            for (said, resources), method, limit in ((c, m, t) for c in caps.items() for m in METHODS for t in limits):
                objective = random.Random(f"{n}{shape}{said}{method}").choice(list(Objective))
                options = Options(method=method, time_limit=limit)
                yield (
                    f"{shape} {n} {method.value} {said} {objective.value}",
                    PlanRequest(query=query, resources=resources, objective=objective, options=options),
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu-clock", action="store_true")
    parser.add_argument("--limits", default="0.1,1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--minutes", type=float, default=15.0)
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_clock else time.monotonic
    if arguments.cpu_clock:
        deadline.time = shapes.time = CpuClock  # type: ignore[assignment, attr-defined]
    warm()
    load_libraries()
    gc.disable()  # as in a worker: it looks for cycles between two answers
    over: list[tuple[float, str]] = []
    count, ends = 0, time.monotonic() + 60.0 * arguments.minutes
    for name, request in cases([float(limit) for limit in arguments.limits.split(",")], arguments.seed):
        if arguments.only not in name or time.monotonic() > ends:
            continue
        for ask in (plan, frontier):
            gc.collect()
            began = clock()
            try:
                ask(request)
            except WatersmeetError:
                continue  # cp_sat knows no headroom
            took, limit = clock() - began, request.options.time_limit
            count += 1
            if took > max(limit * (1.0 + ALLOWED_SHARE), limit + ALLOWED_SECONDS):
                over.append((took - limit, f"{ask.__name__} {name} limit {limit:g}: {took:.2f} s"))
                print(over[-1][1], flush=True)
    print(f"{len(over)} of {count} later than allowed; the worst:")
    for _, line in sorted(over, reverse=True)[:10]:
        print(" ", line)


if __name__ == "__main__":
    main()

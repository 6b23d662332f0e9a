"""How far from proven are plans of middle-sized and large graphs? `python -m tests.bench.bench_gaps [--limits 1,10] [--graphs 5] [--cpu-clock]`

Stars and snowflakes of 20 streams, random graphs of 24 to 60, and every shape of 100 and 200: the gap between the plan and its bound, in the median
and at worst, how many are proven, and how long they took. Both without caches, where the gap is that of the tree, and with caches allowed, as
requests have it where they do not say. `--kept 0.5` puts a cap on memory that leaves this share of what the plan without one keeps beyond the
windows. Aims: random graphs of 24 to 60 streams 5 % in the median and 20 % at worst with 1 s, 2 % and 10 % with 10 s; 100 and 200 streams 5 % in the
median with 1 s; stars and snowflakes of 20 proven with 1 s.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator

from models.plan import Proof
from models.request import CacheMode, Options, PlanRequest, Resources
from solvers.common import deadline
from solvers.common.errors import WatersmeetError
from solvers.jtree import shape as shapes
from solvers.jtree.warm import load_libraries, warm
from solvers.planner import plan, problem_of
from tests.bench.bench_deadlines import SHAPES, CpuClock, query_of

MIDDLE, LARGE = (24, 26, 30, 40, 50, 60), (100, 200)


def cells() -> Iterator[tuple[str, int]]:
    yield from ((shape, 20) for shape in ("star", "snowflake"))
    yield from (("random", n) for n in MIDDLE)
    yield from ((shape, n) for n in LARGE for shape in SHAPES)


def capped(request: PlanRequest, share: float) -> PlanRequest:
    """The same under a cap on memory."""
    usual = plan(request).cost.memory_bytes
    windows = problem_of(request).model.leaves_bytes()
    return request.model_copy(update={"resources": Resources(memory_bytes=windows + share * (usual - windows))})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limits", default="1")
    parser.add_argument("--graphs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=100)
    parser.add_argument("--only", default="")
    parser.add_argument("--kept", type=float)
    parser.add_argument("--cpu-clock", action="store_true")
    arguments = parser.parse_args()
    clock = time.process_time if arguments.cpu_clock else time.monotonic
    if arguments.cpu_clock:
        deadline.time = shapes.time = CpuClock  # type: ignore[assignment, attr-defined]
    warm()
    load_libraries()
    for limit in (float(text) for text in arguments.limits.split(",")):
        for shape, n in cells():
            name = f"{shape} {n}"
            if arguments.only not in name:
                continue
            for mode in (CacheMode.OFF, CacheMode.AUTO):
                gaps, seconds, proven = [], [], 0
                for seed in range(arguments.seed, arguments.seed + arguments.graphs):
                    request = PlanRequest(query=query_of(shape, n, seed), options=Options(time_limit=limit, caches=mode))
                    try:
                        request = request if arguments.kept is None else capped(request, arguments.kept)
                        began = clock()
                        made = plan(request)
                    except WatersmeetError:
                        continue  # its results are more than a double can count
                    seconds.append(clock() - began)
                    gaps.append(1.0 if made.gap is None else made.gap)
                    proven += made.proof is Proof.OPTIMAL
                if gaps:
                    said = f"gap {statistics.median(gaps):8.3%} in the median, {max(gaps):8.3%} at worst, {proven} of {len(gaps)} proven"
                    took = f"{statistics.median(seconds):.2f} s, at most {max(seconds):.2f}"
                    print(f"{name:14} caches {mode.value:4} limit {limit:g}: {said}; {took}", flush=True)


if __name__ == "__main__":
    main()

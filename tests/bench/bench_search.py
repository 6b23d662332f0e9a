"""How long the exact search takes, beside JTree-Finder, DuckDB's planner and the prototype it grew from.

`python -m tests.bench.bench_search` prints the tables for both of the prototype's settings (paper 3's selectivities, uniform in (0, 1),
and log-uniform ones in 1e-4..1e-1); `--quick` stops at 12 streams with three graphs each. CPU time of one thread, second run of a graph.

* frontier and capped: the search itself, from the join graph to the figures of every plan asked for, as the prototype's times are: the
  whole frontier, and least CPU under a memory cap a third of the way from the mjoin's memory to the best binary tree's;
* nothing fits: the proof of that, under the same memory cap and a CPU cap that leaves 99 % of the best plan's excess over what every plan pays;
* plan: what `solvers.planner.plan` takes for the capped request without caches, plan document included; `bench_http` has them;
* JTree-Finder: its time for all plans, over the frontier's; compiled over the same tables;
* DuckDB: the plan's time over that of its EXPLAIN of the same join.

The prototype's windows are not known. Ours are of 10 s; `--window` sets others.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import duckdb

from models.request import CacheMode, Costs, Method, Options, PlanRequest, Query, Resources
from solvers.common.deadline import Deadline
from solvers.jtree.compiled.binary_tree import best_binary_tree
from solvers.jtree.compiled.questions import FRONTIER, LEAST_CPU
from solvers.jtree.exact import exact
from solvers.jtree.parts import Solver
from solvers.jtree.search import Problem
from solvers.jtree.table_sizes import MAX_SETS
from solvers.jtree.warm import warm
from solvers.model.cost import CostModel
from solvers.model.graph import JoinGraph, join_graph
from solvers.model.point import Caps, point_of
from solvers.planner import plan
from tests.bench.jtree_finder import jtree_finder
from tests.graphs import random_graph

__all__ = ["main"]

T = TypeVar("T")

# The prototype's medians in ms, by setting, shape, degree, streams: whole frontier, least CPU under a memory cap.
PROTOTYPE: dict[tuple[str, str, float, int], tuple[float | None, float | None]] = {
    ("paper", "chain", 2.0, 8): (0.13, 0.05),
    ("paper", "chain", 2.0, 12): (0.8, 0.5),
    ("paper", "chain", 2.0, 16): (14.0, 5.0),
    ("paper", "chain", 2.0, 20): (273.0, 55.0),
    ("paper", "random", 2.5, 8): (0.35, 0.11),
    ("paper", "random", 2.5, 12): (3.7, 1.1),
    ("paper", "random", 2.5, 16): (87.0, 16.0),
    ("paper", "random", 2.5, 20): (6500.0, 222.0),
    ("paper", "random", 3.0, 8): (None, 0.17),
    ("paper", "random", 3.0, 12): (9.5, 1.7),
    ("paper", "random", 3.0, 16): (579.0, 70.0),
    ("paper", "random", 3.0, 20): (None, 1047.0),
    ("paper", "clique", 0.0, 8): (0.5, 0.2),
    ("paper", "clique", 0.0, 12): (8.0, 3.7),
    ("paper", "clique", 0.0, 14): (None, None),
    ("paper", "clique", 0.0, 16): (823.0, 179.0),
    ("log", "chain", 2.0, 8): (0.13, 0.05),
    ("log", "chain", 2.0, 10): (None, None),
    ("log", "chain", 2.0, 12): (0.8, 0.5),
    ("log", "chain", 2.0, 16): (14.0, 5.0),
    ("log", "chain", 2.0, 20): (273.0, 55.0),
    ("log", "random", 2.5, 8): (0.22, 0.15),
    ("log", "random", 2.5, 10): (None, None),
    ("log", "random", 2.5, 12): (3.8, 1.1),
    ("log", "random", 2.5, 16): (34.0, 10.0),
    ("log", "random", 2.5, 20): (1000.0, 346.0),
    ("log", "random", 3.0, 8): (None, 0.17),
    ("log", "random", 3.0, 10): (None, None),
    ("log", "random", 3.0, 12): (7.9, 1.7),
    ("log", "random", 3.0, 16): (170.0, 29.0),
    ("log", "random", 3.0, 20): (7100.0, 1047.0),
    ("log", "star", 0.0, 8): (None, None),
    ("log", "star", 0.0, 10): (None, None),
    ("log", "clique", 0.0, 8): (0.7, 0.3),
    ("log", "clique", 0.0, 9): (None, None),
    ("log", "clique", 0.0, 12): (91.0, 15.0),
    ("log", "clique", 0.0, 14): (None, None),
    ("log", "clique", 0.0, 16): (None, 2333.0),
}
# And for the proof that nothing fits, random graphs of degree 2.5.
PROVING: dict[tuple[str, int], float] = {
    ("paper", 8): 0.09,
    ("paper", 12): 0.8,
    ("paper", 16): 13.0,
    ("paper", 20): 198.0,
    ("log", 8): 0.12,
    ("log", 12): 1.0,
    ("log", 16): 10.0,
    ("log", 20): 355.0,
}
SELECTIVITIES: dict[str, tuple[float, float] | None] = {"paper": None, "log": (-4.0, -1.0)}
BELOW = 0.99  # of the best plan's excess: a CPU cap that nothing keeps
TIGHT = 0.3  # the memory cap lies this far up from the plain mjoin to the best binary tree
LIMIT = 10.0  # seconds per search
REQUESTS = 50  # that a process has answered before it counts as warm: the interpreter, too, is faster at what it has seen before
FINDER_STREAMS = 10  # beyond, JTree-Finder's plans number billions


def timed(call: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """The answer, and the milliseconds of CPU it took."""
    start = time.thread_time()
    answer = call(*arguments)
    return answer, (time.thread_time() - start) * 1e3


def duckdb_milliseconds(query: Query) -> float:
    """EXPLAIN of the same join in DuckDB, on empty tables."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    columns: dict[str, list[str]] = {stream.name: [] for stream in query.streams}
    for predicate in query.predicates:
        for side in (predicate.left, predicate.right):
            stream, column = side.split(".")
            columns[stream].append(column)
    for name, names in columns.items():
        connection.execute(f"CREATE TABLE {name} ({', '.join(f'{column} BIGINT' for column in sorted(set(names)))})")
    where = " AND ".join(f"{predicate.left} {predicate.op.value} {predicate.right}" for predicate in query.predicates)
    text = f"EXPLAIN SELECT count(*) FROM {', '.join(columns)} WHERE {where}"
    connection.execute(text).fetchall()
    start = time.perf_counter()
    connection.execute(text).fetchall()
    return (time.perf_counter() - start) * 1e3


def searched(graph: JoinGraph, caps: Caps, goal: int) -> bool:
    """The search without the plans' documents: tables, seeds and kernel. Whether it ended."""
    solver = Solver(CostModel(graph, Costs()), MAX_SETS)
    (part,) = solver.parts
    assert part is not None
    return part.search(solver.limits(caps, goal), Deadline.after(LIMIT)).complete


def beyond(model: CostModel, caps: Caps) -> Caps:
    """The same memory cap with a CPU cap just too low for any plan."""
    best = exact(Problem(model, caps), Deadline.after(LIMIT)).best
    pays = Solver(model, MAX_SETS).pays
    return Caps(pays + BELOW * (best.cpu - pays), caps.memory_bytes)


def second(call: Callable[..., T], *arguments: object) -> tuple[T, float]:
    """The answer of a second run and its milliseconds; a run of over a second is not repeated."""
    answer, taken = timed(call, *arguments)
    return timed(call, *arguments) if taken < 1e3 else (answer, taken)


def spread(times: list[float]) -> str:
    return f"{statistics.median(times):.2f} ({max(times):.1f})" if max(times) < 100 else f"{statistics.median(times):.0f} ({max(times):.0f})"


def against(times: list[float], prototype: float | None) -> str:
    return f"{statistics.median(times) / prototype:.1f}" if prototype else ""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="up to 12 streams, three graphs each")
    parser.add_argument("--setting", choices=sorted(SELECTIVITIES), help="one setting only")
    parser.add_argument("--window", type=float, default=10.0, help="seconds of every window")
    options = parser.parse_args(arguments)
    warm()
    first = join_graph(random_graph(random.Random(-1), 8, "chain"))
    for _ in range(REQUESTS):
        searched(first, Caps(), FRONTIER)
    jtree_finder(CostModel(join_graph(random_graph(random.Random(0), 4, "chain")), Costs()), Caps())
    print("median (worst) ms of CPU; × is the ratio of medians to the prototype's")
    print("| setting | shape | degree | n | frontier | × | capped | × | nothing fits | × | plan | × DuckDB | JTree-Finder × | proven |")
    print("|" + "---|" * 14)
    for (setting, shape, degree, n), (prototype_a, prototype_b) in PROTOTYPE.items():
        if (options.quick and n > 12) or (options.setting and setting != options.setting):
            continue
        whole, capped, nothing, planned, peers, finders, proven = [], [], [], [], [], [], 0
        repetitions = 3 if options.quick else 9 if n < 16 else 5
        for seed in range(repetitions):
            query = random_graph(random.Random(seed), n, shape, degree=degree, windows=(options.window,), log_selectivity=SELECTIVITIES[setting])
            graph = join_graph(query)
            model = CostModel(graph, Costs())
            tree = best_binary_tree(model, model.graph.all)
            assert tree is not None
            least = model.leaves_bytes()
            caps = Caps(memory_bytes=least + TIGHT * (point_of(model, tree).memory_bytes - least))
            limit = Options(method=Method.EXACT, time_limit=LIMIT, caches=CacheMode.OFF)
            request = PlanRequest(query=query, resources=Resources(memory_bytes=caps.memory_bytes), options=limit)
            frontier, taken = second(searched, graph, Caps(), FRONTIER)
            whole.append(taken)
            best, taken = second(searched, graph, caps, LEAST_CPU)
            capped.append(taken)
            none, taken = second(searched, graph, beyond(model, caps), LEAST_CPU)
            nothing.append(taken)
            proven += frontier and best and none
            planned.append(second(plan, request)[1])
            peers.append(duckdb_milliseconds(query))
            if n <= FINDER_STREAMS:
                finders.append(timed(jtree_finder, model, Caps())[1] / whole[-1])
        cells = [setting, shape, degree, n, spread(whole), against(whole, prototype_a), spread(capped), against(capped, prototype_b)]
        cells += [
            spread(nothing),
            against(nothing, PROVING.get((setting, n)) if degree == 2.5 else None),
            spread(planned),
            f"{statistics.median(planned) / statistics.median(peers):.1f}",
            f"{statistics.median(finders):.0f}" if finders else "",
            f"{proven}/{repetitions}",
        ]
        print("| " + " | ".join(map(str, cells)) + " |", flush=True)


if __name__ == "__main__":
    main()

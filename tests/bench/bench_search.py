"""How long the exact search takes, beside JTree-Finder, DuckDB's planner and the prototype it grew from.

`python -m tests.bench.bench_search` prints the table; `--quick` stops at 12 streams with three graphs each.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable
from typing import TypeVar

import duckdb

from models.plan import Proof
from models.request import Costs, Query
from solvers.cost import CostModel
from solvers.deadline import Deadline
from solvers.exact import exact, frontier_search
from solvers.graph import join_graph
from solvers.kernels import best_binary_tree
from solvers.search import Caps, Problem, point_of
from solvers.warm import warm
from tests.bench.jtree_finder import jtree_finder
from tests.graphs import random_graph

__all__ = ["main"]

T = TypeVar("T")

# The prototype's medians in ms: whole frontier, least CPU under a memory cap; selectivities log-uniform in 1e-4..1e-1.
PROTOTYPE: dict[tuple[str, float, int], tuple[float | None, float | None]] = {
    ("chain", 2.0, 6): (None, None),
    ("random", 2.5, 6): (None, None),
    ("clique", 0.0, 6): (None, None),
    ("chain", 2.0, 8): (0.13, 0.05),
    ("chain", 2.0, 12): (0.8, 0.5),
    ("chain", 2.0, 16): (14.0, 5.0),
    ("chain", 2.0, 20): (273.0, 55.0),
    ("random", 2.5, 8): (0.22, 0.15),
    ("random", 2.5, 12): (3.8, 1.1),
    ("random", 2.5, 16): (34.0, 10.0),
    ("random", 2.5, 20): (1000.0, 346.0),
    ("random", 3.0, 8): (None, 0.17),
    ("random", 3.0, 12): (7.9, 1.7),
    ("random", 3.0, 16): (170.0, 29.0),
    ("random", 3.0, 20): (7100.0, 1047.0),
    ("clique", 0.0, 8): (0.7, 0.3),
    ("clique", 0.0, 12): (91.0, 15.0),
    ("clique", 0.0, 14): (None, None),
}
TIGHT = 0.3  # the memory cap lies this far up from the plain mjoin to the best binary tree
LIMIT = 10.0  # seconds per search
FINDER_STREAMS = 6  # JTree-Finder in Python beyond this takes minutes


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


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 12 streams, three graphs each")
    parser.add_argument("--window", type=float, default=10.0, help="seconds of every window")
    options = parser.parse_args(arguments)
    warm()
    head = f"{'shape':8} {'deg':>4} {'n':>3}  {'frontier ms':>16} {'×proto':>7}  {'capped ms':>16} {'×proto':>7}"
    print(head, f" {'DuckDB ms':>9} {'JTree-Finder ×':>14}  proven")
    for (shape, degree, n), (prototype_a, prototype_b) in PROTOTYPE.items():
        if options.quick and n > 12:
            continue
        whole, capped, peers, finders, proven = [], [], [], [], 0
        repetitions = 3 if options.quick else 9 if n < 16 else 5
        for seed in range(repetitions):
            query = random_graph(random.Random(seed), n, shape, degree=degree, windows=(options.window,))
            model = CostModel(join_graph(query), Costs())
            tree = best_binary_tree(model, model.graph.all)
            assert tree is not None
            least = model.leaves_bytes()
            caps = Caps(memory_bytes=least + TIGHT * (point_of(model, tree).memory_bytes - least))
            frontier, taken = timed(frontier_search, Problem(model), Deadline.after(LIMIT))
            whole.append(taken)
            best, taken = timed(exact, Problem(model, caps), Deadline.after(LIMIT))
            capped.append(taken)
            proven += frontier.proof is best.proof is Proof.OPTIMAL
            peers.append(duckdb_milliseconds(query))
            if n <= FINDER_STREAMS:
                finders.append(timed(jtree_finder, model, Caps())[1] / whole[-1])
        a, b = statistics.median(whole), statistics.median(capped)
        ratio_a = f"{a / prototype_a:7.1f}" if prototype_a else f"{'':7}"
        ratio_b = f"{b / prototype_b:7.1f}" if prototype_b else f"{'':7}"
        finder = f"{statistics.median(finders):14.0f}" if finders else f"{'':14}"
        spread_a, spread_b = f"{a:.1f} ({max(whole):.0f})", f"{b:.1f} ({max(capped):.0f})"
        row = f"{shape:8} {degree:4} {n:3}  {spread_a:>16} {ratio_a}  {spread_b:>16} {ratio_b}"
        print(row, f" {statistics.median(peers):9.1f} {finder}  {proven}/{repetitions}", flush=True)


if __name__ == "__main__":
    main()

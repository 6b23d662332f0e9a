"""CP-SAT against the exact search on the same requests: median milliseconds, and whether the two agree.

Least CPU under a memory cap half-way between the mjoin's memory and the cheapest plan's: without a cap there is nothing for an
integer program to decide.
"""

from __future__ import annotations

import statistics
import time

from solvers.common.deadline import Deadline
from solvers.jtree.cp_sat import cp_sat
from solvers.jtree.exact import exact
from solvers.jtree.search import Found, Problem, Search
from solvers.model.point import Caps
from tests.solvers.search_models import keyed_model, paper3_model

GRAPHS = 5
LIMIT = 20.0
CASES = (("chain", (6, 8, 10, 12)), ("star", (6, 8, 10)), ("random", (6, 8, 10, 12)), ("clique", (6, 8)), ("paper 3", (6, 8, 10)))


def timed(search: Search, problem: Problem) -> tuple[Found, float]:
    began = time.perf_counter()
    found = search(problem, Deadline.after(LIMIT))
    return found, time.perf_counter() - began


def capped(shape: str, n: int, seed: int) -> Problem:
    model = paper3_model(seed, n) if shape == "paper 3" else keyed_model(seed, n, shape)
    cheapest = exact(Problem(model), Deadline.after(LIMIT)).best
    leaves = model.leaves_bytes()
    return Problem(model, Caps(memory_bytes=leaves + (cheapest.memory_bytes - leaves) / 2))


def main() -> None:
    for search in (exact, cp_sat):
        search(capped("chain", 5, 1), Deadline.after(LIMIT))
    print(f"| graph | n | exact, ms | cp_sat, ms | cp_sat / exact | agree ({GRAPHS} graphs) |")
    print("|---|---|---|---|---|---|")
    for shape, sizes in CASES:
        for n in sizes:
            times: dict[str, list[float]] = {"exact": [], "cp_sat": []}
            agreed = 0
            for seed in range(GRAPHS):
                problem = capped(shape, n, seed)
                one, seconds = timed(exact, problem)
                times["exact"].append(1e3 * seconds)
                other, seconds = timed(cp_sat, problem)
                times["cp_sat"].append(1e3 * seconds)
                agreed += one.proof == other.proof == "optimal" and abs(one.best.cpu - other.best.cpu) <= 1e-8 * one.best.cpu
            exact_ms, cp_ms = statistics.median(times["exact"]), statistics.median(times["cp_sat"])
            print(f"| {shape} | {n} | {exact_ms:.1f} | {cp_ms:.1f} | {cp_ms / exact_ms:.0f} | {agreed} |", flush=True)


if __name__ == "__main__":
    main()

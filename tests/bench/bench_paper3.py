"""Paper 3 §6 again: which share of the solvable cases each method solves, and in what time; then graphs of 100 and 200 streams.

The setting is the paper's: rates within [1, 100], random joins, selectivities within (0, 1), 100 graphs per number of
streams. The paper caps CPU at one second per second and says nothing of memory; from six streams on the output alone is over that. So
each graph's caps are drawn between its two extremes: CPU between the binary tree's and the mjoin's, memory between the mjoin's
and the binary tree's. So the mjoin never qualifies, nor does the cheapest binary tree, and of three streams nothing is left to find.
A case is solvable when the exact search finds a plan within both.

WATERSMEET_BENCH=full runs 3 to 20 streams with 100 graphs each; otherwise a part of it, in a minute.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from dataclasses import dataclass, field

from solvers.common.deadline import Deadline
from solvers.jtree.anytime import anytime
from solvers.jtree.bjtree import bjtree
from solvers.jtree.exact import exact
from solvers.jtree.mjoin import mjoin
from solvers.jtree.search import Found, Problem, Search
from solvers.jtree.state_removal import state_removal
from solvers.jtree.state_selection import state_selection
from solvers.jtree.two_layer import two_layer
from solvers.model.point import Caps
from tests.solvers.search_models import keyed_model, paper3_model

__all__ = ["METHODS", "Row", "main", "tallied", "warm_up"]

METHODS: dict[str, Search] = {
    "exact": exact,
    "anytime": anytime,
    "two_layer": two_layer,
    "state_selection": state_selection,
    "state_removal": state_removal,
    "mjoin": mjoin,
    "bjtree": bjtree,
}
LIMIT = 10.0  # seconds for the exact search, which decides what is solvable
QUICK, QUICK_GRAPHS = (3, 5, 8, 10, 12, 14), 20
FULL, FULL_GRAPHS = tuple(range(3, 21)), 100


@dataclass
class Tally:
    solved: int = 0
    seconds: list[float] = field(default_factory=list)


def drawn_problem(seed: int, n: int) -> Problem:
    """One of the paper's graphs, with caps between the extremes."""
    model = paper3_model(seed, n)
    rng = random.Random(f"{seed} {n}")
    wide, binary = (search(Problem(model), Deadline.after(LIMIT)).best for search in (mjoin, bjtree))
    cpu = binary.cpu + (wide.cpu - binary.cpu) * rng.random()
    memory = wide.memory_bytes + (binary.memory_bytes - wide.memory_bytes) * rng.random()
    return Problem(model, Caps(cpu, memory))


def timed(search: Search, problem: Problem, limit: float) -> tuple[Found, float]:
    began = time.thread_time()  # of the CPU: what else runs on the machine does not count
    found = search(problem, Deadline.after(limit))
    return found, time.thread_time() - began


@dataclass(frozen=True)
class Row:
    """All methods on the graphs of one size."""

    n: int
    graphs: int
    solvable: int
    undecided: int
    """Where the exact search ended at its limit without a plan or a proof."""
    tallies: dict[str, Tally]

    def share(self, method: str) -> float:
        """Of the solvable cases, in %."""
        return 100 * self.tallies[method].solved / self.solvable

    def milliseconds(self, method: str) -> float:
        """Median of CPU."""
        return 1e3 * statistics.median(self.tallies[method].seconds)


def tallied(n: int, graphs: int) -> Row:
    tallies = {name: Tally() for name in METHODS}
    solvable = undecided = 0
    for seed in range(graphs):
        problem = drawn_problem(seed, n)
        found, seconds = timed(exact, problem, LIMIT)
        if not problem.caps.admit(found.best):
            undecided += found.proof != "optimal"
            continue
        solvable += 1
        tallies["exact"].solved += 1
        tallies["exact"].seconds.append(seconds)
        for name, search in METHODS.items():
            if name != "exact":
                found, seconds = timed(search, problem, 1.0)
                tallies[name].solved += problem.caps.admit(found.best)
                tallies[name].seconds.append(seconds)
    return Row(n, graphs, solvable, undecided, tallies)


def table(sizes: tuple[int, ...], graphs: int) -> None:
    print(f"share of the solvable cases solved, and median ms of CPU; {graphs} graphs per row, paper 3's setting")
    print("| n | solvable | " + " | ".join(METHODS) + " |")
    print("|---|---|" + "---|" * len(METHODS))
    for n in sizes:
        row = tallied(n, graphs)
        cells = [f"{row.share(name):.0f} % · {row.milliseconds(name):.1f}" if row.solvable else "–" for name in METHODS]
        print(f"| {n} | {row.solvable}{f' ({row.undecided} undecided)' if row.undecided else ''} | " + " | ".join(cells) + " |", flush=True)


def large() -> None:
    print("anytime on large graphs, time limit 1 s: seconds, CPU against two_layer's, gap to the proven bound")
    print("| n | graph | seconds | CPU / two_layer's | gap | ended by itself |")
    print("|---|---|---|---|---|---|")
    for n in (100, 200):
        for shape in ("chain", "random", "star", "paper 3"):
            model = paper3_model(n, n) if shape == "paper 3" else keyed_model(n, n, shape)
            for tight in (False, True):
                problem = Problem(model, Caps(memory_bytes=model.leaves_bytes() * 1.001) if tight else Caps())
                began = time.perf_counter()
                found = anytime(problem, Deadline.after(1.0))
                seconds = time.perf_counter() - began
                start, _ = timed(two_layer, problem, 1.0)
                assert found.bound is not None
                gap = (found.best.cpu - found.bound) / found.best.cpu
                ended = "no" if any("time limit" in note for note in found.notes) else "yes"
                label = shape + (", memory capped" if tight else "")
                print(f"| {n} | {label} | {seconds:.2f} | {found.best.cpu / start.best.cpu:.4f} | {gap:.3f} | {ended} |", flush=True)


def warm_up() -> None:
    """Every method once: compiled code is loaded, or compiled where it is not there yet."""
    warm = Problem(keyed_model(1, 30), Caps(memory_bytes=1e9))
    for search in METHODS.values():
        search(drawn_problem(1, 5), Deadline.after(LIMIT))
    anytime(warm, Deadline.after(1.0))


def main() -> None:
    warm_up()
    full = os.environ.get("WATERSMEET_BENCH") == "full"
    table(*((FULL, FULL_GRAPHS) if full else (QUICK, QUICK_GRAPHS)))
    large()


if __name__ == "__main__":
    main()

"""Why the backward pass over unions is compiled more than once: what each copy takes, over the one that would do in its place.

`python -m tests.bench.bench_orders`, some seconds. Best of several runs of one thread, each of many calls from compiled code.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.orders import mjoin_excess, scratch_for, wide_mjoin_excess
from tests.solvers.compiled.cases import a_case, divided

CALLS = 200
GRAPHS = (("chain", 14), ("snowflake", 14), ("random", 12), ("clique", 10), ("star", 13))


@numba.njit
def by_table_of_unions(sets, prices, blocks, m, whole, scratch):  # type: ignore[no-untyped-def]
    for _ in range(CALLS):
        mjoin_excess(sets, prices, blocks, m, whole, scratch.unlimited, scratch)


@numba.njit
def over_connected_sets(sets, prices, blocks, m, whole, to_go):  # type: ignore[no-untyped-def]
    for _ in range(CALLS):
        wide_mjoin_excess(sets, prices, blocks, m, whole, to_go)


def seconds(work: Callable[[], object], runs: int = 5) -> float:
    work()
    taken = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        taken.append(time.perf_counter() - began)
    return min(taken)


def one_join(shape: str, n: int, m: int) -> tuple[float, float, float]:
    """Seconds of `mjoin_excess`, of the pass over connected sets in its place, and of making the unions that the pass of regions needs."""
    rng = random.Random(m)
    case = a_case(rng, n, shape)
    blocks: tuple[int, ...] = ()
    while len(blocks) != m:
        blocks = divided(rng, case.reference, case.component, m)
    asked = case.sets, case.prices, case.places(blocks), m, case.numbered(sum(blocks))
    return (
        seconds(lambda: by_table_of_unions(*asked, scratch_for(m))) / CALLS,
        seconds(lambda: over_connected_sets(*asked, np.empty(case.sets.mask.size))) / CALLS,
        seconds(lambda: Ledger(case.model).unions(blocks)),
    )


def main() -> None:
    print("| graph | streams | inputs | mjoin_excess, µs | wide_mjoin_excess / it | Ledger.unions / it |")
    print("|---|---|---|---|---|---|")
    ratios = []
    for shape, n in GRAPHS:
        for m in (4, 6, 8):
            own, wide, unions = one_join(shape, n, m)
            ratios.append((wide / own, unions / own))
            print(f"| {shape} | {n} | {m} | {1e6 * own:.1f} | {wide / own:.1f} | {unions / own:.0f} |", flush=True)
    wider, made = (statistics.median(column) for column in zip(*ratios, strict=True))
    print(f"median: {wider:.1f} and {made:.0f}")


if __name__ == "__main__":
    main()

"""Why the backward pass over unions is compiled more than once: what each copy takes, over the one that would do in its place.

`python -m tests.bench.bench_orders`, half a minute. Best of several runs of one thread, each of many calls from compiled code.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable

import numba
import numpy as np

from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.orders import backward_pass, follow, mjoin_excess, scratch_for, wide_mjoin_excess
from tests.solvers.compiled.cases import a_case, divided, ints

CALLS = 200
GRAPHS = (("chain", 14), ("snowflake", 14), ("random", 12), ("clique", 10), ("star", 13))
WHOLE = (("chain", 20), ("snowflake", 14), ("random", 14), ("clique", 13), ("star", 17))


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


def one_component(shape: str, n: int) -> tuple[float, float]:
    """Seconds of `backward_pass`, and of the pass over unions in its place, of the plain mjoin."""
    case = a_case(random.Random(1), n, shape)
    sets, prices, costs, every = case.sets, case.prices, case.model.costs, ints(range(case.n))
    to_go = np.empty(sets.mask.size)

    def other() -> None:
        wide_mjoin_excess(sets, prices, every, case.n, (1 << case.n) - 1, to_go)
        follow(sets, prices, every, case.n, to_go, False)

    return seconds(lambda: backward_pass(sets, costs.join, costs.probe, costs.scan)), seconds(other)


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
    print()
    print("| graph | streams | backward_pass, ms | wide_mjoin_excess and follow / it |")
    print("|---|---|---|---|")
    for shape, n in WHOLE:
        own, other = one_component(shape, n)
        print(f"| {shape} | {n} | {1e3 * own:.2f} | {other / own:.1f} |", flush=True)


if __name__ == "__main__":
    main()

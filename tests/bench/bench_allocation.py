"""Paper 2's figures again: JAQPOT, the joint optimum and the four heuristics by half-way productivity, on linear and bushy plans.

Parameters are Table 3's: rates 300–1200, 200–5000 tuples in every state, kept subresults included, selectivities 0.01–0.1,
freshness 1.5–5 windows; the resource is probes. Fig. 6 and 7 follow from the rates: at these figures a plan makes millions of
tuples a second. Fig. 9's stale results are counted tuple by tuple, on plans of the same shapes that are small enough to run.
Heuristics pay no heed to freshness, so part of what they yield may be stale. Pictures go to build/bench.

Where this differs from the paper: it finds GlobalHJPR ahead of the other heuristics, here EBestHJP is on linear plans and
SBestHJP on bushy ones; and its heuristics make many stale results, here next to none, because none of them leaves a
half-way join without resources that a kept subresult is renewed by. GrePP without a cover does, and is as stale as it says.

WATERSMEET_BENCH=full averages over ten times as many plans.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from dataclasses import dataclass
from pathlib import Path as File

from models.request import Costs
from solvers.allocation.grepp import grepp
from solvers.allocation.heuristics import HEURISTICS
from solvers.allocation.in_plans import share_out
from solvers.allocation.joint import joint
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.bench.redistributing import REDISTRIBUTING
from tests.bench.svg import line_chart
from tests.graphs import random_graph
from tests.solvers.allocation.paper2 import POLICIES, PROBES, Case, table_3
from tests.solvers.allocation.plans import random_tree
from tests.solvers.allocation.simulation import shares_of_flow, shares_of_streams, simulate

__all__ = ["READINGS", "Capacities", "Covers", "Reading", "capacity_lines", "covers", "main", "selectivity_lines", "stale_lines"]

BUILD = File("build/bench")


@dataclass(frozen=True)
class Reading:
    """Two things that the paper leaves open: what kept subresults hold, and whether heuristics give what one half-way join cannot use to others."""

    contract_sizes: bool = False
    """Kept subresults hold what follows from their inputs; otherwise a number from Table 3, as streams do."""
    redistribute: bool = False


FIXED = Reading()
READINGS = {
    "fixed sizes": FIXED,
    "fixed sizes, redistributing": Reading(redistribute=True),
    "contract's sizes": Reading(contract_sizes=True),
    "contract's sizes, redistributing": Reading(contract_sizes=True, redistribute=True),
}
PLANS = 200 if os.environ.get("WATERSMEET_BENCH") == "full" else 20


def selectivity_lines(name: str) -> dict[str, list[tuple[float, float]]]:
    """Fig. 6: ten minutes at 30 % of the saturation resources, freshness 1.5 windows; selectivities change at minutes 3 and 7."""
    settings = [(0, [0.01, 0.01, 0.05]), (3, [0.03, 0.03, 0.05]), (7, [0.03, 0.03, 0.1])]
    series: dict[str, list[tuple[float, float]]] = {}
    done: dict[str, float] = {}
    for number, (start, selectivities) in enumerate(settings):
        case = Case.of([600.0, 800.0, 500.0, 700.0], [1000, 1500, 1200, 800], [1000, 1000], selectivities, name, 1.5)
        end = settings[number + 1][0] if number + 1 < len(settings) else 10
        for policy, rate in case.throughputs(0.3 * case.saturation[0]).items():
            line = series.setdefault(policy, [(0.0, 0.0)])
            before = done.get(policy, 0.0)
            line += [(float(minute), before + rate * 60 * (minute - start)) for minute in range(start + 1, end + 1)]
            done[policy] = line[-1][1]
    return series


def changing_selectivities(name: str) -> None:
    series = selectivity_lines(name)
    done = {policy: line[-1][1] for policy, line in series.items()}
    line_chart(BUILD / f"paper2-fig6-{name}.svg", f"Changing selectivities, {name} plan", "minutes", "results so far", series)
    best = max(value for policy, value in done.items() if policy in POLICIES.values())
    both = f"JAQPOT {done['JAQPOT'] / best:.2f}, joint optimum {done['joint optimum'] / best:.2f}"
    print(f"fig 6, {name}: after 10 minutes {both} times the best heuristic")


@dataclass(frozen=True)
class Capacities:
    """Fig. 7: by policy (share of the saturation resources, share of the saturation throughput), both in %; and per plan and share of resources
    JAQPOT over the best heuristic, and what the joint optimum adds to JAQPOT."""

    series: dict[str, list[tuple[float, float]]]
    ratios: list[float]
    gains: list[float]


def capacity_lines(name: str, plans: int, reading: Reading = FIXED) -> Capacities:
    """Averaged over random plans."""
    parts = [part / 20 for part in range(21)]
    totals: dict[str, list[list[float]]] = {}
    ratios, gains = [], []
    for seed in range(plans):
        case = table_3(random.Random(seed), name, 3.0, reading.contract_sizes)
        resources, saturation = case.saturation
        for position, part in enumerate(parts):
            made = case.throughputs(part * resources, REDISTRIBUTING if reading.redistribute else HEURISTICS)
            for policy, rate in made.items():
                totals.setdefault(policy, [[] for _ in parts])[position].append(rate / saturation)
            best = max(made[policy] for policy in POLICIES.values())
            if 0.0 < part < 1.0 and best > 0.0:
                ratios.append(made["JAQPOT"] / best)
                gains.append(made["joint optimum"] / made["JAQPOT"] - 1.0)
    series = {
        policy: [(100 * part, 100 * statistics.mean(values)) for part, values in zip(parts, rows, strict=True)] for policy, rows in totals.items()
    }
    return Capacities(series, ratios, gains)


def changing_capacity(name: str) -> None:
    """Fig. 7: share of the saturation throughput by share of the saturation resources."""
    found = capacity_lines(name, PLANS)
    series, ratios, gains = found.series, found.ratios, found.gains
    line_chart(BUILD / f"paper2-fig7-{name}.svg", f"Short capacity, {name} plan", "% of saturation resources", "% of saturation throughput", series)
    by_part = {policy: {round(x): y for x, y in line} for policy, line in series.items()}
    print(f"fig 7, {name}: throughput at 20/40/60/80 % of the resources, in % of saturation ({PLANS} plans)")
    for policy, values in by_part.items():
        print(f"  {policy:14}" + "".join(f"{values[part]:8.1f}" for part in (20, 40, 60, 80)))
    print(
        f"  JAQPOT over the best heuristic: {statistics.median(ratios):.2f} in the median, {statistics.mean(ratios):.2f} on average, "
        f"{min(ratios):.2f}–{max(ratios):.1f} (paper: 2–6)"
    )
    print(f"  joint optimum over JAQPOT: {statistics.mean(gains):.2%} on average, {max(gains):.1%} at most")


def stale_lines(name: str, plans: int) -> dict[str, list[tuple[float, float]]]:
    """Fig. 9 a and b: (freshness in windows, % of stale results), tuple by tuple, where nothing covers the states; and with the joint optimum."""
    series: dict[str, list[tuple[float, float]]] = {}
    for tolerance in (1.5, 3.0, 5.0):
        shares: dict[str, list[float]] = {}
        for seed in range(plans):
            rng = random.Random(seed)
            case = Case.of(
                [rng.uniform(10, 40) for _ in range(4)],
                [rng.randint(40, 150) for _ in range(4)],
                [rng.randint(40, 150) for _ in range(2)],
                [1 / rng.randint(20, 60) for _ in range(3)],
                name,
                tolerance,
            )
            if case.hopeless:
                continue
            capacity = 0.25 * case.saturation[0]
            runs = {POLICIES[key]: shares_of_flow(case.priced, case.paths, heuristic(capacity, case.paths)) for key, heuristic in HEURISTICS.items()}
            for policy, units in (("GrePP", grepp(capacity, case.paths)), ("joint optimum", joint(capacity, case.paths, case.required).units)):
                runs[policy] = shares_of_streams(case.priced, [amount / path.limit for path, amount in zip(case.paths, units, strict=True)])
            for policy, allowed in runs.items():
                outcome = simulate(case.model.graph, PROBES, case.priced, allowed, case.stated, 60.0, seed, poisson=True, kept=case.kept)
                shares.setdefault(policy, []).append(100 * outcome.stale_share)
        for policy, values in shares.items():
            series.setdefault(policy, []).append((tolerance, statistics.mean(values)))
    return series


def stale_results() -> None:
    for name in ("linear", "bushy"):
        series = stale_lines(name, max(2, PLANS // 10))
        line_chart(BUILD / f"paper2-fig9-{name}.svg", f"Stale results, {name} plan", "freshness in windows", "% of results", series, markers=True)
        print(
            f"fig 9, {name}: % of stale results at 1.5/3/5 windows: "
            + ", ".join(f"{p} " + "/".join(f"{y:.0f}" for _, y in line) for p, line in series.items())
        )


@dataclass(frozen=True)
class Covers:
    """Fig. 9 d: by shape (freshness in windows, % of the saturation resources it takes); how far the greedy cover is above the least; and of
    `count` plans those that cannot meet theirs."""

    series: dict[str, list[tuple[float, float]]]
    above: list[float]
    hopeless: int
    count: int


def covers(plans: int) -> Covers:
    series: dict[str, list[tuple[float, float]]] = {}
    above, hopeless, count = [], 0, 0
    for name in ("linear", "bushy", "five"):
        for tolerance in (1.5, 2.0, 3.0, 4.0, 5.0):
            shares = []
            for seed in range(plans):
                case = table_3(random.Random(seed), name, tolerance)
                count += 1
                if case.hopeless:
                    hopeless += 1
                    continue
                least, greedy = case.covers
                shares.append(100 * least / case.saturation[0])
                above.append(greedy / least - 1.0)
            if shares:
                series.setdefault(name, []).append((tolerance, statistics.mean(shares)))
    return Covers(series, above, hopeless, count)


def capacity_for_freshness() -> None:
    found = covers(PLANS)
    title = "What freshness takes"
    line_chart(BUILD / "paper2-fig9-capacity.svg", title, "freshness in windows", "% of saturation resources", found.series, markers=True)
    for name, line in found.series.items():
        print(f"fig 9 d, {name}: % of saturation resources for freshness: " + ", ".join(f"{x:g} windows {y:.1f}" for x, y in line))
    print(
        f"  {found.hopeless} of {found.count} plans cannot meet theirs; the greedy cover is {statistics.mean(found.above):.1%} above the least on "
        f"average, {max(found.above):.1%} at most (paper: 11 %, 19 %)"
    )


def allocation_time() -> None:
    """How long the allocation of one plan takes."""
    for n in (5, 10, 20, 50):
        times = []
        for seed in range(10):
            rng = random.Random(seed)
            model = CostModel(join_graph(random_graph(rng, n, "random", log_selectivity=(-3.0, -1.0))), Costs())
            priced = model.price(random_tree(model, rng))
            stated = [4.0 * window for window in model.graph.window_seconds]
            for again in range(2):
                start = time.perf_counter()
                share_out(model, priced, 0.3 * priced.cpu, stated)
                if again:
                    times.append(1000 * (time.perf_counter() - start))
        print(f"allocation with freshness, {n} streams: {statistics.median(times):.1f} ms in the median, {max(times):.1f} at most")


def main() -> None:
    for name in ("linear", "bushy"):
        changing_selectivities(name)
        changing_capacity(name)
    stale_results()
    capacity_for_freshness()
    allocation_time()
    print(f"pictures in {BUILD}")


if __name__ == "__main__":
    main()

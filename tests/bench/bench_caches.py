"""Paper 1's experiments, priced by our cost model: Table 2 with Fig. 11, the sweeps of Fig. 6 to 9, the burst of Fig. 12, memory as in Fig. 13.

What is drawn is the load one core can take, in tuples per CPU-second: all rates together over the CPU they need. The paper measures the
same on its engine. Two things differ by construction: expiring tuples run through no pipeline here (in the paper every tuple is processed
twice, once as a deletion, which is one more chance of a hit), and a probe that finds nothing costs nothing by default. The solver's times come last.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.plan import Plan
from models.request import PlanRequest
from solvers.caches.candidates import Pipelines, prefix_candidates, program_of
from solvers.caches.select.exact import cp_sat, exact
from solvers.caches.select.greedy import greedy
from solvers.caches.select.memory import priority_allocation
from solvers.caches.select.relaxation import relaxation
from solvers.common.deadline import Deadline
from solvers.jtree.search import make_join
from solvers.model.attributes import Attributes
from solvers.planner import plan, problem_of
from tests.bench.svg import line_chart
from tests.solvers.caches.programs import random_program, wide_program

__all__ = [
    "KINDS",
    "SETTINGS",
    "TABLE_2",
    "burst_lines",
    "loads_of",
    "main",
    "memory_lines",
    "orders_in",
    "points_said",
    "sample_point",
    "setting_said",
]

PICTURES = Path("build/bench")
MULTIPLICITY = 5.0  # r of §7.2: how often a value occurs in a window
BASE_RATE = 100.0  # what the relative rates are multiplied by
TABLE_2: dict[int, tuple[tuple[float, ...], tuple[float, ...]]] = {
    1: ((10, 1, 1, 1), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    2: ((8, 1, 1, 8), (0.004, 0.005, 0.005, 0.007, 0.0045, 0.005)),
    3: ((10, 15, 1, 5), (0.003, 0.005, 0.007, 0.0045, 0.006, 0.008)),
    4: ((1, 1, 1, 1), (0.003, 0.004, 0.0067, 0.002, 0.0023, 0.0027)),
    5: ((4, 1, 1, 4), (0.005, 0.007, 0.005, 0.006, 0.005, 0.002)),
    6: ((1, 1, 1, 1), (0.005, 0.0033, 0.0025, 0.0067, 0.005, 0.0075)),
    7: ((1, 1, 1, 1), (0.0,) * 6),
    8: ((1, 1, 1, 1), (0.001,) * 6),
}
"""D1–D8: relative rates of R, S, T, U and the selectivities of RS, RT, RU, ST, SU, TU."""


def sample_point(
    point: int,
    method: str,
    caches: str,
    seconds: float = 1.0,
    memory_bytes: float | None = None,
    multiplicity: float | None = MULTIPLICITY,
    probe: float = 0.0,
) -> PlanRequest:
    """A point of Table 2 as a request; without `multiplicity`, how often values occur follows from the selectivities.

    All four streams join on one attribute, so three-way and four-way selectivities are not products of six: they are taken as the geometric mean of
    the pairs' to the power of one less than the streams, which is exact where all pairs are alike.
    """
    rates, selectivities = TABLE_2[point]
    names, pairs = "RSTU", list(itertools.combinations(range(4), 2))
    observed = []
    for size in (2, 3, 4):
        for chosen in itertools.combinations(range(4), size):
            inside = math.prod(s for (a, b), s in zip(pairs, selectivities, strict=True) if a in chosen and b in chosen)
            observed.append({"streams": [names[i] for i in chosen], "selectivity": inside ** (2.0 / size)})
    return PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {
                        "name": names[i],
                        "rate": rate * BASE_RATE,
                        "window": {"seconds": seconds},
                        "tuple_bytes": 32,
                        "distinct": {} if multiplicity is None else {"A": rate * BASE_RATE * seconds / multiplicity},
                    }
                    for i, rate in enumerate(rates)
                ],
                "predicates": [
                    {"left": f"{names[a]}.A", "right": f"{names[b]}.A", "selectivity": s or 1e-6}
                    for (a, b), s in zip(pairs, selectivities, strict=True)
                ],
                "observed": observed,
            },
            "costs": {"probe": probe},
            "resources": {} if memory_bytes is None else {"memory_bytes": memory_bytes},
            "options": {"method": method, "caches": caches, "time_limit": 60},
        }
    )


def load(made: Plan) -> float:
    """Tuples per CPU-second."""
    return sum(stream.rate for stream in made.query.streams) / made.cost.cpu


KINDS = {"M": ("mjoin", "off"), "X": ("bjtree", "off"), "P": ("mjoin", "prefix"), "G": ("mjoin", "global"), "auto": ("auto", "auto")}


def loads_of(seconds: float = 1.0, multiplicity: float | None = MULTIPLICITY, probe: float = 0.0) -> dict[int, dict[str, tuple[float, int]]]:
    """By point and kind of plan: tuples per CPU-second, and caches in use. `trees`: the best join tree without caches."""
    return {
        point: {
            kind: (load(made), len(made.caches))
            for kind, how in {**KINDS, "trees": ("auto", "off")}.items()
            for made in [plan(sample_point(point, *how, seconds=seconds, multiplicity=multiplicity, probe=probe))]
        }
        for point in TABLE_2
    }


NEAR = 1 - 1e-9
ORDERS: dict[str, tuple[str, str, float]] = {
    "P > M": ("P", "M", 1 + 1e-9),
    "X > M": ("X", "M", 1 + 1e-9),
    "G ≥ X": ("G", "X", NEAR),
    "G > X": ("G", "X", 1 + 1e-9),
    "G ≥ P": ("G", "P", NEAR),
    "auto > trees": ("auto", "trees", 1 + 1e-9),
}
"""A statement on two kinds of plan, and by what factor the first has to be above the second."""


def orders_in(loads: Mapping[int, Mapping[str, tuple[float, int]]]) -> dict[str, list[int]]:
    """For every statement the points at which it holds."""
    held = {name: [p for p, by in loads.items() if by[a][0] >= by[b][0] * factor] for name, (a, b, factor) in ORDERS.items()}
    held["auto ≥ all"] = [p for p, by in loads.items() if by["auto"][0] >= max(amount for amount, _ in by.values()) * NEAR]
    return held


def points_said(points: Sequence[int]) -> str:
    return " ".join(f"D{point}" for point in points) or "none"


def table_2() -> None:
    print(f"Windows of 1 s, values occur {MULTIPLICITY:g} times in a window (r of the paper's three-way join); other settings below")
    print("Table 2 and Fig. 11: load in tuples per CPU-second (caches in use)")
    print("        " + "".join(f"{kind:>16}" for kind in KINDS))
    loads = loads_of()
    for point, by in loads.items():
        print(f"  D{point}    " + "".join(f"{by[kind][0]:>11.0f} ({by[kind][1]}) " for kind in KINDS))
    for name, points in orders_in(loads).items():
        print(f"  {name}: {points_said(points)}")
    drawn = {kind: [(float(point), by[kind][0]) for point, by in loads.items()] for kind in KINDS}
    print(line_chart(PICTURES / "caches-fig11.svg", "Fig. 11: D1–D8", "sample point", "tuples per CPU-second", drawn, markers=True))


WINDOWS, REPETITIONS, PROBE_COSTS = (0.3, 1.0, 10.0), (None, 2.0, MULTIPLICITY, 20.0), (0.0, 1e-6)
SETTINGS = tuple(itertools.product(WINDOWS, REPETITIONS, PROBE_COSTS))
"""Window, how often values occur (None: as the selectivities have it), cost of a probe: the paper prints none of them."""


def setting_said(seconds: float, multiplicity: float | None, probe: float) -> str:
    values = "by selectivity" if multiplicity is None else f"{multiplicity:g} times"
    return f"window {seconds:g} s, values {values}, probe {probe:g}"


def other_settings() -> None:
    """How much of the above hangs on our settings."""
    print("The same with other windows, repetitions and probe costs: points where G is above X, and where auto is above every join tree")
    for setting in SETTINGS:
        held = orders_in(loads_of(*setting))
        print(f"  {setting_said(*setting)}: G {points_said(held['G > X'])}; auto {points_said(held['auto > trees'])}")


def three_way(
    multiplicity: float = MULTIPLICITY, partners: float = 1.0, update_rate: float = 1.0, window: float = 10.0
) -> tuple[float, float, float, float]:
    """(load of the MJoin, load with the R ⋈ S cache in T's pipeline forced, hit probability, update/probe ratio) of R(A) ⋈ S(A,B) ⋈ T(B), §7.2."""
    rate = BASE_RATE * update_rate
    held, held_t = rate * window, BASE_RATE * multiplicity * window
    request = PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {"name": "R", "rate": rate, "window": {"seconds": window}, "tuple_bytes": 32, "distinct": {"A": held}},
                    {"name": "S", "rate": rate, "window": {"seconds": window}, "tuple_bytes": 32, "distinct": {"A": held, "B": held}},
                    {
                        "name": "T",
                        "rate": BASE_RATE * multiplicity,
                        "window": {"seconds": window},
                        "tuple_bytes": 32,
                        "distinct": {"B": held_t / multiplicity},
                    },
                ],
                "predicates": [
                    {"left": "R.A", "right": "S.A", "selectivity": min(1.0, max(partners, 1e-9) / held)},
                    {"left": "S.B", "right": "T.B", "selectivity": min(1.0, 1.0 / held)},
                ],
            }
        }
    )
    problem = problem_of(request)
    priced = problem.model.price(make_join(range(3), ((1, 2), (0, 2), (1, 0))))
    pipelines = Pipelines.of(priced.joins[0])
    (cache,) = prefix_candidates(problem.model, Attributes.of(request.query, problem.model.graph), pipelines)
    total = sum(problem.model.graph.rates)
    cached = priced.cpu - cache.figures.benefit + cache.figures.update
    updates = cache.figures.update / (problem.model.costs.insert + problem.model.costs.delete)
    return total / priced.cpu, total / cached, 1.0 - cache.figures.miss_probability, updates / cache.figures.lookups


def sweep(name: str, title: str, label: str, points: list[tuple[float, float, float]], claim: str, holds: bool) -> None:
    """Print and draw (x, load of the MJoin, load with caches); say whether the paper's statement holds."""
    print(f"{title}\n  {label:>24}" + "".join(f"{x:>9.3g}" for x, _, _ in points))
    print(f"  {'MJoin':>24}" + "".join(f"{m:>9.0f}" for _, m, _ in points))
    print(f"  {'with caches':>24}" + "".join(f"{c:>9.0f}" for _, _, c in points))
    print(f"  {'MJoin / with caches':>24}" + "".join(f"{m / c:>9.3f}" for _, m, c in points))
    print(f"  {'agrees' if holds else 'DIFFERS'}: {claim}")
    lines = {"MJoin": [(x, m) for x, m, _ in points], "with caches": [(x, c) for x, _, c in points]}
    print(" ", line_chart(PICTURES / f"caches-{name}.svg", title, label, "tuples per CPU-second", lines, markers=True))


def sweeps() -> None:
    found = [three_way(multiplicity=r) for r in (1, 1.25, 1.5, 2, 3, 4, 6, 8, 10)]
    points = [(hit, m, c) for m, c, hit, _ in found]
    ratios = [m / c for _, m, c in points]
    rising = all(a >= b for a, b in itertools.pairwise(ratios))
    sweep("fig6", "Fig. 6: cache hit probability", "hit probability", points, "the higher the hit probability, the better the cache", rising)
    sweep_note = "also better where nothing repeats" if ratios[0] < 1 else "worse where nothing repeats: a tuple's deletion is no second lookup here"
    print(f"  {'agrees' if ratios[0] < 1 else 'DIFFERS'}: {sweep_note}")

    points = [(j, *three_way(partners=j)[:2]) for j in (0.05, 0.25, 0.5, 1, 2, 3, 5, 8, 10)]
    ratios = [m / c for _, m, c in points]
    better = all(ratio < 1 for ratio in ratios)
    sweep("fig7", "Fig. 7: join selectivity in T's pipeline", "R⋈S tuples per T tuple", points, "the cache improves the whole range", better)
    worst = points[ratios.index(max(ratios))][0]
    print(f"  {'agrees' if 0.5 <= worst <= 2 else 'DIFFERS'}: the gain is least near one partner (here at {worst:g})")

    found = [three_way(update_rate=u) for u in (0.1, 0.25, 0.5, 1, 2, 3, 5, 8)]
    points = [(ratio, m, c) for m, c, _, ratio in found]
    ratios = [m / c for _, m, c in points]
    falling = all(a <= b for a, b in itertools.pairwise(ratios))
    sweep("fig8", "Fig. 8: updates per lookup", "updates / lookups", points, "the gain falls as updates get more frequent", falling)
    above = [m / c for x, m, c in points if x > 1]
    print(f"  {'agrees' if above and above[0] < 1 else 'DIFFERS'}: still better where updates are as frequent as lookups and more")

    points = []
    used = {}
    for n in range(3, 9):
        plain, cached = (plan(n_way(n, caches)) for caches in ("off", "prefix"))
        used[n] = len(cached.caches)
        points.append((float(n), load(plain), load(cached)))
    sweep("fig9", "Fig. 9: number of streams", "streams", points, "the gain is kept throughout", all(m / c < 1 for _, m, c in points))
    print("  caches in use: " + ", ".join(f"{n}-way {count}" for n, count in used.items()) + " (the paper's 7-way join used 6)")


def n_way(n: int, caches: str) -> PlanRequest:
    """R1 ⋈ … ⋈ Rn on one attribute; values occur once in half of the streams, five times in the others, which are five times as fast."""
    names = [f"R{i + 1}" for i in range(n)]
    values = BASE_RATE * 10.0
    multiplicity = {name: 1.0 if i < n // 2 else MULTIPLICITY for i, name in enumerate(names)}
    observed: list[dict[str, Any]] = []
    for size in range(3, n + 1):
        observed += [{"streams": list(chosen), "selectivity": values ** (1 - size)} for chosen in itertools.combinations(names, size)]
    return PlanRequest.model_validate(
        {
            "query": {
                "streams": [
                    {"name": name, "rate": BASE_RATE * m, "window": {"seconds": 10}, "tuple_bytes": 32, "distinct": {"A": values}}
                    for name, m in multiplicity.items()
                ],
                "predicates": [{"left": f"{a}.A", "right": f"{b}.A"} for a, b in itertools.combinations(names, 2)],
                "observed": observed,
            },
            "options": {"method": "mjoin", "caches": caches, "time_limit": 60},
        }
    )


def burst_lines() -> dict[str, list[tuple[float, float]]]:
    """Fig. 12: R comes up to 20 times as fast; its values repeat accordingly. Two fixed caches, and the plan made anew."""
    lines: dict[str, list[tuple[float, float]]] = {"T⋈(R⋈S)": [], "R⋈(T⋈S)": [], "planned anew": []}
    for factor in (1, 2, 3, 5, 8, 12, 16, 20):
        held = BASE_RATE * 10.0
        rates = {"R": BASE_RATE * factor, "S": BASE_RATE, "T": BASE_RATE * MULTIPLICITY}
        request = PlanRequest.model_validate(
            {
                "query": {
                    "streams": [
                        {"name": name, "rate": rate, "window": {"seconds": 10}, "tuple_bytes": 32, "distinct": dict.fromkeys("AB", held)}
                        for name, rate in rates.items()
                    ],
                    "predicates": [{"left": "R.A", "right": "S.A"}, {"left": "S.B", "right": "T.B"}],
                },
                "options": {"method": "mjoin", "caches": "auto", "time_limit": 60},
            }
        )
        problem = problem_of(request)
        attributes, total = Attributes.of(request.query, problem.model.graph), sum(rates.values())
        for name, orders, pipeline in (("T⋈(R⋈S)", ((1, 2), (0, 2), (1, 0)), 2), ("R⋈(T⋈S)", ((1, 2), (2, 0), (1, 0)), 0)):
            priced = problem.model.price(make_join(range(3), orders))
            (cache,) = [c for c in prefix_candidates(problem.model, attributes, Pipelines.of(priced.joins[0])) if c.pipeline == pipeline]
            lines[name].append((factor, total / (priced.cpu - cache.figures.benefit + cache.figures.update)))
        lines["planned anew"].append((factor, load(plan(request))))
    return lines


def burst() -> None:
    lines = burst_lines()
    print("Fig. 12: a burst of R")
    print("  rate of R ×       " + "".join(f"{x:>9.0f}" for x, _ in lines["T⋈(R⋈S)"]))
    for name, line in lines.items():
        print(f"  {name:<18}" + "".join(f"{y:>9.0f}" for _, y in line))
    first, second, anew = ([y for _, y in line] for line in lines.values())
    print(f"  {'agrees' if first[0] > second[0] and second[-1] > first[-1] else 'DIFFERS'}: R⋈S is the cache to have before the burst, T⋈S during it")
    follows = all(c >= max(a, b) * (1 - 1e-9) for a, b, c in zip(first, second, anew, strict=True))
    print(f"  {'agrees' if follows else 'DIFFERS'}: a plan made anew is never behind either")
    print(" ", line_chart(PICTURES / "caches-fig12.svg", "Fig. 12: a burst of R", "rate of R, times", "tuples per CPU-second", lines, markers=True))


def memory_lines(seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Fig. 13: D8 with little memory for subresults. Windows of 5 s give the best XJoin the paper's 32 kB; at 10 s it has four times that."""
    base = plan(sample_point(8, "mjoin", "off", seconds))
    windows = base.cost.memory_bytes
    lines: dict[str, list[tuple[float, float]]] = {"MJoin": [], "XJoin": [], "caches": [], "caches by priority": [], "auto": []}
    for kilobytes in (1, 4, 8, 12, 16, 20, 24, 28, 32, 40, 64, 96, 128):
        cap = windows + kilobytes * 1000.0
        lines["MJoin"].append((kilobytes, load(base)))
        tree = plan(sample_point(8, "bjtree", "off", seconds, cap))
        lines["XJoin"].append((kilobytes, load(tree) if tree.qualified else math.nan))
        lines["caches"].append((kilobytes, load(plan(sample_point(8, "mjoin", "global", seconds, cap)))))
        lines["auto"].append((kilobytes, load(plan(sample_point(8, "auto", "auto", seconds, cap)))))
        lines["caches by priority"].append((kilobytes, by_priority(seconds, kilobytes * 1000.0)))
    return lines


def memory_sweep(seconds: float) -> None:
    lines = memory_lines(seconds)
    print(f"Fig. 13: memory for subresults, D8, windows of {seconds:g} s")
    print("  kB                " + "".join(f"{x:>8.0f}" for x, _ in lines["MJoin"]))
    for name, line in lines.items():
        print(f"  {name:<18}" + "".join(f"{'–':>8}" if math.isnan(y) else f"{y:>8.0f}" for _, y in line))
    feasible = [x for x, y in lines["XJoin"] if not math.isnan(y)]
    smooth = all(a[1] <= b[1] * (1 + 1e-9) for a, b in itertools.pairwise(lines["caches"]))
    print(
        f"  {'agrees' if feasible and feasible[0] > 1 else 'DIFFERS'}: no XJoin fits below a threshold, "
        f"here {feasible[0] if feasible else '–'} kB, which the window decides (the paper: 25.6)"
    )
    print(f"  {'agrees' if smooth else 'DIFFERS'}: caches use whatever memory there is, and more never hurts")
    ahead = [x for (x, y), (_, other) in zip(lines["caches"], lines["XJoin"], strict=True) if y >= other]
    print(f"  where an XJoin fits, caches alone are ahead of it at {', '.join(f'{x:g}' for x in ahead) or 'no'} kB")
    print(
        " ",
        line_chart(
            PICTURES / f"caches-fig13-{seconds:g}s.svg",
            f"Fig. 13: memory, D8, windows of {seconds:g} s",
            "kB for subresults",
            "tuples per CPU-second",
            lines,
            markers=True,
        ),
    )


def by_priority(seconds: float, memory_bytes: float) -> float:
    """The load where caches are chosen as if memory were free and then served by net benefit per byte (§5)."""
    from solvers.caches.global_caches import global_candidates

    request = sample_point(8, "mjoin", "off", seconds)
    problem = problem_of(request)
    made = plan(request)
    names = [stream.name for stream in request.query.streams]
    orders = [[names.index(probe.target) for probe in pipeline.probes] for pipeline in made.operators[-1].pipelines]
    priced = problem.model.price(make_join(range(4), orders))
    pipelines = Pipelines.of(priced.joins[0])
    found = global_candidates(problem.model, Attributes.of(request.query, problem.model.graph), pipelines)
    program, _ = program_of(pipelines, found, memory_bytes)
    chosen = exact(program.without_cap(), Deadline.after(60)).choice
    cost = priced.cpu - program.cost_without_caches + priority_allocation(program, chosen).cost
    return sum(problem.model.graph.rates) / cost


def solver_times() -> None:
    cp_sat(random_program(1), Deadline.after(60))
    print("The integer program, one core, CPU and wall time (median of 9); greedy and the LP bound against the optimum")
    for streams, candidates, capped in ((15, 172, False), (15, 172, True), (28, 687, False), (28, 687, True)):
        cpu, wall, ratios, bounds = [], [], [], []
        for seed in range(9):
            program = wide_program(seed, streams, candidates, capped)
            before = time.process_time(), time.perf_counter()
            solved = exact(program, Deadline.after(60))
            cpu.append(time.process_time() - before[0])
            wall.append(time.perf_counter() - before[1])
            assert solved.optimal
            if seed < 3:
                ratios.append(greedy(program).cost / solved.cost)
                bounds.append(relaxation(program).bound / solved.cost)
        capped_words = " capped" if capped else ""
        print(
            f"  {candidates} candidates{capped_words}: {1e3 * sorted(cpu)[4]:.0f} ms CPU, {1e3 * sorted(wall)[4]:.0f} ms wall, "
            f"slowest {1e3 * max(cpu):.0f} ms CPU; greedy at most {max(ratios):.3f} times, LP bound at least {min(bounds):.4f} of the optimum"
        )


def main() -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    table_2()
    other_settings()
    sweeps()
    burst()
    memory_sweep(5.0)
    memory_sweep(10.0)
    solver_times()


if __name__ == "__main__":
    main()

"""Paper 4's figures again: costs of the four joins, crossovers, and who gets the CPU and the memory when they are short.

Fig. 2 to 5 are the cost model, Fig. 4 and 5 beside a small implementation that is timed; Fig. 8 to 10 are two windows
joined tuple by tuple; Fig. 11 is Eq. 14. Pictures go to build/bench.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from pathlib import Path

from solvers.window_join.solve import Side, approximate_crossover, exact_crossover, hash_cost, nested_loop_cost, regulate
from tests.bench.svg import line_chart

__all__ = ["cost_lines", "main", "short_cpu_lines", "short_memory_lines", "timed_lines"]

BUILD = Path("build/bench")
LOOP, HASH = 0.5, 0.65


Lines = dict[str, list[tuple[float, float]]]


def cost_lines(keys: float) -> tuple[Lines, float | None]:
    """Fig. 2 and 3: T 60/60, λ_a 10: costs by the rate of B, and the first rate tried at which HNJ is below HHJ."""
    series: Lines = {"HHJ": [], "HNJ": [], "NHJ": [], "NNJ": []}
    crossing = None
    for rate in range(10, 201, 5):
        a, b = Side(10, 60, keys), Side(rate, 60, keys)
        left = {"H": hash_cost(b.rate, a, HASH), "N": nested_loop_cost(b.rate, a, LOOP)}
        right = {"H": hash_cost(a.rate, b, HASH), "N": nested_loop_cost(a.rate, b, LOOP)}
        for name, line in series.items():
            line.append((rate, left[name[0]] + right[name[1]]))
        if crossing is None and right["N"] < right["H"]:
            crossing = rate
    return series, crossing


def costs_by_rate(figure: int, keys: float) -> None:
    series, crossing = cost_lines(keys)
    line_chart(BUILD / f"paper4-fig{figure}.svg", f"Cost of moving window joins, {keys:g} keys", "rate of B, tuples/s", "cost per second", series)
    print(f"fig {figure}: with {keys:g} keys HNJ beats HHJ from λ_b = {crossing} on (paper: about {70 if keys == 10 else 140})")


def timed_direction(rate: float, keys: int, hashed: bool, seconds: float = 60.0) -> float:
    """CPU time of joining A to B: λ_a 10 probes a second into a window of 60 s, insertion and invalidation of B included."""
    rng = random.Random(0)
    window, buckets = deque[tuple[float, int]](), [deque[tuple[float, int]]() for _ in range(keys)]
    arrivals = sorted([(i / rate, "b") for i in range(int(rate * seconds))] + [(seconds + i / 10.0, "a") for i in range(int(10 * seconds))])
    arrivals += [(seconds + i / rate, "b") for i in range(int(rate * seconds))]
    arrivals.sort()
    found, start = 0, time.process_time()
    for now, stream in arrivals:
        if now == seconds:
            found, start = 0, time.process_time()
        key = rng.randrange(keys)
        if stream == "b":
            if hashed:
                bucket = buckets[key]
                bucket.append((now, key))
                kept = deque(entry for entry in bucket if entry[0] > now - 60.0)  # Eq. 3: invalidation looks at its bucket
                buckets[key] = kept
            else:
                window.append((now, key))
                while window[0][0] <= now - 60.0:
                    window.popleft()
        else:
            found += sum(1 for entry in (buckets[key] if hashed else window) if entry[1] == key)
    return time.process_time() - start


def timed_lines() -> Lines:
    """Fig. 4: one direction by the rate of B, priced, and timed in a small implementation of the paper's; timed ones are scaled to the model once."""
    series: Lines = {"HJ model": [], "NLJ model": [], "HJ timed": [], "NLJ timed": []}
    scale = None
    for rate in range(20, 141, 20):
        b = Side(rate, 60, 10)
        model = {"HJ": hash_cost(10, b, HASH), "NLJ": nested_loop_cost(10, b, LOOP)}
        timed = {"HJ": timed_direction(rate, 10, True), "NLJ": timed_direction(rate, 10, False)}
        scale = scale or model["NLJ"] / timed["NLJ"]
        for name in ("HJ", "NLJ"):
            series[f"{name} model"].append((rate, model[name]))
            series[f"{name} timed"].append((rate, timed[name] * scale))
    return series


def timed_crossovers() -> None:
    """Fig. 4 and 5: where a scan starts to beat the index, predicted and timed."""
    series = timed_lines()
    line_chart(
        BUILD / "paper4-fig4.svg", "A to B: model and timed", "rate of B, tuples/s", "cost per second", series, "timed: scaled to the model once"
    )
    predicted: dict[str, list[tuple[float, float]]] = {"Eq. 8": [], "exact, 60 s": []}
    for keys in range(5, 51, 5):
        predicted["Eq. 8"].append((keys, approximate_crossover(keys, HASH / LOOP)))
        predicted["exact, 60 s"].append((keys, exact_crossover(Side(100, 60, keys), HASH, LOOP) or math.nan))
    line_chart(BUILD / "paper4-fig5.svg", "Where a scan beats the index", "keys in B", "rate of B / rate of A", predicted)
    print(f"fig 5: crossover at 10 keys {approximate_crossover(10, 1.3):.2f}, at 20 keys {approximate_crossover(20, 1.3):.2f}")


def joined(rates: tuple[float, float], windows: tuple[float, float], keys: int, seconds: int, seed: int = 0) -> list[tuple[float, float]]:
    """Two windows joined tuple by tuple: (second, results so far)."""
    rng = random.Random(seed)
    kept: tuple[deque[tuple[float, int]], deque[tuple[float, int]]] = (deque(), deque())
    warm = max(windows)
    arrivals = sorted(
        (rng.random() / rate + i / rate, side) for side, rate in enumerate(rates) if rate > 0.0 for i in range(int(rate * (warm + seconds)))
    )
    results, line, mark = 0, [(0.0, 0.0)], 1
    for now, side in arrivals:
        while now - warm > mark:
            line.append((float(mark), float(results)))
            mark += 1
        for other in (0, 1):
            while kept[other] and kept[other][0][0] <= now - windows[other]:
                kept[other].popleft()
        key = rng.randrange(keys)
        if now > warm:
            results += sum(1 for _, value in kept[1 - side] if value == key)
        if windows[side] > 0.0:
            kept[side].append((now, key))
    return line


def short_cpu_lines() -> Lines:
    """Fig. 8: λ 80/20, T 9/1, µ 10: five ways to regulate the rates."""
    best = regulate(Side(80, 9, 50), Side(20, 1, 12.5), 10, math.inf, False)
    strategies = {
        "equal": (best[0].rate, best[1].rate),
        "by rate": (8.0, 2.0),
        "inverse rate": (2.0, 8.0),
        "by window": (9.0, 1.0),
        "inverse window": (1.0, 9.0),
    }
    return {name: joined(rates, (9.0, 1.0), 50, 600) for name, rates in strategies.items()}


def short_cpu() -> None:
    series = short_cpu_lines()
    line_chart(BUILD / "paper4-fig8.svg", "Short CPU: regulated rates", "seconds", "results", series)
    print("fig 8: results after 600 s: " + ", ".join(f"{name} {line[-1][1]:.0f}" for name, line in series.items()))


def short_memory_lines() -> Lines:
    """Fig. 9: λ 10/50, M 1000, σ 0.005: five ways to share out the memory."""
    strategies = {
        "max A": (1000.0, 0.0),
        "max B": (0.0, 1000.0),
        "by rate": (1000 / 6, 5000 / 6),
        "inverse rate": (5000 / 6, 1000 / 6),
        "equal": (500.0, 500.0),
    }
    return {name: joined((10.0, 50.0), (a / 10.0, b / 50.0), 200, 60) for name, (a, b) in strategies.items()}


def short_memory() -> None:
    series = short_memory_lines()
    line_chart(BUILD / "paper4-fig9.svg", "Short memory: windows", "seconds", "results", series)
    print("fig 9: results after 60 s: " + ", ".join(f"{name} {line[-1][1]:.0f}" for name, line in series.items()) + " (closed form for max A: 15000)")


def short_both() -> None:
    """Fig. 10 and 11: µ 10, M 100, σ 0.01: rates and windows both free."""
    strategies = {
        "max A, max λ_b": (100.0, 0.5),
        "max B, max λ_a": (0.0, 9.5),
        "equal": (50.0, 5.0),
        "max A, max λ_a": (100.0, 9.5),
        "max B, max λ_b": (0.0, 0.5),
    }
    series = {name: joined((rate, 10.0 - rate), (a / rate, (100.0 - a) / (10.0 - rate)), 100, 400) for name, (a, rate) in strategies.items()}
    line_chart(BUILD / "paper4-fig10.svg", "Short CPU and memory", "seconds", "results", series)
    print("fig 10: results after 400 s: " + ", ".join(f"{name} {line[-1][1]:.0f}" for name, line in series.items()) + " (σµM: 4000)")
    surface = {f"A = {a}": [(x / 20, 0.01 * (x / 20 * 10 * (100 - a) + (1 - x / 20) * 10 * a)) for x in range(21)] for a in (0, 25, 50, 75, 100)}
    line_chart(BUILD / "paper4-fig11.svg", "Output rate by share of the CPU (Eq. 14)", "x, share of the CPU for A", "results per second", surface)


def main() -> None:
    costs_by_rate(2, 10)
    costs_by_rate(3, 20)
    timed_crossovers()
    short_cpu()
    short_memory()
    short_both()
    print(f"pictures in {BUILD}")


if __name__ == "__main__":
    main()

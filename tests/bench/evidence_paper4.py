"""Paper 4, window joins in unit time: the crossover, the four algorithms over the ratio of rates, rates and memory when they are short."""

from __future__ import annotations

from solvers.window_join.solve import Side, approximate_crossover, exact_crossover
from tests.bench.bench_window_join import HASH, LOOP, cost_lines, short_cpu_lines, short_memory_lines, timed_lines
from tests.bench.evidence import AGREES, IN_KIND, Claim, Figure, Findings, Part, Section, judged, line

__all__ = ["SECTION"]

CROSSOVERS = {10: 6.69, 20: 14.38}  # the paper's, by keys
NEAR_RATIO, NEAR_RATE, NEAR_OUTPUT = 0.006, 10.0, 25.0
RATES = {10: 70.0, 20: 140.0}  # of B, as read off its Fig. 2 and 3


def crossover(quick: bool) -> Findings:
    claims, figures = [], []
    for keys, ratio in CROSSOVERS.items():
        found = approximate_crossover(keys, HASH / LOOP)
        exact = exact_crossover(Side(100, 60, keys), HASH, LOOP)
        claims.append(
            judged(
                f"(Eq. 8) With {keys} keys a scan beats the index from a ratio of rates of {ratio:g} on.",
                f"{found:.2f}; in the exact form {exact:.2f}." if exact else f"{found:.2f}.",
                abs(found - ratio) < NEAR_RATIO,
            )
        )
        series, crossing = cost_lines(keys)
        assert crossing is not None
        near = abs(crossing - RATES[keys]) <= NEAR_RATE
        claims.append(
            judged(f"(Fig. {keys // 10 + 1}) HNJ is the cheapest from about λ_b = {RATES[keys]:g} on.", f"from {crossing:g} on.", near, IN_KIND)
        )
        drawn = {name: line(points) for name, points in series.items()}
        figures.append(Figure(f"costs-{keys}", f"Four joins, {keys} keys, rate of A 10", "rate of B, tuples/s", "cost per second", drawn))
    return Findings(claims, ["λ_a 10, windows of 60 s, C_h/C_n 1.3; priced."], [], figures)


def timed(quick: bool) -> Findings:
    series = timed_lines()
    by_rate = {name: dict(points) for name, points in series.items()}
    rates = list(by_rate["HJ timed"])
    model = next((rate for rate in rates if by_rate["NLJ model"][rate] < by_rate["HJ model"][rate]), None)
    fact = next((rate for rate in rates if by_rate["NLJ timed"][rate] < by_rate["HJ timed"][rate]), None)
    said = f"priced from {model or 'beyond 140'}, timed from {fact or 'beyond 140'} tuples/s on"
    claim = Claim(
        "(Fig. 4) Where the model has the scan beat the index, measurements do, too.",
        f"of the rates tried {said}.",
        AGREES if model == fact else IN_KIND,
    )
    figure = Figure(
        "timed", "One direction, A to B: model and timed", "rate of B, tuples/s", "cost per second", {n: line(p) for n, p in series.items()}
    )
    note = (
        "Timed: a small implementation of the paper's two structures, tuple by tuple in Python, scaled to the model once. "
        "What the columnar operator does follows below."
    )
    return Findings([claim], ["λ_a 10, 10 keys, windows of 60 s."], [], [figure], [note])


def short(quick: bool) -> Findings:
    cpu = {name: points[-1][1] for name, points in short_cpu_lines().items()}
    lines = short_memory_lines()
    memory = {name: points[-1][1] for name, points in lines.items()}
    claims = [
        judged(
            "(Fig. 8) With the CPU short, equal rates (5, 5) yield most.",
            "results after 600 s: " + ", ".join(f"{name} {made:,.0f}" for name, made in cpu.items()) + ".",
            max(cpu, key=lambda name: cpu[name]) == "equal",
        ),
        judged(
            "(Fig. 9) With memory short, all of it to the slower stream yields most: 250 a second.",
            f"max A {memory['max A'] / 60:.0f} a second; next {sorted(memory.values())[-2] / 60:.0f}.",
            max(memory, key=lambda name: memory[name]) == "max A" and abs(memory["max A"] / 60 - 250) < NEAR_OUTPUT,
        ),
    ]
    figure = Figure("memory", "Short memory: windows", "seconds", "results", {name: line(points[::5]) for name, points in lines.items()})
    return Findings(claims, ["λ 80/20, T 9/1, µ 10; λ 10/50, M 1000, σ 0.005; joined tuple by tuple."], [], [figure])


SECTION = Section(
    "paper4",
    "Paper 4: window joins of two streams",
    "Hash or nested loop for each direction, and who gets the CPU and the memory when they are short.",
    (
        Part("crossover", "The crossover and the four joins (Fig. 2, 3, 5)", crossover),
        Part("timed", "Priced and timed (Fig. 4)", timed),
        Part("short", "Short CPU, short memory (Fig. 8, 9)", short),
    ),
    f"ratios of rates within {NEAR_RATIO:g}, rates read off pictures within {NEAR_RATE:g}, results a second within {NEAR_OUTPUT:g}; timed and "
    f"priced turns agree "
    "at the same of the rates tried, and are in kind at others.",
)

"""Papers 1 and 2 on the operator: caches through a burst, and allocations through a drift, chosen as it runs against fixed ones.

    python -m tests.bench.bench_burst [--seconds 60] [--rate 2000] [--allocation-rate 10000] [--default-costs] [--only burst allocations]

Both run the operator alone, in one cell, in this process; the loop looks after every batch of a second and asks `solvers.replan`. CPU is the
operator's for all of its work, states included. All runs work off a batch before any of them gets the next one, in changing order, so that what else
the machine does meets all of them alike. Plans are made with cost constants that were measured first, on the operator in this process; with
`--default-costs`, which are paper 3's, caches look better than they are here.

1. Paper 1, Fig. 12. R(A) ⋈ S(A, B) ⋈ T(B) as one multi-way join; values come in the same order in all streams, once each in R and S and
   five times in T, whose rate is five times theirs. For a third of the time the rate of R is twenty times as high, each value coming
   twenty times. The same once more with twenty rows of S for a row of T, of which one has a partner in R. Fixed choices: no cache; the best
   caches before and in the burst, by the default costs where those measured here would have none. Printed is the share of all lookups
   that a cache answered and the rows that came per CPU second, before, in and after the burst; for the adaptive run its changes.
2. Paper 2, Fig. 6. A chain A–B–C–D whose selectivities go from SEL1 (0.01, 0.01, 0.05) to SEL2 (0.03, 0.03, 0.05) at three tenths and to
   SEL3 (0.03, 0.03, 0.1) at seven tenths of the time, for windows of a hundred rows: here windows hold more, and selectivities are less by as
   much, so that a row finds as many. Beyond the paper, the rate of A doubles in the last two tenths. The CPU is capped at 30 % of what SEL2
   takes without shedding, what a batch takes with nothing to do left out of both: no allocation makes that less. Fixed allocations: those that
   are best for SEL1, where nothing has to be shed, for SEL2 and for SEL3. The cap holds for all runs alike: from one that takes more, the
   adaptive one included, rows are turned away at the door, as many as it takes to be back within what the cap allows (`Door`). Printed are results,
   results per CPU second, the CPU taken over the cap and the share of rows let in.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read

import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.commands.replanning import asking
from models.plan import Plan
from models.replan import Thresholds
from models.request import Costs, Options, PlanRequest
from solvers.planner import plan as planned
from spark_adapter.adapt import Adapting, Answer, Ask
from spark_adapter.overload import Fit
from spark_adapter.stem.frames import chosen
from tests.bench.calibrated import calibrated
from tests.bench.calibrated import said as costs_said
from tests.spark_adapter.in_process import Arrivals, InProcess, Stretch, Worked, arrivals, cut

__all__ = ["CAPPED", "SELECTIVITIES", "Bursts", "Drifted", "bursts", "drifted", "main"]

SALT = 7  # of the rows that are turned away, who are others than those that an allocation does not let in
WARM_UP = 10  # seconds at the start that are not counted: windows fill
Values = Mapping[str, Mapping[str, int]]


def with_options(options: Options, gains: list[float] | None = None) -> Ask:
    """The solvers in this process, told how to search. What each answer says a change would gain is added to `gains`."""
    here = asking(None, Thresholds(), 1.0)

    def ask(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        answer = here(plan, request.model_copy(update={"options": options}), measured)
        if gains is not None:
            gains.append(float(answer.gain))
        return answer

    return ask


def request_of(streams: Sequence[Mapping[str, Any]], predicates: Sequence[str], options: Options, costs: Costs, **more: Any) -> PlanRequest:
    query = {"streams": list(streams), "predicates": [dict(zip(("left", "right"), text.split(" = "), strict=True)) for text in predicates]}
    return PlanRequest.model_validate({"query": query, **more}).model_copy(update={"options": options, "costs": costs})


def in_turns(
    runs: Sequence[InProcess],
    batches: Sequence[tuple[Arrivals, int]],
    adaptive: InProcess | None,
    options: Options,
    gains: list[float] | None = None,
) -> list[str]:
    """All runs work off each batch before the next one comes; what the loop said of the adaptive one."""
    said: list[str] = []
    loop = adaptive and Adapting(adaptive, with_options(options, gains), say=lambda line: said.append(f"{len(adaptive.batches):4} {line}"))
    for n, (batch, watermark) in enumerate(batches):
        turn = n % len(runs)
        for run in (*runs[turn:], *runs[:turn]):
            run.work_off(batch, watermark)
        if loop:
            loop.look()
    return said


# Paper 1.

WINDOW = 10.0
BURST = 20
FANS = (1, 20)  # the paper's; and one in which T finds many rows of S that come to nothing, so that a cache saves more than it takes
CACHED = Options.model_validate({"method": "mjoin", "caches": "auto", "time_limit": 10.0})
UNCACHED = Options.model_validate({"method": "mjoin", "caches": "off", "time_limit": 10.0})
PHASES = ("before", "in the burst", "after")


@dataclass(frozen=True)
class Bursts:
    """By title the runs through a burst, each cut into before, in and after it; what the adaptive one began with and what it changed."""

    phases: Mapping[str, Sequence[Sequence[Worked]]]
    began: str
    changes: int
    said: Sequence[str]
    gains: Sequence[float] = ()
    """At each look at the plan in force, what the one that was found instead would have gained."""
    why: Mapping[str, int] = field(default_factory=dict)
    """How often which reason to keep the plan came last."""
    same: str = ""
    """The fixed run with the plan that the adaptive one began with, if there is one."""

    def answered(self, title: str) -> list[float]:
        """Share of all lookups that a cache answered, by phase."""
        return [_answered(part) for part in self.phases[title]]

    def speeds(self, title: str) -> list[float]:
        """Rows per CPU second, by phase."""
        return [sum(s["rows"] for b in part for s in b.line["streams"]) / sum(b.cpu for b in part) for part in self.phases[title]]


def bursts(rate: float, seconds: float, costs: Costs, fan: int) -> Bursts:
    """`fan`: how many rows of S a row of T finds, one of which has a partner in R."""
    domain = round(rate * WINDOW / fan) * fan
    values: Values = {"R": {"A": domain // fan}, "S": {"A": domain, "B": domain // fan}, "T": {"B": domain // fan}}

    def request(factor: int, options: Options, costs: Costs) -> PlanRequest:
        rates = {"R": factor * rate / fan, "S": rate, "T": 5 * rate}
        streams = [{"name": name, "rate": rates[name], "window": {"seconds": WINDOW}, "tuple_bytes": 32, "distinct": values[name]} for name in "RST"]
        return request_of(streams, ["R.A = S.A", "S.B = T.B"], options, costs)

    third = seconds / 3
    stretches = {
        "R": [Stretch(length, factor * rate / fan, values["R"], factor) for length, factor in ((WARM_UP + third, 1), (third, BURST), (third, 1))],
        "S": [Stretch(WARM_UP + seconds, rate, values["S"], 1)],
        "T": [Stretch(WARM_UP + seconds, 5 * rate, values["T"], 5 * fan)],
    }
    calm, busy = (_cached(*(planned(request(factor, CACHED, each)) for each in (costs, Costs()))) for factor in (1, BURST))
    fixed = {
        "no cache": planned(request(1, UNCACHED, costs)),
        f"caches for calm ({_caches(calm)})": calm,
        f"caches for bursts ({_caches(busy)})": busy,
    }
    runs = {title: InProcess(plan) for title, plan in fixed.items()}
    adaptive = runs["adaptive"] = InProcess(planned(request(1, CACHED, costs)))
    gains: list[float] = []
    said = in_turns(list(runs.values()), cut(arrivals(stretches), 1.0), adaptive, CACHED, gains)
    assert len({sum(batch.results for batch in run.batches) for run in runs.values()}) == 1, "two plans gave different results"
    ends = [round(WARM_UP + k * third) for k in range(4)]
    phases = {title: [run.batches[start:end] for start, end in itertools.pairwise(ends)] for title, run in runs.items()}
    first = planned(request(1, CACHED, costs))
    began = _caches(first)
    why = Counter(reasons[-1] for kind, reasons in adaptive.decisions if kind == "keep" and reasons)
    same = next((title for title, plan in fixed.items() if plan.fingerprint == first.fingerprint), "")
    return Bursts(phases, began, len(adaptive.changes), [line for line in said if "changed" in line], gains, why, same)


def burst(rate: float, seconds: float, costs: Costs, fan: int) -> None:
    found = bursts(rate, seconds, costs, fan)
    print(
        f"\n1. caches through a burst, a row of T finds {fan} of S: share of lookups answered from caches | rows per CPU second, {', '.join(PHASES)}",
        flush=True,
    )
    for title in found.phases:
        shares = " ".join(f"{share:6.1%}" for share in found.answered(title))
        print(f"   {title:40} {shares} | " + " ".join(f"{speed:9,.0f}" for speed in found.speeds(title)), flush=True)
    print(f"   adaptive began with caches: {found.began}; {found.changes} changes", *found.said, sep="\n     ", flush=True)


def _cached(*plans: Plan) -> Plan:
    """The first that has caches."""
    return next((plan for plan in plans if plan.caches), plans[0])


def _caches(plan: Plan) -> str:
    return ", ".join(f"{'⋈'.join(cache.streams)} in {cache.input}'s" for cache in plan.caches) or "none"


def _answered(batches: Sequence[Worked]) -> float:
    hits = sum(cache["hits"] for batch in batches for cache in batch.line["caches"])
    lookups = sum(step["rows_in"] for batch in batches for step in batch.line["steps"])
    return float(hits / lookups)


# Paper 2.

SELECTIVITIES = {"SEL1": (0.01, 0.01, 0.05), "SEL2": (0.03, 0.03, 0.05), "SEL3": (0.03, 0.03, 0.1)}
STRETCHES = (("SEL1", 0.3, 1.0), ("SEL2", 0.4, 1.0), ("SEL3", 0.1, 1.0), ("SEL3", 0.2, 2.0))  # selectivities, share of the time, rate of A
PAPERS_HELD = 100  # rows of a window in the paper
LENGTH = 2.0  # seconds of a window here: with a hundred rows a batch is mostly what it costs without a row
CAPPED = 0.3  # of what SEL2 takes
CHAIN = ["A.x = B.x", "B.y = C.y", "C.z = D.z"]
SHARED = Options.model_validate({"caches": "off", "time_limit": 10.0})


class Door:
    """Turns rows away, by their hashes, from a run that takes more CPU than it has; what it saves it may use within the next batch."""

    def __init__(self, cap: float) -> None:
        self.cap, self.share, self._saved = cap, 1.0, 0.0

    def __call__(self, batch: Arrivals) -> Arrivals:
        return {name: chosen(frame, self.share, SALT) for name, frame in batch.items()}

    def took(self, cpu: float) -> None:
        """Between linearly and with the fourth power of the share: the root is a step that does not overshoot."""
        self._saved = min(self.cap, self._saved + self.cap - cpu)
        self.share = min(1.0, self.share * math.sqrt(max(0.1 * self.cap, self.cap + self._saved) / cpu))


def _keys(name: str, rate: float) -> dict[str, dict[str, int]]:
    x, y, z = (round(rate * LENGTH / PAPERS_HELD / selectivity) for selectivity in SELECTIVITIES[name])
    return {"A": {"x": x}, "B": {"x": x, "y": y}, "C": {"y": y, "z": z}, "D": {"z": z}}


def _drifting(rate: float, seconds: float) -> Sequence[tuple[Arrivals, int]]:
    stretches = {
        stream: [Stretch(part * seconds, rate * (factor if stream == "A" else 1.0), _keys(name, rate)[stream]) for name, part, factor in STRETCHES]
        for stream in "ABCD"
    }
    return cut(arrivals(stretches, seed=1), 1.0)


@dataclass(frozen=True)
class Drifted:
    """What came of allocations through a drift: CPU of a batch that the cap, nothing to do and SEL2 without shedding stand for; by title, the run's
    results in each part, per CPU second and over the cap in each, share let in by part; results, CPU and share let in of all of it."""

    cap: float
    fixed: float
    took: float
    runs: Mapping[str, Mapping[str, Any]]
    changes: Sequence[str]


def drifted(rate: float, seconds: float, costs: Costs) -> Drifted:
    costs = costs.model_copy(update={"step": 0.0})  # what a batch takes with nothing to do is measured, and left out of price and cap

    def request(name: str, cpu: float | None, costs: Costs = costs) -> PlanRequest:
        streams = [{"name": s, "rate": rate, "window": {"seconds": LENGTH}, "distinct": values} for s, values in _keys(name, rate).items()]
        return request_of(streams, CHAIN, SHARED, costs, resources={} if cpu is None else {"cpu": cpu})

    batches = _drifting(rate, seconds)
    full = InProcess(planned(request("SEL2", None)))
    in_turns([full], batches, None, SHARED)
    ends = [0, round(0.3 * seconds), round(0.7 * seconds), len(batches)]
    # What the operator takes, and not what the model says it would: the loop compares the cap with what is measured.
    fixed, took = idle_cpu(full), statistics.median(batch.cpu for batch in full.batches[ends[1] + 2 : ends[2]])
    factor = (took - fixed) / full.plan.cost.cpu
    exact = Costs(**{name: factor * getattr(costs, name) for name in Costs.model_fields})
    cap = CAPPED * (took - fixed)
    runs = {f"allocation for {name}": InProcess(planned(request(name, cap, exact)), door=Door(cap + fixed)) for name in SELECTIVITIES}
    adaptive = runs["adaptive"] = InProcess(planned(request("SEL1", cap, exact)), door=Door(cap + fixed))
    said = in_turns(list(runs.values()), batches, adaptive, SHARED)
    found = {title: _of(run, ends, cap + fixed) for title, run in {"nothing shed, no cap": full, **runs}.items()}
    return Drifted(cap, fixed, took, found, [line.strip() for line in said if "changed" in line])


def _of(run: InProcess, ends: Sequence[int], cap: float) -> dict[str, Any]:
    parts = [run.batches[start:end] for start, end in itertools.pairwise(ends)]
    cpu = [sum(b.cpu for b in part) for part in parts]
    made = [sum(b.results for b in part) for part in parts]
    return {
        "parts": made,
        "speeds": [results / seconds for results, seconds in zip(made, cpu, strict=True)],
        "over": [seconds / len(part) / cap for seconds, part in zip(cpu, parts, strict=True)],
        "let_in_by_part": [_let_in(part) for part in parts],
        "let_in": _let_in(run.batches),
        "results": sum(batch.results for batch in run.batches),
        "cpu": sum(batch.cpu for batch in run.batches),
    }


def allocations(rate: float, seconds: float, costs: Costs) -> None:
    found = drifted(rate, seconds, costs)
    print(
        f"\n2. allocations through a drift, {found.cap:.3f} CPU and {found.fixed:.3f} for a batch with nothing to do; SEL2 takes {found.took:.3f}. "
        "Thousands of results | results per CPU second | CPU over the cap | rows let in, SEL1, SEL2, SEL3",
        flush=True,
    )
    for title, run in found.runs.items():
        made = " ".join(f"{results / 1000:7,.0f}" for results in run["parts"])
        speeds = " ".join(f"{speed:9,.0f}" for speed in run["speeds"])
        taken = " ".join(f"{over:5.2f}" for over in run["over"])
        let_in = " ".join(f"{share:4.0%}" for share in run["let_in_by_part"])
        whole, cpu = run["results"], run["cpu"]
        print(f"   {title:20} {made} | {speeds} | {taken} | {let_in} | all {whole / 1000:7,.0f}, {whole / cpu:9,.0f} per CPU second", flush=True)
    print(f"   adaptive: {len(found.changes)} changes", *found.changes, sep="\n     ", flush=True)


def idle_cpu(run: InProcess) -> float:
    """CPU seconds of a batch with nothing to do, as the loop finds them."""
    fit = Fit()
    for batch in run.times(-1):
        fit.add(batch)
    return fit.fixed


def _let_in(batches: Sequence[Worked]) -> float:
    streams = [stream for batch in batches for stream in batch.line["streams"]]
    return float(1.0 - sum(stream["shed"] for stream in streams) / sum(stream["rows"] for stream in streams))


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rate", type=float, default=2000, help="of R and S, in the first part")
    parser.add_argument("--allocation-rate", type=float, default=10_000, help="of every stream, in the second part")
    parser.add_argument("--default-costs", action="store_true")
    parser.add_argument("--only", nargs="+", choices=["burst", "allocations"], default=["burst", "allocations"])
    given = parser.parse_args(list(arguments))
    costs = Costs() if given.default_costs else calibrated().costs
    print(costs_said(costs) if not given.default_costs else "the default costs", flush=True)
    if "burst" in given.only:
        for fan in FANS:
            burst(given.rate, given.seconds, costs, fan)
    if "allocations" in given.only:
        allocations(given.allocation_rate, given.seconds, costs)


if __name__ == "__main__":
    main(sys.argv[1:])

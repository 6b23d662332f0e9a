"""The cost constants of contract §1, measured on this machine's Spark.

The problem: join, insert, delete, append, probe and scan are CPU-seconds per tuple of the stem operator as it runs here; step is what each probe step
costs in a batch whatever its rows, by the second. The method: small
pipelines over generated rows whose counts are known, each stressing something else (matches, long windows, short
windows, nested loops, three streams, five, subresults that are kept), run one after the other on Spark. Of every batch the operator reports the CPU
of each probe step and of its state, and the rows that went through. Two least-squares fits explain these:

    a probe step   = rows in · probe + rows out · join + rows indexed · index (hash) or pairs · scan (nested loop) + pieces · a constant + a constant
    the states     = rows of streams kept · keep + rows of subresults kept · keep joined + rows let go · drop + a constant

The operator indexes a row once, when the piece of state that it lies in is first probed by so few rows that an index beats a scan; it says of
which rows it made indexes, and that is what is fitted. After that no batch reads them but where its probes reach. So insert = keep joined + index,
append = keep joined, delete = drop, whatever the length of windows: a plan keeps its streams whatever it is, so what keeping a subresult costs is
what decides between plans, and its rows, of two or three streams, are wider. What the scan of a small piece takes is part of what the rows that
probe it take.
The constants are what a batch costs without a row: by the step, by the piece of state that a step looks into (in these short runs a state has one
for every batch of its window), by the batch. All are reported; without them in the fit costs per tuple would have to explain them. The price of a
plan has those of its steps: step = (a constant + `pieces` · the constant a piece) / seconds of a batch. The number of pieces is taken to be the same
for all states, that of a typical window: they are merged, so that windows of ten to a hundred batches have ten to sixteen. What a batch costs by
itself all plans pay.

The guarantee: the fit is the exact optimum of non-negative least squares of relative errors. With at most six unknowns it is found by trying
every set of them as the non-zero ones: the optimum is an ordinary least-squares solution on its own support. That is ten lines of numpy; SciPy's
`nnls` would do the same, and a hundred megabytes more to install.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from models.bindings import Bindings
from models.plan import PLAN_FORMAT, Plan
from models.request import Costs
from spark_adapter import compile
from spark_adapter.pipeline import STATISTICS
from spark_adapter.session import open_session
from spark_adapter.stem.pieces import FAN, LEAST, NEAR

__all__ = [
    "RUNS",
    "USUAL",
    "Batches",
    "Calibration",
    "Fit",
    "Observation",
    "Run",
    "calibrate",
    "calibration_of",
    "fit",
    "measure",
    "non_negative_least_squares",
    "observed",
    "plan_of",
]

WARM_UP_BATCHES = 1  # the first batch of a run pays for imports and first calls
SIGNIFICANT = 3  # digits of a constant: a second calibration differs in the third


@dataclass(frozen=True, slots=True)
class Batches:
    """The micro-batches that the price of a probe step is for."""

    seconds: float = 1.0
    """Of one; Spark begins one about as often, with a trigger of a second or without any."""
    window: float = 60.0
    """Seconds of a typical window."""

    @property
    def pieces(self) -> float:
        """Pieces of a state that a probe looks into: one for each batch of the window, and half of the time the batch's own; of windows so long that
        pieces are merged (`stem.pieces`) those that are, and of the rest half of what is merged at once. Of windows of 8, 31, 60, 120 and 300
        batches 9, 10, 12, 16 and 24 were counted, the batch's own included."""
        near = self.window / self.seconds / NEAR
        return NEAR * near + 0.5 if near < LEAST - 1 else NEAR + 0.5 + min(FAN, near) / 2.0


USUAL = Batches()


@dataclass(frozen=True, slots=True)
class Run:
    """A pipeline over two streams, or three in a chain, of known counts; a batch is a second of event time."""

    name: str
    rows: tuple[int, ...]
    """Rows per batch, of each stream."""
    keys: int
    """Values that the join attributes are drawn from."""
    window: int
    """Of every stream, in batches."""
    batches: int
    op: str = "="
    kept: bool = False
    """Whether streams are joined one after the other and what is joined is kept, instead of all in one join."""
    seed: int = 1


RUNS = (
    Run("hardly a match", (40_000, 40_000), 10_000_000, 3, 7),
    Run("two matches a row", (10_000, 10_000), 20_000, 4, 8),
    Run("twenty matches a row", (4_000, 4_000), 800, 4, 8),
    Run("a long window", (10_000, 10_000), 1_000_000, 12, 14),
    Run("a short window", (40_000, 10_000), 1_000_000, 1, 7),
    Run("three streams", (8_000, 8_000, 8_000), 16_000, 4, 8),
    # A joined row of many streams has more columns to copy: without wide rows the price of a joined row would be that of pairs.
    Run("five streams", (8_000,) * 5, 20_000, 4, 7),
    Run("a kept join", (4_000, 4_000, 500), 4_000, 3, 7, kept=True),
    Run("two kept joins", (2_000, 2_000, 2_000, 500), 3_000, 3, 7, kept=True),
    Run("nested loop", (500, 2_000), 1_000_000, 3, 7, "<"),
    Run("nested loop, long window", (200, 1_000), 1_000_000, 8, 10, "<"),
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What was counted, by the name of the constant that it is multiplied with, and the CPU seconds it took."""

    counts: Mapping[str, float]
    seconds: float


@dataclass(frozen=True, slots=True)
class Fit:
    """Constants by name, and how well they explain the observations."""

    constants: Mapping[str, float]
    error: float
    """Root mean square of the relative errors."""
    observations: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The costs and the fits they come from."""

    costs: Costs
    steps: Fit
    states: Fit


STEP = ("probe", "join", "index", "scan", "per step", "per piece")
STATE = ("keep", "keep joined", "drop", "per batch")


def calibrate(out: TextIO = sys.stderr, master: str | None = None, batches: Batches = USUAL) -> Costs:
    """Measure and fit on a session of our own, for such batches, and write to `out` which run is on, and how well the fits explain them."""
    steps: list[Observation] = []
    states: list[Observation] = []
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as folder:
        spark = open_session({}, master, Path(folder) / "spark.log")
        for i, run in enumerate(RUNS):
            out.write(f"{i + 1} of {len(RUNS)}: {run.name}\n")
            out.flush()
            found = measure(spark, run)
            steps += found[0]
            states += found[1]
    calibration = calibration_of(steps, states, batches)
    for what, fit in (("probe steps", calibration.steps), ("states", calibration.states)):
        constants = ", ".join(f"{name} {value:.2e}" for name, value in fit.constants.items())
        out.write(f"{what}: {fit.observations} observations, fitted with a relative error of {fit.error:.0%} ({constants})\n")
    own, piece = (calibration.steps.constants[name] for name in ("per step", "per piece"))
    out.write(
        f"step: {own:.2e} s a step and {piece:.2e} s for each of {batches.pieces:.3g} pieces of a state, in batches of {batches.seconds:g} s with "
        f"windows of {batches.window:g} s; for others say so (--batch, --window)\n"
    )
    out.write("costs; put them into a request:\n")
    return calibration.costs


def calibration_of(steps: Sequence[Observation], states: Sequence[Observation], batches: Batches = USUAL) -> Calibration:
    """Fit both kinds of observations, and put the constants together to costs, for such batches."""
    step, state = fit(steps, STEP), fit(states, STATE)
    costs = {
        "join": step.constants["join"],
        "insert": state.constants["keep joined"] + step.constants["index"],
        "delete": state.constants["drop"],
        "append": state.constants["keep joined"],
        "probe": step.constants["probe"],
        "scan": step.constants["scan"],
        "step": (step.constants["per step"] + batches.pieces * step.constants["per piece"]) / batches.seconds,
    }
    return Calibration(Costs(**{name: float(f"{value:.{SIGNIFICANT - 1}e}") for name, value in costs.items()}), step, state)


def fit(observations: Sequence[Observation], names: Sequence[str]) -> Fit:
    """Constants that explain the observations best, each observation weighing the same."""
    counts = np.array([[observation.counts.get(name, 0.0) for name in names] for observation in observations])
    seconds = np.array([observation.seconds for observation in observations])
    relative = counts / seconds[:, None]
    constants = non_negative_least_squares(relative, np.ones(len(seconds)))
    error = float(np.sqrt(np.mean((relative @ constants - 1.0) ** 2)))
    return Fit(dict(zip(names, map(float, constants), strict=True)), error, len(observations))


def non_negative_least_squares(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The x ≥ 0 with the smallest |a·x − b|; exact, 2^columns ordinary least squares."""
    columns = a.shape[1]
    best, least = np.zeros(columns), float(b @ b)
    scale = np.linalg.norm(a, axis=0)
    scale[scale == 0.0] = 1.0
    for count in range(1, columns + 1):
        for support in map(list, itertools.combinations(range(columns), count)):
            solution = np.linalg.lstsq(a[:, support] / scale[support], b, rcond=None)[0] / scale[support]
            residual = a[:, support] @ solution - b
            if (solution >= 0).all() and float(residual @ residual) < least:
                best, least = np.zeros(columns), float(residual @ residual)
                best[support] = solution
    return best


def measure(spark: SparkSession, run: Run) -> tuple[list[Observation], list[Observation]]:
    """Run it in one cell; observations of probe steps, and of states."""
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as name:
        folder = Path(name)
        write(run, folder)
        compile(plan_of(run), _bindings(run, folder), spark, "stem", cells=1).start().await_termination()
        lines = [json.loads(line) for line in (folder / "checkpoint" / STATISTICS).read_text().splitlines()]
    return observed(run, [line for line in lines if line["streams"]])


def write(run: Run, folder: Path) -> None:
    """The streams, a Parquet file per batch. For "<" the left values are nearly all above the right ones: pairs are compared, few match."""
    for s, rows in enumerate(run.rows):
        draw = np.random.default_rng([run.seed, s])
        (folder / f"s{s}").mkdir()
        for batch in range(run.batches):
            offset = run.keys - run.keys // 1000 if run.op == "<" and s == 0 else 0
            ts = batch * 1_000_000 + (np.arange(rows) * 2 + 1) * 500_000 // rows
            columns = {name: pa.array(draw.integers(0, run.keys, rows) + offset) for name in ("x", "y")}
            table = pa.table({"ts": pa.array(ts + 1_000_000_000_000_000, pa.timestamp("us", tz="UTC")), **columns})
            path = folder / f"s{s}" / f"{batch:05}.parquet"
            pq.write_table(table, path)
            # Spark takes files in the order of their modification times.
            os.utime(path, (1_000_000_000 + batch, 1_000_000_000 + batch))


def observed(run: Run, lines: Sequence[Mapping[str, Any]]) -> tuple[list[Observation], list[Observation]]:
    """What each batch did and what it took, from the statistics of a run and the counts it was made of."""
    steps: list[Observation] = []
    states: list[Observation] = []
    before = 0
    for i, line in enumerate(lines):
        held = {state["state"]: state["rows"] for state in line["states"]}
        arrived = {f"s{s}": rows for s, rows in enumerate(run.rows)}
        if i >= WARM_UP_BATCHES:
            for step in line["steps"]:
                # Inputs are worked off one after the other: each sees all rows of those before it, and the old ones of those after it.
                target = step["target"]
                seen_new = target < step["input"]
                visible = held[target] - (0 if seen_new else arrived[target])
                # Every batch leaves one piece, which goes when its window has passed it; those that come before see the batch's own.
                pieces = min(i, run.window) + seen_new
                counts = {"probe": step["rows_in"], "join": step["rows_out"], "per step": 1, "per piece": pieces}
                counts |= {"index": step["indexed"]} if run.op == "=" else {"scan": step["rows_in"] * visible}
                steps.append(Observation(counts, step["cpu_seconds"]))
            spent = line["cpu_seconds"]
            seconds = spent["load"] + spent["probe"] + spent["keep"] - sum(step["cpu_seconds"] for step in line["steps"])
            kept = sum(run.rows)
            joined = sum(step["rows_out"] for step in line["steps"] if step["operator"] in held)
            gone = before + kept + joined - sum(held.values())
            states.append(Observation({"keep": kept, "keep joined": joined, "drop": gone, "per batch": 1}, seconds))
        before = sum(held.values())
    return steps, states


def _bindings(run: Run, folder: Path) -> Bindings:
    schema = "ts TIMESTAMP, x BIGINT, y BIGINT"
    streams = {
        f"s{s}": {
            "source": {"format": "parquet", "options": {"path": str(folder / f"s{s}"), "maxFilesPerTrigger": "1"}, "schema": schema},
            "event_time": "ts",
        }
        for s in range(len(run.rows))
    }
    return Bindings.model_validate(
        {"streams": streams, "sink": {"format": "noop"}, "checkpoint": str(folder / "checkpoint"), "trigger": {"available_now": True}}
    )


def plan_of(run: Run) -> Plan:
    """One join of all streams in a chain, s0.y = s1.x, s1.y = s2.x, probed along the chain; or, where joins are kept, one stream more in each."""
    names = [f"s{s}" for s in range(len(run.rows))]
    inputs = [[f"join-{s - 1}" if s > 1 else names[0], names[s]] for s in range(1, len(names))] if run.kept else [names]
    joined = [names[: s + 2] for s in range(len(inputs))] if run.kept else [names]
    return Plan.model_validate(
        {
            "format": PLAN_FORMAT,
            "fingerprint": run.name,
            "qualified": True,
            "proof": "none",
            "bound": None,
            "gap": None,
            "query": {
                "streams": [{"name": name, "rate": rows, "window": {"seconds": run.window}} for name, rows in zip(names, run.rows, strict=True)],
                "predicates": [
                    {"left": f"{a}.y", "op": run.op, "right": f"{b}.x", "selectivity": 1 / run.keys} for a, b in itertools.pairwise(names)
                ],
            },
            "resources": {},
            "costs": {},
            "objective": "min_cpu",
            "cost": {"cpu": 0, "memory_bytes": 0, "memory_tuples": 0, "output_rate": 0},
            "headroom": None,
            "operators": [
                {
                    "id": f"join-{number}",
                    "kind": "binary_join" if len(sides) == 2 else "mjoin",
                    "inputs": sides,
                    "streams": streams,
                    "materialized": number < len(inputs),
                    **dict.fromkeys(("rate", "state_tuples", "state_bytes", "cpu"), 0),
                    "states": [{"input": name, "indexed": run.op == "=", "cpu": 0} for name in sides],
                    "pipelines": _pipelines(run, sides),
                }
                for number, (sides, streams) in enumerate(zip(inputs, joined, strict=True), 1)
            ],
            **{name: [] for name in ("caches", "validity", "explanation", "warnings")},
            **dict.fromkeys(("allocation", "shortfall")),
        }
    )


def _pipelines(run: Run, names: Sequence[str]) -> list[dict[str, Any]]:
    """Of every input of a join: back along the chain, then on."""
    found = []
    for s, name in enumerate(names):
        order = [*range(s - 1, -1, -1), *range(s + 1, len(names))]
        probes = [{"target": names[t], "algorithm": "hash" if run.op == "=" else "nested_loop", **FIGURES} for t in order]
        found.append({"input": name, "probes": probes})
    return found


FIGURES: dict[str, Any] = {"predicates": [], "rate_in": 0, "rate_out": 0, "cpu": 0}

"""A drift on Spark: `run --adapt` against the plans that were made for either half.

    python -m tests.bench.bench_drift [--rate 2000] [--half 600] [--first 100] [--every 1] [--rounds 1] [--in-process]

Four streams in a chain a–b–c–d, windows of 10 seconds, batches of 5 seconds of event time. In the first half a row of a finds a partner
in b one time in twenty, while a row of c finds four in d; at half-time the two ends change places. Three runs over the same files: the
plan made for the first half with `--adapt`, the same plan without, and the plan made for the second half. Measured is the operator's own
CPU in the batches of the second half, all its work included, and the work that it counts, which does not depend on how busy the machine
is. Results are compared row by row with those of DuckDB. Nothing is measured in the first half, so it is shorter: `--first` seconds, ten windows.

A change comes after the windows have filled with the new rows and whoever was asked has answered, here some four batches after half-time; in these
the plan of the first half still runs. So what `--adapt` costs more than the plan of the second half is so many batches over all of its batches.

The files are there from the start (`available_now`), so batches follow each other as fast as Spark works them off, and `--every` is a
second of that: about a batch. `--in-process` runs the operator alone, in one cell, in this process, with a look after every batch.
"""

from __future__ import annotations

import argparse
import os

os.environ.setdefault("POLARS_MAX_THREADS", "1")  # before polars is read

import io
import json
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from app.commands.replanning import asking
from models.plan import Plan
from models.replan import Thresholds
from solvers.planner import plan as planned
from spark_adapter.adapt import Adapting
from spark_adapter.decisions import DECISIONS, read_decisions
from spark_adapter.pipeline import STATISTICS
from spark_adapter.run import Adaptation, Options, run
from tests.spark_adapter.drift import Drift, found
from tests.spark_adapter.in_process import InProcess

__all__ = ["main"]

WINDOW, BATCH = 10.0, 5.0
PARTNERS = (0.05, 1.0, 4.0)
ADAPT, STAYED, KNEW = "--adapt", "plan of the first half", "plan of the second half"


class Result:
    """What a run came to."""

    def __init__(self, lines: Sequence[Mapping[str, Any]], drift: Drift, rows: pl.DataFrame, changes: Sequence[str]) -> None:
        second = [line for line in lines if drift.second_half(line)]
        self.cpu = sum(sum(line["cpu_seconds"].values()) for line in second)
        self.work = sum(line["work"] for line in second)
        self.rows, self.changes = rows, changes


def on_spark(drift: Drift, folder: Path, plan: Plan, adaptation: Adaptation | None) -> Result:
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    said = io.StringIO()
    code = run(plan, drift.bindings(folder, out), said, Options(adaptation=adaptation))
    assert code == 0, said.getvalue()
    lines = [json.loads(line) for line in (out / "checkpoint" / STATISTICS).read_text().splitlines()]
    decisions = read_decisions((out / "checkpoint" / DECISIONS).read_text())
    changes = [f"{decision.kind} in batch {decision.batch}" for decision in decisions if decision.decision == "change"]
    rows = pl.concat([pl.read_parquet(path) for path in (out / "out").glob("*.parquet")]).sort("a", "b", "c", "d")
    return Result(lines, drift, rows, changes)


def in_process(drift: Drift, rows: Mapping[str, pl.DataFrame], plan: Plan, adaptation: Adaptation | None) -> Result:
    one = InProcess(plan, keep_results=True)
    one.run(drift.batches(rows), Adapting(one, adaptation.ask).look if adaptation is not None else None)
    return Result([batch.line for batch in one.batches], drift, found(one.found), one.changes)


def main(arguments: Sequence[str] = ()) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=2000)
    parser.add_argument("--half", type=float, default=600)
    parser.add_argument("--first", type=float, default=100, help="seconds of the first half, which is not measured")
    parser.add_argument("--every", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--in-process", action="store_true")
    given = parser.parse_args(list(arguments))
    drift = Drift(given.rate, WINDOW, given.half, BATCH, PARTNERS, given.first)
    rows = drift.rows()
    answer = drift.answer(rows)
    first, second = (planned(drift.request(half)) for half in (False, True))
    adaptation = Adaptation(asking(None, Thresholds(), given.every), given.every)
    runs = {ADAPT: (first, adaptation), STAYED: (first, None), KNEW: (second, None)}
    print(f"{sum(frame.height for frame in rows.values()):,} rows in, {answer.height:,} results", flush=True)
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as name:
        if not given.in_process:
            drift.write(Path(name), rows)
        for _ in range(given.rounds):
            results = {}
            for title, (plan, asked) in runs.items():
                result = in_process(drift, rows, plan, asked) if given.in_process else on_spark(drift, Path(name), plan, asked)
                assert result.rows.equals(answer), f"{title}: rows are missing, doubled or wrong"
                results[title] = result
                changed = f"; {len(result.changes)} changes: {', '.join(result.changes)}" if asked is not None else ""
                print(f"{title}: {result.cpu:.2f} CPU s and {result.work:,.0f} of work in the second half, every row right{changed}", flush=True)
            for what in ("cpu", "work"):
                adapted, stayed, knew = (getattr(results[title], what) for title in (ADAPT, STAYED, KNEW))
                print(
                    f"{what}: {stayed / adapted:.2f} times less than the plan of the first half, {adapted / knew - 1:+.1%} to that of the second",
                    flush=True,
                )


if __name__ == "__main__":
    main(sys.argv[1:])

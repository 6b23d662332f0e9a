"""Streams as files, plans over them on Spark, and what came out: shared by the tests of both engines."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from models.plan import Plan
from models.request import Query
from spark_adapter.pipeline import Pipeline
from tests.spark_adapter.cells import SECOND, Batch, Case, by_definition, watermarks
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import bindings_of, moment, write_stream

__all__ = [
    "NO_LAST_BATCH",
    "SCHEMA",
    "TOGETHER",
    "TOO_SLOW",
    "Ids",
    "Job",
    "Trial",
    "generated",
    "ids",
    "run",
    "run_all",
    "started",
    "tried",
    "true_ids",
    "write",
    "write_batch",
    "written",
]

SCHEMA = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT, z BIGINT"
TOGETHER = 4  # pipelines at a time: a batch is mostly waiting, for tasks to be scheduled and files to be renamed
STARTING = threading.Lock()  # a start changes the session's settings for a moment
ATTEMPTS = 5
# Spark gives a Python worker ten seconds to start and to be heard, which a machine that is busy with other things may miss.
TOO_SLOW = ("failed to connect back", "CANNOT_OPEN_SOCKET", "Accept timed out")

# A batch without rows comes last otherwise, to let go of state: a third of the time where there are two with rows. Tests of state have it.
NO_LAST_BATCH = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}

Ids = Counter[tuple[int, ...]]
"""Results as the ids of their rows, in the order of the query's streams."""


@dataclass(frozen=True)
class Job:
    """One plan over the files in one folder. Several may read the same files: give those a `place` of their own to write to."""

    plan: Plan
    folder: Path
    cells: int | None = None
    engine: str = "stem"
    place: Path | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the bindings, and `watermark`."""
    bindings: Bindings | None = None
    """Bindings of its own, instead of all that."""
    shed: bool = False
    """Whether the plan may shed load."""
    whole: bool = False
    """Whether it must be one run from its first batch to its last: what is late depends on what a run has seen."""

    @property
    def out(self) -> Path:
        return self.place or self.folder


def generated(query: Query, rows: int, seed: int, disorder: float = 0.0, values: int = 6, seconds: float = 30) -> dict[str, list[Row]]:
    """Rows of every stream over `seconds`, in order of arrival: event times lie up to `disorder` seconds back."""
    rng = random.Random(seed)
    result: dict[str, list[Row]] = {}
    for stream in query.streams:
        arrivals = sorted(rng.randrange(round(seconds * 1000)) for _ in range(rows))
        result[stream.name] = [
            {
                "id": k,
                "ts": moment(arrival / 1000 - (rng.randrange(round(disorder * 1000)) / 1000 if disorder else 0)),
                "x": rng.randrange(values),
                "y": rng.randrange(values),
                "z": rng.randrange(values),
            }
            for k, arrival in enumerate(arrivals)
        ]
    return result


def write(folder: Path, rows: Mapping[str, Sequence[Row]], files: int = 2) -> None:
    """A folder of files per stream: every file is a batch."""
    for name, listed in rows.items():
        write_stream(folder / name, listed, files)


def write_batch(folder: Path, rows: Mapping[str, Sequence[Row]], k: int, of: int) -> None:
    """The k-th file of every stream, complete when Spark sees it."""
    for name, listed in rows.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        part = listed[k * len(listed) // of : (k + 1) * len(listed) // of]
        draft = folder / name / f".{k:05}"
        draft.write_text("".join(json.dumps({**row, "ts": row["ts"].isoformat()}) + "\n" for row in part))
        os.utime(draft, (1_000_000_000 + k, 1_000_000_000 + k))
        draft.rename(folder / name / f"{k:05}.json")


def run(spark: SparkSession, job: Job) -> Pipeline:
    """The pipeline, at its end."""
    return _ended(spark, job, started(spark, job))


def run_all(spark: SparkSession, jobs: Sequence[Job]) -> list[Pipeline]:
    """Several pipelines side by side, each to its end: where one ends the next starts."""
    with ThreadPoolExecutor(TOGETHER) as pool:
        return list(pool.map(lambda job: run(spark, job), jobs))


def _ended(spark: SparkSession, job: Job, pipeline: Pipeline) -> Pipeline:
    """The pipeline at its end; one whose worker was too slow to start goes on from its checkpoint, or begins anew where it must be whole."""
    for attempt in range(ATTEMPTS):
        try:
            assert pipeline.await_termination()
            break
        except StreamingQueryException as error:
            if not any(slow in str(error) for slow in TOO_SLOW) or attempt == ATTEMPTS - 1:
                raise
            if job.whole:
                for name in ("out", "checkpoint"):
                    shutil.rmtree(job.out / name, ignore_errors=True)
            pipeline = started(spark, job)
    return pipeline


def started(spark: SparkSession, job: Job) -> Pipeline:
    own = {"sink": {"format": "json", "options": {"path": str(job.out / "out")}}, "checkpoint": str(job.out / "checkpoint")}
    schemas = {stream.name: SCHEMA for stream in job.plan.query.streams}
    bindings = job.bindings or bindings_of(job.folder, schemas, **(own | dict(job.more)))
    with STARTING:
        return spark_adapter.compile(job.plan, bindings, spark, job.engine, cells=job.cells, shed=job.shed).start()


@dataclass(frozen=True)
class Trial:
    """One case on Spark, and by the definition."""

    case: Case
    found: Ids
    expected: Ids
    late: int
    """Rows that Spark counted as late."""
    expected_late: int
    arrived: int
    held: int
    """Rows that its streams' states held in the end."""

    @property
    def right(self) -> bool:
        return self.found == self.expected and self.late == self.expected_late

    def __str__(self) -> str:
        wrong = f"missing {self.expected - self.found}, too much {self.found - self.expected}, late {self.late} instead of {self.expected_late}"
        return f"{wrong}: {self.case}"


def tried(spark: SparkSession, folder: Path, cases: Sequence[Case]) -> list[Trial]:
    """The cases on Spark and by the definition, under watermarks as short as the cases': rows come late, and states let go of theirs.

    A batch is a file, so it is known what Spark has seen before each, and with that its watermark: what is late is no guess.

    Rows with the same event time in one batch have an order of arrival that only their hashes decide, and these are others on
    Spark: where windows are counted in rows, every row gets a time of its own.
    """
    jobs: list[Job] = []
    moved: list[Case] = []
    for k, case in enumerate(cases):
        own = folder / str(k)
        if any(stream.window.rows is not None for stream in case.plan.query.streams):
            case = replace(case, batches=_apart(case))
        moved.append(case)
        for stream in case.plan.query.streams:
            (own / stream.name).mkdir(parents=True)
            for n, (batch, _) in enumerate(case.batches):
                rows = [{**row, "ts": moment(row["ts"] / SECOND).isoformat(), "z": 0} for row in batch.get(stream.name, ())]
                path = own / stream.name / f"{n}.json"
                path.write_text("".join(json.dumps(row) + "\n" for row in rows))
                os.utime(path, (1_000_000_000 + n, 1_000_000_000 + n))
        bound = bindings_of(own, {stream.name: SCHEMA for stream in case.plan.query.streams}, spark=NO_LAST_BATCH).model_dump(by_alias=True)
        for name, delay in case.delays.items():
            bound["streams"][name]["watermark"] = f"{delay} milliseconds"
        jobs.append(Job(case.plan, own, case.parallelism, bindings=Bindings.model_validate(bound), whole=True))
    trials = []
    for case, job, pipeline in zip(moved, jobs, run_all(spark, jobs), strict=True):
        batches = [batch for batch, _ in case.batches]
        timed = list(zip(batches, watermarks(batches, case.delays), strict=True))
        times = [(row["ts"], watermark) for batch, watermark in timed for rows in batch.values() for row in rows]
        progress = pipeline.progress
        streams = [state for state in progress.statistics["states"] if len(state["streams"]) == 1]
        trials.append(
            Trial(
                case,
                ids(case.plan.query, job.out),
                by_definition(case.plan.query, timed),
                progress.late,
                sum(1 for ts, watermark in times if ts < watermark),
                len(times),
                sum(state["rows"] for state in streams),
            )
        )
    return trials


def _apart(case: Case) -> list[tuple[Batch, int]]:
    later = itertools.count()
    return [
        ({name: [{**row, "ts": row["ts"] + next(later)} for row in rows] for name, rows in batch.items()}, watermark)
        for batch, watermark in case.batches
    ]


def written(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted((folder / "out").glob("*.json")) for line in path.read_text().splitlines()]


def ids(query: Query, folder: Path) -> Ids:
    return Counter(tuple(line[stream.name]["id"] for stream in query.streams) for line in written(folder))


def true_ids(query: Query, rows: Mapping[str, Sequence[Row]]) -> Ids:
    return Counter(tuple(row["id"] for row in result) for result in nested_loop(query, rows))

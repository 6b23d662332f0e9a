"""What a pipeline holds is what its plan foresaw: the short version of `tests/bench/bench_memory.py`, over files."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession

from solvers.planner import plan as planned
from spark_adapter.pipeline import STATISTICS
from tests.bench.bench_memory import KEYS, WITHIN, held_bytes, request_of
from tests.spark_adapter.plans import bindings_of, moment, write_stream
from tests.spark_adapter.runs import Job, run

RATE, WINDOW, BATCH, BATCHES = 100, 30, 3, 20
FULL = WINDOW // BATCH + 2  # batches until the states are as full as they get: the watermark comes a batch later than its rows


def test_states_hold_what_the_plan_foresaw_and_do_not_creep(spark: SparkSession, tmp_path: Path) -> None:
    """Materialized states included, batch by batch over two windows."""
    plan = planned(request_of(RATE, WINDOW))
    assert len(plan.operators) == 2, "one subresult is to be materialized"
    draw = np.random.default_rng(3)
    for stream in plan.query.streams:
        times = np.sort(draw.uniform(0, BATCH * BATCHES, RATE * BATCH * BATCHES))
        rows = [{"ts": moment(at), **{key: int(draw.integers(values)) for key, values in KEYS.items()}} for at in times]
        write_stream(tmp_path / stream.name, rows, BATCHES)
    schemas = {stream.name: "ts TIMESTAMP, x BIGINT, y BIGINT" for stream in plan.query.streams}
    bindings = bindings_of(tmp_path, schemas, "500 milliseconds", sink={"format": "noop"})
    run(spark, Job(plan, tmp_path, bindings=bindings))
    lines = [json.loads(line) for line in (tmp_path / "checkpoint" / STATISTICS).read_text().splitlines()]
    held = [held_bytes(plan, line["states"]) / plan.cost.memory_bytes for line in lines if line["streams"]]
    assert len(held) == BATCHES
    full = held[FULL:]
    assert all(abs(share - 1) <= WITHIN for share in full), full
    half = len(full) // 2
    assert statistics.mean(full[half:]) <= 1.05 * statistics.mean(full[:half])

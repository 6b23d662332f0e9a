"""What a pipeline holds, in bytes, and what its plan foresaw: the short version of `tests/bench/bench_memory.py`, over files."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import SparkSession

from solvers.planner import plan as planned
from spark_adapter.pipeline import STATISTICS
from spark_adapter.progress import store_bytes
from tests.bench.bench_memory import ATTRIBUTES, WITHIN, held_rows, keys_of, request_of
from tests.spark_adapter.plans import bindings_of, moment, write_stream
from tests.spark_adapter.runs import Job, run

pytestmark = pytest.mark.spark

RATE, WINDOW, BATCH, BATCHES, CELLS = 100, 30, 3, 20, 4
FULL = WINDOW // BATCH + 2  # batches until the states are as full as they get: the watermark comes a batch later than its rows
COPIES = {"a": 2, "b": 1, "c": 2}  # in a grid of 2 × 2 cells by x and y


def test_states_hold_the_rows_that_the_plan_foresaw_and_their_bytes_are_measured_copies_included(spark: SparkSession, tmp_path: Path) -> None:
    """Materialized states included, batch by batch over two windows."""
    plan = planned(request_of(RATE, WINDOW))
    assert [operator.streams for operator in plan.operators[:-1]] == [["b", "c"]], "one subresult, of which every row lies in one cell"
    draw, keys = np.random.default_rng(3), keys_of(RATE, WINDOW)
    for stream in plan.query.streams:
        times = np.sort(draw.uniform(0, BATCH * BATCHES, RATE * BATCH * BATCHES))
        rows = [{"ts": moment(at), **{key: int(draw.integers(values)) for key, values in keys.items()}} for at in times]
        write_stream(tmp_path / stream.name, rows, BATCHES)
    schemas = {stream.name: "ts TIMESTAMP, x BIGINT, y BIGINT" for stream in plan.query.streams}
    select = [f"{name}.ts AS {name}" for name in ATTRIBUTES]
    pipeline = run(
        spark, Job(plan, tmp_path, CELLS, bindings=bindings_of(tmp_path, schemas, "500 milliseconds", sink={"format": "noop"}, select=select))
    )
    lines = [json.loads(line) for line in (tmp_path / "checkpoint" / STATISTICS).read_text().splitlines()]
    lines = [line for line in lines if line["streams"]]
    assert len(lines) == BATCHES
    full = lines[FULL:]
    shares = [held_rows(line["states"]) / plan.cost.memory_tuples for line in full]
    assert all(abs(share - 1) <= WITHIN for share in shares), shares
    tuple_bytes = {stream.name: stream.tuple_bytes for stream in plan.query.streams}
    for line in full:
        held = sum(state["rows"] * COPIES.get(state["state"], 1) * sum(tuple_bytes[name] for name in state["streams"]) for state in line["states"])
        assert held <= line["workers"]["disk_bytes"] <= 3 * held
    assert store_bytes(pipeline.progress.spark or {}) > 0
    half = len(full) // 2
    first, last = (statistics.mean(line["workers"]["disk_bytes"] for line in part) for part in (full[:half], full[half:]))
    assert last <= 1.05 * first

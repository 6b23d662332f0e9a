"""Engine stem on Spark gives the rows of the definition, each once."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import spark_adapter
from models.plan import Plan
from models.request import Query
from spark_adapter.pipeline import Pipeline
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import Shape, bindings_of, make_plan, make_query, moment, write_stream

pytestmark = pytest.mark.spark

SCHEMA = "id BIGINT, ts TIMESTAMP, x BIGINT, y BIGINT, z BIGINT"
CHAIN = make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"])
STAR = make_query({"hub": 4, "p": 9, "q": 2, "r": 6}, ["hub.x = p.x", "hub.y = q.y", "r.z = hub.z"])
CYCLE = make_query({"a": 6, "b": 4, "c": 10}, ["a.x = b.x", "b.y = c.y", "c.z = a.z"])
CLIQUE = make_query({"a": 6, "b": 4, "c": 10, "d": 5}, ["a.x = b.x", "a.y = c.y", "a.z = d.z", "b.y = c.y", "b.z = d.z", "c.x < d.x"])
SIX = make_query({"a": 5, "b": 5, "c": 7, "d": 6, "e": 5, "f": 4}, ["a.x = b.x", "b.y = c.y", "c.z = d.z", "d.x = e.x", "e.y = f.y"])


def generated(query: Query, rows: int, seed: int, disorder: float = 0.0, values: int = 6) -> dict[str, list[Row]]:
    """Rows of every stream over 30 seconds, in order of arrival: event times lie up to `disorder` seconds back."""
    rng = random.Random(seed)
    result: dict[str, list[Row]] = {}
    for stream in query.streams:
        arrivals = sorted(rng.randrange(30_000) for _ in range(rows))
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


def write(folder: Path, rows: Mapping[str, Sequence[Row]], files: int = 3) -> None:
    for name, listed in rows.items():
        write_stream(folder / name, listed, files)


def run(spark: SparkSession, plan: Plan, folder: Path, cells: int | None = None, **more: Any) -> Pipeline:
    bindings = bindings_of(folder, {stream.name: SCHEMA for stream in plan.query.streams}, **more)
    pipeline = spark_adapter.compile(plan, bindings, spark, cells=cells).start()
    assert pipeline.await_termination()
    return pipeline


def ids(query: Query, folder: Path) -> Counter[tuple[int, ...]]:
    lines = [json.loads(line) for path in sorted((folder / "out").glob("*.json")) for line in path.read_text().splitlines()]
    return Counter(tuple(line[stream.name]["id"] for stream in query.streams) for line in lines)


def true_ids(query: Query, rows: Mapping[str, Sequence[Row]]) -> Counter[tuple[int, ...]]:
    return Counter(tuple(row["id"] for row in result) for result in nested_loop(query, rows))


@pytest.mark.parametrize(
    ("query", "shape", "cells"),
    [
        pytest.param(CHAIN, ["a", "b", "c", "d"], 1, id="chain of 4, mjoin"),
        pytest.param(CHAIN, [["a", "b"], ["c", "d"]], 4, id="chain of 4, bushy, 4 cells"),
        pytest.param(STAR, [["p", "hub"], "q", "r"], 2, id="star of 4, mixed, 2 cells"),
        pytest.param(CYCLE, ["a", "b", "c"], 4, id="cycle of 3, mjoin, 4 cells"),
        pytest.param(CLIQUE, [["a", "b", "c"], "d"], 2, id="clique of 4 with an inequality, 2 cells"),
        pytest.param(SIX, [["a", "b", "c"], [["d", "e"], "f"]], 2, id="chain of 6, mixed, 2 cells"),
    ],
)
def test_results_are_those_of_the_definition(spark: SparkSession, tmp_path: Path, query: Query, shape: Shape, cells: int) -> None:
    rows = generated(query, 60, seed=len(query.streams), disorder=2.0)
    write(tmp_path, rows)
    run(spark, make_plan(query, shape), tmp_path, cells, watermark="3 seconds")
    expected = true_ids(query, rows)
    assert expected
    assert ids(query, tmp_path) == expected

"""A stream that has been silent for its `idle_after` holds nothing back, in all cells alike; what comes late because of it is counted apart."""

from __future__ import annotations

import itertools
import json
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import spark_adapter
from models.bindings import Bindings
from spark_adapter.errors import BindingError, EngineError
from spark_adapter.stem.statistics import Measured
from tests.spark_adapter.cells import SECOND, Batch, Case, Cells, by_definition, cases, watermarks
from tests.spark_adapter.plans import bindings_of, make_plan, make_query, moment
from tests.spark_adapter.runs import NO_LAST_BATCH, SCHEMA, Job, ids, run

QUERY = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
PLAN = make_plan(QUERY, ["a", "b"])


def holding(
    batches: Sequence[Batch], times: Sequence[int], delays: Mapping[str, int], idle_after: Mapping[str, int], starts: Sequence[int] = (0,)
) -> list[int]:
    """The watermark that holds at the start of each batch, by the definition: Spark's, or that of the streams that are not idle.

    A stream is idle when `idle_after` has passed from the last batch with rows of it, or from the first one of the run, to the batch before.
    Runs start with the batches `starts`.
    """
    found, own = [], -1
    for n, by_all in enumerate(watermarks(batches, delays)):
        if n:
            began = max(start for start in starts if start < n)
            heard = {name: max([k for k in range(n) if batches[k].get(name)] + [began]) for name in delays}
            awake = [name for name in delays if name not in idle_after or times[n - 1] - times[heard[name]] < idle_after[name]]
            latest = {name: [row["ts"] // 1000 for batch in batches[:n] for row in batch.get(name, ())] for name in awake}
            if len(awake) < len(delays) and all(latest.values()):
                own = max(own, 1000 * min(max(latest[name]) - delays[name] for name in awake))
        found.append(max(by_all, own))
    return found


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_all_cells_go_on_by_the_streams_that_are_not_idle(case: Case, data: st.DataObject) -> None:
    """Whatever the plan, the grid and the times of batches; through a change of cells, which starts a run, and takes along what was heard."""
    batches = [batch for batch, _ in case.batches if any(batch.values())]
    idle_after = {name: after for name in case.delays if (after := data.draw(st.sampled_from([None, 1, 1500, 4000]))) is not None}
    steps = data.draw(st.lists(st.sampled_from([500, 1000, 5000]), min_size=len(batches), max_size=len(batches)))
    times = list(itertools.accumulate(steps))
    starts = [0]
    cells, found = Cells(case.plan, case.parallelism, case.delays, idle_after), Counter[tuple[int, ...]]()
    measured = Measured(cells.program)
    for n, (batch, watermark) in enumerate(zip(batches, watermarks(batches, case.delays), strict=True)):
        if n and data.draw(st.booleans()):
            starts.append(n)
            cells.rescale(data.draw(st.sampled_from([1, 2, 4])))
        found += cells.work_off(batch, watermark, times[n])
    for outcome in cells.outcomes:
        measured.add([outcome.statistics])
    by_all, held = watermarks(batches, case.delays), holding(batches, times, case.delays, idle_after, starts)
    assert found == by_definition(case.plan.query, list(zip(batches, held, strict=True)))
    arrived = [(row["ts"], by_all[n], held[n]) for n, batch in enumerate(batches) for rows in batch.values() for row in rows]
    streams = measured.summary()["streams"]
    assert sum(stream["late"] for stream in streams) == sum(1 for ts, all_reached, _ in arrived if ts < all_reached)
    assert sum(stream["idle_late"] for stream in streams) == sum(1 for ts, all_reached, held_by in arrived if all_reached <= ts < held_by)


def rows(first: int, last: int) -> list[dict[str, int]]:
    return [{"id": k, "ts": k * SECOND, "x": k % 3, "y": 0} for k in range(first, last)]


def test_state_is_let_go_while_a_stream_is_silent_and_nobody_is_said_to_hold_it() -> None:
    batches: list[Batch] = [{"a": rows(0, 10), "b": rows(0, 10)}, *({"a": rows(10 * n, 10 * n + 10)} for n in range(1, 12))]
    held = {}
    for idle_after in (None, 3000):
        cells = Cells(PLAN, 2, {"a": 0, "b": 0}, {"b": idle_after} if idle_after else None)
        measured = Measured(cells.program)
        for n, (batch, watermark) in enumerate(zip(batches, watermarks(batches, {"a": 0, "b": 0}), strict=True)):
            cells.work_off(batch, watermark, 1000 * n)
        for outcome in cells.outcomes:
            said = measured.add([outcome.statistics])
        held[idle_after] = sum(state["rows"] for state in said["states"])
        assert said["idle"] == (["b"] if idle_after else [])
        assert said["watermark_held_by"] == ({"stream": "a", "seconds": 0.0} if idle_after else {"stream": "b", "seconds": 110.0})
    assert held[None] > 110
    assert held[3000] <= 16


def test_a_long_batch_and_the_time_between_two_runs_are_no_silence() -> None:
    cells = Cells(PLAN, 1, {"a": 0, "b": 0}, {"a": 1000, "b": 1000})
    for n in range(3):
        cells.work_off({"a": rows(20 * n, 20 * n + 20), "b": rows(5 * n, 5 * n + 5)}, -1, 60_000 * n)
    assert cells.outcomes[-1].statistics["idle"] == []
    cells.use(PLAN)
    cells.work_off({"a": rows(60, 80)}, -1, 9_000_000)
    assert cells.outcomes[-1].statistics["idle"] == []
    assert sum(seen["idle_late"] for outcome in cells.outcomes for seen in outcome.statistics["streams"].values()) == 0


@pytest.mark.spark
def test_on_spark_a_silent_stream_is_passed_over_and_its_late_rows_are_counted_apart(spark: SparkSession, tmp_path: Path) -> None:
    """A file a batch: b has rows in the first and the last, and between them none for longer than a millisecond."""
    batches: list[Batch] = [{"a": rows(0, 10), "b": rows(0, 10)}, {"a": rows(10, 40)}, {"a": rows(40, 60)}, {"a": rows(60, 70), "b": rows(20, 66)}]
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for n, batch in enumerate(batches):
            listed = [{**row, "ts": moment(row["ts"] / SECOND).isoformat()} for row in batch.get(name, ())]
            path = tmp_path / name / f"{n}.json"
            path.write_text("".join(json.dumps(row) + "\n" for row in listed))
            os.utime(path, (1_000_000_000 + n, 1_000_000_000 + n))
    document = bindings_of(tmp_path, dict.fromkeys("ab", SCHEMA), spark=NO_LAST_BATCH).model_dump(mode="json", by_alias=True)
    document["streams"]["b"]["idle_after"] = "1 millisecond"
    pipeline = run(spark, Job(PLAN, tmp_path, 2, bindings=Bindings.model_validate(document), whole=True))
    held = holding(batches, [10_000 * n for n in range(4)], {"a": 0, "b": 0}, {"b": 1})
    assert held[-1] == 59 * SECOND
    assert ids(QUERY, tmp_path) == by_definition(QUERY, list(zip(batches, held, strict=True)))
    progress = pipeline.progress
    assert (progress.late, progress.idle_late) == (0, 39)
    assert sum(state["rows"] for state in progress.statistics["states"]) < 40


@pytest.mark.spark
def test_an_idle_after_that_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    document = bindings_of(tmp_path, dict.fromkeys("ab", SCHEMA)).model_dump(mode="json", by_alias=True)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    for wrong in ("soon", "0 seconds"):
        document["streams"]["b"]["idle_after"] = wrong
        with pytest.raises(BindingError, match=f"the idle_after of b must be an interval above 0, like '60 seconds', got '{wrong}'"):
            spark_adapter.compile(PLAN, document, spark)
    document["streams"]["b"]["idle_after"] = "60 seconds"
    spark_adapter.compile(PLAN, document, spark)
    with pytest.raises(EngineError, match="wait for b however long it is silent: use engine stem"):
        spark_adapter.compile(PLAN, document, spark, "native")

"""Progress is told in figures that a person can check against Spark's own report."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest

from spark_adapter.progress import Measured, Reporter, Tick, held_by, line, size, summary, tick_of
from spark_adapter.stem import statistics as stem_statistics
from tests.spark_adapter.cells import SECOND, Cells
from tests.spark_adapter.plans import make_plan, make_query

REPORT: dict[str, Any] = {
    "batchId": 4,
    "numInputRows": 7500,
    "batchDuration": 2500,
    "eventTime": {"max": "2026-01-01T00:12:29.500Z", "watermark": "2026-01-01T00:09:59.500Z"},
    "stateOperators": [
        {"numRowsTotal": 36745, "memoryUsedBytes": 1029264, "numRowsDroppedByWatermark": 3, "customMetrics": {"rocksdbSstFileSize": 5000000}},
        {"numRowsTotal": 2102, "memoryUsedBytes": 651610, "numRowsDroppedByWatermark": 0},
    ],
    "sink": {"numOutputRows": -1},
    "observedMetrics": {"results": {"rows": 8741}},
}


def test_a_tick_adds_up_what_spark_reports() -> None:
    assert tick_of(REPORT) == Tick(8741, 3, 38847, batch=4, rows_in=7500, state_bytes=6680874, lag=150.0, seconds=2.5)


def test_an_engine_that_measures_itself_is_believed() -> None:
    tick = tick_of(REPORT, Measured(100, 1, 50, 7, 8, 500, 1000), Measured(120, 3, 60, 9, 12, 600, 900))
    assert (tick.results, tick.late, tick.state_rows) == (20, 2, 60)
    assert (tick.shed_rows, tick.shed_probes) == (2, 4)
    assert (tick.state_bytes, tick.disk_bytes, tick.memory_bytes) == (6680874, 600, 900)


def test_there_is_no_lag_before_the_first_watermark_or_without_rows() -> None:
    assert tick_of(REPORT | {"eventTime": {"max": "2026-01-01T00:00:01Z", "watermark": "1970-01-01T00:00:00.000Z"}}).lag is None
    assert tick_of(REPORT | {"eventTime": {"watermark": "2026-01-01T00:00:00.000Z"}}).lag is None


def test_a_line_has_rates_state_lag_and_time() -> None:
    expected = "batch 4 | 3,000 rows/s in, 3,496 out | state 38,847 rows, store 6.4 MiB | watermark 150.0 s behind | 2.5 s | 3 late"
    assert line(tick_of(REPORT)) == expected


def test_a_line_says_what_workers_hold_and_what_was_shed() -> None:
    told = line(tick_of(REPORT, Measured(0, 0, 0), Measured(8741, 0, 60, 1200, 34, 2048, 3 * 1024**2)))
    assert "| state 60 rows, store 6.4 MiB, workers 2.0 KiB on disk, 3.0 MiB in memory |" in told
    assert told.endswith("| 2.5 s | shed 1,200 rows, 34 probes")


def test_a_line_says_what_went_to_the_store_and_what_the_plan_foresaw() -> None:
    now = Measured(8741, 0, 60, written_bytes=3 * 1024**2, read_bytes=2048, merges=2)
    told = line(replace(tick_of(REPORT, Measured(0, 0, 0, written_bytes=1024**2), now), planned_rows=1200))
    assert "| state 60 of 1,200 planned rows, store 6.4 MiB | wrote 2.0 MiB, read 2.0 KiB, 2 merges |" in told


def test_a_stream_that_stalls_is_named() -> None:
    """State grows for as long as one stream holds the watermark: a person must see which."""
    query = make_query({"a": 5, "b": 5}, ["a.x = b.x"])
    cells = Cells(make_plan(query, ["a", "b"]), delays={"a": 0, "b": 0})
    measured = stem_statistics.Measured(cells.program)
    for minute in range(5):
        row = {"id": minute, "ts": minute * 60 * SECOND, "x": 1, "y": 1}
        cells.work_off({"a": [row]} if minute else {"a": [row], "b": [row]}, -1)
        said = measured.add([cells.outcomes[-1].statistics])
    told = held_by(measured.summary()["watermark_held_by"])
    assert told == "b, 4 min"
    assert "| watermark 150.0 s behind, held by b, 4 min |" in line(tick_of(REPORT, Measured(0, 0, 0), Measured(0, 0, 0, held_by=told)))
    assert said["watermark_held_by"] == {"stream": "b", "seconds": 240.0}
    assert held_by({"stream": "b", "seconds": None}) == "b, no row yet"


def test_a_stream_that_is_passed_over_is_named_and_its_late_rows_are_told_apart() -> None:
    """The lag is that to the watermark that holds, which is ahead of Spark's."""
    now = Measured(8741, 3, 60, idle_late=5, idle=("b",), watermark=1767226329_500_000)
    tick = tick_of(REPORT, Measured(0, 0, 0, idle_late=1), now)
    assert "| watermark 20.0 s behind | not waiting for b | 2.5 s | 3 late | 4 late after silence" in line(tick)
    assert summary([tick], 1.0, 1024.0)[1].endswith("3 late and dropped, 4 more because their stream had been silent")


def test_a_summary_has_totals_and_peaks() -> None:
    ticks = [
        Tick(10, 1, 70, batch=0, rows_in=100, state_bytes=2048, lag=None, seconds=1.0),
        Tick(20, 0, 50, batch=1, rows_in=300, state_bytes=4096, lag=2.0, seconds=1.0),
    ]
    assert summary(ticks, 4.0, 1024.0) == [
        "2 batches in 4.0 s",
        "in     400 rows, 100 a second; 1 late and dropped",
        "out    30 rows, 8 a second",
        "state  70 rows, store 4.0 KiB, each at most; the plan foresaw 1.0 KiB",
    ]
    shedding = [replace(ticks[0], shed_rows=5, shed_probes=7), replace(ticks[1], shed_rows=1)]
    assert summary(shedding, 4.0, 1024.0, shed=True)[2] == "shed   6 rows not let in, 7 probes not made: results are missing"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_a_line_takes_the_place_of_the_one_before() -> None:
    out = Terminal()
    reporter = Reporter(out)
    reporter.add(tick_of(REPORT))
    reporter.add(Tick(0, 0, 0, batch=5, rows_in=0, state_bytes=0, lag=None, seconds=0.1))
    first, second = out.getvalue().split("\r")[1:]
    assert len(second) == len(first)
    reporter.finish(1.0, 0.0)
    assert out.getvalue().splitlines()[-4] == "2 batches in 1.0 s"


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**4, "5.0 TiB"), (1024**6, "1048576.0 TiB")])
def test_sizes_are_in_the_largest_unit_that_fits(number: float, text: str) -> None:
    assert size(number) == text

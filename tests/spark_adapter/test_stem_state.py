"""State as pieces: what a batch writes and reads follows its rows, merging changes no result, and what is lost is fetched again."""

from __future__ import annotations

import errno
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Plan
from spark_adapter.stem import pieces, probes, shelf, state
from spark_adapter.stem.program import META
from spark_adapter.stem.state import Notes
from spark_adapter.stem.statistics import Measured
from tests.spark_adapter.cells import SECOND, Batch, Case, Cells, Memory, by_definition, cases, plans, steady
from tests.spark_adapter.plans import make_plan, make_query

Results = Counter[tuple[int, ...]]
CHAIN = make_query({"r": 20, "s": 20, "t": 20}, ["r.x = s.x", "s.y = t.y"])


@contextmanager
def merging(fan: int, parting: int = 1) -> Iterator[None]:
    """Merging and parting of pieces as small as those of tests, blocks and spilling as well."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "FAN", fan)
        patch.setattr(pieces, "LEAST", 2)
        patch.setattr(pieces, "NEAR", 1)
        patch.setattr(pieces, "WORTH_PARTING", parting)
        patch.setattr(probes, "BLOCK", 3)
        patch.setattr(state, "SPILLED_BYTES", 100)
        yield


@settings(max_examples=60, deadline=None)
@given(st.booleans().flatmap(lambda counted: cases(counted)), st.integers(2, 4), st.data())
def test_merging_changes_no_result_nor_does_another_plan_amid_it(case: Case, fan: int, data: st.DataObject) -> None:
    cells, found = Cells(case.plan, case.parallelism), Results()
    with merging(fan):
        for batch, watermark in case.batches:
            found += cells.work_off(batch, watermark)
            if data.draw(st.booleans()):
                cells.use(data.draw(plans(case.plan.query)))
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=30, deadline=None)
@given(st.booleans().flatmap(lambda counted: cases(counted)), st.booleans())
def test_probes_by_scan_and_by_index_give_the_same_rows(case: Case, scanned: bool) -> None:
    cells, found = Cells(case.plan, case.parallelism), Results()
    with merging(2), pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "scan_is_cheaper", lambda *_: scanned)
        for batch, watermark in case.batches:
            found += cells.work_off(batch, watermark)
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=30, deadline=None)
@given(st.booleans().flatmap(lambda counted: cases(counted)), st.integers(2, 4), st.data())
def test_a_batch_that_is_run_again_here_or_elsewhere_gives_the_same_rows(case: Case, fan: int, data: st.DataObject) -> None:
    """Spark takes back what a batch put into the store; the shelf keeps what it was given, loses some of it, or is another worker's."""
    cells, found = Cells(case.plan, case.parallelism), Results()
    with merging(fan):
        for batch, watermark in case.batches:
            before = {cell: dict(store.content) for cell, store in cells.stores.items()}
            first = cells.work_off(batch, watermark)
            if data.draw(st.booleans()):
                for cell, store in cells.stores.items():
                    store.content = before.get(cell, {})
                    if data.draw(st.booleans()):
                        shutil.rmtree(store.shelf.folder)
                        shelf._opened.clear()
                        store.shelf = shelf.Shelf(store.shelf.folder)
                assert cells.work_off(batch, watermark) == first
            found += first
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=20, deadline=None)
@given(cases(), st.integers(1, 12))
def test_a_disk_that_is_full_fails_the_batch_and_loses_nothing(case: Case, room: int) -> None:
    """The disk takes so many files of a batch and no more; then there is room again and Spark runs the batch once more."""
    cells, found = Cells(case.plan, case.parallelism), Results()
    failed = 0
    for batch, watermark in case.batches:
        before = {cell: dict(store.content) for cell, store in cells.stores.items()}
        try:
            with merging(2), full_after(room):
                found += cells.work_off(batch, watermark)
        except OSError as error:
            assert error.errno == errno.ENOSPC
            failed += 1
            for cell, store in cells.stores.items():
                store.content = before.get(cell, {})
                assert not list(store.shelf.folder.glob("*.draft"))
            with merging(2):
                found += cells.work_off(batch, watermark)
    assert found == by_definition(case.plan.query, case.batches)


@contextmanager
def full_after(files: int) -> Iterator[None]:
    write = shelf.Shelf._write
    left = files

    def written(self: shelf.Shelf, name: str, *parts: bytes) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(self, name, *parts)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shelf.Shelf, "_write", written)
        yield


@pytest.mark.parametrize("shape", [["r", "s", "t"], [["r", "s"], "t"]])
def test_a_batch_writes_at_most_three_times_what_it_adds(shape: list[object]) -> None:
    """A window of 100 batches and half of the next, with merges on the way; subresults, whose rows die at any time, included."""
    cells = Cells(make_plan(CHAIN, shape))  # type: ignore[arg-type]
    traffic, counts = [], []
    for batch, watermark in steady(CHAIN, seconds=30, per_second=50, values=400, every=0.2):
        cells.work_off(batch, watermark)
        traffic.append(cells.outcomes[-1].statistics["traffic"])
        counts.append(cells.outcomes[-1].statistics["pieces"])
    second = traffic[100:]
    added, merged = (sum(moved[key] for moved in second) for key in ("added", "merged"))
    assert 0 < merged <= 2 * added
    assert sum(moved["fetched"] for moved in traffic) == 0
    assert max(counts) <= 80 * len(cells.program.modules)
    on_disk = sum(file.stat().st_size for file in cells.stores[0].shelf.folder.iterdir())
    assert on_disk <= 2 * sum(size for _, size in cells.outcomes[-1].statistics["states"].values())


def test_what_is_dead_or_out_of_reach_is_not_read() -> None:
    """After a move to another worker: only what the batch's rows may meet is fetched from the store."""
    cells = Cells(make_plan(CHAIN, ["r", "s", "t"]))
    for batch, watermark in steady(CHAIN, seconds=40, per_second=20, values=100, every=2.0):
        cells.work_off(batch, watermark)
    moved(cells)
    rows = [{"id": 1, "ts": 200 * SECOND, "x": 1, "y": 1}]
    cells.work_off({"r": rows}, 39 * SECOND)
    assert cells.outcomes[-1].statistics["traffic"]["fetched"] == 0
    cells.work_off({"t": [{"id": 2, "ts": 39 * SECOND, "x": 1, "y": 1}]}, 39 * SECOND)
    everything = sum(piece.stored for piece in Notes.read(cells.stores[0].get(META)).pieces)
    assert 0 < cells.outcomes[-1].statistics["traffic"]["fetched"] < everything / 1.5


def moved(cells: Cells) -> None:
    """To a worker that has no copies."""
    for cell, store in cells.stores.items():
        fresh = Memory()
        fresh.content = store.content
        cells.stores[cell] = fresh


def test_copies_that_vanish_between_batches_are_fetched_again() -> None:
    plan = make_plan(CHAIN, [["r", "s"], "t"])
    batches = list(steady(CHAIN, seconds=60, per_second=20, values=100, every=2.0))
    expected, found = run(plan, batches), Results()
    cells, rng = Cells(plan), random.Random(1)
    for batch, watermark in batches:
        found += cells.work_off(batch, watermark)
        for file in sorted(cells.stores[0].shelf.folder.iterdir()):
            if rng.random() < 0.5:
                file.unlink()
        shelf._opened.clear()
        cells.stores[0].shelf = shelf.Shelf(cells.stores[0].shelf.folder)
    assert found == expected
    assert sum(outcome.statistics["traffic"]["fetched"] for outcome in cells.outcomes) > 0


def test_the_shelf_of_a_cell_that_has_moved_away_goes_and_that_of_one_that_waits_as_we_do_stays(tmp_path: Path) -> None:
    """Whoever worked when we last did is still here, though that may be hours ago; whoever did not for long before is elsewhere."""
    ours, beside, gone = (tmp_path / name for name in ("0", "1", "2"))
    for folder in (ours, beside, gone):
        folder.mkdir()
    hours_ago = time.time() - 20_000
    os.utime(ours, (hours_ago, hours_ago))
    os.utime(beside, (hours_ago - 5, hours_ago - 5))
    os.utime(gone, (hours_ago - 2 * shelf.ABANDONED, hours_ago - 2 * shelf.ABANDONED))
    shelf.Shelf(ours).tidy(())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def run(plan: Plan, batches: list[tuple[Batch, int]]) -> Results:
    cells, found = Cells(plan), Results()
    for batch, watermark in batches:
        found += cells.work_off(batch, watermark)
    return found


def test_results_of_a_hot_key_leave_in_slices_of_bounded_size() -> None:
    plan = make_plan(make_query({"r": 20, "s": 20}, ["r.x = s.x"]), ["r", "s"])
    rows = [{"id": k, "ts": k, "x": 1, "y": 1} for k in range(300)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probes, "BLOCK", 1_000)
        cells = Cells(plan)
        assert cells.work_off({"r": rows, "s": rows}, -1).total() == 300 * 300
    assert max(cells.slices) <= 2 * 1_000


def test_what_keeping_takes_is_said_for_each_state_and_is_part_of_the_whole() -> None:
    plan = make_plan(CHAIN, [["r", "s"], "t"])
    batches = steady(CHAIN, seconds=10, per_second=20, values=5)
    cells, measured = Cells(plan), Measured(plan.query)
    for batch, watermark in batches:
        cells.work_off(batch, watermark)
        line = measured.add([cells.outcomes[-1].statistics])
        assert all(state["cpu_seconds"] > 0.0 for state in line["states"])
    whole = measured.summary()
    assert [state["state"] for state in whole["states"]] == ["r", "s", "t", "join-1"]
    assert sum(state["cpu_seconds"] for state in whole["states"]) < sum(whole["cpu_seconds"].values())

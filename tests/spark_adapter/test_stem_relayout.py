"""States laid out for another number of cells: every row is where its partners will look for it, and no result is lost or made twice."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_adapter.stem import pieces
from spark_adapter.stem.program import META
from spark_adapter.stem.program import PLAN as PLAN_KEY
from spark_adapter.stem.relayout import placed
from spark_adapter.stem.shelf import from_file
from spark_adapter.stem.state import Notes, expanded
from tests.spark_adapter.cells import SECOND, Case, Cells, by_definition, cases, plans, steady
from tests.spark_adapter.plans import make_plan, make_query

CHAIN = make_query({"a": 8, "b": 3.5, "c": 12, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.x = d.x"])
PLAN = make_plan(CHAIN, [["a", "b"], "c", "d"])


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_any_number_of_cells_may_become_any_other_between_two_batches(case: Case, data: st.DataObject) -> None:
    """Whatever the plan, its kept subresults and its caches; another plan may take over in the same moment."""
    cells, found = Cells(case.plan, case.parallelism), Counter[tuple[int, ...]]()
    for batch, watermark in case.batches:
        found += cells.work_off(batch, watermark)
        if data.draw(st.booleans()):
            cells.rescale(data.draw(st.sampled_from([1, 2, 3, 4, 6])))
            if data.draw(st.booleans()):
                cells.use(data.draw(plans(case.plan.query)))
    assert found == by_definition(case.plan.query, case.batches)


def test_after_a_change_every_row_lies_where_the_grid_sends_its_like() -> None:
    batches = steady(CHAIN, seconds=12, per_second=20, values=30)
    cells = Cells(PLAN, 2)
    for batch, watermark in batches:
        cells.work_off(batch, watermark)
    held = _held(cells)
    for parallelism in (4, 3, 1, 6, 2):
        cells.rescale(parallelism)
        for cell, store in cells.stores.items():
            for piece in Notes.read(store.get(META)).pieces:
                rows = from_file(expanded(store.content[piece.name]))
                assert set(cell - placed(rows, piece.module, cells.grid)) <= set(cells.grid.offsets(piece.module))
        assert _held(cells) == held, "each row as often as the grid copies it, which is counted once"


def _held(cells: Cells) -> Counter[tuple[str, int]]:
    """(stream, id) of every row of a stream, counted in one of its copies."""
    found: Counter[tuple[str, int]] = Counter()
    for cell, store in cells.stores.items():
        for piece in Notes.read(store.get(META)).pieces:
            if piece.module in "abcd" and cells.grid.home(cell, (piece.module,)):
                found.update((piece.module, number) for number in from_file(expanded(store.content[piece.name]))[f"{piece.module}/0"])
    return found


def test_many_small_pieces_become_few() -> None:
    """A change must not leave every new cell with a sliver of every piece of every old one."""
    query = make_query({"a": 20, "b": 20}, ["a.x = b.x"])
    cells = Cells(make_plan(query, ["a", "b"]), 4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pieces, "LEAST", 1000)
        patch.setattr(pieces, "FAN", 1000)
        for batch, watermark in steady(query, seconds=15, per_second=64, values=500, every=0.25):
            cells.work_off(batch, watermark)
    before = [len(Notes.read(store.get(META)).pieces) for store in cells.stores.values()]
    cells.rescale(3)
    after = [len(Notes.read(store.get(META)).pieces) for store in cells.stores.values()]
    assert min(before) > 100
    assert max(after) <= 2 * 3 * pieces.NEAR


def test_a_cell_that_no_row_comes_to_lets_go_of_what_it_was_given() -> None:
    cells = Cells(PLAN, 2)
    for batch, watermark in steady(CHAIN, seconds=5, per_second=10, values=5):
        cells.work_off(batch, watermark)
    cells.rescale(4)
    cells.work_off({}, 100 * SECOND)
    assert all(set(store.content) == {META, f"{PLAN_KEY}1"} for store in cells.stores.values()), "its notes, and the plan in force"


def test_a_plan_that_took_over_goes_on_in_other_cells_with_its_subresults() -> None:
    """A change of plan, then of cells: the run that was started with a flat plan goes on with the one in force."""
    batches = steady(CHAIN, seconds=12, per_second=6, values=8)
    cells, found = Cells(make_plan(CHAIN, ["a", "b", "c", "d"]), 2), Counter[tuple[int, ...]]()
    for n, (batch, watermark) in enumerate(batches):
        if n == 4:
            cells.change(PLAN)
        if n == 8:
            cells.rescale(4)
        found += cells.work_off(batch, watermark)
    assert found == by_definition(CHAIN, batches) and found.total() > 100
    for store in cells.stores.values():
        notes = Notes.read(store.get(META))
        assert (notes.plans, "a+b" in notes.modules) == ([2], True)


def test_another_plan_takes_over_after_a_change_of_cells() -> None:
    """Once in the first batch of the new cells, which have no subresult yet, and once later."""
    batches = steady(CHAIN, seconds=12, per_second=6, values=8)
    other = make_plan(CHAIN, ["a", "b", ["c", "d"]])
    expected = by_definition(CHAIN, batches)
    assert expected.total() > 100
    for changed in (6, 9):
        cells, found = Cells(PLAN, 4), Counter[tuple[int, ...]]()
        for n, (batch, watermark) in enumerate(batches):
            if n == 6:
                cells.rescale(3)
            if n == changed:
                cells.change(other)
            found += cells.work_off(batch, watermark)
        assert found == expected
        assert all(Notes.read(store.get(META)).modules == ["c+d"] for store in cells.stores.values())

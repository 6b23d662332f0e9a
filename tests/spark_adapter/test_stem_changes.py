"""Plans change between batches: every row is still there once, and what is built for a new plan never takes more than its share of a batch."""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Plan
from models.request import Query
from spark_adapter.stem import operator, preparing
from spark_adapter.stem.program import META
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.state import Notes
from spark_adapter.stem.text import digest, program_from, text_of
from spark_adapter.stem.windows import Windows
from tests.spark_adapter.cells import (
    SECOND,
    Batch,
    Case,
    Cells,
    Memory,
    by_definition,
    cases,
    plans,
    queries,
    reordered,
    steady,
    with_caches,
    with_shares,
)
from tests.spark_adapter.plans import make_plan, make_query

Results = Counter[tuple[int, ...]]

CHAIN = make_query({"a": 6, "b": 4, "c": 5, "d": 6}, ["a.x = b.x", "b.y = c.y", "c.x = d.x"])
FLAT = make_plan(CHAIN, ["a", "b", "c", "d"])
LEFT = make_plan(CHAIN, [[["a", "b"], "c"], "d"])
BUSHY = make_plan(CHAIN, [["a", "b"], ["c", "d"]])
MIXED = make_plan(CHAIN, [["b", "c"], "a", "d"])
TREES = {"flat": FLAT, "left": LEFT, "bushy": BUSHY, "mixed": MIXED}
CACHED = with_caches(FLAT, [("join-1", "d", 0, 1, "prefix", 1e6), ("join-1", "a", 1, 2, "global", 2e3)])
OTHER_ORDERS = reordered(FLAT, {("join-1", "b"): (1, 0, 2), ("join-1", "a"): (0, 1, 2), ("join-1", "c"): (1, 2, 0)})


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building gets hardly anywhere in a batch."""
    monkeypatch.setattr(operator, "LEAST", 25.0)
    monkeypatch.setattr(operator, "SHARE", 0.0)


def notes_of(cells: Cells, cell: int = 0) -> Notes:
    return Notes.read(cells.stores[cell].get(META))


def held(cells: Cells, key: str, watermark: int) -> list[tuple[Any, ...]]:
    """The rows of a module that are alive, in any order."""
    store, notes = cells.stores[0], notes_of(cells)
    windows = Windows(cells.program, notes.counts)
    module = next(module for module in program_of(cells.plan, dict.fromkeys("abcd", 1)).modules if module.key == key)
    found: list[tuple[Any, ...]] = []
    for piece in notes.pieces:
        if piece.module == key:
            frame = store.shelf.known(piece.name)
            assert frame is not None
            found += frame.filter(windows.alive(module.counted, watermark)).select(sorted(frame.columns)).rows()
    return sorted(found)


@settings(max_examples=60, deadline=None)
@given(cases(counted=True), st.data())
def test_changes_in_every_batch_lose_and_double_nothing(case: Case, data: st.DataObject) -> None:
    cells = Cells(case.plan, case.parallelism, case.delays if data.draw(st.booleans()) else None)
    found: Results = Counter()
    for batch, watermark in case.batches:
        found += cells.work_off(batch, watermark)
        cells.change(data.draw(plans(case.plan.query)))
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=25, deadline=None)
@given(st.booleans().flatmap(lambda counted: queries(counted, 4)), st.integers(0, 1000), st.data())
def test_changes_while_something_is_built_lose_and_double_nothing(query: Query, seed: int, data: st.DataObject) -> None:
    """Building takes many batches; on the way other plans come, by a change or a restart, some batches are run twice, and copies are lost."""
    batches = steady(query, seconds=7, per_second=4, values=3, seed=seed, every=0.5)
    batches = [(_disordered(_some(batch, data)), watermark - 2 * SECOND) for batch, watermark in batches]
    cells = Cells(data.draw(plans(query)), data.draw(st.sampled_from([1, 2])))
    found: Results = Counter()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operator, "LEAST", data.draw(st.sampled_from([1.0, 8.0, 40.0])))
        patch.setattr(operator, "SHARE", 0.0)
        patch.setattr(preparing, "AT_ONCE", data.draw(st.sampled_from([0, 10, 1000])))
        for batch, watermark in batches:
            what = data.draw(st.sampled_from(["nothing", "nothing", "change", "restart", "crash", "loss"]))
            if what == "change":
                cells.change(data.draw(plans(query)))
            elif what == "restart":
                cells.use(data.draw(plans(query)))
            elif what == "crash":
                _crashed(cells, batch, watermark)
            elif what == "loss":
                for store in cells.stores.values():
                    store.shelf.tidy(())
            found += cells.work_off(batch, watermark)
    assert found == by_definition(query, batches)


def _some(batch: Batch, data: st.DataObject) -> Batch:
    return {name: rows for name, rows in batch.items() if data.draw(st.integers(0, 4))}


def _disordered(batch: Batch) -> Batch:
    """Event times lie up to three seconds back: some rows of a later batch die before those of earlier ones, and some are late."""
    return {name: [{**row, "ts": row["ts"] - row["id"] ** 3 % 13 * SECOND // 4} for row in rows] for name, rows in batch.items()}


def _crashed(cells: Cells, batch: Batch, watermark: int) -> None:
    """Work off a batch whose changes to the store are never committed; the next attempt must do the same."""
    before = {cell: dict(store.content) for cell, store in cells.stores.items()}
    told, outcomes = cells._told, len(cells.outcomes)
    first = cells.work_off(batch, watermark)
    works = [outcome.statistics.get("work") for outcome in cells.outcomes[outcomes:]]
    after = {cell: _without_names(store) for cell, store in cells.stores.items()}
    for cell, store in cells.stores.items():
        store.content = dict(before.get(cell, {}))
    attempt = replace(cells)
    attempt._told, attempt._number, attempt.program = told, cells._number, cells.program
    assert attempt.work_off(batch, watermark) == first
    assert [outcome.statistics.get("work") for outcome in attempt.outcomes[outcomes + len(works) :]] == works
    assert {cell: _without_names(store) for cell, store in cells.stores.items()} == after
    for cell, store in cells.stores.items():
        store.content = dict(before.get(cell, {}))
    cells._told = told


def _without_names(store: Memory) -> dict[str, Any]:
    notes = Notes.read(store.get(META))
    pieces = sorted([piece.module, piece.level, piece.part, piece.rows, *piece.bounds.hi] for piece in notes.pieces)
    return {"pieces": pieces, "plans": notes.plans, "modules": notes.modules, "building": copy.deepcopy(notes.building), "counts": notes.counts} | {
        "indexed": sorted(notes.indexed.values())
    }


def test_every_kind_of_change_gives_the_rows_of_the_definition(slow: None) -> None:
    """One run through orders, caches on and off, and from every tree to every other; each is whole before the next comes."""
    trees = ["flat", "left", "flat", "bushy", "flat", "mixed", "left", "bushy", "left", "mixed", "bushy", "mixed", "flat"]
    assert set(itertools.pairwise(trees)) == set(itertools.permutations(TREES, 2))
    tour = [OTHER_ORDERS, FLAT, CACHED, FLAT, *(TREES[name] for name in trees[1:])]
    batches = [(_disordered(batch), watermark - 2 * SECOND) for batch, watermark in steady(CHAIN, seconds=120, per_second=2, values=3, seed=3)]
    waiting = iter(enumerate(tour, 2))
    cells, number = Cells(FLAT), 1
    found: Results = Counter()
    for n, (batch, watermark) in enumerate(batches):
        if n >= 6 and notes_of(cells).plans == [number]:
            if number > len(tour):
                batches = batches[:n]
                break
            number, plan = next(waiting)
            cells.change(plan)
        found += cells.work_off(batch, watermark)
    assert notes_of(cells).plans == [len(tour) + 1]
    assert sum(bool(outcome.statistics["building"]) for outcome in cells.outcomes) > 2 * len(trees), "what a tree keeps takes some batches to build"
    assert found == by_definition(CHAIN, batches)
    assert found.total() > 100


@pytest.mark.parametrize("after", [OTHER_ORDERS, CACHED, with_shares(FLAT, {("join-1", "a", 0): 0.5})], ids=["orders", "caches", "allowances"])
def test_what_touches_no_state_is_taken_from_the_batch_on_that_reads_it(after: Plan) -> None:
    batches = steady(CHAIN, seconds=3, per_second=10, values=4)
    cells = Cells(FLAT, 4)
    for n, (batch, watermark) in enumerate(batches):
        if n == 1:
            cells.change(after)
        cells.work_off(batch, watermark)
    ran = [outcome.statistics["plan"] for outcome in cells.outcomes]
    assert ran == [1] * cells.grid.cells + [2] * 2 * cells.grid.cells


def test_a_cell_without_rows_hears_of_a_change_too() -> None:
    cells = Cells(FLAT, 4)
    cells.work_off(steady(CHAIN, seconds=1, per_second=10, values=4)[0][0], -1)
    cells.change(OTHER_ORDERS)
    cells.work_off({}, -1)
    assert [notes_of(cells, cell).plans for cell in range(cells.grid.cells)] == [[2]] * 4


def test_a_change_that_an_earlier_start_has_overruled_is_passed_over() -> None:
    """Written but not read when the pipeline was stopped, and started again with another plan: the first batch reads both, the start counts."""
    cells = Cells(FLAT)
    cells.change(CACHED)
    missed = cells._told
    cells.use(OTHER_ORDERS)
    cells._told = (*cells._told, *missed)
    cells.work_off(steady(CHAIN, seconds=1, per_second=4, values=4)[0][0], -1)
    assert notes_of(cells).plans == [3]


def test_the_way_of_the_plan_before_is_taken_until_the_new_subresult_is_whole_and_then_it_is_let_go(slow: None) -> None:
    batches = steady(CHAIN, seconds=26, per_second=4, values=6)
    cells = Cells(MIXED)
    ways = []
    for n, (batch, watermark) in enumerate(batches):
        if n == 8:
            cells.change(BUSHY)
        cells.work_off(batch, watermark)
        statistics = cells.outcomes[-1].statistics
        ways.append((statistics["plan"], statistics["in_force"]))
        assert bool(statistics["building"]) == (statistics["plan"] != statistics["in_force"])
    assert ways[:8] == [(1, 1)] * 8
    switched = ways.index((2, 2))
    assert ways[8:switched] == [(1, 2)] * (switched - 8)
    assert switched > 12
    notes = notes_of(cells)
    assert sorted({piece.module for piece in notes.pieces}) == ["a", "a+b", "b", "c", "c+d", "d"]
    assert (sorted(notes.modules), notes.building) == (["a+b", "c+d"], {})
    assert sorted(key for key in cells.stores[0].content if key.startswith("plan")) == ["plan 2"]


@pytest.mark.parametrize("counted", [False, True])
def test_a_subresult_that_was_built_is_the_one_that_was_always_kept(slow: None, counted: bool) -> None:
    document = CHAIN.model_dump(mode="json")
    if counted:
        document["streams"][0]["window"] = {"rows": 9}
    query = Query.model_validate(document)
    flat, left = make_plan(query, ["a", "b", "c", "d"]), make_plan(query, [[["a", "b"], "c"], "d"])
    always, built = Cells(left), Cells(flat)
    compared = 0
    for n, (batch, watermark) in enumerate(steady(query, seconds=18, per_second=3, values=4)):
        if n == 4:
            built.change(left)
        assert built.work_off(batch, watermark) == always.work_off(batch, watermark)
        for key in notes_of(built).modules if n >= 4 else ():
            assert held(built, key, watermark) == held(always, key, watermark)
            compared += 1
    assert compared > 12


def test_building_takes_no_more_of_any_batch_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """By counted work: a thousand rows in a window, a tenth of that a batch."""
    monkeypatch.setattr(operator, "LEAST", 250.0)
    monkeypatch.setattr(operator, "SHARE", 0.02)
    query = make_query({"a": 10, "b": 10, "c": 10}, ["a.x = b.x", "b.y = c.y"])
    batches = steady(query, seconds=24, per_second=100, values=150)
    cells = Cells(make_plan(query, ["a", "b", "c"]))
    built = []
    for n, (batch, watermark) in enumerate(batches):
        if n == 11:
            cells.change(make_plan(query, [["a", "b"], "c"]))
        cells.work_off(batch, watermark)
        work = cells.outcomes[-1].statistics["work"]
        if work["building"]:
            built.append(work["building"])
            # The last rows that are taken may have more partners than those before.
            assert work["building"] <= 1.2 * max(250.0, 0.02 * work["own"])
            assert work["own"] > 300
    assert cells.outcomes[-1].statistics["plan"] == 2
    assert len(built) >= 5
    assert sum(built) > 1000, "a row of the window each, and what it found"


TRIANGLE = make_query({"a": 10, "b": 10, "c": 10}, ["a.x = b.x", "b.y = c.y", "c.x = a.y"])
ONE_WAY = make_plan(TRIANGLE, ["a", "b", "c"])
THE_OTHER = reordered(ONE_WAY, {("join-1", name): (1, 0) for name in "abc"})


def test_orders_that_probe_by_other_columns_wait_until_these_are_indexed_a_bounded_bit_in_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "AT_ONCE", 100)
    monkeypatch.setattr(operator, "LEAST", 250 * preparing.INDEXED)
    monkeypatch.setattr(operator, "SHARE", 0.0)
    batches = steady(TRIANGLE, seconds=19, per_second=40, values=30)
    cells = Cells(ONE_WAY)
    found: Results = Counter()
    ways = []
    for n, (batch, watermark) in enumerate(batches):
        if n == 11:
            cells.change(THE_OTHER)
        found += cells.work_off(batch, watermark)
        statistics = cells.outcomes[-1].statistics
        ways.append((statistics["plan"], statistics["in_force"]))
        assert statistics["work"]["building"] <= 250 * preparing.INDEXED
    switched = ways.index((2, 2))
    assert ways[:11] == [(1, 1)] * 11 and ways[11:switched] == [(1, 2)] * (switched - 11)
    assert switched >= 14, "1,200 rows, 250 of them in a batch"
    monkeypatch.setattr(preparing, "AT_ONCE", 1200 // 2)
    cells.change(ONE_WAY)
    cells.work_off(batches[-1][0], batches[-1][1])
    assert cells.outcomes[-1].statistics["plan"] == 3, "what the pieces were indexed by before is still known"
    assert found == by_definition(TRIANGLE, batches)


@pytest.mark.parametrize("shedding", [ONE_WAY, THE_OTHER], ids=["from", "to"])
def test_a_plan_that_sheds_is_followed_at_once_whatever_has_no_index(shedding: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparing, "AT_ONCE", 0)
    first, second = (with_shares(plan, {("join-1", "a", 0): 0.5}) if plan is shedding else plan for plan in (ONE_WAY, THE_OTHER))
    cells = Cells(first)
    for n, (batch, watermark) in enumerate(steady(TRIANGLE, seconds=3, per_second=20, values=10)):
        if n == 2:
            cells.change(second)
        cells.work_off(batch, watermark)
    assert [outcome.statistics["plan"] for outcome in cells.outcomes] == [1, 1, 2]


def test_rows_that_are_alike_and_die_together_are_built_once(slow: None) -> None:
    """One row fifty times, and no other to set a mark at."""
    query = make_query({"a": 60, "b": 60, "c": 60}, ["a.x = b.x", "b.y = c.y"])
    same: list[dict[str, int]] = [{"id": 7, "ts": SECOND, "x": 1, "y": 1}] * 20
    batches: list[tuple[Batch, int]] = [({"a": same, "b": same}, -1)]
    batches += [({"a": same[:1], "c": [{"id": n, "ts": 2 * SECOND, "x": 0, "y": 1}]}, -1) for n in range(3)]
    cells = Cells(make_plan(query, ["a", "b", "c"]))
    found: Results = Counter()
    for n, (batch, watermark) in enumerate(batches):
        if n == 1:
            cells.change(make_plan(query, [["a", "b"], "c"]))
        found += cells.work_off(batch, watermark)
    assert found == Counter({(7, 7, n): 23 * 20 for n in range(3)})
    assert cells.outcomes[-1].statistics["plan"] == 2


def test_a_row_that_comes_below_the_mark_is_built_once(slow: None) -> None:
    query = make_query({"a": 60, "b": 60, "c": 60}, ["a.x = b.x", "b.y = c.y"])

    def rows(count: int, start: int, identity: int) -> list[dict[str, int]]:
        return [{"id": identity + k, "ts": (start + k) * SECOND, "x": k % 10, "y": k % 10} for k in range(count)]

    batches: list[tuple[Batch, int]] = [({"a": rows(10, 20, 0), "b": rows(20, 20, 100)}, -1), ({}, -1), ({"a": rows(5, 10, 50)}, -1)]
    batches += [({}, -1)] * 8 + [({"c": rows(10, 30, 200)}, -1)]
    cells = Cells(make_plan(query, ["a", "b", "c"]))
    found: Results = Counter()
    for n, (batch, watermark) in enumerate(batches):
        if n == 1:
            cells.change(make_plan(query, [["a", "b"], "c"]))
        if n == 2:
            begun = notes_of(cells).building["a+b"]
            assert begun.input == "a" and begun.mark is not None and begun.mark[0] > 80 * SECOND
        cells._told = cells._told or (replace(cells.program, number=0),)  # Batches without rows are worked off too.
        found += cells.work_off(batch, watermark)
    assert cells.outcomes[-1].statistics["plan"] == 2
    assert found == by_definition(query, batches)
    assert found.total() == 30


@settings(max_examples=30, deadline=None)
@given(cases(counted=True))
def test_a_program_is_read_as_it_was_written(case: Case) -> None:
    program = program_of(case.plan, {stream.name: 2 for stream in case.plan.query.streams}, {"s0": 5}, "run")
    assert program_from(text_of(program)) == program
    assert digest(replace(program, number=9, run="another")) == digest(program)


def test_programs_that_do_something_else_have_other_digests() -> None:
    def of(plan: Plan) -> str:
        return digest(program_of(plan, dict.fromkeys("abcd", 1)))

    several: Sequence[Plan] = [*TREES.values(), CACHED, OTHER_ORDERS, with_shares(FLAT, {("join-1", "a", 0): 0.5}), with_shares(FLAT, {}, 0.5)]
    assert len({of(plan) for plan in several}) == len(several)
    assert of(FLAT.model_copy(update={"explanation": ["another"], "fingerprint": "f"})) == of(FLAT)

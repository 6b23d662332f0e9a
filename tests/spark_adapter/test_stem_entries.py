"""Caches as pieces: what a batch writes follows what it adds, pieces stay few, and what is lost or dropped is made again."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from spark_adapter.stem.entries import FAN
from spark_adapter.stem.pieces import Piece
from spark_adapter.stem.program import META
from spark_adapter.stem.state import Notes, compressed, expanded
from tests.spark_adapter.cells import SECOND, Batch, Cells, by_definition, steady, with_caches
from tests.spark_adapter.plans import make_plan, make_query

CHAIN = make_query({"r": 20, "s": 20, "t": 20}, ["r.x = s.x", "s.y = t.y"])
PLAN = with_caches(make_plan(CHAIN, ["r", "s", "t"]), [("join-1", "t", 0, 1, "prefix", 1e8)])


def held(cells: Cells) -> list[Piece]:
    """The pieces of the only cache of the only cell."""
    (found,) = Notes.read(cells.stores[0].get(META)).cached.values()
    return found.pieces


def asked(cells: Cells) -> tuple[int, int]:
    """Hits and misses of the last batch."""
    (note,) = cells.outcomes[-1].statistics["caches"].values()
    return note["hits"], note["misses"]


def rows(name: str, *values: tuple[int, int, int]) -> tuple[Batch, int]:
    """Rows of one stream: second, x, y."""
    return {name: [{"id": 1000 * "rst".index(name) + second, "ts": second * SECOND, "x": x, "y": y} for second, x, y in values]}, -1


def test_a_batch_that_only_finds_entries_writes_nothing() -> None:
    cells = Cells(PLAN)
    for batch in (rows("r", (0, 1, 0)), rows("s", (1, 1, 1)), rows("t", (2, 0, 1))):
        cells.work_off(*batch)
    before = held(cells)
    assert [(piece.module, piece.rows) for piece in before] == [("keys", 1), ("rows", 1)]
    assert cells.work_off(*rows("t", (3, 0, 1), (4, 0, 1))) == Counter([(0, 1001, 2003), (0, 1001, 2004)])
    assert asked(cells) == (2, 0)
    assert held(cells) == before


def test_a_key_that_is_null_has_no_entry() -> None:
    cells = Cells(PLAN)
    for second in range(3):
        nameless: Any = {"id": second, "ts": second * SECOND, "x": 0, "y": None}
        cells.work_off({"t": [nameless]}, -1)
    assert held(cells) == []


@pytest.mark.parametrize("capacity", [1e8, 60_000.0])
def test_pieces_stay_few_however_many_batches(capacity: float) -> None:
    batches = steady(CHAIN, seconds=90, per_second=6, values=30)
    cells, found = Cells(with_caches(make_plan(CHAIN, ["r", "s", "t"]), [("join-1", "t", 0, 1, "prefix", capacity)])), Counter[tuple[int, ...]]()
    most = 0
    for batch, watermark in batches:
        found += cells.work_off(batch, watermark)
        most = max(most, len(held(cells)))
    assert found == by_definition(CHAIN, batches)
    assert FAN < most <= 2 * 3 * (FAN - 1), "of keys and of rows, on three levels at most"
    if capacity == 1e8:
        keys = sum(piece.rows for piece in held(cells) if piece.module == "keys")
        assert keys == 30, "no key is in two pieces"


def test_what_is_dropped_was_made_longest_ago() -> None:
    """Room for the entries of two keys without rows; a third drops the first."""
    plan = with_caches(make_plan(CHAIN, ["r", "s", "t"]), [("join-1", "t", 0, 1, "prefix", 70.0)])
    cells = Cells(plan)
    for second, (y, missed) in enumerate([(1, 1), (2, 1), (1, 0), (3, 1), (3, 0), (2, 0), (1, 1)]):
        cells.work_off(*rows("t", (second, 0, y)))
        assert asked(cells) == (1 - missed, missed), f"second {second}"


def test_a_cache_that_lost_a_piece_starts_empty_and_loses_no_result() -> None:
    batches = steady(CHAIN, seconds=20, per_second=10, values=5)
    cells, found, misses = Cells(PLAN), Counter[tuple[int, ...]](), 0
    for n, (batch, watermark) in enumerate(batches):
        if n == 12:
            lost = held(cells)[-1].name
            (cells.stores[0].shelf.folder / lost).unlink()
            cells.stores[0].shelf._open.frames.pop(lost, None)
        found += cells.work_off(batch, watermark)
        misses += asked(cells)[1]
    assert misses == 2 * 5, "each key once before and once after"
    assert found == by_definition(CHAIN, batches)


def test_notes_of_an_earlier_version_are_read_without_their_caches() -> None:
    cells = Cells(PLAN)
    cells.work_off(*rows("t", (0, 0, 1)))
    store = cells.stores[0]
    value = store.get(META)
    assert value is not None
    noted = json.loads(expanded(value))
    noted["caches"] = {key: ["a name", ""] for key in noted.pop("cached")}
    store.put(META, compressed(json.dumps(noted).encode()))
    assert cells.work_off(*rows("t", (1, 0, 1))) == Counter()
    assert asked(cells) == (0, 1)

"""Tables in cells: kept, asked, cached and competing, against every combination of rows."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import replace

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from models.request import Query
from spark_adapter.stem.lookup import AskingError
from spark_adapter.stem.program import META
from spark_adapter.stem.programming import kept_streams
from spark_adapter.stem.state import Notes
from spark_adapter.stem.tables import Calls
from tests.spark_adapter.cells import SECOND, Batch, Cells, with_caches
from tests.spark_adapter.plans import make_plan
from tests.spark_adapter.tables import Content, TableCase, database, fill, joined_with_tables, lookups, table_cases, table_plans

Results = Counter[tuple[int, ...]]


class Run:
    """A case in cells, batch by batch: a version's rows come in the batch before the one that says it is whole, the first ones in the same."""

    def __init__(self, case: TableCase, url: str) -> None:
        self.case, self.url = case, url
        self.cells = Cells(case.plan, case.parallelism)
        self.cells.ask = lookups(url, case.plan.query, case.parallelism)
        self._whole: set[str] = set()

    def before(self, n: int) -> None:
        """What comes to be known before batch n."""
        contents, plan = self.case.contents, self.case.plan
        if n in contents:
            fill(self.url, contents[n])
        for table in plan.tables:
            competing = n == 0 and table.name in self.case.competing and self._can_be_asked(table.name)
            if n in contents and (table.bound or table.name in self._whole):
                self.cells.declare(table.name, n + 1)
            elif not table.bound and table.name not in self._whole and not competing:
                self.cells.give(table.name, contents[max(m for m in contents if m <= n)][table.name], n + 1)
                self.cells.declare(table.name, n + 1)
                self._whole.add(table.name)
            if n + 1 in contents and table.name in self._whole:
                self.cells.give(table.name, contents[n + 1][table.name], n + 2)

    def _can_be_asked(self, name: str) -> bool:
        return bool(next(table for table in self.cells.program.tables if table.name == name).bound)

    def work_off(self, n: int) -> Results:
        self.before(n)
        return self.cells.work_off(*self.case.batches[n])

    def all(self) -> Results:
        return sum((self.work_off(n) for n in range(len(self.case.batches))), Results())


@settings(max_examples=120, deadline=None)
@given(table_cases(), st.integers(-1, 3))
def test_any_plan_over_tables_gives_the_rows_of_the_definition(case: TableCase, restart: int) -> None:
    with database() as url:
        run, found = Run(case, url), Results()
        for n in range(len(case.batches)):
            if n == restart:
                run.cells.use(case.plan)
            found += run.work_off(n)
        assert found == joined_with_tables(case.plan, case.batches, case.contents)


@settings(max_examples=40, deadline=None)
@given(table_cases(counted=True))
def test_windows_counted_in_rows_go_with_tables(case: TableCase) -> None:
    with database() as url:
        assert Run(case, url).all() == joined_with_tables(case.plan, case.batches, case.contents)


@settings(max_examples=40, deadline=None)
@given(table_cases(), st.data())
def test_states_with_tables_are_laid_out_anew(case: TableCase, data: st.DataObject) -> None:
    """Where rows of all streams are kept: joins of other ones with tables could not be made again. What is made again is joined with the tables as
    they are then, so they change only where nothing but windows is kept."""
    assume(len(kept_streams(case.plan)) == len(case.plan.query.streams))
    if len(case.plan.operators) > 1:
        case = replace(case, contents={0: case.contents[0]})
    with database() as url:
        run, found = Run(case, url), Results()
        for n in range(len(case.batches)):
            found += run.work_off(n)
            if data.draw(st.booleans()):
                run.cells.rescale(data.draw(st.sampled_from([1, 2, 4])))
                run.cells.ask = lookups(url, case.plan.query)
        assert found == joined_with_tables(case.plan, case.batches, case.contents)


@settings(max_examples=40, deadline=None)
@given(table_cases(), st.integers(0, 3))
def test_a_batch_that_is_run_again_sees_the_same_version(case: TableCase, again: int) -> None:
    with database() as url:
        run, found = Run(case, url), Results()
        for n in range(len(case.batches)):
            if n == again:
                attempt = copy.deepcopy({cell: dict(store.content) for cell, store in run.cells.stores.items()})
                run.before(n)
                told, versions = run.cells._told, dict(run.cells._versions)
                run.cells.work_off(*case.batches[n])
                for cell, store in run.cells.stores.items():
                    store.content = attempt.get(cell, {})
                run.cells._told, run.cells._versions = told, versions
                found += run.cells.work_off(*case.batches[n])
            else:
                found += run.work_off(n)
        assert found == joined_with_tables(case.plan, case.batches, case.contents)


@settings(max_examples=60, deadline=None)
@given(table_cases(), st.data())
def test_plans_that_keep_the_same_streams_take_over(case: TableCase, data: st.DataObject) -> None:
    """With tables that do not change, and kept ones read when the plan that keeps them takes over."""
    still = TableCase(case.plan, case.batches, {0: case.contents[0]}, frozenset(), case.parallelism)
    others = st.sampled_from([data.draw(table_plans(case.plan.query)) for _ in range(2)])
    with database() as url:
        run, found, version = Run(still, url), Results(), 100
        for n in range(len(case.batches)):
            found += run.work_off(n)
            other = data.draw(others)
            if kept_streams(other) == kept_streams(case.plan):
                kept = {table.name for table in run.cells.plan.tables if not table.bound}
                run.cells.use(other) if data.draw(st.booleans()) else run.cells.change(other)
                for table in other.tables:
                    if not table.bound and table.name not in kept:
                        version += 1
                        run.cells.give(table.name, still.contents[0][table.name], version)
                        run.cells.declare(table.name, version)
        assert found == joined_with_tables(case.plan, case.batches, still.contents)


QUERY = Query.model_validate(
    {
        "streams": [{"name": "a", "rate": 10, "window": {"seconds": 5}}],
        "tables": [{"name": "t", "rows": 10, "access": [{"kind": "index", "bound": ["x"], "cpu": 1e-5, "keys": 2}, {"kind": "scan"}]}],
        "predicates": [{"left": "a.x", "right": "t.x", "selectivity": 0.1}],
    }
)
CONTENT: Content = {"t": [{"id": 100 + k, "x": k, "y": 0} for k in (0, 1, 1, 2)]}


def arrivals(*values: int) -> Batch:
    return {"a": [{"id": k, "ts": k * SECOND, "x": x, "y": 0} for k, x in enumerate(values)]}


def asked_of(cells: Cells) -> dict[str, list[float]]:
    found: dict[str, list[float]] = cells.outcomes[-1].statistics["asked"]
    return {name: figures[:3] for name, figures in found.items()}


def test_every_distinct_key_of_a_batch_is_asked_for_once_in_calls_of_so_many() -> None:
    with database() as url:
        fill(url, CONTENT)
        cells = Cells(make_plan(QUERY, ["a", "t"], {"t": ["x"]}))
        cells.ask = lookups(url, QUERY)
        found = cells.work_off(arrivals(0, 1, 1, 7, 2, 2), -1)
        assert found == Counter([(0, 100), (1, 101), (1, 101), (2, 101), (2, 101), (4, 102), (5, 102)])
        assert asked_of(cells) == {"t": [4, 2, 4]}  # keys 0, 1, 7 and 2, two a call


def test_kept_answers_save_asking_also_for_keys_without_rows_until_they_are_forgotten() -> None:
    with database() as url:
        fill(url, CONTENT)
        plan = with_caches(make_plan(QUERY, ["a", "t"], {"t": ["x"]}), [("join-1", "a", 0, 0, "prefix", 1e9)])
        cells = Cells(plan)
        cells.ask = lookups(url, QUERY)
        cells.work_off(arrivals(0, 7), -1)
        assert asked_of(cells) == {"t": [2, 1, 1]}
        found = cells.work_off(arrivals(0, 7, 1), -1)
        assert asked_of(cells) == {"t": [1, 1, 2]}
        assert found == Counter([(0, 100), (2, 101), (2, 101)])
        cells.declare("t", 2)
        cells.work_off(arrivals(0, 7, 1), -1)
        assert asked_of(cells) == {"t": [3, 2, 3]}


def test_a_stream_that_only_tables_are_joined_with_keeps_no_state() -> None:
    cells = Cells(make_plan(QUERY, ["a", "t"]))
    cells.give("t", CONTENT["t"], 1)
    cells.declare("t", 1)
    cells.work_off(arrivals(0, 1), -1)
    notes = Notes.read(cells.stores[0].get(META))
    assert {piece.module for piece in notes.pieces} == {"t"}
    assert notes.tables == {"t": 1}
    assert cells.outcomes[-1].expires is None


def test_a_table_that_is_asked_after_it_was_kept_is_let_go_of() -> None:
    with database() as url:
        fill(url, CONTENT)
        cells = Cells(make_plan(QUERY, ["a", "t"]))
        cells.ask = lookups(url, QUERY)
        cells.give("t", CONTENT["t"], 1)
        cells.declare("t", 1)
        assert cells.work_off(arrivals(1), -1) == Counter({(0, 101): 2})
        cells.change(make_plan(QUERY, ["a", "t"], {"t": ["x"]}))
        assert cells.work_off(arrivals(2), -1) == Counter([(0, 102)])
        assert asked_of(cells) == {"t": [1, 1, 1]}
        notes = Notes.read(cells.stores[0].get(META))
        assert not notes.pieces and not notes.tables


def test_a_database_without_the_table_fails_the_batch_in_one_sentence() -> None:
    with database() as url:
        cells = Cells(make_plan(QUERY, ["a", "t"], {"t": ["x"]}))
        cells.ask = lookups(url, QUERY)
        with pytest.raises(AskingError, match="table t cannot be asked"):
            cells.work_off(arrivals(1), -1)
        fill(url, CONTENT)
        assert cells.work_off(arrivals(1), -1) == Counter({(0, 101): 2})


def test_a_key_that_the_column_cannot_hold_has_no_partner() -> None:
    with database() as url:
        fill(url, CONTENT)
        ask = lookups(url, QUERY)
        table = Cells(make_plan(QUERY, ["a", "t"], {"t": ["x"]})).program.tables[0]
        found = ask(table, pl.DataFrame({"t.x": [1.0, 1.5, 2.0, 1e300]}), Calls())
        assert sorted(found["t/0"].to_list()) == [101, 101, 102]

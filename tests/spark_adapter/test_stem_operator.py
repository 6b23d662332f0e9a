"""The cell makes exactly the results of the definition, whatever the plan, the cells, the caches and the batches."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings

from tests.spark_adapter.cells import Case, Cells, by_definition, cases


def run(case: Case) -> tuple[Cells, Counter[tuple[int, ...]]]:
    cells = Cells(case.plan, case.parallelism)
    found: Counter[tuple[int, ...]] = Counter()
    for batch, watermark in case.batches:
        found += cells.work_off(batch, watermark)
    return cells, found


@settings(max_examples=300, deadline=None)
@given(cases())
def test_time_windows_give_the_rows_of_the_definition(case: Case) -> None:
    assert run(case)[1] == by_definition(case.plan.query, case.batches)


@settings(max_examples=200, deadline=None)
@given(cases(counted=True))
def test_row_windows_give_the_rows_of_the_definition(case: Case) -> None:
    assert run(case)[1] == by_definition(case.plan.query, case.batches)

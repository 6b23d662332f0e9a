"""A sketch of a kilobyte counts distinct values, however they are spread over cells and batches."""

from __future__ import annotations

import polars as pl
import pytest

from spark_adapter.stem.sketch import distinct, merged, sketch

ERROR = 3 * 1.04 / 1024**0.5  # three standard errors


@pytest.mark.parametrize("count", [1, 10, 300, 2_000, 5_000, 100_000])
@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_the_count_is_within_its_error(count: int, kind: str) -> None:
    values = pl.Series(range(count)) if kind == "numbers" else pl.Series([f"key {k}" for k in range(count)])
    assert distinct(sketch(values)) == pytest.approx(count, rel=ERROR)


def test_values_that_come_again_and_nulls_are_not_counted() -> None:
    assert distinct(sketch(pl.Series([None, None], dtype=pl.Int64))) == 0.0
    once = sketch(pl.Series(range(50)))
    assert sketch(pl.Series([None, *range(50), *reversed(range(50))])) == once


def test_parts_that_share_values_add_up_to_the_whole() -> None:
    parts = [sketch(pl.Series(range(start, start + 600))) for start in (0, 300, 900)]
    assert merged(parts) == sketch(pl.Series(range(1500)))
    assert len(parts[0]) == 1024

"""An index and a scan find the rows that a comparison of every pair finds, whatever the keys, a block of candidates at a time."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_adapter.stem.index import Index, entries_of, made, scan_is_cheaper

KEYS = {
    "integers": (pl.Int64, st.integers(-3, 3)),
    "strings": (pl.String, st.sampled_from(["", "a", "b", "a string too long to lie in its own view", "a string too long to lie in its owm view"])),
    "floats": (pl.Float64, st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "booleans": (pl.Boolean, st.booleans()),
}


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_index_and_a_scan_find_every_pair_of_equal_keys(kind: str, data: st.DataObject) -> None:
    """A null equals nothing; −0.0 equals 0.0; NaN equals itself, as polars has it."""
    dtype, values = KEYS[kind]
    columns = data.draw(st.integers(1, 2))
    rows = st.lists(st.tuples(*[st.none() | values] * columns), max_size=12)
    left, right = (
        pl.DataFrame(data.draw(rows), schema={f"{side}{k}": dtype for k in range(columns)}, orient="row", strict=False) for side in ("left", "right")
    )
    own, theirs = ([f"{side}{k}" for k in range(columns)] for side in ("left", "right"))
    block = data.draw(st.integers(1, 5))
    asking = entries_of(left, own)
    by_index = [(int(i), int(j)) for some in made(right, theirs).pairs(asking, block) for i, j in zip(*some, strict=True)]
    scanned = entries_of(right, theirs, in_order=False)
    by_scan = [(int(i), int(j)) for some in Index.of(asking).pairs(scanned, block) for j, i in zip(*some, strict=True)]
    numbered = left.with_row_index("l").join(right.with_row_index("r"), how="cross")
    equal = numbered.filter(pl.all_horizontal(pl.col(mine) == pl.col(yours) for mine, yours in zip(own, theirs, strict=True)))
    assert sorted(by_index) == sorted(by_scan) == sorted(equal.select("l", "r").iter_rows())


def test_a_key_that_all_rows_have_is_answered_block_by_block() -> None:
    rows = pl.DataFrame({"x": [7] * 100})
    sizes = [len(mine) for mine, _ in made(rows, ["x"]).pairs(entries_of(rows, ["x"]), 64)]
    assert max(sizes) <= 64
    assert sum(sizes) == 100 * 100


def test_few_rows_use_the_index_of_many_and_many_rows_have_few_scanned() -> None:
    assert not scan_is_cheaper(10_000, 3_000_000, indexed=True, lasting=True)
    assert scan_is_cheaper(100_000, 1_000, indexed=True, lasting=True)
    # An index that later batches use is made, one for this batch alone is not.
    assert not scan_is_cheaper(10_000, 10_000, indexed=False, lasting=True)
    assert scan_is_cheaper(10_000, 10_000, indexed=False, lasting=False)

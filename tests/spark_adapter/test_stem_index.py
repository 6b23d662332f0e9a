"""An index finds the rows that a comparison of every pair finds, whatever the keys, and looks at no more than a block of candidates at a time."""

from __future__ import annotations

import math

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_adapter.stem.index import asked, made

KEYS = {
    "integers": (pl.Int64, st.integers(-3, 3)),
    "strings": (pl.String, st.sampled_from(["", "a", "b", "a string too long to lie in its own view", "a string too long to lie in its owm view"])),
    "floats": (pl.Float64, st.sampled_from([0.0, -0.0, 1.5, math.nan, math.inf])),
    "booleans": (pl.Boolean, st.booleans()),
}


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_an_index_finds_every_pair_of_equal_keys(kind: str, data: st.DataObject) -> None:
    """A null equals nothing; −0.0 equals 0.0; NaN equals itself, as polars has it."""
    dtype, values = KEYS[kind]
    columns = data.draw(st.integers(1, 2))
    rows = st.lists(st.tuples(*[st.none() | values] * columns), max_size=12)
    left, right = (
        pl.DataFrame(data.draw(rows), schema={f"{side}{k}": dtype for k in range(columns)}, orient="row", strict=False) for side in ("left", "right")
    )
    names = [(f"left{k}", f"right{k}") for k in range(columns)]
    wanted = asked(left, [name for name, _ in names])
    found = [
        (int(mine), int(theirs))
        for some in made(right, [name for _, name in names]).pairs(wanted, data.draw(st.integers(1, 5)))
        for mine, theirs in zip(*some, strict=True)
    ]
    numbered = left.with_row_index("l").join(right.with_row_index("r"), how="cross")
    equal = numbered.filter(pl.all_horizontal(pl.col(mine) == pl.col(theirs) for mine, theirs in names))
    assert sorted(found) == sorted(equal.select("l", "r").iter_rows())


def test_a_key_that_all_rows_have_is_answered_block_by_block() -> None:
    rows = pl.DataFrame({"x": [7] * 100})
    sizes = [len(mine) for mine, _ in made(rows, ["x"]).pairs(asked(rows, ["x"]), 64)]
    assert max(sizes) <= 64
    assert sum(sizes) == 100 * 100

"""Every result is made in one cell, and the grid sends as little as can be."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

from models.plan import Plan
from models.request import Query
from spark_adapter.stem.shares import Dimension, Grid, choose_grid, copied, spread_keys
from tests.spark_adapter.cells import queries
from tests.spark_adapter.plans import make_plan, make_query


def sent(query: Query, grid: Grid) -> float:
    return math.fsum(stream.rate * stream.tuple_bytes * len(grid.offsets(stream.name)) for stream in query.streams)


@settings(max_examples=100, deadline=None)
@given(queries(counted=False, most_streams=5), st.sampled_from([1, 2, 3, 4, 6, 8]))
def test_a_grid_has_as_many_cells_as_asked_and_every_dimension_belongs_to_a_stream(query: Query, cells: int) -> None:
    grid = choose_grid(query, cells)
    assert grid.cells == cells
    for dimension in grid.dimensions:
        assert dimension.share > 1
        assert dimension.attributes


def test_the_factor_of_copies_weighs_every_state_by_its_bytes() -> None:
    """Four equal streams in a chain: in 64 cells every row lies eight times. A slow stream's copies weigh less, a subresult's its own bytes."""
    chain = make_query({"a": 5, "b": 5, "c": 5, "d": 5}, ["a.x = b.x", "b.y = c.y", "c.z = d.z"])
    plan = make_plan(chain, ["a", "b", "c", "d"])
    assert copied(plan, Grid(())) == 1
    assert copied(plan, choose_grid(chain, 64)) == 8
    grid = Grid((Dimension(4, {"a": "x", "b": "x"}),))
    document = make_plan(chain, [["a", "b"], "c", "d"]).model_dump(mode="json", by_alias=True)
    document["query"]["streams"][2]["rate"] = 10.0
    document["operators"][0]["state_bytes"] = 3000.0
    # a, b and their join once; c and d four times: streams of 500, 500, 5000 and 500 bytes.
    assert copied(Plan.model_validate(document), grid) == (500 + 500 + 4 * 5000 + 4 * 500 + 3000) / (6500 + 3000)


@settings(max_examples=100, deadline=None)
@given(queries(counted=False, most_streams=5), st.sampled_from([2, 4, 8]))
def test_a_row_goes_to_distinct_cells_one_of_them_its_home(query: Query, cells: int) -> None:
    grid = choose_grid(query, cells)
    for stream in query.streams:
        axes = [range(grid.dimensions[d].share) for d in grid.hashed(stream.name)]
        strides = [grid.strides[d] for d in grid.hashed(stream.name)]
        reached = []
        for coordinates in itertools.product(*axes):
            base = sum(c * s for c, s in zip(coordinates, strides, strict=True))
            copies = [base + offset for offset in grid.offsets(stream.name)]
            assert sum(grid.home(cell, (stream.name,)) for cell in copies) == 1
            reached += copies
        assert sorted(reached) == list(range(cells))


def test_one_common_key_is_never_copied() -> None:
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": 1, "window": {"seconds": 1}} for name in "abc"],
            "predicates": [{"left": "a.k", "right": "b.k", "selectivity": 0.1}, {"left": "b.k", "right": "c.k", "selectivity": 0.1}],
        }
    )
    assert sent(query, choose_grid(query, 8)) == sent(query, choose_grid(query, 1))


def test_the_slow_stream_is_the_one_that_is_copied() -> None:
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": rate, "window": {"seconds": 1}} for name, rate in (("a", 1000), ("b", 1000), ("c", 1))],
            "predicates": [{"left": "a.x", "right": "b.x", "selectivity": 0.1}, {"left": "b.y", "right": "c.y", "selectivity": 0.1}],
        }
    )
    grid = choose_grid(query, 4)
    assert [len(grid.offsets(name)) for name in "abc"] == [1, 1, 4]


def test_an_attribute_has_no_more_coordinates_than_its_values_can_fill() -> None:
    """Two values in 64 cells would leave 62 of them empty; where nobody knows how many there are, all are thought to differ."""
    for distinct, most in ((2.0, 1), (40.0, 10), (None, 64)):
        known = {} if distinct is None else {"x": distinct}
        streams = [{"name": name, "rate": 1.0, "window": {"seconds": 10}, "distinct": known} for name in ("a", "b")]
        query = Query.model_validate({"streams": streams, "predicates": [{"left": "a.x", "right": "b.x", "selectivity": 0.1}]})
        grid = choose_grid(query, 64)
        assert grid.cells == 64
        shared = [dimension.share for dimension in grid.dimensions if set(dimension.attributes) == {"a", "b"}]
        assert max(shared, default=1) <= most
    assert shared == [64]


def test_a_skewed_attribute_gets_fewer_coordinates_where_copies_are_cheaper() -> None:
    """In 16 cells by x, one gets all rows of a with its frequent value, 0.9 of them, and 1/16 of b: 15.4 times an even share of one stream.

    In four by x, each divided by four among rows of a, the fullest gets 0.9/4 of a and 1/4 of b: half as much.
    """
    for skew, expected in ((None, 16), (0.05, 16), (0.9, 4)):
        known = {"skew": {"x": skew}} if skew else {}
        streams = [{"name": "a", "rate": 1.0, "window": {"seconds": 10}, **known}, {"name": "b", "rate": 1.0, "window": {"seconds": 10}}]
        query = Query.model_validate({"streams": streams, "predicates": [{"left": "a.x", "right": "b.x", "selectivity": 0.1}]})
        grid = choose_grid(query, 16)
        assert grid.cells == 16
        assert [dimension.share for dimension in grid.dimensions if set(dimension.attributes) == {"a", "b"}] == [expected]


def test_windows_counted_in_rows_stay_in_one_cell() -> None:
    query = Query.model_validate({"streams": [{"name": "a", "rate": 1, "window": {"rows": 5}}, {"name": "b", "rate": 1, "window": {"seconds": 1}}]})
    assert choose_grid(query, 8).cells == 1


@pytest.mark.spark
def test_spark_spreads_the_cells_evenly_over_its_partitions(spark: SparkSession) -> None:
    keys = spread_keys(8, 4)
    assert len(set(keys)) == 8
    column = F.pmod(F.hash(F.col("key")), F.lit(4))
    found = [row[0] for row in spark.createDataFrame([(key,) for key in keys], "key INT").select(column).collect()]
    assert found == [cell % 4 for cell in range(8)]

"""A row's coordinate is the same number whether Spark computes it or we do."""

from __future__ import annotations

import random
import struct
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

from spark_adapter.stem.hashes import xxhash64

pytestmark = pytest.mark.spark


def values(rng: random.Random) -> dict[str, list[Any]]:
    """By Spark's type: the ends of its range, and more between them."""
    numbers = [0, 1, -1, 2**63 - 1, -(2**63), *(rng.randrange(-(2**63), 2**63) for _ in range(100))]
    doubles = [0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), *(struct.unpack("d", struct.pack("q", n))[0] for n in numbers[5:])]
    texts = ["", "é", *("x" * n + str(n) for n in range(100)), *(chr(rng.randrange(32, 50_000)) * (n % 70) for n in range(100))]
    short = (0, 1, -1, 10**18 - 1, 1 - 10**18, *(rng.randrange(-(10**18), 10**18) for _ in range(50)))
    long = (0, 1, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38, *(rng.randrange(-(10**37), 10**37) for _ in range(50)))
    moments = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=n * 10**9 + n) for n in range(-100, 100)]
    return {
        "BIGINT": numbers,
        "DOUBLE": doubles,
        "STRING": texts,
        "BINARY": [rng.randbytes(n % 130) for n in range(200)],
        "BOOLEAN": [True, False],
        "DATE": [date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), *(date(2000, 1, 1) + timedelta(days=n * 37) for n in range(-100, 100))],
        "TIMESTAMP": [datetime(1970, 1, 1, tzinfo=UTC), *moments],
        # Decimal(n).scaleb(…) would round to 28 digits.
        "DECIMAL(18, 4)": [Decimal(f"{n}e-4") for n in short],
        "DECIMAL(38, 3)": [Decimal(f"{n}e-3") for n in long],
    }


def test_hashes_are_those_of_spark_for_every_type_that_is_compared(spark: SparkSession) -> None:
    for kind, listed in values(random.Random(1)).items():
        frame = spark.createDataFrame([(value,) for value in listed], f"v {kind}")
        column = F.col("v") + F.lit(0.0) if kind == "DOUBLE" else F.col("v")
        table = frame.select("v", F.xxhash64(column).alias("h")).toArrow()
        found = pl.from_arrow(table)
        assert isinstance(found, pl.DataFrame)
        assert found.height == len(listed)
        assert list(xxhash64(found["v"])) == found["h"].to_list(), kind

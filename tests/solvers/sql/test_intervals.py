"""Intervals of every dialect, in microseconds."""

from __future__ import annotations

import pytest
import sqlglot

from solvers.sql.intervals import SECOND, is_interval_text, microseconds

MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 24 * 3600 * SECOND


@pytest.mark.parametrize(
    ("text", "dialect", "length"),
    [
        ("INTERVAL 60 SECONDS", "spark", MINUTE),
        ("INTERVAL '1' MINUTE", "spark", MINUTE),
        ("INTERVAL '1 minute'", "spark", MINUTE),
        ("INTERVAL '1 minute 30 seconds'", "spark", 90 * SECOND),
        ("INTERVAL 1 MINUTE 30 SECONDS", "spark", 90 * SECOND),
        ("INTERVAL '1:30' MINUTE TO SECOND", "spark", 90 * SECOND),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", "spark", DAY + 2 * HOUR + 3 * MINUTE + 4_500_000),
        ("INTERVAL '1 2' DAY TO HOUR", "spark", 26 * HOUR),
        ("INTERVAL '2:3' HOUR TO MINUTE", "spark", 2 * HOUR + 3 * MINUTE),
        ("INTERVAL -5 SECONDS", "spark", -5 * SECOND),
        ("-INTERVAL '5' SECOND", "spark", -5 * SECOND),
        ("INTERVAL '-1 minute'", "spark", -MINUTE),
        ("INTERVAL 250 MICROSECONDS", "spark", 250),
        ("INTERVAL 2 WEEKS", "spark", 14 * DAY),
        ("INTERVAL '1' HOUR - INTERVAL '5' MINUTE", "spark", 55 * MINUTE),
        ("CAST('1 minute' AS INTERVAL)", "spark", MINUTE),
        ("INTERVAL '60' SECOND(3)", "spark", MINUTE),
        ("INTERVAL '1.5' SECOND", "spark", 1_500_000),
        ("INTERVAL '60 seconds'", "postgres", MINUTE),
        ("'1 minute 30 seconds'::interval", "postgres", 90 * SECOND),
        ("INTERVAL '00:01:30'", "postgres", 90 * SECOND),
        ("INTERVAL '-00:01:30.25'", "postgres", -90_250_000),
        ("INTERVAL '90'", "postgres", 90 * SECOND),
        ("INTERVAL '1.5 hours'", "postgres", 90 * MINUTE),
        ("2 * INTERVAL '1 minute'", "postgres", 2 * MINUTE),
        ("(INTERVAL '1' MINUTE) * 2", "postgres", 2 * MINUTE),
        ("INTERVAL (5) MINUTE", "duckdb", 5 * MINUTE),
    ],
)
def test_an_interval_has_its_length(text: str, dialect: str, length: int) -> None:
    assert microseconds(sqlglot.parse_one(text, read=dialect)) == length


@pytest.mark.parametrize(
    "text",
    [
        "INTERVAL '1' MONTH",
        "INTERVAL '1 year 2 days'",
        "INTERVAL '1-2' YEAR TO MONTH",
        "INTERVAL x SECOND",
        "INTERVAL 'NaN' SECOND",
        "INTERVAL '0.0000005' SECOND",
        "INTERVAL 200 * 366 DAYS",
        "INTERVAL '1' SECOND * x",
        "5",
        "ts",
    ],
)
def test_what_has_no_fixed_length_has_none(text: str) -> None:
    assert microseconds(sqlglot.parse_one(text, read="spark")) is None


def test_only_texts_that_are_read_whole_are_taken() -> None:
    assert all(map(is_interval_text, ["5", "-5.5", "1 day", "1 day 2 hours", "02:03", "1 02:03:04.5", " 90 seconds "]))
    assert not any(map(is_interval_text, ["", "1 day 02:00", "P1D", "1 minute ago", "1 hour 30", "soon", "1 2 3"]))

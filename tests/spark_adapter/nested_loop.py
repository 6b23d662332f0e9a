"""The answer by the definition (contract §1): every combination of rows, every predicate, every pair of windows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from models.request import Comparison, Query

__all__ = ["Row", "nested_loop"]

Row = Mapping[str, Any]
"""The attributes of a row by name, and its event time as `ts`."""

COMPARE: dict[Comparison, Callable[[Any, Any], bool]] = {
    Comparison.EQ: operator.eq,
    Comparison.NE: operator.ne,
    Comparison.LT: operator.lt,
    Comparison.LE: operator.le,
    Comparison.GT: operator.gt,
    Comparison.GE: operator.ge,
}


def nested_loop(query: Query, rows_by_stream: Mapping[str, Sequence[Row]]) -> list[tuple[Row, ...]]:
    """All results, each a row per stream in the query's order. Time windows only.

    Combinations grow stream by stream and are dropped at the first condition that fails; that is all there is of cleverness.
    """
    names = [stream.name for stream in query.streams]
    length = [timedelta(microseconds=round(_seconds(stream.window.seconds) * 1_000_000)) for stream in query.streams]
    found: list[tuple[Row, ...]] = [()]
    for j, name in enumerate(names):
        conditions = []
        for predicate in query.predicates:
            (left, x), (right, y) = predicate.left.split("."), predicate.right.split(".")
            if name in (left, right) and names.index(right if left == name else left) < j:
                conditions.append((COMPARE[predicate.op], names.index(left), x, names.index(right), y))
        found = [
            combined
            for partial in found
            for row in rows_by_stream[name]
            if all(row["ts"] - other["ts"] <= length[i] and other["ts"] - row["ts"] <= length[j] for i, other in enumerate(partial))
            for combined in [(*partial, row)]
            if all(compare(combined[left][x], combined[right][y]) for compare, left, x, right, y in conditions)
        ]
    return found


def _seconds(seconds: float | None) -> float:
    assert seconds is not None, "nested_loop knows time windows only"
    return seconds

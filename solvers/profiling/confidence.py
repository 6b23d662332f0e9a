"""How sure a measured figure is: intervals of confidence, at 95 %.

Rates: the stretch is cut into slices of time, and the interval is that of their mean (Student's t). Selectivities: the last arrivals are in
groups by key; leaving out one group at a time says how much the ratio of results to combinations depends on which keys were seen
(the jackknife of a ratio), which counts rows that share a key as one observation, as they should be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from solvers.profiling.results import GROUPS, Counted
from solvers.profiling.sample import Columns

__all__ = ["SLICES", "Figure", "of_rate", "of_selectivity"]

SLICES = 20
QUANTILE = 2.09  # of Student's t for 19 degrees of freedom, at 97.5 %
assert SLICES == GROUPS == 20
UNSEEN = 3.0  # matches that there may be on average, at 95 %, where none was seen


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure and its standard error."""

    value: float
    error: float

    @property
    def low(self) -> float:
        return max(0.0, self.value - QUANTILE * self.error)

    @property
    def high(self) -> float:
        return self.value + QUANTILE * self.error

    @property
    def relative(self) -> float:
        return self.error / self.value if self.value else math.inf


def of_rate(ts: Columns, start: int, end: int, rows: int, seconds: float) -> Figure:
    """Rows a second, of `rows` in the stretch, spread over time like those in `ts`."""
    edges = np.linspace(start, end, SLICES + 1)
    counts = np.diff(np.searchsorted(ts, edges))
    seen = max(1, int(counts.sum()))
    spread = float(np.std(counts, ddof=1)) * math.sqrt(SLICES) / seen
    return Figure(rows / seconds, spread * rows / seconds)


def of_selectivity(counted: Counted, correction: float) -> Figure:
    """The share of combinations that match, times a correction for what a sample of keys leaves out."""
    results, combinations = counted.results.sum(), counted.combinations.sum()
    if not combinations:
        return Figure(0.0, math.inf)
    if not results:
        return Figure(0.5 / combinations * correction, UNSEEN / combinations * correction / QUANTILE)
    without = combinations - counted.combinations
    ratios = np.divide(results - counted.results, without, out=np.full(GROUPS, results / combinations), where=without > 0)
    error = math.sqrt((GROUPS - 1) / GROUPS * float(((ratios - ratios.mean()) ** 2).sum()))
    return Figure(results / combinations * correction, error * correction)

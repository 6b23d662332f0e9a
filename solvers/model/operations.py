"""What one operation of a join costs: keeping a tuple, probing, making results, taking a probe step. `model.cost` adds them up for joins and plans,
the orderings of probes for the step that is next; `jtree.compiled.cost` is the same, compiled. Amounts are numbers or arrays of them, for
`model.wide_join`.

A probe step costs `step` beside what its tuples cost, whatever comes. A join of m inputs, f of which are no tables, has f·(m − 1) steps. That is
2·(f − 1) + (m − f), as many as binary joins of these inputs have, and (f − 1)·(m − 2) more: so every plan has `least_steps`, binary joins have no
others, and which steps come in which order changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeVar

from models.request import Costs
from solvers.model.graph import JoinGraph

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = [
    "exact_sum",
    "going_on",
    "keeping",
    "least_keeping",
    "least_steps",
    "probe_steps",
    "probing",
    "scanning",
    "side",
    "stepping",
    "times",
    "total",
]


Amount = TypeVar("Amount", float, "NDArray[np.float64]")


def total(values: Iterable[float]) -> float:
    """The sum, exact before its one rounding; infinity where it leaves the range of a double."""
    try:
        return math.fsum(values)
    except OverflowError:
        return math.inf


def exact_sum(values: list[float]) -> tuple[float, ...]:
    """A few numbers with exactly the same sum: the sum as a double, then the rest as a double, until no rest is left."""
    parts: list[float] = []
    try:
        rest = math.fsum(values)
        while rest and math.isfinite(rest):
            parts.append(rest)
            values.append(-rest)
            rest = math.fsum(values)
    except OverflowError:
        rest = math.inf
    return (*parts, rest) if rest else tuple(parts)


def times(weight: float, value: Amount) -> Amount | float:
    """weight · value; 0 where the weight is 0, even if the value is infinite."""
    return weight * value if weight else 0.0


def keeping(costs: Costs, indexed: bool, kept: float) -> float:
    """Keeping a state that `kept` tuples enter, and leave, a second."""
    weight = costs.insert + costs.delete if indexed else costs.append
    return weight * kept if weight else 0.0  # `times`, written out: this is asked most of all


def least_keeping(costs: Costs) -> float:
    """The least that keeping a tuple costs."""
    return min(keeping(costs, True, 1.0), keeping(costs, False, 1.0))


def stepping(costs: Costs, steps: int) -> float:
    """What so many probe steps cost, whatever their rows."""
    return times(costs.step, steps)


def probe_steps(inputs: int, tables: int = 0) -> int:
    """The probe steps of a join of so many inputs, so many of which are tables: tables have no pipelines."""
    return (inputs - tables) * (inputs - 1)


def least_steps(graph: JoinGraph) -> int:
    """The probe steps that every plan has: two for each stream but one, and one for each table."""
    tables = graph.tables.bit_count()
    return 2 * max(0, len(graph) - tables - 1) + tables


def scanning(costs: Costs, hashed: bool, arriving: Amount | float, size: Amount) -> Amount | float:
    """What `arriving` probes a second of a state of `size` tuples cost beyond the probe itself: nothing by hash, else every tuple."""
    return 0.0 if hashed else times(costs.scan, arriving * size)


def probing(costs: Costs, hashed: bool, size: Amount) -> Amount | float:
    """What one tuple's probe of a state of `size` tuples costs, by hash or by a scan."""
    return costs.probe + scanning(costs, hashed, 1.0, size)


def going_on(per_tuple: float, size: float, join: float, made: float) -> float:
    """A probe step per 1/T of the arriving input: each of `size` tuples costs `per_tuple`, and each of those `made` costs `join`. Whoever orders
    probes asks here, millions of times."""
    return (size * per_tuple if per_tuple else 0.0) + (made * join if join else 0.0)


def side(costs: Costs, indexed: bool, kept: float, arriving: float, size: float, produced: float = 0.0) -> float:
    """One side of a binary join: keeping a state of `size` tuples that `kept` tuples enter a second, probing it, and making `produced` results.

    This defines what an index or a nested loop costs; `solvers.jtree.compiled.cost.side` is the same, compiled. It is paper 4's C_{A⋉B}, too: its
    Eq. 2 is side(scan=C_n, append=2·C_n, join=0) without index, its Eq. 3 side(insert=C_h, delete=C_h·bucket, join=C_h) with one;
    Eq. 4 to 6 are sums of two of these.
    """
    probing = times(costs.probe, arriving), scanning(costs, indexed, arriving, size)
    return total((keeping(costs, indexed, kept), *probing, times(costs.join, produced)))

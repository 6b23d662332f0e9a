"""What joins cost, compiled: every compiled search asks here. `solvers.model.operations` and `solvers.model.cost` define it, plain.

A join's cost is counted as *excess*, what it costs above what every plan pays (`Prices`): totals agree in most digits, differences decide.
Of its probe steps that is what it has more than binary joins of its inputs would have (`stepping`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from models.request import Costs
from solvers.jtree.compiled.compiling import Floats, compiled, making, released
from solvers.jtree.compiled.sets import Sets, lowest

__all__ = [
    "Prices",
    "Weights",
    "binary_excess",
    "keeping_in_mjoin",
    "kept_bytes",
    "kept_excess",
    "pair_excess",
    "rounded",
    "rounded_down",
    "scanning",
    "side",
    "stepping",
    "stream_floors",
    "weighted",
    "weights_of",
]


class Weights(NamedTuple):
    """The cost constants. `indexed` is insert + delete: keeping a tuple in a state with an index."""

    join: float
    indexed: float
    append: float
    probe: float
    scan: float
    step: float
    """What a probe step costs, whatever its rows."""


def weights_of(costs: Costs) -> Weights:
    return Weights(costs.join, costs.insert + costs.delete, costs.append, costs.probe, costs.scan, costs.step)


@compiled
def stepping(weights: Weights, m: int) -> float:
    """What a join of m inputs costs for the probe steps that it has more than binary joins of them; none where it is binary."""
    return weights.step * ((m - 1) * (m - 2))


@compiled
def weighted(weight: float, value: float) -> float:
    """weight · value; 0 where the weight is 0, even if the value is infinite."""
    return weight * value if weight != 0.0 else 0.0


@compiled
def side(kept: float, arriving: float, size: float, hashable: bool, weights: Weights) -> float:
    """One side of a binary join, but for the probes themselves, which cost the same either way: keeping a state of `size` tuples that `kept` tuples
    enter a second, and scanning it for each of `arriving` tuples where it has no index; whichever of the two is cheaper.

    `Ledger` takes the least of keeping a tuple, which every plan pays, out of both weights: then this is what is above it, with all its digits.
    """
    plain = weighted(weights.append, kept) + weighted(weights.scan, arriving * size)
    if not hashable:
        return plain
    return min(plain, weighted(weights.indexed, kept))


@compiled
def pair_excess(size_a: float, pace_a: float, size_b: float, pace_b: float, hashable: bool, weights: Weights) -> float:
    """The excess of a binary join from the figures of its inputs, with the weights of `Ledger`; `binary_excess` is the same over a table of sets."""
    rate_a, rate_b = size_a * pace_a, size_b * pace_b
    from_a = side(rate_b, rate_a, size_b, hashable, weights) + weighted(weights.probe, rate_a)
    return from_a + (side(rate_a, rate_b, size_a, hashable, weights) + weighted(weights.probe, rate_b))


class Prices(NamedTuple):
    """What operations cost, and what of it every plan pays.

    A plan's CPU = what every plan pays + its excess. Every plan keeps each stream for at least its floor, sends each
    arrival to a first probe, makes the output, and has two probe steps for each stream but one. So a join's output that is
    kept adds rate · (join + probe + least keeping), and a partial result that is not kept adds rate · (join + probe).
    """

    weights: Weights
    made: float
    """join + probe: what a partial result costs that is made and goes on to probe."""
    keep: float
    """min(indexed, append): the least that keeping a tuple costs."""
    floors: Floats
    """Per stream the least that keeping it costs, in any plan."""
    grain: float
    """CPU is counted in whole multiples of this, the last digit of what every plan pays; 0: it is not rounded."""
    grain_bytes: float


@making
def stream_floors(sets: Sets, weights: Weights) -> Floats:
    """The least that keeping each stream costs in any plan: indexed, or plain where nothing hashes to it or scanning it is cheap."""
    indexed, append, scan = weights.indexed, weights.append, weights.scan
    floors = np.empty(sets.n)
    for i in range(sets.n):
        floors[i] = sets.rates[i] * (append if sets.neighbours[i] & ~sets.equal_neighbours[i] else max(indexed, append))
        if sets.equal_neighbours[i]:
            floors[i] = min(floors[i], sets.rates[i] * indexed)
    for s in range(sets.mask.size):
        rate = sets.size[s] * sets.pace[s]
        open_ = sets.around[s]
        while open_:
            i = lowest(open_)
            open_ &= open_ - 1
            floors[i] = min(floors[i], sets.rates[i] * append + scan * rate * sets.size[i])
    return floors


@released
def rounded(value: float, grain: float) -> float:
    """To a whole multiple of a power of two, so that sums do not depend on their order and ties are ties."""
    return float(np.rint(value / grain) * grain) if grain else value


@released
def rounded_down(value: float, grain: float) -> float:
    """As `rounded`, never above the value: for bounds."""
    return float(np.floor(value / grain) * grain) if grain else value


@released
def kept_excess(sets: Sets, prices: Prices, s: int) -> float:
    """What keeping a join's output adds."""
    rate = sets.size[s] * sets.pace[s]
    return rounded((prices.made + prices.keep) * rate, prices.grain)


@released
def kept_bytes(sets: Sets, prices: Prices, s: int) -> float:
    return rounded(sets.size[s] * sets.bytes[s], prices.grain_bytes)


@released
def access_excess(sets: Sets, prices: Prices, kept: int, arriving: int) -> float:
    """What keeping one state of a binary join and probing it costs above the state's floor: indexed or plain, as is cheaper at the choosing rates."""
    weights = prices.weights
    rate, probes = sets.size[kept] * sets.pace[kept], sets.size[arriving] * sets.pace[arriving]
    plain = side(rate, probes, sets.size[kept], False, weights)
    indexed = weights.indexed * rate
    choosing_rate = sets.choosing_size[kept] * sets.choosing_pace[kept]
    choosing_probes = sets.choosing_size[arriving] * sets.choosing_pace[arriving]
    cheaper = side(choosing_rate, choosing_probes, sets.choosing_size[kept], False, weights)
    hashed = (sets.equal_around[kept] & sets.mask[arriving] != 0) & (weights.indexed * choosing_rate <= cheaper)
    floor = prices.floors[kept] if kept < sets.n else prices.keep * rate
    return float(max(0.0, (indexed if hashed else plain) - floor))


@released
def binary_excess(sets: Sets, prices: Prices, left: int, right: int) -> float:
    """The excess of a binary join of two sets, its inputs' floors left out."""
    return rounded(access_excess(sets, prices, left, right) + access_excess(sets, prices, right, left), prices.grain)


@released
def keeping_in_mjoin(sets: Sets, prices: Prices, s: int, whole: int) -> float:
    """What keeping an input costs above its floor, in an mjoin of `whole`: indexed where any equality predicate leads to it."""
    rate = sets.size[s] * sets.pace[s]
    hashable = sets.equal_around[s] & whole & ~sets.mask[s] != 0
    cost = rate * (prices.weights.indexed if hashable else prices.weights.append)
    return float(max(0.0, cost - (prices.floors[s] if s < sets.n else prices.keep * rate)))


@released
def scanning(sets: Sets, prices: Prices, visited: int, target: int) -> float:
    """What a probe that can only scan adds, per 1/T."""
    if prices.weights.scan == 0.0 or sets.equal_around[visited] & sets.mask[target]:
        return 0.0
    return float(prices.weights.scan * (sets.partial[visited] * sets.size[target]))

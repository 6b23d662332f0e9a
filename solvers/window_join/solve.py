"""The join of two windows: an algorithm per direction, and what to let in when CPU or memory is short (paper 4).

Problem: streams A (left) and B (right) with rates λ, windows of T seconds and |A|, |B| keys. Each arrival probes the
other window. A window is hashed or scanned; touching a tuple costs C_h or C_n. At most µ tuples a second can be
processed, at most M tuples be kept.

Method: the cost splits into one term per direction, so each window's structure is chosen on its own (Eq. 2 to 6, as
`solvers.model.operations.side`). The output rate is σ(A·λ_b + B·λ_a) for windows of A and B tuples. With λ_a given, the best λ_b
is all that is left, and of flexible windows the slower stream's is filled first (Eq. 13); what remains is a function of
λ_a that is quadratic between a handful of points, so its maximum is at one of them or at a piece's own maximum.

Guarantee: exact. Complexity: O(1).

Departs from paper 4: limits λ' ≤ λ and T' ≤ T hold in every case, so that the paper's four cases are one; σµM of the
last case is then what long windows tend to. Fixed windows that do not fit the memory are thinned out. The lazy hash
join, which the paper leaves without a formula, touches every expired tuple once, when its bucket is next probed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from models.plan import Proof
from models.request import Costs
from models.window_join import (
    Crossover,
    ExactCrossover,
    Invalidation,
    JoinCosts,
    Sides,
    WindowJoinAlgorithm,
    WindowJoinAnswer,
    WindowJoinRequest,
    WindowKind,
)
from solvers.model.operations import side

__all__ = ["approximate_crossover", "exact_crossover", "hash_cost", "nested_loop_cost", "regulate", "solve_window_join"]


@dataclass(frozen=True, slots=True)
class Side:
    """A stream: λ, T, keys."""

    rate: float
    window: float
    keys: float

    @property
    def tuples(self) -> float:
        return self.rate * self.window


def nested_loop_cost(probing: float, probed: Side, cost: float, lazy: bool = False) -> float:
    """C_{A⋊B}(NLJ): λ_a arrivals a second scan window B, which is kept as a list (Eq. 2)."""
    if not lazy:
        return side(Costs(scan=cost, append=2.0 * cost, join=0.0), False, probed.rate, probing, probed.tuples)
    # ⌊log₂⌈λ_b/λ_a⌉ + 1⌋ steps of a binary search for the oldest live tuple: the number of bits of ⌈λ_b/λ_a⌉.
    search = math.ceil(probed.rate / probing).bit_length()
    return math.fsum((probing * (probed.tuples + search) * cost, probed.rate * cost))


def hash_cost(probing: float, probed: Side, cost: float, lazy: bool = False) -> float:
    """C_{A⋊B}(HJ): λ_a arrivals a second look up their bucket in window B, which is kept as a hash index (Eq. 3)."""
    bucket = probed.tuples / probed.keys
    delete = cost if lazy else cost * bucket
    return side(Costs(insert=cost, delete=delete, join=cost), True, probed.rate, probing, probed.tuples, probing * bucket)


def approximate_crossover(keys: float, ratio: float) -> float:
    """λ_b/λ_a above which a scan of window B beats its index, constants left out (Eq. 8).

    >>> round(approximate_crossover(10, 1.3), 2), round(approximate_crossover(20, 1.3), 2)
    (6.69, 14.38)
    """
    return max(0.0, (keys - ratio) / ratio)


def exact_crossover(probed: Side, hash_weight: float, loop_weight: float) -> float | None:
    """The same with nothing left out (Eq. 7); None where the index is never worse, 0 where it always is."""
    bucket = probed.tuples / probed.keys
    gain = probed.tuples * loop_weight - bucket * hash_weight
    loss = bucket * hash_weight + hash_weight - 2.0 * loop_weight
    if loss <= 0.0:
        return None if gain >= 0.0 else 0.0
    return max(0.0, gain / loss)


def regulate(left: Side, right: Side, service_rate: float, memory: float, flexible: bool) -> tuple[Side, Side]:
    """The rates and windows with the highest output rate within µ and M; infinity is no limit.

    >>> a, b = regulate(Side(80, 9, 1), Side(20, 1, 1), 10, math.inf, False)
    >>> a.rate, b.rate
    (5.0, 5.0)
    """
    best: tuple[Side, Side] | None = None
    for rate in _candidates(left, right, service_rate, memory, flexible):
        if not 0.0 < rate <= left.rate:
            continue
        other = min(right.rate, service_rate - rate)
        if not flexible:
            other = min(other, (memory - rate * left.window) / right.window)
        if not other > 0.0:
            continue
        pair = Side(rate, left.window, left.keys), Side(other, right.window, right.keys)
        if flexible:
            pair = _shortened(*pair, memory)
        if best is None or _pairs(*pair) > _pairs(*best):
            best = pair
    assert best is not None  # half of each limit is a candidate
    return best


def _pairs(left: Side, right: Side) -> float:
    """Pairs compared per second: the output rate over σ (Eq. 10)."""
    return left.tuples * right.rate + right.tuples * left.rate


def _shortened(left: Side, right: Side, memory: float) -> tuple[Side, Side]:
    """The windows cut down to the memory: the slower stream keeps what it can, the other gets the rest (Eq. 13)."""
    if left.rate > right.rate:
        right, left = _shortened(right, left, memory)
        return left, right
    kept = min(memory, left.tuples)
    rest = min(memory - kept, right.tuples)
    return (
        left if kept == left.tuples else Side(left.rate, kept / left.rate, left.keys),
        right if rest == right.tuples else Side(right.rate, rest / right.rate, right.keys),
    )


def _candidates(left: Side, right: Side, service_rate: float, memory: float, flexible: bool) -> Iterator[float]:
    """Left rates among which the best one is: limits, ends of pieces, and the maxima of pieces."""
    yield left.rate
    if math.isfinite(service_rate):
        yield service_rate / 2.0
        yield service_rate - right.rate
    if math.isfinite(memory):
        if flexible:
            yield memory / left.window
        else:
            yield memory / (2.0 * left.window)
            yield (memory - right.rate * right.window) / left.window
    if math.isfinite(memory) and math.isfinite(service_rate):
        if left.window != right.window:
            yield (memory - service_rate * right.window) / (left.window - right.window)
        if flexible:
            yield service_rate - memory / right.window
            yield (left.window * service_rate + memory) / (4.0 * left.window)
            yield service_rate - (right.window * service_rate + memory) / (4.0 * right.window)


def _expired(probing: Side, probed: Side, hashed: bool, lazy: bool) -> float:
    """Expired tuples in the probed window: half of what piles up until the next probe, of each bucket where it is hashed."""
    if not lazy:
        return 0.0
    return 0.5 * probed.rate / probing.rate * (probed.keys if hashed else 1.0)


def solve_window_join(request: WindowJoinRequest) -> WindowJoinAnswer:
    """Everything paper 4 says about a join of two streams."""
    left, right = (Side(side.rate, side.window.seconds, side.keys) for side in (request.left, request.right))
    selectivity = request.selectivity if request.selectivity is not None else min(1.0 / left.keys, 1.0 / right.keys)
    whole = selectivity * _pairs(left, right)
    hash_weight, loop_weight = request.costs.hash, request.costs.nested_loop
    a, b = regulate(
        left,
        right,
        request.service_rate if request.service_rate is not None else math.inf,
        request.memory_tuples if request.memory_tuples is not None else math.inf,
        request.windows is WindowKind.FLEXIBLE,
    )
    lazy = request.invalidation is Invalidation.LAZY
    hashed = {"left": hash_cost(b.rate, a, hash_weight, lazy), "right": hash_cost(a.rate, b, hash_weight, lazy)}
    looped = {"left": nested_loop_cost(b.rate, a, loop_weight, lazy), "right": nested_loop_cost(a.rate, b, loop_weight, lazy)}
    costs = {
        "HHJ": math.fsum((hashed["left"], hashed["right"])),
        "HNJ": math.fsum((hashed["left"], looped["right"])),
        "NHJ": math.fsum((looped["left"], hashed["right"])),
        "NNJ": math.fsum((looped["left"], looped["right"])),
    }
    output = selectivity * _pairs(a, b)
    algorithm = WindowJoinAlgorithm(min(costs, key=lambda name: (costs[name], name.count("N"), name)))
    ratio = hash_weight / loop_weight
    return WindowJoinAnswer(
        algorithm=algorithm,
        cost=JoinCosts(**costs),
        crossover=Crossover(
            left_to_right=approximate_crossover(b.keys, ratio),
            right_to_left=approximate_crossover(a.keys, ratio),
            exact=ExactCrossover(
                left_to_right=exact_crossover(b, hash_weight, loop_weight), right_to_left=exact_crossover(a, hash_weight, loop_weight)
            ),
        ),
        regulated=Sides(left=a.rate, right=b.rate),
        windows=Sides(left=a.window, right=b.window),
        memory=Sides(left=a.tuples, right=b.tuples),
        expired=Sides(left=_expired(b, a, algorithm[0] == "H", lazy), right=_expired(a, b, algorithm[1] == "H", lazy)),
        output_rate=output,
        full_output_rate=whole,
        proof=Proof.OPTIMAL,
        bound=output,
        gap=0.0,
    )

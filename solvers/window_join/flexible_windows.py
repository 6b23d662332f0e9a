"""The windows that fit the memory and lose the fewest results (paper 4 §4.3, for any number of streams).

Problem: shorten every window to a share t_i of itself so that the windows fit the memory, Σ m_i·t_i ≤ M, and the most
results are left. A result that an arrival of stream i completes needs a partner in every other window, so the share of
the results that is kept is

    K(t) = Σ_i a_i · Π_{j≠i} t_j        a_i = the part of all results that arrivals of i complete, 0 ≤ t_i ≤ 1

Method: K is, up to its (n−1)th root, concave on t ≥ 0 (an elementary symmetric polynomial in scaled variables), so a
point with no better neighbour is best. Either one stream keeps nothing and only probes: then K is one product, the
others share the memory evenly, and one inequality says whether that is best. Or all keep something: then memory is
moved between the two streams that gain most, to the maximum of the parabola that K is along the way, until none gains.

Guarantee: exact (to 1e-12). Complexity: O(n) per move, about n·log(1/ε) moves.
Two streams give the paper's rule: all memory to the slower one, what it cannot use to the other.
Departs from paper 4: n streams, tuples of different sizes. Observed sub-joins count as independent of window lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["flexible_windows", "kept_share"]

MOVES_PER_STREAM = 200  # far above what was ever needed; a bound so that rounding cannot make it go on for ever
ENOUGH = 1e-12  # relative gain per byte below which memory is not worth moving
TINY = 1e-280  # bytes; shares of less than this leave the range of a double
HOPELESS = 1e-100  # of the windows: no result is left whatever is kept, and shares would leave the range of a double
NEGLIGIBLE = 1e-30  # of all windows: a window that is counted as no smaller than this
LEAST = 1e-9  # of an even share: as good as nothing while memory is being moved


def kept_share(completed: Sequence[float], shares: Sequence[float]) -> float:
    """K(t) = Σ a_i Π_{j≠i} t_j, by prefix and suffix products."""
    n = len(shares)
    suffix = [1.0] * (n + 1)
    for i in range(n - 1, -1, -1):
        suffix[i] = suffix[i + 1] * shares[i]
    prefix, parts = 1.0, []
    for i in range(n):
        parts.append(completed[i] * prefix * suffix[i + 1])
        prefix *= shares[i]
    return math.fsum(parts)


def flexible_windows(completed: Sequence[float], sizes: Sequence[float], memory: float) -> list[float]:
    """The share of its window that each stream keeps. `completed` are the a_i, `sizes` the m_i.

    >>> flexible_windows([0.5, 0.5], [600.0, 3000.0], 600.0)
    [1.0, 0.0]
    """
    n, total = len(sizes), math.fsum(sizes)
    if total <= memory:
        return [1.0] * n
    if n == 1 or memory / total < HOPELESS or memory < TINY:
        return [memory / total] * n
    sizes = [max(size, NEGLIGIBLE * total) for size in sizes]
    if n == 2:
        first = 0 if completed[1] * sizes[1] >= completed[0] * sizes[0] else 1
        shares = [0.0, 0.0]
        shares[first] = min(1.0, memory / sizes[first])
        shares[1 - first] = max(0.0, memory - sizes[first]) / sizes[1 - first]
        return shares
    idle = max(range(n), key=lambda i: (completed[i] * sizes[i], -i))
    shares, level = _even(sizes, memory, idle)
    # The first byte for the idle stream would gain less than the last byte that another has.
    if math.isfinite(level) and math.fsum(completed[j] / shares[j] for j in range(n) if j != idle) * level <= completed[idle] * sizes[idle]:
        return shares
    return _move_memory(completed, sizes, memory)


def _even(sizes: Sequence[float], memory: float, idle: int) -> tuple[list[float], float]:
    """Shares with every stream but `idle` getting the same memory, or its whole window where that is less; and that amount, ∞ if all are whole."""
    shares, left = [0.0] * len(sizes), memory
    others = sorted((i for i in range(len(sizes)) if i != idle), key=lambda i: (sizes[i], i))
    level = math.inf
    for number, i in enumerate(others):
        even = left / (len(others) - number)
        if sizes[i] > even:
            level = even
            for j in others[number:]:
                shares[j] = even / sizes[j]
            break
        shares[i] = 1.0
        left -= sizes[i]
    return shares, level


def _move_memory(completed: Sequence[float], sizes: Sequence[float], memory: float) -> list[float]:
    n = len(sizes)
    fit = memory / math.fsum(sizes)
    shares, least = [fit] * n, fit * LEAST
    for _ in range(MOVES_PER_STREAM * n):
        inverse = [completed[i] / shares[i] for i in range(n)]
        total = math.fsum(inverse)
        gains = [(total - inverse[i]) / (shares[i] * sizes[i]) for i in range(n)]
        to = max((i for i in range(n) if shares[i] < 1.0), key=lambda i: gains[i])
        source = min((i for i in range(n) if shares[i] > least), key=lambda i: gains[i])
        if gains[to] - gains[source] <= ENOUGH * gains[to]:
            break
        rest = math.fsum(inverse[k] for k in range(n) if k not in (to, source))
        held = sizes[to] * shares[to] + sizes[source] * shares[source]
        if rest <= 0.0:
            break
        target = (completed[source] * sizes[source] - completed[to] * sizes[to] + rest * held) / (2.0 * rest * sizes[to])
        target = min(target, 1.0, (held - least * sizes[source]) / sizes[to])
        if target <= shares[to]:
            break
        shares[to], shares[source] = target, min(1.0, (held - sizes[to] * target) / sizes[source])
    return shares

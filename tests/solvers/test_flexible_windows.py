"""Windows that fit the memory lose the fewest results: against the paper's closed form and against a grid."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.window_join.flexible_windows import flexible_windows, kept_share


def _share(rates: list[float], windows: list[float]) -> list[float]:
    total = sum(1.0 / window for window in windows)
    return [1.0 / window / total for window in windows]


def test_two_streams_give_all_memory_to_the_slower_one() -> None:
    rates, windows, memory, selectivity = [10.0, 50.0], [100.0, 100.0], 1000.0, 0.005
    sizes = [rate * window for rate, window in zip(rates, windows, strict=True)]
    shares = flexible_windows(_share(rates, windows), sizes, memory)
    assert shares == [1.0, 0.0]
    full = selectivity * rates[0] * rates[1] * sum(windows)
    assert full * kept_share(_share(rates, windows), shares) == pytest.approx(250.0)


@given(st.integers(2, 5), st.integers(0, 10**6), st.floats(0.01, 0.99))
@settings(max_examples=150, deadline=None)
def test_no_other_split_of_the_memory_keeps_more_results(n: int, seed: int, part: float) -> None:
    rng = random.Random(seed)
    rates = [rng.uniform(1, 100) for _ in range(n)]
    windows = [rng.uniform(1, 100) for _ in range(n)]
    sizes = [rate * window for rate, window in zip(rates, windows, strict=True)]
    memory = part * sum(sizes)
    completed = _share(rates, windows)
    shares = flexible_windows(completed, sizes, memory)
    assert all(0.0 <= share <= 1.0 for share in shares)
    assert sum(share * size for share, size in zip(shares, sizes, strict=True)) == pytest.approx(memory)
    best = kept_share(completed, shares)
    grid = 60 if n == 2 else 24 if n == 3 else 12 if n == 4 else 8
    for cut in itertools.combinations_with_replacement(range(grid + 1), n - 1):
        ends = (0, *cut, grid)
        other = [min(1.0, memory * (high - low) / grid / size) for low, high, size in zip(ends, ends[1:], sizes, strict=False)]
        assert kept_share(completed, other) <= best * (1 + 1e-9)
    for _ in range(50):
        i, j = rng.sample(range(n), 2)
        moved = min((1.0 - shares[i]) * sizes[i], shares[j] * sizes[j]) * rng.random() ** 6
        other = list(shares)
        other[i], other[j] = shares[i] + moved / sizes[i], shares[j] - moved / sizes[j]
        assert kept_share(completed, other) <= best * (1 + 1e-9)


def test_two_hundred_streams_with_next_to_no_memory_still_get_an_answer() -> None:
    rng = random.Random(1)
    sizes = [rng.uniform(1, 1e6) for _ in range(200)]
    shares = flexible_windows([1 / 200] * 200, sizes, 1e-3)
    assert sum(share * size for share, size in zip(shares, sizes, strict=True)) == pytest.approx(1e-3)

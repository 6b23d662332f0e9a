"""The estimators and the states of a running join's caches."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solvers.caches.adaptive import AdaptiveCaches, CacheState, Measured, Segment
from solvers.caches.estimators import BloomFilter, DistinctEstimator, MissEstimator, OperatorProfile, WindowAverage


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=40), st.integers(1, 12))
def test_an_average_is_that_of_the_last_w_measurements(values: list[int], window: int) -> None:
    average = WindowAverage(window)
    for value in values:
        average.add(value)
    last = values[-window:]
    assert average.value == pytest.approx(sum(last) / len(last))
    assert average.full == (len(values) >= window)


def test_nothing_measured_is_no_average() -> None:
    assert WindowAverage().value is None


@given(st.sets(st.integers(0, 10**6), max_size=200), st.integers(1, 4000))
def test_a_bloom_filter_never_counts_more_keys_than_there_are(keys: set[int], bits: int) -> None:
    bloom = BloomFilter(bits)
    for key in sorted(keys):
        bloom.add(str(key).encode())
        bloom.add(str(key).encode())
    assert bloom.count <= min(len(keys), bits)


@pytest.mark.parametrize(("distinct", "bits_per_probe"), [(1, 1.0), (50, 1.0), (400, 1.0), (1000, 1.0), (1000, 8.0)])
def test_distinct_keys_are_counted_within_a_few_percent_even_at_one_bit_a_probe(distinct: int, bits_per_probe: float) -> None:
    estimator = DistinctEstimator(1000, bits_per_probe)
    for i in range(1000):
        estimator.add(str(i % distinct).encode())
    assert estimator.distinct == pytest.approx(distinct, rel=0.08, abs=1)


def test_the_papers_count_without_correction_is_low_and_ours_is_not() -> None:
    estimator = DistinctEstimator(1000, 1.0)
    for i in range(800):
        estimator.add(str(i).encode())
    assert estimator.filter.count < 600
    assert estimator.distinct == pytest.approx(800, rel=0.06)


@pytest.mark.parametrize("multiplicity", [1, 2, 5, 20])
def test_the_miss_probability_is_distinct_keys_per_probe(multiplicity: int) -> None:
    estimator = MissEstimator(probes=200, window=5)
    assert estimator.miss_probability is None
    for i in range(1000):
        estimator.probe(str(i // multiplicity).encode())
    assert estimator.ready
    assert estimator.miss_probability == pytest.approx(1 / multiplicity, rel=0.05)


def test_old_windows_are_forgotten() -> None:
    estimator = MissEstimator(probes=100, window=3)
    for i in range(300):
        estimator.probe(str(i).encode())
    assert estimator.miss_probability == pytest.approx(1.0, rel=0.05)
    for _ in range(300):
        estimator.probe(b"same")
    assert estimator.miss_probability == pytest.approx(0.01)


def test_a_profile_gives_d_and_c() -> None:
    profile = OperatorProfile(window=4)
    assert profile.d(10.0) is None
    for tuples, seconds in [(100, 9.0), (2, 0.4), (0, 0.0), (4, 0.8), (2, 0.4)]:
        profile.add(tuples, seconds)
    assert profile.ready
    assert profile.d(10.0) == pytest.approx(10.0 * 8 / 4)
    assert profile.c == pytest.approx(1.6 / 8)


SEGMENTS = {"inner": Segment("T", 0, 1), "outer": Segment("T", 0, 2), "other": Segment("U", 0, 1)}


def best(measured: Mapping[str, Measured]) -> Collection[str]:
    """Per pipeline the candidate with the largest positive net benefit."""
    chosen: dict[object, str] = {}
    for name in sorted(measured):
        pipeline = SEGMENTS[name].pipeline
        if measured[name].net > 0 and (pipeline not in chosen or measured[name].net > measured[chosen[pipeline]].net):
            chosen[pipeline] = name
    return list(chosen.values())


def figures(**net: float) -> dict[str, Measured]:
    return {name: Measured(value + 1.0, 1.0) for name, value in net.items()}


def test_all_start_profiled_and_nothing_is_chosen_before_all_are_ready() -> None:
    caches = AdaptiveCaches(SEGMENTS, best)
    assert caches.in_state(CacheState.PROFILED) == list(SEGMENTS)
    early = figures(inner=1, outer=3, other=2)
    early["other"] = Measured(3.0, 1.0, ready=False)
    assert not caches.reoptimize(early)
    assert caches.reoptimize(figures(inner=1, outer=3, other=2))
    assert caches.in_state(CacheState.USED) == ["outer", "other"]
    assert caches.in_state(CacheState.UNUSED) == ["inner"]


def test_a_used_cache_that_loses_is_dropped_at_once() -> None:
    caches = AdaptiveCaches(SEGMENTS, best)
    caches.reoptimize(figures(inner=1, outer=3, other=2))
    assert caches.observe(figures(outer=-0.1, other=0.0, inner=5)) == ["outer"]
    assert caches.state("outer") is CacheState.UNUSED
    assert caches.state("other") is CacheState.USED
    caches.begin_profiling()
    assert caches.reoptimize(figures(inner=1, outer=2.9, other=2))
    assert caches.state("outer") is CacheState.USED


def test_a_used_cache_is_profiled_only_where_it_hides_an_unused_one() -> None:
    caches = AdaptiveCaches(SEGMENTS, best)
    caches.reoptimize(figures(inner=1, outer=3, other=2))
    assert caches.begin_profiling() == ["inner", "outer"]
    assert caches.state("other") is CacheState.USED


def test_the_selection_runs_again_only_when_a_figure_moved_by_a_fifth() -> None:
    caches = AdaptiveCaches(SEGMENTS, best)
    assert caches.reoptimize(figures(inner=1, outer=3, other=2))
    caches.begin_profiling()
    assert not caches.reoptimize(figures(inner=1.3, outer=3.5, other=2.5))
    assert caches.selections == 1
    assert caches.in_state(CacheState.USED) == ["outer", "other"]
    caches.begin_profiling()
    assert caches.reoptimize(figures(inner=9.0, outer=3.5, other=2.5))
    assert caches.selections == 2
    assert caches.in_state(CacheState.USED) == ["inner", "other"]


def test_a_new_order_drops_the_caches_of_its_pipeline_and_profiles_the_new_ones() -> None:
    caches = AdaptiveCaches(SEGMENTS, best)
    caches.reoptimize(figures(inner=1, outer=3, other=2))
    caches.reorder("T", [("inner", Segment("T", 1, 2))])
    assert caches.in_state(CacheState.USED) == ["other"]
    assert caches.in_state(CacheState.PROFILED) == ["inner"]
    assert caches.reoptimize(figures(inner=1, other=2))
    assert sorted(caches.in_state(CacheState.USED)) == ["inner", "other"]


def test_used_caches_never_overlap_whatever_happens() -> None:
    generator = random.Random(5)
    caches = AdaptiveCaches(SEGMENTS, best)
    for _ in range(500):
        measured = figures(**{name: generator.uniform(-1, 3) for name in SEGMENTS})
        generator.choice((lambda m: caches.observe(m), lambda _: caches.begin_profiling(), caches.reoptimize))(measured)
        used = [SEGMENTS[name] for name in caches.in_state(CacheState.USED)]
        assert len({segment.pipeline for segment in used}) == len(used)
    assert caches.selections > 10

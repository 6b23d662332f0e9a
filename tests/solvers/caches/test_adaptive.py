"""The states of a running join's caches."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping

from solvers.caches.adaptive import AdaptiveCaches, CacheState, Measured, Segment

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
    assert caches.in_state(CacheState.USED) == ["outer", "other"]
    caches.begin_profiling()
    assert caches.reoptimize(figures(inner=9.0, outer=3.5, other=2.5))
    assert caches.in_state(CacheState.USED) == ["inner", "other"]


def test_used_caches_never_overlap_whatever_happens() -> None:
    generator = random.Random(5)
    caches = AdaptiveCaches(SEGMENTS, best)
    selected = 0
    for _ in range(500):
        measured = figures(**{name: generator.uniform(-1, 3) for name in SEGMENTS})
        selected += generator.choice((lambda m: caches.observe(m), lambda _: caches.begin_profiling(), caches.reoptimize))(measured) is True
        used = [SEGMENTS[name] for name in caches.in_state(CacheState.USED)]
        assert len({segment.pipeline for segment in used}) == len(used)
    assert selected > 10

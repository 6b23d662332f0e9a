"""Statistics measured from rows: those of the definition, those that made the rows, and plans as good as from the true ones."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from models.plan import EstimateRequest
from models.request import Comparison, PlanRequest, Query
from solvers.estimate import estimate
from solvers.planner import plan
from solvers.profile import Profile, profile
from solvers.profiling.results import COMPARED, Joins
from solvers.profiling.sample import SECOND, Rows, Sample, Sampled

EDGE = 0.02  # how much worse a plan from profiled statistics may be


def query_of(streams: dict[str, tuple[float, float]], predicates: Sequence[tuple[str, str, str, float]]) -> Query:
    """From {name: (rate, window)} and (left, op, right, selectivity)."""
    return Query.model_validate(
        {
            "streams": [{"name": name, "rate": rate, "window": {"seconds": seconds}} for name, (rate, seconds) in streams.items()],
            "predicates": [{"left": left, "op": op, "right": right, "selectivity": share} for left, op, right, share in predicates],
        }
    )


def rows_of(seed: int, rate: float, seconds: float, values: dict[str, int]) -> dict[str, Any]:
    """Arrivals at random, each attribute uniform over so many values."""
    rng = np.random.default_rng(seed)
    ts = np.sort(rng.integers(0, round(seconds * SECOND), rng.poisson(rate * seconds)))
    return {"ts": ts, **{attribute: rng.integers(0, count, len(ts)) for attribute, count in values.items()}}


def sample_of(tables: dict[str, dict[str, Any]], start: float, end: float, by: Sampled | None = None) -> Sample:
    streams = {}
    for name, table in tables.items():
        kept = np.ones(len(table["ts"]), dtype=bool)
        if by is not None and name in by.attributes:
            kept = _hashed(table[by.attributes[name]]) < by.share
        inside = (table["ts"] >= start * SECOND) & (table["ts"] < end * SECOND)
        columns = {attribute: column[kept] for attribute, column in table.items() if attribute != "ts"}
        share = float(kept[inside].mean()) if inside.any() else 1.0
        streams[name] = Rows(table["ts"][kept], columns, columns, int(inside.sum()), share, 100.0)
    return Sample(streams, round(start * SECOND), round(end * SECOND), by)


def _hashed(column: Any) -> Any:
    """A number in [0, 1) for each value."""
    return (column.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)) / 2**32


def by_definition(query: Query, sample: Sample, names: Sequence[str]) -> tuple[int, int]:
    """Results and combinations of these streams that are completed in the stretch, all looked at one by one."""
    windows = {stream.name: round((stream.window.seconds or 0) * SECOND) for stream in query.streams}
    results = possible = 0
    for combination in itertools.product(*(range(len(sample.streams[name].ts)) for name in names)):
        ts = {name: int(sample.streams[name].ts[row]) for name, row in zip(names, combination, strict=True)}
        if not sample.start <= max(ts.values()) < sample.end or any(ts[j] - ts[i] > windows[i] for i in names for j in names):
            continue
        possible += 1
        rows = dict(zip(names, combination, strict=True))
        results += all(_holds(sample, predicate, rows) for predicate in query.predicates)
    return results, possible


def _holds(sample: Sample, predicate: Any, rows: dict[str, int]) -> bool:
    sides = [side.split(".") for side in (predicate.left, predicate.right)]
    return bool(COMPARED[predicate.op](*(sample.streams[stream].codes[attribute][rows[stream]] for stream, attribute in sides)))


@pytest.mark.parametrize("seed", range(6))
def test_counts_are_those_of_the_definition(seed: int) -> None:
    rng = random.Random(seed)
    streams = {name: (rng.uniform(2, 5), rng.choice([1.0, 2.0, 4.0])) for name in "abc"}
    predicates = [("a.x", "=", "b.x", 0.2), ("b.y", rng.choice(["=", "<", "!="]), "c.y", 0.3)]
    if seed % 2:
        predicates += [("a.y", "=", "b.y", 0.3), ("a.x", ">=", "c.x", 0.5)]
    query = query_of(streams, predicates)
    tables = {name: rows_of(7 * seed + k, rate, 8.0, {"x": 4, "y": 3}) for k, (name, (rate, _)) in enumerate(streams.items())}
    sample = sample_of(tables, 3.0, 8.0)
    windows = {stream.name: round((stream.window.seconds or 0) * SECOND) for stream in query.streams}
    counted = Joins(sample, windows).counted(list("abc"), query.predicates)
    assert (counted.matches, counted.combinations.sum()) == by_definition(query, sample, "abc")
    assert counted.matches > 0


def test_rates_and_selectivities_are_those_that_made_the_rows() -> None:
    query = query_of({"a": (50, 20), "b": (200, 10), "c": (20, 60)}, [("a.x", "=", "b.x", 1), ("b.y", "=", "c.y", 1)])
    tables = {"a": rows_of(1, 50, 900, {"x": 300}), "b": rows_of(2, 200, 900, {"x": 300, "y": 50}), "c": rows_of(3, 20, 900, {"y": 50})}
    found = profile(query, sample_of(tables, 300, 900))
    for stream, rate in zip(found.query.streams, (50, 200, 20), strict=True):
        assert stream.rate == pytest.approx(len(tables[stream.name]["ts"]) / 900, rel=0.02) == pytest.approx(rate, rel=0.02)
        assert found.rates[stream.name].low <= rate <= found.rates[stream.name].high
    assert [p.selectivity for p in found.query.predicates] == [pytest.approx(1 / 300, rel=0.02), pytest.approx(1 / 50, rel=0.02)]
    for figure, true in zip(found.selectivities, (1 / 300, 1 / 50), strict=True):
        assert figure.low <= true <= figure.high
    assert found.query.observed == [] and found.warnings == []
    assert found.query.streams[1].distinct == {"x": pytest.approx(300, rel=0.01), "y": 50}


def test_a_sample_of_keys_gives_the_same_selectivities() -> None:
    """Some are joined by the sampled key, some by another; one share of the rows would leave its square of the matches."""
    query = query_of({"a": (100, 20), "b": (100, 20), "c": (50, 20)}, [("a.x", "=", "b.x", 1), ("b.y", "=", "c.y", 1)])
    tables = {"a": rows_of(1, 100, 600, {"x": 2000}), "b": rows_of(2, 100, 600, {"x": 2000, "y": 40}), "c": rows_of(3, 50, 600, {"y": 40})}
    whole = profile(query, sample_of(tables, 60, 600))
    part = profile(query, sample_of(tables, 60, 600, Sampled({"a": "x", "b": "x"}, 0.25)))
    for found, true in zip(part.query.predicates, whole.query.predicates, strict=True):
        assert found.selectivity == pytest.approx(true.selectivity, rel=0.1)
    assert [stream.rate for stream in part.query.streams] == [stream.rate for stream in whole.query.streams]
    assert part.query.streams[0].distinct["x"] == pytest.approx(whole.query.streams[0].distinct["x"], rel=0.1)
    assert "y" not in part.query.streams[1].distinct and any("b.y" in warning for warning in part.warnings)
    assert part.query.observed == []


def correlated() -> tuple[Query, dict[str, dict[str, Any]]]:
    """b.y follows from b.x, so whatever a and c say of them is not independent; and two predicates between a and d say the same."""
    query = query_of(
        {"a": (40, 20), "b": (40, 20), "c": (40, 20), "d": (40, 20)},
        [("a.x", "=", "b.x", 1), ("b.y", "=", "c.y", 1), ("a.x", "=", "d.x", 1), ("a.z", "=", "d.z", 1)],
    )
    tables = {
        "a": rows_of(1, 40, 900, {"x": 40}),
        "b": rows_of(2, 40, 900, {"x": 40}),
        "c": rows_of(3, 40, 900, {"y": 20}),
        "d": rows_of(4, 40, 900, {"x": 40}),
    }
    rng = np.random.default_rng(5)
    tables["b"]["y"] = np.where(rng.random(len(tables["b"]["ts"])) < 0.8, tables["b"]["x"] // 4, rng.integers(0, 20, len(tables["b"]["ts"])))
    for name in "ad":
        tables[name]["z"] = tables[name]["x"] % 10
    return query, tables


def test_predicates_that_are_not_independent_are_observed() -> None:
    query, tables = correlated()
    found = profile(query, sample_of(tables, 60, 900))
    observed = {frozenset(one.streams): one.selectivity for one in found.query.observed}
    # z follows from x, so the pair is as selective as x alone; independence would say a tenth of that.
    assert observed[frozenset("ad")] == pytest.approx(1 / 40, rel=0.05)
    assert found.query.predicates[3].selectivity == pytest.approx(1 / 10, rel=0.05)
    # Every c has a partner in b's y as often as y is frequent, whoever a is: a and c are independent through b's rows.
    assert frozenset("abc") not in observed


def test_three_streams_that_share_a_key_are_observed_together() -> None:
    query = query_of(dict.fromkeys("abc", (30, 20)), [("a.x", "=", "b.x", 1), ("b.x", "=", "c.x", 1), ("a.x", "=", "c.x", 1)])
    tables = {name: rows_of(k, 30, 900, {"x": 30}) for k, name in enumerate("abc")}
    found = profile(query, sample_of(tables, 60, 900))
    (observed,) = found.query.observed
    assert observed.streams == ["a", "b", "c"] and observed.selectivity == pytest.approx(1 / 900, rel=0.05)


def test_what_cannot_be_measured_is_said() -> None:
    query = query_of({"a": (5, 20), "b": (7, 600), "c": (3, 20)}, [("a.x", "=", "b.x", 1), ("b.y", "=", "c.y", 1)])
    tables = {"a": rows_of(1, 5, 60, {"x": 10**6}), "b": rows_of(2, 7, 60, {"x": 10**6, "y": 3}), "c": rows_of(3, 3, 60, {"y": 3})}
    tables["c"] = {name: column[:0] for name, column in tables["c"].items()}
    found = profile(query, sample_of(tables, 0, 60))
    said = "\n".join(found.warnings)
    assert "c has no row in the stretch" in said and found.query.streams[2].rate == 3
    assert "a.x = b.x: 0 matches were seen" in said and "b.y = c.y: no two rows were within their windows" in said
    assert "b: distinct values are those of" in said
    assert 0 < (found.query.predicates[0].selectivity or 0) < 1e-4


def random_workload(seed: int) -> tuple[Query, dict[str, dict[str, Any]]]:
    """A tree of up to six streams with rates, windows and keys that differ by orders of magnitude."""
    rng = random.Random(seed)
    names = list("abcdef")[: rng.randint(3, 6)]
    streams = {name: (math.exp(rng.uniform(math.log(3), math.log(60))), rng.choice([5.0, 10.0, 30.0, 60.0])) for name in names}
    values: dict[str, dict[str, int]] = {name: {} for name in names}
    predicates = []
    for k, name in enumerate(names[1:], 1):
        other = rng.choice(names[:k])
        count = rng.choice([10, 30, 100, 300])
        values[other][f"k{name}"] = values[name]["k"] = count
        predicates.append((f"{other}.k{name}", "=", f"{name}.k", 1.0 / count))
    tables = {name: rows_of(100 * seed + k, streams[name][0], 600, values[name]) for k, name in enumerate(names)}
    return query_of(streams, predicates), tables


@pytest.mark.parametrize("seed", range(20))
def test_plans_from_profiled_statistics_are_as_good_as_from_true_ones(seed: int) -> None:
    query, tables = random_workload(seed)
    found = profile(query, sample_of(tables, 120, 600))
    true = PlanRequest.model_validate({"query": query.model_dump(mode="json"), "options": {"caches": "off"}})
    guess = PlanRequest.model_validate({"query": found.query.model_dump(mode="json"), "options": {"caches": "off"}})
    best, ours = plan(true), plan(guess)
    priced = estimate(EstimateRequest.model_validate({**true.model_dump(mode="json"), "operators": ours.model_dump(mode="json")["operators"]}))
    assert priced.cost.cpu <= best.cost.cpu * (1 + EDGE)


def test_the_same_rows_have_the_same_profile() -> None:
    query, tables = correlated()
    first, second = (profile(query, sample_of(tables, 60, 300)) for _ in range(2))
    assert isinstance(first, Profile) and first == second
    assert Comparison.EQ in {predicate.op for predicate in first.query.predicates}

"""What the last windows say of a query: as the data is now, whichever plans ran, and for every predicate that a step checked."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from models.plan import Plan
from models.request import Query
from spark_adapter.stem import estimates as module
from spark_adapter.stem.estimates import Period, estimates, longest_window, recent
from spark_adapter.stem.statistics import Measured
from tests.spark_adapter.cells import SECOND, Batch, Cells, reordered, steady, with_caches, with_shares
from tests.spark_adapter.plans import make_plan, make_query

CHAIN = make_query({"r": 5, "s": 5, "t": 5}, ["r.x = s.x", "s.y = t.y"])
TRIANGLE = make_query({"r": 5, "s": 5, "t": 5}, ["r.x = s.x", "s.y = t.y", "t.x = r.y"])


def measured(cells: Cells, batches: Sequence[tuple[Batch, int]], of: Measured | None = None) -> Measured:
    """The batches run and taken in."""
    found = of or Measured(cells.plan.query)
    for batch, watermark in batches:
        before = len(cells.outcomes)
        cells.work_off(batch, watermark)
        found.add([outcome.statistics for outcome in cells.outcomes[before:]])
    return found


def later(batches: Sequence[tuple[Batch, int]], seconds: int) -> list[tuple[Batch, int]]:
    """The same batches at another time."""
    return [
        ({name: [{**row, "ts": row["ts"] + seconds * SECOND} for row in rows] for name, rows in batch.items()}, watermark + seconds * SECOND)
        for batch, watermark in batches
    ]


def selectivities(found: Mapping[str, Any]) -> list[float]:
    return list(found["selectivities"].values())


def drifting(query: Query) -> list[tuple[Batch, int]]:
    """Twenty seconds with ten values a key at 20 rows a second, then twenty with forty values at 40."""
    return [*steady(query, 20, 20, 10), *later(steady(query, 20, 40, 40, seed=1), 20)]


@pytest.mark.parametrize("parallelism", [1, 4])
def test_rates_and_selectivities_are_of_the_last_windows(parallelism: int) -> None:
    """Since the start, rates would be 30 and selectivities 0.04."""
    run = measured(Cells(make_plan(CHAIN, ["r", "s", "t"]), parallelism), drifting(CHAIN))
    said = run.measured()
    assert said["rates"] == {f"{name}.rate": pytest.approx(40.0, rel=0.01) for name in "rst"}
    assert selectivities(said) == [pytest.approx(1 / 40, rel=0.15)] * 2
    assert list(said["how"].values()) == ["counted", "counted"]
    assert said["seconds"] == pytest.approx(6.0, abs=1.01)
    assert said["output_rate"] == pytest.approx(3 * 40**3 * 5**2 / 40**2, rel=0.2)
    assert run.summary()["streams"][0]["rows"] == 1200


def test_steps_of_two_plans_add_up() -> None:
    cells = Cells(make_plan(CHAIN, ["r", "s", "t"]))
    batches = steady(CHAIN, 20, 20, 10)
    run = measured(cells, batches[:17])
    cells.use(make_plan(CHAIN, ["r", ["s", "t"]]))
    said = measured(cells, batches[17:], run).measured()
    assert selectivities(said) == [pytest.approx(0.1, rel=0.15)] * 2
    # Both plans make all three; the first alone makes r and t, the second alone s and t.
    assert [entry["streams"] for entry in said["observed"]] == [["r", "s"], ["r", "s", "t"], ["r", "t"], ["s", "t"]]
    assert [state["streams"] for state in run.summary()["states"]] == [["r"], ["s"], ["t"], ["s", "t"]]


def test_results_and_cpu_are_those_of_the_plan_that_runs_now() -> None:
    """No row may probe any more from second 17 on, in the middle of a window."""
    plan = make_plan(CHAIN, ["r", "s", "t"])
    cells = Cells(plan)
    batches = steady(CHAIN, 25, 20, 10)
    run = measured(cells, batches[:17])
    before = run.measured()["output_rate"]
    cells.use(with_shares(plan, {("join-1", name, 0): 0.0 for name in "rst"}))
    assert measured(cells, batches[17:19], run).measured()["output_rate"] == 0.0
    assert before == pytest.approx(3 * 20**3 * 5**2 / 10**2, rel=0.2)


def test_on_a_cycle_the_predicate_that_is_never_alone_follows_from_the_others() -> None:
    """r and s probe each other first and t probes r first: s.y = t.y is only checked together with t.x = r.y."""
    cells = Cells(make_plan(TRIANGLE, ["r", "s", "t"]))
    said = measured(cells, steady(TRIANGLE, 30, 30, 8)).measured()
    assert list(said["how"].values()) == ["counted", "fitted", "counted"]
    assert selectivities(said) == [pytest.approx(1 / 8, rel=0.15)] * 3


def test_predicates_that_are_only_seen_together_share_what_changed() -> None:
    """t meets r and s as a kept subresult: 0.1 each by the plan, of which 64 times less match."""
    cells = Cells(make_plan(TRIANGLE, [["r", "s"], "t"]))
    said = measured(cells, steady(TRIANGLE, 40, 40, 8)).measured()
    assert list(said["how"].values()) == ["counted", "fitted", "fitted"]
    _, one, other = selectivities(said)
    assert one == pytest.approx(other)
    assert one * other == pytest.approx(1 / 64, rel=0.25)


def test_what_a_cache_hides_is_sampled() -> None:
    """Every route of s.y = t.y is answered by a cache."""
    plan = make_plan(CHAIN, ["r", "s", "t"])
    places = [("join-1", "r", 0, 1, "prefix", 1e6), ("join-1", "s", 1, 1, "prefix", 1e6), ("join-1", "t", 0, 1, "prefix", 1e6)]
    batches = steady(CHAIN, 30, 40, 10)
    said = measured(Cells(with_caches(plan, places)), batches).measured()
    assert list(said["how"].values()) == ["counted", "sampled"]
    assert selectivities(said) == [pytest.approx(0.1, rel=0.15)] * 2
    whole = {tuple(entry["streams"]): entry["selectivity"] for entry in said["observed"]}["r", "s", "t"]
    assert whole == pytest.approx(measured(Cells(plan), batches).measured()["observed"][1]["selectivity"], rel=0.25)


def test_a_sample_counts_by_the_rows_that_it_stands_for() -> None:
    """A hundred times as many rows of t in the last batch, none of which has a partner: a few of them are sent through the cached steps, no
    more than of the batches before."""
    plan = reordered(make_plan(CHAIN, ["r", "s", "t"]), {("join-1", "t"): (1, 0)})
    places = [("join-1", "r", 0, 1, "prefix", 1e6), ("join-1", "s", 1, 1, "prefix", 1e6), ("join-1", "t", 0, 1, "prefix", 1e6)]
    batches = steady(CHAIN, 5, 20, 4)
    batch, watermark = batches[-1]
    strangers = [{"id": 1000 + k, "ts": batch["t"][0]["ts"] + k, "x": 0, "y": 1000 + k} for k in range(2000)]
    batches[-1] = {**batch, "t": [*batch["t"], *strangers]}, watermark
    sampled, counted = (
        {tuple(entry["streams"]): entry["selectivity"] for entry in measured(Cells(each), batches).measured()["observed"]}["s", "t"]
        for each in (with_caches(plan, places), plan)
    )
    assert counted < 0.05
    assert counted / 2 < sampled < 2 * counted, "some sixty rows were looked at"


def test_hits_and_misses_are_those_of_each_batch_and_of_the_run() -> None:
    plan = with_caches(make_plan(CHAIN, ["r", "s", "t"]), [("join-1", "t", 0, 1, "prefix", 1e6)])
    run = measured(Cells(plan), steady(CHAIN, 10, 20, 5))
    (cache,) = run.summary()["caches"]
    assert (cache["cache"], cache["hits"], cache["misses"]) == ("cache-1", 10 * 20 - 5, 5)


def test_distinct_values_are_those_in_the_window() -> None:
    """Keys that never come again: 5 windows hold 5 times as many. Before a whole window was seen nothing is said."""
    query = make_query({"r": 5, "s": 50}, ["r.x = s.x"])
    rng = random.Random(0)

    def batch(second: int) -> tuple[Batch, int]:
        rows = [{"id": k, "ts": second * SECOND + k * 1000, "x": second * 100 + rng.randrange(100), "y": 0} for k in range(300)]
        return {"r": rows, "s": rows}, -1

    for parallelism in (1, 2):
        cells = Cells(make_plan(query, ["r", "s"]), parallelism)
        run = measured(cells, [batch(second) for second in range(4)])
        assert run.measured()["distinct"] == {}
        said = measured(cells, [batch(second) for second in range(4, 20)], run).measured()
        # In five batches of which each has 95 of its 100 values.
        assert said["distinct"] == {"r.x": pytest.approx(5 * 95, rel=0.1)}


def test_bytes_of_a_row_are_measured() -> None:
    cells = Cells(make_plan(CHAIN, ["r", "s", "t"]))
    said = measured(cells, steady(CHAIN, 5, 20, 10)).measured()
    # hi, mx, h, one attribute or two, and the id.
    assert said["tuple_bytes"] == {"r.tuple_bytes": 40.0, "s.tuple_bytes": 48.0, "t.tuple_bytes": 40.0}
    assert said["memory_bytes"] == pytest.approx(128 * 100, rel=0.25)


def test_a_stream_that_fell_silent_for_a_window_is_slow_and_one_that_only_just_did_is_not() -> None:
    batches = steady(CHAIN, 20, 20, 10)
    silent = [({name: rows for name, rows in batch.items() if name != "t" or n < 10}, watermark) for n, (batch, watermark) in enumerate(batches)]
    cells = Cells(make_plan(CHAIN, ["r", "s", "t"]))
    run = measured(cells, silent[:12])
    assert run.measured()["rates"]["t.rate"] == pytest.approx(20.0, rel=0.05)
    assert measured(cells, silent[12:], run).measured()["rates"]["t.rate"] < 0.3


def test_where_nothing_matched_a_selectivity_is_below_one_pair_and_above_zero() -> None:
    query = make_query({"r": 5, "s": 5}, ["r.x = s.x"])
    apart = {"r": 1, "s": 2}
    batches = [
        ({name: [{**row, "x": apart[name]} for row in rows] for name, rows in batch.items()}, watermark)
        for batch, watermark in steady(query, 5, 20, 3)
    ]
    (found,) = selectivities(measured(Cells(make_plan(query, ["r", "s"])), batches).measured())
    assert 0.5 / 20_000 < found < 1 / 5_000


def test_a_window_of_many_batches_is_held_in_few_periods_and_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PERIODS", 32)  # a quarter of what is held otherwise, so that a quarter of the batches shows it
    plan: Plan = make_plan(CHAIN, ["r", "s", "t"])
    cells = Cells(plan)
    run = Measured(CHAIN)
    lines = []
    for batch, watermark in steady(CHAIN, 4, 20, 10, every=0.1):
        cells.work_off(batch, watermark)
        lines.append(run.add([cells.outcomes[-1].statistics]))
    few: list[Period] = []
    for line in lines:
        few = recent([*few, Period.of(line)], 100.0)
    assert len(lines) == 40 > module.PERIODS >= len(few)
    found, expected = (estimates(CHAIN, periods) for periods in (few, [Period.of(line) for line in lines]))
    for what in ("rates", "selectivities", "distinct", "tuple_bytes"):
        assert found[what] == pytest.approx(expected[what])
    assert (found["output_rate"], found["cpu"]) == pytest.approx((expected["output_rate"], expected["cpu"]))


def test_the_longest_window_counts_rows_by_their_rate() -> None:
    streams = [{"name": "a", "rate": 2, "window": {"rows": 100}}, {"name": "b", "rate": 1, "window": {"seconds": 30}}]
    query = Query.model_validate({"streams": streams})
    assert longest_window(query) == 50.0
    assert longest_window(query, {"a.rate": 10.0}) == 30.0

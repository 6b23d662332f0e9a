"""The cell makes exactly the results of the definition, whatever the plan, the cells, the caches and the batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solvers.caches.figures
import spark_adapter.stem.program
from models.plan import CacheKind, Plan
from models.request import PlanRequest, Query
from solvers.planner import plan as planned
from spark_adapter.stem.program import META
from spark_adapter.stem.state import Notes
from spark_adapter.stem.statistics import Measured
from tests.spark_adapter.cells import SECOND, Batch, Case, Cells, by_definition, cases, plans, steady, with_caches, with_shares
from tests.spark_adapter.nested_loop import Row, nested_loop
from tests.spark_adapter.plans import make_plan, moment

Results = Counter[tuple[int, ...]]


def run(plan: Plan, batches: Sequence[tuple[Batch, int]], parallelism: int = 1) -> tuple[Cells, Results]:
    cells = Cells(plan, parallelism)
    found: Results = Counter()
    for batch, watermark in batches:
        found += cells.work_off(batch, watermark)
    return cells, found


def query_of(windows: dict[str, float], predicates: Sequence[tuple[str, str, str]], per_second: int = 10) -> Query:
    return Query.model_validate(
        {
            "streams": [{"name": name, "rate": per_second, "window": {"seconds": seconds}} for name, seconds in windows.items()],
            "predicates": [{"left": left, "op": op, "right": right, "selectivity": 0.1} for left, op, right in predicates],
        }
    )


CHAIN = query_of({"r": 5.0, "s": 5.0, "t": 5.0}, [("r.x", "=", "s.x"), ("s.y", "=", "t.y")])


@settings(max_examples=50, deadline=None)
@given(cases())
def test_the_rows_of_the_definition_are_those_of_the_nested_loop(case: Case) -> None:
    """Where no row is late and windows are spans of time, which is all that the nested loop knows."""
    query, rows = case.plan.query, dict[str, list[Row]]()
    for batch, _ in case.batches:
        for name, arrived in batch.items():
            rows.setdefault(name, []).extend({**row, "ts": moment(row["ts"] / SECOND)} for row in arrived)
    expected = Counter(tuple(row["id"] for row in result) for result in nested_loop(query, rows))
    assert by_definition(query, [(batch, -1) for batch, _ in case.batches]) == expected


@settings(max_examples=100, deadline=None)
@given(cases())
def test_time_windows_give_the_rows_of_the_definition(case: Case) -> None:
    assert run(case.plan, case.batches, case.parallelism)[1] == by_definition(case.plan.query, case.batches)


@settings(max_examples=100, deadline=None)
@given(cases(counted=True))
def test_row_windows_give_the_rows_of_the_definition(case: Case) -> None:
    assert run(case.plan, case.batches, case.parallelism)[1] == by_definition(case.plan.query, case.batches)


@settings(max_examples=50, deadline=None)
@given(st.booleans().flatmap(lambda counted: cases(counted)), st.lists(st.integers(0, 8), min_size=4, max_size=4), st.integers(0, 4))
def test_what_the_next_watermark_passes_is_let_go_at_once_and_is_not_missed(case: Case, quarters: list[int], restart: int) -> None:
    """The watermark as Spark moves it: the earliest over the streams of the latest event time in this run less the stream's delay."""
    delays = {stream.name: 250 * late for stream, late in zip(case.plan.query.streams, quarters, strict=False)}
    cells = Cells(case.plan, case.parallelism, delays)
    latest: dict[str, int] = {}
    batches: list[tuple[Batch, int]] = []
    found: Results = Counter()
    watermark = -1
    for place, (batch, _) in enumerate(case.batches):
        if place == restart:
            cells.use(case.plan)
            latest = {}
        batches.append((batch, watermark))
        found += cells.work_off(batch, watermark)
        for name, rows in batch.items():
            if rows:
                latest[name] = max(latest.get(name, -1), *(row["ts"] for row in rows))
        if len(latest) == len(delays):
            watermark = max(watermark, min(latest[name] - 1000 * delay for name, delay in delays.items()))
        if cells.grid.cells == 1:
            assert all(piece.bounds.hi[1] >= watermark for piece in Notes.read(cells.stores[0].get(META)).pieces)
    assert found == by_definition(case.plan.query, batches)


def test_after_a_restart_the_watermark_waits_for_every_stream_again() -> None:
    """Spark keeps the watermark where it was until a run has seen all streams: until then a row may come that an earlier run's would rule out."""
    query = query_of({"a": 10, "b": 10}, [("a.x", "=", "b.x")])

    def at(second: int) -> dict[str, int]:
        return {"ts": second * SECOND, "x": 1, "y": 1, "id": second}

    plan = make_plan(query, ["a", "b"])
    cells = Cells(plan, delays={"a": 0, "b": 0})
    batches: list[tuple[Batch, int]] = [
        ({"a": [at(100)], "b": [at(200)]}, -1),
        ({"a": [at(115), at(180)]}, 100 * SECOND),
        ({"b": [at(120)]}, 100 * SECOND),
    ]
    found: Results = Counter()
    for place, (batch, watermark) in enumerate(batches):
        if place == 1:
            cells.use(plan)
        found += cells.work_off(batch, watermark)
    assert found == by_definition(query, batches) == Counter({(115, 120): 1})


@settings(max_examples=25, deadline=None)
@given(cases(most_streams=6))
def test_six_streams_give_the_rows_of_the_definition(case: Case) -> None:
    few = [({name: rows[:2] for name, rows in batch.items()}, watermark) for batch, watermark in case.batches[:3]]
    assert run(case.plan, few, case.parallelism)[1] == by_definition(case.plan.query, few)


@settings(max_examples=100, deadline=None)
@given(cases(counted=True), st.data())
def test_another_plan_takes_over_the_states_and_misses_nothing(case: Case, data: st.DataObject) -> None:
    cells = Cells(case.plan, case.parallelism)
    found: Results = Counter()
    for batch, watermark in case.batches:
        found += cells.work_off(batch, watermark)
        cells.use(data.draw(plans(case.plan.query)))
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=40, deadline=None)
@given(cases(), st.sampled_from(["exact", "mjoin", "mjoin", "bjtree"]), st.sampled_from(["off", "prefix", "global"]), st.booleans())
def test_every_plan_of_the_planner_runs(case: Case, method: str, caches: str, starved: bool) -> None:
    """Figures under which the planner uses all it has: caches in a third of its mjoins, allowances where it is starved."""
    query = case.plan.query.model_dump(mode="json")
    for i, stream in enumerate(query["streams"]):
        stream |= {"rate": 1000.0 * 10 ** (i % 2), "distinct": {"x": 3, "y": 3}}
    for predicate in query["predicates"]:
        predicate["selectivity"] = 0.01
    options = {"method": method, "caches": caches, "time_limit": 10.0}
    document = {"query": query, "options": options, "resources": {"cpu": 1e-3} if starved else {}}
    plan = planned(PlanRequest.model_validate(document))
    expected = by_definition(plan.query, case.batches)
    assert run(plan.model_copy(update={"allocation": None}), case.batches, case.parallelism)[1] == expected
    assert run(plan, case.batches, case.parallelism)[1] <= expected


@pytest.mark.parametrize("shape", [["r", "s", "t"], [["r", "s"], "t"]])
def test_an_allowance_lets_through_its_share_of_right_rows_the_same_in_every_grid(shape: list[object]) -> None:
    batches = steady(CHAIN, seconds=20, per_second=60, values=40, every=2.0)
    plan = make_plan(CHAIN, shape)  # type: ignore[arg-type]
    everything = run(plan, batches)[1]
    root = plan.operators[-1]
    half = with_shares(plan, {(root.id, pipeline.input, 0): 0.5 for pipeline in root.pipelines})
    some = run(half, batches)[1]
    assert some <= everything
    assert some.total() == pytest.approx(everything.total() / 2, rel=0.05)
    assert run(half, batches, parallelism=4)[1] == some


def test_shares_at_two_steps_multiply() -> None:
    batches = steady(CHAIN, seconds=20, per_second=60, values=40, every=2.0)
    plan = make_plan(CHAIN, ["r", "s", "t"])
    everything = run(plan, batches)[1].total()
    root = plan.operators[-1]
    shares = {(root.id, pipeline.input, step): 0.7 for pipeline in root.pipelines for step in (0, 1)}
    assert run(with_shares(plan, shares), batches)[1].total() == pytest.approx(everything * 0.49, rel=0.05)


def test_a_share_inside_a_cached_segment_counts() -> None:
    batches = steady(CHAIN, seconds=20, per_second=60, values=40, every=2.0)
    plan = make_plan(CHAIN, ["r", "s", "t"])
    starved = with_shares(plan, {("join-1", name, 1): 0.5 for name in "rst"})
    cached = with_caches(starved, [("join-1", "t", 0, 1, "prefix", 1e6)])
    assert run(cached, batches)[1] == run(starved, batches)[1]


def test_where_even_keeping_is_too_much_only_a_share_of_the_rows_is_let_in() -> None:
    batches = steady(CHAIN, seconds=20, per_second=60, values=40, every=2.0)
    plan = make_plan(CHAIN, ["r", "s", "t"])
    everything = run(plan, batches)[1]
    cells, some = run(with_shares(plan, {}, admitted=0.5), batches)
    assert some <= everything
    assert some.total() == pytest.approx(everything.total() / 8, rel=0.15)
    assert cells.outcomes[-1].statistics["streams"]["r"]["rows"] == 120


@pytest.mark.parametrize("parallelism", [1, 4])
def test_rows_that_are_not_let_in_are_counted_exactly(parallelism: int) -> None:
    """In a window that outlasts the run a state holds every row that came in: what it lacks was shed."""
    query = query_of({"r": 60.0, "s": 60.0, "t": 60.0}, [("r.x", "=", "s.x"), ("s.y", "=", "t.y")])
    cells, _ = run(with_shares(make_plan(query, ["r", "s", "t"]), {}, admitted=0.5), steady(query, seconds=20, per_second=60, values=40), parallelism)
    measured = Measured(cells.plan.query)
    for outcome in cells.outcomes:
        measured.add([outcome.statistics])
    said = measured.summary()
    held = {state["state"]: state["rows"] for state in said["states"]}
    assert {stream["stream"]: stream["rows"] - stream["shed"] for stream in said["streams"]} == held
    assert said["shed"] == {"rows": 3 * 1200 - sum(held.values()), "probes": 0}
    assert all(rows == pytest.approx(600, rel=0.05) for rows in held.values())


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("caches", [[], [("join-1", "r", 0, 1, "prefix", 1e6)]])
def test_probes_that_are_not_made_are_counted_exactly(parallelism: int, caches: list[tuple[str, str, int, int, str, float]]) -> None:
    """Every row of r has one partner in s and t, which were there before: a result that is missing is a probe that was shed."""
    plan = with_caches(with_shares(make_plan(CHAIN, ["r", "s", "t"]), {("join-1", "r", 0): 0.3}), caches)
    once = [{"id": k, "ts": 0, "x": k, "y": k} for k in range(400)]
    cells, found = run(plan, [({"s": once, "t": once}, -1), ({"r": once}, -1)], parallelism)
    measured = Measured(cells.plan.query)
    for outcome in cells.outcomes:
        measured.add([outcome.statistics])
    said = measured.summary()
    (first,) = [step for step in said["steps"] if (step["input"], step["step"]) == ("r", 0)]
    assert (first["rows_in"], first["shed"]) == (400, 400 - found.total())
    assert said["shed"] == {"rows": 0, "probes": 400 - found.total()}
    assert found.total() == pytest.approx(120, rel=0.15)


def test_a_row_that_may_not_probe_still_builds() -> None:
    plan = make_plan(query_of({"r": 5, "s": 5}, [("r.x", "=", "s.x")]), ["r", "s"])
    silent = with_shares(plan, {("join-1", "r", 0): 0.0})
    row = {"ts": 0, "x": 1, "y": 1}
    found = run(silent, [({"r": [row | {"id": 1}]}, -1), ({"s": [row | {"id": 2}]}, -1)])[1]
    assert found == Counter([(1, 2)])


@pytest.mark.parametrize("kind", ["prefix", "global"])
def test_a_cache_with_room_for_all_misses_each_key_once(kind: str) -> None:
    plan = make_plan(CHAIN, ["r", "s", "t"])
    batches = steady(CHAIN, seconds=20, per_second=10, values=5)
    cells, found = run(with_caches(plan, [("join-1", "t", 0, 1, kind, 1e6)]), batches)
    assert found == run(plan, batches)[1]
    notes = [cache for outcome in cells.outcomes for cache in outcome.statistics["caches"].values()]
    assert sum(note["misses"] for note in notes) == 5
    assert sum(note["hits"] for note in notes) == 20 * 10 - 5


def test_a_cache_beyond_its_capacity_drops_keys_and_no_results() -> None:
    plan = make_plan(CHAIN, ["r", "s", "t"])
    batches = steady(CHAIN, seconds=20, per_second=10, values=5)
    cells, found = run(with_caches(plan, [("join-1", "t", 0, 1, "prefix", 60_000.0)]), batches)
    assert found == run(plan, batches)[1]
    notes = [cache for outcome in cells.outcomes for cache in outcome.statistics["caches"].values()]
    assert 30_000.0 < max(note["bytes"] for note in notes) <= 60_000.0
    assert sum(note["misses"] for note in notes) > 5


def test_a_global_cache_holds_what_its_plan_prices() -> None:
    """The planner's own cache, over data as the request says: its entries take the memory, and miss as seldom, as the plan says."""
    streams = [
        {"name": name, "rate": rate, "window": {"seconds": seconds}, "distinct": {"x": 10}}
        for name, rate, seconds in [("s0", 10, 5), ("s1", 100, 2), ("s2", 10, 2), ("s3", 50, 2)]
    ]
    predicates = [{"left": f"s{i}.x", "right": f"s{i + 1}.x"} for i in range(3)]
    request = {"query": {"streams": streams, "predicates": predicates}, "options": {"method": "mjoin", "caches": "global"}}
    plan = planned(PlanRequest.model_validate(request))
    (number,) = [k for k, cache in enumerate(plan.caches) if cache.kind is CacheKind.GLOBAL]
    priced = plan.caches[number]
    assert priced.semijoin
    batches = steady(plan.query, seconds=12, per_second=None, values=10, every=0.5)
    cells, found = run(plan, batches)
    assert found == run(plan.model_copy(update={"caches": []}), batches)[1]
    segment = next(s for join in cells.program.joins for route in join.routes for s in route.segments if s.name == priced.id)
    notes = [outcome.statistics["caches"][segment.cache] for outcome in cells.outcomes]
    settled = notes[12:]
    assert all(note["bytes"] <= priced.memory_bytes for note in notes)
    assert max(note["bytes"] for note in settled) >= 0.8 * priced.memory_bytes
    lookups = sum(note["hits"] + note["misses"] for note in settled)
    assert lookups > 500
    # The watermark follows by a batch, a quarter of a window: so much more than is live is held, and what it displaces misses again.
    assert sum(note["misses"] for note in settled) <= 1.25 * priced.miss_probability * lookups


def test_a_cache_of_streams_is_none_of_their_subresult() -> None:
    """Two plans whose caches have one operator, one set of streams and one key, but rows of other columns."""
    query = query_of({"a": 5, "b": 5, "c": 5, "d": 5}, [("a.x", "=", "b.x"), ("b.y", "=", "c.y"), ("a.y", "=", "d.y")])
    streams = with_caches(make_plan(query, [["a", "d"], "b", "c"]), [("join-2", "join-1", 0, 1, "prefix", 1e6)])
    subresult = with_caches(make_plan(query, [["b", "c"], "a", "d"]), [("join-2", "a", 0, 0, "prefix", 1e6)])
    batches = steady(query, seconds=6, per_second=5, values=3)
    cells, found = Cells(streams), Counter[tuple[int, ...]]()
    for n, (batch, watermark) in enumerate(batches):
        cells.use((streams, subresult)[n % 2])
        found += cells.work_off(batch, watermark)
    assert found == by_definition(query, batches)


def test_plan_and_operator_measure_an_entry_alike() -> None:
    assert spark_adapter.stem.program.ENTRY_BYTES == solvers.caches.figures.ENTRY_BYTES


def test_keys_that_find_nothing_do_not_pile_up_in_a_cache() -> None:
    """Every row of t has a key of its own, and nothing ever matches."""
    plan = with_caches(make_plan(CHAIN, ["r", "s", "t"]), [("join-1", "t", 0, 1, "prefix", 1000.0)])
    batches = [({"t": [{"id": k, "ts": k * SECOND, "x": 0, "y": k} for k in range(n * 50, n * 50 + 50)]}, -1) for n in range(10)]
    cells, found = run(plan, batches)
    assert not found
    sizes = [cache["bytes"] for outcome in cells.outcomes for cache in outcome.statistics["caches"].values()]
    assert 500.0 < sizes[-1] <= 1000.0


def test_a_cache_too_small_for_anything_changes_no_result() -> None:
    plan = make_plan(CHAIN, ["r", "s", "t"])
    batches = steady(CHAIN, seconds=10, per_second=10, values=5)
    assert run(with_caches(plan, [("join-1", "t", 0, 1, "prefix", 1.0)]), batches)[1] == run(plan, batches)[1]


@pytest.mark.parametrize("shape", [["r", "s", "t"], [["r", "s"], "t"]])
def test_state_stays_within_a_fifth_of_the_plan_and_does_not_creep(shape: list[object]) -> None:
    query = query_of({"r": 20.0, "s": 10.0, "t": 5.0}, [("r.x", "=", "s.x"), ("s.y", "=", "t.y")])
    cells = Cells(make_plan(query, shape))  # type: ignore[arg-type]
    stored = []
    for batch, watermark in steady(query, seconds=40, per_second=10, values=10, every=0.5):
        cells.work_off(batch, watermark)
        stored.append(sum(map(len, cells.stores[0].content.values())))
    for name, rows in {"r": 200, "s": 100, "t": 50}.items():
        held = [outcome.statistics["states"][name][0] for outcome in cells.outcomes[44:]]
        assert max(held) <= rows * 1.2, name
        assert min(held) >= rows, name
    assert max(stored[-18:]) <= max(stored[44:62]) * 1.05


def test_a_cell_without_rows_lets_go_of_everything_dead() -> None:
    plan = make_plan(CHAIN, [["r", "s"], "t"])
    cells, _ = run(plan, steady(CHAIN, seconds=10, per_second=10, values=3))
    assert cells.outcomes[-1].expires is not None
    cells.work_off({}, 100 * SECOND)
    assert set(cells.stores[0].content) == {"meta", "plan 1"}
    assert cells.outcomes[-1].expires is None
    assert cells.outcomes[-1].statistics["states"]["join-1"] == [0, 0]


def test_late_rows_are_dropped_and_counted_once_whatever_the_copies() -> None:
    for parallelism in (1, 4):
        plan = make_plan(CHAIN, ["r", "s", "t"])
        rows = [{"id": k, "ts": k * SECOND, "x": k, "y": k} for k in range(10)]
        cells, found = run(plan, [({"r": rows, "s": rows, "t": rows}, 4 * SECOND)], parallelism)
        assert found == Counter((k, k, k) for k in range(4, 10))
        late = [seen["late"] for outcome in cells.outcomes for seen in outcome.statistics.get("streams", {}).values()]
        assert sum(late) == 12


@pytest.mark.parametrize("parallelism", [1, 4])
def test_the_share_of_a_frequent_value_is_that_of_the_last_windows_and_chance_is_no_skew(parallelism: int) -> None:
    """Three of ten rows of r have one value of x, and half the rows of t one value of y until two windows ago; all else is uniform."""
    batches = steady(CHAIN, seconds=20, per_second=40, values=200)
    for n, (batch, _) in enumerate(batches):
        for k, (r, t) in enumerate(zip(batch["r"], batch["t"], strict=True)):
            if k % 10 < 3:
                r["x"] = 7  # type: ignore[index]
            if k % 2 and n < 10:
                t["y"] = 7  # type: ignore[index]
    cells, _ = run(make_plan(CHAIN, ["r", "s", "t"]), batches, parallelism)
    measured = Measured(cells.plan.query)
    seen = []
    for outcome in cells.outcomes:
        measured.add([outcome.statistics])
        seen.append(measured.measured()["skew"])
    assert seen[10 * parallelism - 1]["t.y"] == pytest.approx(0.5, abs=0.02)
    assert seen[-1]["r.x"] == pytest.approx(0.3, abs=0.02)
    assert all(share < 0.03 for attribute, share in seen[-1].items() if attribute != "r.x")


@pytest.mark.parametrize(("shape", "parallelism"), [(["r", "s", "t"], 1), (["r", "s", "t"], 4), ([["r", "s"], "t"], 1)])
def test_measured_rates_and_selectivities_are_those_of_the_data(shape: list[object], parallelism: int) -> None:
    plan = make_plan(CHAIN, shape)  # type: ignore[arg-type]
    cells, _ = run(plan, steady(CHAIN, seconds=20, per_second=20, values=10), parallelism)
    measured = Measured(cells.plan.query)
    for outcome in cells.outcomes:
        measured.add([outcome.statistics])
    said = measured.summary()["measured"]
    assert said["rates"] == {f"{name}.rate": pytest.approx(20.0, rel=0.01) for name in "rst"}
    assert said["selectivities"] == {f"predicates[{p}].selectivity": pytest.approx(0.1, rel=0.1) for p in (0, 1)}
    sets = {tuple(entry["streams"]): entry["selectivity"] for entry in said["observed"]}
    assert sets["r", "s", "t"] == pytest.approx(0.01, rel=0.15)

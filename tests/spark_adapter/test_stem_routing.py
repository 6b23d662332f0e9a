"""Cells that order their own probes: the same rows for less work, and a batch that is run again takes the same way."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import Plan
from spark_adapter.stem.probes import Effort
from spark_adapter.stem.program import META, Route
from spark_adapter.stem.programming import program_of
from spark_adapter.stem.relayout import placed
from spark_adapter.stem.routing import Routing, reordered
from spark_adapter.stem.state import Notes
from tests.spark_adapter.cells import SECOND, Batch, Case, Cells, by_definition, cases, plans, with_caches, with_shares
from tests.spark_adapter.plans import make_plan, make_query

Results = Counter[tuple[int, ...]]

# A star: rows of a look for partners in b and in c, in whichever order.
STAR = make_query({"a": 10, "b": 10, "c": 10}, ["a.x = b.x", "a.y = c.y"])
PLAN = make_plan(STAR, ["a", "b", "c"])


def star(seconds: int, values: Callable[[int], tuple[int, int]], seed: int = 1) -> list[tuple[Batch, int]]:
    """Per second 30 rows of a, 20 of b and of c; `values` says per second out of how many x and y they draw theirs."""
    rng, identity = random.Random(seed), 0
    batches: list[tuple[Batch, int]] = []
    for second in range(seconds):
        batch: dict[str, list[dict[str, int]]] = {}
        for name, count in (("a", 30), ("b", 20), ("c", 20)):
            batch[name] = []
            for k in range(count):
                x, y = (rng.randrange(most) for most in values(second))
                batch[name].append({"id": identity, "ts": second * SECOND + k, "x": x, "y": y})
                identity += 1
        batches.append((batch, (second - 1) * SECOND if second else -1))
    return batches


def run(cells: Cells, batches: Sequence[tuple[Batch, int]]) -> tuple[Results, list[float]]:
    found: Results = Counter()
    work = []
    for batch, watermark in batches:
        before = len(cells.outcomes)
        found += cells.work_off(batch, watermark)
        work.append(sum(outcome.statistics["work"]["own"] for outcome in cells.outcomes[before:]))
    return found, work


@settings(max_examples=60, deadline=None)
@given(st.booleans().flatmap(lambda counted: cases(counted)), st.data())
def test_cells_in_their_own_orders_give_the_rows_of_the_definition(case: Case, data: st.DataObject) -> None:
    cells = Cells(case.plan, case.parallelism, adaptive=True)
    found: Results = Counter()
    for batch, watermark in case.batches:
        found += cells.work_off(batch, watermark)
        if not data.draw(st.integers(0, 2)):
            cells.change(data.draw(plans(case.plan.query)))
    assert found == by_definition(case.plan.query, case.batches)


@settings(max_examples=60, deadline=None)
@given(cases(), st.data())
def test_a_route_in_another_order_checks_every_predicate_once(case: Case, data: st.DataObject) -> None:
    program = program_of(case.plan, {stream.name: 1 for stream in case.plan.query.streams})
    for join in program.joins:
        for route in join.routes:
            other = reordered(route, data.draw(st.permutations([step.target for step in route.steps])))
            assert _predicates(other) == _predicates(route)
            assert reordered(other, [step.target for step in route.steps]).steps == route.steps
            for step in other.steps:
                for comparison in (*step.equal, *step.other):
                    assert comparison.left.split(".")[0] in step.arriving
                    assert comparison.right.split(".")[0] in step.target.split("+")


def _predicates(route: Route) -> list[int]:
    return sorted(comparison.predicate for step in route.steps for comparison in (*step.equal, *step.other))


def test_the_module_that_drops_more_rows_comes_first_and_the_order_follows_the_data() -> None:
    """b has the few values first, so c drops more; then it is the other way round."""
    batches = star(30, lambda second: (5, 200) if second < 15 else (200, 5))
    adaptive, planned = Cells(PLAN, adaptive=True), Cells(PLAN)
    found, work = run(adaptive, batches)
    expected, fixed = run(planned, batches)
    assert found == expected and found.total() > 100
    assert sum(work[3:15]) < 0.8 * sum(fixed[3:15]), "the plan's order starts with b"
    assert sum(work[28:]) < 1.05 * sum(fixed[28:]), "which is right in the end"
    assert Notes.read(adaptive.stores[0].get(META)).orders["a+b+c a"] == ["b", "c"]


def test_cells_that_see_different_data_take_different_ways() -> None:
    rng, identity = random.Random(2), 0
    query = make_query({"a": 10, "b": 10, "c": 10, "d": 10}, ["a.x = b.x", "a.x = c.x", "a.x = d.x"])
    cells = Cells(make_plan(query, ["a", "b", "c", "d"]), 2, adaptive=True)
    assert cells.grid.cells == 2
    homes = dict(enumerate(placed(pl.DataFrame({"a.x": range(40)}), "a", cells.grid)))
    batches: list[tuple[Batch, int]] = []
    for second in range(6):
        batch: dict[str, list[dict[str, int]]] = {name: [] for name in "abcd"}
        for name in "abcd":
            for k in range(40):
                # Rows of b are rare in the first cell, rows of c in the second.
                x = rng.choice([x for x, home in homes.items() if (name, home) not in (("b", 0), ("c", 1)) or x % 10 == 0])
                batch[name].append({"id": identity, "ts": second * SECOND + k, "x": x, "y": 0})
                identity += 1
        batches.append((batch, (second - 1) * SECOND if second else -1))
    found = run(cells, batches)[0]
    orders = [Notes.read(cells.stores[cell].get(META)).orders.get("a+b+c+d a", ["b", "c", "d"]) for cell in range(2)]
    assert [order[0] for order in orders] == ["b", "c"]
    plain = Cells(make_plan(query, ["a", "b", "c", "d"]), 2)
    assert found == run(plain, batches)[0]


def test_a_batch_that_is_run_again_takes_the_same_way() -> None:
    batches = star(8, lambda second: (5, 200))
    cells = Cells(PLAN, adaptive=True)
    for batch, watermark in batches:
        before = dict(cells.stores[0].content) if cells.stores else {}
        first = cells.work_off(batch, watermark)
        noted = Notes.read(cells.stores[0].get(META))
        cells.stores[0].content = dict(before)
        assert cells.work_off(batch, watermark) == first
        again = Notes.read(cells.stores[0].get(META))
        assert (again.orders, again.probed) == (noted.orders, noted.probed)
        assert cells.outcomes[-1].statistics["work"] == cells.outcomes[-2].statistics["work"]
    assert Notes.read(cells.stores[0].get(META)).orders["a+b+c a"] == ["c", "b"]


def test_orders_that_caches_and_allowances_hang_on_stay_the_plan_s() -> None:
    batches = star(8, lambda second: (5, 200))
    fixed: list[Plan] = [with_caches(PLAN, [("join-1", "b", 1, 1, "prefix", 1e6)]), with_shares(PLAN, {("join-1", "a", 0): 0.9})]
    for plan in fixed:
        cells = Cells(plan, adaptive=True)
        run(cells, batches)
        assert "a+b+c a" not in Notes.read(cells.stores[0].get(META)).orders


def test_without_adaptive_routing_nothing_is_measured_or_chosen() -> None:
    cells = Cells(PLAN)
    run(cells, star(4, lambda second: (5, 200)))
    notes = Notes.read(cells.stores[0].get(META))
    assert (notes.orders, notes.probed) == ({}, {})


def test_a_probe_that_was_not_measured_is_judged_by_its_like() -> None:
    """In a triangle the third stream is probed by one predicate or by two. What one predicate alone finds is not known at first: it is tried."""
    query = make_query({"a": 10, "b": 10, "c": 10}, ["a.x = b.x", "a.y = c.y", "b.y = c.x"])
    program = program_of(make_plan(query, ["a", "b", "c"]), dict.fromkeys("abc", 1))
    routing = Routing({}, {})
    routing.learn(program, {("join-1", "a", 0): Effort(100, 500, 500), ("join-1", "a", 1): Effort(500, 5, 5)})
    assert routing.orders == {"a+b+c a": ["c", "b"]}
    tried = routing.applied(program)
    routing.learn(tried, {("join-1", "a", 0): Effort(100, 5000, 5000), ("join-1", "a", 1): Effort(5000, 5, 5)})
    assert routing.orders == {"a+b+c a": ["b", "c"]}, "one predicate alone found fifty rows each"

"""Who waits for a search hears of it, may stop it, and changes nothing by listening."""

from __future__ import annotations

import random
import threading
from itertools import pairwise
from typing import Any

import pytest

from models.plan import Frontier, Plan, Proof, Termination
from models.progress import Incumbent
from models.request import Objective, Options, PlanRequest, Resources
from solvers.allocation.knapsack_exact import knapsack_exact
from solvers.allocation.productivity import Path
from solvers.common.deadline import AbandonedError, Deadline
from solvers.frontier import frontier
from solvers.jtree import progress as module
from solvers.jtree.progress import Waiting
from solvers.planner import plan
from tests.graphs import random_graph

LONG = 120.0  # seconds: every search here ends long before, however busy the machine is


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every incumbent is told, however fast they come."""
    monkeypatch.setattr(module, "EVERY", 0.0)
    monkeypatch.setattr(module, "EVERY_STEP", 0.0)
    monkeypatch.setattr(module, "LOOK", 0.0)


def request(n: int, shape: str = "random", seed: int = 1, parts: int = 1, resources: dict[str, float] | None = None, **fields: Any) -> PlanRequest:
    options = {"time_limit": LONG, **{key: fields.pop(key) for key in ("method", "caches", "time_limit") if key in fields}}
    query = random_graph(random.Random(seed), n, shape, parts=parts)
    return PlanRequest(query=query, resources=Resources(**(resources or {})), options=Options(**options), **fields)


TIGHT = {"cpu": 1.5e-4, "memory_bytes": 53_000.0}
CASES = [
    pytest.param(request(5), id="small"),
    pytest.param(request(11, "clique"), id="exact"),
    pytest.param(request(11, resources=TIGHT), id="exact_under_caps"),
    pytest.param(request(9, resources={"cpu": 1e-6}), id="nothing_fits"),
    pytest.param(request(9, objective="min_memory", resources={"cpu": 1e-4}), id="min_memory"),
    pytest.param(request(9, objective="max_headroom", resources=TIGHT), id="max_headroom"),
    pytest.param(request(12, parts=3), id="components"),
    pytest.param(request(20, method="anytime"), id="anytime"),
    pytest.param(request(24, method="anytime", resources={"memory_bytes": 140_000.0}), id="anytime_under_a_cap"),
    pytest.param(request(16, method="anytime", objective="max_headroom", resources=TIGHT), id="anytime_max_headroom"),
    pytest.param(request(8, method="cp_sat"), id="cp_sat"),
    pytest.param(request(8, "clique", method="cp_sat", resources={"memory_bytes": 47_430.0}), id="cp_sat_under_a_cap"),
    pytest.param(request(7, method="two_layer"), id="two_layer"),
    pytest.param(request(7, method="mjoin", caches="auto"), id="mjoin_with_caches"),
]


KNOWN: dict[str, tuple[Plan, list[Incumbent]]] = {}


def listened(asked: PlanRequest) -> tuple[Plan, list[Incumbent]]:
    heard: list[Incumbent] = []
    return plan(asked, Waiting(heard.append)), heard


def heard_of(asked: PlanRequest) -> tuple[Plan, list[Incumbent]]:
    """The plan and what was told of its search, which runs once for all tests of a case."""
    key = asked.model_dump_json()
    if key not in KNOWN:
        KNOWN[key] = listened(asked)
    return KNOWN[key]


@pytest.mark.parametrize("asked", CASES)
def test_listening_changes_no_byte_of_the_plan(asked: PlanRequest) -> None:
    made, heard = heard_of(asked)
    assert heard
    assert made.model_dump_json() == plan(asked).model_dump_json()


@pytest.mark.parametrize("asked", CASES)
def test_the_last_incumbent_has_the_figures_of_the_plan(asked: PlanRequest) -> None:
    made, heard = heard_of(asked)
    last = heard[-1]
    assert (last.cpu, last.memory_bytes, last.qualified, last.bound, last.gap) == (
        made.cost.cpu,
        made.cost.memory_bytes,
        made.qualified,
        made.bound,
        made.gap,
    )


def rank(asked: PlanRequest, incumbent: Incumbent) -> tuple[float, ...]:
    """Smaller is better."""
    caps = asked.resources
    over = max(incumbent.cpu / (caps.cpu or float("inf")), incumbent.memory_bytes / (caps.memory_bytes or float("inf")))
    assert incumbent.qualified == (over <= 1.0)
    if over > 1.0:
        return 1.0, over
    return 0.0, incumbent.memory_bytes if asked.objective is Objective.MIN_MEMORY else incumbent.cpu


@pytest.mark.parametrize("asked", CASES)
def test_incumbents_and_bounds_only_get_better(asked: PlanRequest) -> None:
    _, heard = heard_of(asked)
    # The answer's own figures come last: caches widen what is searched, and with it what is proven.
    for before, after in pairwise(heard[:-1]):
        assert after.seconds >= before.seconds and after.step
        if asked.objective is not Objective.MAX_HEADROOM:
            assert rank(asked, after) <= rank(asked, before)
        if before.bound is not None and after.bound is not None:
            assert after.bound <= before.bound if asked.objective is Objective.MAX_HEADROOM else after.bound >= before.bound
    if asked.objective is not Objective.MAX_HEADROOM:
        (_, best), (_, last) = rank(asked, heard[-2]), rank(asked, heard[-1])
        assert last <= best * (1.0 + 1e-9)  # drafts round differently from prices


@pytest.mark.parametrize("asked", CASES)
def test_no_bound_is_above_what_it_bounds(asked: PlanRequest) -> None:
    made, heard = heard_of(asked)
    for incumbent in heard:
        if incumbent.bound is None or asked.objective is Objective.MAX_HEADROOM:
            continue
        value = incumbent.memory_bytes if asked.objective is Objective.MIN_MEMORY else incumbent.cpu
        assert incumbent.bound <= value
        assert incumbent.gap == pytest.approx((value - incumbent.bound) / value)
        if not made.caches:  # the bound is one of plans without
            assert incumbent.bound <= (made.cost.memory_bytes if asked.objective is Objective.MIN_MEMORY else made.cost.cpu)


def test_a_bound_of_headroom_is_never_below_it() -> None:
    made, heard = heard_of(request(12, objective="max_headroom", resources=TIGHT))
    bounds = [incumbent.bound for incumbent in heard if incumbent.bound is not None]
    assert bounds and made.headroom is not None
    assert all(bound >= made.headroom * (1.0 - 1e-9) for bound in bounds)


def test_long_proofs_say_how_far_they_are() -> None:
    steps = {incumbent.step for incumbent in heard_of(request(14, "clique"))[1]}
    assert any(step.startswith("proving: ") and step.endswith(" of 16383 connected sets") for step in steps)


def test_a_frontier_tells_the_same_way_and_is_not_changed_by_it() -> None:
    asked, heard = request(10), list[Incumbent]()
    found: Frontier = frontier(asked, Waiting(heard.append))
    assert found.model_dump_json() == frontier(asked).model_dump_json()
    assert heard[-1].cpu == found.points[0].cpu and heard[-1].points >= len(found.points)


def test_no_more_than_ten_a_second_are_told_and_the_newest_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVERY", LONG)
    monkeypatch.setattr(module, "EVERY_STEP", LONG)
    made, heard = listened(request(11, "clique"))
    assert len(heard) == 2, "the first, which does not wait, and the answer's"
    assert heard[-1].cpu == made.cost.cpu


class _Stop:
    """Says stop from the n-th time on that it is asked."""

    def __init__(self, after: int, abandon: bool = False) -> None:
        self.asked, self._after, self._abandon = 0, after, abandon

    def __call__(self) -> bool:
        self.asked += 1
        if self.asked > self._after and self._abandon:
            raise AbandonedError
        return self.asked > self._after


# Each would take minutes or more, or fill its time limit.
ENDLESS = [
    pytest.param(request(20, "clique"), id="exact"),
    pytest.param(request(14, "clique", method="exact", objective="max_headroom", resources=TIGHT), id="max_headroom"),
    pytest.param(request(120, method="anytime"), id="anytime"),
    pytest.param(request(11, "clique", method="cp_sat"), id="cp_sat"),
]


@pytest.mark.parametrize("asked", ENDLESS)
@pytest.mark.parametrize("after", [0, 5])
def test_a_search_that_is_asked_to_stop_gives_its_best_so_far_and_does_not_claim_more(asked: PlanRequest, after: int) -> None:
    made = plan(asked, Waiting(stop=_Stop(after)))
    assert made.termination is Termination.STOPPED
    assert made.proof is not Proof.OPTIMAL or not made.qualified
    assert {name for operator in made.operators for name in operator.streams} == {stream.name for stream in asked.query.streams}
    assert "The search ended early, as it was asked to." in made.explanation


@pytest.mark.parametrize("asked", ENDLESS)
@pytest.mark.parametrize("after", [0, 5])
def test_a_search_that_nobody_waits_for_any_more_is_given_up(asked: PlanRequest, after: int) -> None:
    stop = _Stop(after, abandon=True)
    with pytest.raises(AbandonedError):
        plan(asked, Waiting(stop=stop))
    assert stop.asked <= after + 5


def test_a_watched_call_is_struck_when_its_search_is_asked_to_stop() -> None:
    struck = threading.Event()
    with Deadline.after(LONG, Waiting(stop=_Stop(3))).watched(struck.set):
        assert struck.wait(LONG)


def test_a_watched_call_that_begins_after_the_stop_is_struck_all_the_same() -> None:
    strikes = threading.Semaphore(0)
    with Deadline.after(LONG, Waiting(stop=_Stop(0))).watched(strikes.release):
        for _ in range(5):
            assert strikes.acquire(timeout=LONG)


@pytest.mark.parametrize("round_", range(5))
def test_an_integer_program_whose_stop_came_before_it_does_not_run_to_its_time_limit(round_: int) -> None:
    rng = random.Random(3)
    takes = [rng.randrange(10**6, 2 * 10**6) for _ in range(60)]
    paths = [Path(f"p{i}", amount, amount + rng.randrange(1, 100), 1.0) for i, amount in enumerate(takes)]
    stop = _Stop(0)
    found = knapsack_exact(sum(takes) // 2, paths, 3600.0, Waiting(stop=stop))  # the whole test run would wait for it
    assert found.bound >= sum(path.output * amount for path, amount in zip(paths, found.units, strict=True)) and stop.asked


def test_a_watched_call_is_not_struck_before() -> None:
    struck, ticked = threading.Event(), threading.Event()
    with Deadline.after(LONG, Waiting(stop=lambda: False)).watched(struck.set, ticked.set):
        assert ticked.wait(LONG) and not struck.is_set()

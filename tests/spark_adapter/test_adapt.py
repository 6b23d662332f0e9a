"""The loop follows what a pipeline measures, and whatever happens to the asking, the plan in force goes on."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from app.commands.replanning import asking
from models.plan import Plan
from models.replan import Replan, Thresholds
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.adapt import Adapting, Answer, surely
from spark_adapter.errors import PlanError
from tests.spark_adapter.drift import Drift, found
from tests.spark_adapter.in_process import InProcess, Stretch, arrivals, cut

HERE = asking(None, Thresholds(), 1.0)  # the solvers in this process
DRIFT = Drift(rate=50, window=4, half=100, batch=2, partners=(0.2, 1, 5))
SHORT = Drift(rate=20, window=4, half=10, batch=2, partners=(0.5, 1, 4))


class Listener:
    """What a loop says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, line: str) -> None:
        self.lines.append(line)


def test_a_drift_is_followed_with_few_changes_and_every_row() -> None:
    """The selective end of a chain moves to the other end at half-time. Work is counted: rows that came or probed, and candidates they looked at."""
    rows = DRIFT.rows()
    batches = DRIFT.batches(rows)
    first, second = (planned(DRIFT.request(half)) for half in (False, True))
    adapted, *fixed = (InProcess(plan, keep_results=True) for plan in (first, first, second))
    adapted.run(batches, Adapting(adapted, HERE).look)
    for run in fixed:
        run.run(batches)
    answer = DRIFT.answer(rows)
    assert answer.height > 30_000
    assert all(found(run.found).equals(answer) for run in (adapted, *fixed))
    work, stayed, knew = (sum(batch.work for batch in run.batches if DRIFT.second_half(batch.line)) for run in (adapted, *fixed))
    assert 1 <= len(adapted.changes) <= 3
    assert 2 * work <= stayed
    assert work <= 1.15 * knew


def test_streams_that_stay_as_they_are_keep_their_plan() -> None:
    """Rows drawn at random, some forty a window, with a look after every batch."""
    steady = Drift(rate=10, window=4, half=60, batch=2, partners=(1, 1, 1))
    rows = steady.rows()
    run = InProcess(planned(steady.request(False)))
    run.run(steady.batches(rows), Adapting(run, HERE).look)
    assert len(run.decisions) == 59
    assert len(run.changes) <= 1


def short_run() -> tuple[InProcess, list[tuple[Any, int]]]:
    """A pipeline that has seen a window, and the batches that come next."""
    run, batches = InProcess(planned(SHORT.request(False))), SHORT.batches(SHORT.rows())
    run.run(batches[:2])
    return run, batches[2:]


def refuse(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
    raise OSError("the wire is cut")


def nothing(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Any:
    return None


def undecided(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Any:
    return SimpleNamespace(decision="perhaps", kind="tree", gain=1.0, reasons=[], plan=plan)


def no_plan(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Any:
    return SimpleNamespace(decision="change", kind="tree", gain=1.0, reasons=[], plan={"operators": []})


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (refuse, "plan kept: no answer: the wire is cut"),
        (nothing, "plan kept: the answer makes no sense: 'NoneType' object has no attribute 'decision'"),
        (undecided, "plan kept: the answer makes no sense: a decision is keep or change, got 'perhaps'"),
        (no_plan, "plan kept: the answer makes no sense: its plan is none"),
    ],
)
def test_where_the_asking_fails_the_plan_goes_on_and_that_is_said(ask: Any, said: str) -> None:
    run, batches = short_run()
    listener = Listener()
    plan = run.plan
    run.run(batches[:2], Adapting(run, ask, say=listener).look)
    assert listener.lines == [said] * 2
    assert [kind for kind, _ in run.decisions] == ["keep", "keep"]
    assert run.plan is plan


def test_a_plan_that_cannot_be_run_is_not() -> None:
    run, batches = short_run()

    def refused(plan: Plan, kind: str | None = None, gain: float | None = None, reasons: Any = ()) -> int:
        raise PlanError([("/operators", "nothing joins d")])

    run.change = refused  # type: ignore[method-assign]
    listener = Listener()
    loop = Adapting(
        run, lambda plan, request, measured: SimpleNamespace(decision="change", kind="tree", gain=1.0, reasons=[], plan=plan), say=listener
    )
    run.run(batches[:1], loop.look)
    assert listener.lines == ["plan kept: the answer cannot be carried out: /operators: nothing joins d"]
    assert loop.changes == 0


def test_an_answer_that_takes_too_long_is_not_waited_for_and_nothing_else_is_asked_until_it_is_there() -> None:
    run, batches = short_run()
    released, asked = threading.Event(), []

    def slow(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        asked.append(request)
        released.wait()
        return HERE(plan, request, measured)

    listener = Listener()
    loop = Adapting(run, slow, patience=0.05, say=listener)
    run.run(batches[:2], loop.look)
    assert listener.lines == ["plan kept: no answer within 0.05 seconds", "plan kept: no answer yet to what was asked more than 0.05 seconds ago"]
    assert len(asked) == 1
    released.set()
    loop._asking.join()  # type: ignore[union-attr]
    loop.patience = 60.0
    run.run(batches[2:3], loop.look)
    assert len(asked) == 2
    assert "no answer" not in listener.lines[-1]


def test_nothing_is_asked_where_no_batch_has_come_or_a_change_is_under_way() -> None:
    run, batches = short_run()
    asked: list[Replan] = []

    def change(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        asked.append(HERE(plan, request, measured))  # type: ignore[arg-type]
        return SimpleNamespace(decision="change", kind="orders", gain=0.1, reasons=["because"], plan=plan)

    listener = Listener()
    loop = Adapting(run, change, say=listener)
    loop.look()
    assert len(asked) == 1
    loop.look()
    assert len(asked) == 1, "no batch has come since, and none has taken up the change"
    assert listener.lines == ["plan changed, orders, gain 10 %: because"]
    run.run(batches[:1], loop.look)
    assert len(asked) == 2


def test_nothing_is_asked_before_a_window_was_seen_or_ten_looks_worth_of_it() -> None:
    run, batches = InProcess(planned(SHORT.request(False))), SHORT.batches(SHORT.rows())
    patient, impatient = (Adapting(run, HERE, every=every) for every in (30.0, 0.1))
    run.run(batches[:1], patient.look)
    assert not run.decisions
    impatient.look()
    assert len(run.decisions) == 1
    run.run(batches[1:2], patient.look)
    assert len(run.decisions) == 2


def test_the_thread_looks_until_it_is_stopped() -> None:
    run, _ = short_run()
    looked = threading.Event()

    def ask(plan: Plan, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        looked.set()
        return HERE(plan, request, measured)

    loop = Adapting(run, ask, every=0.01).start()
    assert looked.wait(60)
    loop.stop()
    assert loop._thread is not None
    loop._thread.join(60)
    assert not loop._thread.is_alive()


def test_what_differs_by_no_more_than_chance_stays_as_it_was() -> None:
    """With 100 rows a rate is known to ten per cent, with 10,000 matches a selectivity to one."""
    plan = planned(SHORT.request(False))
    was = plan.query.predicates[0].selectivity
    assert was is not None
    name = "predicates[0].selectivity"
    measured = {
        "rates": {"a.rate": 25.0, "b.rate": 40.0},
        "selectivities": {name: was * 1.02},
        "counts": {"a.rate": 100, "b.rate": 100, name: 10_000},
    }
    sure = surely(plan, measured)
    assert sure["rates"] == {"b.rate": 40.0}
    assert sure["selectivities"] == {}
    assert surely(plan, measured | {"selectivities": {name: was * 1.04}})["selectivities"] == {name: was * 1.04}


def overloaded(shed: bool) -> tuple[InProcess, Listener]:
    """A machine that keeps up with thirty rows a second; then ninety come for a minute, and thirty again."""
    values = {"a": {"x": 40}, "b": {"x": 40, "y": 40}, "c": {"y": 40}}
    streams = [{"name": name, "rate": 30, "window": {"seconds": 4}, "distinct": distinct} for name, distinct in values.items()]
    predicates = [{"left": "a.x", "right": "b.x"}, {"left": "b.y", "right": "c.y"}]
    plan = planned(PlanRequest.model_validate({"query": {"streams": streams, "predicates": predicates}}))
    stretches = {name: [Stretch(seconds, rate, distinct) for seconds, rate in ((10, 30), (30, 90), (30, 30))] for name, distinct in values.items()}
    run = InProcess(plan, interval=1.0, speed=40_000.0, spark=0.3)
    listener = Listener()
    run.run(cut(arrivals(stretches), 1.0), Adapting(run, HERE, shed=shed, say=listener).look, every=2)
    return run, listener


def test_under_overload_load_is_shed_counted_and_said_and_when_it_is_over_no_more() -> None:
    run, listener = overloaded(shed=True)
    took = [batch.seconds for batch in run.times(-1)]
    shed = [batch.line["shed"]["probes"] + batch.line["shed"]["rows"] for batch in run.batches]
    assert max(took[:20]) > 1.0
    assert max(took[22:]) < 1.0
    assert not any(shed[:10]) and all(shed[25:40]) and not any(shed[50:])
    changed = [line for line in listener.lines if line.startswith("plan changed")]
    assert "; shedding load: " in changed[0]
    assert "shedding" not in changed[-1]
    assert any(line.startswith("batches take 1.") and "of 1: asking for a plan that takes" in line for line in listener.lines)


def test_nothing_is_shed_unless_the_user_said_so() -> None:
    run, listener = overloaded(shed=False)
    assert not any(batch.line["shed"]["probes"] + batch.line["shed"]["rows"] for batch in run.batches)
    assert not any("shedding" in line for line in listener.lines)
    assert max(batch.seconds for batch in run.times(-1)) > 1.0

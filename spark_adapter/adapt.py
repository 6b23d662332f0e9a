"""The loop: look at what a running pipeline measures, ask for a plan, switch to it (papers 1, 2 and 5 run theirs in the same way).

Every `every` seconds the request of the plan in force is filled with what the last windows measured, and a callable is asked whether to go
on: it may solve here, or ask a server, or be anything else; nothing is known here of how. Its answer is carried out between two batches by
`Pipeline.change`. Every decision is a line of `decisions.jsonl` and a line for who watches, those to keep the plan included.

What is smoothed: figures are sums over the last windows (see `stem.estimates`); and a rate or selectivity that differs from the one the
plan was made with by less than CHANCE standard errors of its count stays as it was.

The guarantee: whatever happens to the asking, the plan in force goes on. A callable that raises, that answers what cannot be carried out,
or that takes longer than `patience`, is a decision to keep, with the reason; while a question is unanswered no other is asked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from models.plan import Plan
from models.request import PlanRequest
from spark_adapter.errors import AdapterError
from spark_adapter.overload import BatchTime, Fit, Overload
from spark_adapter.shedding import shed_by
from spark_adapter.stats import CHANCE, measured_request
from spark_adapter.stem.estimates import longest_window

__all__ = ["EVERY", "Adapting", "Answer", "Ask", "Watched", "surely"]

EVERY = 30.0  # seconds between two looks
REPORTED = ("output_rate", "cpu", "memory_bytes")  # what a pipeline says of itself
LOOKS = 10  # after so many the first question is asked, however long the windows
NEARLY = 0.9  # of a window: batches do not end where windows do


class Answer(Protocol):
    """What a callable returns: the wire's answer of a replan, or anything with the same fields."""

    @property
    def decision(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def gain(self) -> float: ...
    @property
    def reasons(self) -> Sequence[str]: ...
    @property
    def plan(self) -> Plan: ...


Ask = Callable[[Plan, PlanRequest, Mapping[str, float]], Answer]
"""The plan that runs, what would be asked for now, and what the pipeline itself reports: `output_rate`, `cpu` and `memory_bytes`, as far as known."""


class Watched(Protocol):
    """What is asked of a pipeline."""

    @property
    def plan(self) -> Plan:
        """The one in force."""

    @property
    def interval(self) -> float | None:
        """Seconds between two batches, where it has such a trigger."""

    @property
    def measured(self) -> Mapping[str, Any]:
        """What the last windows say of the query."""

    @property
    def changing(self) -> bool:
        """Whether a change was asked for that no batch has taken up yet."""

    def times(self, since: int) -> Sequence[BatchTime]: ...
    def change(self, plan: Plan, kind: str | None = None, gain: float | None = None, reasons: Sequence[str] = ()) -> int: ...
    def keep(self, gain: float | None = None, reasons: Sequence[str] = ()) -> None: ...


class Adapting:
    """Watches one pipeline. `start()` it beside the pipeline and `stop()` it, or `look()` by hand."""

    def __init__(
        self,
        pipeline: Watched,
        ask: Ask,
        every: float = EVERY,
        patience: float | None = None,
        shed: bool = False,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`patience`: seconds to wait for an answer, `every` by default. `shed`: whether load may be shed where batches take too long. `say`
        gets a line for every decision."""
        self.pipeline, self.ask, self.every, self._say = pipeline, ask, every, say
        self.patience = every if patience is None else patience
        self.changes = 0
        self._plan = pipeline.plan
        """As it was made, or as the last answer priced it."""
        self._caps = pipeline.plan.resources
        interval = pipeline.interval
        self._fit = Fit()
        self._overload = Overload(interval, self._fit) if interval and shed else None
        self._batch = -1
        self._asking: threading.Thread | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Adapting:
        self._thread = threading.Thread(target=self._watch, name="watersmeet adapting", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """No more looks; one that waits for an answer is not waited for."""
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self.every):
            self.look()

    def look(self) -> None:
        """One look. Nothing is asked where no batch has come since the last one, too little was measured yet, or a change is under way."""
        times = self.pipeline.times(since=self._batch)
        measured = self.pipeline.measured
        if not times or not self._enough(measured) or self.pipeline.changing:
            return
        self._batch = times[-1].batch
        for batch in times:
            self._fit.add(batch)
        if self._plan.fingerprint != self.pipeline.plan.fingerprint:
            self._plan = self.pipeline.plan
        self._fit.priced = self._plan.costs.step * sum(len(pipeline.probes) for operator in self._plan.operators for pipeline in operator.pipelines)
        request = measured_request(self._plan, surely(self._plan, measured)).model_copy(update={"resources": self._caps})
        if self._overload is not None:
            for batch in times:
                self._overload.add(batch)
            request = self._relieved(request, self._overload)
        try:
            answer = self._answer(request, self._reported(measured, times))
            if not self._ended.is_set():
                self._carry_out(answer)
        except _NoAnswerError as none:
            self._keep([str(none)])
        except AdapterError as refused:
            self._keep([f"the answer cannot be carried out: {refused}"])

    def _enough(self, measured: Mapping[str, Any]) -> bool:
        """Whether the longest window was seen, or LOOKS looks' worth of it: rows that belong together may come far apart."""
        wanted = min(longest_window(self.pipeline.plan.query, measured.get("rates")), LOOKS * self.every)
        return bool(measured.get("rates")) and measured["seconds"] >= NEARLY * wanted

    def _reported(self, measured: Mapping[str, Any], times: Sequence[BatchTime]) -> dict[str, float]:
        """What the pipeline says of itself; of its CPU without what it takes for batches with nothing to do, as far as no price has it."""
        found = {name: float(measured[name]) for name in REPORTED if measured.get(name) is not None}
        passed = math.fsum(batch.event_seconds for batch in times)
        if "cpu" in found and passed > 0.0:
            found["cpu"] = max(0.0, found["cpu"] - self._fit.beyond_prices(len(times), passed) / passed)
        return found

    def _relieved(self, request: PlanRequest, overload: Overload) -> PlanRequest:
        """The request with the CPU that there is, where batches take too long."""
        moved = overload.look()
        if overload.hopeless:
            self._say(
                f"batches take {overload.seconds:.1f} s of {overload.interval:g} and most of it is not the join: shedding would not help, "
                "a longer trigger would"
            )
        elif moved and overload.cap is not None:
            self._say(f"batches take {overload.seconds:.1f} s of {overload.interval:g}: asking for a plan that takes {overload.cap:.3g} CPU")
        if overload.cap is None:
            return request
        least = min(overload.cap, self._caps.cpu or math.inf)
        return request.model_copy(update={"resources": self._caps.model_copy(update={"cpu": least})})

    def _answer(self, request: PlanRequest, measured: Mapping[str, float]) -> Answer:
        """Asked in a thread of its own, which is left behind where it takes too long."""
        if self._asking is not None and self._asking.is_alive():
            raise _NoAnswerError(f"no answer yet to what was asked more than {self.patience:g} seconds ago")
        found: list[Answer] = []
        failed: list[Exception] = []

        def asking() -> None:
            try:
                found.append(self.ask(self._plan, request, measured))
            except Exception as failure:  # whatever it is, the pipeline goes on
                failed.append(failure)

        self._asking = threading.Thread(target=asking, name="watersmeet asking", daemon=True)
        self._asking.start()
        self._asking.join(self.patience)
        if failed:
            raise _NoAnswerError(f"no answer: {_said(failed[0])}")
        if not found:
            raise _NoAnswerError(f"no answer within {self.patience:g} seconds")
        return found[0]

    def _carry_out(self, answer: Answer) -> None:
        try:
            decision, kind, gain, reasons, plan = str(answer.decision), str(answer.kind), float(answer.gain), list(answer.reasons), answer.plan
            if decision not in ("keep", "change"):
                raise ValueError(f"a decision is keep or change, got {decision!r}")
            if not isinstance(plan, Plan):
                raise TypeError("its plan is none")
        except (AttributeError, TypeError, ValueError) as nonsense:
            raise _NoAnswerError(f"the answer makes no sense: {_said(nonsense)}") from nonsense
        if decision == "keep":
            if plan.fingerprint == self._plan.fingerprint:
                self._plan = plan
            self._keep(reasons, gain)
            return
        self.pipeline.change(plan, kind=kind, gain=gain, reasons=reasons)
        self._plan = plan
        self.changes += 1
        lost = shed_by(plan)
        if self._overload is not None and not lost:
            self._overload.over()
        tail = f"; shedding load: {lost}" if lost else ""
        self._say(f"plan changed, {kind}, gain {100 * gain:.0f} %: {_shortly(reasons)}{tail}")

    def _keep(self, reasons: Sequence[str], gain: float | None = None) -> None:
        self.pipeline.keep(gain=gain, reasons=reasons)
        self._say(f"plan kept: {_shortly(reasons)}")


class _NoAnswerError(Exception):
    """There is none that could be carried out; the message says why."""


def _shortly(reasons: Sequence[str]) -> str:
    """The first reason, what is off most, and the last, what follows; all are in `decisions.jsonl`."""
    return " … ".join(reasons if len(reasons) < 3 else (reasons[0], reasons[-1]))


def _said(failure: BaseException) -> str:
    """An exception in one line."""
    lines = str(failure).strip().splitlines()
    return lines[0] if lines else type(failure).__name__


def surely(plan: Plan, measured: Mapping[str, Any]) -> dict[str, Any]:
    """What was measured without the rates and selectivities that differ from the plan's by no more than chance."""
    known = {f"{stream.name}.rate": stream.rate for stream in plan.query.streams}
    known |= {f"predicates[{p}].selectivity": predicate.selectivity or 1.0 for p, predicate in enumerate(plan.query.predicates)}
    counts = measured.get("counts", {})

    def differs(name: str, value: float) -> bool:
        return name not in counts or abs(math.log(value / known[name])) > CHANCE / math.sqrt(max(1.0, counts[name]))

    return dict(measured) | {
        what: {name: value for name, value in measured.get(what, {}).items() if differs(name, value)} for what in ("rates", "selectivities")
    }

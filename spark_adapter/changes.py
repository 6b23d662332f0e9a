"""The plans of one pipeline: which is in force, and how another one takes over while it runs.

What a start is given is a file of the control stream, as is every later change (see `control`): the last file is the plan in force, from the
next batch at the latest. A start with the plan that the start before was given goes on with whatever is in force by then; one with another
plan is a change like any other. The lines of `decisions.jsonl` follow Spark's logs (see `decisions`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from models.plan import Plan
from spark_adapter.control import Change, Control, kind_of
from spark_adapter.decisions import Decision, Decisions, now
from spark_adapter.stem.program import Program
from spark_adapter.stem.text import digest

__all__ = ["Changes"]

STARTED = "The pipeline was started with this plan."
TAKEN_OVER = "The pipeline was started again with another plan."


class Changes:
    """Of one pipeline, from its start on."""

    def __init__(
        self,
        control: Control,
        decisions: Decisions,
        plan: Plan,
        known: Mapping[str, Any] | None,
        programmed: Callable[[Plan], Program],
        check: Callable[[Plan, Plan], None] = lambda _before, _after: None,
    ) -> None:
        """`known` is what the manifest says of the plan that the start before was given, `programmed` makes a plan's program, or refuses it;
        `check` refuses a change from one plan to another while the pipeline runs."""
        self._control, self._decisions, self._programmed, self._check = control, decisions, programmed, check
        self._lock = threading.Lock()
        numbers = control.numbers()
        given = programmed(plan)
        self.given: dict[str, Any] = {"number": 1 + max([*numbers, known["number"] if known else 0]), "digest": digest(given)}
        last = control.read(numbers[-1]) if numbers else None
        self._first: Change | None = None
        if known is not None and known["digest"] == self.given["digest"] and known["number"] in numbers:
            self.given = dict(known)
        elif last is None:
            self._first = self._change(plan, given, self.given["number"], decision="start", reasons=[STARTED], kind="none")
        else:
            self._first = self._change(plan, given, self.given["number"], reasons=[TAKEN_OVER], kind=kind_of(last.program, given))
        current = self._first or last
        assert current is not None
        self._current = current
        self._waiting: list[Change] = []
        self._written = -1

    @property
    def plan(self) -> Plan:
        """In force, or with the first batch of this run."""
        return self._current.plan

    @property
    def latest(self) -> Plan:
        """The one that was asked for last, whether or not a batch has read it yet."""
        with self._lock:
            return (self._waiting[-1] if self._waiting else self._current).plan

    @property
    def changing(self) -> bool:
        """Whether a change was asked for that no batch has read yet."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Called before the query starts, after the manifest is written: gives the start's own plan to the first batch, and writes the lines
        that a run before did not come to."""
        if self._first is not None:
            self._control.write(self._first)
        self._written = max((decision.number for decision in self._decisions.read()), default=0)
        self._waiting = [self._control.read(number) for number in self._control.numbers() if number > self._written]
        self.notice()

    def change(self, plan: Plan, kind: str | None, gain: float | None, reasons: Sequence[str]) -> int:
        with self._lock:
            program = self._programmed(plan)
            number: int = 1 + max([*self._control.numbers(), self.given["number"]])
            before = self._waiting[-1] if self._waiting else self._current
            self._check(before.plan, plan)
            change = self._change(plan, program, number, gain=gain, reasons=reasons, kind=kind or kind_of(before.program, program))
            self._control.write(change)
            self._waiting.append(change)
            return number

    def notice(self) -> bool:
        """Write the lines of what batches have read since the last call; whether another plan is in force."""
        with self._lock:
            if not self._waiting:
                return False
            batches = self._control.batches(self._written)
            for change in [change for change in self._waiting if change.number in batches]:
                self._waiting.remove(change)
                self._written = change.number
                if any(other > change.number and batch == batches[change.number] for other, batch in batches.items()):
                    continue  # the same batch read a later one: this was never in force
                self._decisions.add(_decision(change, batches[change.number]))
                self._current = change
            return bool(batches)

    def keep(self, batch: int, gain: float | None, reasons: Sequence[str]) -> None:
        with self._lock:
            fingerprint, number = self._current.plan.fingerprint, self._current.number
            self._decisions.add(Decision(batch, now(), "keep", "none", gain, fingerprint, tuple(reasons), number))

    def fingerprint(self, number: int) -> str:
        """Of the plan with this number: cells that still build for the plan in force take the way of one before."""
        if number == self._current.number:
            return self._current.plan.fingerprint
        return self._control.read(number).plan.fingerprint

    @staticmethod
    def _change(plan: Plan, program: Program, number: int, decision: str = "change", **more: Any) -> Change:
        told = {"gain": None} | more
        return Change(number=number, decision=decision, timestamp=now(), plan=plan, program=replace(program, number=number), **told)


def _decision(change: Change, batch: int) -> Decision:
    document = change.plan.model_dump(mode="json", by_alias=True)
    fingerprint = change.plan.fingerprint
    return Decision(batch, change.timestamp, change.decision, change.kind, change.gain, fingerprint, tuple(change.reasons), change.number, document)

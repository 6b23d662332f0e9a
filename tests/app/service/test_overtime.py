"""A solve that outlives its time is answered in its place: not before it had its time and more, and once."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from app.service import overtime
from app.service.frames import ABANDONED, frame
from app.service.overtime import OVERTIME, Overtime
from solvers.common.deadline import AbandonedError


class Clock:
    """A clock that the test turns; whoever sleeps has looked at what there is by the time that it sleeps again."""

    def __init__(self) -> None:
        self.now, self._slept = 0.0, threading.Semaphore(0)
        self._go = threading.Semaphore(0)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self._slept.release()
        self._go.acquire()

    def turn(self, now: float) -> None:
        """Another time, and one look at it."""
        self._slept.acquire()
        self.now = now
        self._go.release()
        self._slept.acquire()
        self._slept.release()


def test_what_there_is_is_sent_when_the_time_and_the_overtime_are_over_and_the_solve_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = Clock(), list[bytes]()
    monkeypatch.setattr(overtime, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
    watching = Overtime(sent.append)
    watching.begin(0.2, lambda: b"so far")
    for now in (0.1, 0.2, 0.2 + 0.9 * OVERTIME):
        clock.turn(now)
        watching.check()
        assert sent == []
    clock.turn(0.2 + OVERTIME)
    assert sent == [b"so far"]
    with pytest.raises(AbandonedError):
        watching.check()
    clock.turn(10.0)
    watching.end(b"too late")
    assert sent == [b"so far", frame(ABANDONED)]


def test_a_solve_that_ends_in_its_overtime_answers_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, sent = Clock(), list[bytes]()
    monkeypatch.setattr(overtime, "time", SimpleNamespace(monotonic=clock.monotonic, sleep=clock.sleep))
    watching = Overtime(sent.append)
    watching.begin(0.2, lambda: b"so far")
    clock.turn(0.3)
    watching.end(b"its own")
    clock.turn(10.0)
    assert sent == [b"its own"]

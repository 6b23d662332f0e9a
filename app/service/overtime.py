"""Answers for solves that outlive their time limit: the best so far, from a second thread of the worker.

Every search looks at its deadline, so this is for those that look too late: OVERTIME seconds past the limit this thread makes a whole answer
of the best plan so far and sends it, while the solver is still at work. When the solver looks at its deadline next, it is told and gives
up; then the worker is free. It is not interrupted where it is: compiled code that calls back into Python does not survive an exception there.
Where native code does not let any other thread run, there is no answer from here: the kernel's timer ends the process and
the pool asks another worker to answer at once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from app.service.frames import ABANDONED, frame
from solvers.common.deadline import AbandonedError

__all__ = ["OVERTIME", "Overtime"]

OVERTIME = 0.3  # seconds past its limit that a solve may take: searches end within 20 % or 50 ms, and a busy machine stretches that
TICK = 0.02  # seconds between two looks at the clock, a thousandth of a core: waking this thread for every task would cost more

log = logging.getLogger("watersmeet.worker")


class _Task:
    def __init__(self, due: float, so_far: Callable[[], bytes]) -> None:
        self.due, self.so_far = due, so_far
        self.tried = self.answered = False


class Overtime:
    """Watches one task at a time, and sends through `write` what it has so far where it takes too long."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write, self._lock = write, threading.Lock()
        self._task: _Task | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, limit: float, so_far: Callable[[], bytes]) -> None:
        """A solve begins; `so_far` makes the frame of what it has."""
        self._task = _Task(time.monotonic() + limit + OVERTIME, so_far)

    def check(self) -> None:
        """Raises AbandonedError in a solve that has been answered."""
        if self._task is not None and self._task.answered:
            raise AbandonedError

    def send(self, data: bytes) -> None:
        """Write a frame that is no answer, such as progress."""
        with self._lock:
            self._write(data)

    def end(self, answer: bytes) -> None:
        """Write the answer; where this thread has sent one already, write only that the worker is free."""
        with self._lock:
            task, self._task = self._task, None
            self._write(frame(ABANDONED) if task and task.answered else answer)

    def _watch(self) -> None:
        while True:
            time.sleep(TICK)
            task = self._task
            if task is not None and not task.tried and time.monotonic() >= task.due:
                task.tried = True
                self._answer(task)

    def _answer(self, task: _Task) -> None:
        try:
            answer = task.so_far()
        except Exception:
            log.exception("no answer so far")  # the solver goes on
            return
        with self._lock:
            if self._task is task:
                task.answered = True
                self._write(answer)

"""Answers for solves that outlive their time limit: the best so far, from a second thread of the worker.

Every search looks at its deadline, so this is the net below: OVERTIME seconds past the limit the solver's thread is held where it is, by a
signal, and this one makes a whole answer of the incumbent and sends it. Then the solver's thread is let go with AbandonedError, and
the worker is free for the next task. A solver that is in native code sees the signal when it comes out of it; the answer does not wait for that.
Where native code does not let any other thread run, there is no answer from here: the kernel's timer ends the process and
the pool asks another worker to answer at once.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable

from app.frames import ABANDONED, frame
from solvers.deadline import AbandonedError

__all__ = ["OVERTIME", "Overtime"]

OVERTIME = 0.3  # seconds past its limit that a solve may take: searches end within 20 % or 50 ms, and a busy machine stretches that
TICK = 0.02  # seconds between two looks at the clock, a thousandth of a core: waking this thread for every task would cost more
SIGNAL = signal.SIGUSR1

log = logging.getLogger("watersmeet.worker")


class _Task:
    def __init__(self, due: float, so_far: Callable[[], bytes]) -> None:
        self.due, self.so_far = due, so_far
        self.answered = self.left = False
        self.tried = threading.Event()


class Overtime:
    """Watches the tasks of the thread that made it, and sends through `write` what they have so far where they take too long.

    From `begin` to the end of `end` AbandonedError may come out of any line of that thread, once.
    """

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write, self._lock = write, threading.Lock()
        self._task: _Task | None = None
        self._solver = threading.get_ident()
        signal.signal(SIGNAL, self._hold)
        threading.Thread(target=self._watch, daemon=True).start()

    def begin(self, limit: float, so_far: Callable[[], bytes]) -> None:
        """A solve begins; `so_far` makes the frame of what it has."""
        self._task = _Task(time.monotonic() + limit + OVERTIME, so_far)

    def send(self, data: bytes) -> None:
        """Write what is no answer."""
        with self._lock:
            self._write(data)

    def end(self, answer: bytes) -> None:
        """Write the answer; where one has been sent already, that the worker is free."""
        with self._lock:
            task, self._task = self._task, None
            self._write(frame(ABANDONED) if task and task.answered else answer)

    def _watch(self) -> None:
        while True:
            time.sleep(TICK)
            task = self._task
            if task is not None and not task.tried.is_set() and time.monotonic() >= task.due:
                self._answer(task)

    def _answer(self, task: _Task) -> None:
        signal.pthread_kill(self._solver, SIGNAL)
        try:
            answer = task.so_far()
            with self._lock:
                if self._task is task:
                    task.answered = True
                    self._write(answer)
        except Exception:
            log.exception("no answer so far")  # the solver goes on
        finally:
            task.tried.set()
        if task.answered:
            signal.pthread_kill(self._solver, SIGNAL)  # again, for a solver that could not be held

    def _hold(self, _signal: int, _frame: object) -> None:
        """In the solver's thread: wait until the other one has tried, and go no further where it has answered."""
        task = self._task
        if task is None or self._lock.locked():
            return  # it is writing, or has answered
        task.tried.wait()
        if task.answered and not task.left:
            task.left = True  # raised once: whoever catches it is not interrupted again
            raise AbandonedError

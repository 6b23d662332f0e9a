"""Time as an argument: a solver is given a Deadline and asks it, it never reads a clock itself.

A deadline also carries whoever waits for the search (`Progress`), who may strike it early and hears how the search goes. So a search
keeps its two arguments, and one that says nothing of its progress is still a good search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING

from models.plan import Termination

if TYPE_CHECKING:
    from models.plan import Plan
    from solvers.jtree.search import Problem
    from solvers.jtree.shape import Shape
    from solvers.model.point import Point
    from solvers.model.tree import Tree

__all__ = ["NOBODY", "AbandonedError", "Deadline", "Progress"]

TICK = 0.02  # seconds between two looks at a deadline while a kernel runs: a thousandth of a core, and nobody notices it when waiting


class AbandonedError(Exception):
    """Nobody wants the answer any more: raised where a search looks at its deadline, and caught by who started the search."""


class Progress:
    """Nobody: asks for nothing, hears nothing. `solvers.jtree.progress` has those who do.

    Searches say what they have found and proven; where that takes work they first ask whether somebody `listens`.
    """

    listens = False

    def stopped(self) -> bool:
        """Whether the search is asked to end before its time. Raises AbandonedError where nobody wants its answer any more."""
        return False

    def begin(self, problem: Problem) -> None:
        """The problem that all that follows is about."""

    def found(self, points: Sequence[Point]) -> None:
        """Plans with their prices, one at least."""

    def planned(self, trees: Sequence[Tree]) -> None:
        """Plans that are not priced yet, one at least."""

    def drafted(self, cpu: float, memory_bytes: float, shape: Shape | None = None) -> None:
        """A plan whose figures are known and not yet its price, and its joins, where it can be made of them."""

    def proven(self, bound: float | None) -> None:
        """A bound of the objective."""

    def doing(self, step: str) -> None:
        """What the search is doing, for a person."""

    def ended(self, plan: Plan) -> None:
        """The plan that is the answer."""


NOBODY = Progress()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock after which a search returns its best so far."""

    at: float
    progress: Progress = NOBODY

    @classmethod
    def after(cls, seconds: float, progress: Progress = NOBODY) -> Deadline:
        return cls(time.monotonic() + seconds, progress)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return 0.0 if self.progress.stopped() else max(0.0, self.at - time.monotonic())

    def expired(self) -> bool:
        return time.monotonic() >= self.at or self.progress.stopped()

    def termination(self, before: Termination = Termination.COMPLETE) -> Termination:
        """Why a search that looks here ends: as a step `before` it did, or it was asked to, or its time is over, or none of them."""
        if before is not Termination.COMPLETE:
            return before
        if self.progress.stopped():
            return Termination.STOPPED
        return Termination.TIME_LIMIT if time.monotonic() >= self.at else Termination.COMPLETE

    def share(self, part: float) -> Deadline:
        """One with this part of the time that is left."""
        return Deadline.after(self.remaining() * part, self.progress)

    def earlier(self, seconds: float) -> Deadline:
        """One that strikes this much before."""
        return replace(self, at=self.at - seconds)

    @contextmanager
    def watched(self, strike: Callable[[], object], tick: Callable[[], object] = lambda: None) -> Iterator[None]:
        """While native code runs here, a thread waits for the deadline and then calls `strike` until the code has ended.

        Before that it calls `tick` now and then.
        """
        ended = Event()

        def watch() -> None:
            longest = TICK if self.progress is not NOBODY else self.remaining()
            try:
                with suppress(AbandonedError):
                    while not (ended.wait(min(longest, self.remaining())) or self.expired()):
                        tick()
            finally:
                # Whatever happened here, nobody waits for ever. Again and again, because a call that is about to begin does not see the first.
                strike()
                while not ended.wait(TICK):
                    strike()

        thread = Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

"""Time as an argument: a solver is given a Deadline and asks it, it never reads a clock itself.

A deadline also carries a `Progress`: the search reports to it what it has found, and it may end the search early. So a search
has two arguments and no more, and one that reports nothing is still a good search.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import TIMEOUT_MAX, Event, Thread
from typing import TYPE_CHECKING

from models.plan import Termination

if TYPE_CHECKING:
    from models.plan import Plan
    from solvers.jtree.search import Problem
    from solvers.jtree.shape import Shape
    from solvers.model.point import Point
    from solvers.model.tree import Tree

__all__ = ["NEVER", "NOBODY", "AbandonedError", "Deadline", "Progress", "seconds_to_write"]

TICK = 0.02  # seconds between two looks at a deadline while compiled code runs: costs a thousandth of a core, and a stop is noticed at once

SECONDS_PER_PROBE = 7e-6  # to write a plan down, on the machine at hand: 0.27 s for the 40,000 probes of one join of 200 streams
SECONDS_PER_LISTED = 5e-8  # the same for a predicate that a probe lists: 0.2 s more where each of them is joined with every other
SECONDS_PER_PREDICATE = 2e-6  # of the query, however few probes list it: its sizes are multiplied, and where it may lie is said
SECONDS_PER_JOIN = 1.5e-4  # the same for a join itself, with its validity and its reasons


def seconds_to_write(probes: int, listed: int, joins: int, predicates: int) -> float:
    """How long it usually takes to write down a plan of so many probes and joins for so many predicates, whose probes list so many of them."""
    return SECONDS_PER_PROBE * probes + SECONDS_PER_LISTED * listed + SECONDS_PER_JOIN * joins + SECONDS_PER_PREDICATE * predicates


class AbandonedError(Exception):
    """Nobody wants the answer any more. A search meets this when it looks at its deadline; whoever started the search catches it."""


class Progress:
    """What a search reports to while it runs. This one ignores every report and never stops a search; `solvers.jtree.progress` has one that
    passes reports on.

    A search calls `found`, `planned`, `drafted` and `proven` as it goes. Where a report takes work to make, it looks at `listens` first.
    """

    listens = False

    def stopped(self) -> bool:
        """Whether the search is asked to end before its time. Raises AbandonedError where nobody wants its answer any more."""
        return False

    def begin(self, problem: Problem) -> None:
        """Called first, with the problem that the later reports are about."""

    def found(self, points: Sequence[Point]) -> None:
        """Reports priced plans, at least one."""

    def planned(self, trees: Sequence[Tree]) -> None:
        """Reports plans that are not priced yet, at least one."""

    def drafted(self, cpu: float, memory_bytes: float, shape: Shape | None = None) -> None:
        """Reports a plan by the search's own figures, before it is priced; `shape` has its joins, where the plan can be made from them."""

    def proven(self, bound: float | None) -> None:
        """Reports a proven bound of the objective."""

    def doing(self, step: str) -> None:
        """Reports what is being done, in words for a person."""

    def ended(self, plan: Plan) -> None:
        """Reports the plan that is the answer; called last."""


NOBODY = Progress()


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment on the monotonic clock after which a search returns its best so far."""

    at: float
    progress: Progress = NOBODY
    granted: float = 0.0
    """Seconds that it gave when it was made. Budgets of work follow from these and not from what is left of them: the same request has the
    same budgets, however busy the machine is."""

    @classmethod
    def after(cls, seconds: float, progress: Progress = NOBODY) -> Deadline:
        return cls(time.monotonic() + seconds, progress, seconds)

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return 0.0 if self.progress.stopped() else max(0.0, self.at - time.monotonic())

    def expired(self) -> bool:
        return time.monotonic() >= self.at or self.progress.stopped()

    def termination(self, before: Termination = Termination.COMPLETE) -> Termination:
        """Why a search ended: for the reason of an earlier step, `before`, where that was cut short; else by what is true now."""
        if before is not Termination.COMPLETE:
            return before
        if self.progress.stopped():
            return Termination.STOPPED
        return Termination.TIME_LIMIT if time.monotonic() >= self.at else Termination.COMPLETE

    def share(self, part: float) -> Deadline:
        """A deadline after this share of the time that is left."""
        return replace(self, at=time.monotonic() + self.remaining() * part, granted=self.granted * part)

    def earlier(self, seconds: float) -> Deadline:
        """A deadline this many seconds before this one."""
        return replace(self, at=self.at - seconds)

    def before_writing(self, probes: int, listed: int, joins: int, predicates: int) -> Deadline:
        """The moment at which a plan of so many probes and joins for so many predicates has to be written down, whose probes list so many of them."""
        return self.earlier(seconds_to_write(probes, listed, joins, predicates))

    @contextmanager
    def watched(self, strike: Callable[[], object], tick: Callable[[], object] = lambda: None) -> Iterator[None]:
        """While native code runs here, a thread waits for the deadline and then calls `strike` until the code has ended.

        Before that it calls `tick` now and then.
        """
        ended = Event()

        def watch() -> None:
            longest = TICK if self.progress is not NOBODY else TIMEOUT_MAX  # a deadline may be never: no clock waits so long
            try:
                with suppress(AbandonedError):
                    while not (ended.wait(min(longest, self.remaining())) or self.expired()):
                        tick()
            finally:
                # Also after an exception, or the native code would never end. Repeated, because code that is about to start misses the first call.
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


NEVER = Deadline(math.inf)
"""For work that nobody waits for."""

"""When a pipeline has too little CPU, and how much there is: what `adapt` asks an allocation for (paper 2).

The problem: rows come faster than batches are worked off. The sign of it: batches take longer than the trigger's interval P. The method: of a
batch of D seconds the operator takes W, which is its CPU over the processes that share it, and the rest F = D − W is Spark's, which no plan makes
shorter. For a batch to take MARGIN·P, the operator's work has to be f = (MARGIN·P − F)/W of what it is. After SOME batches in a row that took longer
than P, the cap is set to f times the CPU that the operator takes; after SOME in a row that took less than CALM·P it is raised in the same way,
until a plan that sheds nothing fits under it: then it is gone.

The guarantee: none of the future. With a load that stays as it is, D comes to lie between CALM·P and P, where nothing is changed. Where F
alone is longer than MARGIN·P, shedding is no help, and the cap stays as it is.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

__all__ = ["BatchTime", "Overload"]

SOME = 3  # batches in a row: one that is slow may be chance, a merge or a busy machine
MARGIN = 0.9  # of the interval: what a batch should take
CALM = 0.85  # of the interval: below, there is room for more
TREMBLE = 0.05  # of the cap: a move that is not worth one
LEAST = 0.1  # of the work that a single step leaves at least: what a batch took is no exact measure


@dataclass(frozen=True, slots=True)
class BatchTime:
    """How long a batch took, and the operator's part of it."""

    batch: int
    seconds: float
    cpu: float
    """CPU seconds of the operator in all its processes."""
    processes: int
    event_seconds: float
    """By how much event time went on."""

    @property
    def working(self) -> float:
        """Seconds of the batch in which the operator worked."""
        return min(self.seconds, self.cpu / max(1, self.processes))


class Overload:
    """The cap on the operator's CPU, in CPU seconds per second of event time; None as long as there is no need of one."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.cap: float | None = None
        self.hopeless = False
        """Whether the last batches were too long, and would be with nothing to do."""
        self.seconds = 0.0
        """What the batches took, on average, that were looked at last."""
        self._last: deque[BatchTime] = deque(maxlen=SOME)

    def add(self, batch: BatchTime) -> None:
        self._last.append(batch)

    @property
    def overloaded(self) -> bool:
        """Whether the last batches all took longer than the interval."""
        return len(self._last) == SOME and all(batch.seconds > self.interval for batch in self._last)

    @property
    def calm(self) -> bool:
        return len(self._last) == SOME and all(batch.seconds < CALM * self.interval for batch in self._last)

    def look(self) -> bool:
        """Set, lower or raise the cap by the last batches; whether it moved by more than TREMBLE. These are then forgotten: the next say what
        has come of it."""
        self.hopeless = False
        if not self.overloaded and not (self.calm and self.cap is not None):
            return False
        self.seconds = math.fsum(batch.seconds for batch in self._last) / SOME
        working = math.fsum(batch.working for batch in self._last) / SOME
        spark = self.seconds - working
        cpu = math.fsum(batch.cpu for batch in self._last)
        event_seconds = math.fsum(batch.event_seconds for batch in self._last)
        left = MARGIN * self.interval - spark
        self.hopeless = self.overloaded and left <= 0.0
        if self.hopeless or working <= 0.0 or cpu <= 0.0 or event_seconds <= 0.0:
            return False
        self._last.clear()
        cap = cpu / event_seconds * max(LEAST, left / working)
        if self.cap is not None and abs(cap - self.cap) <= TREMBLE * self.cap:
            return False
        self.cap = cap
        return True

    def over(self) -> None:
        """A plan that sheds nothing fits: there is no cap any more."""
        self.cap = None

"""When a pipeline has too little CPU, and how much there is: what `adapt` asks an allocation for (paper 2).

The problem: rows come faster than batches are worked off. The sign of it: batches take longer than the trigger's interval P. The method: of a
batch of D seconds the operator's work takes W, which is the CPU of it over the processes that share it, and the rest F = D − W no plan makes
shorter: Spark's own time, and what the operator takes for a batch however little there is to do. For a batch to take MARGIN·P, the work has to
be f = (MARGIN·P − F)/W of what it is. After SOME batches in a row that took longer than P, the cap is set to f times the CPU that the work
takes; after SOME in a row that took less than CALM·P it is set in the same way, which raises it, until a plan that sheds nothing fits under it:
then it is gone.

What the operator takes for a batch with nothing to do follows from batches with more and with less work, by least squares (`Fit`): prices per tuple
know nothing of it, and load would be shed for its sake without end. Where the plan's costs price its probe steps (`step`), that part of it is in
the price, and counts as work.

The guarantee: none of the future. With a load that stays as it is, D comes to lie between CALM·P and P, where nothing is changed. Where F
alone is longer than MARGIN·P, shedding is no help, and the cap stays as it is.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from dataclasses import dataclass

__all__ = ["BatchTime", "Fit", "Overload"]

SOME = 3  # batches in a row: one that is slow may be chance, a merge or a busy machine
MARGIN = 0.9  # of the interval: what a batch should take
CALM = 0.85  # of the interval: below, there is room for more
FITTED = 200  # batches by which the fixed part is told from the work
ALIKE = 0.1  # of the mean: batches whose work spreads less do not tell the two apart
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
    work: float
    """What the operator counted of its work."""


class Fit:
    """CPU seconds of a batch as a fixed part and a price per unit of work, from the last batches."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque(maxlen=FITTED)
        self.priced = 0.0
        """CPU seconds a second of the fixed part that the plan's price has: that of its probe steps."""

    def add(self, batch: BatchTime) -> None:
        self._seen.append((batch.work, batch.cpu))

    @property
    def fixed(self) -> float:
        """Seconds that a batch takes however little there is to do; 0 while batches have all had about the same work. Never more than the least
        that a batch took."""
        if len(self._seen) < SOME:
            return 0.0
        works, cpus = zip(*self._seen, strict=True)
        work, cpu = statistics.fmean(works), statistics.fmean(cpus)
        spread = statistics.pstdev(works, work)
        if spread <= ALIKE * work:
            return 0.0
        price = math.fsum((one - work) * (other - cpu) for one, other in self._seen) / (len(self._seen) * spread**2)
        return float(min(max(0.0, cpu - max(0.0, price) * work), min(cpus)))

    def beyond_prices(self, batches: int, event_seconds: float) -> float:
        """Seconds of the fixed part of so many batches, which took event time on by so much, that are in no price."""
        return max(0.0, self.fixed * batches - self.priced * event_seconds)


class Overload:
    """The cap on the operator's CPU, in CPU seconds per second of event time; None as long as there is no need of one."""

    def __init__(self, interval: float, fit: Fit) -> None:
        self.interval, self.fit = interval, fit
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
        cpus = [max(0.0, batch.cpu - self.fit.beyond_prices(1, batch.event_seconds)) for batch in self._last]
        working = math.fsum(min(batch.seconds, cpu / max(1, batch.processes)) for batch, cpu in zip(self._last, cpus, strict=True)) / SOME
        cpu, event_seconds = math.fsum(cpus), math.fsum(batch.event_seconds for batch in self._last)
        left = MARGIN * self.interval - (self.seconds - working)
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

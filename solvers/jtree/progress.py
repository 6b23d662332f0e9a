"""Progress of a search for somebody who waits: better plans and bounds are passed on to them, and they may stop the search.

What is passed on only gets better: the best plan so far by the problem's objective within its caps (where none fits, the one least over
them), and the tightest bound so far. The first plan is passed on at once, later ones at most ten times a second (those in between are
left out), and the answer's figures at the end. Searches never read what is kept here, so listening does not change their answers.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models.plan import Plan
from models.progress import Incumbent
from models.request import Objective
from solvers.common.deadline import Progress
from solvers.common.errors import RangeError
from solvers.common.gap import gap_between
from solvers.jtree.choice import choose, objective_value
from solvers.jtree.search import Problem
from solvers.model.point import Caps, Point, point_of
from solvers.model.tree import Tree

if TYPE_CHECKING:
    from solvers.jtree.shape import Shape

__all__ = ["Best", "Waiting"]

EVERY = 0.1  # seconds between two messages: nobody reads faster
EVERY_STEP = 0.5  # seconds between two messages that differ only in what is being done
LOOK = 0.005  # seconds between two calls of `stop`: each is a system call

_Rank = tuple[float, float, float, float]


@dataclass(frozen=True, slots=True)
class Best:
    """The best plan so far that can be written down, and what is proven by now."""

    plan: Tree | Shape
    bound: float | None


class Waiting(Progress):
    """Calls `hear` with better plans and bounds (None: nobody listens), and asks `stop` now and then whether to end; it may raise AbandonedError."""

    def __init__(self, hear: Callable[[Incumbent], object] | None = None, stop: Callable[[], bool] | None = None) -> None:
        self._hear, self._stop = hear, stop
        self.listens = hear is not None
        self._problem: Problem | None = None
        self._began = self._sent = self._looked = time.monotonic()
        self._stopped = False
        self._best: tuple[_Rank, float, float, float] | None = None  # rank, CPU, bytes, value of the objective
        self._bound: float | None = None
        self._steps: list[tuple[float, float]] = []
        self._step, self._said = "", ""
        self._last: Incumbent | None = None
        self._news = False
        self._held: tuple[_Rank, Tree | Shape] | None = None

    @property
    def best(self) -> Best | None:
        """The best plan so far; None before the first. May be called from another thread."""
        held = self._held
        return Best(held[1], self._bound) if held else None

    def stopped(self) -> bool:
        if self._stop is not None and not self._stopped:
            now = time.monotonic()
            if now - self._looked >= LOOK:
                self._looked = now
                self._stopped = self._stop()
        return self._stopped

    def begin(self, problem: Problem) -> None:
        self._problem = problem

    def found(self, points: Sequence[Point]) -> None:
        for point in points:
            self._hold(point.cpu, point.memory_bytes, point.tree)
        if self.listens and self._problem is not None:
            for point in points:
                self._keep(point.cpu, point.memory_bytes)
            best = choose(self._problem, points)
            self._take(best.cpu, best.memory_bytes, objective_value(self._problem, best))

    def planned(self, trees: Sequence[Tree]) -> None:
        if self.listens and self._problem is not None:
            with suppress(RangeError):  # a plan whose price overflows is not reported
                self.found([point_of(self._problem.model, tree) for tree in trees])

    def drafted(self, cpu: float, memory_bytes: float, shape: Shape | None = None) -> None:
        if shape is not None:
            self._hold(cpu, memory_bytes, shape)
        # The headroom of a plan is only known once it is priced.
        if self.listens and self._problem is not None and self._problem.objective is not Objective.MAX_HEADROOM and math.isfinite(cpu + memory_bytes):
            self._keep(cpu, memory_bytes)
            self._take(cpu, memory_bytes, memory_bytes if self._problem.objective is Objective.MIN_MEMORY else cpu)

    def proven(self, bound: float | None) -> None:
        if self._problem is not None and bound is not None and math.isfinite(bound):
            tighter = min if self._problem.objective is Objective.MAX_HEADROOM else max
            if self._bound is None or tighter(bound, self._bound) != self._bound:
                self._bound, self._news = bound, True
            self._tell()

    def doing(self, step: str) -> None:
        self._step = step
        self._tell()

    def ended(self, plan: Plan) -> None:
        if self.listens:
            cost, last = plan.cost, self._last
            said = (last.cpu, last.memory_bytes, last.qualified, last.bound, last.gap) if last else None
            if said != (cost.cpu, cost.memory_bytes, plan.qualified, plan.bound, plan.gap):
                self._keep(cost.cpu, cost.memory_bytes)
                self._send(cost.cpu, cost.memory_bytes, plan.qualified, plan.bound, plan.gap, "done")

    def _hold(self, cpu: float, memory_bytes: float, plan: Tree | Shape) -> None:
        """Keep the plan if it is better than the one kept so far. Headroom is compared by the load on the caps, which needs no pricing."""
        if self._problem is None or not math.isfinite(cpu + memory_bytes):
            return
        caps, objective = self._problem.caps, self._problem.objective
        load = max(cpu / caps.cpu, memory_bytes / caps.memory_bytes)
        value = {Objective.MIN_CPU: cpu, Objective.MIN_MEMORY: memory_bytes, Objective.MAX_HEADROOM: -load}[objective]
        rank = _rank(caps, objective, cpu, memory_bytes, value)
        if self._held is None or rank < self._held[0]:
            self._held = rank, plan

    def _keep(self, cpu: float, memory_bytes: float) -> None:
        """Put the figures among those of the plans that no other beats."""
        steps, place = self._steps, bisect_left(self._steps, (cpu, memory_bytes))
        if (place and steps[place - 1][1] <= memory_bytes) or (place < len(steps) and steps[place] == (cpu, memory_bytes)):
            return
        end = place
        while end < len(steps) and steps[end][1] >= memory_bytes:
            end += 1
        steps[place:end] = [(cpu, memory_bytes)]

    def _take(self, cpu: float, memory_bytes: float, value: float) -> None:
        """Take the plan if it is better than the best so far."""
        assert self._problem is not None
        rank = _rank(self._problem.caps, self._problem.objective, cpu, memory_bytes, value)
        if self._best is None or rank < self._best[0]:
            self._best, self._news = (rank, cpu, memory_bytes, value), True
        self._tell()

    def _tell(self) -> None:
        """Send what is new, if it is time to."""
        if not self.listens or self._best is None or self._problem is None:
            return
        since = time.monotonic() - self._sent
        if self._last is None or (self._news and since >= EVERY) or (self._step != self._said and since >= EVERY_STEP):
            _, cpu, memory_bytes, value = self._best
            gap = gap_between(value, self._bound, self._problem.objective is Objective.MAX_HEADROOM)
            self._send(cpu, memory_bytes, self._problem.caps.admit(Point(cpu, memory_bytes, 0)), self._bound, gap, self._step)

    def _send(self, cpu: float, memory_bytes: float, qualified: bool, bound: float | None, gap: float | None, step: str) -> None:
        assert self._hear is not None
        self._sent = time.monotonic()
        self._news, self._said = False, self._step
        self._last = Incumbent(
            cpu=cpu,
            memory_bytes=memory_bytes,
            qualified=qualified,
            bound=bound,
            gap=gap,
            points=len(self._steps),
            seconds=self._sent - self._began,
            step=step,
        )
        self._hear(self._last)


def _rank(caps: Caps, objective: Objective, cpu: float, memory_bytes: float, value: float) -> _Rank:
    """Sorts plans as `choose` does, the best first."""
    over = max(cpu / caps.cpu, memory_bytes / caps.memory_bytes)
    if over > 1.0:
        return over, cpu, 0.0, 0.0
    return 0.0, -value if objective is Objective.MAX_HEADROOM else value, cpu, memory_bytes

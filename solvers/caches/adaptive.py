"""Which caches are used, profiled or left alone as a join runs (paper 1 §4.5).

Problem: keep the best caches in use while rates and data change. Method: the paper's algorithm with its three refinements.
Every cache starts profiled. When each profiled cache has its W observations, the selection runs and chosen caches become used, the
others unused. After an interval all unused caches are profiled again, and of the used ones those that hide the probes of
an unused cache within them (b). A used cache whose net benefit turns negative is dropped at once (a). The selection is run anew only if
some benefit or cost has moved by more than p since it last ran (c). Departs from the paper in its step 5: where the order of a pipeline changes, the
caller begins with new states.

Guarantee: `used` never overlaps, because it is what a selection chose, less what was dropped. Complexity: O(m) per
event, beside the selection. Pure: the caller says when an interval is over, and selects by any function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = ["AdaptiveCaches", "CacheState", "Measured", "Segment"]

CHANGE = 0.2  # p: the paper found 20 % to be enough
Name = TypeVar("Name", bound=Hashable)


class CacheState(StrEnum):
    """What a candidate is doing."""

    USED = "used"
    PROFILED = "profiled"
    UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Segment:
    """Probes first..last of one pipeline."""

    pipeline: Hashable
    first: int
    last: int

    def within(self, other: Segment) -> bool:
        return self.pipeline == other.pipeline and other.first <= self.first and self.last <= other.last and self != other


@dataclass(frozen=True, slots=True)
class Measured:
    """The current estimates of one cache; `ready` once there are W observations of each."""

    benefit: float
    cost: float
    ready: bool = True

    @property
    def net(self) -> float:
        return self.benefit - self.cost


def _moved(before: float, now: float, share: float) -> bool:
    return abs(now - before) > share * abs(before) if before else now != 0.0


class AdaptiveCaches(Generic[Name]):
    """The states of a join's candidate caches."""

    def __init__(
        self, candidates: Mapping[Name, Segment], select: Callable[[Mapping[Name, Measured]], Collection[Name]], change: float = CHANGE
    ) -> None:
        self._segments = dict(candidates)
        self._select = select
        self._change = change
        self._states: dict[Name, CacheState] = dict.fromkeys(self._segments, CacheState.PROFILED)
        self._basis: dict[Name, Measured] = {}
        self._chosen: frozenset[Name] = frozenset()

    def state(self, name: Name) -> CacheState:
        return self._states[name]

    def in_state(self, state: CacheState) -> list[Name]:
        return [name for name, current in self._states.items() if current is state]

    def observe(self, measured: Mapping[Name, Measured]) -> list[Name]:
        """Drop at once the used caches that lose more than they gain (rule a); which were dropped."""
        dropped = [name for name in self.in_state(CacheState.USED) if name in measured and measured[name].net < 0.0]
        for name in dropped:
            self._states[name] = CacheState.UNUSED
            self._basis.pop(name, None)  # its figures at the last selection no longer hold
        return dropped

    def begin_profiling(self) -> list[Name]:
        """The re-optimization interval is over: unused caches are profiled, used ones only where they hide the probes of such a cache (rule b)."""
        unused = self.in_state(CacheState.UNUSED)
        hiding = [name for name in self.in_state(CacheState.USED) if any(self._segments[other].within(self._segments[name]) for other in unused)]
        for name in (*unused, *hiding):
            self._states[name] = CacheState.PROFILED
        return [*unused, *hiding]

    def reoptimize(self, measured: Mapping[Name, Measured]) -> bool:
        """Select anew if every profiled cache is ready and some figure has moved (rule c); whether the selection ran.

        Where nothing has moved, profiled caches go back to what the last selection made of them.
        """
        profiled = self.in_state(CacheState.PROFILED)
        if not profiled or not all(name in measured and measured[name].ready for name in profiled):
            return False
        considered = {name: measured[name] for name in self._segments if name in measured and self._states[name] is not CacheState.UNUSED}
        if self._basis and not self.has_moved(considered):
            for name in profiled:
                self._states[name] = CacheState.USED if name in self._chosen else CacheState.UNUSED
            return False
        chosen = frozenset(self._select(considered))
        self._chosen = chosen
        self._basis = {**self._basis, **considered}
        for name in considered:
            self._states[name] = CacheState.USED if name in chosen else CacheState.UNUSED
        return True

    def has_moved(self, measured: Mapping[Name, Measured]) -> bool:
        """Whether some figure is off by more than p what it was at the last selection, or was not known then."""
        for name, now in measured.items():
            before = self._basis.get(name)
            if before is None or _moved(before.benefit, now.benefit, self._change) or _moved(before.cost, now.cost, self._change):
                return True
        return False

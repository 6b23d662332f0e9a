"""Staircases: of many trade-offs between two figures, those that no other beats in both.

Plain, and the definition; `solvers.jtree.compiled.staircase` is the same point by point, compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

__all__ = ["undominated"]

T = TypeVar("T")


def undominated(items: Iterable[T], figures: Callable[[T], tuple[float, float]], tie: Callable[[T], Any] | None = None) -> list[T]:
    """The items that no other beats in both figures, by rising first figure. Of equals the one with the least `tie`, or the first met. O(k log k).

    >>> undominated([(2.0, 1.0), (1.0, 2.0), (2.0, 2.0)], lambda item: item)
    [(1.0, 2.0), (2.0, 1.0)]
    """
    kept: list[T] = []
    last: tuple[float, float] | None = None
    for own, item in sorted(((figures(item), item) for item in items), key=lambda entry: entry[0]):
        if last is None or own[1] < last[1]:
            kept.append(item)
            last = own
        elif tie is not None and own == last and tie(item) < tie(kept[-1]):
            kept[-1] = item
    return kept

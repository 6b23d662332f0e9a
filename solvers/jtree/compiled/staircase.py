"""Staircases point by point, compiled: of (CPU, memory, operators) those that no other beats. `solvers.model.staircase` defines them, plain.

A staircase is arrays with as much room as its owner gave it, and a count. Asking takes O(log points), putting a point in O(points).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, making, released

__all__ = ["Steps", "cheaper", "dominated", "insert", "is_full", "lighter", "room_for", "up_to"]


class Steps(NamedTuple):
    """Points of a staircase, e rising and m falling, each with its number of operators and a row that says what it is. How many is kept beside it."""

    e: Floats
    m: Floats
    o: Ints
    row: Ints


@making
def room_for(many: int) -> Steps:
    return Steps(np.empty(many), np.empty(many), np.empty(many, np.int64), np.empty(many, np.int64))


@released
def up_to(es: Floats, count: int, e: float) -> int:
    """How many of the first `count` values, which rise, are at most e."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if es[middle] <= e:
            low = middle + 1
        else:
            high = middle
    return low


@released
def lighter(ms: Floats, count: int, m: float) -> int:
    """The first of `count` values, which fall, that is at most m."""
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ms[middle] <= m:
            high = middle
        else:
            low = middle + 1
    return low


@released
def dominated(es: Floats, ms: Floats, os: Ints, count: int, e: float, m: float, o: int) -> bool:
    """Whether a staircase (e rising, m falling) has a point at least as good in both, and in operators where both are equal."""
    place = up_to(es, count, e) - 1
    if place < 0 or ms[place] > m:
        return False
    return bool(es[place] < e or ms[place] < m or os[place] <= o)


@released
def cheaper(es: Floats, count: int, e: float) -> int:
    """How many steps cost less than e."""
    place = 0
    while place < count and es[place] < e:
        place += 1
    return place


@released
def is_full(steps: Steps, count: int, e: float, m: float) -> bool:
    """Whether there is no room for a point that is not dominated: as many steps as there can be, and it beats none of them."""
    place = cheaper(steps.e, count, e)
    return count == steps.e.size and (place == count or steps.m[place] < m)


@released
def insert(steps: Steps, count: int, e: float, m: float, o: int, row: int) -> int:
    """Put a point that is not dominated into a staircase, dropping what it dominates; returns the new count.

    Where that `is_full`, it takes the place of the next dearer step, or of the last: the cheapest step is never lost to a dearer one.
    """
    es, ms, os, rows = steps
    place = cheaper(steps.e, count, e)
    end = place
    while end < count and ms[end] >= m:
        end += 1
    if end == place and count == es.size:
        place = min(place, count - 1)
        end = place + 1
    moved = place + 1 - end
    if moved > 0:
        for k in range(count - 1, end - 1, -1):
            es[k + 1], ms[k + 1], os[k + 1], rows[k + 1] = es[k], ms[k], os[k], rows[k]
    elif moved < 0:
        for k in range(end, count):
            es[k + moved], ms[k + moved], os[k + moved], rows[k + moved] = es[k], ms[k], os[k], rows[k]
    es[place], ms[place], os[place], rows[place] = e, m, o, row
    return count + moved

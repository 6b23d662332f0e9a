"""A lower bound of the CPU of all plans, those with caches included, for graphs of any size.

Problem: a lower bound of the CPU of every join tree, with every probe order and every choice of caches. Method: caches answer runs of two probes or
more inside joins of three inputs or more, so only such joins cost less with them. The search by rising cost (`cheapest_first`) is run with prices of
these that no choice of caches goes below (`compiled.cached_families`), from the plan that is known. Where its bound reaches that plan, no cache pays
in any tree, and the plan is the best of all. Large stars, whose joins are too wide for it, have a bound of their own (`star.least_of_star`).

Guarantee: never above the CPU of any plan. Nothing is said where `cheapest_first` says nothing: observed sub-joins, tables, graphs that are not
connected. Complexity: that of `cheapest_first`, cut off at a count of steps. In small graphs the tree is found and proven in a millisecond or two,
and a plan that is wanted soon should not wait a hundred times as long for nothing. So within the first second granted the search is left out for
chains and cycles where the gap is small, or where they have more streams than `partials` takes on: of thirteen of 14 and 16 streams it proved none
in half a second, and for twelve brought nothing. Seconds beyond the first are meant for the proof, and go to it.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED, SUMMED_DOWN
from solvers.jtree.cheapest_first import MOST_SECONDS, STEPS_PER_SECOND, Effort, cheapest
from solvers.jtree.compiled.key_classes import KeyClasses
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.sets import MAX_BITS, list_connected
from solvers.jtree.partials import MAX_STREAMS
from solvers.jtree.star import least_of_star
from solvers.model.attributes import Attribute, Attributes
from solvers.model.cost import CostModel

__all__ = ["LeastWithCaches", "key_classes", "least_with_caches"]

SHARE = 0.8  # of the time that is left; the rest is for choosing caches, and for ranges of validity where predicates are thousands
WORK_SHARE = 0.45  # of the time granted: so much work, which seldom takes longer than what is left
SOON = 1.0  # seconds granted, the default, up to which small graphs are answered soon
CLOSE = 0.05  # a gap up to which it is not tried in those, where a plan is wanted soon
MOST_PREDICATES = 6_000  # beyond which listing what caches are looked up by takes longer than the search may


@dataclass(frozen=True, slots=True)
class LeastWithCaches:
    """What is known of the CPU of all plans."""

    cpu: float
    """No plan needs less; 0 where nothing is known."""
    cut: bool
    """Whether the clock ended the search, not its work."""


def least_with_caches(model: CostModel, attributes: Attributes, enough: float, deadline: Deadline, least: float = 0.0) -> LeastWithCaches:
    """A lower bound of the CPU of every plan; a bound above `enough`, the CPU of a plan that is known or a cap, would be of no more use.

    `least` is a bound that is known already.
    """
    ledger = Ledger(model)
    known = enough - ledger.common
    if not math.isfinite(enough) or known <= 0.0 or deadline.expired() or len(model.graph.edges) > MOST_PREDICATES:
        return LeastWithCaches(0.0, False)
    steps = _steps(model, deadline.granted, least >= enough * (1.0 - CLOSE))
    if not steps:
        return LeastWithCaches(0.0, False)
    keys = key_classes(attributes, model.costs.insert + model.costs.delete)
    of_star = least_of_star(model, keys, enough, deadline) if len(model.graph) >= MAX_STREAMS else 0.0
    if of_star * ROUNDED >= enough or (of_star and len(model.graph) > MAX_STREAMS):
        return LeastWithCaches(of_star, False)
    found = cheapest(ledger, known, deadline, Effort(SHARE, steps), keys=keys)
    return LeastWithCaches(max(of_star, (ledger.common + found.bound) * SUMMED_DOWN if found.bound else 0.0), found.cut)


def _steps(model: CostModel, granted: float, close: bool) -> int:
    """How much work the bound is worth, by the seconds granted and by whether it is `close` already."""
    graph = model.graph
    most, beyond = (int(STEPS_PER_SECOND * min(WORK_SHARE * seconds, MOST_SECONDS)) for seconds in (granted, max(0.0, granted - SOON)))
    if len(graph) > MAX_BITS or not (close or len(graph) > MAX_STREAMS):
        return most
    of_a_cycle = len(graph) * (len(graph) - 1) + 1  # of all graphs without a stream of three neighbours those have the most connected sets
    few = list_connected(np.array(graph.neighbours, np.int64), of_a_cycle + 1)[0].size  # 0: it has more
    return beyond if few else most


def key_classes(attributes: Attributes, update: float) -> KeyClasses:
    """What caches may be looked up by; `update` is what a tuple costs that is put into one."""
    graph, distinct = attributes.graph, attributes.distinct
    n = len(graph)
    members = _classes(attributes)
    number = {a: k for k, listed in enumerate(members) for a in listed}
    # Parts of a key that have less than one value make it rarer than its rarest part: all of them count, whatever the key.
    scarce = math.prod(min(1.0, distinct[a]) for a in number)
    pace = {a: scarce * distinct[a] / graph.window_seconds[a[0]] for a in number}
    slowest = [sorted((pace[a], a[0]) for a in listed) for listed in members]
    predicates = Counter(number[left] for left, _, equality in attributes.sides if equality)
    new_values: list[dict[int, float]] = [{} for _ in range(n)]
    for a, k in number.items():
        new_values[a[0]][k] = min(new_values[a[0]].get(k, math.inf), pace[a])
    rows: list[list[tuple[int, int]]] = [[] for _ in range(n)]
    for p, (left, right, _) in enumerate(attributes.sides):
        rows[left[0]].append((p, 0))
        rows[right[0]].append((p, 1))
    listed_at = {end: e for e, end in enumerate(end for row in rows for end in row)}
    ends, reverse, classes, new_here, values = [], [], [], [], []
    for p, side in listed_at:
        left, right, equality = attributes.sides[p]
        here, there = (right, left) if side else (left, right)
        k = number[here] if equality else -1
        ends.append(there[0])
        reverse.append(listed_at[p, 1 - side])
        classes.append(k)
        new_here.append(math.inf if k < 0 else next(value for value, stream in slowest[k] if stream != there[0]))
        values.append(max(1.0, distinct[here]) if predicates[k] == 1 else 0.0)
    return KeyClasses(
        allowed=True,
        first=np.cumsum([0, *map(len, new_values)], dtype=np.int64),
        class_of=np.array([k for row in new_values for k in row], np.int64),
        new_values=np.array([value for row in new_values for value in row.values()], np.float64),
        first_predicate=np.cumsum([0, *map(len, rows)], dtype=np.int64),
        ends=np.array(ends, np.int64),
        reverse=np.array(reverse, np.int64),
        predicate_class=np.array(classes, np.int64),
        new_here=np.array(new_here, np.float64),
        values=np.array(values, np.float64),
        scarce=scarce,
        update=update,
        listed=np.empty(n, np.int64),
        owner=np.full(n, -1, np.int64),
        least=np.empty(len(members)),
    )


def _classes(attributes: Attributes) -> list[list[Attribute]]:
    """The attributes of equalities, those that equalities connect in any way together."""
    found: dict[Attribute, list[Attribute]] = {}
    for left, right, equality in attributes.sides:
        if equality:
            one, other = found.setdefault(left, [left]), found.setdefault(right, [right])
            if one is not other:
                one += other
                found.update(dict.fromkeys(other, one))
    return [sorted(listed) for a, listed in sorted(found.items()) if a == min(listed)]

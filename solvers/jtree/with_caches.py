"""A lower bound of the CPU of all plans, those with caches included, for graphs of any size.

Problem: a lower bound of the CPU of every join tree, with every probe order and every choice of caches. Method: caches answer runs of two probes or
more inside joins of three inputs or more, so only such joins cost less with them; the search by rising cost (`cheapest_first`) is run with prices of
these that no choice of caches goes below (`compiled.cached_families`), from the plan that is known. Where its bound reaches that plan, no cache pays in
any tree, and the plan is the best of all.

Guarantee: never above the CPU of any plan. Nothing is said where `cheapest_first` says nothing: observed sub-joins, tables, graphs that are not
connected. Complexity: that of `cheapest_first`; work is counted by the seconds granted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from solvers.common.deadline import Deadline
from solvers.common.tolerances import SUMMED_DOWN
from solvers.jtree.cheapest_first import cheapest
from solvers.jtree.compiled.key_classes import KeyClasses
from solvers.jtree.compiled.ledger import Ledger
from solvers.model.attributes import Attribute, Attributes
from solvers.model.cost import CostModel

__all__ = ["LeastWithCaches", "key_classes", "least_with_caches"]

SHARE = 0.8  # of the time that is left; the rest is for choosing caches


@dataclass(frozen=True, slots=True)
class LeastWithCaches:
    """What is known of the CPU of all plans."""

    cpu: float
    """No plan needs less; 0 where nothing is known."""
    cut: bool
    """Whether the clock ended the search, not its work."""


def least_with_caches(model: CostModel, attributes: Attributes, enough: float, deadline: Deadline) -> LeastWithCaches:
    """A lower bound of the CPU of every plan; a bound above `enough`, the CPU of a plan that is known or a cap, would be of no more use."""
    ledger = Ledger(model)
    known = enough - ledger.common
    if not math.isfinite(enough) or known <= 0.0 or deadline.expired():
        return LeastWithCaches(0.0, False)
    found = cheapest(ledger, known, deadline, SHARE, keys=key_classes(attributes, model.costs.insert + model.costs.delete))
    return LeastWithCaches((ledger.common + found.bound) * SUMMED_DOWN if found.bound else 0.0, found.cut)


def key_classes(attributes: Attributes, update: float) -> KeyClasses:
    """What caches may be looked up by; `update` is what a tuple that is put into one costs."""
    graph = attributes.graph
    n = len(graph)
    root = {a: a for left, right, equality in attributes.sides if equality for a in (left, right)}

    def first(a: Attribute) -> Attribute:
        while root[a] != a:
            root[a] = a = root[root[a]]
        return a

    predicates: list[list[tuple[int, Attribute | None]]] = [[] for _ in range(n)]
    for left, right, equality in attributes.sides:
        if equality:
            low, high = sorted((first(left), first(right)))
            root[high] = low
        for a, b in ((left, right), (right, left)):
            predicates[a[0]].append((b[0], a if equality else None))
    number = {a: k for k, a in enumerate(sorted({first(a) for a in root}))}
    # Parts of a key that have less than one value make it rarer than its rarest part: all of them count, whatever the key.
    scarce = math.prod(min(1.0, attributes.distinct[a]) for a in root)
    new_values: list[dict[int, float]] = [{} for _ in range(n)]
    for a in root:
        values, here = new_values[a[0]], number[first(a)]
        values[here] = min(values.get(here, math.inf), scarce * attributes.distinct[a] / graph.window_seconds[a[0]])

    by_class: dict[int, list[tuple[float, int]]] = {}
    for a in root:
        by_class.setdefault(number[first(a)], []).append((attributes.distinct[a] / graph.window_seconds[a[0]], a[0]))
    for listed in by_class.values():
        listed.sort()

    def slowest(a: Attribute | None, other: int) -> float:
        """The least new values a second of an attribute's class in all streams but one."""
        return math.inf if a is None else next(value for value, stream in by_class[number[first(a)]] if stream != other)

    return KeyClasses(
        allowed=True,
        first=np.cumsum([0, *map(len, new_values)], dtype=np.int64),
        class_of=np.array([k for values in new_values for k in values], np.int64),
        new_values=np.array([value for values in new_values for value in values.values()], np.float64),
        first_predicate=np.cumsum([0, *map(len, predicates)], dtype=np.int64),
        ends=np.array([b for listed in predicates for b, _ in listed], np.int64),
        predicate_class=np.array([-1 if a is None else number[first(a)] for listed in predicates for _, a in listed], np.int64),
        new_here=np.array([scarce * slowest(a, b) for listed in predicates for b, a in listed], np.float64),
        new_there=np.array([scarce * slowest(a, i) for i, listed in enumerate(predicates) for _, a in listed], np.float64),
        update=update,
        listed=np.empty(n, np.int64),
        owner=np.full(n, -1, np.int64),
        least=np.empty(len(number)),
    )

"""What a cache is looked up by: attributes of streams already visited that predicates equate with attributes of the segment.

Two attributes are one *class* inside a set of streams where equality predicates inside that set connect them: in every
tuple of its join they have one value. The key of a segment X after the streams P were visited has one part per class
of X that a predicate between P and X touches. It can be looked up when every such predicate is an equality, and
all P-sides of one part are one class of P: then one value decides, and v = σ_{key=u}(X) is exactly what joins (paper 1 §3.2).

Departs from the paper, which speaks of join attributes only. By classes, two caches share their entries where their keys must have equal
values, and do not where keys only look alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from models.request import Comparison, Query
from solvers.model.graph import JoinGraph, inputs_of

__all__ = ["Attribute", "Attributes", "Key"]

Attribute = tuple[int, str]
"""(stream position, attribute name)."""


@dataclass(frozen=True, slots=True)
class Key:
    """One part per class: the segment's side, named by its first attribute, and the visited side with all its equals."""

    parts: tuple[Attribute, ...]
    lookup: tuple[Attribute, ...]
    """For each part, the visited attribute that a predicate equates with it."""
    equals: tuple[tuple[Attribute, ...], ...]
    """For each part, every visited attribute that has the same value."""


@dataclass(frozen=True)
class Attributes:
    """The attributes of a query's predicates, and how many distinct values they have."""

    graph: JoinGraph
    sides: tuple[tuple[Attribute, Attribute, bool], ...]
    """For each predicate its two sides, and whether it is an equality."""
    distinct: dict[Attribute, float]
    """Distinct values in the window, for every attribute of an equality predicate; never more than the window holds."""
    _classes: dict[int, dict[Attribute, Attribute]] = field(default_factory=dict, compare=False, repr=False)
    _keys: dict[tuple[int, int], Key | None] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(cls, query: Query, graph: JoinGraph) -> Attributes:
        """The attributes of a query. Where `distinct` is not given, it is 1/selectivity: since σ = 1/max(distinct), no side has more values."""
        position = {name: i for i, name in enumerate(graph.names)}
        given = {(i, name): count for i, entry in enumerate(inputs_of(query)) for name, count in entry.distinct.items()}
        sides = []
        estimated: dict[Attribute, float] = {}
        for predicate, edge in zip(query.predicates, graph.edges, strict=True):
            pair = []
            for side in (predicate.left, predicate.right):
                stream, attribute = side.split(".", 1)
                pair.append((position[stream], attribute))
            equality = predicate.op is Comparison.EQ
            sides.append((pair[0], pair[1], equality))
            if equality:
                for attribute_ in pair:
                    estimated[attribute_] = min(estimated.get(attribute_, math.inf), 1.0 / edge.selectivity)
        distinct = {a: min(given.get(a, value), graph.window_tuples[a[0]]) for a, value in estimated.items()}
        return cls(graph, tuple(sides), distinct)

    def measured_anew(self, query: Query, graph: JoinGraph) -> Attributes:
        """The attributes of the same query with other statistics. Classes and keys do not depend on those, and are not worked out twice."""
        return replace(Attributes.of(query, graph), _classes=self._classes, _keys=self._keys)

    def name(self, attribute: Attribute) -> str:
        return f"{self.graph.names[attribute[0]]}.{attribute[1]}"

    def classes(self, mask: int) -> dict[Attribute, Attribute]:
        """For every attribute of an equality predicate inside `mask` the first attribute of its class there."""
        found = self._classes.get(mask)
        if found is None:
            parent: dict[Attribute, Attribute] = {}

            def root(a: Attribute) -> Attribute:
                while parent.setdefault(a, a) != a:
                    a = parent[a]
                return a

            for left, right, equality in self.sides:
                if equality and mask >> left[0] & 1 and mask >> right[0] & 1:
                    first, second = sorted((root(left), root(right)))
                    parent[second] = first
            found = self._classes[mask] = {a: root(a) for a in sorted(parent)}
        return found

    def _across(self, left: int, right: int) -> Iterator[tuple[Attribute, Attribute, bool]]:
        """The predicates between two sets, the left set's side first."""
        for a, b, equality in self.sides:
            if left >> a[0] & 1 and right >> b[0] & 1:
                yield a, b, equality
            elif left >> b[0] & 1 and right >> a[0] & 1:
                yield b, a, equality

    def key(self, visited: int, segment: int) -> Key | None:
        """What `segment` is looked up by after `visited`; None where it cannot be."""
        if (visited, segment) not in self._keys:
            self._keys[visited, segment] = self._key(visited, segment)
        return self._keys[visited, segment]

    def _key(self, visited: int, segment: int) -> Key | None:
        inside, before = self.classes(segment), self.classes(visited)
        found: dict[Attribute, Attribute] = {}
        for outer, inner, equality in self._across(visited, segment):
            if not equality:
                return None
            part = inside.get(inner, inner)
            known = found.setdefault(part, outer)
            if before.get(known, known) != before.get(outer, outer):
                return None
            found[part] = min(known, outer)
        if not found:
            return None
        parts = tuple(sorted(found))
        lookup = tuple(found[part] for part in parts)
        equals = tuple(tuple(a for a in {outer: outer, **before} if before.get(a, a) == before.get(outer, outer)) for outer in lookup)
        return Key(parts, lookup, equals)

    def read_from(self, key: Key, arriving: int, others: int) -> Key | None:
        """The same key, with each part read from `arriving` where that has an attribute of its value.

        None unless there are predicates between `arriving` and `others` and the key fixes `arriving`'s side of all of them. Then any two tuples
        of `arriving` with one key have the same partners in `others`.
        """
        fixed = {a for equals in key.equals for a in equals}
        across = list(self._across(arriving, others))
        if not across or not all(equality and a in fixed for a, _, equality in across):
            return None
        own = [tuple(a for a in equals if arriving >> a[0] & 1) or equals for equals in key.equals]
        lookup = [known if known in equals else equals[0] for known, equals in zip(key.lookup, own, strict=True)]
        return Key(key.parts, tuple(lookup), tuple(own))

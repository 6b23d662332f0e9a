"""What caches of large graphs are looked up by, compiled: of every attribute how many of its values are new a second.

Problem: a lookup misses at least as often as its key is new, so what a cache can save follows from the attributes it is looked up by. Method:
attributes that equalities connect, one after another, are one class, in the whole graph; a value of a class may be read from any stream visited that
has an attribute of it. Of a key of several parts at least as many values are new as of any one of them; where each part can be read from one
attribute alone, as many as `solvers.caches.figures` says: the product over streams of their values, no more than a window holds, in the shortest of
the windows. More streams visited, or more in the run, only add parts.

Guarantee: classes inside a set of streams (`cached.classify`) are parts of these, so that the least over a class is never above the least over its
part: what follows is a bound. Complexity: O(predicates) for a graph, O(predicates of its streams) for a set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solvers.jtree.compiled.compiling import Floats, Ints, compiled
from solvers.jtree.compiled.sets import MAX_BITS, lowest

__all__ = ["KeyClasses", "list_streams", "no_key_classes", "rarest_key"]


class KeyClasses(NamedTuple):
    """The attributes of every stream by class, and its predicates."""

    allowed: bool
    """Whether there may be caches."""
    first: Ints
    """Stream i has attributes of the classes class_of[first[i] : first[i + 1]]."""
    class_of: Ints
    new_values: Floats
    """The least new values a second of these attributes, and of all keys that they are part of."""
    first_predicate: Ints
    """Stream i's predicates are first_predicate[i] to first_predicate[i + 1]; of each the other stream, and the class, −1 where it is no equality."""
    ends: Ints
    reverse: Ints
    """The same predicate in the row of the other stream."""
    predicate_class: Ints
    new_here: Floats
    """Of a predicate: at least so many new values a second has its class in any streams, this one among them and the other not; infinity where it is
    no equality."""
    values: Floats
    """Of a predicate: how many values its attribute here has, at least 1, where no other predicate is of its class; else 0."""
    scarce: float
    """The product of the values of all attributes that have less than one: what makes a key rarer than its parts."""
    update: float
    """insert + delete: of a tuple that is put into a cache and taken out again."""
    listed: Ints
    """Room to list streams; then room for a figure by stream, −1 between uses, and for one by class."""
    owner: Ints
    least: Floats


def no_key_classes(streams: int) -> KeyClasses:
    """Of a search without caches."""
    none, nowhere = np.empty(0, np.int64), np.zeros(streams + 1, np.int64)
    return KeyClasses(False, nowhere, none, np.empty(0), nowhere, none, none, none, np.empty(0), np.empty(0), 1.0, 0.0, none, none, np.empty(0))


@compiled
def list_streams(mask: Ints, into: Ints) -> int:
    """The streams of a set; returns their number."""
    many = 0
    for w in range(mask.size):
        left = mask[w]
        while left:
            into[many] = w * MAX_BITS + lowest(left)
            left &= left - 1
            many += 1
    return many


@compiled
def rarest_key(keys: KeyClasses, mask: Ints) -> float:
    """The fewest new keys a second of any lookup by what a set of streams has; infinity where no equality leads out of it."""
    many = list_streams(mask, keys.listed)
    for i in keys.listed[:many]:
        for a in range(keys.first[i], keys.first[i + 1]):
            keys.least[keys.class_of[a]] = np.inf
    for i in keys.listed[:many]:
        for a in range(keys.first[i], keys.first[i + 1]):
            keys.least[keys.class_of[a]] = min(keys.least[keys.class_of[a]], keys.new_values[a])
    rarest = np.inf
    for i in keys.listed[:many]:
        for p in range(keys.first_predicate[i], keys.first_predicate[i + 1]):
            j = keys.ends[p]
            if keys.predicate_class[p] >= 0 and not mask[j // MAX_BITS] >> (j % MAX_BITS) & 1:
                rarest = min(rarest, keys.least[keys.predicate_class[p]])
    return float(rarest)

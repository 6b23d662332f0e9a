"""What a cache saves, costs and holds (paper 1 §4.1, §4.4, App. A), from the cost model of contract §1.

Operator l of a pipeline processes d_l tuples per second at c_l each; d·c is the priced probe's CPU. What a probe step costs whatever its tuples
(`Costs.step`) is paid with a cache as without: misses are probed in the same batch, and the lookup is a step of its own. With
X the segment's streams, P what was visited before it, u its key:

    update_cost = insert + delete                     every tuple put into a cache is taken out again
    probe_cost  = probe + (1 − miss) · join · d_{k+1}/d_j       a hit makes the joined tuples from the entry
    proc        = d_j·probe_cost + miss·(Σ d·c + d_{k+1}·update_cost)
    benefit     = Σ d·c − proc
    cost        = update_cost · rate(Z), with Z = X, or X ∪ Y for a globally-consistent cache X ⋉ Y

An entry lives as long as its key occurs in the window it is read from. Of a key part with D distinct values in a window
of T seconds, D/T values per second are new, and each new one misses once, however often it is looked up after that:

    miss    = min(1, Π D / (d_j · T)),       entries = miss · d_j · T

with the least D/T of the attributes that have the part's value, T the shortest of the parts' windows, and the parts on
one stream together at most its window. At the first step this is the paper's b/W_d with the window as W_d. Where `distinct`
is missing, D is 1/selectivity.

A cache with a share of its memory keeps that share of its entries and hits; what misses is still put in, in another's place.

Limits: values are taken to come in the order of the window and not to return; where they are drawn anew at random, misses are
fewer (for equal draws (1 − 1/N)^w ≤ D/w always), so that a cache is never better on paper than in fact for that
reason. Parts of a key count as independent, which again is the worst case. Hits by entries that another pipeline made are
not counted. Skew makes hits more likely than this.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from solvers.model.attributes import Attributes, Key
from solvers.model.cost import CostModel

__all__ = ["ENTRY_BYTES", "Figures", "Traffic", "figures", "processing", "update_cost"]

ENTRY_BYTES = 32.0  # a slot of a hash table: the key's hash, a reference, a length, a time


class Traffic(NamedTuple):
    """What goes through a segment of a pipeline per second, without a cache."""

    lookups: float
    """d_j: tuples that enter it; each would look the cache up."""
    results: float
    """d_{k+1}: tuples that leave it."""
    replaced: float
    """Σ d·c: its CPU-seconds, which a hit saves."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A cache's figures; CPU-seconds per second where nothing else is said."""

    replaced: float
    """Σ d·c: the segment without the cache."""
    proc: float
    update: float
    """The paper's cost: keeping the entries up to date."""
    miss_probability: float
    entries: float
    tuples: float
    """Tuples of X in all entries."""
    memory_bytes: float
    lookups: float
    """d_j: tuples per second that look the cache up."""
    results: float
    """d_{k+1}: tuples per second that leave the segment."""

    @property
    def benefit(self) -> float:
        return self.replaced - self.proc

    def with_share(self, model: CostModel, share: float) -> Figures:
        """The same cache with a share of its memory: that share of its entries, and so of its hits."""
        miss = 1.0 - share * (1.0 - self.miss_probability)
        proc = processing(model, Traffic(self.lookups, self.results, self.replaced), miss)
        return replace(
            self, proc=proc, miss_probability=miss, entries=share * self.entries, tuples=share * self.tuples, memory_bytes=share * self.memory_bytes
        )


def processing(model: CostModel, flow: Traffic, miss: float) -> float:
    """The paper's proc: what goes through a segment costs with a cache that misses this share of its lookups."""
    costs, (lookups, results, replaced) = model.costs, flow
    return lookups * costs.probe + (1.0 - miss) * costs.join * results + miss * (replaced + results * update_cost(model))


def update_cost(model: CostModel) -> float:
    return model.costs.insert + model.costs.delete


def _new_keys(attributes: Attributes, key: Key) -> tuple[float, float]:
    """(distinct keys, seconds in which all of them are replaced)."""
    graph = attributes.graph
    by_stream: dict[int, float] = {}
    seconds = 0.0
    for lookup, equals in zip(key.lookup, key.equals, strict=True):
        stream, name = min(
            (a for a in equals if a in attributes.distinct), key=lambda a: (attributes.distinct[a] / graph.window_seconds[a[0]], a), default=lookup
        )
        span = graph.window_seconds[stream]
        by_stream[stream] = min(graph.window_tuples[stream], by_stream.get(stream, 1.0) * attributes.distinct[stream, name])
        seconds = min(seconds, span) if seconds else span
    distinct = 1.0
    for count in by_stream.values():
        distinct *= count
    return distinct, seconds


def figures(model: CostModel, attributes: Attributes, key: Key, flow: Traffic, segment: int, kept: int) -> Figures:
    """The figures of a cache of `segment` that is looked up by `key` and kept up to date from the join of `kept`."""
    lookups, results, replaced = flow
    distinct, seconds = _new_keys(attributes, key)
    chances = lookups * seconds
    miss = min(1.0, distinct / chances) if chances > 0.0 else 1.0
    # A key that comes from a table has its values once and for all.
    entries = miss * chances if math.isfinite(seconds) else distinct
    tuples = min(entries * (results / lookups), model.size(segment)) if lookups > 0.0 else 0.0
    return Figures(
        replaced,
        processing(model, flow, miss),
        update_cost(model) * model.rate(kept),
        miss,
        entries,
        tuples,
        entries * ENTRY_BYTES + tuples * model.tuple_bytes(segment),
        lookups,
        results,
    )

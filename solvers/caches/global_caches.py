"""Globally-consistent caches (paper 1 §6).

Problem: segments X that do not obey the prefix invariant have no step at which all their updates pass by. X ⋉ Y does, where
Z = X ∪ Y obeys it: new tuples of Z say which tuples of X matter. The set of all inputs always obeys it.
Method: for every other segment the Z whose new tuples are the fewest. The quota rule: of at most `quota` candidates the
prefix caches come first; then segments of all but one input, all but two, and so on, in order of pipeline and step.

Soundness (Def. 6.1 holds): an entry is complete when it is made, because a miss computes all of σ_{key=u}(X). A later x is put into it
by whichever tuple of Z is formed last. If the arriving input is not in Y, every x that a result needs has its partners
of Y in that very result, so it was put in. If it is in Y, the partner may be an earlier tuple of the same key: then the key must
fix the arriving side of all its predicates with the rest of Z, it is read from that input as far as it can be, and the
entry must die with the last tuple of that input that carries it.
Departs from the paper, which allows Y to hold the arriving input always: with predicates beside the key that loses results.
"""

from __future__ import annotations

from solvers.caches.candidates import CacheCandidate, Pipelines, candidate, prefix_candidates, prefix_sets, streams_of
from solvers.common.deadline import NEVER, Deadline
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel

__all__ = ["QUOTA", "global_candidates"]

QUOTA = 64  # the exact method can choose among more candidates than the paper's exhaustive search, whose m was 6 (§7.3)


def global_candidates(
    model: CostModel, attributes: Attributes, pipelines: Pipelines, deadline: Deadline = NEVER, quota: int = QUOTA
) -> list[CacheCandidate]:
    """Prefix candidates, and globally-consistent ones up to the quota, or until time runs out."""
    found = prefix_candidates(model, attributes, pipelines, deadline)
    closed = [(positions, streams_of(pipelines.join, positions)) for positions in prefix_sets(pipelines)]
    obeying = {mask for _, mask in closed}
    closed.sort(key=lambda entry: (model.rate(entry[1]), entry[1]))
    n = len(pipelines.join.blocks)
    for length in range(n - 1, 1, -1):
        for k in range(n):
            for first in range(n - length):
                if len(found) >= quota or deadline.expired():
                    return sorted(found, key=lambda c: (c.pipeline, c.first, c.last))
                last = first + length - 1
                segment = pipelines.after[k][last + 1] & ~pipelines.after[k][first]
                if segment in obeying:
                    continue
                for kept in (mask for _, mask in closed if segment & ~mask == 0):
                    if deadline.expired():
                        break
                    if (made := candidate(model, attributes, pipelines, k, first, last, kept)) is not None:
                        found.append(made)
                        break
    return sorted(found, key=lambda c: (c.pipeline, c.first, c.last))

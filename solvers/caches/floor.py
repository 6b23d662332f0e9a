"""A lower bound of the CPU of all plans, those with caches included, for small graphs.

Problem: a lower bound of the CPU of every plan that a small graph allows: every join tree, every probe order, every choice of caches.
Method: dynamic programming over connected sets as without caches, with a bound in place of the cost of each multi-way join. A join keeps
its states; each of its pipelines is a shortest path over the sets of inputs it has visited, by single probes or by runs of two and more
that a cache answers. The path relaxes what caches ask for: no prefix invariant, the fewest misses of any way to keep the cache, all the
memory it could use, and of its upkeep (the cheapest of all joins it could be kept from) the part that falls to one pipeline where
all that could share it do.
Guarantee: never above the CPU of any plan with or without caches; it is that of the best tree where no cache can pay.
Complexity: O(3^m · m) per join of m inputs, for every way to split every connected set: up to MAX_JOINS joins of three inputs and more.
"""

from __future__ import annotations

import math

from solvers.caches.figures import update_cost
from solvers.caches.joint_orders import CacheableJoin
from solvers.common.deadline import Deadline
from solvers.common.tolerances import SUMMED
from solvers.model.attributes import Attributes
from solvers.model.connected import connected_sets, partitions
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.probe_order import best_join

__all__ = ["least_cpu_of_all"]

MAX_STREAMS = 6  # beyond that only the sparsest graphs have few enough joins
MAX_JOINS = 100  # of three inputs and more: cliques of five streams have 81; about half a millisecond each


def least_cpu_of_all(model: CostModel, attributes: Attributes, enough: float, deadline: Deadline) -> float | None:
    """A lower bound of every plan's CPU; None where the graph is too large or time is over.

    A bound above `enough` would be of no more use, so a join whose bound reaches it is not looked into further.
    """
    graph = model.graph
    if graph.tables or len(graph.components) > 1 or len(graph) > MAX_STREAMS:
        return None
    best: dict[int, float] = {1 << i: 0.0 for i in range(len(graph))}
    wide = 0
    sets = [mask for i in bits(graph.all) for mask in connected_sets(graph.neighbours, 1 << i, graph.all & -(1 << i)) if mask & (mask - 1)]
    for union in sorted(sets, key=lambda mask: (mask.bit_count(), mask)):
        least = math.inf
        for blocks in partitions(graph.neighbours, union):
            below = math.fsum(best[block] for block in blocks)
            if len(blocks) == 2:
                least = min(least, below + best_join(model, blocks).cpu)
                continue
            if below + _states_and_output(model, blocks, union) >= min(least, enough):
                least = min(least, enough)
                continue
            wide += 1
            if wide > MAX_JOINS or deadline.expired():
                return None
            least = min(least, below + _join_floor(model, attributes, blocks))
        best[union] = least
    return best[graph.all] / SUMMED


def _states_and_output(model: CostModel, blocks: tuple[int, ...], union: int) -> float:
    """What no cache saves in a join of three inputs or more: its states and its output."""
    return math.fsum([model.costs.join * model.rate(union), *(_keeping(model, block, union) for block in blocks)])


def _keeping(model: CostModel, block: int, union: int) -> float:
    """At least what the state of one input costs: with an index where every probe of it is by hash, else whichever is cheaper."""
    costs, graph = model.costs, model.graph
    indexed = costs.insert + costs.delete
    scanned = any(not graph.edges[p].equality for p in graph.between(block, union & ~block))
    return (min(costs.append, indexed) if scanned else indexed) * model.rate(block)


def _join_floor(model: CostModel, attributes: Attributes, blocks: tuple[int, ...]) -> float:
    """A lower bound of the CPU of one join, its pipelines free to use any cache."""
    join = CacheableJoin(model, attributes, blocks)
    m = len(blocks)
    states = [_keeping(model, block, sum(blocks)) for block in blocks]
    upkeep = _upkeep(join, m)
    return math.fsum([*states, *(_path_floor(join, k, m, upkeep) for k in range(m))])


def _upkeep(join: CacheableJoin, m: int) -> dict[int, float]:
    """For every set of inputs that a cache could hold, the part of its cheapest upkeep that one of all pipelines that could use it bears."""
    model = join.model
    connected = [union for union in range(1, 1 << m) if union & (union - 1) and model.graph.connected(join.streams[union])]
    rates = {union: model.rate(join.streams[union]) for union in connected}
    shares = {}
    for segment in connected:
        users = m - segment.bit_count()
        if users:
            least = min(rate for union, rate in rates.items() if segment & ~union == 0)
            shares[segment] = update_cost(model) * least / users
    return shares


def _path_floor(join: CacheableJoin, k: int, m: int, upkeep: dict[int, float]) -> float:
    """The cheapest way of pipeline k through all inputs, by probes and by caches that bear their part of the upkeep."""
    every, rate = (1 << m) - 1, join.per_second[k]
    least = {1 << k: 0.0}
    for visited in range(1 << k, every):
        cost = least.get(visited)
        if cost is None:
            continue
        for _, union, step in join.steps[visited]:
            least[union] = min(least.get(union, math.inf), cost + step * rate)
        for segment, share in upkeep.items():
            if segment & visited:
                continue
            found = join.cache(k, visited, (segment, segment))
            if found is not None:
                union = visited | segment
                least[union] = min(least.get(union, math.inf), cost + found[0].proc + share)
    return least.get(every, math.inf)

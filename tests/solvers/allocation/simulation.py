"""A plan run tuple by tuple under allowances, to see whether it yields what was promised.

Arrivals are evenly spaced or Poisson, join keys uniform, as many as 1/selectivity. A stream's window keeps what its length
says; a kept subresult keeps its newest size(S) tuples (paper 2). A tuple is always kept; whether it goes on to probe a step
is decided by that step's share. What is older than its freshness predicate is purged (paper 2 §4.2), so no result holds
it; how many results that costs is counted.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from models.request import Costs
from solvers.allocation.heuristics import Flow
from solvers.allocation.productivity import Path
from solvers.model.cost import PricedTree
from solvers.model.graph import JoinGraph

__all__ = ["HalfWayKey", "Outcome", "shares_of_flow", "shares_of_streams", "simulate"]

HalfWayKey = tuple[int, int, int]
"""(number of the join, position of the input, step of its pipeline)."""
Part = tuple[float, tuple[int, ...]]
"""Arrival time and one key per predicate."""
Row = dict[int, Part]
"""A part for every stream that has been joined."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured after the warm-up."""

    throughput: float
    """Results per second."""
    purged: float
    """Results per second that were lost because a part was older than its predicate allows."""
    cpu: float
    """CPU-seconds per second, by the cost constants."""
    oldest: tuple[float, ...]
    """Age of the oldest part of each stream in any result."""

    @property
    def stale_share(self) -> float:
        return self.purged / (self.throughput + self.purged) if self.purged else 0.0


@dataclass(slots=True)
class State:
    """Rows in the order they came, and by key of every predicate that leads in."""

    stream: int | None
    capacity: int
    seconds: float | None
    rows: deque[Row] = field(default_factory=deque)
    index: dict[tuple[int, int], deque[Row]] = field(default_factory=dict)
    predicates: tuple[tuple[int, int], ...] = ()
    """(predicate, the stream of this state that it is on)."""

    def add(self, row: Row, now: float) -> None:
        self.rows.append(row)
        for p, stream in self.predicates:
            self.index.setdefault((p, row[stream][1][p]), deque()).append(row)
        self.expire(now)

    def expire(self, now: float) -> None:
        while self.rows and (len(self.rows) > self.capacity if self.seconds is None else self.rows[0][self.stream or 0][0] <= now - self.seconds):
            row = self.rows.popleft()
            for p, stream in self.predicates:
                self.index[p, row[stream][1][p]].popleft()


def simulate(
    graph: JoinGraph,
    costs: Costs,
    priced: PricedTree,
    shares: Mapping[HalfWayKey, float],
    freshness: Sequence[float],
    seconds: float,
    seed: int = 0,
    poisson: bool = False,
    kept: Mapping[int, int] | None = None,
) -> Outcome:
    """Run the plan with full shares until its states are full, with `shares` for twice as long, then measure for `seconds`.

    `kept` are subresults that keep another number of tuples than size(S).
    """
    rng = random.Random(seed)
    n = len(graph)
    domains = [max(1, round(1.0 / edge.selectivity)) for edge in graph.edges]
    states: dict[tuple[int, int], State] = {}
    entering: dict[int, tuple[int, int]] = {}
    for number, (node, join) in enumerate(zip(priced.nodes, priced.joins, strict=True)):
        for k, block in enumerate(join.blocks):
            entering[block] = (number, k)
            leaf = None if block.bit_count() > 1 else block.bit_length() - 1
            timed = leaf is not None and not graph.row_windows[leaf]
            outside = node.mask & ~block
            predicates = tuple(
                (p, edge.left if block >> edge.left & 1 else edge.right)
                for p, edge in enumerate(graph.edges)
                if block & edge.mask and outside & edge.mask
            )
            state = State(
                leaf, (kept or {}).get(block) or max(1, round(graph.size(block))), graph.window_seconds[leaf] if timed and leaf is not None else None
            )
            state.predicates = predicates
            states[number, k] = state

    def between(visited: int, target: int) -> list[tuple[int, int, int]]:
        """(predicate, its stream among the visited, its stream in the target)."""
        found = []
        for p in graph.between(visited, target):
            edge = graph.edges[p]
            found.append((p, edge.left, edge.right) if visited >> edge.left & 1 else (p, edge.right, edge.left))
        return found

    steps: dict[HalfWayKey, tuple[State, list[tuple[int, int, int]], bool]] = {}
    for number, join in enumerate(priced.joins):
        for k, pipeline in enumerate(join.pipelines):
            visited = join.blocks[k]
            for step, probe in enumerate(pipeline.probes):
                steps[number, k, step] = (states[number, probe.target], between(visited, join.blocks[probe.target]), probe.hashed)
                visited |= join.blocks[probe.target]

    longest = max(graph.window_seconds)
    full, measured = 2.0 * longest, 6.0 * longest
    end = measured + seconds
    spent, results, purged = 0.0, 0, 0
    oldest = [0.0] * n
    arrivals = [(rng.random() / graph.rates[i], i) for i in range(n)]
    heapq.heapify(arrivals)
    while True:
        now, stream = heapq.heappop(arrivals)
        if now > end:
            break
        heapq.heappush(arrivals, (now + (rng.expovariate(graph.rates[stream]) if poisson else 1.0 / graph.rates[stream]), stream))
        for state in states.values():
            if state.seconds is not None:
                state.expire(now)
        part: Part = (now, tuple(rng.randrange(domain) for domain in domains))
        cpu = 0.0
        waiting: list[tuple[Row, int]] = [({stream: part}, 1 << stream)]
        while waiting:
            row, block = waiting.pop()
            if block not in entering:
                ages = [now - row[i][0] for i in range(n)]
                if now <= measured:
                    continue
                if all(age <= limit for age, limit in zip(ages, freshness, strict=True)):
                    results += 1
                    oldest = [max(pair) for pair in zip(oldest, ages, strict=True)]
                else:
                    purged += 1
                continue
            number, k = entering[block]
            join = priced.joins[number]
            states[number, k].add(row, now)
            cpu += costs.insert + costs.delete if join.states[k].indexed else costs.append
            rows = [row]
            for step in range(len(join.pipelines[k].probes)):
                state, checks, hashed = steps[number, k, step]
                share = shares[number, k, step] if now > full else 1.0
                found: list[Row] = []
                for left in rows:
                    if share < 1.0 and rng.random() >= share:
                        continue
                    cpu += costs.probe + (0.0 if hashed else costs.scan * len(state.rows))
                    p, here, _ = checks[0]
                    for right in state.index.get((p, left[here][1][p]), ()):
                        if all(left[a][1][q] == right[b][1][q] for q, a, b in checks[1:]):
                            found.append({**left, **right})
                            cpu += costs.join
                rows = found
            waiting += [(made, priced.nodes[number].mask) for made in rows]
        if now > measured:
            spent += cpu
    return Outcome(results / seconds, purged / seconds, spent / seconds, tuple(oldest))


def shares_of_streams(priced: PricedTree, shares: Sequence[float]) -> dict[HalfWayKey, float]:
    """Shares of streams' tuples that may probe; whatever they make goes on."""
    return {
        (number, k, step): shares[child] if step == 0 and isinstance(child, int) else 1.0
        for number, (node, join) in enumerate(zip(priced.nodes, priced.joins, strict=True))
        for k, child in enumerate(node.inputs)
        for step in range(len(join.pipelines[k].probes))
    }


def shares_of_flow(priced: PricedTree, paths: Sequence[Path], flow: Flow) -> dict[HalfWayKey, float]:
    """What each half-way join lets through in a flow that drops tuples on the way; `paths` by stream, as `tables_of` gives them."""
    entering = {block: (number, k) for number, join in enumerate(priced.joins) for k, block in enumerate(join.blocks)}
    shares = dict.fromkeys(shares_of_streams(priced, [0.0] * len(paths)), 0.0)
    for i, path in enumerate(paths):
        block, keys = 1 << i, []
        while block in entering:
            number, k = entering[block]
            keys += [(number, k, step) for step in range(len(priced.joins[number].pipelines[k].probes))]
            block = priced.nodes[number].mask
        arriving = path.limit
        for key, step, passed in zip(keys, path.steps, flow.steps[i], strict=True):
            if arriving > 0.0:
                shares[key] = passed / arriving
            arriving = passed * step.productivity
    return shares

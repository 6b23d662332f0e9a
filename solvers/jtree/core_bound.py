"""What the start of a join tree costs: a lower bound for graphs in which sets become tiny once they hold enough streams.

Problem: a lower bound of the excess (`compiled.ledger`) of all join trees of a connected graph. `lower_bound` counts every set as the smallest that
there is around a stream; where cycles make some sets tiny, that is next to nothing. But a tree has to get there: some join of it is the first
with k streams. Method: least costs of making small connected sets, by dynamic programming over all of them up to k streams, with a relaxation for
wide joins. Guarantee: never above the least excess. Complexity: O(sets of up to k streams · neighbours · k). No paper of this project has it; the
argument follows.

Take any tree of n > k streams and go down from the root into an input with k streams or more, as long as there is one. The join N that this ends
at has k streams or more, and none of its inputs has. So the tree costs at least what N and all below it cost. Let f(S) be a bound of making S and
keeping it, 0 for a stream. Let B be the largest input of a join that makes S, with b streams.

1. Two inputs, the other one a single stream x: f(B) + this join + keeping S. As N it has just k streams.
2. Anything else. Every stream i outside B is an input itself or in one of at most b streams. Its arrivals are part of some set, of two to 2b
   streams, that is made before S is: its own input, or that input with the first one that it probes (there are three inputs then). That costs
   (join + probe) · μ/T_i at least, where μ is the smallest size of connected sets of two to 2b streams with i. And i itself is kept: with an index,
   unless a predicate of it is no equality, or it is scanned in a join of two below S, by a block of fewer than b streams. So S costs at least f(B)
   and these terms for all i outside B. As S is connected, its streams can be added to B one by one with every set on the way connected: a shortest
   path for each b.
3. Where all inputs are single streams, b = 1, every stream's arrivals pass a set of 2, 3, … streams, up to one fewer than the join has: the smallest
   connected sets with it of each of these numbers.

N has k streams at least, so in cases 2 and 3 the terms of some connected set of k streams are a bound. The bound is the best over all k. Where
sub-joins are observed, sizes are no products; there, and where the graph is not connected or has tables, it is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from solvers.common.deadline import NEVER, Deadline
from solvers.common.tolerances import SUMMED_DOWN
from solvers.model.cost import CostModel
from solvers.model.graph import bits

__all__ = ["core_excess"]

SETS_PER_SECOND = 10_000  # connected sets that are looked at, by the seconds granted: they take half of them
MOST_SECONDS = 10.0
HUGE = 1e200  # tuples of a set, from which products with it may leave the range of a double
MOST_STREAMS = 12  # of a set: those of more are rarely worth their number
LEAST_STREAMS = 4  # of the graph

Layer = dict[int, tuple[float, float]]
"""Connected sets of as many streams, each with its size and Σ 1/T."""


def core_excess(model: CostModel, deadline: Deadline = NEVER) -> float:
    """Excess that every join tree has at least; 0 where nothing is known by the deadline."""
    graph = model.graph
    if graph.observed or graph.tables or len(graph.components) > 1 or len(graph) < LEAST_STREAMS or deadline.expired():
        return 0.0
    layers = _layers(model, int(SETS_PER_SECOND * min(deadline.granted or 1.0, MOST_SECONDS)), deadline)
    best = 0.0
    if len(layers) > 1:
        best = _Costs.of(model, layers).least(layers, deadline)
    return best * SUMMED_DOWN if math.isfinite(best) else 0.0


def _layers(model: CostModel, most: int, deadline: Deadline) -> list[Layer]:
    """All connected sets by their number of streams, as long as they are not too many; always fewer streams than the graph has."""
    graph = model.graph
    near, windows = graph.neighbours, graph.window_tuples
    selectivity: list[dict[int, float]] = [{} for _ in graph.names]
    for edge in graph.edges:
        for a, b in ((edge.left, edge.right), (edge.right, edge.left)):
            selectivity[a][b] = selectivity[a].get(b, 1.0) * edge.selectivity
    layers: list[Layer] = [{1 << i: (windows[i], 1.0 / graph.window_seconds[i]) for i in range(len(graph))}]
    count = 0
    while len(layers) < min(MOST_STREAMS, len(graph) - 1):
        grown: Layer = {}
        for mask, (size, pace) in layers[-1].items():
            for x in bits(graph.around(mask)):
                union = mask | 1 << x
                if union not in grown:
                    factor = windows[x]
                    for y in bits(near[x] & mask):
                        factor *= selectivity[x][y]
                    grown[union] = size * factor, pace + 1.0 / graph.window_seconds[x]
                    if not size * factor < HUGE:
                        return layers
            if count + len(grown) > most or deadline.expired():
                return layers
        count += len(grown)
        layers.append(grown)
    return layers


@dataclass(frozen=True, slots=True)
class _Costs:
    """What streams add to joins, by their largest input."""

    model: CostModel
    indexed: float
    """Of keeping a tuple with an index, beyond what every plan pays; the same without one."""
    plain: float
    first: list[float]
    """Keeping a stream that is an input of a join of three or more."""
    smallest: list[list[float]]
    """By number of streams, then by stream: (join + probe)/T · the smallest connected set of so many with it."""
    added: list[list[float]]
    """By the streams of the largest input, then by stream: what it adds outside of that input."""

    @classmethod
    def of(cls, model: CostModel, layers: list[Layer]) -> _Costs:
        graph, costs, n = model.graph, model.costs, len(model.graph)
        base = min(costs.insert + costs.delete, costs.append)
        indexed, plain, made = costs.insert + costs.delete - base, costs.append - base, costs.join + costs.probe
        least = [[math.inf] * n for _ in range(len(layers) + 1)]
        slowest = [[math.inf] * n for _ in range(len(layers) + 1)]
        for count, layer in enumerate(layers, 1):
            for mask, (size, pace) in layer.items():
                for i in bits(mask):
                    least[count][i] = min(least[count][i], size)
                rate = size * pace
                for x in bits(graph.around(mask)):
                    slowest[count][x] = min(slowest[count][x], rate)
        always = [True] * n
        for edge in graph.edges:
            if not edge.equality:
                always[edge.left] = always[edge.right] = False
        first = [(indexed if always[i] else min(indexed, plain)) * graph.rates[i] for i in range(n)]
        weight = [made / seconds for seconds in graph.window_seconds]
        added: list[list[float]] = [[]]
        for b in range(1, len(layers)):
            row = []
            for i in range(n):
                arrivals = min((slowest[c][i] for c in range(1, b)), default=math.inf)
                scanned = plain * graph.rates[i] + costs.scan * arrivals * graph.window_tuples[i] if math.isfinite(arrivals) else math.inf
                around = min(least[c][i] for c in range(2, 2 * b + 1)) if 2 * b <= len(layers) else 0.0
                row.append(min(first[i], scanned) + (weight[i] * around if math.isfinite(around) else 0.0))
            added.append(row)
        smallest = [[weight[i] * size if math.isfinite(size) else 0.0 for i, size in enumerate(sizes)] for sizes in least]
        return cls(model, indexed, plain, first, smallest, added)

    def joined(self, rate: float, size: float, x: int) -> float:
        """The excess of a join of two, the second input being stream x, with the cheaper way to keep each."""
        graph, costs = self.model.graph, self.model.costs
        own, window = graph.rates[x], graph.window_tuples[x]
        probed = min(self.indexed * own, self.plain * own + costs.scan * rate * window)
        probing = min(self.indexed * rate, self.plain * rate + costs.scan * own * size)
        return probed + probing + costs.probe * (rate + own)

    def least(self, layers: list[Layer], deadline: Deadline) -> float:
        """The bound, from sets of two streams up; a deadline ends it early."""
        model, graph = self.model, self.model.graph
        kept = model.costs.join + min(model.costs.insert + model.costs.delete, model.costs.append)
        made: dict[int, float] = dict.fromkeys(layers[0], 0.0)
        paths: dict[int, list[float]] = {mask: [] for mask in layers[0]}
        best = 0.0
        for count in range(2, len(layers) + 1):
            joined, reached = self._grown(layers[count - 2], made, paths, count)
            here = math.inf
            for mask, (size, pace) in layers[count - 1].items():
                keeping, row = kept * size * pace, reached[mask]
                here = min(here, joined[mask] + keeping, *row)
                # The last path has added one stream alone: as a join of its own it is the join of two.
                joined[mask] = min(joined[mask], *row[:-1]) + keeping if count > 2 else joined[mask] + keeping
            best = max(best, here)
            made, paths = joined, reached
            if deadline.expired() or count == len(graph):
                break
        return best

    def _grown(
        self, layer: Layer, made: dict[int, float], paths: dict[int, list[float]], count: int
    ) -> tuple[dict[int, float], dict[int, list[float]]]:
        """For sets of one stream more: the least cost of joins of two with one stream, and of each path by the largest input that it began at."""
        graph = self.model.graph
        joined: dict[int, float] = {}
        reached: dict[int, list[float]] = {}
        passed = [math.fsum(self.smallest[c][i] for c in range(2, count)) for i in range(len(graph))]
        for mask, (size, pace) in layer.items():
            own, before = made[mask], paths[mask]
            # Of single streams all so far pass one set more.
            more = math.fsum(self.smallest[count - 1][i] for i in bits(mask)) if count > 2 else 0.0
            for x in bits(graph.around(mask)):
                union = mask | 1 << x
                cost = own + self.joined(size * pace, size, x)
                row = [path + self.added[b][x] for b, path in enumerate(before, 1)]
                if count == 2:
                    row = [self.first[mask.bit_length() - 1] + self.first[x]]
                else:
                    row[0] = before[0] + self.first[x] + passed[x] + more
                    row.append(own + self.added[count - 1][x])
                known = reached.get(union)
                if known is None:
                    joined[union], reached[union] = cost, row
                else:
                    joined[union] = min(joined[union], cost)
                    reached[union] = list(map(min, known, row))
        return joined, reached

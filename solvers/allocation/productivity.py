"""Half-way and path productivity (paper 2 §2 and §4.1), for path tables and for any plan.

A *half-way join* is one probe step: ρ_h tuples made per arriving tuple, and what an arriving tuple takes of the
resource. A *path* leads from one stream through the pipeline of its join and those of the joins above to the root. Per
input tuple φ_j = ρ_h1 ⋯ ρ_hj tuples leave its jth step, so it takes Σ_j unit_cost_j·φ_{j−1} and yields φ_n; their
ratio is the path productivity ρ_p (Eq. 5 to 8).

In a plan the productivities telescope: after an input tuple of stream i has visited the set U, φ = size(U)/w_i, and at
full rate that is size(U)/T_i tuples per second. A path's share p_i of its stream's arrivals therefore

    yields     p_i · size(all)/T_i                                                              results per second
    refreshes  p_i · size(S)/T_i                                          tuples per second of every subresult S ∋ i
    costs      p_i · (1/T_i) · Σ_steps [size(U)·(probe + scan·size(t) where scanned) + size(U∪t)·join]
               + p_i · (1/T_i) · Σ_subresults S on the way  size(S)·(insert + delete, or append)       CPU-seconds per second

while the streams' own windows are kept whatever the shares are: inserting is cheap and a tuple that is not kept is lost. What probe steps cost
whatever their rows is paid whatever the shares are, too, even where nothing is let in.
With all shares 1 that is the plan's CPU. With weight 1 per arriving tuple instead, it is the paper's count of probes.

Departs from paper 2: multi-way joins are paths too (a pipeline of several steps), and the resource is CPU time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import truediv
from typing import NamedTuple

from models.request import Costs
from solvers.model.cost import CostModel, PricedJoin, PricedTree
from solvers.model.graph import JoinGraph, bits
from solvers.model.operations import keeping, least_keeping, probe_steps, probing, stepping, times
from solvers.model.probe_order import best_join
from solvers.model.wide_join import are_wide, probing_along, sizes_along

__all__ = ["JoinParts", "KnownJoins", "Path", "PlanPaths", "Step", "Subresult", "path_of_steps", "paths_of_plan", "results_of", "visited_sizes"]

Inputs = tuple[int, ...]
"""Of a join: sets of streams."""


@dataclass(frozen=True, slots=True)
class Step:
    """One half-way join."""

    productivity: float
    unit_cost: float = 1.0
    operator: str = ""
    selectivity: float = 1.0


@dataclass(frozen=True, slots=True)
class Path:
    """A row of the path productivity table: what one unit takes and yields, and how many there are."""

    name: str
    resources: float
    output: float
    limit: float = math.inf
    steps: tuple[Step, ...] = ()
    arriving: tuple[float, ...] = ()
    """φ_0 … φ_{n−1}: tuples that arrive at each step per unit."""
    covers: dict[str, float] = field(default_factory=dict)
    """What one unit brings to each state."""

    @property
    def productivity(self) -> float:
        """ρ_p; infinity where a unit takes nothing."""
        return self.output / self.resources if self.resources > 0.0 else math.inf


def path_of_steps(name: str, rate: float, steps: Sequence[Step], covers: dict[str, float] | None = None) -> Path:
    """The path of one stream from its half-way joins; a unit is one input tuple per second.

    >>> path = path_of_steps("B", 100, [Step(5.0), Step(5.0)])
    >>> path.resources, path.output, path.arriving
    (6.0, 25.0, (1.0, 5.0))
    """
    arriving, current = [], 1.0
    for step in steps:
        arriving.append(current)
        current *= step.productivity
    resources = math.fsum(step.unit_cost * amount for step, amount in zip(steps, arriving, strict=True))
    return Path(name, resources, current, rate, tuple(steps), tuple(arriving), covers or {})


@dataclass(frozen=True, slots=True)
class Subresult:
    """A join whose output is kept, and so can go stale."""

    node: int
    """Its number among the plan's joins."""
    mask: int
    size: float


class PlanPaths(NamedTuple):
    """A plan seen from its streams, at full rates."""

    windows: tuple[float, ...]
    """T_i, in seconds."""
    cpu: tuple[float, ...]
    """What each path costs when all of its stream's tuples probe."""
    keeping: float
    """What the streams' own windows cost, whatever may probe, and probe steps, whatever their rows."""
    size: float
    """size(all): a share p_i yields p_i·size/T_i results per second."""
    subresults: tuple[Subresult, ...]
    """Inputs before users."""
    steps: float = 0.0
    """Of `keeping`, what probe steps cost."""


def visited_sizes(graph: JoinGraph, join: PricedJoin, sizes: dict[int, float]) -> list[list[float]]:
    """For each input the size of what its tuples have visited before each of their probes, and after the last. `sizes` has known ones and takes up
    new ones."""
    if are_wide(join.terms):
        along: list[list[float]] = sizes_along(graph, join.terms.layout).tolist()
        sizes.update({block: along[k][0] for k, block in enumerate(join.blocks)})
        sizes[sum(join.blocks)] = along[0][-1]
        return along
    for block in join.blocks:
        if block not in sizes:
            sizes[block] = graph.size(block)
    found = []
    for k, visited in enumerate(join.blocks):
        row = [sizes[visited]]
        for probe in join.pipelines[k].probes:
            block = join.blocks[probe.target]
            made = visited | block
            size = sizes.get(made)
            if size is None:
                size = sizes[made] = graph.grown(sizes[visited], made, sizes[block], probe.predicates)
            row.append(size)
            visited = made
        found.append(row)
    return found


def _probing(graph: JoinGraph, costs: Costs, join: PricedJoin, sizes: dict[int, float]) -> list[list[float]]:
    """For each input what all probes of one of its live tuples cost, as a list of parts."""
    if are_wide(join.terms):
        return [[cost] for cost in probing_along(graph, costs, join.terms, sizes)]
    asked = {1 << table: graph.offers[table][place] for table, place in join.asked}
    found, by_hash, joined = [], probing(costs, True, 0.0), costs.join
    for k, visited in enumerate(visited_sizes(graph, join, sizes)):
        weights: list[float] = []
        for probe, before, after in zip(join.pipelines[k].probes, visited, visited[1:], strict=False):
            if probe.asked:
                per_tuple = asked[join.blocks[probe.target]].cpu
            else:
                per_tuple = by_hash if probe.hashed else probing(costs, False, sizes[join.blocks[probe.target]])
            weights += (times(per_tuple, before), joined * after if joined else 0.0)
        found.append(weights)
    return found


class JoinParts(NamedTuple):
    """What one join adds to the paths of its streams."""

    probing: list[list[float]]
    """For each input what one of its live tuples costs: all its probes and, where the input is a kept subresult, keeping it. A list of parts."""
    keeping: list[float]
    """What the windows of those inputs cost that are streams, and last what its probe steps cost, whatever their rows."""
    sizes: dict[int, float]
    """The sizes that were met."""


def _join_parts(graph: JoinGraph, costs: Costs, join: PricedJoin, sizes: dict[int, float]) -> JoinParts:
    probes, kept = _probing(graph, costs, join, sizes), list[float]()
    for k, (block, state) in enumerate(zip(join.blocks, join.states, strict=True)):
        subresult = block & (block - 1)
        entering = sizes[block] if subresult else graph.rates[block.bit_length() - 1]
        held = keeping(costs, state.indexed, entering) if state.kept else 0.0
        (probes[k] if subresult else kept).append(held)
    return JoinParts(probes, [*kept, join.steps], sizes)


_Added = tuple[float, tuple[float, ...]]
"""Of a join: what the windows that it keeps and its steps cost, and by stream what its live tuples cost."""


class KnownJoins:
    """What joins add to the paths of their streams, each worked out once: plans that are tried one after the other share most of their joins. Of a
    graph in which the size of a set does not depend on how it was joined."""

    def __init__(self, model: CostModel) -> None:
        self._model = model
        self._near: dict[int, int] = {}
        self._held = least_keeping(model.costs)
        self._results = model.size(model.graph.all)
        self._sizes: dict[int, float] = {}
        self._parts: dict[int, tuple[PricedJoin, JoinParts]] = {}
        self._sums: dict[Inputs, _Added] = {}
        self._leasts: dict[Inputs, _Added] = {}

    def of(self, join: PricedJoin) -> JoinParts:
        if id(join) not in self._parts:
            # Holds on to the join, so that its id is not given to another.
            self._parts[id(join)] = join, _join_parts(self._model.graph, self._model.costs, join, self._sizes)
        return self._parts[id(join)][1]

    def unmet(self, shape: Iterable[Inputs]) -> list[Inputs]:
        """The joins that were not met before, those of few inputs first, which are ordered soonest."""
        return sorted((inputs for inputs in shape if inputs not in self._sums), key=len)

    def meet(self, inputs: Inputs) -> None:
        """Work out what a join of these inputs adds in its best orders."""
        parts = self.of(best_join(self._model, inputs))
        self._sums[inputs] = math.fsum(parts.keeping), self._by_stream(inputs, [math.fsum(weights) for weights in parts.probing])

    def paths_at_least(self, shape: Iterable[Inputs]) -> PlanPaths:
        """The paths of a plan of joins of these inputs in their best orders, but for its subresults; figures are added up in another order than
        those of `paths_of_plan`. Joins that were not met before count with what they cost at least (`_least`)."""
        graph = self._model.graph
        shape = list(shape)
        joins = [self._sums.get(inputs) or self._least(inputs) for inputs in shape]
        steps = stepping(self._model.costs, sum([probe_steps(len(inputs)) for inputs in shape])) if self._model.costs.step else 0.0
        kept, each = zip(*joins, strict=True)
        cpu = tuple(map(truediv, map(sum, zip(*each, strict=True)), graph.window_seconds))
        return PlanPaths(graph.window_seconds, cpu, sum(kept), self._results, (), steps)

    def _least(self, inputs: Inputs) -> _Added:
        """What a join of these inputs adds at least, without ordering its probes.

        Every pipeline makes the join's results; before them, where there are three inputs or more, a partial result, at least the smallest with one
        input more, which goes on to a probe. An input is kept in the cheaper of two ways. Scans come on top.
        """
        if inputs not in self._leasts:
            costs, graph, size = self._model.costs, self._model.graph, self._model.graph.size
            made, held, goes_on = times(costs.join, size(sum(inputs))), self._held, costs.join + costs.probe
            kept, weights = stepping(costs, probe_steps(len(inputs))), []
            for block in inputs:
                subresult = block & (block - 1)
                weight = made + times(costs.probe + held if subresult else costs.probe, size(block))
                if len(inputs) > 2:
                    near = self._near.get(block)
                    if near is None:
                        near = self._near[block] = graph.around(block)
                    weight += times(goes_on, min([size(block | other) for other in inputs if other & near], default=0.0))
                if not subresult:
                    kept += times(held, graph.rates[block.bit_length() - 1])
                weights.append(weight)
            self._leasts[inputs] = kept, self._by_stream(inputs, weights)
        return self._leasts[inputs]

    def _by_stream(self, inputs: Inputs, weights: Sequence[float]) -> tuple[float, ...]:
        """What the tuples of each stream cost in a join, from what those of each input do; 0 for streams that are no part of it."""
        each = [0.0] * len(self._model.graph)
        for block, weight in zip(inputs, weights, strict=True):
            for i in bits(block):
                each[i] = weight
        return tuple(each)


def paths_of_plan(graph: JoinGraph, costs: Costs, priced: PricedTree, known: KnownJoins | None = None) -> PlanPaths:
    """The paths of a priced plan. `graph` may be another than it was priced for (thinned rates): its algorithms stay."""
    n, sizes = len(graph), dict[int, float]()
    parts: list[list[float]] = [[] for _ in range(n)]
    keeping, steps, subresults = [], [], []
    for number, (node, join) in enumerate(zip(priced.nodes, priced.joins, strict=True)):
        found = known.of(join) if known else _join_parts(graph, costs, join, sizes)
        keeping += found.keeping
        steps.append(found.keeping[-1])
        for block, weights in zip(join.blocks, found.probing, strict=True):
            for i in bits(block):
                parts[i] += weights
        if number < len(priced.nodes) - 1:
            subresults.append(Subresult(number, node.mask, found.sizes[node.mask]))
    windows = graph.window_seconds
    return PlanPaths(
        windows,
        tuple(math.fsum(weights) / window for weights, window in zip(parts, windows, strict=True)),
        math.fsum(keeping),
        graph.size(graph.all),
        tuple(subresults),
        math.fsum(steps),
    )


def results_of(plan: PlanPaths, shares: Sequence[float]) -> float:
    """Results per second when these shares of the streams' tuples probe."""
    return plan.size * math.fsum(share / window for share, window in zip(shares, plan.windows, strict=True))

"""Plans as paper 2 draws them (Fig. 5, Table 3): every state, kept subresults included, holds a number of tuples of its own.

The resource is probes, and ρ_h is a join's selectivity times the probed state.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.allocation import AllocationMethod
from models.request import Costs, Query
from solvers.allocation.freshness import least_cost_stays
from solvers.allocation.heuristics import HEURISTICS, Heuristic
from solvers.allocation.jaqpot import jaqpot
from solvers.allocation.joint import joint
from solvers.allocation.productivity import Path, Step, path_of_steps
from solvers.cover.exact import continuous_cover
from solvers.cover.greedy import CoverPath, greedy_cover
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import join_graph
from solvers.model.tree import Tree

__all__ = ["POLICIES", "PROBES", "Case", "shape", "table_3"]

PROBES = Costs(join=0.0, insert=0.0, delete=0.0, append=0.0, probe=1.0, scan=0.0)
BINARY = ((1,), (0,))
NAMES = "ABCDE"
POLICIES = {"equal": "EqualHJ", "global_ratio": "GlobalHJPR", "equal_best": "EBestHJP", "selectivity_best": "SBestHJP"}


def shape(name: str) -> Tree:
    """((A⋈B)⋈C)⋈D, (A⋈B)⋈(C⋈D), or ((A⋈B)⋈(C⋈D))⋈E."""
    ab = make_join((0, 1), BINARY)
    if name == "linear":
        return make_join((make_join((ab, 2), BINARY), 3), BINARY)
    bushy = make_join((ab, make_join((2, 3), BINARY)), BINARY)
    return bushy if name == "bushy" else make_join((bushy, 4), BINARY)


@dataclass(frozen=True)
class Case:
    """A plan whose states hold what they are told to, its path table, and the freshness that is asked for, in seconds."""

    model: CostModel
    priced: PricedTree
    kept: dict[int, int]
    paths: list[Path]
    stated: list[float]
    required: dict[str, float]
    hopeless: bool
    """Whether some predicate cannot be met with all resources."""

    @classmethod
    def of(
        cls, rates: Sequence[float], rows: Sequence[int], inner: Sequence[int], selectivities: Sequence[float], name: str, tolerance: float
    ) -> Case:
        """`rows` are the streams' windows, `inner` those of the kept subresults, `selectivities` from stream to stream."""
        query = {
            "streams": [{"name": n, "rate": rate, "window": {"rows": held}} for n, rate, held in zip(NAMES, rates, rows, strict=False)],
            "predicates": [{"left": f"{a}.x", "right": f"{b}.y", "selectivity": s} for a, b, s in zip(NAMES, NAMES[1:], selectivities, strict=False)],
        }
        model = CostModel(join_graph(Query.model_validate(query)), PROBES)
        priced = model.price(shape(name))
        kept = {node.mask: held for node, held in zip(priced.nodes[:-1], inner, strict=True)}
        paths = path_table(model, priced, kept)
        windows = [held / rate for rate, held in zip(rates, rows, strict=True)]
        states = [model.graph.label(mask) for mask in kept]
        renewals = [[path.limit * path.covers.get(state, 0.0) / held for path in paths] for state, held in zip(states, kept.values(), strict=True)]
        chains: dict[tuple[int, ...], float] = {}
        hopeless = False
        for path, window in zip(paths, windows, strict=True):
            chain = tuple(j for j, state in enumerate(states) if state in path.covers)
            slack = (tolerance - 1.0) * window
            if chain and math.fsum(1.0 / math.fsum(renewals[j]) for j in chain) >= slack:
                hopeless = True
            elif chain:
                chains[chain] = min(slack, chains.get(chain, math.inf))
        stays = least_cost_stays(renewals, [path.limit * path.resources for path in paths], chains) if chains else [math.inf] * len(states)
        required = {state: held / stay for state, held, stay in zip(states, kept.values(), stays, strict=True)}
        return cls(model, priced, kept, paths, [tolerance * window for window in windows], required, hopeless)

    @property
    def saturation(self) -> tuple[float, float]:
        """Resources and throughput at full load."""
        return math.fsum(path.limit * path.resources for path in self.paths), math.fsum(path.limit * path.output for path in self.paths)

    @property
    def covers(self) -> tuple[float, float]:
        """What the least cover takes, and what JAQPOT's greedy one does."""
        paths = [CoverPath(path.name, path.resources, path.covers, path.limit) for path in self.paths]
        greedy = greedy_cover(self.required, paths)
        return continuous_cover(self.required, paths).cost, math.fsum(path.cost * amount for path, amount in zip(paths, greedy, strict=True))

    def results(self, units: list[float]) -> float:
        return math.fsum(path.output * amount for path, amount in zip(self.paths, units, strict=True))

    def throughputs(self, capacity: float, heuristics: Mapping[AllocationMethod, Heuristic] = HEURISTICS) -> dict[str, float]:
        """Results per second of every policy; JAQPOT and the joint optimum keep freshness as far as there is capacity."""
        result = {
            "joint optimum": self.results(joint(capacity, self.paths, self.required).units),
            "JAQPOT": self.results(jaqpot(capacity, self.paths, self.required)),
        }
        for name, heuristic in heuristics.items():
            result[POLICIES[name]] = math.fsum(heuristic(capacity, self.paths).output)
        return result


def path_table(model: CostModel, priced: PricedTree, kept: dict[int, int]) -> list[Path]:
    """The paths of a plan whose subresults keep `kept` tuples: ρ_h is selectivity times state."""
    graph = model.graph
    entering = {block: (number, k) for number, join in enumerate(priced.joins) for k, block in enumerate(join.blocks)}
    paths = []
    for i in range(len(graph)):
        steps: list[Step] = []
        covers: dict[str, float] = {}
        block, made = 1 << i, 1.0
        while block in entering:
            number, k = entering[block]
            target = priced.joins[number].blocks[1 - k]
            selectivity = math.prod(graph.edges[p].selectivity for p in graph.between(block, target))
            held = kept.get(target) or graph.size(target)
            steps.append(Step(selectivity * held, 1.0, graph.label(priced.nodes[number].mask), selectivity))
            made *= selectivity * held
            block = priced.nodes[number].mask
            if block in kept:
                covers[graph.label(block)] = made
        paths.append(path_of_steps(graph.names[i], graph.rates[i], steps, covers))
    return paths


def table_3(rng: random.Random, name: str, tolerance: float, contract_sizes: bool = False) -> Case:
    """A plan of this shape with figures from Table 3; with `contract_sizes` kept subresults hold what follows from their inputs instead."""
    n = 5 if name == "five" else 4
    rates = [rng.uniform(300, 1200) for _ in range(n)]
    rows = [rng.randint(200, 5000) for _ in range(n)]
    inner = [rng.randint(200, 5000) for _ in range(n - 2)]
    selectivities = [rng.uniform(0.01, 0.1) for _ in range(n - 1)]
    if contract_sizes:
        held = {k: rows[k] * rows[k + 1] * selectivities[k] for k in (0, 2) if k + 1 < n}
        later = held[0] * rows[2] * selectivities[1] if name == "linear" else held[2]
        inner = [max(1, round(size)) for size in (held[0], later, held[0] * held[2] * selectivities[1])[: n - 2]]
    return Case.of(rates, rows, inner, selectivities, name, tolerance)

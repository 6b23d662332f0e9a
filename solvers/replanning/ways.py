"""Ways to run a query, apart from what they cost, so that one way can be priced under several statistics.

A way is what a plan document says without its figures: tree and probe orders, which states of binary joins are indexed, where caches stand, and
what may probe. The running plan is priced with the algorithms that it runs with, also where others would be chosen today.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.plan import Algorithm, Allocation, Plan
from models.replan import ChangeKind
from models.request import Costs
from solvers.allocation.adaptation import Load
from solvers.allocation.in_plans import Shared, given_shares
from solvers.caches.cached_plan import CachedPlan
from solvers.caches.given import Place, cached_at, places_of
from solvers.estimate import answered_by
from solvers.jtree.given import tree_of
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import JoinGraph
from solvers.model.point import Point
from solvers.model.tree import Asked, Tree, joins, leaf_mask
from solvers.plan.outcome import Outcome

__all__ = ["Priced", "Shares", "Way", "as_run", "kind_of", "price", "way_of_outcome", "way_of_plan"]


@dataclass(frozen=True, slots=True)
class Shares:
    """What an allocation lets through."""

    admitted: float
    """Of every stream's tuples."""
    probing: tuple[float, ...]
    """Of what is let in, by stream."""


@dataclass(frozen=True)
class Way:
    """A way to run a query."""

    tree: Tree
    places: tuple[Place, ...] = ()
    """Where its caches stand."""
    shares: Shares | None = None
    hashed: Mapping[tuple[int, int], bool] | None = field(default=None, compare=False)
    """For binary joins, whether the first input finds its partners in the second by hash; None: as is cheaper."""


class _AsRun(CostModel):
    """Prices with the algorithms of a plan that runs."""

    def __init__(self, graph: JoinGraph, costs: Costs, hashed: Mapping[tuple[int, int], bool]) -> None:
        super().__init__(graph, costs)
        self._hashed = hashed

    def hashed_in_binary(self, probing: int, probed: int, sizes: Mapping[int, float] | None = None) -> bool:
        chosen = self._hashed.get((probing, probed))
        return super().hashed_in_binary(probing, probed, sizes) if chosen is None else chosen and self.graph.hashable(probing, probed)


@dataclass(frozen=True)
class Priced:
    """A way with its figures under one problem's statistics, costs and caps."""

    problem: Problem
    way: Way
    tree: PricedTree
    """Without caches, at full load."""
    cached: CachedPlan | None
    shared: Shared | None

    @property
    def total(self) -> PricedTree:
        """At full load, caches counted."""
        return self.cached.total if self.cached else self.tree

    @property
    def point(self) -> Point:
        return Point(self.total.cpu, self.total.memory_bytes, self.way.tree)

    @property
    def cpu(self) -> float:
        """Of what is let through. Where a share may probe, caches count as saving nothing."""
        return self.shared.cpu if self.shared else self.total.cpu

    @property
    def memory_bytes(self) -> float:
        return self.total.memory_bytes

    @property
    def output_rate(self) -> float:
        return self.shared.throughput if self.shared else self.tree.output_rate

    @property
    def fits(self) -> bool:
        """Whether it is within the caps when nothing is shed."""
        return self.problem.caps.admit(self.point)

    def over(self, error: float) -> bool:
        """Whether it is over a cap by more than the error, as it runs."""
        caps = self.problem.caps
        return self.cpu > caps.cpu * (1.0 + error) or self.memory_bytes > caps.memory_bytes * (1.0 + error)

    @property
    def load(self) -> Load:
        return Load(self.cpu, self.output_rate, self.shared.fresh if self.shared else ())

    @property
    def kept(self) -> set[int]:
        """The subresults that it keeps."""
        return {node.mask for node in self.tree.nodes[:-1]}


def as_run(problem: Problem, way: Way) -> Problem:
    """The problem with the algorithms that the way runs with: itself, with all that it has priced already, where it would choose the same."""
    model, graph = problem.model, problem.model.graph
    if all(model.hashed_in_binary(*pair) == (chosen and graph.hashable(*pair)) for pair, chosen in (way.hashed or {}).items()):
        return problem
    return replace(problem, model=_AsRun(graph, model.costs, way.hashed or {})).with_keys_of(problem)


def price(problem: Problem, way: Way) -> Priced:
    """What the way costs. Raises ShapeError where a cache cannot stand where it is said to."""
    problem = as_run(problem, way)
    tree = problem.model.price(way.tree)
    cached = cached_at(problem, tree, way.places) if way.places else None
    shared = None
    if way.shares is not None:
        shared = given_shares(problem.model, tree, problem.caps.cpu, problem.freshness, way.shares.probing, way.shares.admitted)
    return Priced(problem, way, tree, cached, shared)


def way_of_plan(problem: Problem, plan: Plan, before: Problem) -> Way:
    """The way that a plan document describes, in the terms of a problem of the same streams. `before`: what the plan was made for."""
    names = problem.model.graph.names
    masks = {name: 1 << i for i, name in enumerate(names)}
    hashed = {}
    for operator in plan.operators:
        blocks = {name: masks[name] for name in operator.inputs}
        masks[operator.id] = sum(blocks.values())
        for pipeline in operator.pipelines if len(blocks) == 2 else ():
            for probe in pipeline.probes:
                hashed[blocks[pipeline.input], blocks[probe.target]] = probe.algorithm is Algorithm.HASH
    places = places_of(plan, before if plan.made_for is None else answered_by(plan, names)) if plan.caches else ()
    return Way(tree_of(problem, plan.operators, plan.tables), places, _shares(plan.allocation, names), hashed)


def way_of_outcome(problem: Problem, outcome: Outcome) -> Way:
    """The way that was found."""
    places = Place.of(outcome.cached) if outcome.cached else ()
    allocation = outcome.relief.allocation if outcome.relief else None
    return Way(outcome.found.best.tree, places, _shares(allocation, problem.model.graph.names))


def _shares(allocation: Allocation | None, names: tuple[str, ...]) -> Shares | None:
    if allocation is None:
        return None
    given = {entry.stream: entry.share for entry in allocation.streams}
    return Shares(allocation.admitted, tuple(given.get(name, 1.0) for name in names))


def kind_of(before: Priced, after: Priced) -> ChangeKind:
    """What changes from one way to another: the largest part of it, or nothing. Both are priced under the same problem."""
    if _shape(before.way.tree) != _shape(after.way.tree):
        return ChangeKind.TREE
    if before.way.shares != after.way.shares:
        return ChangeKind.ALLOCATION
    if _standing(before.way.places) != _standing(after.way.places):
        return ChangeKind.CACHES
    return ChangeKind.NONE if _orders(before.tree) == _orders(after.tree) else ChangeKind.ORDERS


def _shape(tree: Tree) -> set[tuple[tuple[int, ...], Asked]]:
    """Joins by the sets of their inputs, and by the tables among them that are asked: keeping one or not touches a state."""
    return {(tuple(leaf_mask(child) for child in node.inputs), node.asked) for node in joins(tree)}


def _standing(places: Sequence[Place]) -> set[Place]:
    """Where caches stand; how much they hold shows as they run."""
    return {replace(place, name="", share=1.0) for place in places}


def _orders(priced: PricedTree) -> dict[int, object]:
    """Probe orders and algorithms, by join."""
    return {
        node.mask: [[(probe.target, probe.hashed) for probe in pipeline.probes] for pipeline in join.pipelines]
        for node, join in zip(priced.nodes, priced.joins, strict=True)
    }

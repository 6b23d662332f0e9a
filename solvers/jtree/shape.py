"""Join trees while they are searched: for every join its set of streams and the sets of its inputs.

A `Shape` maps a join's set to its inputs' sets, in the order of their lowest streams. That is a whole plan, because probe orders
follow from the inputs; merging and splitting joins is a matter of a few entries. In a graph of several components the root is the
join of the components, and no search touches it. Costs are a `Ledger`'s excess; `priced` turns drafts into plans.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from models.request import Objective
from solvers.common.deadline import Deadline, seconds_to_write
from solvers.common.errors import RangeError
from solvers.common.tolerances import ROUNDED
from solvers.jtree.choice import choose
from solvers.jtree.compiled.ledger import MAX_EXACT_INPUTS, Ledger
from solvers.jtree.orders import best_orders
from solvers.jtree.search import Problem, Shape, make_join, shape_of, sorted_inputs, tree_of_joins
from solvers.model.cost import CostModel
from solvers.model.graph import bits
from solvers.model.point import Caps, Point, point_of
from solvers.model.staircase import undominated
from solvers.model.tree import Tree, joins, leaf_mask

__all__ = [
    "Draft",
    "Shape",
    "Writing",
    "draft_of",
    "excess_of",
    "mjoin_shape",
    "priced",
    "shape_of",
    "shape_with",
    "sorted_inputs",
    "tree_of",
    "tree_of_shape",
]

MAX_PRICED = 24  # plans that are priced and returned; pricing 200 streams takes tens of milliseconds each
MAX_REFINED = 40  # inputs up to which a wide join's orders are looked for again at the end
LARGE = 60  # streams from which only the chosen plan is priced
MEASURED, ROUNDS = 20, 3  # joins whose pricing is timed, and how often; on a busy machine the quickest round is nearest to the truth
PRICING = 0.27  # of the time that a binary join takes to price and to write
AS_QUICK = 2.0  # times the probes of the quickest plan to write: one of the two has to be written, and milliseconds are no reason to prefer it


@dataclass(frozen=True, slots=True)
class Draft:
    """A shape with its two resources as the ledger has them."""

    cpu: float
    memory_bytes: float
    shape: Shape


@dataclass(frozen=True, slots=True)
class Writing:
    """How long it takes to price a plan and write it down, probe by probe: a join of 200 inputs has 40,000 probes.

    Measured on this machine at this moment, so that a search leaves enough time for it. No other decision of a search depends on a clock.
    """

    slowness: float
    """How many times as long as usual it takes now."""
    edges: int
    caps: Caps

    @classmethod
    def measured(cls, problem: Problem, tree: Tree) -> Writing:
        """By pricing some joins of a binary tree a second time: the first time what they are made of had to be found as well."""
        model, nodes = problem.model, list(joins(tree))
        some = nodes[:: max(1, len(nodes) // MEASURED)]
        took = []
        for _ in range(ROUNDS):
            began = time.monotonic()
            with suppress(RangeError):
                for node in some:
                    model.price_join([leaf_mask(child) for child in node.inputs], node.orders)
            took.append(time.monotonic() - began)
        usual = PRICING * seconds_to_write(2 * len(some), 0, len(some), 0)
        return cls(max(1.0, min(took) / usual) if some else 1.0, len(model.graph.edges), problem.caps)

    def seconds(self, draft: Draft) -> float:
        widths = list(map(len, draft.shape.values()))
        probes, listed = sum(width * (width - 1) for width in widths), max(widths, default=0) * self.edges
        usual = seconds_to_write(probes, listed, len(widths), self.edges)
        fits = draft.cpu <= self.caps.cpu and draft.memory_bytes <= self.caps.memory_bytes
        return self.slowness * usual * (1.0 if fits else 2.0)  # where nothing fits, who may probe how much is written down as well

    def passed(self, deadline: Deadline, walk: Iterable[Draft]) -> Iterator[Draft]:
        """The plans that a walk passes, up to the first that can only just be written in time: those after it may take longer still."""
        for draft in walk:
            yield draft
            if self.before(deadline, draft).expired():
                break

    def before(self, deadline: Deadline, draft: Draft) -> Deadline:
        """The moment at which writing this plan has to begin."""
        return deadline.earlier(self.seconds(draft))

    def in_time(self, deadline: Deadline, drafts: Sequence[Draft], reserved: Draft | None = None) -> list[Draft]:
        """The plans that take no longer to write than the largest of three times: what is left until the deadline, what `reserved` takes, and
        AS_QUICK times what the quickest takes."""
        left = max(deadline.remaining(), 0.0 if reserved is None else self.seconds(reserved), AS_QUICK * min(map(self.seconds, drafts)))
        return [draft for draft in drafts if self.seconds(draft) <= left]


def with_root(ledger: Ledger, shape: Shape) -> Shape:
    """The shape with the join of the components on top, where there are several."""
    components = ledger.model.graph.components
    return shape if len(components) == 1 else {**shape, ledger.model.graph.all: sorted_inputs(components)}


def mjoin_shape(ledger: Ledger) -> Shape:
    """One join per component."""
    parts = ledger.model.graph.components
    return with_root(ledger, {part: tuple(1 << i for i in bits(part)) for part in parts if part & (part - 1)})


def shape_with(ledger: Ledger, trees: Iterable[Tree]) -> Shape:
    """The shape of the components' trees under the root."""
    shape: Shape = {}
    for tree in trees:
        shape.update(shape_of(tree))
    return with_root(ledger, shape)


def tree_of(ledger: Ledger, shape: Shape) -> Tree:
    """The join tree, with the ledger's probe orders."""
    if not shape:
        return 0
    return tree_of_joins(shape, lambda inputs: ledger.join(inputs)[1])


def tree_of_shape(model: CostModel, shape: Shape) -> Tree:
    """The same of a shape alone."""
    return tree_of(Ledger(model), shape)


def excess_of(ledger: Ledger, shape: Shape) -> float:
    kept = [ledger.kept(mask) for mask in shape if mask != ledger.model.graph.all]
    return math.fsum([ledger.join(inputs)[0] for inputs in shape.values()] + kept)


def draft_of(ledger: Ledger, shape: Shape) -> Draft:
    model = ledger.model
    every = model.graph.all
    memory = math.fsum([model.leaves_bytes(), *(ledger.state_bytes(mask) for mask in shape if mask != every)])
    return Draft(ledger.common + excess_of(ledger, shape), memory, shape)


def _worth_pricing(problem: Problem, drafts: Sequence[Draft]) -> list[Draft]:
    """The drafts no other beats, and of those, where they are many, the ones next to what the objective will pick."""
    steps = undominated(drafts, lambda draft: (draft.cpu, draft.memory_bytes), lambda draft: len(draft.shape))
    limit = MAX_PRICED if len(problem.model.graph) < LARGE else 1
    if len(steps) <= limit:
        return steps
    caps = problem.caps
    within = [k for k, d in enumerate(steps) if d.cpu <= caps.cpu * ROUNDED and d.memory_bytes <= caps.memory_bytes * ROUNDED]
    if within:
        centre = within[0] if problem.objective is Objective.MIN_CPU else within[-1]
    else:
        centre = min(range(len(steps)), key=lambda k: (max(steps[k].cpu / caps.cpu, steps[k].memory_bytes / caps.memory_bytes), k))
    nearest = sorted(range(len(steps)), key=lambda k: (abs(k - centre), k))[:limit]
    return [steps[k] for k in sorted(nearest)]


def _refined(ledger: Ledger, tree: Tree, deadline: Deadline) -> Tree:
    """The tree with the orders of its wide top joins looked for again, by ranks or over all unions, where there is time and that is cheaper."""
    model = ledger.model
    tops = {*model.graph.components, model.graph.all}
    rebuilt: dict[int, Tree] = {1 << i: i for i in range(len(model.graph))}
    result = tree
    for node in joins(tree):
        orders, masks = node.orders, [leaf_mask(child) for child in node.inputs]
        if node.mask in tops and MAX_EXACT_INPUTS < len(masks) <= MAX_REFINED and not deadline.expired():
            others, _ = best_orders(model, masks, deadline)
            if model.price_join(masks, others).cpu < model.price_join(masks, orders).cpu:
                orders = others
        result = rebuilt[node.mask] = make_join([rebuilt[mask] for mask in masks], orders)
    return result


def priced(problem: Problem, ledger: Ledger, drafts: Sequence[Draft], deadline: Deadline) -> tuple[Point, ...]:
    """The best drafts as priced plans. Raises RangeError where the figures of all of them leave the range of a double."""
    points: list[Point] = []
    refusal: RangeError | None = None
    for draft in _worth_pricing(problem, drafts):
        try:
            points.append(point_of(problem.model, tree_of(ledger, draft.shape)))
        except RangeError as error:
            refusal = refusal or error
    if not points:
        assert refusal is not None
        raise refusal
    chosen = choose(problem, points)
    refined = _refined(ledger, chosen.tree, deadline)
    return (*points, point_of(problem.model, refined)) if refined != chosen.tree else tuple(points)

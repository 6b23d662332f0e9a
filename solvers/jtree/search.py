"""The seam between the planner and the searches for a join tree.

A search is a function `(Problem, Deadline) -> Found`. It returns plans and what it proved of them; it keeps to
its deadline and then returns its best so far; given the same problem and time enough, it returns the same plan.
To add one: a new file with such a function, and an entry in `models.method`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from models.plan import Proof, Termination
from models.request import Objective, Options, Query
from solvers.common.deadline import Deadline
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.model.graph import freshness_of
from solvers.model.point import NO_CAPS, Caps, Point
from solvers.model.staircase import undominated
from solvers.model.tree import BOTH, Asked, Join, Tree, joins, leaf_mask, probes_of

__all__ = [
    "ALL_TREES",
    "Found",
    "Lacking",
    "Problem",
    "Search",
    "Shape",
    "before_writing",
    "both",
    "make_join",
    "shape_of",
    "sorted_inputs",
    "spread",
    "staircase",
    "structure_key",
    "tree_of_joins",
]

ALL_TREES = "all join trees"
"""The space of searches that look at every join tree, whose proofs may stand in a plan."""


DEFAULTS = Options()


@dataclass(frozen=True)
class Problem:
    """Find the plan that is best by `objective` within `caps`: all that the steps of planning need to know of a request.

    Searches for a join tree look at the first three and the seed alone; a problem that is only searched may do without the query.
    """

    model: CostModel
    caps: Caps = NO_CAPS
    objective: Objective = Objective.MIN_CPU
    options: Options = DEFAULTS
    query: Query | None = None
    shape_given: bool = False
    """Whether the plan's shape is the caller's: no other may be tried."""

    @property
    def seed(self) -> int:
        return self.options.seed

    @property
    def asked(self) -> Query:
        """The query as it was asked."""
        assert self.query is not None
        return self.query

    @cached_property
    def attributes(self) -> Attributes:
        """What tuples can be looked up by."""
        return Attributes.of(self.asked, self.model.graph)

    def with_keys_of(self, other: Problem) -> Problem:
        """This problem, with what tuples can be looked up by taken from the other, which differs from it in statistics alone."""
        self.__dict__["attributes"] = other.attributes.measured_anew(self.asked, self.model.graph)
        return self

    @cached_property
    def freshness(self) -> tuple[float, ...]:
        """How old results may be, measured on each stream, in seconds; infinity where nothing is stated."""
        return freshness_of(self.asked, self.model.graph)


@dataclass(frozen=True, slots=True)
class Lacking:
    """Exact answers to "what would it take?", for a search that proved that nothing fits; None: under that cap, nothing would."""

    min_cpu: float
    min_memory_bytes: float
    cpu_at_memory_cap: float | None
    memory_bytes_at_cpu_cap: float | None
    rate_scale: float | None


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found, and apart from that what it proved."""

    best: Point
    """The plan that is best by the objective within the caps; where none fits, the least bad one."""
    points: tuple[Point, ...]
    """Plans that no other plan found beats in both resources, by rising CPU; not only those within the caps."""
    proof: Proof
    """What is proven of `best` in `space`: `optimal` also where it is proven that nothing fits."""
    bound: float | None
    """A proven lower bound of the objective's value in `space` (for max_headroom an upper bound); None with proof none."""
    space: str
    """What was searched, to be read after "among": "all join trees", "binary join trees"."""
    notes: tuple[str, ...] = ()
    """Sentences about how the search went."""
    lacking: Lacking | None = None
    termination: Termination = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""


Search = Callable[[Problem, Deadline], Found]
Shape = dict[int, tuple[int, ...]]
"""A join tree but for its probe orders: for every join its set of streams and the sets of its inputs, by their lowest streams."""


def before_writing(problem: Problem, plan: Point, deadline: Deadline) -> Deadline:
    """When the plan has to be written down. Where it does not fit, what may probe is written down as well, probe by probe."""
    times, nodes, predicates = 1 if problem.caps.admit(plan) else 2, list(joins(plan.tree)), len(problem.model.graph.edges)
    listed = max((len(node.inputs) for node in nodes), default=0) * predicates  # every pipeline of a join lists its predicates
    return deadline.before_writing(times * probes_of(plan.tree), listed, times * len(nodes), predicates)


def structure_key(tree: Tree) -> tuple[int, tuple[object, ...]]:
    """The rule for ties: fewer operators first, then the lexicographically smallest structure."""
    nodes = list(joins(tree))
    return len(nodes), tuple((node.mask, node.orders, node.asked) for node in nodes)


def staircase(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that no other beats in both resources, by rising CPU; of equals the first by `structure_key`."""
    return tuple(undominated(points, lambda point: (point.cpu, point.memory_bytes), lambda point: structure_key(point.tree)))


def spread(count: int, first: int = 0) -> list[int]:
    """All places below `count`: `first`, both ends, then the middle of each gap in turn, so that every beginning is spread evenly.

    >>> spread(6, 4)
    [4, 0, 5, 2, 1, 3]
    """
    places = dict.fromkeys((first, 0, count - 1) if count else ())
    gaps = [(0, count - 1)]
    for low, high in gaps:
        middle = (low + high) // 2
        if low < middle < high:
            places[middle] = None
            gaps += [(low, middle), (middle, high)]
    return list(places)


def make_join(inputs: Iterable[Tree], orders: Iterable[Iterable[int]], asked: Asked = ()) -> Join:
    """A join with its inputs in canonical order: by their lowest streams; `orders` are renumbered alike."""
    trees = list(inputs)
    masks = [leaf_mask(tree) for tree in trees]
    listed = list(map(tuple, orders))
    if len(trees) == 2 and tuple(listed) == BOTH:  # most joins are: each visits the other, whichever comes first
        first = masks[0] & -masks[0] > masks[1] & -masks[1]
        return Join((trees[first], trees[not first]), BOTH, masks[0] | masks[1], tuple(sorted(asked)))
    ranking = sorted(range(len(trees)), key=lambda k: masks[k] & -masks[k])
    if ranking != list(range(len(trees))):
        place = {old: new for new, old in enumerate(ranking)}
        listed = [tuple([place[target] for target in order]) for order in listed]
    mask = 0
    for part in masks:
        mask |= part
    return Join(tuple(trees[k] for k in ranking), tuple(listed[k] for k in ranking), mask, tuple(sorted(asked)))


def sorted_inputs(masks: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(masks, key=lambda mask: mask & -mask))


def shape_of(tree: Tree) -> Shape:
    """The tree but for its probe orders; `tree_of_joins` is the way back."""
    return {node.mask: sorted_inputs(leaf_mask(child) for child in node.inputs) for node in joins(tree)}


def both(_: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The probe orders of a binary join: each input visits the other."""
    return BOTH


def tree_of_joins(shape: Shape, orders: Callable[[tuple[int, ...]], Iterable[Iterable[int]]]) -> Tree:
    """The join tree with these joins, the largest of them its root; `orders` gives the probe orders of a join of these inputs."""
    trees: dict[int, Tree] = {}
    root: Tree = -1
    for mask in sorted(shape, key=lambda mask: (mask.bit_count(), mask)):
        inputs = shape[mask]
        root = trees[mask] = make_join([trees[part] if part & (part - 1) else part.bit_length() - 1 for part in inputs], orders(inputs))
    return root

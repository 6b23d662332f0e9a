"""A plan with its two resources, and the caps it has to keep."""

from __future__ import annotations

import math
from dataclasses import dataclass

from solvers.model.cost import CostModel
from solvers.model.tree import Tree

__all__ = ["NO_CAPS", "Caps", "Point", "point_of"]


@dataclass(frozen=True, slots=True)
class Caps:
    """What a plan may use; infinity is no cap."""

    cpu: float = math.inf
    memory_bytes: float = math.inf

    def admit(self, point: Point) -> bool:
        return point.cpu <= self.cpu and point.memory_bytes <= self.memory_bytes


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class Point:
    """A plan and its two resources, as `CostModel.price` gives them."""

    cpu: float
    memory_bytes: float
    tree: Tree


def point_of(model: CostModel, tree: Tree) -> Point:
    """The tree with its two resources."""
    return Point(*model.figures(tree), tree)

"""The join-tree search on its own: POST /v1/solvers/jtree (contract §5)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.base import Flag, Model, Number, Whole, is_empty
from models.plan import Cost, Operator, Proof, Termination
from models.request import MAX_TIME_LIMIT, Costs, Method, Objective, Query, Resources
from models.table import TableAccess

__all__ = ["JtreeAnswer", "JtreeRequest"]


class JtreeRequest(Model):
    """A join graph, its caps, and how to search."""

    query: Query
    """The join graph."""
    resources: Resources = Resources()
    """Caps on CPU and memory."""
    costs: Costs = Costs()
    """Cost constants."""
    objective: Annotated[Objective, Field(examples=["min_cpu"])] = Objective.MIN_CPU
    """What to make best among the trees within the caps."""
    method: Annotated[Method, Field(examples=["exact"])] = Method.AUTO
    """Which search to run."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Seconds the search may take; then the best tree so far comes back."""
    seed: Annotated[Whole, Field(ge=0, lt=2**31, examples=[0])] = 0
    """Seed of whatever is random in the search."""


class JtreeAnswer(Model):
    """The join tree that was found, and what is proven of it."""

    operators: list[Operator]
    """The joins, inputs before users, the root last; empty for a single stream."""
    tables: Annotated[list[TableAccess], Field(exclude_if=is_empty)] = []
    """How each table of the query is reached."""
    cost: Cost
    """What the tree uses and yields."""
    qualified: Annotated[Flag, Field(examples=[True])]
    """Whether CPU and memory are within the caps."""
    value: Annotated[Number | None, Field(examples=[0.412])]
    """The objective's value; null for the headroom of a tree that nothing limits."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of the value among all join trees."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    bound: Annotated[Number | None, Field(examples=[0.412])]
    """A proven lower bound of the objective (for max_headroom: an upper bound); null with proof none."""
    gap: Annotated[Number | None, Field(examples=[0.0])]
    """(value − bound) / value; null with proof none."""

"""The join of two windows, all of paper 4 (contract §5, POST /v1/solvers/window-join)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from models.allocation import LEAST, MOST, PositiveFigure
from models.base import Model, Number, is_none
from models.plan import Proof
from models.request import MAX_TIME_LIMIT

__all__ = [
    "AccessCosts",
    "Crossover",
    "Invalidation",
    "JoinCosts",
    "Sides",
    "TimeWindow",
    "WindowJoinAlgorithm",
    "WindowJoinAnswer",
    "WindowJoinMethod",
    "WindowJoinRequest",
    "WindowKind",
    "WindowSide",
]


class Invalidation(StrEnum):
    """Whether expired tuples go when a new one is inserted, or when the window is probed."""

    ACTIVE = "active"
    LAZY = "lazy"


class WindowKind(StrEnum):
    """Whether windows are as the query says, or may be shortened to fit the memory."""

    FIXED = "fixed"
    FLEXIBLE = "flexible"


class WindowJoinAlgorithm(StrEnum):
    """What each window keeps, the left one first: H a hash index, N a list that is scanned."""

    HHJ = "HHJ"
    HNJ = "HNJ"
    NHJ = "NHJ"
    NNJ = "NNJ"


class WindowJoinMethod(StrEnum):
    """All of it has closed forms, so there is one method."""

    EXACT = "exact"


class TimeWindow(Model):
    """How long a tuple can still find partners."""

    seconds: Annotated[PositiveFigure, Field(examples=[60.0])]
    """Length of the window, in seconds."""


class WindowSide(Model):
    """One of the two streams."""

    rate: Annotated[PositiveFigure, Field(examples=[10.0])]
    """Arrivals, in tuples per second."""
    window: TimeWindow
    """How long a tuple stays joinable: paper 4's windows are spans of time."""
    keys: Annotated[Number, Field(ge=1, le=MOST, examples=[10.0])] = 1.0
    """Distinct join keys in the window: the number of hash buckets."""


class AccessCosts(Model):
    """What it costs to touch one tuple; only their ratio decides between algorithms."""

    hash: Annotated[PositiveFigure, Field(examples=[0.65])] = 0.65
    """In a hash index: paper 4's C_h."""
    nested_loop: Annotated[PositiveFigure, Field(examples=[0.5])] = 0.5
    """In a scan: paper 4's C_n."""


class WindowJoinRequest(Model):
    """Two streams, what touching a tuple costs, and what is short."""

    left: WindowSide
    """The first stream, A."""
    right: WindowSide
    """The second stream, B."""
    selectivity: Annotated[Number | None, Field(ge=LEAST, le=1, exclude_if=is_none, examples=[0.1])] = None
    """Share of the pairs that join; left out: the smaller of 1/keys."""
    costs: AccessCosts = AccessCosts()
    """Weight factors, as measured by `watersmeet calibrate`."""
    service_rate: Annotated[PositiveFigure | None, Field(exclude_if=is_none, examples=[50.0])] = None
    """Tuples per second of both streams together that can be processed: µ; left out: all."""
    memory_tuples: Annotated[PositiveFigure | None, Field(exclude_if=is_none, examples=[1000.0])] = None
    """Tuples of both windows together that fit: M; left out: all."""
    invalidation: Annotated[Invalidation, Field(examples=["active"])] = Invalidation.ACTIVE
    """When expired tuples are removed."""
    windows: Annotated[WindowKind, Field(examples=["fixed"])] = WindowKind.FIXED
    """Whether the windows may be shortened. Fixed windows that do not fit the memory are thinned out: fewer tuples enter them."""
    method: Annotated[WindowJoinMethod, Field(examples=["exact"])] = WindowJoinMethod.EXACT
    """How to solve it."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Not needed: closed forms take no time."""


class Sides(Model):
    """One figure for each stream."""

    left: Annotated[Number, Field(examples=[5.0])]
    """Of the left stream."""
    right: Annotated[Number, Field(examples=[45.0])]
    """Of the right stream."""


class JoinCosts(Model):
    """Cost per second of each combination of algorithms, at the regulated rates and windows."""

    HHJ: Annotated[Number, Field(examples=[47261.5])]
    """Both windows are hashed."""
    HNJ: Annotated[Number, Field(examples=[34396.5])]
    """The left window is hashed; left arrivals scan the right window."""
    NHJ: Annotated[Number, Field(examples=[72975.0])]
    """The right window is hashed; right arrivals scan the left window."""
    NNJ: Annotated[Number, Field(examples=[60110.0])]
    """Both windows are scanned."""


class ExactCrossover(Model):
    """The crossover with nothing left out, for the windows as they are."""

    left_to_right: Annotated[Number | None, Field(examples=[6.698])]
    """For left arrivals; null: scanning is never better. 0: always."""
    right_to_left: Annotated[Number | None, Field(examples=[6.698])]
    """For right arrivals; null: scanning is never better. 0: always."""


class Crossover(Model):
    """How many times faster the probed stream must be than the probing one for a scan to beat the index (paper 4, Eq. 8)."""

    left_to_right: Annotated[Number, Field(examples=[6.69])]
    """For left arrivals that probe the right window."""
    right_to_left: Annotated[Number, Field(examples=[6.69])]
    """For right arrivals that probe the left window."""
    exact: ExactCrossover
    """Without the approximation of Eq. 7."""


class WindowJoinAnswer(Model):
    """Which algorithm each direction uses, what it costs, and how to share out what is short."""

    algorithm: Annotated[WindowJoinAlgorithm, Field(examples=["HNJ"])]
    """The cheapest combination; of equals the one with more indexes."""
    cost: JoinCosts
    """What each combination costs."""
    crossover: Crossover
    """Where scanning starts to beat the index."""
    regulated: Sides
    """Tuples per second of each stream that are let in."""
    windows: Sides
    """Seconds of each stream that are kept."""
    memory: Sides
    """Tuples of each window."""
    expired: Sides
    """Expired tuples that lazy invalidation keeps on top of that, on average; 0 where it is active."""
    output_rate: Annotated[Number, Field(examples=[250.0])]
    """Results per second."""
    full_output_rate: Annotated[Number, Field(examples=[310.0])]
    """Results per second if nothing were short."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of the output rate."""
    bound: Annotated[Number, Field(examples=[250.0])]
    """A proven upper bound of it."""
    gap: Annotated[Number, Field(examples=[0.0])]
    """(bound − output_rate) / bound."""

"""Replans: is the plan that runs still the one to run? (contract §3, POST /v1/replans)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from models.base import Flag, Model, NonNegative, Number, Positive, is_none
from models.faults import Fault, check_plans, check_same_query, check_shares, with_faults
from models.plan import Plan, Termination
from models.request import PlanRequest

__all__ = ["ChangeKind", "Decision", "Measured", "Rebuild", "Replan", "ReplanRequest", "Running", "Thresholds"]


class Decision(StrEnum):
    """Whether the plan that runs goes on."""

    KEEP = "keep"
    CHANGE = "change"


class ChangeKind(StrEnum):
    """What changes, from the least to the most: nothing; probe orders; caches; allowances; the join tree. Each may bring those before it along."""

    NONE = "none"
    ORDERS = "orders"
    CACHES = "caches"
    ALLOCATION = "allocation"
    TREE = "tree"


class Measured(Model):
    """What the pipeline itself reports of the last windows. What it does not know is left out."""

    output_rate: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[290.0])] = None
    """Results per second."""
    cpu: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[0.5])] = None
    """CPU-seconds per second."""
    memory_bytes: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[1.3e8])] = None
    """Bytes of all states and caches."""


class Thresholds(Model):
    """When to look, and when to change: papers 1 and 2. Shares: 0.05 is 5 %."""

    error: Annotated[Number, Field(ge=0, le=100, examples=[0.05])] = 0.05
    """ε: how far any figure may be off what the running plan was made for before anything is looked at."""
    gain: Annotated[Number, Field(ge=0, le=100, examples=[0.05])] = 0.05
    """p: what a change must bring, even if every statistic were off by ε towards what the running plan was made for."""


class ReplanRequest(Model):
    """The plan that runs, and what would be asked for now: keep it, or change it, and to what?"""

    plan: Plan
    """The plan that runs: as it was made, or as the last answer returned it."""
    request: PlanRequest
    """What would be asked for now: the same streams, windows and predicates with the statistics that were measured."""
    measured: Measured = Measured()
    """What the pipeline itself reports."""
    thresholds: Thresholds = Thresholds()
    """ε and p."""
    horizon: Annotated[Positive | None, Field(exclude_if=is_none, examples=[600.0])] = None
    """Seconds within which a change must have saved more than building its new states costs; the longest window where it is left out."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, _check)


def _check(data: Any) -> Iterator[Fault]:
    yield from check_plans("plan")(data)
    yield from check_same_query(data, ("plan", "query"), ("request", "query"))
    yield from check_same_query(data, ("plan", "query"), ("plan", "made_for"))
    yield from check_shares(data, ("plan", "query"), ("plan", "allocation"))


class Running(Model):
    """The running plan under the statistics of the request, as it runs: with its probe orders, algorithms, caches and allowances."""

    cpu: Annotated[Number, Field(examples=[0.412])]
    """CPU-seconds per second; with allowances, what those let through costs."""
    memory_bytes: Annotated[Number, Field(examples=[1.2e8])]
    """Bytes of all states and caches."""
    output_rate: Annotated[Number, Field(examples=[310.0])]
    """Results per second; with allowances, those that are let through."""
    qualified: Annotated[Flag, Field(examples=[True])]
    """Whether it is within the caps of the request when nothing is shed."""


class Rebuild(Model):
    """A state that a change has to make from others."""

    operator: Annotated[str, Field(examples=["join-1"])]
    """The operator of the new plan whose output it is."""
    tuples: Annotated[Number, Field(examples=[12600.0])]
    """Tuples that it will hold."""
    bytes: Annotated[Number, Field(examples=[2.5e6])]
    """Bytes of them."""


class Replan(Model):
    """What to run from now on, and why."""

    decision: Annotated[Decision, Field(examples=["change"])]
    """Whether the running plan goes on."""
    kind: Annotated[ChangeKind, Field(examples=["orders"])]
    """The smallest change that brings the gain; `none` with `keep`."""
    reasons: Annotated[list[str], Field(examples=[["bids.rate is 2.4k, and the plan was made for 920."]])]
    """Short sentences a person can read: what is off, what was found, why it is worth it or not."""
    gain: Annotated[Number, Field(examples=[0.12])]
    """What the change brings, as a share of what the running plan has: less CPU or memory, more headroom, or, where the CPU is short, more
    results per second (an overloaded plan without allowances yields as many as its CPU suffices for). Below 0 where the running plan does not fit
    and the one that does costs more; 0 with `keep`."""
    running: Running
    """The running plan under the statistics of the request."""
    plan: Plan
    """The plan to run from now on; with `keep` the running one, priced again. Where the measured CPU decides what fits the caps, the `costs` of
    a new plan are the request's, scaled to it."""
    rebuild: list[Rebuild]
    """What has to be built before the plan is whole: subresults that it keeps and the running plan does not."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended."""

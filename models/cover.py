"""The weighted multiple set cover of paper 2 on its own (contract §5, POST /v1/solvers/cover)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from models.allocation import MAX_PATHS, MAX_STATES, ExecutionModel, Figure, Label, PositiveFigure, RequiredState, doubles, names_of
from models.base import Flag, Model, Number, is_none
from models.faults import Fault, with_faults
from models.faults import _get as get
from models.faults import _items as items
from models.plan import Proof, Termination
from models.request import MAX_TIME_LIMIT

__all__ = ["CoverAnswer", "CoverMethod", "CoverPath", "CoverRequest"]


class CoverMethod(StrEnum):
    """Exact, or GH-WMSCP, the greedy heuristic."""

    EXACT = "exact"
    GREEDY = "greedy"


class CoverPath(Model):
    """One path and the states that it refreshes."""

    name: Annotated[Label, Field(examples=["A"])]
    """Name of the path, unique."""
    cost: Annotated[Figure, Field(examples=[15.0])]
    """Resources that one unit takes."""
    covers: Annotated[dict[Label, PositiveFigure], Field(max_length=MAX_STATES, examples=[{"AB": 5.0}])]
    """What one unit brings to each state, by name of the state."""
    max_units: Annotated[Figure | None, Field(exclude_if=is_none, examples=[10.0])] = None
    """Units there are; left out: no limit."""


class CoverRequest(Model):
    """Refresh every state at the least cost."""

    states: Annotated[list[RequiredState], Field(max_length=MAX_STATES)]
    """What must be covered, and how often."""
    paths: Annotated[list[CoverPath], Field(max_length=MAX_PATHS)]
    """What it can be covered with."""
    model: Annotated[ExecutionModel, Field(examples=["continuous"])] = ExecutionModel.CONTINUOUS
    """Whether units are any numbers or whole ones."""
    capacity: Annotated[Figure | None, Field(exclude_if=is_none, examples=[100.0])] = None
    """Resources there are; left out: no cap. A cover that costs more is not feasible."""
    method: Annotated[CoverMethod, Field(examples=["exact"])] = CoverMethod.EXACT
    """How to search."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Seconds the search may take; then the best cover so far comes back, with its bound."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, _check_cover)


class CoverAnswer(Model):
    """A cover, its cost and what is proven of it."""

    feasible: Annotated[Flag, Field(examples=[True])]
    """Whether every state is covered within the capacity."""
    cost: Annotated[Number, Field(examples=[45.0])]
    """Resources that these units take."""
    units: Annotated[dict[str, Number], Field(examples=[{"A": 3.0, "B": 0.0}])]
    """Units of every path; where the capacity is short, those of the least cover found, cut down to it."""
    uncovered: Annotated[list[str], Field(examples=[["CD"]])]
    """States that these units leave short."""
    least_capacity: Annotated[Number | None, Field(examples=[45.0])]
    """The least capacity known to cover every state; null where none does."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of `least_capacity`, the cost of covering all that can be covered."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    bound: Annotated[Number | None, Field(examples=[45.0])]
    """A proven lower bound of it; null with proof none."""
    gap: Annotated[Number | None, Field(examples=[0.0])]
    """(least_capacity − bound) / least_capacity; null with proof none."""


def _check_cover(request: Any) -> Iterator[Fault]:
    """Names are unique, and paths cover states that there are."""
    states = names_of(request, "states")
    yield from doubles("states", states)
    yield from doubles("paths", names_of(request, "paths"))
    for i, path in enumerate(items(request, "paths")):
        covers = get(path, "covers")
        for state in covers if isinstance(covers, dict) else ():
            if state not in states:
                yield ("paths", i, "covers", state), f"covers names state {state!r}, which is not in states"

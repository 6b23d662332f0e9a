"""The knapsack of paper 2 on its own: who may probe how much (contract §5, POST /v1/solvers/allocation)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, Field, model_validator
from pydantic_core import PydanticCustomError

from models.base import Flag, Model, NonNegative, Number, Positive, Share, is_none
from models.faults import Fault, with_faults
from models.faults import _get as get
from models.faults import _is_real as is_real
from models.faults import _items as items
from models.method import Able
from models.plan import Proof, Termination
from models.request import MAX_TIME_LIMIT

__all__ = [
    "AllocatedPath",
    "AllocationAnswer",
    "AllocationMethod",
    "AllocationPath",
    "AllocationRequest",
    "AllocationStep",
    "ExecutionModel",
    "RequiredState",
]

MAX_PATHS = 1000  # five plans of the largest query
MAX_STEPS = 200  # a path visits every other stream at most once
MAX_STATES = 1000  # as many as paths

MOST, LEAST = 1e12, 1e-12  # of any figure: products of a few stay exact enough to compare, and no quotient overflows

Label = Annotated[str, Field(min_length=1, max_length=64)]


def _nothing_or_enough(value: float) -> float:
    if 0.0 < value < LEAST:
        raise PydanticCustomError("tiny", f"must be 0 or at least {LEAST:g}")
    return value


Figure = Annotated[NonNegative, Field(le=MOST), AfterValidator(_nothing_or_enough)]
PositiveFigure = Annotated[Positive, Field(ge=LEAST, le=MOST)]


class ExecutionModel(StrEnum):
    """Whether a path may take any amount of units, or whole ones only."""

    CONTINUOUS = "continuous"
    DISCRETE = "discrete"


@dataclass(frozen=True, slots=True)
class AllocationAbilities:
    """What one method of allocation can do, and what it needs."""

    models: tuple[ExecutionModel, ...] = tuple(ExecutionModel)
    """The models it knows."""
    refreshes: bool = False
    """Whether it refreshes states, in the continuous model."""
    whole_figures: bool = False
    """Whether capacity and resources have to be whole numbers: its table has a row for each."""
    half_ways: bool = False
    """Whether it shares out over half-way joins, and so needs the steps of every path with their operators."""
    selectivities: bool = False
    """Whether it needs the selectivity of every step."""


ANYTHING = AllocationAbilities()
BY_HALF_WAYS = AllocationAbilities((ExecutionModel.CONTINUOUS,), half_ways=True)


class AllocationMethod(Able):
    """How the capacity is shared out."""

    can: AllocationAbilities

    EXACT = ("exact", AllocationAbilities(refreshes=True))
    DP = ("dp", AllocationAbilities((ExecutionModel.DISCRETE,), whole_figures=True))
    GREPP = ("grepp", ANYTHING)
    JAQPOT = ("jaqpot", AllocationAbilities((ExecutionModel.CONTINUOUS,), refreshes=True))
    EQUAL = ("equal", BY_HALF_WAYS)
    GLOBAL_RATIO = ("global_ratio", BY_HALF_WAYS)
    EQUAL_BEST = ("equal_best", BY_HALF_WAYS)
    SELECTIVITY_BEST = ("selectivity_best", replace(BY_HALF_WAYS, selectivities=True))


SharedSteps = dict[tuple[str, str, int], tuple[int, tuple[Any, ...]]]
"""(operator, where its tuples come from, position in its pipeline) → the first path that has this step, and the step's figures."""


class AllocationStep(Model):
    """One half-way join of a path."""

    productivity: Annotated[Figure, Field(examples=[2.5])]
    """Tuples that one arriving tuple makes: ρ_h."""
    unit_cost: Annotated[PositiveFigure, Field(examples=[1.0])] = 1.0
    """Resources that one arriving tuple takes."""
    operator: Annotated[Label | None, Field(exclude_if=is_none, examples=["join-1"])] = None
    """The join that this half-way join is a direction of."""
    selectivity: Annotated[Share | None, Field(exclude_if=is_none, examples=[0.001])] = None
    """Selectivity of that join."""


class AllocationPath(Model):
    """One input path: either `resources` and `output` of a unit, or `rate` and `steps`, from which they follow for one input tuple."""

    name: Annotated[Label, Field(examples=["A"])]
    """Name of the path, unique: the stream it starts at."""
    resources: Annotated[Figure | None, Field(exclude_if=is_none, examples=[15.0])] = None
    """Resources that one unit takes."""
    output: Annotated[Figure | None, Field(exclude_if=is_none, examples=[4.0])] = None
    """Results that one unit yields."""
    max_units: Annotated[Figure | None, Field(exclude_if=is_none, examples=[10.0])] = None
    """Units there are; left out: no limit, or the rate where `steps` are given."""
    rate: Annotated[PositiveFigure | None, Field(exclude_if=is_none, examples=[500.0])] = None
    """Arrivals of the path's stream, in tuples per second."""
    steps: Annotated[list[AllocationStep] | None, Field(exclude_if=is_none, min_length=1, max_length=MAX_STEPS)] = None
    """Its half-way joins from the stream to the root."""
    covers: Annotated[dict[Label, PositiveFigure], Field(max_length=MAX_STATES, examples=[{"AB": 5.0}])] = {}
    """New tuples per second that one unit brings to a state, by name of the state."""


class RequiredState(Model):
    """A state that goes stale unless it is refreshed."""

    name: Annotated[Label, Field(examples=["AB"])]
    """Name of the state, unique."""
    required: Annotated[Figure, Field(examples=[120.0])]
    """New tuples per second that it needs: its refresh rate."""


class AllocationRequest(Model):
    """Share out a capacity over input paths so that the most results come out, and every state stays fresh."""

    capacity: Annotated[Figure, Field(examples=[300.0])]
    """Resources there are: probes per second, or whatever `resources` and `unit_cost` are counted in."""
    model: Annotated[ExecutionModel, Field(examples=["continuous"])] = ExecutionModel.CONTINUOUS
    """Whether units are any numbers or whole ones."""
    paths: Annotated[list[AllocationPath], Field(min_length=1, max_length=MAX_PATHS)]
    """The input paths."""
    states: Annotated[list[RequiredState], Field(max_length=MAX_STATES)] = []
    """States that must be refreshed: for `exact` (continuous) and `jaqpot`."""
    method: Annotated[AllocationMethod, Field(examples=["exact"])] = AllocationMethod.EXACT
    """exact; dp: the dynamic program over whole capacities; grepp: most productive path first; jaqpot: greedy cover, then grepp;
    equal, global_ratio, equal_best, selectivity_best: by half-way productivities."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Seconds the search may take; then the best allocation so far comes back, with its bound."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_allocation)


class AllocatedPath(Model):
    """What one path gets."""

    name: Annotated[str, Field(examples=["B"])]
    """Name of the path."""
    units: Annotated[Number, Field(examples=[1.875])]
    """Units of it, or input tuples per second that may probe."""
    resources: Annotated[Number, Field(examples=[30.0])]
    """Resources that they take."""
    output: Annotated[Number, Field(examples=[9.375])]
    """Results that they yield."""
    steps: Annotated[list[Number], Field(examples=[[20.625, 9.375]])]
    """Tuples per second that this path brings to each of its steps; empty where no steps were given."""


class AllocationAnswer(Model):
    """An allocation, its value and what is proven of it."""

    throughput: Annotated[Number, Field(examples=[9.375])]
    """Results that all paths yield together."""
    used: Annotated[Number, Field(examples=[30.0])]
    """Resources used."""
    paths: list[AllocatedPath]
    """What each path gets, in the order of the request."""
    feasible: Annotated[Flag, Field(examples=[True])]
    """Whether every state gets its refresh rate."""
    uncovered: Annotated[list[str], Field(examples=[["AB"]])]
    """States that get less than their refresh rate."""
    least_capacity: Annotated[Number | None, Field(examples=[12.5])]
    """The least capacity known to refresh every state; null where no capacity does."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of the throughput."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    bound: Annotated[Number | None, Field(examples=[9.375])]
    """A proven upper bound of the throughput; null with proof none."""
    gap: Annotated[Number | None, Field(examples=[0.0])]
    """(bound − throughput) / bound; null with proof none."""


def check_allocation(request: Any) -> Iterator[Fault]:
    """What spans the fields of a request: which path says what, and what each method needs."""
    asked = get(request, "method") or AllocationMethod.EXACT
    method = next((known for known in AllocationMethod if known == asked), None)
    can = ANYTHING if method is None else method.can
    discrete = get(request, "model") == ExecutionModel.DISCRETE
    capacity = get(request, "capacity")
    if not discrete and ExecutionModel.CONTINUOUS not in can.models:
        yield ("model",), f"model must be discrete for {method}: its table has one row per whole unit of capacity"
    if can.whole_figures and is_real(capacity) and capacity != capacity // 1:
        yield ("capacity",), f"capacity must be a whole number for {method}, got {capacity}"
    if discrete and ExecutionModel.DISCRETE not in can.models:
        yield ("model",), f"model must be continuous for {method}"
    states = names_of(request, "states")
    if states and (discrete or not can.refreshes):
        able = " and ".join(known for known in AllocationMethod if known.can.refreshes)
        yield ("states",), f"states are refreshed by {able} only, in the continuous model"
    yield from doubles("states", states)
    yield from doubles("paths", names_of(request, "paths"))
    shared: SharedSteps = {}
    for i, path in enumerate(items(request, "paths")):
        if not isinstance(path, (Mapping, BaseModel)):
            continue
        covers = get(path, "covers")
        for state in covers if isinstance(covers, dict) else ():
            if state not in states:
                yield ("paths", i, "covers", state), f"covers names state {state!r}, which is not in states"
        yield from _check_path(i, path, method, shared)


def _check_path(i: int, path: Any, method: AllocationMethod | None, shared: SharedSteps) -> Iterator[Fault]:
    resources, output, rate, steps = (get(path, field) for field in ("resources", "output", "rate", "steps"))
    plain, stepped = (resources is not None, output is not None), (rate is not None, steps is not None)
    if (any(plain) and any(stepped)) or (all(plain) is all(stepped)):
        yield ("paths", i), "a path needs resources and output, or rate and steps: exactly one of the two pairs, and both of it"
    if resources == 0 and is_real(output) and output > 0 and get(path, "max_units") is None:
        yield ("paths", i, "max_units"), "max_units is required for a path that takes no resources"
    if method is None:
        return
    if method.can.whole_figures and is_real(resources) and resources != resources // 1:
        yield ("paths", i, "resources"), f"resources must be a whole number for {method}, got {resources}"
    if method.can.whole_figures and steps is not None:
        yield ("paths", i, "steps"), f"steps cannot be used with {method}: give whole resources and an output"
    if method.can.half_ways:
        if steps is None:
            yield ("paths", i, "steps"), f"steps are required for {method}"
        yield from _check_half_ways(i, path, method, shared)


def _check_half_ways(i: int, path: Any, method: AllocationMethod, shared: SharedSteps) -> Iterator[Fault]:
    """Every step names its operator, and paths that meet agree on what they share."""
    entry, last, index = f"path {get(path, 'name')}", "", 0
    for j, step in enumerate(items(path, "steps")):
        operator = get(step, "operator")
        if not isinstance(operator, str):
            yield ("paths", i, "steps", j, "operator"), f"operator is required for {method}"
            return
        if method.can.selectivities and get(step, "selectivity") is None:
            yield ("paths", i, "steps", j, "selectivity"), f"selectivity is required for {method}"
        if operator != last:
            entry, index = (f"operator {last}", 0) if last else (entry, 0)
        figures = (get(step, "productivity"), get(step, "unit_cost") or 1)
        first, known = shared.setdefault((operator, entry, index), (i, figures))
        if known != figures:
            yield (
                ("paths", i, "steps", j),
                f"paths that come to {operator} from {entry} share this half-way join: productivity and unit_cost must be those of /paths/{first}",
            )
        last, index = operator, index + 1


def doubles(field: str, names: list[Any]) -> Iterator[Fault]:
    for i, name in enumerate(names):
        if name is not None and name in names[:i]:
            yield (field, i, "name"), f"name {name!r} is taken by /{field}/{names.index(name)}; names must be unique"


def names_of(request: Any, field: str) -> list[Any]:
    names = (get(item, "name") for item in items(request, field))
    return [name if isinstance(name, str) else None for name in names]

"""Which caches to use: the request and the answer of POST /v1/solvers/caches (contract §5, paper 1 App. B)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field, model_validator

from models.base import Model, NonNegative, Number, Whole, is_none
from models.faults import Fault, with_faults
from models.plan import Proof, Termination
from models.request import MAX_TIME_LIMIT

__all__ = [
    "CacheAllocation",
    "CacheCandidate",
    "CacheGroup",
    "CacheMethod",
    "CachePipeline",
    "CacheSelection",
    "CacheSelectionRequest",
]

MAX_PIPELINES = 200  # one per stream of the largest query
MAX_OPERATORS = 200  # probes of one pipeline of the largest query
MAX_CANDIDATES = 10_000  # far above what 200 pipelines have under the prefix invariant

Name = Annotated[str, Field(min_length=1, max_length=64)]


class CacheMethod(StrEnum):
    """How the caches are selected."""

    EXACT = "exact"
    GREEDY = "greedy"
    LP_ROUNDING = "lp_rounding"
    TREE = "tree"
    EXHAUSTIVE = "exhaustive"


class CacheAllocation(StrEnum):
    """How `memory_bytes` is honoured: inside the selection itself, or afterwards, by net benefit per byte (paper 1 §5)."""

    PROGRAM = "program"
    PRIORITY = "priority"


class CachePipeline(Model):
    """One probe pipeline: what each of its operators costs when no cache answers it."""

    name: Annotated[Name, Field(examples=["T"])]
    """Name of the pipeline, unique in the request."""
    operator_costs: Annotated[list[NonNegative], Field(min_length=1, max_length=MAX_OPERATORS, examples=[[0.02, 0.011]])]
    """CPU-seconds per second of each operator, in probe order: paper 1's d·c."""


class CacheGroup(Model):
    """Caches that share their entries, and so are kept up to date once for all."""

    id: Annotated[Name, Field(examples=["R⋈S"])]
    """Name of the group, unique in the request."""
    update_cost: Annotated[NonNegative, Field(examples=[0.004])]
    """CPU-seconds per second to keep the entries up to date, paid once if any member is chosen: paper 1's cost."""


class CacheCandidate(Model):
    """A run of operators of one pipeline that a cache could answer."""

    id: Annotated[Name, Field(examples=["R⋈S for T"])]
    """Name of the candidate, unique in the request."""
    pipeline: Annotated[Name, Field(examples=["T"])]
    """The pipeline it shortens."""
    first: Annotated[Whole, Field(ge=0, examples=[0])]
    """Index of the first operator it answers."""
    last: Annotated[Whole, Field(ge=0, examples=[1])]
    """Index of the last operator it answers, at least `first`."""
    group: Annotated[Name, Field(examples=["R⋈S"])]
    """The group whose entries it uses."""
    proc: Annotated[NonNegative, Field(examples=[0.009])]
    """CPU-seconds per second of using it, misses included and updates apart: paper 1's proc."""
    memory_bytes: Annotated[NonNegative, Field(examples=[64000.0])] = 0.0
    """Bytes of its entries."""
    excludes: Annotated[list[Name], Field(max_length=MAX_CANDIDATES, examples=[[]])] = []
    """Groups that cannot be used beside it, because it skips a step at which they are kept up to date. Only globally-consistent caches have any."""


class CacheSelectionRequest(Model):
    """Pipelines, the caches that could shorten them, and what these cost: cover every operator once, as cheaply as possible."""

    pipelines: Annotated[list[CachePipeline], Field(min_length=1, max_length=MAX_PIPELINES)]
    """The pipelines."""
    candidates: Annotated[list[CacheCandidate], Field(max_length=MAX_CANDIDATES)] = []
    """The caches to choose from."""
    groups: Annotated[list[CacheGroup], Field(max_length=MAX_CANDIDATES)] = []
    """The groups that candidates name."""
    memory_bytes: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[1e6])] = None
    """Bytes for all chosen caches; left out, no cap. A group counts once, with its largest chosen member."""
    allocation: Annotated[CacheAllocation, Field(examples=["program"])] = CacheAllocation.PROGRAM
    """How the cap is honoured."""
    method: Annotated[CacheMethod, Field(examples=["exact"])] = CacheMethod.EXACT
    """How to select; `tree` only where no two candidates share a group, `exhaustive` only for few groups."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Seconds the selection may take; then the best so far comes back, with its bound."""
    seed: Annotated[Whole, Field(ge=0, lt=2**31, examples=[0])] = 0
    """Seed of the rounding: same seed, same answer."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_selection)


class CacheSelection(Model):
    """The chosen caches. Every operator that none of them answers runs by itself."""

    chosen: Annotated[list[str], Field(examples=[["R⋈S for T"]])]
    """Ids of the chosen candidates, in the order of the request."""
    total_cost: Annotated[Number, Field(examples=[0.013])]
    """CPU-seconds per second of all pipelines and of keeping the chosen groups."""
    cost_without_caches: Annotated[Number, Field(examples=[0.031])]
    """CPU-seconds per second of all pipelines where no cache is used."""
    memory: Annotated[dict[str, Number], Field(examples=[{"R⋈S for T": 64000.0}])]
    """Bytes by chosen candidate. Of those that share a group the largest carries the bytes, the others 0."""
    memory_bytes: Annotated[Number, Field(examples=[64000.0])]
    """Bytes of all chosen caches."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of `total_cost`."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    bound: Annotated[Number | None, Field(examples=[0.013])]
    """A proven lower bound of the total cost; null with proof none."""
    gap: Annotated[Number | None, Field(examples=[0.0])]
    """(total_cost − bound) / total_cost; null with proof none."""
    lp_bound: Annotated[Number | None, Field(examples=[0.013])]
    """The optimum of the linear relaxation, never above the true one; null where the method did not need it or the solver failed."""
    ratio: Annotated[Number | None, Field(examples=[1.0])]
    """total_cost / lp_bound; null without an LP bound, or where that is 0."""


def _text(item: Any, key: str) -> Any:
    if isinstance(item, dict):
        return item.get(key)
    return getattr(item, key, None) if isinstance(item, BaseModel) else None


def _listed(item: Any, key: str) -> list[Any]:
    value = _text(item, key)
    return list(value) if isinstance(value, (list, tuple)) else []


def _index(value: Any) -> int | None:
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1 else None


def check_selection(request: Any) -> Iterator[Fault]:
    """What spans the fields of a cache selection: unique names, references, segments inside their pipelines."""
    named: dict[str, dict[str, int]] = {}
    for field, key in (("pipelines", "name"), ("groups", "id"), ("candidates", "id")):
        first = named[field] = {}
        for i, item in enumerate(_listed(request, field)):
            name = _text(item, key)
            if isinstance(name, str):
                if name in first:
                    yield (field, i, key), f"{key} {name!r} is taken by /{field}/{first[name]}; names must be unique"
                first.setdefault(name, i)
    pipelines = _listed(request, "pipelines")
    for i, candidate in enumerate(_listed(request, "candidates")):
        for field, kind in (("pipeline", "pipelines"), ("group", "groups")):
            name = _text(candidate, field)
            if isinstance(name, str) and name not in named[kind]:
                yield ("candidates", i, field), f"{field} {name!r} is not one of {kind}"
        for j, name in enumerate(_listed(candidate, "excludes")):
            if isinstance(name, str) and name not in named["groups"]:
                yield ("candidates", i, "excludes", j), f"excludes names {name!r}, which is not one of groups"
            elif isinstance(name, str) and name == _text(candidate, "group"):
                yield ("candidates", i, "excludes", j), f"a candidate cannot exclude its own group, {name!r}"
        start, end = _index(_text(candidate, "first")), _index(_text(candidate, "last"))
        if start is None or end is None:
            continue
        if start > end:
            yield ("candidates", i, "last"), f"last must be at least first, {start}, got {end}"
        name = _text(candidate, "pipeline")
        if isinstance(name, str) and name in named["pipelines"]:
            length = len(_listed(pipelines[named["pipelines"][name]], "operator_costs"))
            if length and end >= length:
                yield ("candidates", i, "last"), f"pipeline {name!r} has {length} operators, so last must be at most {length - 1}, got {end}"

"""Checks: approved plans against the plans of today (contract §6, `watersmeet check` and POST /v1/checks)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from models.base import Flag, Model, Number, Whole
from models.faults import check_plans, with_faults
from models.plan import Diff, Plan, Termination
from models.request import MAX_TIME_LIMIT, PlanRequest

__all__ = ["Aspect", "Bar", "CaseResult", "CheckCase", "CheckReport", "CheckRequest", "CheckStatus", "Tolerance", "Verdict", "VerdictCounts"]

MAX_CASES = 200  # with a second each, what the longest time limit allows


class Verdict(StrEnum):
    """What became of an approved plan, from nothing to the worst."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    IMPROVED = "improved"
    CHANGED = "changed"
    REGRESSED = "regressed"
    FAILED = "failed"


class Bar(StrEnum):
    """The first verdict that makes a check fail; every worse one does as well."""

    EQUIVALENT = "equivalent"
    IMPROVED = "improved"
    CHANGED = "changed"
    REGRESSED = "regressed"


class Aspect(StrEnum):
    """In what a plan got worse."""

    CPU = "cpu"
    MEMORY = "memory"
    OUTPUT_RATE = "output_rate"
    PROOF = "proof"
    QUALIFIED = "qualified"


class CheckStatus(StrEnum):
    """Nothing at or past the bar; something is; some case could not be checked, so that nothing can be said of the whole."""

    CLEAN = "clean"
    FINDINGS = "findings"
    BROKEN = "broken"


class Tolerance(Model):
    """How much a figure may move before it counts, as a share of the approved plan's: 0.05 is 5 %."""

    cpu: Annotated[Number, Field(ge=0, le=100, examples=[0.05])] = 0.0
    """Of the CPU."""
    memory: Annotated[Number, Field(ge=0, le=100, examples=[0.1])] = 0.0
    """Of the memory."""
    output_rate: Annotated[Number, Field(ge=0, le=100, examples=[0.01])] = 0.0
    """Of the results per second."""


class CheckCase(Model):
    """A request and the plan that was approved for it."""

    name: Annotated[str, Field(min_length=1, max_length=255, examples=["auction"])]
    """Name of the case, for the report."""
    request: PlanRequest
    """What is planned anew."""
    plan: Plan
    """The approved plan."""
    version: Annotated[str | None, Field(max_length=64, examples=["0.1.0"])] = None
    """The version of Watersmeet that made the approved plan, where it is known."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_plans("plan"))


class CheckRequest(Model):
    """Cases to plan anew and to compare with what was approved."""

    cases: Annotated[list[CheckCase], Field(min_length=1, max_length=MAX_CASES)]
    """The cases."""
    tolerance: Tolerance = Tolerance()
    """What is noise."""
    fail_on: Annotated[Bar, Field(examples=["regressed"])] = Bar.REGRESSED
    """The first verdict that makes the check fail."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[60.0])] = 60.0
    """Seconds for all cases together; each has its own limit besides."""


class CaseResult(Model):
    """What became of one case."""

    name: Annotated[str, Field(examples=["auction"])]
    """Name of the case."""
    verdict: Annotated[Verdict, Field(examples=["regressed"])]
    """How the plan of today compares with the approved plan, priced as of today."""
    fails: Annotated[Flag, Field(examples=[True])]
    """Whether the verdict is at or past the bar."""
    regressions: Annotated[list[Aspect], Field(examples=[["cpu"]])]
    """In what it got worse."""
    notes: Annotated[list[str], Field(examples=[["costs.join: 2.2e-06 → 3e-06"]])]
    """What differs around the plan: version, cost constants, the request. Read these first."""
    reasons: Annotated[list[str], Field(examples=[["CPU 0.4 → 0.5 (+25 %, tolerance 5 %)"]])]
    """Why it has this verdict, the worst first."""
    approved: Plan | None
    """The approved plan, priced under the request and the cost model of today; null where that failed."""
    plan: Plan | None
    """The plan of today; null where there is none."""
    diff: Diff | None
    """From `approved` to `plan`; null where one of them is."""


class VerdictCounts(Model):
    """Cases by verdict."""

    identical: Annotated[Whole, Field(ge=0, examples=[7])]
    """Nothing changed."""
    equivalent: Annotated[Whole, Field(ge=0, examples=[1])]
    """Another structure at the same cost."""
    improved: Annotated[Whole, Field(ge=0, examples=[1])]
    """Better in something, worse in nothing."""
    changed: Annotated[Whole, Field(ge=0, examples=[0])]
    """Another request, another cost model, or another structure whose cost differs within the tolerance."""
    regressed: Annotated[Whole, Field(ge=0, examples=[1])]
    """Worse in something by more than the tolerance."""
    failed: Annotated[Whole, Field(ge=0, examples=[0])]
    """Could not be planned or compared."""


class CheckReport(Model):
    """The outcome of a check."""

    version: Annotated[str, Field(examples=["0.1.0"])]
    """The version of Watersmeet that planned anew."""
    status: Annotated[CheckStatus, Field(examples=["findings"])]
    """Clean, findings, or broken."""
    counts: VerdictCounts
    """Cases by verdict."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why planning ended: `complete` where it did for every case."""
    cases: list[CaseResult]
    """Every case, the worst first."""

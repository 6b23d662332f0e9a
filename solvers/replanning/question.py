"""What a replan asks, worked out: the running way, and the problems that ways are priced under.

Beside today's problem there is the one that the running plan was made for, and one between the two (`statistics`): a change has to be worth it there
as well. Where the pipeline reports its CPU, and the cost constants would have it otherwise by more than the error, the constants are scaled by
that factor: plans are compared as before, but what fits a cap on CPU is judged by what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from models.replan import Measured, ReplanRequest, Thresholds
from models.request import Costs, Query
from solvers.common.errors import RangeError, WatersmeetError
from solvers.jtree.search import Problem
from solvers.model.cost import CostModel
from solvers.model.ranges import check_range
from solvers.planner import problem_of
from solvers.replanning.statistics import Drift, in_order, is_off, offering
from solvers.replanning.ways import Priced, Way, price, way_of_plan

__all__ = ["Question", "pointing", "question"]


@dataclass(frozen=True)
class Question:
    """Is the running plan still the one to run?"""

    asked: ReplanRequest
    drift: Drift
    """From the statistics that the running plan was made for to today's."""
    before: Problem
    """What the running plan was made for."""
    now: Problem
    """Today's problem, its costs times `factor`."""
    eased: Problem
    """The same, its statistics eased towards those of `before`."""
    priced: Priced
    """The running way under the request as it stands."""
    running: Priced
    """The running way under `now`."""
    running_eased: Priced
    """The running way under `eased`."""
    factor: float
    """The measured CPU as a multiple of what the cost constants say, where that is needed; else 1."""

    @property
    def way(self) -> Way:
        """The running way."""
        return self.running.way

    @property
    def thresholds(self) -> Thresholds:
        return self.asked.thresholds

    @property
    def horizon(self) -> float:
        """Seconds within which a change must have saved what building its states costs."""
        return self.asked.horizon or max(seconds for seconds in self.now.model.graph.window_seconds if math.isfinite(seconds))

    @property
    def made_for(self) -> Query:
        """The statistics that the running plan was made for."""
        return self.drift.was


def question(asked: ReplanRequest) -> Question:
    """The question, ready to be answered. Raises WatersmeetError with a pointer into the replan request."""
    plan, request, error = asked.plan, asked.request, asked.thresholds.error
    drift = Drift(in_order(plan.made_for or plan.query, request.query), request.query)
    with pointing("/plan"):
        before = problem_of(request.model_copy(update={"query": offering(drift.was, request.query), "costs": plan.costs}))
        check_range(before.model)
    with pointing("/request"):
        now = problem_of(request).with_keys_of(before)
        check_range(now.model)
        way = way_of_plan(now, plan, before)
        priced = price(now, way)
        factor = calibration(priced, asked.measured, error)
        eased = scaled(problem_of(request.model_copy(update={"query": drift.eased(error)})).with_keys_of(before), factor)
        now = scaled(now, factor)
        running = priced if factor == 1.0 else price(now, way)
        return Question(asked, drift, before, now, eased, priced, running, price(eased, way), factor)


@contextmanager
def pointing(holder: str) -> Iterator[None]:
    """Faults of figures point into `holder`, those of shapes into the running plan."""
    try:
        yield
    except WatersmeetError as bad:
        bad.pointer = f"{holder if isinstance(bad, RangeError) or bad.pointer.startswith('/query') else '/plan'}{bad.pointer}"
        raise


def calibration(priced: Priced, measured: Measured, error: float) -> float:
    """What the measured CPU is as a multiple of the CPU by the cost constants; 1 where nothing depends on it, or it cannot be told.

    It matters where there is a cap on CPU. A pipeline that uses all the CPU there is might use more, so less than the constants say is
    believed only clearly below the cap, and where results are not missing.
    """
    cap, said, used = priced.problem.caps.cpu, priced.cpu, measured.cpu
    if math.isinf(cap) or not used or not said > 0.0 or not is_off(said, used, error):
        return 1.0
    lacking = measured.output_rate is not None and measured.output_rate < priced.output_rate * (1.0 - error)
    if used < said and (said <= cap or used * (1.0 + error) > cap or lacking):
        return 1.0
    factor = used / said
    return factor if math.isfinite(factor) and factor > 0.0 else 1.0


def scaled(problem: Problem, factor: float) -> Problem:
    """The problem with all cost constants times the factor."""
    if factor == 1.0:
        return problem
    costs = problem.model.costs
    figures = {name: getattr(costs, name) * factor for name in Costs.model_fields}
    if not all(map(math.isfinite, figures.values())):
        raise RangeError(
            f"the CPU that was measured is {factor:.3g} times what the costs say, which takes these out of the range of a double", "/costs"
        )
    larger = Costs(**figures)
    return replace(problem, model=CostModel(problem.model.graph, larger)).with_keys_of(problem)

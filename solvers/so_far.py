"""What can be answered at once, for searches that outlive their time limit: a whole answer, and what is known of its proof.

Problem: the time is over, and somebody waits. Method: for join trees the best plan that the search has told of (`progress.Best`), or a greedy
one where it has told of none; for the solvers on their own their greedy method. Nothing is improved, and of a plan what takes long is left out:
allocation, validity, reasons. Guarantee: that of the bound that was proven by then. Complexity: that of pricing one plan, tenths of a second for
200 streams. Nothing is shared with the search, so this may run beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.allocation import AllocationAnswer, AllocationMethod, AllocationRequest, ExecutionModel
from models.caches import CacheMethod, CacheSelection, CacheSelectionRequest
from models.check import CheckReport, CheckRequest
from models.cover import CoverAnswer, CoverMethod, CoverRequest
from models.jtree import JtreeAnswer, JtreeRequest
from models.plan import Frontier, FrontierPoint, Plan, Proof, Termination
from models.replan import Replan, ReplanRequest
from models.request import PlanRequest
from solvers.allocation.solve import solve_allocation
from solvers.caches.solve import solve_caches
from solvers.check import failed, report
from solvers.common.deadline import Deadline
from solvers.cover.solve import solve_cover
from solvers.join_tree import answer_of, plan_request
from solvers.jtree.greedy_tree import greedy_plan
from solvers.jtree.progress import Best
from solvers.jtree.search import ALL_TREES, Found, Problem
from solvers.jtree.tables.shapes import first_points
from solvers.model.cost import CostModel
from solvers.model.point import point_of
from solvers.model.ranges import check_range
from solvers.model.tree import Tree, joins
from solvers.plan.builder import build_plan
from solvers.plan.outcome import Outcome, proven
from solvers.planner import problem_of
from solvers.replan import keep
from solvers.replanning.question import question

if TYPE_CHECKING:
    from solvers.jtree.shape import Shape

__all__ = ["allocation_so_far", "caches_so_far", "check_so_far", "cover_so_far", "frontier_so_far", "jtree_so_far", "plan_so_far", "replan_so_far"]

MOST_PROBES = 16_000  # of a plan that is written: a quarter of a second; one join of 200 streams has 40 000
BOUND_SECONDS = 0.1  # for the linear program that bounds a choice of caches
AT_ONCE = Deadline(0.0)  # a deadline that has passed: whoever looks at it works nothing out
CUT_OFF = {"termination": Termination.TIME_LIMIT}


def plan_so_far(request: PlanRequest, best: Best | None = None) -> Plan:
    """The best plan so far."""
    problem = problem_of(request)
    tree = _found(problem, best)
    return build_plan(problem, proven(problem, Outcome(tree, tree, termination=Termination.TIME_LIMIT, brief=True), AT_ONCE))


def frontier_so_far(request: PlanRequest, best: Best | None = None) -> Frontier:
    """The best plan so far as the one trade-off that is known; none where it does not fit the caps."""
    made = plan_so_far(request, best)
    points = [FrontierPoint(cpu=made.cost.cpu, memory_bytes=made.cost.memory_bytes, plan=made)] if made.qualified else []
    return Frontier(
        points=points, proof=Proof.NONE, termination=Termination.TIME_LIMIT, warnings=["The time limit came before any other trade-off was written."]
    )


def jtree_so_far(request: JtreeRequest, best: Best | None = None) -> JtreeAnswer:
    """The best join tree so far."""
    problem = problem_of(plan_request(request))
    return answer_of(problem, _found(problem, best))


def check_so_far(request: CheckRequest, _: Best | None = None) -> CheckReport:
    """No case could be compared in time: never clean."""
    reason = "the time limit came before it was planned; raise time_limit or check fewer cases at a time"
    return report([failed(case.name, reason) for case in request.cases], request.fail_on).model_copy(update=CUT_OFF)


def replan_so_far(request: ReplanRequest, _: Best | None = None) -> Replan:
    """The running plan goes on: nothing better is known yet."""
    reason = "The time limit came before another plan could be compared with the running one."
    return keep(question(request), [reason], AT_ONCE, brief=True).model_copy(update=CUT_OFF)


def allocation_so_far(request: AllocationRequest, _: Best | None = None) -> AllocationAnswer:
    """The greedy allocation."""
    covers = request.states and request.model is ExecutionModel.CONTINUOUS
    method = AllocationMethod.JAQPOT if covers else AllocationMethod.GREPP
    return solve_allocation(request.model_copy(update={"method": method})).model_copy(update=CUT_OFF)


def cover_so_far(request: CoverRequest, _: Best | None = None) -> CoverAnswer:
    """The greedy cover."""
    return solve_cover(request.model_copy(update={"method": CoverMethod.GREEDY})).model_copy(update=CUT_OFF)


def caches_so_far(request: CacheSelectionRequest, _: Best | None = None) -> CacheSelection:
    """The greedy choice of caches."""
    quick = request.model_copy(update={"method": CacheMethod.GREEDY, "time_limit": BOUND_SECONDS})
    return solve_caches(quick).model_copy(update=CUT_OFF)


def _found(problem: Problem, best: Best | None) -> Found:
    check_range(problem.model)
    point = point_of(problem.model, _tree(problem, best))
    bound = best.bound if best else None
    proof = Proof.NONE if bound is None else Proof.BOUNDED
    return Found(point, (point,), proof, bound, ALL_TREES, termination=Termination.TIME_LIMIT)


def _tree(problem: Problem, best: Best | None) -> Tree:
    """The plan that the search has told of, unless it takes too long to price; else a greedy one."""
    model = problem.model
    if best is not None:
        widths = [len(inputs) for inputs in best.plan.values()] if isinstance(best.plan, dict) else [len(join.inputs) for join in joins(best.plan)]
        if sum(width**2 for width in widths) <= MOST_PROBES:
            return _with_orders(model, best.plan) if isinstance(best.plan, dict) else best.plan
    return first_points(model)[0].tree if model.graph.tables else greedy_plan(model)


def _with_orders(model: CostModel, shape: Shape) -> Tree:
    from solvers.jtree.shape import tree_of_shape  # its compiled code takes a while to import

    return tree_of_shape(model, shape)

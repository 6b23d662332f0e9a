"""What is answered when time is over: whole answers, with no more proof than there is."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from models.check import CheckReport, CheckStatus
from models.plan import EstimateRequest, Plan, Proof, Termination
from models.request import Objective, Options, PlanRequest, Resources
from solvers.common.deadline import Deadline
from solvers.estimate import estimate
from solvers.jtree.progress import Best, Waiting
from solvers.planner import begin, plan, problem_of
from solvers.so_far import MOST_PROBES, frontier_so_far, plan_so_far
from tests.app.mutation import BY_NAME, bodies
from tests.graphs import random_graph

SHAPES = ("chain", "star", "cycle", "clique", "random")
CAPS: tuple[dict[str, float], ...] = ({}, {"cpu": 1e-5}, {"cpu": 1e-4, "memory_bytes": 5e4}, {"memory_bytes": 10.0})


def request(n: int, shape: str, caps: dict[str, float], seed: int = 1, **fields: Any) -> PlanRequest:
    options = Options(caches=fields.pop("caches", "auto"), time_limit=60.0)
    return PlanRequest(query=random_graph(random.Random(seed), n, shape), resources=Resources(**caps), options=options, **fields)


@pytest.mark.parametrize("objective", Objective)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_plan_so_far_is_whole_and_claims_nothing_that_the_best_plan_contradicts(shape: str, objective: Objective) -> None:
    for caps in CAPS:
        for caches in ("off", "auto"):
            asked = request(5, shape, caps, objective=objective, caches=caches)
            made, best = plan_so_far(asked), plan(asked)
            assert Plan.model_validate_json(made.model_dump_json()) == made
            assert made.termination is Termination.TIME_LIMIT and made.warnings
            assert made.qualified or made.shortfall is not None
            priced = estimate(EstimateRequest.model_validate({**asked.model_dump(), "operators": made.model_dump()["operators"]}))
            assert (made.cost, made.headroom) == (priced.cost, priced.headroom)
            assert best.qualified or not made.qualified
            if made.proof is not Proof.NONE and best.qualified and objective is not Objective.MAX_HEADROOM:
                value = best.cost.cpu if objective is Objective.MIN_CPU else best.cost.memory_bytes
                assert made.bound is not None and made.bound <= value * (1.0 + 1e-9)


def heard(asked: PlanRequest) -> Best:
    """What a search has told of when it ends."""
    waiting, problem = Waiting(), problem_of(asked)
    begin(problem, waiting)
    from solvers.jtree.anytime import anytime

    anytime(problem, Deadline.after(2.0, waiting))
    assert waiting.best is not None
    return waiting.best


def test_what_an_anytime_search_has_told_of_beats_a_greedy_plan() -> None:
    better = 0
    for seed in range(4):
        asked = request(30, "random", {}, seed, caches="off")
        greedy, made = plan_so_far(asked), plan_so_far(asked, heard(asked))
        assert made.cost.cpu <= greedy.cost.cpu * (1.0 + 1e-9)
        better += made.cost.cpu < greedy.cost.cpu
        assert made.proof is not Proof.NONE and made.bound is not None and made.bound <= made.cost.cpu
    assert better, "it is not the greedy plan that is written"


def test_a_plan_that_takes_too_long_to_write_is_not_written() -> None:
    asked = request(200, "star", {})
    wide = Best({(1 << 200) - 1: tuple(1 << i for i in range(200))}, None)
    assert MOST_PROBES < 200**2
    assert {operator.kind for operator in plan_so_far(asked, wide).operators} == {"binary_join"}


def test_a_frontier_so_far_has_the_one_plan_that_is_known_if_it_fits() -> None:
    made = frontier_so_far(request(6, "chain", {}))
    assert len(made.points) == 1 and made.proof is Proof.NONE and made.termination is Termination.TIME_LIMIT
    assert frontier_so_far(request(6, "chain", {"memory_bytes": 1.0})).points == []


@pytest.mark.parametrize("name", sorted(name for name, endpoint in BY_NAME.items() if endpoint.so_far))
def test_every_answer_so_far_is_one_of_its_endpoint_and_says_that_time_was_over(name: str) -> None:
    endpoint = BY_NAME[name]
    so_far = endpoint.load_so_far()
    assert so_far is not None
    made = so_far(endpoint.request.model_validate(json.loads(json.dumps(bodies("auction", "auction")[name]))))
    assert endpoint.answer.model_validate_json(made.model_dump_json()) == made
    assert getattr(made, "termination") is Termination.TIME_LIMIT  # noqa: B009 (models of several kinds)
    if isinstance(made, CheckReport):
        assert made.status is CheckStatus.BROKEN, "what was not compared is never clean"

"""A plan that sheds load, or does not fit its caps, runs only by its user's word, and says what it sheds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.commands.main import main
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as planned
from spark_adapter.errors import SheddingError
from spark_adapter.run import Options, run
from spark_adapter.shedding import check_shed, shed_by
from tests.spark_adapter.cells import with_shares
from tests.spark_adapter.plans import bindings_of, make_plan, make_query

QUERY = make_query({"r": 5, "s": 5, "t": 5}, ["r.x = s.x", "s.y = t.y"])
PLAN = make_plan(QUERY, ["r", "s", "t"])
STEPS = [("join-1", name, step) for name in "rst" for step in (0, 1)]


def starved(**resources: float) -> Plan:
    """The planner's own, for more rows than the caps allow."""
    query = QUERY.model_dump(mode="json")
    for stream in query["streams"]:
        stream["rate"] = 1000.0
    return planned(PlanRequest.model_validate({"query": query, "resources": resources}))


def refusal(plan: Plan) -> str:
    with pytest.raises(SheddingError) as refused:
        check_shed(plan, False)
    return str(refused.value)


def test_a_plan_that_lets_everything_through_needs_no_word() -> None:
    check_shed(PLAN, False)
    check_shed(with_shares(PLAN, dict.fromkeys(STEPS, 1.0)), False)


def test_what_would_be_shed_is_said_in_one_sentence_with_the_option() -> None:
    assert refusal(with_shares(PLAN, {("join-1", "r", 0): 0.3}, admitted=0.75)) == (
        "/allocation: this plan would shed load: 25 % of every stream's rows are not let in, 70 % of the probes of r into s (join-1) are not made; "
        "to run it all the same give --shed (shed=True in Python)"
    )


def test_of_many_probes_the_ones_that_lose_most_are_named() -> None:
    lost = shed_by(with_shares(PLAN, {step: 0.9 - 0.1 * k for k, step in enumerate(STEPS)}))
    assert lost.startswith("60 % of the probes of t into s (join-1) are not made, 50 % of the probes of t into r")
    assert lost.endswith("and there are 3 more probes of which only a share is made")


def test_the_planners_own_plans_that_do_not_fit_are_refused_and_run_when_told() -> None:
    short_of_cpu = starved(cpu=1e-3)
    assert short_of_cpu.allocation is not None
    assert "would shed load" in refusal(short_of_cpu)
    short_of_memory = starved(memory_bytes=1000)
    assert short_of_memory.allocation is None
    assert "does not fit the caps that it was made for: it takes" in refusal(short_of_memory)
    for plan in (short_of_cpu, short_of_memory):
        check_shed(plan, True)


def test_run_refuses_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A master that does not exist would fail to start."""
    plan, bindings = with_shares(PLAN, {STEPS[0]: 0.5}), bindings_of(tmp_path, dict.fromkeys("rst", "x BIGINT, y BIGINT, ts TIMESTAMP"))
    with pytest.raises(SheddingError):
        run(plan, bindings, options=Options(master="nowhere"))
    (tmp_path / "plan.json").write_text(plan.model_dump_json(by_alias=True))
    (tmp_path / "bindings.json").write_text(json.dumps(bindings.model_dump(mode="json", by_alias=True)))
    files = [str(tmp_path / name) for name in ("plan.json", "bindings.json")]
    assert main(["run", *files, "--master", "nowhere"]) == 2
    assert "--shed" in capsys.readouterr().err

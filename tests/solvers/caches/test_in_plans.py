"""Caches in plans: priced anew from the document, never worse than without, within the caps, the same every time."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.plan import CacheKind, EstimateRequest, Plan, Proof
from models.request import CacheMode, PlanRequest
from solvers.caches import in_plans
from solvers.caches.candidates import Pipelines, prefix_candidates, program_of
from solvers.caches.in_plans import caches_in_plans
from solvers.caches.joint_orders import joint_orders
from solvers.caches.select.exhaustive import exhaustive
from solvers.caches.select.program import Program
from solvers.common.deadline import Deadline
from solvers.estimate import estimate, with_given_caches
from solvers.model.attributes import Attributes
from solvers.model.cost import CostModel
from solvers.planner import plan, problem_of, search
from tests.bench.bench_caches import KINDS, TABLE_2, sample_point
from tests.solvers.caches.naive_pricer import price_with_caches
from tests.solvers.caches.plans import plan_with_caches, query
from tests.solvers.caches.programs import wide_program

SEEDS = st.integers(0, 10**6)


def random_query(generator: random.Random, n: int) -> dict[str, Any]:
    """Rates, windows and domains over orders of magnitude, some on one key: what caches live from."""
    one_key = generator.random() < 0.4
    streams: list[dict[str, Any]] = []
    predicates = []
    for i in range(n):
        rate, seconds = 10 ** generator.uniform(1, 4), generator.choice((1.0, 10.0, 60.0))
        streams.append({"name": f"s{i}", "rate": rate, "window": {"seconds": seconds}, "tuple_bytes": generator.choice((50, 100)), "distinct": {}})
        if i:
            other = generator.randrange(i)
            name = "k" if one_key else f"e{i}"
            domain = 10 ** generator.uniform(0.5, 3.5)
            for stream in (streams[i], streams[other]):
                if generator.random() < 0.7:
                    stream["distinct"][name] = max(1.0, min(stream["rate"] * stream["window"]["seconds"], domain))
            predicates.append({"left": f"s{other}.{name}", "right": f"s{i}.{name}", "selectivity": min(1.0, 10 ** generator.uniform(-3, 0) / domain)})
    return {"streams": streams, "predicates": predicates}


def request_of(body: dict[str, Any], caches: str = "auto", method: str = "auto", **more: Any) -> PlanRequest:
    return PlanRequest.model_validate({"query": body, "options": {"caches": caches, "method": method, "time_limit": 60}, **more})


def check_against_the_naive_pricer(made: Plan) -> None:
    cpu, memory, figures = price_with_caches(json.loads(made.model_dump_json()))
    assert made.cost.cpu == pytest.approx(cpu, rel=1e-9)
    assert made.cost.memory_bytes == pytest.approx(memory, rel=1e-9)
    for cache, naive in zip(made.caches, figures, strict=True):
        assert cache.miss_probability == pytest.approx(naive["miss_probability"], rel=1e-9)
        assert cache.saves == pytest.approx(naive["saves"], rel=1e-6, abs=1e-12 + 1e-9 * made.cost.cpu)
        assert cache.entries == pytest.approx(naive["entries"], rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(["prefix", "global"]), st.booleans())
def test_any_caches_in_any_orders_are_priced_like_the_naive_pricer(seed: int, kind: str, nested: bool) -> None:
    generator = random.Random(seed)
    body = random_query(generator, generator.choice((3, 4, 5)))
    costs = {"step": generator.choice((0.0, 1e-4))}
    check_against_the_naive_pricer(plan_with_caches(request_of(body, costs=costs), kind, generator, nested))


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.sampled_from(["auto", "mjoin"]), st.sampled_from(["min_cpu", "min_memory", "max_headroom"]))
def test_caches_never_make_a_plan_worse_and_keep_the_caps(seed: int, method: str, objective: str) -> None:
    generator = random.Random(seed)
    body = random_query(generator, generator.choice((3, 4, 5)))
    costs = {"step": generator.choice((0.0, 1e-4))}
    free = plan(request_of(body, "off", "mjoin", costs=costs))
    resources: dict[str, float] = {}
    if generator.random() < 0.6:
        resources["memory_bytes"] = free.cost.memory_bytes * generator.choice((1.001, 1.1, 3.0))
    if generator.random() < 0.5 or objective == "max_headroom":
        resources["cpu"] = free.cost.cpu * generator.choice((0.9, 1.2))
    off = plan(request_of(body, "off", method, resources=resources, objective=objective, costs=costs))
    for caches in ("prefix", "global", "auto"):
        made = plan(request_of(body, caches, method, resources=resources, objective=objective, costs=costs))
        assert made.qualified >= off.qualified
        if not made.caches:
            claims = {"explanation", "proof", "bound", "gap"}  # without caches as well, less may be proven where they are allowed
            if off.tree_proof is Proof.NONE:  # what is proven of all plans holds for those without caches, of which a heuristic proves nothing
                claims |= {"tree_proof", "tree_bound"}
            assert made.model_dump(exclude=claims) == off.model_dump(exclude=claims)
            continue
        check_against_the_naive_pricer(made)
        assert made.qualified
        assert made.proof is not Proof.NONE
        assert (
            made.bound is None
            or objective == "max_headroom"
            or made.bound <= (made.cost.memory_bytes if objective == "min_memory" else made.cost.cpu) * (1 + 1e-12)
        )
        if off.qualified:
            if objective == "min_cpu":
                assert made.cost.cpu < off.cost.cpu
            elif objective == "min_memory":
                assert made.cost.memory_bytes <= off.cost.memory_bytes
            else:
                assert made.headroom is None or (off.headroom is not None and made.headroom >= off.headroom)
        total = sum(o.cpu for o in made.operators) - sum(c.saves for c in made.caches) + sum(c.costs for c in made.caches)
        assert made.cost.cpu == pytest.approx(total, rel=1e-9)
        if made.headroom is not None:
            assert made.headroom >= 1.0
        for entry in made.validity:
            assert entry.high is None or entry.high > 0.0


def fast_probe() -> dict[str, Any]:
    """R ⋈ S ⋈ T of paper 1 §7.2: T is fast and its values repeat, so R ⋈ S is looked up again and again."""
    return {
        "streams": [
            {"name": "R", "rate": 100, "window": {"seconds": 10}, "tuple_bytes": 32},
            {"name": "S", "rate": 100, "window": {"seconds": 10}, "tuple_bytes": 32},
            {"name": "T", "rate": 5000, "window": {"seconds": 10}, "tuple_bytes": 32, "distinct": {"B": 50}},
        ],
        "predicates": [
            {"left": "R.A", "right": "S.A", "selectivity": 0.001},
            {"left": "S.B", "right": "T.B", "selectivity": 0.001},
        ],
    }


def test_an_mjoin_gets_the_cache_of_the_papers_example() -> None:
    made = plan(request_of(fast_probe(), "prefix", "mjoin"))
    (cache,) = made.caches
    assert (cache.input, cache.streams, cache.key, cache.lookup, cache.kind) == ("T", ["R", "S"], ["S.B"], ["T.B"], CacheKind.PREFIX)
    assert cache.miss_probability == pytest.approx(50 / 50000)
    assert any("cache-1 answers R⋈S for new tuples of T by S.B" in sentence for sentence in made.explanation)
    assert made.fingerprint != plan(request_of(fast_probe(), "off", "mjoin")).fingerprint


def test_a_cache_fits_where_materializing_does_not() -> None:
    plain = plan(request_of(fast_probe(), "off", "mjoin"))
    tight = {"memory_bytes": plain.cost.memory_bytes + 10_000.0}
    without, made = plan(request_of(fast_probe(), "off", resources=tight)), plan(request_of(fast_probe(), "auto", resources=tight))
    assert without.operators[-1].kind == "mjoin"
    assert made.caches
    assert made.cost.cpu < without.cost.cpu
    assert made.cost.memory_bytes <= tight["memory_bytes"]


def test_caches_can_bring_a_plan_within_its_cpu_cap() -> None:
    plain = plan(request_of(fast_probe(), "off", "mjoin"))
    caps = {"cpu": plain.cost.cpu * 0.95, "memory_bytes": plain.cost.memory_bytes + 10_000.0}
    assert not plan(request_of(fast_probe(), "off", resources=caps)).qualified
    made = plan(request_of(fast_probe(), "auto", resources=caps))
    assert made.qualified
    assert made.shortfall is None
    assert made.caches


def test_a_plan_without_wide_joins_is_left_alone() -> None:
    body = fast_probe()
    assert not plan(request_of(body, "auto", "bjtree")).caches
    body["streams"], body["predicates"] = body["streams"][:2], body["predicates"][:1]
    assert plan(request_of(body, "auto")) == plan(request_of(body, "off"))


@settings(max_examples=25, deadline=None)
@given(SEEDS)
def test_orders_for_caches_are_never_worse_and_the_selection_is_the_best_of_all(seed: int) -> None:
    generator = random.Random(seed)
    body = random_query(generator, generator.choice((3, 4)))
    request = request_of(body, "global", "mjoin")
    problem = problem_of(request)
    found = search(problem, Deadline.after(60))
    fixed = caches_in_plans(problem, found, Deadline.after(60))
    together = caches_in_plans(problem_of(request_of(body, "auto", "mjoin")), found, Deadline.after(60))
    least = min(found.best.cpu, fixed.total.cpu if fixed else found.best.cpu)
    assert (together.total.cpu if together else found.best.cpu) <= least * (1 + 1e-9)


def test_orders_are_chosen_for_the_caches_they_allow() -> None:
    """In some join the best orders without caches rule the best prefix caches out."""
    gains = 0
    for seed in range(60):
        generator = random.Random(seed)
        request = request_of(random_query(generator, 4), "prefix", "mjoin")
        problem = problem_of(request)
        attributes = problem.attributes
        blocks = tuple(1 << i for i in range(4))
        orders = joint_orders(problem.model, attributes, blocks, Deadline.after(60))
        best = search(problem, Deadline.after(60)).best.tree
        assert not isinstance(best, int)
        if orders is None or orders == best.orders:
            continue
        costs = []
        for tried in (best.orders, orders):
            pipelines = Pipelines.of(problem.model.price_join(blocks, tried))
            program, _ = program_of(pipelines, prefix_candidates(problem.model, attributes, pipelines), float("inf"))
            costs.append(exhaustive(program, Deadline.after(60)).cost)
        gains += costs[1] < costs[0] * (1 - 1e-6)
    assert gains > 0


def test_the_same_request_gives_the_same_bytes_in_a_fresh_process() -> None:
    generator = random.Random(11)
    bodies = [json.dumps({"query": random_query(generator, 4), "options": {"method": "mjoin", "time_limit": 60}}) for _ in range(3)]
    script = (
        "import sys,json,hashlib\nfrom models.request import PlanRequest\nfrom solvers.planner import plan\n"
        "for line in sys.stdin: print(plan(PlanRequest.model_validate_json(line)).model_dump_json())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            input="\n".join(bodies),
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "PYTHONPATH": "."},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
    assert '"caches":[{' in outputs.pop()


def test_plans_that_cannot_use_caches_are_not_searched_for_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """No join of a binary tree has a run of probes: neither orders nor candidates nor keys are looked at, and no tree is priced."""

    def looked(*_: object, **__: object) -> Any:
        raise AssertionError("something was looked at")

    problem = problem_of(request_of(query(random.Random(3), 12, "chain"), "auto", "bjtree"))
    found = search(problem, Deadline.after(60))
    for name in ("_for_caches", "_best_caches"):
        monkeypatch.setattr(in_plans, name, looked)
    for name in ("price", "price_join", "known_join"):
        monkeypatch.setattr(CostModel, name, looked)
    monkeypatch.setattr(Attributes, "of", looked)
    assert caches_in_plans(problem, found, Deadline.after(60)) is None


def test_no_solver_that_takes_seconds_to_import_is_needed() -> None:
    script = (
        "import sys\nfrom models.request import PlanRequest\nfrom solvers.planner import plan\n"
        "made = plan(PlanRequest.model_validate_json(sys.stdin.read()))\n"
        "assert made.caches\nprint([name for name in ('ortools', 'pulp') if name in sys.modules])"
    )
    body = json.dumps({"query": fast_probe(), "options": {"method": "mjoin", "time_limit": 60}})
    done = subprocess.run([sys.executable, "-c", script], input=body, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("point", list(TABLE_2))
def test_auto_is_never_above_the_best_of_mjoin_xjoin_prefix_and_global_caches(point: int) -> None:
    others = [plan(sample_point(point, method, caches)).cost.cpu for method, caches in KINDS.values()]
    assert plan(sample_point(point, "auto", "auto")).cost.cpu <= min(others) * (1 + 1e-9)


def test_at_some_points_of_table_2_caches_beat_every_tree() -> None:
    gains = [point for point in TABLE_2 if plan(sample_point(point, "auto", "auto")).cost.cpu < plan(sample_point(point, "auto", "off")).cost.cpu]
    assert {4, 6, 8} <= set(gains)


def test_caches_survive_the_wire() -> None:
    made = plan(request_of(fast_probe(), "global", "mjoin"))
    assert Plan.model_validate_json(made.model_dump_json()) == made


def test_every_mode_is_a_choice_of_the_request() -> None:
    found = {mode: plan(request_of(fast_probe(), mode.value, "mjoin")).cost.cpu for mode in CacheMode}
    assert found[CacheMode.AUTO] <= found[CacheMode.GLOBAL] <= found[CacheMode.OFF]
    assert found[CacheMode.PREFIX] < found[CacheMode.OFF]
    assert all(a > 0 for a in itertools.chain(found.values()))


@pytest.mark.parametrize("spare", [2_000.0, 1e6])
def test_a_plan_made_today_is_priced_today_as_it_was_made(spare: float) -> None:
    plain = plan(request_of(fast_probe(), "off", "mjoin"))
    made = plan(request_of(fast_probe(), "auto", "mjoin", resources={"memory_bytes": plain.cost.memory_bytes + spare}))
    assert made.caches
    body = {"query": made.query, "costs": made.costs, "operators": [operator.model_dump() for operator in made.operators]}
    request = EstimateRequest.model_validate(json.loads(json.dumps(body, default=lambda model: model.model_dump(mode="json"))))
    again = with_given_caches(request, estimate(request), made)
    assert again.cost.cpu == pytest.approx(made.cost.cpu, rel=1e-12)
    assert again.cost.memory_bytes == pytest.approx(made.cost.memory_bytes, rel=1e-12)
    assert again.fingerprint == made.fingerprint


@pytest.mark.parametrize("seed", range(12))
def test_groups_are_left_out_for_less_memory_without_adding_up_the_whole_cost_for_each(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = wide_program(seed, 12, 40)
    whole = program.compatible_part(program.useful)
    cost = Program.cost
    bytes_of = {g: max(program.candidates[i].memory_bytes for i in members) for g, members in enumerate(program.members) if members}
    expected, limit = whole, (cost(program, whole) + cost(program, ())) / 2
    for group in sorted({program.candidates[i].group for i in whole}, key=lambda g: -bytes_of[g]):
        rest = tuple(i for i in expected if program.candidates[i].group != group)
        if cost(program, rest) <= limit:
            expected = rest
    assert 0 < len(expected) < len(whole)

    def added_up(*_: object) -> float:
        raise AssertionError("the whole cost was added up")

    monkeypatch.setattr(Program, "cost", added_up)
    assert in_plans._least_memory(program, whole, limit) == expected

"""The cost model against the papers' equations, the contract's rules and an independent pricer."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings

from models.plan import Plan
from models.request import CacheMode, Costs, Method, Objective, Options, PlanRequest, Query, Resources
from solvers.common.errors import RangeError
from solvers.jtree.given import tree_of
from solvers.jtree.lower_bound import cpu_lower_bound
from solvers.jtree.search import make_join
from solvers.model.cost import CostModel, PricedTree
from solvers.model.graph import join_graph
from solvers.model.operations import least_steps, side
from solvers.planner import plan, problem_of
from tests.graphs import plan_requests, random_graph
from tests.solvers import naive_pricer
from tests.solvers.brute_force import every_plan

EXACT = 1e-12  # figures agree to rounding; sums here and there are taken in another order


def model_of(rates: dict[str, float], window: float, selectivities: dict[str, float], costs: Costs | None = None) -> CostModel:
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": rate, "window": {"seconds": window}} for name, rate in rates.items()],
            "predicates": [{"left": f"{pair[0]}.x", "right": f"{pair[1]}.x", "selectivity": value} for pair, value in selectivities.items()],
        }
    )
    return CostModel(join_graph(query), costs or Costs())


# Paper 3, Table 2, sets 1 and 2: rates of A, B, C, selectivities, window in seconds.
PAPER_3 = [(20, 20, 20, 0.05, 0.5, 5.0), (20, 20, 50, 0.02, 0.5, 15.0), (7, 31, 3, 0.2, 0.011, 9.0)]


@pytest.mark.parametrize(("a", "b", "c", "ab", "bc", "w"), PAPER_3)
def test_paper_3_equations_2_and_3_come_out_of_the_mjoin(a: float, b: float, c: float, ab: float, bc: float, w: float) -> None:
    model = model_of({"A": a, "B": b, "C": c}, w, {"AB": ab, "BC": bc})
    cj, keep = 2.2e-6, 2e-7 + 2e-7
    # The orders of the paper's Fig. 4b: A probes B then C, B probes A then C, C probes B then A.
    priced = model.price(make_join((0, 1, 2), ((1, 2), (0, 2), (1, 0))))
    equation_2 = (a + b + c) * keep + b * c * bc * w * cj + 3 * a * b * c * ab * bc * w**2 * cj + 2 * a * b * ab * w * cj
    assert priced.cpu == pytest.approx(equation_2, rel=EXACT)
    assert priced.memory_tuples == pytest.approx((a + b + c) * w, rel=EXACT)


@pytest.mark.parametrize(("a", "b", "c", "ab", "bc", "w"), PAPER_3)
def test_paper_3_equations_4_and_5_come_out_of_the_bjtree(a: float, b: float, c: float, ab: float, bc: float, w: float) -> None:
    # The paper indexes every state; a scan that costs a second makes the model do the same.
    model = model_of({"A": a, "B": b, "C": c}, w, {"AB": ab, "BC": bc}, Costs(scan=1.0))
    cj, keep = 2.2e-6, 2e-7 + 2e-7
    priced = model.price(make_join((make_join((0, 1), ((1,), (0,))), 2), ((1,), (0,))))
    equation_4 = (a + b + c) * keep + 3 * a * b * c * ab * bc * w**2 * cj + 2 * a * b * ab * w * (cj + keep)
    assert priced.cpu == pytest.approx(equation_4, rel=EXACT)
    assert priced.memory_tuples == pytest.approx((a + b + c) * w + a * b * ab * w**2, rel=EXACT)


@pytest.mark.parametrize(("a", "b", "c", "ab", "bc", "w"), PAPER_3)
def test_paper_3_equations_6_and_7_are_what_mjoin_and_bjtree_do_not_share(a: float, b: float, c: float, ab: float, bc: float, w: float) -> None:
    model = model_of({"A": a, "B": b, "C": c}, w, {"AB": ab, "BC": bc}, Costs(scan=1.0))
    mjoin = model.price(make_join((0, 1, 2), ((1, 2), (0, 2), (1, 0)))).cpu
    bjtree = model.price(make_join((make_join((0, 1), ((1,), (0,))), 2), ((1,), (0,)))).cpu
    recompute, maintain = b * c * bc * w * 2.2e-6, 2 * a * b * ab * w * (2e-7 + 2e-7)
    assert mjoin - bjtree == pytest.approx(recompute - maintain, rel=1e-9)


def paper_4(la: float, ta: float, keys_a: float, lb: float, tb: float, keys_b: float, cn: float, ch: float) -> dict[str, float]:
    """Paper 4's four joins as sums of `access`: the structure of A's window, then of B's."""

    def hashed(kept: float, size: float, keys: float, arriving: float) -> float:
        return side(Costs(insert=ch, delete=ch * size / keys, join=ch), True, kept, arriving, size, arriving * size / keys)

    def scanned(kept: float, size: float, arriving: float) -> float:
        return side(Costs(scan=cn, append=2 * cn, join=0), False, kept, arriving, size)

    a, b = la * ta, lb * tb
    return {
        "HHJ": hashed(la, a, keys_a, lb) + hashed(lb, b, keys_b, la),
        "HNJ": hashed(la, a, keys_a, lb) + scanned(lb, b, la),
        "NHJ": scanned(la, a, lb) + hashed(lb, b, keys_b, la),
        "NNJ": scanned(la, a, lb) + scanned(lb, b, la),
    }


def test_paper_4_equations_2_to_6_come_out_of_access() -> None:
    la, ta, na, lb, tb, nb, cn, ch = 10.0, 60.0, 10.0, 100.0, 60.0, 10.0, 0.5, 0.65
    found = paper_4(la, ta, na, lb, tb, nb, cn, ch)
    assert found == pytest.approx({"HHJ": 47261.5, "HNJ": 34396.5, "NHJ": 72975.0, "NNJ": 60110.0}, rel=EXACT)
    assert found["HHJ"] == pytest.approx((la + lb) * (tb * lb / nb + ta * la / na + 1) * ch, rel=EXACT)
    assert found["NNJ"] == pytest.approx(la * (tb * lb + 2) * cn + lb * (ta * la + 2) * cn, rel=EXACT)
    equation_6 = la * (tb * lb * cn + ta * la / na * ch + ch) + lb * (ta * la / na * ch + 2 * cn)
    assert found["HNJ"] == pytest.approx(equation_6, rel=EXACT)


def test_a_binary_join_scans_a_fast_stream_that_is_rarely_probed() -> None:
    query = Query.model_validate(
        {
            "streams": [
                {"name": "fast", "rate": 100_000, "window": {"seconds": 0.001}},
                {"name": "slow", "rate": 0.0001, "window": {"seconds": 0.001}},
            ],
            "predicates": [{"left": "fast.k", "right": "slow.k", "selectivity": 0.1}],
        }
    )
    model = CostModel(join_graph(query), Costs())
    join = model.price(make_join((0, 1), ((1,), (0,)))).joins[0]
    assert [state.indexed for state in join.states] == [False, True]
    # In an mjoin every probe that can be is a hash probe.
    assert all(state.indexed for state in _with_third_stream(query).joins[0].states)


def _with_third_stream(query: Query) -> PricedTree:
    document = query.model_dump(mode="json")
    document["streams"].append({"name": "third", "rate": 1, "window": {"seconds": 1}})
    document["predicates"].append({"left": "fast.k", "right": "third.k", "selectivity": 0.1})
    return CostModel(join_graph(Query.model_validate(document)), Costs()).price(make_join((0, 1, 2), ((1, 2), (0, 2), (0, 1))))


STEPS_ALONE = Costs(join=0.0, insert=0.0, delete=0.0, append=0.0, probe=0.0, scan=0.0, step=1.0)


@settings(max_examples=60, deadline=None)
@given(plan_requests(least=2, most=5, methods=("mjoin", "bjtree", "auto")))
def test_steps_alone_cost_one_for_each_probe_whatever_the_rates_and_no_plan_has_fewer_than_the_least(request: PlanRequest) -> None:
    request = request.model_copy(update={"costs": STEPS_ALONE, "objective": Objective.MIN_CPU, "resources": Resources()})
    made = plan(request)
    probes = [probe for operator in made.operators for pipeline in operator.pipelines for probe in pipeline.probes]
    assert made.cost.cpu == len(probes) and all(probe.cpu == 1.0 for probe in probes)
    model = CostModel(join_graph(request.query), STEPS_ALONE)
    # The join of a graph's parts has as many inputs as there are parts, whatever the plan.
    parts = len(model.graph.components)
    least = least_steps(model.graph) + (parts - 1) * (parts - 2)
    assert min(tried.cpu for tried in every_plan(model)) == least
    assert cpu_lower_bound(model) == pytest.approx(least_steps(model.graph))
    if request.options.method is not Method.MJOIN:
        assert made.cost.cpu == least


def test_steps_do_not_grow_with_rates_and_are_what_a_cap_below_them_refuses() -> None:
    query = random_graph(random.Random(3), 4, "star", log_selectivity=(-2.0, -1.0))
    costs = Costs(step=1e-3)
    alone = plan(PlanRequest(query=query, options=Options(caches=CacheMode.OFF)))
    steps = 1e-3 * 6
    for method in (Method.EXACT, Method.ANYTIME, Method.BJTREE):
        made = plan(PlanRequest(query=query, costs=costs, resources=Resources(cpu=2.0 * steps), options=Options(method=method)))
        assert [len(operator.inputs) for operator in made.operators] == [2, 2, 2], "wide joins have more steps than they save"
        assert made.qualified and made.cost.cpu < alone.cost.cpu + steps * 1.5
        assert made.headroom is not None
        # All that is not steps is free to grow.
        grown = CostModel(join_graph(query).scaled(made.headroom), costs, problem_of(PlanRequest(query=query, costs=costs)).model)
        assert grown.price(tree_of(problem_of(PlanRequest(query=query, costs=costs)), made.operators)).cpu == pytest.approx(2.0 * steps, rel=1e-6)
        short = plan(PlanRequest(query=query, costs=costs, resources=Resources(cpu=0.9 * steps), options=Options(method=method)))
        assert not short.qualified and short.headroom == 0.0
        assert short.shortfall is not None and short.shortfall.rate_scale is None, "no rates are low enough"
        assert short.allocation is not None and short.allocation.throughput == 0.0
        assert short.allocation.cpu == pytest.approx(steps), "nothing is let in, and steps cost what they cost"


def test_an_allocation_pays_for_steps_first() -> None:
    query = random_graph(random.Random(5), 4, "chain", log_selectivity=(-1.5, -1.0), windows=(10.0,))
    for step in (0.0, 2e-3):
        request = PlanRequest(query=query, costs=Costs(step=step), options=Options(caches=CacheMode.OFF))
        whole = plan(request)
        for part in (0.8, 0.4):
            cap = whole.cost.cpu * part
            made = plan(request.model_copy(update={"resources": Resources(cpu=cap)}))
            assert made.allocation is not None and made.allocation.cpu <= cap * (1.0 + 1e-9)
            assert made.allocation.cpu >= step * 6
            assert 0.0 < made.allocation.throughput < made.cost.output_rate


def test_observed_sets_stand_in_for_predicates_largest_first_ties_by_name() -> None:
    query = Query.model_validate(
        {
            "streams": [{"name": name, "rate": 1, "window": {"seconds": 1}} for name in "abcde"],
            "predicates": [{"left": f"{pair[0]}.x", "right": f"{pair[1]}.x", "selectivity": 0.5} for pair in ("ab", "bc", "cd", "de")],
            "observed": [
                {"streams": ["b", "c"], "selectivity": 0.11},
                {"streams": ["a", "b"], "selectivity": 0.13},
                {"streams": ["c", "d", "e"], "selectivity": 0.17},
            ],
        }
    )
    graph = join_graph(query)
    set_ = {name: 1 << i for i, name in enumerate("abcde")}

    def size(names: str) -> float:
        return graph.size(sum(set_[name] for name in names))

    assert size("bc") == 0.11
    assert size("abc") == pytest.approx(0.13 * 0.5)  # ab before bc by name, then the predicate bc
    assert size("abcde") == pytest.approx(0.17 * 0.13 * 0.5)  # the largest first, then ab, then bc
    assert size("cd") == 0.5


def test_sizes_overflow_only_where_the_result_does() -> None:
    query: dict[str, Any] = {
        "streams": [{"name": f"s{i}", "rate": 1e100, "window": {"seconds": 1}} for i in range(5)],
        "predicates": [{"left": f"s{i}.x", "right": f"s{i + 1}.x", "selectivity": 1e-90} for i in range(4)],
    }
    assert plan(PlanRequest.model_validate({"query": query})).cost.output_rate == pytest.approx(5e140)
    for predicate in query["predicates"]:
        predicate["selectivity"] = 1.0
    with pytest.raises(RangeError, match="the join of s0, s1, s2, s3, s4 has more tuples than a double can count") as refusal:
        plan(PlanRequest.model_validate({"query": query}))
    assert refusal.value.pointer == "/query"


@settings(max_examples=200, deadline=None)
@given(plan_requests(most=6, methods=("mjoin", "bjtree", "auto")))
def test_every_figure_of_a_plan_is_that_of_an_independent_pricer(request: PlanRequest) -> None:
    assert_priced_alike(plan(request))


def assert_priced_alike(made: Plan) -> None:
    """Every figure of the plan equals the naive pricer's, and qualified, headroom and validity follow from repricing."""
    document = made.model_dump(mode="json")
    figures = naive_pricer.price(document["query"], document["costs"], document["operators"], tables=document.get("tables", []))
    assert made.cost.cpu == pytest.approx(figures.cpu, rel=1e-9, abs=1e-300)
    assert made.cost.memory_bytes == pytest.approx(figures.memory_bytes, rel=1e-9, abs=1e-300)
    assert made.cost.memory_tuples == pytest.approx(figures.memory_tuples, rel=1e-9, abs=1e-300)
    assert made.cost.output_rate == pytest.approx(figures.output_rate, rel=1e-9, abs=1e-300)
    for operator in made.operators:
        assert operator.cpu == pytest.approx(figures.operator_cpu[operator.id], rel=1e-9, abs=1e-300)
        assert operator.rate == pytest.approx(figures.operator_rate[operator.id], rel=1e-9, abs=1e-300)
        assert operator.state_tuples == pytest.approx(figures.state_tuples[operator.id], rel=1e-9, abs=1e-300)
        assert operator.state_bytes == pytest.approx(figures.state_bytes[operator.id], rel=1e-9, abs=1e-300)
        for state in operator.states:
            indexed, cpu = figures.states[operator.id, state.input]
            assert state.cpu == pytest.approx(cpu, rel=1e-9, abs=1e-300)
            assert state.indexed == indexed
        for pipeline in operator.pipelines:
            for probe, (algorithm, predicates, rate_in, rate_out, cpu) in zip(
                pipeline.probes, figures.probes[operator.id, pipeline.input], strict=True
            ):
                assert probe.algorithm == algorithm
                assert probe.predicates == predicates
                assert (probe.rate_in, probe.rate_out, probe.cpu) == pytest.approx((rate_in, rate_out, cpu), rel=1e-9, abs=1e-300)
    cpu_cap, memory_cap = made.resources.cpu or math.inf, made.resources.memory_bytes or math.inf
    assert made.qualified == (made.cost.cpu <= cpu_cap and made.cost.memory_bytes <= memory_cap)

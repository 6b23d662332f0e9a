"""Queries with tables: the search against every plan, every order and every access there is, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import pytest

from models.check import CheckCase
from models.method import Method
from models.plan import DiffRequest, EstimateRequest, Plan, Proof
from models.replan import Decision, ReplanRequest
from models.request import CacheMode, Costs, Objective, Options, PlanRequest, Query, Resources
from models.table import AccessKind
from solvers.check import price_again
from solvers.common.deadline import Deadline
from solvers.common.errors import BindError, MethodError
from solvers.diff import diff
from solvers.estimate import estimate
from solvers.frontier import frontier as frontier_of
from solvers.jtree.exact import frontier_search
from solvers.jtree.lower_bound import cpu_lower_bound
from solvers.jtree.search import Problem
from solvers.jtree.tables.joins import orders_of, ways
from solvers.jtree.tables.shapes import first_points
from solvers.model.binding import check_bound
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from solvers.model.operations import least_steps
from solvers.model.tree import joins
from solvers.planner import plan
from solvers.replan import replan
from tests.graphs import random_costs, random_graph, with_tables
from tests.solvers.brute_force import every_plan
from tests.solvers.caches.test_in_plans import check_against_the_naive_pricer
from tests.solvers.claims import contradictions
from tests.solvers.test_cost import assert_priced_alike
from tests.solvers.test_exact import LONG, assert_answers_are_brute_forces, below
from tests.solvers.test_sensitivity import assert_validity


def table_query(seed: int) -> tuple[random.Random, Query]:
    """Any graph of 2 to 4 streams and 1 to 3 tables, any accesses."""
    rng = random.Random(seed)
    streams, tables = rng.choice((2, 2, 3, 3, 4)), rng.choice((1, 1, 2, 2, 3))
    n = streams + tables
    shape = rng.choice(("chain", "star", "cycle", "snowflake", "random") if n > 5 else ("chain", "star", "cycle", "snowflake", "random", "clique"))
    query = random_graph(
        rng,
        n,
        shape,
        degree=2.2,
        windows=rng.choice(((1.0,), (0.1, 1.0, 10.0))),
        tuple_bytes=rng.choice(((100.0,), (10.0, 100.0, 1000.0))),
        log_selectivity=rng.choice(((-4.0, -1.0), (-2.0, 0.0))),
        rows=rng.choice((0.0, 0.4)),
        theta=rng.choice((0.0, 0.3)),
        observed=rng.choice((0.0, 0.0, 0.3)),
        parts=rng.choice((1, 1, 1, 1, 1, 2)),
        equalities=rng.choice((0.0, 0.5)),
        shuffled=True,
    )
    return rng, with_tables(rng, query, tables)


def table_model(seed: int) -> CostModel:
    """The same with any cost constants."""
    rng, query = table_query(seed)
    return CostModel(join_graph(query), random_costs(rng))


def table_request(seed: int) -> PlanRequest:
    """The same with caps around what its plans need, any objective, any method: cp_sat where it takes the objective."""
    rng, query = table_query(seed)
    objective = rng.choice(list(Objective))
    methods = [method for method in Method if method is not Method.CP_SAT or objective is not Objective.MAX_HEADROOM]
    options = Options(method=rng.choice((Method.AUTO, Method.AUTO, *methods)), caches=rng.choice((CacheMode.OFF, CacheMode.AUTO)), time_limit=20.0)
    request = PlanRequest(query=query, objective=objective, options=options, costs=random_costs(rng))
    points = first_points(CostModel(join_graph(query), request.costs))
    caps = Resources(
        cpu=points[0].cpu * rng.choice((0.5, 0.95, 1.5, 4.0)) if rng.random() < 0.6 else None,
        memory_bytes=points[-1].memory_bytes * rng.choice((0.9, 1.0001, 1.2, 3.0)) + 1.0 if rng.random() < 0.6 else None,
    )
    return request.model_copy(update={"resources": caps})


@pytest.mark.parametrize("chunk", range(12))
def test_exact_equals_brute_force_with_tables(chunk: int) -> None:
    for seed in range(25 * chunk, 25 * chunk + 25):
        assert_answers_are_brute_forces(seed, table_model(seed))


def test_no_plan_with_tables_has_fewer_probe_steps_than_the_least() -> None:
    """Where indexes bind in any order, binary joins have the least; each table is probed once then."""
    alone = Costs(join=0.0, insert=0.0, delete=0.0, append=0.0, probe=0.0, scan=0.0, step=1.0)
    alike = 0
    for seed in range(500, 540):
        _, query = table_query(seed)
        tables = [table.model_copy(update={"access": [offer.model_copy(update={"cpu": 0.0}) for offer in table.access]}) for table in query.tables]
        model = CostModel(join_graph(query.model_copy(update={"tables": tables})), alone)
        least = min(tried.cpu for tried in every_plan(model))
        assert cpu_lower_bound(model) <= least_steps(model.graph) <= least
        assert frontier_search(Problem(model), Deadline.after(LONG)).best.cpu == least
        alike += least == least_steps(model.graph)
    assert alike > 20


def test_every_way_to_access_tables_costs_what_the_model_says_of_its_orders() -> None:
    """The search adds up what its steps cost; `CostModel.price_join` defines what the join costs."""
    seen = 0
    for seed in range(600, 900):
        model = table_model(seed)
        n = len(model.graph)
        blocks = [1 << k for k in range(n)]
        if n > 3 and model.graph.connected(3) and not 3 & model.graph.tables:
            blocks[:2] = [3]  # a subresult among the inputs
        for way in ways(model, blocks):
            orders = orders_of(model, blocks, way.asked)
            assert orders is not None
            assert way.cpu == pytest.approx(model.price_join(blocks, orders, None, way.asked).cpu, rel=1e-9)
            seen += 1
    assert seen > 300


def test_accesses_are_those_of_a_plan_that_brute_force_finds_too() -> None:
    for seed in range(300, 340):
        model = table_model(seed)
        plans = every_plan(model)
        for point in frontier_search(Problem(model), Deadline.after(LONG)).points:
            asked = tuple(sorted(one for join in joins(point.tree) for one in join.asked))
            same = [plan for plan in plans if plan.asked == asked and below(plan.cpu, point.cpu) and below(plan.memory_bytes, point.memory_bytes)]
            assert same, f"seed {seed}: no plan with {asked} is as good as {point}"


@pytest.mark.parametrize("chunk", range(4))
def test_claims_and_figures_of_plans_with_tables_hold(chunk: int) -> None:
    for seed in range(1000 + 8 * chunk, 1000 + 8 * chunk + 8):
        request = table_request(seed)
        try:
            made = plan(request)
        except MethodError as refused:
            assert request.options.method is Method.MJOIN and "auto" in refused.detail
            continue
        assert contradictions(request) == [], f"seed {seed}"
        if made.caches:
            check_against_the_naive_pricer(made)
            continue
        assert_priced_alike(made)
        assert_validity(made)
        again = estimate(EstimateRequest.model_validate({**request.model_dump(), **made.model_dump(include={"operators", "tables"})}))
        assert (again.cost, again.fingerprint, again.tables) == (made.cost, made.fingerprint, made.tables)


def orders(**more: Any) -> dict[str, Any]:
    """Orders with customers, kept or asked, and products, kept."""
    streams = [{"name": "orders", "rate": 1000, "window": {"seconds": 60}, "distinct": {"customer": 20000, "product": 5000}}]
    index = {"kind": "index", "bound": ["id"], "cpu": 2e-5, "seconds": 0.002, "keys": 500}
    tables = [
        {"name": "customers", "rows": 1e6, "tuple_bytes": 200, "distinct": {"id": 1e6}, "access": [{"kind": "scan"}, index]},
        {"name": "products", "rows": 2e5, "tuple_bytes": 400, "distinct": {"id": 2e5}},
    ]
    predicates = [{"left": "orders.customer", "right": "customers.id"}, {"left": "orders.product", "right": "products.id"}]
    return {"query": {"streams": streams, "tables": tables, "predicates": predicates}, **more}


def planned(body: dict[str, Any]) -> Plan:
    return plan(PlanRequest.model_validate(body))


def test_a_table_is_kept_where_memory_allows_and_asked_where_it_does_not() -> None:
    alone = {"caches": "off"}
    free, tight = planned(orders()), planned(orders(resources={"memory_bytes": 1e8}, options=alone))
    assert [table.access for table in free.tables] == [AccessKind.SCAN, AccessKind.SCAN]
    assert [table.access for table in tight.tables] == [AccessKind.INDEX, AccessKind.SCAN]
    assert free.proof is tight.proof is Proof.OPTIMAL
    # 1000 · (join + join) kept; asking costs 2e-5 more for each of the orders, and frees a million rows of 200 bytes.
    assert free.cost.cpu == pytest.approx(1000 * 2 * 2.2e-6)
    assert tight.cost.cpu == pytest.approx(1000 * (2e-5 + 2 * 2.2e-6))
    assert free.cost.memory_bytes == pytest.approx(2e8 + 8e7)
    assert tight.cost.memory_bytes == pytest.approx(8e7)
    assert free.fingerprint != tight.fingerprint
    said = diff(DiffRequest(before=free, after=tight))
    assert "customers was kept; now asked by id" in said.structure and not said.same_structure
    (operator,) = tight.operators
    assert [state.input for state in operator.states] == ["products"], "orders is probed by nobody, customers is asked"
    assert [pipeline.input for pipeline in operator.pipelines] == ["orders"]
    assert "Below 100k rows it could be kept." in " ".join(tight.explanation)
    assert [
        (len(point.plan.tables), point.plan.tables[0].access) for point in frontier_of(PlanRequest.model_validate(orders(options=alone))).points
    ] == [
        (2, AccessKind.SCAN),
        (2, AccessKind.INDEX),
    ]


def test_waiting_is_said_and_warned_of_where_one_call_at_a_time_is_not_enough() -> None:
    body = orders(objective="min_memory", options={"caches": "off"})
    assert planned(body).tables[0].calls_per_second == pytest.approx(2.0)
    assert planned(body).tables[0].waiting == pytest.approx(0.004)
    body["query"]["tables"][0]["access"][1]["keys"] = 1
    made = planned(body)
    assert (made.tables[0].calls_per_second, made.tables[0].waiting, made.tables[0].side_by_side) == pytest.approx((1000.0, 2.0, 2))
    assert made.warnings == ["Asking customers one call at a time would wait 2 seconds a second: 2 calls have to run side by side."]


def test_an_index_that_no_order_can_bind_is_refused_with_its_table_and_attributes() -> None:
    body = orders()
    body["query"]["tables"][0]["access"][1]["bound"] = ["id", "region"]
    with pytest.raises(BindError, match="the index of table 'customers' by id, region: no equality gives region a value") as refused:
        planned(body)
    assert refused.value.pointer == "/query/tables/0/access/1/bound"


def test_an_index_that_some_orders_can_bind_restricts_them() -> None:
    streams = [{"name": name, "rate": 100, "window": {"seconds": 10}} for name in ("a", "b")]
    access = [{"kind": "index", "bound": ["id"], "cpu": 1e-5}]
    predicates = [{"left": "a.t", "right": "t.id", "selectivity": 0.01}, {"left": "b.region", "right": "t.region", "selectivity": 0.1}]
    body = {"query": {"streams": streams, "tables": [{"name": "t", "rows": 100, "access": access}], "predicates": predicates}}
    made = planned(body)
    assert [operator.streams for operator in made.operators] == [["a", "t"], ["a", "b", "t"]], "b has no key of t: it needs a's rows with t's"
    with pytest.raises(MethodError, match="no single join can bind every index"):
        planned({**body, "options": {"method": "mjoin"}})
    shape = {"id": "j", "inputs": ["a", "b", "t"]}
    with pytest.raises(BindError):
        estimate(EstimateRequest.model_validate({**body, "operators": [shape]}))


def test_two_blocks_may_each_bind_what_neither_could_alone() -> None:
    """a binds t1, c binds t2, and b shares no key with either: only a tree that joins a with t1, and c with t2, before b meets both."""
    streams = [{"name": name, "rate": 100, "window": {"seconds": 10}} for name in ("a", "b", "c")]
    tables = [{"name": name, "rows": 100, "access": [{"kind": "index", "bound": ["id"], "cpu": 1e-5}]} for name in ("t1", "t2")]
    sides = [("a.x", "t1.id"), ("t1.y", "b.y"), ("b.z", "t2.z"), ("t2.id", "c.x")]
    predicates = [{"left": left, "right": right, "selectivity": 0.01} for left, right in sides]
    made = planned({"query": {"streams": streams, "tables": tables, "predicates": predicates}, "options": {"caches": "off"}})
    assert [table.access for table in made.tables] == [AccessKind.INDEX] * 2
    assert_priced_alike(made)


def test_every_index_that_is_not_refused_is_in_some_plan_and_every_refused_one_in_none() -> None:
    refused = 0
    for seed in range(400, 460):
        rng = random.Random(seed)
        query = random_graph(rng, rng.choice((3, 4, 5)), rng.choice(("chain", "star", "cycle", "random")), equalities=0.4, shuffled=True)
        tables = {stream.name for stream in rng.sample(query.streams, 2 if len(query.streams) > 3 else 1)}
        sides = [side for p in query.predicates if p.op == "=" for side in (p.left, p.right)]
        offers = {}
        for name in sorted(tables):
            attributes = sorted({side.split(".")[1] for side in sides if side.split(".")[0] == name})
            offers[name] = [{"kind": "index", "bound": sorted(rng.sample(attributes, min(2, len(attributes)))), "cpu": 1e-5}]
        listed = [{"name": name, "rows": 50, "access": offers[name]} for name in offers]
        given = query.model_dump(mode="json")
        streams = [stream for stream in given["streams"] if stream["name"] not in tables]
        model = CostModel(join_graph(Query.model_validate({**given, "streams": streams, "tables": listed})), random_costs(rng))
        plans = every_plan(model)
        try:
            check_bound(model.graph)
        except BindError:
            refused += 1
            assert not plans, f"seed {seed}: refused, and there is a plan"
        else:
            assert plans, f"seed {seed}: not refused, and there is no plan"
    assert 5 < refused < 55


def test_answers_are_kept_within_the_memory_that_is_left() -> None:
    """Of 20,000 customers in a minute of 60,000 orders, a third of the lookups asks; each answer takes its row and an entry of the cache."""
    made = planned(orders(resources={"memory_bytes": 1e8}))
    (cache,) = made.caches
    assert (cache.streams, cache.key, cache.lookup) == (["customers"], ["customers.id"], ["orders.customer"])
    assert cache.miss_probability == pytest.approx(1 / 3)
    assert cache.saves == pytest.approx(1000 * 2 / 3 * 2e-5 - 1000 / 3 * 4e-7)
    assert (cache.costs, cache.entries, cache.memory_bytes) == pytest.approx((0.0, 20000.0, 20000 * (32 + 200)))
    assert made.tables[0].probes_per_second == pytest.approx(1000 / 3)
    assert made.proof is Proof.BOUNDED and made.tree_proof is Proof.OPTIMAL
    assert made.bound == pytest.approx(1000 * 2 * 2.2e-6), "as if all answers were known"
    check_against_the_naive_pricer(made)
    tight = planned(orders(resources={"memory_bytes": 8e7 + 1e6}))
    assert tight.qualified and 0.7 < tight.caches[0].miss_probability < 0.9
    check_against_the_naive_pricer(tight)
    assert planned(orders()).proof is Proof.OPTIMAL, "keeping the table is as good as knowing all answers"


def test_a_plan_with_kept_answers_is_priced_again_as_it_is() -> None:
    body = orders(resources={"memory_bytes": 1e8})
    made = planned(body)
    kept = replan(ReplanRequest.model_validate({"plan": made.model_dump(mode="json"), "request": body}))
    assert kept.decision is Decision.KEEP
    assert kept.running.cpu == pytest.approx(made.cost.cpu)
    case = CheckCase.model_validate({"name": "orders", "request": body, "plan": made.model_dump(mode="json")})
    assert price_again(case).cost.cpu == pytest.approx(made.cost.cpu)


def test_the_integer_program_agrees_with_exact_search_on_tables() -> None:
    """The same verdict and the same figure, of another solver; nothing is left unproven at this size."""
    fitting = asking = 0
    for seed in range(60):
        request = table_request(seed)
        objective = Objective.MIN_CPU if request.objective is Objective.MAX_HEADROOM else request.objective
        alike = request.model_copy(update={"objective": objective})
        one, other = (
            plan(alike.model_copy(update={"options": Options(method=method, caches=CacheMode.OFF, time_limit=20.0)}))
            for method in (Method.CP_SAT, Method.EXACT)
        )
        assert one.proof is other.proof is Proof.OPTIMAL and one.qualified == other.qualified, f"seed {seed}"
        if one.qualified:
            figures = [made.cost.cpu if objective is Objective.MIN_CPU else made.cost.memory_bytes for made in (one, other)]
            assert figures[0] == pytest.approx(figures[1], rel=1e-9), f"seed {seed}"
        fitting += one.qualified
        asking += any(table.access is AccessKind.INDEX for table in one.tables)
    assert 10 < fitting < 60 and asking > 10
    with pytest.raises(MethodError, match="for max_headroom use exact"):
        planned({**orders(options={"method": "cp_sat"}), "objective": "max_headroom", "resources": {"cpu": 1.0}})


def test_a_plan_that_keeps_no_memory_at_all_is_proven_by_the_integer_program() -> None:
    """One stream whose only partner is a table that is asked: neither of the two is kept."""
    body = orders(objective="min_memory", options={"method": "cp_sat", "caches": "off"})
    body["query"].update(tables=[{**body["query"]["tables"][0], "access": body["query"]["tables"][0]["access"][1:]}])
    del body["query"]["predicates"][1]
    made = planned(body)
    assert (made.cost.memory_bytes, made.bound, made.proof) == (0.0, 0.0, Proof.OPTIMAL)


@pytest.mark.parametrize("method", ["auto", "exact"])
@pytest.mark.parametrize("cpu", [0.00119, 0.0008, 0.0025])
@pytest.mark.parametrize("held", [99999.0, 100000.0, 200000.0])
def test_a_plan_that_nothing_limits_has_no_headroom_and_no_bound_of_it(method: str, held: float, cpu: float) -> None:
    """Kept, the table takes exactly the cap at any rates; asked, it is further below its cap at today's."""
    index = {"kind": "index", "bound": ["id"], "cpu": cpu}
    table = {"name": "t", "rows": 1000, "tuple_bytes": 100, "access": [{"kind": "scan"}, index]}
    predicates = [{"left": "s.k", "right": "t.id", "selectivity": 0.001}]
    query = {"streams": [{"name": "s", "rate": 29, "window": {"rows": 100}}], "tables": [table], "predicates": predicates}
    nothing = dict.fromkeys(("join", "insert", "delete", "append", "probe", "scan"), 0.0)
    resources = {"cpu": 0.1, "memory_bytes": held}
    asked = {"objective": "max_headroom", "options": {"method": method, "caches": "off"}}
    made = planned({"query": query, "costs": nothing, "resources": resources, **asked})
    assert made.proof is Proof.OPTIMAL
    assert (made.headroom, made.bound) == ((None, None) if held >= 1e5 else pytest.approx((0.1 / (29 * cpu),) * 2))


def test_many_tables_are_planned_with_a_bound() -> None:
    streams = [{"name": f"s{i}", "rate": 100 + i, "window": {"seconds": 10}} for i in range(12)]
    access = [{"kind": "scan"}, {"kind": "index", "bound": ["id"], "cpu": 1e-5}]
    tables = [{"name": f"t{i}", "rows": 1000.0 * (i + 1), "access": access} for i in range(24)]
    predicates = [{"left": f"s{i}.k", "right": f"s{i + 1}.k", "selectivity": 0.001} for i in range(11)]
    predicates += [{"left": f"s{i % 12}.t{i}", "right": f"t{i}.id", "selectivity": 1.0 / (1000.0 * (i + 1))} for i in range(24)]
    body = {"query": {"streams": streams, "tables": tables, "predicates": predicates}, "resources": {"memory_bytes": 1.5e7}}
    made = planned({**body, "options": {"time_limit": 2.0}})
    assert made.qualified and made.proof is Proof.BOUNDED
    assert AccessKind.INDEX in {table.access for table in made.tables}, "all of them do not fit"
    assert_priced_alike(made)


def test_a_replan_prices_a_running_plan_by_the_access_that_it_uses_wherever_that_is_listed_today() -> None:
    body = orders(resources={"memory_bytes": 1e8})
    scan, index = body["query"]["tables"][0]["access"]
    body["query"]["tables"][0]["access"] = [index]
    running = planned(body)
    assert running.caches, "a change of their figures is a reason to price the plan as it was, too"
    body["query"]["streams"][0]["rate"] = 4000
    figures = set()
    for today in ([scan, index], [index, scan], [index]):
        body["query"]["tables"][0]["access"] = today
        kept = replan(ReplanRequest.model_validate({"plan": running.model_dump(mode="json"), "request": body}))
        assert "orders.rate is 4k, and the plan was made for 1k." in kept.reasons
        assert ("What customers offers is another than when the plan was made." in kept.reasons) == (today != [index])
        figures.add((kept.running.cpu, kept.kind))
    assert len(figures) == 1


def test_a_replan_sees_tables_grow_and_turns_from_keeping_to_asking() -> None:
    body = orders(resources={"memory_bytes": 3e8})
    running = planned(body)
    kept = replan(ReplanRequest.model_validate({"plan": running.model_dump(mode="json"), "request": body}))
    assert kept.decision is Decision.KEEP
    body["query"]["tables"][0]["rows"] = 3e6
    turned = replan(ReplanRequest.model_validate({"plan": running.model_dump(mode="json"), "request": body}))
    assert turned.decision is Decision.CHANGE
    assert [table.access for table in turned.plan.tables] == [AccessKind.INDEX, AccessKind.SCAN]
    assert any("customers.rows is 3M, and the plan was made for 1M." in reason for reason in turned.reasons)

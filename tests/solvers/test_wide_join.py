"""Joins of many inputs are priced over arrays; step by step they cost the same."""

from __future__ import annotations

import math
import random

import pytest

from models.plan import Plan
from models.request import Method, Options, PlanRequest, Resources
from solvers.allocation.productivity import paths_of_plan
from solvers.jtree.components import join_components
from solvers.jtree.search import make_join
from solvers.model import cost, graph
from solvers.model.cost import CostModel, PricedTree, Term
from solvers.model.graph import bits, join_graph
from solvers.model.point import Caps
from solvers.model.sensitivity import headroom, validity
from solvers.model.tree import Join, Tree
from solvers.model.wide_join import WideProbes, WideTerms
from solvers.planner import plan, problem_of
from tests.graphs import random_costs, random_graph

STREAMS = 30
SHAPES = ("chain", "star", "random", "clique")


def some_tree(model: CostModel, rng: random.Random) -> Tree:
    """One wide join over streams and a few joined pairs, each pipeline in any order that follows predicates."""
    near = model.graph.neighbours
    inputs: list[Tree] = []
    left = model.graph.all
    while left:
        i = bits(left)[0]
        left &= ~(1 << i)
        partners = bits(near[i] & left)
        if partners and len(inputs) < 5:
            j = rng.choice(partners)
            left &= ~(1 << j)
            inputs.append(make_join((i, j), ((1,), (0,))))
        else:
            inputs.append(i)
    blocks = [child.mask if isinstance(child, Join) else 1 << child for child in inputs]
    orders = []
    for k, block in enumerate(blocks):
        visited, order = block, list[int]()
        while len(order) < len(blocks) - 1:
            target = rng.choice([t for t, other in enumerate(blocks) if t != k and t not in order and other & model.graph.around(visited)])
            order.append(target)
            visited |= blocks[target]
        orders.append(order)
    return join_components(model, [make_join(inputs, orders)])


def priced_both_ways(seed: int, shape: str, monkeypatch: pytest.MonkeyPatch) -> tuple[CostModel, PricedTree, CostModel, PricedTree]:
    rng = random.Random(f"{seed}{shape}")
    query = random_graph(rng, STREAMS, shape, windows=(1.0, 10.0), log_selectivity=(-2.5, -0.5), rows=0.3, theta=0.2, equalities=0.1)
    costs = random_costs(rng)
    at_once = CostModel(join_graph(query), costs)
    tree = some_tree(at_once, rng)
    wide = at_once.price(tree)
    monkeypatch.setattr(cost, "WIDE", STREAMS + 1)
    monkeypatch.setattr(graph, "DENSE", 10**9)
    one_by_one = CostModel(join_graph(query), costs)
    plain = one_by_one.price(tree)
    assert isinstance(wide.joins[-1].terms, WideTerms)
    assert isinstance(plain.joins[-1].terms, tuple)
    return at_once, wide, one_by_one, plain


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_join_costs_the_same_over_arrays_as_step_by_step(seed: int, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide, _, plain = priced_both_ways(seed, shape, monkeypatch)
    assert (wide.cpu, wide.memory_bytes, wide.output_rate) == pytest.approx((plain.cpu, plain.memory_bytes, plain.output_rate))
    one, other = wide.joins[-1], plain.joins[-1]
    assert [state.indexed for state in one.states] == [state.indexed for state in other.states]
    assert [state.cpu for state in one.states] == pytest.approx([state.cpu for state in other.states])
    for mine, theirs in zip(one.pipelines, other.pipelines, strict=True):
        for a, b in zip(mine.probes, theirs.probes, strict=True):
            assert (a.target, a.hashed, a.predicates, a.asked) == (b.target, b.hashed, b.predicates, b.asked)
            assert (a.rate_in, a.rate_out, a.cpu) == pytest.approx((b.rate_in, b.rate_out, b.cpu))


def test_steps_that_pipelines_have_in_common_are_the_same_step_by_step_and_share_their_predicates() -> None:
    model = problem_of(PlanRequest(query=random_graph(random.Random(7), STREAMS, "clique", log_selectivity=(-2.5, -0.5)))).model
    ranked = random.Random(7).sample(range(STREAMS), STREAMS)
    orders = [[t for t in ranked if t != k] for k in range(STREAMS)]
    priced = model.price(join_components(model, [make_join(range(STREAMS), orders)]))
    listed, count = set(), 0
    for k, pipeline in enumerate(priced.joins[0].pipelines):
        assert isinstance(pipeline.probes, WideProbes)
        visited = 1 << k
        for target, _, _, produced, _, predicates, _ in pipeline.probes.fields():
            assert tuple(predicates) == model.graph.between(visited, 1 << target)
            visited |= 1 << target
            assert produced == pytest.approx(model.produced(1 << k, visited))
            listed.add(id(predicates))
            count += 1
    assert len(listed) < 0.7 * count


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_headroom_validity_and_paths_of_a_wide_join_are_the_same_over_arrays(seed: int, shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, wide, one_by_one, plain = priced_both_ways(seed, shape, monkeypatch)

    def sums(terms: list[Term]) -> dict[tuple[int, int, int], float]:
        found: dict[tuple[int, int, int], float] = {}
        for term in terms:
            key = term.made, term.arriving, term.scanned
            found[key] = found.get(key, 0.0) + term.value
        return found

    listed = sums(wide.terms)
    assert listed == pytest.approx(sums(plain.terms))
    for caps in (Caps(plain.cpu * 1.3, plain.memory_bytes * 1.2), Caps(cpu=plain.cpu * 0.9)):
        assert headroom(wide, at_once, caps) == pytest.approx(headroom(plain, one_by_one, caps))
        mine, theirs = validity(wide, at_once, caps), validity(plain, one_by_one, caps)
        assert [entry.statistic for entry in mine] == [entry.statistic for entry in theirs]
        ends = [[math.inf if entry.high is None else entry.high for entry in entries] for entries in (mine, theirs)]
        assert ends[0] == pytest.approx(ends[1], rel=1e-6)
    thinned = at_once.graph.scaled(0.25)
    mine_, theirs_ = (paths_of_plan(thinned, at_once.costs, priced) for priced in (wide, plain))
    assert mine_.cpu == pytest.approx(theirs_.cpu)
    assert (mine_.keeping, mine_.size) == pytest.approx((theirs_.keeping, theirs_.size))
    assert [kept.size for kept in mine_.subresults] == pytest.approx([kept.size for kept in theirs_.subresults])


def test_what_is_written_without_validation_is_what_validation_would_make_of_it() -> None:
    query = random_graph(random.Random(5), STREAMS, "star", log_selectivity=(-2.5, -0.5), theta=0.2)
    for method in (Method.MJOIN, Method.BJTREE):
        made = plan(PlanRequest(query=query, resources=Resources(cpu=1e-9), options=Options(method=method)))
        assert Plan.model_validate_json(made.model_dump_json()) == made


def test_sizes_and_neighbours_of_a_dense_graph_are_the_same_over_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    query = random_graph(random.Random(3), 40, "clique", log_selectivity=(-0.3, 0.0), theta=0.3)
    plain = problem_of(PlanRequest(query=query)).model.graph
    sets = [plain.all, *(random.Random(k).getrandbits(40) | 1 for k in range(20))]
    expected = [plain.size(mask) for mask in sets], plain.neighbours, plain.equal_neighbours
    monkeypatch.setattr(graph, "DENSE", 100)
    dense = join_graph(query)
    assert [dense.size(mask) for mask in sets] == pytest.approx(expected[0], rel=1e-12)
    assert (dense.neighbours, dense.equal_neighbours) == expected[1:]

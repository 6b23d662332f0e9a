"""The exact search of regions: its tables, what joins cost above what every plan pays, and its staircases."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from models.request import Costs, Query
from solvers.jtree.compiled.compiling import Floats
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.regions import (
    CUT,
    STEPS,
    Region,
    keep_step,
    keep_union,
    keeping_union,
    no_entries,
    room_at_hand,
    solve,
    solve_region,
    twice_the_room,
)
from solvers.jtree.compiled.staircase import dominated
from solvers.jtree.compiled.unions import backwards, between, greedy, join_of_unions, order_scratch, size_of, union_figures, unions_of
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.graphs import random_graph
from tests.solvers.compiled.cases import SHAPES, Case, a_case, any_costs, assert_same_staircase, cases, close, divided, ints
from tests.solvers.reference import Blocks, Reference, Step, positions

LARGEST = (("chain", 12), ("cycle", 10), ("star", 9), ("snowflake", 10), ("random", 9), ("clique", 7))
REGION = 9  # blocks


def a_region(rng: random.Random, case: Case, most: int = REGION) -> Blocks:
    """Blocks of any connected set of the component."""
    return divided(rng, case.reference, rng.choice(case.masks[case.n :]), most)


def edges_of(query: Query, reference: Reference) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Predicates as the kernels take them: both ends, selectivities, equalities."""
    ends = [positions(mask) for mask, _, _ in reference.predicates]
    return (
        ints(left for left, _ in ends),
        ints(right for _, right in ends),
        np.array([selectivity for _, _, selectivity in reference.predicates]),
        ints(equality for _, equality, _ in reference.predicates),
    )


def base_of(costs: Costs) -> float:
    return min(costs.insert + costs.delete, costs.append)


def paid(reference: Reference, blocks: Blocks) -> float:
    """What the ledger leaves out of a join: the least of keeping its inputs, making its output, and the steps of binary joins."""
    base = base_of(reference.costs)
    steps = 2 * (len(blocks) - 1) * reference.costs.step
    return math.fsum([*(base * reference.rate(block) for block in blocks), reference.costs.join * reference.rate(sum(blocks)), steps])


def assert_excess(reference: Reference, found: float, blocks: Blocks, wanted: float) -> None:
    assert found >= 0.0 and close(found + paid(reference, blocks), wanted)


# Tables


def test_between_two_blocks_are_their_predicates() -> None:
    for rng, case in cases(120, 2, 14, salt=80):
        reference, blocks = case.reference, a_region(rng, case)
        owner = np.full(reference.n, -1, np.int64)
        for k, block in enumerate(blocks):
            owner[positions(block)] = k
        product, joined, equal = between(owner, *edges_of(case.query, reference), len(blocks))
        for a, one in enumerate(blocks):
            for b, other in enumerate(blocks):
                if a != b:
                    own = [entry for entry in reference.predicates if entry[0] & one and entry[0] & other]
                    assert close(product[a, b], math.prod(selectivity for _, _, selectivity in own))
                    assert joined[a, b] == bool(own) and equal[a, b] == any(equality for _, equality, _ in own)


def test_size_of_a_set_is_the_product_of_windows_and_predicates() -> None:
    for seed in range(120):
        rng = random.Random(seed)
        query = random_graph(rng, rng.randint(1, 14), SHAPES[seed % len(SHAPES)], rows=0.3, theta=0.3, equalities=0.3, shuffled=True)
        reference = Reference(query, Costs())
        left, right, selectivity, _ = edges_of(query, reference)
        for _ in range(20):
            mask = rng.randrange(1, 1 << reference.n)
            inside = np.array([bool(mask >> i & 1) for i in range(reference.n)])
            found = size_of(ints(positions(mask)), inside, np.array(reference.tuples), left, right, selectivity)
            assert close(found, reference.size(mask))


def test_size_of_a_set_leaves_the_range_of_a_double_only_at_its_end() -> None:
    none = np.empty(0, np.int64)
    pair, inside = ints([0, 1]), np.array([True, True])
    assert size_of(pair, inside, np.array([1e200, 1e200]), none, none, np.empty(0)) == math.inf
    assert close(size_of(pair, inside, np.array([1e200, 1e200]), ints([0]), ints([1]), np.array([1e-200])), 1e200)
    assert size_of(pair, inside, np.array([1e-200, 1e-200]), none, none, np.empty(0)) == 0.0


def test_unions_of_and_union_figures_are_the_contracts() -> None:
    for rng, case in cases(200, 2, 14, salt=81):
        reference, blocks, ledger = case.reference, a_region(rng, case), Ledger(case.model)
        made = unions_of(*ledger._arrays(blocks), ledger._between(blocks))
        sizes, seconds, reach, hashes, connected = ledger.unions(blocks)  # the same, but that it looks observed unions up
        assert not ledger._independent(blocks) or np.array_equal(made[0], sizes)
        assert all(np.array_equal(one, other) for one, other in zip(made[1:], (seconds, reach, hashes, connected), strict=True))
        again = made.sizes.copy(), np.empty_like(reach), np.empty_like(hashes)
        again[0][[union for union in range(len(reach)) if union.bit_count() > 1]] = math.nan  # these are to be found
        single = ints(1 << k for k in range(len(blocks)))
        union_figures(len(blocks), ledger._between(blocks).product, reach[single], hashes[single], *again)
        assert all(np.array_equal(one, other) for one, other in zip(again, (made.sizes, reach, hashes), strict=True))
        for union in range(1, 1 << len(blocks)):
            inside = [blocks[k] for k in positions(union)]
            mask = sum(inside)
            assert connected[union] == reference.connected(mask)
            assert close(seconds[union], reference.per_second(mask))
            others = [k for k in range(len(blocks)) if not union >> k & 1]
            assert [bool(reach[union] >> k & 1) for k in others] == [bool(reference.around(mask) & blocks[k]) for k in others]
            assert [bool(hashes[union] >> k & 1) for k in others] == [bool(reference.equal_around(mask) & blocks[k]) for k in others]
            if connected[union]:
                assert close(sizes[union], reference.size(mask))


# One join


def test_join_of_unions_and_order_scratch_and_backwards_give_orders_that_are_the_best() -> None:
    for rng, case in cases(300, 2, 14, salt=83):
        blocks, ledger = a_region(rng, case, most=10), Ledger(case.model)
        m, unions = len(blocks), ledger.unions(blocks)
        scratch = order_scratch(m)
        made = join_of_unions(ints(1 << k for k in range(m)), m, unions, ledger.weights, scratch)
        excess, orders = ledger.join(blocks)
        assert made == excess
        if m > 2:
            to_go, following = np.empty(1 << m), np.zeros(1 << m, np.int64)
            backwards(m, unions.sizes, unions.reach, unions.hashes, ledger.weights, to_go, following)
            assert np.array_equal(to_go[1:], scratch.to_go[1:]) and np.array_equal(following, scratch.following)
        assert_excess(case.reference, excess, blocks, case.reference.join(blocks))
        if len(blocks) > 2:
            assert close(case.reference.along(blocks, orders), case.reference.join(blocks))


def test_greedy_has_its_own_orders_price_and_is_never_below_the_best() -> None:
    for rng, case in cases(300, 3, 14, salt=84):
        blocks = a_region(rng, case, most=10)
        ledger, reference = Ledger(case.model), case.reference
        if len(blocks) < 3 or not ledger._independent(blocks):
            continue
        excess, found = greedy(*ledger._arrays(blocks), ledger._between(blocks), ledger.weights)
        orders = found.tolist()
        assert_excess(reference, excess, blocks, reference.along(blocks, orders))
        assert excess + paid(reference, blocks) >= reference.join(blocks) * (1.0 - 1e-9)
        for start, order in enumerate(orders):
            visited = blocks[start]
            for place in order[:-1]:
                near = [block for block in blocks if block & reference.around(visited)]
                # What is the same for all steps left out: the probe.
                probes = reference.produced(blocks[start], visited) * reference.costs.probe
                steps = {block: reference.step(blocks[start], visited, block) - probes for block in near}
                assert steps[blocks[place]] <= min(steps.values()) * (1.0 + 1e-9) + 1e-12 * probes
                visited |= blocks[place]


def crossing(reference: Reference, parts: Blocks) -> float:
    """The join of components: every step is a nested loop, in the best of all orders."""
    whole, costs = sum(parts), reference.costs
    to_go: dict[int, float] = {whole: 0.0}

    def going_on(visited: int) -> float:
        if visited not in to_go:
            ways = []
            for part in parts:
                if not part & visited:
                    probing = reference.size(visited) * (costs.probe + costs.scan * reference.size(part))
                    ways.append(probing + reference.size(visited | part) * costs.join + going_on(visited | part))
            to_go[visited] = min(ways)
        return to_go[visited]

    steps = len(parts) * (len(parts) - 1) * costs.step
    return math.fsum([steps, *(reference.rate(part) * costs.append + reference.per_second(part) * going_on(part) for part in parts)])


@pytest.mark.parametrize("across", [0.0, 0.5])
def test_the_join_of_components_has_the_best_orders(across: float) -> None:
    """Also where a measured sub-join spans components."""
    for seed in range(80):
        rng = random.Random(seed)
        n = rng.randint(3, 8)
        query, costs = random_graph(rng, n, SHAPES[seed % len(SHAPES)], parts=rng.randint(2, min(n, 5)), across=across, shuffled=True), any_costs(rng)
        model, reference = CostModel(join_graph(query), costs), Reference(query, costs)
        parts = tuple(reference.components())
        excess, orders = Ledger(model).join(parts)
        assert close(model.price_join(parts, orders).cpu, crossing(reference, parts))
        assert_excess(reference, excess, parts, crossing(reference, parts))


# Staircases


def staircase_of(case: Case, blocks: Blocks, **limits: float) -> tuple[list[Step], bool]:
    """CPU and bytes of the joins over these blocks."""
    ledger = Ledger(case.model)
    ways, whole = solve_region(ledger, blocks, max_steps=4000, **limits)  # type: ignore[arg-type]
    for way in ways:
        assert close(way.excess + paid(case.reference, blocks), case.reference.cpu(way.joins))
        assert close(way.state_bytes, case.reference.inner_bytes(way.joins, sum(blocks)))
    return [(way.excess + paid(case.reference, blocks), way.state_bytes) for way in ways], whole


def assert_region(rng: random.Random, case: Case, blocks: Blocks) -> None:
    wanted = case.reference.staircase(blocks)
    found, complete = staircase_of(case, blocks)
    assert complete
    assert_same_staircase(found, wanted)
    step = rng.choice(wanted)
    cpu, held = step[0] * rng.choice((1.0 - 1e-6, 1.0 + 1e-6)), (step[1] + 1.0) * rng.choice((1.0 - 1e-6, 1.0 + 1e-6))
    capped, complete = staircase_of(case, blocks, cpu_limit=cpu - paid(case.reference, blocks), memory_limit=held)
    assert complete
    assert_same_staircase(capped, [step for step in wanted if step[0] <= cpu and step[1] <= held])


def a_question(case: Case, ledger: Ledger, blocks: Blocks, steps: int = 4000) -> Region:
    weights: Floats = np.array([case.reference.tuple_bytes(block) for block in blocks])
    return Region(ledger.unions(blocks), weights, ledger.weights, ledger.base, math.inf, math.inf, steps)


def test_keeping_union_is_what_an_inner_join_adds_and_nothing_at_the_root() -> None:
    for rng, case in cases(60, 3, 10, salt=88, fourteen=SHAPES):
        blocks, ledger = a_region(rng, case, most=6), Ledger(case.model)
        region, whole = a_question(case, ledger, blocks), (1 << len(blocks)) - 1
        assert keeping_union(region, whole) == (0.0, 0.0)
        for union in range(1, whole):
            mask = sum(blocks[k] for k in positions(union))
            if region.unions.connected[union]:
                cpu, held = keeping_union(region, union)
                assert close(cpu, ledger.kept(mask)) and close(held, case.reference.state_bytes(mask))


def test_keep_step_and_keep_union_keep_the_parts_of_every_step_whatever_it_drops() -> None:
    rng = random.Random(7)
    for _ in range(100):
        here, entries = room_at_hand(3, 6), no_entries(3)
        met: dict[Step, list[int]] = {}
        for _ in range(30):
            e, m = float(rng.randint(0, 20)), float(rng.randint(0, 20))
            if not dominated(here.steps.e, here.steps.m, here.steps.o, here.counts[STEPS], e, m, 0):
                number = rng.randint(2, 3)
                here.pick[:number] = met[e, m] = [rng.randint(0, 9) for _ in range(number)]
                keep_step(here, number, e, m)
        count = int(here.counts[STEPS])
        assert 1 <= count <= 6 and (here.counts[CUT] or count < 6 or len(met) >= 6)
        assert keep_union(entries, here, 7, 3) == 3 + count == entries.end[7]
        for k in range(3, 3 + count):
            assert entries.parts[k, : entries.number[k]].tolist() == met[float(entries.cpu[k]), float(entries.memory[k])]


def test_no_entries_and_twice_the_room_and_room_at_hand_keep_what_is_written() -> None:
    entries = no_entries(3)
    entries.cpu[4], entries.parts[4, 1], entries.number[4] = 7.0, 2, 3
    larger = twice_the_room(entries)
    assert larger.cpu.size == 2 * entries.cpu.size and (larger.cpu[4], larger.parts[4, 1], larger.number[4]) == (7.0, 2, 3)
    assert [larger.first[1 << k] for k in range(3)] == [0, 1, 2] and room_at_hand(3, 9).parts.shape == (10, 4)


def test_solve_returns_the_staircase_as_entries_by_rising_cpu() -> None:
    """Its arrays, which `solve_region` reads."""
    for rng, case in cases(60, 2, 8, salt=87, fourteen=SHAPES):
        blocks, ledger = a_region(rng, case, most=6), Ledger(case.model)
        (cpu, held, parts, counts, firsts, ends), whole = solve(a_question(case, ledger, blocks))
        first, end = firsts[-1], ends[-1]
        found = [(e + paid(case.reference, blocks), m) for e, m in zip(cpu[first:end].tolist(), held[first:end].tolist(), strict=True)]
        assert whole
        assert_same_staircase(found, case.reference.staircase(blocks))
        assert all(2 <= counts[k] <= len(blocks) and (parts[k, : counts[k]] < first).all() for k in range(first, end))


def test_solve_finds_the_frontier_of_all_plans_of_a_region() -> None:
    for rng, case in cases(240, 2, 9, salt=85, fourteen=[shape for shape in SHAPES if shape != "clique"]):
        assert_region(rng, case, a_region(rng, case, most=7))


@pytest.mark.parametrize(("shape", "n"), LARGEST)
def test_solve_finds_the_frontier_of_large_graphs(shape: str, n: int) -> None:
    for seed in range(2):
        rng = random.Random(90 + seed)
        case = a_case(rng, n, shape)
        assert_region(rng, case, tuple(case.leaves))


def test_solve_keeps_the_cheapest_step_where_it_cuts_a_staircase_and_says_so() -> None:
    cut = 0
    for _, case in cases(40, 5, 8, salt=86):
        ledger, blocks = Ledger(case.model), tuple(case.leaves)
        wanted = case.reference.staircase(blocks)
        for steps in (2, 3, 5):
            ways, whole = solve_region(ledger, blocks, max_steps=steps)
            assert 1 <= len(ways) <= steps
            assert close(ways[0].excess + paid(case.reference, blocks), wanted[0][0])
            cut += not whole
            if whole:
                assert_same_staircase([(way.excess + paid(case.reference, blocks), way.state_bytes) for way in ways], wanted)
        cheapest, _ = solve_region(ledger, blocks, in_memory=False)
        assert len(cheapest) == 1 and close(cheapest[0].excess + paid(case.reference, blocks), wanted[0][0])
    assert cut > 20


def test_wide_joins_have_the_price_of_their_orders_and_the_best_ones_where_asked() -> None:
    """Too wide for a table of all unions."""
    better = 0
    for seed in range(18):
        rng = random.Random(seed)
        query = random_graph(rng, 14, ("chain", "snowflake", "cycle")[seed % 3], windows=(1.0, 10.0), rows=0.3, theta=0.3, equalities=0.3)
        costs = any_costs(rng)
        model, reference = CostModel(join_graph(query), costs), Reference(query, costs)
        leaves, ledger = tuple(1 << i for i in range(14)), Ledger(model)
        greedy, orders = ledger.join(leaves)
        assert_excess(reference, greedy, leaves, reference.along(leaves, orders))
        excess, proven = ledger.exact_join(leaves)
        assert proven and ledger.join(leaves)[0] == excess
        assert_excess(reference, excess, leaves, reference.join(leaves))
        assert close(reference.along(leaves, ledger.join(leaves)[1]), reference.join(leaves))
        better += excess < greedy * (1.0 - 1e-9)
    assert better  # else there would be nothing to ask for

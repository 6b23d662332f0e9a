"""Relaxed prices of joins with caches, piece by piece, against the figures of caches and the best caches and orders that exact choice finds."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pytest

from models.request import Costs, PlanRequest, Query
from solvers.caches.figures import Traffic, figures, update_cost
from solvers.caches.join_choice import best_choice
from solvers.caches.joint_orders import CacheableJoin
from solvers.common.deadline import Deadline
from solvers.jtree.cheapest_first import streams_of
from solvers.jtree.compiled.cached_families import (
    Lookups,
    blocks_beside,
    cached_pipelines,
    cached_ways_out,
    family_keys,
    keys_of_segment,
    least_of_cached_family,
    looking_room,
    lookups_from,
    most_saved,
    new_block,
    paths,
    relaxed_pipelines,
    shared,
    total_of,
)
from solvers.jtree.compiled.cached_runs import (
    COMPLETE,
    MORE,
    ONE_MORE,
    keys_together,
    least_of_pipeline,
    look_between,
    look_from_to,
    new_keys_with,
    paced_pipeline,
    paced_sizes,
    run_from,
)
from solvers.jtree.compiled.cheapest import pairs_with
from solvers.jtree.compiled.families import (
    Family,
    add_block,
    candidates,
    drop_dear,
    family_room,
    list_usable,
    mark_last,
    pipelines,
    unions_of_family,
)
from solvers.jtree.compiled.kept import TAKEN, Kept, Streams, as_input, key_parts, keys_from, look_at_keys, missing, room_of, start
from solvers.jtree.compiled.key_classes import list_streams, rarest_key
from solvers.jtree.compiled.ledger import Ledger
from solvers.jtree.compiled.paying import saved_by_lookup
from solvers.jtree.search import Problem
from solvers.jtree.with_caches import key_classes
from solvers.model.graph import bits
from solvers.planner import problem_of
from tests.graphs import random_graph
from tests.solvers.compiled.cases import ints

SEEDS = range(8)
ABOVE = 1.0 + 1e-9
STREAMS = 5


def with_shared_attributes(rng: random.Random, query: Query) -> Query:
    """The same query where some streams have one attribute for all their predicates: classes of more than two."""
    one = {stream.name for stream in query.streams if rng.random() < 0.6}

    def side(name: str) -> str:
        stream = name.split(".")[0]
        return f"{stream}.k" if stream in one else name

    predicates = [p.model_copy(update={"left": side(p.left), "right": side(p.right)}) for p in query.predicates]
    return query.model_copy(update={"predicates": predicates})


@dataclass
class Posed:
    """A small graph, all its streams taken, and room for families of them."""

    problem: Problem
    kept: Kept
    streams: Streams
    family: Family

    def chosen(self, *blocks: int) -> None:
        for k, i in enumerate(blocks):
            add_block(self.kept, self.streams, self.family, k, i, 0)
        unions_of_family(self.family, len(blocks))

    def lookups(self, *blocks: int) -> Lookups:
        self.chosen(*blocks)
        rarest = self.family.looking.rarest
        for u in range(1, 1 << len(blocks)):
            rarest[u] = min(self.kept.rarest[blocks[k]] for k in bits(u))
        return family_keys(self.kept, self.streams.keys, self.family, len(blocks))

    def joins(self, least: int = 3) -> Iterator[tuple[int, ...]]:
        for m in range(least, STREAMS + 1):
            for blocks in combinations(range(STREAMS), m):
                if self.problem.model.graph.connected(sum(1 << i for i in blocks)):
                    yield blocks

    def plain(self, m: int) -> float:
        """What all partial results cost, and scanning for them."""
        first, every = pipelines(self.streams, self.family, m)
        return float(every - first)

    def with_best_caches(self, blocks: tuple[int, ...]) -> float:
        """What the pipelines of a join cost with the best caches and orders."""
        self.chosen(*blocks)
        choice = best_choice(self.problem.model, self.problem.attributes, tuple(1 << i for i in blocks), False, Deadline.after(60.0))
        assert choice is not None
        return self.plain(len(blocks)) - choice.saves


def posed(seed: int, alike: bool = False) -> Posed:
    rng = random.Random(seed)
    query = random_graph(
        rng,
        STREAMS,
        rng.choice(("chain", "star", "cycle", "random", "clique")),
        windows=(1.0, 10.0, 60.0),
        log_selectivity=rng.choice(((-3.0, -1.0), (-2.0, 0.0))),
        theta=rng.choice((0.0, 0.2)),
        equalities=0.3,
    )
    query = with_shared_attributes(rng, query) if alike else query
    problem = problem_of(PlanRequest(query=query, costs=Costs(probe=rng.choice((0.0, 1e-7)), step=rng.choice((0.0, 1e-5)))))
    ledger = Ledger(problem.model)
    streams = streams_of(ledger, key_classes(problem.attributes, update_cost(problem.model)))
    kept, family = room_of(1 << STREAMS, 1), family_room(1 << STREAMS, 1, True)
    start(kept, streams)
    for i in range(STREAMS):
        kept.taken[i], kept.order[i] = True, i
        kept.own[i] = as_input(kept, streams, i)
        look_at_keys(kept, streams, i)
    kept.counts[TAKEN] = STREAMS
    return Posed(problem, kept, streams, family)


def take_all(kept: Kept, streams: Streams) -> None:
    """All joins of two are offered, as they are while the search takes one stream after the other; the last is being taken."""
    for i in range(STREAMS):
        kept.counts[TAKEN] = i
        assert pairs_with(kept, streams, i, np.inf)
    kept.counts[TAKEN] = STREAMS - 1


def true_new_keys(p: Posed, visited: int, segment: int) -> float | None:
    """By the figures of a cache that is looked up so often that only new keys miss; None where it cannot be looked up."""
    key = p.problem.attributes.key(visited, segment)
    if key is None:
        return None
    many = 1e15
    return figures(p.problem.model, p.problem.attributes, key, Traffic(many, 1.0, 1.0), segment, segment).miss_probability * many


def mask_of(blocks: tuple[int, ...], union: int) -> int:
    return sum(1 << blocks[k] for k in bits(union))


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_list_streams_and_rarest_key_and_keys_from_and_look_at_keys_and_missing_are_below_every_lookup(seed: int, alike: bool) -> None:
    p = posed(seed, alike)
    room, met = np.empty(STREAMS, np.int64), 0
    for visited in range(1, 1 << STREAMS):
        assert room[: list_streams(ints((visited,)), room)].tolist() == list(bits(visited))
        rarest = rarest_key(p.streams.keys, ints((visited,)))
        for segment in range(1, 1 << STREAMS):
            found = true_new_keys(p, visited, segment) if not visited & segment else None
            if found is None:
                continue
            met += 1
            assert rarest <= found * ABOVE
            for a in bits(visited):
                assert p.kept.rarest[a] == rarest_key(p.streams.keys, ints((1 << a,)))
                for b in bits(segment):
                    if p.problem.model.graph.neighbours[a] >> b & 1:
                        new_keys = keys_from(p.streams, p.kept.mask, a, b)
                        assert new_keys <= found * ABOVE
                        if visited == 1 << a:
                            rate = p.problem.model.graph.rates[a]
                            assert missing(p.kept, a, new_keys) <= min(1.0, max(found, rarest) / rate) * ABOVE
    assert met


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_family_keys_and_keys_of_segment_are_those_of_the_attributes_or_fewer(seed: int, alike: bool) -> None:
    p = posed(seed, alike)
    blocks = tuple(range(STREAMS))
    lookups = p.lookups(*blocks)
    assert (p.streams.keys.owner == -1).all()
    met = 0
    for u in range(1, 1 << STREAMS):
        assert lookups.connected[u] == p.problem.model.graph.connected(u)
        for segment in range(1, 1 << STREAMS):
            if u & segment or not lookups.connected[u] or not lookups.connected[segment]:
                continue
            found, wanted = keys_of_segment(p.streams, lookups, u, segment), true_new_keys(p, u, segment)
            if wanted is not None:
                met += 1
                assert 0.0 <= found <= wanted * ABOVE
            if not alike:
                assert found == pytest.approx(-1.0 if wanted is None else wanted)
    assert met
    assert (lookups.own == 1.0).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_saved_by_lookup_and_lookups_from_and_most_saved_are_the_benefits_of_caches(seed: int) -> None:
    p = posed(seed)
    model = p.problem.model
    for blocks in p.joins():
        m = len(blocks)
        join = CacheableJoin(model, p.problem.attributes, tuple(1 << i for i in blocks))
        lookups = p.lookups(*blocks)
        saves = most_saved(p.kept, p.streams, p.family, lookups, m)
        for u in range(1, (1 << m) - 1):
            if not lookups.connected[u]:
                continue
            lookups_from(p.streams, p.family, lookups, u, (1 << m) - 1)
            for segment in range(1, 1 << m):
                if segment & u or not segment & (segment - 1) or not lookups.connected[segment]:
                    continue
                run, union = join.run(u, segment)[0], u | segment
                if run < np.inf:
                    ends = model.costs.probe * p.family.sizes[u] + model.costs.join * p.family.sizes[union]
                    assert lookups.run[union] == pytest.approx(run - ends, rel=1e-6, abs=1e-9 * run)
                for k in bits(u):
                    found = join.cache(k, u, (segment, segment))
                    if found is not None:
                        pace, put_in = p.kept.pace[blocks[k]], update_cost(model) * p.family.sizes[union]
                        saved = saved_by_lookup(lookups.new_keys[segment], pace, p.family.sizes[u], lookups.run[union], put_in, model.costs.probe)
                        assert saved == pytest.approx(found[0].benefit, rel=1e-6, abs=1e-9 * found[0].replaced)
                        assert saves[segment, k] >= saved


def test_shared_leaves_out_what_costs_more_than_all_save() -> None:
    lookups = posed(0).lookups(0, 1, 2)
    saves = np.zeros((8, 3))
    saves[3], saves[5], saves[6] = (1.0, 2.0, 0.0), (1.0, 0.0, 0.0), (4.0, 4.0, 4.0)
    upkeep = np.full(8, 2.0)
    assert shared(lookups, saves, upkeep)
    assert lookups.share.tolist() == [-1.0, -1.0, -1.0, 1.0, -1.0, -1.0, 2.0 / 3.0, -1.0]
    assert not shared(lookups, saves, np.full(8, 20.0))


@pytest.mark.parametrize("seed", SEEDS)
def test_pipelines_and_paths_and_total_of_are_the_same_without_lookups(seed: int) -> None:
    p = posed(seed)
    for blocks in p.joins():
        m = len(blocks)
        lookups = p.lookups(*blocks)
        lookups.share[:] = -1.0
        to_go = np.full((m, 1 << m), np.inf)
        to_go[:, -1] = 0.0
        paths(p.kept, p.streams, p.family, lookups, (1 << m) - 1, to_go)
        assert total_of(to_go) == pytest.approx(p.plain(m), rel=1e-9)


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", range(16))
def test_cached_pipelines_and_relaxed_pipelines_and_least_of_pipeline_are_not_above_the_best_caches(seed: int, alike: bool) -> None:
    p = posed(seed, alike)
    made = p.streams.weights.join + p.streams.weights.probe
    for blocks in p.joins():
        m = len(blocks)
        best = p.with_best_caches(blocks)
        plain = p.plain(m)
        close = cached_pipelines(p.kept, p.streams, p.family, p.lookups(*blocks), m, plain)
        relaxed = relaxed_pipelines(p.kept, p.streams, p.family, m, plain, np.inf)
        loose = sum(least_of_pipeline(p.kept, p.family, m, k, made, COMPLETE, np.inf) for k in range(m))
        assert close == relaxed
        assert loose <= close * ABOVE
        assert close <= best * ABOVE


def test_cached_pipelines_are_mostly_those_of_the_best_caches_and_often_below_those_without() -> None:
    same = below = total = 0
    for seed in range(16):
        p = posed(seed)
        for blocks in p.joins():
            best = p.with_best_caches(blocks)
            plain = p.plain(len(blocks))
            close = cached_pipelines(p.kept, p.streams, p.family, p.lookups(*blocks), len(blocks), plain)
            total += 1
            same += close >= best * (1.0 - 1e-9)
            below += close < plain * (1.0 - 1e-9)
    assert same > 0.7 * total
    assert below > 20


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_looking_room_and_blocks_beside_and_look_between_and_cached_ways_out_and_least_of_cached_family_are_below_every_larger_join(
    seed: int, alike: bool
) -> None:
    p = posed(seed, alike)
    kept, streams, family = p.kept, p.streams, p.family
    made, last = streams.weights.join + streams.weights.probe, STREAMS - 1
    take_all(kept, streams)
    many = candidates(kept, streams, family, last, 1e9)
    assert looking_room(many, 3, 8).out.shape == (3, many)
    for second in range(last):
        if not p.problem.model.graph.neighbours[last] >> second & 1:
            continue
        add_block(kept, streams, family, 0, last, many)
        assert list_usable(kept, family, 1, many, 1e9, made)
        add_block(kept, streams, family, 1, second, many)
        assert 0.0 < look_between(kept, streams, family, 1, 0) <= 1.0
        near = p.problem.model.graph.neighbours[family.listed[0]]
        assert blocks_beside(family, 2, 0) == (near >> last & 1) + 2 * (near >> second & 1 and family.listed[0] != second)
        assert list_usable(kept, family, 2, many, 1e9, made)
        unions_of_family(family, 2)
        cached_ways_out(kept, family, 2, many)
        family.looking.pipes[:] = 0.0
        new_block(family, 2)
        least = least_of_cached_family(kept, family, 2, made, np.inf, True, True)
        assert least == least_of_cached_family(kept, family, 2, made, np.inf, False, True)
        new_block(family, 2)
        least_of_four = least_of_cached_family(kept, family, 2, made, np.inf, False, True)
        assert least <= least_of_four
        assert least_of_cached_family(kept, family, 2, made, 0.5 * least, True, True) == np.inf
        for others in (c for size in (1, 2, 3) for c in combinations([i for i in range(last) if i != second], size)):
            blocks = tuple(sorted((last, second, *others)))
            if p.problem.model.graph.connected(sum(1 << i for i in blocks)):
                own = sum(kept.own[i] for i in blocks)
                assert (least if len(others) == 1 else least_of_four) <= (own + p.with_best_caches(blocks)) * ABOVE


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_paced_sizes_and_paced_pipeline_are_a_quick_bound_that_is_never_above_the_closer_one(seed: int, alike: bool) -> None:
    p = posed(seed, alike)
    kept, streams, family = p.kept, p.streams, p.family
    made, last = streams.weights.join + streams.weights.probe, STREAMS - 1
    take_all(kept, streams)
    many = candidates(kept, streams, family, last, 1e9)
    for second in range(last):
        if not p.problem.model.graph.neighbours[last] >> second & 1:
            continue
        for m, block in ((0, last), (1, second)):
            add_block(kept, streams, family, m, block, many)
            assert list_usable(kept, family, m + 1, many, 1e9, made)
        unions_of_family(family, 2)
        cached_ways_out(kept, family, 2, many)
        pace = np.empty(4)
        paced_sizes(kept, family, 2, 0, pace)
        assert pace[1] == kept.pace[last]
        assert pace[2] == -1.0
        assert 0.0 < pace[3] <= pace[1]
        quick = family.total[2] + sum(paced_pipeline(kept, family, 2, k, made) for k in range(2))
        family.looking.pipes[:] = 0.0
        new_block(family, 2)
        assert least_of_cached_family(kept, family, 2, made, np.inf, True, False) == pytest.approx(quick, rel=1e-12)
        new_block(family, 2)
        family.looking.pipes[:] = 0.0
        assert quick <= least_of_cached_family(kept, family, 2, made, np.inf, True, True) * ABOVE


@pytest.mark.parametrize("alike", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_key_parts_and_look_from_to_and_keys_together_are_no_more_than_the_keys_of_segments(seed: int, alike: bool) -> None:
    p = posed(seed, alike)
    several = 0
    for blocks in p.joins():
        lookups = p.lookups(*blocks)
        m = len(blocks)
        looking = p.family.looking
        for k, b in ((one, other) for one in range(m) for other in bits(int(p.family.beside[one]))):
            look_from_to(p.streams, p.kept.mask, p.family, k, b)
            most, values, fastest = key_parts(p.streams, p.kept.mask, blocks[k], blocks[b])
            assert (looking.values[k, b], looking.fastest[k, b]) == (values, fastest)
            assert looking.keys[k, b] == max(most, p.streams.keys.scarce * values * fastest)
        for u in range(1, 1 << m):
            for segment in (s for s in range(1, 1 << m) if not s & u):
                new_keys = keys_of_segment(p.streams, lookups, u, segment)
                together = keys_together(p.family, u, segment)
                assert new_keys < 0.0 or together <= new_keys * ABOVE
                pairs = [looking.keys[k, b] for k in bits(u) for b in bits(segment & int(p.family.beside[k]))]
                several += new_keys >= 0.0 and together > max(pairs) * ABOVE
    assert several > 0 or alike or len(p.problem.model.graph.edges) < STREAMS


@pytest.mark.parametrize("seed", SEEDS)
def test_run_from_and_new_keys_with_are_plain_steps_where_every_lookup_misses(seed: int) -> None:
    p = posed(seed)
    made = p.streams.weights.join + p.streams.weights.probe
    for blocks in p.joins():
        m = len(blocks)
        p.lookups(*blocks)
        p.family.looking.rarest[:] = 1e30
        new_keys_with(p.family, m, 1, 3.0, made)
        assert (p.family.looking.new[:m] == 3.0).all()
        plain = sum(least_of_pipeline(p.kept, p.family, m, k, made, COMPLETE, np.inf) for k in range(m))
        first, every = pipelines(p.streams._replace(weights=p.streams.weights._replace(scan=0.0)), p.family, m)
        assert plain == pytest.approx(every - first, rel=1e-9)
        p.family.to_go[: 1 << m] = np.inf
        p.family.to_go[1] = 0.0
        assert run_from(p.kept, p.family, m, 0, 1, COMPLETE, np.inf)[1] == -1
        assert run_from(p.kept, p.family, m, 0, 1, COMPLETE, 0.0) == (0.0, -2)


@pytest.mark.parametrize("seed", SEEDS)
def test_mark_last_and_drop_dear_keep_what_a_join_within_the_limit_has(seed: int) -> None:
    p = posed(seed)
    kept, streams, family = p.kept, p.streams, p.family
    made, last = streams.weights.join + streams.weights.probe, STREAMS - 1
    take_all(kept, streams)
    for others in (c for size in (2, 3, 4) for c in combinations(range(last), size)):
        blocks = (last, *others)
        if not p.problem.model.graph.connected(sum(1 << i for i in blocks)):
            continue
        output = 0.0 if len(blocks) == STREAMS else p.problem.model.rate(sum(1 << i for i in blocks)) * (streams.weights.join + streams.base)
        limit = (sum(kept.own[i] for i in blocks) + p.with_best_caches(tuple(sorted(blocks))) + output) * ABOVE
        many = candidates(kept, streams, family, last, limit)
        add_block(kept, streams, family, 0, last, many)
        assert list_usable(kept, family, 1, many, limit, made)
        mark_last(kept, streams, family, 1, many, limit)
        drop_dear(family, many, family.total[1], limit)
        assert set(others) <= {int(family.listed[c]) for c in range(many) if family.usable[c]}
        add_block(kept, streams, family, 1, others[0], many)
        assert MORE > ONE_MORE > COMPLETE
        list_usable(kept, family, 2, many, limit, made)
        unions_of_family(family, 2)
        some = mark_last(kept, streams, family, 2, many, limit)
        near = p.problem.model.graph.around(1 << last | 1 << others[0])
        if len(others) == 2 and near >> others[1] & 1:
            assert some and any(family.last[c] and family.listed[c] == others[1] for c in range(many))


def test_new_block_keeps_what_is_known_of_pipelines_and_forgets_how_they_leave() -> None:
    looking = posed(0).family.looking
    looking.pipes[2, :2], looking.pipes[3], looking.exits[:] = (1.0, 2.0), 7.0, 4
    new_block(posed(0).family._replace(looking=looking), 3)
    assert looking.pipes[3, :3].tolist() == [1.0, 2.0, 0.0]
    assert looking.exits[3, :3].tolist() == [-2, -2, -2] and looking.exits[2, 0] == 4

"""What partial results count for where caches may answer, against the same from the attributes' own definitions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from models.request import PlanRequest
from solvers.caches.figures import Traffic, figures
from solvers.jtree.compiled.cached import Classes, cached_partials, classify, least_new_keys, no_classes
from solvers.jtree.component import Component, component_of
from solvers.jtree.partials import key_predicates
from solvers.model.attributes import Attributes
from solvers.model.graph import bits
from solvers.planner import problem_of
from tests.graphs import SHAPES, random_graph

FOURTEEN = {100: "chain", 101: "cycle"}  # seeds of graphs of 14 streams: the shapes with so few connected sets that Python goes through all pairs
SEEDS = [*range(12), *FOURTEEN]


def a_part(seed: int) -> tuple[Component, Attributes]:
    rng = random.Random(seed)
    query = random_graph(
        rng,
        14 if seed in FOURTEEN else rng.choice((3, 4, 5, 6)),
        FOURTEEN.get(seed) or rng.choice(SHAPES),
        windows=(1.0, 10.0),
        log_selectivity=(-2.0, 0.0),
        theta=rng.choice((0.0, 0.3)),
        equalities=0.5,
        shuffled=True,
    )
    problem = problem_of(PlanRequest(query=query))
    part = component_of(problem.model, problem.model.graph.all, 1 << 14)
    assert part is not None
    return part, problem.attributes


def numbers(attributes: Attributes) -> list[tuple[int, str]]:
    return sorted({a for left, right, _ in attributes.sides for a in (left, right)})


def whole_mask(part: Component, local: int) -> int:
    return sum(1 << part.streams[k] for k in bits(local))


def known_of(part: Component, attributes: Attributes, *sets: int) -> Classes:
    """The classes of some sets, a row each."""
    predicates = key_predicates(part, attributes)
    found = no_classes(len(sets), predicates)
    for row, local in enumerate(sets):
        classify(predicates, local, found, row)
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_no_classes_and_classify_are_filled_with_those_of_the_attributes(seed: int) -> None:
    part, attributes = a_part(seed)
    listed = numbers(attributes)
    for local in part.sets.mask.tolist():
        wanted = attributes.classes(whole_mask(part, local))
        known = known_of(part, attributes, local)
        found = known.root[0]
        predicates = key_predicates(part, attributes)
        for k in range(len(listed)):
            assert known.new_values[0, found[k]] == min(predicates.new_values[m] for m in range(len(listed)) if found[m] == found[k])
            assert known.values[0, found[k]] == min(predicates.values[m] for m in range(len(listed)) if found[m] == found[k])
        for k, a in enumerate(listed):
            for m, b in enumerate(listed):
                assert (found[k] == found[m]) == (wanted.get(a, a) == wanted.get(b, b))


def _pairs(part: Component) -> list[tuple[int, int]]:
    masks = part.sets.mask.tolist()
    return [(u, x) for u in masks for x in masks if not u & x and x & (x - 1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_least_new_keys_is_that_of_a_key_of_one_part_and_never_above_it(seed: int) -> None:
    part, attributes = a_part(seed)
    predicates, scratch = key_predicates(part, attributes), np.empty(len(numbers(attributes)), np.int64)
    met = 0
    for u, x in _pairs(part):
        found = least_new_keys(predicates, known_of(part, attributes, u, x), 0, 1, u, x, scratch)
        key = attributes.key(whole_mask(part, u), whole_mask(part, x))
        assert (found < 0.0) == (key is None)
        if key is not None:
            many = Traffic(1e12, 1.0, 1.0)  # so many lookups that what misses are the new keys
            priced = figures(part.model, attributes, key, many, whole_mask(part, x), whole_mask(part, x))
            new_keys = priced.miss_probability * many.lookups
            assert found <= new_keys * (1 + 1e-9)
            if len(key.parts) == 1:
                assert found == pytest.approx(new_keys)
            met += 1
    assert met


@pytest.mark.parametrize("seed", [*range(12), 100])
def test_cached_partials_count_for_at_most_what_a_cache_leaves_of_them(seed: int) -> None:
    """Looked up by all that was visited, which hits most often, and shared by as many pipelines as there could be."""
    part, attributes = a_part(seed)
    sets, costs, made = part.sets, part.model.costs, part.prices.made
    update, n = costs.insert + costs.delete, part.sets.n
    scans = not all(equality for _, _, equality in attributes.sides)
    found = cached_partials(sets, key_predicates(part, attributes), made, update, scans, np.zeros(2, np.int64))
    place = {mask: s for s, mask in enumerate(sets.mask.tolist())}
    wanted = sets.size.copy()
    for u, x in _pairs(part):
        key = attributes.key(whole_mask(part, u), whole_mask(part, x))
        if key is None or u | x not in place:
            continue
        size, pace, length = sets.size[place[u]], sets.pace[place[u]], x.bit_count()
        results = sets.size[place[u | x]]
        flow = Traffic(size * pace, results * pace, 0.0)
        miss = figures(part.model, attributes, key, flow, whole_mask(part, x), whole_mask(part, x)).miss_probability
        upkeep = min(sets.size[s] * sets.pace[s] for z, s in place.items() if x & ~z == 0) * update / max(1, n - length)
        extra = 0.0 if scans else (miss * update * results + upkeep / pace) / (made * (length - 1))
        for w, s in place.items():
            if u & ~w == 0 and w & ~(u | x) == 0 and w not in (u, u | x):
                wanted[s] = min(wanted[s], miss * sets.size[s] + extra)
    assert (found <= wanted * (1 + 1e-9)).all() and (found <= sets.size).all()
    if all(len(key.parts) == 1 for key in attributes._keys.values() if key is not None):
        assert found == pytest.approx(wanted)


def test_cached_partials_told_to_stop_are_none() -> None:
    part, attributes = a_part(0)
    stopped = np.ones(2, np.int64)
    assert not cached_partials(part.sets, key_predicates(part, attributes), 1.0, 1.0, False, stopped).any()

"""Random cache programs: sharing, overlaps that nest or cross, memory caps, exclusions."""

from __future__ import annotations

import math
import random

from solvers.caches.select.program import Candidate, Program

__all__ = ["random_program", "wide_program"]


def _nested(generator: random.Random, length: int, wanted: int) -> list[tuple[int, int]]:
    """Segments of at least two operators of which any two nest or do not overlap."""
    found: list[tuple[int, int]] = []
    for _ in range(wanted * 3):
        first = generator.randrange(length - 1)
        last = generator.randrange(first + 1, length)
        crossing = any(a < first <= b < last or first < a <= last < b for a, b in found)
        if not crossing and (first, last) not in found:
            found.append((first, last))
        if len(found) == wanted:
            break
    return found


def _split(generator: random.Random, length: int) -> list[tuple[int, int]]:
    """The largest family of nested segments: a random binary tree over the operators."""
    found, waiting = [], [(0, length - 1)]
    while waiting:
        first, last = waiting.pop()
        if last > first:
            found.append((first, last))
            middle = generator.randrange(first, last)
            waiting += [(first, middle), (middle + 1, last)]
    return found


def random_program(
    seed: int, pipelines: int = 3, most: int = 12, nested: bool = True, capped: bool = False, excluding: bool = False, shared: bool = True
) -> Program:
    """A small program with the features asked for."""
    generator = random.Random(seed)
    costs = [[generator.uniform(0.1, 3.0) for _ in range(generator.randint(2, 5))] for _ in range(pipelines)]
    segments = []
    for p, listed in enumerate(costs):
        wanted = generator.randint(0, max(1, most // pipelines))
        if nested:
            segments += [(p, first, last) for first, last in _nested(generator, len(listed), wanted)]
        else:
            for _ in range(wanted):
                first = generator.randrange(len(listed) - 1)
                segments.append((p, first, generator.randrange(first + 1, len(listed))))
    segments = segments[:most]
    groups = max(1, len(segments) if not shared else generator.randint(1, max(1, len(segments))))
    candidates = []
    for number, (p, first, last) in enumerate(segments):
        replaced = math.fsum(costs[p][first : last + 1])
        group = number if not shared else generator.randrange(groups)
        others = frozenset({generator.randrange(groups)} - {group}) if excluding and generator.random() < 0.3 else frozenset()
        candidates.append(Candidate(p, first, last, group, replaced * generator.uniform(0.05, 1.1), float(generator.randint(1, 9)), others))
    total = math.fsum(candidate.memory_bytes for candidate in candidates)
    return Program(
        tuple(tuple(listed) for listed in costs),
        tuple(candidates),
        tuple(generator.uniform(0.0, 2.5) for _ in range(groups)),
        total * generator.uniform(0.05, 0.7) if capped else math.inf,
    )


def wide_program(seed: int, streams: int, wanted: int, capped: bool = False) -> Program:
    """A program like that of one wide mjoin: a pipeline per stream, `wanted` nested candidates, groups shared across pipelines."""
    generator = random.Random(seed)
    costs = [[generator.uniform(0.1, 3.0) for _ in range(streams - 1)] for _ in range(streams)]
    segments = [(p, first, last) for p in range(streams) for first, last in _split(generator, streams - 1)]
    segments = sorted(generator.sample(segments, wanted))
    by_length: dict[int, list[int]] = {}
    group_of: list[int] = []
    groups = 0
    for _, first, last in segments:
        # Caches of one join have one length; about three pipelines share each.
        listed = by_length.setdefault(last - first, [])
        if not listed or generator.random() < 0.35:
            listed.append(groups)
            groups += 1
        group_of.append(generator.choice(listed))
    candidates = tuple(
        Candidate(p, first, last, group, math.fsum(costs[p][first : last + 1]) * generator.uniform(0.1, 1.0), float(generator.randint(1, 100)))
        for (p, first, last), group in zip(segments, group_of, strict=True)
    )
    total = math.fsum(candidate.memory_bytes for candidate in candidates)
    return Program(
        tuple(tuple(listed) for listed in costs),
        candidates,
        tuple(generator.uniform(0.0, 6.0) for _ in range(groups)),
        total / 8 if capped else math.inf,
    )

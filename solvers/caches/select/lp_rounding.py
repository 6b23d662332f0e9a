"""Cache selection by rounding the linear relaxation at random (paper 1 Thm B.1).

Problem: the cheapest choice of a `Program`. Method: each group draws a threshold in [0, 1) and takes its members with x
at least that; after 3·log₂ k draws, for k operators, the draws are united; of candidates that overlap, the one that covers
the most stays, and what nothing covers runs by itself. What breaks the memory cap goes by priority (`memory`).

Guarantee: always feasible; in expectation at most `rounds(k)` times the relaxation's optimum where segments nest and
no cap binds. The paper's proof bounds the chance that an operator stays uncovered by 1/e from above (it prints below).
A draw that exceeds the ratio is drawn again, up to MAX_DRAWS times: by Markov each is within twice the ratio with
probability one half at least. Seeded: same seed, same choice. Complexity: that of the linear program.
"""

from __future__ import annotations

import random

from solvers.caches.select.greedy import without_overlaps
from solvers.caches.select.memory import evict
from solvers.caches.select.program import Choice, Program, Selection
from solvers.caches.select.relaxation import Relaxation
from solvers.common.tolerances import ROUNDED_DOWN

__all__ = ["lp_rounding", "rounds"]

MAX_DRAWS = 20  # each is within twice the ratio with probability one half at least: all twenty fail once in a million times


def rounds(operators: int) -> int:
    """3·log₂ k, rounded up: draws that are united, and the ratio that follows from their number."""
    return max(1, 3 * operators.bit_length())


def lp_rounding(program: Program, relaxed: Relaxation, seed: int) -> Selection:
    """A feasible choice near the relaxation's optimum."""
    generator = random.Random(seed)
    limit = rounds(program.operators) * relaxed.bound
    best: tuple[float, int, Choice] | None = None
    for _ in range(MAX_DRAWS):
        choice = _draw(program, relaxed, generator)
        found = (program.cost(choice), len(choice), choice)
        best = found if best is None else min(best, found)
        if best[0] <= limit:
            break
    assert best is not None
    return Selection(best[2], best[0], relaxed.bound, False)


def _draw(program: Program, relaxed: Relaxation, generator: random.Random) -> Choice:
    taken: set[int] = set()
    for _ in range(rounds(program.operators)):
        for members in program.members:
            threshold = generator.random()
            taken.update(i for i in members if relaxed.candidates[i] > 0.0 and min(1.0, relaxed.candidates[i] / ROUNDED_DOWN) >= threshold)
    choice = without_overlaps(program, tuple(sorted(taken)))
    excluded: set[int] = set()
    kept: list[int] = []
    for i in choice:
        candidate = program.candidates[i]
        if candidate.group not in excluded and not candidate.excludes & {program.candidates[k].group for k in kept}:
            kept.append(i)
            excluded |= candidate.excludes
    return evict(program, tuple(kept))

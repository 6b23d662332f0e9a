"""Cache selection by trying every choice (paper 1 §4.4, §6).

Problem: the cheapest choice of a `Program`. Method: every set of candidates that do not overlap, depth first.
Guarantee: exact, by definition: this is what every other method is checked against. Complexity: O(2^m · m), so at most
MAX_CANDIDATES candidates; the paper does the same up to six streams.
"""

from __future__ import annotations

from solvers.caches.select.program import Choice, Program, Selection
from solvers.common.deadline import Deadline
from solvers.common.errors import MethodError

__all__ = ["exhaustive"]

MAX_CANDIDATES = 20  # a million choices before overlaps rule most of them out: seconds


def exhaustive(program: Program, deadline: Deadline) -> Selection:
    """The optimum by enumeration. Of equal choices the one with the fewest caches, then the first."""
    m = len(program.candidates)
    if m > MAX_CANDIDATES:
        raise MethodError(f"method exhaustive takes at most {MAX_CANDIDATES} candidates, got {m}: use exact", "/candidates")
    best: tuple[float, int, Choice] = (program.cost(()), 0, ())
    waiting: list[tuple[int, Choice]] = [(0, ())]
    complete = True
    while waiting:
        start, choice = waiting.pop()
        for i in range(start, m):
            grown = (*choice, i)
            if _overlaps(program, choice, i):
                continue
            waiting.append((i + 1, grown))
            if program.feasible(grown):
                best = min(best, (program.cost(grown), len(grown), grown))
        if deadline.expired():
            complete = False
            break
    return Selection(best[2], best[0], best[0] if complete else None, complete)


def _overlaps(program: Program, choice: Choice, i: int) -> bool:
    new = program.candidates[i]
    for k in choice:
        old = program.candidates[k]
        if old.pipeline == new.pipeline and old.first <= new.last and new.first <= old.last:
            return True
    return False

"""Paper 3's JTree-Finder (Alg. 1) as printed: every sub-plan within the caps is kept, none is dropped for another. The baseline.

Compiled like the exact search, over the same tables, so that a ratio of the two compares algorithms and not languages.
"""

from __future__ import annotations

import numpy as np

from solvers.jtree.compiled.compiling import making
from solvers.jtree.compiled.cost import Prices, binary_excess, kept_bytes, kept_excess
from solvers.jtree.compiled.orders import mjoin_excess, scratch_for
from solvers.jtree.compiled.sets import Sets, lowest
from solvers.jtree.component import component_of
from solvers.jtree.table_sizes import MAX_SETS
from solvers.model.cost import CostModel
from solvers.model.point import Caps

__all__ = ["jtree_finder"]


@making
def all_plans(sets: Sets, prices: Prices, cap_e: float, cap_m: float, room: int) -> tuple[int, float, float]:
    """How many plans of all streams are within the caps (−1: no room for their sub-plans), and their least excess CPU and bytes."""
    total, n = sets.mask.size, sets.n
    es, ms = np.empty(room), np.empty(room)
    first, count = np.zeros(total, np.int64), np.zeros(total, np.int64)
    for i in range(n):
        first[i], count[i], es[i], ms[i] = i, 1, 0.0, 0.0
    used, met, least_e, least_m = n, 0, np.inf, np.inf
    scratch = scratch_for(n)
    blocks, tried, left_at = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
    pick, part_e, part_m = np.empty(n + 1, np.int64), np.empty(n + 1), np.empty(n + 1)
    for v in range(n, total):
        first[v] = used
        depth, left_at[0], tried[0] = 0, sets.mask[v], -1
        while depth >= 0:
            # The next block of the lowest stream left.
            left, s = left_at[depth], tried[depth] + 1
            while s < v and (sets.mask[s] & ~left or sets.mask[s] >> lowest(left) & 1 == 0 or count[s] == 0):
                s += 1
            if s == v:
                depth -= 1
                continue
            tried[depth], blocks[depth] = s, s
            if left & ~sets.mask[s]:
                depth += 1
                left_at[depth], tried[depth] = left & ~sets.mask[s], -1
                continue
            m = depth + 1
            e = (
                binary_excess(sets, prices, blocks[0], blocks[1])
                if m == 2
                else mjoin_excess(sets, prices, blocks, m, sets.mask[v], scratch.unlimited, scratch)
            )
            # Every choice of the blocks' plans.
            level, pick[0], part_e[0], part_m[0] = 0, 0, e, 0.0
            while level >= 0:
                if part_e[level] > cap_e or part_m[level] > cap_m:
                    level -= 1
                elif level == m:
                    if v == total - 1:
                        met, least_e, least_m = met + 1, min(least_e, part_e[m]), min(least_m, part_m[m])
                    elif used == room:
                        return -1, least_e, least_m
                    else:
                        es[used], ms[used] = part_e[m], part_m[m]
                        used += 1
                    level -= 1
                elif pick[level] == count[blocks[level]]:
                    level -= 1
                else:
                    plan = first[blocks[level]] + pick[level]
                    pick[level] += 1
                    part_e[level + 1], part_m[level + 1] = part_e[level] + es[plan], part_m[level] + ms[plan]
                    if blocks[level] >= n:
                        part_e[level + 1] += kept_excess(sets, prices, blocks[level])
                        part_m[level + 1] += kept_bytes(sets, prices, blocks[level])
                    level += 1
                    pick[level] = 0
        count[v] = used - first[v]
    return met, least_e, least_m


def jtree_finder(model: CostModel, caps: Caps, room: int = 1 << 25) -> tuple[int, float, float]:
    """How many plans of a connected graph are within the caps (−1: no room for their sub-plans), their least CPU and least memory."""
    part = component_of(model, model.graph.all, MAX_SETS)
    assert part is not None
    pays, pays_bytes = part.base, model.leaves_bytes()
    met, least_e, least_m = all_plans(part.sets, part.prices, caps.cpu - pays, caps.memory_bytes - pays_bytes, room)
    return met, pays + least_e, pays_bytes + least_m

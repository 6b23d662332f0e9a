"""`cp_sat` for queries with tables: the same integer program, with a split for every choice of accesses that no other beats in both resources.

Which tables a join asks changes neither the size nor the rate of its results, so a choice that another beats in both resources is in no plan
that is needed. What a join costs is in its splits whole, streams and tables that it keeps included: nothing is common to all plans.
Guarantee and complexity: those of `solvers.jtree.cp_sat`, with as many Booleans for a division of a set as it has such choices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from solvers.common.deadline import Deadline
from solvers.common.tolerances import ROUNDED
from solvers.jtree.cp_sat import MAX_SPLITS, Program, Split
from solvers.jtree.search import make_join, sorted_inputs
from solvers.jtree.tables.joins import orders_of, ways
from solvers.jtree.tables.solver import divisions
from solvers.model.cost import CostModel
from solvers.model.point import Caps
from solvers.model.tree import Tree

__all__ = ["program_with_tables"]


def program_with_tables(model: CostModel, limits: Caps, deadline: Deadline) -> Program | None:
    """All splits that a plan within the limits can use; None where they are too many, or time runs out."""
    graph = model.graph
    program = Program((graph.all,), lambda splits: _tree(model, splits), 0.0, 0.0, least={1 << i: 0.0 for i in range(len(graph))})
    seen = 0
    for whole, parts in divisions(graph):
        seen += 1
        if seen > MAX_SPLITS or deadline.expired():
            return None
        if any(part not in program.least for part in parts):
            continue
        held = 0.0 if whole == graph.all else model.state_bytes(whole)
        below, blocks = math.fsum(program.least[part] for part in parts), sorted_inputs(parts)
        for way in ways(model, blocks, deadline=deadline):
            cpu = below + way.cpu
            if cpu <= limits.cpu * ROUNDED and way.bytes + held <= limits.memory_bytes * ROUNDED:
                program.splits.append(Split(whole, blocks, way.cpu, way.bytes + held, way.asked))
                program.least[whole] = min(program.least.get(whole, math.inf), cpu)
        if len(program.splits) > MAX_SPLITS:
            return None
    return None if deadline.expired() else program


def _tree(model: CostModel, splits: Sequence[Split]) -> Tree:
    trees: dict[int, Tree] = {}
    root: Tree = 0
    for split in sorted(splits, key=lambda split: (split.whole.bit_count(), split.whole)):
        orders = orders_of(model, split.parts, split.asked)
        assert orders is not None
        inputs = [trees[part] if part & (part - 1) else part.bit_length() - 1 for part in split.parts]
        root = trees[split.whole] = make_join(inputs, orders, split.asked)
    return root

"""Paper 3's JTree-Finder (Alg. 1) as printed: every sub-plan within the caps is kept, none is dropped for another. The baseline."""

from __future__ import annotations

import math
from itertools import product

from solvers.cost import CostModel
from solvers.graph import bits
from solvers.probe_order import best_orders
from solvers.search import Caps
from tests.solvers.brute_force import partitions

__all__ = ["jtree_finder"]


def jtree_finder(model: CostModel, caps: Caps) -> list[tuple[float, float]]:
    """(CPU, memory) of every qualified plan of a connected graph, best probe orders in each join."""
    graph = model.graph
    sub_plans: dict[int, list[tuple[float, float]]] = {1 << i: [(0.0, 0.0)] for i in range(len(graph))}
    for size in range(2, len(graph) + 1):
        met = False
        for whole in range(1, graph.all + 1):
            if whole.bit_count() != size or not graph.connected(whole):
                continue
            found: list[tuple[float, float]] = []
            for parts in partitions(list(bits(whole))):
                blocks = [sum(1 << i for i in part) for part in parts]
                if len(blocks) < 2 or any(block not in sub_plans for block in blocks):
                    continue
                own = model.price_join(blocks, best_orders(model, blocks)[0]).cpu
                kept = math.fsum(model.state_bytes(block) for block in blocks)
                for chosen in product(*(sub_plans[block] for block in blocks)):
                    cpu, memory = own + sum(plan[0] for plan in chosen), kept + sum(plan[1] for plan in chosen)
                    if cpu <= caps.cpu and memory <= caps.memory_bytes:
                        found.append((cpu, memory))
            if found:
                sub_plans[whole] = found
                met = True
        if not met:
            return []
    return sub_plans.get(graph.all, [])

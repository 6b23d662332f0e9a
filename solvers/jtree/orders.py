"""The best probe orders of a join of any width: `model.probe_order`, and compiled code where Python would take too long.

Problem: the cheapest order of every input's probes. Method: the plain backward pass over unions where they are few; for the mjoin of up to 24 streams
the same pass compiled, over connected sets; ranks where the blocks form a tree; else greedy. Guarantee: exact but for greedy orders, and the flag
says so. From the deadline on, orders are greedy. Complexity: O(unions · m), O(m² log m) an input by ranks, O(m²) greedily.
"""

from __future__ import annotations

from collections.abc import Sequence

from solvers.common.deadline import NEVER, Deadline
from solvers.model.cost import CostModel
from solvers.model.probe_order import Orders, orders_by_rank, orders_by_unions

__all__ = ["best_orders"]

COMPILED_STREAMS = 24  # with more, few graphs have a table that fits, and finding out costs a tenth of a second


def best_orders(model: CostModel, masks: Sequence[int], deadline: Deadline = NEVER) -> tuple[Orders, bool]:
    """The cheapest probe order of every input, and whether they are proven to be the cheapest."""
    if (found := orders_by_unions(model, masks, deadline)) is not None:
        return found, True
    if (found := _over_connected_sets(model, masks)) is not None:
        return found, True
    ranked: list[tuple[int, ...]] = []
    for order in orders_by_rank(model, masks) or ():
        ranked.append(order)
        if len(ranked) < len(masks) and deadline.expired():
            break
    if len(ranked) == len(masks):
        return tuple(ranked), True
    from solvers.jtree.compiled.ledger import Ledger  # numba takes a while to import

    return (*ranked, *Ledger(model).greedy_orders(masks)[len(ranked) :]), False


def _over_connected_sets(model: CostModel, masks: Sequence[int]) -> Orders | None:
    """The backward pass compiled, for the plain mjoin of a connected set; None where it is too large a table for that."""
    every = 0
    for mask in masks:
        every |= mask
    if len(masks) > COMPILED_STREAMS or every.bit_count() != len(masks) or not model.graph.connected(every):
        return None
    from solvers.jtree.compiled.orders import best_mjoin_orders  # numba takes a while to import

    return best_mjoin_orders(model, every)

"""What no double can hold, before anything is searched.

Every figure of a plan is a product of constants, rates and sizes. Those that every plan has, and what each constant comes to at the rates that are
sure to meet it, are worked out here, so that a refusal names the figure that is to blame. What passes may still leave the range in some plans, which
searches drop, or in all of them: `CostModel.out_of_range` is for those who are left without a plan.
"""

from __future__ import annotations

import math

from solvers.common.errors import RangeError
from solvers.model.binding import check_bound
from solvers.model.cost import CostModel
from solvers.model.graph import Offer
from solvers.model.operations import least_steps, stepping, times, total

__all__ = ["check_range", "waits_too_long"]

TINIEST = 1e-290  # the least rate, the least window in seconds and the least 1/T of one: products with smaller figures lose digits
LARGEST = 1e290  # the largest of these


def check_range(model: CostModel) -> None:
    """Raise RangeError where no plan's figures fit a double, because those of the windows or the results do not, or where a cost does not fit
    with the rates that it is multiplied with; BindError where no plan can use some index."""
    graph = model.graph
    check_bound(graph)
    for i, name in enumerate(graph.names):
        if graph.tables >> i & 1:
            _check_set(model, 1 << i)
            continue
        if not (TINIEST <= graph.rates[i] <= LARGEST and TINIEST <= 1.0 / graph.window_seconds[i] <= LARGEST):
            detail = f"the rate and the window of {name} leave the range of a double: neither may be below {TINIEST} or above {LARGEST}"
            raise RangeError(detail, f"/query/streams/{i}")
        if not (math.isfinite(graph.rates[i]) and math.isfinite(graph.window_tuples[i] * graph.tuple_bytes[i])):
            raise model.too_many(1 << i)
    _check_set(model, graph.all)
    _check_costs(model)
    _check_accesses(model)


def _check_set(model: CostModel, mask: int) -> None:
    if not (math.isfinite(model.rate(mask)) and math.isfinite(model.state_bytes(mask))):
        raise model.too_many(mask)


def _check_costs(model: CostModel) -> None:
    """What the constants come to, each alone and then all of them added up."""
    costs, graph = model.costs, model.graph
    rates, joined = math.fsum(graph.rates), len(graph) > 1
    indexed = "insert" if costs.insert >= costs.delete else "delete"
    each = {
        "step": stepping(costs, least_steps(graph)),
        "join": times(costs.join, model.rate(graph.all)) if joined else 0.0,
        "probe": times(costs.probe, rates) if joined else 0.0,
        "append": times(costs.append, rates),
        indexed: times(costs.insert + costs.delete, rates),
    }
    if not math.isfinite(total(each.values())):
        name = max(each, key=lambda field: each[field])
        raise RangeError(f"the cost {name}, {getattr(costs, name):g}, comes to more CPU than a double can hold: lower it", f"/costs/{name}")


def _check_accesses(model: CostModel) -> None:
    graph = model.graph
    for table, place, index in graph.indexes():
        for field, value in (("cpu", index.cpu), ("seconds", index.seconds)):
            if not math.isfinite(times(value, max(graph.rates))):
                said = f"asking {graph.names[table]} takes {value:g} seconds{' of CPU' if field == 'cpu' else ''}"
                raise RangeError(f"{said}, more than a double can hold at these rates: lower it", graph.access_pointer(table, place, field))


def waits_too_long(model: CostModel, table: int, index: Offer) -> RangeError:
    """What to refuse a request with where the calls of an index take more time than a double can hold."""
    said = f"asking {model.graph.names[table]}, {index.seconds:g} seconds a call, takes more time than a double can hold: lower it"
    return RangeError(said, model.graph.access_pointer(table, model.graph.offers[table].index(index), "seconds"))

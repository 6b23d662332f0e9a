"""Models for the searches: every feature at once, graphs of up to 200 streams whose sizes stay within the range of a double, and
paper 3's random setting."""

from __future__ import annotations

import random

from models.request import Costs, Query
from solvers.model.cost import CostModel
from solvers.model.graph import join_graph
from tests.graphs import edges_of, random_graph

__all__ = ["keyed_model", "mixed_model", "paper3_model"]


def mixed_model(seed: int, n: int, shape: str = "random", parts: int = 1) -> CostModel:
    """Every feature of the cost model at once: windows in seconds and rows, bytes, theta predicates, observed sets."""
    query = random_graph(
        random.Random(seed), n, shape, windows=(0.1, 1.0, 10.0), tuple_bytes=(10.0, 100.0), rows=0.3, theta=0.2, observed=0.02, parts=parts
    )
    return CostModel(join_graph(query), Costs())


def keyed_model(seed: int, n: int, shape: str = "random", costs: Costs | None = None) -> CostModel:
    """Streams joined mostly by keys: a join is about as large as its larger side, so no size explodes."""
    rng = random.Random(seed)
    rates = [round(rng.uniform(1, 100), 3) for _ in range(n)]
    seconds = [rng.choice([5.0, 10.0, 60.0]) for _ in range(n)]
    streams = [{"name": f"s{i}", "rate": rates[i], "window": {"seconds": seconds[i]}} for i in range(n)]
    predicates = []
    joined = set()
    for left, right in edges_of(rng, n, shape):
        # The first predicate of a stream is its key; those that close a cycle only thin the result out.
        share = 1.0 / max(rates[left] * seconds[left], rates[right] * seconds[right]) if right not in joined else 1.0
        joined.add(right)
        predicates.append({"left": f"s{left}.a", "right": f"s{right}.b", "selectivity": min(1.0, share * rng.uniform(0.3, 2.5))})
    query = Query.model_validate({"streams": streams, "predicates": predicates})
    return CostModel(join_graph(query), costs or Costs())


def paper3_model(seed: int, n: int, seconds: float = 1.0) -> CostModel:
    """Paper 3 §6: rates within [1, 100], random joins, selectivities within (0, 1); its window is not stated."""
    rng = random.Random(seed)
    streams = [{"name": f"s{i}", "rate": rng.uniform(1, 100), "window": {"seconds": seconds}} for i in range(n)]
    predicates = [{"left": f"s{left}.a", "right": f"s{right}.b", "selectivity": rng.uniform(1e-6, 1.0)} for left, right in edges_of(rng, n, "random")]
    return CostModel(join_graph(Query.model_validate({"streams": streams, "predicates": predicates})), Costs())

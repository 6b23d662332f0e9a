"""The figures of a plan's caches once more, written from their definitions over names, beside `tests.solvers.naive_pricer`."""

from __future__ import annotations

from typing import Any

from tests.solvers.naive_pricer import _Query, price

__all__ = ["price_with_caches"]


def _closure(query: dict[str, Any], streams: set[str], attribute: str) -> set[str]:
    """The attributes that have the same value in every tuple of the join of `streams`."""
    found = {attribute}
    while True:
        grown = set(found)
        for p in query["predicates"]:
            ends = {p["left"], p["right"]}
            if p.get("op", "=") == "=" and {end.split(".")[0] for end in ends} <= streams and ends & found:
                grown |= ends
        if grown == found:
            return found
        found = grown


def _distinct(query: dict[str, Any], graph: _Query, attribute: str) -> float:
    stream, name = attribute.split(".")
    given = next(s for s in (*query["streams"], *query.get("tables", [])) if s["name"] == stream).get("distinct", {})
    touching = [1.0 / p["selectivity"] for p in query["predicates"] if p.get("op", "=") == "=" and attribute in (p["left"], p["right"])]
    return float(min(given.get(name, min(touching)), graph.tuples[stream]))


def price_with_caches(plan: dict[str, Any], fixed: bool = False) -> tuple[float, float, list[dict[str, float]]]:
    """(CPU, bytes, figures of each cache) of a plan document, from its query, its shape and the places of its caches.

    `fixed`: with the algorithms that it names, instead of the cheapest.
    """
    query, costs = plan["query"], plan["costs"]
    graph, plain = _Query(query), price(query, costs, plan["operators"], fixed=fixed, tables=plan.get("tables", []))
    update = costs["insert"] + costs["delete"]
    below = {name: {name} for name in graph.names} | {o["id"]: set(o["streams"]) for o in plan["operators"]}
    cpu, memory = plain.cpu, plain.memory_bytes
    listed = []
    upkeep: dict[int, float] = {}
    held: dict[int, float] = {}
    for cache in plan["caches"]:
        operator = next(o for o in plan["operators"] if o["id"] == cache["operator"])
        targets = [probe["target"] for p in operator["pipelines"] if p["input"] == cache["input"] for probe in p["probes"]]
        arriving = below[cache["input"]]
        visited = arriving.union(*(below[t] for t in targets[: cache["first"]]))
        segment = set().union(*(below[t] for t in targets[cache["first"] : cache["last"] + 1]))
        assert segment == set(cache["streams"])
        kept = segment | set(cache["semijoin"])
        steps = plain.probes[cache["operator"], cache["input"]][cache["first"] : cache["last"] + 1]
        # What a step costs whatever its rows is paid with a cache as well.
        replaced, lookups, results = sum(step[4] - costs.get("step", 0.0) for step in steps), steps[0][2], steps[-1][3]
        distinct_of: dict[str, float] = {}
        spans = []
        for attribute in cache["lookup"]:
            same = _closure(query, visited, attribute)
            if arriving & kept and any(a.split(".")[0] in arriving for a in same):
                same = {a for a in same if a.split(".")[0] in arriving}
            chosen = min(
                sorted(same), key=lambda a: (_distinct(query, graph, a) / graph.seconds[a.split(".")[0]], graph.names.index(a.split(".")[0]), a)
            )
            stream = chosen.split(".")[0]
            distinct_of[stream] = min(graph.tuples[stream], distinct_of.get(stream, 1.0) * _distinct(query, graph, chosen))
            spans.append(graph.seconds[stream])
        keys = 1.0
        for value in distinct_of.values():
            keys *= value
        miss = min(1.0, keys / (lookups * min(spans)))
        entries = miss * lookups * min(spans) if min(spans) < float("inf") else keys
        tuples = min(entries * results / lookups, graph.size(segment))
        share = cache["entries"] / entries  # a cache may be given less memory than it could use
        assert 0.0 < share <= 1 + 1e-9
        miss, entries, tuples = 1.0 - share * (1.0 - miss), share * entries, share * tuples
        proc = lookups * costs["probe"] + (1 - miss) * costs["join"] * results + miss * (replaced + results * update)
        figures = {
            "miss_probability": miss,
            "saves": replaced - proc,
            "entries": entries,
            "bytes": 32 * entries + tuples * sum(graph.bytes[s] for s in sorted(segment)),
        }
        listed.append(figures)
        cpu -= figures["saves"]
        upkeep[cache["group"]] = update * graph.rate(kept)
        held[cache["group"]] = max(held.get(cache["group"], 0.0), figures["bytes"])
    return cpu + sum(upkeep.values()), memory + sum(held.values()), listed

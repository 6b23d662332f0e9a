"""The cost model of contract §1 once more, written from its text, slow and plain: sets of names, no sharing with the product.

It prices a plan document from its query and from the shape of its operators, and knows nothing of solvers/.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Figures", "price"]


@dataclass
class Figures:
    """Figures by operator id, by (operator, input), and in total."""

    cpu: float = 0.0
    memory_bytes: float = 0.0
    memory_tuples: float = 0.0
    output_rate: float = 0.0
    operator_cpu: dict[str, float] = field(default_factory=dict)
    operator_rate: dict[str, float] = field(default_factory=dict)
    state_tuples: dict[str, float] = field(default_factory=dict)
    state_bytes: dict[str, float] = field(default_factory=dict)
    probes: dict[tuple[str, str], list[tuple[str, list[int], float, float, float]]] = field(default_factory=dict)
    states: dict[tuple[str, str], tuple[bool, float]] = field(default_factory=dict)


class _Query:
    def __init__(self, query: dict[str, Any]) -> None:
        tables = query.get("tables", [])
        self.tables = {table["name"]: table for table in tables}
        self.names = [entry["name"] for entry in (*query["streams"], *tables)]
        self.seconds: dict[str, float] = {}
        self.tuples: dict[str, float] = {}
        self.bytes: dict[str, float] = {}
        for stream in query["streams"]:
            name, window = stream["name"], stream["window"]
            if "seconds" in window:
                self.seconds[name], self.tuples[name] = window["seconds"], stream["rate"] * window["seconds"]
            else:
                self.seconds[name], self.tuples[name] = window["rows"] / stream["rate"], window["rows"]
            self.bytes[name] = stream.get("tuple_bytes", 100)
        for table in tables:
            self.seconds[table["name"]], self.tuples[table["name"]] = float("inf"), table["rows"]
            self.bytes[table["name"]] = table.get("tuple_bytes", 100)
        self.equalities = [(p["left"], p["right"]) for p in query.get("predicates", []) if p.get("op", "=") == "="]
        self.predicates = [
            ({p["left"].split(".")[0], p["right"].split(".")[0]}, p.get("op", "=") == "=", p["selectivity"]) for p in query.get("predicates", [])
        ]
        self.observed = [(set(entry["streams"]), entry["selectivity"]) for entry in query.get("observed", [])]

    def sigma(self, streams: set[str]) -> float:
        for members, selectivity in self.observed:
            if members == streams:
                return float(selectivity)
        taken: list[set[str]] = []
        result = 1.0
        for members, selectivity in sorted(self.observed, key=lambda entry: (-len(entry[0]), sorted(entry[0]))):
            if members <= streams and not any(members & other for other in taken):
                taken.append(members)
                result *= selectivity
        for ends, _, selectivity in self.predicates:
            if ends <= streams and not any(ends <= members for members in taken):
                result *= selectivity
        return result

    def size(self, streams: set[str]) -> float:
        result = self.sigma(streams)
        for name in sorted(streams):
            result *= self.tuples[name]
        return result

    def from_(self, arriving: set[str], streams: set[str]) -> float:
        return sum(self.size(streams) / self.seconds[name] for name in sorted(arriving))

    def rate(self, streams: set[str]) -> float:
        return self.from_(streams, streams)

    def joining(self, left: set[str], right: set[str]) -> list[int]:
        return [i for i, (ends, _, _) in enumerate(self.predicates) if ends & left and ends & right and not ends <= left and not ends <= right]

    def index(self, reached: dict[str, Any]) -> dict[str, Any] | None:
        """The index that a plan asks a table by; None where it keeps the table."""
        if reached["access"] == "scan":
            return None
        found: dict[str, Any]
        (found,) = (offer for offer in self.tables[reached["name"]]["access"] if sorted(offer.get("bound", [])) == sorted(reached["bound"]))
        return found

    def binds(self, visited: set[str], table: str, attributes: list[str]) -> bool:
        """Whether an equality with what was visited gives every attribute of the table a value."""
        pairs = [*self.equalities, *((right, left) for left, right in self.equalities)]
        return all(any(own == f"{table}.{name}" and other.split(".")[0] in visited for own, other in pairs) for name in attributes)


def price(
    query: dict[str, Any], costs: dict[str, float], operators: list[dict[str, Any]], fixed: bool = False, tables: Sequence[dict[str, Any]] = ()
) -> Figures:
    """The figures of a plan from its shape: ids, inputs and the targets of its probes; `fixed` keeps its algorithms too. `tables` as in a plan."""
    graph, figures = _Query(query), Figures()
    indexes = {reached["name"]: index for reached in tables if (index := graph.index(reached)) is not None}
    below: dict[str, set[str]] = {name: {name} for name in graph.names}
    for operator in operators:
        below[operator["id"]] = set().union(*(below[name] for name in operator["inputs"]))
    unkept = set(indexes)
    for operator in operators:
        flowing = [name for name in operator["inputs"] if name not in graph.tables]
        if len(flowing) == 1 and flowing[0] in graph.names:
            unkept.add(flowing[0])
    for name in (name for name in graph.names if name not in unkept):
        figures.memory_tuples += graph.tuples[name]
        figures.memory_bytes += graph.tuples[name] * graph.bytes[name]
    for operator in operators:
        _price_operator(graph, costs, operator, below, _Reach(figures, fixed, indexes, unkept))
        mine, identifier = below[operator["id"]], operator["id"]
        figures.operator_rate[identifier] = graph.rate(mine)
        root = operator is operators[-1]
        figures.state_tuples[identifier] = 0.0 if root else graph.size(mine)
        figures.state_bytes[identifier] = 0.0 if root else graph.size(mine) * sum(graph.bytes[name] for name in sorted(mine))
        figures.memory_tuples += figures.state_tuples[identifier]
        figures.memory_bytes += figures.state_bytes[identifier]
    figures.cpu = sum(figures.operator_cpu.values())
    figures.output_rate = graph.rate(set(graph.names))
    return figures


@dataclass
class _Reach:
    figures: Figures
    fixed: bool
    indexes: dict[str, dict[str, Any]]
    unkept: set[str]


def _price_operator(graph: _Query, costs: dict[str, float], operator: dict[str, Any], below: dict[str, set[str]], reach: _Reach) -> None:
    identifier, inputs, figures, fixed = operator["id"], operator["inputs"], reach.figures, reach.fixed
    hashed: dict[tuple[str, str], bool] = {}
    for pipeline in operator["pipelines"]:
        visited = set(below[pipeline["input"]])
        for probe in pipeline["probes"]:
            target = below[probe["target"]]
            equality = any(graph.predicates[i][1] for i in graph.joining(visited, target))
            if equality and len(inputs) == 2:
                kept, arriving = graph.rate(target), graph.rate(visited)
                with_index = kept * (costs["insert"] + costs["delete"]) + arriving * costs["probe"]
                without = kept * costs["append"] + arriving * (costs["probe"] + costs["scan"] * graph.size(target))
                equality = with_index <= without
            hashed[pipeline["input"], probe["target"]] = probe["algorithm"] == "hash" if fixed else equality
            visited |= target
    total = 0.0
    for name in (name for name in inputs if name not in reach.unkept):
        indexed = any(value for (_, target), value in hashed.items() if target == name)
        keeping = graph.rate(below[name]) * (costs["insert"] + costs["delete"] if indexed else costs["append"])
        figures.states[identifier, name] = (indexed, keeping)
        total += keeping
    for pipeline in operator["pipelines"]:
        start = below[pipeline["input"]]
        visited, arriving, steps = set(start), graph.rate(start), []
        for probe in pipeline["probes"]:
            target = below[probe["target"]]
            predicates = graph.joining(visited, target)
            produced = graph.from_(start, visited | target)
            by_hash = hashed[pipeline["input"], probe["target"]]
            index = reach.indexes.get(probe["target"])
            if index is not None:
                assert graph.binds(visited, probe["target"], index["bound"]), f"{probe['target']} is asked before it is bound"
                steps.append(("lookup", predicates, arriving, produced, arriving * index["cpu"] + produced * costs["join"] + costs.get("step", 0.0)))
                total += steps[-1][-1]
                visited, arriving = visited | target, produced
                continue
            cost = arriving * (costs["probe"] + (0.0 if by_hash else costs["scan"] * graph.size(target))) + produced * costs["join"]
            cost += costs.get("step", 0.0)  # whatever the rows
            steps.append(("hash" if by_hash else "nested_loop", predicates, arriving, produced, cost))
            total += cost
            visited, arriving = visited | target, produced
        figures.probes[identifier, pipeline["input"]] = steps
    figures.operator_cpu[identifier] = total

"""Routing, as an eddy does it (paper 5, §4.1): each cell orders its own probes by what they bring for what they take.

The problem: cells see different data, and the order of probes that is best for all of them on average may be bad in each. The method is the
paper's: of the modules that a partial row may go to next, the one with the largest benefit over cost. The paper's benefit is what a user gets to
see early; here all results are made anyway, so it is what need not be done later: the share of rows that go no further, 1 − rows out per
row in, which is below 0 where rows become more. Cost is work per row in, counted as rows and pairs. The paper keeps both per module and state of a
tuple; the state of a partial row is here the route that it is on and the predicates that the probe checks.

Orders are chosen when a batch has ended and lie in the cell's notes with what was measured, so a batch that is run again takes the same
way. An order changes where it would have taken GAIN less work. What was measured fades by FADING with every batch, and is forgotten when less than
one row of it is left. A probe that was not measured with the same predicates is judged by one with fewer of them, which finds no fewer
rows, else by one with more: so a way that may be better is tried.

Left as the plan has them: orders in joins with caches, since these are kept up to date by certain steps, of routes with allowances, which
belong to steps, and of routes on which a table may be asked, which needs its keys. Along predicates as everywhere: no cross product where the
plan has none.

The guarantee: the same rows in every order; of the order itself nothing, but that it is the best where modules choose independently of
each other and may come in any order. Complexity: O(inputs² · predicates) a route and batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from spark_adapter.stem.probes import Effort
from spark_adapter.stem.program import MIRRORED, Comparison, Join, Program, Route, Step

__all__ = ["Routing", "reordered"]

FADING = 0.8  # of what was measured so far is left when a batch has ended
GAIN = 0.1  # of the work: a smaller difference may be chance


@dataclass(slots=True)
class Routing:
    """What a cell has measured and decided, in the form of its notes."""

    orders: dict[str, list[str]]
    """Route → its targets in order, where it is not the plan's."""
    measured: dict[str, dict[str, list[float]]]
    """Route → target and predicates → rows in, rows out, work."""

    def applied(self, program: Program) -> Program:
        """The program in this cell's own orders."""
        joins = []
        for join in program.joins:
            routes = [
                reordered(route, order) if _free(program, join, route) and _fits(route, order := self.orders.get(_name(join, route), [])) else route
                for route in join.routes
            ]
            joins.append(replace(join, routes=tuple(routes)))
        return replace(program, joins=tuple(joins))

    def learn(self, program: Program, efforts: Mapping[tuple[str, str, int], Effort]) -> None:
        """Take in what a batch measured under `program`, as `applied` gave it, and decide on the orders of the next one."""
        for join in program.joins:
            for route in join.routes:
                if _free(program, join, route):
                    steps = [(step, efforts.get((join.name, route.name, i))) for i, step in enumerate(route.steps)]
                    asked = [(step, effort) for step, effort in steps if effort is not None and effort.rows_in]
                    if not asked:
                        continue
                    seen = self.measured.setdefault(_name(join, route), {})
                    _fade(seen)
                    for step, effort in asked:
                        counts = seen.setdefault(_probe(step), [0.0, 0.0, 0.0])
                        for k, number in enumerate((effort.rows_in, effort.rows_out, effort.work)):
                            counts[k] += number
                    better = _best(route, seen)
                    if better is not None:
                        self.orders[_name(join, route)] = better


def _name(join: Join, route: Route) -> str:
    return f"{join.output} {route.input}"


def _free(program: Program, join: Join, route: Route) -> bool:
    """Whether the cell may choose the order."""
    cached = any(cache.join == join.name for cache in program.caches)
    bound = {table.name for table in program.tables if table.bound}
    return len(route.steps) > 1 and not cached and all(step.share >= 1.0 and step.target not in bound for step in route.steps)


def _fits(route: Route, order: Sequence[str]) -> bool:
    return sorted(order) == sorted(step.target for step in route.steps)


def reordered(route: Route, order: Sequence[str]) -> Route:
    """The route with its targets in another order: every predicate is checked at the first step where both its sides are there."""
    visited = list(route.steps[0].arriving)
    steps = []
    for target in order:
        steps.append(_step(route, visited, target))
        visited += target.split("+")
    return replace(route, steps=tuple(steps))


def _step(route: Route, visited: Sequence[str], target: str) -> Step:
    planned = next(step for step in route.steps if step.target == target)
    members = target.split("+")
    comparisons = []
    for comparison in (comparison for step in route.steps for comparison in (*step.equal, *step.other)):
        left, right = (side.split(".", 1)[0] for side in (comparison.left, comparison.right))
        if left in visited and right in members:
            comparisons.append(comparison)
        elif right in visited and left in members:
            comparisons.append(Comparison(comparison.right, MIRRORED[comparison.op], comparison.left, comparison.predicate))
    equal = tuple(comparison for comparison in comparisons if comparison.op == "=")
    other = tuple(comparison for comparison in comparisons if comparison.op != "=")
    wants_loop = planned.scan and bool(planned.equal)
    return replace(planned, equal=equal, other=other, scan=wants_loop or not equal, arriving=tuple(visited))


def _probe(step: Step) -> str:
    return " ".join([step.target, *map(str, sorted(comparison.predicate for comparison in (*step.equal, *step.other)))])


def _fade(seen: dict[str, list[float]]) -> None:
    for probe, counts in list(seen.items()):
        counts[:] = [number * FADING for number in counts]
        if counts[0] < 1.0:
            del seen[probe]


def _known(seen: Mapping[str, Sequence[float]], step: Step) -> tuple[float, float] | None:
    """Rows out and work per row in."""
    target, *wanted = _probe(step).split(" ")
    alike = {frozenset(parts[1:]): counts for probe, counts in sorted(seen.items()) if (parts := probe.split(" "))[0] == target}
    exact = frozenset(wanted)
    fewer = max((predicates for predicates in alike if predicates < exact), key=len, default=None)
    more = min((predicates for predicates in alike if predicates > exact), key=len, default=None)
    for predicates in (exact, fewer, more):
        if predicates is not None and predicates in alike:
            rows_in, rows_out, work = alike[predicates]
            return rows_out / rows_in, work / rows_in
    return None


def _best(route: Route, seen: Mapping[str, Sequence[float]]) -> list[str] | None:
    """Targets by benefit over cost, one after the other; None where the order at hand is about as good, or too little is known."""
    remaining = [step.target for step in route.steps]
    visited = list(route.steps[0].arriving)
    chosen: list[str] = []
    while remaining:
        steps = [_step(route, visited, target) for target in remaining]
        linked = [step for step in steps if step.equal or step.other] or steps
        ranked = []
        for step in linked:
            known = _known(seen, step)
            if known is None:
                return None
            ranked.append(((1.0 - known[0]) / known[1], step.target))
        best = max(rank for rank, _ in ranked)
        target = next(target for rank, target in ranked if rank == best)
        chosen.append(target)
        remaining.remove(target)
        visited += target.split("+")
    before, after = _work(route, seen), _work(reordered(route, chosen), seen)
    return chosen if before is not None and after is not None and after < (1.0 - GAIN) * before else None


def _work(route: Route, seen: Mapping[str, Sequence[float]]) -> float | None:
    """Per row that starts on the route, by what is known."""
    total, arriving = 0.0, 1.0
    for step in route.steps:
        known = _known(seen, step)
        if known is None:
            return None
        total += arriving * known[1]
        arriving *= known[0]
    return total

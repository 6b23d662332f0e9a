"""What solvers answer, in few lines and few digits: the commands of golden cases that are not the command line's own.

Each takes the text of a request (YAML) and returns what is worth reading of the answer: structure, claims, and figures of three digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from models.allocation import AllocationAnswer, AllocationRequest
from models.bindings import StreamDraft, TableDraft
from models.caches import CacheSelection, CacheSelectionRequest
from models.cover import CoverAnswer, CoverRequest
from models.plan import Algorithm, Cache, Frontier, Operator, Plan, Proof, Shortfall
from models.replan import Replan, ReplanRequest
from models.request import PlanRequest
from models.sql import SqlRequest
from models.window_join import WindowJoinAnswer, WindowJoinRequest
from solvers.allocation.solve import solve_allocation
from solvers.caches.solve import solve_caches
from solvers.common.errors import SqlError
from solvers.common.words import amount, bytes_, cpu
from solvers.cover.solve import solve_cover
from solvers.from_sql import from_sql
from solvers.frontier import frontier
from solvers.planner import plan
from solvers.replan import replan
from solvers.window_join.solve import solve_window_join

__all__ = ["ANSWERS", "answer"]

QUERIES = yaml.safe_load((Path(__file__).parent / "queries.yaml").read_text(encoding="utf-8"))
_BY = {Algorithm.NESTED_LOOP: " (scan)", Algorithm.LOOKUP: " (asked)"}
TIME_LIMIT = 60.0  # far more than any case needs, so that a busy machine prints the same


def answer(command: str, text: str) -> str:
    """What a golden case's command prints for its request."""
    return "\n".join(ANSWERS[command](yaml.safe_load(text)))


def _request(data: dict[str, Any]) -> PlanRequest:
    """The request, with its query by name where several cases share one."""
    query = data["query"] if isinstance(data["query"], dict) else QUERIES[data["query"]]
    return PlanRequest.model_validate({**data, "query": query, "options": {"time_limit": TIME_LIMIT, **data.get("options", {})}})


def _plan(data: dict[str, Any]) -> Iterator[str]:
    yield from _plan_lines(plan(_request(data)))


def _frontier(data: dict[str, Any]) -> Iterator[str]:
    found: Frontier = frontier(_request(data))
    for point in found.points:
        caches = f", caches: {len(point.plan.caches)}" if point.plan.caches else ""
        trees = "; ".join(_joined(operator) for operator in point.plan.operators)
        asked = "".join(f", {table.name} asked" for table in point.plan.tables if table.bound)
        yield f"{cpu(point.cpu)} CPU, {bytes_(point.memory_bytes)}: {trees}{asked}{caches}"
    yield f"proof {found.proof}, tree_proof {found.tree_proof}, termination {found.termination}"
    yield from (f"warning: {warning}" for warning in found.warnings)


def _joined(operator: Operator) -> str:
    return f"{operator.id} = {' ⋈ '.join(operator.inputs)}"


def _plan_lines(made: Plan) -> Iterator[str]:
    for operator in made.operators:
        kept = f", kept {bytes_(operator.state_bytes)}" if operator.materialized else ""
        yield f"{_joined(operator)}, {cpu(operator.cpu)} CPU{kept}"
        for pipeline in operator.pipelines:
            steps = [probe.target + _BY.get(probe.algorithm, "") for probe in pipeline.probes]
            yield f"  {' → '.join([pipeline.input, *steps])}"
    for table in made.tables:
        asked = f"asked by {', '.join(table.bound)}, {amount(table.calls_per_second)} calls/s, waiting {amount(table.waiting)}"
        yield f"{table.name}: {asked if table.bound else f'kept, {bytes_(table.state_bytes)}'}"
    yield from map(_cache_line, made.caches)
    headroom = "" if made.headroom is None else f", headroom {made.headroom:.3g}"
    verdict = "qualified" if made.qualified else "not qualified"
    yield f"{verdict}: {cpu(made.cost.cpu)} CPU, {bytes_(made.cost.memory_bytes)}{headroom}"
    gap = f" within {made.gap:.2%}" if made.proof is Proof.BOUNDED and made.gap else ""
    yield f"proof {made.proof}{gap}, tree_proof {made.tree_proof}, termination {made.termination}"
    if made.shortfall is not None:
        yield from _shortfall_lines(made.shortfall)
    if made.allocation is not None:
        shares = ", ".join(f"{one.stream} {one.share:.3g}" for one in made.allocation.streams)
        yield f"allocation: {amount(made.allocation.throughput)} of {amount(made.allocation.saturation_throughput)} results/s; may probe: {shares}"
    yield from (f"warning: {warning}" for warning in made.warnings)


def _cache_line(cache: Cache) -> str:
    hits = f"{1.0 - cache.miss_probability:.0%} hits"
    return f"{cache.id}: {cache.kind}, {cache.input} in {cache.operator}, steps {cache.first}–{cache.last}, by {', '.join(cache.key)}, {hits}"


def _shortfall_lines(shortfall: Shortfall) -> Iterator[str]:
    figures = {
        "min_cpu": shortfall.min_cpu,
        "min_memory_bytes": shortfall.min_memory_bytes,
        "cpu_at_memory_cap": shortfall.cpu_at_memory_cap,
        "memory_bytes_at_cpu_cap": shortfall.memory_bytes_at_cpu_cap,
        "rate_scale": shortfall.rate_scale,
    }
    yield "shortfall: " + ", ".join(f"{name} {'none' if value is None else amount(value)}" for name, value in figures.items())


def _allocation(data: dict[str, Any]) -> Iterator[str]:
    found: AllocationAnswer = solve_allocation(AllocationRequest.model_validate({"time_limit": TIME_LIMIT, **data}))
    yield from (f"{path.name}: {amount(path.units)} units, {amount(path.output)} out" for path in found.paths)
    yield f"throughput {amount(found.throughput)}, used {amount(found.used)}, feasible {found.feasible}"
    yield f"proof {found.proof}, termination {found.termination}"


def _cover(data: dict[str, Any]) -> Iterator[str]:
    found: CoverAnswer = solve_cover(CoverRequest.model_validate({"time_limit": TIME_LIMIT, **data}))
    yield "units: " + ", ".join(f"{name} {amount(units)}" for name, units in found.units.items())
    yield f"cost {amount(found.cost)}, feasible {found.feasible}, uncovered {', '.join(found.uncovered) or 'none'}"
    yield f"proof {found.proof}, termination {found.termination}"


def _caches(data: dict[str, Any]) -> Iterator[str]:
    found: CacheSelection = solve_caches(CacheSelectionRequest.model_validate({"time_limit": TIME_LIMIT, **data}))
    yield f"chosen: {', '.join(found.chosen) or 'none'}"
    yield f"cost {amount(found.total_cost)} of {amount(found.cost_without_caches)} without caches, {bytes_(found.memory_bytes)}"
    yield f"proof {found.proof}, termination {found.termination}"


def _window_join(data: dict[str, Any]) -> Iterator[str]:
    found: WindowJoinAnswer = solve_window_join(WindowJoinRequest.model_validate(data))
    yield f"{found.algorithm}: " + ", ".join(f"{name} {amount(value)}" for name, value in found.cost.model_dump().items())
    yield f"let in {amount(found.regulated.left)} and {amount(found.regulated.right)}/s, {amount(found.output_rate)} results/s, proof {found.proof}"


def _sql(data: dict[str, Any]) -> Iterator[str]:
    try:
        found = from_sql(SqlRequest.model_validate(data))
    except SqlError as refused:
        yield from (f"{pointer}: {sentence}" for pointer, sentence in refused.errors)
        return
    query, bindings = found.request.query, found.bindings
    for stream in query.streams:
        bound = bindings.streams[stream.name]
        yield f"{stream.name}: {bound.table}, {amount(stream.rate)}/s × {stream.window.seconds!r} s by {bound.event_time}{_columns(bound)}"
    for table in query.tables:
        draft = bindings.tables[table.name]
        offers = " or ".join(f"asked by {', '.join(access.bound)}" if access.bound else "kept" for access in table.access)
        yield f"{table.name}: table {draft.table}, {amount(table.rows)} rows, {offers}{_columns(draft)}"
    for predicate in query.predicates:
        yield f"{predicate.left} {predicate.op} {predicate.right}" + ("" if predicate.selectivity is None else f", {amount(predicate.selectivity)}")
    yield f"select {', '.join(bindings.select) or 'all'}"
    yield from (f"warning: {warning}" for warning in found.warnings)


def _columns(draft: StreamDraft | TableDraft) -> str:
    """What the query computes of its columns, and on what condition."""
    return "".join(f", {name}: {text}" for name, text in draft.columns.items()) + (f", where {draft.where}" if draft.where else "")


def _replan(data: dict[str, Any]) -> Iterator[str]:
    """`plan` has the request that the running plan was made for, `request` what is said otherwise by now."""
    made_for = _request(data["plan"])
    now = _request(_over(made_for.model_dump(mode="json"), data["request"]))
    asked = {key: data[key] for key in ("measured", "thresholds", "horizon") if key in data}
    found: Replan = replan(ReplanRequest.model_validate({"plan": plan(made_for), "request": now, **asked}))
    running = found.running
    verdict = "qualified" if running.qualified else "not qualified"
    yield f"running: {cpu(running.cpu)} CPU, {bytes_(running.memory_bytes)}, {amount(running.output_rate)} results/s, {verdict}"
    yield f"{found.decision}, {found.kind}, gain {found.gain:.3g}"
    yield from (f"because: {reason}" for reason in found.reasons)
    yield from (f"build {entry.operator}: {amount(entry.tuples)} tuples, {bytes_(entry.bytes)}" for entry in found.rebuild)
    yield from _plan_lines(found.plan)


def _over(body: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A request with some of its parts replaced; streams by name, predicates by their left side."""
    query = dict(body["query"])
    for part, key in (("streams", "name"), ("predicates", "left")):
        by_name = {entry[key]: entry for entry in changes.get(part, [])}
        query[part] = [{**entry, **by_name.get(entry[key], {})} for entry in query[part]]
    rest = {key: value for key, value in changes.items() if key not in ("streams", "predicates")}
    return {**body, **rest, "query": query}


ANSWERS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "plan": _plan,
    "frontier": _frontier,
    "replan": _replan,
    "allocation": _allocation,
    "cover": _cover,
    "caches": _caches,
    "window-join": _window_join,
    "sql": _sql,
}

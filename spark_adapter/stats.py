"""What a run measured, as a new request: rates, bytes, distinct values, skew, selectivities and observed sub-joins instead of estimates.

Engine stem writes a line per batch beside its checkpoint. The lines of the last windows are added up (see `stem.estimates`) and go into the
request of the plan that ran: measured rates in place of the given ones, measured selectivities of single predicates, and sub-joins
whose predicates are not independent as `observed`. What no step measured stays as it was.
"""

from __future__ import annotations

import errno
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from models.plan import Plan
from models.request import LEAST_SELECTIVITY, Observed, PlanRequest, Predicate, Query, Stream
from spark_adapter.documents import read_plan
from spark_adapter.errors import StatisticsError
from spark_adapter.pipeline import PLAN_FILE, STATISTICS
from spark_adapter.stem.estimates import Period, estimates, longest_window, recent

__all__ = ["CHANCE", "measured_request", "stats"]

INDEPENDENT = 0.1  # by how much the logarithm of a set's σ may be off the product of its predicates before it is a measured sub-join
CHANCE = 3.0  # standard errors by which counts may be off: one in 370 differs by more


def stats(folder: str | Path, last: float | None = None) -> PlanRequest:
    """The request that the run with this checkpoint folder suggests, on any file system that Spark can read.

    `last`: how many seconds of event time are looked at, up to the newest row; by default the longest window of the query.
    Raises StatisticsError where the folder does not say.
    """
    read = _reader(str(folder))
    try:
        plan = read_plan(json.loads(read(PLAN_FILE)))
        lines = read(STATISTICS).splitlines()
    except FileNotFoundError as missing:
        raise StatisticsError(f"there is no {missing.filename}: give the checkpoint folder of a run with engine stem") from None
    except ValueError as bad:
        raise StatisticsError(f"{_path(folder, PLAN_FILE)} is not a plan: {bad}") from None
    periods = list(_periods(lines).values())
    measured = estimates(plan.query, recent(periods, longest_window(plan.query) if last is None else last))
    if not measured["rates"]:
        raise StatisticsError(f"{_path(folder, STATISTICS)} has no measured rates yet: let it run for a window or two")
    return measured_request(plan, measured)


def _periods(lines: Sequence[str]) -> dict[int, Period]:
    """What each batch counted, in order. Whatever plan it ran under: a checkpoint's plans are all for one query."""
    found: dict[int, Period] = {}
    for line in lines:
        try:
            entry = json.loads(line)
            period = Period.of(entry)
        except (ValueError, KeyError, TypeError):
            continue  # a run that was killed may leave half a line, an earlier version lines that say less
        found.pop(entry["batch"], None)  # a batch that was run again is logged again
        found[entry["batch"]] = period
    return found


def _path(folder: str | Path, name: str) -> str:
    return f"{str(folder).rstrip('/')}/{name}"


def _reader(folder: str) -> Callable[[str], str]:
    """Reads a file of the folder; Spark is started only where the folder is not one of this machine's."""
    place = urlparse(folder)
    if place.scheme in ("", "file"):
        return lambda name: (Path(place.path) / name).read_text(encoding="utf-8")
    from spark_adapter.checkpoint import Folder
    from spark_adapter.session import open_session

    remote = Folder(open_session({}), folder)

    def read(name: str) -> str:
        if not remote.has(name):
            raise FileNotFoundError(errno.ENOENT, "no such file", _path(folder, name))
        return remote.read(name)

    return read


def measured_request(plan: Plan, measured: Mapping[str, Any]) -> PlanRequest:
    """The plan's request with what was measured in place of what was estimated; `measured` as the pipeline's statistics have it."""
    query = plan.query
    streams = [_stream(stream, query, measured) for stream in query.streams]
    selectivities = measured.get("selectivities", {})
    predicates = [_predicate(predicate, selectivities.get(f"predicates[{p}].selectivity")) for p, predicate in enumerate(query.predicates)]
    return PlanRequest(
        query=Query(streams=streams, tables=query.tables, predicates=predicates, observed=_observed(query, predicates, measured.get("observed", []))),
        resources=plan.resources,
        costs=plan.costs,
        objective=plan.objective,
    )


def _stream(stream: Stream, query: Query, measured: Mapping[str, Any]) -> Stream:
    """With its rate, the bytes of a row, the values of its keys and how often the most frequent ones occur."""
    found: dict[str, Any] = {}
    if rate := measured.get("rates", {}).get(f"{stream.name}.rate"):
        found["rate"] = rate
    if width := measured.get("tuple_bytes", {}).get(f"{stream.name}.tuple_bytes"):
        found["tuple_bytes"] = width
    own = {side.split(".", 1)[1]: share for side, share in measured.get("skew", {}).items() if side.split(".", 1)[0] == stream.name}
    if own:
        found["skew"] = stream.skew | own
    sides = sorted({side for predicate in query.predicates for side in (predicate.left, predicate.right) if side.split(".", 1)[0] == stream.name})
    values = {side.split(".", 1)[1]: measured.get("distinct", {}).get(side) for side in sides}
    if any(values.values()):
        found["distinct"] = stream.distinct | {attribute: count for attribute, count in values.items() if count}
    return stream.model_copy(update=found)


def _predicate(predicate: Predicate, selectivity: float | None) -> Predicate:
    return predicate if selectivity is None else predicate.model_copy(update={"selectivity": max(LEAST_SELECTIVITY, selectivity)})


def _observed(query: Query, predicates: Sequence[Predicate], measured: Sequence[Mapping[str, Any]]) -> list[Observed]:
    """Sets whose predicates are not independent, by what was measured of the set and of the predicates inside it.

    Where the two differ by no more than chance and INDEPENDENT, the predicates alone are as good, and agree with those of all other sets: a set
    that was measured would otherwise look better or worse than its neighbours that were not. A set that was given, and that no
    step measured, keeps its ratio to the product of its predicates.
    """
    found: dict[tuple[str, ...], float] = {}
    for given in query.observed:
        names = tuple(sorted(given.streams))
        before, now = (_product(listed, names) for listed in (query.predicates, predicates))
        found[names] = min(1.0, given.selectivity * math.exp(now - before))
    for entry in measured:
        names = tuple(sorted(entry["streams"]))
        if _inside(predicates, names) < 2:
            continue
        found.pop(names, None)
        apart = abs(math.log(max(LEAST_SELECTIVITY, entry["selectivity"])) - _product(predicates, names))
        chance = CHANCE / math.sqrt(max(1.0, entry["matched"])) if "matched" in entry else 0.0
        if apart > max(INDEPENDENT, chance):
            found[names] = entry["selectivity"]
    return [Observed(streams=list(names), selectivity=found[names]) for names in sorted(found, key=lambda names: (len(names), names))]


def _inside(predicates: Sequence[Predicate], names: Sequence[str]) -> int:
    """How many predicates have both ends in a set."""
    return sum(1 for predicate in predicates if _ends(predicate) <= set(names))


def _product(predicates: Sequence[Predicate], names: Sequence[str]) -> float:
    """The logarithm of the product of the selectivities inside a set."""
    return math.fsum(math.log(predicate.selectivity or 1.0) for predicate in predicates if _ends(predicate) <= set(names))


def _ends(predicate: Predicate) -> set[str]:
    return {side.split(".", 1)[0] for side in (predicate.left, predicate.right)}

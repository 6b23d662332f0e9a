"""What a run measured, as a new request: rates, skew, selectivities and observed sub-joins instead of estimates.

Engine stem writes a line per batch beside its checkpoint, and each line carries what the run has measured so far. The last
one goes into the request of the plan that ran: measured rates in place of the given ones, measured selectivities of
single predicates, and sub-joins of which more than one predicate decides as `observed`. What no step measured stays as it was.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from models.plan import Plan
from models.request import Observed, PlanRequest, Predicate, Query, Stream
from spark_adapter.documents import read_plan
from spark_adapter.errors import StatisticsError
from spark_adapter.pipeline import STATISTICS

__all__ = ["PLAN_FILE", "measured_request", "stats"]

PLAN_FILE = "plan.json"  # the plan that ran, beside its statistics
LEAST_SELECTIVITY = 1e-18  # where nothing matched so far: a selectivity is above 0, and a planner must not divide by nothing


def stats(folder: str | Path) -> PlanRequest:
    """The request that the run with this checkpoint folder suggests, on any file system that Spark can read.

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
    measured = None
    for line in lines:
        try:
            entry = json.loads(line)
        except ValueError:
            continue  # a run that was killed may leave half a line
        if entry.get("fingerprint") == plan.fingerprint:
            measured = entry.get("measured")
    if not measured or not measured.get("rates"):
        raise StatisticsError(f"{_path(folder, STATISTICS)} has no measured rates of this plan yet: let it run for a window or two")
    return measured_request(plan, measured)


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
    rates, selectivities = measured.get("rates", {}), measured.get("selectivities", {})
    streams = [_stream(stream, rates.get(f"{stream.name}.rate"), measured.get("skew", {})) for stream in query.streams]
    predicates = [_predicate(predicate, selectivities.get(f"predicates[{p}].selectivity")) for p, predicate in enumerate(query.predicates)]
    sets = {tuple(sorted(entry.streams)): entry.selectivity for entry in query.observed}
    for entry in measured.get("observed", []):
        names = tuple(sorted(entry["streams"]))
        if _predicates_inside(query, names) > 1:
            sets[names] = entry["selectivity"]
    observed = [Observed(streams=list(names), selectivity=sets[names]) for names in sorted(sets, key=lambda names: (len(names), names))]
    return PlanRequest(
        query=Query(streams=streams, predicates=predicates, observed=observed),
        resources=plan.resources,
        costs=plan.costs,
        objective=plan.objective,
    )


def _stream(stream: Stream, rate: float | None, skew: Mapping[str, float]) -> Stream:
    own = {attribute: share for (name, attribute), share in ((side.split(".", 1), share) for side, share in skew.items()) if name == stream.name}
    return stream.model_copy(update=({"rate": rate} if rate else {}) | {"skew": stream.skew | own})


def _predicate(predicate: Predicate, selectivity: float | None) -> Predicate:
    return predicate if selectivity is None else predicate.model_copy(update={"selectivity": max(LEAST_SELECTIVITY, selectivity)})


def _predicates_inside(query: Query, names: tuple[str, ...]) -> int:
    ends = [(predicate.left.split(".", 1)[0], predicate.right.split(".", 1)[0]) for predicate in query.predicates]
    return sum(1 for left, right in ends if left in names and right in names)

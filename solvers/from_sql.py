"""What does this SQL query mean? A request to plan, and bindings without sources (contract §6).

The steps: parse the text; read relations and conditions, and sort the conditions into bounds on time, predicates and
conditions on one stream; windows from the bounds; predicates from what is left; figures from the statistics.
Everything that is found wrong is said at once, with its place in the text.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from pydantic import ValidationError
from sqlglot import exp

from models.bindings import BindingsDraft
from models.faults import errors_of
from models.request import PlanRequest
from models.sql import MeantRequest, SqlMeaning, SqlRequest, Statistics, TableStatistics
from solvers.common.errors import SqlError
from solvers.sql.bounds import kept_bounds, tightest, windows
from solvers.sql.columns import Columns
from solvers.sql.conditions import Conditions, read_conditions
from solvers.sql.figures import Figures
from solvers.sql.predicates import Attributes, Named, from_bounds, from_comparisons, sides_of
from solvers.sql.relations import From, read_from, the_select
from solvers.sql.results import read_results
from solvers.sql.text import FaultError, Faults, Text, parsed

__all__ = ["from_sql"]


def from_sql(request: SqlRequest) -> SqlMeaning:
    """What the query means. Raises SqlError."""
    faults = Faults()
    try:
        return _meaning(request, faults)
    except FaultError as error:
        raise SqlError([*faults, error.fault]) from None
    except RecursionError:
        raise SqlError([("/sql", "the query is nested too deeply to be read")]) from None


def _meaning(request: SqlRequest, faults: Faults) -> SqlMeaning:
    text, statement = parsed(request.sql, request.dialect)
    select = the_select(text, statement, faults)
    joined = read_from(text, select, faults)
    _stop_at(faults)
    if len(joined.relations) == 1:
        raise text.fault(select, "there is one stream and nothing to join it with")
    tables = _tables(joined, request.statistics, faults)
    if len(tables) == len(joined.relations):
        raise text.fault(select, "nothing flows: all that the query joins are tables by the statistics, and a plan needs a stream")
    columns = Columns(text, joined)
    given = _given_times(text, columns, request.statistics, faults)
    conditions = read_conditions(text, columns, given, tables, faults)
    results, warnings = read_results(text, columns, select, faults)
    _stop_at(faults)
    places: dict[str, exp.Expr] = {relation.name: relation.node for relation in joined.relations.values() if relation.name not in tables}
    bounds = tightest(conditions.bounds)
    lengths = windows(text, places, bounds, conditions.event_times)
    kept = kept_bounds(bounds, lengths)
    sides = [side for one in conditions.predicates for side in (one.left, one.right)]
    attributes = Attributes([*sides, *(side for bound in kept for side in sides_of(bound, conditions.event_times))])
    predicates = from_comparisons(conditions.predicates, attributes)
    predicates += from_bounds(kept, bounds, lengths, conditions.event_times, attributes)
    bindings = _bindings(joined, conditions, attributes, results, tables)
    if joined.hinted:
        warnings.append("hints on how to join are not read: the plan says how")
    where = {name: one.where for drafts in (bindings.streams, bindings.tables) for name, one in drafts.items()}
    figures = Figures(request.statistics, lengths, tables, where, warnings)
    figures.check(predicates, faults)
    _stop_at(faults)
    return SqlMeaning(request=_request(request.statistics, figures, predicates), bindings=bindings, warnings=warnings)


def _stop_at(faults: Faults) -> None:
    if faults:
        raise SqlError(faults)


def _tables(joined: From, statistics: Statistics, faults: Faults) -> dict[str, TableStatistics]:
    """The relations that are tables by the statistics, in the order of the query."""
    streams = {name.lower() for name in statistics.streams}
    for name in statistics.tables:
        if name.lower() not in joined.relations:
            known = ", ".join(relation.name for relation in joined.relations.values())
            faults.append((f"/statistics/tables/{name}", f"{name} is no table of the query; it joins {known}"))
        elif name.lower() in streams:
            faults.append((f"/statistics/tables/{name}", f"{name} is given as a stream as well: leave one of them out"))
    _stop_at(faults)
    given = {name.lower(): table for name, table in statistics.tables.items()}
    return {relation.name: given[key] for key, relation in joined.relations.items() if key in given}


def _given_times(text: Text, columns: Columns, statistics: Statistics, faults: Faults) -> dict[str, exp.Expr]:
    """The event times that the statistics name, by relation."""
    found: dict[str, exp.Expr] = {}
    for name, known in statistics.streams.items():
        relation = columns.joined.relations.get(name.lower())
        if known.event_time and relation is not None:
            with faults.gathered():
                found[relation.name] = columns.given(known.event_time, relation.name, f"/statistics/streams/{name}/event_time", text.dialect)
    return found


def _bindings(joined: From, conditions: Conditions, attributes: Attributes, results: list[str], tables: Container[str]) -> BindingsDraft:
    drafts: dict[str, dict[str, Any]] = {"streams": {}, "tables": {}}
    for relation in joined.relations.values():
        where = [condition.sql("spark") for condition in conditions.where.get(relation.name, ())]
        said: dict[str, Any] = {
            "table": relation.table,
            "columns": attributes.expressions.get(relation.name, {}),
            "where": where[0] if len(where) == 1 else " AND ".join(f"({condition})" for condition in where),
        }
        if relation.name in tables:
            drafts["tables"][relation.name] = said
        else:
            drafts["streams"][relation.name] = said | {"event_time": conditions.event_times[relation.name].sql("spark")}
    try:
        return BindingsDraft.model_validate({**drafts, "select": results})
    except ValidationError as failure:
        raise SqlError([("/sql", f"{where.rpartition('/')[2]}: {what}") for where, what in errors_of(failure, BindingsDraft)]) from None


def _request(given: Statistics, figures: Figures, predicates: list[Named]) -> MeantRequest:
    rest = {name: getattr(given, name) for name in ("resources", "costs", "objective", "options")}
    query = {"streams": figures.streams(), "tables": figures.tables(), "predicates": figures.predicates(predicates), "observed": given.observed}
    try:
        return MeantRequest.model_validate(PlanRequest.model_validate({"query": query, **rest}).model_dump())
    except ValidationError as failure:
        # Only measured sub-joins, and the number of streams, have not been looked at before.
        errors = [(where.replace("/query/observed", "/statistics/observed"), what) for where, what in errors_of(failure, PlanRequest)]
        raise SqlError([(where if "/observed" in where else "/sql", what) for where, what in errors]) from None

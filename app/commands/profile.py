"""`watersmeet profile BINDINGS (REQUEST | FILE.sql)`: the request with the statistics that the sources themselves show."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from app.commands.documents import read_value, validate
from app.commands.durations import duration
from app.commands.queries import add_sql_arguments, meaning_of, read_sql
from app.commands.spark import add_install_argument, add_master_argument, need_spark
from app.commands.terminal import DONE, RefusedError, put, say

if TYPE_CHECKING:
    from models.bindings import Bindings
    from models.request import PlanRequest
    from solvers.profile import Profile
    from solvers.profiling.confidence import Figure
    from spark_adapter.profile import Stretch

__all__ = ["HELP", "add_arguments", "profiled", "run"]

HELP = "read a stretch of the sources and print the request with measured rates and selectivities"
SECONDS = 600.0
DIGITS = 6  # of a measured figure; its interval says how many of them count
WIDTH = 20  # characters of the bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("bindings", metavar="BINDINGS", help="sources and columns, as JSON or YAML; with a query, its tables' sources are enough")
    parser.add_argument("file", metavar="FILE", help="a request, in which rates and selectivities may be missing, or a SQL query (.sql)")
    parser.add_argument("--seconds", type=duration, default=SECONDS, metavar="TIME", help="how much event time to read (default: 600)")
    add_sql_arguments(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    add_master_argument(parser)
    add_install_argument(parser)


def run(arguments: argparse.Namespace) -> int:
    need_spark(arguments.install)
    request, bindings = _asked(arguments)
    from spark_adapter.kafka.connector import connected
    from spark_adapter.profile import read_stretch
    from spark_adapter.session import open_session

    bar = _Bar(arguments.quiet)
    try:
        bar.tell("starting Spark", 0.0)
        spark = open_session(connected(bindings), arguments.master)
        stretch = read_stretch(request, bindings, spark, arguments.seconds, bar.tell)
        found = profiled(request, stretch, bar.tell)
    finally:
        bar.end()
    for warning in (*stretch.notes, *found.warnings):
        say(f"warning: {warning}")
    put(_written(request, found, stretch.notes))
    return DONE


def _asked(arguments: argparse.Namespace) -> tuple[PlanRequest, Bindings]:
    """The request, with figures to be replaced where it has none, and complete bindings."""
    from models.bindings import Bindings
    from models.request import PlanRequest
    from solvers.sql.bindings import completed

    sources = read_value(arguments.bindings)
    if not isinstance(sources, dict):
        raise RefusedError(f"{arguments.bindings}: bindings are an object with streams")
    sources.setdefault("checkpoint", "not used")  # nothing runs
    if arguments.file.endswith(".sql"):
        meaning = meaning_of(read_sql(arguments.file), arguments.file, arguments.stats, arguments.dialect)
        return meaning.request.to_plan(), validate(Bindings, completed(meaning.bindings, sources), arguments.bindings)
    value = read_value(arguments.file)
    query = value.get("query") if isinstance(value, dict) else None
    if isinstance(query, dict):
        query.pop("observed", None)
        for stream in query.get("streams") or ():
            if isinstance(stream, dict):
                stream.setdefault("rate", 1.0)
        for predicate in query.get("predicates") or ():
            if isinstance(predicate, dict):
                predicate.setdefault("selectivity", 1.0)
    request = validate(PlanRequest, value, arguments.file)
    if request.query.tables:
        raise RefusedError(f"{arguments.file}: tables are not profiled: profile the streams alone, then add the tables with their rows")
    return request, validate(Bindings, sources, arguments.bindings)


def profiled(request: PlanRequest, stretch: Stretch, tell: Any = lambda step, share: None) -> Profile:
    """The statistics of what was read."""
    from solvers.profile import profile
    from solvers.profiling.sample import Rows, Sample, Sampled

    streams = {
        name: Rows(
            columns["ts"],
            {column[2:]: values for column, values in columns.items() if column.startswith("h_")},
            {column[2:]: values for column, values in columns.items() if column.startswith("v_")},
            stretch.in_stretch[name],
            stretch.shares[name],
            stretch.tuple_bytes[name],
        )
        for name, columns in stretch.columns.items()
    }
    by = Sampled(stretch.sampled, stretch.share) if stretch.sampled else None
    return profile(request.query, Sample(streams, stretch.start, stretch.end, by), tell)


def _written(request: PlanRequest, found: Profile, notes: list[str]) -> str:
    """YAML, with an interval of confidence beside each figure: a request to plan, to keep and to read."""
    query = _rounded(found.query.model_dump(mode="json", exclude_none=True))
    lines = [f"# {note}" for note in (*notes, *found.warnings)]
    lines += ["# After each measured figure: its interval of confidence, at 95 %.", "query:", "  streams:"]
    for stream in query["streams"]:
        lines.append(f"  - {json.dumps(stream)}  # rate: {_interval(found.rates[stream['name']])}")
    lines.append("  predicates:" if query["predicates"] else "  predicates: []")
    lines += [f"  - {json.dumps(one)}  # {_interval(figure)}" for one, figure in zip(query["predicates"], found.selectivities, strict=True)]
    lines.append("  observed:" if query["observed"] else "  observed: []")
    lines += [f"  - {json.dumps(one)}  # {_interval(figure)}" for one, figure in zip(query["observed"], found.observed, strict=True)]
    rest = request.model_dump(mode="json", exclude={"query"}, exclude_defaults=True)
    lines += [f"{name}: {json.dumps(value)}" for name, value in rest.items()]
    return "\n".join(lines)


def _interval(figure: Figure) -> str:
    return f"{figure.low:.4g} to {figure.high:.4g}" if figure.error < float("inf") else "not measured"


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


class _Bar:
    """One line on standard error, drawn over and over; nothing where that is no terminal."""

    def __init__(self, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def tell(self, step: str, share: float) -> None:
        if self._shown:
            done = round(WIDTH * share)
            sys.stderr.write(f"\r\x1b[K[{'#' * done}{'-' * (WIDTH - done)}] {step}"[:100])
            sys.stderr.flush()

    def end(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")

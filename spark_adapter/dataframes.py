"""`spark_adapter.join`: streaming DataFrames joined by a plan, as a streaming DataFrame that the user starts.

The problem: sources, watermarks, sink, trigger and checkpoint are the user's, who starts the query as any other of Spark's. The method: the
frames stand in for a plan's sources, engine stem makes one DataFrame of them, and nothing is kept beside the checkpoint, whose
place is not known here. So what the checkpoint has to agree on, which `run` reads from a manifest, is kept by every cell in its own
state, and compared when the query starts again (see `stem.worker`): another plan for the same join goes on, any other join is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import uuid4

from pydantic import ValidationError
from pyspark.sql import DataFrame, SparkSession

from models.bindings import Bindings
from models.faults import errors_of
from models.plan import Plan
from models.request import PlanRequest
from spark_adapter.documents import check_tree, read_plan
from spark_adapter.errors import BindingError, EngineError, Fault, PlanError
from spark_adapter.expressions import SPARK_ERRORS, milliseconds
from spark_adapter.layout import layout_of
from spark_adapter.rescaling import Cells
from spark_adapter.session import send_code
from spark_adapter.shedding import check_shed
from spark_adapter.sources import Inputs, read_frames
from spark_adapter.stem.engine import SETTINGS, parallelism, programmed, stem
from spark_adapter.stem.shares import choose_grid, fitting_grid

__all__ = ["Asking", "joined"]

COMPARISON = re.compile(r"\s*(\w+)\.(\w+)\s*(<=|>=|!=|<>|==|=|<|>)\s*(\w+)\.(\w+)\s*")
OPERATORS = {"<>": "!=", "==": "="}
DELAY = "spark.watermarkDelayMs"  # under which Spark notes a column's watermark
SECONDS = 600.0  # of batches that are looked at


@dataclass(frozen=True)
class Asking:
    """How a plan is made where none is given, and how many cells run it."""

    statistics: Mapping[str, Any] = field(default_factory=dict)
    """What is known: `{"streams": {name: {rate, tuple_bytes, distinct}}, "predicates": [{left, right, selectivity}], "observed": […]}`."""
    batches: Mapping[str, DataFrame] = field(default_factory=dict)
    """What the frames' sources hold, as batch DataFrames with the same columns: what is not in the statistics is measured from them."""
    resources: Mapping[str, float] = field(default_factory=dict)
    """Caps: `cpu`, `memory_bytes`."""
    url: str | None = None
    """A server to ask instead of planning here."""
    cells: int | None = None
    """Over how many cells states are spread; by default what the cluster runs at once. A checkpoint keeps to the number it began with."""


def joined(
    frames: Mapping[str, DataFrame],
    on: Sequence[str],
    within: Mapping[str, str | float],
    event_time: str | Mapping[str, str],
    plan: Plan | Mapping[str, Any] | None,
    asking: Asking,
) -> DataFrame:
    """See `spark_adapter.join`."""
    if not frames:
        raise BindingError([("", "there are no frames to join")])
    spark = next(iter(frames.values())).sparkSession
    times = dict.fromkeys(frames, event_time) if isinstance(event_time, str) else dict(event_time)
    request = _request(frames, on, within, asking, spark)
    bindings = _bindings(frames, times)
    streams = read_frames(request, bindings, frames)
    if plan is None:
        chosen = _asked(request, bindings, asking)
    else:
        chosen = plan if isinstance(plan, Plan) else read_plan(plan)
        if chosen.query.tables:
            raise PlanError([("/query/tables", "join takes frames of streams alone: join the tables with its result, or use compile with bindings")])
        _check_query(chosen, request)
    check_tree(chosen)
    check_shed(chosen, False)
    return _stem(chosen, bindings, Inputs(streams, {}), asking.cells, spark)


def _request(
    frames: Mapping[str, DataFrame], on: Sequence[str], within: Mapping[str, str | float], asking: Asking, spark: SparkSession
) -> PlanRequest:
    """The request for this join, with what is known; other figures are 1 until they are measured or asked for."""
    faults: list[Fault] = []
    known = asking.statistics.get("streams", {})
    streams: list[dict[str, Any]] = []
    for name in frames:
        if name not in within:
            faults.append(("within", f"within does not say how long rows of {name} wait for partners, for example {{{name!r}: '1 minute'}}"))
            continue
        try:
            length = within[name]
            seconds = milliseconds(spark, length) / 1000 if isinstance(length, str) else float(length)
        except (*SPARK_ERRORS, TypeError, ValueError):
            faults.append(("within", f"the window of {name} must be an interval like '1 minute' or a number of seconds, got {within[name]!r}"))
            continue
        streams.append({"name": name, "rate": 1.0, "window": {"seconds": seconds}} | dict(known.get(name, {})))
    for name in within:
        if name not in frames:
            faults.append(("within", f"{name!r} is no frame of the join; its frames are {', '.join(frames)}"))
    predicates: list[dict[str, Any]] = []
    for text in on:
        found = COMPARISON.fullmatch(text)
        if found is None:
            faults.append(("on", f"{text!r} is no comparison of two columns; write it like 'bids.auction = auctions.id'"))
            continue
        left, a, op, right, b = found.groups()
        faults += [
            ("on", f"{text!r}: {name!r} is no frame of the join; its frames are {', '.join(frames)}") for name in (left, right) if name not in frames
        ]
        predicates.append({"left": f"{left}.{a}", "op": OPERATORS.get(op, op), "right": f"{right}.{b}"})
    if faults:
        raise BindingError(faults)
    for predicate in predicates:
        predicate |= {"selectivity": _known_selectivity(predicate, asking) or 1.0}
    query = {"streams": streams, "predicates": predicates, "observed": asking.statistics.get("observed", [])}
    try:
        return PlanRequest.model_validate({"query": query, "resources": asking.resources})
    except ValidationError as failure:
        raise PlanError(list(errors_of(failure, PlanRequest))) from None


def _known_selectivity(predicate: Mapping[str, str], asking: Asking) -> float | None:
    sides = {predicate["left"], predicate["right"]}
    return next((one["selectivity"] for one in asking.statistics.get("predicates", []) if {one["left"], one["right"]} == sides), None)


def _bindings(frames: Mapping[str, DataFrame], times: Mapping[str, str]) -> Bindings:
    """As `run` has them; where rows come from and go to is not ours."""
    faults: list[Fault] = []
    streams = {}
    for name, frame in frames.items():
        column = times.get(name)
        if not frame.isStreaming:
            faults.append(("frames", f"{name} is a batch DataFrame; a join of streams needs spark.readStream"))
        elif column is None:
            faults.append(("event_time", f"event_time does not name a column of {name}"))
        elif column not in frame.columns:
            faults.append(("event_time", f"{name} has no column {column!r}; its columns are {', '.join(frame.columns)}"))
        elif DELAY not in (frame.schema[column].metadata or {}):
            faults.append(("frames", f"{name} has no watermark on {column}: give it one, like {name}.withWatermark({column!r}, '10 seconds')"))
        else:
            delay = int(frame.schema[column].metadata[DELAY])
            streams[name] = {"source": {"format": "frame"}, "event_time": f"`{column}`", "watermark": f"{delay} milliseconds"}
    if faults:
        raise BindingError(faults)
    return Bindings.model_validate({"streams": streams, "checkpoint": "the query's own"})


def _check_query(plan: Plan, request: PlanRequest) -> None:
    """A plan that is given is for this join."""

    def meant(query: Any) -> tuple[Any, Any]:
        windows = sorted((stream.name, stream.window.seconds, stream.window.rows) for stream in query.streams)
        return windows, sorted((predicate.left, predicate.op.value, predicate.right) for predicate in query.predicates)

    if meant(plan.query) != meant(request.query):
        raise PlanError([("/query", "the plan is for another join: its streams, windows and predicates must be those of frames, within and on")])


def _asked(request: PlanRequest, bindings: Bindings, asking: Asking) -> Plan:
    """A plan from whoever plans: what is installed beside the adapter, or a server. The adapter itself runs without either."""
    if asking.batches:
        from spark_adapter.profile import stretch_of

        stretch = stretch_of(request, bindings, asking.batches, SECONDS)
        measured = import_module("app.commands.profile").profiled(request, stretch).query
        request = request.model_copy(update={"query": _merged(request, measured, asking)})
    elif not asking.statistics and len(request.query.streams) > 2:
        raise PlanError([("", "how fast are the frames? Give a plan, statistics={'streams': {name: {'rate': …}}}, or batches to measure")])
    made = import_module("solvers.planner").plan(request) if asking.url is None else _from_server(asking.url, request)
    assert isinstance(made, Plan)
    return made


def _from_server(url: str, request: PlanRequest) -> Any:
    """The server's plan. Raises PlanError with what the server said, or why it said nothing."""
    try:
        return import_module("app.commands.remote").ask(url, "/v1/plans", request, Plan, request.options.time_limit + 60)
    except import_module("app.commands.terminal").RefusedError as refused:
        raise PlanError([("", line) for line in refused.lines]) from None


def _merged(request: PlanRequest, measured: Any, asking: Asking) -> Any:
    """The measured figures, but where the user gave some."""
    known = asking.statistics.get("streams", {})
    streams = [given.model_copy(update=dict(known.get(given.name, {}))) for given in measured.streams]
    predicates = [
        own.model_copy(update={"selectivity": _known_selectivity({"left": own.left, "right": own.right}, asking) or own.selectivity})
        for own in measured.predicates
    ]
    return measured.model_copy(update={"streams": streams, "predicates": predicates, "observed": request.query.observed or measured.observed})


def _stem(plan: Plan, bindings: Bindings, inputs: Inputs, cells: int | None, spark: SparkSession) -> DataFrame:
    if cells is not None and cells < 1:
        raise EngineError(f"cells must be at least 1, got {cells}")
    grid = fitting_grid(plan, parallelism(spark)) if cells is None else choose_grid(plan.query, cells)
    # The keys of cells follow from their number alone, and one of them is 0 always: a start with another number meets states that disagree.
    laid_out = Cells(grid, grid.cells)
    send_code(spark)
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    agreement = layout_of(plan, bindings, inputs, spark) | {"grid": laid_out.written()["grid"]}
    program = programmed(plan, bindings, inputs, f"watersmeet-{uuid4().hex}")
    return stem(program, plan, bindings, inputs, laid_out, None, json.dumps(agreement, sort_keys=True))

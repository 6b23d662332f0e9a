"""Engine `native`: a plan of binary joins as Spark's own stream-stream joins, and nothing but Spark.

The problem: Spark joins two streams at a time, in the order written, and lets one event-time column at most leave a
join that feeds another. The method: the plan's tree, join by join. Each join gets its predicates, and for every
stream i on one side and j on the other the two window conditions ts_j − ts_i ≤ T_i and ts_i − ts_j ≤ T_j: over the
whole tree these are all pairs, so the answer is that of contract §1, row by row. Of a join that feeds another one
event time keeps its watermark, that of the stream with the shortest window: its conditions bound the state soonest.
The others become plain timestamps.

While the joins run, a stream's columns are named after it, so that nothing can be confused: `bids` is its row,
`bids@ts` its event time, `bids.auction` an attribute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

from models.bindings import Bindings
from models.plan import OperatorKind, Plan
from models.request import Query
from spark_adapter.errors import EngineError, Fault
from spark_adapter.expressions import quoted
from spark_adapter.progress import RESULTS
from spark_adapter.sources import attributes, result_columns

__all__ = ["NativeJoin", "check_native", "microseconds", "native", "native_joins"]


@dataclass(frozen=True, slots=True)
class NativeJoin:
    """One of Spark's joins, in text."""

    id: str
    left: str
    right: str
    streams: tuple[str, ...]
    """All streams and tables below: those of `left`, then those of `right`."""
    conditions: tuple[str, ...]
    """What must hold, as SQL over the columns named above; all of it together."""
    constant_key: bool
    """Whether no predicate is an equality: Spark joins streams only on a key, so this join gets one that is the same for all rows."""
    timed: tuple[str, str]
    """A stream of each side; the same where a side is a table."""
    stripped: tuple[str, ...]
    """Streams whose event time stops being one, because only one may leave."""


def check_native(plan: Plan, bindings: Bindings) -> None:
    """That Spark's own joins can run this plan; EngineError names every operator, window and silence in the way."""
    faults: list[Fault] = list(_untabled(plan, bindings))
    faults += [
        (f"/streams/{name}/idle_after", f"Spark's own joins wait for {name} however long it is silent: use engine stem, or leave idle_after out")
        for name, binding in bindings.streams.items()
        if binding.idle_after is not None
    ]
    for i, operator in enumerate(plan.operators):
        if operator.kind is not OperatorKind.BINARY_JOIN or len(operator.inputs) != 2:
            joined = ", ".join(operator.inputs)
            faults.append(
                (
                    f"/operators/{i}",
                    f"{operator.id} is an {operator.kind.value} of {joined}; engine native joins two inputs at a time: "
                    "use engine stem, or plan with options.method bjtree",
                )
            )
    for i, stream in enumerate(plan.query.streams):
        if stream.window.seconds is None:
            faults.append(
                (
                    f"/query/streams/{i}/window",
                    f"{stream.name} has a window of {stream.window.rows} rows; engine native knows time windows only: use engine stem",
                )
            )
    if faults:
        raise EngineError(faults)


def _untabled(plan: Plan, bindings: Bindings) -> Iterator[Fault]:
    """Tables that Spark's own joins do not read as the plan or the bindings say."""
    for t, table in enumerate(plan.tables):
        if table.bound:
            yield f"/tables/{t}", f"the plan asks {table.name} by key, which Spark's own joins cannot: use engine stem, or a plan that keeps it"
        binding = bindings.tables.get(table.name)
        if binding is not None and binding.refresh is not None:
            yield f"/tables/{table.name}/refresh", f"Spark's own joins read {table.name} in every batch: use engine stem, or leave refresh out"


def native_joins(plan: Plan) -> Iterator[NativeJoin]:
    """The plan's joins, inputs before users."""
    query = plan.query
    tables = {table.name for table in query.tables}
    window = {stream.name: microseconds(stream.window.seconds or 0.0) for stream in query.streams}
    below: dict[str, tuple[str, ...]] = {relation.name: (relation.name,) for relation in query.relations}
    for operator in plan.operators:
        left, right = operator.inputs
        streams = below[operator.id] = below[left] + below[right]
        equalities, others = _predicates(query, below[left], below[right])
        windows = [
            f"{quoted(f'{later}@ts')} <= {quoted(f'{earlier}@ts')} + {interval(window[earlier])}"
            for i in below[left]
            for j in below[right]
            if not {i, j} & tables
            for earlier, later in ((i, j), (j, i))
        ]
        flowing = [name for name in streams if name not in tables]
        kept = min(flowing, key=lambda name: (window[name], name))
        stripped = () if operator is plan.operators[-1] else tuple(name for name in flowing if name != kept)
        # A table is joined with a stream on any condition, and on none.
        keyless = not equalities and not {left, right} & tables
        yield NativeJoin(operator.id, left, right, streams, (*equalities, *others, *windows), keyless, (flowing[0], flowing[-1]), stripped)


def native(plan: Plan, bindings: Bindings, streams: Mapping[str, DataFrame]) -> DataFrame:
    """The results of the plan as one streaming DataFrame; `streams`, tables among them, as `read_inputs` gives them. Raises EngineError."""
    check_native(plan, bindings)
    frames: dict[str, DataFrame] = {}
    for name, names in attributes(plan.query).items():
        frames[name] = streams[name].select(
            F.col("row").alias(name),
            *([F.col("ts").alias(f"{name}@ts")] if "ts" in streams[name].columns else []),
            *(F.col(quoted(f"a_{attribute}")).alias(f"{name}.{attribute}") for attribute in names),
        )
    result = frames[plan.query.streams[0].name]
    for join in native_joins(plan):
        left, right = frames[join.left], frames[join.right]
        conditions = list(join.conditions)
        if join.constant_key:
            left = left.withColumn("left key", F.expr(constant_key(join.timed[0])))
            right = right.withColumn("right key", F.expr(constant_key(join.timed[1])))
            conditions.insert(0, "`left key` = `right key`")
        result = left.join(right, F.expr(" AND ".join(conditions) or "true")).drop("left key", "right key")
        for name in join.stripped:
            result = result.withColumn(f"{name}@ts", F.expr(plain_time(name)))
        frames[join.id] = result
    # A file sink does not say how many rows it wrote; this count does, in every report of Spark's progress.
    return result.select(*result_columns(plan, bindings)).observe(RESULTS, F.count(F.lit(1)).alias("rows"))


def microseconds(seconds: float) -> int:
    """A window's length as Spark keeps time."""
    return round(seconds * 1_000_000)


def interval(length: int) -> str:
    """A number of microseconds as an interval of Spark's SQL.

    >>> interval(61_500_000)
    "INTERVAL '61.500000' SECOND"
    """
    return f"INTERVAL '{length // 1_000_000}.{length % 1_000_000:06}' SECOND"


def constant_key(stream: str) -> str:
    """0, in a form that Spark's optimizer cannot simplify: it would remove a constant key and then refuse the join for lack of one."""
    return f"pmod(unix_micros({quoted(f'{stream}@ts')}), 1)"


def plain_time(stream: str) -> str:
    """A stream's event time as a timestamp like any other: the same moment, computed, so that its watermark is left behind."""
    return f"timestamp_micros(unix_micros({quoted(f'{stream}@ts')}))"


def _predicates(query: Query, left: tuple[str, ...], right: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The equalities between the two sides, and the other predicates."""
    equalities: list[str] = []
    others: list[str] = []
    for predicate in query.predicates:
        ends = {side.split(".", 1)[0] for side in (predicate.left, predicate.right)}
        if ends & set(left) and ends & set(right):
            text = f"{quoted(predicate.left)} {predicate.op.value} {quoted(predicate.right)}"
            (equalities if predicate.op.value == "=" else others).append(text)
    return equalities, others

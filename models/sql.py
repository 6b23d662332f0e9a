"""From SQL to a request: what POST /v1/requests takes and gives, and `watersmeet request` with it (contract §6)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.base import Identifier, Model, Number, Positive, Whole, is_none
from models.bindings import BindingsDraft
from models.request import (
    MAX_OBSERVED,
    MAX_PREDICATES,
    Comparison,
    Costs,
    Objective,
    Observed,
    Options,
    PlanRequest,
    Query,
    Reference,
    Resources,
)
from models.table import SCAN, Access

__all__ = ["MeantOptions", "MeantRequest", "PredicateStatistics", "SqlMeaning", "SqlRequest", "Statistics", "StreamStatistics", "TableStatistics"]

MAX_SQL = 100_000  # characters; a join of 200 streams with long names takes a third of that


class StreamStatistics(Model):
    """What is known of one stream of a query."""

    rate: Annotated[Positive | None, Field(exclude_if=is_none, examples=[1000.0])] = None
    """Arrivals, in tuples per second, before the query's own condition on this stream; a guess where it is left out."""
    tuple_bytes: Annotated[Positive, Field(examples=[100.0])] = 100.0
    """Memory one tuple takes in a state, in bytes."""
    distinct: Annotated[dict[Identifier, Positive], Field(examples=[{"auction": 5000.0}])] = {}
    """Distinct values in the window, by attribute."""
    event_time: Annotated[str, Field(max_length=4096, examples=["ts"])] = ""
    """The column, or SQL expression, of a row's time; by default what the query compares with intervals."""
    where_selectivity: Annotated[Number | None, Field(gt=0, le=1, exclude_if=is_none, examples=[0.25])] = None
    """Share of the rows that satisfy the query's condition on this stream alone, in (0, 1]: the rate is lowered by it."""


class TableStatistics(Model):
    """What is known of a relation of a query that does not flow."""

    rows: Annotated[Positive, Field(examples=[200000.0])]
    """How many rows it has, before the query's own condition on it."""
    tuple_bytes: Annotated[Positive, Field(examples=[400.0])] = 100.0
    """Memory one row takes where the table is kept, in bytes."""
    distinct: Annotated[dict[Identifier, Positive], Field(examples=[{"id": 200000.0}])] = {}
    """Distinct values, by attribute."""
    access: Annotated[list[Access], Field(min_length=1, max_length=8, examples=[[{"kind": "scan"}]])] = [SCAN]
    """What it offers; the plan picks one."""
    where_selectivity: Annotated[Number | None, Field(gt=0, le=1, exclude_if=is_none, examples=[0.25])] = None
    """Share of the rows that satisfy the query's condition on this table alone, in (0, 1]: there are fewer rows by it."""


class PredicateStatistics(Model):
    """What is known of one predicate of a query."""

    left: Annotated[Reference, Field(examples=["b.auction"])]
    """One side, as stream.attribute; the sides may be given in either order."""
    right: Annotated[Reference, Field(examples=["a.id"])]
    """The other side."""
    op: Annotated[Comparison | None, Field(exclude_if=is_none, examples=["="])] = None
    """How they compare; needed only where the query compares the same two attributes in several ways."""
    selectivity: Annotated[Number, Field(gt=0, le=1, examples=[0.0002])]
    """Share of the pairs that satisfy the predicate, in (0, 1]."""


class Statistics(Model):
    """What a query does not say: how fast its streams are, how often its predicates hold, what a plan may use."""

    streams: Annotated[dict[Identifier, StreamStatistics], Field(examples=[{"b": {"rate": 1000.0}}])] = {}
    """By the name that the query gives the stream: its alias, or the table's own name."""
    tables: Annotated[dict[Identifier, TableStatistics], Field(examples=[{"p": {"rows": 200000.0}}])] = {}
    """The relations that do not flow, by the name that the query gives them. All others are streams."""
    predicates: Annotated[list[PredicateStatistics], Field(max_length=MAX_PREDICATES)] = []
    """Selectivities. One that is left out follows from `distinct` where both sides have it, and is a guess otherwise."""
    observed: Annotated[list[Observed], Field(max_length=MAX_OBSERVED)] = []
    """Measured sub-joins, as in a plan request."""
    resources: Resources = Resources()
    """Caps on CPU and memory."""
    costs: Costs = Costs()
    """Cost constants."""
    objective: Annotated[Objective, Field(examples=["min_cpu"])] = Objective.MIN_CPU
    """What to make best among the plans within the caps."""
    options: Options = Options()
    """How to search."""


class SqlRequest(Model):
    """A SQL query: inner joins of streams whose event times it bounds, and of tables."""

    sql: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_SQL,
            examples=["SELECT * FROM bids b JOIN auctions a ON b.auction = a.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 60 SECONDS"],
        ),
    ]
    """The query."""
    dialect: Annotated[str, Field(max_length=63, examples=["spark"])] = "spark"
    """How it is written: spark, flink, postgres, or another dialect of sqlglot."""
    # A factory, so that the document has no default for it: clients in Java cannot write one of objects in objects.
    statistics: Statistics = Field(default_factory=Statistics)
    """What the query does not say."""


class MeantOptions(Model):
    """How to search, as the statistics said. Names are text here: an answer may not get values that it never had, and new searches come."""

    method: Annotated[str, Field(max_length=63, examples=["auto"])]
    """Which search to run."""
    caches: Annotated[str, Field(max_length=63, examples=["auto"])]
    """Which caches the plan may use."""
    time_limit: Annotated[Number, Field(examples=[1.0])]
    """Seconds the search may take."""
    seed: Annotated[Whole, Field(examples=[0])]
    """Seed of whatever is random in the search."""


class MeantRequest(Model):
    """The plan request that a query means: the same document as POST /v1/plans and POST /v1/frontiers take."""

    query: Query
    """The join graph."""
    resources: Resources
    """Caps on CPU and memory."""
    costs: Costs
    """Cost constants."""
    objective: Annotated[Objective, Field(examples=["min_cpu"])]
    """What to make best among the plans within the caps."""
    options: MeantOptions
    """How to search."""

    def to_plan(self) -> PlanRequest:
        """As the planner takes it."""
        return PlanRequest.model_validate(self.model_dump())


class SqlMeaning(Model):
    """What a SQL query means."""

    request: MeantRequest
    """What POST /v1/plans and POST /v1/frontiers take."""
    bindings: BindingsDraft
    """Columns, conditions and result columns, in Spark's SQL: bindings without sources, sink and checkpoint."""
    warnings: Annotated[list[str], Field(examples=[["no rate is given for b: 1 row a second is taken"]])]
    """Guesses, and what a reader might not expect."""

"""The plan request: what a caller POSTs to /v1/plans and /v1/frontiers (contract §2)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from models.base import Identifier, Model, NonNegative, Number, Positive, Share, Whole, is_empty, is_none
from models.faults import MAX_STREAMS, check_query, with_faults
from models.method import Method
from models.table import Table

__all__ = [
    "LEAST_SELECTIVITY",
    "CacheMode",
    "Comparison",
    "Costs",
    "Method",
    "Objective",
    "Observed",
    "Options",
    "PlanRequest",
    "Predicate",
    "Query",
    "Resources",
    "Stream",
    "Window",
]

MAX_PREDICATES = 40_000  # two for every pair of 200 streams: a clique with a range predicate beside each key
MAX_OBSERVED = 65_536  # the contract's limit: every set of 16 streams; real queries of 17 have measured 13,229
LEAST_SELECTIVITY = 1e-18  # of what was measured and nothing matched: a selectivity is above 0, and a planner must not divide by nothing
MAX_TIME_LIMIT = 300.0  # a caller who waits longer has lost the connection

Reference = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,62}$")]


class Comparison(StrEnum):
    """How the two sides of a predicate compare. Only `=` can be answered from a hash index."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    NE = "!="


class Objective(StrEnum):
    """What the planner makes best, among the plans within the caps."""

    MIN_CPU = "min_cpu"
    MIN_MEMORY = "min_memory"
    MAX_HEADROOM = "max_headroom"


class CacheMode(StrEnum):
    """Which caches of subresults the planner may add to multi-way joins."""

    AUTO = "auto"
    OFF = "off"
    PREFIX = "prefix"
    GLOBAL = "global"


class Window(Model):
    """How long a tuple can still find partners: a span of time, or a number of rows. Exactly one of the two."""

    seconds: Annotated[Positive | None, Field(exclude_if=is_none, examples=[60.0])] = None
    """Length of a time window, in seconds."""
    rows: Annotated[Whole | None, Field(gt=0, le=10**15, exclude_if=is_none, examples=[5000])] = None
    """Length of a row window, in tuples: the stream's newest rows."""


class Stream(Model):
    """One input of the join."""

    name: Annotated[Identifier, Field(examples=["bids"])]
    """Name of the stream, unique in the request."""
    rate: Annotated[Positive, Field(examples=[1000.0])]
    """Arrivals, in tuples per second, after selections on this stream alone."""
    window: Window
    """How long a tuple stays joinable."""
    tuple_bytes: Annotated[Positive, Field(examples=[100.0])] = 100.0
    """Memory one tuple takes in a state, in bytes."""
    freshness: Annotated[Window | None, Field(exclude_if=is_none)] = None
    """How old a result may be, measured on this stream: at least the window, and of the same kind."""
    distinct: Annotated[dict[Identifier, Positive], Field(examples=[{"auction": 5000.0}])] = {}
    """Distinct values in the window, by attribute."""
    skew: Annotated[dict[Identifier, Annotated[Share, Field(gt=0)]], Field(exclude_if=is_empty, examples=[{"auction": 0.2}])] = {}
    """Share of the rows that have the attribute's most frequent value, by attribute. No plan depends on it; how Spark spreads rows does."""


class Predicate(Model):
    """A condition between two streams or tables."""

    left: Annotated[Reference, Field(examples=["bids.auction"])]
    """One side, as stream.attribute."""
    right: Annotated[Reference, Field(examples=["auctions.id"])]
    """The other side, as stream.attribute, of another stream or table."""
    op: Annotated[Comparison, Field(examples=["="])] = Comparison.EQ
    """How the sides compare. Anything but `=` needs a nested loop."""
    selectivity: Annotated[Number | None, Field(gt=0, le=1, examples=[0.0002])] = None
    """Share of the pairs that satisfy the predicate, in (0, 1]. May be left out for `=` where both sides have `distinct`: then it is 1/max."""


class Observed(Model):
    """The measured selectivity of a whole sub-join, for predicates that are not independent."""

    streams: Annotated[list[Identifier], Field(min_length=2, max_length=MAX_STREAMS, examples=[["bids", "auctions", "sellers"]])]
    """The streams and tables of the sub-join: exactly this set."""
    selectivity: Annotated[Share, Field(examples=[3.1e-9])]
    """Results of the sub-join over the product of its windows, in [0, 1]."""


class Query(Model):
    """The join graph: streams and tables, predicates between them, and measured sub-joins."""

    streams: Annotated[list[Stream], Field(min_length=1, max_length=MAX_STREAMS)]
    """The inputs that flow, 1 to 200 together with the tables."""
    tables: Annotated[list[Table], Field(max_length=MAX_STREAMS - 1, exclude_if=is_empty)] = []
    """The inputs that do not."""
    predicates: Annotated[list[Predicate], Field(max_length=MAX_PREDICATES)] = []
    """The conditions. Several between the same two streams, cycles and unconnected graphs are allowed."""
    observed: Annotated[list[Observed], Field(max_length=MAX_OBSERVED)] = []
    """Measured sub-joins; each set at most once."""

    @property
    def relations(self) -> list[Stream | Table]:
        """Streams, then tables."""
        return [*self.streams, *self.tables]

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_query)


class Resources(Model):
    """What the plan may use. A cap that is left out is no cap."""

    cpu: Annotated[Positive | None, Field(exclude_if=is_none, examples=[1.0])] = None
    """CPU-seconds per second: 1.0 is one core."""
    memory_bytes: Annotated[Positive | None, Field(exclude_if=is_none, examples=[268435456.0])] = None
    """Bytes for all states and caches together."""


class Costs(Model):
    """What one operation costs, in CPU-seconds per tuple, but for `step`. The defaults are papers 3 and 4's figures."""

    join: Annotated[NonNegative, Field(examples=[2.2e-6])] = 2.2e-6
    """Making one joined tuple."""
    insert: Annotated[NonNegative, Field(examples=[2e-7])] = 2e-7
    """Inserting one tuple into an indexed state."""
    delete: Annotated[NonNegative, Field(examples=[2e-7])] = 2e-7
    """Deleting one tuple from an indexed state."""
    append: Annotated[NonNegative, Field(examples=[1e-7])] = 1e-7
    """Keeping one tuple in a state without index, its removal included."""
    probe: Annotated[NonNegative, Field(examples=[0.0])] = 0.0
    """Starting one probe, whatever it finds."""
    scan: Annotated[NonNegative, Field(examples=[1.7e-6])] = 1.7e-6
    """Looking at one tuple of a state in a nested loop."""
    step: Annotated[NonNegative, Field(examples=[0.0])] = 0.0
    """What each probe step of a plan costs whatever its rows, in CPU-seconds per second: what it costs in a micro-batch, times batches a second."""


class Options(Model):
    """How to search."""

    method: Annotated[Method, Field(examples=["auto"])] = Method.AUTO
    """Which search to run; `auto` picks by size and shape."""
    caches: Annotated[CacheMode, Field(examples=["auto"])] = CacheMode.AUTO
    """Which caches the plan may use."""
    time_limit: Annotated[Number, Field(gt=0, le=MAX_TIME_LIMIT, examples=[1.0])] = 1.0
    """Seconds the search may take; then the best plan so far comes back, with its bound."""
    seed: Annotated[Whole, Field(ge=0, lt=2**31, examples=[0])] = 0
    """Seed of whatever is random in the search: same seed, same plan."""


class PlanRequest(Model):
    """A join graph, what it may use, and what to make best."""

    query: Query
    """The join graph."""
    resources: Resources = Resources()
    """Caps on CPU and memory."""
    costs: Costs = Costs()
    """Cost constants; `watersmeet calibrate` measures them on Spark."""
    objective: Annotated[Objective, Field(examples=["min_cpu"])] = Objective.MIN_CPU
    """What to make best among the plans within the caps."""
    options: Options = Options()
    """How to search."""

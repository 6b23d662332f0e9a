"""What a cell runs: a plan reduced to state modules, probe steps and column names, small enough to send to every worker.

One module per stream, kept table and materialized operator, one route per input of each join that flows, and for every step of a route
the predicates between what has been visited and the target. `programming` makes it of a plan.

Columns of a frame, for a stream called bids:

    bids.auction   an attribute that predicates compare
    bids/0         the first column of the result's row
    bids#          the row's number in its stream, where the window is counted in rows
    hi, mx         min(ts + T) and max(ts) over the row's streams: two partial rows satisfy all pairwise window
                   conditions exactly when each one's mx is at most the other's hi
    h              the sum of the 64-bit hashes of the row's components: its identity, whatever the join order

This module imports nothing but the standard library: it is read by every worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spark_adapter.stem.pieces import Piece

__all__ = ["Cached", "Comparison", "Join", "Module", "Program", "Route", "Segment", "Step", "Stream", "Table"]

ENTRY_BYTES = 32.0  # of a cache's key, in the plan's measure; its rows are measured by their streams' tuple_bytes
MODULES = "modules"  # what the state of cells is called in Spark's store
META = "meta"  # the store's key for a cell's own notes; all its other keys are names of pieces, and…
PLAN = "plan "  # … this with a number, for the plans that it runs and builds for, and…
ROWS = "rows "  # … this with a table, a version and a name, for rows of a version that is not whole yet
FOREVER = 1 << 61  # microseconds: beyond every event time, and the sum of two still fits 64 bits


@dataclass(frozen=True, slots=True)
class Stream:
    """One input of the plan."""

    name: str
    window: int
    """T_i in microseconds; FOREVER where the window is counted in rows."""
    rows: int | None
    """N_i, where the window is counted in rows."""
    attributes: tuple[str, ...]
    payload: tuple[str, ...]
    tuple_bytes: float
    delay: int | None = None
    """By how many milliseconds the watermark trails this stream's latest event time, where that is known."""
    idle_after: int | None = None
    """For how many milliseconds it may be silent before nobody waits for it (see `silence`); None where all wait for ever."""


@dataclass(frozen=True, slots=True)
class Table:
    """An input that does not flow."""

    name: str
    attributes: tuple[str, ...]
    payload: tuple[str, ...]
    tuple_bytes: float
    size: float
    """How many rows it is planned to have: what probes that ask it count as looked at."""
    kept: bool
    """Whether the plan keeps it; else it is asked."""
    bound: tuple[str, ...] = ()
    """The attributes that it is asked by; of a table that is kept those by which every probe could ask it while its rows are not there yet,
    none where that cannot be."""
    keys: int = 1
    """Keys that one call asks for."""
    side_by_side: int = 1
    """Calls at a time, of all cells together."""


@dataclass(frozen=True, slots=True)
class Module:
    """A state module: the live rows of one stream, one kept table or one materialized operator."""

    key: str
    """Its name in the state store: its streams, sorted. Two plans that materialize the same streams share it."""
    name: str
    """Its name in the plan: a stream or an operator id."""
    streams: tuple[str, ...]
    columns: tuple[str, ...]
    """What a row has besides hi, mx and h."""
    counted: tuple[str, ...]
    """Those of its streams whose windows are counted in rows."""
    death: str
    """The column that says when a row dies: `hi`, or the row's number where it is a stream's and the window is counted in rows."""
    reach: int
    """For how long a row lives at most, in the unit of `death`."""
    kept: bool = True
    """False for a stream all of whose partners are tables: nobody looks for its rows, so they pass through and are not kept."""

    def last_death(self, piece: Piece) -> int:
        """When the last row of a piece dies, in the unit of `death`."""
        return piece.bounds.hi[1] if self.death == "hi" else piece.bounds.numbers[self.death[:-1]]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A predicate with the column of the visited side first."""

    left: str
    op: str
    right: str
    predicate: int = -1
    """Its index in the query; −1 for a comparison with a cache's key."""


@dataclass(frozen=True, slots=True)
class Step:
    """One probe: partial rows look up their partners in one module."""

    target: str
    """Key of the probed module."""
    equal: tuple[Comparison, ...]
    other: tuple[Comparison, ...]
    scan: bool
    """Nested loop, because the plan says so or because nothing is an equality."""
    share: float = 1.0
    """Of the arriving rows this share may probe (the plan's allowance)."""
    salt: int = 0
    """Makes the choice at this step independent of the choices at others."""
    arriving: tuple[str, ...] = ()
    """Streams visited before this step."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps of a route that a cache answers."""

    cache: str
    """Key of the cache."""
    name: str
    """The cache's id in the plan."""
    first: int
    last: int
    lookup: tuple[str, ...]
    """Columns of the arriving rows, in the order of the cache's key."""
    residual: tuple[Comparison, ...]
    """Predicates between the arriving rows and the segment that the key does not cover."""
    steps: tuple[Step, ...]
    """How the entries of missing keys are made, starting from the keys."""


@dataclass(frozen=True, slots=True)
class Cached:
    """A cache of the join of some inputs of one operator, by key (paper 1)."""

    key: str
    join: str
    inputs: tuple[str, ...]
    """Keys of the modules whose join it holds."""
    columns: tuple[str, ...]
    """The attributes it is looked up by, one of each class that the segment's own predicates equate."""
    counted: tuple[str, ...]
    """Those of its streams whose windows are counted in rows."""
    streams: tuple[str, ...]
    tuple_bytes: float
    """Of one row."""
    capacity: float
    """Bytes, in the plan's measure of tuples."""
    captured: Mapping[str, int]
    """Per input the step of its own route after which exactly the cached join has been made, where there is one."""
    upkeep: Mapping[str, tuple[Step, ...]]
    """Per other input the steps that make its share of the cached join."""


@dataclass(frozen=True, slots=True)
class Route:
    """The probe order of one input."""

    input: str
    """Key of the input's module."""
    name: str
    """The input in the plan."""
    steps: tuple[Step, ...]
    segments: tuple[Segment, ...] = ()


@dataclass(frozen=True, slots=True)
class Join:
    """One operator."""

    name: str
    output: str
    """Key of the module that keeps its output. The root's output is not kept; its key has the same form."""
    inputs: tuple[str, ...]
    """Those that flow, in the order of their routes, then tables."""
    routes: tuple[Route, ...]
    columns: tuple[str, ...]
    """What its output keeps."""


@dataclass(frozen=True, slots=True)
class Program:
    """A plan as a cell runs it."""

    streams: tuple[Stream, ...]
    modules: tuple[Module, ...]
    """Streams first, then kept tables, then materialized operators, inputs before users."""
    joins: tuple[Join, ...]
    caches: tuple[Cached, ...]
    admitted: float = 1.0
    """Share of every stream's rows that is let in at all: below 1 where keeping the windows alone takes too much of the CPU."""
    run: str = ""
    """Names the run. Spark moves its watermark by what a run has seen, and forgets that with the run; so do we."""
    number: int = 0
    """Counts the plans that a checkpoint was given: of two plans the one with the higher number is in force."""
    adaptive: bool = False
    """Whether each cell orders its own probes by what it has measured (see `routing`)."""
    tables: tuple[Table, ...] = ()

    @property
    def listening(self) -> bool:
        """Whether any stream may be idle: then every batch tells every cell which streams it has rows of."""
        return any(stream.idle_after is not None for stream in self.streams)

    @property
    def sheds(self) -> bool:
        """Whether rows are kept out or from probing: then results depend on the plan."""
        return self.admitted < 1.0 or any(step.share < 1.0 for join in self.joins for route in join.routes for step in route.steps)

    @property
    def counted(self) -> bool:
        """Whether any window is counted in rows: then the order of arrival matters and there is one cell only."""
        return any(stream.rows is not None for stream in self.streams)

    @property
    def keys(self) -> frozenset[str]:
        """The attributes that equalities compare."""
        compared = [comparison for join in self.joins for route in join.routes for step in route.steps for comparison in step.equal]
        return frozenset(side for comparison in compared for side in (comparison.left, comparison.right))

    @property
    def relations(self) -> tuple[Stream | Table, ...]:
        """All inputs, in the order in which a result has them."""
        return (*self.streams, *self.tables)

    @property
    def payload(self) -> tuple[str, ...]:
        """The columns of a result."""
        return tuple(column for relation in self.relations for column in relation.payload)


MIRRORED = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}

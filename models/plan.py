"""The plan and what is made of plans: frontier, estimate, diff (contract §3)."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from models.base import Flag, Identifier, Model, Number, Share, Whole, is_empty, is_none
from models.faults import check_operators, check_plans, with_faults
from models.request import Costs, Objective, PlanRequest, Query, Resources
from models.table import TableAccess, TableShape

__all__ = [
    "Algorithm",
    "Allocation",
    "Allowance",
    "Cache",
    "CacheKind",
    "Change",
    "Cost",
    "Diff",
    "DiffRequest",
    "EstimateRequest",
    "Frontier",
    "FrontierPoint",
    "Operator",
    "OperatorKind",
    "OperatorShape",
    "Pipeline",
    "PipelineShape",
    "Plan",
    "Probe",
    "ProbeShape",
    "Proof",
    "Renewal",
    "Shortfall",
    "State",
    "StreamShare",
    "Termination",
    "Validity",
    "WindowSuggestion",
]

PLAN_FORMAT = "watersmeet.plan/1"


class Proof(StrEnum):
    """What is proven of a solution among all that the request allows: it is the best; it is within `gap` of the best; nothing."""

    OPTIMAL = "optimal"
    BOUNDED = "bounded"
    NONE = "none"


class Termination(StrEnum):
    """Why a search ended, apart from what it proved: nothing was left to do; its time limit struck; it was asked to stop."""

    COMPLETE = "complete"
    TIME_LIMIT = "time_limit"
    STOPPED = "stopped"


class OperatorKind(StrEnum):
    """A join of two inputs, or of three and more."""

    BINARY_JOIN = "binary_join"
    MJOIN = "mjoin"


class Algorithm(StrEnum):
    """How a probe finds its partners: by a hash index, by a scan, or by asking a table's own index, which only queries with tables do."""

    HASH = "hash"
    NESTED_LOOP = "nested_loop"
    LOOKUP = "lookup"

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {**handler(core_schema), "x-values-with": {cls.LOOKUP.value: "Query.tables"}}


class CacheKind(StrEnum):
    """Whether a cache obeys the prefix invariant, or is kept consistent by a semijoin with its surroundings."""

    PREFIX = "prefix"
    GLOBAL = "global"


class Cost(Model):
    """What a plan uses and yields."""

    cpu: Annotated[Number, Field(examples=[0.412])]
    """CPU-seconds per second."""
    memory_bytes: Annotated[Number, Field(examples=[1.2e8])]
    """Bytes of all states and caches."""
    memory_tuples: Annotated[Number, Field(examples=[1.2e6])]
    """Tuples in all states."""
    output_rate: Annotated[Number, Field(examples=[310.0])]
    """Results per second."""


class Probe(Model):
    """One step of a pipeline: look up the partners of a partial result in one state."""

    target: Annotated[str, Field(examples=["auctions"])]
    """The input whose state is probed: a stream name or an operator id."""
    algorithm: Annotated[Algorithm, Field(examples=["hash"])]
    """Index lookup, or a scan of the whole state."""
    predicates: Annotated[list[Whole], Field(examples=[[0]])]
    """Indexes of the query's predicates that this step checks."""
    rate_in: Annotated[Number, Field(examples=[1000.0])]
    """Tuples per second that arrive at this step."""
    rate_out: Annotated[Number, Field(examples=[200.0])]
    """Tuples per second that this step produces."""
    cpu: Annotated[Number, Field(examples=[4.4e-4])]
    """CPU-seconds per second of this step: of its tuples, and what every step costs (`costs.step`)."""


class Pipeline(Model):
    """The order in which new tuples of one input visit the states of the others."""

    input: Annotated[str, Field(examples=["bids"])]
    """Whose new tuples: a stream name or an operator id."""
    probes: list[Probe]
    """The steps, in order."""


class State(Model):
    """What an operator keeps of one input."""

    input: Annotated[str, Field(examples=["auctions"])]
    """Of which input: a stream name or an operator id."""
    indexed: Annotated[Flag, Field(examples=[True])]
    """Whether a hash index is kept, because some pipeline probes this state by hash."""
    cpu: Annotated[Number, Field(examples=[8e-5])]
    """CPU-seconds per second of keeping it."""


class Operator(Model):
    """One join of the tree, with its figures."""

    id: Annotated[str, Field(examples=["join-1"])]
    """Name of the operator in this plan."""
    kind: Annotated[OperatorKind, Field(examples=["binary_join"])]
    """Two inputs, or more."""
    inputs: Annotated[list[str], Field(min_length=2, examples=[["bids", "auctions"]])]
    """What it joins: stream names or ids of operators before it."""
    streams: Annotated[list[Identifier], Field(examples=[["auctions", "bids"]])]
    """All streams below it, sorted."""
    materialized: Annotated[Flag, Field(examples=[True])]
    """Whether its output is kept as a state; false for the root."""
    rate: Annotated[Number, Field(examples=[210.0])]
    """New tuples of its output per second."""
    state_tuples: Annotated[Number, Field(examples=[12600.0])]
    """Live tuples of its output, where materialized, else 0."""
    state_bytes: Annotated[Number, Field(examples=[2.5e6])]
    """Bytes of them."""
    cpu: Annotated[Number, Field(examples=[0.11])]
    """CPU-seconds per second: its states and its probes."""
    states: list[State]
    """What it keeps of each input: nothing of a table that is asked, nor of a stream that only tables are joined with."""
    pipelines: list[Pipeline]
    """One probe order per input that is no table."""


class ProbeShape(Model):
    """One step of a pipeline without its figures. A plan's own figures are accepted and recomputed."""

    target: Annotated[str, Field(examples=["auctions"])]
    """The input whose state is probed: a stream name or an operator id."""
    algorithm: Annotated[Algorithm | None, Field(examples=["hash"])] = None
    """Ignored: the cost model chooses."""
    predicates: Annotated[list[Whole], Field(examples=[[0]])] = []
    """Ignored: follows from the query."""
    rate_in: Annotated[Number | None, Field(examples=[1000.0])] = None
    """Ignored: computed."""
    rate_out: Annotated[Number | None, Field(examples=[200.0])] = None
    """Ignored: computed."""
    cpu: Annotated[Number | None, Field(examples=[4.4e-4])] = None
    """Ignored: computed."""


class PipelineShape(Model):
    """The probe order of one input."""

    input: Annotated[str, Field(examples=["bids"])]
    """Whose new tuples: a stream name or an operator id."""
    probes: list[ProbeShape]
    """The steps, in order: every other input once."""


class OperatorShape(Model):
    """One join of the tree: order and shape only. A plan's own figures are accepted and recomputed."""

    id: Annotated[str, Field(min_length=1, max_length=64, examples=["join-1"])]
    """Name of the operator, unique, and no stream's name."""
    inputs: Annotated[list[str], Field(min_length=2, max_length=200, examples=[["bids", "auctions"]])]
    """What it joins: stream names or ids of operators before it."""
    pipelines: list[PipelineShape] = []
    """Probe orders. An input that has none gets its best order."""
    kind: Annotated[OperatorKind | None, Field(examples=["binary_join"])] = None
    """Ignored: follows from the inputs."""
    streams: Annotated[list[str], Field(examples=[["auctions", "bids"]])] = []
    """Ignored: follows from the inputs."""
    materialized: Annotated[Flag | None, Field(examples=[True])] = None
    """Ignored: follows from the tree."""
    rate: Annotated[Number | None, Field(examples=[210.0])] = None
    """Ignored: computed."""
    state_tuples: Annotated[Number | None, Field(examples=[12600.0])] = None
    """Ignored: computed."""
    state_bytes: Annotated[Number | None, Field(examples=[2.5e6])] = None
    """Ignored: computed."""
    cpu: Annotated[Number | None, Field(examples=[0.11])] = None
    """Ignored: computed."""
    states: list[State] = []
    """Ignored: computed."""


class Cache(Model):
    """A segment of a pipeline that is answered from a cache."""

    id: Annotated[str, Field(examples=["cache-1"])]
    """Name of the cache in this plan."""
    operator: Annotated[str, Field(examples=["join-2"])]
    """The operator whose pipeline it shortens."""
    input: Annotated[str, Field(examples=["T"])]
    """The input whose pipeline it shortens."""
    first: Annotated[Whole, Field(ge=0, examples=[0])]
    """Index of the first step it answers."""
    last: Annotated[Whole, Field(ge=0, examples=[1])]
    """Index of the last step it answers."""
    streams: Annotated[list[Identifier], Field(examples=[["R", "S"]])]
    """The streams whose join it holds."""
    key: Annotated[list[str], Field(examples=[["S.B"]])]
    """The attributes of these streams that it is looked up by."""
    lookup: Annotated[list[str], Field(examples=[["T.B"]])] = []
    """For each of them the attribute of a stream visited before, whose value is looked up."""
    kind: Annotated[CacheKind, Field(examples=["prefix"])]
    """How it is kept consistent."""
    semijoin: Annotated[list[Identifier], Field(examples=[[]])] = []
    """For a global cache the other streams whose matches keep its entries up to date; empty for a prefix cache."""
    group: Annotated[Whole, Field(ge=0, examples=[0])]
    """Caches of one group share their entries: same streams, same key. The first of them carries what keeping the entries costs and holds."""
    miss_probability: Annotated[Share, Field(examples=[0.2])]
    """Share of lookups that find no entry."""
    saves: Annotated[Number, Field(examples=[0.031])]
    """CPU-seconds per second that hits save, lookups and misses paid. The plan's CPU is its operators', less all `saves`, plus all `costs`."""
    costs: Annotated[Number, Field(examples=[0.004])]
    """CPU-seconds per second that keeping its entries up to date costs; 0 where it shares those of a cache before it."""
    entries: Annotated[Number, Field(ge=0, examples=[640.0])] = 0.0
    """Keys that it holds on average."""
    memory_bytes: Annotated[Number, Field(examples=[64000.0])]
    """Bytes of its entries; 0 where it shares those of a cache before it."""


class Allowance(Model):
    """How much of what arrives at one probe step may go on."""

    operator: Annotated[str, Field(examples=["join-1"])]
    """The operator of the step."""
    input: Annotated[str, Field(examples=["bids"])]
    """The input whose pipeline it is."""
    step: Annotated[Whole, Field(ge=0, examples=[0])]
    """Index of the step."""
    share: Annotated[Share, Field(examples=[0.8])]
    """Share of the arriving tuples that may probe."""
    rate: Annotated[Number, Field(examples=[800.0])]
    """Probes per second that this is."""


class StreamShare(Model):
    """What an allocation leaves one stream."""

    stream: Annotated[Identifier, Field(examples=["bids"])]
    """Whose tuples."""
    share: Annotated[Share, Field(examples=[0.8])]
    """Share of its tuples that may probe."""
    fresh: Annotated[Flag, Field(examples=[True])]
    """Whether its freshness predicate holds; true where it has none."""
    oldest_seconds: Annotated[Number | None, Field(examples=[90.0])]
    """How old its tuples get in a result: its window and the time in every kept subresult; null: without end."""


class Renewal(Model):
    """How often a kept subresult is renewed when the CPU is short."""

    operator: Annotated[str, Field(examples=["join-1"])]
    """The operator whose output is kept."""
    required: Annotated[Number, Field(examples=[40.0])]
    """New tuples per second that freshness asks for: its refresh rate; 0 where nothing does."""
    rate: Annotated[Number, Field(examples=[55.0])]
    """New tuples per second that it gets."""


class Allocation(Model):
    """Who may probe how much when the CPU is short."""

    throughput: Annotated[Number, Field(examples=[250.0])]
    """Results per second within the cap."""
    saturation_throughput: Annotated[Number, Field(examples=[310.0])]
    """Results per second if nothing were short."""
    jaqpot_throughput: Annotated[Number, Field(examples=[248.0])]
    """Results per second that JAQPOT, which covers first and greedily, would reach on the same plan."""
    cpu: Annotated[Number, Field(examples=[1.0])]
    """CPU-seconds per second that it uses."""
    admitted: Annotated[Share, Field(examples=[1.0])]
    """Share of every stream's tuples that is let in at all; below 1 where keeping the windows alone takes too much of the CPU."""
    freshness_met: Annotated[Flag, Field(examples=[True])]
    """Whether every freshness predicate holds."""
    freshness_cpu: Annotated[Number | None, Field(examples=[0.3])]
    """The least CPU with which they all hold on this plan; null where none is enough."""
    allowances: list[Allowance]
    """Probe shares per half-way join."""
    streams: list[StreamShare]
    """Per stream the share of its tuples that may probe."""
    renewals: list[Renewal]
    """Per kept subresult how often it is renewed."""


class WindowSuggestion(Model):
    """A window that would fit the memory."""

    stream: Annotated[Identifier, Field(examples=["bids"])]
    """Whose window."""
    seconds: Annotated[Number, Field(examples=[42.0])]
    """The shortened window, in seconds; 0: its tuples probe, but none is kept."""
    rows: Annotated[Number | None, Field(exclude_if=is_none, examples=[3500.0])] = None
    """The shortened window in rows, where the window is one of rows."""


class Shortfall(Model):
    """What it would take, where no plan qualifies. Null: not to be had at any price under that cap, or there is no such cap."""

    min_cpu: Annotated[Number | None, Field(examples=[1.4])]
    """The least CPU of any plan found, whatever its memory."""
    min_memory_bytes: Annotated[Number | None, Field(examples=[9.5e7])]
    """The least memory of any plan found, whatever its CPU."""
    cpu_at_memory_cap: Annotated[Number | None, Field(examples=[1.9])]
    """The least CPU of a plan within the memory cap."""
    memory_bytes_at_cpu_cap: Annotated[Number | None, Field(examples=[4.1e8])]
    """The least memory of a plan within the CPU cap."""
    rate_scale: Annotated[Number | None, Field(examples=[0.71])]
    """The factor on all rates at which a plan would qualify."""
    windows: list[WindowSuggestion] = []
    """Where memory is short: windows that fit it and lose the fewest results."""
    output_rate: Annotated[Number | None, Field(examples=[250.0])] = None
    """Results per second that these windows keep."""


class Validity(Model):
    """The interval of one statistic, all others as given, in which this plan stays within the caps."""

    statistic: Annotated[str, Field(examples=["bids.rate"])]
    """`stream.rate`, `table.rows`, `table.access[i].cpu` of the index that is asked, or `predicates[i].selectivity` by index in the query."""
    low: Annotated[Number | None, Field(examples=[0.0])]
    """Lower end; null where there is none."""
    high: Annotated[Number | None, Field(examples=[1310.0])]
    """Upper end; null where there is none."""


class Plan(Model):
    """A join plan that stands on its own: the query, the tree, its figures and what is proven of it."""

    format: Annotated[Literal["watersmeet.plan/1"], Field(examples=[PLAN_FORMAT])]
    """Version of this format."""
    fingerprint: Annotated[str, Field(examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"])]
    """SHA-256 of the plan's structure alone: same structure, same fingerprint."""
    qualified: Annotated[Flag, Field(examples=[True])]
    """Whether CPU and memory are within the caps."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """What is proven of the objective's value among all that the request allows: trees, probe orders, caches, accesses of tables."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    bound: Annotated[Number | None, Field(examples=[0.412])]
    """A proven lower bound of the objective (for max_headroom: an upper bound); null with proof none."""
    gap: Annotated[Number | None, Field(examples=[0.0])]
    """(value − bound) / value; null with proof none."""
    tree_proof: Annotated[Proof, Field(examples=["optimal"])] = Proof.NONE
    """What is proven of the best plan without caches, which is often more; the same as `proof` where caches are off or none can exist."""
    tree_bound: Annotated[Number | None, Field(examples=[0.412])] = None
    """The proven bound of the best plan without caches; null with tree_proof none."""
    query: Query
    """The join graph with every default and every estimated selectivity filled in."""
    resources: Resources
    """The caps."""
    costs: Costs
    """The cost constants."""
    objective: Annotated[Objective, Field(examples=["min_cpu"])]
    """What was made best."""
    cost: Cost
    """What the plan uses and yields."""
    headroom: Annotated[Number | None, Field(examples=[1.43])]
    """The factor all rates can grow by before the plan leaves a cap; null without caps."""
    operators: list[Operator]
    """The joins, inputs before users, the root last; empty for a single stream."""
    tables: Annotated[list[TableAccess], Field(exclude_if=is_empty)] = []
    """How the plan reaches each table of the query."""
    caches: list[Cache]
    """Segments of pipelines that are answered from a cache."""
    allocation: Allocation | None
    """Where the CPU is short: who may probe how much."""
    shortfall: Shortfall | None
    """Where nothing qualifies: what it would take."""
    validity: list[Validity]
    """Where this plan stays qualified, statistic by statistic; no entry where no value of that statistic alone would do."""
    explanation: Annotated[list[str], Field(examples=[["bids probes auctions before sellers because it leaves 200 tuples/s instead of 900."]])]
    """Short sentences a person can read."""
    warnings: Annotated[list[str], Field(examples=[["The join graph is not connected: …"]])]
    """What the caller should know."""
    made_for: Annotated[Query | None, Field(exclude_if=is_none)] = None
    """The query with the statistics that the plan was chosen for, where replans have kept it and priced it for others since."""


class FrontierPoint(Model):
    """One trade-off worth having."""

    cpu: Annotated[Number, Field(examples=[0.412])]
    """CPU-seconds per second."""
    memory_bytes: Annotated[Number, Field(examples=[1.2e8])]
    """Bytes."""
    plan: Plan
    """The plan that has these figures."""


class Frontier(Model):
    """Every trade-off between CPU and memory worth having."""

    points: list[FrontierPoint]
    """Sorted by CPU; each next point needs less memory. Only points within the caps."""
    proof: Annotated[Proof, Field(examples=["optimal"])]
    """`optimal`: no plan that the request allows beats any point in both resources, and none is missing."""
    termination: Annotated[Termination, Field(examples=["complete"])] = Termination.COMPLETE
    """Why the search ended, apart from what it proved."""
    tree_proof: Annotated[Proof, Field(examples=["optimal"])] = Proof.NONE
    """`optimal`: no plan without caches beats any point in both resources."""
    warnings: Annotated[list[str], Field(examples=[["Caches were chosen for each tree of the frontier, not together with it."]])] = []
    """What the caller should know: what was left out."""


class EstimateRequest(PlanRequest):
    """A request and the shape of a plan: what would this cost?"""

    operators: Annotated[list[OperatorShape], Field(max_length=200)]
    """The joins, inputs before users, the root last. Shape and order count; figures are recomputed."""
    tables: Annotated[list[TableShape], Field(max_length=200, exclude_if=is_empty)] = []
    """How tables are reached. One that is not named is reached in the way that takes the least CPU."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_operators)


class DiffRequest(Model):
    """Two plans to compare."""

    before: Plan
    """The plan to compare with."""
    after: Plan
    """The plan that is compared."""

    @model_validator(mode="wrap")
    @classmethod
    def _report_all_faults(cls, data: Any, handler: Callable[[Any], Self]) -> Self:
        return with_faults(cls.__name__, data, handler, check_plans("before", "after"))


class Change(Model):
    """One figure of two plans."""

    figure: Annotated[str, Field(examples=["cost.cpu"])]
    """Which figure."""
    before: Annotated[Number | None, Field(examples=[0.412])]
    """Its value in the first plan; null where it has none."""
    after: Annotated[Number | None, Field(examples=[0.5])]
    """Its value in the second plan; null where it has none."""
    ratio: Annotated[Number | None, Field(examples=[1.21])]
    """after / before; null where that is not a number."""


class Diff(Model):
    """What changed between two plans, in structure and in cost."""

    same_structure: Annotated[Flag, Field(examples=[False])]
    """Whether the fingerprints agree."""
    same_request: Annotated[Flag, Field(examples=[True])]
    """Whether query, caps, cost constants and objective agree."""
    structure: Annotated[list[str], Field(examples=[["auctions⋈bids is no longer kept"]])]
    """What moved, in sentences: kept subresults, kinds, probe orders, algorithms, caches."""
    cost: list[Change]
    """Figures that differ: totals first, then per subresult, worst ratio first."""
    request: Annotated[list[str], Field(examples=[["bids.rate: 1000.0 → 1500.0"]])]
    """What differs in the requests."""

"""Tables: what a request says of one, and how a plan reaches it (contract §2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from models.base import Identifier, Model, NonNegative, Number, Positive, Whole, is_empty, is_none

__all__ = ["SCAN", "Access", "AccessKind", "Table", "TableAccess", "TableShape"]


class AccessKind(StrEnum):
    """How a table is read: once as a whole, and kept; or asked by key, whenever rows are wanted."""

    SCAN = "scan"
    INDEX = "index"


class Access(Model):
    """One way to the rows of a table. A scan has no other fields; an index needs `bound` and `cpu`."""

    kind: Annotated[AccessKind, Field(examples=["index"])]
    """Read once and kept, or asked by key."""
    bound: Annotated[list[Identifier], Field(max_length=16, exclude_if=is_empty, examples=[["id"]])] = []
    """Of an index: the attributes that all must have a value before it can be asked."""
    cpu: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[2e-5])] = None
    """Of an index: CPU-seconds of asking for one key."""
    seconds: Annotated[NonNegative | None, Field(exclude_if=is_none, examples=[0.002])] = None
    """Of an index: seconds from a call to its answer, in which no CPU is used; 0 where it is left out."""
    keys: Annotated[Whole | None, Field(gt=0, le=10**6, exclude_if=is_none, examples=[500])] = None
    """Of an index: keys that one call asks for; 1 where it is left out."""


SCAN = Access(kind=AccessKind.SCAN)


class Table(Model):
    """A relation that does not flow: it is probed, and never completes a result."""

    name: Annotated[Identifier, Field(examples=["products"])]
    """Name of the table, unique among streams and tables."""
    rows: Annotated[Positive, Field(examples=[200000.0])]
    """How many rows it has."""
    tuple_bytes: Annotated[Positive, Field(examples=[400.0])] = 100.0
    """Memory one row takes where the table is kept, in bytes."""
    distinct: Annotated[dict[Identifier, Positive], Field(examples=[{"id": 200000.0}])] = {}
    """Distinct values, by attribute."""
    access: Annotated[list[Access], Field(min_length=1, max_length=8, examples=[[{"kind": "scan"}]])] = [SCAN]
    """What it offers; the plan picks one."""


class TableAccess(Model):
    """How the plan reaches one table, and what asking it comes to."""

    name: Annotated[Identifier, Field(examples=["products"])]
    """The table."""
    access: Annotated[AccessKind, Field(examples=["index"])]
    """Kept (`scan`), or asked (`index`)."""
    bound: Annotated[list[Identifier], Field(examples=[["id"]])] = []
    """The attributes that it is asked by; empty where it is kept."""
    state_bytes: Annotated[Number, Field(examples=[8e7])] = 0.0
    """Bytes that keeping it takes; 0 where it is asked."""
    probes_per_second: Annotated[Number, Field(examples=[1000.0])] = 0.0
    """Tuples per second that look for partners in it; where it is asked and answers are kept, those that no kept answer serves."""
    calls_per_second: Annotated[Number, Field(examples=[2.0])] = 0.0
    """Calls per second, each for as many keys as the index takes; 0 where it is kept."""
    waiting: Annotated[Number, Field(examples=[0.004])] = 0.0
    """Share of the time spent waiting for answers at one call at a time; above 1, calls have to run side by side."""
    side_by_side: Annotated[Whole, Field(examples=[1])] = 1
    """Calls that have to run side by side, so that waiting does not hold the plan back."""


class TableShape(Model):
    """How a table is to be reached. A plan's own figures are accepted and recomputed."""

    name: Annotated[Identifier, Field(examples=["products"])]
    """The table."""
    access: Annotated[AccessKind, Field(examples=["index"])]
    """Kept (`scan`), or asked (`index`)."""
    bound: Annotated[list[Identifier], Field(examples=[["id"]])] = []
    """Which of its indexes is asked: the attributes that it binds."""
    state_bytes: Annotated[Number | None, Field(examples=[8e7])] = None
    """Ignored: computed."""
    probes_per_second: Annotated[Number | None, Field(examples=[1000.0])] = None
    """Ignored: computed."""
    calls_per_second: Annotated[Number | None, Field(examples=[2.0])] = None
    """Ignored: computed."""
    waiting: Annotated[Number | None, Field(examples=[0.004])] = None
    """Ignored: computed."""
    side_by_side: Annotated[Whole | None, Field(examples=[1])] = None
    """Ignored: computed."""

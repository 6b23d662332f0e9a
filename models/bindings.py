"""Bindings: what joins a plan to Spark (contract §7)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, model_validator

from models.base import Identifier, Model

__all__ = ["Bindings", "BindingsDraft", "Expression", "Routing", "Sink", "Source", "StreamBinding", "StreamDraft", "Trigger"]

Expression = Annotated[str, Field(min_length=1, max_length=4096)]
MAX_WHERE = 65_536  # a list of a few thousand values is a condition like any other


class Source(Model):
    """Where a stream's rows come from: any Spark streaming source."""

    format: Annotated[str, Field(min_length=1, examples=["json"])]
    """Name of the Spark source: json, parquet, kafka, rate, …"""
    options: Annotated[dict[str, str], Field(examples=[{"path": "data/bids"}])] = {}
    """Options of the source, passed on untouched."""
    schema_: Annotated[str, Field(alias="schema", examples=["auction BIGINT, price DOUBLE, ts TIMESTAMP"])] = ""
    """Columns of the source as Spark DDL; empty where the source knows its own."""


class StreamDraft(Model):
    """What a query says of a stream: its columns, not where they are read from."""

    table: Annotated[str, Field(max_length=4096, examples=["bids"])] = ""
    """The table that SQL reads the stream from; by default one named like the stream. Spark's sources do not need it."""
    event_time: Annotated[Expression, Field(examples=["ts"])]
    """The column, or SQL expression, of a row's time."""
    columns: Annotated[dict[Identifier, Expression], Field(examples=[{"auction": "auction"}])] = {}
    """Plan attribute → column or SQL expression; by default the column of the same name."""
    where: Annotated[str, Field(max_length=MAX_WHERE, examples=["price > 0"])] = ""
    """Which rows take part, as a SQL condition over the stream's columns; by default all."""


class StreamBinding(StreamDraft):
    """One stream of the plan, as Spark sees it."""

    source: Source
    """Where its rows come from."""
    watermark: Annotated[str, Field(examples=["10 seconds"])] = "0 seconds"
    """How late a row may come, as a Spark interval."""
    idle_after: Annotated[str | None, Field(examples=["60 seconds"])] = None
    """A stream without a row for so long, as a Spark interval, holds no watermark back; its rows that are late because of that are dropped."""


class Sink(Model):
    """Where results go: any Spark streaming sink."""

    format: Annotated[str, Field(min_length=1, examples=["parquet"])] = "console"
    """Name of the Spark sink."""
    options: Annotated[dict[str, str], Field(examples=[{"path": "out"}])] = {}
    """Options of the sink, passed on untouched."""


class Trigger(Model):
    """When micro-batches run. Exactly one of the two, or neither for as fast as possible."""

    processing_time: Annotated[str | None, Field(examples=["1 second"])] = None
    """Start a batch this often."""
    available_now: Annotated[bool, Field(examples=[False])] = False
    """Work through what the sources hold, in micro-batches, and end."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Trigger:
        if self.available_now and self.processing_time is not None:
            raise ValueError("trigger takes processing_time or available_now, not both")
        return self


class Routing(StrEnum):
    """Who orders probes: the plan, for all cells; or each cell of engine stem for itself, by what it measures."""

    FIXED = "fixed"
    ADAPTIVE = "adaptive"


class BindingsDraft(Model):
    """What a query says of bindings. To run it they still need a source for each stream, a sink and a checkpoint."""

    streams: Annotated[dict[Identifier, StreamDraft], Field(min_length=1)]
    """One per stream of the query."""
    select: Annotated[list[Expression], Field(examples=[["bids.price AS price"]])] = []
    """Result columns as SQL expressions over the streams; by default one struct column per stream."""


class Bindings(Model):
    """Sources, columns, sink and settings of one pipeline."""

    streams: Annotated[dict[Identifier, StreamBinding], Field(min_length=1)]
    """One binding per stream of the plan."""
    select: Annotated[list[Expression], Field(examples=[["bids.price AS price"]])] = []
    """Result columns as SQL expressions over the streams; by default one struct column per stream."""
    sink: Sink = Sink()
    """Where results go; the console by default."""
    checkpoint: Annotated[str, Field(min_length=1, examples=["checkpoints/bids"])]
    """Folder of the pipeline's checkpoint."""
    trigger: Trigger = Trigger()
    """When micro-batches run."""
    routing: Annotated[Routing, Field(examples=["adaptive"])] = Routing.FIXED
    """Whether each cell orders its probes itself; worth it where cells see different data."""
    spark: Annotated[dict[str, str], Field(examples=[{"spark.sql.shuffle.partitions": "2"}])] = {}
    """Spark settings."""

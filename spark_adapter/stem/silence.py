"""Streams that have fallen silent: the watermark goes on without them.

The problem: Spark's watermark is the earliest over all streams, so one that has no rows holds it, and with it all state, for as long as it is
silent. The method: a stream whose binding says `idle_after` is idle once batches have found no row of it for so long, and while any stream is
idle the cells go on by a watermark of their own, the earliest over those that are not. It never goes back, and counts where it is above
Spark's. Rows below it are late because of the silence, and counted apart from those that Spark's watermark makes late.

The guarantee: all cells go by the same watermark in every batch, and a batch that is run again goes by the same as before. Every batch tells
every cell, with or without rows for it, the latest event time of each stream that has rows, and its own time, which Spark writes down before
the batch starts. What a cell has heard is in its notes. As with Spark, what a batch brings counts from the next one on. Silence is counted from
the time of the last batch with rows of a stream to that of a later one without: a long batch is no silence, nor is the time between two runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_adapter.stem.program import Program
from spark_adapter.stem.state import Notes

__all__ = ["Heard", "idle", "listen", "wake"]


@dataclass(frozen=True, slots=True)
class Heard:
    """What a batch tells every cell."""

    now: int
    """The time of the batch in milliseconds."""
    latest: Mapping[str, int]
    """Per stream that has rows the latest event time in microseconds."""


def wake(program: Program, notes: Notes, now: int) -> None:
    """A run begins: nobody has been silent yet."""
    for stream in program.streams:
        latest = notes.heard.get(stream.name, [None, None])[0]
        notes.heard[stream.name] = [latest, now]


def listen(program: Program, notes: Notes, heard: Heard) -> None:
    """Take in what a batch tells, and move the watermark on where streams are idle: it holds from the next batch on."""
    for name, latest in heard.latest.items():
        before = notes.heard[name][0]
        notes.heard[name] = [latest if before is None else max(before, latest), heard.now]
    silent = idle(program, notes, heard.now)
    if not silent:
        return
    reached = [_reached(notes.heard[stream.name][0], stream.delay or 0) for stream in program.streams if stream.name not in silent]
    known = [time for time in reached if time is not None]
    if known and len(known) == len(reached):
        notes.passed = min(known) if notes.passed is None else max(notes.passed, min(known))


def _reached(latest: int | None, delay: int) -> int | None:
    """The watermark of one stream, in whole milliseconds as Spark has it."""
    return None if latest is None else (latest // 1000 - delay) * 1000


def idle(program: Program, notes: Notes, now: int) -> list[str]:
    """The streams that have been silent for so long that nobody waits for them."""
    found = []
    for stream in program.streams:
        seen = notes.heard.get(stream.name, [None, None])[1]
        if stream.idle_after is not None and seen is not None and now - seen >= stream.idle_after:
            found.append(stream.name)
    return found

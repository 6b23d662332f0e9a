"""Which plan is in force since when, and why: a line per decision in `decisions.jsonl` beside the checkpoint (contract §7).

Three kinds of lines: `start`, where a run begins with a plan that the checkpoint has not run last; `change`, from the batch on that
switched the cells to another plan; `keep`, where someone looked and let the plan be. `fingerprint` is always the plan in force from there
on, so the last line says which it is.

How the lines stay in step with the switching: a change is a file that Spark reads as a source, and Spark's own logs say which batch read
it. The line is written from these logs once that batch is committed, or, where a crash came in between, when the pipeline is started the
next time, before its first batch. It is never written from what somebody meant to do. `number` tells one change from the next, so no line
is written twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from spark_adapter.checkpoint import Folder, Log

__all__ = ["DECISIONS", "Decision", "Decisions", "now", "read_decisions"]

DECISIONS = "decisions.jsonl"
LAST_DECISIONS = 1000  # lines, where a file cannot be added to


@dataclass(frozen=True, slots=True)
class Decision:
    """One line."""

    batch: int
    """The first batch that the plan is in force for."""
    timestamp: str
    """When it was decided, in ISO 8601."""
    decision: str
    """`start`, `keep` or `change`."""
    kind: str
    """`none`, `orders`, `caches`, `allocation` or `tree`: the largest thing that changed."""
    gain: float | None
    """What the change is to bring, as a share of the objective; None where nobody said."""
    fingerprint: str
    """Of the plan in force from this batch on."""
    reasons: Sequence[str] = ()
    number: int = 0
    """Of the plan in force: counts up with every plan that this checkpoint was given."""
    plan: Mapping[str, Any] | None = None
    """The plan in force, where it is another than before."""

    def line(self) -> str:
        found = asdict(self) | {"reasons": list(self.reasons)}
        return json.dumps(found if self.plan is not None else {key: value for key, value in found.items() if key != "plan"})


def now() -> str:
    """The time, as a decision states it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def read_decisions(text: str) -> list[Decision]:
    """The lines of a file. Half a line, which a run that was killed may leave, is passed over."""
    found = []
    for line in text.splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found.append(Decision(**entry | {"reasons": tuple(entry["reasons"])}))
    return found


class Decisions:
    """The file of one checkpoint."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._log = Log(folder, DECISIONS, LAST_DECISIONS)

    def add(self, decision: Decision) -> None:
        self._log.add(decision.line())

    def read(self) -> list[Decision]:
        return read_decisions(self._folder.read(DECISIONS)) if self._folder.has(DECISIONS) else []

    @property
    def last(self) -> Decision | None:
        """What is in force by the last line; None before the first."""
        found = self.read()
        return found[-1] if found else None

"""Everything the Spark side may raise on purpose; anything else is a fault of ours or Spark's.

AdapterError
├── JavaError         no Java that Spark can use
├── ConnectorError    no connector for Kafka, and none that could be fetched
├── PlanError         a plan of an unknown format or version, or whose operators form no join tree
├── BindingError      sources, columns, types, event times or settings that do not fit the plan: all faults at once
├── SheddingError     a plan that sheds load or does not fit its caps, and nobody said that it may
├── EngineError       a plan that this engine does not run; says which operator, and which engine would
├── CheckpointError   a checkpoint of another plan
├── ChangeError       a plan that a running pipeline cannot change to
└── StatisticsError   statistics of a run that cannot be read, or that say too little
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "MARK",
    "AdapterError",
    "BindingError",
    "ChangeError",
    "CheckpointError",
    "ConnectorError",
    "EngineError",
    "Fault",
    "JavaError",
    "PlanError",
    "SheddingError",
    "StatisticsError",
]

MARK = "watersmeet: "  # before a sentence of ours in an error that comes out of Spark

Fault = tuple[str, str]
"""(JSON pointer into the plan or the bindings, one sentence)."""


class AdapterError(Exception):
    """Bad input, in sentences a person can act on."""

    def __init__(self, faults: str | Sequence[Fault]) -> None:
        self.faults: tuple[Fault, ...] = (("", faults),) if isinstance(faults, str) else tuple(faults)
        super().__init__("\n".join(f"{pointer}: {detail}" if pointer else detail for pointer, detail in self.faults))


class JavaError(AdapterError):
    """No Java that Spark can use."""


class ConnectorError(AdapterError):
    """Jars of Kafka's or of its connector that are missing."""


class PlanError(AdapterError):
    """A plan that cannot be read or is no join tree."""


class BindingError(AdapterError):
    """Bindings that do not fit the plan or that Spark cannot follow."""


class SheddingError(AdapterError):
    """A plan that sheds load or does not fit its caps, without the user's word that it may."""


class EngineError(AdapterError):
    """A plan that the chosen engine does not run."""


class CheckpointError(AdapterError):
    """A checkpoint that belongs to another plan."""


class ChangeError(AdapterError):
    """A plan that a running pipeline cannot change to, or a pipeline that cannot change its plan."""


class StatisticsError(AdapterError):
    """Statistics of a run from which no request can be made."""

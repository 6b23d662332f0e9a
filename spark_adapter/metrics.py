"""A run's figures in the text form that Prometheus reads: a file that the textfile collector of its node_exporter takes as it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from models.plan import Cost

__all__ = ["METRICS", "metrics_text"]

METRICS = "metrics.prom"  # beside the checkpoint's statistics

ARRIVED = {
    "rows": "Rows that came in time.",
    "late": "Rows that came too late.",
    "idle_late": "Rows that came after the watermark had gone on without their stream, which was silent.",
}

Family = CounterMetricFamily | GaugeMetricFamily


class _Figures(Collector):
    def __init__(self, summary: Mapping[str, Any], batch_seconds: float, planned: Cost, bad: Mapping[str, int]) -> None:
        self._summary, self._batch_seconds, self._planned, self._bad = summary, batch_seconds, planned, bad

    def collect(self) -> Iterator[Family]:
        said = self._summary
        yield from _by_name(CounterMetricFamily, "stream", said["streams"], ARRIVED)
        if self._bad:
            bad = CounterMetricFamily("watersmeet_stream_bad", "Records of a topic whose value did not decode.", labels=["stream"])
            for name, count in self._bad.items():
                bad.add_metric([name], count)
            yield bad
        yield from _by_name(GaugeMetricFamily, "state", said["states"], {"rows": "Rows held.", "bytes": "Bytes on workers' disks."})
        yield CounterMetricFamily("watersmeet_results", "Rows made.", said["results"])
        for name, what in {
            "written_bytes": "Bytes given to the state store.",
            "read_bytes": "Bytes fetched from the state store.",
            "merges": "Merges of pieces of state.",
        }.items():
            yield CounterMetricFamily(f"watersmeet_store_{name}", what, said["store"][name])
        yield GaugeMetricFamily("watersmeet_workers_memory_bytes", "Private memory of the workers.", said["workers"]["memory_bytes"])
        yield GaugeMetricFamily("watersmeet_workers_disk_bytes", "Copies of states on workers' disks.", said["workers"]["disk_bytes"])
        yield GaugeMetricFamily("watersmeet_planned_bytes", "Bytes that the plan foresaw for all states.", self._planned.memory_bytes)
        yield GaugeMetricFamily("watersmeet_planned_rows", "Rows that the plan foresaw for all states.", self._planned.memory_tuples)
        held = GaugeMetricFamily("watersmeet_watermark_held_seconds", "How far other streams are ahead of the one waited for.", labels=["stream"])
        holder = said["watermark_held_by"]
        if holder is not None and holder["seconds"] is not None:
            held.add_metric([holder["stream"]], holder["seconds"])
        yield held
        yield GaugeMetricFamily("watersmeet_batch_seconds", "How long the last batch took.", self._batch_seconds)


def _by_name(kind: type[Family], label: str, entries: list[Mapping[str, Any]], wanted: Mapping[str, str]) -> Iterator[Family]:
    """A family per figure, labelled by what it is a figure of."""
    for name, what in wanted.items():
        family = kind(f"watersmeet_{label}_{name}", what, labels=[label])
        for entry in entries:
            family.add_metric([entry[label]], entry[name])
        yield family


def metrics_text(summary: Mapping[str, Any], batch_seconds: float, planned: Cost, bad: Mapping[str, int] | None = None) -> str:
    """`summary` is that of the run so far, `batch_seconds` what the last batch took, `planned` what the plan foresaw, `bad` the records of each
    topic that did not decode."""
    registry = CollectorRegistry()
    registry.register(_Figures(summary, batch_seconds, planned, bad or {}))
    return generate_latest(registry).decode()

"""What a run measured, in the plan's terms: ready to be put into a new request.

Every cell notes, batch by batch, what happened at each probe step, state and cache. Rows that are copied to several
cells are counted in one. Rates are rows per second of event time. The selectivity of a step is its rows out over the pairs
that were within their windows, which does not depend on rates, on how full the windows were, or on the length of batches;
along a route the steps multiply to σ of all streams visited, and that is what `observed` takes. Where several routes
visit the same streams, each counts by the pairs it saw. A batch that is run again after a failure is logged again under its number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from spark_adapter.stem.program import Program
from spark_adapter.stem.skew import Frequent

__all__ = ["Measured", "StepCounts"]


@dataclass(slots=True)
class _Stream:
    rows: int = 0
    late: int = 0
    idle_late: int = 0
    shed: int = 0
    first: int | None = None
    last: int | None = None

    @property
    def rate(self) -> float | None:
        """Rows per second of event time; the first row starts the clock and is not counted."""
        if self.first is None or self.last is None or self.last <= self.first or self.rows < 2:
            return None
        return (self.rows - 1) * 1e6 / (self.last - self.first)

    def add(self, note: Mapping[str, Any]) -> None:
        self.rows += note["rows"]
        self.late += note["late"]
        self.idle_late += note["idle_late"]
        self.shed += note["shed"]
        if "first" in note:
            self.first = note["first"] if self.first is None else min(self.first, note["first"])
            self.last = note["last"] if self.last is None else max(self.last, note["last"])


@dataclass(slots=True)
class StepCounts:
    """What happened at one probe step: of a batch in its cell, of the whole run here."""

    rows_in: int = 0
    rows_out: int = 0
    pairs: float = 0.0
    """Pairs of an arriving row and a row of the state that were within their windows."""
    measured: int = 0
    """Those of the rows out whose pairs were counted; a cache answers without looking at pairs."""
    cpu: float = 0.0
    shed: int = 0

    def noted(self) -> tuple[float, ...]:
        """In the form of a cell's note; `add` takes it."""
        return astuple(self)

    def add(self, rows_in: int, rows_out: int, pairs: float, measured: int, cpu: float, shed: int) -> None:
        self.rows_in += rows_in
        self.rows_out += rows_out
        self.pairs += pairs
        self.measured += measured
        self.cpu += cpu
        self.shed += shed


@dataclass(slots=True)
class _Figures:
    streams: dict[str, _Stream] = field(default_factory=dict)
    steps: dict[tuple[str, str, int], StepCounts] = field(default_factory=dict)
    caches: dict[str, list[int]] = field(default_factory=dict)
    """Key → hits, misses."""
    cpu: dict[str, float] = field(default_factory=dict)
    frequent: Frequent = field(default_factory=Frequent)
    results: int = 0
    restored: int = 0
    traffic: dict[str, int] = field(default_factory=dict)

    def add(self, note: Mapping[str, Any]) -> None:
        for what, number in note["traffic"].items():
            self.traffic[what] = self.traffic.get(what, 0) + number
        for name, seen in note.get("streams", {}).items():
            self.streams.setdefault(name, _Stream()).add(seen)
            self.frequent.add(seen.get("most", {}))
        for operator, name, i, *counts in note.get("steps", ()):
            self.steps.setdefault((operator, name, i), StepCounts()).add(*counts)
        for key, seen in note.get("caches", {}).items():
            asked = self.caches.setdefault(key, [0, 0])
            asked[0] += seen["hits"]
            asked[1] += seen["misses"]
        for part, seconds in note.get("cpu", {}).items():
            self.cpu[part] = self.cpu.get(part, 0.0) + seconds
        self.results += note.get("results", 0)
        self.restored += note.get("worker", {}).get("restored", 0)


@dataclass(slots=True)
class _Workers:
    """What the processes that work off cells hold, by what each cell last said."""

    cells: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    def said(self, restored: int) -> dict[str, int]:
        private = {cell["name"]: cell["private"] for cell in self.cells.values()}
        return {
            "disk_bytes": sum(cell["disk"] for cell in self.cells.values()),
            "memory_bytes": sum(private.values()),
            "processes": len(private),
            "restored": restored,
        }


def _store(traffic: Mapping[str, int]) -> dict[str, int]:
    """What went into the state store and came out of it."""
    moved = {what: traffic.get(what, 0) for what in ("added", "merged", "notes", "fetched", "merges")}
    return {
        "written_bytes": moved["added"] + moved["merged"] + moved["notes"],
        "added_bytes": moved["added"],
        "merged_bytes": moved["merged"],
        "read_bytes": moved["fetched"],
        "merges": moved["merges"],
    }


class Measured:
    """The figures of one run, so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.total = _Figures()
        self._states: dict[tuple[int, str], Sequence[int]] = {}
        """(cell, state) → rows and bytes when last heard of: a cell that is idle still holds them."""
        self._caches: dict[tuple[int, str], tuple[int, float]] = {}
        self._workers = _Workers()
        self._pieces: dict[int, int] = {}
        self._idle: list[str] = []
        self._watermark: int | None = None

    def add(self, notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Take in the notes of one batch; returns that batch's figures."""
        batch = _Figures()
        for note in notes:
            batch.add(note)
            self.total.add(note)
            for name, size in note["states"].items():
                self._states[note["cell"], name] = size
            for key, seen in note.get("caches", {}).items():
                self._caches[note["cell"], key] = (seen["rows"], seen["bytes"])
            self._pieces[note["cell"]] = note["pieces"]
            self._idle = note.get("idle", self._idle)
            if "watermark" in note:
                self._watermark = max(note["watermark"], note["watermark"] if self._watermark is None else self._watermark)
            if "worker" in note:
                self._workers.cells[note["cell"]] = note["worker"]
        return self._said(batch)

    def summary(self) -> dict[str, Any]:
        """The figures of the whole run, and what they say of the query."""
        return self._said(self.total) | {"measured": self.measured()}

    def measured(self) -> dict[str, Any]:
        """Rates, selectivities of single predicates and of sub-joins: the names and places of a request."""
        selectivity: dict[tuple[str, ...], list[float]] = {}
        predicates: dict[int, list[float]] = {}
        inside = {stream.name: 1.0 for stream in self.program.streams}
        for join in self.program.joins:
            for route in join.routes:
                sigma = inside.get(route.input)
                for i, step in enumerate(route.steps):
                    seen = self.total.steps.get((join.name, route.name, i))
                    if seen is None or seen.pairs <= 0 or sigma is None or step.target not in inside:
                        break
                    comparisons = (*step.equal, *step.other)
                    if len(comparisons) == 1:
                        found = predicates.setdefault(comparisons[0].predicate, [0.0, 0.0])
                        found[0] += seen.measured
                        found[1] += seen.pairs
                    sigma *= inside[step.target] * seen.measured / seen.pairs
                    weighed = selectivity.setdefault(tuple(sorted((*step.arriving, *step.target.split("+")))), [0.0, 0.0])
                    weighed[0] += sigma * seen.pairs
                    weighed[1] += seen.pairs
            whole = selectivity.get(tuple(join.output.split("+")))
            if whole is not None:
                inside[join.output] = whole[0] / whole[1]
        return {
            "rates": {f"{name}.rate": seen.rate for name, seen in sorted(self.total.streams.items()) if seen.rate is not None},
            "selectivities": {f"predicates[{p}].selectivity": min(1.0, made / pairs) for p, (made, pairs) in sorted(predicates.items()) if pairs > 0},
            "observed": [
                {"streams": list(streams), "selectivity": min(1.0, made / pairs)}
                for streams, (made, pairs) in sorted(selectivity.items())
                if pairs > 0
            ],
            "skew": self.total.frequent.shares({name: seen.rows for name, seen in self.total.streams.items()}),
        }

    def _said(self, figures: _Figures) -> dict[str, Any]:
        steps = []
        for join in self.program.joins:
            for route in join.routes:
                for i, step in enumerate(route.steps):
                    seen = figures.steps.get((join.name, route.name, i))
                    if seen is not None:
                        steps.append(
                            {"operator": join.name, "input": route.name, "step": i, "target": self._name(step.target)}
                            | {"rows_in": seen.rows_in, "shed": seen.shed, "rows_out": seen.rows_out}
                            | {"selectivity": seen.measured / seen.pairs if seen.pairs > 0 else None, "cpu_seconds": seen.cpu}
                        )
        return {
            "streams": [
                {"stream": stream.name, "rows": arrived.rows, "late": arrived.late, "idle_late": arrived.idle_late}
                | {"shed": arrived.shed, "rate": arrived.rate}
                for stream in self.program.streams
                if (arrived := figures.streams.get(stream.name)) is not None
            ],
            "steps": steps,
            "states": [
                {"state": module.name, "streams": list(module.streams)} | dict(zip(("rows", "bytes"), self._held(module.name), strict=True))
                for module in self.program.modules
            ],
            "caches": [
                {"cache": segment.name, "hits": figures.caches.get(segment.cache, [0, 0])[0], "misses": figures.caches.get(segment.cache, [0, 0])[1]}
                | dict(zip(("rows", "bytes"), self._cached(segment.cache), strict=True))
                for join in self.program.joins
                for route in join.routes
                for segment in route.segments
            ],
            "results": figures.results,
            "shed": {"rows": sum(seen.shed for seen in figures.streams.values()), "probes": sum(seen.shed for seen in figures.steps.values())},
            "workers": self._workers.said(figures.restored),
            "pieces": sum(self._pieces.values()),
            "watermark": self._watermark,
            "watermark_held_by": self._holder(),
            "idle": list(self._idle),
            "store": _store(figures.traffic),
            "cpu_seconds": dict(sorted(figures.cpu.items())),
        }

    def _holder(self) -> dict[str, Any] | None:
        """The stream that the watermark waits for, and by how many seconds of event time the furthest stream is ahead of it; none that is idle.

        Without seconds where it has had no row in this run: then there is no watermark but that of the run before.
        """
        reached: dict[str, int] = {}
        for stream in self.program.streams:
            if stream.name in self._idle:
                continue
            seen = self.total.streams.get(stream.name)
            if seen is None or seen.last is None:
                return {"stream": stream.name, "seconds": None} if any(other.rows for other in self.total.streams.values()) else None
            reached[stream.name] = seen.last - 1000 * (stream.delay or 0)
        last = min(reached, key=lambda name: (reached[name], name))
        return {"stream": last, "seconds": (max(reached.values()) - reached[last]) / 1e6}

    def _name(self, key: str) -> str:
        return next(module.name for module in self.program.modules if module.key == key)

    def _held(self, name: str) -> tuple[int, int]:
        sizes = [size for (_, state), size in self._states.items() if state == name]
        return sum(size[0] for size in sizes), sum(size[1] for size in sizes)

    def _cached(self, key: str) -> tuple[int, float]:
        sizes = [size for (_, cache), size in self._caches.items() if cache == key]
        return sum(size[0] for size in sizes), sum(size[1] for size in sizes)

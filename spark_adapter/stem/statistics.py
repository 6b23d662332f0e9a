"""What a run measured, batch by batch and of late: the figures that are logged, and that a new request is made of.

Every cell notes what happened at each probe step, state and cache. Rows that are copied to several cells are counted in one. A batch's
notes become one line of figures, which stands on its own (see `counting`); lines of the last windows, whatever plans they ran under, are
what `estimates` looks at. Older ones are forgotten: what is measured is what the data is like now. A batch that is run again after a
failure is logged again under its number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.request import Query
from spark_adapter.stem.counting import Counts
from spark_adapter.stem.estimates import Period, estimates, longest_window, recent
from spark_adapter.stem.sketch import distinct, merged
from spark_adapter.stem.skew import Frequent

__all__ = ["Measured"]


@dataclass(slots=True)
class _Stream:
    rows: int = 0
    late: int = 0
    idle_late: int = 0
    shed: int = 0
    bytes: int = 0
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
        self.bytes += note.get("bytes", 0)
        if "first" in note:
            self.first = note["first"] if self.first is None else min(self.first, note["first"])
            self.last = note["last"] if self.last is None else max(self.last, note["last"])

    def said(self, name: str) -> dict[str, Any]:
        said = {"stream": name, "rows": self.rows, "late": self.late, "idle_late": self.idle_late, "shed": self.shed, "rate": self.rate}
        return said | {"bytes": self.bytes, "first": self.first, "last": self.last}


ASKED = ("table", "keys", "calls", "rows", "seconds")

Place = tuple[str, str, int, str, tuple[str, ...], tuple[str, ...]]
"""Of a step: operator, input, number, target, and the streams that arrive at it and that it joins."""


def _said_of(place: Place, counts: Counts) -> dict[str, Any]:
    """What was counted at one step, with what it means."""
    operator, name, number, target, arriving, joined = place
    return (
        {"operator": operator, "input": name, "step": number, "target": target, "arriving": list(arriving), "joined": list(joined)}
        | {"rows_in": counts.rows_in, "shed": counts.shed, "rows_out": counts.rows_out, "indexed": counts.indexed}
        | {"pairs": counts.pairs, "matched": counts.matched, "looked": counts.looked, "variance": counts.variance, "sampled": counts.sampled}
        | {"selectivity": counts.matched / counts.pairs if counts.pairs > 0 else None, "cpu_seconds": counts.cpu}
    )


@dataclass(slots=True)
class _Figures:
    streams: dict[str, _Stream] = field(default_factory=dict)
    steps: dict[Place, Counts] = field(default_factory=dict)
    caches: dict[str, list[int]] = field(default_factory=dict)
    """Key → hits, misses."""
    keeping: dict[str, float] = field(default_factory=dict)
    """Key of a module → CPU seconds that keeping its rows took."""
    cpu: dict[str, float] = field(default_factory=dict)
    frequent: Frequent = field(default_factory=Frequent)
    results: int = 0
    work: float = 0.0
    """Rows that came or probed and candidates they looked at, and what was built for another plan: the same in every run, which CPU is not."""
    restored: int = 0
    traffic: dict[str, int] = field(default_factory=dict)
    asked: dict[str, list[float]] = field(default_factory=dict)
    """Table → keys that were asked for, calls, rows that came back, and seconds, of all cells."""

    def add(self, note: Mapping[str, Any]) -> None:
        for what, number in note["traffic"].items():
            self.traffic[what] = self.traffic.get(what, 0) + number
        for name, seen in note.get("streams", {}).items():
            self.streams.setdefault(name, _Stream()).add(seen)
            self.frequent.add(seen.get("most", {}))
        for operator, name, streams, steps in note.get("routes", ()):
            arriving = tuple(streams.split("+"))
            for i, (target, key, *counts) in enumerate(steps):
                joined = tuple(key.split("+"))
                self.steps.setdefault((operator, name, i, target, arriving, joined), Counts()).add(counts)
                arriving += joined
        for key, seen in note.get("caches", {}).items():
            asked = self.caches.setdefault(key, [0, 0])
            asked[0] += seen["hits"]
            asked[1] += seen["misses"]
        for table, figures in note.get("asked", {}).items():
            self.asked[table] = [before + now for before, now in zip(self.asked.get(table, (0, 0, 0, 0.0)), figures, strict=True)]
        for spent, noted in ((self.cpu, "cpu"), (self.keeping, "keeping")):
            for part, seconds in note.get(noted, {}).items():
                spent[part] = spent.get(part, 0.0) + seconds
        self.results += note.get("results", 0)
        self.work += sum(note.get("work", {}).values())
        self.restored += note.get("worker", {}).get("restored", 0)


@dataclass(slots=True)
class _Held:
    """What cells hold, by what each last said: a cell that is idle still holds it. Which states and caches there are is what the latest note says."""

    states: dict[int, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    caches: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    workers: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    pieces: dict[int, int] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    plans: tuple[int, int] = (0, 0)
    """The numbers of the plan whose way is taken and of the one in force, which may still have to build what it keeps."""
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The plan's names of each cache: caches of a group are one."""
    idle: Sequence[str] = ()
    """Streams that nobody waits for."""
    watermark: int | None = None
    """The one that holds, in microseconds."""

    def add(self, note: Mapping[str, Any]) -> None:
        cell = note["cell"]
        self.states[cell], self.pieces[cell], self.modules = note["states"], note["pieces"], note["modules"]
        self.plans = note["plan"], note["in_force"]
        self.idle = note.get("idle", self.idle)
        if "watermark" in note:
            self.watermark = max(note["watermark"], note["watermark"] if self.watermark is None else self.watermark)
        if "caches" in note:
            self.caches[cell] = note["caches"]
            self.names = {key: seen["names"] for key, seen in note["caches"].items()}
        if "worker" in note:
            self.workers[cell] = note["worker"]

    def kept(self, keeping: Mapping[str, float]) -> list[dict[str, Any]]:
        found = []
        for name, key in self.modules.items():
            sizes = [states[name] for states in self.states.values() if name in states]
            held = {"rows": sum(rows for rows, _ in sizes), "bytes": sum(size for _, size in sizes)}
            found.append({"state": name, "streams": key.split("+"), **held, "cpu_seconds": keeping.get(key, 0.0)})
        return found

    def cached(self, asked: Mapping[str, Sequence[int]]) -> list[dict[str, Any]]:
        found = []
        for key, names in self.names.items():
            hits, misses = asked.get(key, (0, 0))
            seen = [caches[key] for caches in self.caches.values() if key in caches]
            rows, size = sum(cache["rows"] for cache in seen), sum(cache["bytes"] for cache in seen)
            found += [{"cache": name, "hits": hits, "misses": misses, "rows": rows, "bytes": size} for name in names]
        return found

    def said(self, restored: int) -> dict[str, int]:
        """What the processes that work off cells hold."""
        private = {worker["name"]: worker["private"] for worker in self.workers.values()}
        return {
            "disk_bytes": sum(worker["disk"] for worker in self.workers.values()),
            "memory_bytes": sum(private.values()),
            "processes": len(private),
            "restored": restored,
        }


class _Values:
    """Distinct values of attributes in the windows of their streams: a sketch per batch, for as long as the window reaches back."""

    def __init__(self, query: Query) -> None:
        self._windows = {stream.name: stream.window for stream in query.streams}
        self._batches: dict[str, deque[tuple[int, int, int, Mapping[str, str]]]] = {name: deque() for name in self._windows}
        """Per stream and batch: its first and last event time, its rows, and the sketch of every attribute."""
        self._whole: dict[str, bool] = dict.fromkeys(self._windows, False)

    def add(self, notes: Sequence[Mapping[str, Any]]) -> None:
        for name, batches in self._batches.items():
            seen = [note["streams"][name] for note in notes if "distinct" in note.get("streams", {}).get(name, {})]
            if seen:
                attributes = sorted({side for part in seen for side in part["distinct"]})
                sketches = {side: merged(part["distinct"][side] for part in seen if side in part["distinct"]) for side in attributes}
                first, last = min(part["first"] for part in seen), max(part["last"] for part in seen)
                batches.append((first, last, sum(part["rows"] for part in seen), sketches))
                self._forget(name)

    def _forget(self, name: str) -> None:
        """Let go of the batches most of which is out of the window; what is left is whole once there was such a batch."""
        batches, window = self._batches[name], self._windows[name]
        newest = max(last for _, last, _, _ in batches)
        while len(batches) > 1:
            if window.rows is not None:
                outside = sum(rows for _, _, rows, _ in batches) - batches[0][2] / 2 > window.rows
            else:
                outside = (batches[0][0] + batches[0][1]) / 2 < newest - 1e6 * (window.seconds or 0)
            if not outside:
                return
            batches.popleft()
            self._whole[name] = True

    def said(self) -> dict[str, float]:
        """Per attribute, of streams whose whole window was seen in this run."""
        found: dict[str, float] = {}
        for name, batches in sorted(self._batches.items()):
            if self._whole[name]:
                for side in sorted({side for *_, sketches in batches for side in sketches}):
                    found[side] = max(1.0, distinct(merged(sketches[side] for *_, sketches in batches if side in sketches)))
        return found


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
    """The figures of one run: of every batch, of the whole run, and of its last windows."""

    def __init__(self, query: Query, delays: Mapping[str, int] | None = None) -> None:
        """`delays`: by how many milliseconds the watermark trails each stream."""
        self.query, self.delays = query, delays or {}
        self.total = _Figures()
        self._held = _Held()
        self._values = _Values(query)
        self._periods: list[Period] = []
        self._measured: dict[str, Any] | None = None

    def add(self, notes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Take in the notes of one batch; returns that batch's figures."""
        batch = _Figures()
        for note in notes:
            batch.add(note)
            self.total.add(note)
            self._held.add(note)
        self._values.add(notes)
        line = self._said(batch) | {"distinct": self._values.said(), "frequent": batch.frequent.said()}
        rates = self.measured()["rates"]
        self._periods = recent([*self._periods, Period.of(line)], longest_window(self.query, rates))
        self._measured = None
        return line

    def summary(self) -> dict[str, Any]:
        """The figures of the whole run, and what its last windows say of the query."""
        return self._said(self.total) | {"measured": self.measured()}

    def measured(self, query: Query | None = None) -> dict[str, Any]:
        """Of the last windows: the names and places of a request (see `estimates`), for another form of the query where one is given."""
        if query is not None and query.predicates != self.query.predicates:
            return estimates(query, self._periods)
        if self._measured is None:
            self._measured = estimates(self.query, self._periods)
        return self._measured

    def _said(self, figures: _Figures) -> dict[str, Any]:
        plan, in_force = self._held.plans
        return {
            "plan": plan,
            "building": plan != in_force,
            "streams": [arrived.said(stream.name) for stream in self.query.streams if (arrived := figures.streams.get(stream.name)) is not None],
            "steps": [_said_of(place, step) for place, step in figures.steps.items()],
            "states": self._held.kept(figures.keeping),
            "caches": self._held.cached(figures.caches),
            "asked": [dict(zip(ASKED, (table, *found), strict=True)) for table, found in sorted(figures.asked.items())],
            "results": figures.results,
            "work": figures.work,
            "shed": {"rows": sum(seen.shed for seen in figures.streams.values()), "probes": sum(seen.shed for seen in figures.steps.values())},
            "workers": self._held.said(figures.restored),
            "pieces": sum(self._held.pieces.values()),
            "watermark": self._held.watermark,
            "watermark_held_by": self._holder(),
            "idle": list(self._held.idle),
            "store": _store(figures.traffic),
            "cpu_seconds": dict(sorted(figures.cpu.items())),
        }

    def _holder(self) -> dict[str, Any] | None:
        """The stream that the watermark waits for, and by how many seconds of event time the furthest stream is ahead of it; none that is idle.

        Without seconds where it has had no row in this run: then there is no watermark but that of the run before.
        """
        reached: dict[str, int] = {}
        for stream in self.query.streams:
            if stream.name in self._held.idle:
                continue
            seen = self.total.streams.get(stream.name)
            if seen is None or seen.last is None:
                return {"stream": stream.name, "seconds": None} if any(other.rows for other in self.total.streams.values()) else None
            reached[stream.name] = seen.last - 1000 * self.delays.get(stream.name, 0)
        last = min(reached, key=lambda name: (reached[name], name))
        return {"stream": last, "seconds": (max(reached.values()) - reached[last]) / 1e6}

"""One cell: works off a micro-batch against its state modules. Knows polars, and nothing of Spark.

The problem: given the rows that arrived in each stream, the rows still held and a plan, make every result that one of the
new rows completes, exactly once, and keep what later rows may need. The method is paper 5's: every row first builds into its
state module, then probes the others in the plan's order. The TimeStamp rule (a result comes from its last arrival alone)
takes this form on whole batches: an operator works off its inputs one after the other, and the new rows of an input
see the new and old rows of the inputs before it, but only the old rows of those after it. So of the new components of
a result the one whose input comes last makes it, whatever the order of probes. Operators run inputs first; what an operator makes
is the new rows of its output, so a materialized subresult is a state module like any other.

Windows: see `program`. With windows counted in rows, "the stream's newest N rows when the last partner arrives" needs an order
of arrival: batch by batch, within a batch by event time, then stream, then the row's hash. Rows of a batch get the numbers
1, 2, … in that order and old rows 0 (`sq`, the largest of a row's components), and `die` is the number of the arrival that
pushes a component out of its window, the smallest of a row's. Two partial rows go together when each one's sq is below the other's die.

Caches (paper 1) answer a segment of a route by key. They are worked like the paper's: an entry is made on a miss, from
all rows of that key, and each arrival's new joined rows are added to the entries there are. Since inputs are worked off one after
the other, an entry is always what the states are at that moment. Beyond its capacity, which is the memory that the plan gives it, a
cache drops the keys not used longest.

The guarantee: exactly the results of contract §1, whatever plan, cells, caches and batches. Complexity: that of the joins,
plus reading all state once a batch.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Protocol

import numpy as np
import polars as pl

from spark_adapter.stem.program import ENTRY_BYTES, FOREVER, META, PANES, Cached, Comparison, Join, Module, Program, Route, Segment, Step
from spark_adapter.stem.shares import Grid

__all__ = ["Outcome", "Store", "decode", "encode", "evict", "work_off"]

SCAN_PAIRS = 4_000_000  # pairs compared at a time in a nested loop: some hundred megabytes
LOOP_PAIRS = 2_000_000  # where a plan asks for a nested loop on an equality: beyond this a hash join finds the same for less
SAMPLE_LEFT, SAMPLE_RIGHT = 64, 512  # rows by which the share of pairs within their windows is estimated; costs a tenth of a millisecond
LONG_BATCH = PANES // 4  # panes of one batch, from which on its chunks are wider than a pane: each is a conversation with the store
WIDE = PANES // 8  # panes of a wide chunk: held a sixteenth of a window too long on average, after a batch of a quarter or more


class Store(Protocol):
    """The part of the state store that belongs to one cell."""

    def load(self) -> dict[str, bytes]: ...

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cell made of one batch."""

    results: list[pl.DataFrame]
    statistics: dict[str, Any]
    expires: int | None
    """When, in microseconds of event time, the next chunk will be dead; None where none will by time alone."""


def encode(frame: pl.DataFrame) -> bytes:
    """As an Arrow stream: reading or writing a small one takes polars a tenth of the time of an Arrow file."""
    buffer = io.BytesIO()
    frame.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()


def decode(data: bytes) -> pl.DataFrame:
    return pl.read_ipc_stream(io.BytesIO(data))


@dataclass(slots=True)
class _Held:
    """A module while a batch is worked off."""

    chunks: dict[int, pl.DataFrame] = field(default_factory=dict)
    old: pl.DataFrame | None = None
    new: pl.DataFrame | None = None
    _all: pl.DataFrame | None = None

    def everything(self) -> pl.DataFrame | None:
        if self._all is None:
            self._all = _stacked([self.old, self.new])
        return self._all


@dataclass(slots=True)
class _Entries:
    """A cache while a batch is worked off."""

    keys: pl.DataFrame | None = None
    """The key's columns, and `used`, the batch that looked last."""
    rows: pl.DataFrame | None = None
    hits: int = 0
    misses: int = 0
    changed: bool = False

    def grow(self, rows: pl.DataFrame) -> None:
        self.rows = _stacked([self.rows, rows if self.rows is None else rows.select(self.rows.columns)])
        self.changed = True


@dataclass(slots=True)
class _Counts:
    """What happened at one step."""

    rows_in: int = 0
    rows_out: int = 0
    pairs: float = 0.0
    measured: int = 0
    cpu: float = 0.0
    shed: int = 0


def _stacked(frames: Iterable[pl.DataFrame | None]) -> pl.DataFrame | None:
    found = [frame for frame in frames if frame is not None and frame.height]
    if not found:
        return None
    return found[0] if len(found) == 1 else pl.concat(found, rechunk=True)


def work_off(program: Program, grid: Grid, cell: int, store: Store, arrivals: Mapping[str, pl.DataFrame], watermark: int) -> Outcome:
    """Work off one batch. `arrivals` has per stream a frame with `ts` in microseconds, `h`, attributes and payload.

    Rows with an event time below `watermark` are late: dropped and counted. Everything a later row cannot need is dropped too.
    """
    batch = _Batch(program, grid, cell, store, watermark)
    return batch.work_off(arrivals)


def evict(program: Program, grid: Grid, cell: int, store: Store, watermark: int) -> Outcome:
    """Drop what the watermark has passed, in a cell that no row came to."""
    found = store.get(META)
    meta = json.loads(found) if found else _nothing_yet()
    chunks = meta["chunks"]
    _drop_dead({module.key: module for module in program.modules}, store, chunks, watermark)
    store.put(META, json.dumps(meta).encode())
    return Outcome([], {"cell": cell, "states": _sizes(program, grid, cell, chunks)}, _expires(program, chunks))


def _nothing_yet() -> dict[str, Any]:
    """The notes of a cell that no row has come to: chunks with their sizes, rows per counted stream, materialized modules, batches,
    and the latest event time of each stream in this run."""
    return {"chunks": {}, "counts": {}, "modules": [], "batch": 0, "run": "", "latest": {}}


def _death(module: Module, pane: int) -> int:
    """The watermark at which a chunk of a module of time windows is dead."""
    return (pane + 1) * module.pane


def _drop_dead(modules: Mapping[str, Module], store: Store, chunks: dict[str, Sequence[int]], watermark: int) -> None:
    """Let go of the chunks that the watermark has passed, and of modules that this plan does not keep."""
    for name in list(chunks):
        key, pane = name.split("|")
        module = modules.get(key)
        if module is None or (not module.counted and _death(module, int(pane)) <= watermark):
            store.remove(name)
            del chunks[name]


def _expires(program: Program, chunks: Mapping[str, Sequence[int]]) -> int | None:
    panes = {module.key: module for module in program.modules if not module.counted}
    deaths = [_death(panes[key], int(pane)) for key, pane in (name.split("|") for name in chunks) if key in panes]
    return min(deaths) if deaths else None


def _sizes(program: Program, grid: Grid, cell: int, chunks: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    """Per module [rows, bytes]: rows counted once however many cells hold copies, bytes as stored here."""
    result = {}
    for module in program.modules:
        held = [size for name, size in chunks.items() if name.split("|")[0] == module.key]
        rows = sum(size[0] for size in held) if grid.home(cell, module.streams) else 0
        result[module.name] = [rows, sum(size[1] for size in held)]
    return result


class _Batch:
    """One batch in one cell."""

    def __init__(self, program: Program, grid: Grid, cell: int, store: Store, watermark: int) -> None:
        self.program, self.grid, self.cell, self.store, self.watermark = program, grid, cell, store, watermark
        self.modules = {module.key: module for module in program.modules}
        self.held: dict[str, _Held] = {module.key: _Held() for module in program.modules}
        self.caches = {cache.key: cache for cache in program.caches}
        self.entries: dict[str, _Entries] = {cache.key: _Entries() for cache in program.caches}
        self.counts: dict[tuple[str, str, int], _Counts] = {}
        self.meta: dict[str, Any] = {}
        self.horizon = watermark
        """The watermark of the next batch is at least this: what it passes need not be kept."""
        self.lengths = {stream.name: stream.rows for stream in program.streams if stream.rows is not None}
        self.pushing: dict[str, np.ndarray[Any, np.dtype[np.int64]]] = {}
        """Per stream of a row window: the arrival numbers of its new rows."""
        self.before: dict[str, int] = {}
        """Per stream of a row window: how many rows it had before this batch."""

    def work_off(self, arrivals: Mapping[str, pl.DataFrame]) -> Outcome:
        started = time.process_time()
        self._load()
        streams = self._build(arrivals)
        for module in self.program.modules:
            held = self.held[module.key]
            held.old, held.new = (
                frame if frame is None else frame.select(*self._controls(), *module.columns) for frame in (self._with_deaths(held.old), held.new)
            )
        for entries in self.entries.values():
            entries.rows = self._with_deaths(entries.rows)
        self._rebuild()
        loaded = time.process_time()
        results = self._probe()
        probed = time.process_time()
        chunks = self._keep()
        caches = self._keep_caches()
        ended = time.process_time()
        statistics = {
            "cell": self.cell,
            "watermark": self.watermark,
            "streams": streams,
            "steps": [[*step, c.rows_in, c.rows_out, c.pairs, c.measured, c.cpu, c.shed] for step, c in self.counts.items()],
            "states": _sizes(self.program, self.grid, self.cell, chunks),
            "caches": caches,
            "results": sum(frame.height for frame in results),
            "cpu": {"load": loaded - started, "probe": probed - loaded, "keep": ended - probed},
        }
        return Outcome(results, statistics, _expires(self.program, chunks))

    # State, in and out.

    def _load(self) -> None:
        found = self.store.get(META)
        self.meta = json.loads(found) if found else _nothing_yet()
        self.meta["batch"] += 1
        if self.meta["run"] != self.program.run:
            self.meta["run"], self.meta["latest"] = self.program.run, {}
        self.before = {name: self.meta["counts"].get(name, 0) for name in self.lengths}
        # What is dead is removed by name, unread: after a long batch that is most of the state.
        _drop_dead(self.modules, self.store, self.meta["chunks"], self.watermark)
        stored = self.store.load()
        stored.pop(META, None)
        caches: dict[str, bytes] = {}
        for name, data in stored.items():
            if name.startswith("cache|"):
                caches[name] = data
                continue
            key, pane = name.split("|")
            self.held[key].chunks[int(pane)] = decode(data)
        for held in self.held.values():
            held.old = _stacked(held.chunks.values())
        for name, data in caches.items():
            _, key, part = name.split("|")
            if key not in self.entries:
                self.store.remove(name)
            elif part == "keys":
                self.entries[key].keys = decode(data)
            else:
                self.entries[key].rows = decode(data).filter(pl.col("hi") >= self.watermark)

    def _build(self, arrivals: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, int]]:
        """BuildFirst: new rows with their window columns, into the modules of their streams."""
        seen: dict[str, dict[str, int]] = {}
        punctual: dict[str, pl.DataFrame] = {}
        for stream in self.program.streams:
            frame = arrivals.get(stream.name)
            if frame is None or not frame.height:
                continue
            kept = frame.filter(pl.col("ts") >= self.watermark)
            if kept.height:
                first, last = kept["ts"].min(), kept["ts"].max()
                assert isinstance(first, int) and isinstance(last, int)
                self.meta["latest"][stream.name] = max(last, self.meta["latest"].get(stream.name, last))
            let_in = _chosen(kept, self.program.admitted, salt=0)
            if self.grid.home(self.cell, (stream.name,)):
                seen[stream.name] = {"rows": kept.height, "late": frame.height - kept.height, "shed": kept.height - let_in.height}
                if kept.height:
                    seen[stream.name] |= {"first": first, "last": last}
            if let_in.height:
                punctual[stream.name] = let_in
        self.horizon = max(self.watermark, self._least_watermark())
        if self.program.counted:
            punctual = self._numbered(punctual)
        for stream in self.program.streams:
            if stream.name in punctual:
                frame = punctual[stream.name]
                frame = frame.with_columns(mx=pl.col("ts"), hi=pl.lit(FOREVER) if stream.rows is not None else pl.col("ts") + stream.window)
                self.held[stream.name].new = self._with_deaths(frame.drop("ts"), new=True)
        return seen

    def _least_watermark(self) -> int:
        """What the next watermark is at least: Spark takes the earliest over the streams, each by the latest row of all cells, in milliseconds."""
        latest = self.meta["latest"]
        if any(stream.delay is None or stream.name not in latest for stream in self.program.streams):
            return self.watermark
        return min((int(latest[stream.name]) // 1000 - (stream.delay or 0)) * 1000 for stream in self.program.streams)

    def _numbered(self, frames: Mapping[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
        """New rows in their order of arrival, with their numbers in it, and in their streams where windows are counted in rows."""
        ordered = {name: frame.sort("ts", "h") for name, frame in frames.items()}
        arrived = [
            frame.select("ts", pl.lit(i).alias("stream"), "h", pl.int_range(pl.len()).alias("row"), pl.lit(name).alias("name"))
            for i, (name, frame) in enumerate(ordered.items())
        ]
        if arrived:
            order = pl.concat(arrived).sort("ts", "stream", "h", "row").with_row_index("sq", offset=1)
        for name, frame in ordered.items():
            numbers = order.filter(pl.col("name") == name).sort("row")["sq"].cast(pl.Int64)
            ordered[name] = frame.with_columns(sq=numbers)
            if name in self.lengths:
                before = self.before[name]
                ordered[name] = ordered[name].with_columns((pl.int_range(pl.len(), dtype=pl.Int64) + before + 1).alias(f"{name}#"))
                self.pushing[name] = numbers.to_numpy()
                self.meta["counts"][name] = before + frame.height
        return ordered

    def _with_deaths(self, frame: pl.DataFrame | None, new: bool = False) -> pl.DataFrame | None:
        """With `die`, and for old rows `sq` = 0; nothing to do where all windows are of time."""
        if frame is None or not self.program.counted:
            return frame
        die = np.full(frame.height, FOREVER, dtype=np.int64)
        for name, length in self.lengths.items():
            if f"{name}#" in frame.columns:
                pushing = np.append(self.pushing.get(name, np.empty(0, dtype=np.int64)), FOREVER)
                at = frame[f"{name}#"].to_numpy() + length - self.before[name] - 1
                die = np.minimum(die, np.where(at < 0, 0, pushing[np.clip(at, 0, len(pushing) - 1)]))
        frame = frame.with_columns(die=pl.Series(die))
        return frame if new else frame.with_columns(sq=pl.lit(0, dtype=pl.Int64))

    def _rebuild(self) -> None:
        """Make materialized modules that this plan keeps and the plan before did not, from the states of their inputs."""
        for join in self.program.joins:
            module = self.modules.get(join.output)
            if module is None or join.output in self.meta["modules"]:
                continue
            route = join.routes[0]
            made = self.held[route.input].old
            for step in route.steps:
                made = self._joined(made, self.held[step.target].old, step)
            if made is not None:
                held = self.held[join.output]
                held.old = made.select(*self._controls(), *join.columns)
                held.chunks = {}
                self._put(module, held, held.old)
        self.meta["modules"] = [join.output for join in self.program.joins if join.output in self.modules]

    def _controls(self) -> tuple[str, ...]:
        return ("hi", "mx", "h", "die", "sq") if self.program.counted else ("hi", "mx", "h")

    def _put(self, module: Module, held: _Held, rows: pl.DataFrame) -> None:
        """Add rows to the chunks of a module and write those that changed."""
        rows = rows.select("hi", "mx", "h", *module.columns).filter(pl.col("hi") >= self.horizon)
        if not rows.height:
            return
        for pane, part in self._panes(module, rows):
            grown = _stacked([held.chunks.get(pane), part])
            assert grown is not None
            held.chunks[pane] = grown
            self._write(module, pane, grown)

    def _write(self, module: Module, pane: int, frame: pl.DataFrame) -> None:
        data = encode(frame)
        name = f"{module.key}|{pane}"
        self.store.put(name, data)
        self.meta["chunks"][name] = [frame.height, len(data)]

    def _panes(self, module: Module, rows: pl.DataFrame) -> list[tuple[int, pl.DataFrame]]:
        """The rows by the chunk they belong to: those that die together."""
        if module.counted:
            if len(module.streams) > 1:
                return [(0, rows)]
            name = module.streams[0]
            panes = rows[f"{name}#"] * PANES // self.lengths[name]
        else:
            panes = rows["hi"] // module.pane
            first, last = panes.min(), panes.max()
            assert isinstance(first, int) and isinstance(last, int)
            if last - first >= LONG_BATCH:
                panes = _widened(panes, last)
        first, last = panes.min(), panes.max()
        assert isinstance(first, int)
        if first == last:
            return [(first, rows)]
        parts = rows.with_columns(pane=panes).partition_by("pane", as_dict=True, include_key=False)
        return [(int(key[0]), part) for key, part in parts.items()]

    def _keep(self) -> dict[str, Sequence[int]]:
        """Write new rows, and drop what no later row can need: what the next watermark passes, and has been pushed out of windows counted in rows."""
        for module in self.program.modules:
            held = self.held[module.key]
            if held.new is not None:
                self._put(module, held, held.new)
            if not module.counted:
                continue
            for pane, frame in list(held.chunks.items()):
                alive = frame.filter(self._alive(module.counted))
                if not alive.height:
                    self.store.remove(f"{module.key}|{pane}")
                    del self.meta["chunks"][f"{module.key}|{pane}"]
                elif alive.height < frame.height and len(module.streams) > 1:
                    self._write(module, pane, alive)
        chunks: dict[str, Sequence[int]] = self.meta["chunks"]
        _drop_dead(self.modules, self.store, chunks, self.horizon)
        self.store.put(META, json.dumps(self.meta).encode())
        return chunks

    def _alive(self, counted: Sequence[str]) -> pl.Expr:
        """Rows that a later row may still need."""
        conditions = [pl.col("hi") >= self.watermark]
        conditions += [pl.col(f"{name}#") + self.lengths[name] > self.meta["counts"].get(name, 0) for name in counted]
        return pl.all_horizontal(conditions)

    # Probes.

    def _probe(self) -> list[pl.DataFrame]:
        """All joins, inputs before users; the root's new rows are the results."""
        if not self.program.joins:
            only = self.held[self.program.streams[0].name].new
            return [] if only is None else [only.select(self.program.payload)]
        results: list[pl.DataFrame] = []
        for join in self.program.joins:
            made: list[pl.DataFrame] = []
            kept = join.output in self.modules
            columns = [*self._controls(), *join.columns] if kept else list(self.program.payload)
            for k, route in enumerate(join.routes):
                frame = self._walk(join, k, route)
                if frame is not None:
                    made.append(frame.select(columns))
            if kept:
                self.held[join.output].new = _stacked(made)
            else:
                results = made
        return results

    def _visible(self, join: Join, k: int, target: str) -> pl.DataFrame | None:
        """What the new rows of input k may see of a target: the TimeStamp rule."""
        held = self.held[target]
        return held.everything() if join.inputs.index(target) < k else held.old

    def _walk(self, join: Join, k: int, route: Route) -> pl.DataFrame | None:
        """New rows of input k through all steps of its route; caches that wait for them on the way are kept current."""
        arrived = partial = self.held[route.input].new
        if arrived is None:
            return None
        waiting = [cache for cache in self.program.caches if cache.join == join.name and route.input in cache.inputs]
        segments = {segment.first: segment for segment in route.segments}
        i = 0
        while i < len(route.steps) and partial is not None:
            if i in segments:
                segment = segments[i]
                partial = self._through_cache(join, k, route, segment, self._admitted(partial, join, route, i))
                i = segment.last
            else:
                partial = self._counted_step(join, k, route, i, partial)
            for cache in waiting:
                if cache.captured.get(route.input) == i:
                    self._add(cache, partial)
            i += 1
        for cache in waiting:
            if route.input in cache.upkeep:
                entered = self._of_entries(cache, arrived)
                for step in cache.upkeep[route.input]:
                    entered = self._of_entries(cache, self._joined(entered, self._visible(join, k, step.target), step))
                self._add(cache, entered)
        return partial

    def _counted_step(self, join: Join, k: int, route: Route, i: int, partial: pl.DataFrame) -> pl.DataFrame | None:
        step = route.steps[i]
        counts = self.counts.setdefault((join.name, route.name, i), _Counts())
        started = time.process_time()
        target = self._visible(join, k, step.target)
        members = step.target.split("+")
        admitted = self._admitted(partial, join, route, i)
        joined = self._joined(admitted, target, step)
        if self.grid.home(self.cell, (*step.arriving, *members)):
            made = 0 if joined is None else joined.height
            counts.rows_out += made
            counts.pairs += self._pairs(admitted, target) * self.grid.meeting(step.arriving, members)
            counts.measured += made
        counts.cpu += time.process_time() - started
        return joined

    def _pairs(self, left: pl.DataFrame | None, right: pl.DataFrame | None) -> float:
        """About how many pairs are within their windows, by a sample of evenly spaced rows."""
        if left is None or right is None:
            return 0.0
        within = _within("mx", "hi", left, right)
        if self.program.counted:
            within &= _within("sq", "die", left, right, strictly=True)
        pairs: float = within.mean() * left.height * right.height
        return pairs

    def _admitted(self, arrived: pl.DataFrame, join: Join, route: Route, i: int) -> pl.DataFrame | None:
        """Of the rows that arrive at a step those that may probe, chosen by their hash: the same rows in every run and in every cell.

        Both are counted, in one cell of those that have copies of a row.
        """
        step = route.steps[i]
        admitted = _chosen(arrived, step.share, step.salt)
        if self.grid.home(self.cell, step.arriving):
            counts = self.counts.setdefault((join.name, route.name, i), _Counts())
            counts.rows_in += arrived.height
            counts.shed += arrived.height - admitted.height
        return admitted if admitted.height else None

    def _joined(self, left: pl.DataFrame | None, right: pl.DataFrame | None, step: Step, residual: Sequence[Comparison] = ()) -> pl.DataFrame | None:
        """Rows of left with their partners in right: all predicates of the step, all windows."""
        if left is None or right is None or not left.height or not right.height:
            return None
        conditions = [pl.col("mx") <= pl.col("hi'"), pl.col("mx'") <= pl.col("hi")]
        if self.program.counted:
            conditions += [pl.col("sq") < pl.col("die'"), pl.col("sq'") < pl.col("die")]
        conditions += [_holds(comparison) for comparison in (*step.other, *residual)]
        if step.scan and (not step.equal or left.height * right.height <= LOOP_PAIRS):
            conditions += [_holds(comparison) for comparison in step.equal]
            block = max(1, SCAN_PAIRS // right.height)
            parts = [
                self._merged(left[start : start + block].lazy().join(right.lazy(), how="cross", suffix="'"), conditions)
                for start in range(0, left.height, block)
            ]
            return _stacked(parts)
        keys: dict[str, str] = {}
        for comparison in step.equal:
            # polars takes a column for one key only; a second comparison of it is checked afterwards.
            if comparison.left in keys or comparison.right in keys.values():
                conditions.append(_holds(comparison))
            else:
                keys[comparison.left] = comparison.right
        joined = left.lazy().join(
            right.lazy(),
            left_on=list(keys),
            right_on=list(keys.values()),
            how="inner",
            suffix="'",
            coalesce=False,
        )
        return _stacked([self._merged(joined, conditions)])

    def _merged(self, joined: pl.LazyFrame, conditions: Sequence[pl.Expr]) -> pl.DataFrame:
        columns = {"hi": pl.min_horizontal("hi", "hi'"), "mx": pl.max_horizontal("mx", "mx'"), "h": pl.col("h") + pl.col("h'")}
        if self.program.counted:
            columns |= {"die": pl.min_horizontal("die", "die'"), "sq": pl.max_horizontal("sq", "sq'")}
        frame = joined.filter(reduce(lambda a, b: a & b, conditions)).with_columns(**columns)
        return frame.drop([f"{name}'" for name in columns]).collect()

    # Caches.

    def _through_cache(self, join: Join, k: int, route: Route, segment: Segment, partial: pl.DataFrame | None) -> pl.DataFrame | None:
        if partial is None:
            return None
        started = time.process_time()
        cache, entries = self.caches[segment.cache], self.entries[segment.cache]
        asked = partial.select(pl.col(column).alias(key) for column, key in zip(segment.lookup, cache.columns, strict=True)).unique(
            maintain_order=True
        )
        missing = asked if entries.keys is None else asked.join(entries.keys, on=cache.columns, how="anti")
        entries.misses += missing.height
        entries.hits += partial.height - missing.height
        entries.changed = True
        batch = pl.lit(self.meta["batch"], dtype=pl.Int64).alias("used")
        old = None if entries.keys is None else entries.keys.join(asked, on=cache.columns, how="anti")
        entries.keys = _stacked([old, asked.with_columns(batch)])
        if missing.height:
            made: pl.DataFrame | None = missing.select(*(pl.col(column).alias(f"key{i}") for i, column in enumerate(cache.columns)), *self._neutral())
            for step in segment.steps:
                made = self._joined(made, self._visible(join, k, step.target), step)
            if made is not None:
                entries.grow(made.drop([f"key{i}" for i in range(len(cache.columns))]))
        equal = tuple(Comparison(column, "=", key) for column, key in zip(segment.lookup, cache.columns, strict=True))
        joined = self._joined(partial, entries.rows, Step(segment.cache, equal, (), False), segment.residual)
        step = route.steps[segment.first]
        counts = self.counts.setdefault((join.name, route.name, segment.first), _Counts())
        if joined is not None and self.grid.home(self.cell, (*step.arriving, *cache.streams)):
            counts.rows_out += joined.height
        counts.cpu += time.process_time() - started
        return joined

    def _neutral(self) -> list[pl.Expr]:
        """The window columns of a row that fits every window: what a key is before it has found rows."""
        values = {"hi": FOREVER, "mx": -FOREVER, "h": 0} | ({"die": FOREVER, "sq": 0} if self.program.counted else {})
        return [pl.lit(value, dtype=pl.Int64).alias(name) for name, value in values.items()]

    def _of_entries(self, cache: Cached, rows: pl.DataFrame | None) -> pl.DataFrame | None:
        """Those rows whose part of the key, as far as they have it yet, some entry has: no others need to be joined on."""
        keys = self.entries[cache.key].keys
        if rows is None or keys is None:
            return None
        known = [column for column in cache.columns if column in rows.columns]
        if not known:
            return rows
        fitting = rows.join(keys, on=known, how="semi")
        return fitting if fitting.height else None

    def _add(self, cache: Cached, rows: pl.DataFrame | None) -> None:
        """New rows of the cached join, to the entries of their keys where there are any."""
        fitting = self._of_entries(cache, rows)
        if fitting is not None:
            self.entries[cache.key].grow(fitting)

    def _keep_caches(self) -> dict[str, dict[str, float]]:
        sizes: dict[str, dict[str, float]] = {}
        for cache in self.program.caches:
            entries = self.entries[cache.key]
            rows = entries.rows
            if rows is not None and self.program.counted:
                rows = rows.drop("die", "sq").filter(self._alive(cache.counted))
            rows, keys = self._within_capacity(cache, rows, entries.keys)
            for part, frame in (("keys", keys), ("rows", rows)):
                name = f"cache|{cache.key}|{part}"
                if frame is not None and frame.height and entries.changed:
                    self.store.put(name, encode(frame))
                elif frame is None or not frame.height:
                    self.store.remove(name)
            held = 0 if rows is None else rows.height
            if self.grid.home(self.cell, cache.streams):
                size = held * cache.tuple_bytes + (0 if keys is None else keys.height) * ENTRY_BYTES
                sizes[cache.key] = {"hits": entries.hits, "misses": entries.misses, "rows": held, "bytes": size}
        return sizes

    def _within_capacity(
        self, cache: Cached, rows: pl.DataFrame | None, keys: pl.DataFrame | None
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Without the keys that were not used longest, once the cache has outgrown its capacity. A key without rows takes room too."""
        capacity = cache.capacity * self.grid.copies(cache.streams) / self.grid.cells
        held = 0 if rows is None else rows.height
        if keys is None or held * cache.tuple_bytes + keys.height * ENTRY_BYTES <= capacity:
            return rows, keys
        ranked = keys.with_columns(held=pl.lit(0, dtype=pl.Int64))
        if rows is not None:
            per_key = rows.group_by(cache.columns).agg(pl.len().cast(pl.Int64).alias("held"))
            ranked = keys.join(per_key, on=cache.columns, how="left").with_columns(pl.col("held").fill_null(0))
        ranked = ranked.sort(["used", *cache.columns], descending=[True, *(False for _ in cache.columns)])
        size = (pl.col("held") * cache.tuple_bytes + ENTRY_BYTES).cum_sum()
        kept = ranked.filter(size <= capacity).drop("held")
        self.entries[cache.key].changed = True
        return None if rows is None else rows.join(kept, on=cache.columns, how="semi"), kept


def _widened(panes: pl.Series, last: int) -> pl.Series:
    """The chunks of a long batch, by the last pane of each: eight to the newest window, then one to each one, two, four… windows before.

    What is older than a window dies with the next watermark or soon after, so few chunks will do for any length of batch.
    """
    age = last - panes.to_numpy()
    windows = np.maximum(age // PANES, 1)
    youngest = np.where(age < PANES, age // WIDE * WIDE, PANES << np.floor(np.log2(windows)).astype(np.int64))
    return pl.Series(last - youngest)


def _within(when: str, until: str, left: pl.DataFrame, right: pl.DataFrame, strictly: bool = False) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """For a sample of rows of left and right whether each one's `when` is at most, or strictly below, the other's `until`."""
    before = np.less if strictly else np.less_equal
    first, last = (_sampled(left[name], SAMPLE_LEFT)[:, None] for name in (when, until))
    found: np.ndarray[Any, np.dtype[np.bool_]] = before(first, _sampled(right[until], SAMPLE_RIGHT))
    found &= before(_sampled(right[when], SAMPLE_RIGHT), last)
    return found


def _sampled(column: pl.Series, most: int) -> np.ndarray[Any, Any]:
    """At most so many values, evenly spaced."""
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values[:: -(-len(values) // most)]


OPERATORS = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def _holds(comparison: Comparison) -> pl.Expr:
    holds: pl.Expr = getattr(pl.col(comparison.left), OPERATORS[comparison.op])(pl.col(comparison.right))
    return holds


def _chosen(frame: pl.DataFrame, share: float, salt: int) -> pl.DataFrame:
    """This share of the rows, by their hash."""
    if share >= 1.0:
        return frame
    mixed = _mixed(frame["h"].to_numpy().view(np.uint64) ^ np.uint64(salt))
    return frame.filter(pl.Series(mixed < np.uint64(min(int(share * 2.0**64), 2**64 - 1)), dtype=pl.Boolean))


def _mixed(x: np.ndarray[Any, np.dtype[np.uint64]]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The finalizer of SplitMix64: every bit of the input moves every bit of the output."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))

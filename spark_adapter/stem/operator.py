"""One cell: works off a micro-batch against its state modules. Knows polars, and nothing of Spark.

The problem: given the rows that arrived in each stream, the rows still held and a plan, make every result that one of the new rows
completes, exactly once, and keep what later rows may need. The method is paper 5's: every row first builds into its state module, then
probes the others in the plan's order. The TimeStamp rule (a result comes from its last arrival alone) takes this form on whole batches: an
operator works off its inputs one after the other, and the new rows of an input see the new and old rows of the inputs before it, but only
the old rows of those after it. So of the new components of a result the one whose input comes last makes it, whatever the order of probes.
Operators run inputs first; what an operator makes is the new rows of its output, so a materialized subresult is a state module like any
other.

This file is the sequence; `switching` says whose plan is run, `windows` which rows go together, `state` gets pieces in and out, `probes` joins,
`caches` are paper 1's, `building` makes subresults that another plan will keep, `preparing` the indexes that it will probe, `routing` orders
probes where each cell may do so itself.
Frames of partial rows pass from step to step as they are made, and results leave in slices: no more than a block of each step is held.

The guarantee: exactly the results of contract §1, whatever plan, cells, caches and batches. Complexity: that of the joins; the state is not
read but where probes reach it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from spark_adapter.stem.building import LEAST, SHARE, Building, make_missing
from spark_adapter.stem.caches import Caches
from spark_adapter.stem.counting import Counts, Tally
from spark_adapter.stem.frames import chosen, stacked
from spark_adapter.stem.preparing import prepare
from spark_adapter.stem.probes import Effort, joined, pairs_within
from spark_adapter.stem.program import FOREVER, META, Join, Module, Program, Route, Segment, Step
from spark_adapter.stem.routing import Routing
from spark_adapter.stem.shares import Grid
from spark_adapter.stem.silence import Heard, begin, idle, listen, wake
from spark_adapter.stem.sketch import sketch
from spark_adapter.stem.skew import most_frequent
from spark_adapter.stem.state import Notes, State, Store
from spark_adapter.stem.switching import Ways, settled, ways_of
from spark_adapter.stem.tables import Ask, Tables, Whole
from spark_adapter.stem.windows import Windows, least_watermark

__all__ = ["Brought", "Outcome", "evict", "work_off"]

PROFILED = 64  # rows that are sent through the steps of a cached segment in each batch, to measure what the cache hides


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one cell says of one batch."""

    statistics: dict[str, Any]
    expires: int | None
    """When, in microseconds of event time, the next piece of state will be dead; None where none will by time alone."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What a batch brings to a cell."""

    arrivals: Mapping[str, pl.DataFrame]
    """By stream a frame with `ts` in microseconds, `h`, attributes and payload; so are the rows of a table's version, by its name and number (see
    `tables`)."""
    watermark: int
    """Rows with an event time below it are late: dropped and counted."""
    told: Sequence[Program | Whole] = ()
    """Changes of the plan, and of tables: in force before the batch's first row."""
    heard: Heard | None = None
    """What the batch tells all cells, where streams may be idle."""


def work_off(
    program: Program, grid: Grid, cell: int, store: Store, brought: Brought, ask: Ask | None = None
) -> Generator[pl.DataFrame, None, Outcome]:
    """Work off one batch: yields results as they are made. State is written when the last result has been taken, without what no later row can
    need. `ask` reaches tables that are asked.
    """
    return _Batch(program, grid, cell, store, brought, ask).work_off()


def evict(program: Program, grid: Grid, cell: int, store: Store, watermark: int) -> Outcome:
    """Drop what the watermark has passed, in a cell that no row came to."""
    notes = Notes.read(store.get(META))
    watermark = notes.holding(watermark)
    ways = ways_of(program, (), store, notes)
    state = State(ways.held, store, notes, Windows(program, notes.counts), watermark)
    state.keep(watermark)
    return Outcome({"cell": cell} | _held(ways, grid, cell, state, watermark), state.expires())


def _held(ways: Ways, grid: Grid, cell: int, state: State, watermark: int) -> dict[str, Any]:
    """What the cell says of its state: the plan whose way is taken and the plan in force; of every module, whole or still being built, [rows, bytes];
    how many pieces there are; and what the batch moved. Rows are counted once, however many cells hold copies of them; bytes are those that lie here.
    """
    sizes = state.sizes(watermark)
    theirs = {module.key for module in ways.taken.modules}

    def size(module: Module) -> list[int]:
        rows, held, _ = sizes[module.key]
        return [rows if grid.home(cell, module.streams) else 0, held]

    return {
        "plan": ways.taken.number,
        "in_force": ways.in_force.number,
        "modules": {module.name: module.key for module in ways.taken.modules},
        "states": {module.name: size(module) for module in ways.taken.modules},
        "building": {module.name: size(module) for module in ways.in_force.modules if module.key in sizes and module.key not in theirs},
        "pieces": sum(size[2] for size in sizes.values()),
        "traffic": asdict(state.traffic),
    }


class _Batch:
    """One batch in one cell."""

    def __init__(self, program: Program, grid: Grid, cell: int, store: Store, brought: Brought, ask: Ask | None) -> None:
        arrivals, watermark, told, heard = brought.arrivals, brought.watermark, brought.told, brought.heard
        self.grid, self.cell, self.heard = grid, cell, heard
        notes = Notes.read(store.get(META))
        notes.batch += 1
        if notes.run != program.run:
            notes.run, notes.latest = program.run, {}
            begin(notes)
        if heard is not None:
            wake(program, notes, heard.now)
        self.all_reached = watermark
        """The watermark that all streams have reached."""
        self.watermark = watermark = notes.holding(watermark)
        """The one that holds: streams that are idle need not have reached it."""
        self.notes = notes
        self.ways = ways_of(program, told, store, notes)
        self.routing = Routing(notes.orders, notes.probed)
        self.program = self.routing.applied(self.ways.taken) if program.adaptive else self.ways.taken
        self.windows = Windows(program, notes.counts)
        self.state = State(self.ways.held, store, notes, self.windows, watermark)
        self.tables = Tables(self.ways.taken, self.ways.in_force, grid, cell, ask)
        self.tables.take(self.state, arrivals, [whole for whole in told if isinstance(whole, Whole)])
        self.arrivals = {stream.name: arrivals[stream.name] for stream in program.streams if stream.name in arrivals}
        self.caches = Caches(self.program, self.state, watermark)
        self.tally = Tally(self.program)
        self.efforts: dict[tuple[str, str, int], Effort] = {}
        self.made = 0

    def work_off(self) -> Generator[pl.DataFrame, None, Outcome]:
        started = time.process_time()
        make_missing(self.ways.taken, self.state)
        streams = self._build(self.arrivals)
        self.caches.start()
        loaded = time.process_time()
        for frame in self._results():
            self.made += frame.height
            yield frame
        probed = time.process_time()
        work = {"own": sum(frame.height for frame in self.arrivals.values()) + sum(effort.work for effort in self.efforts.values()), "building": 0.0}
        if self.ways.building:
            building = Building(self.ways.in_force, self.state, self.watermark)
            building.keep_up([module.key for module in self.program.modules])
            budget = max(LEAST, SHARE * work["own"])
            building.proceed(budget)
            work["building"] = building.work
            if building.work < budget:
                work["building"] += prepare(self.ways.taken, self.ways.in_force, self.state, work["own"], budget - building.work)
            settled(self.ways, self.state.store, self.notes)
        built = time.process_time()
        if self.program.adaptive:
            self.routing.learn(self.program, self.efforts)
        if self.heard is not None:
            listen(self.program, self.notes, self.heard)
        # The watermark of the next batch is at least this: what it passes need not be kept.
        horizon = least_watermark(self.program, self.notes.latest, self.notes.holding(self.watermark))
        caches = self.caches.keep(self.grid, self.cell)
        self.state.keep(horizon)
        held = _held(self.ways, self.grid, self.cell, self.state, horizon)
        ended = time.process_time()
        statistics = {
            "cell": self.cell,
            "watermark": self.watermark,
            **({} if self.heard is None else {"idle": idle(self.program, self.notes, self.heard.now)}),
            "streams": streams,
            "routes": self.tally.noted(),
            **held,
            "caches": caches,
            "keeping": self.state.spent,
            "asked": self.tables.noted(self.state),
            "results": self.made,
            "work": work,
            "cpu": {"load": loaded - started, "probe": probed - loaded, "build": built - probed, "keep": ended - built},
        }
        return Outcome(statistics, self.state.expires())

    def _build(self, arrivals: Mapping[str, pl.DataFrame]) -> dict[str, dict[str, Any]]:
        """BuildFirst: new rows with their window columns, into the modules of their streams."""
        seen: dict[str, dict[str, Any]] = {}
        punctual: dict[str, pl.DataFrame] = {}
        keys = self.program.keys
        for stream in self.program.streams:
            frame = arrivals.get(stream.name)
            if frame is None or not frame.height:
                continue
            times = frame["ts"].to_numpy()
            kept = frame if int(times.min()) >= self.watermark else frame.filter(pl.col("ts") >= self.watermark)
            if kept.height:
                first, last = int(kept["ts"].min()), int(times.max())
                self.notes.latest[stream.name] = max(last, self.notes.latest.get(stream.name, last))
            let_in = chosen(kept, self.ways.in_force.admitted, salt=0)
            if self.grid.home(self.cell, (stream.name,)):
                late = int((times < self.all_reached).sum())
                outrun = frame.height - kept.height - late
                seen[stream.name] = {"rows": kept.height, "late": late, "idle_late": outrun, "shed": kept.height - let_in.height}
                if kept.height:
                    sketches = {side: sketch(kept[side]) for side in stream.attributes if side in keys}
                    seen[stream.name] |= {"first": first, "last": last, "distinct": sketches, "most": most_frequent(kept, stream.attributes)}
            if let_in.height:
                punctual[stream.name] = let_in
        punctual = self.windows.numbered(punctual)
        for stream in self.program.streams:
            if stream.name in punctual:
                dies = pl.lit(FOREVER) if stream.rows is not None else pl.col("ts") + stream.window
                frame = punctual[stream.name].select(pl.all().exclude("ts"), mx=pl.col("ts"), hi=dies)
                if stream.name in seen:
                    seen[stream.name]["bytes"] = frame.estimated_size()
                self.state.add(stream.name, self.windows.with_deaths(frame, new=True))
                self.state.close(stream.name)
        return seen

    def _results(self) -> Iterator[pl.DataFrame]:
        """All joins, inputs before users; the root's new rows are the results."""
        payload = list(self.program.payload)
        if not self.program.joins:
            for part in self.state.new[self.program.streams[0].name]:
                yield part.frame[payload]
        for join in self.program.joins:
            kept = join.output in self.state.modules
            for k, route in enumerate(join.routes):
                for frame in self._walk(join, k, route):
                    if kept:
                        self.state.add(join.output, frame)
                    else:
                        yield frame[payload]
            if kept:
                self.state.close(join.output)

    def _walk(self, join: Join, k: int, route: Route) -> Iterator[pl.DataFrame]:
        """New rows of input k through all steps of its route; caches that wait for them on the way are kept current."""
        waiting = self.caches.waiting(join.name, route.input)
        segments = {segment.first: segment for segment in route.segments}
        frames: Iterator[pl.DataFrame] = (part.frame for part in self.state.new[route.input])
        i = 0
        while i < len(route.steps):
            if i in segments:
                frames = self._through_cache(join, k, route, segments[i], frames)
                i = segments[i].last
            else:
                frames = self._through_step(join, k, route, i, frames)
            captured = [cache for cache in waiting if cache.captured.get(route.input) == i]
            if captured:
                frames = self._captured(captured, frames)
            i += 1
        yield from frames
        for cache in waiting:
            if route.input in cache.upkeep:
                entered: Iterator[pl.DataFrame] = (self.caches.of_entries(cache, part.frame) for part in self.state.new[route.input])
                for step in cache.upkeep[route.input]:
                    further = joined(self.windows, entered, self.state.visible(join, k, step.target), step)
                    entered = (self.caches.of_entries(cache, frame) for frame in further)
                for frame in entered:
                    self.caches.add(cache, frame)

    def _captured(self, caches: Sequence[Any], frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Pass the frames on as they are, once the caches have taken what they need of each."""
        for frame in frames:
            for cache in caches:
                self.caches.add(cache, frame)
            yield frame

    def _admitted(self, arrived: pl.DataFrame, step: Step, counts: Counts) -> pl.DataFrame:
        """Of the rows that arrive at a step those that may probe, chosen by their hash: the same rows in every run and in every cell.

        Both are counted, in one cell of those that have copies of a row.
        """
        admitted = chosen(arrived, step.share, step.salt)
        if self.grid.home(self.cell, step.arriving):
            counts.rows_in += arrived.height
            counts.shed += arrived.height - admitted.height
        return admitted

    def _through_step(self, join: Join, k: int, route: Route, i: int, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        step = route.steps[i]
        counts = self.tally.at(join.name, route.name, i)
        effort = self.efforts.setdefault((join.name, route.name, i), Effort())
        parts = self.state.visible(join, k, step.target)
        members = step.target.split("+")
        met = self.grid.home(self.cell, (*step.arriving, *members))
        for partial in frames:
            admitted = self._admitted(partial, step, counts)
            if met:
                started = time.process_time()
                counts.met(pairs_within(admitted, parts, self.windows.counted) * self.grid.meeting(step.arriving, members), 0)
                counts.cpu += time.process_time() - started
            for found in _timed(counts, joined(self.windows, [admitted], parts, step, effort=effort)):
                if met:
                    counts.rows_out += found.height
                    counts.met(0.0, found.height)
                yield found
        counts.indexed = effort.indexed

    def _through_cache(self, join: Join, k: int, route: Route, segment: Segment, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        step = route.steps[segment.first]
        counts = self.tally.at(join.name, route.name, segment.first)
        visible = [self.state.visible(join, k, making.target) for making in segment.steps]
        profile: list[tuple[Counts, float, int, float]] = []
        arrived = first = 0
        members = [name for making in segment.steps for name in making.target.split("+")]
        met = self.grid.home(self.cell, (*step.arriving, *members))
        # Nobody is asked for a sample: the answers of a table are all looked at anyway.
        asked = [parts for parts in visible if not isinstance(parts, list)]
        for partial in frames:
            admitted = self._admitted(partial, step, counts)
            if not admitted.height:
                continue
            if not arrived:
                first = admitted.height
                profile = [] if asked else self._profile(join, k, route, segment, admitted)
            arrived += admitted.height
            if met and asked:
                counts.met(pairs_within(admitted, asked[0], self.windows.counted) * self.grid.meeting(step.arriving, members), 0)
            for found in _timed(counts, self.caches.answer(segment, admitted, visible)):
                if met:
                    counts.rows_out += found.height
                    counts.met(0.0, found.height if asked else 0)
                yield found
        for profiled, pairs, matched, each in profile:
            profiled.met(pairs, matched, each * arrived / first)

    def _profile(self, join: Join, k: int, route: Route, segment: Segment, arrived: pl.DataFrame) -> list[tuple[Counts, float, int, float]]:
        """Send a few rows through the steps that a cache answers, and see what these would make (paper 1, App. A).

        Chosen by their hash, at each step anew, so that a replay counts the same; what they find is thrown away. Per step: where it counts, pairs
        and matches, and how many of the rows that arrived each of those that were sent stands for, so that a batch, a cell or a plan with
        few rows does not weigh as much as one with many.
        """
        found: list[tuple[Counts, float, int, float]] = []
        each = 1.0
        frame: pl.DataFrame | None = arrived
        for i in range(segment.first, segment.last + 1):
            if frame is None:
                break
            step = route.steps[i]
            counts = self.tally.at(join.name, route.name, i)
            counts.sampled = True
            few = chosen(frame, PROFILED / frame.height, step.salt ^ 1)
            if not few.height:
                break
            each *= frame.height / few.height
            members = step.target.split("+")
            parts = self.state.visible(join, k, step.target)
            started = time.process_time()
            frame = stacked(joined(self.windows, [few], parts, step))
            if self.grid.home(self.cell, (*step.arriving, *members)):
                pairs = pairs_within(few, parts, self.windows.counted) * self.grid.meeting(step.arriving, members)
                found.append((counts, pairs, 0 if frame is None else frame.height, each))
            counts.cpu += time.process_time() - started
        return found


def _timed(counts: Counts, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Pass the frames on and count the CPU that making them takes, not what is done with one before the next is asked for."""
    while True:
        started = time.process_time()
        frame = next(frames, None)
        counts.cpu += time.process_time() - started
        if frame is None:
            return
        yield frame

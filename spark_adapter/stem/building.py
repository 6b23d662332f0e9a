"""Building a subresult that a plan keeps and that was not kept before, a bounded bit in every batch.

The problem: the subresult of ten million rows cannot be made in one batch without stalling, and while it is made its inputs change.
The method: one of its inputs is walked through, rows that live longest first (those that die together in the order of their hashes). How far the
walk has come is the *mark*, and rows that die later, old or new, are above it. At the end of every batch exactly those joined rows are held
whose row of that input is above the mark. A batch keeps it so in two steps. First it joins its new rows, each with partners
whose row of the walked input, which may be the new row itself, is above the mark; as everywhere, a joined row is made by the last of its rows
to arrive. Then it takes the mark down by some rows of the input, and joins these with all rows of the other inputs. When no row that is
alive is left below the mark, the subresult is whole.

A mark is a value, not a place: merging, eviction and replays do not disturb it. The rows that die soonest come last, and those that are dead
by then need no joining: so one window after the start the subresult is whole, however little a batch may do.

The bound: per batch at most SHARE of the work that the batch itself was, or LEAST where that is more. Work is rows and pairs of rows, which a
replay counts alike; a row that is added counts as ADDED. One row of the input is always taken to its end.

The guarantee: exactly the joined rows of contract §1 that are alive. Complexity: that of joining the input with the others, once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import polars as pl

from spark_adapter.stem.probes import Effort, joined
from spark_adapter.stem.program import Join, Module, Program
from spark_adapter.stem.state import Begun, Part, State

__all__ = ["LEAST", "SHARE", "Building", "make_missing"]

SHARE = 0.5  # of a batch's own work
LEAST = 50_000.0  # rows and pairs: some 50 ms, a tenth of what the smallest batch takes on Spark
ADDED = 4.0  # a row that goes into the store takes about as long as finding four
GROWTH = 8  # by which the next rows taken at once may be more than those before: it may turn out that they have many partners
LOWEST_HASH = -(1 << 63)


def make_missing(program: Program, state: State) -> None:
    """Make at once what the program keeps and the state lacks, before the batch's own rows are there: only where the state was laid out anew,
    which leaves the streams' rows alone (see `relayout`)."""
    for join in program.joins[:-1]:
        if join.output in state.notes.modules:
            continue
        route = join.routes[0]
        frames: Iterator[pl.DataFrame] = (state.windows.with_deaths(part.frame) for part in state.old[route.input])
        for step in route.steps:
            frames = joined(state.windows, frames, state.before(step.target), step)
        for frame in frames:
            state.add(join.output, frame)
        state.age(join.output)
        state.notes.modules.append(join.output)


class Building:
    """The subresults that the plan in force keeps and that are not whole yet."""

    def __init__(self, program: Program, state: State, watermark: int) -> None:
        self.program, self.state, self.watermark = program, state, watermark
        self.modules = {module.key: module for module in program.modules}
        self.effort = Effort()
        self.added = 0

    @property
    def work(self) -> float:
        """What taking marks down has cost so far in this batch."""
        return self.effort.work + ADDED * self.added

    def keep_up(self, theirs: Sequence[str]) -> None:
        """Join the batch's new rows into every subresult that is begun or whole, except `theirs`: those of the plan whose way is taken, which its own
        joins keep up."""
        for join in self.program.joins:
            if join.output in theirs or not (join.output in self.state.notes.building or join.output in self.state.notes.modules):
                continue
            begun = self.state.notes.building.get(join.output)
            for k, route in enumerate(join.routes):
                frames: Iterator[pl.DataFrame] = (part.frame for part in self.state.new[route.input])
                if begun is not None and begun.input == route.input:
                    above = self._above(begun, "")
                    frames = (frame.filter(above) for frame in frames)
                for step in route.steps:
                    parts, only = self.state.visible(join, k, step.target), None
                    if begun is not None and begun.input == step.target:
                        only = self._above(begun, "'")
                    frames = joined(self.state.windows, frames, parts, step, only=only)
                for frame in frames:
                    self.state.add(join.output, frame)
            self.state.close(join.output)

    def proceed(self, budget: float) -> None:
        """Take marks down until the budget is used up, subresult by subresult, inputs before users."""
        for join in self.program.joins[:-1]:
            if join.output in self.state.notes.modules:
                continue
            if join.output not in self.state.notes.building:
                self._begin(join)
            if not self._taken_down(join, self.state.notes.building[join.output], budget):
                return
            del self.state.notes.building[join.output]
            self.state.notes.modules.append(join.output)

    def _begin(self, join: Join) -> None:
        """Walk through the input that has the fewest rows, of those that flow."""
        self.state.begin(self.modules[join.output])
        flowing = [route.input for route in join.routes]
        rows = {key: sum(part.rows for part in (*self.state.old[key], *self.state.new[key])) for key in flowing}
        chosen = min(flowing, key=lambda key: rows[key])
        self.state.notes.building[join.output] = Begun(chosen, list(join.inputs))

    def _above(self, begun: Begun, prime: str) -> pl.Expr:
        """Rows of the input that are not below the mark. `prime` ends the names of their window columns."""
        if begun.mark is None:
            return pl.lit(False)
        death, h = begun.mark
        column = self.modules[begun.input].death
        column = pl.col(column + prime if column == "hi" else column)
        return (column > death) | ((column == death) & (pl.col("h" + prime) >= h))

    def _taken_down(self, join: Join, begun: Begun, budget: float) -> bool:
        """Whether the subresult is whole."""
        left = budget - self.work
        if left <= 0:
            return False
        rows = self._below(self.modules[begun.input], begun, max(1, int(left)))
        if rows is None:
            return True
        deaths, hashes = (rows[name].to_numpy() for name in (self.modules[begun.input].death, "h"))
        route = next(route for route in join.routes if route.input == begun.input)
        parts = {step.target: self.state.now(step.target) for step in route.steps}
        start = 0
        while start < rows.height and self.work < budget:
            wanted = 1 if begun.per_row is None else min(GROWTH * begun.taken, int((budget - self.work) / begun.per_row))
            end = _after_equals(deaths, hashes, min(rows.height, start + max(1, wanted)))
            before = self.work
            frames: Iterator[pl.DataFrame] = iter([rows[start:end]])
            for step in route.steps:
                frames = joined(self.state.windows, frames, parts[step.target], step, effort=self.effort)
            for frame in frames:
                self.added += frame.height
                self.state.add(join.output, frame)
            begun.per_row, begun.taken = (self.work - before) / (end - start), end - start
            begun.mark = [int(deaths[end - 1]), int(hashes[end - 1])]
            start = end
        self.state.close(join.output)
        return start == rows.height and self._below(self.modules[begun.input], begun, 1) is None

    def _below(self, module: Module, begun: Begun, count: int) -> pl.DataFrame | None:
        """The live rows below the mark, those that die last first: at least the first `count` of them, or all."""
        death, h = begun.mark or (np.iinfo(np.int64).max, LOWEST_HASH)
        found: list[pl.DataFrame] = []
        least: int | None = None
        held = 0
        for part in sorted((*self.state.old[module.key], *self.state.new[module.key]), key=lambda part: -_last_death(part, module)):
            if held >= count and least is not None and _last_death(part, module) < least:
                break
            rows = self._candidates(part, module, (death, h), count)
            if rows.height:
                found.append(rows)
                held += rows.height
                first = int(rows[module.death].min())
                least = first if least is None else min(least, first)
        if not found:
            return None
        columns = found[0].columns
        together = pl.concat([frame.select(columns) for frame in found]).sort(module.death, "h", descending=True)
        cut = _after_equals(together[module.death].to_numpy(), together["h"].to_numpy(), min(count, together.height))
        return together[:cut]

    def _candidates(self, part: Part, module: Module, mark: tuple[int, int], count: int) -> pl.DataFrame:
        """The last `count` rows of a part below the mark, or all, with those that die at the same time as the first of these."""
        rows = part.frame
        deaths = rows[module.death].to_numpy()
        low = self.state.windows.first_alive(module, rows, self.watermark)
        below, equal = (int(np.searchsorted(deaths, mark[0], side)) for side in ("left", "right"))
        start = max(low, below - count)
        if low < start:
            start = max(low, int(np.searchsorted(deaths, deaths[start], "left")))
        taken = rows[start : max(start, below)]
        tied = rows[max(low, below) : equal].filter(pl.col("h") < mark[1])
        taken = taken if not tied.height else pl.concat([taken, tied])
        return taken if part.new else self.state.windows.with_deaths(taken)


def _last_death(part: Part, module: Module) -> int:
    return part.bounds.hi[1] if module.death == "hi" else part.bounds.numbers[module.death[:-1]]


def _after_equals(deaths: np.ndarray[Any, Any], hashes: np.ndarray[Any, Any], end: int) -> int:
    """The end of a slice of rows, moved on until no row behind it equals the last one in it: a mark must not part equal rows."""
    while end < len(deaths) and deaths[end] == deaths[end - 1] and hashes[end] == hashes[end - 1]:
        end += 1
    return end

"""Indexes that another plan's probes need, made before its way is taken, a bounded number of rows in every batch.

The problem: orders are no state, but other orders may probe a module by other columns, for which its pieces have no index yet. Where ten
million rows are held, making all of them takes longer than the batch that switches. The method: the plan before goes on until the pieces that
are there have been indexed, piece by piece, the oldest last, since those may be dead by then. Pieces that come meanwhile count as well.

Which pieces are done is written in the cell's notes, so that a batch that is run again does the same. The indexes themselves are copies on a
worker's disk: lost ones are made anew when they are asked for. Where fewer than AT_ONCE rows lack an index nobody waits, nor where one of the
two plans sheds: then results depend on the plan, and the one that is in force is the one to follow.

The bound: what building leaves of its share of a batch (see `building`), where a row that is indexed counts as INDEXED, and one piece at least.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_adapter.stem.pieces import Piece
from spark_adapter.stem.probes import key_of
from spark_adapter.stem.program import Program, Step
from spark_adapter.stem.state import Notes, State

__all__ = ["prepare", "ready"]

AT_ONCE = 1_000_000  # rows: some 30 ms
INDEXED = 1 / 30  # of what it takes to find a pair and put its rows together

Columns = tuple[str, ...]


def ready(taken: Program, in_force: Program, notes: Notes) -> bool:
    """Whether the way of the plan in force can be taken, as far as indexes go."""
    if taken.sheds or in_force.sheds:
        return True
    return sum(piece.rows * len(columns) for piece, columns in _lacking(taken, in_force, notes)) <= AT_ONCE


def prepare(taken: Program, in_force: Program, state: State, budget: float) -> float:
    """Index pieces for the plan in force until the budget is used up; the work that it was."""
    notes, work = state.notes, 0.0
    parts = {part.name: part for listed in state.old.values() for part in listed}
    notes.prepared = [name for name in notes.prepared if name in parts]
    for piece, wanted in sorted(_lacking(taken, in_force, notes), key=lambda lacking: -lacking[0].bounds.hi[1]):
        if work >= budget:
            break
        for columns in wanted:
            parts[piece.name].index(columns)
        work += INDEXED * piece.rows * len(wanted)
        notes.prepared.append(piece.name)
    return work


def _lacking(taken: Program, in_force: Program, notes: Notes) -> list[tuple[Piece, list[Columns]]]:
    """Pieces that the plan in force probes by columns by which the other plan does not, and these."""
    known, done = _probed(taken), set(notes.prepared)
    wanted = {module: sorted(columns - known.get(module, set())) for module, columns in _probed(in_force).items()}
    return [(piece, wanted[piece.module]) for piece in notes.pieces if piece.name not in done and wanted.get(piece.module)]


def _probed(program: Program) -> dict[str, set[Columns]]:
    """Per module the columns by which it is probed."""
    found: dict[str, set[Columns]] = {}
    for step in _steps(program):
        if step.equal:
            found.setdefault(step.target, set()).add(tuple(key_of(step).values()))
    return found


def _steps(program: Program) -> Iterator[Step]:
    for join in program.joins:
        for route in join.routes:
            yield from route.steps
            for segment in route.segments:
                yield from segment.steps
    for cache in program.caches:
        for steps in cache.upkeep.values():
            yield from steps

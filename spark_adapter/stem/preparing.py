"""Indexes that another plan's probes need, made before its way is taken, a bounded number of rows in every batch.

The problem: orders are no state, but other orders may probe a module by other columns, for which its pieces have no index yet. Where ten
million rows are held, making all of them takes longer than the batch that switches. The method: the plan before goes on until the pieces that
are there have been indexed, piece by piece: first those that were merged, since the others will be, which is the end of their indexes; and of
these the oldest last, since those may be dead by then. Pieces that come meanwhile count as well.

By which columns a piece was indexed for another plan is written in the cell's notes, so that a batch that is run again does the same, and a plan
that comes back finds what it left. The indexes themselves are copies on a worker's disk: lost ones are made anew when they are asked for. Where
fewer than AT_ONCE rows lack an index nobody waits, nor where one of the two plans sheds: then results depend on the plan, and the one that is in
force is the one to follow.

The bound: SHARE of a batch's own work or AT_ONCE rows, whichever is more, but no more than what building leaves of its part (see `building`);
a row that is indexed counts as INDEXED, and one piece is always done.
"""

from __future__ import annotations

from collections.abc import Iterator

from spark_adapter.stem.pieces import Piece
from spark_adapter.stem.probes import key_of
from spark_adapter.stem.program import Program, Step
from spark_adapter.stem.state import Notes, State

__all__ = ["prepare", "ready", "remember"]

AT_ONCE = 60_000  # rows: some 6 ms
SHARE = 0.1  # of a batch's own work: rows are indexed much faster than they come, since each of these is work for itself and at every step
INDEXED = 0.1  # of what it takes to find a pair and put its rows together: 70 to 110 ns, of which sorting is a half and writing the rest

Columns = tuple[str, ...]


def ready(taken: Program, in_force: Program, notes: Notes) -> bool:
    """Whether the way of the plan in force can be taken, as far as indexes go."""
    if taken.sheds or in_force.sheds:
        return True
    return sum(piece.rows * len(columns) for piece, columns in _lacking(taken, in_force, notes)) <= AT_ONCE


def prepare(taken: Program, in_force: Program, state: State, own: float, left: float) -> float:
    """Index pieces for the plan in force, and return how much work that was. `own` is the batch's own work, `left` the most that indexing may be."""
    notes, work, budget = state.notes, 0.0, min(left, max(INDEXED * AT_ONCE, SHARE * own))
    parts = {part.name: part for listed in state.old.values() for part in listed}
    lacking = [(piece, wanted) for piece, wanted in _lacking(taken, in_force, notes) if piece.name in parts]
    for piece, wanted in sorted(lacking, key=lambda found: (-found[0].level, -found[0].bounds.hi[1])):
        takes = INDEXED * piece.rows * len(wanted)
        if work and work + takes > budget:
            break
        for columns in wanted:
            parts[piece.name].index(columns)
        work += takes
        _add(notes, piece, wanted)
    return work


def remember(taken: Program, notes: Notes) -> None:
    """Write down what the pieces are indexed by, before another plan's way is taken."""
    probed = _probed(taken)
    held = {piece.name for piece in notes.pieces}
    notes.indexed = {name: columns for name, columns in notes.indexed.items() if name in held}
    for piece in notes.pieces:
        _add(notes, piece, sorted(probed.get(piece.module, ())))


def _add(notes: Notes, piece: Piece, columns: list[Columns]) -> None:
    known = _known(notes, piece)
    notes.indexed[piece.name] = [list(found) for found in sorted(known.union(columns))]


def _known(notes: Notes, piece: Piece) -> set[Columns]:
    return {tuple(columns) for columns in notes.indexed.get(piece.name, ())}


def _lacking(taken: Program, in_force: Program, notes: Notes) -> list[tuple[Piece, list[Columns]]]:
    """Pieces that the plan in force probes by columns by which they were not indexed yet, and these."""
    running, wanted = _probed(taken), _probed(in_force)
    further = {module: columns - running.get(module, set()) for module, columns in wanted.items()}
    found = [(piece, sorted(further[piece.module] - _known(notes, piece))) for piece in notes.pieces if further.get(piece.module)]
    return [(piece, columns) for piece, columns in found if columns]


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

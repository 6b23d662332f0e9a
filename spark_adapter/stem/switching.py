"""Which plan a cell runs: the one in force, or the one before it as long as something has to be built first.

The problem: plans change while rows flow. A change comes to every cell in the same batch, before that batch's rows, as the plan's program with
a number; of two programs the one with the higher number is in force, whether it came with the start of the run, with a change, or lies in
the cell's own store, where it was put when it was first heard of. So nothing but the state and the batch's own input decides, and a batch
that is run again after a crash takes the same way.

Orders, caches and allowances are no state: a plan that keeps what is held already is taken at once, from the batch's first row on, unless
it probes many rows by columns that they have no index of (see `preparing`). A plan that keeps another subresult is in force, but the way of
the plan before is taken until that is whole (see `building`). What a plan does not keep is let go when its way is taken. A plan that comes
while another is built replaces it; what both keep goes on being built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from spark_adapter.stem.preparing import ready, remember
from spark_adapter.stem.program import PLAN, Module, Program
from spark_adapter.stem.state import Notes, Store, compressed, expanded
from spark_adapter.stem.text import program_from, text_of

__all__ = ["Ways", "settled", "ways_of"]


@dataclass(frozen=True, slots=True)
class Ways:
    """What a cell does in one batch."""

    taken: Program
    """The plan that makes the results."""
    in_force: Program
    """The same plan, or the one that subresults and indexes are being made for."""
    held: tuple[Module, ...]
    """The modules that have rows, or that the plan whose way is taken may give some."""

    @property
    def building(self) -> bool:
        return self.taken.number != self.in_force.number


def ways_of(given: Program, told: Sequence[object], store: Store, notes: Notes) -> Ways:
    """`given` is what the run started with, `told` has the changes that came with this batch. Brings the notes up to date."""
    changes = [program for program in told if isinstance(program, Program)]
    newest = max((given, *changes), key=lambda program: program.number)
    if not notes.plans:
        # Nothing is held, so nothing has to be built.
        notes.modules = _kept(newest)
    if not notes.plans or newest.number > notes.plans[-1]:
        store.put(_key(newest.number), compressed(text_of(newest).encode()))
        for dropped in notes.plans[1:]:
            store.remove(_key(dropped))
        notes.plans = [*notes.plans[:1], newest.number]
    # Windows and delays are the run's, and the order of streams is that of its results.
    programs = [
        replace(_known(number, newest, store), streams=given.streams, run=given.run, number=number, adaptive=given.adaptive) for number in notes.plans
    ]
    if not set(_kept(programs[0])) <= set(notes.modules):
        # The state was laid out anew, without subresults: what the plan in force keeps is made at once (see `building.make_missing`).
        for dropped in notes.plans[:-1]:
            store.remove(_key(dropped))
        notes.plans, programs = notes.plans[-1:], programs[-1:]
    ways = Ways(programs[0], programs[-1], ())
    if settled(ways, store, notes):
        ways = Ways(ways.in_force, ways.in_force, ())
    _let_go(ways, notes)
    begun = [module for module in ways.in_force.modules if len(module.streams) == 1 or module.key in (*notes.building, *notes.modules)]
    held = {module.key: module for module in (*begun, *ways.taken.modules)}
    return replace(ways, held=tuple(held.values()))


def settled(ways: Ways, store: Store, notes: Notes) -> bool:
    """Whether all is whole that the plan in force keeps, and indexed. Then its way is taken from the next batch on."""
    if ways.building and set(_kept(ways.in_force)) <= set(notes.modules) and ready(ways.taken, ways.in_force, notes):
        store.remove(_key(ways.taken.number))
        remember(ways.taken, notes)
        notes.plans = [ways.in_force.number]
    return len(notes.plans) == 1


def _let_go(ways: Ways, notes: Notes) -> None:
    """Leave in the notes what one of the plans keeps and what can be kept up to date: all that the one whose way is taken keeps, and of the
    other what is made of parts that are whole, half built ones only if they were begun with the same parts."""
    good = {*(relation.name for relation in ways.taken.relations), *_kept(ways.taken)}
    building = {}
    for join in ways.in_force.joins[:-1] if ways.building else ():
        if join.output in good or not good.issuperset(join.inputs):
            continue
        begun = notes.building.get(join.output)
        if join.output in notes.modules:
            good.add(join.output)
        elif begun is not None and sorted(begun.inputs) == sorted(join.inputs):
            building[join.output] = begun
    notes.modules = [key for key in notes.modules if key in good]
    notes.building = building


def _key(number: int) -> str:
    return f"{PLAN}{number}"


def _known(number: int, newest: Program, store: Store) -> Program:
    if number == newest.number:
        return newest
    value = store.get(_key(number))
    assert value is not None, f"the state store has lost plan {number}"
    return program_from(expanded(value).decode())


def _kept(program: Program) -> list[str]:
    """The subresults that a plan keeps."""
    return [module.key for module in program.modules if len(module.streams) > 1]

"""A cell's state, in and out: modules as pieces in the store, with copies on the worker's shelf.

A batch finds its state by the cell's notes, one value of the store that names every piece with its bounds. What the watermark has passed is
dropped by these names, unread. A piece is read when a probe asks for its rows: mapped from the shelf, or fetched from the store where the
shelf has no copy. What the batch adds goes out as pieces of its own (see `pieces`), compressed in the store, which takes 20 to 50 MB a
second, and as it is on the shelf. The notes go out last; Spark commits all of it or nothing, so a batch that is run again, here or
elsewhere, finds the notes as they were.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
import polars as pl
import pyarrow as pa

from spark_adapter.stem.frames import stacked
from spark_adapter.stem.index import Index, made
from spark_adapter.stem.pieces import MERGED_BYTES, PIECE_BYTES, Bounds, Piece, bounds_of, cut, due, new_name
from spark_adapter.stem.program import FOREVER, META, Join, Module, Step
from spark_adapter.stem.shelf import Shelf, as_file
from spark_adapter.stem.windows import Windows

__all__ = ["Answering", "Begun", "Notes", "Part", "State", "Store", "compressed", "expanded", "first_death"]

SPILLED_BYTES = 8 << 20  # new rows of more than this go to the shelf while the batch is still at work
SAMPLE = 64  # rows of a piece by which the share of pairs within their windows is estimated
LENGTH = 8  # bytes before a compressed value that say how long it is


class Store(Protocol):
    """The part of the state store that belongs to one cell."""

    shelf: Shelf

    def get(self, key: str) -> bytes | None: ...

    def put(self, key: str, value: bytes) -> None: ...

    def remove(self, key: str) -> None: ...


class Answering(Protocol):
    """A table that is asked: it gives parts by what rows look for."""

    @property
    def rows(self) -> float: ...

    def answers(self, left: pl.DataFrame, step: Step) -> Sequence[Part]: ...


def compressed(data: bytes) -> bytes:
    return len(data).to_bytes(LENGTH, "little") + bytes(pa.Codec("zstd", 1).compress(data, asbytes=True))


def expanded(value: bytes) -> bytes:
    size = int.from_bytes(value[:LENGTH], "little")
    return bytes(pa.Codec("zstd", 1).decompress(value[LENGTH:], decompressed_size=size, asbytes=True))


@dataclass(slots=True)
class Begun:
    """How far a subresult is built (see `building`)."""

    input: str
    """Key of the input that is walked through."""
    inputs: list[str]
    """Of the join that makes it."""
    mark: list[int] | None = None
    """Death and hash of the last row that was joined; None before the first."""
    per_row: float | None = None
    """How much work a row of the input was, on average of those last taken."""
    taken: int = 0
    """How many those were."""


@dataclass(slots=True)
class Notes:
    """What a cell writes down for its next batch."""

    pieces: list[Piece] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    """Rows so far of the streams whose windows are counted in rows."""
    plans: list[int] = field(default_factory=list)
    """Numbers of the plan whose way is taken and, where that is another, of the plan in force."""
    modules: list[str] = field(default_factory=list)
    """The subresults that are whole."""
    building: dict[str, Begun] = field(default_factory=dict)
    """Those that are not, and how far they are."""
    indexed: dict[str, list[list[str]]] = field(default_factory=dict)
    """Per piece the columns by which it was indexed for a plan whose way is not taken now (see `preparing`)."""
    batch: int = 0
    run: str = ""
    latest: dict[str, int] = field(default_factory=dict)
    """The latest event time of each stream in this run."""
    orders: dict[str, list[str]] = field(default_factory=dict)
    """Per route the order of probes that the cell has chosen (see `routing`)…"""
    probed: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """… and what it has measured."""
    caches: dict[str, list[str]] = field(default_factory=dict)
    """Per cache the names of its keys and of its rows on the shelf: caches are no state, and empty where the shelf has lost them."""
    heard: dict[str, list[int | None]] = field(default_factory=dict)
    """Where streams may be idle: per stream its latest event time, of all cells, and the time of the batch in which it last had a row."""
    passed: int | None = None
    """The watermark that streams which are not idle have reached; None where none ever was."""
    tables: dict[str, int] = field(default_factory=dict)
    """Per kept table the version whose rows are held…"""
    aside: list[str] = field(default_factory=list)
    """… and the store's keys of rows of versions that are not whole yet (see `tables`)."""

    @classmethod
    def read(cls, value: bytes | None) -> Notes:
        if value is None:
            return cls()
        found = json.loads(expanded(value))
        building = {key: Begun(**begun) for key, begun in found["building"].items()}
        return cls(**found | {"pieces": [Piece.read(noted) for noted in found["pieces"]], "building": building})

    def written(self) -> bytes:
        names = (
            "counts",
            "plans",
            "modules",
            "indexed",
            "batch",
            "run",
            "latest",
            "orders",
            "probed",
            "caches",
            "heard",
            "passed",
            "tables",
            "aside",
        )
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found["building"] = {key: asdict(begun) for key, begun in self.building.items()}
        return compressed(json.dumps(found | {"pieces": [piece.noted() for piece in self.pieces]}).encode())

    def holding(self, watermark: int) -> int:
        """The watermark that holds: this one, which all streams have reached, or that of the streams which are not idle."""
        return watermark if self.passed is None else max(watermark, self.passed)

    def shared(self) -> dict[str, Any]:
        """What every cell knows: of the plans the one in force."""
        return {"heard": self.heard, "passed": self.passed, "plans": self.plans[-1:], "tables": self.tables}

    def share(self, known: Mapping[str, Any]) -> None:
        """Take over what another cell knows."""
        self.heard, self.passed, self.plans, self.tables = dict(known["heard"]), known["passed"], list(known["plans"]), dict(known["tables"])


class Part:
    """Rows of a module while a batch is worked off, in the order of their deaths: a piece of the state, or rows that are new."""

    def __init__(self, state: State, name: str, bounds: Bounds, rows: int, new: bool = False, frame: pl.DataFrame | None = None) -> None:
        self.name, self.bounds, self.rows, self.new = name, bounds, rows, new
        self.shelved = frame is None
        """Whether the shelf has been given its rows."""
        self._state, self._frame = state, frame
        self._indexes: dict[tuple[str, ...], Index] = {}
        self._sample: list[np.ndarray[Any, Any]] | None = None

    @property
    def frame(self) -> pl.DataFrame:
        return self._state.fetched(self.name) if self._frame is None else self._frame

    def spill(self) -> None:
        """Give new rows to the shelf before the batch has ended, and hold the map instead: the store does not have them yet."""
        assert self._frame is not None
        self._state.store.shelf.put(self.name, as_file(self._frame))
        mapped = self._state.store.shelf.known(self.name)
        if mapped is not None:
            self._frame, self.shelved = mapped, True

    def has_index(self, columns: tuple[str, ...]) -> bool:
        """Whether `index` has nothing to make."""
        return columns in self._indexes or (self.shelved and self._state.store.shelf.has_index(self.name, columns))

    def index(self, columns: tuple[str, ...]) -> Index:
        """By these columns; made once for rows on the shelf, in memory for those that are not."""
        found = self._indexes.get(columns)
        if found is None:
            rows = self.frame
            found = self._state.store.shelf.index(self.name, columns, rows) if self.shelved else made(rows, columns)
            self._indexes[columns] = found
        return found

    def sample(self) -> list[np.ndarray[Any, Any]]:
        """mx, hi and, where windows are counted in rows, sq and die of evenly spaced rows."""
        if self._sample is None:
            every = -(-self.rows // SAMPLE)
            rows = self.frame
            if not self._state.windows.counted:
                self._sample = [rows[name].to_numpy()[::every] for name in ("mx", "hi")]
            else:
                some = rows.gather_every(every)
                some = some if self.new else self._state.windows.with_deaths(some)
                self._sample = [some[name].to_numpy() for name in ("mx", "hi", "sq", "die")]
        return self._sample


@dataclass(slots=True)
class Traffic:
    """What a batch moved, in bytes of the store unless said otherwise."""

    added: int = 0
    """New rows and new rows of subresults."""
    merged: int = 0
    """Pieces that merging wrote."""
    merges: int = 0
    fetched: int = 0
    """Pieces that the shelf had no copy of."""
    notes: int = 0


class State:
    """The modules of a cell in one batch."""

    def __init__(self, modules: Sequence[Module], store: Store, notes: Notes, windows: Windows, watermark: int) -> None:
        self.store, self.notes, self.windows = store, notes, windows
        self.modules = {module.key: module for module in modules}
        self.traffic = Traffic()
        self.spent: dict[str, float] = {}
        """Per module the CPU seconds that keeping its rows took, indexes left out: probes make those, and count them."""
        store.shelf.tidy({piece.name for piece in notes.pieces} | {name for names in notes.caches.values() for name in names})
        self.drop_dead(watermark)
        self.old: dict[str, list[Part]] = {key: [] for key in self.modules}
        self.new: dict[str, list[Part]] = {key: [] for key in self.modules}
        for piece in notes.pieces:
            self.old[piece.module].append(Part(self, piece.name, piece.bounds, piece.rows))
        self.asked: Mapping[str, Answering] = {}
        """Tables that give parts by key, in place of parts that are held."""
        self._unsaved: list[tuple[Module, int, Part]] = []
        self._pending: dict[str, list[pl.DataFrame]] = {}

    def fetched(self, name: str) -> pl.DataFrame:
        """The rows of a piece."""
        return self.store.shelf.frame(name, lambda: self._from_store(name))

    def _from_store(self, name: str) -> bytes:
        value = self.store.get(name)
        assert value is not None, f"the state store has lost piece {name}"
        self.traffic.fetched += len(value)
        return expanded(value)

    def visible(self, join: Join, k: int, target: str) -> list[Part] | Answering:
        """What the new rows of input k may see of a target: the TimeStamp rule."""
        return self.now(target) if join.inputs.index(target) < k else self.before(target)

    def before(self, target: str) -> list[Part] | Answering:
        """What was there before the batch's own rows."""
        return self.asked.get(target) or self.old[target]

    def now(self, target: str) -> list[Part] | Answering:
        """All there is by now."""
        return self.asked.get(target) or [*self.old[target], *self.new[target]]

    # Rows that the batch adds.

    def begin(self, module: Module) -> None:
        """Hold another module from now on, empty so far."""
        self.modules[module.key] = module
        self.old[module.key], self.new[module.key] = [], []

    def add(self, key: str, rows: pl.DataFrame) -> None:
        """New rows of a module. `close` it when all have been added."""
        with self._spending(key):
            pending = self._pending.setdefault(key, [])
            pending.append(rows[["hi", "mx", "h", *self.modules[key].columns, *self.windows.controls[3:]]])
            if sum(frame.estimated_size() for frame in pending) >= PIECE_BYTES:
                self._close(key)

    def close(self, key: str) -> None:
        with self._spending(key):
            self._close(key)

    @contextmanager
    def _spending(self, key: str) -> Iterator[None]:
        began = time.process_time()
        yield
        self.spent[key] = self.spent.get(key, 0.0) + time.process_time() - began

    def _close(self, key: str) -> None:
        rows = stacked(self._pending.pop(key, ()))
        if rows is None:
            return
        module = self.modules[key]
        for part, frame in cut(rows, module):
            added = Part(self, new_name(), bounds_of(frame, module.counted), frame.height, True, frame)
            if frame.estimated_size() >= SPILLED_BYTES and not self.windows.counted:
                added.spill()
            self.new[key].append(added)
            if module.kept:
                self._unsaved.append((module, part, added))

    def age(self, key: str) -> None:
        """Count nothing that was added to a module so far as new: it is made of rows that were there before the batch."""
        self.close(key)
        self.old[key] += self.new[key]
        self.new[key] = []

    def drop(self, key: str) -> None:
        """Let go of all rows of a module."""
        self._forget(piece for piece in self.notes.pieces if piece.module == key)
        self.old[key] = []

    # The end of a batch.

    def keep(self, watermark: int) -> None:
        """Write what was added, merge what is due, and drop what is dead under `watermark`, the lowest that the next batch can have."""
        for module, number, part in self._unsaved:
            with self._spending(module.key):
                self._save(module, number, part, watermark)
        self.drop_dead(watermark)
        budget = MERGED_BYTES
        modules = list(self.modules.values())
        turn = self.notes.batch % max(1, len(modules))
        for module in (*modules[turn:], *modules[:turn]):
            with self._spending(module.key):
                budget -= self._merge(module, watermark, budget)
        value = self.notes.written()
        self.traffic.notes += len(value)
        self.store.put(META, value)

    def _save(self, module: Module, number: int, part: Part, watermark: int) -> None:
        rows = part.frame[["hi", "mx", "h", *module.columns]]
        dead = self.windows.first_alive(module, rows, watermark)
        if dead == 0:
            self.traffic.added += self._write(module, 0, number, part.name, rows, part.shelved)
        elif dead < rows.height:
            self.traffic.added += self._write(module, 0, number, new_name(), rows[dead:])

    def _write(self, module: Module, level: int, number: int, name: str, rows: pl.DataFrame, shelved: bool = False) -> int:
        """Rows as a piece, to the store and to the shelf; the bytes that the store was given."""
        data = as_file(rows)
        value = compressed(data)
        self.store.put(name, value)
        if not shelved:
            self.store.shelf.put(name, data)
        self.notes.pieces.append(Piece(name, module.key, level, number, rows.height, len(data), len(value), bounds_of(rows, module.counted)))
        return len(value)

    def _merge(self, module: Module, watermark: int, budget: int) -> int:
        """Merge the pieces of a module that are due; bytes that were read."""
        run = due([piece for piece in self.notes.pieces if piece.module == module.key], module, budget)
        if not run:
            return 0
        alive = []
        for piece in run:
            rows = self.fetched(piece.name)
            rows = rows[self.windows.first_alive(module, rows, watermark) :]
            alive.append(rows.filter(self.windows.alive(module.counted, watermark)) if module.counted else rows)
        merged = stacked(alive)
        self._forget(run)
        if merged is not None:
            level = 1 + max(piece.level for piece in run)
            for number, rows in cut(merged, module):
                self.traffic.merged += self._write(module, level, number, new_name(), rows)
        self.traffic.merges += 1
        return sum(piece.size for piece in run)

    def drop_dead(self, watermark: int) -> None:
        """Let go of the pieces that the watermark has passed, and of modules that this plan does not keep."""
        self._forget(piece for piece in self.notes.pieces if piece.module not in self.modules or self.windows.dead(piece, watermark))

    def _forget(self, pieces: Iterable[Piece]) -> None:
        """The files stay on the shelf until the next batch: this one may have to be run again."""
        gone = {piece.name for piece in pieces}
        for name in gone:
            self.store.remove(name)
        self.notes.pieces = [piece for piece in self.notes.pieces if piece.name not in gone]

    # What is held.

    def sizes(self, watermark: int) -> dict[str, tuple[int, int, int]]:
        """Per module the rows that are not dead, the bytes of its pieces on disk and their number."""
        found = dict.fromkeys(self.modules, (0, 0, 0))
        for piece in self.notes.pieces:
            module = self.modules[piece.module]
            rows, size, count = found[piece.module]
            found[piece.module] = (rows + piece.rows - self._dead_rows(module, piece, watermark), size + piece.size, count + 1)
        return found

    def _dead_rows(self, module: Module, piece: Piece, watermark: int) -> int:
        """Counted where the shelf has the piece; else, since nothing is fetched for a figure, as if its rows died evenly."""
        if module.death == "hi" and piece.bounds.hi[0] >= watermark:
            return 0
        rows = self.store.shelf.known(piece.name)
        if rows is not None:
            return self.windows.first_alive(module, rows, watermark)
        first, last = piece.bounds.hi
        return 0 if module.death != "hi" else round(piece.rows * min(1.0, (watermark - first) / max(1, last - first)))

    def expires(self) -> int | None:
        """When, in microseconds of event time, the next piece will be dead; None where none will by time alone."""
        return first_death([piece for piece in self.notes.pieces if not self.modules[piece.module].counted])


def first_death(pieces: Sequence[Piece]) -> int | None:
    """When the first of these pieces will be dead; None where none will: tables live for ever."""
    return min((piece.bounds.hi[1] + 1 for piece in pieces if piece.bounds.hi[1] < FOREVER), default=None)

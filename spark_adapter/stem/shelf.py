"""A cell's shelf on the worker's own disk: pieces of its state as files that are mapped, not read, and their indexes.

The store is the truth; what lies here are copies. A name is given once and never again, so a file of that name is that value, whichever
attempt of whichever batch wrote it, and it makes no difference which worker process maps it. Files may vanish at any time: then they are
fetched again. A disk that is full fails the batch, which Spark runs again; nothing is lost by it, since a batch's changes are the store's
only when it ends.

Mapped files take no private memory: what the batch does not touch is not read, and what it has touched is the system's to forget. Every
batch removes what the cell's notes, as they were committed, no longer name; and shelves of cells that have moved to another worker, which
are those that were not used for long while others here were.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import shutil
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from uuid import uuid4

import numpy as np
import polars as pl
import pyarrow as pa

from spark_adapter.stem.index import Index, made

__all__ = ["Shelf", "as_file", "from_file"]

FORGOTTEN = 60.0  # seconds after which a process lets go of the maps of a cell that it no longer works on
ABANDONED = 600.0  # seconds: a shelf that was last used so long before another one is removed, and so are drafts of writers that died
DRAFT = ".draft"
HEADER = 2  # numbers before an index: its bits, and how many entries it has


@dataclass(slots=True)
class _Opened:
    """What this process has mapped of one shelf."""

    frames: dict[str, pl.DataFrame] = field(default_factory=dict)
    indexes: dict[str, Index] = field(default_factory=dict)
    used: float = 0.0


_opened: dict[Path, _Opened] = {}


def as_file(frame: pl.DataFrame) -> bytes:
    """As an Arrow file with strings as polars holds them, so that a map of it needs no copy."""
    buffer = io.BytesIO()
    frame.rechunk().write_ipc(buffer, compression="uncompressed", compat_level=pl.CompatLevel.newest(), record_batch_size=max(1, frame.height))
    return buffer.getvalue()


def from_file(data: bytes) -> pl.DataFrame:
    return _read(pa.py_buffer(data))


class Shelf:
    """The files of one cell."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        now = time.monotonic()
        for other in [place for place, opened in _opened.items() if now - opened.used > FORGOTTEN and place != folder]:
            del _opened[other]
        self._open = _opened.setdefault(folder, _Opened())
        self._open.used = now

    def put(self, name: str, data: bytes) -> None:
        """Write a file. Raises OSError where the disk is full."""
        self._write(name, data)

    def aside(self, data: bytes) -> Path:
        """A file for whoever takes it and removes it. What a task that failed leaves is removed with the cell's next batch."""
        name = uuid4().hex
        self._write(name, data)
        return self.folder / name

    def frame(self, name: str, fetch: Callable[[], bytes]) -> pl.DataFrame:
        """The rows of a piece, mapped; `fetch` gets them where there is no copy here."""
        found = self.known(name)
        if found is None:
            data = fetch()
            self._write(name, data)
            # The copy may be gone again by now.
            found = self.known(name)
            if found is None:
                found = self._open.frames[name] = from_file(data)
        return found

    def known(self, name: str) -> pl.DataFrame | None:
        """The rows in a file of this shelf; None where there is none."""
        found = self._open.frames.get(name)
        if found is None:
            try:
                with pa.memory_map(str(self.folder / name)) as file:
                    found = self._open.frames[name] = _read(file)
            except OSError:
                return None
        return found

    def has_index(self, name: str, columns: tuple[str, ...]) -> bool:
        place = f"{name}.{_named(columns)}"
        return place in self._open.indexes or (self.folder / place).exists()

    def index(self, name: str, columns: tuple[str, ...], rows: pl.DataFrame) -> Index:
        """The index of a piece by these columns: mapped where it was made before, else made and written beside the piece."""
        place = f"{name}.{_named(columns)}"
        found = self._open.indexes.get(place)
        if found is None:
            found = _mapped_index(self.folder / place)
            if found is None:
                fresh = made(rows, columns)
                self._write(
                    place, np.array([fresh.bits, len(fresh.entries)], dtype=np.uint64).tobytes(), fresh.entries.tobytes(), fresh.table.tobytes()
                )
                found = _mapped_index(self.folder / place) or fresh
            self._open.indexes[place] = found
        return found

    def tidy(self, names: Collection[str]) -> None:
        """Remove what the cell no longer names, and what nobody here has used for long."""
        for opened in (self._open.frames, self._open.indexes):
            for name in [name for name in opened if name.split(".")[0] not in names]:
                del opened[name]
        self.folder.mkdir(parents=True, exist_ok=True)
        now = time.time()
        # By our own last use, not by the clock: where batches are hours apart all shelves are old.
        used = now - _age(self.folder, now)
        for file in self.folder.iterdir():
            if file.name.endswith(DRAFT):
                if _age(file, now) > ABANDONED:
                    file.unlink(missing_ok=True)
            elif file.name.split(".")[0] not in names:
                file.unlink(missing_ok=True)
        self.folder.touch()
        for other in self.folder.parent.iterdir():
            if other != self.folder and _age(other, used) > ABANDONED:
                shutil.rmtree(other, ignore_errors=True)

    def size(self) -> int:
        """Bytes of all files, indexes included."""
        total = 0
        for file in self.folder.iterdir() if self.folder.exists() else ():
            with suppress(OSError):  # copies may vanish
                total += file.stat().st_size
        return total

    def _write(self, name: str, *parts: bytes) -> None:
        """All of it or nothing under its name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f"{uuid4().hex}{DRAFT}"
        try:
            with draft.open("wb") as file:
                for part in parts:
                    file.write(part)
            draft.rename(self.folder / name)
        except FileNotFoundError:
            pass  # the folder was removed under our feet: then there is no copy
        except BaseException:
            draft.unlink(missing_ok=True)
            raise


@cache
def _named(columns: tuple[str, ...]) -> str:
    """What the index by these columns is called: column names may hold anything."""
    return hashlib.sha256(chr(0).join(columns).encode()).hexdigest()[:16]


def _age(file: Path, now: float) -> float:
    try:
        return now - file.stat().st_mtime
    except OSError:
        return 0.0


def _read(source: pa.NativeFile | pa.Buffer) -> pl.DataFrame:
    found = pl.from_arrow(pa.ipc.open_file(source).read_all(), rechunk=False)
    assert isinstance(found, pl.DataFrame)
    return found


def _mapped_index(path: Path) -> Index | None:
    try:
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError:
        return None
    bits, count = (int(number) for number in np.frombuffer(data, dtype=np.uint64, count=HEADER))
    entries = np.frombuffer(data, dtype=np.uint64, count=count, offset=8 * HEADER)
    return Index(bits, np.frombuffer(data, dtype=np.uint32, offset=8 * (HEADER + count)), entries)

"""What a checkpoint belongs to: a small document beside Spark's own files, read and written through Spark's file systems.

A plan may go on from a checkpoint whose states are the same as its own; any other checkpoint is refused, and the message says what differs.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from pyspark.sql import SparkSession

from spark_adapter.errors import CheckpointError

__all__ = ["CHECKPOINT_FORMAT", "Folder", "Log", "check_layout", "differences", "of_another_query", "read_manifest", "write_manifest"]

CHECKPOINT_FORMAT = "watersmeet.checkpoint/7"
MANIFEST = "watersmeet.json"
PLURAL = ("columns", "partitions", "predicates", "source columns")


class Folder:
    """A checkpoint's folder on whatever file system it lies."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self.path = path
        self._path = jvm.org.apache.hadoop.fs.Path(path)
        self._files = self._path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())

    def _child(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def make(self) -> None:
        self._files.mkdirs(self._path)

    def names(self, below: str = "") -> list[str]:
        """Of the files in it or in a folder of it, sorted; those that are hidden left out. None where there is no such folder."""
        place = self._child(below) if below else self._path
        if not self._files.exists(place):
            return []
        found = [str(status.getPath().getName()) for status in self._files.listStatus(place)]
        return sorted(name for name in found if not name.startswith((".", "_")))

    def remove(self, name: str) -> None:
        self._files.delete(self._child(name), False)

    def has(self, name: str) -> bool:
        return any(self._files.exists(self._child(place)) for place in (name, _draft(name)))

    def latest(self, name: str) -> int | None:
        """The greatest number that a file of this folder has for its name; None where none has."""
        child = self._child(name)
        names = [str(status.getPath().getName()) for status in self._files.listStatus(child)] if self._files.exists(child) else []
        return max((int(found) for found in names if found.isdecimal()), default=None)

    def read(self, name: str) -> str:
        # A writer that was killed just before the rename leaves a complete draft: use it.
        written = self._child(name)
        stream = self._files.open(written if self._files.exists(written) else self._child(_draft(name)))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace the text in one step: readers see the old text or the new one, never a part."""
        draft = self.draft(name, text)
        target = self._child(name)
        self._files.delete(target, False)
        self._files.rename(draft, target)

    def draft(self, name: str, text: str) -> Any:
        """The text beside where it will be; its path there."""
        draft = self._child(_draft(name))
        stream = self._files.create(draft, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return draft


class Log:
    """A file of lines beside the checkpoint. A local file is added to; elsewhere, where few file systems can do that, it has the last lines."""

    def __init__(self, folder: Folder, name: str, last: int) -> None:
        self._folder, self._name, self._last = folder, name, last
        self._lines: deque[str] | None = None
        self._begun = False

    def add(self, line: str) -> None:
        place = urlparse(self._folder.path)
        if place.scheme in ("", "file"):
            path = Path(place.path) / self._name
            # A writer that was killed may have left half a line: ours begins a new one.
            torn = not self._begun and _torn(path)
            with path.open("a", encoding="utf-8") as file:
                file.write(f"\n{line}\n" if torn else f"{line}\n")
            self._begun = True
            return
        if self._lines is None:
            before = self._folder.read(self._name).splitlines() if self._folder.has(self._name) else []
            self._lines = deque(before, maxlen=self._last)
        self._lines.append(line)
        self._folder.write(self._name, "".join(f"{text}\n" for text in self._lines))


def _torn(path: Path) -> bool:
    """Whether a file ends in the middle of a line."""
    try:
        with path.open("rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


def _draft(name: str) -> str:
    """Beside the file: Spark passes over hidden ones."""
    *parents, own = name.split("/")
    return "/".join([*parents, f".{own}.new"])


def read_manifest(folder: Folder) -> dict[str, Any] | None:
    """The document of a checkpoint; None where there is no checkpoint yet."""
    if not folder.has(MANIFEST):
        if folder.has("offsets"):
            raise CheckpointError([("/checkpoint", "the checkpoint was made by another program; give this pipeline a folder of its own")])
        return None
    try:
        manifest = json.loads(folder.read(MANIFEST))
    except ValueError:
        manifest = None
    if not isinstance(manifest, dict) or manifest.get("format") != CHECKPOINT_FORMAT:
        if not folder.has("offsets"):
            return None  # its first writer was killed half-way; nothing has run here yet
        raise CheckpointError([("/checkpoint", _of_another_version(manifest))])
    return manifest


def _of_another_version(manifest: Any) -> str:
    found = manifest.get("format") if isinstance(manifest, dict) else None
    if not isinstance(found, str):
        return f"{MANIFEST} of the checkpoint cannot be read; use a new folder"
    return (
        f"the checkpoint was made by another version of watersmeet: its format is {found}, this version reads {CHECKPOINT_FORMAT}. "
        "Its states cannot be taken over: use the version that made it, or a new folder, which starts with empty windows"
    )


def write_manifest(folder: Folder, written: Mapping[str, Any]) -> None:
    """`written` has the `engine`, the plan's `fingerprint` and the `layout`; where another plan may take over while it runs, `given` names the
    one that the start was given, and while rows are moved, `rescaling` says where they are going to lie, and from which batch on."""
    document = {"format": CHECKPOINT_FORMAT} | {name: value for name, value in written.items() if value is not None}
    folder.write(MANIFEST, json.dumps(document, indent=1, sort_keys=True) + "\n")


def check_layout(manifest: Mapping[str, Any], engine: str, layout: Mapping[str, Any]) -> None:
    """Refuse a checkpoint whose states are not those of this plan, and say which."""
    if manifest["engine"] != engine:
        raise CheckpointError(
            [("/checkpoint", f"the checkpoint was made by engine {manifest['engine']}, not {engine}; use that engine or a new folder")]
        )
    found = differences(manifest["layout"], layout)
    if found:
        raise of_another_query(found, "plan")


def of_another_query(found: list[str], made_with: str) -> CheckpointError:
    """The refusal of a checkpoint that differs in these ways."""
    reasons = "; ".join(found)
    return CheckpointError(
        [("/checkpoint", f"the checkpoint holds the states of another query: {reasons}. Use a new folder, or the {made_with} it was made with")]
    )


def differences(known: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    """What differs between two layouts, in words."""
    found = []
    before, now = known.get("streams", {}), wanted.get("streams", {})
    for name in sorted({*before, *now}):
        if name not in now:
            found.append(f"it has stream {name}, which this plan has not")
        elif name not in before:
            found.append(f"it has no stream {name}")
        else:
            found += [f"the {what} of {name} {change}" for what, change in _changes(before[name], now[name])]
    found += [f"its {what} {change}" for what, change in _changes(known, wanted) if what != "streams"]
    return found


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What differs, by name."""
    for what in sorted({*before, *now}):
        was, is_ = before.get(what), now.get(what)
        if was != is_:
            yield what, f"{'were' if what in PLURAL else 'was'} {_shown(was)}, now {_shown(is_)}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, Mapping):
        return " ".join(f"{part} {key}" for key, part in value.items())
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)

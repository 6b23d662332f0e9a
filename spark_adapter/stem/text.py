"""Programs as text, and back: what a cell keeps beside its state, and what a change sends to every cell.

JSON, so that a file which somebody else has put into the checkpoint's folder can do no more than be refused. An object with "@" is one of
the program's classes, which no name of a stream can be; lists are tuples.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from spark_adapter.stem.program import Cached, Comparison, Join, Module, Program, Route, Segment, Step, Stream, Table

if TYPE_CHECKING:
    from spark_adapter.stem.tables import Whole

__all__ = ["CHANGE_FORMAT", "TABLE_FORMAT", "digest", "program_from", "text_of", "told"]

CHANGE_FORMAT = "watersmeet.change/1"
TABLE_FORMAT = "watersmeet.table/1"

KINDS = (Cached, Comparison, Join, Module, Program, Route, Segment, Step, Stream, Table)
CLASSES: dict[str, Callable[..., Any]] = {kind.__name__: kind for kind in KINDS}


def text_of(program: Program) -> str:
    return json.dumps(_plain(program), sort_keys=True)


@lru_cache(maxsize=16)
def program_from(text: str) -> Program:
    """The program of a text; the last few are remembered, since a cell reads its own in every batch."""
    found = json.loads(text, object_hook=_made)
    assert isinstance(found, Program)
    return found


def told(data: bytes) -> Program | Whole | None:
    """What a file of the control stream says: another plan, or that a table's version is whole; None where it is not ours."""
    from spark_adapter.stem.tables import Whole

    try:
        found = json.loads(data)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    if found.get("format") == TABLE_FORMAT:
        return Whole(found["table"], found["version"])
    return program_from(found["program"]) if found.get("format") == CHANGE_FORMAT else None


def digest(program: Program) -> str:
    """Names what cells do: the same for two plans whose cells would do the same, whatever their figures, numbers and runs."""
    streams = tuple(replace(stream, delay=None, idle_after=None) for stream in program.streams)
    return hashlib.sha256(text_of(replace(program, streams=streams, number=0, run="", adaptive=False)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {"@": type(value).__name__} | {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _made(found: dict[str, Any]) -> Any:
    kind = found.pop("@", None)
    parts = {key: tuple(value) if isinstance(value, list) else value for key, value in found.items()}
    return parts if kind is None else CLASSES[kind](**parts)

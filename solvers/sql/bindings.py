"""Bindings of a query: what the query says of them, joined to sources that somebody wrote down once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.bindings import BindingsDraft

__all__ = ["completed"]


def completed(draft: BindingsDraft, sources: Mapping[str, Any]) -> dict[str, Any]:
    """The query's bindings as a document. A stream is found in `sources` by its name in the query, or by its table's, which several may share.

    What the query says goes before what `sources` says of columns, conditions and results; a condition in both holds in both.
    Nothing is checked: a stream that `sources` lacks is left without a source.
    """
    given = sources.get("streams")
    known = {name.lower(): one for name, one in given.items() if isinstance(one, dict)} if isinstance(given, dict) else {}
    streams = {}
    for name, stream in draft.streams.items():
        own = known.get(name.lower(), known.get(stream.table.rsplit(".", 1)[-1].strip("`").lower(), {}))
        said = stream.model_dump(exclude_defaults=True)
        where = [text for text in (own.get("where"), stream.where) if text]
        streams[name] = own | said | ({"columns": own.get("columns", {}) | stream.columns} if own.get("columns") or stream.columns else {})
        if where:
            streams[name]["where"] = where[0] if len(where) == 1 else " AND ".join(f"({text})" for text in where)
    return {**sources, "streams": streams, "select": draft.select}

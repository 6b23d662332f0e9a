"""Bindings of a query: what the query says of them, joined to sources that somebody wrote down once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.bindings import BindingsDraft, StreamDraft, TableDraft

__all__ = ["completed"]


def completed(draft: BindingsDraft, sources: Mapping[str, Any]) -> dict[str, Any]:
    """The query's bindings as a document. Streams and tables are found in `sources` by their names in the query, or by their tables', which
    several may share.

    What the query says goes before what `sources` says of columns, conditions and results; a condition in both holds in both.
    Nothing is checked: a stream that `sources` lacks is left without a source.
    """
    tables = _joined(draft.tables, sources.get("tables"))
    document = {**sources, "streams": _joined(draft.streams, sources.get("streams")), "select": draft.select}
    document["tables"] = {name: {key: value for key, value in one.items() if key != "table"} for name, one in tables.items()}
    if not tables:
        document.pop("tables")
    return document


def _joined(drafts: Mapping[str, StreamDraft] | Mapping[str, TableDraft], given: Any) -> dict[str, dict[str, Any]]:
    """What the query says of each, with what was written down of it."""
    known = {name.lower(): one for name, one in given.items() if isinstance(one, dict)} if isinstance(given, dict) else {}
    found = {}
    for name, draft in drafts.items():
        own = known.get(name.lower(), known.get(draft.table.rsplit(".", 1)[-1].strip("`").lower(), {}))
        said = draft.model_dump(exclude_defaults=True)
        where = [text for text in (own.get("where"), draft.where) if text]
        found[name] = own | said | ({"columns": own.get("columns", {}) | draft.columns} if own.get("columns") or draft.columns else {})
        if where:
            found[name]["where"] = where[0] if len(where) == 1 else " AND ".join(f"({text})" for text in where)
    return found

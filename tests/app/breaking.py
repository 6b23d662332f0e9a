"""Whether a document breaks clients generated from an earlier one: `python -m tests.app.breaking RELEASED NEW`.

What a client sends must still be taken, and what it reads must still come. So in requests nothing that was allowed may go: no
field, no enum value, no type, no room within limits, and no new field may be required. In answers nothing that was promised
may go: no field, and none may become optional, null, of another type, or have values it never had. A schema that serves
both ways is held to both. A new value in answers is no break where the document says that it only comes with a request field that earlier
clients do not know. Each break is one sentence. Exit 0: none; 1: some; 2: a document cannot be read.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

__all__ = ["breaks", "main"]

Document = dict[str, Any]
METHODS = ("get", "put", "post", "delete", "patch", "head", "options")
PREFIX = "#/components/schemas/"
# (keyword, whether a larger value allows less)
LIMITS = (
    ("minimum", True),
    ("exclusiveMinimum", True),
    ("minLength", True),
    ("minItems", True),
    ("maximum", False),
    ("exclusiveMaximum", False),
    ("maxLength", False),
    ("maxItems", False),
)


def breaks(released: Document, new: Document) -> list[str]:
    """A sentence for everything that would break a client of the released document."""
    found: dict[str, None] = {}
    for path, methods in released["paths"].items():
        if path not in new["paths"]:
            found[f"{path} is gone"] = None
            continue
        for method in (method for method in METHODS if method in methods):
            if method not in new["paths"][path]:
                found[f"{method.upper()} {path} is gone"] = None
            else:
                found.update(dict.fromkeys(_Comparison(released, new).operation(path, methods[method], new["paths"][path][method])))
    return list(found)


class _Comparison:
    def __init__(self, released: Document, new: Document) -> None:
        self._released, self._new = released, new
        self._seen: set[tuple[str, str, bool]] = set()

    def operation(self, path: str, old: Any, new: Any) -> Iterator[str]:
        if old.get("operationId") != new.get("operationId"):
            yield f"{path}: operationId {old.get('operationId')} is now {new.get('operationId')}: clients name their functions by it"
        before, after = _content(old.get("requestBody", {})), _content(new.get("requestBody", {}))
        yield from self._contents(f"{path} request", before, after, sent=True)
        if new.get("requestBody", {}).get("required") and not old.get("requestBody", {}).get("required"):
            yield f"{path}: a body is now required"
        for status, response in old["responses"].items():
            if status not in new["responses"]:
                yield f"{path}: answer {status} is gone"
            else:
                yield from self._contents(f"{path} answer {status}", _content(response), _content(new["responses"][status]), sent=False)

    def _contents(self, where: str, old: Document, new: Document, sent: bool) -> Iterator[str]:
        for media_type, entry in old.items():
            if media_type not in new:
                yield f"{where}: {media_type} is gone"
            else:
                yield from self._schemas(where, entry.get("schema", {}), new[media_type].get("schema", {}), sent)

    def _schemas(self, where: str, old: Any, new: Any, sent: bool) -> Iterator[str]:
        waiting: list[tuple[str, Any, Any]] = [(where, old, new)]
        while waiting:
            place, before, after = waiting.pop()
            name, renamed = before.get("$ref", ""), after.get("$ref", "")
            if name:
                if (name, renamed, sent) in self._seen:
                    continue
                self._seen.add((name, renamed, sent))
                place = name.removeprefix(PREFIX)
                if renamed != name:
                    yield f"{where}: type {place} is now {renamed.removeprefix(PREFIX) or 'inline'}: clients name their types by it"
            before, after = _resolved(self._released, before), _resolved(self._new, after)
            yield from _types(place, before, after, sent)
            yield from _enums(place, before, after, sent, self._unasked(after))
            if sent:
                yield from _limits(place, before, after)
            yield from _fields(place, before, after, sent)
            properties = after.get("properties", {})
            waiting += [(f"{place}.{key}", value, properties[key]) for key, value in before.get("properties", {}).items() if key in properties]
            for inner in ("items", "additionalProperties"):
                if isinstance(before.get(inner), dict) and isinstance(after.get(inner), dict):
                    waiting.append((place if inner == "additionalProperties" else f"{place}[]", before[inner], after[inner]))
            waiting += [(place, left, right) for left, right in zip(_choices(before), _choices(after), strict=False)]

    def _unasked(self, schema: Any) -> list[str]:
        """Values that only come where a request uses a field which the released document does not have (`x-values-with`: value → Schema.field)."""
        found = []
        for value, field in schema.get("x-values-with", {}).items():
            holder, name = field.split(".")
            if name not in self._released["components"]["schemas"].get(holder, {}).get("properties", {}):
                found.append(value)
        return found


def _content(holder: Any) -> Document:
    content: Document = holder.get("content", {})
    return content


def _resolved(document: Document, schema: Any) -> Any:
    name = schema.get("$ref", "")
    return document["components"]["schemas"].get(name.removeprefix(PREFIX), {}) if name else schema


def _choices(schema: Any) -> list[Any]:
    """The alternatives of a union but null, which has no inside."""
    return [choice for choice in schema.get("anyOf", schema.get("oneOf", [])) if choice.get("type") != "null"]


def _type_names(schema: Any) -> set[str]:
    if "anyOf" in schema or "oneOf" in schema:
        return {str(choice.get("type", choice.get("$ref", "").removeprefix(PREFIX))) for choice in schema.get("anyOf", schema.get("oneOf", []))}
    given = schema.get("type", [])
    return set(given) if isinstance(given, list) else {given}


def _types(place: str, old: Any, new: Any, sent: bool) -> Iterator[str]:
    before, after = _type_names(old), _type_names(new)
    if sent and after:
        taken = after | ({"integer"} if "number" in after else set())
        for gone in sorted(before - taken):
            yield f"{place}: {gone} is no longer taken, only {_listed(after)}"
    if not sent and before:
        known = before | ({"integer"} if "number" in before else set())
        for fresh in sorted(after - known):
            yield f"{place}: may now be {fresh}, which it never was"
    if old.get("format") != new.get("format") and before == after:
        yield f"{place}: format {old.get('format', 'none')} is now {new.get('format', 'none')}"


def _enums(place: str, old: Any, new: Any, sent: bool, unasked: Collection[str] = ()) -> Iterator[str]:
    """`unasked` are new values that no client of the released document can be sent."""
    before = old.get("enum", [old["const"]] if "const" in old else None)
    after = new.get("enum", [new["const"]] if "const" in new else None)
    if sent and after is not None:
        if before is None:
            yield f"{place}: is now limited to {_listed(after)}"
        for gone in sorted(str(value) for value in before or [] if value not in after):
            yield f"{place}: value {gone} is gone"
    if not sent and before is not None:
        if after is None:
            yield f"{place}: may now have any value, not only {_listed(before)}"
        for fresh in sorted(str(value) for value in after or [] if value not in before and value not in unasked):
            yield f"{place}: may now be {fresh}, which it never was"
        for gone in sorted(str(value) for value in before if value not in (after if after is not None else before)):
            yield f"{place}: value {gone} is gone"


def _limits(place: str, old: Any, new: Any) -> Iterator[str]:
    for keyword, rising in LIMITS:
        if keyword not in new:
            continue
        limit = new[keyword]
        if keyword not in old:
            yield f"{place}: {keyword} {limit} is new"
        elif (limit > old[keyword]) if rising else (limit < old[keyword]):
            yield f"{place}: {keyword} {old[keyword]} is now {limit}"
    if "pattern" in new and new["pattern"] != old.get("pattern"):
        yield f"{place}: must now match {new['pattern']}"


def _fields(place: str, old: Any, new: Any, sent: bool) -> Iterator[str]:
    before, after = old.get("properties", {}), new.get("properties", {})
    if before or after:
        for gone in sorted(before.keys() - after.keys()):
            yield f"{place}.{gone} is gone"
    was, now = set(old.get("required", [])), set(new.get("required", []))
    if sent:
        for fresh in sorted(now - was):
            yield f"{place}.{fresh} is now required"
        if old.get("additionalProperties", True) is not False and new.get("additionalProperties", True) is False:
            yield f"{place}: other fields are no longer taken"
    else:
        for lost in sorted((was - now) & after.keys()):
            yield f"{place}.{lost} may now be missing"


def _listed(values: Any) -> str:
    return ", ".join(sorted(map(str, values)))


def main(argv: Sequence[str]) -> int:
    """Compare two files; every break on standard error."""
    try:
        released, new = (json.loads(Path(name).read_text(encoding="utf-8")) for name in argv)
        found = breaks(released, new)
    except (OSError, ValueError, KeyError) as failure:
        sys.stderr.write(f"usage: python -m tests.app.breaking RELEASED NEW: {failure}\n")
        return 2
    for sentence in found:
        sys.stderr.write(f"{sentence}\n")
    if found:
        sys.stderr.write(f"{len(found)} breaking change{'s' if len(found) > 1 else ''}; make them compatible, or release a new version of the API\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

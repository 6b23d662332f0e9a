"""Every fault of a request at once, each as one sentence with a JSON pointer.

pydantic checks fields; what spans fields (a predicate on an unknown stream, a name used twice) is checked here
on the raw input, so that one answer reports both kinds even when some field is malformed. `with_faults` is the
wrap validator that merges the two; `errors_of` turns a ValidationError into pointers and sentences.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = [
    "MAX_STREAMS",
    "Fault",
    "check_operators",
    "check_plans",
    "check_query",
    "check_same_query",
    "check_shares",
    "condition",
    "errors_of",
    "pointer",
    "shortened",
    "with_faults",
]

T = TypeVar("T")
Location = tuple[str | int, ...]
Fault = tuple[Location, str]

MAX_STREAMS = 200  # the contract's limit, of streams alone and of streams and tables together
SHOWN = 60  # characters of what was given, in a sentence about it
MAX_FAULTS = 100  # nobody mends more at a time, and a body of garbage must not become a megabyte of answer


def pointer(location: Location) -> str:
    """The JSON pointer (RFC 6901) of a pydantic location.

    >>> pointer(("query", "streams", 0, "a/b"))
    '/query/streams/0/a~1b'
    """
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in location if part != "[key]")


def with_faults(title: str, data: Any, handler: Callable[[Any], T], check: Callable[[Any], Iterator[Fault]]) -> T:
    """Validate `data` by `handler` and by `check`, and raise the faults of both together."""
    errors: list[InitErrorDetails] = []
    value: T | None = None
    try:
        value = handler(data)
    except ValidationError as failure:
        for error in islice(failure.errors(include_url=False), MAX_FAULTS):
            kind = PydanticCustomError(error["type"], "{message}", {"message": error["msg"], **error.get("ctx", {})})
            errors.append(InitErrorDetails(type=kind, loc=error["loc"], input=error["input"]))
    if not isinstance(data, BaseModel):
        for location, message in islice(check(data), MAX_FAULTS):
            fault = PydanticCustomError("fault", "{message}", {"message": message})
            errors.append(InitErrorDetails(type=fault, loc=location, input=None))
    if errors:
        raise ValidationError.from_exception_data(title, errors[:MAX_FAULTS])
    assert value is not None
    return value


def _get(item: Any, key: str) -> Any:
    """A field of a JSON object or of a model; None where the input is not what it should be."""
    if type(item) is dict or isinstance(item, Mapping):  # asking a dict for more than its type takes ten times as long
        return item.get(key)
    return getattr(item, key, None) if isinstance(item, BaseModel) else None


def _items(item: Any, key: str) -> Sequence[Any]:
    value = _get(item, key)
    return value if isinstance(value, (list, tuple)) else ()


def _stream_of(reference: Any) -> str | None:
    return reference.split(".", 1)[0] if isinstance(reference, str) and "." in reference else None


def _known(names: Sequence[str]) -> str:
    shown = ", ".join(sorted(names)[:8])
    return shown + (", …" if len(names) > 8 else "")


def check_query(query: Any) -> Iterator[Fault]:
    """What spans the fields of a query: names, references, windows, accesses, sets."""
    known: dict[str, Any] = {}
    places: dict[str, str] = {}
    for kind in ("streams", "tables"):
        for i, entry in enumerate(_items(query, kind)):
            name = _get(entry, "name")
            if isinstance(name, str):
                if name in known:
                    yield (kind, i, "name"), f"{kind[:-1]} name {name!r} is taken by /query/{places[name]}; names must be unique"
                known.setdefault(name, entry)
                places.setdefault(name, f"{kind}/{i}")
            yield from _check_windows(i, entry) if kind == "streams" else _check_accesses(i, entry)
    if _items(query, "tables") and len(known) > MAX_STREAMS:
        yield ("tables",), f"streams and tables are at most {MAX_STREAMS} together, got {len(known)}"
    for i, predicate in enumerate(_items(query, "predicates")):
        yield from _check_predicate(i, predicate, known)
    yield from _check_observed(query, known)


def _check_observed(query: Any, known: dict[str, Any]) -> Iterator[Fault]:
    seen: dict[frozenset[str], int] = {}
    for i, observed in enumerate(_items(query, "observed")):
        members = [name for name in _items(observed, "streams") if isinstance(name, str)]
        key = frozenset(members)
        named: set[str] = set()
        # Nearly always all is well, and there may be tens of thousands of sets.
        for j, name in enumerate(members if len(key) < len(members) or not key <= known.keys() else ()):
            if name not in known:
                yield ("observed", i, "streams", j), f"observed names stream {name!r}, which is not in the query; known: {_known(list(known))}"
            elif name in named:
                yield ("observed", i, "streams", j), f"observed names stream {name!r} twice; a set names each stream once"
            named.add(name)
        if key in seen:
            yield ("observed", i, "streams"), f"this set is observed already by /query/observed/{seen[key]}; give each set once"
        seen.setdefault(key, i)


def _check_accesses(i: int, table: Any) -> Iterator[Fault]:
    """Whether every offer of a table says what its kind needs, and each is there once."""
    seen: dict[tuple[str, ...], int] = {}
    for j, access in enumerate(_items(table, "access")):
        kind, bound = _get(access, "kind"), [str(name) for name in _items(access, "bound")]
        place: Location = ("tables", i, "access", j)
        if kind == "scan":
            given = [field for field in ("bound", "cpu", "seconds", "keys") if _get(access, field) not in (None, [])]
            if given:
                yield place, f"a scan has no {' and no '.join(given)}: those are an index's"
        elif kind == "index":
            if not bound:
                yield (*place, "bound"), "an index needs bound: the attributes that it is asked by"
            if len(set(bound)) < len(bound):
                yield (*place, "bound"), f"bound names each attribute once, got {', '.join(bound)}"
            if _get(access, "cpu") is None:
                yield (*place, "cpu"), "an index needs cpu: the CPU-seconds of asking for one key"
        said = (str(kind), *sorted(bound))
        if said in seen:
            yield place, f"this access is offered already by /query/tables/{i}/access/{seen[said]}; give each once"
        seen.setdefault(said, j)


def _check_windows(i: int, stream: Any) -> Iterator[Fault]:
    window, freshness = _get(stream, "window"), _get(stream, "freshness")
    if freshness is None and type(window) is dict and len(window) == 1 and (window.get("seconds") or window.get("rows")) is not None:
        return  # as nearly always: one length
    for field, value in (("window", window), ("freshness", freshness)):
        if isinstance(value, (Mapping, BaseModel)):
            given = [kind for kind in ("seconds", "rows") if _get(value, kind) is not None]
            if len(given) != 1:
                yield ("streams", i, field), f"{field} needs exactly one of seconds and rows, got {' and '.join(given) or 'neither'}"
    for kind in ("seconds", "rows"):
        length, tolerance = _get(window, kind), _get(freshness, kind)
        if _is_real(length) and freshness is not None and tolerance is None and _get(freshness, "seconds" if kind == "rows" else "rows") is not None:
            yield ("streams", i, "freshness"), f"freshness must be in {kind}, like the window"
        if _is_real(length) and _is_real(tolerance) and tolerance < length:
            yield ("streams", i, "freshness", kind), f"freshness must be at least the window, {length} {kind}, got {tolerance}"


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _check_predicate(i: int, predicate: Any, known: dict[str, Any]) -> Iterator[Fault]:
    left, right = _stream_of(_get(predicate, "left")), _stream_of(_get(predicate, "right"))
    for side, name in (("left", left), ("right", right)):
        if name is not None and name not in known:
            yield ("predicates", i, side), f"{side} names stream {name!r}, which is not in the query; known: {_known(list(known))}"
    if left is not None and left == right:
        yield ("predicates", i), f"a predicate joins two different streams; both sides are on {left!r} (name the stream twice for a self-join)"
        return
    if _get(predicate, "selectivity") is None and isinstance(predicate, (Mapping, BaseModel)):
        op = _get(predicate, "op")
        if op not in (None, "="):
            yield ("predicates", i, "selectivity"), f"selectivity is required for {op!r}: only '=' can be estimated from distinct"
        elif left in known and right in known:
            unknown = []
            for side, name in (("left", left), ("right", right)):
                attribute = str(_get(predicate, side)).split(".", 1)[1]
                if not _is_real(_get(_get(known[name or ""], "distinct"), attribute)):
                    unknown.append(f"{name}.{attribute}")
            if unknown:
                yield ("predicates", i, "selectivity"), f"selectivity is required, or distinct for {' and '.join(unknown)}"


def check_operators(request: Any) -> Iterator[Fault]:
    """Whether the operators of an estimate form one join tree of the query's streams and tables, with whole probe orders."""
    query = _get(request, "query")
    streams, tables = ([name for entry in _items(query, kind) if isinstance(name := _get(entry, "name"), str)] for kind in ("streams", "tables"))
    names = {*streams, *tables}
    operators = _items(request, "operators")
    free, seen = dict.fromkeys(sorted(names)), set(names)
    for i, operator in enumerate(operators):
        identifier, inputs = _get(operator, "id"), [name for name in _items(operator, "inputs") if isinstance(name, str)]
        if isinstance(identifier, str) and identifier in seen:
            yield ("operators", i, "id"), f"id {identifier!r} is taken by a stream or an operator before it; ids must be unique"
        for j, name in enumerate(inputs):
            if name not in seen:
                yield ("operators", i, "inputs", j), f"input {name!r} is neither a stream nor an operator before this one"
            elif name not in free:
                yield ("operators", i, "inputs", j), f"input {name!r} is joined already; a join tree uses each once"
            free.pop(name, None)
        if inputs and set(inputs) <= set(tables):
            yield ("operators", i, "inputs"), f"an operator joins at least one stream, not tables alone: {_known(inputs)}"
        yield from _check_orders(i, operator, inputs, tables)
        if isinstance(identifier, str):
            seen.add(identifier)
            free[identifier] = None
    if operators and len(free) > 1:
        yield ("operators",), f"the last operator must be the root, but these are joined by none: {_known(list(free))}"
    if not operators and len(names) > 1:
        yield ("operators",), "operators must join all streams, got none"
    yield from _check_reached(request, _items(query, "tables"))


def _check_reached(request: Any, tables: Sequence[Any]) -> Iterator[Fault]:
    """Whether the accesses that a plan or an estimate names are offered by the query's tables."""
    offers = {str(_get(table, "name")): _items(table, "access") or [{"kind": "scan"}] for table in tables}
    seen: set[str] = set()
    for i, reached in enumerate(_items(request, "tables")):
        name, kind, bound = _get(reached, "name"), _get(reached, "access"), [str(attribute) for attribute in _items(reached, "bound")]
        if not isinstance(name, str) or not isinstance(kind, str):
            continue
        if name not in offers or name in seen:
            yield ("tables", i, "name"), f"{name!r} must be a table of the query, each once; its tables are {_known(list(offers)) or 'none'}"
        elif (kind, sorted(bound)) not in [(_get(offer, "kind"), sorted(map(str, _items(offer, "bound")))) for offer in offers[name]]:
            asked = f" by {', '.join(bound)}" if bound else ""
            yield ("tables", i, "access"), f"{name!r} offers no {kind}{asked}"
        seen.add(name)


def check_plans(*names: str) -> Callable[[Any], Iterator[Fault]]:
    """A check of the plans in these fields: whether the operators of each form one join tree of its own query."""

    def check(holder: Any) -> Iterator[Fault]:
        for name in names:
            for location, sentence in check_operators(_get(holder, name)):
                yield (name, *location), sentence

    return check


def _at(data: Any, location: Location) -> Any:
    for part in location:
        data = _get(data, str(part))
    return data


def check_same_query(data: Any, one: Location, other: Location) -> Iterator[Fault]:
    """Whether the query at `other`, where there is one, has the streams, windows and predicates of the query at `one`; statistics may differ."""
    before, after = _at(data, one), _at(data, other)
    if not isinstance(before, (Mapping, BaseModel)) or not isinstance(after, (Mapping, BaseModel)):
        return
    known = {name: stream for stream in _items(before, "streams") if isinstance(name := _get(stream, "name"), str)}
    found: set[str] = set()
    for i, stream in enumerate(_items(after, "streams")):
        name = _get(stream, "name")
        if not isinstance(name, str):
            continue
        found.add(name)
        if name not in known:
            yield (*other, "streams", i, "name"), f"stream {name!r} is not in the running plan; its streams are {_known(list(known))}"
        elif (is_now := _length(stream)) != (was := _length(known[name])):
            yield (*other, "streams", i, "window"), f"the window of {name!r} must be that of the running plan, {was}, got {is_now}"
    for name in known:
        if name not in found:
            yield (*other, "streams"), f"stream {name!r} of the running plan is missing"
    yield from _check_same_tables(before, after, other)
    left = Counter(map(condition, _items(before, "predicates")))
    for i, predicate in enumerate(_items(after, "predicates")):
        said = condition(predicate)
        if not left[said]:
            yield (*other, "predicates", i), f"predicate {said} is not in the running plan"
        left[said] -= 1
    for said, times in left.items():
        if times > 0:
            yield (*other, "predicates"), f"predicate {said} of the running plan is missing"


def _check_same_tables(before: Any, after: Any, other: Location) -> Iterator[Fault]:
    known, found = ([str(_get(table, "name")) for table in _items(query, "tables")] for query in (before, after))
    for i, name in enumerate(found):
        if name not in known:
            yield (*other, "tables", i, "name"), f"table {name!r} is not in the running plan; its tables are {_known(known) or 'none'}"
    for name in known:
        if name not in found:
            yield (*other, "tables"), f"table {name!r} of the running plan is missing"


def _length(stream: Any) -> str:
    """A window in words; a number is spelt alike whether it is whole or not."""
    given = [(kind, _get(_get(stream, "window"), kind)) for kind in ("seconds", "rows")]
    return " and ".join(f"{float(length):.15g} {kind}" for kind, length in given if _is_real(length) and abs(length) < 1e300) or "none"


_MIRRORED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def condition(predicate: Any) -> str:
    """A predicate without its selectivity, the same for a < b and b > a."""
    left, right = str(_get(predicate, "left")), str(_get(predicate, "right"))
    op = str(_get(predicate, "op") or "=")
    return f"{left} {op} {right}" if left <= right or op not in _MIRRORED else f"{right} {_MIRRORED[op]} {left}"


def check_shares(data: Any, query: Location, allocation: Location) -> Iterator[Fault]:
    """Whether an allocation, where there is one, gives a share to every stream of the query."""
    given = _at(data, allocation)
    if not isinstance(given, (Mapping, BaseModel)):
        return
    names = sorted(name for stream in _items(_at(data, query), "streams") if isinstance(name := _get(stream, "name"), str))
    shared = sorted(name for entry in _items(given, "streams") if isinstance(name := _get(entry, "stream"), str))
    if shared != names:
        yield (*allocation, "streams"), f"an allocation gives each stream of the plan one share: {_known(names)}"


def _check_orders(i: int, operator: Any, inputs: list[str], tables: Sequence[str]) -> Iterator[Fault]:
    given: set[str] = set()
    for j, pipeline in enumerate(_items(operator, "pipelines")):
        name = _get(pipeline, "input")
        if name in tables:
            yield ("operators", i, "pipelines", j, "input"), f"{name!r} is a table: it is probed, and has no pipeline"
            continue
        if name not in inputs or name in given:
            yield ("operators", i, "pipelines", j, "input"), f"a pipeline's input must be one of the operator's inputs, each once: {_known(inputs)}"
            continue
        given.add(name)
        targets = [str(_get(probe, "target")) for probe in _items(pipeline, "probes")]
        others = [other for other in inputs if other != name]
        if sorted(targets) != sorted(others):
            yield ("operators", i, "pipelines", j, "probes"), f"the probes of {name!r} must visit every other input once: {_known(others)}"


# pydantic's error types in this project's words; {…} are the error's own figures.
_SENTENCES = {
    "missing": "is required",
    "number": "must be a number",
    "whole": "must be a whole number",
    "finite_number": "must be a finite number",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "needs at least {min_length} of them",
    "too_long": "takes at most {max_length} of them",
    "string_too_long": "takes at most {max_length} characters",
    "string_too_short": "needs at least {min_length} characters",
    "string_type": "must be text",
    "list_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "bool_type": "must be true or false",
    "enum": "must be one of {expected}",
    "literal_error": "must be one of {expected}",
}
_PATTERNS = {
    r"^[A-Za-z_][A-Za-z0-9_]{0,62}$": "must be a name: a letter or _, then up to 62 letters, digits or _",
    r"^[A-Za-z_][A-Za-z0-9_]{0,62}\.[A-Za-z_][A-Za-z0-9_]{0,62}$": "must be stream.attribute",
}


def errors_of(failure: ValidationError, model: type[BaseModel]) -> list[tuple[str, str]]:
    """(pointer, sentence) for every fault, in the order of the document."""
    result: dict[tuple[str, str], None] = {}
    for error in failure.errors(include_url=False)[:MAX_FAULTS]:
        location: Location = error["loc"]
        result[(pointer(location), _sentence(dict(error), location, model))] = None
    return list(result)


def _sentence(error: dict[str, Any], location: Location, model: type[BaseModel]) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "fault":
        return str(error["msg"])
    field = next((str(part) for part in reversed(location) if isinstance(part, str) and part != "[key]"), "the body")
    if location and isinstance(location[-1], int):
        field = f"{field}[{location[-1]}]"
    if kind == "extra_forbidden":
        return _unknown_field(field, _fields_at(model, location[:-1]))
    if kind == "string_pattern_mismatch":
        text = _PATTERNS.get(context.get("pattern", ""), "must match {pattern}")
    else:
        text = _SENTENCES.get(kind, str(error["msg"]))
    for key, value in context.items():
        text = text.replace("{" + key + "}", str(value))
    return f"{field} {text}" + ("" if kind in ("missing", "too_short", "too_long") else _got(error.get("input")))


def shortened(text: str) -> str:
    """The text, or as much of it as a sentence has room for."""
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "…"


def _got(value: Any) -> str:
    if isinstance(value, (Mapping, list, tuple)):
        return f", got {'an object' if isinstance(value, Mapping) else 'an array'}"
    if value is None or isinstance(value, bool):
        return f", got {'null' if value is None else str(value).lower()}"
    if isinstance(value, int) and value.bit_length() > 1024:
        return ", got a number beyond 1e308"  # Python refuses to write out integers of thousands of digits
    shown = repr(value) if isinstance(value, str) else str(value)
    return f", got {shortened(shown)}"


def _unknown_field(field: str, known: list[str]) -> str:
    shown = shortened(field)
    close = difflib.get_close_matches(field[:80], known, n=1)
    if close:
        return f"{shown} is not a known field; did you mean {close[0]}?"
    return f"{shown} is not a known field" + (f"; known: {', '.join(known)}" if known else "")


def _fields_at(model: type[BaseModel], location: Location) -> list[str]:
    """The field names of the model that a location lies in."""
    current: Any = model
    for part in location:
        if isinstance(part, int):
            continue
        inner = _model_in(current)
        if inner is None or part not in inner.model_fields:
            return []
        current = inner.model_fields[part].annotation
    inner = _model_in(current)
    return list(inner.model_fields) if inner else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model inside list[X], X | None, Annotated[X, …] or X itself."""
    waiting = [annotation]
    while waiting:
        current = waiting.pop()
        if isinstance(current, type) and issubclass(current, BaseModel):
            return current
        waiting.extend(get_args(current))
    return None

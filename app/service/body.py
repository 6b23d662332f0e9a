"""From bytes to a validated model, strictly: the same for a request body over HTTP and a file on the command line.

Text is UTF-8. A key given twice, NaN, Infinity and 1e999, integers of thousands of digits and half a surrogate pair are
refused with a pointer to where they are, and whatever cannot be read at all with the pointer "" (the whole body).
JSON takes one pass; the places of what is refused are only looked for once something is. YAML is read by the rules
of YAML 1.2's core schema, under which `1e-6` is a number and `=`, `no` and `2026-11-16` are text. ruamel.yaml knows these rules, which would save
`_CoreLoader`; but it stops at the first key given twice and follows aliases without end, so the walk over nodes, the larger part, would stay.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from models.faults import Location, errors_of, pointer, shortened

__all__ = ["BodyError", "decode_json", "decode_yaml", "read"]

M = TypeVar("M", bound=BaseModel)

MAX_NODES = 1_000_000  # a YAML file of a few lines can stand for billions of nodes by its aliases
MAX_DEPTH = 100  # a request has ten levels; an alias can lead back to itself
# Only such a number can be beyond the range of a double: an exponent of three digits, or very many digits.
MAY_OVERFLOW = re.compile(r"[eE]\+?[0-9]{3}|[0-9]{200}")
MAX_REFUSED = 100  # like MAX_FAULTS: nobody mends more at a time


class BodyError(Exception):
    """A body that is not a request: (pointer, sentence) for every fault found."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{where}: {what}" if where else what for where, what in errors))
        self.errors = errors


def read(model: type[M], data: bytes, decode: Callable[[bytes], Any] | None = None) -> M:
    """The model that the bytes hold. Raises BodyError with every fault."""
    value = (decode or decode_json)(data)
    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise BodyError(errors_of(failure, model)) from None


class _Refused:
    """Stands in the decoded value where the text has something that JSON has no place for."""

    def __init__(self, sentence: str) -> None:
        self.sentence = sentence


class _Twice(dict[str, Any]):
    """An object of which some keys were given more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.keys_twice = [key for key, times in Counter(key for key, _ in pairs).items() if times > 1]


def decode_json(data: bytes) -> Any:
    """The value of a JSON text. Raises BodyError."""
    text = _text(data)
    suspicious = "\\ud" in text or "\\uD" in text or MAY_OVERFLOW.search(text) is not None

    def pairs_hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal suspicious
        result = dict(pairs)
        if len(result) == len(pairs):
            return result
        suspicious = True
        return _Twice(pairs)

    def constant_hook(name: str) -> _Refused:
        nonlocal suspicious
        suspicious = True
        return _Refused(f"{name} is not a JSON number; every figure must be finite")

    def integer_hook(digits: str) -> int | _Refused:
        try:
            return int(digits)
        except ValueError:
            return _Refused(f"an integer of {len(digits)} digits is beyond the range of numbers; it must be below 1e308")

    try:
        value = _loaded(text, object_pairs_hook=pairs_hook, parse_constant=constant_hook)
    except ValueError:
        # Python refuses to read integers of thousands of digits, and does not say where they are.
        value = _loaded(text, object_pairs_hook=pairs_hook, parse_constant=constant_hook, parse_int=integer_hook)
        suspicious = True
    if suspicious:
        _check(value)
    return value


def _loaded(text: str, **hooks: Any) -> Any:
    try:
        return json.loads(text, **hooks)
    except json.JSONDecodeError as failure:
        _refuse(f"the body is not JSON: {failure.msg[:1].lower()}{failure.msg[1:]}, at line {failure.lineno} column {failure.colno}")
    except RecursionError:
        _refuse("the body is nested too deeply")


def _text(data: bytes) -> str:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as failure:
        _refuse(f"the body must be UTF-8; byte {failure.start} is not")
    if text.startswith("\ufeff"):
        _refuse("the body must be UTF-8 without a byte order mark")
    if not text.strip():
        _refuse("the body is empty; it must be a JSON object")
    return text


def _refuse(sentence: str) -> NoReturn:
    raise BodyError([("", sentence)])


def _check(value: Any) -> None:
    """Refuse what the decoder marked, and text that is not Unicode."""
    errors: list[tuple[str, str]] = []
    waiting: list[tuple[Location, Any]] = [((), value)]
    while waiting and len(errors) < MAX_REFUSED:
        location, item = waiting.pop()
        if isinstance(item, _Refused):
            errors.append((pointer(location), item.sentence))
        elif isinstance(item, float) and not math.isfinite(item):
            errors.append((pointer(location), "the number is beyond the range of numbers; it must be below 1e308"))
        elif isinstance(item, str) and not _is_unicode(item):
            errors.append((pointer(location), "text must be Unicode; this has half a surrogate pair"))
        elif isinstance(item, dict):
            if not all(map(_is_unicode, item)):
                errors.append((pointer(location), "keys must be Unicode; one here has half a surrogate pair"))
                continue
            for key in item.keys_twice if isinstance(item, _Twice) else ():
                errors.append((pointer((*location, key)), f"key {_short(key)} is given more than once; give it once"))
            waiting.extend(reversed([((*location, key), child) for key, child in item.items()]))
        elif isinstance(item, list):
            waiting.extend(reversed([((*location, i), child) for i, child in enumerate(item)]))
    if errors:
        raise BodyError(errors)


def _is_unicode(text: Any) -> bool:
    try:
        str(text).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _short(text: str) -> str:
    return repr(shortened(text))


class _CoreLoader(yaml.SafeLoader):
    """YAML 1.2's core schema instead of YAML 1.1's."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 (so declared by PyYAML)


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
):
    _CoreLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^(?:{_pattern})$"), _first)


def _construct_int(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> int:
    return int(loader.construct_scalar(node))  # "010" is ten: YAML 1.1 would read it as eight


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(loader.construct_scalar(node))


_CoreLoader.add_constructor("tag:yaml.org,2002:int", _construct_int)
_CoreLoader.add_constructor("tag:yaml.org,2002:float", _construct_float)


def decode_yaml(data: bytes) -> Any:
    """The value of a YAML text of one document. Raises BodyError."""
    text = _text(data)
    try:
        loader = _CoreLoader(text)
        node = loader.get_single_node()
        if node is None:
            _refuse("the file is empty; it must hold a request")
        _check_nodes(node)
        value = loader.construct_document(node)
    except yaml.MarkedYAMLError as failure:
        mark = failure.problem_mark
        place = f", at line {mark.line + 1} column {mark.column + 1}" if mark else ""
        _refuse(f"the file is not YAML: {failure.problem}{place}")
    except yaml.YAMLError as failure:
        _refuse(f"the file is not YAML: {str(failure).splitlines()[0]}")
    except RecursionError:
        _refuse("the file is nested too deeply")
    except ValueError as failure:
        _refuse(f"the file has a value that cannot be read: {failure}")
    _check(value)
    return value


def _check_nodes(root: yaml.Node) -> None:
    """Refuse keys given twice, keys that are not text, and aliases that multiply without end."""
    errors: list[tuple[str, str]] = []
    waiting: list[tuple[Location, yaml.Node]] = [((), root)]
    seen = 0
    while waiting and len(errors) < MAX_REFUSED:
        location, node = waiting.pop()
        seen += 1
        if seen > MAX_NODES:
            _refuse("the file's aliases stand for too much; write it out")
        if len(location) > MAX_DEPTH:
            _refuse("the file is nested too deeply")
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(reversed([((*location, i), child) for i, child in enumerate(node.value)]))
        elif isinstance(node, yaml.MappingNode):
            keys: set[str] = set()
            children: list[tuple[Location, yaml.Node]] = []
            for key, child in node.value:
                if key.tag == "tag:yaml.org,2002:merge":
                    children.append((location, child))
                elif key.tag != "tag:yaml.org,2002:str" or not isinstance(key, yaml.ScalarNode):
                    errors.append((pointer(location), f"keys must be text; quote the one at line {key.start_mark.line + 1}"))
                elif key.value in keys:
                    errors.append((pointer((*location, key.value)), f"key {_short(key.value)} is given more than once; give it once"))
                else:
                    keys.add(key.value)
                    children.append(((*location, key.value), child))
            waiting.extend(reversed(children))
    if errors:
        raise BodyError(errors)

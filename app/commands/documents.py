"""Requests and plans from files, as JSON or YAML; requests as SQL too."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from app.commands.terminal import RefusedError, fault

if TYPE_CHECKING:
    from pydantic import BaseModel

    from models.plan import Plan
    from models.request import PlanRequest

__all__ = ["read_plan", "read_request", "read_value", "validate"]

M = TypeVar("M", bound="BaseModel")


def read_value(name: str) -> Any:
    """The JSON or YAML value of a file; `-` is standard input."""
    from app.service.body import BodyError, decode_json, decode_yaml

    try:
        data = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    except OSError as failure:
        raise RefusedError(f"{name}: {failure.strerror or failure}") from None
    as_yaml = name.endswith((".yaml", ".yml")) or (name == "-" and not data.lstrip().startswith(b"{"))
    try:
        return decode_yaml(data) if as_yaml else decode_json(data)
    except BodyError as bad:
        raise RefusedError(f"{name}:", *(fault(where, what) for where, what in bad.errors)) from None


def validate(model: type[M], value: Any, name: str) -> M:
    """The value as a model, or every fault of it."""
    from pydantic import ValidationError

    from models.faults import errors_of

    try:
        return model.model_validate(value)
    except ValidationError as failure:
        raise RefusedError(f"{name}:", *(fault(where, what) for where, what in errors_of(failure, model))) from None


def read_request(arguments: argparse.Namespace) -> PlanRequest:
    from models.request import PlanRequest

    if arguments.file.endswith(".sql"):
        from app.commands.queries import read_meaning

        value = read_meaning(arguments).request.model_dump(mode="json")
    else:
        value = read_value(arguments.file)
    if isinstance(value, dict) and value.get("format") is not None:
        # A plan stands on its own: its request can be planned again.
        value = {key: value[key] for key in ("query", "resources", "costs", "objective") if key in value}
    options = {key: getattr(arguments, key) for key in ("method", "time_limit") if getattr(arguments, key, None) is not None}
    if options and isinstance(value, dict):
        given = value.get("options")
        value = {**value, "options": {**(given if isinstance(given, dict) else {}), **options}}
    return validate(PlanRequest, value, arguments.file)


def read_plan(name: str) -> Plan:
    from models.plan import Plan

    value = read_value(name)
    if not isinstance(value, dict) or "format" not in value:
        raise RefusedError(f"{name}: this is not a plan (it has no format); make one with: watersmeet plan {name}")
    return validate(Plan, value, name)

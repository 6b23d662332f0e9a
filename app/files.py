"""Files that come with the program, wherever it is installed: in a checkout `openapi/` stands beside the packages, in a wheel inside this one."""

from __future__ import annotations

from pathlib import Path

__all__ = ["EXAMPLES"]

_HERE = Path(__file__).resolve().parent
_DOCUMENTS = _HERE / "openapi" if (_HERE / "openapi").is_dir() else _HERE.parent / "openapi"

EXAMPLES = _DOCUMENTS / "examples"
"""Requests, and SQL queries with their statistics."""

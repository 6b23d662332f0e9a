"""Errors on the wire: application/problem+json, RFC 9457 (contract §4)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.base import Model

__all__ = ["Problem", "ProblemError"]


class ProblemError(Model):
    """One fault of a request."""

    pointer: Annotated[str, Field(examples=["/query/streams/0/rate"])]
    """JSON pointer to the faulty part; empty for the whole body."""
    detail: Annotated[str, Field(examples=["rate must be greater than 0, got -5"])]
    """What is wrong and what would be right."""


class Problem(Model):
    """Why a request was not answered."""

    type: Annotated[str, Field(examples=["about:blank"])]
    """What kind of problem this is, as a URI reference."""
    title: Annotated[str, Field(examples=["Unprocessable Content"])]
    """The kind of problem in words."""
    status: Annotated[int, Field(examples=[422])]
    """The HTTP status."""
    detail: Annotated[str, Field(examples=["The request has 1 fault."])]
    """What happened this time."""
    errors: list[ProblemError] = []
    """Every fault found, for bad input."""

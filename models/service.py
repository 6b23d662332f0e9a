"""What the service says of itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from models.base import Model

__all__ = ["Health", "Readiness"]


class Health(Model):
    """The service is up and its event loop turns."""

    status: Annotated[Literal["ok"], Field(examples=["ok"])]
    """Always ok: a service that is not does not answer."""


class Readiness(Model):
    """Every worker is warm: requests are answered at once."""

    status: Annotated[Literal["ready"], Field(examples=["ready"])]
    """Always ready: while workers warm up, the answer is a problem."""
    workers: Annotated[int, Field(examples=[2])]
    """Workers that are up and warm."""
    version: Annotated[str, Field(examples=["0.1.0"])]
    """The version of Watersmeet that answers."""

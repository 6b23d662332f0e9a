"""How a search is going, on the wire: the events of a stream (`Accept: text/event-stream`) before its answer."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from models.base import Flag, Model, Number

__all__ = ["Incumbent"]


class Incumbent(Model):
    """The best plan so far of a search that is going on, and what is proven of it by now."""

    cpu: Annotated[Number, Field(examples=[0.43])]
    """CPU-seconds per second of the best plan so far."""
    memory_bytes: Annotated[Number, Field(examples=[1.2e8])]
    """Bytes of the best plan so far."""
    qualified: Annotated[Flag, Field(examples=[True])]
    """Whether it is within the caps."""
    bound: Annotated[Number | None, Field(examples=[0.412])]
    """A proven bound of the objective, as in a plan; null where nothing is proven yet."""
    gap: Annotated[Number | None, Field(examples=[0.042])]
    """(value − bound) / value of the objective, as in a plan; null where there is no bound."""
    points: Annotated[int, Field(examples=[3])]
    """Plans found so far that no other one found beats in both resources."""
    seconds: Annotated[Number, Field(examples=[0.8])]
    """Seconds since the search began."""
    step: Annotated[str, Field(examples=["proving: 1200 of 43000 connected sets"])]
    """What the search is doing, for a person."""

"""What every wire model shares: unknown fields refused, numbers that are numbers.

JSON has one kind of number and pydantic is generous about what it takes for one: `true` passes for 1 and
"5" for 5. A planner that takes a quoted rate for a rate hides a caller's bug, so `Number` and `Whole`
refuse both, and `Flag` takes true and false alone. Whole models are not made strict, because that refuses valid enum values as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import PydanticCustomError

__all__ = ["Flag", "Identifier", "Model", "NonNegative", "Number", "Positive", "Share", "Whole", "is_empty", "is_none"]


class Model(BaseModel):
    """Base of every wire model."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
        ser_json_inf_nan="constants",
    )

    @classmethod
    def trusted(cls, values: Iterable[dict[str, Any]], given: set[str]) -> list[Self]:
        """An object for each of these values, which are all of its fields and of their types already, without validating them: a plan may have
        40,000 probes. `given` names the fields; the objects share it.
        """
        made = []
        for fields in values:
            one = cls.__new__(cls)
            _fill(one, fields)  # each of the four setters is fetched once: half the time of `object.__setattr__`
            _set_given(one, given)
            _set_extra(one, None)
            _set_private(one, None)
            made.append(one)
        return made


_fill, _set_given, _set_extra, _set_private = (
    BaseModel.__dict__[name].__set__ for name in ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
)


def _is_number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise PydanticCustomError("number", "must be a number")
    if isinstance(value, int) and abs(value) >= 1 << 1023:
        # float(value) would raise OverflowError, which is not a validation error.
        raise PydanticCustomError("number", "must be a number below 1e308")
    return value


def _is_whole(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value // 1:
        raise PydanticCustomError("whole", "must be a whole number")
    return int(value)


# The formats are for generated clients: without them Go takes a number for 32 bits and Java for a BigDecimal.
Number = Annotated[float, BeforeValidator(_is_number), Field(json_schema_extra={"format": "double"})]
Flag = Annotated[bool, Strict()]
Positive = Annotated[Number, Field(gt=0)]
NonNegative = Annotated[Number, Field(ge=0)]
Share = Annotated[Number, Field(ge=0, le=1)]
Whole = Annotated[int, BeforeValidator(_is_whole), Field(json_schema_extra={"format": "int64"})]
Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,62}$", max_length=63)]


def is_none(value: object) -> bool:
    """For fields that are left out of a document where they say nothing."""
    return value is None


def is_empty(value: object) -> bool:
    """The same for lists and objects."""
    return value in ({}, [])

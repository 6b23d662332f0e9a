"""In which type attributes are compared: one that holds the values of all attributes that predicates link, without an error at run time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.request import Comparison, Query
from spark_adapter.errors import Fault

__all__ = ["Attribute", "comparison_types"]

Attribute = tuple[str, str]
"""(stream or table, attribute)."""


def comparison_types(query: Query, types: Mapping[Attribute, T.DataType], faults: list[Fault]) -> dict[Attribute, T.DataType]:
    """The type in which each attribute is compared, by the types of their own: common to all attributes that predicates link to it."""
    linked: dict[Attribute, list[Attribute]] = {attribute: [attribute] for attribute in types}
    for p, predicate in enumerate(query.predicates):
        left, right = (_attribute(side) for side in (predicate.left, predicate.right))
        if left not in types or right not in types:
            continue
        common = _common(types[left], types[right])
        ordered = predicate.op not in (Comparison.EQ, Comparison.NE)
        if common is None or (ordered and isinstance(common, (T.BooleanType, T.BinaryType))):
            kinds = [types[side].simpleString().upper() for side in (left, right)]
            both = kinds[0] == kinds[1]
            wrong = f"{kinds[0]}, which has no such comparison; name a part of it" if both else f"{' with '.join(kinds)}; cast one of them"
            faults.append(("/streams", f"predicate {p}, {predicate.left} {predicate.op} {predicate.right}, compares {wrong} under columns"))
        elif linked[left] is not linked[right]:
            group = linked[left] + linked[right]
            for member in group:
                linked[member] = group
    result: dict[Attribute, T.DataType] = {}
    for attribute, group in linked.items():
        kind: T.DataType | None = types[attribute]
        for member in group:
            kind = _common(kind, types[member]) if kind is not None else None
        if kind is None:
            # Of a group of one attribute, the fault was reported with its predicate already.
            if attribute == group[0] and len(group) > 1:
                names = ", ".join(".".join(member) for member in group)
                faults.append(
                    ("/streams", f"{names} are compared with one another, but no type of Spark holds all their values; cast them under columns")
                )
            continue
        result[attribute] = kind
    return result


def _attribute(side: str) -> Attribute:
    stream, attribute = side.split(".", 1)
    return stream, attribute


WHOLE = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
FLOATING = (T.FloatType, T.DoubleType)
BIGINT_DIGITS = 19


def _common(left: T.DataType, right: T.DataType) -> T.DataType | None:
    """The type in which both compare without an error at run time; None where there is none.

    Spark would cast text to a number and fail on the first row that holds none, so these do not compare here.
    """
    both = (left, right)
    if all(isinstance(kind, WHOLE) for kind in both):
        return T.LongType()
    if all(isinstance(kind, (*WHOLE, *FLOATING, T.DecimalType)) for kind in both):
        return T.DoubleType() if any(isinstance(kind, FLOATING) for kind in both) else _common_decimal(both)
    if all(isinstance(kind, T.DateType) for kind in both):
        return T.DateType()
    if all(isinstance(kind, (T.DateType, T.TimestampType, T.TimestampNTZType)) for kind in both):
        return T.TimestampType()
    for plain in (T.StringType(), T.BooleanType(), T.BinaryType()):
        # Text under a collation of its own compares by other rules than the join's index does.
        if left == right == plain or (
            plain == T.StringType() and all(isinstance(kind, (T.CharType, T.VarcharType)) or kind == plain for kind in both)
        ):
            return plain
    return None


def _common_decimal(kinds: Sequence[T.DataType]) -> T.DataType | None:
    scales = [kind.scale if isinstance(kind, T.DecimalType) else 0 for kind in kinds]
    digits = [kind.precision - kind.scale if isinstance(kind, T.DecimalType) else BIGINT_DIGITS for kind in kinds]
    precision = max(digits) + max(scales)
    return T.DecimalType(precision, max(scales)) if precision <= 38 else None

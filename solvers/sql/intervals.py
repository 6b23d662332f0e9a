"""Intervals of time as the dialects write them, in microseconds.

    INTERVAL 60 SECONDS   INTERVAL '1' MINUTE   INTERVAL '1 minute'   INTERVAL '1:30' MINUTE TO SECOND      Spark
    INTERVAL '60' SECOND   INTERVAL '1' DAY   INTERVAL '1.5' SECOND(3)                                      Flink
    INTERVAL '1 minute 30 seconds'   '90 seconds'::interval   INTERVAL '00:01:30'   2 * INTERVAL '1 hour'   PostgreSQL

A day is 24 hours. Months and years have no fixed length and are none of these.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation

from sqlglot import exp

__all__ = ["LONGEST", "SECOND", "interval", "is_interval_text", "microseconds", "named", "seconds"]

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
LENGTHS = {
    "microsecond": 1,
    "us": 1,
    "millisecond": 1000,
    "ms": 1000,
    "second": SECOND,
    "sec": SECOND,
    "s": SECOND,
    "minute": MINUTE,
    "min": MINUTE,
    "m": MINUTE,
    "hour": HOUR,
    "hr": HOUR,
    "h": HOUR,
    "day": 24 * HOUR,
    "d": 24 * HOUR,
    "week": 7 * 24 * HOUR,
    "w": 7 * 24 * HOUR,
}
FIELDS = ("day", "hour", "minute", "second")  # of an interval such as DAY TO SECOND
LONGEST = 100 * 366 * 24 * HOUR  # beyond any window that is meant

NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)"
PART = re.compile(rf"\s*({NUMBER})\s*([A-Za-z]+)\s*")
CLOCK = re.compile(r"\s*([+-]?)(?:(\d+) )?(\d+)((?::\d+)*)(\.\d+)?\s*")


def microseconds(node: exp.Expr | None) -> int | None:
    """The length of a constant interval; None for anything else, months included."""
    found = _length(node)
    return None if found is None or found != int(found) or abs(found) > LONGEST else int(found)


def interval(length: int) -> exp.Expr:
    """So many microseconds, written so that every dialect reads it.

    >>> interval(61_500_000).sql("spark")
    "INTERVAL '61.5' SECOND"
    """
    return exp.Interval(this=exp.Literal.string(seconds(length)), unit=exp.var("SECOND"))


def seconds(length: int) -> str:
    """
    >>> seconds(61_500_000), seconds(-60_000_000)
    ('61.5', '-60')
    """
    sign, rest = "-" if length < 0 else "", f"{abs(length) % SECOND:06}".rstrip("0")
    return f"{sign}{abs(length) // SECOND}" + (f".{rest}" if rest else "")


def named(length: int) -> str:
    """A word of letters and digits for the name of an attribute.

    >>> named(61_500_000), named(-60_000_000)
    ('plus_61_5s', 'minus_60s')
    """
    return f"{'minus' if length < 0 else 'plus'}_{seconds(abs(length)).replace('.', '_')}s"


def is_interval_text(text: str) -> bool:
    """Whether the quoted part of an interval is one that is read whole: numbers with units, or a number or a clock alone."""
    return CLOCK.fullmatch(text) is not None or re.fullmatch(rf"(?:{PART.pattern})+", text) is not None


def _signed(node: exp.Expr | None, read: Callable[[exp.Expr | None], Decimal | None]) -> Decimal | None:
    """What `read` finds inside parentheses and behind minus signs."""
    negative = False
    while isinstance(node, (exp.Paren, exp.Neg)):
        negative ^= isinstance(node, exp.Neg)
        node = node.this
    found = read(node)
    return -found if negative and found is not None else found


def _length(node: exp.Expr | None) -> Decimal | None:
    return _signed(node, _unsigned_length)


def _number(node: exp.Expr | None) -> Decimal | None:
    return _signed(node, _unsigned_number)


def _unsigned_length(node: exp.Expr | None) -> Decimal | None:
    if isinstance(node, (exp.Add, exp.Sub)):
        left, right = _length(node.left), _length(node.right)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if isinstance(node, exp.Mul):
        for length, factor in ((_length(node.left), _number(node.right)), (_length(node.right), _number(node.left))):
            if length is not None and factor is not None:
                return length * factor
        return None
    if isinstance(node, exp.Interval):
        return _written(node)
    if isinstance(node, exp.Cast) and node.to.this is exp.DType.INTERVAL and isinstance(node.this, exp.Literal):
        return _text(node.this.name)
    return None


def _unsigned_number(node: exp.Expr | None) -> Decimal | None:
    if not isinstance(node, exp.Literal):
        return None
    try:
        found = Decimal(node.name)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _written(node: exp.Interval) -> Decimal | None:
    unit = node.args.get("unit")
    if unit is None:
        return _text(node.this.name) if isinstance(node.this, exp.Literal) else None
    if isinstance(unit, exp.IntervalSpan):
        return _span(node.name, unit.this.name.lower(), unit.expression.name.lower())
    name = unit.name if isinstance(unit, exp.Var) else unit.key  # SECOND(3) reads as a function
    length, amount = _unit(name), _number(node.this)
    return None if length is None or amount is None else amount * length


def _unit(name: str) -> int | None:
    name = name.lower()
    return LENGTHS.get(name, LENGTHS.get(name.removesuffix("s")))


def _text(text: str) -> Decimal | None:
    """Of an interval without a unit of its own: numbers with theirs, a clock, or seconds."""
    if CLOCK.fullmatch(text):
        return _clock(text, "hour" if ":" in text else "second")
    total, at = Decimal(0), 0
    while at < len(text):
        part = PART.match(text, at)
        length = _unit(part[2]) if part else None
        if part is None or length is None:
            return None
        total += Decimal(part[1]) * length
        at = part.end()
    return total


def _span(text: str, first: str, last: str) -> Decimal | None:
    """'1 02:03:04' DAY TO SECOND, '1:30' MINUTE TO SECOND and the like."""
    if first not in FIELDS or last not in FIELDS:
        return None
    return _clock(text, "hour" if first == "day" else first, last if first == "day" else "")


def _clock(text: str, first: str, last: str = "") -> Decimal | None:
    """A clock, D H:M:S.f or a part of it. `first` is the unit of the number after the days; `last`, where it is given, has to be that of the last."""
    found = CLOCK.fullmatch(text)
    if found is None:
        return None
    sign, days, number, more, fraction = found.groups(default="")
    numbers = [number, *more.split(":")[1:]]
    units = FIELDS[FIELDS.index(first) :][: len(numbers)]
    if len(numbers) != len(units) or (last and units[-1] != last) or (fraction and units[-1] != "second"):
        return None
    total = sum((Decimal(value) * LENGTHS[unit] for value, unit in zip(numbers, units, strict=True)), Decimal(days or 0) * LENGTHS["day"])
    total += Decimal(fraction or 0) * SECOND
    return -total if sign else total

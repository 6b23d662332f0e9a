"""SQL expressions from bindings: parsed by Spark as expressions, and only those that compute a value from one row.

No text of a binding is ever run as a statement. Spark's expression language has a few doors out of a row, and
these are shut before Spark resolves anything: subqueries, window functions, functions that call Java by name,
and function names put together from text.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - everyone's name for it

__all__ = [
    "SPARK_ERRORS",
    "ExpressionError",
    "Reference",
    "analyzed",
    "column_or_expression",
    "milliseconds",
    "quietly",
    "quoted",
    "references",
    "said",
]

Reference = tuple[str, ...]
"""A name as its parts: (bids, price); (bids,) for a whole stream; () for all of them."""

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What Spark raises where it cannot do what it is asked; the second where PySpark does not know the first's class."""

# Built-in functions that call any Java method by its name.
CALLS_JAVA = frozenset({"reflect", "java_method", "try_reflect"})
# Classes of Spark's syntax tree, and what a person calls them.
NOT_OF_ONE_ROW = {
    "ScalarSubquery": "a subquery",
    "Exists": "a subquery",
    "ListQuery": "a subquery",
    "InSubquery": "a subquery",
    "LateralSubquery": "a subquery",
    "FunctionTableSubqueryArgumentExpression": "a subquery",
    "WindowExpression": "a window function",
    "UnresolvedWindowExpression": "a window function",
    "ExpressionWithUnresolvedIdentifier": "identifier()",
}
# Operators of Spark's analyzed plan that a plain projection does not need.
NOT_A_PROJECTION = {"Aggregate": "an aggregate", "Generate": "a function that makes many rows of one", "Window": "a window function"}


class ExpressionError(Exception):
    """One sentence on what is wrong with an expression."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node of Spark's syntax tree, which lives in the JVM."""

    java: Any

    @property
    def kind(self) -> str:
        return str(self.java.getClass().getSimpleName())

    @property
    def children(self) -> list[_Node]:
        found = self.java.children()
        return [_Node(found.apply(i)) for i in range(found.size())]


def quoted(*names: str) -> str:
    """A name of one or more parts, quoted for Spark's parser.

    >>> quoted("bids", "we`ird")
    '`bids`.`we``ird`'
    """
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def references(spark: SparkSession, text: str) -> list[Reference]:
    """The names that an expression mentions. Raises ExpressionError where it is not an expression over one row."""
    try:
        root = spark._jsparkSession.sessionState().sqlParser().parseExpression(text)
    except SPARK_ERRORS as error:
        raise ExpressionError(f"{text!r} is not a SQL expression: {said(error)}") from None
    found: list[Reference] = []
    waiting = [_Node(root)]
    while waiting:
        node = waiting.pop()
        kind = node.kind
        if kind in NOT_OF_ONE_ROW:
            raise ExpressionError(f"{text!r} uses {NOT_OF_ONE_ROW[kind]}; only expressions over the row itself are taken")
        if kind == "UnresolvedFunction" and _parts(node.java.nameParts())[-1].lower() in CALLS_JAVA:
            raise ExpressionError(
                f"{text!r} calls {_parts(node.java.nameParts())[-1]}(), which runs Java code; only expressions over the row are taken"
            )
        if "Star" in kind:
            target = node.java.target() if kind == "UnresolvedStar" else None
            found.append(_parts(target.get()) if target is not None and target.isDefined() else ())
        elif kind == "UnresolvedAttribute":
            found.append(_parts(node.java.nameParts()))
        waiting.extend(node.children)
    return found


def analyzed(frame: DataFrame, text: str) -> DataFrame:
    """`frame` projected to the expression, resolved by Spark; ExpressionError where it cannot be."""
    return resolved(frame, F.expr(text), repr(text))


def column_or_expression(spark: SparkSession, frame: DataFrame, text: str) -> Column:
    """The column of that name where there is one, whatever characters it has; otherwise the text as an expression of one value."""
    if text in frame.columns:
        return F.col(quoted(text))
    references(spark, text)
    projected = analyzed(frame, text)
    if len(projected.columns) != 1:
        raise ExpressionError(f"{text!r} is more than one column")
    if not projected._jdf.queryExecution().analyzed().expressions().apply(0).deterministic():
        # A batch that is worked off again after a failure must find the same partners.
        raise ExpressionError(f"{text!r} is not the same every time it is computed")
    return F.expr(text)


def resolved(frame: DataFrame, column: Column, shown: str) -> DataFrame:
    try:
        projected = frame.select(column)
    except SPARK_ERRORS as error:
        raise ExpressionError(f"{shown} cannot be resolved: {said(error)}") from None
    waiting = [_Node(projected._jdf.queryExecution().analyzed())]
    while waiting:
        node = waiting.pop()
        if node.kind in NOT_A_PROJECTION:
            raise ExpressionError(f"{shown} is {NOT_A_PROJECTION[node.kind]}; only expressions over one row are taken")
        waiting.extend(node.children)
    return projected


@contextmanager
def quietly() -> Iterator[None]:
    """Without PySpark's own log of errors, stack traces and all: ours are reported together, in sentences."""
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def said(error: BaseException) -> str:
    """What Spark says is wrong: its sentence, without error class, SQL state and stack trace."""
    whole = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in whole.splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    if text.endswith("Traceback (most recent call last):"):
        # A Python source failed: what it says comes last.
        text = text.removesuffix("Traceback (most recent call last):") + next(line for line in reversed(lines) if not line.startswith("SQLSTATE"))
    if text.startswith("[") and "] " in text:
        text = text.split("] ", 1)[1]
    return text.split(" SQLSTATE:", 1)[0].rstrip(" .;")


def _parts(names: Any) -> Reference:
    return tuple(str(names.apply(i)) for i in range(names.size()))


def milliseconds(spark: SparkSession, interval: str) -> int:
    """An interval like '10 seconds', as Spark reads those of watermarks."""
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    return int(catalyst.plans.logical.EventTimeWatermark.getDelayMs(catalyst.util.IntervalUtils.fromIntervalString(interval)))

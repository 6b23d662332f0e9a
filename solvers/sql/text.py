"""The text of a query: parsed by sqlglot, and every place in it found again for people.

sqlglot notes where names, numbers and functions stand, not where a clause does. A fault is therefore put at the first thing inside the
part that is wrong, or at a keyword before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from models.faults import MAX_FAULTS
from solvers.sql.intervals import is_interval_text

__all__ = ["DIALECTS", "FaultError", "Faults", "Text", "parsed", "sqlglots"]

SQL, DIALECT = "/sql", "/dialect"

# sqlglot has no dialect of Flink's. Both quote names with `…` and text with '…', and Spark's reads whatever Flink's interval joins are written in.
FLINK = {"flink": "spark"}
DIALECTS = tuple(sorted({*FLINK, *(name for name in sqlglot.Dialect.classes if name)}))


class FaultError(Exception):
    """One thing that is wrong: a pointer into the request, and a sentence."""

    def __init__(self, pointer: str, sentence: str) -> None:
        super().__init__(sentence)
        self.fault = (pointer, sentence)


class Faults(list[tuple[str, str]]):
    """All that is found wrong, so that it can be said at once."""

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """What one part of the query is refused for does not keep the next from being read."""
        try:
            yield
        except FaultError as error:
            if len(self) < MAX_FAULTS and error.fault not in self:
                self.append(error.fault)


@dataclass(frozen=True, slots=True)
class Text:
    """A query as it was written."""

    sql: str
    dialect: str
    """As sqlglot calls it."""
    tokens: tuple[Token, ...]

    def fault(self, node: exp.Expr, sentence: str, keyword: str = "") -> FaultError:
        """The sentence, with the place of the node, or of what it is part of; or of the last `keyword` before it, or the first one at all."""
        starts = _starts(node)
        while not starts and node.parent is not None:
            node = node.parent
            starts = _starts(node)
        if keyword:
            found = [token.start for token in self.tokens if token.text.upper().split()[:1] == [keyword]]
            before = [start for start in found if starts and start < min(starts)]
            starts = before[-1:] or found[:1] or starts
        return self.fault_at(min(starts, default=0), sentence)

    def fault_at(self, start: int, sentence: str) -> FaultError:
        line, column = self.sql.count("\n", 0, start) + 1, start - self.sql.rfind("\n", 0, start)
        return FaultError(SQL, f"line {line}, column {column}: {sentence}")


def _starts(node: exp.Expr) -> list[int]:
    return [int(inner.meta["start"]) for inner in node.walk() if "start" in inner.meta]


def sqlglots(dialect: str) -> str:
    """sqlglot's name of a dialect."""
    name = dialect.strip().lower()
    if name not in DIALECTS:
        raise FaultError(DIALECT, f"dialect must be one of {', '.join(DIALECTS)}; got {dialect!r}")
    return FLINK.get(name, name)


def parsed(sql: str, dialect: str) -> tuple[Text, exp.Expr]:
    """The one statement of the text. Raises FaultError."""
    name = sqlglots(dialect)
    text, reader = Text(sql, name, ()), sqlglot.Dialect.get_or_raise(name)
    try:
        tokens = reader.tokenize(sql)
        text = Text(sql, name, tuple(tokens))
        _check_intervals(text)
        statements = [one for one in reader.parser().parse(tokens, sql) if one is not None and not isinstance(one, exp.Semicolon)]
    except TokenError as error:
        raise _unreadable(text, error) from None
    except ParseError as error:
        raise _unparsed(text, error.errors[0]) from None
    except SqlglotError as error:
        raise text.fault_at(0, str(error)) from None
    except RecursionError:
        raise text.fault_at(0, "the query is nested too deeply to be read") from None
    if len(statements) != 1:
        raise text.fault_at(0, f"one query is asked for, got {len(statements) or 'none'}")
    return text, statements[0]


def _check_intervals(text: Text) -> None:
    """sqlglot reads INTERVAL '1 day 02:00' as one day: what it would read in part is refused before it does."""
    for keyword, value in zip(text.tokens, text.tokens[1:], strict=False):
        if keyword.token_type is TokenType.INTERVAL and value.token_type is TokenType.STRING and not is_interval_text(value.text):
            raise text.fault_at(value.start, f"the interval '{value.text}' is not understood; write it like INTERVAL '90' SECOND")


def _unreadable(text: Text, error: TokenError) -> FaultError:
    """sqlglot says where a quote stands that is never closed, as line:offset in the whole text, and of nothing else that makes no word."""
    found = re.search(r"Missing (.*) from \d+:(\d+)", str(error.__cause__ or error))
    if found is None:
        return text.fault_at(0, "the text cannot be read as SQL")
    return text.fault_at(int(found[2]), f"what begins here is never closed: {found[1]} is missing")


def _unparsed(text: Text, error: dict[str, Any]) -> FaultError:
    said = str(error["description"] or "this is not SQL").split(" but got <Token")[0].rstrip(".")
    if "<class" in said:
        said = "something is missing"
    shown = str(error["highlight"] or "")
    start = len(str(error["start_context"] or ""))
    before = text.sql.find(str(error["start_context"] or "") + shown)
    # sqlglot keeps the hundred characters before a fault, so where they stand has to be looked for.
    return text.fault_at(max(0, before) + start, f"{said[:1].lower()}{said[1:]}" + (f", at {shown!r}" if shown else ""))
